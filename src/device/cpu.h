/* What the files of the cpu device share.
 *
 * Each cpu_*.c is compiled once for each instruction set and exports one function, which puts its
 * kernels into a table: LSI_K(install_act) is lsi_avx2_install_act and so on. isa.c builds one
 * table an instruction set from them.
 */
#ifndef LSI_DEVICE_CPU_H
#define LSI_DEVICE_CPU_H

#include "device/kernels.h"

/* The parts, in the order in which they are installed: X(file). */
#define LSI_CPU_PARTS(X)                                                                           \
    X(linear)                                                                                      \
    X(conv)                                                                                        \
    X(attention)                                                                                   \
    X(interact)                                                                                    \
    X(norm)                                                                                        \
    X(batchnorm)                                                                                   \
    X(batchnorm_grad)                                                                              \
    X(act)                                                                                         \
    X(elementwise)                                                                                 \
    X(dropout)                                                                                     \
    X(softmax)                                                                                     \
    X(move)                                                                                        \
    X(embed)                                                                                       \
    X(pool)                                                                                        \
    X(loss)                                                                                        \
    X(optim)                                                                                       \
    X(optim_idle)

#define LSI_DECLARE_PLAIN(part) void lsi_plain_install_##part(lsi_kernels *kernels);
#define LSI_DECLARE_AVX2(part) void lsi_avx2_install_##part(lsi_kernels *kernels);
#define LSI_DECLARE_AVX512(part) void lsi_avx512_install_##part(lsi_kernels *kernels);
#define LSI_DECLARE_NEON(part) void lsi_neon_install_##part(lsi_kernels *kernels);
LSI_CPU_PARTS(LSI_DECLARE_PLAIN)
#if defined(__x86_64__)
LSI_CPU_PARTS(LSI_DECLARE_AVX2)
LSI_CPU_PARTS(LSI_DECLARE_AVX512)
#elif defined(__aarch64__)
LSI_CPU_PARTS(LSI_DECLARE_NEON)
#endif

#endif

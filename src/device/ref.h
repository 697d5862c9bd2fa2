/* The reference device: obvious loops, the oracle that the other devices are held against.
 *
 * 1. A kernel is written as its formula reads. Nothing is blocked, fused or vectorised by hand.
 * 2. Sums run in double and are rounded once, at the end. Where the contract fixes an order of
 *    additions in f32 (gradients of embeddings), that order is the formula.
 * 3. One file a group of kernels; each function has exactly the type of its member of lsi_kernels.
 */
#ifndef LSI_DEVICE_REF_H
#define LSI_DEVICE_REF_H

#include "device/kernels.h"

/* Every kernel, in the order of kernels.h; ref.c asserts that none is missing. */
#define LSI_REF_KERNELS(X)                                                                         \
    X(linear)                                                                                      \
    X(linear_dx)                                                                                   \
    X(linear_dw)                                                                                   \
    X(conv2d)                                                                                      \
    X(conv2d_dx)                                                                                   \
    X(conv2d_dw)                                                                                   \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(interact)                                                                                    \
    X(interact_grad)                                                                               \
    X(layernorm)                                                                                   \
    X(layernorm_grad)                                                                              \
    X(batchnorm)                                                                                   \
    X(batchnorm_eval)                                                                              \
    X(batchnorm_grad)                                                                              \
    X(act)                                                                                         \
    X(act_grad)                                                                                    \
    X(add)                                                                                         \
    X(mul)                                                                                         \
    X(sum_repeats)                                                                                 \
    X(scale)                                                                                       \
    X(fill)                                                                                        \
    X(dropout)                                                                                     \
    X(softmax)                                                                                     \
    X(softmax_grad)                                                                                \
    X(copy2d)                                                                                      \
    X(permute)                                                                                     \
    X(embed)                                                                                       \
    X(embed_grad)                                                                                  \
    X(embed_rows_grad)                                                                             \
    X(embed_bag)                                                                                   \
    X(embed_bag_grad)                                                                              \
    X(maxpool)                                                                                     \
    X(maxpool_grad)                                                                                \
    X(avgpool)                                                                                     \
    X(avgpool_grad)                                                                                \
    X(cross_entropy)                                                                               \
    X(bce)                                                                                         \
    X(mse)                                                                                         \
    X(sgd)                                                                                         \
    X(adam)                                                                                        \
    X(sgd_rows)                                                                                    \
    X(adam_rows)                                                                                   \
    X(sgd_idle)                                                                                    \
    X(adam_idle)                                                                                   \
    X(lamb_direction)                                                                              \
    X(block_squares)                                                                               \
    X(find_nonfinite)

#define LSI_REF_DECLARE(name) extern __typeof__(*((lsi_kernels *)0)->name) lsi_ref_##name;
LSI_REF_KERNELS(LSI_REF_DECLARE)
#undef LSI_REF_DECLARE

const lsi_kernels *lsi_ref_kernels(void);

/* An activation at x, and its slope there (relu's at 0 is 0). */
double lsi_ref_act_value(lsi_act act, double x);
double lsi_ref_act_slope(lsi_act act, double x);

/* 1 when element `e` of sample `s` is kept by this dropout. */
int lsi_ref_kept(const lsi_dropout *dropout, size_t s, uint64_t e);

/* Write a result, or add it to what is there. */
static inline void lsi_ref_put(float *out, double value, int add)
{
    *out = (float)(add ? (double)*out + value : value);
}

#endif

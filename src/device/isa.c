/* Instruction sets of the cpu device: one table of kernels each, chosen once a process. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/cpu.h"

#define INSTALL_PLAIN(part) lsi_plain_install_##part(&tables[0]);
#define INSTALL_AVX2(part) lsi_avx2_install_##part(&tables[1]);
#define INSTALL_AVX512(part) lsi_avx512_install_##part(&tables[2]);
#define INSTALL_NEON(part) lsi_neon_install_##part(&tables[1]);

#if defined(__x86_64__)
static const char *const names[] = {"plain", "avx2", "avx512"};
#elif defined(__aarch64__)
static const char *const names[] = {"plain", "neon"};
#else
static const char *const names[] = {"plain"};
#endif
#define COUNT ((int)(sizeof names / sizeof *names))

static lsi_kernels tables[COUNT];
static int chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

int lsi_isa_count(void)
{
    return COUNT;
}

const char *lsi_isa_name(int i)
{
    return i >= 0 && i < COUNT ? names[i] : NULL;
}

int lsi_isa_usable(int i)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (i == 1)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (i == 2)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#elif defined(__aarch64__)
    if (i == 1)
        return 1; /* part of every such machine */
#endif
    return i == 0;
}

static void build(void)
{
    LSI_CPU_PARTS(INSTALL_PLAIN)
#if defined(__x86_64__)
    LSI_CPU_PARTS(INSTALL_AVX2)
    LSI_CPU_PARTS(INSTALL_AVX512)
#elif defined(__aarch64__)
    LSI_CPU_PARTS(INSTALL_NEON)
#endif
    const char *wanted = getenv("LOCKSTEP_ISA");
    for (int i = 0; i < COUNT; i++) {
        tables[i].isa = names[i];
        if (lsi_isa_usable(i) && (!wanted || !*wanted || i == 0 || !strcmp(wanted, names[i])))
            chosen = i;
    }
}

ls_status lsi_isa_check(void)
{
    const char *wanted = getenv("LOCKSTEP_ISA");
    char usable[64] = "";
    for (int i = 0; i < COUNT; i++) {
        if (!lsi_isa_usable(i))
            continue;
        if (!wanted || !*wanted || !strcmp(wanted, names[i]))
            return LS_OK;
        const size_t used = strlen(usable);
        snprintf(usable + used, sizeof usable - used, "%s%s", used ? ", " : "", names[i]);
    }
    return lsi_fail(LS_ERR_CONFIG, "unset it for the widest", "LOCKSTEP_ISA",
                    "'%.40s' is none of what can be used here: %s", wanted, usable);
}

const lsi_kernels *lsi_isa_kernels(int i)
{
    pthread_once(&once, build);
    return i >= 0 && i < COUNT && lsi_isa_usable(i) ? &tables[i] : NULL;
}

int lsi_isa_chosen(void)
{
    pthread_once(&once, build);
    return chosen;
}

/* Parameters to try optimizers on: several of odd sizes, with gaps, in one flat array. */
#ifndef TEST_OPTIM_ARRAYS_H
#define TEST_OPTIM_ARRAYS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lockstep/optim.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        ls_status ok_status = (call);                                                              \
        if (ok_status != LS_OK)                                                                    \
            fail_msg("%s: %s", #call, ls_last_error());                                            \
    } while (0)

enum { MOST_PARAMS = 16 };

typedef struct arrays {
    ls_param_info info[MOST_PARAMS];
    int count;
    size_t elements;
    float *w, *g;
} arrays;

static uint64_t random_state = 88172645463325252u;

static inline uint32_t random_word(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

static inline float random_float(void) /* in [-1, 1) */
{
    return (float)((double)random_word() / 2147483648.0 - 1);
}

static inline void add_param(arrays *a, const char *name, size_t rows, size_t width, int no_decay,
                             int sparse)
{
    ls_param_info *info = &a->info[a->count++];
    *info = (ls_param_info){.name = name,
                            .ndim = 2,
                            .dims = {rows, width},
                            .offset = a->elements,
                            .count = rows * width,
                            .no_decay = no_decay,
                            .sparse = sparse};
    a->elements = (info->offset + info->count + 15) / 16 * 16;
}

/* Fill parameters and gradients of those; gaps stay zero. */
static inline void fill(arrays *a)
{
    a->w = calloc(a->elements + 1, sizeof *a->w);
    a->g = calloc(a->elements + 1, sizeof *a->g);
    assert_non_null(a->w);
    assert_non_null(a->g);
    for (int p = 0; p < a->count; p++) {
        for (size_t i = 0; i < a->info[p].count; i++)
            a->w[a->info[p].offset + i] = random_float();
    }
}

static inline void new_gradient(arrays *a)
{
    for (int p = 0; p < a->count; p++) {
        for (size_t i = 0; i < a->info[p].count; i++)
            a->g[a->info[p].offset + i] = 5 * random_float();
    }
}

static inline arrays usual_arrays(void)
{
    arrays a = {.count = 0};
    add_param(&a, "first.bias", 1, 3, 1, 0);
    add_param(&a, "first.weight", 61, 97, 0, 0);
    add_param(&a, "norm.weight", 1, 17, 1, 0);
    add_param(&a, "middle.weight", 128, 64, 0, 0);
    add_param(&a, "one", 1, 1, 0, 0);
    add_param(&a, "last.weight", 100, 33, 0, 0);
    fill(&a);
    return a;
}

static inline void free_arrays(arrays *a)
{
    free(a->w);
    free(a->g);
}

static inline void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t x, y;
        memcpy(&x, &a[i], sizeof x);
        memcpy(&y, &b[i], sizeof y);
        if (x != y)
            fail_msg("%s: element %zu is %.9g, not %.9g", what, i, (double)a[i], (double)b[i]);
    }
}

/* Parameters and every array of state. */
static inline void assert_same_result(ls_optimizer *a, const float *aw, ls_optimizer *b,
                                      const float *bw, size_t elements)
{
    const char *name;
    assert_same_bits(aw, bw, elements, "parameters");
    for (int i = 0; ls_optimizer_state(a, i, &name); i++) {
        assert_non_null(ls_optimizer_state(b, i, NULL));
        assert_same_bits(ls_optimizer_state(a, i, NULL), ls_optimizer_state(b, i, NULL), elements,
                         name);
    }
}

static inline ls_optimizer *make(const ls_optim_config *config, const arrays *a)
{
    ls_optimizer *o = NULL;
    OK(ls_optimizer_create(config, a->info, a->count, a->elements, &o));
    return o;
}

#endif

/* Optimizer updates: each element of gradient, state and weight is read once and written once. One
 * step of sixteen elements is in vec_optim.h. Also what is summed or looked for over parameters.
 *
 * 1. Square roots and divisions are exact: no approximations that differ between machines.
 * 2. Without a gradient (g == NULL) the bits are those of a gradient of zeros.
 *
 * Adam: D. Kingma, J. Ba, ICLR 2015; AdamW: I. Loshchilov, F. Hutter, ICLR 2019; LAMB: Y. You et
 * al., ICLR 2020.
 */
#include "device/cpu.h"
#include "device/vec_double.h"
#include "device/vec_optim.h"

#define SQUARES_BLOCK 4096 /* elements of a sum of squares */
#define SCAN_BLOCK 1024    /* elements that find_nonfinite looks at before it decides */

LSI_VEC v16 gradient(const float *g, float scale, size_t at, size_t n)
{
    return g ? v16_mul(v16_set1(scale), v16_get(g + at, n)) : v16_zero();
}

LSI_VEC void sgd_at(const lsi_sgd *p, const float *g, float *m, float *w, size_t at, size_t n)
{
    v16 moment = m && !p->first ? v16_get(m + at, n) : v16_zero();
    const v16 weight = v16_sgd_step(p, p->lr, gradient(g, p->scale, at, n), &moment, m != NULL,
                                    p->first, v16_get(w + at, n));
    if (m)
        v16_put(m + at, moment, n);
    v16_put(w + at, weight, n);
}

static ls_status sgd(lsi_device *device, const lsi_sgd *p, size_t n, const float *g, float *m,
                     float *w)
{
    (void)device;
    const lsi_sgd fixed = *p; /* no store below can change it: it stays in registers */
    if (m)
        V16_FOR_EACH(n, sgd_at, &fixed, g, m, w);
    else
        V16_FOR_EACH(n, sgd_at, &fixed, g, NULL, w);
    return LS_OK;
}

LSI_VEC void adam_at(const lsi_adam *p, const lsi_adam_rate *rate, const float *g, float *m,
                     float *v, float *w, size_t at, size_t n)
{
    v16 moment = v16_get(m + at, n), square = v16_get(v + at, n);
    const v16 weight =
        v16_adam_step(p, rate, gradient(g, p->scale, at, n), &moment, &square, v16_get(w + at, n));
    v16_put(m + at, moment, n);
    v16_put(v + at, square, n);
    v16_put(w + at, weight, n);
}

static ls_status adam(lsi_device *device, const lsi_adam *p, size_t n, const float *g, float *m,
                      float *v, float *w)
{
    (void)device;
    const lsi_adam fixed = *p;
    const lsi_adam_rate rate = lsi_adam_rate_at(p);
    V16_FOR_EACH(n, adam_at, &fixed, &rate, g, m, v, w);
    return LS_OK;
}

static ls_status sgd_rows(lsi_device *device, const lsi_sgd *p, size_t rows, const size_t *at,
                          size_t n, const float *g, float *m, float *w)
{
    (void)device;
    const lsi_sgd fixed = *p;
    for (size_t r = 0; r < rows; r++, g += n) {
        if (m)
            V16_FOR_EACH(n, sgd_at, &fixed, g, m + at[r], w + at[r]);
        else
            V16_FOR_EACH(n, sgd_at, &fixed, g, NULL, w + at[r]);
    }
    return LS_OK;
}

static ls_status adam_rows(lsi_device *device, const lsi_adam *p, size_t rows, const size_t *at,
                           size_t n, const float *g, float *m, float *v, float *w)
{
    (void)device;
    const lsi_adam fixed = *p;
    const lsi_adam_rate rate = lsi_adam_rate_at(p);
    for (size_t r = 0; r < rows; r++, g += n)
        V16_FOR_EACH(n, adam_at, &fixed, &rate, g, m + at[r], v + at[r], w + at[r]);
    return LS_OK;
}

LSI_VEC void lamb_at(const lsi_adam *p, float unroot, const float *g, float *m, float *v,
                     const float *w, float *u, size_t at, size_t n)
{
    v16 moment = v16_get(m + at, n), square = v16_get(v + at, n);
    v16_adam_moments(p, gradient(g, p->scale, at, n), &moment, &square);
    if (lsi_settles(p->number))
        v16_adam_settle(p, &moment, &square);
    v16_put(m + at, moment, n);
    v16_put(v + at, square, n);
    const v16 root = v16_fma(v16_sqrt(square), v16_set1(unroot), v16_set1(p->eps));
    const v16 step = v16_div(v16_div(moment, v16_set1(p->correct1)), root);
    v16_put(u + at, v16_fma(v16_set1(p->decay), v16_get(w + at, n), step), n);
}

static ls_status lamb_direction(lsi_device *device, const lsi_adam *p, size_t n, const float *g,
                                float *m, float *v, const float *w, float *u)
{
    (void)device;
    const lsi_adam fixed = *p;
    const float unroot = lsi_adam_rate_at(p).unroot;
    V16_FOR_EACH(n, lamb_at, &fixed, unroot, g, m, v, w, u);
    return LS_OK;
}

LSI_VEC void squares_at(v16 scale, const float *x, d16 *sum, size_t at, size_t n)
{
    const v16 scaled = v16_mul(scale, v16_get(x + at, n));
    *sum = d16_add_floats(*sum, v16_mul(scaled, scaled));
}

static ls_status block_squares(lsi_device *device, size_t n, float scale, const float *x,
                               double *sums)
{
    (void)device;
    const v16 by = v16_set1(scale);
    for (size_t from = 0; from < n; from += SQUARES_BLOCK) {
        const size_t part = n - from < SQUARES_BLOCK ? n - from : SQUARES_BLOCK;
        d16 sum = d16_zero();
        V16_FOR_EACH(part, squares_at, by, x + from, &sum);
        sums[from / SQUARES_BLOCK] = d16_sum(sum);
    }
    return LS_OK;
}

/* x - x is 0, or NaN for what is not finite; NaN survives every addition. */
LSI_VEC void differences_at(const float *x, v16 *sum, size_t at, size_t n)
{
    const v16 value = v16_get(x + at, n);
    *sum = v16_add(*sum, v16_sub(value, value));
}

static ls_status find_nonfinite(lsi_device *device, size_t n, const float *x, size_t *first)
{
    (void)device;
    *first = n;
    for (size_t from = 0; from < n; from += SCAN_BLOCK) {
        const size_t part = n - from < SCAN_BLOCK ? n - from : SCAN_BLOCK;
        v16 sum = v16_zero();
        V16_FOR_EACH(part, differences_at, x + from, &sum);
        if (v16_sum(sum) == 0.0f)
            continue;
        size_t i = from;
        while (isfinite(x[i]))
            i++;
        *first = i;
        break;
    }
    return LS_OK;
}

void LSI_K(install_optim)(lsi_kernels *kernels)
{
    kernels->sgd = sgd;
    kernels->adam = adam;
    kernels->sgd_rows = sgd_rows;
    kernels->adam_rows = adam_rows;
    kernels->lamb_direction = lamb_direction;
    kernels->block_squares = block_squares;
    kernels->find_nonfinite = find_nonfinite;
}

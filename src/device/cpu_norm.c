/* Layer norm and RMS norm.
 *
 * Several rows at a time: their sums are chains of additions that do not wait for each other, gamma
 * and beta are loaded once for all, and the gradients of both are loaded and stored once for all. A
 * row is read from memory once; the later passes over it (variance after mean, result after both)
 * find it in the cache.
 *
 * 1. Sums over a row are over 16 lanes (vec.h): how many rows go together does not matter.
 * 2. The variance is that of the differences from the mean: no cancellation when the mean is large.
 * 3. Sums over rows (dgamma, dbeta) run over the rows in ascending order, from 0 or from the old
 *    value when adding.
 */
#include "device/cpu.h"
#include "device/vec.h"

#if defined(LSI_VEC_AVX512)
#define ROWS 4
#else
#define ROWS 2 /* as many as registers allow */
#endif

/* Constants of some rows: one value each. */
typedef struct row_values {
    float of[ROWS];
} row_values;

/* ---- forward -------------------------------------------------------------------------------- */

/* s = x + residual, left in `to` when given; sums of s, or of its squares. */
LSI_VEC void sum_at(size_t rows, int squares, size_t c, const float *x, const float *residual,
                    float *to, v16 sums[ROWS], size_t at, size_t n)
{
    for (size_t r = 0; r < rows; r++) {
        v16 s = v16_get(x + r * c + at, n);
        if (residual)
            s = v16_add(s, v16_get(residual + r * c + at, n));
        if (to)
            v16_put(to + r * c + at, s, n);
        sums[r] = squares ? v16_fma(s, s, sums[r]) : v16_add(sums[r], s);
    }
}

LSI_VEC void sum_rows(size_t rows, int squares, size_t c, const float *x, const float *residual,
                      float *to, row_values *out)
{
    v16 sums[ROWS];
    for (size_t r = 0; r < ROWS; r++)
        sums[r] = v16_zero();
    if (residual)
        V16_FOR_EACH(c, sum_at, rows, squares, c, x, residual, to, sums);
    else if (to)
        V16_FOR_EACH(c, sum_at, rows, squares, c, x, NULL, to, sums);
    else
        V16_FOR_EACH(c, sum_at, rows, squares, c, x, NULL, NULL, sums);
    for (size_t r = 0; r < rows; r++)
        out->of[r] = v16_sum(sums[r]);
}

LSI_VEC void variance_at(size_t rows, size_t c, const float *s, const row_values *mean,
                         v16 sums[ROWS], size_t at, size_t n)
{
    for (size_t r = 0; r < rows; r++) {
        v16 d = v16_sub(v16_get(s + r * c + at, n), v16_set1(mean->of[r]));
        if (n < 16) /* lanes past the end are not 0 but -mean */
            d = v16_first(n, d, v16_zero());
        sums[r] = v16_fma(d, d, sums[r]);
    }
}

LSI_VEC void variance_rows(size_t rows, size_t c, const float *s, const row_values *mean,
                           row_values *out)
{
    v16 sums[ROWS];
    for (size_t r = 0; r < ROWS; r++)
        sums[r] = v16_zero();
    V16_FOR_EACH(c, variance_at, rows, c, s, mean, sums);
    for (size_t r = 0; r < rows; r++)
        out->of[r] = v16_sum(sums[r]);
}

LSI_VEC void result_at(size_t rows, int rms, size_t c, const float *s, const row_values *mean,
                       const row_values *rstd, const float *gamma, const float *beta, float *y,
                       size_t at, size_t n)
{
    const v16 g = gamma ? v16_get(gamma + at, n) : v16_set1(1.0f);
    const v16 b = beta ? v16_get(beta + at, n) : v16_zero();
    for (size_t r = 0; r < rows; r++) {
        v16 value = v16_get(s + r * c + at, n);
        if (!rms)
            value = v16_sub(value, v16_set1(mean->of[r]));
        value = v16_mul(value, v16_set1(rstd->of[r]));
        if (gamma)
            value = beta ? v16_fma(value, g, b) : v16_mul(value, g);
        else if (beta)
            value = v16_add(value, b);
        v16_put(y + r * c + at, value, n);
    }
}

/* `rows` rows from x on: rows and rms are constants here. */
LSI_VEC void forward_rows(size_t rows, int rms, const lsi_norm *p, const float *x,
                          const float *residual, const float *gamma, const float *beta, float *sum,
                          float *y, float *mean, float *rstd)
{
    const size_t c = p->c;
    row_values middle = {{0}}, spread;
    /* s has to lie somewhere: where it is wanted, or else in y, which is written last. */
    float *to = sum ? sum : residual ? y : NULL;
    const float *s = to ? to : x;
    sum_rows(rows, rms, c, x, residual, to, rms ? &spread : &middle);
    if (!rms) {
        for (size_t r = 0; r < rows; r++)
            mean[r] = middle.of[r] /= (float)c;
        variance_rows(rows, c, s, &middle, &spread);
    }
    for (size_t r = 0; r < rows; r++)
        rstd[r] = spread.of[r] = 1 / sqrtf(spread.of[r] / (float)c + p->eps);
    if (gamma && beta && !rms)
        V16_FOR_EACH(c, result_at, rows, 0, c, s, &middle, &spread, gamma, beta, y);
    else if (gamma && (rms || !beta))
        V16_FOR_EACH(c, result_at, rows, rms, c, s, &middle, &spread, gamma, NULL, y);
    else
        V16_FOR_EACH(c, result_at, rows, rms, c, s, &middle, &spread, NULL, rms ? NULL : beta, y);
}

static ls_status layernorm(lsi_device *device, const lsi_norm *p, const float *x,
                           const float *residual, const float *gamma, const float *beta, float *sum,
                           float *y, float *mean, float *rstd)
{
    (void)device;
#define FORWARD(rows, rms)                                                                         \
    forward_rows(rows, rms, p, x + r * p->c, residual ? residual + r * p->c : NULL, gamma, beta,   \
                 sum ? sum + r * p->c : NULL, y + r * p->c, rms ? NULL : mean + r, rstd + r)
    size_t r = 0;
    if (p->rms) {
        for (; r + ROWS <= p->rows; r += ROWS)
            FORWARD(ROWS, 1);
        for (; r < p->rows; r++)
            FORWARD(1, 1);
    } else {
        for (; r + ROWS <= p->rows; r += ROWS)
            FORWARD(ROWS, 0);
        for (; r < p->rows; r++)
            FORWARD(1, 0);
    }
#undef FORWARD
    return LS_OK;
}

/* ---- backward ------------------------------------------------------------------------------- */

/* What a block of rows needs; arrays start at its first row. With g = gamma dy and xhat = (x -
 * mean) rstd, dx = rstd (g - mean(g) - xhat mean(g xhat)); RMS norm has no mean(g). */
typedef struct grad_rows {
    size_t c;
    int add, first; /* to dx; nothing in dgamma, dbeta yet */
    const float *x, *dy, *gamma;
    float *dx, *dgamma, *dbeta;
    row_values mean, rstd, sum, along;
} grad_rows;

LSI_VEC v16 xhat_at(const grad_rows *b, int rms, size_t r, size_t at, size_t n)
{
    const v16 x = v16_get(b->x + r * b->c + at, n), rstd = v16_set1(b->rstd.of[r]);
    return v16_mul(rms ? x : v16_sub(x, v16_set1(b->mean.of[r])), rstd);
}

LSI_VEC void grad_sums_at(const grad_rows *b, size_t rows, int rms, v16 sum[ROWS], v16 along[ROWS],
                          size_t at, size_t n)
{
    const v16 gamma = b->gamma ? v16_get(b->gamma + at, n) : v16_set1(1.0f);
    for (size_t r = 0; r < rows; r++) { /* lanes past the end: dy is 0 there */
        const v16 g = v16_mul(gamma, v16_get(b->dy + r * b->c + at, n));
        if (!rms)
            sum[r] = v16_add(sum[r], g);
        along[r] = v16_fma(g, xhat_at(b, rms, r, at, n), along[r]);
    }
}

LSI_VEC void grad_result_at(const grad_rows *b, size_t rows, int rms, size_t at, size_t n)
{
    const v16 gamma = b->gamma ? v16_get(b->gamma + at, n) : v16_set1(1.0f), zero = v16_zero();
    v16 dgamma = b->dgamma && !b->first ? v16_get(b->dgamma + at, n) : zero;
    v16 dbeta = b->dbeta && !b->first ? v16_get(b->dbeta + at, n) : zero;
    for (size_t r = 0; r < rows; r++) {
        const v16 dy = v16_get(b->dy + r * b->c + at, n), xhat = xhat_at(b, rms, r, at, n);
        dgamma = v16_fma(dy, xhat, dgamma);
        dbeta = v16_add(dbeta, dy);
        if (!b->dx)
            continue;
        float *dx = b->dx + r * b->c + at;
        v16 g = v16_mul(gamma, dy);
        if (!rms)
            g = v16_sub(g, v16_set1(b->sum.of[r]));
        g = v16_mul(v16_fnma(xhat, v16_set1(b->along.of[r]), g), v16_set1(b->rstd.of[r]));
        v16_put(dx, b->add ? v16_add(v16_get(dx, n), g) : g, n);
    }
    if (b->dgamma)
        v16_put(b->dgamma + at, dgamma, n);
    if (b->dbeta)
        v16_put(b->dbeta + at, dbeta, n);
}

LSI_VEC void backward_rows(grad_rows *b, size_t rows, int rms, const float *mean, const float *rstd)
{
    v16 sum[ROWS], along[ROWS];
    for (size_t r = 0; r < rows; r++) {
        b->mean.of[r] = rms ? 0 : mean[r];
        b->rstd.of[r] = rstd[r];
        sum[r] = along[r] = v16_zero();
    }
    if (b->dx)
        V16_FOR_EACH(b->c, grad_sums_at, b, rows, rms, sum, along);
    for (size_t r = 0; r < rows; r++) {
        b->sum.of[r] = v16_sum(sum[r]) / (float)b->c;
        b->along.of[r] = v16_sum(along[r]) / (float)b->c;
    }
    V16_FOR_EACH(b->c, grad_result_at, b, rows, rms);
    b->first = 0;
    b->x += rows * b->c;
    b->dy += rows * b->c;
    if (b->dx)
        b->dx += rows * b->c;
}

static ls_status layernorm_grad(lsi_device *device, const lsi_norm *p, const float *x,
                                const float *gamma, const float *mean, const float *rstd,
                                const float *dy, float *dx, int add, float *dgamma, float *dbeta,
                                int add_params)
{
    (void)device;
    grad_rows b = {.c = p->c,
                   .add = add,
                   .first = !add_params,
                   .x = x,
                   .dy = dy,
                   .gamma = gamma,
                   .dx = dx,
                   .dgamma = dgamma,
                   .dbeta = p->rms ? NULL : dbeta};
    size_t r = 0;
    if (p->rms) {
        for (; r + ROWS <= p->rows; r += ROWS)
            backward_rows(&b, ROWS, 1, NULL, rstd + r);
        for (; r < p->rows; r++)
            backward_rows(&b, 1, 1, NULL, rstd + r);
    } else {
        for (; r + ROWS <= p->rows; r += ROWS)
            backward_rows(&b, ROWS, 0, mean + r, rstd + r);
        for (; r < p->rows; r++)
            backward_rows(&b, 1, 0, mean + r, rstd + r);
    }
    if (b.first && b.dgamma) /* no rows: a sum of nothing */
        memset(b.dgamma, 0, p->c * sizeof *b.dgamma);
    if (b.first && b.dbeta)
        memset(b.dbeta, 0, p->c * sizeof *b.dbeta);
    return LS_OK;
}

void LSI_K(install_norm)(lsi_kernels *kernels)
{
    kernels->layernorm = layernorm;
    kernels->layernorm_grad = layernorm_grad;
}

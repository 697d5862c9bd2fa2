/* Batch norm: statistics for each of c channels over all rows (n h w), channels last.
 *
 * x is read twice: for the statistics, and for the result with residual and relu.
 *
 * 1. The order of summation is that of cpu_slice.h.
 * 2. The sum of squares of a block of rows is that of the differences from the block's own mean,
 *    taken while the block is in the cache; blocks are combined by T. Chan, G. Golub, R. LeVeque,
 *    "Updating formulae and a pairwise algorithm for computing sample variances", 1979. A large
 *    mean does not cancel the variance.
 */
#include "device/cpu.h"

#include "base/status.h"
#include "device/cpu_slice.h"

#if defined(LSI_VEC_AVX512)
#define WIDE 4 /* vectors of channels at a time */
#else
#define WIDE 1
#endif

/* ---- statistics ----------------------------------------------------------------------------- */

/* One row into chain j: x, or (x - mean)^2. */
LSI_VEC void sum_row(int vectors, size_t last, const float *x, int squares, const v16 *mean,
                     v16 chain[][CHAINS], int j)
{
    UNROLL
    for (int k = 0; k < vectors; k++) {
        const v16 value = v16_get(x + 16 * k, width(vectors, last, k));
        if (squares) {
            const v16 d = v16_sub(value, mean[k]);
            chain[k][j] = v16_fma(d, d, chain[k][j]);
        } else {
            chain[k][j] = v16_add(chain[k][j], value);
        }
    }
}

/* Sums of `rows` rows: of x, or of (x - mean)^2 when there is a mean. */
LSI_VEC void block_sums(int vectors, size_t last, size_t rows, size_t c, const float *x,
                        const float *mean, float *sums)
{
    v16 chain[WIDE][CHAINS], middle[WIDE];
    UNROLL
    for (int k = 0; k < vectors; k++) {
        UNROLL
        for (int j = 0; j < CHAINS; j++)
            chain[k][j] = v16_zero();
        middle[k] = mean ? v16_load(mean + 16 * k) : v16_zero();
    }
    size_t r = 0;
    for (; r + CHAINS <= rows; r += CHAINS, x += CHAINS * c) {
        UNROLL
        for (int j = 0; j < CHAINS; j++)
            sum_row(vectors, last, x + (size_t)j * c, mean != NULL, middle, chain, j);
    }
    UNROLL
    for (int j = 0; j < CHAINS - 1; j++)
        if (r + (size_t)j < rows)
            sum_row(vectors, last, x + (size_t)j * c, mean != NULL, middle, chain, j);
    UNROLL
    for (int k = 0; k < vectors; k++)
        v16_store(sums + 16 * k, join(chain[k]));
}

/* The statistics of a block of n channels into the mean and the sum of squares (from the mean) of
 * the `before` rows that came before. */
static void combine(size_t n, size_t before, size_t rows, const float *sums, const float *spread,
                    double *mean, double *squares)
{
    const double part = (double)rows / (double)(before + rows);
    for (size_t i = 0; i < n; i++) {
        const double step = (double)sums[i] / (double)rows - mean[i];
        mean[i] += step * part;
        squares[i] += (double)spread[i] + step * step * part * (double)before;
    }
}

LSI_VEC void block_statistics(int vectors, size_t last, size_t before, size_t rows, size_t c,
                              const float *x, double *mean, double *squares)
{
    float sums[16 * WIDE], middle[16 * WIDE], spread[16 * WIDE];
    block_sums(vectors, last, rows, c, x, NULL, sums);
    for (int i = 0; i < 16 * vectors; i++)
        middle[i] = sums[i] / (float)rows;
    block_sums(vectors, last, rows, c, x, middle, spread);
    combine(16 * (size_t)(vectors - 1) + last, before, rows, sums, spread, mean, squares);
}

/* mean (c) and squares (c): the sums of squared differences from it. */
static void statistics(size_t rows, size_t c, const float *x, double *mean, double *squares)
{
    for (size_t i = 0; i < c; i++)
        mean[i] = squares[i] = 0;
    for (size_t r = 0; r < rows; r += BLOCK) {
        const size_t part = rows - r < BLOCK ? rows - r : BLOCK;
        for (size_t first = 0; first < c;) {
            const slice s = slice_at(c, first, WIDE);
            WITH_SLICE(&s, WIDE, block_statistics, r, part, c, x + r * c + first, mean + first,
                       squares + first);
            first = slice_end(&s);
        }
    }
}

/* ---- the result ----------------------------------------------------------------------------- */

/* Each channel is y = scale x + shift, then + residual, then relu. */
typedef struct affine {
    const float *x, *residual;
    const float *scale, *shift; /* (c) */
    float *y;
} affine;

LSI_VEC void affine_one(const affine *a, int residual, int relu, size_t at, v16 scale, v16 shift,
                        size_t n)
{
    v16 value = v16_fma(v16_get(a->x + at, n), scale, shift);
    if (residual)
        value = v16_add(value, v16_get(a->residual + at, n));
    if (relu)
        value = v16_max(v16_zero(), value); /* NaN stays */
    v16_put(a->y + at, value, n);
}

/* Rows of exactly `vectors` vectors: the channels' constants stay in registers. */
LSI_VEC void affine_few(int vectors, const affine *a, int residual, int relu, size_t rows)
{
    v16 scale[4], shift[4];
    UNROLL
    for (int k = 0; k < vectors; k++) {
        scale[k] = v16_load(a->scale + 16 * k);
        shift[k] = v16_load(a->shift + 16 * k);
    }
    size_t at = 0;
    for (size_t r = 0; r < rows; r++) {
        UNROLL
        for (int k = 0; k < vectors; k++, at += 16)
            affine_one(a, residual, relu, at, scale[k], shift[k], 16);
    }
}

LSI_VEC void affine_at(const affine *a, int residual, int relu, size_t row, size_t at, size_t n)
{
    affine_one(a, residual, relu, row + at, v16_get(a->scale + at, n), v16_get(a->shift + at, n),
               n);
}

LSI_VEC void affine_rows(const affine *a, int residual, int relu, size_t rows, size_t c)
{
    if (c == 16)
        affine_few(1, a, residual, relu, rows);
    else if (c == 32)
        affine_few(2, a, residual, relu, rows);
    else if (c == 64)
        affine_few(4, a, residual, relu, rows);
    else
        for (size_t r = 0; r < rows; r++)
            V16_FOR_EACH(c, affine_at, a, residual, relu, r * c);
}

static void normalise(const lsi_norm *p, const affine *a)
{
    if (a->residual && p->relu)
        affine_rows(a, 1, 1, p->rows, p->c);
    else if (a->residual)
        affine_rows(a, 1, 0, p->rows, p->c);
    else if (p->relu)
        affine_rows(a, 0, 1, p->rows, p->c);
    else
        affine_rows(a, 0, 0, p->rows, p->c);
}

/* The constants of each channel, from its statistics. */
static void fold(size_t c, const float *gamma, const float *beta, const float *mean,
                 const float *rstd, float *scale, float *shift)
{
    for (size_t i = 0; i < c; i++) {
        scale[i] = gamma[i] * rstd[i];
        shift[i] = beta[i] - mean[i] * scale[i];
    }
}

static ls_status batchnorm(lsi_device *device, const lsi_norm *p, const float *x,
                           const float *gamma, const float *beta, const float *residual, float *y,
                           float *mean, float *var, float *rstd)
{
    if (!p->rows)
        return LS_OK;
    void *scratch;
    LSI_TRY(lsi_device_scratch(device, p->c * (2 * sizeof(double) + 2 * sizeof(float)), &scratch));
    double *middle = scratch, *squares = middle + p->c;
    float *scale = (float *)(squares + p->c), *shift = scale + p->c;
    statistics(p->rows, p->c, x, middle, squares);
    for (size_t i = 0; i < p->c; i++) {
        const double variance = squares[i] / (double)p->rows;
        mean[i] = (float)middle[i];
        var[i] = (float)variance;
        rstd[i] = (float)(1 / sqrt(variance + (double)p->eps));
    }
    fold(p->c, gamma, beta, mean, rstd, scale, shift);
    normalise(p, &(affine){x, residual, scale, shift, y});
    return LS_OK;
}

static ls_status batchnorm_eval(lsi_device *device, const lsi_norm *p, const float *x,
                                const float *gamma, const float *beta, const float *residual,
                                const float *mean, const float *var, float *y)
{
    void *scratch;
    LSI_TRY(lsi_device_scratch(device, p->c * 3 * sizeof(float), &scratch));
    float *rstd = scratch, *scale = rstd + p->c, *shift = scale + p->c;
    for (size_t i = 0; i < p->c; i++)
        rstd[i] = (float)(1 / sqrt((double)var[i] + (double)p->eps));
    fold(p->c, gamma, beta, mean, rstd, scale, shift);
    normalise(p, &(affine){x, residual, scale, shift, y});
    return LS_OK;
}

void LSI_K(install_batchnorm)(lsi_kernels *kernels)
{
    kernels->batchnorm = batchnorm;
    kernels->batchnorm_eval = batchnorm_eval;
}

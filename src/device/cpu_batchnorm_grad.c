/* The gradient of batch norm, with the relu and the residual that follow it.
 *
 * With g = dy where y > 0 (without relu: dy), xhat = (x - mean) rstd and means over rows,
 * dx = gamma rstd (g - mean(g) - xhat mean(g xhat)) = factor (g - level - (x - mean) slope). One
 * pass over the arrays for the sums, in which the residual gets its g; one for dx, which reads g
 * from there if it can, instead of dy and y again.
 *
 * 1. The order of summation is that of cpu_slice.h.
 */
#include "device/cpu.h"

#include "base/status.h"
#include "device/cpu_slice.h"

#if defined(LSI_VEC_AVX512)
#define WIDE 2 /* vectors of channels at a time, of two sums each */
#else
#define WIDE 1
#endif

typedef struct grad {
    const float *x, *y, *dy; /* y: NULL without relu */
    float *dresidual, *dx;
    const float *mean; /* (c), as are the following */
    float *level, *slope, *factor;
    double *sum, *along; /* of g, and of g (x - mean) */
} grad;

LSI_VEC v16 masked(const float *dy, const float *y, size_t at, size_t n)
{
    const v16 d = v16_get(dy + at, n);
    return y ? v16_if_gt(v16_get(y + at, n), v16_zero(), d, v16_zero()) : d;
}

typedef enum residual_kind { NO_RESIDUAL, WRITE_RESIDUAL, ADD_RESIDUAL } residual_kind;

/* One row into chains j; what the residual gets is known here already. */
LSI_VEC void grad_row(int vectors, size_t last, const grad *b, int relu, residual_kind residual,
                      size_t at, const v16 *mean, v16 sum[][CHAINS], v16 along[][CHAINS], int j)
{
    UNROLL
    for (int k = 0; k < vectors; k++, at += 16) {
        const size_t n = width(vectors, last, k);
        const v16 g = masked(b->dy, relu ? b->y : NULL, at, n);
        const v16 d = v16_sub(v16_get(b->x + at, n), mean[k]);
        sum[k][j] = v16_add(sum[k][j], g);
        along[k][j] = v16_fma(g, d, along[k][j]);
        if (residual == WRITE_RESIDUAL)
            v16_put(b->dresidual + at, g, n);
        else if (residual == ADD_RESIDUAL)
            v16_put(b->dresidual + at, v16_add(v16_get(b->dresidual + at, n), g), n);
    }
}

/* Kept out of line: there are many versions of what calls it. */
__attribute__((noinline)) static void combine(size_t n, const float sums[2][16], double *sum,
                                              double *along)
{
    for (size_t i = 0; i < n; i++) {
        sum[i] += (double)sums[0][i];
        along[i] += (double)sums[1][i];
    }
}

/* A block's sums, from element `at` on, into those of all rows of these channels. */
LSI_VEC void block_grad(int vectors, size_t last, const grad *b, int relu, residual_kind residual,
                        size_t rows, size_t c, size_t at, size_t channel)
{
    v16 sum[WIDE][CHAINS], along[WIDE][CHAINS], mean[WIDE];
    UNROLL
    for (int k = 0; k < vectors; k++) {
        UNROLL
        for (int j = 0; j < CHAINS; j++)
            sum[k][j] = along[k][j] = v16_zero();
        mean[k] = v16_get(b->mean + channel + 16 * (size_t)k, width(vectors, last, k));
    }
    size_t r = 0;
    for (; r + CHAINS <= rows; r += CHAINS, at += CHAINS * c) {
        UNROLL
        for (int j = 0; j < CHAINS; j++)
            grad_row(vectors, last, b, relu, residual, at + (size_t)j * c, mean, sum, along, j);
    }
    UNROLL
    for (int j = 0; j < CHAINS - 1; j++)
        if (r + (size_t)j < rows)
            grad_row(vectors, last, b, relu, residual, at + (size_t)j * c, mean, sum, along, j);
    UNROLL
    for (int k = 0; k < vectors; k++, channel += 16) {
        float sums[2][16];
        v16_store(sums[0], join(sum[k]));
        v16_store(sums[1], join(along[k]));
        combine(width(vectors, last, k), sums, b->sum + channel, b->along + channel);
    }
}

LSI_VEC void all_sums(const grad *b, int relu, residual_kind residual, size_t rows, size_t c)
{
    for (size_t i = 0; i < c; i++)
        b->sum[i] = b->along[i] = 0;
    for (size_t r = 0; r < rows; r += BLOCK) {
        const size_t part = rows - r < BLOCK ? rows - r : BLOCK;
        for (size_t first = 0; first < c;) {
            const slice s = slice_at(c, first, WIDE);
            WITH_SLICE(&s, WIDE, block_grad, b, relu, residual, part, c, r * c + first, first);
            first = slice_end(&s);
        }
    }
}

static void grad_sums(const grad *b, int add_residual, size_t rows, size_t c)
{
    if (!b->dresidual) {
        if (b->y)
            all_sums(b, 1, NO_RESIDUAL, rows, c);
        else
            all_sums(b, 0, NO_RESIDUAL, rows, c);
    } else if (add_residual) {
        if (b->y)
            all_sums(b, 1, ADD_RESIDUAL, rows, c);
        else
            all_sums(b, 0, ADD_RESIDUAL, rows, c);
    } else {
        if (b->y)
            all_sums(b, 1, WRITE_RESIDUAL, rows, c);
        else
            all_sums(b, 0, WRITE_RESIDUAL, rows, c);
    }
}

LSI_VEC void dx_one(const grad *b, int relu, int add, size_t at, v16 mean, v16 level, v16 slope,
                    v16 factor, size_t n)
{
    const v16 g = masked(b->dy, relu ? b->y : NULL, at, n);
    const v16 d = v16_sub(v16_get(b->x + at, n), mean);
    const v16 value = v16_mul(factor, v16_fnma(d, slope, v16_sub(g, level)));
    v16_put(b->dx + at, add ? v16_add(v16_get(b->dx + at, n), value) : value, n);
}

LSI_VEC void dx_few(int vectors, const grad *b, int relu, int add, size_t rows)
{
    v16 mean[4], level[4], slope[4], factor[4];
    UNROLL
    for (int k = 0; k < vectors; k++) {
        mean[k] = v16_load(b->mean + 16 * k);
        level[k] = v16_load(b->level + 16 * k);
        slope[k] = v16_load(b->slope + 16 * k);
        factor[k] = v16_load(b->factor + 16 * k);
    }
    size_t at = 0;
    for (size_t r = 0; r < rows; r++) {
        UNROLL
        for (int k = 0; k < vectors; k++, at += 16)
            dx_one(b, relu, add, at, mean[k], level[k], slope[k], factor[k], 16);
    }
}

LSI_VEC void dx_at(const grad *b, int relu, int add, size_t row, size_t at, size_t n)
{
    dx_one(b, relu, add, row + at, v16_get(b->mean + at, n), v16_get(b->level + at, n),
           v16_get(b->slope + at, n), v16_get(b->factor + at, n), n);
}

LSI_VEC void dx_rows(const grad *b, int relu, int add, size_t rows, size_t c)
{
    if (c == 16)
        dx_few(1, b, relu, add, rows);
    else if (c == 32)
        dx_few(2, b, relu, add, rows);
    else if (c == 64)
        dx_few(4, b, relu, add, rows);
    else
        for (size_t r = 0; r < rows; r++)
            V16_FOR_EACH(c, dx_at, b, relu, add, r * c);
}

static void grad_dx(const grad *b, int add, size_t rows, size_t c)
{
    if (b->y && add)
        dx_rows(b, 1, 1, rows, c);
    else if (b->y)
        dx_rows(b, 1, 0, rows, c);
    else if (add)
        dx_rows(b, 0, 1, rows, c);
    else
        dx_rows(b, 0, 0, rows, c);
}

static ls_status batchnorm_grad(lsi_device *device, const lsi_norm *p, const float *x,
                                const float *y, const float *gamma, const float *mean,
                                const float *rstd, const float *dy, float *dx, int add,
                                float *dresidual, int add_residual, float *dgamma, float *dbeta,
                                int add_params)
{
    const size_t c = p->c;
    void *scratch;
    LSI_TRY(lsi_device_scratch(device, c * (2 * sizeof(double) + 3 * sizeof(float)), &scratch));
    double *sums = scratch;
    float *constants = (float *)(sums + 2 * c);
    grad b = {x,
              p->relu ? y : NULL,
              dy,
              dresidual,
              dx,
              mean,
              constants,
              constants + c,
              constants + 2 * c,
              sums,
              sums + c};
    grad_sums(&b, add_residual, p->rows, c);
    for (size_t i = 0; i < c; i++) {
        const double s = (double)rstd[i], along = b.along[i] * s;
        b.level[i] = (float)(b.sum[i] / (double)p->rows);
        b.slope[i] = (float)(along * s / (double)p->rows);
        b.factor[i] = gamma[i] * rstd[i];
        dgamma[i] = add_params ? dgamma[i] + (float)along : (float)along;
        dbeta[i] = add_params ? dbeta[i] + (float)b.sum[i] : (float)b.sum[i];
    }
    if (b.y && dresidual &&
        !add_residual) { /* g lies there now: one array to read instead of two */
        b.dy = dresidual;
        b.y = NULL;
    }
    if (dx)
        grad_dx(&b, add, p->rows, c);
    return LS_OK;
}

void LSI_K(install_batchnorm_grad)(lsi_kernels *kernels)
{
    kernels->batchnorm_grad = batchnorm_grad;
}

/* The gradient of batch norm, with the relu and the residual that follow it.
 *
 * With g = dy where y > 0 (without relu: dy; without y: where factor x + shift > 0, the bits of the
 * forward result), xhat = (x - mean) rstd and means over rows,
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
    const float *x, *y, *dy;
    float *dresidual, *dx;
    const float *mean; /* (c), as are the following */
    float *level, *slope, *factor, *shift;
    double *sum, *along; /* of g, and of g (x - mean) */
} grad;

/* How relu is undone. */
typedef enum relu_kind { NO_RELU, RELU_BY_Y, RELU_BY_X } relu_kind;

/* g of sixteen elements whose x is given. */
LSI_VEC v16 masked(const grad *b, relu_kind relu, v16 x, v16 factor, v16 shift, size_t at, size_t n)
{
    const v16 d = v16_get(b->dy + at, n);
    if (relu == NO_RELU)
        return d;
    const v16 y = relu == RELU_BY_Y ? v16_get(b->y + at, n) : v16_fma(x, factor, shift);
    return v16_if_gt(y, v16_zero(), d, v16_zero());
}

typedef enum residual_kind { NO_RESIDUAL, WRITE_RESIDUAL, ADD_RESIDUAL } residual_kind;

/* What the sums need of the channels of a slice. */
typedef struct constants {
    v16 mean[WIDE], factor[WIDE], shift[WIDE];
} constants;

/* One row into chains j; what the residual gets is known here already. */
LSI_VEC void grad_row(int vectors, size_t last, const grad *b, relu_kind relu,
                      residual_kind residual, size_t at, const constants *of, v16 sum[][CHAINS],
                      v16 along[][CHAINS], int j)
{
    UNROLL
    for (int k = 0; k < vectors; k++, at += 16) {
        const size_t n = width(vectors, last, k);
        const v16 x = v16_get(b->x + at, n), d = v16_sub(x, of->mean[k]);
        const v16 g = masked(b, relu, x, of->factor[k], of->shift[k], at, n);
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
LSI_VEC void block_grad(int vectors, size_t last, const grad *b, relu_kind relu,
                        residual_kind residual, size_t rows, size_t c, size_t at, size_t channel)
{
    v16 sum[WIDE][CHAINS], along[WIDE][CHAINS];
    constants of;
    UNROLL
    for (int k = 0; k < vectors; k++) {
        UNROLL
        for (int j = 0; j < CHAINS; j++)
            sum[k][j] = along[k][j] = v16_zero();
        const size_t first = channel + 16 * (size_t)k, n = width(vectors, last, k);
        of.mean[k] = v16_get(b->mean + first, n);
        of.factor[k] = v16_get(b->factor + first, n);
        of.shift[k] = v16_get(b->shift + first, n);
    }
    size_t r = 0;
    for (; r + CHAINS <= rows; r += CHAINS, at += CHAINS * c) {
        UNROLL
        for (int j = 0; j < CHAINS; j++)
            grad_row(vectors, last, b, relu, residual, at + (size_t)j * c, &of, sum, along, j);
    }
    UNROLL
    for (int j = 0; j < CHAINS - 1; j++)
        if (r + (size_t)j < rows)
            grad_row(vectors, last, b, relu, residual, at + (size_t)j * c, &of, sum, along, j);
    UNROLL
    for (int k = 0; k < vectors; k++, channel += 16) {
        float sums[2][16];
        v16_store(sums[0], join(sum[k]));
        v16_store(sums[1], join(along[k]));
        combine(width(vectors, last, k), sums, b->sum + channel, b->along + channel);
    }
}

LSI_VEC void all_sums(const grad *b, relu_kind relu, residual_kind residual, size_t rows, size_t c)
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

static void grad_sums(const grad *b, relu_kind relu, residual_kind residual, size_t rows, size_t c)
{
#define CASE(r, d)                                                                                 \
    if (relu == (r) && residual == (d))                                                            \
    all_sums(b, r, d, rows, c)
    CASE(NO_RELU, NO_RESIDUAL);
    CASE(NO_RELU, WRITE_RESIDUAL);
    CASE(NO_RELU, ADD_RESIDUAL);
    CASE(RELU_BY_Y, NO_RESIDUAL);
    CASE(RELU_BY_Y, WRITE_RESIDUAL);
    CASE(RELU_BY_Y, ADD_RESIDUAL);
    CASE(RELU_BY_X, NO_RESIDUAL);
    CASE(RELU_BY_X, WRITE_RESIDUAL);
    CASE(RELU_BY_X, ADD_RESIDUAL);
#undef CASE
}

LSI_VEC void dx_one(const grad *b, relu_kind relu, int add, size_t at, v16 mean, v16 level,
                    v16 slope, v16 factor, v16 shift, size_t n)
{
    const v16 x = v16_get(b->x + at, n), d = v16_sub(x, mean);
    const v16 g = masked(b, relu, x, factor, shift, at, n);
    const v16 value = v16_mul(factor, v16_fnma(d, slope, v16_sub(g, level)));
    v16_put(b->dx + at, add ? v16_add(v16_get(b->dx + at, n), value) : value, n);
}

LSI_VEC void dx_few(int vectors, const grad *b, relu_kind relu, int add, size_t rows)
{
    v16 mean[4], level[4], slope[4], factor[4], shift[4];
    UNROLL
    for (int k = 0; k < vectors; k++) {
        mean[k] = v16_load(b->mean + 16 * k);
        level[k] = v16_load(b->level + 16 * k);
        slope[k] = v16_load(b->slope + 16 * k);
        factor[k] = v16_load(b->factor + 16 * k);
        shift[k] = v16_load(b->shift + 16 * k);
    }
    size_t at = 0;
    for (size_t r = 0; r < rows; r++) {
        UNROLL
        for (int k = 0; k < vectors; k++, at += 16)
            dx_one(b, relu, add, at, mean[k], level[k], slope[k], factor[k], shift[k], 16);
    }
}

LSI_VEC void dx_at(const grad *b, relu_kind relu, int add, size_t row, size_t at, size_t n)
{
    dx_one(b, relu, add, row + at, v16_get(b->mean + at, n), v16_get(b->level + at, n),
           v16_get(b->slope + at, n), v16_get(b->factor + at, n), v16_get(b->shift + at, n), n);
}

LSI_VEC void dx_rows(const grad *b, relu_kind relu, int add, size_t rows, size_t c)
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

static void grad_dx(const grad *b, relu_kind relu, int add, size_t rows, size_t c)
{
#define CASE(r)                                                                                    \
    case r:                                                                                        \
        if (add)                                                                                   \
            dx_rows(b, r, 1, rows, c);                                                             \
        else                                                                                       \
            dx_rows(b, r, 0, rows, c);                                                             \
        break
    switch (relu) {
        CASE(NO_RELU);
        CASE(RELU_BY_Y);
        CASE(RELU_BY_X);
    }
#undef CASE
}

static ls_status batchnorm_grad(lsi_device *device, const lsi_norm *p, const float *x,
                                const float *y, const float *gamma, const float *beta,
                                const float *mean, const float *rstd, const float *dy, float *dx,
                                int add, float *dresidual, int add_residual, float *dgamma,
                                float *dbeta, int add_params)
{
    const size_t c = p->c;
    void *scratch;
    LSI_TRY(lsi_device_scratch(device, c * (2 * sizeof(double) + 4 * sizeof(float)), &scratch));
    double *sums = scratch;
    float *f = (float *)(sums + 2 * c);
    grad b = {x, y, dy, dresidual, dx, mean, f, f + c, f + 2 * c, f + 3 * c, sums, sums + c};
    relu_kind relu = !p->relu ? NO_RELU : y ? RELU_BY_Y : RELU_BY_X;
    for (size_t i = 0; i < c; i++) { /* as forward did */
        b.factor[i] = gamma[i] * rstd[i];
        b.shift[i] = beta[i] - mean[i] * b.factor[i];
    }
    grad_sums(&b, relu,
              !dresidual     ? NO_RESIDUAL
              : add_residual ? ADD_RESIDUAL
                             : WRITE_RESIDUAL,
              p->rows, c);
    for (size_t i = 0; i < c; i++) {
        const double s = (double)rstd[i], along = b.along[i] * s;
        b.level[i] = (float)(b.sum[i] / (double)p->rows);
        b.slope[i] = (float)(along * s / (double)p->rows);
        dgamma[i] = add_params ? dgamma[i] + (float)along : (float)along;
        dbeta[i] = add_params ? dbeta[i] + (float)b.sum[i] : (float)b.sum[i];
    }
    if (dresidual && !add_residual) { /* g lies there now */
        b.dy = dresidual;
        relu = NO_RELU;
    }
    if (dx)
        grad_dx(&b, relu, add, p->rows, c);
    return LS_OK;
}

void LSI_K(install_batchnorm_grad)(lsi_kernels *kernels)
{
    kernels->batchnorm_grad = batchnorm_grad;
}

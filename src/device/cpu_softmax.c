/* Softmax over rows, and its gradient.
 *
 * Three passes over a row, of which the last two find it in the cache: the largest, the
 * exponentials and their sum, the scaling.
 *
 * 1. The largest of a row is exact in any order; sums are over 16 lanes (vec.h). A NaN in a row
 *    makes the whole row NaN: the largest may miss it, the sum does not.
 */
#include "device/cpu.h"
#include "device/cpu_row.h"
#include "device/vec_math.h"

LSI_VEC void exp_at(const float *x, float largest, float *y, v16 *sum, size_t at, size_t n)
{
    const v16 e = v16_exp_at_most_89(v16_sub(v16_get(x + at, n), v16_set1(largest)));
    v16_put(y + at, e, n);
    *sum = v16_add(*sum, n == 16 ? e : v16_first(n, e, v16_zero()));
}

LSI_VEC void scale_at(float *y, float by, size_t at, size_t n)
{
    v16_put(y + at, v16_mul(v16_get(y + at, n), v16_set1(by)), n);
}

static ls_status softmax(lsi_device *device, size_t rows, size_t c, const float *x, float *y)
{
    (void)device;
    for (size_t r = 0; r < rows; r++, x += c, y += c) {
        const float largest = row_largest(x, c);
        v16 sum = v16_zero();
        V16_FOR_EACH(c, exp_at, x, largest, y, &sum);
        const float by = 1 / v16_sum(sum);
        V16_FOR_EACH(c, scale_at, y, by);
    }
    return LS_OK;
}

LSI_VEC void dot_at(const float *y, const float *dy, v16 *sum, size_t at, size_t n)
{
    *sum = v16_fma(v16_get(y + at, n), v16_get(dy + at, n), *sum);
}

LSI_VEC void grad_at(const float *y, const float *dy, float along, int add, float *dx, size_t at,
                     size_t n)
{
    const v16 d = v16_sub(v16_get(dy + at, n), v16_set1(along));
    const v16 value = v16_mul(v16_get(y + at, n), d);
    v16_put(dx + at, add ? v16_add(v16_get(dx + at, n), value) : value, n);
}

static ls_status softmax_grad(lsi_device *device, size_t rows, size_t c, const float *y,
                              const float *dy, float *dx, int add)
{
    (void)device;
    for (size_t r = 0; r < rows; r++, y += c, dy += c, dx += c) {
        v16 sum = v16_zero();
        V16_FOR_EACH(c, dot_at, y, dy, &sum);
        const float along = v16_sum(sum);
        if (add)
            V16_FOR_EACH(c, grad_at, y, dy, along, 1, dx);
        else
            V16_FOR_EACH(c, grad_at, y, dy, along, 0, dx);
    }
    return LS_OK;
}

void LSI_K(install_softmax)(lsi_kernels *kernels)
{
    kernels->softmax = softmax;
    kernels->softmax_grad = softmax_grad;
}

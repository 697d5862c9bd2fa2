/* Losses: sums in double, and the gradient in the same call.
 *
 * Cross entropy goes over a row of logits three times, once in memory and twice in the cache: the
 * largest; the exponentials (left where the gradient goes) and their sum; the division by it. The
 * logarithms of sixteen rows are taken at once. Probabilities are never a third array.
 *
 * 1. A loss is summed in 16 lanes of double: row (or element) i belongs to lane i % 16.
 * 2. Sums inside a row are over 16 lanes of f32, from the largest down: the smallest sum is 1.
 */
#include "device/cpu.h"
#include "device/cpu_row.h"
#include "device/vec_double.h"
#include "device/vec_math.h"

typedef struct smoothing {
    float right, all; /* of the target: at the label (beside the other), and everywhere */
} smoothing;

/* e^(x - largest), stored if there is a place for it; with `all` also the sum of x - largest. */
LSI_VEC void exp_at(const float *x, float largest, float *to, v16 *sum, v16 *all, size_t at,
                    size_t n)
{
    const v16 z = v16_sub(v16_get(x + at, n), v16_set1(largest)), e = v16_exp_at_most_89(z);
    if (to)
        v16_put(to + at, e, n);
    *sum = v16_add(*sum, n == 16 ? e : v16_first(n, e, v16_zero()));
    if (all)
        *all = v16_add(*all, n == 16 ? z : v16_first(n, z, v16_zero()));
}

LSI_VEC void probability_at(float *d, float by, float less, size_t at, size_t n)
{
    const v16 p = v16_mul(v16_get(d + at, n), v16_set1(by));
    v16_put(d + at, v16_sub(p, v16_set1(less)), n);
}

/* One row: *sum of e^(x - largest); returns what the loss is less than its logarithm. */
LSI_VEC float one_row(size_t c, const float *x, size_t label, const smoothing *s, float *sum,
                      float *d)
{
    const float largest = row_largest(x, c);
    float less = s->right * (x[label] - largest);
    v16 lanes = v16_zero(), all = v16_zero();
    if (s->all != 0) {
        V16_FOR_EACH(c, exp_at, x, largest, d, &lanes, &all);
        less += s->all * v16_sum(all);
    } else if (d) {
        V16_FOR_EACH(c, exp_at, x, largest, d, &lanes, NULL);
    } else {
        V16_FOR_EACH(c, exp_at, x, largest, NULL, &lanes, NULL);
    }
    *sum = v16_sum(lanes);
    if (d) {
        V16_FOR_EACH(c, probability_at, d, 1 / *sum, s->all);
        d[label] -= s->right;
    }
    return less;
}

static ls_status cross_entropy(lsi_device *device, size_t rows, size_t c, const float *logits,
                               const int32_t *labels, int32_t ignore, float smooth, double *loss,
                               size_t *count, float *dlogits)
{
    (void)device;
    const smoothing s = {1 - smooth, smooth / (float)c};
    d16 total = d16_zero();
    size_t counted = 0;
    for (size_t from = 0; from < rows; from += 16) {
        const size_t n = rows - from < 16 ? rows - from : 16;
        float sum[16], less[16] = {0};
        for (size_t i = 0; i < 16; i++)
            sum[i] = 1;
        for (size_t i = 0; i < n; i++) {
            const size_t r = from + i;
            float *d = dlogits ? dlogits + r * c : NULL;
            if (labels[r] != ignore) {
                less[i] = one_row(c, logits + r * c, (size_t)labels[r], &s, &sum[i], d);
                counted++;
            } else if (d) {
                memset(d, 0, c * sizeof *d);
            }
        }
        total = d16_add_floats(total, v16_sub(v16_log(v16_load(sum)), v16_load(less)));
    }
    *loss = d16_sum(total);
    *count = counted;
    return LS_OK;
}

/* max(x, 0) - x t + log(1 + e^-|x|); the gradient is 1 / (1 + e^-x) - t, from the same
 * exponential. */
LSI_VEC void bce_at(const float *x, const float *targets, float *d, d16 *total, size_t at, size_t n)
{
    const v16 zero = v16_zero(), one = v16_set1(1.0f);
    const v16 z = v16_get(x + at, n), t = v16_get(targets + at, n);
    const v16 e = v16_exp_at_most_89(v16_sub(zero, v16_abs(z)));
    v16 value = v16_add(v16_fnma(z, t, v16_max(zero, z)), v16_log1p_unit(e));
    if (n < 16)
        value = v16_first(n, value, zero);
    *total = d16_add_floats(*total, value);
    if (d) {
        const v16 above = v16_if_gt(zero, z, e, one);
        v16_put(d + at, v16_sub(v16_div(above, v16_add(one, e)), t), n);
    }
}

static ls_status bce(lsi_device *device, size_t n, const float *logits, const float *targets,
                     double *loss, float *dlogits)
{
    (void)device;
    d16 total = d16_zero();
    V16_FOR_EACH(n, bce_at, logits, targets, dlogits, &total);
    *loss = d16_sum(total);
    return LS_OK;
}

LSI_VEC void mse_at(const float *x, const float *targets, float *d, d16 *total, size_t at, size_t n)
{
    const v16 difference = v16_sub(v16_get(x + at, n), v16_get(targets + at, n));
    *total = d16_add_floats(*total, v16_mul(difference, difference));
    if (d)
        v16_put(d + at, v16_add(difference, difference), n);
}

static ls_status mse(lsi_device *device, size_t n, const float *x, const float *targets,
                     double *loss, float *dx)
{
    (void)device;
    d16 total = d16_zero();
    V16_FOR_EACH(n, mse_at, x, targets, dx, &total);
    *loss = d16_sum(total);
    return LS_OK;
}

void LSI_K(install_loss)(lsi_kernels *kernels)
{
    kernels->cross_entropy = cross_entropy;
    kernels->bce = bce;
    kernels->mse = mse;
}

/* Reference: activations, sums and products, dropout, softmax. */
#include <math.h>

#include "base/philox.h"
#include "device/ref.h"

#define SQRT_HALF 0.70710678118654752440     /* 1 / sqrt(2) */
#define SQRT_2_BY_PI 0.79788456080286535588  /* sqrt(2 / pi) */
#define SQRT_1_BY_2PI 0.39894228040143267794 /* 1 / sqrt(2 pi) */
#define GELU_CUBE 0.044715

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

double lsi_ref_act_value(lsi_act act, double x)
{
    switch (act) {
    case LSI_ACT_RELU: return x <= 0 ? 0 : x; /* NaN stays */
    case LSI_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(SQRT_2_BY_PI * (x + GELU_CUBE * x * x * x)));
    case LSI_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x * SQRT_HALF));
    case LSI_ACT_SILU: return x * sigmoid(x);
    case LSI_ACT_TANH: return tanh(x);
    case LSI_ACT_SIGMOID: return sigmoid(x);
    case LSI_ACT_NONE:
    case LSI_ACT_COUNT: break;
    }
    return x;
}

double lsi_ref_act_slope(lsi_act act, double x)
{
    switch (act) {
    case LSI_ACT_RELU: return x > 0;
    case LSI_ACT_GELU_TANH: {
        const double t = tanh(SQRT_2_BY_PI * (x + GELU_CUBE * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_BY_PI * (1 + 3 * GELU_CUBE * x * x);
    }
    case LSI_ACT_GELU_ERF:
        return 0.5 * (1 + erf(x * SQRT_HALF)) + x * SQRT_1_BY_2PI * exp(-0.5 * x * x);
    case LSI_ACT_SILU: return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case LSI_ACT_TANH: return 1 - tanh(x) * tanh(x);
    case LSI_ACT_SIGMOID: return sigmoid(x) * (1 - sigmoid(x));
    case LSI_ACT_NONE:
    case LSI_ACT_COUNT: break;
    }
    return 1;
}

ls_status lsi_ref_act(lsi_device *device, lsi_act act, size_t n, const float *x, float *y)
{
    (void)device;
    for (size_t i = 0; i < n; i++)
        y[i] = (float)lsi_ref_act_value(act, (double)x[i]);
    return LS_OK;
}

ls_status lsi_ref_act_grad(lsi_device *device, lsi_act act, size_t n, const float *x,
                           const float *dy, float *dx, int add)
{
    (void)device;
    for (size_t i = 0; i < n; i++) {
        const double slope = lsi_ref_act_slope(act, (double)x[i]);
        const int none = act == LSI_ACT_RELU && slope == 0; /* whatever dy is */
        lsi_ref_put(&dx[i], none ? 0 : (double)dy[i] * slope, add);
    }
    return LS_OK;
}

ls_status lsi_ref_add(lsi_device *device, size_t n, size_t m, const float *a, const float *b,
                      float *y)
{
    (void)device;
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i % m];
    return LS_OK;
}

ls_status lsi_ref_mul(lsi_device *device, size_t n, size_t m, const float *a, const float *b,
                      float *y)
{
    (void)device;
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] * b[i % m];
    return LS_OK;
}

ls_status lsi_ref_sum_repeats(lsi_device *device, size_t n, size_t m, const float *dy,
                              const float *a, float *db, int add)
{
    (void)device;
    for (size_t j = 0; j < m; j++) {
        double sum = 0;
        for (size_t i = j; i < n; i += m)
            sum += (double)dy[i] * (a ? (double)a[i] : 1);
        lsi_ref_put(&db[j], sum, add);
    }
    return LS_OK;
}

ls_status lsi_ref_scale(lsi_device *device, size_t n, float scale, const float *x, float *y,
                        int add)
{
    (void)device;
    for (size_t i = 0; i < n; i++)
        lsi_ref_put(&y[i], (double)scale * (double)x[i], add);
    return LS_OK;
}

ls_status lsi_ref_fill(lsi_device *device, size_t n, float value, float *y)
{
    (void)device;
    for (size_t i = 0; i < n; i++)
        y[i] = value;
    return LS_OK;
}

int lsi_ref_kept(const lsi_dropout *d, size_t s, uint64_t e)
{
    const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
    const uint32_t counter[4] = {0, d->node, (uint32_t)(d->first_position + s), (uint32_t)d->step};
    uint32_t word;
    lsi_philox_fill(counter, key, e, &word, 1);
    return (double)word >= (double)d->p * 0x1p32;
}

ls_status lsi_ref_dropout(lsi_device *device, const lsi_dropout *d, const float *x, float *y,
                          int add)
{
    (void)device;
    for (size_t s = 0; s < d->samples; s++) {
        for (size_t e = 0; e < d->each; e++) {
            const size_t at = s * d->each + e;
            const double value = lsi_ref_kept(d, s, e) ? (double)x[at] / (1 - (double)d->p) : 0;
            lsi_ref_put(&y[at], value, add);
        }
    }
    return LS_OK;
}

ls_status lsi_ref_softmax(lsi_device *device, size_t rows, size_t c, const float *x, float *y)
{
    (void)device;
    for (size_t r = 0; r < rows; r++) {
        double largest = -INFINITY, sum = 0;
        for (size_t i = r * c; i < (r + 1) * c; i++)
            largest = fmax(largest, (double)x[i]);
        for (size_t i = r * c; i < (r + 1) * c; i++)
            sum += exp((double)x[i] - largest);
        for (size_t i = r * c; i < (r + 1) * c; i++)
            y[i] = (float)(exp((double)x[i] - largest) / sum);
    }
    return LS_OK;
}

ls_status lsi_ref_softmax_grad(lsi_device *device, size_t rows, size_t c, const float *y,
                               const float *dy, float *dx, int add)
{
    (void)device;
    for (size_t r = 0; r < rows; r++) {
        double along = 0;
        for (size_t i = r * c; i < (r + 1) * c; i++)
            along += (double)y[i] * (double)dy[i];
        for (size_t i = r * c; i < (r + 1) * c; i++)
            lsi_ref_put(&dx[i], (double)y[i] * ((double)dy[i] - along), add);
    }
    return LS_OK;
}

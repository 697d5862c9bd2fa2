/* Reference: products of matrices, and the products of pairs of rows. */
#include "device/ref.h"

/* Element (k, o) of the weight of a linear layer, whichever way it lies. */
static size_t weight_at(const lsi_linear *p, size_t k, size_t o)
{
    return p->transposed ? o * p->in + k : k * p->out + o;
}

ls_status lsi_ref_linear(lsi_device *device, const lsi_linear *p, const float *x, const float *w,
                         const float *bias, const float *residual, float *slope, float *y)
{
    (void)device;
    for (size_t r = 0; r < p->rows; r++) {
        for (size_t o = 0; o < p->out; o++) {
            const size_t at = r * p->out + o;
            double sum = residual ? (double)residual[at] : 0;
            for (size_t k = 0; k < p->in; k++)
                sum += (double)x[r * p->in + k] * (double)w[weight_at(p, k, o)];
            if (bias)
                sum += (double)bias[o];
            if (slope)
                slope[at] = (float)lsi_ref_act_slope(p->act, sum);
            y[at] = (float)lsi_ref_act_value(p->act, sum);
        }
    }
    return LS_OK;
}

ls_status lsi_ref_linear_dx(lsi_device *device, const lsi_linear *p, const float *dy,
                            const float *w, float *dx, int add)
{
    (void)device;
    for (size_t r = 0; r < p->rows; r++) {
        for (size_t k = 0; k < p->in; k++) {
            const size_t at = r * p->in + k;
            double sum = 0;
            for (size_t o = 0; o < p->out; o++)
                sum += (double)dy[r * p->out + o] * (double)w[weight_at(p, k, o)];
            lsi_ref_put(&dx[at], sum, add);
        }
    }
    return LS_OK;
}

ls_status lsi_ref_linear_dw(lsi_device *device, const lsi_linear *p, const float *x,
                            const float *dy, float *dw, float *dbias, int add)
{
    (void)device;
    for (size_t o = 0; o < p->out; o++) {
        for (size_t k = 0; k < p->in; k++) {
            double sum = 0;
            for (size_t r = 0; r < p->rows; r++)
                sum += (double)x[r * p->in + k] * (double)dy[r * p->out + o];
            lsi_ref_put(&dw[weight_at(p, k, o)], sum, add);
        }
        if (dbias) {
            double sum = 0;
            for (size_t r = 0; r < p->rows; r++)
                sum += (double)dy[r * p->out + o];
            lsi_ref_put(&dbias[o], sum, add);
        }
    }
    return LS_OK;
}

ls_status lsi_ref_interact(lsi_device *device, size_t n, size_t f, size_t d, const float *x,
                           float *y)
{
    (void)device;
    for (size_t s = 0; s < n; s++) {
        const float *rows = x + s * f * d;
        for (size_t i = 1; i < f; i++) {
            for (size_t j = 0; j < i; j++) {
                double sum = 0;
                for (size_t c = 0; c < d; c++)
                    sum += (double)rows[i * d + c] * (double)rows[j * d + c];
                y[s * (f * (f - 1) / 2) + i * (i - 1) / 2 + j] = (float)sum;
            }
        }
    }
    return LS_OK;
}

ls_status lsi_ref_interact_grad(lsi_device *device, size_t n, size_t f, size_t d, const float *x,
                                const float *dy, float *dx, int add)
{
    (void)device;
    for (size_t s = 0; s < n; s++) {
        const float *rows = x + s * f * d, *pairs = dy + s * (f * (f - 1) / 2);
        for (size_t i = 0; i < f; i++) {
            for (size_t c = 0; c < d; c++) {
                double sum = 0;
                for (size_t j = 0; j < f; j++) {
                    const size_t high = i > j ? i : j, low = i > j ? j : i;
                    if (i != j)
                        sum += (double)pairs[high * (high - 1) / 2 + low] * (double)rows[j * d + c];
                }
                lsi_ref_put(&dx[(s * f + i) * d + c], sum, add);
            }
        }
    }
    return LS_OK;
}

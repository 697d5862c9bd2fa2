/* Reference: layer norm, RMS norm, batch norm.
 *
 * All three are y = gamma xhat + beta with xhat = (x - mean) rstd. With g = gamma dy (in batch norm
 * gamma is the same for the whole sum and stands before it) the gradient is
 *     dx = rstd (g - mean(g) - xhat mean(g xhat)),
 * the means over what was normalised; RMS norm has no mean to subtract, so no mean(g) either.
 */
#include <math.h>

#include "device/ref.h"

ls_status lsi_ref_layernorm(lsi_device *device, const lsi_norm *p, const float *x,
                            const float *residual, const float *gamma, const float *beta,
                            float *sum, float *y, float *mean, float *rstd)
{
    (void)device;
    for (size_t r = 0; r < p->rows; r++) {
        const size_t first = r * p->c;
        double total = 0, squares = 0;
        /* s, rounded to f32 as its reader sees it; y is its place until it is normalised. */
        for (size_t i = first; i < first + p->c; i++) {
            y[i] = residual ? x[i] + residual[i] : x[i];
            if (sum)
                sum[i] = y[i];
            total += (double)y[i];
        }
        const double m = p->rms ? 0 : total / (double)p->c;
        for (size_t i = first; i < first + p->c; i++)
            squares += ((double)y[i] - m) * ((double)y[i] - m);
        const double s = 1 / sqrt(squares / (double)p->c + (double)p->eps);
        for (size_t i = 0; i < p->c; i++) {
            double value = ((double)y[first + i] - m) * s;
            if (gamma)
                value *= (double)gamma[i];
            if (beta && !p->rms)
                value += (double)beta[i];
            y[first + i] = (float)value;
        }
        if (!p->rms)
            mean[r] = (float)m;
        rstd[r] = (float)s;
    }
    return LS_OK;
}

static double xhat_of(const lsi_norm *p, const float *x, const float *mean, const float *rstd,
                      size_t r, size_t i)
{
    const double m = p->rms ? 0 : (double)mean[r];
    return ((double)x[r * p->c + i] - m) * (double)rstd[r];
}

ls_status lsi_ref_layernorm_grad(lsi_device *device, const lsi_norm *p, const float *x,
                                 const float *gamma, const float *mean, const float *rstd,
                                 const float *dy, float *dx, int add, float *dgamma, float *dbeta,
                                 int add_params)
{
    (void)device;
    for (size_t r = 0; r < p->rows; r++) {
        double sum = 0, along = 0;
        for (size_t i = 0; i < p->c; i++) {
            const double g = (double)dy[r * p->c + i] * (gamma ? (double)gamma[i] : 1);
            sum += g;
            along += g * xhat_of(p, x, mean, rstd, r, i);
        }
        sum = p->rms ? 0 : sum / (double)p->c;
        along /= (double)p->c;
        for (size_t i = 0; i < p->c; i++) {
            const double g = (double)dy[r * p->c + i] * (gamma ? (double)gamma[i] : 1);
            const double value = g - sum - xhat_of(p, x, mean, rstd, r, i) * along;
            if (dx)
                lsi_ref_put(&dx[r * p->c + i], (double)rstd[r] * value, add);
        }
    }
    for (size_t i = 0; i < p->c; i++) {
        double to_gamma = 0, to_beta = 0;
        for (size_t r = 0; r < p->rows; r++) {
            to_gamma += (double)dy[r * p->c + i] * xhat_of(p, x, mean, rstd, r, i);
            to_beta += (double)dy[r * p->c + i];
        }
        if (dgamma)
            lsi_ref_put(&dgamma[i], to_gamma, add_params);
        if (dbeta && !p->rms)
            lsi_ref_put(&dbeta[i], to_beta, add_params);
    }
    return LS_OK;
}

/* One channel of the result from its statistics. */
static void normalise(const lsi_norm *p, const float *x, const float *gamma, const float *beta,
                      const float *residual, double mean, double rstd, size_t c, float *y)
{
    for (size_t i = c; i < p->rows * p->c; i += p->c) {
        double value = ((double)x[i] - mean) * rstd * (double)gamma[c] + (double)beta[c];
        if (residual)
            value += (double)residual[i];
        if (p->relu && value <= 0) /* NaN stays */
            value = 0;
        y[i] = (float)value;
    }
}

ls_status lsi_ref_batchnorm(lsi_device *device, const lsi_norm *p, const float *x,
                            const float *gamma, const float *beta, const float *residual, float *y,
                            float *mean, float *var, float *rstd)
{
    (void)device;
    if (!p->rows)
        return LS_OK;
    for (size_t c = 0; c < p->c; c++) {
        double total = 0, squares = 0;
        for (size_t i = c; i < p->rows * p->c; i += p->c)
            total += (double)x[i];
        const double m = total / (double)p->rows;
        for (size_t i = c; i < p->rows * p->c; i += p->c)
            squares += ((double)x[i] - m) * ((double)x[i] - m);
        const double v = squares / (double)p->rows, s = 1 / sqrt(v + (double)p->eps);
        mean[c] = (float)m;
        var[c] = (float)v;
        rstd[c] = (float)s;
        normalise(p, x, gamma, beta, residual, m, s, c, y);
    }
    return LS_OK;
}

ls_status lsi_ref_batchnorm_eval(lsi_device *device, const lsi_norm *p, const float *x,
                                 const float *gamma, const float *beta, const float *residual,
                                 const float *mean, const float *var, float *y)
{
    (void)device;
    for (size_t c = 0; c < p->c; c++)
        normalise(p, x, gamma, beta, residual, (double)mean[c],
                  1 / sqrt((double)var[c] + (double)p->eps), c, y);
    return LS_OK;
}

ls_status lsi_ref_batchnorm_grad(lsi_device *device, const lsi_norm *p, const float *x,
                                 const float *y, const float *gamma, const float *beta,
                                 const float *mean, const float *rstd, const float *dy, float *dx,
                                 int add, float *dresidual, int add_residual, float *dgamma,
                                 float *dbeta, int add_params)
{
    (void)device;
    for (size_t c = 0; c < p->c; c++) {
        const float scale = gamma[c] * rstd[c], shift = beta[c] - mean[c] * scale;
        const double m = (double)mean[c], s = (double)rstd[c], rows = (double)p->rows;
        double sum = 0, along = 0;
        for (size_t i = c; i < p->rows * p->c; i += p->c) {
            const float result = y ? y[i] : fmaf(x[i], scale, shift);
            const double g = p->relu && !(result > 0) ? 0 : (double)dy[i];
            sum += g;
            along += g * ((double)x[i] - m) * s;
        }
        for (size_t i = c; i < p->rows * p->c; i += p->c) {
            const float result = y ? y[i] : fmaf(x[i], scale, shift);
            const double g = p->relu && !(result > 0) ? 0 : (double)dy[i];
            const double value = g - sum / rows - ((double)x[i] - m) * s * along / rows;
            if (dx)
                lsi_ref_put(&dx[i], (double)gamma[c] * s * value, add);
            if (dresidual)
                lsi_ref_put(&dresidual[i], g, add_residual);
        }
        lsi_ref_put(&dgamma[c], along, add_params);
        lsi_ref_put(&dbeta[c], sum, add_params);
    }
    return LS_OK;
}

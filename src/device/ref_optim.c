/* Reference: optimizer updates of a range, and what is summed or looked for over parameters.
 *
 * Adam: D. Kingma, J. Ba, ICLR 2015; AdamW: I. Loshchilov, F. Hutter, ICLR 2019; LAMB: Y. You et
 * al., ICLR 2020; momentum and Nesterov's as PyTorch's SGD.
 */
#include <math.h>

#include "device/ref.h"

#define BLOCK 4096

/* What decay adds to a gradient; without decay nothing, whatever the weight is. */
static double pull(float decay, double weight)
{
    return decay != 0 ? (double)decay * weight : 0;
}

/* A moment as it is kept: nothing of it when it is tiny and this step settles. */
static float settle(double moment, int settles)
{
    return settles && fabs(moment) < (double)LSI_MOMENT_TINY ? 0.0f : (float)moment;
}

ls_status lsi_ref_sgd(lsi_device *device, const lsi_sgd *p, size_t n, const float *g, float *m,
                      float *w)
{
    (void)device;
    for (size_t i = 0; i < n; i++) {
        const double grad =
            (g ? (double)p->scale * (double)g[i] : 0) + pull(p->decay, (double)w[i]);
        double step = grad;
        if (m) {
            const double moment = p->first ? grad : (double)p->momentum * (double)m[i] + grad;
            step = p->nesterov ? grad + (double)p->momentum * moment : moment;
            m[i] = settle(moment, lsi_settles(p->number));
        }
        w[i] = (float)((double)w[i] - (double)p->lr * step);
    }
    return LS_OK;
}

/* Both moments of one element, and m̂ / (sqrt(v̂) + eps). */
static double direction(const lsi_adam *p, double grad, float *m, float *v)
{
    const double beta1 = (double)p->beta1, beta2 = (double)p->beta2;
    const double moment = beta1 * (double)*m + (1 - beta1) * grad;
    const double square = beta2 * (double)*v + (1 - beta2) * grad * grad;
    *m = settle(moment, lsi_settles(p->number));
    *v = settle(square, lsi_settles(p->number) && p->eps > 0);
    return moment / (double)p->correct1 / (sqrt(square / (double)p->correct2) + (double)p->eps);
}

ls_status lsi_ref_adam(lsi_device *device, const lsi_adam *p, size_t n, const float *g, float *m,
                       float *v, float *w)
{
    (void)device;
    const double lr = (double)p->lr, decay = (double)p->decay;
    for (size_t i = 0; i < n; i++) {
        double grad = g ? (double)p->scale * (double)g[i] : 0, weight = (double)w[i];
        if (p->decoupled)
            weight *= 1 - lr * decay;
        else
            grad += pull(p->decay, weight);
        w[i] = (float)(weight - lr * direction(p, grad, &m[i], &v[i]));
    }
    return LS_OK;
}

ls_status lsi_ref_lamb_direction(lsi_device *device, const lsi_adam *p, size_t n, const float *g,
                                 float *m, float *v, const float *w, float *u)
{
    (void)device;
    for (size_t i = 0; i < n; i++) {
        const double grad = g ? (double)p->scale * (double)g[i] : 0;
        u[i] = (float)(direction(p, grad, &m[i], &v[i]) + (double)p->decay * (double)w[i]);
    }
    return LS_OK;
}

ls_status lsi_ref_block_squares(lsi_device *device, size_t n, float scale, const float *x,
                                double *sums)
{
    (void)device;
    for (size_t from = 0; from < n; from += BLOCK) {
        double sum = 0;
        for (size_t i = from; i < n && i < from + BLOCK; i++)
            sum += (double)scale * (double)x[i] * (double)scale * (double)x[i];
        sums[from / BLOCK] = sum;
    }
    return LS_OK;
}

ls_status lsi_ref_find_nonfinite(lsi_device *device, size_t n, const float *x, size_t *first)
{
    (void)device;
    size_t i = 0;
    while (i < n && isfinite(x[i]))
        i++;
    *first = i;
    return LS_OK;
}

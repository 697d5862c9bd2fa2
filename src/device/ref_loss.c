/* Reference: losses, as sums over rows with the gradient in the same call. */
#include <math.h>

#include "device/ref.h"

/* One row of cross entropy; dlogits may be the logits or NULL. Label smoothing spreads `smoothing`
 * of the target evenly over all classes, the right one included. */
static double one_row(size_t c, const float *logits, size_t label, double smoothing, float *dlogits)
{
    double largest = -INFINITY, sum = 0, all = 0;
    for (size_t i = 0; i < c; i++) {
        largest = fmax(largest, (double)logits[i]);
        all += (double)logits[i];
    }
    for (size_t i = 0; i < c; i++)
        sum += exp((double)logits[i] - largest);
    const double lse = largest + log(sum);
    double loss = (1 - smoothing) * (lse - (double)logits[label]);
    if (smoothing > 0) /* else a class of -inf is none of its business */
        loss += smoothing * (lse - all / (double)c);
    for (size_t i = 0; dlogits && i < c; i++) {
        const double target = (i == label ? 1 - smoothing : 0) + smoothing / (double)c;
        dlogits[i] = (float)(exp((double)logits[i] - lse) - target);
    }
    return loss;
}

ls_status lsi_ref_cross_entropy(lsi_device *device, size_t rows, size_t c, const float *logits,
                                const int32_t *labels, int32_t ignore, float smoothing,
                                double *loss, size_t *count, float *dlogits)
{
    (void)device;
    double total = 0;
    size_t counted = 0;
    for (size_t r = 0; r < rows; r++) {
        float *d = dlogits ? dlogits + r * c : NULL;
        if (labels[r] != ignore) {
            total += one_row(c, logits + r * c, (size_t)labels[r], (double)smoothing, d);
            counted++;
        } else {
            for (size_t i = 0; d && i < c; i++)
                d[i] = 0;
        }
    }
    *loss = total;
    *count = counted;
    return LS_OK;
}

ls_status lsi_ref_bce(lsi_device *device, size_t n, const float *logits, const float *targets,
                      double *loss, float *dlogits)
{
    (void)device;
    double total = 0;
    for (size_t i = 0; i < n; i++) {
        const double x = (double)logits[i], t = (double)targets[i];
        total += fmax(x, 0) - x * t + log1p(exp(-fabs(x)));
        if (dlogits)
            dlogits[i] = (float)(1 / (1 + exp(-x)) - t);
    }
    *loss = total;
    return LS_OK;
}

ls_status lsi_ref_mse(lsi_device *device, size_t n, const float *x, const float *targets,
                      double *loss, float *dx)
{
    (void)device;
    double total = 0;
    for (size_t i = 0; i < n; i++) {
        const double difference = (double)x[i] - (double)targets[i];
        total += difference * difference;
        if (dx)
            dx[i] = (float)(2 * difference);
    }
    *loss = total;
    return LS_OK;
}

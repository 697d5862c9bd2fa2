/* Reference: pooling of images (n, h, w, c).
 *
 * 1. Every window has at least one place inside the image: whoever computes oh and ow sees to it.
 */
#include <math.h>
#include <string.h>

#include "device/ref.h"

/* The part of a window that lies inside the image: [h0, h1) x [w0, w1). */
typedef struct window {
    size_t h0, h1, w0, w1;
} window;

static void clip(size_t at, size_t stride, size_t pad, size_t kernel, size_t size, size_t *from,
                 size_t *to)
{
    const size_t start = at * stride, end = start + kernel;
    *from = start > pad ? start - pad : 0;
    *to = end - pad < size ? end - pad : size;
}

static window window_of(const lsi_pool *p, size_t oh, size_t ow)
{
    window win;
    clip(oh, p->stride_h, p->pad_h, p->kh, p->h, &win.h0, &win.h1);
    clip(ow, p->stride_w, p->pad_w, p->kw, p->w, &win.w0, &win.w1);
    return win;
}

static size_t result_at(const lsi_pool *p, size_t n, size_t oh, size_t ow, size_t c)
{
    return ((n * p->oh + oh) * p->ow + ow) * p->c + c;
}

/* One value of the largest: the first of equals, but a NaN is larger than all, the last of them. */
static void largest_of(const lsi_pool *p, const float *image, window win, size_t c, float *y,
                       int32_t *arg)
{
    size_t best = win.h0 * p->w + win.w0;
    for (size_t h = win.h0; h < win.h1; h++)
        for (size_t w = win.w0; w < win.w1; w++) {
            const float value = image[(h * p->w + w) * p->c + c];
            if (value > image[best * p->c + c] || isnan(value))
                best = h * p->w + w;
        }
    *y = image[best * p->c + c];
    *arg = (int32_t)best;
}

ls_status lsi_ref_maxpool(lsi_device *device, const lsi_pool *p, const float *x, float *y,
                          int32_t *arg)
{
    (void)device;
    for (size_t n = 0; n < p->n; n++) {
        for (size_t oh = 0; oh < p->oh; oh++) {
            for (size_t ow = 0; ow < p->ow; ow++) {
                for (size_t c = 0; c < p->c; c++) {
                    const size_t at = result_at(p, n, oh, ow, c);
                    largest_of(p, x + n * p->h * p->w * p->c, window_of(p, oh, ow), c, &y[at],
                               &arg[at]);
                }
            }
        }
    }
    return LS_OK;
}

ls_status lsi_ref_maxpool_grad(lsi_device *device, const lsi_pool *p, const int32_t *arg,
                               const float *dy, float *dx, int add)
{
    (void)device;
    const size_t image = p->h * p->w * p->c, result = p->oh * p->ow * p->c;
    if (!add)
        memset(dx, 0, p->n * image * sizeof *dx);
    for (size_t n = 0; n < p->n; n++)
        for (size_t i = n * result; i < (n + 1) * result; i++)
            dx[n * image + (size_t)arg[i] * p->c + i % p->c] += dy[i];
    return LS_OK;
}

ls_status lsi_ref_avgpool(lsi_device *device, const lsi_pool *p, const float *x, float *y)
{
    (void)device;
    for (size_t n = 0; n < p->n; n++) {
        for (size_t oh = 0; oh < p->oh; oh++) {
            for (size_t ow = 0; ow < p->ow; ow++) {
                const window win = window_of(p, oh, ow);
                for (size_t c = 0; c < p->c; c++) {
                    double sum = 0;
                    for (size_t h = win.h0; h < win.h1; h++)
                        for (size_t w = win.w0; w < win.w1; w++)
                            sum += (double)x[((n * p->h + h) * p->w + w) * p->c + c];
                    y[result_at(p, n, oh, ow, c)] = (float)(sum / (double)(p->kh * p->kw));
                }
            }
        }
    }
    return LS_OK;
}

/* The sum of dy over the windows that place (h, w) lies in. */
static double windows_over(const lsi_pool *p, const float *dy, size_t n, size_t h, size_t w,
                           size_t c)
{
    double sum = 0;
    for (size_t oh = 0; oh < p->oh; oh++) {
        for (size_t ow = 0; ow < p->ow; ow++) {
            const window win = window_of(p, oh, ow);
            if (h >= win.h0 && h < win.h1 && w >= win.w0 && w < win.w1)
                sum += (double)dy[result_at(p, n, oh, ow, c)];
        }
    }
    return sum;
}

ls_status lsi_ref_avgpool_grad(lsi_device *device, const lsi_pool *p, const float *dy, float *dx,
                               int add)
{
    (void)device;
    for (size_t n = 0; n < p->n; n++)
        for (size_t h = 0; h < p->h; h++)
            for (size_t w = 0; w < p->w; w++)
                for (size_t c = 0; c < p->c; c++)
                    lsi_ref_put(&dx[((n * p->h + h) * p->w + w) * p->c + c],
                                windows_over(p, dy, n, h, w, c) / (double)(p->kh * p->kw), add);
    return LS_OK;
}

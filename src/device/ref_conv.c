/* Reference: convolution, images as (n, h, w, c). */
#include "device/ref.h"

/* Input row (or column) under output row `at` and kernel row `k`; 0 when it is in the padding. */
static int inside(size_t at, size_t stride, size_t k, size_t pad, size_t size, size_t *out)
{
    const size_t shifted = at * stride + k;
    if (shifted < pad || shifted - pad >= size)
        return 0;
    *out = shifted - pad;
    return 1;
}

static size_t image_at(const lsi_conv *p, size_t n, size_t h, size_t w, size_t c)
{
    return ((n * p->h + h) * p->w + w) * p->c + c;
}

static size_t result_at(const lsi_conv *p, size_t n, size_t oh, size_t ow, size_t o)
{
    return ((n * p->oh + oh) * p->ow + ow) * p->o + o;
}

static size_t weight_at(const lsi_conv *p, size_t i, size_t j, size_t c, size_t o)
{
    return ((i * p->kw + j) * (p->c / p->groups) + c) * p->o + o;
}

/* The first input channel of the group of output channel o. */
static size_t first_channel(const lsi_conv *p, size_t o)
{
    return o / (p->o / p->groups) * (p->c / p->groups);
}

static double one_result(const lsi_conv *p, const float *x, const float *weight, size_t n,
                         size_t oh, size_t ow, size_t o)
{
    double sum = 0;
    size_t h, w;
    for (size_t i = 0; i < p->kh; i++) {
        if (!inside(oh, p->stride_h, i, p->pad_h, p->h, &h))
            continue;
        for (size_t j = 0; j < p->kw; j++) {
            if (!inside(ow, p->stride_w, j, p->pad_w, p->w, &w))
                continue;
            for (size_t c = 0; c < p->c / p->groups; c++)
                sum += (double)x[image_at(p, n, h, w, first_channel(p, o) + c)] *
                       (double)weight[weight_at(p, i, j, c, o)];
        }
    }
    return sum;
}

ls_status lsi_ref_conv2d(lsi_device *device, const lsi_conv *p, const float *x, const float *weight,
                         const float *bias, float *y)
{
    (void)device;
    for (size_t n = 0; n < p->n; n++) {
        for (size_t oh = 0; oh < p->oh; oh++) {
            for (size_t ow = 0; ow < p->ow; ow++) {
                for (size_t o = 0; o < p->o; o++) {
                    double sum = one_result(p, x, weight, n, oh, ow, o);
                    if (bias)
                        sum += (double)bias[o];
                    y[result_at(p, n, oh, ow, o)] = (float)sum;
                }
            }
        }
    }
    return LS_OK;
}

/* The output row that puts kernel row k on input row `at`; 0 when there is none. */
static int over(size_t at, size_t stride, size_t k, size_t pad, size_t size, size_t *out)
{
    if (at + pad < k || (at + pad - k) % stride || (at + pad - k) / stride >= size)
        return 0;
    *out = (at + pad - k) / stride;
    return 1;
}

static double one_dx(const lsi_conv *p, const float *dy, const float *weight, size_t n, size_t h,
                     size_t w, size_t c)
{
    const size_t group = c / (p->c / p->groups), each = p->o / p->groups;
    double sum = 0;
    size_t oh, ow;
    for (size_t i = 0; i < p->kh; i++) {
        if (!over(h, p->stride_h, i, p->pad_h, p->oh, &oh))
            continue;
        for (size_t j = 0; j < p->kw; j++) {
            if (!over(w, p->stride_w, j, p->pad_w, p->ow, &ow))
                continue;
            for (size_t o = group * each; o < (group + 1) * each; o++)
                sum += (double)dy[result_at(p, n, oh, ow, o)] *
                       (double)weight[weight_at(p, i, j, c % (p->c / p->groups), o)];
        }
    }
    return sum;
}

ls_status lsi_ref_conv2d_dx(lsi_device *device, const lsi_conv *p, const float *dy,
                            const float *weight, float *dx, int add)
{
    (void)device;
    for (size_t n = 0; n < p->n; n++)
        for (size_t h = 0; h < p->h; h++)
            for (size_t w = 0; w < p->w; w++)
                for (size_t c = 0; c < p->c; c++)
                    lsi_ref_put(&dx[image_at(p, n, h, w, c)], one_dx(p, dy, weight, n, h, w, c),
                                add);
    return LS_OK;
}

static double one_dw(const lsi_conv *p, const float *x, const float *dy, size_t i, size_t j,
                     size_t c, size_t o)
{
    double sum = 0;
    size_t h, w;
    for (size_t oh = 0; oh < p->oh; oh++) {
        if (!inside(oh, p->stride_h, i, p->pad_h, p->h, &h))
            continue;
        for (size_t ow = 0; ow < p->ow; ow++) {
            if (!inside(ow, p->stride_w, j, p->pad_w, p->w, &w))
                continue;
            for (size_t n = 0; n < p->n; n++)
                sum += (double)x[image_at(p, n, h, w, first_channel(p, o) + c)] *
                       (double)dy[result_at(p, n, oh, ow, o)];
        }
    }
    return sum;
}

ls_status lsi_ref_conv2d_dw(lsi_device *device, const lsi_conv *p, const float *x, const float *dy,
                            float *dweight, float *dbias, int add)
{
    (void)device;
    for (size_t i = 0; i < p->kh; i++)
        for (size_t j = 0; j < p->kw; j++)
            for (size_t c = 0; c < p->c / p->groups; c++)
                for (size_t o = 0; o < p->o; o++)
                    lsi_ref_put(&dweight[weight_at(p, i, j, c, o)], one_dw(p, x, dy, i, j, c, o),
                                add);
    for (size_t o = 0; dbias && o < p->o; o++) {
        double sum = 0;
        for (size_t at = 0; at < p->n * p->oh * p->ow; at++)
            sum += (double)dy[at * p->o + o];
        lsi_ref_put(&dbias[o], sum, add);
    }
    return LS_OK;
}

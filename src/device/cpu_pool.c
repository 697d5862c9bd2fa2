/* Pooling of images (n, h, w, c): vectors run over channels, windows are clipped to the image.
 *
 * 1. A maximum remembers its place, the first of equals in the order of h, w; comparisons are
 *    exact. A NaN counts as larger than all, the last of several.
 * 2. Sums run over the window (forward) or over the windows that cover a place (gradient) in the
 *    order of h, w; one division by kh kw at the end (a multiplication, with the same result, when
 *    that is a power of two).
 * 3. Every window has at least one place inside the image: whoever computes oh and ow sees to it.
 */
#include "device/cpu.h"
#include "device/vec_words.h"

/* Windows up to this many places find the gradient's place by comparing vectors. */
#define COMPARE_PLACES 32

/* [from, to) */
typedef struct range {
    size_t from, to;
} range;

/* The part of window `at` that lies inside [0, size). */
static range window(size_t at, size_t stride, size_t pad, size_t kernel, size_t size)
{
    const size_t start = at * stride, end = start + kernel;
    return (range){start > pad ? start - pad : 0, end - pad < size ? end - pad : size};
}

/* The windows of `count` that cover place `at`. */
static range windows_over(size_t at, size_t stride, size_t pad, size_t kernel, size_t count)
{
    const size_t place = at + pad;
    const size_t from = place < kernel ? 0 : (place - kernel) / stride + 1;
    const size_t to = place / stride + 1;
    return (range){from, to < count ? to : count};
}

LSI_VEC void max_at(const lsi_pool *p, range h, range w, const float *image, float *y, int32_t *arg,
                    size_t at, size_t n)
{
    const v16 one = v16_set1(1.0f), two = v16_set1(2.0f);
    size_t place = h.from * p->w + w.from;
    v16 best = v16_get(image + place * p->c + at, n);
    w16 where = w16_set1((uint32_t)place);
    for (size_t i = h.from; i < h.to; i++) {
        for (size_t j = w.from; j < w.to; j++) {
            place = i * p->w + j;
            const v16 value = v16_get(image + place * p->c + at, n);
            const w16 here = w16_set1((uint32_t)place);
            const v16 tame = v16_min(one, v16_abs(value)); /* at most 1, or NaN: not below 2 */
            where = w16_if_gt(two, tame, w16_if_gt(value, best, here, where), here);
            best = v16_if_gt(two, tame, v16_if_gt(value, best, value, best), value);
        }
    }
    v16_put(y + at, best, n);
    if (n == 16)
        w16_store(arg + at, where);
    else
        w16_store_n(arg + at, where, n);
}

static ls_status maxpool(lsi_device *device, const lsi_pool *p, const float *x, float *y,
                         int32_t *arg)
{
    (void)device;
    for (size_t n = 0; n < p->n; n++, x += p->h * p->w * p->c) {
        for (size_t i = 0; i < p->oh; i++) {
            const range h = window(i, p->stride_h, p->pad_h, p->kh, p->h);
            for (size_t j = 0; j < p->ow; j++, y += p->c, arg += p->c) {
                const range w = window(j, p->stride_w, p->pad_w, p->kw, p->w);
                V16_FOR_EACH(p->c, max_at, p, h, w, x, y, arg);
            }
        }
    }
    return LS_OK;
}

/* Each place of the window gets what is its own; the others get 0 added, which changes nothing. */
LSI_VEC void max_grad_at(const lsi_pool *p, range h, range w, const int32_t *arg, const float *dy,
                         float *image, size_t at, size_t n)
{
    const v16 d = v16_get(dy + at, n);
    w16 where;
    if (n == 16) {
        where = w16_load(arg + at);
    } else {
        int32_t some[16] = {0};
        memcpy(some, arg + at, n * sizeof *some);
        where = w16_load(some);
    }
    for (size_t i = h.from; i < h.to; i++) {
        for (size_t j = w.from; j < w.to; j++) {
            const size_t place = i * p->w + j;
            float *to = image + place * p->c + at;
            const v16 mine = v16_if_same(where, w16_set1((uint32_t)place), d, v16_zero());
            v16_put(to, v16_add(v16_get(to, n), mine), n);
        }
    }
}

static ls_status maxpool_grad(lsi_device *device, const lsi_pool *p, const int32_t *arg,
                              const float *dy, float *dx, int add)
{
    (void)device;
    const size_t image = p->h * p->w * p->c;
    if (!add)
        memset(dx, 0, p->n * image * sizeof *dx);
    for (size_t n = 0; n < p->n; n++, dx += image) {
        for (size_t i = 0; i < p->oh; i++) {
            const range h = window(i, p->stride_h, p->pad_h, p->kh, p->h);
            for (size_t j = 0; j < p->ow; j++, dy += p->c, arg += p->c) {
                const range w = window(j, p->stride_w, p->pad_w, p->kw, p->w);
                if (p->kh * p->kw <= COMPARE_PLACES)
                    V16_FOR_EACH(p->c, max_grad_at, p, h, w, arg, dy, dx);
                else
                    for (size_t c = 0; c < p->c; c++)
                        dx[(size_t)arg[c] * p->c + c] += dy[c];
            }
        }
    }
    return LS_OK;
}

/* The number that sums are divided by. */
typedef struct divisor {
    v16 by;
    int exact; /* `by` is its inverse, a power of two */
} divisor;

static divisor divisor_of(const lsi_pool *p)
{
    const size_t places = p->kh * p->kw;
    if (places & (places - 1))
        return (divisor){v16_set1((float)places), 0};
    return (divisor){v16_set1(1 / (float)places), 1};
}

/* The mean over h x w of an array `wide` places wide. */
LSI_VEC void mean_at(range h, range w, size_t wide, size_t c, const float *x, const divisor *d,
                     int add, float *y, size_t at, size_t n)
{
    v16 sum = v16_zero();
    for (size_t i = h.from; i < h.to; i++)
        for (size_t j = w.from; j < w.to; j++)
            sum = v16_add(sum, v16_get(x + (i * wide + j) * c + at, n));
    sum = d->exact ? v16_mul(sum, d->by) : v16_div(sum, d->by);
    v16_put(y + at, add ? v16_add(v16_get(y + at, n), sum) : sum, n);
}

static ls_status avgpool(lsi_device *device, const lsi_pool *p, const float *x, float *y)
{
    (void)device;
    const divisor d = divisor_of(p);
    for (size_t n = 0; n < p->n; n++, x += p->h * p->w * p->c) {
        for (size_t i = 0; i < p->oh; i++) {
            const range h = window(i, p->stride_h, p->pad_h, p->kh, p->h);
            for (size_t j = 0; j < p->ow; j++, y += p->c) {
                const range w = window(j, p->stride_w, p->pad_w, p->kw, p->w);
                V16_FOR_EACH(p->c, mean_at, h, w, p->w, p->c, x, &d, 0, y);
            }
        }
    }
    return LS_OK;
}

static ls_status avgpool_grad(lsi_device *device, const lsi_pool *p, const float *dy, float *dx,
                              int add)
{
    (void)device;
    const divisor d = divisor_of(p);
    for (size_t n = 0; n < p->n; n++, dy += p->oh * p->ow * p->c) {
        for (size_t i = 0; i < p->h; i++) {
            const range h = windows_over(i, p->stride_h, p->pad_h, p->kh, p->oh);
            for (size_t j = 0; j < p->w; j++, dx += p->c) {
                const range w = windows_over(j, p->stride_w, p->pad_w, p->kw, p->ow);
                V16_FOR_EACH(p->c, mean_at, h, w, p->ow, p->c, dy, &d, add, dx);
            }
        }
    }
    return LS_OK;
}

void LSI_K(install_pool)(lsi_kernels *kernels)
{
    kernels->maxpool = maxpool;
    kernels->maxpool_grad = maxpool_grad;
    kernels->avgpool = avgpool;
    kernels->avgpool_grad = avgpool_grad;
}

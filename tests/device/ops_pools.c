/* Operations under test: pooling. */
#include "trial.h"

static const struct {
    size_t kh, kw, stride_h, stride_w, pad_h, pad_w;
} windows[] = {
    {2, 2, 2, 2, 0, 0}, {3, 3, 2, 2, 1, 1}, {3, 3, 1, 1, 1, 1}, {1, 1, 1, 1, 0, 0},
    {3, 2, 1, 2, 1, 0}, {5, 3, 3, 2, 2, 1}, {2, 2, 3, 3, 0, 0}, {0, 0, 1, 1, 0, 0}, /* all of it */
};

static int pool_of(const size_t *a, lsi_pool *p)
{
    *p = (lsi_pool){.n = a[0],
                    .h = a[1],
                    .w = a[2],
                    .c = a[3],
                    .kh = windows[a[4]].kh ? windows[a[4]].kh : a[1],
                    .kw = windows[a[4]].kw ? windows[a[4]].kw : a[2],
                    .stride_h = windows[a[4]].stride_h,
                    .stride_w = windows[a[4]].stride_w,
                    .pad_h = windows[a[4]].pad_h,
                    .pad_w = windows[a[4]].pad_w};
    if (p->h + 2 * p->pad_h < p->kh || p->w + 2 * p->pad_w < p->kw)
        return 0;
    p->oh = (p->h + 2 * p->pad_h - p->kh) / p->stride_h + 1;
    p->ow = (p->w + 2 * p->pad_w - p->kw) / p->stride_w + 1;
    return 1;
}

static size_t pool_in(const lsi_pool *p)
{
    return p->n * p->h * p->w * p->c;
}

static size_t pool_out(const lsi_pool *p)
{
    return p->n * p->oh * p->ow * p->c;
}

/* Few different values, so that the first of equals matters; none of them above zero, so that
 * padding taken for a zero would win. */
static float *negative(trial *t, size_t n, size_t ties)
{
    float *x = trial_in_range(t, n, -5, -1);
    for (size_t i = 0; ties && i < n; i++)
        x[i] = (float)(int)x[i];
    return x;
}

static void maxpool(trial *t, const size_t *a)
{
    lsi_pool p;
    if (!pool_of(a, &p)) {
        trial_skip(t);
        return;
    }
    const float *x = negative(t, pool_in(&p), a[5]);
    float *y = trial_out(t, "y", pool_out(&p), 0, 0, 0);
    int32_t *arg = trial_out_ids(t, "arg", pool_out(&p));
    CALL(t, maxpool, &p, x, y, arg);
}

static void maxpool_grad(trial *t, const size_t *a)
{
    lsi_pool p;
    if (!pool_of(a, &p)) {
        trial_skip(t);
        return;
    }
    const float *x = negative(t, pool_in(&p), 0), *dy = trial_in(t, pool_out(&p));
    float *y = trial_in(t, pool_out(&p));
    int32_t *arg = trial_ids(t, pool_out(&p), 1);
    PREPARE(t, maxpool, &p, x, y, arg);
    float *dx = trial_out(t, "dx", pool_in(&p), a[5] == 1, 3e-7, (double)(p.kh * p.kw));
    CALL(t, maxpool_grad, &p, arg, dy, dx, a[5] == 1);
}

static void avgpool(trial *t, const size_t *a)
{
    lsi_pool p;
    if (!pool_of(a, &p)) {
        trial_skip(t);
        return;
    }
    const float *x = trial_in(t, pool_in(&p));
    float *y = trial_out(t, "y", pool_out(&p), 0, 3e-7, 1);
    CALL(t, avgpool, &p, x, y);
}

static void avgpool_grad(trial *t, const size_t *a)
{
    lsi_pool p;
    if (!pool_of(a, &p)) {
        trial_skip(t);
        return;
    }
    const float *dy = trial_in(t, pool_out(&p));
    float *dx = trial_out(t, "dx", pool_in(&p), a[5] == 1, 3e-7, 1);
    CALL(t, avgpool_grad, &p, dy, dx, a[5] == 1);
}

#define IMAGES                                                                                     \
    SIZES("n", 0, 1, 2, 3), SIZES("h", 1, 2, 4, 7, 8), SIZES("w", 1, 3, 4, 8, 9),                  \
        SIZES("c", 1, 3, 8, 15, 16, 17, 32, 33, 64), CHOICE("window", 0, 1, 2, 3, 4, 5, 6, 7)

const trial_op trial_pools[] = {
    {ENTRY(maxpool), maxpool, {IMAGES, CHOICE("ties", 0, 1)}},
    {ENTRY(maxpool_grad), maxpool_grad, {IMAGES, CHOICE("add", 0, 1)}},
    {ENTRY(avgpool), avgpool, {IMAGES}},
    {ENTRY(avgpool_grad), avgpool_grad, {IMAGES, CHOICE("add", 0, 1)}},
    {0},
};

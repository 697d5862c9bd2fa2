/* Operations under test: convolution.
 *
 * Inputs have variance 1, so a sum of k products has k for the magnitude of its terms: that is the
 * scale, as for the linear layers.
 */
#include "trial.h"

#define TOL 3e-7

static const struct {
    size_t kh, kw, stride_h, stride_w, pad_h, pad_w;
} windows[] = {
    {1, 1, 1, 1, 0, 0}, {3, 3, 1, 1, 1, 1}, {3, 3, 2, 2, 1, 1}, {1, 1, 2, 2, 0, 0},
    {3, 3, 1, 1, 0, 0}, {5, 5, 1, 1, 2, 2}, {7, 7, 2, 2, 3, 3}, {3, 1, 1, 2, 1, 0},
    {2, 3, 2, 1, 0, 1}, {4, 4, 4, 4, 0, 0}, {1, 3, 1, 1, 0, 2}, {3, 3, 3, 2, 2, 1},
};
#define WINDOWS CHOICE("window", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)

/* Returns 0 when the window is larger than the image. a[3] and a[4] are channels of a group. */
static int conv_of(const size_t *a, lsi_conv *p)
{
    *p = (lsi_conv){.n = a[0],
                    .h = a[1],
                    .w = a[2],
                    .c = a[3] * a[5],
                    .o = a[4] * a[5],
                    .groups = a[5],
                    .kh = windows[a[6]].kh,
                    .kw = windows[a[6]].kw,
                    .stride_h = windows[a[6]].stride_h,
                    .stride_w = windows[a[6]].stride_w,
                    .pad_h = windows[a[6]].pad_h,
                    .pad_w = windows[a[6]].pad_w};
    if (p->h + 2 * p->pad_h < p->kh || p->w + 2 * p->pad_w < p->kw)
        return 0;
    p->oh = (p->h + 2 * p->pad_h - p->kh) / p->stride_h + 1;
    p->ow = (p->w + 2 * p->pad_w - p->kw) / p->stride_w + 1;
    return 1;
}

static size_t conv_in(const lsi_conv *p)
{
    return p->n * p->h * p->w * p->c;
}

static size_t conv_out(const lsi_conv *p)
{
    return p->n * p->oh * p->ow * p->o;
}

static size_t conv_weights(const lsi_conv *p)
{
    return p->kh * p->kw * (p->c / p->groups) * p->o;
}

static void conv2d(trial *t, const size_t *a)
{
    lsi_conv p;
    if (!conv_of(a, &p)) {
        trial_skip(t);
        return;
    }
    const float *x = trial_in(t, conv_in(&p)), *w = trial_in(t, conv_weights(&p));
    const float *bias = a[7] ? trial_in(t, p.o) : NULL;
    float *y = trial_out(t, "y", conv_out(&p), 0, TOL, (double)(conv_weights(&p) / p.o) + 2);
    CALL(t, conv2d, &p, x, w, bias, y);
}

static void conv2d_dx(trial *t, const size_t *a)
{
    lsi_conv p;
    if (!conv_of(a, &p)) {
        trial_skip(t);
        return;
    }
    const int add = (int)a[7];
    const double terms = (double)(p.kh * p.kw * (p.o / p.groups));
    const float *dy = trial_in(t, conv_out(&p)), *w = trial_in(t, conv_weights(&p));
    float *dx = trial_out(t, "dx", conv_in(&p), add, TOL, terms + 2);
    CALL(t, conv2d_dx, &p, dy, w, dx, add);
}

static void conv2d_dw(trial *t, const size_t *a)
{
    lsi_conv p;
    if (!conv_of(a, &p)) {
        trial_skip(t);
        return;
    }
    const int add = a[7] & 1;
    const double scale = (double)(p.n * p.oh * p.ow) + 2;
    const float *x = trial_in(t, conv_in(&p)), *dy = trial_in(t, conv_out(&p));
    float *dw = trial_out(t, "dweight", conv_weights(&p), add, TOL, scale);
    float *dbias = a[7] & 2 ? trial_out(t, "dbias", p.o, add, TOL, scale) : NULL;
    CALL(t, conv2d_dw, &p, x, dy, dw, dbias, add);
}

#define CONV_SIZES                                                                                 \
    SIZES("n", 1, 2, 3), SIZES("h", 1, 4, 7, 8, 13), SIZES("w", 1, 5, 8, 9, 16, 17),               \
        SIZES("c", 1, 3, 8, 16, 17, 33), SIZES("o", 1, 2, 8, 15, 16, 17, 32, 33, 64),              \
        CHOICE("groups", 1, 1, 1, 2, 3), WINDOWS

const trial_op trial_convolutions[] = {
    {ENTRY(conv2d), conv2d, {CONV_SIZES, CHOICE("bias", 0, 1)}},
    {ENTRY(conv2d_dx), conv2d_dx, {CONV_SIZES, CHOICE("add", 0, 1)}},
    {ENTRY(conv2d_dw), conv2d_dw, {CONV_SIZES, CHOICE("options", 0, 1, 2, 3)}},
    {0},
};

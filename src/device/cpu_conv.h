/* Images of a convolution, and what its files share. */
#ifndef LSI_DEVICE_CPU_CONV_H
#define LSI_DEVICE_CPU_CONV_H

#include "device/kernels.h"
#include "device/vec.h"

/* A zero border around an image, so that windows need no edges. */
typedef struct padded {
    size_t h, w, c; /* with the border */
    size_t top, left;
} padded;

LSI_VEC size_t padded_floats(const padded *p)
{
    return p->h * p->w * p->c;
}

/* When images of h x w need no border, they are read where they lie. */
LSI_VEC int padded_as_is(padded *p, size_t h, size_t w)
{
    if (p->top || p->left || p->h > h || p->w > w)
        return 0;
    p->h = h;
    p->w = w;
    return 1;
}

/* One image (h, w, c) on its way into the middle of a padded one, row by row: rows are copied when
 * somebody is about to read them, and are in the first cache then. What does not fit is cut off. */
typedef struct framed {
    const padded *border;
    const float *x;
    size_t h, w;
    float *to;         /* NULL: as it is */
    const float *rows; /* of the padded image, */
    size_t ready;      /* those that are there */
} framed;

static inline framed frame(const padded *border, const float *x, size_t h, size_t w, float *to)
{
    return (framed){border, x, h, w, to, to ? to : x, to ? 0 : h};
}

static inline void frame_row(const framed *f, size_t row)
{
    const padded *p = f->border;
    const size_t line = p->w * p->c, left = p->left * p->c;
    const size_t used = f->w < p->w - p->left ? f->w : p->w - p->left, body = used * p->c;
    float *to = f->to + row * line;
    if (row < p->top || row - p->top >= f->h) {
        memset(to, 0, line * sizeof *to);
        return;
    }
    const float *from = f->x + (row - p->top) * f->w * p->c;
    memset(to, 0, left * sizeof *to);
    memcpy(to + left, from, body * sizeof *to);
    memset(to + left + body, 0, (line - left - body) * sizeof *to);
    if (row - p->top + 1 < f->h) /* the next row may come from far away */
        for (size_t i = 0; i < body; i += 16)
            __builtin_prefetch(from + f->w * p->c + i);
}

/* Rows [0, end) are there when it returns. */
static inline void frame_until(framed *f, size_t end)
{
    for (; f->ready < end; f->ready++)
        frame_row(f, f->ready);
}

/* dweight (kh, kw, c / groups, o) (+)= …, as conv2d_dw without the bias. */
ls_status LSI_K(conv_dw)(lsi_device *, const lsi_conv *, const float *x, const float *dy,
                         float *dweight, int add);

/* Whether a convolution is computed by cpu_winograd.c: the kernel and the channels decide, so that
 * neither the number of images nor the instruction set changes a bit. */
static inline int lsi_winograd_fits(const lsi_conv *p)
{
    return p->kh == 3 && p->kw == 3 && p->stride_h == 1 && p->stride_w == 1 && p->pad_h <= 2 &&
           p->pad_w <= 2 && p->groups == 1 && p->c % 16 == 0 && p->o % 16 == 0;
}

/* conv2d, conv2d_dx, and conv2d_dw without the bias, where it fits. */
ls_status LSI_K(winograd)(lsi_device *, const lsi_conv *, const float *x, const float *weight,
                          const float *bias, float *y);
ls_status LSI_K(winograd_dx)(lsi_device *, const lsi_conv *, const float *dy, const float *weight,
                             float *dx, int add);
ls_status LSI_K(winograd_dw)(lsi_device *, const lsi_conv *, const float *x, const float *dy,
                             float *dweight, int add);

#endif

/* Convolutions on images (n, h, w, c): windows read in place, no matrix of patches.
 *
 * In a padded image the kw * c inputs of one row of a window are contiguous, and the window of the
 * next pixel starts stride * c further on: the tile (cpu_tile.h) reads them where they lie, one
 * segment for each row of the window.
 *
 * - forward: rows of the tile are pixels of one output row, B is the packed weight. With as few
 *   output channels as one register holds, a row of the image meets the weights of all output rows
 *   that see it at once (cpu_fan.h).
 * - dx: each class of input pixels with the same remainder by the stride sees its own subset of the
 *   window; for that class it is a forward convolution over dy with the flipped subset.
 * - dw: cpu_conv_dw.c.
 * - 3 x 3 with stride 1 and channels in sixteens: cpu_winograd.c.
 *
 * 1. Chains: forward over (kh, kw, c) ascending; dx over the taps from last to first, then o.
 * 2. With groups a segment is one tap: the channels of a group are contiguous in a pixel only.
 */
#include "device/cpu_conv.h"
#include "base/status.h"
#include "device/cpu.h"
#include "device/cpu_fan.h"
#include "device/cpu_gemm.h"
#include "device/cpu_tile.h"

/* A convolution without border over a padded image, of one group: the common core of forward and
 * dx. Output pixel (y, x) reads the window at (y * step_h, x * step_w). */
typedef struct window {
    const padded *image;
    framed *source;
    size_t y0, x0; /* of the padded image: the corner of the first window */
    size_t taps_h, taps_w, step_h, step_w;
    size_t c0, c;             /* channels of the image that it reads */
    size_t n;                 /* output channels */
    size_t out_h, out_w;      /* pixels to compute */
    size_t out_line, out_row; /* floats from one output row, and pixel, to the next */
    const float *weight;      /* packed: taps_h * taps_w * c rows of n */
    int add;
    const float *bias;
} window;

#define MAX_SEGMENTS ((size_t)256)
#define FAN_WORTH 24 /* products of a row of the window, from which on sharing its inputs pays */

/* Where the segments of the window lie, floats from its first; returns their number. */
static size_t segment_places(const window *w, size_t *place, size_t *k)
{
    const int whole_rows = w->c == w->image->c;
    const size_t across = whole_rows ? 1 : w->taps_w;
    size_t count = 0;
    for (size_t y = 0; y < w->taps_h; y++)
        for (size_t x = 0; x < across; x++)
            place[count++] = (y * w->image->w + x) * w->image->c;
    *k = whole_rows ? w->taps_w * w->c : w->c;
    return count;
}

static void add_bias(const window *w, float *y, size_t pixels, size_t n0, size_t cols)
{
    for (size_t i = 0; i < pixels; i++)
        for (size_t j = 0; j < cols; j += 16) {
            const size_t m = cols - j < 16 ? cols - j : 16;
            const v16 v = v16_load_n(y + i * w->out_row + j, m);
            v16_store_n(y + i * w->out_row + j, v16_add(v, v16_load_n(w->bias + n0 + j, m)), m);
        }
}

/* Row q of those under the windows, with `rows` rows ready to be read. */
static const float *image_row(const window *w, size_t q, size_t rows)
{
    frame_until(w->source, w->y0 + q + rows);
    return w->source->rows + ((w->y0 + q) * w->image->w + w->x0) * w->image->c + w->c0;
}

/* The next strip of a row of the output of which `left` pixels are left, and those of the same
 * length behind it; returns their pixels. */
static size_t take_strips(const window *w, lsi_tile *t, size_t left, size_t strip)
{
    size_t pixels = t->rows = tile_height(left, strip);
    t->more = 0;
    t->a_next = t->rows * w->step_w * w->image->c;
    t->c_next = t->rows * w->out_row;
    while (t->cols == t->width && pixels < left && tile_height(left - pixels, strip) == t->rows) {
        t->more++;
        pixels += t->rows;
    }
    return pixels;
}

/* The band of output channels [j, j + t->cols), row by row of the output. */
static void slide_tiles(const window *w, lsi_tile *t, size_t j, float *y)
{
    const size_t strip = tile_strip(w->out_w);
    for (size_t oy = 0; oy < w->out_h; oy++) {
        const float *row = image_row(w, oy * w->step_h, w->taps_h);
        for (size_t ox = 0, pixels; ox < w->out_w; ox += pixels) {
            pixels = take_strips(w, t, w->out_w - ox, strip);
            t->a = row + ox * w->step_w * w->image->c;
            t->c = y + oy * w->out_line + ox * w->out_row + j;
            t->start = w->add ? t->c : NULL;
            LSI_K(tile)(t);
            if (w->bias)
                add_bias(w, t->c, pixels, j, t->cols);
        }
    }
}

/* One row of the image, to the output rows that f is set up for. */
static void fan_row(const window *w, lsi_fan *f, const float *row, float *y)
{
    const size_t strip = even_strip(w->out_w, FAN_ROWS);
    for (size_t ox = 0; ox < w->out_w; ox += strip) {
        f->rows = w->out_w - ox < strip ? w->out_w - ox : strip;
        f->a = row + ox * w->step_w * w->image->c;
        f->c = y + ox * w->out_row;
        LSI_K(fan)(f);
    }
}

/* The band of output channels [j, j + LANES), row by row of the image: row q is seen by output row
 * q / step_h - i through tap q % step_h + i step_h. So each output row meets its taps in ascending
 * order, and rests in y in between. */
static void slide_fans(const window *w, const lsi_tile *t, size_t j, float *y)
{
    const size_t rows = (w->out_h - 1) * w->step_h + w->taps_h, tap = t->k * LANES;
    lsi_fan f = {.k = t->k,
                 .segments = 1,
                 .a_row = t->a_row,
                 .a_col = 1,
                 .b_row = LANES,
                 .b_next = (ptrdiff_t)(w->step_h * tap),
                 .ldc = w->out_row,
                 .c_next = -(ptrdiff_t)w->out_line};
    for (size_t q = 0; q < rows; q++) {
        const float *row = image_row(w, q, 1);
        const size_t below = q / w->step_h, first = q % w->step_h;
        const size_t taps = (w->taps_h - first + w->step_h - 1) / w->step_h;
        const size_t end = below + 1 < taps ? below + 1 : taps;
        for (size_t i = below < w->out_h ? 0 : below - w->out_h + 1; i < end; i += f.vectors) {
            f.vectors = end - i < FAN_VECTORS ? end - i : FAN_VECTORS;
            f.b = t->b + (first + i * w->step_h) * tap;
            f.fresh = !w->add && first + i == 0;
            fan_row(w, &f, row, y + (below - i) * w->out_line + j);
        }
        if (w->bias && q + 1 >= w->taps_h && (q + 1 - w->taps_h) % w->step_h == 0)
            add_bias(w, y + (q + 1 - w->taps_h) / w->step_h * w->out_line + j, w->out_w, j, LANES);
    }
}

/* Does it pay to share the image's rows? What rests in y has to be read and written again. */
static int fans(const window *w, const lsi_tile *t)
{
    return FAN_VECTORS > 1 && t->cols == LANES && t->segments == w->taps_h &&
           w->taps_h > w->step_h && t->k >= FAN_WORTH;
}

/* The window over one image, a band of output channels at a time. */
static void slide(const window *w, float *y)
{
    size_t place[MAX_SEGMENTS], k;
    const size_t segments = segment_places(w, place, &k);
    lsi_tile t = {.k = k,
                  .segments = segments,
                  .place = place,
                  .a_row = w->step_w * w->image->c,
                  .a_col = 1,
                  .ld_start = w->out_row,
                  .ldc = w->out_row};
    for (size_t j = 0; j < w->n; j += t.width) {
        t.width = t.b_row = tile_width(w->n - j);
        t.cols = w->n - j < t.width ? w->n - j : t.width;
        t.b = w->weight + j * segments * k;
        if (fans(w, &t))
            slide_fans(w, &t, j, y);
        else
            slide_tiles(w, &t, j, y);
    }
}

static ls_status too_large(const lsi_conv *p)
{
    return lsi_fail(LS_ERR_UNSUPPORTED, "use a smaller kernel", "conv2d",
                    "a kernel of %zu x %zu is too large", p->kh, p->kw);
}

static ls_status forward_general(lsi_device *device, const lsi_conv *p, const float *x,
                                 const float *weight, const float *bias, float *y)
{
    const size_t c = p->c / p->groups, o = p->o / p->groups, taps = p->kh * p->kw;
    padded image = {.h = (p->oh - 1) * p->stride_h + p->kh,
                    .w = (p->ow - 1) * p->stride_w + p->kw,
                    .c = p->c,
                    .top = p->pad_h,
                    .left = p->pad_w};
    const int as_is = padded_as_is(&image, p->h, p->w);
    const size_t packed = tile_packed(taps * c, o);
    void *scratch;
    LSI_TRY(lsi_device_scratch(device, (packed * p->groups + padded_floats(&image)) * sizeof(float),
                               &scratch));
    float *room = scratch, *pad = as_is ? NULL : room + packed * p->groups;
    for (size_t g = 0; g < p->groups; g++)
        LSI_K(tile_pack)(weight + g * o, p->o, 1, taps * c, o, room + g * packed);
    for (size_t n = 0; n < p->n; n++) {
        framed source = frame(&image, x + n * p->h * p->w * p->c, p->h, p->w, pad);
        for (size_t g = 0; g < p->groups; g++) {
            window w = {.image = &image,
                        .source = &source,
                        .taps_h = p->kh,
                        .taps_w = p->kw,
                        .step_h = p->stride_h,
                        .step_w = p->stride_w,
                        .c0 = g * c,
                        .c = c,
                        .n = o,
                        .out_h = p->oh,
                        .out_w = p->ow,
                        .out_line = p->ow * p->o,
                        .out_row = p->o,
                        .weight = room + g * packed,
                        .bias = bias ? bias + g * o : NULL};
            slide(&w, y + n * p->oh * p->ow * p->o + g * o);
        }
    }
    return LS_OK;
}

/* One dimension of a class of input pixels, those with remainder r by the stride. */
typedef struct phase {
    size_t first;  /* tap: taps are first, first + stride, … */
    size_t taps;   /* how many; 0: no output depends on these pixels */
    size_t start;  /* first pixel of the class */
    size_t count;  /* pixels of the class */
    size_t origin; /* output pixel under the first tap at the first pixel */
} phase;

static phase find_phase(size_t r, size_t size, size_t stride, size_t pad, size_t kernel)
{
    phase f = {.first = (r + pad) % stride, .start = r};
    f.taps = kernel > f.first ? (kernel - f.first + stride - 1) / stride : 0;
    f.count = size > r ? (size - r + stride - 1) / stride : 0;
    f.origin = (r + pad) / stride; /* (r + pad - first) / stride, for first is the remainder */
    return f;
}

/* The weights of a phase as rows of (tap from last to first, o), columns c, for one group. */
static void flip_weight(const lsi_conv *p, const phase *fh, const phase *fw, size_t g,
                        const float *weight, float *to)
{
    const size_t c = p->c / p->groups, o = p->o / p->groups;
    for (size_t y = 0; y < fh->taps; y++)
        for (size_t x = 0; x < fw->taps; x++) {
            const size_t kh = fh->first + (fh->taps - 1 - y) * p->stride_h;
            const size_t kw = fw->first + (fw->taps - 1 - x) * p->stride_w;
            const float *from = weight + (kh * p->kw + kw) * c * p->o + g * o;
            for (size_t j = 0; j < o; j++, to += c)
                for (size_t i = 0; i < c; i++)
                    to[i] = from[i * p->o + j];
        }
}

/* Clear what no output depends on. */
static void clear_phase(const lsi_conv *p, const phase *fh, const phase *fw, float *dx)
{
    for (size_t y = fh->start; y < p->h; y += p->stride_h)
        for (size_t x = fw->start; x < p->w; x += p->stride_w)
            memset(dx + (y * p->w + x) * p->c, 0, p->c * sizeof *dx);
}

/* dx of one image for one phase and group. */
static void dx_phase(const lsi_conv *p, const phase *fh, const phase *fw, size_t g, framed *dy,
                     const float *packed, float *dx, int add)
{
    const size_t c = p->c / p->groups, o = p->o / p->groups;
    if (!fh->count || !fw->count)
        return;
    if (!fh->taps || !fw->taps) {
        if (!add && g == 0)
            clear_phase(p, fh, fw, dx);
        return;
    }
    /* Row q of dy lies at q + top of the padded one; the first window starts at its last tap. */
    const window w = {.image = dy->border,
                      .source = dy,
                      .y0 = fh->origin + dy->border->top - (fh->taps - 1),
                      .x0 = fw->origin + dy->border->left - (fw->taps - 1),
                      .taps_h = fh->taps,
                      .taps_w = fw->taps,
                      .step_h = 1,
                      .step_w = 1,
                      .c0 = g * o,
                      .c = o,
                      .n = c,
                      .out_h = fh->count,
                      .out_w = fw->count,
                      .out_line = p->stride_h * p->w * p->c,
                      .out_row = p->stride_w * p->c,
                      .weight = packed,
                      .add = add};
    slide(&w, dx + (fh->start * p->w + fw->start) * p->c + g * c);
}

/* The border of dy that every phase finds room in. */
static padded find_border(const lsi_conv *p)
{
    padded b = {.c = p->o,
                .top = (p->kh + p->stride_h - 1) / p->stride_h - 1,
                .left = (p->kw + p->stride_w - 1) / p->stride_w - 1};
    b.h = b.top + (p->h - 1 + p->pad_h) / p->stride_h + 1;
    b.w = b.left + (p->w - 1 + p->pad_w) / p->stride_w + 1;
    return b;
}

static ls_status dx_general(lsi_device *device, const lsi_conv *p, const float *dy,
                            const float *weight, float *dx, int add)
{
    const size_t c = p->c / p->groups, o = p->o / p->groups, phases = p->stride_h * p->stride_w;
    const size_t taps_h = (p->kh + p->stride_h - 1) / p->stride_h;
    const size_t taps_w = (p->kw + p->stride_w - 1) / p->stride_w;
    padded border = find_border(p);
    const int as_is = padded_as_is(&border, p->oh, p->ow);
    const size_t rows = taps_h * taps_w * o, packed = tile_packed(rows, c);
    void *scratch;
    LSI_TRY(lsi_device_scratch(device,
                               (packed * phases * p->groups + rows * c + padded_floats(&border)) *
                                   sizeof(float),
                               &scratch));
    float *all = scratch, *flat = all + packed * phases * p->groups,
          *pad = as_is ? NULL : flat + rows * c;
    for (size_t n = 0; n < p->n; n++) {
        framed image = frame(&border, dy + n * p->oh * p->ow * p->o, p->oh, p->ow, pad);
        float *at = all;
        for (size_t f = 0; f < phases; f++) {
            const phase fh = find_phase(f / p->stride_w, p->h, p->stride_h, p->pad_h, p->kh);
            const phase fw = find_phase(f % p->stride_w, p->w, p->stride_w, p->pad_w, p->kw);
            for (size_t g = 0; g < p->groups; g++, at += packed) {
                if (n == 0) {
                    flip_weight(p, &fh, &fw, g, weight, flat);
                    LSI_K(tile_pack)(flat, c, 1, fh.taps * fw.taps * o, c, at);
                }
                dx_phase(p, &fh, &fw, g, &image, at, dx + n * p->h * p->w * p->c, add);
            }
        }
    }
    return LS_OK;
}

/* A kernel of one pixel is a linear layer on pixels. */
static int is_linear(const lsi_conv *p)
{
    return p->kh == 1 && p->kw == 1 && p->stride_h == 1 && p->stride_w == 1 && p->pad_h == 0 &&
           p->pad_w == 0 && p->groups == 1;
}

static lsi_linear as_linear(const lsi_conv *p)
{
    return (lsi_linear){.rows = p->n * p->h * p->w, .in = p->c, .out = p->o};
}

static ls_status conv2d(lsi_device *device, const lsi_conv *p, const float *x, const float *weight,
                        const float *bias, float *y)
{
    if (is_linear(p)) {
        const lsi_linear l = as_linear(p);
        return LSI_K(linear)(device, &l, x, weight, bias, NULL, NULL, y);
    }
    if (lsi_winograd_fits(p))
        return LSI_K(winograd)(device, p, x, weight, bias, y);
    return p->kh * p->kw > MAX_SEGMENTS ? too_large(p)
                                        : forward_general(device, p, x, weight, bias, y);
}

static ls_status conv2d_dx(lsi_device *device, const lsi_conv *p, const float *dy,
                           const float *weight, float *dx, int add)
{
    if (is_linear(p)) {
        const lsi_linear l = as_linear(p);
        return LSI_K(linear_dx)(device, &l, dy, weight, dx, add);
    }
    if (lsi_winograd_fits(p))
        return LSI_K(winograd_dx)(device, p, dy, weight, dx, add);
    return p->kh * p->kw > MAX_SEGMENTS ? too_large(p) : dx_general(device, p, dy, weight, dx, add);
}

static ls_status conv2d_dw(lsi_device *device, const lsi_conv *p, const float *x, const float *dy,
                           float *dweight, float *dbias, int add)
{
    if (is_linear(p)) {
        const lsi_linear l = as_linear(p);
        return LSI_K(linear_dw)(device, &l, x, dy, dweight, dbias, add);
    }
    if (dbias)
        LSI_K(column_sums)(p->n * p->oh * p->ow, p->o, dy, p->o, dbias, add);
    return lsi_winograd_fits(p) ? LSI_K(winograd_dw)(device, p, x, dy, dweight, add)
                                : LSI_K(conv_dw)(device, p, x, dy, dweight, add);
}

void LSI_K(install_conv)(lsi_kernels *kernels)
{
    kernels->conv2d = conv2d;
    kernels->conv2d_dx = conv2d_dx;
    kernels->conv2d_dw = conv2d_dw;
}

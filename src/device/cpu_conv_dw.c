/* The gradient of a convolution's weights (cpu_conv.c has the others).
 *
 * Rows of the product are weights: kw * c of one row of the window, which lie side by side in a
 * padded image; k runs over pixels. Columns are output channels. With as few of them as one
 * register holds, a row of the image meets the rows of dy under all rows of the window at once
 * (cpu_fan.h).
 *
 * 1. Chains run over (n, oh, ow) ascending.
 */
#include "base/status.h"
#include "device/cpu_conv.h"
#include "device/cpu_fan.h"
#include "device/cpu_tile.h"

/* One image and group of a convolution: what dw is a product of. */
typedef struct image_pair {
    const padded *image;
    const float *x; /* padded, at the group's first channel */
    const float *dy;
    size_t dy_row;       /* floats from one pixel of dy to the next */
    const size_t *place; /* of the rows of x under the first row of the window */
    float *dw;           /* at the group's first output channel; added to */
} image_pair;

/* Taps r, r + stride_h, … and columns [j, j + LANES): of the rows of x that these taps see, row
 * `below` meets row below - i of dy in tap r + i stride_h. Those in the middle meet all these taps,
 * and are one product. */
static void dw_fan(const lsi_conv *p, const image_pair *pair, size_t r, size_t j)
{
    const size_t m = p->kw * p->c, tap = m * p->o, line = p->ow * pair->dy_row;
    const size_t taps = (p->kh - r + p->stride_h - 1) / p->stride_h;
    const size_t strip = even_strip(m, FAN_ROWS);
    lsi_fan f = {.k = p->ow,
                 .a_step = p->stride_h * pair->image->w * p->c,
                 .a_row = 1,
                 .a_col = p->stride_w * p->c,
                 .b_row = pair->dy_row,
                 .b_next = -(ptrdiff_t)line,
                 .ldc = p->o,
                 .c_next = (ptrdiff_t)(p->stride_h * tap)};
    for (size_t i0 = 0, i1; i0 < taps; i0 = i1) {
        i1 = taps - i0 < FAN_VECTORS ? taps : i0 + FAN_VECTORS;
        for (size_t below = i0; below < p->oh + i1 - 1; below += f.segments) {
            const size_t from = below < p->oh + i0 ? i0 : below - p->oh + 1;
            const size_t end = below < i1 ? below + 1 : i1;
            f.vectors = end - from;
            f.segments = from == i0 && end == i1 ? p->oh + i0 - below : 1;
            f.b = pair->dy + (below - from) * line + j;
            for (size_t at = 0; at < m; at += strip) {
                f.rows = m - at < strip ? m - at : strip;
                f.a = pair->x + (below * p->stride_h + r) * pair->image->w * p->c + at;
                f.c = pair->dw + (r + from * p->stride_h) * tap + at * p->o + j;
                LSI_K(fan)(&f);
            }
        }
    }
}

/* All taps, columns [j, j + width): for each row of the window (each tap, with groups) a product of
 * its inputs, transposed, and dy. */
static void dw_tiles(const lsi_conv *p, const image_pair *pair, size_t j, lsi_tile *t)
{
    const size_t c = p->c / p->groups;
    const size_t across = p->groups == 1 ? 1 : p->kw, m = p->groups == 1 ? p->kw * c : c;
    const size_t strip = tile_strip(m);
    for (size_t tap = 0; tap < p->kh * across; tap++) {
        const size_t y = tap / across, x = tap % across;
        for (size_t i = 0; i < m; i += strip) {
            t->rows = m - i < strip ? m - i : strip;
            t->a = pair->x + (y * pair->image->w + x) * p->c + i;
            t->start = t->c = pair->dw + ((y * p->kw + x) * c + i) * p->o + j;
            LSI_K(tile)(t);
        }
    }
}

/* `packed`: dy is in panels. */
static void dw_image(const lsi_conv *p, const image_pair *pair, int packed)
{
    const size_t o = p->o / p->groups;
    lsi_tile t = {.k = p->ow,
                  .segments = p->oh,
                  .place = pair->place,
                  .a_row = 1,
                  .a_col = p->stride_w * p->c,
                  .ld_start = p->o,
                  .ldc = p->o};
    for (size_t j = 0; j < o; j += t.width) {
        t.width = tile_width(o - j);
        t.cols = o - j < t.width ? o - j : t.width;
        if (FAN_VECTORS > 1 && t.cols == LANES && !packed && p->groups == 1 &&
            p->kh > p->stride_h) {
            for (size_t r = 0; r < p->stride_h; r++)
                dw_fan(p, pair, r, j);
        } else {
            t.b = packed ? pair->dy + j * p->oh * p->ow : pair->dy + j;
            t.b_row = packed ? t.width : pair->dy_row;
            dw_tiles(p, pair, j, &t);
        }
    }
}

ls_status LSI_K(conv_dw)(lsi_device *device, const lsi_conv *p, const float *x, const float *dy,
                         float *dw, int add)
{
    const size_t o = p->o / p->groups, pixels = p->oh * p->ow;
    padded image = {.h = (p->oh - 1) * p->stride_h + p->kh,
                    .w = (p->ow - 1) * p->stride_w + p->kw,
                    .c = p->c,
                    .top = p->pad_h,
                    .left = p->pad_w};
    const int as_is = padded_as_is(&image, p->h, p->w);
    const int packs = o % LANES != 0; /* else a vector past the last channel could be read */
    const size_t packed = packs ? tile_packed(pixels, o) : 0;
    const size_t places = (p->oh * sizeof(size_t) + 63) / 64 * 64;
    void *scratch;
    LSI_TRY(lsi_device_scratch(device, places + (padded_floats(&image) + packed) * sizeof(float),
                               &scratch));
    size_t *place = scratch;
    float *pad = (float *)((char *)scratch + places), *room = pad + padded_floats(&image);
    for (size_t y = 0; y < p->oh; y++)
        place[y] = y * p->stride_h * image.w * p->c;
    if (!add)
        memset(dw, 0, p->kh * p->kw * p->c / p->groups * p->o * sizeof *dw);
    for (size_t n = 0; n < p->n; n++) {
        framed source = frame(&image, x + n * p->h * p->w * p->c, p->h, p->w, as_is ? NULL : pad);
        frame_until(&source, image.h);
        for (size_t g = 0; g < p->groups; g++) {
            const float *from = dy + n * pixels * p->o + g * o;
            if (packs)
                LSI_K(tile_pack)(from, p->o, 1, pixels, o, room);
            dw_image(p,
                     &(image_pair){&image, source.rows + g * p->c / p->groups, packs ? room : from,
                                   p->o, place, dw + g * o},
                     packs);
        }
    }
    return LS_OK;
}

/* Convolutions of 3 x 3 with stride 1 by minimal filtering: 16 products for 4 pixels, not 36.
 *
 * S. Winograd, "Arithmetic complexity of computations", 1980; A. Lavin and S. Gray, "Fast
 * algorithms for convolutional neural networks", CVPR 2016: F(2x2, 3x3). The output is cut into
 * tiles of 2 x 2 pixels, each of which sees 4 x 4 of the input, d:
 *
 *     y = Aᵀ ((G g Gᵀ) ⊙ (Bᵀ d B)) A,  so  dg = Gᵀ (sum of (A dy Aᵀ) ⊙ (Bᵀ d B)) G
 *
 *     Bᵀ = 1  0 -1  0    G =  1   0   0    Aᵀ = 1  1  1  0
 *          0  1  1  0        1/2 1/2 1/2        0  1 -1  1
 *          0 -1  1  0        1/2 -1/2 1/2
 *          0 -1  0  1         0   0   1
 *
 * ⊙ over all channels is, at each of 16 places, a product of matrices: (tiles, c) (c, o), and for
 * dw (c, tiles) (tiles, o). Tiles of all images are taken BLOCK at a time, so that they and their
 * products lie in the second cache.
 *
 * 1. Bits: lsi_winograd_fits looks at the kernel and channels alone. At each place a product is one
 *    chain, over c ascending, or over tiles (n, row, column) ascending. Transforms go first down
 *    columns, then along rows, each sum in the order that its function has; bias, or what is added
 *    to, comes last. So neither BLOCK nor the instruction set matters.
 * 2. dx is a forward convolution of dy with the window turned about, and channels exchanged.
 * 3. What lies outside an image is zero: of its edges a copy is made, tile by tile.
 */
#include "base/status.h"
#include "device/cpu_conv.h"
#include "device/cpu_tile.h"

#define BLOCK ((size_t)48) /* a multiple of all strips' heights */
#define PLACES 16
#define TAPS 9
#define APART 16 /* floats between the places, lest they share sets of the first cache */

/* Images whose tiles are read or written: tile (i, j) begins at pixel (2 i - top, 2 j - left). */
typedef struct tiling {
    size_t h, w, c;    /* of an image */
    size_t top, left;  /* of the border */
    size_t down, over; /* tiles of an image */
} tiling;

typedef struct tile_place {
    size_t image, y, x; /* the corner, in the image with its border */
} tile_place;

/* The tile after this one: along a row, then the next row, then the next image. */
LSI_VEC void move_on(const tiling *g, tile_place *at)
{
    at->x += 2;
    if (at->x < 2 * g->over)
        return;
    at->x = 0;
    at->y += 2;
    if (at->y < 2 * g->down)
        return;
    at->y = 0;
    at->image++;
}

/* Rows of `side` x `side` pixels of a tile: where they lie, or in `room` when some are outside. */
LSI_VEC void tile_rows(const tiling *g, const float *x, tile_place at, size_t side, float *room,
                       const float **row)
{
    const float *image = x + at.image * g->h * g->w * g->c;
    const int whole = at.y >= g->top && at.y + side <= g->top + g->h && at.x >= g->left &&
                      at.x + side <= g->left + g->w;
    const size_t from = at.x < g->left ? g->left - at.x : 0; /* columns outside, on the left */
    const size_t until = g->left + g->w - at.x < side ? g->left + g->w - at.x : side;
    for (size_t r = 0; r < side; r++) {
        const size_t y = at.y + r - g->top; /* far beyond h when above */
        if (whole) {
            row[r] = image + (y * g->w + at.x - g->left) * g->c;
            continue;
        }
        float *to = room + r * side * g->c;
        row[r] = to;
        memset(to, 0, side * g->c * sizeof *to);
        if (y < g->h && from < until)
            memcpy(to + from * g->c, image + (y * g->w + at.x + from - g->left) * g->c,
                   (until - from) * g->c * sizeof *to);
    }
}

/* Floats before the third row that a tile sees, or all that are there: about what is seen before
 * it. */
static size_t seen_before(const tiling *g, size_t images, size_t tile)
{
    const size_t i = tile / g->over, all = images * g->h;
    const size_t y = i / g->down * g->h + 2 * (i % g->down) + 2;
    return (y < all ? y : all) * g->w * g->c;
}

/* Asks for part i of 16 of x[from … to - 1], if there is any: products leave memory idle, and
 * transforms wait for it. */
LSI_VEC void ask(const float *x, size_t from, size_t to, size_t i, const int write)
{
    if (from >= to)
        return;
    const size_t part = (to - from + PLACES * 16 - 1) / (PLACES * 16) * 16;
    const size_t begin = from + i * part, end = begin + part < to ? begin + part : to;
    for (size_t at = begin; at < end; at += 16)
        if (write)
            __builtin_prefetch(x + at, 1);
        else
            __builtin_prefetch(x + at, 0, 2);
}

/* Row r of Bᵀ times four values: d0 - d2, d1 + d2, d2 - d1, d3 - d1. r is a constant. */
LSI_VEC v16 combine(const int r, v16 d0, v16 d1, v16 d2, v16 d3)
{
    return r == 0   ? v16_sub(d0, d2)
           : r == 1 ? v16_add(d1, d2)
           : r == 2 ? v16_sub(d2, d1)
                    : v16_sub(d3, d1);
}

/* Bᵀ d B of one tile: v (16 places, c), places `apart`. */
static void see_tile(const float *const *row, size_t c, float *v, size_t apart)
{
    for (size_t i = 0; i < c; i += 16)
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            v16 t[4];
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++) {
                const size_t at = (size_t)s * c + i;
                t[s] = combine(r, v16_load(row[0] + at), v16_load(row[1] + at),
                               v16_load(row[2] + at), v16_load(row[3] + at));
            }
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++)
                v16_store(v + (size_t)(4 * r + s) * apart + i, combine(s, t[0], t[1], t[2], t[3]));
        }
}

/* Row r of Aᵀ times four values: m0 + m1 + m2, m1 - m2 + m3. */
LSI_VEC v16 gather(const int r, v16 m0, v16 m1, v16 m2, v16 m3)
{
    return r == 0 ? v16_add(v16_add(m0, m1), m2) : v16_add(v16_sub(m1, m2), m3);
}

/* Aᵀ m A of one tile, where it lies in y; bias (o) or NULL; m (16 places, o). */
static void give_tile(const tiling *g, tile_place at, const float *m, size_t apart,
                      const float *bias, int add, float *y)
{
    float *corner = y + ((at.image * g->h + at.y) * g->w + at.x) * g->c;
    for (size_t i = 0; i < g->c; i += 16)
#pragma GCC unroll 2
        for (int r = 0; r < 2; r++) {
            if (at.y + (size_t)r >= g->h)
                continue;
            v16 t[4];
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++) {
                const float *from = m + (size_t)s * apart + i;
                t[s] = gather(r, v16_load(from), v16_load(from + 4 * apart),
                              v16_load(from + 8 * apart), v16_load(from + 12 * apart));
            }
#pragma GCC unroll 2
            for (int s = 0; s < 2; s++) {
                if (at.x + (size_t)s >= g->w)
                    continue;
                float *to = corner + ((size_t)r * g->w + (size_t)s) * g->c + i;
                v16 sum = gather(s, t[0], t[1], t[2], t[3]);
                if (bias)
                    sum = v16_add(sum, v16_load(bias + i));
                if (add)
                    sum = v16_add(v16_load(to), sum);
                v16_store(to, sum);
            }
        }
}

/* Row r of G times three values. */
LSI_VEC v16 halve(const int r, v16 g0, v16 g1, v16 g2)
{
    const v16 half = v16_set1(0.5f), ends = v16_mul(half, v16_add(g0, g2)),
              middle = v16_mul(half, g1);
    return r == 0 ? g0 : r == 1 ? v16_add(ends, middle) : r == 2 ? v16_sub(ends, middle) : g2;
}

/* G g Gᵀ, element by element of n: 9 taps to 16 places. */
static void see_weights(size_t n, const float *taps, float *u)
{
    for (size_t i = 0; i < n; i += 16)
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            v16 t[3];
#pragma GCC unroll 3
            for (int s = 0; s < 3; s++) {
                const float *from = taps + (size_t)s * n + i;
                t[s] = halve(r, v16_load(from), v16_load(from + 3 * n), v16_load(from + 6 * n));
            }
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++)
                v16_store(u + (size_t)(4 * r + s) * n + i, halve(s, t[0], t[1], t[2]));
        }
}

/* Row r of Gᵀ times four values. */
LSI_VEC v16 unhalve(const int r, v16 m0, v16 m1, v16 m2, v16 m3)
{
    const v16 half = v16_set1(0.5f);
    return r == 1 ? v16_mul(half, v16_sub(m1, m2))
                  : v16_add(r == 0 ? m0 : m3, v16_mul(half, v16_add(m1, m2)));
}

/* Gᵀ m G, element by element of n, places `apart`: dw (3, 3, n) (+)=. */
static void give_weights(size_t n, const float *m, size_t apart, int add, float *dw)
{
    for (size_t i = 0; i < n; i += 16)
#pragma GCC unroll 3
        for (int r = 0; r < 3; r++) {
            v16 t[4];
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++) {
                const float *from = m + (size_t)s * apart + i;
                t[s] = unhalve(r, v16_load(from), v16_load(from + 4 * apart),
                               v16_load(from + 8 * apart), v16_load(from + 12 * apart));
            }
#pragma GCC unroll 3
            for (int s = 0; s < 3; s++) {
                float *to = dw + (size_t)(3 * r + s) * n + i;
                const v16 sum = unhalve(s, t[0], t[1], t[2], t[3]);
                v16_store(to, add ? v16_add(v16_load(to), sum) : sum);
            }
        }
}

/* Row r of A times two values: y0, y0 + y1, y0 - y1, y1. */
LSI_VEC v16 spread(const int r, v16 y0, v16 y1)
{
    return r == 0 ? y0 : r == 1 ? v16_add(y0, y1) : r == 2 ? v16_sub(y0, y1) : y1;
}

/* A dy Aᵀ of tile t of a block: z (16 places; panels of BLOCK rows of o, as tile_pack has them). */
static void see_gradient(const float *const *row, size_t o, size_t t, float *z, size_t apart)
{
    for (size_t i = 0; i < o; i += 16) {
        const size_t first = i / TILE_COLS * TILE_COLS, width = tile_width(o - first);
        float *to = z + first * BLOCK + t * width + i - first;
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            const v16 left = spread(r, v16_load(row[0] + i), v16_load(row[1] + i));
            const v16 right = spread(r, v16_load(row[0] + o + i), v16_load(row[1] + o + i));
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++)
                v16_store(to + (size_t)(4 * r + s) * apart, spread(s, left, right));
        }
    }
}

/* Rows of C in strips. t has all but rows, and the places in A and C of the first row. */
static void multiply_rows(lsi_tile *t, size_t rows, const float *a, float *c, int add)
{
    const size_t strip = tile_strip(rows);
    t->a_next = strip * t->a_row;
    t->c_next = strip * t->ldc;
    t->more = rows % strip == 0 ? rows / strip - 1 : 0;
    for (size_t i = 0; i < rows; i += t->rows * (1 + t->more)) {
        t->rows = tile_height(rows - i, strip);
        t->a = a + i * t->a_row;
        t->c = c + i * t->ldc;
        t->start = add ? t->c : NULL;
        LSI_K(tile)(t);
    }
}

/* C (rows, t->ldc) = A B or, with add, C + A B. t has k and A's strides; B is in panels of b_rows
 * rows, of which the first k are used. */
static void multiply(lsi_tile *t, size_t rows, const float *a, const float *b, size_t b_rows,
                     float *c, int add)
{
    for (size_t j = 0; j < t->ldc; j += TILE_COLS) {
        t->width = t->cols = t->b_row = tile_width(t->ldc - j);
        t->b = b + j * b_rows;
        multiply_rows(t, rows, a, c + j, add);
    }
}

/* A convolution, forward or back. */
typedef struct filter {
    tiling in, out;
    size_t images;
    const float *weight;
    int back; /* dx: the window turned about, the weight's (c, o) being (out.c, in.c) */
    const float *bias;
    int add;
} filter;

/* G g Gᵀ in panels for products (c, o): taps are packed one by one first, into `room`. */
static void take_weights(const filter *f, float *room, float *u)
{
    const size_t c = f->in.c, o = f->out.c, each = c * o;
    for (size_t t = 0; t < TAPS; t++)
        if (f->back)
            LSI_K(tile_pack)(f->weight + (TAPS - 1 - t) * each, 1, c, c, o, room + t * each);
        else
            LSI_K(tile_pack)(f->weight + t * each, o, 1, c, o, room + t * each);
    see_weights(each, room, u);
}

static ls_status run_filter(lsi_device *device, const filter *f, const float *x, float *y)
{
    const size_t c = f->in.c, o = f->out.c, tiles = f->images * f->in.down * f->in.over;
    const size_t v_apart = BLOCK * c + APART, m_apart = BLOCK * o + APART;
    void *scratch;
    LSI_TRY(lsi_device_scratch(device,
                               ((TAPS + PLACES) * c * o + PLACES * (v_apart + m_apart) + 16 * c) *
                                   sizeof(float),
                               &scratch));
    float *taps = scratch, *u = taps + TAPS * c * o, *v = u + PLACES * c * o;
    float *m = v + PLACES * v_apart, *room = m + PLACES * m_apart;
    lsi_tile product = {.k = c, .segments = 1, .a_row = c, .a_col = 1, .ldc = o, .ld_start = o};
    tile_place seen = {0}, given = {0};
    take_weights(f, taps, u);
    for (size_t first = 0, rows; first < tiles; first += rows) {
        rows = tiles - first < BLOCK ? tiles - first : BLOCK;
        for (size_t t = 0; t < rows; t++, move_on(&f->in, &seen)) {
            const float *row[4];
            tile_rows(&f->in, x, seen, 4, room, row);
            see_tile(row, c, v + t * c, v_apart);
        }
        const size_t next = seen_before(&f->in, f->images, first + rows);
        const size_t after = seen_before(&f->in, f->images, first + rows + BLOCK);
        const size_t out = seen_before(&f->out, f->images, first);
        const size_t out_end = seen_before(&f->out, f->images, first + rows);
        for (size_t p = 0; p < PLACES; p++) {
            ask(x, next, after, p, 0);
            ask(y, out, out_end, p, 1);
            multiply(&product, rows, v + p * v_apart, u + p * c * o, c, m + p * m_apart, 0);
        }
        for (size_t t = 0; t < rows; t++, move_on(&f->out, &given))
            give_tile(&f->out, given, m + t * o, m_apart, f->bias, f->add, y);
    }
    return LS_OK;
}

static tiling tiling_of(size_t h, size_t w, size_t c, size_t top, size_t left, size_t out_h,
                        size_t out_w)
{
    return (tiling){h, w, c, top, left, (out_h + 1) / 2, (out_w + 1) / 2};
}

ls_status LSI_K(winograd)(lsi_device *device, const lsi_conv *p, const float *x,
                          const float *weight, const float *bias, float *y)
{
    const filter f = {.in = tiling_of(p->h, p->w, p->c, p->pad_h, p->pad_w, p->oh, p->ow),
                      .out = tiling_of(p->oh, p->ow, p->o, 0, 0, p->oh, p->ow),
                      .images = p->n,
                      .weight = weight,
                      .bias = bias};
    return run_filter(device, &f, x, y);
}

ls_status LSI_K(winograd_dx)(lsi_device *device, const lsi_conv *p, const float *dy,
                             const float *weight, float *dx, int add)
{
    const filter f = {.in = tiling_of(p->oh, p->ow, p->o, 2 - p->pad_h, 2 - p->pad_w, p->h, p->w),
                      .out = tiling_of(p->h, p->w, p->c, 0, 0, p->h, p->w),
                      .images = p->n,
                      .weight = weight,
                      .back = 1,
                      .add = add};
    return run_filter(device, &f, dy, dx);
}

ls_status LSI_K(winograd_dw)(lsi_device *device, const lsi_conv *p, const float *x, const float *dy,
                             float *dw, int add)
{
    const tiling in = tiling_of(p->h, p->w, p->c, p->pad_h, p->pad_w, p->oh, p->ow);
    const tiling out = tiling_of(p->oh, p->ow, p->o, 0, 0, p->oh, p->ow);
    const size_t c = p->c, o = p->o, tiles = p->n * in.down * in.over;
    const size_t v_apart = BLOCK * c + APART, z_apart = BLOCK * o + APART, m_apart = c * o + APART;
    void *scratch;
    LSI_TRY(lsi_device_scratch(device,
                               (PLACES * (v_apart + z_apart + m_apart) + 16 * c + 4 * o) *
                                   sizeof(float),
                               &scratch));
    float *v = scratch, *z = v + PLACES * v_apart, *m = z + PLACES * z_apart;
    float *room_x = m + PLACES * m_apart, *room_y = room_x + 16 * c;
    lsi_tile product = {.segments = 1, .a_row = 1, .a_col = c, .ldc = o, .ld_start = o};
    tile_place at = {0};
    memset(m, 0, PLACES * m_apart * sizeof *m);
    for (size_t first = 0, k; first < tiles; first += k) {
        product.k = k = tiles - first < BLOCK ? tiles - first : BLOCK;
        for (size_t t = 0; t < k; t++, move_on(&in, &at)) {
            const float *row[4];
            tile_rows(&in, x, at, 4, room_x, row);
            see_tile(row, c, v + t * c, v_apart);
            tile_rows(&out, dy, at, 2, room_y, row);
            see_gradient(row, o, t, z, z_apart);
        }
        const size_t next = seen_before(&in, p->n, first + k);
        const size_t after = seen_before(&in, p->n, first + k + BLOCK);
        const size_t next_y = seen_before(&out, p->n, first + k);
        const size_t after_y = seen_before(&out, p->n, first + k + BLOCK);
        for (size_t q = 0; q < PLACES; q++) {
            ask(x, next, after, q, 0);
            ask(dy, next_y, after_y, q, 0);
            multiply(&product, c, v + q * v_apart, z + q * z_apart, BLOCK, m + q * m_apart, 1);
        }
    }
    give_weights(c * o, m, m_apart, add, dw);
    return LS_OK;
}

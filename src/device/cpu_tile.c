/* The tile in registers (cpu_tile.h), once for each number of rows, and packing for it. */
#include "device/cpu_tile.h"
#include "device/vec_transpose.h"
#if defined(LSI_VEC_AVX2)
#include "device/cpu_tile_avx2.h"
#endif

/* B comes from the second cache: it is asked for this many rows early. */
#if defined(LSI_VEC_AVX2)
#define AHEAD LSI_TILE_AHEAD
#else
#define AHEAD 12
#endif
#define AHEAD_KEEPS 28
#define LANES_OF_A_LINE (64 / (LANES * (int)sizeof(float)))

/* Steps of k that are written out one after the other. The loop's test, and where strides are
 * constants the pointers, are then a small part of what the processor takes in, which is the limit
 * while another thread shares the core: a tenth faster there (Zen 4), the same where the core is
 * ours. Those of a whole tile of packed panels are in cpu_tile_avx2.h. */
#if defined(LSI_VEC_AVX2)
#define WRITTEN_OUT 4
#else
#define WRITTEN_OUT 1
#endif

/* Rows of A are found from a few pointers, NEAR rows apart. The compiler shall not know how they
 * were made: it would make all of the first one, with a register a row where none is left. */
#define NEAR 3
#define POINTERS ((TILE_ROWS + NEAR - 1) / NEAR)
#define FORGET(pointer) __asm__("" : "+r"(pointer))

/* What a loop is made for. All are constants where it is used, but for some of the strides. */
typedef struct form {
    int rows, vectors;
    int keeps;  /* copies what is read, if asked to */
    int near;   /* rows of A that one pointer serves */
    int packed; /* a_col and b_row are constants */
    size_t a_row, a_col, b_row;
} form;

typedef lane accumulators[TILE_ROWS][TILE_VECTORS];

/* Copies of what is read, or NULL. */
typedef struct copies {
    float *a, *b;
} copies;

/* The step of k that is `ahead` steps beyond these pointers. */
LSI_VEC void step(const form f, const float *const *a, const float *b, size_t ahead, copies *keep,
                  accumulators acc)
{
    lane bv[TILE_VECTORS];
    b += ahead * f.b_row;
#pragma GCC unroll 4
    for (int v = 0; v < f.vectors; v++)
        LANE_TAKE(bv[v], b + v * LANES);
#pragma GCC unroll 4
    for (int v = 0; v < f.vectors; v += LANES_OF_A_LINE)
        __builtin_prefetch(b + (f.keeps ? AHEAD_KEEPS : AHEAD) * f.b_row + v * LANES);
    if (f.keeps && keep->a) {
        __builtin_prefetch(a[0] + AHEAD_KEEPS * f.a_col);
        __builtin_prefetch(a[0] + AHEAD_KEEPS * f.a_col + f.rows - 1);
        memcpy(keep->a, a[0], (size_t)f.rows * sizeof *keep->a);
        keep->a += TILE_ROWS;
    }
    if (f.keeps && keep->b) {
#pragma GCC unroll 4
        for (int v = 0; v < f.vectors; v++)
            LANE_STORE(keep->b + v * LANES, bv[v]);
        keep->b += f.vectors * LANES;
    }
#pragma GCC unroll 16
    for (int i = 0; i < f.rows; i++) {
        const lane_all av =
            LANE_ALL(a[i / f.near] + (size_t)(i % f.near) * f.a_row + ahead * f.a_col);
#pragma GCC unroll 4
        for (int v = 0; v < f.vectors; v++)
            LANE_FMA_TO(acc[i][v], av, bv[v]);
    }
}

LSI_VEC void advance(const form f, size_t steps, const float **a, const float **b)
{
#pragma GCC unroll 16
    for (int i = 0; i * f.near < f.rows; i++) {
        a[i] += steps * f.a_col;
        FORGET(a[i]);
    }
    *b += steps * f.b_row; /* one pointer each, not one a step */
    FORGET(*b);
}

/* What is done to a finished tile while it is in registers. */
LSI_VEC void finish(const form f, const float *bias, float least, accumulators acc)
{
    const lane bound = LANE_OF(least);
#pragma GCC unroll 4
    for (int v = 0; v < f.vectors; v++) {
        const lane plus = LANE_LOAD(bias + v * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < f.rows; i++)
            acc[i][v] = LANE_MAX(bound, LANE_ADD(acc[i][v], plus));
    }
}

/* The next WRITTEN_OUT steps of k; the pointers move on. */
LSI_VEC void steps_written_out(const form f, const float **a, const float **b, copies *keep,
                               accumulators acc)
{
#pragma GCC unroll 4
    for (size_t u = 0; u < WRITTEN_OUT; u++) {
        step(f, a, *b, f.packed ? u : 0, keep, acc);
        if (!f.packed)
            advance(f, 1, a, b);
    }
    if (f.packed)
        advance(f, WRITTEN_OUT, a, b);
}

/* As many of k steps as there is assembler for: for none but whole tiles of packed panels. Returns
 * how many are left. */
LSI_VEC size_t steps_in_assembler(const form f, size_t k, const float **a, const float **b,
                                  accumulators acc)
{
#if defined(LSI_VEC_AVX2)
    if (f.packed && f.rows == TILE_ROWS && f.vectors == TILE_VECTORS)
        for (; k >= 8; k -= 8) {
            if (f.near == NEAR)
                eight_by_row(a[0], a[1], f.a_row, *b, acc);
            else
                eight_packed(a[0], *b, acc);
            advance(f, 8, a, b);
        }
#else
    (void)f, (void)a, (void)b, (void)acc;
#endif
    return k;
}

LSI_VEC void multiply_one(const form f, const lsi_tile *t, const float *from, const float *b,
                          const float *start, size_t ld_start, const float *bias, float *c,
                          size_t ldc)
{
    accumulators acc;
#pragma GCC unroll 16
    for (int i = 0; i < f.rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < f.vectors; v++)
            acc[i][v] = start ? LANE_LOAD(start + (size_t)i * ld_start + v * LANES) : LANE_ZERO();
    copies keep = {t->keep_a, t->keep_b};
    for (size_t s = 0; s < t->segments; s++) {
        const float *a[POINTERS];
        a[0] = t->place ? from + t->place[s] : from;
#pragma GCC unroll 16
        for (int i = 1; i * f.near < f.rows; i++) {
            a[i] = a[i - 1] + (size_t)f.near * f.a_row;
            FORGET(a[i]);
        }
        size_t left = steps_in_assembler(f, t->k, a, &b, acc);
        for (; WRITTEN_OUT > 1 && left >= WRITTEN_OUT; left -= WRITTEN_OUT)
            steps_written_out(f, a, &b, &keep, acc);
        for (; left > 0; left--) {
            step(f, a, b, 0, &keep, acc);
            advance(f, 1, a, &b);
        }
    }
    if (bias)
        finish(f, bias, t->least, acc);
#pragma GCC unroll 16
    for (int i = 0; i < f.rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < f.vectors; v++)
            LANE_STORE(c + (size_t)i * ldc + v * LANES, acc[i][v]);
}

/* Asks for a tile of C, to be written. */
LSI_VEC void ask_for_c(const form f, const float *c, size_t ldc)
{
    FORGET(c); /* or its rows would keep registers */
#pragma GCC unroll 16
    for (int i = 0; i < f.rows; i++)
        __builtin_prefetch(c + (size_t)i * ldc, 1);
}

/* Tile after tile: what has to be set up for one serves them all, and each has the time to fetch
 * the next one's C. */
LSI_VEC void multiply(const form f, const lsi_tile *t, const float *start, size_t ld_start,
                      const float *bias, float *c, size_t ldc)
{
    const float *a = t->a, *b = t->b;
    if (!start)
        ask_for_c(f, c, ldc);
    for (size_t left = f.keeps ? 0 : t->more;; left--) {
        if (left > 0)
            ask_for_c(f, c + t->c_next, ldc);
        multiply_one(f, t, a, b, start, ld_start, bias, c, ldc);
        if (left == 0)
            return;
        a += t->a_next;
        b += t->b_next;
        c += t->c_next;
        start = start ? start + t->c_next : NULL;
        bias = bias ? bias + t->c_next : NULL;
    }
}

/* keeps is a constant where this is used. */
LSI_VEC void multiply_rows(const int keeps, const lsi_tile *t, const float *start, size_t ld_start,
                           const float *bias, float *c, size_t ldc)
{
    /* A by rows, packed, or by columns; B packed, or as it comes. */
#define FORM(r, v, near, packed, a_row, a_col, b_row)                                              \
    multiply((form){r, v, keeps, near, packed, a_row, a_col, b_row}, t, start, ld_start, bias, c,  \
             ldc)
#define ONE(r, v)                                                                                  \
    do {                                                                                           \
        const int packed = !keeps && t->b_row == (v)*LANES;                                        \
        if (packed && t->a_col == 1)                                                               \
            FORM(r, v, NEAR, 1, t->a_row, 1, (v)*LANES);                                           \
        else if (packed && t->a_col == TILE_ROWS)                                                  \
            FORM(r, v, TILE_ROWS, 1, 1, TILE_ROWS, (v)*LANES);                                     \
        else if (t->a_col == 1)                                                                    \
            FORM(r, v, NEAR, 0, t->a_row, 1, t->b_row);                                            \
        else                                                                                       \
            FORM(r, v, TILE_ROWS, 0, 1, t->a_col, t->b_row);                                       \
    } while (0)
#define CASE(r)                                                                                    \
    case r:                                                                                        \
        if (TILE_VECTORS > 1 && !keeps && t->width == LANES)                                       \
            ONE(r, 1);                                                                             \
        else                                                                                       \
            ONE(r, TILE_VECTORS);                                                                  \
        break
    switch (t->rows) {
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
#if TILE_ROWS > 4
        CASE(5);
        CASE(6);
#endif
#if TILE_ROWS > 6
        CASE(7);
        CASE(8);
        CASE(9);
        CASE(10);
        CASE(11);
        CASE(12);
        CASE(13);
        CASE(14);
#endif
    default: break;
    }
#undef CASE
#undef ONE
#undef FORM
}

/* Two functions: the loops of the first have all registers for themselves. */
static __attribute__((noinline)) void multiply_only(const lsi_tile *t, const float *start,
                                                    size_t ld_start, const float *bias, float *c,
                                                    size_t ldc)
{
    multiply_rows(0, t, start, ld_start, bias, c, ldc);
}

static __attribute__((noinline)) void multiply_and_keep(const lsi_tile *t)
{
    multiply_rows(1, t, t->start, t->ld_start, t->bias, t->c, t->ldc);
}

void LSI_K(tile)(const lsi_tile *t)
{
    if (t->keep_a || t->keep_b) {
        multiply_and_keep(t);
        return;
    }
    if (t->cols == t->width) {
        multiply_only(t, t->start, t->ld_start, t->bias, t->c, t->ldc);
        return;
    }
    /* At the right edge: C has fewer columns than a vector. */
    float edge[TILE_ROWS * TILE_COLS] = {0}, bias[TILE_COLS] = {0};
    if (t->bias)
        memcpy(bias, t->bias, t->cols * sizeof *bias);
    for (size_t r = 0; t->start && r < t->rows; r++)
        memcpy(edge + r * TILE_COLS, t->start + r * t->ld_start, t->cols * sizeof *edge);
    multiply_only(t, edge, TILE_COLS, t->bias ? bias : NULL, edge, TILE_COLS);
    for (size_t r = 0; r < t->rows; r++)
        memcpy(t->c + r * t->ldc, edge + r * TILE_COLS, t->cols * sizeof *edge);
}

/* A block of at most 16 rows and columns: to[c * to_row + r] = from[r * from_row + c]. */
static void transpose_edge(size_t rows, size_t cols, const float *from, size_t from_row, float *to,
                           size_t to_row)
{
    v16 block[16];
    rows = rows < 16 ? rows : 16;
    cols = cols < 16 ? cols : 16;
    for (size_t i = 0; i < 16; i++)
        block[i] = i < rows ? v16_get(from + i * from_row, cols) : v16_zero();
    v16_transpose(block);
    for (size_t i = 0; i < cols; i++)
        v16_put(to + i * to_row, block[i], rows);
}

/* Asks for the block that is turned two blocks later: in these rows, or in those after them. */
static void ask_for_block(const float *at, size_t from_row, size_t left)
{
    at += left > 32 ? 32 : 16 * from_row + 32 - left;
    for (size_t i = 0; i < 16; i++)
        __builtin_prefetch(at + i * from_row);
}

static void transpose(const float *from, size_t from_row, size_t rows, size_t cols, float *to,
                      size_t to_row)
{
    for (size_t r = 0; r < rows; r += 16)
        for (size_t c = 0; c < cols; c += 16) {
            const float *at = from + r * from_row + c;
            ask_for_block(at, from_row, cols - c);
            if (rows - r >= 16 && cols - c >= 16)
                v16_transpose_to(at, from_row, to + c * to_row + r, to_row);
            else
                transpose_edge(rows - r, cols - c, at, from_row, to + c * to_row + r, to_row);
        }
}

/* A row of a panel: `cols` floats, and zeros. */
static void pack_row(const float *from, size_t cols, float *to, size_t width)
{
    for (size_t j = 0; j < width; j += 16) {
        const size_t left = cols > j ? cols - j : 0, room = width - j;
        v16_store_n(to + j, v16_load_n(from + j, left < 16 ? left : 16), room < 16 ? room : 16);
    }
}

void LSI_K(tile_pack)(const float *b, size_t b_row, size_t b_col, size_t k, size_t n, float *to)
{
    for (size_t j = 0; j < n;) {
        const size_t width = tile_width(n - j), cols = n - j < width ? n - j : width;
        float *panel = to + j * k;
        const float *from = b + j * b_col;
        if (b_col != 1 && cols < width)
            memset(panel, 0, k * width * sizeof *panel);
        if (b_col != 1)
            transpose(from, b_col, cols, k, panel, width);
        else if (cols == TILE_COLS)
            for (size_t p = 0; p < k; p++)
                memcpy(panel + p * TILE_COLS, from + p * b_row, TILE_COLS * sizeof *panel);
        else
            for (size_t p = 0; p < k; p++)
                pack_row(from + p * b_row, cols, panel + p * width, width);
        j += width;
    }
}

/* The tile in registers (cpu_tile.h), once for each number of rows, and packing for it. */
#include "device/cpu_tile.h"
#include "device/vec_transpose.h"

/* B comes from the second cache: it is asked for this many rows early. */
#define AHEAD 12
#define LANES_OF_A_LINE (64 / (LANES * (int)sizeof(float)))

/* Rows of A are found from a few pointers, NEAR rows apart. The compiler shall not know how they
 * were made: it would make all of the first one, with a register a row where none is left. */
#define NEAR 3
#define FORGET(pointer) __asm__("" : "+r"(pointer))

/* rows, vectors and keeps are constants where this is used, and so is one of the strides of A. */
LSI_VEC void multiply_one(const int rows, const int vectors, const int keeps, const lsi_tile *t,
                          const float *from, const float *b, size_t a_row, size_t a_col,
                          const float *start, size_t ld_start, float *c, size_t ldc)
{
    lane acc[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[i][v] = start ? LANE_LOAD(start + (size_t)i * ld_start + v * LANES) : LANE_ZERO();
    float *keep_a = t->keep_a, *keep_b = t->keep_b;
    for (size_t s = 0; s < t->segments; s++) {
        const float *a[(TILE_ROWS + NEAR - 1) / NEAR];
        a[0] = t->place ? from + t->place[s] : from;
#pragma GCC unroll 16
        for (int i = 1; i * NEAR < rows; i++) {
            a[i] = a[i - 1] + NEAR * a_row;
            FORGET(a[i]);
        }
        for (size_t p = 0; p < t->k; p++) {
            lane bv[TILE_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                bv[v] = LANE_LOAD(b + v * LANES);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v += LANES_OF_A_LINE)
                __builtin_prefetch(b + AHEAD * t->b_row + v * LANES);
            if (keeps && keep_a) {
                const float *row = a[0] + p * a_col;
                __builtin_prefetch(row + AHEAD * a_col);
                __builtin_prefetch(row + AHEAD * a_col + rows - 1);
                memcpy(keep_a, row, (size_t)rows * sizeof *keep_a);
                keep_a += TILE_ROWS;
            }
            if (keeps && keep_b) {
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    LANE_STORE(keep_b + v * LANES, bv[v]);
                keep_b += vectors * LANES;
            }
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                lane av = LANE_ALL(a[i / NEAR] + (size_t)(i % NEAR) * a_row + p * a_col);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    acc[i][v] = LANE_FMA(av, bv[v], acc[i][v]);
            }
            b += t->b_row;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            LANE_STORE(c + (size_t)i * ldc + v * LANES, acc[i][v]);
}

/* Tile after tile: what has to be set up for one serves them all. */
LSI_VEC void multiply(const int rows, const int vectors, const int keeps, const lsi_tile *t,
                      size_t a_row, size_t a_col, const float *start, size_t ld_start, float *c,
                      size_t ldc)
{
    const float *a = t->a, *b = t->b;
    for (size_t left = keeps ? 0 : t->more;; left--) {
        multiply_one(rows, vectors, keeps, t, a, b, a_row, a_col, start, ld_start, c, ldc);
        if (left == 0)
            return;
        a += t->a_next;
        b += t->b_next;
        c += t->c_next;
        start = start ? start + t->c_next : NULL;
    }
}

/* keeps is a constant where this is used. */
LSI_VEC void multiply_rows(const int keeps, const lsi_tile *t, const float *start, size_t ld_start,
                           float *c, size_t ldc)
{
#define ONE(r, vectors)                                                                            \
    do {                                                                                           \
        if (t->a_col == 1)                                                                         \
            multiply(r, vectors, keeps, t, t->a_row, 1, start, ld_start, c, ldc);                  \
        else                                                                                       \
            multiply(r, vectors, keeps, t, 1, t->a_col, start, ld_start, c, ldc);                  \
    } while (0)
#define CASE(r)                                                                                    \
    case r:                                                                                        \
        if (!keeps && t->width == LANES)                                                           \
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
}

/* Two functions: the loops of the first have all registers for themselves. */
static __attribute__((noinline)) void multiply_only(const lsi_tile *t, const float *start,
                                                    size_t ld_start, float *c, size_t ldc)
{
    multiply_rows(0, t, start, ld_start, c, ldc);
}

static __attribute__((noinline)) void multiply_and_keep(const lsi_tile *t)
{
    multiply_rows(1, t, t->start, t->ld_start, t->c, t->ldc);
}

void LSI_K(tile)(const lsi_tile *t)
{
    if (t->keep_a || t->keep_b) {
        multiply_and_keep(t);
        return;
    }
    if (t->cols == t->width) {
        multiply_only(t, t->start, t->ld_start, t->c, t->ldc);
        return;
    }
    float edge[TILE_ROWS * TILE_COLS] = {
        0}; /* at the right edge: C has fewer columns than a vector */
    for (size_t r = 0; t->start && r < t->rows; r++)
        memcpy(edge + r * TILE_COLS, t->start + r * t->ld_start, t->cols * sizeof *edge);
    multiply_only(t, edge, TILE_COLS, edge, TILE_COLS);
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

static void transpose(const float *from, size_t from_row, size_t rows, size_t cols, float *to,
                      size_t to_row)
{
    for (size_t r = 0; r < rows; r += 16)
        for (size_t c = 0; c < cols; c += 16) {
            const float *at = from + r * from_row + c;
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

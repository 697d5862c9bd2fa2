/* The tile in registers (cpu_tile.h), once for each number of rows, and packing for it. */
#include "device/cpu_tile.h"
#include "device/vec_transpose.h"

#if defined(LSI_VEC_AVX512)
typedef __m512 lane;
#define LANE_ZERO() _mm512_setzero_ps()
#define LANE_LOAD(p) _mm512_loadu_ps(p)
#define LANE_STORE(p, v) _mm512_storeu_ps(p, v)
#define LANE_ALL(p) _mm512_set1_ps(*(p))
#define LANE_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#elif defined(LSI_VEC_AVX2)
typedef __m256 lane;
#define LANE_ZERO() _mm256_setzero_ps()
#define LANE_LOAD(p) _mm256_loadu_ps(p)
#define LANE_STORE(p, v) _mm256_storeu_ps(p, v)
#define LANE_ALL(p) _mm256_broadcast_ss(p)
#define LANE_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#else
typedef v16 lane;
#define LANE_ZERO() v16_zero()
#define LANE_LOAD(p) v16_load(p)
#define LANE_STORE(p, v) v16_store(p, v)
#define LANE_ALL(p) v16_set1(*(p))
#define LANE_FMA(a, b, c) v16_fma(a, b, c)
#endif

/* B comes from the second cache: it is asked for this many rows early. */
#define AHEAD 16
#define LANES_OF_A_LINE (64 / (LANES * (int)sizeof(float)))

/* rows, vectors and keeps are constants where this is used, and so is one of the strides of A. */
LSI_VEC void multiply(const int rows, const int vectors, const int keeps, const lsi_tile *t,
                      size_t a_row, size_t a_col, const float *start, size_t ld_start, float *c,
                      size_t ldc)
{
    lane acc[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[i][v] = start ? LANE_LOAD(start + (size_t)i * ld_start + v * LANES) : LANE_ZERO();
    const float *b = t->b;
    float *keep = t->keep;
    for (size_t s = 0; s < t->segments; s++) {
        const float *a = t->place ? t->a + t->place[s] : t->a;
        for (size_t p = 0; p < t->k; p++) {
            lane bv[TILE_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                bv[v] = LANE_LOAD(b + v * LANES);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v += LANES_OF_A_LINE)
                __builtin_prefetch(b + AHEAD * t->b_row + v * LANES);
            if (keeps) {
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    LANE_STORE(keep + v * LANES, bv[v]);
                keep += vectors * LANES;
            }
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                lane av = LANE_ALL(a + (size_t)i * a_row);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    acc[i][v] = LANE_FMA(av, bv[v], acc[i][v]);
            }
            a += a_col;
            b += t->b_row;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            LANE_STORE(c + (size_t)i * ldc + v * LANES, acc[i][v]);
}

static void multiply_any(const lsi_tile *t, const float *start, size_t ld_start, float *c,
                         size_t ldc)
{
#define ONE(r, vectors, keeps)                                                                     \
    do {                                                                                           \
        if (t->a_col == 1)                                                                         \
            multiply(r, vectors, keeps, t, t->a_row, 1, start, ld_start, c, ldc);                  \
        else                                                                                       \
            multiply(r, vectors, keeps, t, 1, t->a_col, start, ld_start, c, ldc);                  \
    } while (0)
#define CASE(r)                                                                                    \
    case r:                                                                                        \
        if (r == TILE_ROWS && t->keep)                                                             \
            ONE(TILE_ROWS, TILE_VECTORS, 1);                                                       \
        else if (t->width == LANES)                                                                \
            ONE(r, 1, 0);                                                                          \
        else                                                                                       \
            ONE(r, TILE_VECTORS, 0);                                                               \
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

void LSI_K(tile)(const lsi_tile *t)
{
    if (t->cols == t->width) {
        multiply_any(t, t->start, t->ld_start, t->c, t->ldc);
        return;
    }
    float edge[TILE_ROWS * TILE_COLS] = {
        0}; /* at the right edge: C has fewer columns than a vector */
    for (size_t r = 0; t->start && r < t->rows; r++)
        memcpy(edge + r * TILE_COLS, t->start + r * t->ld_start, t->cols * sizeof *edge);
    multiply_any(t, edge, TILE_COLS, edge, TILE_COLS);
    for (size_t r = 0; r < t->rows; r++)
        memcpy(t->c + r * t->ldc, edge + r * TILE_COLS, t->cols * sizeof *edge);
}

/* to[c * to_row + r] = from[r * from_row + c] for r < rows, c < cols. */
static void transpose(const float *from, size_t from_row, size_t rows, size_t cols, float *to,
                      size_t to_row)
{
    const size_t whole_rows = rows / 16 * 16, whole_cols = cols / 16 * 16;
    for (size_t r = 0; r < whole_rows; r += 16)
        for (size_t c = 0; c < whole_cols; c += 16) {
            v16 block[16];
            for (size_t i = 0; i < 16; i++)
                block[i] = v16_load(from + (r + i) * from_row + c);
            v16_transpose(block);
            for (size_t i = 0; i < 16; i++)
                v16_store(to + (c + i) * to_row + r, block[i]);
        }
    for (size_t r = 0; r < rows; r++)
        for (size_t c = r < whole_rows ? whole_cols : 0; c < cols; c++)
            to[c * to_row + r] = from[r * from_row + c];
}

void LSI_K(tile_pack)(const float *b, size_t b_row, size_t b_col, size_t k, size_t n, float *to)
{
    for (size_t j = 0; j < n;) {
        const size_t width = tile_width(n - j), cols = n - j < width ? n - j : width;
        float *panel = to + j * k;
        const float *from = b + j * b_col;
        if (cols < width)
            memset(panel, 0, k * width * sizeof *panel);
        if (b_col != 1)
            transpose(from, b_col, cols, k, panel, width);
        else if (cols == TILE_COLS)
            for (size_t p = 0; p < k; p++)
                memcpy(panel + p * TILE_COLS, from + p * b_row, TILE_COLS * sizeof *panel);
        else
            for (size_t p = 0; p < k; p++)
                memcpy(panel + p * width, from + p * b_row, cols * sizeof *panel);
        j += width;
    }
}

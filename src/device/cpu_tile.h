/* The innermost product: a tile of C of a few rows by a few vectors, held in registers.
 *
 * Linear layers, convolutions and attention are all made of it. Element (i, k) of A is read where
 * it lies, one at a time to all lanes; B is read a row of `width` floats at a time. A's columns may
 * come in segments (the rows of a convolution's window), B's rows run on through them.
 *
 * Per k: TILE_VECTORS loads of B, TILE_ROWS broadcasts, TILE_ROWS * TILE_VECTORS multiply-adds;
 * with two of each a cycle the multiply-adds are the limit.
 */
#ifndef LSI_DEVICE_CPU_TILE_H
#define LSI_DEVICE_CPU_TILE_H

#include "device/cpu_lane.h"

#if defined(LSI_VEC_AVX512)
#define TILE_ROWS 14
#define TILE_VECTORS 2
#elif defined(LSI_VEC_AVX2)
#define TILE_ROWS 6
#define TILE_VECTORS 2
#elif defined(LSI_VEC_NEON)
#define TILE_ROWS 6 /* 24 registers, 4 for B, and some for A */
#define TILE_VECTORS 1
#else
#define TILE_ROWS 4
#define TILE_VECTORS 1
#endif
#define TILE_COLS (TILE_VECTORS * LANES)

typedef struct lsi_tile {
    size_t rows, cols;   /* of C: at most TILE_ROWS, and `width` */
    size_t k;            /* of one segment */
    size_t segments;     /* at least 1 */
    const size_t *place; /* of each segment, floats from a; NULL: one, at a */
    const float *a;
    size_t a_row, a_col; /* one of them is 1 */
    const float *b;
    size_t b_row;
    size_t width; /* LANES or TILE_COLS: floats of a row of B that can be read */
    /* Not NULL: what is read is copied on the way, with TILE_COLS columns and one segment only. */
    float *keep_a;      /* TILE_ROWS floats apart for each k; with a_row 1 only */
    float *keep_b;      /* side by side, TILE_COLS floats for each k */
    const float *start; /* chains start here; NULL: from zero. May be c */
    size_t ld_start;
    float *c;
    size_t ldc;
    const float *bias; /* not NULL: then added to each row, and what is below `least` raised */
    float least;       /* 0: relu; -infinity: nothing */
    /* So many tiles more, of whole width, each with A, B and C (start, bias) moved by so much. */
    size_t more, a_next, b_next, c_next;
} lsi_tile;

/* C = start + A B, each element a chain of fma in ascending k; then the bias. */
void LSI_K(tile)(const lsi_tile *tile);

/* The width of a panel when `left` columns are left. */
LSI_VEC size_t tile_width(size_t left)
{
    return left <= LANES ? LANES : TILE_COLS;
}

/* Whole tiles that follow the first one when `left` columns are left. */
LSI_VEC size_t tile_further(size_t left)
{
    return left >= 2 * TILE_COLS ? left / TILE_COLS - 1 : 0;
}

/* The height of strips of so many rows: all about the same, and at most `most`. */
LSI_VEC size_t even_strip(size_t rows, size_t most)
{
    const size_t strips = (rows + most - 1) / most;
    return strips ? (rows + strips - 1) / strips : 0;
}

LSI_VEC size_t tile_strip(size_t rows)
{
    return even_strip(rows, TILE_ROWS);
}

/* The height of the next strip when `left` rows are left: `rows`, or the last two about the same:
 * in a low one too few chains would wait for themselves. */
LSI_VEC size_t tile_height(size_t left, size_t rows)
{
    return left >= 2 * rows ? rows : left > rows ? (left + 1) / 2 : left;
}

/* Floats that k rows of n columns take when packed. */
LSI_VEC size_t tile_packed(size_t k, size_t n)
{
    return k * ((n + LANES - 1) / LANES * LANES);
}

/* Columns [0, n) of the k rows of B as panels of tile_width columns, one after the other, each k
 * rows: the panel that starts at column j lies at to + j * k. Element (p, j) is b[p * b_row + j *
 * b_col], one stride is 1. Missing columns are zero. */
void LSI_K(tile_pack)(const float *b, size_t b_row, size_t b_col, size_t k, size_t n, float *to);

#endif

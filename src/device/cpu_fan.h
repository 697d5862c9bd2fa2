/* A product whose columns are one register wide: a convolution with few output channels.
 *
 * The tile (cpu_tile.h) would load each element of A for a single multiply-add, and loads would be
 * the limit. But rows of the window overlap: a row of the image is read by several rows of the
 * output, each with its own row of weights. So each element of A, loaded once, meets several
 * vectors of B, and each of these products goes to a place of its own:
 *
 *     C_v (rows, LANES) = start_v + A (rows, k) B_v (k, LANES), v = 0 … vectors - 1
 */
#ifndef LSI_DEVICE_CPU_FAN_H
#define LSI_DEVICE_CPU_FAN_H

#include "device/cpu_lane.h"

#if defined(LSI_VEC_AVX512)
#define FAN_ROWS 9
#define FAN_VECTORS 3
#elif defined(LSI_VEC_AVX2)
#define FAN_ROWS 4
#define FAN_VECTORS 3
#else
#define FAN_ROWS 4
#define FAN_VECTORS 1 /* nothing to gain: with NEON an element of A meets four registers anyway */
#endif

typedef struct lsi_fan {
    size_t rows;     /* at most FAN_ROWS */
    size_t vectors;  /* at most FAN_VECTORS */
    size_t k;        /* of one segment */
    size_t segments; /* at least 1 */
    size_t a_step;   /* floats from one segment of A to the next; B runs on through them */
    const float *a;
    size_t a_row, a_col; /* one of them is 1 */
    const float *b;
    size_t b_row;
    ptrdiff_t b_next; /* floats from B_v to B_v+1 */
    float *c;         /* chains start from what is there */
    size_t ldc;
    ptrdiff_t c_next; /* floats from C_v to C_v+1 */
    int fresh;        /* chains of C_0 start from zero */
} lsi_fan;

/* Each element is a chain of fma in ascending k. */
void LSI_K(fan)(const lsi_fan *fan);

#endif

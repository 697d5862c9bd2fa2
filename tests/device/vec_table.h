/* What vec_table.c exports for each instruction set: the inline functions of the cpu kernels, as
 * ordinary ones over arrays. */
#ifndef LS_TEST_VEC_TABLE_H
#define LS_TEST_VEC_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "device/kernels.h"

typedef enum vec_function {
    VEC_EXP,
    VEC_EXPM1,
    VEC_LOG,
    VEC_LOG1P,
    VEC_TANH,
    VEC_SIGMOID,
    VEC_ERF,
    VEC_FUNCTIONS
} vec_function;

typedef struct vec_table {
    /* y = function(x) for n elements, n a multiple of 16. */
    void (*apply)(vec_function function, size_t n, const float *x, float *y);
    /* Words [4 block, 4 block + 32) of the stream of one sample of a dropout. */
    void (*philox)(const lsi_dropout *dropout, size_t sample, uint64_t block, uint32_t out[32]);
    /* y[i][j] = x[j][i] */
    void (*transpose)(const float x[16][16], float y[16][16]);
    /* The sum of x over 16 lanes of double, n a multiple of 16. */
    double (*sum)(size_t n, const float *x);
    /* Lanes below n of x, the others of y. */
    void (*first)(size_t n, const float x[16], const float y[16], float out[16]);
    /* Lane by lane: x or y, as v16_max, v16_min and v16_if_gt choose. */
    void (*choose)(const float x[16], const float y[16], float max[16], float min[16],
                   float greater[16]);
    /* The largest lane. */
    float (*largest)(const float x[16]);
    void (*row_sums)(const float x[16][16], float sums[16]);
    /* n <= 16 floats through the partial forms; the whole vector to `out`. */
    void (*copy)(size_t n, const float *from, float *to, float out[16]);
} vec_table;

extern const vec_table lsi_plain_vec_table;
#if defined(__x86_64__)
extern const vec_table lsi_avx2_vec_table, lsi_avx512_vec_table;
#elif defined(__aarch64__)
extern const vec_table lsi_neon_vec_table;
#endif

#endif

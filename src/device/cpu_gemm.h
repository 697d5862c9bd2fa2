/* Matrix products for the files of the cpu device.
 *
 * C (m, n) = chain over k of fma(A[i][k], B[k][j], acc), ascending, from acc = start[i][j] or 0:
 * each element is one chain, so the bits depend on neither blocking nor m and n nor the instruction
 * set. That is why this is ours: libraries choose blocking and kernels by the sizes (oneDNN 2.6 on
 * AVX2 gives a row other bits when m changes), and a sample's result would depend on its neighbours
 * in the batch.
 */
#ifndef LSI_DEVICE_CPU_GEMM_H
#define LSI_DEVICE_CPU_GEMM_H

#include "device/kernels.h"
#include "device/vec.h"

/* Element (i, k) of A lies at a[i * a_row + k * a_col], of B at b[k * b_row + j * b_col]; one of
 * each pair of strides is 1. C's rows are ldc apart. */
typedef struct lsi_gemm {
    size_t m, n, k;
    const float *a;
    size_t a_row, a_col;
    const float *b;
    size_t b_row, b_col;
    const float *start; /* rows ld_start apart; may be c; NULL: from zero */
    size_t ld_start;
    float *c;
    size_t ldc;
    /* then, on the finished element: */
    const float *bias; /* (n), added; NULL: none */
    float *slope;      /* rows ldc apart: act' of what act is applied to; NULL: none */
    lsi_act act;
    /* B as panels that stay, of LSI_GEMM_PANELS(k, n) floats; NULL: in scratch memory */
    float *panels;
    int are_packed; /* they are there already; else they are written */
    /* and beside it: */
    float *sums;  /* (n): the sums of B's columns, in ascending k; NULL: none */
    int add_sums; /* from their old values */
} lsi_gemm;

#define LSI_GEMM_PANELS(k, n) ((size_t)(k) * (((size_t)(n) + 15) / 16 * 16))

/* A strip of A and the panel that passes by it share the first cache: 32 KiB where AVX2 is the last
 * word, 48 KiB as a rule where AVX-512 is. */
#if defined(LSI_VEC_AVX2)
#define LSI_GEMM_KC ((size_t)256)
#else
#define LSI_GEMM_KC ((size_t)384)
#endif
#define LSI_GEMM_NC ((size_t)768)
/* Floats of scratch that a product needs, whatever its sizes: a block of B, a strip of A. */
#define LSI_GEMM_SCRATCH (LSI_GEMM_KC * LSI_GEMM_NC + 16 * (LSI_GEMM_KC + 16))

void LSI_K(gemm)(const lsi_gemm *gemm, float *scratch);

/* sums (n) (+)= the sums of the columns of x (rows, n), rows ld apart, in ascending order. */
void LSI_K(column_sums)(size_t rows, size_t n, const float *x, size_t ld, float *sums, int add);

/* The kernels of linear layers, for 1 x 1 convolutions. */
ls_status LSI_K(linear)(lsi_device *, const lsi_linear *, const float *x, const float *w,
                        const float *bias, const float *residual, float *slope, float *y);
ls_status LSI_K(linear_dx)(lsi_device *, const lsi_linear *, const float *dy, const float *w,
                           float *dx, int add);
ls_status LSI_K(linear_dw)(lsi_device *, const lsi_linear *, const float *x, const float *dy,
                           float *dw, float *dbias, int add);

#endif

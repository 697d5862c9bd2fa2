/* Products that share their A (cpu_fan.h), once for each number of rows and vectors. */
#include "device/cpu_fan.h"

/* As in cpu_tile.c: rows of A are found from a few pointers whose origin the compiler forgets. */
#define NEAR 3
#define FORGET(pointer) __asm__("" : "+r"(pointer))

/* rows and vectors are constants where this is used, and so is one of the strides of A. */
LSI_VEC void multiply(const int rows, const int vectors, const lsi_fan *f, size_t a_row,
                      size_t a_col)
{
    lane acc[FAN_ROWS][FAN_VECTORS];
    float *const c = f->c; /* else it would be asked for again after each store */
    const size_t ldc = f->ldc;
    const ptrdiff_t c_next = f->c_next;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[i][v] =
                v == 0 && f->fresh ? LANE_ZERO() : LANE_LOAD(c + (size_t)i * ldc + v * c_next);
    const float *b = f->b;
    const ptrdiff_t b_next = f->b_next;
    const size_t b_row = f->b_row, k = f->k;
    for (size_t s = 0; s < f->segments; s++) {
        const float *a[(FAN_ROWS + NEAR - 1) / NEAR];
        a[0] = f->a + s * f->a_step;
#pragma GCC unroll 16
        for (int i = 1; i * NEAR < rows; i++) {
            a[i] = a[i - 1] + NEAR * a_row;
            FORGET(a[i]);
        }
        for (size_t p = 0; p < k; p++) {
            lane bv[FAN_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                bv[v] = LANE_LOAD(b + v * b_next);
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                const lane_all av = LANE_ALL(a[i / NEAR] + (size_t)(i % NEAR) * a_row + p * a_col);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                    acc[i][v] = LANE_FMA(av, bv[v], acc[i][v]);
            }
            b += b_row;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            LANE_STORE(c + (size_t)i * ldc + v * c_next, acc[i][v]);
}

/* vectors is a constant where this is used. */
LSI_VEC void multiply_rows(const int vectors, const lsi_fan *f)
{
#define CASE(r)                                                                                    \
    case r:                                                                                        \
        if (f->a_col == 1)                                                                         \
            multiply(r, vectors, f, f->a_row, 1);                                                  \
        else                                                                                       \
            multiply(r, vectors, f, 1, f->a_col);                                                  \
        break
    switch (f->rows) {
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
#if FAN_ROWS > 4
        CASE(5);
        CASE(6);
        CASE(7);
        CASE(8);
        CASE(9);
#endif
    default: break;
    }
#undef CASE
}

void LSI_K(fan)(const lsi_fan *f)
{
    switch (f->vectors) {
    case 1: multiply_rows(1, f); break;
#if FAN_VECTORS > 1
    case 2: multiply_rows(2, f); break;
    case 3: multiply_rows(3, f); break;
#endif
    default: break;
    }
}

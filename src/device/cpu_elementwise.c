/* Sums and products element by element, with or without repetition, and the gradient of repetition.
 *
 * 1. A sum over repetitions runs over them in ascending order for each element, from 0 or from the
 *    old value when adding: the same bits however rows and columns are blocked. (A single element,
 *    m == 1, is summed in 16 lanes, as rows are.)
 */
#include "device/cpu.h"
#include "device/vec.h"

#define ROWS 8 /* of a block of sum_repeats: db is loaded and stored once for so many */
#define PATTERN_M                                                                                  \
    64 /* b below this length is laid out sixteen times, so that its period is whole */

typedef enum operation { ADD, MUL } operation;

LSI_VEC v16 apply(operation op, v16 a, v16 b)
{
    return op == ADD ? v16_add(a, b) : v16_mul(a, b);
}

LSI_VEC void pair_at(operation op, const float *a, const float *b, float *y, size_t at, size_t n)
{
    v16_put(y + at, apply(op, v16_get(a + at, n), v16_get(b + at, n)), n);
}

/* b of any length below PATTERN_M, e.g. 10: vector i of a meets vector i % m of 16 copies of b. */
LSI_VEC void repeat_short(operation op, size_t n, size_t m, const float *a, const float *b,
                          float *y)
{
    float pattern[16 * PATTERN_M];
    for (size_t i = 0; i < 16 * m; i++)
        pattern[i] = b[i % m];
    for (size_t from = 0; from < n; from += 16 * m) {
        const size_t part = n - from < 16 * m ? n - from : 16 * m;
        V16_FOR_EACH(part, pair_at, op, a + from, pattern, y + from);
    }
}

LSI_VEC void repeat(operation op, size_t n, size_t m, const float *a, const float *b, float *y)
{
    if (m < PATTERN_M && m % 16 && n > 16 * m) {
        repeat_short(op, n, m, a, b, y);
        return;
    }
    for (size_t from = 0; from < n; from += m)
        V16_FOR_EACH(m, pair_at, op, a + from, b, y + from);
}

static ls_status add(lsi_device *device, size_t n, size_t m, const float *a, const float *b,
                     float *y)
{
    (void)device;
    repeat(ADD, n, m, a, b, y);
    return LS_OK;
}

static ls_status mul(lsi_device *device, size_t n, size_t m, const float *a, const float *b,
                     float *y)
{
    (void)device;
    repeat(MUL, n, m, a, b, y);
    return LS_OK;
}

/* `rows` repetitions into the sums of n columns. first: there is nothing to add to yet. */
LSI_VEC void sum_at(size_t rows, int first, size_t m, const float *dy, const float *a, float *db,
                    size_t at, size_t n)
{
    v16 sum = first ? v16_zero() : v16_get(db + at, n);
    for (size_t r = 0; r < rows; r++) {
        const v16 d = v16_get(dy + r * m + at, n);
        sum = a ? v16_fma(d, v16_get(a + r * m + at, n), sum) : v16_add(sum, d);
    }
    v16_put(db + at, sum, n);
}

LSI_VEC void sum_rows(size_t rows, size_t m, const float *dy, const float *a, float *db, int add)
{
    size_t r = 0;
    int first = !add;
    for (; r + ROWS <= rows; r += ROWS, first = 0)
        V16_FOR_EACH(m, sum_at, ROWS, first, m, dy + r * m, a ? a + r * m : NULL, db);
    if (r < rows || first)
        V16_FOR_EACH(m, sum_at, rows - r, first, m, dy + r * m, a ? a + r * m : NULL, db);
}

LSI_VEC void lanes_at(const float *dy, const float *a, v16 *sum, size_t at, size_t n)
{
    const v16 d = v16_get(dy + at, n);
    *sum = a ? v16_fma(d, v16_get(a + at, n), *sum) : v16_add(*sum, d);
}

static ls_status sum_repeats(lsi_device *device, size_t n, size_t m, const float *dy,
                             const float *a, float *db, int add_to)
{
    (void)device;
    if (m == 1) {
        v16 sum = v16_zero();
        V16_FOR_EACH(n, lanes_at, dy, a, &sum);
        *db = add_to ? *db + v16_sum(sum) : v16_sum(sum);
    } else if (a) {
        sum_rows(n / m, m, dy, a, db, add_to);
    } else {
        sum_rows(n / m, m, dy, NULL, db, add_to);
    }
    return LS_OK;
}

LSI_VEC void scale_at(v16 by, int add, const float *x, float *y, size_t at, size_t n)
{
    const v16 product = v16_mul(by, v16_get(x + at, n));
    v16_put(y + at, add ? v16_add(v16_get(y + at, n), product) : product, n);
}

static ls_status scale(lsi_device *device, size_t n, float by, const float *x, float *y, int add_to)
{
    (void)device;
    const v16 factor = v16_set1(by);
    if (add_to)
        V16_FOR_EACH(n, scale_at, factor, 1, x, y);
    else
        V16_FOR_EACH(n, scale_at, factor, 0, x, y);
    return LS_OK;
}

LSI_VEC void fill_at(v16 value, float *y, size_t at, size_t n)
{
    v16_put(y + at, value, n);
}

static ls_status fill(lsi_device *device, size_t n, float value, float *y)
{
    (void)device;
    V16_FOR_EACH(n, fill_at, v16_set1(value), y);
    return LS_OK;
}

void LSI_K(install_elementwise)(lsi_kernels *kernels)
{
    kernels->add = add;
    kernels->mul = mul;
    kernels->sum_repeats = sum_repeats;
    kernels->scale = scale;
    kernels->fill = fill;
}

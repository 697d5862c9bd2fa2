/* Dot interaction of a recommendation model: the products of each pair of feature vectors.
 *
 * There are many pairs of short vectors, so that what counts is how many of them are under way at
 * once: sixteen products are folded together, and the gradients of several rows computed together.
 */
#include "base/status.h"
#include "device/cpu.h"
#include "device/vec.h"
#include "device/vec_transpose.h"

/* One product is a sum of d terms over sixteen lanes. */
LSI_VEC v16 dot_lanes(size_t d, const float *a, const float *b)
{
    v16 sum = v16_zero();
    size_t i = 0;
    for (; i + 16 <= d; i += 16)
        sum = v16_fma(v16_load(a + i), v16_load(b + i), sum);
    if (i < d)
        sum = v16_fma(v16_load_n(a + i, d - i), v16_load_n(b + i, d - i), sum);
    return sum;
}

/* Where the two vectors of a pair begin, floats from the first of the sample. */
typedef struct pair {
    uint32_t a, b;
} pair;

static void list_pairs(size_t f, size_t d, pair *list)
{
    for (size_t i = 1; i < f; i++)
        for (size_t j = 0; j < i; j++)
            *list++ = (pair){(uint32_t)(i * d), (uint32_t)(j * d)};
}

/* All pairs of a sample; where d is a constant its loop disappears. */
LSI_VEC void all_pairs(size_t d, size_t count, const pair *list, const float *x, float *y)
{
    size_t at = 0;
    for (; at + 16 <= count; at += 16) {
        v16 lanes[16];
#pragma GCC unroll 16
        for (int l = 0; l < 16; l++)
            lanes[l] = dot_lanes(d, x + list[at + (size_t)l].a, x + list[at + (size_t)l].b);
        v16_store(y + at, v16_sums(lanes));
    }
    for (; at < count; at++)
        y[at] = v16_sum(dot_lanes(d, x + list[at].a, x + list[at].b));
}

static ls_status interact(lsi_device *device, size_t n, size_t f, size_t d, const float *x,
                          float *y)
{
    const size_t count = f * (f - 1) / 2;
    void *list;
    LSI_TRY(lsi_device_scratch(device, count * sizeof(pair), &list));
    list_pairs(f, d, list);
    for (size_t s = 0; s < n; s++, x += f * d, y += count) {
        if (d == 16)
            all_pairs(16, count, list, x, y);
        else
            all_pairs(d, count, list, x, y);
    }
    return LS_OK;
}

/* Rows of one sample whose gradients are computed together. */
#if defined(LSI_VEC_AVX512)
#define TOGETHER 8
#else
#define TOGETHER 4
#endif

typedef struct sample {
    size_t f, d;
    const float *x, *dy;
    float *dx;
    int add;
} sample;

/* Columns [c, c + n) of rows [i0, i0 + rows): the sums of weight(i, j) row j over j != i, in
 * ascending j; the weights of pairs (i, j), i > j, lie row by row. rows is a constant where this is
 * used. */
LSI_VEC void grad_columns(const int rows, const sample *s, size_t i0, size_t c, size_t n)
{
    const size_t end = i0 + (size_t)rows;
    const float *line[TOGETHER]; /* the weights of row i with those before it */
    v16 sum[TOGETHER];
    for (int r = 0; r < rows; r++) {
        const size_t i = i0 + (size_t)r;
        line[r] = s->dy + (i ? i * (i - 1) / 2 : 0);
        sum[r] = s->add ? v16_get(s->dx + i * s->d + c, n) : v16_zero();
    }
    size_t j = 0;
    for (; j < i0; j++) {
        const v16 x = v16_get(s->x + j * s->d + c, n);
        for (int r = 0; r < rows; r++)
            sum[r] = v16_fma(v16_set1(line[r][j]), x, sum[r]);
    }
    for (int k = 0; k < rows; k++, j++) { /* rows meet each other: row k has line[k] */
        const v16 x = v16_get(s->x + j * s->d + c, n);
        for (int r = 0; r < rows; r++)
            if (r != k)
                sum[r] = v16_fma(v16_set1(r > k ? line[r][j] : line[k][i0 + (size_t)r]), x, sum[r]);
    }
    const float *below = s->dy + end * (end - 1) / 2 + i0;
    for (; j < s->f; below += j++) {
        const v16 x = v16_get(s->x + j * s->d + c, n);
        for (int r = 0; r < rows; r++)
            sum[r] = v16_fma(v16_set1(below[r]), x, sum[r]);
    }
    for (int r = 0; r < rows; r++)
        v16_put(s->dx + (i0 + (size_t)r) * s->d + c, sum[r], n);
}

static void grad_sample(const sample *s)
{
    size_t i = 0;
    for (; i + TOGETHER <= s->f; i += TOGETHER)
        V16_FOR_EACH(s->d, grad_columns, TOGETHER, s, i);
    for (; i < s->f; i++)
        V16_FOR_EACH(s->d, grad_columns, 1, s, i);
}

static ls_status interact_grad(lsi_device *device, size_t n, size_t f, size_t d, const float *x,
                               const float *dy, float *dx, int add)
{
    (void)device;
    const size_t pairs = f * (f - 1) / 2;
    for (size_t s = 0; s < n; s++)
        grad_sample(&(sample){f, d, x + s * f * d, dy + s * pairs, dx + s * f * d, add});
    return LS_OK;
}

void LSI_K(install_interact)(lsi_kernels *kernels)
{
    kernels->interact = interact;
    kernels->interact_grad = interact_grad;
}

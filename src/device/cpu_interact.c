/* Dot interaction of a recommendation model: the products of each pair of feature vectors.
 *
 * There are many pairs of short vectors, so that what counts is how many of them are under way at
 * once: the products of a row with sixteen others are computed side by side, from the sample turned
 * round, and the gradients of several rows together. The rows of a sample come from many places and
 * are put together first, in a cache.
 */
#include "base/status.h"
#include "device/cpu.h"
#include "device/vec.h"
#include "device/vec_transpose.h"

#define AHEAD 8 /* samples between the request for a row and its use */

LSI_VEC void copy_at(const float *x, float *y, size_t at, size_t n)
{
    v16_put(y + at, v16_get(x + at, n), n);
}

LSI_VEC void add_at(const float *x, float *y, size_t at, size_t n)
{
    v16_put(y + at, v16_add(v16_get(y + at, n), v16_get(x + at, n)), n);
}

static size_t count_rows(int parts, const lsi_features *part)
{
    size_t f = 0;
    for (int i = 0; i < parts; i++)
        f += part[i].rows;
    return f;
}

/* Sample s, to (f, d). Parts are more than a processor follows by itself: it is asked for those of
 * a later sample, past the last one for nothing. */
static void gather(size_t s, size_t d, int parts, const lsi_features *part, float *to)
{
    for (int i = 0; i < parts; i++) {
        const size_t each = part[i].rows * d;
        __builtin_prefetch(part[i].x + (s + AHEAD) * each);
        V16_FOR_EACH(each, copy_at, part[i].x + s * each, to);
        to += each;
    }
}

static void scatter(size_t s, size_t d, int parts, const lsi_features *part, const float *from)
{
    for (int i = 0; i < parts; i++) {
        const size_t each = part[i].rows * d;
        if (part[i].dx && part[i].add)
            V16_FOR_EACH(each, add_at, from, part[i].dx + s * each);
        else if (part[i].dx)
            V16_FOR_EACH(each, copy_at, from, part[i].dx + s * each);
        from += each;
    }
}

/* A sample (f, d) by columns: column c at `at` + c ld, zeros beyond f. */
typedef struct columns {
    float *at;
    size_t ld; /* a multiple of sixteen; so is the number of columns that there is room for */
    size_t d;
} columns;

static void turn(size_t f, const float *x, const columns *to)
{
    for (size_t i = 0; i < to->ld; i += 16)
        for (size_t c = 0; c < to->d; c += 16) {
            v16 block[16];
            for (size_t r = 0; r < 16; r++)
                block[r] = i + r < f
                               ? v16_get(x + (i + r) * to->d + c, to->d - c < 16 ? to->d - c : 16)
                               : v16_zero();
            v16_transpose(block);
            for (size_t r = 0; r < 16; r++)
                v16_store(to->at + (c + r) * to->ld + i, block[r]);
        }
}

/* Row i with the sixteen rows from j on: a product of matrices, one chain for each. */
LSI_VEC v16 products(const columns *x, size_t i, size_t j)
{
    v16 sum = v16_zero();
    for (size_t c = 0; c < x->d; c++) {
        const float *column = x->at + c * x->ld;
        sum = v16_fma(v16_set1(column[i]), v16_load(column + j), sum);
    }
    return sum;
}

/* All pairs of a sample, in the order of the results. What is written too much is written again,
 * but for the last of `room` floats. */
LSI_VEC void all_pairs(const columns *x, size_t f, float *y, size_t room)
{
    size_t at = 0;
    for (size_t i = 1; i < f; i++)
        for (size_t j = 0, n; j < i; j += n, at += n) {
            n = i - j < 16 ? i - j : 16;
            const v16 some = products(x, i, j);
            if (at + 16 <= room)
                v16_store(y + at, some);
            else
                v16_store_n(y + at, some, n);
        }
}

static ls_status interact(lsi_device *device, size_t n, size_t d, int parts,
                          const lsi_features *part, int head, float *y)
{
    const size_t f = count_rows(parts, part), first = head ? d : 0, each = first + f * (f - 1) / 2;
    columns by = {.ld = (f + 15) / 16 * 16, .d = d};
    const size_t turned = by.ld * ((d + 15) / 16 * 16);
    void *memory;
    LSI_TRY(lsi_device_scratch(device, (turned + f * d) * sizeof(float), &memory));
    by.at = memory;
    float *x = by.at + turned;
    for (size_t s = 0; s < n; s++, y += each) {
        gather(s, d, parts, part, x);
        turn(f, x, &by);
        V16_FOR_EACH(first, copy_at, x, y);
        if (d == 16) /* a constant: the loop over terms disappears */
            all_pairs(&(columns){by.at, by.ld, 16}, f, y + first, (n - s) * each - first);
        else
            all_pairs(&by, f, y + first, (n - s) * each - first);
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
        sum[r] = v16_zero();
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

/* The last group ends with the last row: some rows are computed twice rather than one by one. */
static void grad_sample(const sample *s)
{
    for (size_t i = 0; s->f >= TOGETHER && i < s->f; i += TOGETHER) {
        const size_t last = s->f - TOGETHER;
        V16_FOR_EACH(s->d, grad_columns, TOGETHER, s, i < last ? i : last);
    }
    for (size_t i = 0; s->f < TOGETHER && i < s->f; i++)
        V16_FOR_EACH(s->d, grad_columns, 1, s, i);
}

static ls_status interact_grad(lsi_device *device, size_t n, size_t d, int parts,
                               const lsi_features *part, int head, const float *dy)
{
    const size_t f = count_rows(parts, part), first = head ? d : 0;
    void *memory;
    LSI_TRY(lsi_device_scratch(device, 2 * f * d * sizeof(float), &memory));
    float *x = memory, *dx = x + f * d;
    for (size_t s = 0; s < n; s++, dy += first + f * (f - 1) / 2) {
        gather(s, d, parts, part, x);
        grad_sample(&(sample){f, d, x, dy + first, dx});
        V16_FOR_EACH(first, add_at, dy, dx);
        scatter(s, d, parts, part, dx);
    }
    return LS_OK;
}

void LSI_K(install_interact)(lsi_kernels *kernels)
{
    kernels->interact = interact;
    kernels->interact_grad = interact_grad;
}

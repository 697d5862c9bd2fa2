/* Embeddings: rows of a table by number, sums of such rows, and their gradients.
 *
 * Tables are larger than the caches and rows are needed in no order, so each row is asked for some
 * rows ahead of its use.
 *
 * 1. Gradients of a row of the table are added in the order in which the batch uses it, in f32.
 * 2. A sparse gradient sorts the uses by table row, keeping their order (radix sort, up to 8 bits a
 *    pass, as many passes as the size of the table needs): the work grows with the uses, not with
 *    the table.
 */
#include "device/cpu.h"

#include "base/status.h"
#include "device/vec.h"

#define AHEAD 8      /* rows between the request for a row and its use */
#define DIGIT_BITS 8 /* of a pass of sorting, at most */

/* Ask for a row of d floats: the first lines, the processor's own prefetching sees the rest. */
LSI_VEC void expect(const float *row, size_t d)
{
    __builtin_prefetch(row);
    if (d > 16)
        __builtin_prefetch(row + 16);
    if (d > 32)
        __builtin_prefetch(row + 32);
}

LSI_VEC void copy_at(const float *x, float *y, size_t at, size_t n)
{
    v16_put(y + at, v16_get(x + at, n), n);
}

LSI_VEC void add_at(const float *x, float *y, size_t at, size_t n)
{
    v16_put(y + at, v16_add(v16_get(y + at, n), v16_get(x + at, n)), n);
}

static ls_status embed(lsi_device *device, size_t rows, size_t d, const int32_t *ids,
                       const float *table, float *y, int add)
{
    (void)device;
    for (size_t r = 0; r < rows; r++, y += d) {
        const float *row = table + (size_t)ids[r] * d;
        if (r + AHEAD < rows)
            expect(table + (size_t)ids[r + AHEAD] * d, d);
        if (add)
            V16_FOR_EACH(d, add_at, row, y);
        else
            V16_FOR_EACH(d, copy_at, row, y);
    }
    return LS_OK;
}

static ls_status embed_grad(lsi_device *device, size_t rows, size_t vocab, size_t d,
                            const int32_t *ids, const float *dy, float *dtable, int add)
{
    (void)device;
    if (!add)
        memset(dtable, 0, vocab * d * sizeof *dtable);
    for (size_t r = 0; r < rows; r++, dy += d) {
        if (r + AHEAD < rows)
            expect(dtable + (size_t)ids[r + AHEAD] * d, d);
        V16_FOR_EACH(d, add_at, dy, dtable + (size_t)ids[r] * d);
    }
    return LS_OK;
}

LSI_VEC void bag_at(size_t bag, size_t d, const int32_t *ids, const float *table, float *y,
                    size_t at, size_t n)
{
    v16 sum = bag ? v16_get(table + (size_t)ids[0] * d + at, n) : v16_zero();
    for (size_t b = 1; b < bag; b++)
        sum = v16_add(sum, v16_get(table + (size_t)ids[b] * d + at, n));
    v16_put(y + at, sum, n);
}

static ls_status embed_bag(lsi_device *device, size_t rows, size_t bag, size_t d,
                           const int32_t *ids, const float *table, float *y, size_t y_stride)
{
    (void)device;
    const size_t uses = rows * bag;
    for (size_t r = 0; r < rows; r++, y += y_stride) {
        const size_t from = r * bag + AHEAD < uses ? r * bag + AHEAD : uses;
        const size_t to = from + bag < uses ? from + bag : uses;
        for (size_t i = from; i < to; i++)
            expect(table + (size_t)ids[i] * d, d);
        V16_FOR_EACH(d, bag_at, bag, d, ids + r * bag, table, y);
    }
    return LS_OK;
}

/* One use of a table row: by which row of the batch. */
typedef struct use {
    uint32_t id, row;
} use;

/* By `bits` bits of id from `shift` on, keeping the order of equals. */
static void sort_by_digit(size_t n, unsigned shift, unsigned bits, const use *from, use *to)
{
    const uint32_t mask = (1u << bits) - 1;
    uint32_t place[1 << DIGIT_BITS], next = 0;
    memset(place, 0, (mask + 1) * sizeof *place);
    for (size_t i = 0; i < n; i++)
        place[from[i].id >> shift & mask]++;
    for (size_t i = 0; i <= mask; i++) {
        const uint32_t here = place[i];
        place[i] = next;
        next += here;
    }
    for (size_t i = 0; i < n; i++)
        to[place[from[i].id >> shift & mask]++] = from[i];
}

/* The uses in ascending order of id, then of row. */
static ls_status sorted_uses(lsi_device *device, size_t rows, size_t bag, size_t vocab,
                             const int32_t *ids, use **out)
{
    const size_t n = rows * bag;
    void *scratch;
    LSI_TRY(lsi_device_scratch(device, 2 * n * sizeof(use), &scratch));
    use *uses = scratch, *other = uses + n;
    for (size_t r = 0; r < rows; r++)
        for (size_t b = 0; b < bag; b++)
            uses[r * bag + b] = (use){(uint32_t)ids[r * bag + b], (uint32_t)r};
    unsigned bits = 0;
    while (bits < 32 && (vocab - 1) >> bits)
        bits++;
    const unsigned passes = (bits + DIGIT_BITS - 1) / DIGIT_BITS;
    const unsigned each = passes ? (bits + passes - 1) / passes : 0;
    for (unsigned pass = 0; pass < passes; pass++) {
        sort_by_digit(n, pass * each, each, uses, other);
        use *swap = uses;
        uses = other;
        other = swap;
    }
    *out = uses;
    return LS_OK;
}

/* The sum of dy over uses [0, n), all of one id. */
LSI_VEC void uses_at(size_t n_uses, const use *uses, const float *dy, size_t dy_stride, float *to,
                     size_t at, size_t n)
{
    v16 sum = v16_get(dy + uses[0].row * dy_stride + at, n);
    for (size_t i = 1; i < n_uses; i++)
        sum = v16_add(sum, v16_get(dy + uses[i].row * dy_stride + at, n));
    v16_put(to + at, sum, n);
}

/* Rows of the union of touched and the ids of uses. */
static size_t count_union(size_t m, const int32_t *touched, size_t n, const use *uses)
{
    size_t i = 0, rows = 0;
    for (size_t j = 0; j < n; rows++) {
        const uint32_t id = uses[j].id;
        if (i < m && (uint32_t)touched[i] < id) {
            i++;
            continue;
        }
        i += i < m && (uint32_t)touched[i] == id;
        while (j < n && uses[j].id == id)
            j++;
    }
    return rows + (m - i);
}

/* `to` is the sum of `from` (NULL: zeros) and of dy over uses [0, n), all of one id. `to` may be
 * `from`. */
LSI_VEC void onto_at(size_t n_uses, const use *uses, const float *dy, size_t d, const float *from,
                     float *to, size_t at, size_t n)
{
    v16 sum = from ? v16_get(from + at, n) : v16_zero();
    for (size_t i = 0; i < n_uses; i++)
        sum = v16_add(sum, v16_get(dy + uses[i].row * d + at, n));
    v16_put(to + at, sum, n);
}

/* In place, from the end: a row moves only to where all rows have been taken from. */
static ls_status embed_rows_grad(lsi_device *device, size_t rows, size_t vocab, size_t d,
                                 const int32_t *ids, const float *dy, int32_t *touched,
                                 float *values, size_t *count)
{
    use *uses;
    LSI_TRY(sorted_uses(device, rows, 1, vocab, ids, &uses));
    const size_t total = count_union(*count, touched, rows, uses);
    size_t i = *count, j = rows;
    for (size_t k = total; j > 0; k--) { /* what is left of the old rows is in place then */
        const int32_t id = (int32_t)uses[j - 1].id;
        const int old = i > 0 && touched[i - 1] >= id, used = i == 0 || touched[i - 1] <= id;
        const size_t end = j;
        while (used && j > 0 && (int32_t)uses[j - 1].id == id)
            j--;
        touched[k - 1] = old ? touched[i - 1] : id;
        V16_FOR_EACH(d, onto_at, end - j, uses + j, dy, d, old ? values + (i - 1) * d : NULL,
                     values + (k - 1) * d);
        i -= (size_t)old;
    }
    *count = total;
    return LS_OK;
}

static ls_status embed_bag_grad(lsi_device *device, size_t rows, size_t bag, size_t vocab, size_t d,
                                const int32_t *ids, const float *dy, size_t dy_stride,
                                int32_t *touched, float *values, size_t *count)
{
    const size_t n = rows * bag;
    use *uses;
    LSI_TRY(sorted_uses(device, rows, bag, vocab, ids, &uses));
    size_t found = 0;
    for (size_t i = 0, end; i < n; i = end, found++, values += d) {
        for (end = i + 1; end < n && uses[end].id == uses[i].id;)
            end++;
        if (end + AHEAD < n)
            expect(dy + uses[end + AHEAD].row * dy_stride, d);
        touched[found] = (int32_t)uses[i].id;
        V16_FOR_EACH(d, uses_at, end - i, uses + i, dy, dy_stride, values);
    }
    *count = found;
    return LS_OK;
}

void LSI_K(install_embed)(lsi_kernels *kernels)
{
    kernels->embed = embed;
    kernels->embed_grad = embed_grad;
    kernels->embed_rows_grad = embed_rows_grad;
    kernels->embed_bag = embed_bag;
    kernels->embed_bag_grad = embed_bag_grad;
}

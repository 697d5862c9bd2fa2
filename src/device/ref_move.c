/* Reference: copies, permutations, embeddings.
 *
 * 1. Sums of embedding gradients are in f32 in the order of the rows, as the contract has it.
 */
#include <string.h>

#include "device/ref.h"

#define MAX_DIMS 6

ls_status lsi_ref_copy2d(lsi_device *device, size_t rows, size_t c, const float *x, size_t x_stride,
                         float *y, size_t y_stride, int add)
{
    (void)device;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < c; i++)
            lsi_ref_put(&y[r * y_stride + i], (double)x[r * x_stride + i], add);
    return LS_OK;
}

ls_status lsi_ref_permute(lsi_device *device, int ndim, const size_t *dims, const int *perm,
                          const float *x, float *y, int add)
{
    (void)device;
    size_t stride[MAX_DIMS]; /* in y, of each dimension of x */
    size_t count = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        stride[perm[d]] = count;
        count *= dims[perm[d]];
    }
    for (size_t from = 0; from < count; from++) {
        size_t rest = from, to = 0;
        for (int d = ndim - 1; d >= 0; d--) {
            to += rest % dims[d] * stride[d];
            rest /= dims[d];
        }
        lsi_ref_put(&y[to], (double)x[from], add);
    }
    return LS_OK;
}

ls_status lsi_ref_embed(lsi_device *device, size_t rows, size_t d, const int32_t *ids,
                        const float *table, float *y, int add)
{
    (void)device;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < d; i++)
            lsi_ref_put(&y[r * d + i], (double)table[(size_t)ids[r] * d + i], add);
    return LS_OK;
}

ls_status lsi_ref_embed_grad(lsi_device *device, size_t rows, size_t vocab, size_t d,
                             const int32_t *ids, const float *dy, float *dtable, int add)
{
    (void)device;
    for (size_t i = 0; !add && i < vocab * d; i++)
        dtable[i] = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < d; i++)
            dtable[(size_t)ids[r] * d + i] += dy[r * d + i];
    return LS_OK;
}

/* Where id is, or belongs, in an ascending list. */
static size_t place_of(int32_t id, size_t n, const int32_t *list)
{
    size_t at = 0;
    while (at < n && list[at] < id)
        at++;
    return at;
}

ls_status lsi_ref_embed_rows_grad(lsi_device *device, size_t rows, size_t vocab, size_t d,
                                  const int32_t *ids, const float *dy, int32_t *touched,
                                  float *values, size_t *count)
{
    (void)device;
    (void)vocab;
    for (size_t r = 0; r < rows; r++) {
        const size_t at = place_of(ids[r], *count, touched), behind = *count - at;
        float *row = values + at * d;
        if (!behind || touched[at] != ids[r]) {
            memmove(touched + at + 1, touched + at, behind * sizeof *touched);
            memmove(row + d, row, behind * d * sizeof *row);
            touched[at] = ids[r];
            memset(row, 0, d * sizeof *row);
            ++*count;
        }
        for (size_t i = 0; i < d; i++)
            row[i] += dy[r * d + i];
    }
    return LS_OK;
}

ls_status lsi_ref_embed_bag(lsi_device *device, size_t rows, size_t bag, size_t d,
                            const int32_t *ids, const float *table, float *y, size_t y_stride)
{
    (void)device;
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < d; i++) {
            double sum = 0;
            for (size_t b = 0; b < bag; b++)
                sum += (double)table[(size_t)ids[r * bag + b] * d + i];
            y[r * y_stride + i] = (float)sum;
        }
    }
    return LS_OK;
}

ls_status lsi_ref_embed_bag_grad(lsi_device *device, size_t rows, size_t bag, size_t vocab,
                                 size_t d, const int32_t *ids, const float *dy, size_t dy_stride,
                                 int32_t *touched, float *values, size_t *count)
{
    (void)device;
    (void)vocab;
    size_t found = 0;
    for (int64_t last = -1;;) {
        int64_t next = INT64_MAX; /* the smallest id above the last */
        for (size_t r = 0; r < rows * bag; r++)
            if (ids[r] > last && ids[r] < next)
                next = ids[r];
        if (next == INT64_MAX)
            break;
        touched[found] = (int32_t)next;
        for (size_t i = 0; i < d; i++)
            values[found * d + i] = 0;
        for (size_t r = 0; r < rows * bag; r++)
            for (size_t i = 0; ids[r] == next && i < d; i++)
                values[found * d + i] += dy[r / bag * dy_stride + i];
        found++;
        last = next;
    }
    *count = found;
    return LS_OK;
}

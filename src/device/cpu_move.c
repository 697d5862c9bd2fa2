/* Copies with strides, and permutations of dimensions.
 *
 * A permutation is first brought to its simplest form: dimensions of size 1 vanish, and dimensions
 * that stay neighbours become one. Then either the innermost dimension stays innermost, and rows
 * are copied; or it moves, and tiles of 16 x 16 are transposed between what is contiguous in x and
 * what is contiguous in y.
 */
#include "device/cpu.h"
#include "device/vec.h"
#include "device/vec_transpose.h"

#define MAX_DIMS 6
#define MEMCPY_FLOATS 256 /* rows from here on are left to memcpy */

LSI_VEC void copy_at(const float *x, float *y, size_t at, size_t n)
{
    v16_put(y + at, v16_get(x + at, n), n);
}

LSI_VEC void add_at(const float *x, float *y, size_t at, size_t n)
{
    v16_put(y + at, v16_add(v16_get(y + at, n), v16_get(x + at, n)), n);
}

static ls_status copy2d(lsi_device *device, size_t rows, size_t c, const float *x, size_t x_stride,
                        float *y, size_t y_stride, int add)
{
    (void)device;
    if (c == x_stride && c == y_stride) {
        c *= rows;
        rows = rows > 0;
    }
    for (size_t r = 0; r < rows; r++, x += x_stride, y += y_stride) {
        if (add)
            V16_FOR_EACH(c, add_at, x, y);
        else if (c >= MEMCPY_FLOATS)
            memcpy(y, x, c * sizeof *y);
        else
            V16_FOR_EACH(c, copy_at, x, y);
    }
    return LS_OK;
}

/* One dimension of the result: its size, and the distance of neighbours in x and in y. */
typedef struct axis {
    size_t size, x, y;
} axis;

/* The axes in the order of y, simplified; returns how many. There are two at least, of size 1 if
 * need be, and none of size 1 otherwise. */
static int simplify(int ndim, const size_t *dims, const int *perm, axis axes[MAX_DIMS])
{
    size_t x_stride[MAX_DIMS], stride = 1;
    int count = 0;
    for (int d = ndim - 1; d >= 0; d--) {
        x_stride[d] = stride;
        stride *= dims[d];
    }
    for (int d = 0; d < ndim; d++) {
        const axis next = {dims[perm[d]], x_stride[perm[d]], 0};
        if (next.size == 1)
            continue;
        if (count && axes[count - 1].x == next.size * next.x) {
            axes[count - 1].size *= next.size;
            axes[count - 1].x = next.x;
        } else {
            axes[count++] = next;
        }
    }
    for (; count < 2; count++) {
        memmove(axes + 1, axes, (size_t)count * sizeof *axes);
        axes[0] = (axis){1, 1, 0};
    }
    stride = 1;
    for (int d = count - 1; d >= 0; d--) {
        axes[d].y = stride;
        stride *= axes[d].size;
    }
    return count;
}

/* Up to 16 x 16: y[i * y_stride + j] (+)= x[j * x_stride + i] for i < n, j < m. */
LSI_VEC void transpose_tile(size_t n, size_t m, const float *x, size_t x_stride, float *y,
                            size_t y_stride, int add)
{
    v16 tile[16];
#pragma GCC unroll 16
    for (size_t j = 0; j < 16; j++)
        tile[j] = j < m ? v16_get(x + j * x_stride, n) : v16_zero();
    v16_transpose(tile);
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++) {
        if (i >= n)
            break;
        float *to = y + i * y_stride;
        v16_put(to, add ? v16_add(v16_get(to, m), tile[i]) : tile[i], m);
    }
}

/* A whole matrix: across (contiguous in x) by down (contiguous in y). */
static void transpose(axis across, axis down, const float *x, float *y, int add)
{
    for (size_t j = 0; j < down.size; j += 16) {
        const size_t m = down.size - j < 16 ? down.size - j : 16;
        for (size_t i = 0; i < across.size; i += 16) {
            const size_t n = across.size - i < 16 ? across.size - i : 16;
            const float *from = x + j * down.x + i;
            float *to = y + i * across.y + j;
            if (n == 16 && m == 16 && !add)
                transpose_tile(16, 16, from, down.x, to, across.y, 0);
            else
                transpose_tile(n, m, from, down.x, to, across.y, add);
        }
    }
}

/* Move on by one in the outer axes, as a number with a digit for each; 0 after the last. */
static int step(int loops, const axis *axes, size_t *at, const float **x, float **y)
{
    for (int d = loops - 1; d >= 0; d--) {
        *x += axes[d].x;
        *y += axes[d].y;
        if (++at[d] < axes[d].size)
            return 1;
        *x -= axes[d].x * axes[d].size;
        *y -= axes[d].y * axes[d].size;
        at[d] = 0;
    }
    return 0;
}

static ls_status permute(lsi_device *device, int ndim, const size_t *dims, const int *perm,
                         const float *x, float *y, int add)
{
    axis axes[MAX_DIMS];
    size_t at[MAX_DIMS] = {0};
    for (int d = 0; d < ndim; d++)
        if (!dims[d])
            return LS_OK;
    /* The inner matrix: the last axis, and the one that is contiguous in x, or the last but one. */
    const int loops = simplify(ndim, dims, perm, axes) - 2;
    const axis down = axes[loops + 1];
    int other = loops;
    if (down.x != 1)
        for (other = 0; axes[other].x != 1;)
            other++;
    const axis across = axes[other];
    memmove(axes + other, axes + other + 1, (size_t)(loops - other) * sizeof *axes);
    do {
        if (down.x == 1)
            copy2d(device, across.size, down.size, x, across.x, y, across.y, add);
        else
            transpose(across, down, x, y, add);
    } while (step(loops, axes, at, &x, &y));
    return LS_OK;
}

void LSI_K(install_move)(lsi_kernels *kernels)
{
    kernels->copy2d = copy2d;
    kernels->permute = permute;
}

/* Dot interaction of a recommendation model: the products of each pair of feature vectors. */
#include "base/status.h"
#include "device/cpu.h"
#include "device/vec.h"

/* One product is a sum of d terms over sixteen lanes. */
static float dot(size_t d, const float *a, const float *b)
{
    v16 sum = v16_zero();
    size_t i = 0;
    for (; i + 16 <= d; i += 16)
        sum = v16_fma(v16_load(a + i), v16_load(b + i), sum);
    if (i < d)
        sum = v16_fma(v16_load_n(a + i, d - i), v16_load_n(b + i, d - i), sum);
    return v16_sum(sum);
}

static ls_status interact(lsi_device *device, size_t n, size_t f, size_t d, const float *x,
                          float *y)
{
    (void)device;
    for (size_t s = 0; s < n; s++, x += f * d)
        for (size_t i = 1; i < f; i++)
            for (size_t j = 0; j < i; j++)
                *y++ = dot(d, x + i * d, x + j * d);
    return LS_OK;
}

/* Row i gets the sum of weight(i, j) row j over j != i, in ascending j. */
static ls_status interact_grad(lsi_device *device, size_t n, size_t f, size_t d, const float *x,
                               const float *dy, float *dx, int add)
{
    (void)device;
    const size_t pairs = f * (f - 1) / 2;
    for (size_t s = 0; s < n; s++, x += f * d, dx += f * d, dy += pairs)
        for (size_t i = 0; i < f; i++)
            for (size_t c = 0; c < d; c += 16) {
                const size_t m = d - c < 16 ? d - c : 16;
                v16 sum = add ? v16_load_n(dx + i * d + c, m) : v16_zero();
                for (size_t j = 0; j < f; j++) {
                    if (j == i)
                        continue;
                    const size_t pair = i > j ? i * (i - 1) / 2 + j : j * (j - 1) / 2 + i;
                    sum = v16_fma(v16_set1(dy[pair]), v16_load_n(x + j * d + c, m), sum);
                }
                v16_store_n(dx + i * d + c, sum, m);
            }
    return LS_OK;
}

void LSI_K(install_interact)(lsi_kernels *kernels)
{
    kernels->interact = interact;
    kernels->interact_grad = interact_grad;
}

/* What the kernels that go over rows share. */
#ifndef LSI_DEVICE_CPU_ROW_H
#define LSI_DEVICE_CPU_ROW_H

#include "device/vec.h"

/* The largest of n floats; -infinity when n is 0. The order does not matter: four chains. A NaN
 * may be passed over. */
LSI_VEC float row_largest(const float *x, size_t n)
{
    const v16 least = v16_set1(-INFINITY);
    v16 a = least, b = least, c = least, d = least;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        a = v16_max(a, v16_load(x + i));
        b = v16_max(b, v16_load(x + i + 16));
        c = v16_max(c, v16_load(x + i + 32));
        d = v16_max(d, v16_load(x + i + 48));
    }
    for (; i + 16 <= n; i += 16)
        a = v16_max(a, v16_load(x + i));
    if (i < n)
        b = v16_max(b, v16_first(n - i, v16_load_n(x + i, n - i), least));
    return v16_max_lane(v16_max(v16_max(a, b), v16_max(c, d)));
}

#endif

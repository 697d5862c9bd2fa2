/* What the tests of exact bits share: numbers, comparing, every instruction set in turn. */
#ifndef LSI_TESTS_DEVICE_EXACT_H
#define LSI_TESTS_DEVICE_EXACT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "device/kernels.h"

#if defined(__SANITIZE_ADDRESS__)
#define FIRST_SET 1
#else
#define FIRST_SET 0
#endif

static inline float *numbers(size_t n, uint32_t seed)
{
    const uint32_t key[2] = {seed, 0}, counter[4] = {0};
    float *x = malloc((n ? n : 1) * sizeof *x);
    assert_non_null(x);
    lsi_philox_fill_uniform(counter, key, 0, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = (x[i] - 0.5f) * 3.4f;
    return x;
}

static inline float *copied(const float *x, size_t n)
{
    float *y = malloc(n * sizeof *y);
    assert_non_null(y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

static inline void expect_bits(const char *what, const char *isa, const float *got,
                               const float *expected, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &expected[i], sizeof *got))
            fail_msg("%s of %s: [%zu] of %zu is %.9g, not %.9g", what, isa, i, n, (double)got[i],
                     (double)expected[i]);
}

/* Call fn with a device for each usable instruction set, under ASan but the slowest: it takes a
 * hundred times as long then, and the matrix looks at its memory. */
static inline void each_set(void (*fn)(lsi_device *device))
{
    lsi_device *device;
    assert_int_equal(lsi_device_open("cpu", &device), LS_OK);
    for (int i = lsi_isa_usable(1) ? FIRST_SET : 0; i < lsi_isa_count(); i++) {
        if (!lsi_isa_usable(i))
            continue;
        device->k = lsi_isa_kernels(i);
        fn(device);
    }
    lsi_device_close(device);
}

#endif

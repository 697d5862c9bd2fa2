/* Kernels against an independent scalar reference: every dtype, operator, instruction set, count
 * and aliasing, bit for bit; special values exhaustively for the 16-bit types. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coll/reduce.h"

#define MAX_COUNT 65537
#define MAX_BYTES ((MAX_COUNT + 16) * 8)

static const size_t counts[] = {0, 1, 2, 3, 7, 31, 997, MAX_COUNT};
#define N_COUNTS (sizeof counts / sizeof *counts)

/* Buffers: the operands' originals, the operands in use, two results, the expected result. */
static unsigned char *left0, *right0, *left, *right, *out0, *out1, *expected;

static uint64_t state = 1;

static uint64_t next_random(void) /* splitmix64 */
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A binary float of `fraction` explicit bits and exponent bias `bias`, by arithmetic alone. */
static double decode(unsigned bits, int fraction, int bias)
{
    const unsigned mantissa = bits & ((1u << fraction) - 1);
    const int exponent = (int)(bits >> fraction) & (2 * bias + 1);
    double x;
    if (exponent == 2 * bias + 1)
        x = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        x = ldexp(mantissa, 1 - bias - fraction);
    else
        x = ldexp(mantissa + (1u << fraction), exponent - bias - fraction);
    return bits & 0x8000 ? -x : x;
}

static unsigned encode(double x, int fraction, int bias)
{
    const unsigned infinity = (2u * (unsigned)bias + 1) << fraction;
    if (isnan(x))
        return infinity | 1u << (fraction - 1);
    const unsigned sign = signbit(x) ? 0x8000 : 0;
    if (isinf(x))
        return sign | infinity;
    int exponent = x == 0 ? 1 - bias : ilogb(x);
    if (exponent < 1 - bias)
        exponent = 1 - bias;
    const double scaled = nearbyint(ldexp(fabs(x), fraction - exponent)); /* to nearest even */
    const unsigned bits = (unsigned)scaled + ((unsigned)(exponent + bias - 1) << fraction);
    return sign | (bits > infinity ? infinity : bits);
}

static double reference_double(ls_op op, double a, double b)
{
    double x = op == LS_SUM ? a + b : op == LS_PROD ? a * b : NAN;
    if (op == LS_MIN && !isnan(a) && !isnan(b))
        x = a < b ? a : b;
    if (op == LS_MAX && !isnan(a) && !isnan(b))
        x = a > b ? a : b;
    return isnan(x) ? (double)NAN : x;
}

static float reference_float(ls_op op, float a, float b)
{
    if (op == LS_MIN || op == LS_MAX)
        return (float)reference_double(op, a, b);
    const float x = op == LS_SUM ? a + b : a * b;
    return isnan(x) ? NAN : x;
}

static int64_t reference_integer(ls_op op, int64_t a, int64_t b)
{
    switch (op) {
    case LS_SUM: return (int64_t)((uint64_t)a + (uint64_t)b);
    case LS_PROD: return (int64_t)((uint64_t)a * (uint64_t)b);
    case LS_MIN: return a < b ? a : b;
    case LS_MAX: return a > b ? a : b;
    case LS_BAND: return a & b;
    default: return a | b;
    }
}

#define CASE(value, type, call)                                                                    \
    case value: {                                                                                  \
        const type a = ((const type *)l)[i], b = ((const type *)r)[i];                             \
        ((type *)d)[i] = (type)(call);                                                             \
        break;                                                                                     \
    }

static void reference(ls_dtype dtype, ls_op op, void *d, const void *l, const void *r, size_t i)
{
    switch (dtype) {
        CASE(LS_F32, float, reference_float(op, a, b))
        CASE(LS_F64, double, reference_double(op, a, b))
        CASE(LS_BF16, uint16_t,
             encode(reference_float(op, (float)decode(a, 7, 127), (float)decode(b, 7, 127)), 7,
                    127))
        CASE(LS_F16, uint16_t,
             encode(reference_double(op, decode(a, 10, 15), decode(b, 10, 15)), 10, 15))
        CASE(LS_I8, int8_t, reference_integer(op, a, b))
        CASE(LS_U8, uint8_t, reference_integer(op, a, b))
        CASE(LS_I32, int32_t, reference_integer(op, a, b))
        CASE(LS_I64, int64_t, reference_integer(op, a, b))
    default: fail();
    }
}

/* Any bit pattern in one half of the elements, everyday values in the other. */
static void fill(unsigned char *p, ls_dtype dtype, size_t count)
{
    const size_t size = ls_dtype_size(dtype);
    for (size_t i = 0; i < count; i++, p += size) {
        const uint64_t bits = next_random();
        const double x = ((double)(bits >> 11) * 0x1p-52 - 1) * 100;
        const float f = (float)x;
        const uint16_t bf16 = (uint16_t)encode(f, 7, 127), f16 = (uint16_t)encode(f, 10, 15);
        memcpy(p, &bits, size);
        if (bits & 1)
            continue;
        switch (dtype) {
        case LS_F32: memcpy(p, &f, 4); break;
        case LS_F64: memcpy(p, &x, 8); break;
        case LS_BF16: memcpy(p, &bf16, 2); break;
        case LS_F16: memcpy(p, &f16, 2); break;
        default: break;
        }
    }
}

static void restore(size_t bytes)
{
    memcpy(left, left0, bytes);
    memcpy(right, right0, bytes);
    memset(out0, 0xa5, bytes);
    memset(out1, 0xa5, bytes);
}

/* `count` elements from byte `start` on are as expected; the 16 bytes after them are untouched. */
static void check(const unsigned char *got, const unsigned char *before, size_t start, size_t bytes)
{
    assert_memory_equal(got + start, expected + start, bytes);
    assert_memory_equal(got + start + bytes, before + start + bytes, 16);
}

static void check_one(lsi_reduce_fn f, size_t start, size_t count, size_t bytes)
{
    unsigned char *const targets[] = {out0, left, right};
    const unsigned char *const before[] = {out1, left0, right0};
    for (int k = 0; k < 3; k++) {
        restore(start + bytes + 16);
        f(targets[k] + start, left + start, right + start, count);
        check(targets[k], before[k], start, bytes);
    }
}

static void check_two(lsi_reduce_two_fn f, size_t start, size_t count, size_t bytes)
{
    unsigned char *const targets[][2] = {
        {out0, out1}, {left, out1}, {out0, right}, {left, right}, {right, left}};
    const unsigned char *const before[][2] = {
        {out1, out0}, {left0, out0}, {out1, right0}, {left0, right0}, {right0, left0}};
    for (int k = 0; k < 5; k++) {
        restore(start + bytes + 16);
        f(targets[k][0] + start, targets[k][1] + start, left + start, right + start, count);
        check(targets[k][0], before[k][0], start, bytes);
        check(targets[k][1], before[k][1], start, bytes);
    }
}

/* All levels, counts, aliasings, at an aligned and an odd element. */
static void check_kernel(ls_dtype dtype, ls_op op)
{
    const size_t size = ls_dtype_size(dtype);
    fill(left0, dtype, MAX_COUNT + 16);
    fill(right0, dtype, MAX_COUNT + 16);
    for (size_t i = 0; i < MAX_COUNT + 1; i++)
        reference(dtype, op, expected, left0, right0, i);
    for (int level = 0; level < lsi_reduce_levels(); level++) {
        for (size_t c = 0; c < N_COUNTS; c++) {
            for (size_t start = 0; start <= size; start += size) {
                check_one(lsi_reduce_get_level(level, dtype, op), start, counts[c],
                          counts[c] * size);
                check_two(lsi_reduce_two_get_level(level, dtype, op), start, counts[c],
                          counts[c] * size);
            }
        }
    }
}

static void test_kernels(void **unused)
{
    (void)unused;
    for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < LS_OP_COUNT; op++) {
            if (ls_op_supports((ls_op)op, (ls_dtype)dtype))
                check_kernel((ls_dtype)dtype, (ls_op)op);
        }
    }
}

/* Four operands at once equal three operations, at every level. */
static void test_four(void **unused)
{
    (void)unused;
    lsi_reduce_fn sum = lsi_reduce_get(LS_F32, LS_SUM);
    fill(left0, LS_F32, 2 * MAX_COUNT);
    fill(right0, LS_F32, 2 * MAX_COUNT);
    const unsigned char *a = left0, *b = right0, *c = left0 + 4 * MAX_COUNT,
                        *d = right0 + 4 * MAX_COUNT;
    sum(out0, a, b, MAX_COUNT);
    sum(out1, c, d, MAX_COUNT);
    sum(expected, out0, out1, MAX_COUNT);
    for (int level = 0; level < lsi_reduce_levels(); level++) {
        lsi_reduce_four_fn four = lsi_reduce_four_get_level(level, LS_F32, LS_SUM);
        for (size_t i = 0; i < N_COUNTS; i++) {
            memset(left, 0xa5, 4 * MAX_COUNT);
            memcpy(right, d, 4 * MAX_COUNT);
            four(left, a, b, c, d, counts[i]);
            four(right, a, b, c, right, counts[i]); /* in place */
            assert_memory_equal(left, expected, 4 * counts[i]);
            assert_memory_equal(right, expected, 4 * counts[i]);
            if (counts[i] < MAX_COUNT)
                assert_int_equal(left[4 * counts[i]], 0xa5);
        }
    }
    assert_null(lsi_reduce_four_get(LS_F32, LS_PROD));
    assert_null(lsi_reduce_four_get(LS_F64, LS_SUM));
}

static void test_undefined(void **unused)
{
    (void)unused;
    const ls_dtype floats[] = {LS_F32, LS_F64, LS_BF16, LS_F16};
    for (int i = 0; i < 4; i++) {
        assert_null(lsi_reduce_get(floats[i], LS_BAND));
        assert_null(lsi_reduce_two_get(floats[i], LS_BOR));
    }
    assert_null(lsi_reduce_get(LS_DTYPE_COUNT, LS_SUM));
    assert_null(lsi_reduce_get(LS_I8, LS_OP_COUNT));
    assert_string_equal(lsi_reduce_level_name(0), "plain");
    assert_string_equal(lsi_reduce_level_name(-1), "?");
    assert_string_equal(lsi_reduce_level_name(lsi_reduce_levels()), "?");
}

/* Every 16-bit value with each of `special`, on both sides. */
static void check_special(ls_dtype dtype, const uint16_t *special, size_t n)
{
    uint16_t *all = (uint16_t *)left0, *same = (uint16_t *)right0;
    for (unsigned i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (size_t k = 0; k < 2 * n; k++) {
        for (int i = 0; i < 65536; i++)
            same[i] = special[k / 2];
        const void *l = k % 2 ? same : all, *r = k % 2 ? all : same;
        for (ls_op op = LS_SUM; op <= LS_MAX; op++) {
            for (size_t i = 0; i < 65536; i++)
                reference(dtype, op, expected, l, r, i);
            for (int level = 0; level < lsi_reduce_levels(); level++) {
                lsi_reduce_get_level(level, dtype, op)(out0, l, r, 65536);
                assert_memory_equal(out0, expected, 65536 * 2);
            }
        }
    }
}

static void test_special_values(void **unused)
{
    (void)unused;
    /* zeros, least denormals, largest denormal, least normal, one and its neighbours, largest,
     * infinities, quiet and signalling NaN, a power that makes ties */
    static const uint16_t f16[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc01,
                                   0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0x4c00};
    static const uint16_t bf16[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x3f80, 0xbf81,
                                    0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0x4300};
    check_special(LS_F16, f16, sizeof f16 / sizeof *f16);
    check_special(LS_BF16, bf16, sizeof bf16 / sizeof *bf16);
}

/* A few results that must hold whatever the reference above thinks. */
static void test_spot_values(void **unused)
{
    (void)unused;
    const struct {
        ls_dtype dtype;
        ls_op op;
        uint16_t a, b, result;
    } cases[] = {
        {LS_F16, LS_SUM, 0x7bff, 0x4c00, 0x7c00},  /* 65504 + 16 is a tie and goes to infinity */
        {LS_F16, LS_SUM, 0x7bff, 0x4bff, 0x7bff},  /* a little less stays */
        {LS_F16, LS_SUM, 0x0001, 0x0001, 0x0002},  /* denormals add up */
        {LS_F16, LS_PROD, 0x0001, 0x3800, 0x0000}, /* half of the least: tie, to even */
        {LS_F16, LS_SUM, 0x7c00, 0xfc00, 0x7e00},  /* infinity - infinity */
        {LS_F16, LS_MIN, 0x8000, 0x0000, 0x0000},  /* equals: the right one */
        {LS_BF16, LS_SUM, 0x7f7f, 0x7f7f, 0x7f80}, /* overflow */
        {LS_BF16, LS_SUM, 0x3f80, 0x3b80, 0x3f80}, /* 1 + 2^-8 is a tie, to even */
        {LS_BF16, LS_SUM, 0x3f81, 0x3b80, 0x3f82}, /* and upwards */
        {LS_BF16, LS_MAX, 0xffff, 0x3f80, 0x7fc0}, /* NaN wins and is canonical */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t result = 0;
        lsi_reduce_get(cases[i].dtype, cases[i].op)(&result, &cases[i].a, &cases[i].b, 1);
        assert_int_equal(result, cases[i].result);
    }
}

static void test_names(void **unused)
{
    (void)unused;
    for (int i = 0; i < LS_DTYPE_COUNT; i++) {
        ls_dtype dtype = LS_DTYPE_COUNT;
        assert_int_equal(ls_dtype_parse(ls_dtype_name((ls_dtype)i), &dtype), LS_OK);
        assert_int_equal(dtype, i);
    }
    for (int i = 0; i < LS_OP_COUNT; i++) {
        ls_op op = LS_OP_COUNT;
        assert_int_equal(ls_op_parse(ls_op_name((ls_op)i), &op), LS_OK);
        assert_int_equal(op, i);
    }
    ls_dtype dtype = LS_F64;
    ls_op op = LS_MAX;
    assert_int_equal(ls_dtype_parse("f8", &dtype), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "bf16"));
    assert_int_equal(ls_op_parse(NULL, &op), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "band"));
    assert_int_equal(dtype, LS_F64);
    assert_int_equal(op, LS_MAX);
    assert_int_equal(ls_dtype_size(LS_BF16), 2);
    assert_int_equal(ls_dtype_size((ls_dtype)-1), 0);
    assert_string_equal(ls_dtype_name(LS_DTYPE_COUNT), "?");
    assert_string_equal(ls_op_name((ls_op)-1), "?");
    assert_false(ls_op_supports(LS_BAND, LS_F16));
    assert_true(ls_op_supports(LS_BAND, LS_U8));
}

static int setup(void **unused)
{
    (void)unused;
    unsigned char **buffers[] = {&left0, &right0, &left, &right, &out0, &out1, &expected};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        *buffers[i] = aligned_alloc(64, (MAX_BYTES + 63) / 64 * 64);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    unsigned char *buffers[] = {left0, right0, left, right, out0, out1, expected};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),     cmocka_unit_test(test_undefined),
        cmocka_unit_test(test_four),        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_spot_values), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* The oracle: patterns and their reduction in tree order. */
#include "values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static values *all[LS_DTYPE_COUNT][LS_OP_COUNT][KINDS];

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int is_float(ls_dtype dtype)
{
    return dtype == LS_F32 || dtype == LS_F64 || dtype == LS_BF16 || dtype == LS_F16;
}

int values_has_wild(ls_dtype dtype, ls_op op)
{
    return is_float(dtype) && (op == LS_SUM || op == LS_PROD);
}

/* A 16-bit float of `fraction` bits and exponent bias `bias`, by arithmetic. */
static double from_16(unsigned bits, int fraction, int bias)
{
    unsigned mantissa = bits & ((1u << fraction) - 1);
    int exponent = (int)(bits >> fraction) & (2 * bias + 1);
    double x;
    if (exponent == 0)
        x = ldexp(mantissa, 1 - bias - fraction);
    else if (exponent == 2 * bias + 1)
        x = mantissa ? (double)NAN : (double)INFINITY;
    else
        x = ldexp(mantissa + (1u << fraction), exponent - bias - fraction);
    return bits & 0x8000u ? -x : x;
}

static unsigned to_16(double x, int fraction, int bias)
{
    unsigned sign = signbit(x) ? 0x8000u : 0, infinity = (2u * (unsigned)bias + 1) << fraction;
    int exponent = x == 0 ? 1 - bias : ilogb(x);
    if (exponent < 1 - bias)
        exponent = 1 - bias;
    double scaled = nearbyint(ldexp(fabs(x), fraction - exponent)); /* to nearest even */
    if (!(ldexp(scaled, exponent - fraction) < ldexp(1, bias + 1)))
        return sign | infinity;
    /* A carry out of the mantissa moves into the exponent by itself. */
    unsigned normal = scaled >= ldexp(1, fraction) ? 1 : 0;
    unsigned biased = (unsigned)(exponent + bias - 1) + normal;
    return sign | ((biased << fraction) + (unsigned)scaled - (normal << fraction));
}

static double get_float(ls_dtype dtype, const void *p)
{
    uint16_t half;
    float single;
    double x;
    switch (dtype) {
    case LS_F32: memcpy(&single, p, sizeof single); return single;
    case LS_F64: memcpy(&x, p, sizeof x); return x;
    case LS_BF16: memcpy(&half, p, sizeof half); return from_16(half, 7, 127);
    default: memcpy(&half, p, sizeof half); return from_16(half, 10, 15);
    }
}

static void put_float(ls_dtype dtype, double x, void *p)
{
    uint16_t half;
    float single = (float)x;
    switch (dtype) {
    case LS_F32: memcpy(p, &single, sizeof single); break;
    case LS_F64: memcpy(p, &x, sizeof x); break;
    case LS_BF16:
        half = (uint16_t)to_16(x, 7, 127);
        memcpy(p, &half, sizeof half);
        break;
    default: half = (uint16_t)to_16(x, 10, 15); memcpy(p, &half, sizeof half);
    }
}

/* Sums and products of two f32 or 16-bit floats are rounded once: double holds them exactly or
 * with more than twice the bits, so that the second rounding changes nothing. */
static void combine_float(ls_dtype dtype, ls_op op, const void *a, const void *b, void *out)
{
    double x = get_float(dtype, a), y = get_float(dtype, b);
    switch (op) {
    case LS_SUM: put_float(dtype, x + y, out); break;
    case LS_PROD: put_float(dtype, x * y, out); break;
    case LS_MIN: put_float(dtype, x < y ? x : y, out); break;
    default: put_float(dtype, x > y ? x : y, out);
    }
}

static int64_t get_int(ls_dtype dtype, const void *p)
{
    int8_t i8;
    uint8_t u8;
    int32_t i32;
    int64_t i64;
    switch (dtype) {
    case LS_I8: memcpy(&i8, p, sizeof i8); return i8;
    case LS_U8: memcpy(&u8, p, sizeof u8); return u8;
    case LS_I32: memcpy(&i32, p, sizeof i32); return i32;
    default: memcpy(&i64, p, sizeof i64); return i64;
    }
}

void values_combine(ls_dtype dtype, ls_op op, const void *a, const void *b, void *out)
{
    if (is_float(dtype)) {
        combine_float(dtype, op, a, b, out);
        return;
    }
    int64_t x = get_int(dtype, a), y = get_int(dtype, b);
    uint64_t result = 0;
    switch (op) {
    case LS_SUM: result = (uint64_t)x + (uint64_t)y; break;
    case LS_PROD: result = (uint64_t)x * (uint64_t)y; break;
    case LS_MIN: result = (uint64_t)(x < y ? x : y); break;
    case LS_MAX: result = (uint64_t)(x > y ? x : y); break;
    case LS_BAND: result = (uint64_t)x & (uint64_t)y; break;
    default: result = (uint64_t)x | (uint64_t)y;
    }
    memcpy(out, &result, ls_dtype_size(dtype)); /* little endian: the low bytes */
}

/* One element of a rank's input. */
static void make_element(ls_dtype dtype, ls_op op, values_kind kind, int rank, size_t i, void *out)
{
    uint64_t r = mix(mix((uint64_t)rank * 1000003u + i) + (uint64_t)dtype * 64 + (uint64_t)op * 8 +
                     (uint64_t)kind);
    if (!is_float(dtype)) {
        memcpy(out, &r, ls_dtype_size(dtype));
        return;
    }
    double unit = 1 + (double)(r >> 12) * 0x1p-52, sign = r & 1 ? -1 : 1, x;
    if (op == LS_MIN || op == LS_MAX)
        x = sign * ldexp(unit, (int)(r >> 1 & 15) - 8);
    else if (op == LS_PROD)
        x = kind == WILD ? sign * unit * 0.75 : sign * ldexp(1, (int)(r >> 1 & 3) % 3 - 1);
    else
        x = kind == WILD ? sign * ldexp(unit, (int)(r >> 1 & 15) - 6) : (double)(r >> 1 & 15) - 7.5;
    put_float(dtype, x, out);
}

/* The node of the tree over ranks [0, size) that covers [first, first + span). */
static void tree(const values *v, int size, int first, int span, size_t i, void *out)
{
    if (span == 1) {
        memcpy(out, v->input[first] + i * v->element, v->element);
        return;
    }
    unsigned char left[8], right[8];
    tree(v, size, first, span / 2, i, left);
    if (first + span / 2 >= size) {
        memcpy(out, left, v->element);
        return;
    }
    tree(v, size, first + span / 2, span / 2, i, right);
    values_combine(v->dtype, v->op, left, right, out);
}

const values *values_get(ls_dtype dtype, ls_op op, values_kind kind, int size)
{
    values *v = all[dtype][op][kind];
    if (!v) {
        v = all[dtype][op][kind] = calloc(1, sizeof *v);
        *v = (values){.dtype = dtype, .op = op, .kind = kind, .element = ls_dtype_size(dtype)};
    }
    for (int r = 0; r < size; r++) {
        if (v->input[r])
            continue;
        v->input[r] = malloc(PERIOD * v->element);
        for (size_t i = 0; i < PERIOD; i++)
            make_element(dtype, op, kind, r, i, v->input[r] + i * v->element);
    }
    if (!v->expected[size - 1]) {
        int span = 1;
        while (span < size)
            span *= 2;
        unsigned char *expected = v->expected[size - 1] = malloc(PERIOD * v->element);
        for (size_t i = 0; i < PERIOD; i++)
            tree(v, size, 0, span, i, expected + i * v->element);
    }
    return v;
}

void values_free(void)
{
    for (int i = 0; i < LS_DTYPE_COUNT * LS_OP_COUNT * KINDS; i++) {
        values *v = (&all[0][0][0])[i];
        for (int r = 0; v && r < VALUES_RANKS; r++) {
            free(v->input[r]);
            free(v->expected[r]);
        }
        free(v);
        (&all[0][0][0])[i] = NULL;
    }
}

void values_fill_from(void *to, const void *pattern, size_t element, size_t from, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t at = (from + done) % PERIOD, n = PERIOD - at;
        if (n > count - done)
            n = count - done;
        memcpy((char *)to + done * element, (const char *)pattern + at * element, n * element);
        done += n;
    }
}

void values_fill(void *to, const void *pattern, size_t element, size_t count)
{
    values_fill_from(to, pattern, element, 0, count);
}

size_t values_differ(const void *at, const void *pattern, size_t element, size_t from, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t start = (from + done) % PERIOD, n = PERIOD - start;
        if (n > count - done)
            n = count - done;
        const char *got = (const char *)at + done * element;
        const char *want = (const char *)pattern + start * element;
        if (memcmp(got, want, n * element) != 0) {
            while (memcmp(got, want, element) == 0) {
                got += element;
                want += element;
            }
            return (size_t)(got - (const char *)at) / element;
        }
        done += n;
    }
    return count;
}

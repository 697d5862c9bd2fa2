/* The inline functions of the cpu kernels, made callable; compiled for each instruction set. */
#include "vec_table.h"

#include "device/vec_double.h"
#include "device/vec_math.h"
#include "device/vec_philox.h"
#include "device/vec_transpose.h"

static v16 one(vec_function function, v16 x)
{
    switch (function) {
    case VEC_EXP: return v16_exp(x);
    case VEC_EXPM1: return v16_expm1_negative(x);
    case VEC_LOG: return v16_log(x);
    case VEC_LOG1P: return v16_log1p_unit(x);
    case VEC_TANH: return v16_tanh(x);
    case VEC_SIGMOID: return v16_sigmoid(x);
    case VEC_ERF: return v16_erf(x);
    case VEC_FUNCTIONS: break;
    }
    return x;
}

static void apply(vec_function function, size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i += 16)
        v16_store(y + i, one(function, v16_load(x + i)));
}

static void philox(const lsi_dropout *dropout, size_t sample, uint64_t block, uint32_t out[32])
{
    const lsi_stream stream = lsi_dropout_stream(dropout, sample);
    w16 words[2];
    w16_philox(&stream, block, words);
    w16_store(out, words[0]);
    w16_store(out + 16, words[1]);
}

static void transpose(const float x[16][16], float y[16][16])
{
    v16 tile[16];
    for (int i = 0; i < 16; i++)
        tile[i] = v16_load(x[i]);
    v16_transpose(tile);
    for (int i = 0; i < 16; i++)
        v16_store(y[i], tile[i]);
}

static double sum(size_t n, const float *x)
{
    d16 total = d16_zero();
    for (size_t i = 0; i < n; i += 16)
        total = d16_add_floats(total, v16_load(x + i));
    return d16_sum(total);
}

static void first(size_t n, const float x[16], const float y[16], float out[16])
{
    v16_store(out, v16_first(n, v16_load(x), v16_load(y)));
}

static void choose(const float x[16], const float y[16], float max[16], float min[16],
                   float greater[16])
{
    const v16 a = v16_load(x), b = v16_load(y);
    v16_store(max, v16_max(a, b));
    v16_store(min, v16_min(a, b));
    v16_store(greater, v16_if_gt(a, b, a, b));
}

static float largest(const float x[16])
{
    return v16_max_lane(v16_load(x));
}

static void row_sums(const float x[16][16], float sums[16])
{
    for (int i = 0; i < 16; i++)
        sums[i] = v16_sum(v16_load(x[i]));
}

static void copy(size_t n, const float *from, float *to, float out[16])
{
    const v16 a = v16_load_n(from, n);
    v16_store_n(to, a, n);
    v16_store(out, a);
}

const vec_table LSI_K(vec_table) = {
    .apply = apply,
    .philox = philox,
    .transpose = transpose,
    .sum = sum,
    .first = first,
    .choose = choose,
    .largest = largest,
    .row_sums = row_sums,
    .copy = copy,
};

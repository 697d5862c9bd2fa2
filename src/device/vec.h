/* Sixteen floats, the same on every instruction set.
 *
 * The cpu kernels are written once on these and compiled once for each instruction set, with
 * LSI_ISA naming it (meson.build). One zmm register, two ymm, four of NEON (vec_neon.h; the build
 * asks for it with LSI_VEC_NEON, as all aarch64 has it), or what the compiler makes of it.
 *
 * 1. Every function gives the same bits on every set, NaN payloads aside: each is one IEEE
 *    operation a lane, in a fixed order. A fused multiply-add is fused everywhere (in plain code it
 *    may be a slow call), and the compiler contracts nothing (-ffp-contract=off).
 * 2. v16_max(a, b) is a > b ? a : b, v16_min(a, b) is a < b ? a : b: of a NaN and a number, b.
 * 3. The partial forms touch n <= 16 floats of memory and no more; missing lanes load as zero.
 *
 * vec_math.h has exp, tanh and the like.
 */
#ifndef LSI_DEVICE_VEC_H
#define LSI_DEVICE_VEC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The name of a function that every instruction set has its own of. */
#define LSI_ISA_PASTE2(isa, name) lsi_##isa##_##name
#define LSI_ISA_PASTE(isa, name) LSI_ISA_PASTE2(isa, name)
#define LSI_K(name) LSI_ISA_PASTE(LSI_ISA, name)

/* Plain code is left to the compiler: sixteen lanes of scalar code in line everywhere would take it
 * minutes. */
#if defined(__AVX2__) || defined(LSI_VEC_NEON)
#define LSI_VEC static inline __attribute__((always_inline))
#else
#define LSI_VEC static inline
#endif

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <immintrin.h>
#define LSI_VEC_AVX512 1
typedef __m512 v16;

LSI_VEC v16 v16_set1(float x)
{
    return _mm512_set1_ps(x);
}
LSI_VEC v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
LSI_VEC void v16_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}
LSI_VEC v16 v16_load_n(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
LSI_VEC void v16_store_n(float *p, v16 a, size_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}
LSI_VEC v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
LSI_VEC v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}
LSI_VEC v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
LSI_VEC v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}
LSI_VEC v16 v16_sqrt(v16 a)
{
    return _mm512_sqrt_ps(a);
}
/* a b + c, one rounding. */
LSI_VEC v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* c - a b, one rounding. */
LSI_VEC v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
LSI_VEC v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
LSI_VEC v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}
LSI_VEC v16 v16_abs(v16 a)
{
    return _mm512_abs_ps(a);
}
/* Lane by lane a > b ? x : y; false for a NaN. */
LSI_VEC v16 v16_if_gt(v16 a, v16 b, v16 x, v16 y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
}
/* Lanes below n from x, the others from y. */
LSI_VEC v16 v16_first(size_t n, v16 x, v16 y)
{
    return _mm512_mask_blend_ps((__mmask16)((1u << n) - 1), y, x);
}
/* Lanes folded 8, 4, 2, 1: lane l takes lane l + half. */
LSI_VEC float v16_sum(v16 a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
LSI_VEC float v16_max_lane(v16 a)
{
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define LSI_VEC_AVX2 1
typedef struct v16 {
    __m256 l, h;
} v16;

#define LSI_V16_BINARY(name, call)                                                                 \
    LSI_VEC v16 name(v16 a, v16 b)                                                                 \
    {                                                                                              \
        return (v16){call(a.l, b.l), call(a.h, b.h)};                                              \
    }
LSI_V16_BINARY(v16_add, _mm256_add_ps)
LSI_V16_BINARY(v16_sub, _mm256_sub_ps)
LSI_V16_BINARY(v16_mul, _mm256_mul_ps)
LSI_V16_BINARY(v16_div, _mm256_div_ps)
LSI_V16_BINARY(v16_max, _mm256_max_ps)
LSI_V16_BINARY(v16_min, _mm256_min_ps)

LSI_VEC v16 v16_set1(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
LSI_VEC v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
LSI_VEC void v16_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.l);
    _mm256_storeu_ps(p + 8, a.h);
}
LSI_VEC __m256i v16_mask(size_t n) /* the first n of eight lanes; n may exceed 8 */
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes);
}
LSI_VEC v16 v16_load_n(const float *p, size_t n)
{
    v16 r = {_mm256_maskload_ps(p, v16_mask(n)), _mm256_setzero_ps()};
    if (n > 8)
        r.h = _mm256_maskload_ps(p + 8, v16_mask(n - 8));
    return r;
}
LSI_VEC void v16_store_n(float *p, v16 a, size_t n)
{
    _mm256_maskstore_ps(p, v16_mask(n), a.l);
    if (n > 8)
        _mm256_maskstore_ps(p + 8, v16_mask(n - 8), a.h);
}
LSI_VEC v16 v16_sqrt(v16 a)
{
    return (v16){_mm256_sqrt_ps(a.l), _mm256_sqrt_ps(a.h)};
}
LSI_VEC v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.l, b.l, c.l), _mm256_fmadd_ps(a.h, b.h, c.h)};
}
LSI_VEC v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fnmadd_ps(a.l, b.l, c.l), _mm256_fnmadd_ps(a.h, b.h, c.h)};
}
LSI_VEC v16 v16_abs(v16 a)
{
    const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return (v16){_mm256_and_ps(a.l, m), _mm256_and_ps(a.h, m)};
}
LSI_VEC v16 v16_if_gt(v16 a, v16 b, v16 x, v16 y)
{
    return (v16){_mm256_blendv_ps(y.l, x.l, _mm256_cmp_ps(a.l, b.l, _CMP_GT_OQ)),
                 _mm256_blendv_ps(y.h, x.h, _mm256_cmp_ps(a.h, b.h, _CMP_GT_OQ))};
}
LSI_VEC v16 v16_first(size_t n, v16 x, v16 y)
{
    const __m256 l = _mm256_castsi256_ps(v16_mask(n));
    const __m256 h = _mm256_castsi256_ps(v16_mask(n > 8 ? n - 8 : 0));
    return (v16){_mm256_blendv_ps(y.l, x.l, l), _mm256_blendv_ps(y.h, x.h, h)};
}
LSI_VEC float v16_sum(v16 a)
{
    __m256 b = _mm256_add_ps(a.l, a.h);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
LSI_VEC float v16_max_lane(v16 a)
{
    __m256 b = _mm256_max_ps(a.l, a.h);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
}

#elif defined(LSI_VEC_NEON)
#include "device/vec_neon.h"

#else
typedef struct v16 {
    float f[16];
} v16;

#define LSI_V16_EACH(expression)                                                                   \
    v16 r;                                                                                         \
    for (int i = 0; i < 16; i++)                                                                   \
        r.f[i] = (expression);                                                                     \
    return r

LSI_VEC v16 v16_set1(float x)
{
    LSI_V16_EACH(x);
}
LSI_VEC v16 v16_load(const float *p)
{
    LSI_V16_EACH(p[i]);
}
LSI_VEC void v16_store(float *p, v16 a)
{
    memcpy(p, a.f, sizeof a.f);
}
LSI_VEC v16 v16_load_n(const float *p, size_t n)
{
    LSI_V16_EACH((size_t)i < n ? p[i] : 0.0f);
}
LSI_VEC void v16_store_n(float *p, v16 a, size_t n)
{
    for (size_t i = 0; i < n && i < 16; i++)
        p[i] = a.f[i];
}
LSI_VEC v16 v16_add(v16 a, v16 b)
{
    LSI_V16_EACH(a.f[i] + b.f[i]);
}
LSI_VEC v16 v16_sub(v16 a, v16 b)
{
    LSI_V16_EACH(a.f[i] - b.f[i]);
}
LSI_VEC v16 v16_mul(v16 a, v16 b)
{
    LSI_V16_EACH(a.f[i] * b.f[i]);
}
LSI_VEC v16 v16_div(v16 a, v16 b)
{
    LSI_V16_EACH(a.f[i] / b.f[i]);
}
LSI_VEC v16 v16_sqrt(v16 a)
{
    LSI_V16_EACH(sqrtf(a.f[i]));
}
LSI_VEC v16 v16_fma(v16 a, v16 b, v16 c)
{
    LSI_V16_EACH(fmaf(a.f[i], b.f[i], c.f[i]));
}
LSI_VEC v16 v16_fnma(v16 a, v16 b, v16 c)
{
    LSI_V16_EACH(fmaf(-a.f[i], b.f[i], c.f[i]));
}
LSI_VEC v16 v16_max(v16 a, v16 b)
{
    LSI_V16_EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}
LSI_VEC v16 v16_min(v16 a, v16 b)
{
    LSI_V16_EACH(a.f[i] < b.f[i] ? a.f[i] : b.f[i]);
}
LSI_VEC v16 v16_abs(v16 a)
{
    LSI_V16_EACH(fabsf(a.f[i]));
}
LSI_VEC v16 v16_if_gt(v16 a, v16 b, v16 x, v16 y)
{
    LSI_V16_EACH(a.f[i] > b.f[i] ? x.f[i] : y.f[i]);
}
LSI_VEC v16 v16_first(size_t n, v16 x, v16 y)
{
    LSI_V16_EACH((size_t)i < n ? x.f[i] : y.f[i]);
}
LSI_VEC float v16_sum(v16 a)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            a.f[i] += a.f[i + half];
    return a.f[0];
}
LSI_VEC float v16_max_lane(v16 a)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            a.f[i] = a.f[i] > a.f[i + half] ? a.f[i] : a.f[i + half];
    return a.f[0];
}
#endif

LSI_VEC v16 v16_zero(void)
{
    return v16_set1(0.0f);
}
/* The two forms of a load and a store under one name: where n is the constant 16 they are the whole
 * ones, so that one inline body serves the main loop and the tail. */
LSI_VEC v16 v16_get(const float *p, size_t n)
{
    return n == 16 ? v16_load(p) : v16_load_n(p, n);
}
LSI_VEC void v16_put(float *p, v16 a, size_t n)
{
    if (n == 16)
        v16_store(p, a);
    else
        v16_store_n(p, a, n);
}
/* Calls body(…, at, width) for n elements: sixteen at a time, then what is left. */
#define V16_FOR_EACH(n, body, ...)                                                                 \
    do {                                                                                           \
        size_t v16_at = 0;                                                                         \
        for (; v16_at + 16 <= (n); v16_at += 16)                                                   \
            body(__VA_ARGS__, v16_at, 16);                                                         \
        if (v16_at < (n))                                                                          \
            body(__VA_ARGS__, v16_at, (n)-v16_at);                                                 \
    } while (0)

#endif

/* Sixteen 32-bit words beside the sixteen floats of vec.h: bit patterns, small whole numbers.
 *
 * vec_math.h takes floats apart with these, the pooling kernels carry places along. One zmm
 * register, two ymm, four of NEON, or an array, as for v16.
 *
 * 1. Arithmetic is modulo 2^32, the same on every instruction set; floats and words of a lane share
 *    its bits (v16_words and w16_floats are casts, not conversions).
 * 2. The partial forms touch n <= 16 words of memory and no more; missing lanes load as zero.
 */
#ifndef LSI_DEVICE_VEC_WORDS_H
#define LSI_DEVICE_VEC_WORDS_H

#include "device/vec.h"

#if defined(LSI_VEC_AVX512)
typedef __m512i w16;

LSI_VEC w16 w16_set1(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}
LSI_VEC w16 w16_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
LSI_VEC void w16_store(void *p, w16 a)
{
    _mm512_storeu_si512(p, a);
}
LSI_VEC void w16_store_n(void *p, w16 a, size_t n)
{
    _mm512_mask_storeu_epi32(p, (__mmask16)((1u << n) - 1), a);
}
LSI_VEC w16 v16_words(v16 a)
{
    return _mm512_castps_si512(a);
}
LSI_VEC v16 w16_floats(w16 a)
{
    return _mm512_castsi512_ps(a);
}
LSI_VEC w16 w16_add(w16 a, w16 b)
{
    return _mm512_add_epi32(a, b);
}
LSI_VEC w16 w16_sub(w16 a, w16 b)
{
    return _mm512_sub_epi32(a, b);
}
LSI_VEC w16 w16_and(w16 a, w16 b)
{
    return _mm512_and_si512(a, b);
}
LSI_VEC w16 w16_or(w16 a, w16 b)
{
    return _mm512_or_si512(a, b);
}
LSI_VEC w16 w16_xor(w16 a, w16 b)
{
    return _mm512_xor_si512(a, b);
}
LSI_VEC w16 w16_shift_left(w16 a, unsigned by)
{
    return _mm512_slli_epi32(a, by);
}
/* Copies of the sign bit move in from the left. */
LSI_VEC w16 w16_shift_right(w16 a, unsigned by)
{
    return _mm512_srai_epi32(a, by);
}
/* Of signed words, to the nearest float. */
LSI_VEC v16 w16_to_float(w16 a)
{
    return _mm512_cvtepi32_ps(a);
}
/* Lane by lane: words x where a > b, else y; y for a NaN. */
LSI_VEC w16 w16_if_gt(v16 a, v16 b, w16 x, w16 y)
{
    return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
}
/* Lane by lane: x where a < b as unsigned words, else y. */
LSI_VEC v16 v16_if_below(w16 a, w16 b, v16 x, v16 y)
{
    return _mm512_mask_blend_ps(_mm512_cmplt_epu32_mask(a, b), y, x);
}
/* Lane by lane: x where a == b as words, else y. */
LSI_VEC v16 v16_if_same(w16 a, w16 b, v16 x, v16 y)
{
    return _mm512_mask_blend_ps(_mm512_cmpeq_epi32_mask(a, b), y, x);
}

#elif defined(LSI_VEC_AVX2)
typedef struct w16 {
    __m256i l, h;
} w16;

#define LSI_W16_BINARY(name, call)                                                                 \
    LSI_VEC w16 name(w16 a, w16 b)                                                                 \
    {                                                                                              \
        return (w16){call(a.l, b.l), call(a.h, b.h)};                                              \
    }
LSI_W16_BINARY(w16_add, _mm256_add_epi32)
LSI_W16_BINARY(w16_sub, _mm256_sub_epi32)
LSI_W16_BINARY(w16_and, _mm256_and_si256)
LSI_W16_BINARY(w16_or, _mm256_or_si256)
LSI_W16_BINARY(w16_xor, _mm256_xor_si256)

LSI_VEC w16 w16_set1(uint32_t x)
{
    return (w16){_mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x)};
}
LSI_VEC w16 w16_load(const void *p)
{
    const __m256i *q = p;
    return (w16){_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
LSI_VEC void w16_store(void *p, w16 a)
{
    __m256i *q = p;
    _mm256_storeu_si256(q, a.l);
    _mm256_storeu_si256(q + 1, a.h);
}
LSI_VEC void w16_store_n(void *p, w16 a, size_t n)
{
    int *q = p;
    _mm256_maskstore_epi32(q, v16_mask(n), a.l);
    if (n > 8)
        _mm256_maskstore_epi32(q + 8, v16_mask(n - 8), a.h);
}
LSI_VEC w16 v16_words(v16 a)
{
    return (w16){_mm256_castps_si256(a.l), _mm256_castps_si256(a.h)};
}
LSI_VEC v16 w16_floats(w16 a)
{
    return (v16){_mm256_castsi256_ps(a.l), _mm256_castsi256_ps(a.h)};
}
LSI_VEC w16 w16_shift_left(w16 a, unsigned by)
{
    return (w16){_mm256_slli_epi32(a.l, (int)by), _mm256_slli_epi32(a.h, (int)by)};
}
LSI_VEC w16 w16_shift_right(w16 a, unsigned by)
{
    return (w16){_mm256_srai_epi32(a.l, (int)by), _mm256_srai_epi32(a.h, (int)by)};
}
LSI_VEC v16 w16_to_float(w16 a)
{
    return (v16){_mm256_cvtepi32_ps(a.l), _mm256_cvtepi32_ps(a.h)};
}
LSI_VEC w16 w16_if_gt(v16 a, v16 b, w16 x, w16 y)
{
    return v16_words(v16_if_gt(a, b, w16_floats(x), w16_floats(y)));
}
LSI_VEC v16 v16_if_below(w16 a, w16 b, v16 x, v16 y)
{
    const __m256i l = _mm256_cmpeq_epi32(_mm256_max_epu32(a.l, b.l), a.l); /* a >= b */
    const __m256i h = _mm256_cmpeq_epi32(_mm256_max_epu32(a.h, b.h), a.h);
    return (v16){_mm256_blendv_ps(x.l, y.l, _mm256_castsi256_ps(l)),
                 _mm256_blendv_ps(x.h, y.h, _mm256_castsi256_ps(h))};
}
LSI_VEC v16 v16_if_same(w16 a, w16 b, v16 x, v16 y)
{
    return (v16){_mm256_blendv_ps(y.l, x.l, _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.l, b.l))),
                 _mm256_blendv_ps(y.h, x.h, _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.h, b.h)))};
}

#elif defined(LSI_VEC_NEON)
typedef m16 w16;

LSI_VEC w16 w16_set1(uint32_t x)
{
    const uint32x4_t all = vdupq_n_u32(x);
    return (w16){{all, all, all, all}};
}
LSI_VEC w16 v16_words(v16 a)
{
    return LSI_NEON_1(w16, vreinterpretq_u32_f32, a);
}
LSI_VEC v16 w16_floats(w16 a)
{
    return LSI_NEON_1(v16, vreinterpretq_f32_u32, a);
}
/* Moved as floats: loads and stores change no bits. */
LSI_VEC w16 w16_load(const void *p)
{
    return v16_words(v16_load(p));
}
LSI_VEC void w16_store(void *p, w16 a)
{
    v16_store(p, w16_floats(a));
}
LSI_VEC void w16_store_n(void *p, w16 a, size_t n)
{
    v16_store_n(p, w16_floats(a), n);
}
LSI_VEC w16 w16_add(w16 a, w16 b)
{
    return LSI_NEON_2(w16, vaddq_u32, a, b);
}
LSI_VEC w16 w16_sub(w16 a, w16 b)
{
    return LSI_NEON_2(w16, vsubq_u32, a, b);
}
LSI_VEC w16 w16_and(w16 a, w16 b)
{
    return LSI_NEON_2(w16, vandq_u32, a, b);
}
LSI_VEC w16 w16_or(w16 a, w16 b)
{
    return LSI_NEON_2(w16, vorrq_u32, a, b);
}
LSI_VEC w16 w16_xor(w16 a, w16 b)
{
    return LSI_NEON_2(w16, veorq_u32, a, b);
}
/* The operators of the compiler: its intrinsics take constants only. */
LSI_VEC w16 w16_shift_left(w16 a, unsigned by)
{
    return (w16){{a.q[0] << by, a.q[1] << by, a.q[2] << by, a.q[3] << by}};
}
LSI_VEC uint32x4_t w16_shift_right_quarter(uint32x4_t a, unsigned by)
{
    return vreinterpretq_u32_s32(vreinterpretq_s32_u32(a) >> (int)by);
}
LSI_VEC w16 w16_shift_right(w16 a, unsigned by)
{
    return (w16){{w16_shift_right_quarter(a.q[0], by), w16_shift_right_quarter(a.q[1], by),
                  w16_shift_right_quarter(a.q[2], by), w16_shift_right_quarter(a.q[3], by)}};
}
LSI_VEC float32x4_t w16_to_float_quarter(uint32x4_t a)
{
    return vcvtq_f32_s32(vreinterpretq_s32_u32(a));
}
LSI_VEC v16 w16_to_float(w16 a)
{
    return LSI_NEON_1(v16, w16_to_float_quarter, a);
}
LSI_VEC w16 w16_if_gt(v16 a, v16 b, w16 x, w16 y)
{
    return v16_words(v16_if_gt(a, b, w16_floats(x), w16_floats(y)));
}
LSI_VEC v16 v16_if_below(w16 a, w16 b, v16 x, v16 y)
{
    const m16 below = LSI_NEON_2(m16, vcltq_u32, a, b);
    return LSI_NEON_3(v16, vbslq_f32, below, x, y);
}
LSI_VEC v16 v16_if_same(w16 a, w16 b, v16 x, v16 y)
{
    const m16 same = LSI_NEON_2(m16, vceqq_u32, a, b);
    return LSI_NEON_3(v16, vbslq_f32, same, x, y);
}

#else
typedef struct w16 {
    uint32_t u[16];
} w16;

#define LSI_W16_EACH(expression)                                                                   \
    w16 r;                                                                                         \
    for (int i = 0; i < 16; i++)                                                                   \
        r.u[i] = (expression);                                                                     \
    return r

LSI_VEC w16 w16_set1(uint32_t x)
{
    LSI_W16_EACH(x);
}
LSI_VEC w16 w16_load(const void *p)
{
    w16 r;
    memcpy(r.u, p, sizeof r.u);
    return r;
}
LSI_VEC void w16_store(void *p, w16 a)
{
    memcpy(p, a.u, sizeof a.u);
}
LSI_VEC void w16_store_n(void *p, w16 a, size_t n)
{
    memcpy(p, a.u, n * sizeof *a.u);
}
LSI_VEC w16 v16_words(v16 a)
{
    w16 r;
    memcpy(r.u, a.f, sizeof r.u);
    return r;
}
LSI_VEC v16 w16_floats(w16 a)
{
    v16 r;
    memcpy(r.f, a.u, sizeof r.f);
    return r;
}
LSI_VEC w16 w16_add(w16 a, w16 b)
{
    LSI_W16_EACH(a.u[i] + b.u[i]);
}
LSI_VEC w16 w16_sub(w16 a, w16 b)
{
    LSI_W16_EACH(a.u[i] - b.u[i]);
}
LSI_VEC w16 w16_and(w16 a, w16 b)
{
    LSI_W16_EACH(a.u[i] & b.u[i]);
}
LSI_VEC w16 w16_or(w16 a, w16 b)
{
    LSI_W16_EACH(a.u[i] | b.u[i]);
}
LSI_VEC w16 w16_xor(w16 a, w16 b)
{
    LSI_W16_EACH(a.u[i] ^ b.u[i]);
}
LSI_VEC w16 w16_shift_left(w16 a, unsigned by)
{
    LSI_W16_EACH(a.u[i] << by);
}
LSI_VEC w16 w16_shift_right(w16 a, unsigned by)
{
    LSI_W16_EACH((uint32_t)((int32_t)a.u[i] >> by));
}
LSI_VEC v16 w16_to_float(w16 a)
{
    LSI_V16_EACH((float)(int32_t)a.u[i]);
}
LSI_VEC w16 w16_if_gt(v16 a, v16 b, w16 x, w16 y)
{
    LSI_W16_EACH(a.f[i] > b.f[i] ? x.u[i] : y.u[i]);
}
LSI_VEC v16 v16_if_below(w16 a, w16 b, v16 x, v16 y)
{
    LSI_V16_EACH(a.u[i] < b.u[i] ? x.f[i] : y.f[i]);
}
LSI_VEC v16 v16_if_same(w16 a, w16 b, v16 x, v16 y)
{
    LSI_V16_EACH(a.u[i] == b.u[i] ? x.f[i] : y.f[i]);
}
#endif

#endif

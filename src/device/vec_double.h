/* Sixteen doubles that sixteen floats are added to: sums that must not lose what f32 would.
 *
 * 1. Lane l of the sum belongs to lane l of the floats; the fold at the end is that of v16_sum:
 *    lanes 8, 4, 2, 1 apart. The same bits on every instruction set.
 */
#ifndef LSI_DEVICE_VEC_DOUBLE_H
#define LSI_DEVICE_VEC_DOUBLE_H

#include "device/vec.h"

#if defined(LSI_VEC_AVX512)
typedef struct d16 {
    __m512d l, h;
} d16;

LSI_VEC d16 d16_zero(void)
{
    return (d16){_mm512_setzero_pd(), _mm512_setzero_pd()};
}
LSI_VEC d16 d16_add(d16 a, d16 b)
{
    return (d16){_mm512_add_pd(a.l, b.l), _mm512_add_pd(a.h, b.h)};
}
LSI_VEC d16 d16_from(v16 x)
{
    return (d16){_mm512_cvtps_pd(_mm512_castps512_ps256(x)),
                 _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))};
}
LSI_VEC double d16_sum(d16 a)
{
    __m512d b = _mm512_add_pd(a.l, a.h);
    __m256d c = _mm256_add_pd(_mm512_castpd512_pd256(b), _mm512_extractf64x4_pd(b, 1));
    __m128d d = _mm_add_pd(_mm256_castpd256_pd128(c), _mm256_extractf128_pd(c, 1));
    return _mm_cvtsd_f64(_mm_add_sd(d, _mm_unpackhi_pd(d, d)));
}

#elif defined(LSI_VEC_AVX2)
typedef struct d16 {
    __m256d q[4];
} d16;

LSI_VEC d16 d16_zero(void)
{
    return (d16){
        {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()}};
}
LSI_VEC d16 d16_add(d16 a, d16 b)
{
    return (d16){{_mm256_add_pd(a.q[0], b.q[0]), _mm256_add_pd(a.q[1], b.q[1]),
                  _mm256_add_pd(a.q[2], b.q[2]), _mm256_add_pd(a.q[3], b.q[3])}};
}
LSI_VEC d16 d16_from(v16 x)
{
    return (d16){{_mm256_cvtps_pd(_mm256_castps256_ps128(x.l)),
                  _mm256_cvtps_pd(_mm256_extractf128_ps(x.l, 1)),
                  _mm256_cvtps_pd(_mm256_castps256_ps128(x.h)),
                  _mm256_cvtps_pd(_mm256_extractf128_ps(x.h, 1))}};
}
LSI_VEC double d16_sum(d16 a)
{
    __m256d c = _mm256_add_pd(_mm256_add_pd(a.q[0], a.q[2]), _mm256_add_pd(a.q[1], a.q[3]));
    __m128d d = _mm_add_pd(_mm256_castpd256_pd128(c), _mm256_extractf128_pd(c, 1));
    return _mm_cvtsd_f64(_mm_add_sd(d, _mm_unpackhi_pd(d, d)));
}

#elif defined(LSI_VEC_NEON)
typedef struct d16 {
    float64x2_t p[8];
} d16;

LSI_VEC d16 d16_zero(void)
{
    const float64x2_t zero = vdupq_n_f64(0.0);
    return (d16){{zero, zero, zero, zero, zero, zero, zero, zero}};
}
LSI_VEC d16 d16_add(d16 a, d16 b)
{
    return (d16){{vaddq_f64(a.p[0], b.p[0]), vaddq_f64(a.p[1], b.p[1]), vaddq_f64(a.p[2], b.p[2]),
                  vaddq_f64(a.p[3], b.p[3]), vaddq_f64(a.p[4], b.p[4]), vaddq_f64(a.p[5], b.p[5]),
                  vaddq_f64(a.p[6], b.p[6]), vaddq_f64(a.p[7], b.p[7])}};
}
LSI_VEC d16 d16_from(v16 x)
{
    return (d16){{vcvt_f64_f32(vget_low_f32(x.q[0])), vcvt_high_f64_f32(x.q[0]),
                  vcvt_f64_f32(vget_low_f32(x.q[1])), vcvt_high_f64_f32(x.q[1]),
                  vcvt_f64_f32(vget_low_f32(x.q[2])), vcvt_high_f64_f32(x.q[2]),
                  vcvt_f64_f32(vget_low_f32(x.q[3])), vcvt_high_f64_f32(x.q[3])}};
}
LSI_VEC double d16_sum(d16 a)
{
    const float64x2_t b = vaddq_f64(vaddq_f64(a.p[0], a.p[4]), vaddq_f64(a.p[2], a.p[6]));
    const float64x2_t c = vaddq_f64(vaddq_f64(a.p[1], a.p[5]), vaddq_f64(a.p[3], a.p[7]));
    return vpaddd_f64(vaddq_f64(b, c));
}

#else
typedef struct d16 {
    double d[16];
} d16;

LSI_VEC d16 d16_zero(void)
{
    return (d16){{0}};
}
LSI_VEC d16 d16_add(d16 a, d16 b)
{
    for (int i = 0; i < 16; i++)
        a.d[i] += b.d[i];
    return a;
}
LSI_VEC d16 d16_from(v16 x)
{
    d16 r;
    for (int i = 0; i < 16; i++)
        r.d[i] = (double)x.f[i];
    return r;
}
LSI_VEC double d16_sum(d16 a)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            a.d[i] += a.d[i + half];
    return a.d[0];
}
#endif

LSI_VEC d16 d16_add_floats(d16 a, v16 x)
{
    return d16_add(a, d16_from(x));
}

#endif

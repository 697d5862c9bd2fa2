/* Philox4x32-10 (base/philox.h), eight blocks at a time: the random words of dropout, where they
 * are used, without a pass over memory.
 *
 * Each of a block's four words has a 64-bit lane of its own, of which the low half counts: the
 * product of two low halves fills a lane, and its high half is one move away. What lies in the
 * high halves otherwise is never looked at. Ten rounds of six operations give 32 words.
 *
 * 1. The words of lsi_philox_fill, on every instruction set.
 */
#ifndef LSI_DEVICE_VEC_PHILOX_H
#define LSI_DEVICE_VEC_PHILOX_H

#include "device/kernels.h"
#include "device/vec_words.h"

#define LSI_PHILOX_WORDS 32 /* of one call */

#if defined(LSI_VEC_AVX512)
typedef __m512i q8;

LSI_VEC q8 q8_set1(uint64_t x)
{
    return _mm512_set1_epi64((int64_t)x);
}
LSI_VEC q8 q8_count_from(uint64_t x)
{
    return _mm512_add_epi64(q8_set1(x), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
}
LSI_VEC q8 q8_multiply_low(q8 a, q8 b)
{
    return _mm512_mul_epu32(a, b);
}
/* A shuffle rather than a shift: shifts compete with the multiplications for their port. */
LSI_VEC q8 q8_high(q8 a)
{
    return _mm512_shuffle_epi32(a, 0xf5);
}
LSI_VEC q8 q8_xor3(q8 a, q8 b, q8 c)
{
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
/* Words x0[0], x1[0], x2[0], x3[0], x0[1], … from the low halves. */
LSI_VEC void q8_interleave(q8 x0, q8 x1, q8 x2, q8 x3, w16 out[2])
{
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    const __m512i a = _mm512_mask_blend_epi32(0xaaaa, x0, _mm512_slli_epi64(x1, 32));
    const __m512i b = _mm512_mask_blend_epi32(0xaaaa, x2, _mm512_slli_epi64(x3, 32));
    out[0] = _mm512_permutex2var_epi64(a, first, b);
    out[1] = _mm512_permutex2var_epi64(a, second, b);
}

#elif defined(LSI_VEC_AVX2)
typedef w16 q8;

LSI_VEC q8 q8_set1(uint64_t x)
{
    return (q8){_mm256_set1_epi64x((int64_t)x), _mm256_set1_epi64x((int64_t)x)};
}
LSI_VEC q8 q8_count_from(uint64_t x)
{
    const __m256i start = _mm256_set1_epi64x((int64_t)x);
    return (q8){_mm256_add_epi64(start, _mm256_setr_epi64x(0, 1, 2, 3)),
                _mm256_add_epi64(start, _mm256_setr_epi64x(4, 5, 6, 7))};
}
LSI_VEC q8 q8_multiply_low(q8 a, q8 b)
{
    return (q8){_mm256_mul_epu32(a.l, b.l), _mm256_mul_epu32(a.h, b.h)};
}
LSI_VEC q8 q8_high(q8 a)
{
    return (q8){_mm256_shuffle_epi32(a.l, 0xf5), _mm256_shuffle_epi32(a.h, 0xf5)};
}
LSI_VEC q8 q8_xor3(q8 a, q8 b, q8 c)
{
    return w16_xor(w16_xor(a, b), c);
}
LSI_VEC w16 q8_interleave_half(__m256i x0, __m256i x1, __m256i x2, __m256i x3)
{
    const __m256i a = _mm256_blend_epi32(x0, _mm256_slli_epi64(x1, 32), 0xaa);
    const __m256i b = _mm256_blend_epi32(x2, _mm256_slli_epi64(x3, 32), 0xaa);
    const __m256i even = _mm256_unpacklo_epi64(a, b), odd = _mm256_unpackhi_epi64(a, b);
    return (w16){_mm256_permute2x128_si256(even, odd, 0x20),
                 _mm256_permute2x128_si256(even, odd, 0x31)};
}
LSI_VEC void q8_interleave(q8 x0, q8 x1, q8 x2, q8 x3, w16 out[2])
{
    out[0] = q8_interleave_half(x0.l, x1.l, x2.l, x3.l);
    out[1] = q8_interleave_half(x0.h, x1.h, x2.h, x3.h);
}

#elif defined(LSI_VEC_NEON)
typedef struct q8 {
    uint64x2_t q[4];
} q8;

LSI_VEC q8 q8_set1(uint64_t x)
{
    const uint64x2_t all = vdupq_n_u64(x);
    return (q8){{all, all, all, all}};
}
LSI_VEC q8 q8_count_from(uint64_t x)
{
    const uint64x2_t two = vdupq_n_u64(2), q0 = vaddq_u64(vdupq_n_u64(x), (uint64x2_t){0, 1});
    const uint64x2_t q1 = vaddq_u64(q0, two), q2 = vaddq_u64(q1, two);
    return (q8){{q0, q1, q2, vaddq_u64(q2, two)}};
}
LSI_VEC uint64x2_t q8_multiply_pair(uint64x2_t a, uint64x2_t b)
{
    return vmull_u32(vmovn_u64(a), vmovn_u64(b));
}
LSI_VEC q8 q8_multiply_low(q8 a, q8 b)
{
    return LSI_NEON_2(q8, q8_multiply_pair, a, b);
}
LSI_VEC q8 q8_high(q8 a)
{
    return (q8){{vshrq_n_u64(a.q[0], 32), vshrq_n_u64(a.q[1], 32), vshrq_n_u64(a.q[2], 32),
                 vshrq_n_u64(a.q[3], 32)}};
}
LSI_VEC q8 q8_xor3(q8 a, q8 b, q8 c)
{
    const q8 ab = LSI_NEON_2(q8, veorq_u64, a, b);
    return LSI_NEON_2(q8, veorq_u64, ab, c);
}
/* Low halves of both, in turn. */
LSI_VEC uint64x2_t q8_low_halves(uint64x2_t a, uint64x2_t b)
{
    return vreinterpretq_u64_u32(vtrn1q_u32(vreinterpretq_u32_u64(a), vreinterpretq_u32_u64(b)));
}
LSI_VEC void q8_interleave(q8 x0, q8 x1, q8 x2, q8 x3, w16 out[2])
{
    const q8 a = LSI_NEON_2(q8, q8_low_halves, x0, x1), b = LSI_NEON_2(q8, q8_low_halves, x2, x3);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        uint32x4_t *words = out[i / 2].q + i % 2 * 2;
        words[0] = vreinterpretq_u32_u64(vtrn1q_u64(a.q[i], b.q[i]));
        words[1] = vreinterpretq_u32_u64(vtrn2q_u64(a.q[i], b.q[i]));
    }
}

#else
typedef struct q8 {
    uint64_t u[8];
} q8;

#define LSI_Q8_EACH(expression)                                                                    \
    q8 r;                                                                                          \
    for (unsigned i = 0; i < 8; i++)                                                               \
        r.u[i] = (expression);                                                                     \
    return r

LSI_VEC q8 q8_set1(uint64_t x)
{
    LSI_Q8_EACH(x);
}
LSI_VEC q8 q8_count_from(uint64_t x)
{
    LSI_Q8_EACH(x + i);
}
LSI_VEC q8 q8_multiply_low(q8 a, q8 b)
{
    LSI_Q8_EACH((uint64_t)(uint32_t)a.u[i] * (uint32_t)b.u[i]);
}
LSI_VEC q8 q8_high(q8 a)
{
    LSI_Q8_EACH(a.u[i] >> 32);
}
LSI_VEC q8 q8_xor3(q8 a, q8 b, q8 c)
{
    LSI_Q8_EACH(a.u[i] ^ b.u[i] ^ c.u[i]);
}
LSI_VEC void q8_interleave(q8 x0, q8 x1, q8 x2, q8 x3, w16 out[2])
{
    for (int i = 0; i < 8; i++) {
        uint32_t *words = out[i / 4].u + i % 4 * 4;
        words[0] = (uint32_t)x0.u[i];
        words[1] = (uint32_t)x1.u[i];
        words[2] = (uint32_t)x2.u[i];
        words[3] = (uint32_t)x3.u[i];
    }
}
#endif

/* A stream: the counter's first two words as one number, its other two, and the key. */
typedef struct lsi_stream {
    uint64_t start;
    uint32_t counter2, counter3, key[2];
} lsi_stream;

/* The stream that decides about sample `sample` of a dropout: words of its elements in order. */
static inline lsi_stream lsi_dropout_stream(const lsi_dropout *d, size_t sample)
{
    return (lsi_stream){(uint64_t)d->node << 32,
                        (uint32_t)(d->first_position + sample),
                        (uint32_t)d->step,
                        {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)}};
}

/* An element is kept when its word is at least this. p < 1 has at most 24 bits: the result is
 * exact, and below 2^32. */
static inline uint32_t lsi_dropout_threshold(const lsi_dropout *d)
{
    return (uint32_t)ceil((double)d->p * 0x1p32);
}

/* Words [4 block, 4 block + 32 groups) of the stream, groups a small constant. The rounds of a
 * group wait for each other; two groups side by side keep the processor busy. */
LSI_VEC void w16_philox_groups(const int groups, const lsi_stream *stream, uint64_t block, w16 *out)
{
    const q8 m0 = q8_set1(0xd2511f53u), m1 = q8_set1(0xcd9e8d57u);
    uint32_t k0 = stream->key[0], k1 = stream->key[1];
    q8 x0[2], x1[2], x2[2], x3[2];
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
        x0[g] = q8_count_from(stream->start + block + 8 * (uint64_t)g);
        x1[g] = q8_high(x0[g]);
        x2[g] = q8_set1(stream->counter2);
        x3[g] = q8_set1(stream->counter3);
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
#pragma GCC unroll 2
        for (int g = 0; g < groups; g++) {
            const q8 p0 = q8_multiply_low(m0, x0[g]), p1 = q8_multiply_low(m1, x2[g]);
            x0[g] = q8_xor3(q8_high(p1), x1[g], q8_set1(k0));
            x1[g] = p1;
            x2[g] = q8_xor3(q8_high(p0), x3[g], q8_set1(k1));
            x3[g] = p0;
        }
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++)
        q8_interleave(x0[g], x1[g], x2[g], x3[g], out + 2 * g);
}

/* Words [4 block, 4 block + 32) of the stream. */
LSI_VEC void w16_philox(const lsi_stream *stream, uint64_t block, w16 out[2])
{
    w16_philox_groups(1, stream, block, out);
}

#endif

/* A tile of 16 x 16 floats in registers: rows to columns, and the sums of its rows. */
#ifndef LSI_DEVICE_VEC_TRANSPOSE_H
#define LSI_DEVICE_VEC_TRANSPOSE_H

#include "device/vec.h"

#if defined(LSI_VEC_AVX512)
/* Pairs of floats, pairs of pairs, then quarters of registers twice: 64 shuffles. */
LSI_VEC void v16_transpose(v16 r[16])
{
    __m512 t[16];
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        const __m512 a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        const __m512 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]);
        const __m512 d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        const __m512 b = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        const __m512 c = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        const __m512 d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(a, b, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(c, d, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
}

#elif defined(LSI_VEC_AVX2)
LSI_VEC void v16_transpose8(__m256 r[8])
{
    __m256 t[8];
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        const __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        const __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
        const __m256 d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}
/* Four tiles of 8 x 8; those off the diagonal change places. */
LSI_VEC void v16_transpose(v16 r[16])
{
    __m256 q[4][8];
    for (int i = 0; i < 8; i++) {
        q[0][i] = r[i].l;
        q[1][i] = r[i].h;
        q[2][i] = r[i + 8].l;
        q[3][i] = r[i + 8].h;
    }
    for (int i = 0; i < 4; i++)
        v16_transpose8(q[i]);
    for (int i = 0; i < 8; i++) {
        r[i] = (v16){q[0][i], q[2][i]};
        r[i + 8] = (v16){q[1][i], q[3][i]};
    }
}

#elif defined(LSI_VEC_NEON)
/* Pairs of floats, then pairs of pairs: 8 shuffles for 4 x 4. */
LSI_VEC void v16_transpose4(float32x4_t r[4])
{
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
    const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
    const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}
/* Tiles of 4 x 4; those off the diagonal change places. */
LSI_VEC void v16_transpose(v16 r[16])
{
    v16 t[16];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            float32x4_t tile[4] = {r[4 * i].q[j], r[4 * i + 1].q[j], r[4 * i + 2].q[j],
                                   r[4 * i + 3].q[j]};
            v16_transpose4(tile);
            for (int k = 0; k < 4; k++)
                t[4 * j + k].q[i] = tile[k];
        }
    memcpy(r, t, sizeof t);
}

#else
LSI_VEC void v16_transpose(v16 r[16])
{
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < i; j++) {
            const float other = r[i].f[j];
            r[i].f[j] = r[j].f[i];
            r[j].f[i] = other;
        }
    }
}
#endif

#if defined(LSI_VEC_AVX2)
/* to[c * to_row + r] = from[r * from_row + c] for 8 rows and columns. Rows four apart share a
 * register as they are read, so that nothing has to change halves: 16 shuffles. */
LSI_VEC void v16_transpose8_to(const float *from, size_t from_row, float *to, size_t to_row)
{
#pragma GCC unroll 2
    for (size_t c = 0; c < 8; c += 4) {
        __m256 r[4];
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            r[i] =
                _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + i * from_row + c)),
                                     _mm_loadu_ps(from + (i + 4) * from_row + c), 1);
        const __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
        const __m256 d = _mm256_unpacklo_ps(r[2], r[3]), e = _mm256_unpackhi_ps(r[2], r[3]);
        _mm256_storeu_ps(to + c * to_row, _mm256_shuffle_ps(a, d, 0x44));
        _mm256_storeu_ps(to + (c + 1) * to_row, _mm256_shuffle_ps(a, d, 0xee));
        _mm256_storeu_ps(to + (c + 2) * to_row, _mm256_shuffle_ps(b, e, 0x44));
        _mm256_storeu_ps(to + (c + 3) * to_row, _mm256_shuffle_ps(b, e, 0xee));
    }
}
#endif

/* to[c * to_row + r] = from[r * from_row + c] for 16 rows and columns. */
LSI_VEC void v16_transpose_to(const float *from, size_t from_row, float *to, size_t to_row)
{
#if defined(LSI_VEC_AVX2)
    for (size_t r = 0; r < 16; r += 8) /* in pieces that fit the registers */
        for (size_t c = 0; c < 16; c += 8)
            v16_transpose8_to(from + r * from_row + c, from_row, to + c * to_row + r, to_row);
#elif defined(LSI_VEC_NEON)
    for (size_t r = 0; r < 16; r += 4)
        for (size_t c = 0; c < 16; c += 4) {
            float32x4_t tile[4];
#pragma GCC unroll 4
            for (size_t i = 0; i < 4; i++)
                tile[i] = vld1q_f32(from + (r + i) * from_row + c);
            v16_transpose4(tile);
#pragma GCC unroll 4
            for (size_t i = 0; i < 4; i++)
                vst1q_f32(to + (c + i) * to_row + r, tile[i]);
        }
#else
    v16 block[16];
    for (size_t i = 0; i < 16; i++)
        block[i] = v16_load(from + i * from_row);
    v16_transpose(block);
    for (size_t i = 0; i < 16; i++)
        v16_store(to + i * to_row, block[i]);
#endif
}

#endif

/* The floats that the innermost products move together: one register of sixteen with AVX-512, one
 * of eight with AVX2, four of four with NEON.
 *
 * vec.h has sixteen everywhere; the products want to know how many registers they hold. A lane_all
 * is one float that meets all lanes.
 */
#ifndef LSI_DEVICE_CPU_LANE_H
#define LSI_DEVICE_CPU_LANE_H

#include "device/vec.h"

#if defined(LSI_VEC_AVX512)
#define LANES 16
typedef __m512 lane, lane_all;
#define LANE_ZERO() _mm512_setzero_ps()
#define LANE_LOAD(p) _mm512_loadu_ps(p)
#define LANE_STORE(p, v) _mm512_storeu_ps(p, v)
#define LANE_ALL(p) _mm512_set1_ps(*(p))
#define LANE_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#elif defined(LSI_VEC_AVX2)
#define LANES 8
typedef __m256 lane, lane_all;
#define LANE_ZERO() _mm256_setzero_ps()
#define LANE_LOAD(p) _mm256_loadu_ps(p)
#define LANE_STORE(p, v) _mm256_storeu_ps(p, v)
#define LANE_ALL(p) _mm256_broadcast_ss(p)
#define LANE_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define LANE_OF(x) _mm256_set1_ps(x)
#define LANE_ADD(a, b) _mm256_add_ps(a, b)
#define LANE_MAX(a, b) _mm256_max_ps(a, b)
/* Written down as it is: the compiler would take other forms of it, and copy registers. */
#define LANE_FMA_TO(acc, a, b)                                                                     \
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(acc) : "x"(a), "x"(b))
/* Likewise: it would load the same again to have a register for something else. */
#define LANE_TAKE(to, p) __asm__ volatile("vmovups %1, %0" : "=x"(to) : "m"(*(const __m256_u *)(p)))
#elif defined(LSI_VEC_NEON)
#define LANES 16
typedef v16 lane;
/* The instruction takes it from one lane: it need not be in all. */
typedef float lane_all;
#define LANE_ZERO() v16_zero()
#define LANE_LOAD(p) v16_load(p)
#define LANE_STORE(p, v) v16_store(p, v)
#define LANE_ALL(p) (*(p))
#define LANE_FMA(a, b, c) v16_fma(v16_set1(a), b, c)
/* Written down as it is: the compiler would spread a over a register, or load all that is to come
 * first, and run out of registers. */
#define LANE_FMA_QUARTER(acc, a, b)                                                                \
    __asm__ volatile("fmla %0.4s, %2.4s, %1.s[0]" : "+w"(acc) : "w"(a), "w"(b))
#define LANE_FMA_TO(acc, a, b)                                                                     \
    do {                                                                                           \
        LANE_FMA_QUARTER((acc).q[0], a, (b).q[0]);                                                 \
        LANE_FMA_QUARTER((acc).q[1], a, (b).q[1]);                                                 \
        LANE_FMA_QUARTER((acc).q[2], a, (b).q[2]);                                                 \
        LANE_FMA_QUARTER((acc).q[3], a, (b).q[3]);                                                 \
    } while (0)
#else
#define LANES 16
typedef v16 lane, lane_all;
#define LANE_ZERO() v16_zero()
#define LANE_LOAD(p) v16_load(p)
#define LANE_STORE(p, v) v16_store(p, v)
#define LANE_ALL(p) v16_set1(*(p))
#define LANE_FMA(a, b, c) v16_fma(a, b, c)
#endif

#if LANES == 16
#define LANE_OF(x) v16_set1(x)
#define LANE_ADD(a, b) v16_add(a, b)
#define LANE_MAX(a, b) v16_max(a, b)
#endif

#if !defined(LANE_TAKE)
#define LANE_TAKE(to, p) ((to) = LANE_LOAD(p))
#endif

/* acc += a b */
#if !defined(LANE_FMA_TO)
#define LANE_FMA_TO(acc, a, b) ((acc) = LANE_FMA(a, b, acc))
#endif

#endif

/* Kernels of the collectives: scalar arithmetic, instruction sets, and the choice among them.
 *
 * reduce_kernels.inc holds the loops and is compiled once for each instruction set; the arithmetic
 * of one element is here and shared by all of them. We do not use target_clones: kernels are
 * handed out as pointers anyway, so a table does the dispatch, works without ifunc (musl, the
 * thread sanitizer), and the tests can call every variant.
 *
 * 1. The variants differ in speed only, never in a bit (reduce.h).
 */
#include "coll/reduce.h"

#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif
#define SCALAR() __asm__ volatile("") /* in a loop: do not vectorise it */
#define INLINE static inline __attribute__((always_inline))

#define LINE 64 /* bytes of a cache line */

INLINE float quiet_f32(float x)
{
    return x != x ? NAN : x;
}

INLINE double quiet_f64(double x)
{
    return x != x ? (double)NAN : x;
}

INLINE float min_f32(float a, float b)
{
    return __builtin_isunordered(a, b) ? NAN : a < b ? a : b;
}

INLINE float max_f32(float a, float b)
{
    return __builtin_isunordered(a, b) ? NAN : a > b ? a : b;
}

INLINE double min_f64(double a, double b)
{
    return __builtin_isunordered(a, b) ? (double)NAN : a < b ? a : b;
}

INLINE double max_f64(double a, double b)
{
    return __builtin_isunordered(a, b) ? (double)NAN : a > b ? a : b;
}

INLINE uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE float from_bf16(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

INLINE uint16_t to_bf16(float x)
{
    const uint32_t bits = bits_of(quiet_f32(x)); /* which rounds to the canonical NaN of bf16 */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* The conversions of f16 follow F. Giesen, "half to float done quic": the exponent is moved to its
 * new bias, and denormals are left to one exact floating-point addition or subtraction. Selections
 * instead of branches, so that the loops around them can be vectorised. */
INLINE float from_f16(uint16_t x)
{
    const uint32_t magic = 113u << 23; /* 2^-14, the smallest normal f16 */
    const uint32_t shifted = (x & 0x7fffu) << 13;
    const uint32_t exponent = shifted & 0x0f800000u;
    const uint32_t normal = shifted + ((127u - 15u) << 23);
    const uint32_t special = normal + ((128u - 16u) << 23); /* infinity and NaN */
    const uint32_t denormal = bits_of(float_of(normal + (1u << 23)) - float_of(magic));
    const uint32_t bits = exponent == 0 ? denormal : exponent == 0x0f800000u ? special : normal;
    return float_of(bits | (uint32_t)(x & 0x8000u) << 16);
}

INLINE uint16_t to_f16(float x)
{
    const uint32_t infinity = 255u << 23, overflow = (127u + 16u) << 23, least = 113u << 23;
    const uint32_t magic = ((127u - 15u) + (23u - 10u) + 1u) << 23;
    const uint32_t sign = bits_of(x) & 0x80000000u, size = bits_of(x) ^ sign;
    const uint32_t denormal = bits_of(float_of(size) + float_of(magic)) - magic;
    const uint32_t odd = (size >> 13) & 1u;
    const uint32_t normal = (size - ((127u - 15u) << 23) + 0xfffu + odd) >> 13;
    const uint32_t finite = size < least ? denormal : normal;
    const uint32_t bits = (size >= overflow ? 0x7c00u : finite) | sign >> 16;
    return (uint16_t)(size > infinity ? 0x7e00u : bits);
}

#define TARGET
#define LEVEL(name) plain_##name
#include "coll/reduce_kernels.inc"
#undef TARGET
#undef LEVEL

#if defined(__x86_64__)
/* Pieces go in and out of a line's array by whole vectors: then the compiler keeps it in
 * registers. (A vector load from two smaller stores would have to wait for both.) */
#define TARGET __attribute__((target("avx2,f16c")))
#define LEVEL(name) avx2_##name

TARGET INLINE void avx2_store_line(void *to, const void *v)
{
    const __m256i *line = v;
    const __m256i low = _mm256_loadu_si256(line), high = _mm256_loadu_si256(line + 1);
    _mm256_storeu_si256((__m256i *)to, low);
    _mm256_storeu_si256((__m256i *)to + 1, high);
}

TARGET INLINE void avx2_f16_load(float *to, const uint16_t *from)
{
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const void *)from)));
    _mm256_storeu_ps(to + 8, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + 8))));
}

TARGET INLINE void avx2_f16_store(uint16_t *to, const float *from)
{
    const __m128i low = _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);
    const __m128i high = _mm256_cvtps_ph(_mm256_loadu_ps(from + 8), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((void *)to, _mm256_set_m128i(high, low));
}

#define STORE_LINE avx2_store_line
#define F16_LANES 16
#define F16_LOAD avx2_f16_load
#define F16_STORE avx2_f16_store
#include "coll/reduce_kernels.inc"
#undef TARGET
#undef LEVEL
#undef STORE_LINE
#undef F16_LANES
#undef F16_LOAD
#undef F16_STORE

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LEVEL(name) avx512_##name

TARGET INLINE void avx512_store_line(void *to, const void *v)
{
    _mm512_storeu_si512(to, _mm512_loadu_si512(v));
}

TARGET INLINE void avx512_f16_load(float *to, const uint16_t *from)
{
    _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from)));
    _mm512_storeu_ps(to + 16, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(from + 16))));
}

TARGET INLINE void avx512_f16_store(uint16_t *to, const float *from)
{
    const __m256i low = _mm512_cvtps_ph(_mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);
    const __m256i high = _mm512_cvtps_ph(_mm512_loadu_ps(from + 16), _MM_FROUND_TO_NEAREST_INT);
    _mm512_storeu_si512(to, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

#define STORE_LINE avx512_store_line
#define F16_LANES 32
#define F16_LOAD avx512_f16_load
#define F16_STORE avx512_f16_store
#include "coll/reduce_kernels.inc"
#undef TARGET
#undef LEVEL
#undef STORE_LINE
#undef F16_LANES
#undef F16_LOAD
#undef F16_STORE
#endif

#define LEVEL_MAX 3

static const struct {
    const char *name;
    const lsi_reduce_fn (*one)[LS_OP_COUNT];
    const lsi_reduce_two_fn (*two)[LS_OP_COUNT];
    lsi_reduce_four_fn sum_f32_four;
} levels[LEVEL_MAX] = {
    {"plain", plain_table, plain_table_two, plain_sum_f32_four},
#if defined(__x86_64__)
    {"avx2", avx2_table, avx2_table_two, avx2_sum_f32_four},
    {"avx512", avx512_table, avx512_table_two, avx512_sum_f32_four},
#endif
};

static int find_levels(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__builtin_cpu_supports("avx2") || !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return 1;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return 2;
    return 3;
#else
    return 1;
#endif
}

int lsi_reduce_levels(void)
{
    static _Atomic int found; /* every thread finds the same, so the race is harmless */
    int n = atomic_load_explicit(&found, memory_order_relaxed);
    if (n == 0) {
        n = find_levels();
        atomic_store_explicit(&found, n, memory_order_relaxed);
    }
    return n;
}

const char *lsi_reduce_level_name(int level)
{
    return level >= 0 && level < lsi_reduce_levels() ? levels[level].name : "?";
}

lsi_reduce_fn lsi_reduce_get_level(int level, ls_dtype dtype, ls_op op)
{
    return ls_op_supports(op, dtype) ? levels[level].one[dtype][op] : NULL;
}

lsi_reduce_two_fn lsi_reduce_two_get_level(int level, ls_dtype dtype, ls_op op)
{
    return ls_op_supports(op, dtype) ? levels[level].two[dtype][op] : NULL;
}

lsi_reduce_four_fn lsi_reduce_four_get_level(int level, ls_dtype dtype, ls_op op)
{
    return dtype == LS_F32 && op == LS_SUM ? levels[level].sum_f32_four : NULL;
}

lsi_reduce_fn lsi_reduce_get(ls_dtype dtype, ls_op op)
{
    return lsi_reduce_get_level(lsi_reduce_levels() - 1, dtype, op);
}

lsi_reduce_two_fn lsi_reduce_two_get(ls_dtype dtype, ls_op op)
{
    return lsi_reduce_two_get_level(lsi_reduce_levels() - 1, dtype, op);
}

lsi_reduce_four_fn lsi_reduce_four_get(ls_dtype dtype, ls_op op)
{
    return lsi_reduce_four_get_level(lsi_reduce_levels() - 1, dtype, op);
}

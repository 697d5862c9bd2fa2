/* Sixteen floats in four registers of NEON: the part of vec.h for aarch64, included by it.
 *
 * The rules are those of vec.h. NEON's own maximum and minimum are none of ours: they give NaN for
 * a NaN in either operand, so both are a comparison and a selection here. There are no loads and
 * stores by mask: the partial forms go by quarters, the last of which moves two floats, or one.
 */
#ifndef LSI_DEVICE_VEC_NEON_H
#define LSI_DEVICE_VEC_NEON_H

#include <arm_neon.h>

typedef struct v16 {
    float32x4_t q[4];
} v16;

/* The same of each quarter: of one, two and three operands. */
#define LSI_NEON_1(type, call, a)                                                                  \
    ((type){{call((a).q[0]), call((a).q[1]), call((a).q[2]), call((a).q[3])}})
#define LSI_NEON_2(type, call, a, b)                                                               \
    ((type){{call((a).q[0], (b).q[0]), call((a).q[1], (b).q[1]), call((a).q[2], (b).q[2]),         \
             call((a).q[3], (b).q[3])}})
#define LSI_NEON_3(type, call, a, b, c)                                                            \
    ((type){{call((a).q[0], (b).q[0], (c).q[0]), call((a).q[1], (b).q[1], (c).q[1]),               \
             call((a).q[2], (b).q[2], (c).q[2]), call((a).q[3], (b).q[3], (c).q[3])}})

LSI_VEC v16 v16_set1(float x)
{
    const float32x4_t all = vdupq_n_f32(x);
    return (v16){{all, all, all, all}};
}
LSI_VEC v16 v16_load(const float *p)
{
    return (v16){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
LSI_VEC void v16_store(float *p, v16 a)
{
    vst1q_f32(p, a.q[0]);
    vst1q_f32(p + 4, a.q[1]);
    vst1q_f32(p + 8, a.q[2]);
    vst1q_f32(p + 12, a.q[3]);
}
/* The first n of four lanes; n may exceed 4. */
LSI_VEC float32x4_t v16_load_quarter(const float *p, size_t n)
{
    if (n >= 4)
        return vld1q_f32(p);
    float32x2_t low = vdup_n_f32(0.0f), high = low;
    if (n >= 2)
        low = vld1_f32(p);
    if (n == 1)
        low = vld1_lane_f32(p, low, 0);
    if (n == 3)
        high = vld1_lane_f32(p + 2, high, 0);
    return vcombine_f32(low, high);
}
LSI_VEC void v16_store_quarter(float *p, float32x4_t a, size_t n)
{
    if (n >= 4) {
        vst1q_f32(p, a);
        return;
    }
    if (n >= 2)
        vst1_f32(p, vget_low_f32(a));
    if (n == 1)
        vst1q_lane_f32(p, a, 0);
    if (n == 3)
        vst1q_lane_f32(p + 2, a, 2);
}
/* The partial forms are calls: in line, their branches would take the compiler minutes. */
#define LSI_NEON_CALL static __attribute__((noinline, unused))
LSI_NEON_CALL v16 v16_load_n(const float *p, size_t n)
{
    const float32x4_t zero = vdupq_n_f32(0.0f);
    return (v16){{v16_load_quarter(p, n), n > 4 ? v16_load_quarter(p + 4, n - 4) : zero,
                  n > 8 ? v16_load_quarter(p + 8, n - 8) : zero,
                  n > 12 ? v16_load_quarter(p + 12, n - 12) : zero}};
}
LSI_NEON_CALL void v16_store_n(float *p, v16 a, size_t n)
{
    v16_store_quarter(p, a.q[0], n);
    if (n > 4)
        v16_store_quarter(p + 4, a.q[1], n - 4);
    if (n > 8)
        v16_store_quarter(p + 8, a.q[2], n - 8);
    if (n > 12)
        v16_store_quarter(p + 12, a.q[3], n - 12);
}
LSI_VEC v16 v16_add(v16 a, v16 b)
{
    return LSI_NEON_2(v16, vaddq_f32, a, b);
}
LSI_VEC v16 v16_sub(v16 a, v16 b)
{
    return LSI_NEON_2(v16, vsubq_f32, a, b);
}
LSI_VEC v16 v16_mul(v16 a, v16 b)
{
    return LSI_NEON_2(v16, vmulq_f32, a, b);
}
LSI_VEC v16 v16_div(v16 a, v16 b)
{
    return LSI_NEON_2(v16, vdivq_f32, a, b);
}
LSI_VEC v16 v16_sqrt(v16 a)
{
    return LSI_NEON_1(v16, vsqrtq_f32, a);
}
LSI_VEC v16 v16_fma(v16 a, v16 b, v16 c)
{
    return LSI_NEON_3(v16, vfmaq_f32, c, a, b);
}
LSI_VEC v16 v16_fnma(v16 a, v16 b, v16 c)
{
    return LSI_NEON_3(v16, vfmsq_f32, c, a, b);
}
LSI_VEC float32x4_t v16_max_quarter(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
LSI_VEC float32x4_t v16_min_quarter(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
LSI_VEC v16 v16_max(v16 a, v16 b)
{
    return LSI_NEON_2(v16, v16_max_quarter, a, b);
}
LSI_VEC v16 v16_min(v16 a, v16 b)
{
    return LSI_NEON_2(v16, v16_min_quarter, a, b);
}
LSI_VEC v16 v16_abs(v16 a)
{
    return LSI_NEON_1(v16, vabsq_f32, a);
}
/* What a selection goes by: all bits of a lane, or none. */
typedef struct m16 {
    uint32x4_t q[4];
} m16;

LSI_VEC v16 v16_if_gt(v16 a, v16 b, v16 x, v16 y)
{
    const m16 greater = LSI_NEON_2(m16, vcgtq_f32, a, b);
    return LSI_NEON_3(v16, vbslq_f32, greater, x, y);
}
LSI_VEC v16 v16_first(size_t n, v16 x, v16 y)
{
    const uint32x4_t end = vdupq_n_u32((uint32_t)n), four = vdupq_n_u32(4);
    const uint32x4_t l0 = {0, 1, 2, 3}, l1 = vaddq_u32(l0, four), l2 = vaddq_u32(l1, four);
    const m16 below = {{vcltq_u32(l0, end), vcltq_u32(l1, end), vcltq_u32(l2, end),
                        vcltq_u32(vaddq_u32(l2, four), end)}};
    return LSI_NEON_3(v16, vbslq_f32, below, x, y);
}
/* Lanes folded 8 and 4 apart. */
LSI_VEC float32x4_t v16_sum_quarters(v16 a)
{
    return vaddq_f32(vaddq_f32(a.q[0], a.q[2]), vaddq_f32(a.q[1], a.q[3]));
}
LSI_VEC float v16_sum(v16 a)
{
    const float32x4_t b = v16_sum_quarters(a);
    return vpadds_f32(vadd_f32(vget_low_f32(b), vget_high_f32(b)));
}
LSI_VEC float v16_max_lane(v16 a)
{
    const float32x4_t b =
        v16_max_quarter(v16_max_quarter(a.q[0], a.q[2]), v16_max_quarter(a.q[1], a.q[3]));
    const float32x4_t c = v16_max_quarter(b, vextq_f32(b, b, 2));
    return vgetq_lane_f32(v16_max_quarter(c, vextq_f32(c, c, 1)), 0);
}

#endif

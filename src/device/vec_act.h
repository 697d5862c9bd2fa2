/* Activations and their slopes on sixteen floats: for cpu_act, and for the epilogues of the matrix
 * products, which apply them while a tile is still in registers.
 *
 * 1. NaN in, NaN out, relu's value included (its slope is then 0).
 * 2. GELU (tanh) and SiLU are x times a sigmoid, with one exponential and one division: there is no
 *    1 + tanh to cancel, so that small results for negative x keep their relative accuracy.
 *
 * Where `act` is a constant the switch disappears.
 */
#ifndef LSI_DEVICE_VEC_ACT_H
#define LSI_DEVICE_VEC_ACT_H

#include "device/kernels.h"
#include "device/vec_math.h"

#define LSI_GELU_A 0.7978845608028654f /* sqrt(2 / pi) */
#define LSI_GELU_B 0.044715f

/* x^2, bounded: far out s (1 - s) is 0, and must not meet an infinity. The sigmoid is 0 or 1 there
 * with or without the bound. */
LSI_VEC v16 v16_gelu_square(v16 x)
{
    return v16_min(v16_set1(1e6f), v16_mul(x, x));
}

/* 2 u of GELU, whose factor (1 + tanh(u)) / 2 is sigmoid(2 u). */
LSI_VEC v16 v16_gelu_inner(v16 x, v16 xx)
{
    const v16 cubic = v16_set1(2.0f * LSI_GELU_A * LSI_GELU_B);
    return v16_mul(x, v16_fma(xx, cubic, v16_set1(2.0f * LSI_GELU_A)));
}

LSI_VEC v16 v16_normal_cdf(v16 x)
{
    const v16 e = v16_erf(v16_mul(x, v16_set1(0.7071067811865476f)));
    return v16_fma(e, v16_set1(0.5f), v16_set1(0.5f));
}

/* x sigmoid(z): the slope needs the same sigmoid. */
LSI_VEC v16 v16_gated(v16 x, v16 z)
{
    return v16_mul(x, v16_sigmoid(z));
}

/* s (1 - s) */
LSI_VEC v16 v16_logistic_slope(v16 s)
{
    return v16_fnma(s, s, s);
}

LSI_VEC v16 v16_act(lsi_act act, v16 x)
{
    switch (act) {
    case LSI_ACT_RELU: return v16_max(v16_zero(), x);
    case LSI_ACT_GELU_TANH: return v16_gated(x, v16_gelu_inner(x, v16_gelu_square(x)));
    case LSI_ACT_GELU_ERF: return v16_mul(x, v16_normal_cdf(x));
    case LSI_ACT_SILU: return v16_gated(x, x);
    case LSI_ACT_TANH: return v16_tanh(x);
    case LSI_ACT_SIGMOID: return v16_sigmoid(x);
    case LSI_ACT_NONE:
    case LSI_ACT_COUNT: break;
    }
    return x;
}

/* The slope at x, the input; relu's at 0 is 0. */
LSI_VEC v16 v16_act_grad(lsi_act act, v16 x)
{
    const v16 one = v16_set1(1.0f);
    switch (act) {
    case LSI_ACT_RELU: return v16_if_gt(x, v16_zero(), one, v16_zero());
    case LSI_ACT_GELU_TANH: {
        const v16 xx = v16_gelu_square(x);
        const v16 s = v16_sigmoid(v16_gelu_inner(x, xx));
        const v16 slope =
            v16_fma(xx, v16_set1(6.0f * LSI_GELU_A * LSI_GELU_B), v16_set1(2.0f * LSI_GELU_A));
        return v16_fma(v16_mul(x, v16_logistic_slope(s)), slope, s);
    }
    case LSI_ACT_GELU_ERF: {
        v16 density = v16_exp(v16_mul(v16_mul(x, x), v16_set1(-0.5f)));
        density = v16_mul(density, v16_set1(0.3989422804014327f)); /* 1 / sqrt(2 pi) */
        return v16_fma(x, density, v16_normal_cdf(x));
    }
    case LSI_ACT_SILU: {
        const v16 s = v16_sigmoid(x);
        return v16_mul(s, v16_fma(x, v16_sub(one, s), one));
    }
    case LSI_ACT_TANH: {
        const v16 t = v16_tanh(x);
        return v16_fnma(t, t, one);
    }
    case LSI_ACT_SIGMOID: return v16_logistic_slope(v16_sigmoid(x));
    case LSI_ACT_NONE:
    case LSI_ACT_COUNT: break;
    }
    return one;
}

#endif

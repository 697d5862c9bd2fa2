/* Elementary functions of sixteen floats: exp, log, tanh, sigmoid, erf.
 *
 * Made of the operations of vec.h and vec_words.h alone, each one rounding a lane in a fixed order.
 *
 * 1. The same bits on every instruction set, and independent of the neighbouring lanes. libm cannot
 *    promise that: it picks a variant for the machine it finds.
 * 2. NaN in, NaN out. No lane of a full vector traps, so lanes past an end may hold anything.
 * 3. Errors in units of the last place: exp, log 1; erf 1.1; expm1, log1p 1.5; tanh, sigmoid 2.5
 *    (tests/device/test_vec_math.c holds a dense sample of all floats to that).
 *
 * Activations and their slopes are made of these in vec_act.h.
 */
#ifndef LSI_DEVICE_VEC_MATH_H
#define LSI_DEVICE_VEC_MATH_H

#include "device/vec_words.h"

/* Added to a number of magnitude below 2^22: its nearest whole number is in the low bits. */
#define LSI_ROUND_MAGIC 0x1.8p23f
#define LSI_LOG2_E 0x1.715476p+0f
#define LSI_LN2_HIGH 0x1.62ep-1f /* twelve bits: times an exponent it is exact */
#define LSI_LN2_LOW 0x1.0bfbe8p-15f

/* e^x: 0 below -86.98 (e^x < 2^-125 there: no denormal number ever slows a kernel down), infinity
 * above 88.72. e^x = 2^n e^r with |r| <= ln(2) / 2. The polynomial of degree six is one for 2 e^r,
 * so that the other factor 2^(n - 1) is finite up to the largest result; the bits of 2^-127 are
 * those of 0, which is what small x get. The first form saves an operation where x is known not to
 * be larger, as in softmax. */
LSI_VEC v16 v16_exp_at_most_89(v16 x)
{
    const v16 magic = v16_set1(LSI_ROUND_MAGIC + 126.0f); /* 127 - 1: the exponent's bias */
    x = v16_max(v16_set1(-87.5f), x);
    const v16 t = v16_fma(x, v16_set1(LSI_LOG2_E), magic);
    const v16 n = v16_sub(t, magic);
    v16 r = v16_fnma(n, v16_set1(LSI_LN2_HIGH), x);
    r = v16_fnma(n, v16_set1(LSI_LN2_LOW), r);
    v16 p = v16_fma(v16_set1(0x1.6d10fep-9f), r, v16_set1(0x1.120b64p-6f));
    p = v16_fma(p, r, v16_set1(0x1.55551ap-4f));
    p = v16_fma(p, r, v16_set1(0x1.5554dep-2f));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_fma(p, r, v16_set1(2.0f));
    p = v16_fma(p, r, v16_set1(2.0f));
    return v16_mul(p, w16_floats(w16_shift_left(v16_words(t), 23)));
}

LSI_VEC v16 v16_exp(v16 x)
{
    return v16_exp_at_most_89(v16_min(v16_set1(89.0f), x));
}

/* e^x - 1 for x <= 0, accurate near 0: 2^n (e^r - 1) + (2^n - 1). -1 below -40. */
LSI_VEC v16 v16_expm1_negative(v16 x)
{
    const v16 magic = v16_set1(LSI_ROUND_MAGIC + 127.0f), one = v16_set1(1.0f);
    x = v16_max(v16_set1(-40.0f), x);
    const v16 t = v16_fma(x, v16_set1(LSI_LOG2_E), magic);
    const v16 n = v16_sub(t, magic);
    v16 r = v16_fnma(n, v16_set1(LSI_LN2_HIGH), x);
    r = v16_fnma(n, v16_set1(LSI_LN2_LOW), r);
    v16 p = v16_fma(v16_set1(0x1.6d10fep-10f), r, v16_set1(0x1.120b64p-7f));
    p = v16_fma(p, r, v16_set1(0x1.55551ap-5f));
    p = v16_fma(p, r, v16_set1(0x1.5554dep-3f));
    p = v16_fma(p, r, v16_set1(0.5f));
    p = v16_fma(v16_mul(p, r), r, r);
    const v16 power = w16_floats(w16_shift_left(v16_words(t), 23));
    return v16_fma(p, power, v16_sub(power, one));
}

/* The natural logarithm of x: -infinity for 0, NaN below it. x = 2^e m with m between sqrt(1/2) and
 * sqrt(2), f = m - 1: log(1 + f) = f - f^2 / 2 + f^3 P(f). */
LSI_VEC v16 v16_log(v16 x)
{
    const v16 one = v16_set1(1.0f), zero = v16_zero(), least = v16_set1(0x1p-126f);
    const v16 infinity = v16_set1(INFINITY);
    /* Denormal numbers are brought into the range of the others first. */
    const v16 y = v16_if_gt(least, x, v16_mul(x, v16_set1(0x1p25f)), x);
    v16 e = v16_if_gt(least, x, v16_set1(-25.0f), zero);
    /* Counted from the bits of sqrt(1/2), the exponent's field is e, what is below it m's. */
    const w16 from = w16_sub(v16_words(y), w16_set1(0x3f3504f3u));
    const w16 whole = w16_shift_right(from, 23);
    const v16 m = w16_floats(w16_sub(v16_words(y), w16_shift_left(whole, 23)));
    e = v16_add(e, w16_to_float(whole));
    const v16 f = v16_sub(m, one), ff = v16_mul(f, f);
    v16 p = v16_fma(v16_set1(0.0697499886f), f, v16_set1(-0.114821255f));
    p = v16_fma(p, f, v16_set1(0.116853662f));
    p = v16_fma(p, f, v16_set1(-0.124253854f));
    p = v16_fma(p, f, v16_set1(0.142490312f));
    p = v16_fma(p, f, v16_set1(-0.166678131f));
    p = v16_fma(p, f, v16_set1(0.20000717f));
    p = v16_fma(p, f, v16_set1(-0.24999997f));
    p = v16_fma(p, f, v16_set1(0.333333313f));
    p = v16_mul(p, v16_mul(f, ff));
    p = v16_fma(e, v16_set1(LSI_LN2_LOW), p);
    p = v16_fma(v16_set1(-0.5f), ff, p);
    p = v16_fma(e, v16_set1(LSI_LN2_HIGH), v16_add(f, p));
    /* NaN fails every comparison and comes out of the difference. */
    return v16_if_gt(x, zero, v16_if_gt(infinity, x, p, infinity),
                     v16_if_gt(zero, x, v16_set1(NAN), v16_sub(x, infinity)));
}

/* log(1 + x) for x in [0, 1]: the logarithm of the rounded sum, corrected for its rounding. */
LSI_VEC v16 v16_log1p_unit(v16 x)
{
    const v16 one = v16_set1(1.0f), u = v16_add(one, x);
    return v16_add(v16_log(u), v16_div(v16_sub(x, v16_sub(u, one)), u));
}

/* a with the sign of b; a is not negative. */
LSI_VEC v16 v16_with_sign(v16 a, v16 b)
{
    return w16_floats(w16_or(v16_words(a), w16_and(v16_words(b), w16_set1(0x80000000u))));
}

/* Odd to the bit: with E = e^(-2|x|) - 1, tanh |x| = -E / (E + 2). */
LSI_VEC v16 v16_tanh(v16 x)
{
    const v16 e = v16_expm1_negative(v16_mul(v16_set1(-2.0f), v16_abs(x)));
    return v16_with_sign(v16_div(v16_abs(e), v16_add(e, v16_set1(2.0f))), x);
}

/* 1 / (1 + e^-x): 0 below -88.72. */
LSI_VEC v16 v16_sigmoid(v16 x)
{
    const v16 one = v16_set1(1.0f);
    return v16_div(one, v16_add(one, v16_exp(v16_sub(v16_zero(), x))));
}

/* Odd to the bit. Two polynomials: for x + x P(x^2), and for the logarithm of 1 - erf |x|. */
LSI_VEC v16 v16_erf(v16 x)
{
    const v16 t = v16_min(v16_set1(10.0f), v16_abs(x)), s = v16_mul(t, t);
    v16 far = v16_fma(v16_set1(-1.72853470e-5f), t, v16_set1(3.83197126e-4f));
    const v16 u = v16_fma(v16_set1(-3.88396438e-3f), t, v16_set1(2.42546219e-2f));
    far = v16_fma(far, s, u);
    far = v16_fma(far, t, v16_set1(-1.06777877e-1f));
    far = v16_fma(far, t, v16_set1(-6.34846687e-1f));
    far = v16_fma(far, t, v16_set1(-1.28717512e-1f));
    far = v16_fma(far, t, v16_sub(v16_zero(), t));
    far = v16_sub(v16_set1(1.0f), v16_exp(far));
    v16 near = v16_fma(v16_set1(-5.96761703e-4f), s, v16_set1(4.99119423e-3f));
    near = v16_fma(near, s, v16_set1(-2.67681349e-2f));
    near = v16_fma(near, s, v16_set1(1.12819925e-1f));
    near = v16_fma(near, s, v16_set1(-3.76125336e-1f));
    near = v16_fma(near, s, v16_set1(1.28379166e-1f));
    near = v16_fma(near, t, t);
    return v16_with_sign(v16_if_gt(t, v16_set1(0.927734375f), far, near), x);
}

#endif

/* Exponentials in plain double operations; the contract is in softmax.h. */
#include "train/softmax.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ROUND_MAGIC 0x1.8p52 /* added to a small number: its nearest whole one is in the low bits */
#define LOG2_E 0x1.71547652b82fep+0
#define LN2_HIGH 0x1.62e42feep-1 /* 32 bits: times an exponent it is exact */
#define LN2_LOW 0x1.a39ef35793c76p-33
#define DEGREE 13 /* |r| <= ln(2) / 2: the rest of the series is below 2^-57 */

/* e^x = 2^n e^r; e^r by its series. */
double lsi_exp(double x)
{
    if (isnan(x))
        return x;
    if (x < -708.0)
        return 0;
    if (x > 709.0)
        return INFINITY;
    const double n = (x * LOG2_E + ROUND_MAGIC) - ROUND_MAGIC;
    const double r = (x - n * LN2_HIGH) - n * LN2_LOW;
    double sum = 1;
    for (int k = DEGREE; k > 0; k--)
        sum = 1 + sum * r / k;
    const uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

double lsi_sigmoid(double x)
{
    return 1 / (1 + lsi_exp(-x));
}

double lsi_softmax_weights(const float *logits, size_t n, double temperature, double *p)
{
    float largest = logits[0];
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(logits[i]))
            return NAN;
        largest = logits[i] > largest ? logits[i] : largest;
    }
    for (size_t i = 0; i < n; i++) {
        p[i] = lsi_exp(((double)logits[i] - (double)largest) / temperature);
        sum += p[i];
    }
    return sum;
}

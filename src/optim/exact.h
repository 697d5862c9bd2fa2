/* Powers and cosines from additions and multiplications alone.
 *
 * The C library's last bits differ from one library to the next, and from one processor to the
 * next; what ends up in weights may not.
 */
#ifndef LSI_OPTIM_EXACT_H
#define LSI_OPTIM_EXACT_H

#include <stdint.h>

/* x^n, by squaring. */
static inline double lsi_power(double x, uint64_t n)
{
    double result = 1;
    for (; n; n >>= 1, x *= x)
        if (n & 1)
            result *= x;
    return result;
}

/* cos(pi p) for p in [0, 1], by the series of the sine around the middle. */
static inline double lsi_cosine_of_half_turns(double p)
{
    const double x = (0.5 - p) * 3.14159265358979323846, square = x * x; /* cos(pi p) = sin x */
    double sum = 0;
    for (int k = 19; k > 1; k -= 2) /* x^21 / 21! is below 1e-15 */
        sum = (1 + sum) * (-square / (double)(k * (k - 1)));
    return x * (1 + sum);
}

#endif

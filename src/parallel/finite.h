/* Gradients that are no numbers, found before they reach the weights.
 *
 * The processor keeps a flag of every invalid operation, overflow and division by zero: a NaN or an
 * infinity cannot come into being without one of them. So the flags are looked at, which costs
 * nothing, and the gradients only if one is set. What was not finite from the start (weights, data)
 * raises no flag, but then the loss is not finite either, and that is always looked at
 * (graph/run.c).
 */
#ifndef LSI_PARALLEL_FINITE_H
#define LSI_PARALLEL_FINITE_H

#include <fenv.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LSI_FINITE_FLAGS (FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO)

static inline void lsi_finite_begin(void)
{
    feclearexcept(LSI_FINITE_FLAGS);
}

static inline int lsi_finite_suspect(void)
{
    return fetestexcept(LSI_FINITE_FLAGS) != 0;
}

/* The first of n values that is not finite; n when all are. */
static inline size_t lsi_finite_first(const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        if ((bits & 0x7f800000u) == 0x7f800000u)
            return i;
    }
    return n;
}

#endif

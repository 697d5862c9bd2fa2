/* From logits to probabilities, outside of a graph: for what is shown to users, and for sampling.
 *
 * 1. Made of double additions, multiplications and divisions in a fixed order, no libm: the same
 *    logits give the same choice on every machine.
 *
 * Pure functions: any thread, never fail.
 */
#ifndef LSI_TRAIN_SOFTMAX_H
#define LSI_TRAIN_SOFTMAX_H

#include <stddef.h>

/* e^x, 1 unit in the last place off at most; 0 below -708, infinity above 709. */
double lsi_exp(double x);
/* 1 / (1 + e^-x). */
double lsi_sigmoid(double x);
/* p[i] = e^(logit[i] / temperature), scaled so that the largest is 1; returns their sum, in the
 * order of i. NaN when a logit is not finite. temperature > 0. */
double lsi_softmax_weights(const float *logits, size_t n, double temperature, double *p);

#endif

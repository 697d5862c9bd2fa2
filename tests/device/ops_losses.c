/* Operations under test: losses with their gradients. */
#include <math.h>

#include "trial.h"

enum { NO_GRADIENT, APART, IN_PLACE };

static void cross_entropy(trial *t, const size_t *a)
{
    const size_t rows = a[0], c = a[1];
    const float smoothing = a[2] ? 0.1f : 0.0f;
    const double spread = a[5] ? 100 : 1.7;
    /* Which rows count: all, those not labelled with a class, none. */
    const int32_t ignore = a[3] == 1 ? 0 : -100;
    int32_t *labels = trial_ids(t, rows, c);
    for (size_t i = 0; a[3] == 2 && i < rows; i++)
        labels[i] = ignore;
    float *logits = trial_in_range(t, rows * c, -spread, spread);
    double *loss = trial_out_sum(t, "loss", 1, 1e-6, (double)rows);
    size_t *count = trial_out_size(t, "count");
    float *d = a[4] == NO_GRADIENT ? NULL : trial_out(t, "dlogits", rows * c, 0, 1e-6, 1);
    for (size_t i = 0; a[4] == IN_PLACE && i < rows * c; i++)
        d[i] = logits[i];
    CALL(t, cross_entropy, rows, c, a[4] == IN_PLACE ? d : logits, labels, ignore, smoothing, loss,
         count, d);
}

static void bce(trial *t, const size_t *a)
{
    const size_t n = a[0];
    const double spread = a[1] ? 120 : 1.7;
    const float *logits = trial_in_range(t, n, -spread, spread);
    float *targets = trial_in_range(t, n, 0, 1);
    for (size_t i = 0; i < n; i += 2)
        targets[i] = targets[i] > 0.5f;
    double *loss = trial_out_sum(t, "loss", 1, 1e-6, (double)n);
    float *d = a[2] ? trial_out(t, "dlogits", n, 0, 1e-6, 1) : NULL;
    for (size_t i = 0; a[2] == IN_PLACE && i < n; i++)
        d[i] = logits[i];
    CALL(t, bce, n, a[2] == IN_PLACE ? d : logits, targets, loss, d);
}

static void mse(trial *t, const size_t *a)
{
    const size_t n = a[0];
    const float *x = trial_in(t, n), *targets = trial_in(t, n);
    double *loss = trial_out_sum(t, "loss", 1, 1e-6, 1);
    float *dx = a[1] ? trial_out(t, "dx", n, a[1] == IN_PLACE, 3e-7, 1) : NULL;
    CALL(t, mse, n, a[1] == IN_PLACE ? dx : x, targets, loss, dx);
}

#define LENGTHS SIZES("n", 0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 257, 1000)

const trial_op trial_losses[] = {
    {ENTRY(cross_entropy),
     cross_entropy,
     {SIZES("rows", 0, 1, 2, 3, 17, 40), SIZES("c", 1, 2, 7, 10, 15, 16, 17, 31, 32, 33, 65, 1000),
      CHOICE("smoothing", 0, 1), CHOICE("ignore", 0, 1, 2),
      CHOICE("gradient", NO_GRADIENT, APART, IN_PLACE), CHOICE("wide", 0, 1)}},
    {ENTRY(bce),
     bce,
     {LENGTHS, CHOICE("wide", 0, 1), CHOICE("gradient", NO_GRADIENT, APART, IN_PLACE)}},
    {ENTRY(mse), mse, {LENGTHS, CHOICE("gradient", NO_GRADIENT, APART, IN_PLACE)}},
    {0},
};

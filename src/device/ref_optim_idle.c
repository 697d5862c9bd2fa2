/* Reference: steps of rows, and those that rows missed, as calls of the ordinary kernels. */
#include "device/ref.h"

ls_status lsi_ref_sgd_rows(lsi_device *device, const lsi_sgd *p, size_t rows, const size_t *at,
                           size_t n, const float *g, float *m, float *w)
{
    for (size_t r = 0; r < rows; r++)
        lsi_ref_sgd(device, p, n, g + r * n, m ? m + at[r] : NULL, w + at[r]);
    return LS_OK;
}

ls_status lsi_ref_adam_rows(lsi_device *device, const lsi_adam *p, size_t rows, const size_t *at,
                            size_t n, const float *g, float *m, float *v, float *w)
{
    for (size_t r = 0; r < rows; r++)
        lsi_ref_adam(device, p, n, g + r * n, m + at[r], v + at[r], w + at[r]);
    return LS_OK;
}

/* The number of the step that is followed by `later` others. */
static uint64_t number_of(uint64_t last, size_t later)
{
    return last ? last - later : 0;
}

ls_status lsi_ref_sgd_idle(lsi_device *device, const lsi_sgd *p, size_t rows, const lsi_idle *row,
                           size_t known, const float *lr, size_t n, float *m, float *w)
{
    lsi_sgd step = *p;
    step.first = 0;
    for (size_t r = 0; r < rows; r++) {
        for (size_t s = known - row[r].steps; s < known; s++) {
            step.lr = lr[s];
            step.number = number_of(p->number, known - 1 - s);
            lsi_ref_sgd(device, &step, n, NULL, m ? m + row[r].at : NULL, w + row[r].at);
        }
    }
    return LS_OK;
}

ls_status lsi_ref_adam_idle(lsi_device *device, const lsi_adam *p, size_t rows, const lsi_idle *row,
                            size_t known, const lsi_adam_rate *rates, size_t n, float *m, float *v,
                            float *w)
{
    lsi_adam step = *p;
    for (size_t r = 0; r < rows; r++) {
        const size_t at = row[r].at;
        for (size_t s = known - row[r].steps; s < known; s++) {
            step.lr = rates[s].lr;
            step.correct1 = rates[s].correct1;
            step.correct2 = rates[s].correct2;
            step.number = number_of(p->number, known - 1 - s);
            lsi_ref_adam(device, &step, n, NULL, m + at, v + at, w + at);
        }
    }
    return LS_OK;
}

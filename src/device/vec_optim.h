/* One step of sgd and of adam on sixteen elements, shared by the kernels that go over a range once
 * (cpu_optim.c) and those that go over a row many times (cpu_optim_idle.c).
 *
 * 1. A row that was left alone for k steps and then brought up to date has the bits of a row that
 *    was updated k times with a gradient of zero: there is one definition of a step, here.
 * 2. What depends on the step alone (lsi_adam_rate) is computed once a step, in single precision,
 *    by lsi_adam_rate_at.
 * 3. Whether a step settles (kernels.h) is seen in its number alone.
 */
#ifndef LSI_DEVICE_VEC_OPTIM_H
#define LSI_DEVICE_VEC_OPTIM_H

#include "device/kernels.h"
#include "device/vec.h"

/* Tiny values become zero; a NaN stays. */
LSI_VEC v16 v16_settle(v16 a)
{
    return v16_if_gt(v16_set1(LSI_MOMENT_TINY), v16_abs(a), v16_zero(), a);
}

/* g is scaled already. Returns the new weight. */
LSI_VEC v16 v16_sgd_step(const lsi_sgd *p, float lr, v16 g, v16 *m, int has_m, int first, v16 w)
{
    if (p->decay != 0)
        g = v16_fma(v16_set1(p->decay), w, g);
    if (has_m) {
        *m = first ? g : v16_fma(v16_set1(p->momentum), *m, g);
        g = p->nesterov ? v16_fma(v16_set1(p->momentum), *m, g) : *m;
        if (lsi_settles(p->number))
            *m = v16_settle(*m);
    }
    return v16_fnma(v16_set1(lr), g, w);
}

LSI_VEC void v16_adam_settle(const lsi_adam *p, v16 *m, v16 *v)
{
    *m = v16_settle(*m);
    if (p->eps > 0) /* without it 0 / 0 would come of this */
        *v = v16_settle(*v);
}

/* Both moments from the scaled gradient; not settled yet. */
LSI_VEC void v16_adam_moments(const lsi_adam *p, v16 g, v16 *m, v16 *v)
{
    *m = v16_fma(v16_set1(p->beta1), *m, v16_mul(v16_set1(1 - p->beta1), g));
    *v = v16_fma(v16_set1(p->beta2), *v, v16_mul(v16_mul(v16_set1(1 - p->beta2), g), g));
}

/* g is scaled already. Returns the new weight. */
LSI_VEC v16 v16_adam_step(const lsi_adam *p, const lsi_adam_rate *rate, v16 g, v16 *m, v16 *v,
                          v16 w)
{
    if (p->decoupled)
        w = v16_mul(v16_set1(rate->keep), w);
    else if (p->decay != 0)
        g = v16_fma(v16_set1(p->decay), w, g);
    v16_adam_moments(p, g, m, v);
    const v16 root = v16_fma(v16_sqrt(*v), v16_set1(rate->unroot), v16_set1(p->eps));
    const v16 step = v16_div(*m, root);
    if (lsi_settles(p->number))
        v16_adam_settle(p, m, v);
    return v16_fnma(v16_set1(rate->step), step, w);
}

#endif

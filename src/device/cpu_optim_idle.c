/* Steps that rows of a sparse parameter missed, made up for in registers.
 *
 * A row of an embedding table that no sample used has a gradient of zero; its momentum still moves
 * it. Instead of going over the whole table in every step, the optimizer goes over a row when it is
 * needed next, and takes all the missed steps at once: sixteen elements are two or three registers,
 * read and written once.
 *
 * 1. The bits are those of the missed steps taken one by one (vec_optim.h).
 * 2. Steps are taken in stretches that end where steps settle, so that nothing inside of a stretch
 *    depends on the step's number. A moment may be zero afterwards: such a row does not move any
 *    more, and a row that nobody has used for long costs next to nothing.
 * 3. The steps of one element are a chain, for sgd of one multiply-add (4 cycles) or with decay of
 *    three; a processor can do eight in that time. So sgd takes several rows at once, the longest
 *    idle first, the others joining as their first missed step comes. Adam's square root and
 *    division keep the processor busy with one row: about 35 cycles a step.
 */
#include "device/cpu.h"
#include "device/vec_optim.h"

/* Rows at once: their moments and weights in registers, and the constants too. */
#if defined(LSI_VEC_AVX2)
#define GROUP 2
#else
#define GROUP 4
#endif
#define LONG 32 /* missed steps, from which on it pays to look for a moment of zero */

/* How many of `left` steps, ending with step `last`, there are up to one that settles; *settles
 * when it is among them. */
LSI_VEC size_t stretch(uint64_t last, size_t left, int *settles)
{
    const size_t until = LSI_SETTLE_EVERY - (size_t)((last - left) % LSI_SETTLE_EVERY);
    *settles = last != 0 && until <= left;
    return *settles ? until : left;
}

/* All lanes; false for a NaN. */
LSI_VEC int is_zero(v16 a)
{
    return v16_sum(v16_abs(a)) == 0.0f;
}

/* ---- sgd ------------------------------------------------------------------------------------- */

/* Sixteen elements, or the last few of a row. */
typedef struct part {
    size_t at, n, steps;
} part;

/* The first `count` (a constant) of these take the same steps. */
LSI_VEC void sgd_together(int count, const lsi_sgd *p, int has_m, const float *lr, size_t steps,
                          v16 *m, v16 *w)
{
    v16 moment[GROUP], weight[GROUP]; /* registers: every index is a constant */
    for (int j = 0; j < count; j++)
        moment[j] = m[j], weight[j] = w[j];
    for (size_t s = 0; s < steps; s++) {
        for (int j = 0; j < count; j++)
            weight[j] = v16_sgd_step(p, lr[s], v16_zero(), &moment[j], has_m, 0, weight[j]);
    }
    for (int j = 0; j < count; j++)
        m[j] = moment[j], w[j] = weight[j];
}

/* A group, by descending numbers of steps; lr begins with the first step of the first part. */
LSI_VEC void sgd_steps(const lsi_sgd *p, int has_m, const part *parts, const float *lr, v16 *m,
                       v16 *w)
{
    lsi_sgd plain = *p;
    plain.number = 0;
    int active = 0;
    for (size_t left = parts[0].steps; left > 0;) {
        while (active < GROUP && parts[active].steps >= left)
            active++;
        const size_t until = active < GROUP ? left - parts[active].steps : left;
        int settles;
        size_t some = stretch(p->number, left, &settles);
        settles = settles && some <= until;
        some = some < until ? some : until;
        switch (active) {
        case 1: sgd_together(1, &plain, has_m, lr, some, m, w); break;
#if GROUP > 2
        case 2: sgd_together(2, &plain, has_m, lr, some, m, w); break;
        case 3: sgd_together(3, &plain, has_m, lr, some, m, w); break;
#endif
        default: sgd_together(GROUP, &plain, has_m, lr, some, m, w); break;
        }
        for (int j = 0; settles && has_m && j < active; j++)
            m[j] = v16_settle(m[j]);
        lr += some;
        left -= some;
    }
}

LSI_VEC void sgd_group(const lsi_sgd *p, part *parts, const float *lr_end, float *m, float *w)
{
    v16 moment[GROUP], weight[GROUP];
    for (int i = 1; i < GROUP; i++) { /* sorted by insertion */
        const part one = parts[i];
        int j = i;
        for (; j > 0 && parts[j - 1].steps < one.steps; j--)
            parts[j] = parts[j - 1];
        parts[j] = one;
    }
    for (int j = 0; j < GROUP; j++) {
        weight[j] = v16_get(w + parts[j].at, parts[j].n);
        moment[j] = m ? v16_get(m + parts[j].at, parts[j].n) : v16_zero();
    }
    const float *lr = lr_end - parts[0].steps;
    if (m)
        sgd_steps(p, 1, parts, lr, moment, weight);
    else
        sgd_steps(p, 0, parts, lr, moment, weight);
    for (int j = 0; j < GROUP; j++) {
        v16_put(w + parts[j].at, weight[j], parts[j].n);
        if (m)
            v16_put(m + parts[j].at, moment[j], parts[j].n);
    }
}

/* A part whose moment is zero stays where it is; only a zero's sign is lost. */
LSI_VEC int sgd_rests(const lsi_sgd *p, const part *one, float *m)
{
    if (p->decay != 0 || one->steps == 0)
        return one->steps == 0;
    if (!m)
        return 1;
    if (one->steps < LONG || !is_zero(v16_get(m + one->at, one->n)))
        return 0;
    v16_store_n(m + one->at, v16_zero(), one->n);
    return 1;
}

static ls_status sgd_idle(lsi_device *device, const lsi_sgd *p, size_t rows, const lsi_idle *row,
                          size_t known, const float *lr, size_t n, float *m, float *w)
{
    (void)device;
    const lsi_sgd fixed = *p; /* no store below can change it: it stays in registers */
    part parts[GROUP];
    int count = 0;
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i += 16) {
            parts[count] = (part){row[r].at + i, n - i < 16 ? n - i : 16, row[r].steps};
            count += !sgd_rests(&fixed, &parts[count], m);
            if (count == GROUP) {
                sgd_group(&fixed, parts, lr + known, m, w);
                count = 0;
            }
        }
    }
    if (count == 0)
        return LS_OK;
    for (int j = count; j < GROUP; j++)
        parts[j] = (part){parts[0].at, 0, 0}; /* nothing */
    sgd_group(&fixed, parts, lr + known, m, w);
    return LS_OK;
}

/* ---- adam ------------------------------------------------------------------------------------ */

/* Steps of a part without momentum: its squares fade, and decoupled decay goes on. */
LSI_VEC v16 adam_at_rest(const lsi_adam *p, const lsi_adam_rate *rates, size_t steps, v16 *square,
                         v16 weight)
{
    for (size_t s = 0; s < steps; s++) {
        *square = v16_fma(v16_set1(p->beta2), *square, v16_zero());
        if (p->decoupled)
            weight = v16_mul(v16_set1(rates[s].keep), weight);
    }
    return weight;
}

/* rates begins with the first missed step. */
LSI_VEC void adam_at(const lsi_adam *p, size_t steps, const lsi_adam_rate *rates, float *m,
                     float *v, float *w, size_t at, size_t n)
{
    lsi_adam plain = *p;
    plain.number = 0;
    v16 weight = v16_get(w + at, n);
    v16 moment = v16_get(m + at, n), square = v16_get(v + at, n);
    const int rests = p->eps > 0 && (p->decoupled || p->decay == 0); /* when the moment is zero */
    while (steps > 0) {
        int settles;
        const size_t some = stretch(p->number, steps, &settles);
        if (rests && is_zero(moment)) {
            moment = v16_zero(); /* without a sign */
            if (!p->decoupled && is_zero(square))
                break;
            weight = adam_at_rest(p, rates, some, &square, weight);
        } else {
            for (size_t s = 0; s < some; s++)
                weight = v16_adam_step(&plain, &rates[s], v16_zero(), &moment, &square, weight);
        }
        if (settles)
            v16_adam_settle(p, &moment, &square);
        steps -= some;
        rates += some;
    }
    v16_put(m + at, moment, n);
    v16_put(v + at, square, n);
    v16_put(w + at, weight, n);
}

static ls_status adam_idle(lsi_device *device, const lsi_adam *p, size_t rows, const lsi_idle *row,
                           size_t known, const lsi_adam_rate *rates, size_t n, float *m, float *v,
                           float *w)
{
    (void)device;
    const lsi_adam fixed = *p;
    for (size_t r = 0; r < rows; r++) {
        const size_t at = row[r].at, steps = row[r].steps;
        V16_FOR_EACH(n, adam_at, &fixed, steps, rates + (known - steps), m + at, v + at, w + at);
    }
    return LS_OK;
}

void LSI_K(install_optim_idle)(lsi_kernels *kernels)
{
    kernels->sgd_idle = sgd_idle;
    kernels->adam_idle = adam_idle;
}

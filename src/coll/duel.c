/* Comparing two ways: see duel.h. */
#include "coll/duel.h"

#define TRIALS 3     /* the first calls of a way find the caches as the other one has left them */
#define SOON 16      /* calls that show a change */
#define PERIOD 512   /* calls until they are compared anyway */
#define SMOOTH 0.125 /* weight of a call */
#define CHANGED 1.3  /* slower or faster than this is another situation */
#define GAIN 0.95    /* less is not worth a change */

int lsi_duel_way(const lsi_duel *d)
{
    return d->trials ? !d->better : d->better;
}

static void settle(lsi_duel *d)
{
    if (d->time[!d->better] < GAIN * d->time[d->better])
        d->better = !d->better;
    d->compared = d->time[d->better];
    d->calls = 0;
}

static int is_changed(const lsi_duel *d)
{
    const double now = d->time[d->better];
    return now > CHANGED * d->compared || now * CHANGED < d->compared;
}

void lsi_duel_tell(lsi_duel *d, int way, double seconds)
{
    double *time = &d->time[way];
    if (way != lsi_duel_way(d))
        return;
    if (d->trials) { /* the first one does not count, the best of the others does */
        if (d->trials < TRIALS && (*time == 0 || seconds < *time))
            *time = seconds;
        if (--d->trials == 0)
            settle(d);
        return;
    }
    d->calls++;
    if (d->time[!way] == 0 && (*time == 0 || seconds < *time))
        *time = seconds; /* likewise, before they are compared for the first time */
    else
        *time += SMOOTH * ((seconds < 2 * *time ? seconds : 2 * *time) - *time);
    if (d->time[!way] == 0 ? d->calls == TRIALS
                           : d->calls >= PERIOD || (d->calls >= SOON && is_changed(d))) {
        d->time[!way] = 0;
        d->trials = TRIALS;
    }
}

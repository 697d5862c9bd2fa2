/* Signs of life: what a rank tells its launcher of itself, through the host block.
 *
 * A rank says what it does in a few words, as often as that changes; while it waits for others it
 * beats. The launcher gives up those who do neither (launch/watch.c), and shows the words when a
 * step takes long, or to whoever asks. Words may be read while they are written: they are for
 * people.
 */
#ifndef LSI_BASE_LIFE_H
#define LSI_BASE_LIFE_H

#include <string.h>

#include "base/host.h"

static inline void lsi_life_beat(lsi_host_rank *me)
{
    const uint64_t beat = atomic_load_explicit(&me->beat, memory_order_relaxed);
    atomic_store_explicit(&me->beat, beat + 1, memory_order_relaxed);
}

/* `verb` is a word or two, `what` may be NULL. */
static inline void lsi_life_say(lsi_host_rank *me, const char *verb, const char *what)
{
    const size_t head = strlen(verb), room = LSI_HOST_DOING_MAX - 1;
    size_t n = what ? strlen(what) : 0;
    memcpy(me->doing, verb, head);
    n = n < room - head ? n : room - head;
    if (n)
        memcpy(me->doing + head, what, n);
    me->doing[head + n] = 0;
    lsi_life_beat(me);
}

/* The rank works on step `step` (from 1); 0: on none. */
static inline void lsi_life_step(lsi_host_rank *me, uint64_t step)
{
    atomic_store_explicit(&me->step, step, memory_order_relaxed);
    lsi_life_beat(me);
}

/* It may be silent for long: a disk decides how long, say. */
static inline void lsi_life_be_patient(lsi_host_rank *me, int patient)
{
    atomic_store_explicit(&me->patient, (uint32_t)patient, memory_order_relaxed);
    lsi_life_beat(me);
}

#endif

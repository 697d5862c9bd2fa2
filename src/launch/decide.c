/* The rules by which generations begin.
 *
 * 1. The first begins when all hosts that were announced are here with all their workers. It is the
 *    host that listens who knows how many.
 * 2. A later one begins when no worker is inside the one before: all that live wait at the gate.
 *    It takes whoever waits, up to max_workers.
 * 3. With fewer than min_workers it is waited for more; after a while the work is saved and ended.
 * 4. More than half of the hosts of the one before must be here, or half of them with the first;
 *    unless the store is not ours: then it is the store that has a majority. On a store that we
 *    have just moved to, late ones are waited for a little.
 * 5. While a generation runs with fewer workers than it may have, and others wait, it is changed.
 */
#include "launch/decide.h"

#include <stdio.h>

#define MINORITY_S 60.0 /* for the others to come back */
#define LISTENER_S 5.0  /* likewise for the one that listens, before there is a generation */

static const lsi_seat *seat_of(const lsi_council *c, uint64_t id)
{
    for (int i = 0; i < c->n_seats; i++)
        if (c->seats[i].id == id)
            return &c->seats[i];
    return NULL;
}

/* Is anybody inside the latest generation, or on the way into it? */
static int is_running(const lsi_council *c)
{
    for (int h = 0; h < c->table.hosts; h++) {
        const lsi_seat *s = seat_of(c, c->table.id[h]);
        if (s && (s->generation < c->table.generation || s->busy))
            return 1;
    }
    return 0;
}

static int size_of(const lsi_table *t)
{
    int sum = 0;
    for (int h = 0; h < t->hosts; h++)
        sum += t->size[h];
    return sum;
}

/* Those who wait, in order of their hosts. */
static void gather(const lsi_council *c, lsi_table *t)
{
    *t = (lsi_table){.generation = c->table.generation + 1, .stop = c->stop};
    int left = c->most;
    for (int i = 0; i < c->n_seats && left > 0; i++) {
        const lsi_seat *s = &c->seats[i];
        if (s->leaving || !s->ready)
            continue;
        t->id[t->hosts] = s->id;
        t->size[t->hosts] = s->ready < left ? s->ready : left;
        left -= t->size[t->hosts++];
    }
}

static int waiting(const lsi_council *c)
{
    int sum = 0;
    for (int i = 0; i < c->n_seats; i++)
        sum += c->seats[i].leaving ? 0 : c->seats[i].ready;
    return sum;
}

static int is_in(const lsi_table *t, uint64_t id)
{
    for (int h = 0; h < t->hosts; h++)
        if (t->id[h] == id)
            return 1;
    return 0;
}

/* Workers that wait while the latest generation runs. Hosts that have still to enter it say nothing
 * of that. */
static int spare(const lsi_council *c)
{
    int sum = 0;
    for (int i = 0; i < c->n_seats; i++) {
        const lsi_seat *s = &c->seats[i];
        if (!s->leaving && (s->generation >= c->table.generation || !is_in(&c->table, s->id)))
            sum += s->ready;
    }
    return sum;
}

/* Hosts of the latest generation that are here. */
static int returned(const lsi_council *c)
{
    int n = 0;
    for (int h = 0; h < c->table.hosts; h++)
        n += seat_of(c, c->table.id[h]) != NULL;
    return n;
}

/* The first generation: hosts as announced. */
static lsi_decision decide_first(const lsi_council *c, double waited, char *why)
{
    const int hosts = c->config->hosts > 0 ? c->config->hosts : 1;
    int here = 0;
    if (c->config->join) {
        snprintf(why, LSI_HOST_CAUSE_MAX, "the host that listens, which is gone");
        return waited > LISTENER_S ? LSI_DECIDE_END : LSI_DECIDE_WAIT;
    }
    for (int i = 0; i < c->n_seats; i++)
        here += c->seats[i].ready > 0 && c->seats[i].busy == 0 && !c->seats[i].leaving;
    if (here >= hosts)
        return LSI_DECIDE_FORM;
    if (hosts > 1)
        snprintf(why, LSI_HOST_CAUSE_MAX, "%d of %d hosts", hosts - here, hosts);
    else
        snprintf(why, LSI_HOST_CAUSE_MAX, "the workers to start");
    return LSI_DECIDE_WAIT;
}

/* More than half of the hosts of the latest generation; or half of them, with the first. */
static int has_quorum(const lsi_council *c)
{
    const int here = returned(c), of = c->table.hosts;
    return 2 * here > of || (2 * here == of && seat_of(c, c->table.id[0]));
}

static lsi_decision check_quorum(const lsi_council *c, double waited, char *why)
{
    const int here = returned(c), of = c->table.hosts;
    if (c->config->quorum_any || c->config->store || c->table.generation == 0)
        return LSI_DECIDE_FORM;
    const int late = c->moved_at > 0 && here < of - 1 && waited < LSI_COUNCIL_LATE_S;
    if (has_quorum(c) && !late)
        return LSI_DECIDE_FORM;
    snprintf(why, LSI_HOST_CAUSE_MAX, "more than %d of %d hosts: the others may go on without us",
             here, of);
    const double most_s = c->config->short_s > 0 ? c->config->short_s : MINORITY_S;
    return waited > most_s ? LSI_DECIDE_END : late ? LSI_DECIDE_WAIT : LSI_DECIDE_LOOK;
}

static lsi_decision decide_next(const lsi_council *c, double waited, lsi_table *out, char *why)
{
    const double most_s = c->config->short_s > 0 ? c->config->short_s : LSI_LAUNCH_SHORT_S;
    const int here = waiting(c);
    const lsi_decision quorum = check_quorum(c, waited, why);
    if (quorum == LSI_DECIDE_END && here) { /* save what we have, and end */
        out->stop = 1;
        return LSI_DECIDE_FORM;
    }
    if (quorum != LSI_DECIDE_FORM)
        return quorum;
    if (here >= c->least || (here && c->stop))
        return LSI_DECIDE_FORM;
    snprintf(why, LSI_HOST_CAUSE_MAX, "%d more of at least %d workers", c->least - here, c->least);
    if (waited < most_s)
        return LSI_DECIDE_WAIT;
    out->stop = 1;
    return here ? LSI_DECIDE_FORM : LSI_DECIDE_END;
}

lsi_decision lsi_decide(const lsi_council *c, double waited, lsi_table *out, char *why)
{
    gather(c, out);
    if (c->table.generation && is_running(c)) {
        const int more = spare(c) > 0 && size_of(&c->table) < c->most;
        return more && c->change < c->table.generation ? LSI_DECIDE_CHANGE : LSI_DECIDE_NOTHING;
    }
    if (!c->table.generation && !c->stop)
        return decide_first(c, waited, why);
    return decide_next(c, waited, out, why);
}

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
 * 5. Somebody must bring the state, as good as any host keeps it: where those who had it died, and
 *    only such wait who were still getting it, the ones that replace them are waited for. When no
 *    host keeps one any more, the generation begins, and says so.
 * 6. Somebody must have the data, for all who lack it. Where those who had it died, the ones that
 *    replace them are waited for; when no host has it any more, the generation begins, saves and
 *    ends.
 * 7. While a generation runs with fewer workers than it may have, and others wait, it is changed.
 * 8. Hosts that were asked to go are left out, once one that stays keeps the state as well as they
 *    do. When all were asked, that is a wish to stop: the work is saved, and ends.
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

static int all_leave(const lsi_council *c)
{
    for (int i = 0; i < c->n_seats; i++)
        if (!c->seats[i].leaving)
            return 0;
    return c->n_seats > 0;
}

int lsi_decide_has_heir(const lsi_council *c)
{
    uint64_t best = 0;
    for (int i = 0; i < c->n_seats; i++)
        best = c->seats[i].state > best ? c->seats[i].state : best;
    for (int i = 0; i < c->n_seats; i++)
        if (!c->seats[i].leaving && c->seats[i].state == best)
            return 1;
    return 0;
}

/* Is a host counted on? Rule 8. */
static int takes_part(const lsi_council *c, const lsi_seat *s)
{
    return !s->leaving || (s->ready > 0 && !lsi_decide_has_heir(c));
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

/* Those who wait, in order of their hosts. Who lacks the data is the first to be spared. */
static void gather(const lsi_council *c, lsi_table *t)
{
    int size[LSI_MAX_HOSTS] = {0}, left = c->most;
    for (int hungry = 0; hungry < 2; hungry++)
        for (int i = 0; i < c->n_seats; i++) {
            const lsi_seat *s = &c->seats[i];
            if (!takes_part(c, s) || (s->hungry != 0) != hungry)
                continue;
            size[i] = s->ready < left ? s->ready : left;
            left -= size[i];
        }
    *t = (lsi_table){.generation = c->table.generation + 1, .stop = c->stop};
    for (int i = 0; i < c->n_seats; i++) {
        if (!size[i])
            continue;
        t->id[t->hosts] = c->seats[i].id;
        t->size[t->hosts++] = size[i];
    }
}

static int waiting(const lsi_council *c)
{
    int sum = 0;
    for (int i = 0; i < c->n_seats; i++)
        sum += takes_part(c, &c->seats[i]) ? c->seats[i].ready : 0;
    return sum;
}

static int is_in(const lsi_table *t, uint64_t id)
{
    for (int h = 0; h < t->hosts; h++)
        if (t->id[h] == id)
            return 1;
    return 0;
}

/* Hosts that have still to enter it say nothing of that. */
int lsi_decide_spare(const lsi_council *c)
{
    const int room = c->most - size_of(&c->table);
    int sum = 0;
    for (int i = 0; i < c->n_seats; i++) {
        const lsi_seat *s = &c->seats[i];
        if (!s->leaving && (s->generation >= c->table.generation || !is_in(&c->table, s->id)))
            sum += s->ready;
    }
    return sum < room ? sum : room > 0 ? room : 0;
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
    return c->config->quorum_any || c->config->store || 2 * here > of ||
           (2 * here == of && seat_of(c, c->table.id[0]));
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

/* Will nobody of this table bring the state, though a host keeps it? */
static int lacks_state(const lsi_council *c, const lsi_table *t, char *why)
{
    const lsi_seat *best = NULL;
    for (int i = 0; i < c->n_seats; i++)
        if (takes_part(c, &c->seats[i]) && c->seats[i].state > (best ? best->state : 0))
            best = &c->seats[i];
    for (int h = 0; best && h < t->hosts; h++)
        if (seat_of(c, t->id[h])->brought == best->state)
            return 0;
    if (best)
        snprintf(why, LSI_HOST_CAUSE_MAX, "a worker of host %llu, which has the state",
                 (unsigned long long)best->id);
    return best != NULL;
}

/* Does nobody of this table have the data, though a host has it? */
static int lacks_data(const lsi_council *c, const lsi_table *t, char *why)
{
    const lsi_seat *fed = NULL;
    for (int h = 0; h < t->hosts; h++)
        if (!seat_of(c, t->id[h])->hungry)
            return 0;
    for (int i = 0; i < c->n_seats && !fed; i++)
        if (c->seats[i].fed && takes_part(c, &c->seats[i]))
            fed = &c->seats[i];
    if (fed)
        snprintf(why, LSI_HOST_CAUSE_MAX, "a worker of host %llu, which has the data",
                 (unsigned long long)fed->id);
    return fed != NULL;
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
    if (here >= c->least || (here && c->stop)) {
        const int lacks = lacks_state(c, out, why) || (!c->stop && lacks_data(c, out, why));
        return lacks && waited < most_s ? LSI_DECIDE_WAIT : LSI_DECIDE_FORM;
    }
    if (!here && all_leave(c)) {
        snprintf(why, LSI_HOST_CAUSE_MAX, "a host that stays: all were asked to go");
        return LSI_DECIDE_END;
    }
    snprintf(why, LSI_HOST_CAUSE_MAX, "%d more of at least %d workers", c->least - here, c->least);
    if (waited < most_s)
        return LSI_DECIDE_WAIT;
    out->stop = 1;
    return here ? LSI_DECIDE_FORM : LSI_DECIDE_END;
}

lsi_decision lsi_decide(const lsi_council *c, double waited, lsi_table *out, char *why)
{
    gather(c, out);
    if (c->table.generation && !c->stop && all_leave(c) && has_quorum(c))
        return LSI_DECIDE_STOP;
    if (c->table.generation && is_running(c)) {
        return lsi_decide_spare(c) && c->change < c->table.generation ? LSI_DECIDE_CHANGE
                                                                      : LSI_DECIDE_NOTHING;
    }
    if (!c->table.generation && !c->stop)
        return decide_first(c, waited, why);
    return decide_next(c, waited, out, why);
}

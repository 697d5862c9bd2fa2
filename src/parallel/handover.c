/* State from those who have it to those who lack it. */
#include "parallel/handover.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "coll/algorithm.h"
#include "optim/optimizer.h"

/* What the leader of a domain says of it. */
typedef struct standing {
    int64_t filled;
    int64_t steps;
} standing;

/* Who has the state, in order; and what each sends. Those who have it agree on every value but for
 * lazy rows (optim/lazy.c): which of these are up to date differs where a step was not ended, and a
 * row, its moments and its stamp must come from one hand. So one sends all where there are any. */
typedef struct sources {
    int n;
    int alone; /* the first of them sends all */
    const standing *of;
    int64_t steps;
} sources;

static int is_source(const sources *s, int domain)
{
    return s->of[domain].filled && s->of[domain].steps == s->steps;
}

/* Bytes [*from, *to) that domain `index` sends to whoever lacks them; none if it has nothing. */
static void part_of(const sources *s, int index, size_t bytes, size_t *from, size_t *to)
{
    int place = 0;
    *from = *to = 0;
    if (!is_source(s, index))
        return;
    for (int i = 0; i < index; i++)
        place += is_source(s, i);
    if (!s->alone)
        lsi_part(bytes, s->n, place, from, to);
    else if (place == 0)
        *to = bytes;
}

/* All of the state to one domain. Collective over the leaders. */
static ls_status send_to(lsi_replica *r, const sources *s, int to, size_t *counts)
{
    lsi_domain *d = &r->domain;
    const size_t bytes = r->elements * sizeof(float) + r->state_bytes;
    size_t from, end, *send = counts, *receive = counts + d->count;
    memset(counts, 0, 2 * (size_t)d->count * sizeof *counts);
    part_of(s, d->index, bytes, &from, &end);
    send[to] = end - from;
    for (int i = 0; d->index == to && i < d->count; i++) {
        size_t a, b;
        part_of(s, i, bytes, &a, &b);
        receive[i] = b - a;
    }
    return ls_alltoallv(d->leaders, (const char *)r->weights + from, send, r->weights, receive,
                        LS_U8);
}

/* The latest evaluation, as domain `from` knows it. */
static ls_status spread_judged(lsi_replica *r, int from)
{
    lsi_vault_head *head = r->vault->head;
    double judged[2] = {head->judged_loss, (double)atomic_load(&head->judged)};
    LSI_TRY(ls_broadcast(r->domain.leaders, judged, 2, LS_F64, from));
    head->judged_loss = judged[0];
    atomic_store(&head->judged, (uint64_t)judged[1]);
    return LS_OK;
}

static ls_status spread(lsi_replica *r, const sources *s)
{
    lsi_domain *d = &r->domain;
    lsi_vault *v = r->vault;
    int first = 0;
    size_t *counts = calloc(2 * (size_t)d->count, sizeof *counts);
    if (!counts)
        return lsi_fail(LS_ERR_NOMEM, NULL, "handover", "out of memory");
    while (!is_source(s, first))
        first++;
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < d->count; i++)
        if (!is_source(s, i))
            status = send_to(r, s, i, counts);
    free(counts);
    const uint64_t buffers = v->head->shape.buffers;
    if (status == LS_OK && buffers)
        status = ls_broadcast(d->leaders, v->buffers[s->steps & 1], buffers, LS_F32, first);
    if (status == LS_OK)
        status = ls_broadcast(d->leaders, v->head->figures, sizeof v->head->figures, LS_U8, first);
    if (status == LS_OK)
        status = spread_judged(r, first);
    return status;
}

/* The leaders' part. */
static ls_status agree(lsi_replica *r)
{
    lsi_domain *d = &r->domain;
    lsi_vault_head *head = r->vault->head;
    standing *all = calloc((size_t)d->count, sizeof *all);
    if (!all)
        return lsi_fail(LS_ERR_NOMEM, NULL, "handover", "out of memory");
    const standing mine = {atomic_load(&head->filled), (int64_t)atomic_load(&head->steps)};
    ls_status status = ls_allgather(d->leaders, &mine, all, 2, LS_I64);
    sources s = {.of = all, .steps = -1, .alone = r->optimizer && r->optimizer->stamp_count};
    for (int i = 0; status == LS_OK && i < d->count; i++)
        if (all[i].filled && all[i].steps > s.steps)
            s.steps = all[i].steps;
    for (int i = 0; status == LS_OK && i < d->count; i++)
        s.n += is_source(&s, i);
    if (status == LS_OK && s.n && s.n < d->count) {
        const double from = lsi_now();
        status = spread(r, &s);
        if (status == LS_OK && !is_source(&s, d->index))
            lsi_log(LSI_LOG_INFO, "state of step %lld from %d hosts in %.3f s", (long long)s.steps,
                    s.alone ? 1 : s.n, lsi_now() - from);
    }
    if (status == LS_OK && s.n) {
        atomic_store(&head->steps, (uint64_t)s.steps);
        atomic_store(&head->filled, 1);
    }
    free(all);
    return status;
}

ls_status lsi_handover(lsi_replica *r, int *filled, uint64_t *steps)
{
    if (r->domain.leaders)
        LSI_TRY(agree(r));
    LSI_TRY(lsi_domain_meet(&r->domain));
    *filled = (int)atomic_load(&r->vault->head->filled);
    *steps = atomic_load(&r->vault->head->steps);
    return LS_OK;
}

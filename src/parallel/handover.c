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

static int is_source(const standing *s, int64_t steps)
{
    return s->filled == LSI_VAULT_FULL && s->steps == steps;
}

static void forget(lsi_arrival *a)
{
    free(a->has);
    free(a->requests);
    *a = (lsi_arrival){0};
}

void lsi_handover_close(lsi_replica *r)
{
    forget(&r->arrival);
}

/* ---- who has it ----------------------------------------------------------------------------- */

static ls_status lost(void)
{
    return lsi_fail(LS_ERR_INVALID, "resume from the latest checkpoint", "training",
                    "all hosts that had the state are gone");
}

/* LS_ERR_INVALID: somebody had one, but is gone. *steps is -1 when nobody has one yet. */
static ls_status find_sources(const standing *all, int n, int64_t *steps)
{
    int had = 0;
    *steps = -1;
    for (int i = 0; i < n; i++) {
        had |= all[i].filled != LSI_VAULT_EMPTY;
        if (all[i].filled == LSI_VAULT_FULL && all[i].steps > *steps)
            *steps = all[i].steps;
    }
    return had && *steps < 0 ? lost() : LS_OK;
}

/* What is small: statistics, figures and the latest evaluation, as domain `from` knows them. */
static ls_status spread_figures(lsi_replica *r, int64_t steps, int from)
{
    lsi_vault *v = r->vault;
    lsi_vault_head *head = v->head;
    ls_comm *leaders = r->domain.leaders;
    double judged[2] = {head->judged_loss, (double)atomic_load(&head->judged)};
    if (head->shape.buffers)
        LSI_TRY(ls_broadcast(leaders, v->buffers[steps & 1], head->shape.buffers, LS_F32, from));
    LSI_TRY(ls_broadcast(leaders, head->figures, sizeof head->figures, LS_U8, from));
    LSI_TRY(ls_broadcast(leaders, judged, 2, LS_F64, from));
    head->judged_loss = judged[0];
    atomic_store(&head->judged, (uint64_t)judged[1]);
    return LS_OK;
}

/* Some lack the state: note who, for when it is sent. */
static ls_status plan(lsi_replica *r, const standing *all, int64_t steps, int lack)
{
    const lsi_domain *d = &r->domain;
    lsi_arrival *a = &r->arrival;
    int first = 0;
    forget(a);
    a->has = calloc((size_t)d->count, 1);
    a->requests = calloc(2 * (size_t)lack, sizeof(ls_request *));
    if (!a->has || !a->requests)
        return lsi_fail(LS_ERR_NOMEM, NULL, "handover", "out of memory");
    a->lack = lack;
    a->alone = r->optimizer && r->optimizer->stamp_count;
    for (int i = 0; i < d->count; i++)
        a->has[i] = (uint8_t)is_source(&all[i], steps);
    if (!a->has[d->index]) {
        lsi_memory_tell(r, 0);
        atomic_store(&r->vault->head->filled, LSI_VAULT_ARRIVING);
        atomic_store(&r->vault->head->steps, (uint64_t)steps);
    }
    while (!a->has[first])
        first++;
    LSI_TRY(spread_figures(r, steps, first));
    return a->alone ? lsi_handover_finish(r) : LS_OK;
}

/* The leaders' part. */
static ls_status agree(lsi_replica *r)
{
    const lsi_domain *d = &r->domain;
    const lsi_vault_head *head = r->vault->head;
    int64_t steps;
    standing *all = calloc((size_t)d->count, sizeof *all);
    if (!all)
        return lsi_fail(LS_ERR_NOMEM, NULL, "handover", "out of memory");
    const standing mine = {atomic_load(&head->filled), (int64_t)atomic_load(&head->steps)};
    ls_status status = ls_allgather(d->leaders, &mine, all, 2, LS_I64);
    if (status == LS_OK)
        status = find_sources(all, d->count, &steps);
    if (status == LS_OK && steps >= 0) {
        int lack = 0;
        for (int i = 0; i < d->count; i++)
            lack += !is_source(&all[i], steps);
        if (is_source(&mine, steps))
            lsi_memory_tell(r, 1);
        if (lack)
            status = plan(r, all, steps, lack);
    }
    free(all);
    return status;
}

ls_status lsi_handover(lsi_replica *r, int *filled, uint64_t *steps)
{
    if (r->domain.count == 1 && atomic_load(&r->vault->head->filled) == LSI_VAULT_ARRIVING)
        return lost();
    if (r->domain.leaders)
        LSI_TRY(agree(r));
    else if (r->domain.count == 1 && r->domain.member == 0 &&
             atomic_load(&r->vault->head->filled) == LSI_VAULT_FULL)
        lsi_memory_tell(r, 1);
    LSI_TRY(lsi_domain_meet(&r->domain));
    *filled = atomic_load(&r->vault->head->filled) != LSI_VAULT_EMPTY;
    *steps = atomic_load(&r->vault->head->steps);
    return LS_OK;
}

/* ---- sending -------------------------------------------------------------------------------- */

/* Of so many bytes, those [*from, *to) that domain `index` sends to whoever lacks them. Those who
 * have the state agree on every value but for lazy rows (optim/lazy.c): which of these are up to
 * date differs where a step was not ended, and a row, its moments and its stamp must come from one
 * hand. So one sends all where there are any. */
static void part_of(const lsi_replica *r, int index, size_t bytes, size_t *from, size_t *to)
{
    const lsi_arrival *a = &r->arrival;
    int place = 0;
    *from = *to = 0;
    if (!a->has[index])
        return;
    for (int i = 0; i < index; i++)
        place += a->has[i];
    if (!a->alone)
        lsi_part(bytes, r->domain.count - a->lack, place, from, to);
    else if (place == 0)
        *to = bytes;
}

/* `bytes` at `at` to one domain, as the next request. */
static ls_status send_to(lsi_replica *r, int to, char *at, size_t bytes, size_t *counts)
{
    const lsi_domain *d = &r->domain;
    lsi_arrival *a = &r->arrival;
    size_t from, end, *send = counts, *receive = counts + d->count;
    memset(counts, 0, 2 * (size_t)d->count * sizeof *counts);
    part_of(r, d->index, bytes, &from, &end);
    send[to] = end - from;
    for (int i = 0; d->index == to && i < d->count; i++) {
        size_t first, last;
        part_of(r, i, bytes, &first, &last);
        receive[i] = last - first;
    }
    return ls_alltoallv_start(d->leaders, at + from, send, at, receive, LS_U8,
                              &a->requests[a->n++]);
}

/* Weights to all who lack them, then what the optimizer keeps: what is asked for first goes
 * first. */
static ls_status send_all(lsi_replica *r)
{
    const size_t bytes = r->elements * sizeof(float), size[] = {bytes, r->state_bytes};
    char *const at[] = {(char *)r->weights, (char *)r->weights + bytes};
    size_t *counts = calloc(2 * (size_t)r->domain.count, sizeof *counts);
    if (!counts)
        return lsi_fail(LS_ERR_NOMEM, NULL, "handover", "out of memory");
    ls_status status = LS_OK;
    r->arrival.from = lsi_now();
    for (int part = 0; part < 2; part++)
        for (int i = 0; status == LS_OK && i < r->domain.count; i++)
            if (!r->arrival.has[i])
                status = send_to(r, i, at[part], size[part], counts);
    free(counts);
    return status;
}

/* So many requests are complete. */
static ls_status wait_for(lsi_replica *r, int n)
{
    lsi_arrival *a = &r->arrival;
    for (; a->done < n; a->done++)
        LSI_TRY(lsi_domain_wait(&r->domain, &a->requests[a->done]));
    return LS_OK;
}

ls_status lsi_handover_weights(lsi_replica *r)
{
    lsi_arrival *a = &r->arrival;
    if (a->lack && !a->n)
        LSI_TRY(send_all(r));
    if (a->lack)
        LSI_TRY(wait_for(r, a->lack));
    if (atomic_load(&r->vault->head->filled) != LSI_VAULT_ARRIVING)
        return LS_OK;
    return lsi_domain_meet(&r->domain);
}

void lsi_handover_look(lsi_replica *r)
{
    lsi_arrival *a = &r->arrival;
    if (a->done == a->n || a->failed)
        return;
    const ls_status status = ls_request_test(&a->requests[a->done]);
    a->done += status == LS_OK;
    a->failed = status == LS_IN_PROGRESS ? LS_OK : status;
}

ls_status lsi_handover_finish(lsi_replica *r)
{
    lsi_arrival *a = &r->arrival;
    if (!a->lack)
        return LS_OK;
    if (!a->n)
        LSI_TRY(send_all(r));
    if (a->failed) {
        LSI_TRY(lsi_domain_look(&r->domain));
        return lsi_fail(a->failed, NULL, "handover", "the state did not arrive");
    }
    LSI_TRY(wait_for(r, a->n));
    lsi_vault_head *head = r->vault->head;
    if (!a->has[r->domain.index]) {
        lsi_log(LSI_LOG_INFO, "the state of step %llu from %d hosts in %.3f s",
                (unsigned long long)atomic_load(&head->steps),
                a->alone ? 1 : r->domain.count - a->lack, lsi_now() - a->from);
        atomic_store(&head->filled, LSI_VAULT_FULL);
        lsi_memory_tell(r, 1);
    }
    forget(a);
    return LS_OK;
}

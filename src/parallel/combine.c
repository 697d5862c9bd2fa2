/* Sums over the members of a domain, and over domains.
 *
 * Buckets go through four stages, each in ascending order: ready (complete over a member's range),
 * reduced (each member has summed its segment of it into the leader's vectors), started (the leader
 * has begun its exchange with the other domains), done. The first two are told to the other members
 * through shared memory, so that nobody waits in the middle of a backward pass: who comes by does
 * what can be done.
 */
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "coll/algorithm.h"
#include "parallel/handover.h"

/* Into the leader's vectors; into `sums`, of the whole batch, if it is not NULL. */
static void merge(const lsi_replica *r, size_t from, size_t to, float *sums)
{
    const lsi_layout *l = &r->layout;
    const void *in[LSI_TREE_MAX_LEAVES];
    void *out[LSI_TREE_MAX_NODES];
    for (int i = 0; i < l->n_in; i++)
        in[i] = lsi_vector(r, l->in[i].member, l->in[i].vector) + from;
    for (int k = 0; k < l->n_out; k++)
        out[k] = lsi_vector(r, 0, k) + from;
    if (sums)
        out[0] = sums;
    lsi_tree_merge_run(&l->plan, LS_F32, LS_SUM, in, out, to - from);
}

int lsi_combine_needs_no_sum(const lsi_replica *r)
{
    return r->domain.members == 1 && r->layout.n_in == r->layout.n_out;
}

void lsi_combine_range(lsi_replica *r, size_t from, size_t to)
{
    if (lsi_combine_needs_no_sum(r))
        return;
    size_t a, b;
    for (size_t at = from; lsi_dense_run(r, at, to, &a, &b); at = b)
        merge(r, a, b, NULL);
}

const float *lsi_combine_run(lsi_replica *r, size_t first, size_t last)
{
    const size_t from = first * LS_OPTIM_BLOCK, to = last * LS_OPTIM_BLOCK;
    size_t a, b;
    if (r->domain.count > 1 || lsi_combine_needs_no_sum(r))
        return lsi_vector(r, 0, 0);
    for (size_t at = from; lsi_dense_run(r, at, to, &a, &b); at = b)
        merge(r, a, b, r->sums + (a - from));
    return (const float *)((uintptr_t)r->sums - from * sizeof(float));
}

/* ---- several domains ------------------------------------------------------------------------ */

/* Has every member brought this many buckets to the stage? */
static int all_have(const lsi_replica *r, int buckets, size_t stage)
{
    const uint64_t wanted = r->syncs * (uint64_t)r->n_buckets + (uint64_t)buckets;
    for (int m = 0; m < r->domain.members; m++) {
        const char *at = (const char *)lsi_counters_of(r, m) + stage;
        if (atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)at, memory_order_acquire) < wanted)
            return 0;
    }
    return 1;
}

static void tell(lsi_replica *r, _Atomic uint64_t *stage, int buckets)
{
    atomic_store_explicit(stage, r->syncs * (uint64_t)r->n_buckets + (uint64_t)buckets,
                          memory_order_release);
}

/* Our segments of what all members have brought. */
static void reduce_ready(lsi_replica *r)
{
    lsi_counters *mine = lsi_counters_of(r, r->domain.member);
    tell(r, &mine->ready, r->buckets_ready);
    while (r->buckets_reduced < r->buckets_ready &&
           all_have(r, r->buckets_reduced + 1, offsetof(lsi_counters, ready))) {
        const lsi_bucket *bucket = &r->buckets[r->buckets_reduced];
        size_t a, b;
        lsi_part(bucket->to - bucket->from, r->domain.members, r->domain.member, &a, &b);
        if (b > a)
            lsi_combine_range(r, bucket->from + a, bucket->from + b);
        tell(r, &mine->reduced, ++r->buckets_reduced);
    }
}

/* The leader's part: start what is reduced, end what has arrived. */
static ls_status exchange_ready(lsi_replica *r)
{
    for (;;) {
        while (r->buckets_started < r->buckets_reduced &&
               r->buckets_started - r->buckets_done < LSI_EXCHANGES &&
               all_have(r, r->buckets_started + 1, offsetof(lsi_counters, reduced))) {
            const int b = r->buckets_started;
            const lsi_bucket *bucket = &r->buckets[b];
            LSI_TRY(lsi_allreduce_shards_start(r->domain.leaders, &bucket->shards,
                                               lsi_vector(r, 0, 0) + bucket->from,
                                               bucket->to - bucket->from, LS_F32, &r->requests[b]));
            if (r->buckets_started++ == 0)
                r->exchange_from = lsi_now();
        }
        if (r->buckets_done == r->buckets_started)
            return LS_OK;
        const ls_status status = ls_request_test(&r->requests[r->buckets_done]);
        if (status == LS_IN_PROGRESS)
            return LS_OK;
        LSI_TRY(status);
        r->buckets_done++;
        r->exchange_to = lsi_now();
    }
}

ls_status lsi_combine_look(lsi_replica *r)
{
    reduce_ready(r);
    if (r->domain.leaders)
        LSI_TRY(exchange_ready(r));
    const int done = r->domain.leaders ? r->buckets_done : r->buckets_reduced;
    return done == r->n_buckets ? LS_OK : LS_IN_PROGRESS;
}

/* Who has not brought its buckets, for the error. */
static int slowest(const lsi_replica *r)
{
    int found = 0;
    for (int m = 1; m < r->domain.members; m++)
        if (atomic_load(&lsi_counters_of(r, m)->ready) <
            atomic_load(&lsi_counters_of(r, found)->ready))
            found = m;
    return r->domain.first[r->domain.index] + found;
}

/* Until all our segments are summed: the other members may still compute. */
static ls_status reduce_all(lsi_replica *r)
{
    const double from = lsi_now(), most = r->domain.world->world->timeout_s;
    ls_status status;
    for (unsigned looks = 0;; looks++) {
        status = lsi_combine_look(r);
        if ((status != LS_OK && status != LS_IN_PROGRESS) || r->buckets_reduced == r->n_buckets)
            break;
        status = lsi_domain_look(&r->domain);
        if (status == LS_OK && lsi_now() - from > most)
            status =
                lsi_fail(LS_ERR_TIMEOUT, NULL, "training step",
                         "worker %d has not brought its gradients for %.0f s", slowest(r), most);
        if (status != LS_OK)
            break;
        if (looks > 100)
            sched_yield();
    }
    r->domain.waited += lsi_now() - from;
    return status == LS_IN_PROGRESS ? LS_OK : status;
}

static ls_status exchange_all(lsi_replica *r)
{
    const double from = lsi_now();
    ls_status status;
    while ((status = lsi_combine_look(r)) == LS_IN_PROGRESS) {
        LSI_TRY(lsi_domain_wait(&r->domain, &r->requests[r->buckets_done]));
        r->buckets_done++;
        r->exchange_to = lsi_now();
    }
    r->exposed = lsi_now() - from;
    return status;
}

/* ---- the tail ------------------------------------------------------------------------------- */

static void merge_tails(const lsi_replica *r, void *const *out)
{
    const lsi_layout *l = &r->layout;
    const void *in[LSI_TREE_MAX_LEAVES];
    for (int i = 0; i < l->n_in; i++)
        in[i] = lsi_tail(r, l->in[i].member, l->in[i].vector);
    lsi_tree_merge_run(&l->plan, LS_F64, LS_SUM, in, out, r->tails);
}

static ls_status exchange_tails(lsi_replica *r)
{
    void *out[LSI_TREE_MAX_NODES];
    lsi_shards shards = {.leaves = r->layout.leaves,
                         .spans = r->layout.spans,
                         .n_mine = r->layout.n_out};
    for (int k = 0; k < r->layout.n_out; k++)
        shards.mine[k] = out[k] = lsi_tail(r, 0, k);
    merge_tails(r, out);
    ls_request *request = NULL;
    LSI_TRY(lsi_allreduce_shards_start(r->domain.leaders, &shards, lsi_tail(r, 0, 0), r->tails,
                                       LS_F64, &request));
    return lsi_domain_wait(&r->domain, &request);
}

void lsi_combine_tails(lsi_replica *r)
{
    void *out = r->totals;
    merge_tails(r, &out);
}

ls_status lsi_combine_finish(lsi_replica *r)
{
    if (r->domain.count == 1) {
        LSI_TRY(lsi_domain_meet(&r->domain));
        lsi_combine_tails(r);
        return LS_OK;
    }
    LSI_TRY(reduce_all(r));
    LSI_TRY(lsi_domain_meet(&r->domain)); /* tails are complete */
    if (r->domain.leaders) {
        LSI_TRY(exchange_all(r));
        LSI_TRY(exchange_tails(r));
        LSI_TRY(lsi_handover_finish(r)); /* what was sent may change, what arrives is complete */
    }
    LSI_TRY(lsi_domain_meet(&r->domain));
    memcpy(r->totals, lsi_tail(r, 0, 0), r->tails * sizeof *r->totals);
    return LS_OK;
}

/* The engine's object: memory, and the way of a step. */
#include "parallel/handover.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "optim/optimizer.h"
#include "parallel/sparse.h"

#define BUCKET_BYTES ((size_t)4 << 20)

/* ---- opening -------------------------------------------------------------------------------- */

static ls_status open_optimizer(lsi_replica *r, const lsi_replica_setup *setup)
{
    if (!setup->optimizer)
        return LS_OK;
    LSI_TRY(ls_optimizer_create(setup->optimizer, r->params, r->n_params, setup->elements,
                                &r->optimizer));
    r->state_bytes = ls_optimizer_state_bytes(r->optimizer);
    return LS_OK;
}

static ls_status check_setup(const lsi_replica *r, const lsi_replica_setup *setup)
{
    if (setup->shards < 1 || setup->shards > LSI_TREE_MAX_LEAVES)
        return lsi_fail(LS_ERR_CONFIG, NULL, "shards", "%d is not in 1…%d", setup->shards,
                        LSI_TREE_MAX_LEAVES);
    if (r->domain.workers > setup->shards)
        return lsi_fail(LS_ERR_CONFIG, "fewer workers, or more shards (which changes the result)",
                        "workers", "%d of them cannot share %d shards", r->domain.workers,
                        setup->shards);
    return LS_OK;
}

static ls_status open_parts(lsi_replica *r, const lsi_replica_setup *setup)
{
    LSI_TRY(check_setup(r, setup));
    r->shards = setup->shards;
    r->n_params = setup->n_params;
    r->blocks = (setup->elements + LS_OPTIM_BLOCK - 1) / LS_OPTIM_BLOCK;
    r->elements = r->blocks * LS_OPTIM_BLOCK;
    r->tails = LSI_TAIL_FREE + setup->tails;
    r->together = setup->together && r->domain.count > 1;
    r->params = calloc((size_t)r->n_params + 1, sizeof *r->params);
    r->is_ready = calloc((size_t)r->n_params + 1, 1);
    if (!r->params || !r->is_ready)
        return lsi_fail(LS_ERR_NOMEM, NULL, "replica", "out of memory");
    memcpy(r->params, setup->params, (size_t)r->n_params * sizeof *r->params);
    LSI_TRY(open_optimizer(r, setup));
    LSI_TRY(lsi_memory_open(r, setup));
    if (r->optimizer)
        ls_optimizer_bind(r->optimizer, (char *)r->weights + r->elements * sizeof(float));
    LSI_TRY(lsi_buckets_make(r, setup->bucket_bytes ? setup->bucket_bytes : BUCKET_BYTES));
    return lsi_layout_make(r, lsi_cut_shards(setup->batch, r->shards));
}

ls_status lsi_replica_open(ls_comm *comm, const lsi_replica_setup *setup, lsi_replica **out)
{
    lsi_replica *r = calloc(1, sizeof *r);
    if (!r)
        return lsi_fail(LS_ERR_NOMEM, NULL, "replica", "out of memory");
    ls_status status = lsi_domain_open(comm, &r->domain);
    if (status == LS_OK && setup->weights && setup->keeper) /* a heap has room for equal parts */
        status = lsi_domain_divide(&r->domain, setup->weights);
    if (status == LS_OK)
        status = open_parts(r, setup);
    if (status != LS_OK) {
        lsi_replica_close(r);
        return status;
    }
    *out = r;
    return LS_OK;
}

void lsi_replica_close(lsi_replica *r)
{
    if (!r)
        return;
    ls_optimizer_destroy(r->optimizer);
    lsi_memory_close(r);
    lsi_domain_close(&r->domain);
    free(r->layout.spans);
    free(r->buckets);
    free(r->requests);
    lsi_handover_close(r);
    free(r->is_ready);
    free(r->params);
    free(r);
}

ls_status lsi_replica_spread(lsi_replica *r)
{
    lsi_domain *d = &r->domain;
    LSI_TRY(lsi_domain_meet(d));
    if (d->leaders)
        LSI_TRY(ls_broadcast(d->leaders, r->weights, r->elements * sizeof(float) + r->state_bytes,
                             LS_U8, 0));
    if (r->optimizer) {
        int64_t step = (int64_t)ls_optimizer_get_step(r->optimizer);
        LSI_TRY(ls_broadcast(d->world, &step, 1, LS_I64, 0));
        if ((uint64_t)step != ls_optimizer_get_step(r->optimizer))
            ls_optimizer_set_step(r->optimizer, (uint64_t)step);
    }
    return lsi_domain_meet(d);
}

/* ---- shards --------------------------------------------------------------------------------- */

ls_status lsi_replica_begin(lsi_replica *r, uint64_t samples)
{
    const int leaves = lsi_cut_shards(samples, r->shards);
    LSI_TRY(lsi_layout_make(r, leaves));
    r->samples = samples;
    lsi_domain_range(&r->domain, leaves, r->domain.worker, &r->first_shard, &r->end_shard);
    r->shard = r->first_shard - 1;
    r->buckets_ready = r->first_shard == r->end_shard ? r->n_buckets : 0;
    r->buckets_reduced = r->buckets_started = r->buckets_done = 0;
    r->domain.waited = r->exchange_from = r->exchange_to = r->exposed = 0;
    lsi_fold_begin(&r->fold, leaves, r->first_shard);
    lsi_transaction_begin(r);
    return LS_OK;
}

int lsi_replica_side(lsi_replica *r)
{
    const int n = r->end_shard - r->first_shard;
    lsi_tree_node nodes[LSI_TREE_MAX_LEAVES], out[LSI_TREE_MAX_NODES];
    if (r->side_leaves != r->layout.leaves || r->side_n != n) {
        for (int i = 0; i < n; i++)
            nodes[i] = (lsi_tree_node){r->first_shard + i, r->first_shard + i + 1};
        lsi_tree_merge_plan(r->layout.leaves, nodes, n, out, &r->side_plan);
        r->side_leaves = r->layout.leaves;
        r->side_n = n;
    }
    r->shard = r->end_shard - 1;
    memset(r->is_ready, 0, (size_t)r->n_params);
    r->ready = 0;
    for (int i = 0; i < n; i++)
        memset(lsi_replica_side_tail(r, i), 0, r->tails * sizeof(double));
    return n;
}

void lsi_replica_side_shard(const lsi_replica *r, int i, uint64_t *first, uint64_t *end)
{
    lsi_cut_shard(r->samples, r->layout.leaves, r->first_shard + i, first, end);
}

float *lsi_replica_side_leaf(const lsi_replica *r, int i)
{
    return lsi_vector(r, r->domain.member, i);
}

double *lsi_replica_side_tail(const lsi_replica *r, int i)
{
    return lsi_tail(r, r->domain.member, i);
}

int lsi_replica_next(lsi_replica *r, uint64_t *first, uint64_t *end)
{
    if (r->shard + 1 >= r->end_shard)
        return 0;
    r->shard++;
    lsi_cut_shard(r->samples, r->layout.leaves, r->shard, first, end);
    lsi_fold_next(&r->fold, &r->step);
    memset(r->is_ready, 0, (size_t)r->n_params);
    r->ready = 0;
    memset(lsi_replica_tail(r), 0, r->tails * sizeof(double));
    return 1;
}

float *lsi_replica_leaf(const lsi_replica *r)
{
    return lsi_vector(r, r->domain.member, r->step.place);
}

double *lsi_replica_tail(const lsi_replica *r)
{
    return lsi_tail(r, r->domain.member, r->step.place);
}

/* Together: the gradients of all shards into the sums. */
static void merge_param(lsi_replica *r, const ls_param_info *param)
{
    const void *in[LSI_TREE_MAX_LEAVES];
    void *out[LSI_TREE_MAX_NODES];
    if (param->sparse)
        return;
    for (int i = 0; i < r->side_n; i++)
        in[i] = lsi_vector(r, r->domain.member, i) + param->offset;
    for (int k = 0; k < r->side_plan.n_out; k++)
        out[k] = lsi_vector(r, r->domain.member, k) + param->offset;
    lsi_tree_merge_run(&r->side_plan, LS_F32, LS_SUM, in, out, param->count);
}

static void fold_param(lsi_replica *r, const ls_param_info *param)
{
    const lsi_fold_step *s = &r->step;
    if (s->into == s->place || param->sparse)
        return;
    const void *in[LSI_TREE_MAX_NODES + 1];
    for (int k = s->into; k <= s->place; k++)
        in[k - s->into] = lsi_vector(r, r->domain.member, k) + param->offset;
    void *out = lsi_vector(r, r->domain.member, s->into) + param->offset;
    lsi_tree_merge_run(&s->plan, LS_F32, LS_SUM, in, &out, param->count);
}

void lsi_replica_ready(lsi_replica *r, int index)
{
    if (r->is_ready[index])
        return;
    if (r->together)
        merge_param(r, &r->params[index]);
    else
        fold_param(r, &r->params[index]);
    r->is_ready[index] = 1;
    while (r->ready < r->n_params && r->is_ready[r->ready])
        r->ready++;
    if (r->domain.count == 1 || r->shard + 1 < r->end_shard)
        return;
    while (r->buckets_ready < r->n_buckets && r->buckets[r->buckets_ready].last_param < r->ready)
        r->buckets_ready++;
    (void)lsi_combine_look(r); /* an error stays with the group, and comes out in sync */
}

static void merge_side_tails(lsi_replica *r)
{
    const void *in[LSI_TREE_MAX_LEAVES];
    void *out[LSI_TREE_MAX_NODES];
    for (int i = 0; i < r->side_n; i++)
        in[i] = lsi_replica_side_tail(r, i);
    for (int k = 0; k < r->side_plan.n_out; k++)
        out[k] = lsi_replica_side_tail(r, k);
    lsi_tree_merge_run(&r->side_plan, LS_F64, LS_SUM, in, out, r->tails);
}

void lsi_replica_done(lsi_replica *r)
{
    const lsi_fold_step *s = &r->step;
    for (int i = r->ready; i < r->n_params; i++)
        lsi_replica_ready(r, i);
    if (r->together) {
        merge_side_tails(r);
        return;
    }
    if (s->into == s->place)
        return;
    const void *in[LSI_TREE_MAX_NODES + 1];
    for (int k = s->into; k <= s->place; k++)
        in[k - s->into] = lsi_tail(r, r->domain.member, k);
    void *out = lsi_tail(r, r->domain.member, s->into);
    lsi_tree_merge_run(&s->plan, LS_F64, LS_SUM, in, &out, r->tails);
}

/* ---- the update ----------------------------------------------------------------------------- */

int lsi_own_run(const lsi_replica *r, size_t *first, size_t *last)
{
    const size_t members = (size_t)r->domain.members, member = (size_t)r->domain.member;
    size_t group = (*first + LSI_OWN_BLOCKS - 1) / LSI_OWN_BLOCKS;
    while (!r->owns_all && group % members != member)
        group++;
    *first = group * LSI_OWN_BLOCKS;
    if (*first >= r->blocks)
        return 0;
    *last = *first + LSI_OWN_BLOCKS < r->blocks ? *first + LSI_OWN_BLOCKS : r->blocks;
    return 1;
}

/* Their sums into the leader's vector, if they do not stand there already. */
static void combine_blocks(lsi_replica *r, size_t first, size_t last)
{
    if (r->domain.count == 1)
        lsi_combine_range(r, first * LS_OPTIM_BLOCK, last * LS_OPTIM_BLOCK);
}

static void combine_own(lsi_replica *r)
{
    size_t last;
    for (size_t first = 0; lsi_own_run(r, &first, &last); first = last)
        combine_blocks(r, first, last);
}

static ls_status measure(lsi_replica *r, int round)
{
    const int changes = lsi_optimizer_directs(r->optimizer, round);
    size_t last;
    if (changes) { /* all sums stand before that */
        if (round == 0)
            combine_own(r);
        LSI_TRY(lsi_domain_meet(&r->domain));
        lsi_transaction_change(r);
    }
    for (size_t first = 0; lsi_own_run(r, &first, &last); first = last) {
        if (round == 0 && !changes)
            combine_blocks(r, first, last);
        LSI_TRY(lsi_transaction_measure(r, round, first, last));
    }
    LSI_TRY(lsi_domain_meet(&r->domain));
    return ls_optimizer_combine(r->optimizer, round);
}

/* Where nothing is to be summed or undone, all blocks are one run: rows of tables are asked for
 * early inside of a run, and each run begins with waiting for them. */
static ls_status update(lsi_replica *r, float scale)
{
    const int rounds = ls_optimizer_rounds(r->optimizer);
    const int whole = !r->vault && lsi_combine_needs_no_sum(r);
    size_t last;
    LSI_TRY(ls_optimizer_begin(r->optimizer, scale));
    for (int round = 0; round < rounds; round++)
        LSI_TRY(measure(r, round));
    lsi_transaction_change(r);
    for (size_t first = 0; lsi_own_run(r, &first, &last); first = last) {
        last = whole ? r->blocks : last;
        const float *sums = rounds ? lsi_vector(r, 0, 0) : lsi_combine_run(r, first, last);
        LSI_TRY(lsi_transaction_update(r, sums, first, last));
    }
    ls_optimizer_end(r->optimizer);
    return LS_OK;
}

ls_status lsi_replica_combine(lsi_replica *r)
{
    LSI_TRY(lsi_combine_finish(r));
    const double count = r->totals[LSI_TAIL_COUNT];
    if (!(count > 0))
        return lsi_fail(LS_ERR_INVALID, "look at the data", "training step",
                        "nothing in the batch counts: %g samples or tokens", count);
    return LS_OK;
}

ls_status lsi_replica_change(lsi_replica *r)
{
    if (r->sparse)
        LSI_TRY(lsi_sparse_combine(r));
    if (r->optimizer)
        LSI_TRY(update(r, (float)(1 / r->totals[LSI_TAIL_COUNT])));
    else
        combine_own(r);
    return LS_OK;
}

ls_status lsi_replica_end(lsi_replica *r)
{
    LSI_TRY(lsi_domain_meet(&r->domain));
    lsi_transaction_end(r);
    r->syncs++;
    return LS_OK;
}

ls_status lsi_replica_sync(lsi_replica *r)
{
    LSI_TRY(lsi_replica_combine(r));
    LSI_TRY(lsi_replica_change(r));
    return lsi_replica_end(r);
}

/* A graph's step, shard by shard. */
#include "parallel/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "parallel/finite.h"
#include "parallel/handover.h"
#include "parallel/sparse.h"

#define STATISTICS 0.1f
#define HEADS ((size_t)4 << 20) /* of a vault and a slot, and what else is small there */

struct lsi_engine {
    ls_graph *graph;
    ls_graph **side; /* [n_side] together: one a shard, the first is `graph`; NULL: one by one */
    int n_side;
    int side_later; /* they are still to be made: after the first step */
    ls_status (*another)(void *arg, ls_graph **out); /* lsi_engine_config */
    void *another_arg;
    lsi_replica *replica;
    size_t micro;           /* samples of a run, at most */
    float momentum;         /* of running statistics */
    size_t buffers;         /* elements of statistics */
    float *observed;        /* of the batch */
    int last_run;           /* of its shard: gradients are complete when they are ready */
    void (*ask)(void *arg); /* lsi_engine_config */
    int (*leave)(void *arg);
    void *ask_arg;
    int has_stepped; /* since it was opened */
    int ran;         /* `graph`, in this step */
    int stop;        /* lsi_engine_ask_stop */
    int change;      /* lsi_engine_ask_change */
    uint64_t steps;
    struct {       /* the first gradient of this step that is no number */
        int param; /* -1: none */
        int shard;
        size_t at;
        float value;
    } bad;
};

/* ---- opening -------------------------------------------------------------------------------- */

static size_t largest_shard(const lsi_engine_config *config)
{
    const uint64_t shards = (uint64_t)lsi_cut_shards(config->batch, config->shards);
    return (size_t)((config->batch + shards - 1) / shards);
}

size_t lsi_engine_graph_batch(const lsi_engine_config *config)
{
    const size_t shard = largest_shard(config);
    return config->micro_batch && config->micro_batch < shard ? config->micro_batch : shard;
}

static void on_node(void *arg, const char *name, int backward)
{
    const lsi_engine *e = arg;
    lsi_life_say(lsi_domain_life(&e->replica->domain), backward ? "backward of " : "forward of ",
                 name);
    lsi_handover_look(e->replica);
}

/* Look at the gradient of one parameter in one shard. */
static void look(lsi_engine *e, int index, const float *values, size_t n, int shard)
{
    const size_t at = e->bad.param < 0 ? lsi_finite_first(values, n) : n;
    if (at == n)
        return;
    e->bad.param = index;
    e->bad.shard = shard;
    e->bad.at = at;
    e->bad.value = values[at];
}

static void look_at_param(lsi_engine *e, int index)
{
    const lsi_replica *r = e->replica;
    const ls_param_info *p = &r->params[index];
    if (p->sparse)
        return;
    if (!r->together)
        look(e, index, lsi_replica_leaf(r) + p->offset, p->count, r->shard);
    for (int i = 0; r->together && i < r->end_shard - r->first_shard; i++)
        look(e, index, lsi_replica_side_leaf(r, i) + p->offset, p->count, r->first_shard + i);
}

static void on_ready(void *arg, int index)
{
    lsi_engine *e = arg;
    if (!e->last_run)
        return;
    if (lsi_finite_suspect())
        look_at_param(e, index);
    lsi_replica_ready(e->replica, index);
}

static ls_status bad_gradient(const lsi_engine *e)
{
    const lsi_replica *r = e->replica;
    if (e->bad.param < 0)
        return LS_OK;
    return lsi_fail(LS_ERR_INVALID,
                    "a smaller learning rate, or look at the data; nothing was changed",
                    r->params[e->bad.param].name,
                    "the gradient is %g at element %zu, in shard %d of step %llu, on worker %d",
                    (double)e->bad.value, e->bad.at, e->bad.shard, (unsigned long long)e->steps + 1,
                    r->domain.worker);
}

/* Rows of each sparse parameter that a shard can name. Fails when they cannot be known before a
 * run. */
static ls_status count_rows(ls_graph *graph, const ls_param_info *params, int n, size_t runs,
                            size_t *rows, int *any)
{
    *any = 0;
    for (int i = 0; i < n; i++) {
        ls_sparse_ids ids;
        ls_status status = params[i].sparse ? LS_OK : LS_ERR_NOT_FOUND;
        for (int k = 0; status == LS_OK; k++) {
            status = ls_graph_sparse_ids(graph, i, k, &ids);
            rows[i] += status == LS_OK ? ids.count * runs : 0;
            *any |= status == LS_OK;
        }
        if (status != LS_ERR_NOT_FOUND)
            return status;
    }
    return LS_OK;
}

/* All parameters of a graph; the caller frees them. */
static ls_status list_params(const ls_graph *graph, ls_param_info **out)
{
    const int n = ls_graph_param_count(graph);
    ls_param_info *params = calloc((size_t)n + 1, sizeof *params);
    ls_status status = params ? LS_OK : lsi_fail(LS_ERR_NOMEM, NULL, "engine", "out of memory");
    for (int i = 0; i < n && status == LS_OK; i++)
        status = ls_graph_param(graph, i, &params[i]);
    *out = params;
    return status;
}

static int runs_together(const lsi_engine_config *config)
{
    return config->another && !config->micro_batch;
}

ls_status lsi_engine_foresee(const ls_graph *graph, const lsi_engine_config *config, int workers,
                             size_t *bytes)
{
    const int n = ls_graph_param_count(graph);
    const size_t elements = ls_graph_param_elements(graph);
    const int leaves = lsi_cut_shards(config->batch, config->shards);
    const int share = (leaves + workers - 1) / workers;
    const int vectors = runs_together(config) ? share : lsi_fold_room(leaves, 0, share);
    ls_optimizer *optimizer = NULL;
    ls_param_info *params;
    int sparse = 0;
    *bytes = 0;
    ls_status status = list_params(graph, &params);
    for (int i = 0; i < n && status == LS_OK; i++)
        sparse |= params[i].sparse;
    if (status == LS_OK && !sparse && config->optimizer)
        status = ls_optimizer_create(config->optimizer, params, n, elements, &optimizer);
    if (status == LS_OK && optimizer)
        *bytes = HEADS + (size_t)(1 + vectors) * elements * sizeof(float) +
                 ls_optimizer_state_bytes(optimizer);
    ls_optimizer_destroy(optimizer);
    free(params);
    return status;
}

static ls_status open_replica(lsi_engine *e, ls_comm *comm, const lsi_engine_config *config)
{
    const int n = ls_graph_param_count(e->graph);
    ls_param_info *params;
    size_t *rows = calloc((size_t)n + 1, sizeof *rows);
    ls_status status = list_params(e->graph, &params);
    if (status == LS_OK && !rows)
        status = lsi_fail(LS_ERR_NOMEM, NULL, "engine", "out of memory");
    const size_t runs = (largest_shard(config) + e->micro - 1) / e->micro;
    int any = 0;
    if (status == LS_OK)
        status = count_rows(e->graph, params, n, runs, rows, &any);
    if (status == LS_OK) {
        const lsi_replica_setup setup = {.shards = config->shards,
                                         .params = params,
                                         .n_params = n,
                                         .elements = ls_graph_param_elements(e->graph),
                                         .tails = e->buffers,
                                         .optimizer = config->optimizer,
                                         .bucket_bytes = config->bucket_bytes,
                                         .batch = config->batch,
                                         .sparse_rows = any ? rows : NULL,
                                         .together = runs_together(config),
                                         .keeper = config->keeper,
                                         .weights = config->weights,
                                         .buffers = e->buffers};
        status = lsi_replica_open(comm, &setup, &e->replica);
    }
    free(params);
    free(rows);
    return status;
}

/* Several domains: a graph for each shard that this worker can have. */
static ls_status open_side(lsi_engine *e)
{
    lsi_replica *r = e->replica;
    int first, end;
    lsi_domain_range(&r->domain, r->shards, r->domain.worker, &first, &end);
    const int most = end - first + 1; /* of a smaller batch it may be one more, but never more */
    e->side = calloc((size_t)most, sizeof(ls_graph *));
    if (!e->side)
        return lsi_fail(LS_ERR_NOMEM, NULL, "engine", "out of memory");
    e->side[e->n_side++] = e->graph;
    for (; e->n_side < most; e->n_side++) {
        LSI_TRY(e->another(e->another_arg, &e->side[e->n_side]));
        ls_graph_on_ready(e->side[e->n_side], on_ready, e);
        ls_graph_on_node(e->side[e->n_side], on_node, e);
    }
    e->side_later = 0;
    r->together = 1;
    return LS_OK;
}

static void observe(lsi_engine *e, const double *totals, uint64_t samples)
{
    for (size_t i = 0; i < e->buffers; i++)
        e->observed[i] = (float)(totals[LSI_TAIL_FREE + i] / (double)samples);
    if (e->buffers)
        ls_graph_observe(e->graph, e->observed, e->momentum);
}

/* What the vault keeps of a step beside weights and state. One member of the domain does it, before
 * it says that its part of the update is done: whoever finds no figures finds the tails. */
static void keep_figures(lsi_engine *e, uint64_t number, uint64_t samples, const double *totals)
{
    const lsi_replica *r = e->replica;
    ls_optim_figures figures;
    ls_optimizer_figures(r->optimizer, &figures);
    if (e->buffers)
        memcpy(r->vault->buffers[number & 1], ls_graph_buffers(e->graph),
               e->buffers * sizeof(float));
    lsi_vault_figures *f = &r->vault->head->figures[number % LSI_VAULT_FIGURES];
    f->samples = samples;
    f->loss = totals[LSI_TAIL_LOSS] / totals[LSI_TAIL_COUNT];
    f->count = totals[LSI_TAIL_COUNT];
    f->grad_norm = figures.grad_norm;
    f->rate = (double)figures.rate;
    f->workers = (uint64_t)r->vault->head->step.workers; /* not ours, if we finish it for others */
    atomic_store(&f->number, number);
}

static void load_buffers(lsi_engine *e, uint64_t steps)
{
    if (e->buffers)
        memcpy(ls_graph_buffers(e->graph), e->replica->vault->buffers[steps & 1],
               e->buffers * sizeof(float));
}

/* The domain's first member: the step that was being finished when somebody died. */
static ls_status finish_step(lsi_engine *e)
{
    lsi_replica *r = e->replica;
    lsi_vault_head *head = r->vault->head;
    uint64_t number;
    if (atomic_load(&head->filled) != LSI_VAULT_FULL)
        return LS_OK;
    LSI_TRY(lsi_recover(r, &number));
    if (!number)
        return LS_OK;
    if (!lsi_engine_figures(e, number)) {
        load_buffers(e, number - 1);
        observe(e, r->totals, head->step.samples);
        keep_figures(e, number, head->step.samples, r->totals);
    }
    atomic_store(&head->steps, number);
    return LS_OK;
}

/* A state for the first step of this generation. */
static ls_status take_state(lsi_engine *e)
{
    lsi_replica *r = e->replica;
    int filled = 0;
    uint64_t steps = 0;
    if (r->vault) {
        if (r->domain.member == 0)
            LSI_TRY(finish_step(e));
        LSI_TRY(lsi_handover(r, &filled, &steps));
    }
    if (!filled && r->domain.member == 0)
        ls_graph_init(e->graph);
    LSI_TRY(lsi_domain_meet(&r->domain));
    if (filled)
        load_buffers(e, steps);
    if (r->optimizer && filled)
        lsi_optimizer_seek(r->optimizer, steps);
    e->steps = steps;
    return lsi_domain_meet(&r->domain);
}

ls_status lsi_engine_open(ls_comm *comm, ls_graph *graph, const lsi_engine_config *config,
                          lsi_engine **out)
{
    lsi_engine *e = calloc(1, sizeof *e);
    if (!e)
        return lsi_fail(LS_ERR_NOMEM, NULL, "engine", "out of memory");
    e->graph = graph;
    e->micro = lsi_engine_graph_batch(config);
    e->another = config->another;
    e->another_arg = config->another_arg;
    e->ask = config->ask;
    e->leave = config->leave;
    e->ask_arg = config->ask_arg;
    e->momentum = config->statistics > 0 ? config->statistics : STATISTICS;
    e->buffers = ls_graph_buffer_elements(graph);
    e->observed = calloc(e->buffers + 1, sizeof *e->observed);
    ls_status status =
        e->observed ? LS_OK : lsi_fail(LS_ERR_NOMEM, NULL, "engine", "out of memory");
    if (status == LS_OK)
        status = open_replica(e, comm, config);
    if (status == LS_OK && e->replica->together) {
        /* A generation is waited for, and to touch their memory takes a while: its first step is
         * computed without them. */
        e->side_later = e->replica->vault != NULL;
        e->replica->together = 0;
        status = e->side_later ? LS_OK : open_side(e);
    }
    if (status == LS_OK) {
        ls_graph_bind(graph, e->replica->weights,
                      lsi_vector(e->replica, e->replica->domain.member, 0));
        ls_graph_on_ready(graph, on_ready, e);
        ls_graph_on_node(graph, on_node, e);
        lsi_life_say(lsi_domain_life(&e->replica->domain), "taking over the state", NULL);
        status = take_state(e);
    }
    if (status != LS_OK) {
        lsi_engine_close(e);
        return status;
    }
    *out = e;
    return LS_OK;
}

void lsi_engine_close(lsi_engine *e)
{
    if (!e)
        return;
    if (e->replica) {
        ls_graph_bind(e->graph, NULL, NULL);
        ls_graph_on_ready(e->graph, NULL, NULL);
        ls_graph_on_node(e->graph, NULL, NULL);
    }
    for (int i = 1; i < e->n_side; i++)
        ls_graph_destroy(e->side[i]);
    free(e->side);
    lsi_replica_close(e->replica);
    free(e->observed);
    free(e);
}

/* ---- a step --------------------------------------------------------------------------------- */

void lsi_engine_part(const lsi_engine *e, uint64_t samples, uint64_t *first, uint64_t *end)
{
    lsi_engine_part_of(e, e->replica->domain.worker, samples, first, end);
}

void lsi_engine_part_of(const lsi_engine *e, int worker, uint64_t samples, uint64_t *first,
                        uint64_t *end)
{
    const lsi_domain *d = &e->replica->domain;
    const int shards = lsi_cut_shards(samples, e->replica->shards);
    int from, to;
    uint64_t unused;
    lsi_domain_range(d, shards, worker, &from, &to);
    *first = *end = 0;
    if (from == to)
        return;
    lsi_cut_shard(samples, shards, from, first, &unused);
    lsi_cut_shard(samples, shards, to - 1, &unused, end);
}

/* Rows that this worker's shards will read are brought up to date: all inputs are looked at before
 * the first forward pass. */
static ls_status touch(lsi_engine *e, uint64_t samples, lsi_fill_fn fill, void *arg)
{
    lsi_replica *r = e->replica;
    uint64_t first, end;
    lsi_engine_part(e, samples, &first, &end);
    lsi_sparse_want_none(r);
    for (uint64_t at = first; at < end; at += e->micro) {
        const size_t n = end - at < e->micro ? (size_t)(end - at) : e->micro;
        LSI_TRY(fill(arg, e->graph, at - first, n));
        for (int i = 0; i < r->n_params; i++) {
            ls_sparse_ids ids;
            for (int k = 0;
                 r->params[i].sparse && ls_graph_sparse_ids(e->graph, i, k, &ids) == LS_OK; k++) {
                ids.count = ids.count / e->micro * n; /* it speaks of the graph's whole batch */
                LSI_TRY(lsi_sparse_want(r, i, &ids));
            }
        }
    }
    return lsi_sparse_touch(r);
}

/* Forward over a part of a shard, with what it adds to the tail. Backward is to follow. */
static ls_status forward(lsi_engine *e, ls_graph *graph, uint64_t position, size_t n,
                         int accumulate, double *tail)
{
    ls_run_config config = LS_RUN_CONFIG_INIT;
    ls_run_result found;
    config.batch = n;
    config.training = config.backward = 1;
    config.accumulate = accumulate;
    config.same_weights = graph == e->graph && e->ran;
    e->ran = 1;
    config.step = e->steps;
    config.first_position = position;
    LSI_TRY(ls_graph_forward(graph, &config, &found));
    const float *observed = ls_graph_observed(graph);
    tail[LSI_TAIL_LOSS] += found.loss;
    tail[LSI_TAIL_COUNT] += found.count;
    for (size_t i = 0; i < e->buffers; i++)
        tail[LSI_TAIL_FREE + i] += (double)observed[i] * (double)n;
    return LS_OK;
}

/* What is to follow the step, into the tail of this worker's last shard. */
static void say_wishes(lsi_engine *e, double *tail)
{
    if (e->ask)
        e->ask(e->ask_arg);
    tail[LSI_TAIL_STOP] += e->stop;
    tail[LSI_TAIL_CHANGE] += e->change;
}

static void fail_all(lsi_engine *e, ls_comm *comm, const char *text)
{
    const lsi_domain *d = e ? &e->replica->domain : NULL;
    ls_comm *const all[] = {d ? d->local : NULL, d ? d->leaders : NULL, comm};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            lsi_comm_fail(all[i], LS_ERR_ABORTED, text);
}

/* Between two operations, while nothing has been changed: is there a reason to leave the step? */
static ls_status look_around(lsi_engine *e)
{
    char text[LSI_ERROR_MAX];
    lsi_domain *d = &e->replica->domain;
    LSI_TRY(lsi_domain_look(d));
    if (d->world->failed != LS_OK) /* somebody on another host */
        return lsi_comm_failed(d->world);
    if (!e->leave || !e->leave(e->ask_arg))
        return LS_OK;
    snprintf(text, sizeof text, "step %llu is left, to be computed anew with those who wait",
             (unsigned long long)e->steps + 1);
    fail_all(e, d->world, text);
    return lsi_fail_text(LS_ERR_ABORTED, text);
}

static ls_status give_rows(lsi_engine *e, ls_graph *graph)
{
    lsi_replica *r = e->replica;
    for (int i = 0; r->sparse && i < r->n_params; i++) {
        ls_sparse_grad grad;
        if (!r->params[i].sparse)
            continue;
        LSI_TRY(ls_graph_sparse_grad(graph, i, &grad));
        if (lsi_finite_suspect())
            look(e, i, grad.values, grad.rows * grad.width, r->shard);
        LSI_TRY(lsi_sparse_give(r, i, &grad));
    }
    return LS_OK;
}

/* All shards side by side: every operation of the backward pass on one after the other. */
static ls_status run_together(lsi_engine *e, uint64_t part, lsi_fill_fn fill, void *arg)
{
    lsi_replica *r = e->replica;
    const int n = lsi_replica_side(r);
    for (int i = 0; i < n; i++) {
        uint64_t first, end;
        lsi_replica_side_shard(r, i, &first, &end);
        ls_graph_bind(e->side[i], r->weights, lsi_replica_side_leaf(r, i));
        LSI_TRY(look_around(e));
        LSI_TRY(fill(arg, e->side[i], first - part, (size_t)(end - first)));
        LSI_TRY(
            forward(e, e->side[i], first, (size_t)(end - first), 0, lsi_replica_side_tail(r, i)));
    }
    ls_status status = n ? LS_IN_PROGRESS : LS_OK;
    while (status == LS_IN_PROGRESS) {
        LSI_TRY(look_around(e));
        for (int i = 0; i < n; i++) {
            e->last_run = i + 1 == n;
            status = ls_graph_backward(e->side[i]);
            if (status != LS_OK && status != LS_IN_PROGRESS)
                return status;
        }
    }
    for (int i = 0; r->sparse && i < n; i++) {
        lsi_fold_next(&r->fold, &r->step);
        LSI_TRY(give_rows(e, e->side[i]));
    }
    if (n) {
        say_wishes(e, lsi_replica_side_tail(r, n - 1));
        lsi_replica_done(r);
    }
    return bad_gradient(e);
}

static ls_status run_shard(lsi_engine *e, uint64_t part, uint64_t first, uint64_t end,
                           lsi_fill_fn fill, void *arg)
{
    lsi_replica *r = e->replica;
    ls_graph_bind(e->graph, r->weights, lsi_replica_leaf(r));
    for (uint64_t at = first; at < end; at += e->micro) {
        const size_t n = end - at < e->micro ? (size_t)(end - at) : e->micro;
        e->last_run = at + n == end;
        LSI_TRY(look_around(e));
        LSI_TRY(fill(arg, e->graph, at - part, n));
        LSI_TRY(forward(e, e->graph, at, n, at > first, lsi_replica_tail(r)));
        ls_status status;
        while ((status = ls_graph_backward(e->graph)) == LS_IN_PROGRESS)
            LSI_TRY(look_around(e));
        LSI_TRY(status);
    }
    LSI_TRY(give_rows(e, e->graph));
    if (r->shard + 1 == r->end_shard)
        say_wishes(e, lsi_replica_tail(r));
    lsi_replica_done(r);
    return bad_gradient(e);
}

ls_status lsi_engine_step(lsi_engine *e, uint64_t samples, lsi_fill_fn fill, void *arg,
                          lsi_step_result *result)
{
    lsi_replica *r = e->replica;
    const double from = lsi_now();
    uint64_t part, part_end, first, end;
    lsi_life_step(lsi_domain_life(&r->domain), e->steps + 1);
    lsi_engine_part(e, samples, &part, &part_end);
    if (e->side_later && e->has_stepped)
        LSI_TRY(open_side(e));
    LSI_TRY(lsi_replica_begin(r, samples));
    if (r->vault)
        LSI_TRY(lsi_handover_weights(r));
    e->bad.param = -1;
    e->ran = 0;
    lsi_finite_begin();
    if (r->sparse)
        LSI_TRY(touch(e, samples, fill, arg));
    if (r->together)
        LSI_TRY(run_together(e, part, fill, arg));
    while (!r->together && lsi_replica_next(r, &first, &end))
        LSI_TRY(run_shard(e, part, first, end, fill, arg));
    lsi_host_rank *life = lsi_domain_life(&r->domain);
    lsi_life_say(life, r->domain.count > 1 ? "exchanging gradients" : "waiting for gradients",
                 NULL);
    LSI_TRY(lsi_replica_combine(r));
    observe(e, r->totals, samples);
    lsi_life_say(life, "updating weights", NULL);
    LSI_TRY(lsi_replica_change(r));
    lsi_life_say(life, "waiting for updates", NULL);
    if (r->vault && r->domain.member == 0)
        keep_figures(e, e->steps + 1, samples, r->totals);
    LSI_TRY(lsi_replica_end(r));
    e->steps++;
    e->has_stepped = 1;
    if (!result)
        return LS_OK;
    ls_optim_figures figures;
    ls_optimizer_figures(r->optimizer, &figures);
    *result = (lsi_step_result){.loss = r->totals[LSI_TAIL_LOSS] / r->totals[LSI_TAIL_COUNT],
                                .count = r->totals[LSI_TAIL_COUNT],
                                .grad_norm = figures.grad_norm,
                                .rate = figures.rate,
                                .stop = r->totals[LSI_TAIL_STOP] > 0,
                                .change = r->totals[LSI_TAIL_CHANGE] > 0,
                                .seconds = lsi_now() - from,
                                .waited = r->domain.waited,
                                .exchanged = r->exchange_to - r->exchange_from,
                                .exposed = r->exposed};
    return LS_OK;
}

void lsi_engine_ask_stop(lsi_engine *e)
{
    e->stop = 1;
}

void lsi_engine_ask_change(lsi_engine *e)
{
    e->change = 1;
}

const lsi_vault_figures *lsi_engine_figures(const lsi_engine *e, uint64_t number)
{
    const lsi_vault *v = e->replica->vault;
    const lsi_vault_figures *f = v ? &v->head->figures[number % LSI_VAULT_FIGURES] : NULL;
    return f && atomic_load(&f->number) == number ? f : NULL;
}

void lsi_engine_give_up(lsi_engine *e, ls_comm *comm)
{
    char text[LSI_ERROR_MAX];
    snprintf(text, sizeof text, "%s", ls_last_error());
    fail_all(e, comm, "");
    lsi_fail_text(LS_ERR_ABORTED, text);
}

uint64_t lsi_engine_steps(const lsi_engine *e)
{
    return e->steps;
}

/* ---- state ---------------------------------------------------------------------------------- */

ls_status lsi_engine_settle(lsi_engine *e)
{
    lsi_replica *r = e->replica;
    LSI_TRY(lsi_handover_finish(r));
    LSI_TRY(lsi_domain_meet(&r->domain));
    if (r->sparse && r->domain.member == 0)
        LSI_TRY(lsi_transaction_flush(r));
    return lsi_domain_meet(&r->domain);
}

int lsi_engine_is_new(const lsi_engine *e)
{
    const lsi_vault *v = e->replica->vault;
    return !v || atomic_load(&v->head->filled) == LSI_VAULT_EMPTY;
}

ls_status lsi_engine_fill(lsi_engine *e)
{
    lsi_replica *r = e->replica;
    lsi_vault *v = r->vault;
    if (!v)
        return LS_OK;
    if (r->domain.member == 0 && atomic_load(&v->head->filled) == LSI_VAULT_EMPTY) {
        if (e->buffers)
            memcpy(v->buffers[e->steps & 1], ls_graph_buffers(e->graph),
                   e->buffers * sizeof(float));
        atomic_store(&v->head->steps, e->steps);
        atomic_store(&v->head->filled, LSI_VAULT_FULL);
        lsi_memory_tell(r, 1);
    }
    return lsi_domain_meet(&r->domain);
}

ls_status lsi_engine_spread(lsi_engine *e)
{
    lsi_replica *r = e->replica;
    LSI_TRY(lsi_replica_spread(r));
    if (e->buffers)
        LSI_TRY(ls_broadcast(r->domain.world, ls_graph_buffers(e->graph), e->buffers, LS_F32, 0));
    e->steps = ls_optimizer_get_step(r->optimizer);
    return LS_OK;
}

lsi_replica *lsi_engine_replica(lsi_engine *e)
{
    return e->replica;
}

/* ls_replica_*: the engine for compute that is not ours.
 *
 * Parameters are collected by add, and become one flat array at start. Memory of the caller is
 * copied from and to it; who takes the replica's own computes in place.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "parallel/replica.h"
#include <lockstep/replica.h>

#define ALIGN ((size_t)16) /* elements */

/* A parameter as it was added. */
typedef struct added {
    char *name;
    float *weights, *gradient; /* the caller's, or NULL */
    size_t n;
    int warned; /* it has been named as one without a gradient */
} added;

struct ls_replica {
    ls_comm *comm;
    ls_replica_config config;
    ls_optim_config optimizer;
    added *added;
    int n, room;
    lsi_replica *core; /* NULL before start */
    int in_shard;
};

ls_status ls_replica_create(ls_comm *comm, const ls_replica_config *config, ls_replica **out)
{
    if (!comm || !config || !out)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_replica_create", "a NULL argument");
    if (config->size != sizeof *config)
        return lsi_fail(LS_ERR_INVALID, "initialise it by LS_REPLICA_CONFIG_INIT",
                        "ls_replica_create", "the configuration has size %zu, not %zu",
                        config->size, sizeof *config);
    if (!config->batch)
        return lsi_fail(LS_ERR_INVALID, "say how many samples a step has at most",
                        "ls_replica_create", "batch is 0");
    ls_replica *r = calloc(1, sizeof *r);
    if (!r)
        return lsi_fail(LS_ERR_NOMEM, NULL, "ls_replica_create", "out of memory");
    r->comm = comm;
    r->config = *config;
    if (config->optimizer) {
        const ls_status status = ls_optim_config_check(config->optimizer, &r->optimizer);
        if (status != LS_OK) {
            free(r);
            return status;
        }
        r->config.optimizer = &r->optimizer;
    }
    *out = r;
    return LS_OK;
}

void ls_replica_destroy(ls_replica *r)
{
    if (!r)
        return;
    lsi_replica_close(r->core);
    for (int i = 0; i < r->n; i++)
        free(r->added[i].name);
    free(r->added);
    free(r);
}

ls_status ls_replica_add(ls_replica *r, const char *name, float *weights, float *gradient, size_t n)
{
    const char *who = "ls_replica_add";
    if (!r || !name || !*name)
        return lsi_fail(LS_ERR_INVALID, NULL, who, "%s", r ? "a parameter needs a name" : "NULL");
    if (r->core)
        return lsi_fail(LS_ERR_INVALID, NULL, who, "%s comes after ls_replica_start", name);
    if (!n)
        return lsi_fail(LS_ERR_INVALID, NULL, who, "%s has no elements", name);
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->added[i].name, name) == 0)
            return lsi_fail(LS_ERR_INVALID, NULL, who, "there is a parameter %s already", name);
    if (r->n == r->room) {
        const int room = r->room ? 2 * r->room : 16;
        added *more = realloc(r->added, (size_t)room * sizeof *more);
        if (!more)
            return lsi_fail(LS_ERR_NOMEM, NULL, who, "out of memory");
        r->added = more;
        r->room = room;
    }
    r->added[r->n] = (added){strdup(name), weights, gradient, n, 0};
    if (!r->added[r->n].name)
        return lsi_fail(LS_ERR_NOMEM, NULL, who, "out of memory");
    r->n++;
    return LS_OK;
}

static ls_status open_core(ls_replica *r)
{
    ls_param_info *params = calloc((size_t)r->n + 1, sizeof *params);
    if (!params)
        return lsi_fail(LS_ERR_NOMEM, NULL, "ls_replica_start", "out of memory");
    size_t at = 0;
    for (int i = 0; i < r->n; i++) {
        params[i].name = r->added[i].name;
        params[i].ndim = 1;
        params[i].dims[0] = params[i].count = r->added[i].n;
        params[i].offset = at;
        at += (r->added[i].n + ALIGN - 1) / ALIGN * ALIGN;
    }
    const lsi_replica_setup setup = {.shards = r->config.shards ? r->config.shards : 8,
                                     .params = params,
                                     .n_params = r->n,
                                     .elements = at,
                                     .optimizer = r->config.optimizer,
                                     .bucket_bytes = r->config.bucket,
                                     .batch = r->config.batch};
    const ls_status status = lsi_replica_open(r->comm, &setup, &r->core);
    free(params);
    return status;
}

/* From the shared weights to the caller's. */
static void fetch_weights(ls_replica *r)
{
    for (int i = 0; i < r->n; i++)
        if (r->added[i].weights)
            memcpy(r->added[i].weights, r->core->weights + r->core->params[i].offset,
                   r->added[i].n * sizeof(float));
}

ls_status ls_replica_start(ls_replica *r)
{
    if (!r || r->core || !r->n)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_replica_start", "%s",
                        !r        ? "NULL"
                        : r->core ? "called twice"
                                  : "there are no parameters");
    LSI_TRY(open_core(r));
    if (r->core->domain.member == 0)
        for (int i = 0; i < r->n; i++)
            if (r->added[i].weights)
                memcpy(r->core->weights + r->core->params[i].offset, r->added[i].weights,
                       r->added[i].n * sizeof(float));
    LSI_TRY(lsi_replica_spread(r->core));
    fetch_weights(r);
    return lsi_domain_meet(&r->core->domain);
}

float *ls_replica_weights(ls_replica *r, int index)
{
    if (!r || !r->core || index < 0 || index >= r->n)
        return NULL;
    return r->added[index].weights ? r->added[index].weights
                                   : r->core->weights + r->core->params[index].offset;
}

float *ls_replica_gradient(ls_replica *r, int index)
{
    if (!r || !r->core || index < 0 || index >= r->n)
        return NULL;
    return r->added[index].gradient ? r->added[index].gradient
                                    : lsi_replica_leaf(r->core) + r->core->params[index].offset;
}

ls_status ls_replica_begin(ls_replica *r, uint64_t samples)
{
    if (!r || !r->core)
        return lsi_fail(LS_ERR_INVALID, "call ls_replica_start first", "ls_replica_begin",
                        "it was not started");
    if (!samples || samples > r->config.batch)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_replica_begin",
                        "%llu samples, and it was made for 1…%llu", (unsigned long long)samples,
                        (unsigned long long)r->config.batch);
    r->in_shard = 0;
    return lsi_replica_begin(r->core, samples);
}

int ls_replica_next(ls_replica *r, ls_shard *shard)
{
    if (!r || !r->core || r->in_shard || !lsi_replica_next(r->core, &shard->first, &shard->end))
        return 0;
    shard->number = r->core->shard;
    r->in_shard = 1;
    return 1;
}

void ls_replica_ready(ls_replica *r, int index)
{
    if (!r || !r->in_shard || index < 0 || index >= r->n || r->core->is_ready[index])
        return;
    if (r->added[index].gradient)
        memcpy(lsi_replica_leaf(r->core) + r->core->params[index].offset, r->added[index].gradient,
               r->added[index].n * sizeof(float));
    lsi_replica_ready(r->core, index);
}

ls_status ls_replica_done(ls_replica *r, double loss, double count)
{
    if (!r || !r->in_shard)
        return lsi_fail(LS_ERR_INVALID, "ls_replica_next comes before it", "ls_replica_done",
                        "no shard is under way");
    for (int i = 0; i < r->n; i++) {
        if (r->core->is_ready[i])
            continue;
        if (!r->added[i].warned++)
            lsi_log(LSI_LOG_WARN, "parameter %s got no gradient in shard %d: it counts as zero",
                    r->added[i].name, r->core->shard);
        memset(lsi_replica_leaf(r->core) + r->core->params[i].offset, 0,
               r->added[i].n * sizeof(float));
        lsi_replica_ready(r->core, i);
    }
    double *tail = lsi_replica_tail(r->core);
    tail[LSI_TAIL_LOSS] = loss;
    tail[LSI_TAIL_COUNT] = count;
    lsi_replica_done(r->core);
    r->in_shard = 0;
    return LS_OK;
}

/* Without an optimizer: the mean gradient to the caller, or into the weights' place of the sum. */
static ls_status hand_out_mean(ls_replica *r)
{
    const lsi_replica *core = r->core;
    const float scale = (float)(1 / core->totals[LSI_TAIL_COUNT]);
    for (int i = 0; i < r->n; i++) {
        const float *sum = lsi_vector(core, 0, 0) + core->params[i].offset;
        for (size_t e = 0; r->added[i].gradient && e < r->added[i].n; e++)
            r->added[i].gradient[e] = sum[e] * scale;
    }
    return lsi_domain_meet(&r->core->domain); /* all have read the sums */
}

ls_status ls_replica_sync(ls_replica *r, ls_replica_result *result)
{
    if (!r || !r->core)
        return lsi_fail(LS_ERR_INVALID, "call ls_replica_start first", "ls_replica_sync",
                        "it was not started");
    if (r->in_shard || r->core->shard + 1 < r->core->end_shard)
        return lsi_fail(LS_ERR_INVALID, "ls_replica_next until it returns 0, and ls_replica_done",
                        "ls_replica_sync", "shards of this worker are missing");
    LSI_TRY(lsi_replica_sync(r->core));
    if (r->core->optimizer)
        fetch_weights(r);
    else
        LSI_TRY(hand_out_mean(r));
    if (!result)
        return LS_OK;
    ls_optim_figures figures = {0};
    if (r->core->optimizer)
        ls_optimizer_figures(r->core->optimizer, &figures);
    const double count = r->core->totals[LSI_TAIL_COUNT];
    *result = (ls_replica_result){.loss = r->core->totals[LSI_TAIL_LOSS] / count,
                                  .count = count,
                                  .grad_norm = figures.grad_norm,
                                  .rate = figures.rate,
                                  .waited_s = r->core->domain.waited};
    return LS_OK;
}

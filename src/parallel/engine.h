/* Training of a graph: a replica (replica.h) whose gradients a graph computes.
 *
 *     fill the inputs -> forward -> backward -> (gradient ready) -> fold -> … sync
 *
 * 1. Every worker has a graph of its own for one shard (or a part of one: micro-batches), on the
 *    weights that its domain shares. With several domains it has one for each of its shards, if it
 *    may make them, and computes them side by side, operation by operation (replica.h); in a vault
 *    from the second step on, so that a new generation soon has its first.
 * 2. Counters of dropout are made of the step and of a sample's place in the batch: nobody's masks
 *    depend on who computes them.
 * 3. Statistics of batch norm are those of a shard; running ones take the mean over the batch, by
 *    the tree over shards. Every worker keeps its own copy, all equal.
 * 4. After the second step nothing is allocated.
 * 5. Between two operations every worker looks whether somebody has died, or wants the step left.
 */
#ifndef LSI_PARALLEL_ENGINE_H
#define LSI_PARALLEL_ENGINE_H

#include "parallel/replica.h"
#include <lockstep/graph.h>

typedef struct lsi_engine lsi_engine;

typedef struct lsi_engine_config {
    int shards;
    uint64_t batch;                   /* samples of a step, at most */
    size_t micro_batch;               /* samples that run at once; 0: a whole shard */
    const ls_optim_config *optimizer; /* NULL: none (evaluation) */
    size_t bucket_bytes;
    float statistics; /* momentum of running statistics; 0: 0.1 */
    /* Make one more graph like the one given; the engine destroys it. NULL: shards are computed one
     * after the other, also with several domains. */
    ls_status (*another)(void *arg, ls_graph **out);
    void *another_arg;
    /* Where the state lies between generations; NULL: it ends with the communicator. */
    const lsi_keeper *keeper;
    const int32_t *weights; /* [workers] what each can do; NULL: all the same */
    /* Called when this worker has computed its shards of a step: the last moment to ask for what is
     * to follow it. NULL: nobody asks. */
    void (*ask)(void *arg);
    /* Called between two operations: non-zero to leave the step, which has changed nothing yet, on
     * all workers, with LS_ERR_ABORTED. NULL: it is finished. */
    int (*leave)(void *arg);
    void *ask_arg;
} lsi_engine_config;

/* Samples of the graph's batch that such an engine needs: the largest shard, or the micro-batch. */
size_t lsi_engine_graph_batch(const lsi_engine_config *config);

/* Bytes at the beginning of its vault that the first worker of a host which joins a run touches in
 * a step: all of the state, and the gradients of its shards when there are `workers`. 0 with rows,
 * for which all depends on the data. */
ls_status lsi_engine_foresee(const ls_graph *graph, const lsi_engine_config *config, int workers,
                             size_t *bytes);

/* Collective. On a state that was kept, it goes on after the step that is there, and finishes the
 * one that was being finished; otherwise with the initial values. What a domain lacks of it comes
 * with the first step (handover.h). The graph is compiled for
 * lsi_engine_graph_batch; it is borrowed until close, and its parameters are in shared memory from
 * now on. (Parameters without a gradient were named when the graph was compiled; theirs is
 * zero.) */
ls_status lsi_engine_open(ls_comm *comm, ls_graph *graph, const lsi_engine_config *config,
                          lsi_engine **out);
void lsi_engine_close(lsi_engine *engine);

/* Put samples [first, first + count) of the worker's part of the batch into the graph's inputs. May
 * be asked for the same samples again. */
typedef ls_status (*lsi_fill_fn)(void *arg, ls_graph *graph, uint64_t first, size_t count);

typedef struct lsi_step_result {
    double loss, count; /* the mean over the batch; samples or tokens */
    double grad_norm;
    float rate;
    int stop, change;       /* somebody has asked for the end; for another generation */
    double seconds, waited; /* of this worker: the step, and in it waiting for others */
    /* With other hosts, on a host's first worker: how long gradients were under way, and how much
     * of that it had nothing else to do. */
    double exchanged, exposed;
} lsi_step_result;

/* Samples [*first, *end) of a batch of `samples` that this worker computes, or another. */
void lsi_engine_part(const lsi_engine *engine, uint64_t samples, uint64_t *first, uint64_t *end);
void lsi_engine_part_of(const lsi_engine *engine, int worker, uint64_t samples, uint64_t *first,
                        uint64_t *end);
/* One step over `samples` samples. Collective, blocks. */
ls_status lsi_engine_step(lsi_engine *engine, uint64_t samples, lsi_fill_fn fill, void *arg,
                          lsi_step_result *result);
/* Let this step be the last, or the last of this generation (the next one, between two): its result
 * says so on every worker, whoever asked. */
void lsi_engine_ask_stop(lsi_engine *engine);
void lsi_engine_ask_change(lsi_engine *engine);
/* This worker cannot go on: whoever waits for it, now or later, gets LS_ERR_ABORTED without a text.
 * `engine` may be NULL. The last error is kept. */
void lsi_engine_give_up(lsi_engine *engine, ls_comm *comm);
/* Steps done. */
uint64_t lsi_engine_steps(const lsi_engine *engine);

/* Every row of weights and state up to date, for who reads them all. Collective. */
ls_status lsi_engine_settle(lsi_engine *engine);
/* Is the state the initial one, that nobody has kept yet? What it is to begin with can be loaded
 * then, on worker 0, and spread. */
int lsi_engine_is_new(const lsi_engine *engine);
/* From now on it is kept. Collective. */
ls_status lsi_engine_fill(lsi_engine *engine);
/* State of worker 0 (weights, statistics, optimizer, step) to everybody. Collective. */
ls_status lsi_engine_spread(lsi_engine *engine);
lsi_replica *lsi_engine_replica(lsi_engine *engine);
/* Figures of a step that was done, 1 for the first; NULL when they are not known any more. */
const lsi_vault_figures *lsi_engine_figures(const lsi_engine *engine, uint64_t number);

#endif

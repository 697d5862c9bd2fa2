/* Bring your own compute: data-parallel training of a model that has gradients, whatever computes
 * them.
 *
 *     ls_replica_create(comm, &config, &r);
 *     ls_replica_add(r, "head.weight", weights, gradient, n);      // in the order of backward
 *     …
 *     ls_replica_start(r);                                          // all get rank 0's weights
 *     for each step:
 *         ls_replica_begin(r, samples of the global batch);
 *         while (ls_replica_next(r, &shard)) {
 *             compute the gradient of the *sum* of the loss over samples [shard.first, shard.end)
 *             ls_replica_ready(r, i) for each parameter, as soon as its gradient is there
 *             ls_replica_done(r, loss sum, count);
 *         }
 *         ls_replica_sync(r, &result);                              // weights are the new ones
 *
 * The batch is cut into shards; which worker computes which shard never changes the result: sums
 * follow one tree over the shards, and are divided by the sum of the counts once, at the end. So
 * the weights have the same bits for any number of workers, on one host or on several.
 *
 * Workers of one host share one copy of weights and optimizer state. A parameter whose memory is
 * the caller's is copied there after each step; without (NULL), ls_replica_weights and
 * ls_replica_gradient give memory of the replica's own, and nothing is copied.
 *
 * A replica belongs to one thread at a time. All workers make the same calls in the same order, but
 * for the shards. An error in sync leaves the group unusable, as in coll.h.
 */
#ifndef LOCKSTEP_REPLICA_H
#define LOCKSTEP_REPLICA_H

#include <lockstep/comm.h>
#include <lockstep/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_replica ls_replica;

typedef struct ls_replica_config {
    size_t size;
    int shards;     /* of a batch: part of what decides the result; 0: 8. At most 512 */
    uint64_t batch; /* most samples of a step; required */
    size_t bucket;  /* bytes of gradients that travel together between hosts; 0: 4 MiB */
    const ls_optim_config *optimizer; /* NULL: sync leaves the mean gradient in the gradients and
                                       * weights alone */
} ls_replica_config;
#define LS_REPLICA_CONFIG_INIT                                                                     \
    {                                                                                              \
        sizeof(ls_replica_config), 0, 0, 0, 0                                                      \
    }

/* The communicator is borrowed until destroy. Local. */
LS_API ls_status ls_replica_create(ls_comm *comm, const ls_replica_config *config,
                                   ls_replica **out);
LS_API void ls_replica_destroy(ls_replica *replica);

/* A parameter of n elements, in the order in which gradients appear (the last layer first): then
 * their exchange between hosts begins early. The i-th one added has index i. */
LS_API ls_status ls_replica_add(ls_replica *replica, const char *name, float *weights,
                                float *gradient, size_t n);
/* Collective: after the last parameter. Weights of rank 0 go to everyone. */
LS_API ls_status ls_replica_start(ls_replica *replica);
/* Where the parameter lies, after start; the gradient's place is another one in each shard when the
 * memory is the replica's own. NULL for an index out of range. */
LS_API float *ls_replica_weights(ls_replica *replica, int index);
LS_API float *ls_replica_gradient(ls_replica *replica, int index);

typedef struct ls_shard {
    int number;          /* in the batch */
    uint64_t first, end; /* samples of the batch */
} ls_shard;

LS_API ls_status ls_replica_begin(ls_replica *replica, uint64_t samples);
/* 1 and the next shard of this worker, or 0. */
LS_API int ls_replica_next(ls_replica *replica, ls_shard *shard);
/* The gradient of parameter `index` is complete for this shard. Does not block. Errors come out in
 * sync. */
LS_API void ls_replica_ready(ls_replica *replica, int index);
/* The shard is complete. Parameters that were not called ready have a gradient of zero in it; the
 * first time a parameter is among them, a warning names it. */
LS_API ls_status ls_replica_done(ls_replica *replica, double loss, double count);

typedef struct ls_replica_result {
    double loss;      /* the mean over the whole batch */
    double count;     /* of samples or tokens */
    double grad_norm; /* 0 when nothing needed it */
    float rate;
    double waited_s; /* for other workers, in this step */
} ls_replica_result;

/* Combine the gradients of all workers and update the weights. Blocks. result may be NULL. */
LS_API ls_status ls_replica_sync(ls_replica *replica, ls_replica_result *result);

#ifdef __cplusplus
}
#endif
#endif

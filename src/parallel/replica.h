/* The engine: flat arrays of parameters and gradients, a step, and who does which part of it.
 *
 * A step of a worker: for each shard of its range it gets a vector to compute the gradient into
 * (lsi_replica_next), says which parameters are complete (lsi_replica_ready: they are folded into
 * the range's sums while they are in the cache), and ends it (lsi_replica_done). Then
 * lsi_replica_sync combines and updates, all members of a domain together, each a part:
 *
 *     one domain       meet; sum the vectors of all members block by block where they lie, and
 *                      update each block at once; meet
 *     several domains  buckets, in the order in which gradients appear: members sum their segments
 *                      into the leader's vectors, the leader exchanges them with the other leaders
 *                      while the others still compute; then update; meet
 *
 * With several domains the shards of a worker may be computed side by side instead (together):
 * their gradients then appear parameter by parameter, and the exchange has the whole backward pass
 * of all of them to hide behind.
 *
 * 1. All sums follow the tree over shards, so bits do not depend on workers, domains or buckets.
 * 2. The sums of the domain, in the end those of all, stand in the leader's vectors; vector 0 is
 *    the sum of the whole batch before any update begins.
 * 3. Weights are written between the meetings of a sync only, and each by one member.
 * 4. `tail` holds what else is summed over shards, in double precision: loss, count, metrics,
 *    statistics of batch norm.
 */
#ifndef LSI_PARALLEL_REPLICA_H
#define LSI_PARALLEL_REPLICA_H

#include <stdatomic.h>

#include "parallel/cut.h"
#include "parallel/domain.h"
#include "parallel/vault.h"
#include <lockstep/optim.h>

#define LSI_OWN_BLOCKS 4 /* blocks that a member takes at a time */
#define LSI_EXCHANGES 4  /* buckets under way between domains */

/* Entries of the tail that every step has; what follows is the caller's. */
enum { LSI_TAIL_LOSS, LSI_TAIL_COUNT, LSI_TAIL_STOP, LSI_TAIL_CHANGE, LSI_TAIL_FREE };

/* Gradients that travel together: elements [from, to), all of them dense. */
typedef struct lsi_bucket {
    size_t from, to;
    int last_param; /* complete when parameters 0…last_param are */
    lsi_shards shards;
} lsi_bucket;

/* What a member tells the others of its domain, in shared memory. Counted over all steps. */
typedef struct lsi_counters {
    _Alignas(128) _Atomic uint64_t ready; /* buckets whose sums over its range are complete */
    _Atomic uint64_t reduced;             /* buckets whose segment it has summed */
    /* in a vault: transaction.c */
    _Atomic uint64_t begun;         /* number of the latest step whose update it has begun */
    _Atomic uint64_t undo;          /* what is kept at undo_at: LSI_UNDO_…; 0: nothing */
    _Atomic uint64_t hash, verdict; /* compare.c */
} lsi_counters;

/* Who brings what into the sums of the domain, for a batch with this many shards. */
typedef struct lsi_layout {
    int leaves;
    int n_in;
    struct lsi_input {
        int member, vector;
    } in[LSI_TREE_MAX_LEAVES];
    int n_out;
    lsi_tree_plan plan;
    lsi_span *spans; /* [domains] */
} lsi_layout;

/* Rows of sparse parameters: sparse.c. */
typedef struct lsi_sparse_set lsi_sparse_set;

/* State on its way from the domains that have it to those that lack it: handover.c. */
typedef struct lsi_arrival {
    int lack;              /* so many domains; 0: nothing is on its way */
    int alone;             /* the first that has it sends all */
    uint8_t *has;          /* [domains] */
    ls_request **requests; /* [2 lack] weights to each, then the rest to each */
    int n, done;
    ls_status failed; /* what a look has found; the text is the group's */
    double from;
} lsi_arrival;

/* Who has the vault of a domain. `get` finds it, or makes it if `make` is set; members that do not
 * make it ask after the one that does has got it. The vault stays the keeper's, who is told by the
 * first member, in every generation, when the state in it is whole, and before it is spoilt. */
typedef struct lsi_keeper {
    void *arg;
    int slot, slots; /* of this worker, and in all */
    ls_status (*get)(void *arg, const lsi_vault_shape *shape, int make, lsi_vault **out);
    void (*tell)(void *arg, int whole); /* NULL: nobody asks */
} lsi_keeper;

typedef struct lsi_replica {
    lsi_domain domain;
    int shards;
    ls_param_info *params;
    int n_params;
    size_t elements; /* rounded up to blocks */
    size_t blocks, tails;
    ls_optimizer *optimizer; /* NULL: none; its state lies in the domain */

    /* memory of the domain: on a heap, or in a vault */
    lsi_vault *vault;  /* NULL: on a heap, and nothing outlives a failure; borrowed */
    lsi_keeper keeper; /* of the vault */
    int slot;          /* of this member in the vault */
    int *slots;        /* [members] likewise of each */
    char *mine;        /* this member's: counters, tails, vectors, rows, what can be undone */
    char **of;         /* [members] likewise of each */
    size_t tail_at, vector_at, vector_bytes, rows_at, undo_at, undo_bytes, slot_bytes;
    int owns_all;   /* of all blocks, whoever the members are: recover.c */
    int room;       /* vectors of a member */
    float *weights; /* the leader's; the state of the optimizer lies behind them */
    size_t state_bytes;
    float *sums; /* [LSI_OWN_BLOCKS blocks] scratch: what a run is updated with */

    lsi_bucket *buckets;
    int n_buckets;
    ls_request **requests; /* [n_buckets] leader's */
    lsi_layout layout;
    lsi_sparse_set *sparse; /* NULL: none */

    lsi_arrival arrival; /* leader's */

    /* the step under way */
    uint64_t samples;
    int first_shard, end_shard, shard;
    lsi_fold fold;
    lsi_fold_step step;
    int together; /* shards side by side: vector i holds the gradient of shard i, until */
    lsi_tree_plan side_plan; /* this merges them into those of the node list */
    int side_leaves, side_n; /* what it was made for */
    int differs;             /* leader: the latest comparison was against this domain */
    uint8_t *is_ready;       /* [n_params] in this shard */
    int ready;               /* parameters 0…ready-1 are */
    int buckets_ready, buckets_reduced, buckets_started, buckets_done;
    uint64_t syncs;
    double exchange_from, exchange_to; /* leader: when buckets were under way in this step, */
    double exposed;                    /* and how long it had nothing to do but wait for them */
    double *totals;                    /* [tails] of the latest sync */
} lsi_replica;

typedef struct lsi_replica_setup {
    int shards;
    const ls_param_info *params;
    int n_params;
    size_t elements;
    size_t tails;                     /* beyond LSI_TAIL_FREE */
    const ls_optim_config *optimizer; /* NULL: gradients are only combined */
    size_t bucket_bytes;              /* 0: 4 MiB */
    uint64_t batch;                   /* most samples of a step */
    const size_t *sparse_rows; /* [n_params] most rows of one shard's gradient; NULL: none sparse */
    int together;              /* with several domains: shards are computed side by side */
    const lsi_keeper *keeper;  /* NULL: memory that ends with the group */
    size_t buffers;            /* elements of statistics to be kept in the vault */
    const int32_t *weights;    /* [workers] shards are divided in proportion; NULL: equally */
} lsi_replica_setup;

/* Collective: memory, optimizer, buckets. Weights are zeros. */
ls_status lsi_replica_open(ls_comm *comm, const lsi_replica_setup *setup, lsi_replica **out);
void lsi_replica_close(lsi_replica *r);
/* The state of domain 0 (weights, optimizer, its step) becomes that of all. Collective. */
ls_status lsi_replica_spread(lsi_replica *r);

/* A step over `samples` samples. */
ls_status lsi_replica_begin(lsi_replica *r, uint64_t samples);
/* Together: how many shards this worker has, and all of them at once. In place of next. */
int lsi_replica_side(lsi_replica *r);
void lsi_replica_side_shard(const lsi_replica *r, int i, uint64_t *first, uint64_t *end);
float *lsi_replica_side_leaf(const lsi_replica *r, int i);
double *lsi_replica_side_tail(const lsi_replica *r, int i);
/* The next shard of this worker, as samples [*first, *end) of the batch; 0 when there is none. */
int lsi_replica_next(lsi_replica *r, uint64_t *first, uint64_t *end);
/* Where its gradient goes, and its tail (zeros). */
float *lsi_replica_leaf(const lsi_replica *r);
double *lsi_replica_tail(const lsi_replica *r);
/* The gradient of parameter `index` is complete in this shard (together: in all). Does not block;
 * drives what is under way. Errors come out in sync. */
void lsi_replica_ready(lsi_replica *r, int index);
/* The shard is complete (together: all are). */
void lsi_replica_done(lsi_replica *r);
/* Combine: totals of the tail are in r->totals then. Collective, blocks. */
ls_status lsi_replica_combine(lsi_replica *r);
/* Update this member's part of the weights with what was combined. Collective. */
ls_status lsi_replica_change(lsi_replica *r);
/* All members have: the step is done. Collective, blocks. */
ls_status lsi_replica_end(lsi_replica *r);
/* All three. */
ls_status lsi_replica_sync(lsi_replica *r);

static inline float *lsi_vector(const lsi_replica *r, int member, int k)
{
    return (float *)(r->of[member] + r->vector_at + (size_t)k * r->vector_bytes);
}

static inline double *lsi_tail(const lsi_replica *r, int member, int k)
{
    return (double *)(r->of[member] + r->tail_at) + (size_t)k * r->tails;
}

static inline lsi_counters *lsi_counters_of(const lsi_replica *r, int member)
{
    return (lsi_counters *)r->of[member];
}

/* Does this member update the block? */
static inline int lsi_owns_block(const lsi_replica *r, size_t block)
{
    return r->owns_all ||
           block / LSI_OWN_BLOCKS % (size_t)r->domain.members == (size_t)r->domain.member;
}

/* replica.c */
/* This member's next blocks at or after *first; 0: none left. */
int lsi_own_run(const lsi_replica *r, size_t *first, size_t *last);

/* memory.c */
/* Tell the vault's keeper; by one member. */
void lsi_memory_tell(const lsi_replica *r, int whole);
/* Of the domain: slots, weights, state. Collective. */
ls_status lsi_memory_open(lsi_replica *r, const lsi_replica_setup *setup);
void lsi_memory_close(lsi_replica *r);

/* transaction.c: nothing but the plain thing happens without a vault. */
/* A step begins: who takes part. */
void lsi_transaction_begin(lsi_replica *r);
/* Everything is complete, state will change from now on. */
void lsi_transaction_change(lsi_replica *r);
/* Measure blocks [first, last), one run, in a round that may change them; update them. */
ls_status lsi_transaction_measure(lsi_replica *r, int round, size_t first, size_t last);
ls_status lsi_transaction_update(lsi_replica *r, const float *sums, size_t first, size_t last);
/* Bring rows up to date. */
ls_status lsi_transaction_touch(lsi_replica *r, int param, const int32_t *ids, size_t n);
/* Bring all rows up to date; by one member. */
ls_status lsi_transaction_flush(lsi_replica *r);
/* All members have updated all blocks. */
void lsi_transaction_end(lsi_replica *r);

/* recover.c */
/* Before the first step on a vault that others have used, by one member alone: no change of state
 * is left half done. If a step was finished by that, its number is in *finished (0: none) and,
 * unless the vault has its figures, its totals in r->totals. The vault's `steps` is the caller's to
 * move. */
ls_status lsi_recover(lsi_replica *r, uint64_t *finished);

/* layout.c */
ls_status lsi_layout_make(lsi_replica *r, int leaves);
ls_status lsi_buckets_make(lsi_replica *r, size_t bucket_bytes);
/* The elements of [from, to) that are dense: the first run at or after `from`; 0: none left. */
int lsi_dense_run(const lsi_replica *r, size_t from, size_t to, size_t *a, size_t *b);

/* combine.c */
/* Are the member's own vectors the sums already? */
int lsi_combine_needs_no_sum(const lsi_replica *r);
/* The sums of blocks [first, last), one run: where they stand, or in r->sums. Indexed by
 * element. */
const float *lsi_combine_run(lsi_replica *r, size_t first, size_t last);
/* Sum elements [from, to) of all members into the leader's vectors. */
void lsi_combine_range(lsi_replica *r, size_t from, size_t to);
/* Tails of all members into r->totals; one domain. */
void lsi_combine_tails(lsi_replica *r);
/* Do what can be done for the buckets without waiting; LS_IN_PROGRESS when something is left. */
ls_status lsi_combine_look(lsi_replica *r);
/* All buckets and the tail, over all domains. */
ls_status lsi_combine_finish(lsi_replica *r);

#endif

/* The cut of a batch into shards, of shards into ranges of workers, and the sum of a range.
 *
 * Everything here is arithmetic on numbers that all workers know: nobody needs to be asked who does
 * what.
 *
 * 1. A batch of b samples has min(V, b) shards; their sizes differ by at most one, in an order that
 *    depends on b and V alone.
 * 2. Workers hold adjacent ranges of shards, left to right. A range may be empty when there are
 *    fewer shards than workers, at the end of an epoch.
 * 3. A worker computes its shards from left to right and folds each into the sums that it has: at
 *    any time these are the node list (coll/tree_order.h) of the shards done so far. So it needs
 *    room for few vectors, and what it holds at the end are the whole subtrees inside its range.
 */
#ifndef LSI_PARALLEL_CUT_H
#define LSI_PARALLEL_CUT_H

#include <stddef.h>
#include <stdint.h>

#include "coll/tree_order.h"

/* Shards of a batch of `samples` when the configuration says `shards`. */
int lsi_cut_shards(uint64_t samples, int shards);
/* Samples [*first, *end) of shard `v` of `shards` (as lsi_cut_shards says). */
void lsi_cut_shard(uint64_t samples, int shards, int v, uint64_t *first, uint64_t *end);
/* Shards [*first, *end) of worker w of `workers`. */
void lsi_cut_range(int shards, int workers, int w, int *first, int *end);
/* The same in proportion to weights: sums[w] is that of the workers before w, sums[workers] of
 * all. */
void lsi_cut_shares(int shards, const int32_t *sums, int workers, int w, int *first, int *end);

/* The sums of a range under way: vectors 0…n-1 hold the values of its node list. */
typedef struct lsi_fold {
    int leaves, first, end; /* shards of the batch; those done are [first, end) */
    int n;
} lsi_fold;

/* How the next shard enters: it is computed into vector `place`, and the sum of the vectors
 * `into`…`place`, by the plan (one output), goes to vector `into`. Nothing is to be summed when
 * they are the same. */
typedef struct lsi_fold_step {
    int place, into;
    lsi_tree_plan plan;
} lsi_fold_step;

void lsi_fold_begin(lsi_fold *fold, int leaves, int first);
/* The step of the next shard; the fold counts it as done. */
void lsi_fold_next(lsi_fold *fold, lsi_fold_step *step);
/* Vectors that a range of shards needs at most. */
int lsi_fold_room(int leaves, int first, int end);

#endif

/* An all-reduce whose leaves are shards: each rank brings the sums of a range of them.
 *
 * The plain all-reduce sums in the tree over ranks, so its bits change with their number. Here the
 * tree is that over the shards of a batch, and a rank is whoever happens to hold some of them: with
 * all algorithms but `ring` the result has the same bits for any number of ranks.
 */
#ifndef LSI_COLL_SHARDS_H
#define LSI_COLL_SHARDS_H

#include "coll/comm.h"

typedef struct lsi_shards {
    int leaves;            /* shards in all, at most LSI_TREE_MAX_LEAVES */
    const lsi_span *spans; /* [size] of each rank, adjacent, left to right; some may be empty */
    const void *mine[LSI_TREE_MAX_NODES]; /* values of the node list of our span */
    int n_mine;
} lsi_shards;

/* Start the sum of `count` elements; the result goes to `work` on every rank, which may be mine[0].
 * *shards is borrowed until the request is complete. Does not block. */
ls_status lsi_allreduce_shards_start(ls_comm *comm, const lsi_shards *shards, void *work,
                                     size_t count, ls_dtype dtype, ls_request **request);

/* For request.c: its schedule. */
ls_status lsi_shards_build(ls_request *r);

#endif

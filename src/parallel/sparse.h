/* Gradients of sparse parameters (embedding tables): rows, summed in the order of the dense sum.
 *
 * A shard's gradient is a list of rows. Lists are folded and merged as vectors are, with the same
 * plans over the same tree; a row that one side lacks counts as zeros, so the bits are those of the
 * dense sum, but nobody ever touches the rows that no sample has used.
 *
 * 1. Each member keeps its lists in shared memory; between domains all lists are gathered by the
 *    leaders, as they are.
 * 2. A member merges the rows that it updates, those of its blocks, and hands them to its
 *    optimizer.
 * 3. Before a forward pass, rows that it will read are brought up to date, each by the member that
 *    has its block: lsi_sparse_want, lsi_sparse_touch.
 */
#ifndef LSI_PARALLEL_SPARSE_H
#define LSI_PARALLEL_SPARSE_H

#include "parallel/replica.h"

/* Before the memory is there: *bytes of a member's slot are for rows. */
ls_status lsi_sparse_open(lsi_replica *r, const lsi_replica_setup *setup, size_t *bytes);
void lsi_sparse_close(lsi_replica *r);

/* Forget what was wanted; then add ids of rows of parameter `param` that this worker's shards will
 * read; then, all members together, bring them up to date. The last one blocks. */
void lsi_sparse_want_none(lsi_replica *r);
ls_status lsi_sparse_want(lsi_replica *r, int param, const ls_sparse_ids *ids);
ls_status lsi_sparse_touch(lsi_replica *r);

/* The gradient of parameter `param` in the shard under way; before lsi_replica_done. Borrowed until
 * the next one of that parameter, or the end of the update. */
ls_status lsi_sparse_give(lsi_replica *r, int param, const ls_sparse_grad *grad);

/* For the update, after the members have met: merged rows of our blocks to the optimizer.
 * Collective; the second does it with what was gathered already, alone. */
ls_status lsi_sparse_combine(lsi_replica *r);
ls_status lsi_sparse_give_all(lsi_replica *r);

#endif

/* The short way: a blocking all-reduce of few bytes on one host, without a request.
 *
 * The same slots and boxes as board_ops.c, in a straight line: at 8 bytes the answer of the next
 * core takes about 100 ns, so every load counts. Whatever is unusual (other operations under way,
 * a late peer, a mismatch, buffers too large for a box) is left to the request that takes over.
 */
#include "coll/board_ops.h"

#define LOOKS 400 /* a few microseconds */

ls_status lsi_board_quick(ls_comm *comm, const lsi_call *c, uint64_t *seq_out)
{
    lsi_board *b = &comm->board;
    size_t bytes = c->count * c->element;
    uint64_t seq = comm->seq + 1;
    if (c->coll != LSI_ALLREDUCE || c->algorithm != LSI_DIRECT || bytes > LSI_BOARD_QUICK ||
        !comm->one_host || !comm->has_board || comm->failed != LS_OK || comm->oldest != seq)
        return LS_ERR_UNSUPPORTED;
    comm->seq = seq;
    comm->history[seq % LSI_HISTORY] = c->what;
    lsi_board_post(comm, c, seq);
    *seq_out = seq;
    uint32_t signature = lsi_call_signature(&c->what); /* our slot has been handed over */
    int looks = comm->world->spins < LOOKS ? comm->world->spins : LOOKS;
    for (int i = 0; i < b->members; i++) {
        const lsi_slot *slot = lsi_board_slot(b, seq, i);
        if (i == b->self)
            continue;
        while (!lsi_board_reached(slot, seq, LSI_PHASE_ENTERED))
            if (looks-- <= 0)
                return LS_IN_PROGRESS;
        if (slot->signature != signature)
            return LS_IN_PROGRESS;
    }
    if (bytes > LSI_BOARD_INLINE && !lsi_board_survey(comm, c, seq).stable)
        return LS_IN_PROGRESS;
    lsi_board_reduce_stable(comm, c, seq);
    comm->oldest = seq + 1;
    return LS_OK;
}

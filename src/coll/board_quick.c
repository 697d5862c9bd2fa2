/* The short way: a blocking all-reduce of few bytes on one host, without a request.
 *
 * The same slots, boxes and phases as board_ops.c, in a straight line: at 8 bytes the answer of the
 * next core takes about 100 ns, so every load counts. Whatever is unusual (other operations under
 * way, a late peer, a mismatch, private buffers too large for a box) is left to the request that
 * takes over.
 *
 * The first look comes a little later (lsi_board.first_look). A peer that entered at the same time
 * has written its line by then. A look before that fetches the old one, and the peer has to take it
 * back in order to write: so two ranks fall out of step, each call of one trip takes two, and they
 * stay so. Who enters late loses nothing: the other one has looked, and gets the answer no sooner.
 */
#include <string.h>

#include "coll/board_ops.h"
#include "coll/reduce.h"

#define LOOKS 400 /* a few microseconds */

/* The pointer, a little later: whoever reads through it lets the peers' lines be written before it
 * fetches them. The pointer depends on a chain of multiplications, and that on what came last from
 * the peer: so the processor, which runs ahead of what it waits for, cannot begin before the last
 * operation is complete, nor look before the chain is. Not where ranks wait for a core. */
static inline const void *later(const lsi_board *b, int looks, const void *pointer)
{
#if defined(__x86_64__)
    uint64_t x = b->came_last;
    for (uint32_t left = looks < LOOKS ? 0 : b->first_look; left > 0; left--)
        __asm__ volatile("imul %0, %0" : "+r"(x));
    __asm__ volatile("and $0, %0" : "+r"(x));
    return (const char *)pointer + x;
#else
    (void)b;
    (void)looks;
    return pointer;
#endif
}

/* A word that came with a peer's line; the compiler shall not know which it is. */
static inline void keep_last(lsi_board *b, uint32_t word)
{
#if defined(__x86_64__)
    __asm__("" : "+r"(word));
#endif
    b->came_last = word;
}

/* Have all reached the phase, within a few looks? */
static int all_reached(const lsi_board *b, uint64_t seq, lsi_phase phase, int looks)
{
    b = later(b, looks, b);
    for (int i = 0; i < b->members; i++)
        while (i != b->self && !lsi_board_reached(lsi_board_slot(b, seq, i), seq, phase))
            if (looks-- <= 0)
                return 0;
    return 1;
}

static int all_agree(const lsi_board *b, uint64_t seq, const lsi_call *c)
{
    uint32_t signature = lsi_call_signature(&c->what); /* our slot has been handed over */
    for (int i = 0; i < b->members; i++)
        if (i != b->self && lsi_board_slot(b, seq, i)->signature != signature)
            return 0;
    return 1;
}

ls_status lsi_board_quick(ls_comm *comm, const lsi_call *c, uint64_t *seq_out, int *phase)
{
    const lsi_board *b = &comm->board;
    size_t bytes = c->count * c->element;
    uint64_t seq = comm->seq + 1;
    int looks = comm->world->spins < LOOKS ? comm->world->spins : LOOKS;
    if (c->coll != LSI_ALLREDUCE || c->algorithm != LSI_DIRECT || bytes > LSI_BOARD_QUICK ||
        !comm->one_host || !comm->has_board || comm->failed != LS_OK || comm->oldest != seq ||
        atomic_load_explicit(&b->head->aborted, memory_order_relaxed))
        return LS_ERR_UNSUPPORTED;
    comm->seq = seq;
    comm->history[seq % LSI_HISTORY] = c->what;
    lsi_board_post(comm, c, seq);
    *seq_out = seq;
    *phase = 0;
    if (!all_reached(b, seq, LSI_PHASE_ENTERED, looks) || !all_agree(b, seq, c))
        return LS_IN_PROGRESS;
    lsi_survey s = {.stable = 1};
    if (bytes > LSI_BOARD_INLINE)
        s = lsi_board_survey(comm, c, seq);
    if (s.stable && !s.parted) {
        lsi_board_reduce_stable(comm, c, seq);
        comm->oldest = seq + 1;
        return LS_OK;
    }
    if (s.parted) {
        lsi_board_reduce_part(comm, c, seq);
    } else if (!s.foreign && lsi_board_begin_work(comm, seq)) {
        lsi_board_reduce_shared(comm, c, seq);
        lsi_board_end_work(comm, seq);
    } else {
        return LS_IN_PROGRESS;
    }
    lsi_board_announce(comm, seq, LSI_PHASE_WORKED);
    *phase = 1;
    if (!all_reached(b, seq, LSI_PHASE_WORKED, looks))
        return LS_IN_PROGRESS;
    if (s.parted)
        lsi_board_fetch_parts(comm, c, seq);
    comm->oldest = seq + 1;
    return LS_OK;
}

/* Copies an input that the slot has no room for; `oldest` of the communicator is `seq` itself. */
static char *fill_box(lsi_board *b, lsi_slot *slot, uint64_t seq, const void *mine, size_t bytes)
{
    const uint32_t number = lsi_board_take_box(b, seq);
    char *box = lsi_board_box(b, seq, b->self, number);
    memcpy(box, mine, bytes);
    slot->flags = b->own_flags[seq % LSI_BOARD_SLOTS] = LSI_SLOT_BOXED;
    slot->box = number;
    slot->oldest = seq;
    return box;
}

ls_status lsi_board_tiny(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                         ls_op op, uint64_t *seq_out)
{
    lsi_board *b = &comm->board;
    size_t bytes = count * ls_dtype_size(dtype);
    uint64_t seq = comm->seq + 1;
    char *box = NULL;
    lsi_reduce_fn reduce = lsi_reduce_get(dtype, op);
    int other = 1 - b->self, looks = comm->world->spins < LOOKS ? comm->world->spins : LOOKS;
    if (!reduce || bytes >= comm->pair_bytes || !recv || comm->failed != LS_OK ||
        comm->oldest != seq || atomic_load_explicit(&b->head->aborted, memory_order_relaxed))
        return LS_ERR_UNSUPPORTED;
    const void *mine = send == LS_IN_PLACE ? recv : send;
    if (!mine)
        return LS_ERR_UNSUPPORTED;
    const uint64_t head = lsi_call_head(LSI_ALLREDUCE, dtype, op, LSI_DIRECT);
    const uint32_t signature = lsi_call_hash(head, count);
    lsi_slot *slot = lsi_board_slot(b, seq, b->self);
    const lsi_slot *theirs = lsi_board_slot(b, seq, other);
    if (bytes == 8) /* the common size without a call */
        memcpy(slot->data, mine, 8);
    else if (bytes <= LSI_BOARD_INLINE)
        memcpy(slot->data, mine, bytes);
    else
        box = fill_box(b, slot, seq, mine, bytes);
    slot->signature = signature;
    lsi_call_put(&lsi_board_note(b, seq, b->self)->call, head, count);
    lsi_board_announce(comm, seq, LSI_PHASE_ENTERED);
    if (!box && bytes > LSI_BOARD_LINE)
        lsi_board_hand_over(slot->data + LSI_BOARD_LINE);
    for (size_t at = 0; box && at < bytes; at += 64)
        lsi_board_hand_over(box + at);
    comm->seq = seq;
    lsi_call_put(&comm->history[seq % LSI_HISTORY], head, count);
    *seq_out = seq;
    theirs = later(b, looks, theirs);
    while (!lsi_board_reached(theirs, seq, LSI_PHASE_ENTERED))
        if (looks-- <= 0)
            return LS_IN_PROGRESS;
    keep_last(b, theirs->signature);
    if (theirs->signature != signature)
        return LS_IN_PROGRESS;
    const void *other_data = theirs->data;
    if (box) {
        other_data = lsi_board_box(b, seq, other, theirs->box);
        if (theirs->oldest > b->done_below)
            b->done_below = theirs->oldest;
    }
    reduce(recv, b->self ? other_data : mine, b->self ? mine : other_data, count);
    comm->oldest = seq + 1;
    return LS_OK;
}

/* Reductions on the board, in tree order.
 *
 * Stable inputs (small): every rank that wants the result reads all inputs and sums them itself;
 * where that would be much to read, each sums a part, and all read the others' sums.
 * Otherwise each rank owns a segment: it reads that part of everybody's input where it lies, sums
 * it once and writes it where everybody reads it. Cost: one read of each input and one write of
 * each output, shared by all ranks; nothing is staged.
 */
#include <string.h>

#include "coll/board_ops.h"
#include "coll/reduce.h"

#define MANY 4

size_t lsi_board_segment(const ls_comm *comm, size_t count, size_t element)
{
    const size_t line = 64 / element, n = (size_t)comm->local_size;
    return ((count + n - 1) / n + line - 1) / line * line;
}

/* The share of member i, of `count` elements. */
static void segment_of(const ls_comm *comm, int i, size_t count, size_t element, size_t *from,
                       size_t *to)
{
    size_t size = lsi_board_segment(comm, count, element);
    size_t a = size * (size_t)i, b = a + size;
    *from = a < count ? a : count;
    *to = b < count ? b : count;
}

/* Our own. */
static void own_segment(const ls_comm *comm, size_t count, size_t element, size_t *from, size_t *to)
{
    segment_of(comm, comm->local_rank, count, element, from, to);
}

void lsi_board_reduce_stable(ls_comm *comm, const lsi_call *c, uint64_t seq)
{
    const void *in[LSI_MAX_RANKS];
    size_t skip = 0;
    void *out = c->recv;
    if (c->coll == LSI_REDUCE && comm->rank != c->root)
        return;
    if (c->coll == LSI_REDUCE_SCATTER) {
        skip = (size_t)comm->rank * c->count * c->element;
        if (c->in_place)
            out = (char *)c->recv + skip;
    }
    for (int i = 0; i < comm->local_size; i++) /* our own copy has been handed over to the peers */
        in[i] = (i == comm->local_rank ? (const char *)c->send : lsi_board_input(comm, c, seq, i)) +
                skip;
    lsi_reduce_tree(c->dtype, c->op, in, comm->local_size, &out, 1, c->count);
}

/* A member's sums go into its own box, over the part of its input that nobody else reads. */
void lsi_board_reduce_part(ls_comm *comm, const lsi_call *c, uint64_t seq)
{
    const lsi_board *b = &comm->board;
    const void *in[LSI_MAX_RANKS];
    size_t from, to;
    own_segment(comm, c->count, c->element, &from, &to);
    for (int i = 0; i < b->members; i++)
        in[i] = lsi_board_input(comm, c, seq, i) + from * c->element;
    char *box = lsi_board_box(b, seq, b->self, lsi_board_slot(b, seq, b->self)->box);
    void *out[2] = {(char *)c->recv + from * c->element, box + from * c->element};
    if (to > from)
        lsi_reduce_tree(c->dtype, c->op, in, b->members, out, 2, to - from);
}

void lsi_board_fetch_parts(ls_comm *comm, const lsi_call *c, uint64_t seq)
{
    const lsi_board *b = &comm->board;
    for (int i = 0; i < b->members; i++) {
        size_t from, to;
        segment_of(comm, i, c->count, c->element, &from, &to);
        if (i != b->self && to > from)
            memcpy((char *)c->recv + from * c->element,
                   lsi_board_input(comm, c, seq, i) + from * c->element, (to - from) * c->element);
    }
}

void lsi_board_reduce_shared(ls_comm *comm, const lsi_call *c, uint64_t seq)
{
    const void *in[LSI_MAX_RANKS];
    void *out[LSI_MAX_RANKS];
    char *base = comm->world->host.base;
    size_t from, to;
    own_segment(comm, c->count, c->element, &from, &to);
    for (int i = 0; i < comm->local_size; i++) {
        const lsi_slot *slot = lsi_board_slot(&comm->board, seq, i);
        int self = i == comm->local_rank;
        in[i] = (self ? (const char *)c->send : base + slot->send) + from * c->element;
        out[i] = (self ? (char *)c->recv : base + slot->recv) + from * c->element;
    }
    if (to > from)
        lsi_reduce_tree(c->dtype, c->op, in, comm->local_size, out, comm->local_size, to - from);
}

/* Sum elements [from, to) of everybody's input; `shift` is where the outputs' first element of
 * that range stands in the output buffers. Foreign inputs are read into scratch first. */
static ls_status reduce_range(ls_request *r, size_t from, size_t to, size_t shift)
{
    ls_comm *comm = r->comm;
    const lsi_call *c = &r->call;
    size_t n = to - from, bytes = n * c->element;
    const void *in[LSI_MAX_RANKS];
    void *out[LSI_MAX_RANKS], *result = NULL;
    int n_out = 0, copies[LSI_MAX_RANKS], n_copies = 0;
    for (int i = 0; i < comm->local_size; i++) {
        const char *input = lsi_board_input(comm, c, r->seq, i);
        if (input) {
            in[i] = input + from * c->element;
            continue;
        }
        char *scratch = (char *)comm->world->cma_scratch + (size_t)i * LSI_CMA_CHUNK;
        LSI_TRY(lsi_board_read(r, i, from * c->element, scratch, bytes));
        in[i] = scratch;
    }
    for (int i = 0; i < comm->local_size; i++) {
        const lsi_slot *slot = lsi_board_slot(&comm->board, r->seq, i);
        int self = i == comm->local_rank;
        if (c->coll == LSI_REDUCE ? comm->locals[i] != c->root
                                  : c->coll == LSI_REDUCE_SCATTER && !self)
            continue;
        if (self)
            out[n_out++] = (char *)c->recv + shift * c->element;
        else if (slot->flags & LSI_SLOT_RECV_SHARED)
            out[n_out++] = comm->world->host.base + slot->recv + shift * c->element;
        else
            copies[n_copies++] = i;
    }
    if (n_copies) { /* foreign outputs are written from ours, or from scratch */
        result = n_out
                     ? out[0]
                     : (char *)comm->world->cma_scratch + (size_t)comm->local_rank * LSI_CMA_CHUNK;
        if (!n_out)
            out[n_out++] = result;
    }
    lsi_reduce_tree(c->dtype, c->op, in, comm->local_size, out, n_out, n);
    for (int i = 0; i < n_copies; i++)
        LSI_TRY(lsi_board_write(r, copies[i], shift * c->element, result, bytes));
    return LS_OK;
}

ls_status lsi_board_reduce(ls_request *r, int stable)
{
    ls_comm *comm = r->comm;
    const lsi_call *c = &r->call;
    if (stable) {
        lsi_board_reduce_stable(comm, c, r->seq);
        return LS_OK;
    }
    /* Pieces of all ranks should stay in the cache, which many have to share. */
    const size_t piece = comm->local_size > MANY ? LSI_CMA_CHUNK / 2 : LSI_CMA_CHUNK;
    size_t from, to, shift = 0, step = piece / c->element;
    if (c->coll == LSI_REDUCE_SCATTER) {
        from = (size_t)comm->rank * c->count;
        to = from + c->count;
        shift = c->in_place ? 0 : from; /* the output holds our block only */
    } else {
        own_segment(comm, c->count, c->element, &from, &to);
    }
    /* Every other operation begins at the end: what was touched last is still in the cache. */
    const size_t pieces = (to - from + step - 1) / step;
    for (size_t i = 0; i < pieces; i++) {
        const size_t at = from + (r->seq % 2 ? pieces - 1 - i : i) * step;
        const size_t end = to - at < step ? to : at + step;
        if (atomic_load_explicit(&comm->board.head->aborted, memory_order_relaxed)) {
            lsi_board_end_work(comm, r->seq); /* for nothing: let those who have given up go */
            return LS_IN_PROGRESS;
        }
        LSI_TRY(reduce_range(r, at, end, at - shift));
    }
    return LS_OK;
}

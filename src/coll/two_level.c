/* Two levels: inside a host through the board, between hosts over messages.
 *
 * 1. The host's ranks reduce their inputs together, each a segment, to the node list of the host's
 *    leaves: whole subtrees of the summation tree (DESIGN: "complete subtrees inside its range").
 * 2. The leader (the host's first rank) merges node lists with the other leaders by the chosen
 *    algorithm; all but `ring` keep the tree's order, so the result does not depend on how the
 *    ranks are spread over hosts.
 * 3. The host's ranks copy the result from the leader.
 *
 * Broadcast and barrier are the same without the sums. Everything that another process reads lies
 * in the segment: private inputs are copied there first.
 */
#include <string.h>

#include "coll/algorithm.h"
#include "coll/board_ops.h"

enum { ENTER, REDUCE, BETWEEN, FETCH, LEAVE }; /* r->phase */

int lsi_two_level_serves(const ls_comm *comm, const lsi_call *call)
{
    if (comm->n_spans < 2 || comm->n_spans == comm->size || !comm->world->use_boards)
        return 0;
    return call->coll == LSI_ALLREDUCE || call->coll == LSI_REDUCE || call->coll == LSI_BROADCAST ||
           call->coll == LSI_BARRIER;
}

static int is_leader(const ls_comm *comm)
{
    return comm->local_rank == 0;
}

int lsi_two_level_between(const ls_request *r)
{
    return r->step == lsi_two_level_step && r->phase == BETWEEN && is_leader(r->comm);
}

static int root_is_here(const ls_request *r)
{
    lsi_span here = r->comm->spans[r->comm->span];
    return r->call.root >= here.first && r->call.root < here.end;
}

static int is_reduction(const ls_request *r)
{
    return r->call.coll == LSI_ALLREDUCE || r->call.coll == LSI_REDUCE;
}

static int in_segment(const lsi_world *w, const void *p)
{
    const char *c = p;
    return c >= w->host.base && c < w->host.base + w->host.bytes;
}

/* Shared memory of the request: `vectors` vectors of the call's size. */
static ls_status want_shared(ls_request *r, size_t vectors, size_t stride)
{
    size_t bytes = vectors * stride;
    if (bytes <= r->shared_bytes)
        return LS_OK;
    lsi_heap *heap = r->comm->world->heap;
    lsi_heap_free(heap, r->shared);
    r->shared = NULL;
    r->shared_bytes = 0;
    void *memory;
    LSI_TRY(lsi_heap_alloc(heap, bytes, 0, &memory));
    r->shared = memory;
    r->shared_bytes = bytes;
    return LS_OK;
}

/* Does this rank receive the result in its own buffer? */
static int wants_result(const ls_request *r)
{
    switch (r->call.coll) {
    case LSI_ALLREDUCE: return 1;
    case LSI_REDUCE: return r->comm->rank == r->call.root;
    case LSI_BROADCAST: return r->comm->rank != r->call.root;
    default: return 0;
    }
}

/* Decide where the vectors lie: our input, and on the leader the node list. */
static ls_status place_vectors(ls_request *r)
{
    ls_comm *comm = r->comm;
    lsi_world *w = comm->world;
    lsi_two_level *t = &r->two_level;
    const lsi_call *c = &r->call;
    size_t bytes = c->count * c->element, stride = (bytes + 63) & ~(size_t)63;
    lsi_tree_node leaves[LSI_MAX_RANKS], nodes[LSI_TREE_MAX_NODES];
    int gives = is_reduction(r) || (c->coll == LSI_BROADCAST && comm->rank == c->root);
    for (int i = 0; i < comm->local_size; i++)
        leaves[i] = (lsi_tree_node){comm->locals[i], comm->locals[i] + 1};
    t->plan =
        lsi_schedule_plan(&r->schedule, comm->size, leaves, comm->local_size, nodes, &t->n_lists);
    if (!t->plan)
        return r->schedule.broken;
    int result_in_place = wants_result(r) && in_segment(w, c->recv);
    int copy_input = gives && !in_segment(w, c->send);
    size_t vectors = (copy_input ? 1u : 0u) + (is_leader(comm) ? (size_t)t->n_lists : 0u);
    LSI_TRY(want_shared(r, vectors, stride));
    char *next = r->shared;
    t->input = c->send;
    if (copy_input) {
        if (bytes)
            memcpy(next, c->send, bytes);
        t->input = next;
        next += stride;
    }
    if (is_leader(comm)) {
        t->lists[0] = result_in_place ? c->recv : next;
        next += stride; /* unused when the result is in place: the list stays simple */
        for (int j = 1; j < t->n_lists; j++, next += stride)
            t->lists[j] = next;
    }
    return LS_OK;
}

ls_status lsi_two_level_start(ls_request *r)
{
    ls_comm *comm = r->comm;
    lsi_world *w = comm->world;
    lsi_two_level *t = &r->two_level;
    lsi_schedule_reset(&r->schedule, r->call.dtype, r->call.op, 0);
    LSI_TRY(place_vectors(r));
    r->phase = ENTER;
    r->step = lsi_two_level_step;
    if (!comm->has_board)
        return LS_OK;
    lsi_slot *slot = lsi_board_slot(&comm->board, r->seq, comm->board.self);
    slot->signature = lsi_call_signature(&r->call.what);
    lsi_board_note(&comm->board, r->seq, comm->board.self)->call = r->call.what;
    slot->oldest = comm->oldest;
    slot->send = (uint64_t)(t->input - w->host.base);
    if (is_leader(comm)) {
        slot->recv = (uint64_t)(t->lists[0] - w->host.base);
        slot->lists = t->n_lists > 1 ? (uint64_t)(t->lists[1] - w->host.base) : 0;
    }
    lsi_board_publish(r, LSI_PHASE_ENTERED);
    return LS_OK;
}

/* Our segment of everybody's input into the leader's node list. */
static void reduce_locals(ls_request *r)
{
    ls_comm *comm = r->comm;
    const lsi_call *c = &r->call;
    lsi_two_level *t = &r->two_level;
    char *base = comm->world->host.base;
    size_t from, to, stride = (c->count * c->element + 63) & ~(size_t)63;
    const void *in[LSI_MAX_RANKS];
    void *out[LSI_TREE_MAX_NODES];
    lsi_part(c->count, comm->local_size, comm->local_rank, &from, &to);
    size_t skip = from * c->element;
    if (comm->has_board) {
        const lsi_slot *leader = lsi_board_slot(&comm->board, r->seq, 0);
        for (int i = 0; i < comm->local_size; i++)
            in[i] = base + lsi_board_slot(&comm->board, r->seq, i)->send + skip;
        for (int j = 0; j < t->n_lists; j++)
            out[j] =
                (j ? base + leader->lists + (size_t)(j - 1) * stride : base + leader->recv) + skip;
    } else {
        in[0] = t->input;
        out[0] = t->lists[0];
    }
    if (to > from)
        lsi_tree_merge_run(t->plan, c->dtype, c->op, in, out, to - from);
}

/* The leader's part between the hosts. */
static ls_status build_between(ls_request *r)
{
    ls_comm *comm = r->comm;
    const lsi_call *c = &r->call;
    lsi_two_level *t = &r->two_level;
    lsi_team team = {comm->n_spans, comm->span, comm->size, comm->spans, 0};
    int root_host = -1;
    for (int s = 0; s < comm->n_spans; s++)
        if (c->root >= comm->spans[s].first && c->root < comm->spans[s].end)
            root_host = s;
    if (c->coll == LSI_BARRIER) {
        lsi_add_barrier(&r->schedule, &team);
    } else if (c->coll == LSI_BROADCAST) {
        char *data = t->lists[0];
        if (root_is_here(r) && comm->has_board)
            data = comm->world->host.base +
                   lsi_board_slot(&comm->board, r->seq, c->root - comm->locals[0])->send;
        else if (root_is_here(r))
            data = (char *)(uintptr_t)t->input;
        lsi_add_broadcast(&r->schedule, c->algorithm, &team, data, c->count * c->element,
                          root_host);
    } else {
        lsi_reduction reduction = {
            &team,      (const void *const *)t->lists,         t->n_lists, t->lists[0], c->count,
            c->element, c->coll == LSI_REDUCE ? root_host : -1};
        lsi_reduce_algorithms[c->algorithm](&r->schedule, &reduction);
    }
    return r->schedule.broken;
}

/* The result from where the host has it into our own buffer. */
static void fetch_result(ls_request *r)
{
    ls_comm *comm = r->comm;
    const lsi_call *c = &r->call;
    size_t bytes = c->count * c->element;
    const char *from = r->two_level.lists[0];
    if (!wants_result(r) || !bytes)
        return;
    if (comm->has_board) {
        const lsi_slot *leader = lsi_board_slot(&comm->board, r->seq, 0);
        from = comm->world->host.base + leader->recv;
        if (c->coll == LSI_BROADCAST && root_is_here(r))
            from = comm->world->host.base +
                   lsi_board_slot(&comm->board, r->seq, c->root - comm->locals[0])->send;
    }
    if (from != c->recv)
        memcpy(c->recv, from, bytes);
}

static int all_reached(ls_request *r, lsi_phase phase)
{
    return !r->comm->has_board || lsi_board_all(r, phase);
}

static void publish(ls_request *r, lsi_phase phase)
{
    if (r->comm->has_board)
        lsi_board_publish(r, phase);
}

static int begin_work(ls_request *r)
{
    return !r->comm->has_board || lsi_board_begin_work(r->comm, r->seq);
}

static void end_work(ls_request *r)
{
    if (r->comm->has_board)
        lsi_board_end_work(r->comm, r->seq);
}

ls_status lsi_two_level_step(ls_request *r)
{
    ls_comm *comm = r->comm;
    switch (r->phase) {
    case ENTER:
        if (comm->has_board)
            LSI_TRY(lsi_board_entered(r));
        if (is_reduction(r)) {
            if (!begin_work(r))
                return LS_IN_PROGRESS;
            reduce_locals(r);
            end_work(r);
        }
        publish(r, LSI_PHASE_WORKED);
        r->phase = REDUCE;
        /* fall through */
    case REDUCE:
        if (is_leader(comm)) {
            if (!all_reached(r, LSI_PHASE_WORKED))
                return LS_IN_PROGRESS;
            LSI_TRY(build_between(r));
        }
        r->phase = BETWEEN;
        /* fall through */
    case BETWEEN:
        if (is_leader(comm)) {
            LSI_TRY(lsi_schedule_progress(r));
            publish(r, LSI_PHASE_RESULT);
        } else if (!lsi_board_reached(lsi_board_slot(&comm->board, r->seq, 0), r->seq,
                                      LSI_PHASE_RESULT)) {
            return LS_IN_PROGRESS;
        }
        r->phase = FETCH;
        /* fall through */
    case FETCH:
        if (!begin_work(r))
            return LS_IN_PROGRESS;
        fetch_result(r);
        end_work(r);
        publish(r, LSI_PHASE_COPIED);
        r->phase = LEAVE;
        /* fall through */
    default: return all_reached(r, LSI_PHASE_COPIED) ? LS_OK : LS_IN_PROGRESS;
    }
}

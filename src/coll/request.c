/* Requests: starting operations, driving them, ending them. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "coll/board_ops.h"
#include "coll/comm.h"
#include "coll/shards.h"
#include "coll/wait.h"

static ls_request *take_request(ls_comm *comm)
{
    lsi_world *w = comm->world;
    ls_request *r = w->free;
    if (r) {
        w->free = r->next;
    } else if ((r = calloc(1, sizeof *r))) {
        r->made_before = w->requests;
        w->requests = r;
    }
    return r;
}

static void give_request(ls_request *r)
{
    lsi_world *w = r->comm->world;
    if (r->comm->failed != LS_OK) { /* one that was stopped inside may still write there */
        r->shared = NULL;
        r->shared_bytes = 0;
    }
    r->next = w->free;
    w->free = r;
}

void lsi_requests_free(lsi_world *w)
{
    while (w->requests) { /* also those that nobody has waited for */
        ls_request *r = w->requests;
        w->requests = r->made_before;
        lsi_schedule_free(&r->schedule);
        lsi_heap_free(w->heap, r->shared);
        free(r->counts);
        free(r);
    }
    w->active = w->free = NULL;
}

/* Operation `seq` is complete here: move `oldest` past all that are. */
static void note_done(ls_comm *comm, uint64_t seq)
{
    if (seq == 0)
        return;
    comm->done_bits |= (uint64_t)1 << (seq - comm->oldest);
    while (comm->done_bits & 1) {
        comm->done_bits >>= 1;
        comm->oldest++;
    }
}

void lsi_request_finish(ls_request *r, ls_status status)
{
    r->status = status;
    if (r->call.coll == LSI_P2P)
        r->comm->messages--;
    if (status == LS_OK)
        note_done(r->comm, r->seq);
}

/* Drive everything that is under way in this world. */
static void progress(lsi_world *w)
{
    if (w->port)
        lsi_port_progress(w->port);
    for (ls_request **p = &w->active; *p;) {
        ls_request *r = *p;
        if (r->status == LS_IN_PROGRESS) {
            ls_status status = r->step(r);
            if (status != LS_IN_PROGRESS)
                lsi_request_finish(r, status);
        }
        if (r->status == LS_IN_PROGRESS) {
            p = &r->next;
        } else {
            *p = r->next;
            r->active = 0;
        }
    }
}

static ls_status p2p_step(ls_request *r)
{
    ls_status status = r->xfer.status;
    if (status == LS_IN_PROGRESS || status == LS_OK)
        return status;
    if (r->comm->failed != LS_OK)
        return lsi_comm_failed(r->comm);
    char call[LSI_DESCRIBE_MAX];
    return lsi_fail(LS_ERR_PEER_DEAD, NULL, lsi_call_describe(&r->call.what, call, sizeof call),
                    "rank %d has left the group", r->call.root);
}

static void start_p2p(ls_request *r)
{
    const lsi_call *c = &r->call;
    lsi_xfer *x = &r->xfer;
    *x = (lsi_xfer){.peer = r->comm->ranks[c->root]};
    x->wire.type = LSI_WIRE_DATA;
    x->wire.comm = r->comm->id;
    x->wire.tag = (uint32_t)c->tag;
    x->wire.bytes = c->count * c->element;
    x->wire.call = c->what;
    r->step = p2p_step;
    r->comm->messages++;
    r->comm->message = c->what;
    if (c->sending) {
        x->data = (void *)(uintptr_t)c->send;
        lsi_port_send(r->comm->world->port, x);
    } else {
        x->data = c->recv;
        lsi_port_recv(r->comm->world->port, x);
    }
}

/* A group of one: the result is the input. */
static ls_status alone(ls_request *r)
{
    const lsi_call *c = &r->call;
    size_t count = c->recv_counts ? c->recv_counts[0] : c->count;
    if (c->coll != LSI_BARRIER && c->coll != LSI_BROADCAST && c->recv != c->send && count)
        memmove(c->recv, c->send, count * c->element);
    return LS_OK;
}

static ls_status copy_counts(ls_request *r)
{
    size_t n = (size_t)r->comm->size;
    if (!r->call.recv_counts && !r->call.send_counts)
        return LS_OK;
    if (r->counts_room < n) {
        size_t *counts = realloc(r->counts, 2 * n * sizeof *counts);
        if (!counts)
            return lsi_fail(LS_ERR_NOMEM, NULL, "request", "out of memory");
        r->counts = counts;
        r->counts_room = n;
    }
    if (r->call.recv_counts) {
        memcpy(r->counts, r->call.recv_counts, n * sizeof *r->counts);
        r->call.recv_counts = r->counts;
    }
    if (r->call.send_counts) {
        memcpy(r->counts + n, r->call.send_counts, n * sizeof *r->counts);
        r->call.send_counts = r->counts + n;
    }
    return LS_OK;
}

/* Choose how the operation runs and let it begin. */
static ls_status launch(ls_request *r)
{
    ls_comm *comm = r->comm;
    const lsi_call *c = &r->call;
    if (c->coll == LSI_P2P) {
        start_p2p(r);
        return LS_OK;
    }
    r->seq = ++comm->seq;
    comm->history[r->seq % LSI_HISTORY] = c->what;
    comm->entered[comm->rank] = r->seq;
    if (comm->size == 1) {
        r->step = alone;
    } else if (c->shards) {
        r->step = lsi_schedule_progress;
        LSI_TRY(lsi_shards_build(r));
    } else if (comm->one_host && comm->has_board) {
        r->step = c->algorithm == LSI_DIRECT && c->coll != LSI_ALLTOALLV ? lsi_board_step
                                                                         : lsi_board_then_schedule;
        lsi_board_post(comm, c, r->seq);
    } else if (lsi_two_level_serves(comm, c)) {
        LSI_TRY(lsi_two_level_start(r));
    } else {
        r->step = lsi_schedule_progress;
        LSI_TRY(lsi_build_schedule(r));
    }
    if (!comm->one_host || !comm->has_board)
        return comm->world->port ? lsi_port_recheck(comm->world->port, comm->id, r->seq) : LS_OK;
    return LS_OK;
}

/* Run `r` to its end. It is either in the active list or driven by us alone. */
static ls_status wait_for(ls_request *r, double timeout_s)
{
    lsi_wait wait = {.deadline = timeout_s > 0 ? lsi_now() + timeout_s : -1};
    lsi_world *w = r->comm->world;
    int messages = r->step == lsi_schedule_progress || !r->comm->has_board || !r->comm->one_host;
    unsigned moves = r->moves;
    while (r->status == LS_IN_PROGRESS) {
        if (r->comm->failed != LS_OK)
            return r->status = lsi_comm_failed(r->comm);
        if (!r->active) {
            ls_status status = r->step(r);
            if (status != LS_IN_PROGRESS) {
                lsi_request_finish(r, status);
                break;
            }
        }
        if (r->moves != moves) { /* the peers are at work: it will not be long */
            moves = r->moves;
            wait.looks = wait.yields = 0;
        }
        if (messages || w->active || wait.yields || r->step == lsi_schedule_progress)
            progress(w);
        if (r->status == LS_IN_PROGRESS && lsi_wait_pause(r, &wait) != LS_OK)
            return r->status = r->comm->failed;
    }
    if (r->status != LS_OK && r->comm->failed != LS_OK)
        lsi_comm_failed(r->comm); /* as this thread's last error */
    return r->status;
}

/* No more than LSI_BOARD_ACTIVE operations of a communicator are under way at once. */
static ls_status make_room(ls_comm *comm)
{
    while (comm->seq + 1 - comm->oldest >= LSI_BOARD_ACTIVE) {
        ls_request *oldest = NULL;
        for (ls_request *r = comm->world->active; r; r = r->next)
            if (r->comm == comm && r->seq == comm->oldest)
                oldest = r;
        if (!oldest)
            return lsi_comm_failed(comm);
        LSI_TRY(wait_for(oldest, 0));
    }
    return LS_OK;
}

/* A request that has begun; it is in no list yet. */
static ls_request *make_request(ls_comm *comm, const lsi_call *call)
{
    ls_request *r = take_request(comm);
    if (!r)
        return NULL;
    r->comm = comm;
    r->call = *call;
    r->seq = 0;
    r->status = LS_IN_PROGRESS;
    r->phase = r->seen = r->active = 0;
    r->stage = (lsi_staging){0};
    return r;
}

static ls_status begin(ls_comm *comm, const lsi_call *call, ls_request **out)
{
    lsi_world_look(
        comm->world); /* who comes late must not touch the buffers of those who gave up */
    if (comm->failed != LS_OK) {
        lsi_comm_name_failure(comm, &call->what);
        return lsi_comm_failed(comm);
    }
    if (call->coll != LSI_P2P && comm->seq + 1 - comm->oldest >= LSI_BOARD_ACTIVE)
        LSI_TRY(make_room(comm));
    ls_request *r = make_request(comm, call);
    if (!r)
        return lsi_fail(LS_ERR_NOMEM, NULL, "request", "out of memory");
    ls_status status = copy_counts(r);
    if (status == LS_OK)
        status = launch(r);
    if (status != LS_OK) {
        if (r->seq && comm->failed == LS_OK) /* the others are inside: they must hear of it */
            lsi_comm_fail(comm, status, ls_last_error());
        give_request(r);
        return status;
    }
    *out = r;
    return LS_OK;
}

static ls_status run(ls_request *r)
{
    ls_status status = wait_for(r, 0);
    give_request(r);
    return status;
}

ls_status lsi_run_posted(ls_comm *comm, const lsi_call *call, uint64_t seq, int phase)
{
    ls_request *r = make_request(comm, call);
    if (!r) {
        lsi_fail(LS_ERR_NOMEM, NULL, "request", "out of memory");
        return lsi_comm_fail(comm, LS_ERR_NOMEM, ls_last_error());
    }
    r->seq = seq;
    r->phase = phase;
    r->step = lsi_board_step;
    return run(r);
}

ls_status lsi_run(ls_comm *comm, const lsi_call *call)
{
    ls_request *r;
    uint64_t seq = 0;
    int phase = 0;
    ls_status quick = lsi_board_quick(comm, call, &seq, &phase);
    if (quick == LS_OK)
        return LS_OK;
    if (quick == LS_IN_PROGRESS)
        return lsi_run_posted(comm, call, seq, phase);
    LSI_TRY(begin(comm, call, &r));
    return run(r);
}

ls_status lsi_start(ls_comm *comm, const lsi_call *call, ls_request **out)
{
    ls_request *r;
    LSI_TRY(begin(comm, call, &r));
    ls_status status = r->step(r);
    if (status == LS_IN_PROGRESS) {
        ls_request **end = &comm->world->active; /* in order, so that earlier ones go first */
        while (*end)
            end = &(*end)->next;
        r->next = NULL;
        *end = r;
        r->active = 1;
    } else {
        lsi_request_finish(r, status);
    }
    *out = r;
    return LS_OK;
}

/* The request has ended: its result, and the end of the handle. */
static ls_status retire(ls_request **request)
{
    ls_request *r = *request;
    ls_status status = r->status;
    if (r->active)
        for (ls_request **p = &r->comm->world->active; *p; p = &(*p)->next)
            if (*p == r) {
                *p = r->next;
                break;
            }
    r->active = 0;
    if (status != LS_OK && r->comm->failed != LS_OK)
        lsi_comm_failed(r->comm);
    give_request(r);
    *request = NULL;
    return status;
}

ls_status ls_request_test(ls_request **request)
{
    if (!request || !*request)
        return LS_OK;
    ls_request *r = *request;
    if (r->status == LS_IN_PROGRESS) {
        lsi_world_look(r->comm->world);
        progress(r->comm->world);
    }
    return r->status == LS_IN_PROGRESS ? LS_IN_PROGRESS : retire(request);
}

ls_status ls_request_wait(ls_request **request, double timeout_s)
{
    if (!request || !*request)
        return LS_OK;
    wait_for(*request, timeout_s);
    return retire(request);
}

/* Running an operation on the board: post, wait for all, work, wait for all.
 *
 * Small inputs are copied into the slot (one cache line) or a box, so the operation ends when all
 * have entered. Large ones stay where they are: in the shared segment they are read and written
 * in place. Of private memory an all-reduce goes through rooms (board_stage.c) or through
 * process_vm_readv and writev (one copy instead of two); other operations go over the rings, as
 * messages, but for the largest of two members, and all do where the system forbids the kernel's
 * way and there are no rooms.
 */
#include "coll/board_ops.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"

#define BOX_FOREIGN LSI_BOARD_BOX_BYTES /* beyond LSI_BOARD_SMALL: a system call costs more */
#define SETTLE_S 1.0

size_t lsi_board_contribution(const ls_comm *comm, const lsi_call *call)
{
    size_t bytes = call->count * call->element;
    switch (call->coll) {
    case LSI_REDUCE_SCATTER:
    case LSI_ALLTOALL:
    case LSI_SCATTER: return bytes * (size_t)comm->size;
    case LSI_ALLGATHERV: {
        size_t largest = 0;
        for (int i = 0; i < comm->size; i++)
            if (call->recv_counts[i] > largest)
                largest = call->recv_counts[i];
        return largest * call->element;
    }
    default: return bytes;
    }
}

/* Do we bring anything, and how much of it is ours? */
static size_t own_contribution(const ls_comm *comm, const lsi_call *call, size_t most)
{
    if ((call->coll == LSI_BROADCAST || call->coll == LSI_SCATTER) && comm->rank != call->root)
        return 0;
    if (call->coll == LSI_ALLGATHERV)
        return call->recv_counts[comm->rank] * call->element;
    return most;
}

static int is_shared(const lsi_world *w, const void *p)
{
    const char *c = p;
    return c >= w->host.base && c < w->host.base + w->host.bytes;
}

static uint64_t place_of(const lsi_world *w, const void *p)
{
    return is_shared(w, p) ? (uint64_t)((const char *)p - w->host.base) : (uint64_t)(uintptr_t)p;
}

void lsi_board_announce(ls_comm *comm, uint64_t seq, lsi_phase phase)
{
    lsi_slot *slot = lsi_board_slot(&comm->board, seq, comm->board.self);
    _Atomic uint32_t *word = phase == LSI_PHASE_ENTERED ? &slot->entered : &slot->phase;
    atomic_store_explicit(word, lsi_board_state(seq, phase), memory_order_release);
    lsi_board_hand_over(word);
    if (phase == LSI_PHASE_ENTERED) { /* nobody reads that slot any more: it can be ours early */
        const uint64_t later = seq + LSI_BOARD_ACTIVE;
        __builtin_prefetch(lsi_board_slot(&comm->board, later, comm->board.self), 1);
    }
    lsi_world_ring(comm->world);
}

/* Say where the buffers lie. Returns the box with a copy of the input, NULL if there is none. */
static char *post_buffers(ls_comm *comm, const lsi_call *c, uint64_t seq, lsi_slot *slot,
                          size_t most, size_t own)
{
    lsi_world *w = comm->world;
    int shared = is_shared(w, c->send);
    size_t limit = shared ? LSI_BOARD_SMALL : BOX_FOREIGN;
    uint32_t flags = (shared ? LSI_SLOT_SEND_SHARED : 0u) |
                     (is_shared(w, c->recv) ? LSI_SLOT_RECV_SHARED : 0u) |
                     (w->can_read ? LSI_SLOT_CAN_READ : 0u) |
                     (most > limit ? lsi_board_stage_flags(comm, c, seq) : 0u),
             number = 0;
    char *box = NULL;
    if (most <= limit) {
        flags |= LSI_SLOT_BOXED;
        number = lsi_board_take_box(&comm->board, seq);
        box = lsi_board_box(&comm->board, seq, comm->board.self, number);
        if (own)
            memcpy(box, c->send, own);
    }
    slot->flags = flags;
    comm->board.own_flags[seq % LSI_BOARD_SLOTS] = flags;
    slot->box = number;
    slot->send = place_of(w, c->send);
    slot->recv = place_of(w, c->recv);
    slot->oldest = comm->oldest;
    return box;
}

/* Let the others know where we run. */
static void take_seat(lsi_world *w)
{
    const int core = sched_getcpu();
    if (core == w->core)
        return;
    w->core = core;
    atomic_store_explicit(&w->host.block->ranks[w->rank].core, core, memory_order_relaxed);
}

void lsi_board_post(ls_comm *comm, const lsi_call *c, uint64_t seq)
{
    const lsi_board *b = &comm->board;
    lsi_slot *slot = lsi_board_slot(b, seq, b->self);
    size_t most = lsi_board_contribution(comm, c), own = own_contribution(comm, c, most);
    char *box = NULL;
    if (comm->world->crowded)
        take_seat(comm->world);
    lsi_board_note(b, seq, b->self)->call = c->what;
    if (most > LSI_BOARD_INLINE)
        box = post_buffers(comm, c, seq, slot, most, own);
    else if (own == 8) /* the common size without a call */
        memcpy(slot->data, c->send, 8);
    else if (own)
        memcpy(slot->data, c->send, own);
    slot->signature = lsi_call_signature(&c->what);
    lsi_board_announce(comm, seq, LSI_PHASE_ENTERED);
    if (!box && most > LSI_BOARD_LINE && most <= LSI_BOARD_INLINE)
        lsi_board_hand_over(slot->data + LSI_BOARD_LINE);
    for (size_t at = 0; box && at < own; at += 64)
        lsi_board_hand_over(box + at);
}

void lsi_board_publish(ls_request *r, lsi_phase phase)
{
    lsi_board_announce(r->comm, r->seq, phase);
    r->seen = 0;
}

int lsi_board_all(ls_request *r, lsi_phase phase)
{
    const lsi_board *b = &r->comm->board;
    for (; r->seen < b->members; r->seen++)
        if (r->seen != b->self &&
            !lsi_board_reached(lsi_board_slot(b, r->seq, r->seen), r->seq, phase))
            return 0;
    return 1;
}

int lsi_board_awaits_neighbour(const ls_request *r)
{
    const ls_comm *comm = r->comm;
    const lsi_board *b = &comm->board;
    const lsi_host_rank *ranks = comm->world->host.block->ranks;
    const lsi_phase phase = r->phase ? LSI_PHASE_WORKED : LSI_PHASE_ENTERED;
    for (int i = r->seen; i < b->members; i++)
        if (i != b->self &&
            atomic_load_explicit(&ranks[comm->ranks[comm->locals[i]]].core, memory_order_relaxed) ==
                comm->world->core &&
            !(r->step == lsi_board_stage
                  ? lsi_board_stage_has(r, i)
                  : lsi_board_reached(lsi_board_slot(b, r->seq, i), r->seq, phase)))
            return 1;
    return 0;
}

int lsi_board_begin_work(ls_comm *comm, uint64_t seq)
{
    const lsi_board *b = &comm->board;
    atomic_store(&lsi_board_note(b, seq, b->self)->busy, 1);
    if (!atomic_load(&b->head->aborted))
        return 1;
    lsi_board_end_work(comm, seq);
    return 0;
}

void lsi_board_end_work(ls_comm *comm, uint64_t seq)
{
    const lsi_board *b = &comm->board;
    atomic_store_explicit(&lsi_board_note(b, seq, b->self)->busy, 0, memory_order_release);
}

void lsi_board_settle(ls_comm *comm)
{
    const lsi_board *b = &comm->board;
    const lsi_host_rank *ranks = comm->world->host.block->ranks;
    double deadline = lsi_now() + SETTLE_S;
    for (uint64_t seq = comm->oldest; seq <= comm->seq; seq++)
        for (int i = 0; i < b->members; i++)
            while (i != b->self && atomic_load(&lsi_board_note(b, seq, i)->busy) &&
                   atomic_load(&ranks[comm->ranks[comm->locals[i]]].state) != LSI_RANK_DEAD &&
                   lsi_now() < deadline)
                sched_yield();
}

/* Somebody called something else. */
static ls_status mismatch(ls_request *r, int i)
{
    ls_comm *comm = r->comm;
    char ours[LSI_DESCRIBE_MAX], theirs[LSI_DESCRIBE_MAX], text[LSI_ERROR_MAX];
    lsi_wire_call other = lsi_board_note(&comm->board, r->seq, i)->call;
    snprintf(text, sizeof text,
             "mismatched calls: operation %llu is %s on rank %d and %s on rank %d (all ranks must "
             "call the same collectives in the same order)",
             (unsigned long long)r->seq, lsi_call_describe(&r->call.what, ours, sizeof ours),
             comm->rank, lsi_call_describe(&other, theirs, sizeof theirs), comm->locals[i]);
    return lsi_comm_fail(comm, LS_ERR_MISMATCH, text);
}

ls_status lsi_board_entered(ls_request *r)
{
    ls_comm *comm = r->comm;
    lsi_board *b = &comm->board;
    uint32_t signature = lsi_call_signature(&r->call.what); /* our slot has been handed over */
    for (; r->seen < b->members; r->seen++) {
        const lsi_slot *slot = lsi_board_slot(b, r->seq, r->seen);
        if (r->seen == b->self)
            continue;
        if (!lsi_board_reached(slot, r->seq, LSI_PHASE_ENTERED))
            return LS_IN_PROGRESS;
        if (slot->signature != signature)
            return mismatch(r, r->seen);
    }
    return LS_OK;
}

const char *lsi_board_input(const ls_comm *comm, const lsi_call *c, uint64_t seq, int i)
{
    const lsi_board *b = &comm->board;
    const lsi_slot *slot = lsi_board_slot(b, seq, i);
    if (i == b->self)
        return c->send;
    if (lsi_board_contribution(comm, c) <= LSI_BOARD_INLINE)
        return (const char *)slot->data;
    if (slot->flags & LSI_SLOT_BOXED)
        return lsi_board_box(b, seq, i, slot->box);
    if (slot->flags & LSI_SLOT_SEND_SHARED)
        return comm->world->host.base + slot->send;
    return NULL;
}

static ls_status foreign(ls_request *r, int i, ssize_t moved, size_t bytes)
{
    if (moved == (ssize_t)bytes)
        return LS_OK;
    const int gone = moved < 0 && errno == ESRCH; /* known before whoever watches it says so */
    const char *why = gone ? "its process is gone" : moved < 0 ? strerror(errno) : "partial copy";
    char call[LSI_DESCRIBE_MAX], text[LSI_ERROR_MAX];
    snprintf(text, sizeof text,
             gone ? "%s: rank %d died: %s" : "%s: cannot reach the memory of rank %d: %s",
             lsi_call_describe(&r->call.what, call, sizeof call), r->comm->locals[i], why);
    lsi_board_end_work(r->comm, r->seq); /* those who hear of it wait for us */
    lsi_world_look(r->comm->world);      /* its death may be known by now, which says more */
    if (r->comm->failed != LS_OK)
        return lsi_comm_failed(r->comm);
    return lsi_comm_fail(r->comm, LS_ERR_PEER_DEAD, text);
}

static pid_t pid_of(const ls_comm *comm, int i)
{
    return comm->world->host.block->ranks[comm->ranks[comm->locals[i]]].pid;
}

ls_status lsi_board_read(ls_request *r, int i, size_t offset, void *to, size_t bytes)
{
    const char *in = lsi_board_input(r->comm, &r->call, r->seq, i);
    if (!bytes)
        return LS_OK;
    if (in) {
        memcpy(to, in + offset, bytes);
        return LS_OK;
    }
    uint64_t at = lsi_board_slot(&r->comm->board, r->seq, i)->send + offset;
    struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)at, bytes};
    return foreign(r, i, process_vm_readv(pid_of(r->comm, i), &here, 1, &there, 1, 0), bytes);
}

ls_status lsi_board_write(ls_request *r, int i, size_t offset, const void *from, size_t bytes)
{
    const lsi_slot *slot = lsi_board_slot(&r->comm->board, r->seq, i);
    uint64_t at = slot->recv + offset;
    if (slot->flags & LSI_SLOT_RECV_SHARED) {
        memcpy(r->comm->world->host.base + at, from, bytes);
        return LS_OK;
    }
    struct iovec here = {(void *)(uintptr_t)from, bytes}, there = {(void *)(uintptr_t)at, bytes};
    return foreign(r, i, process_vm_writev(pid_of(r->comm, i), &here, 1, &there, 1, 0), bytes);
}

/* Is this all-reduce summed by parts, if all inputs are boxed? */
static int is_parted(const lsi_board *b, const lsi_call *c)
{
    const size_t bytes = c->count * c->element;
    return c->coll == LSI_ALLREDUCE && bytes <= LSI_BOARD_BOX_BYTES &&
           bytes * (size_t)(b->members - 1) > LSI_BOARD_READ;
}

/* What the slots say, once all have entered: equal on every member, as all read the same. */
lsi_survey lsi_board_survey(ls_comm *comm, const lsi_call *c, uint64_t seq)
{
    lsi_board *b = &comm->board;
    lsi_survey s = {.stable = 1, .able = 1};
    uint32_t common = LSI_SLOT_ALONE, first = 0;
    uint64_t oldest = comm->oldest;
    const int rooted = c->coll == LSI_BROADCAST || c->coll == LSI_SCATTER;
    if (lsi_board_contribution(comm, c) <= LSI_BOARD_INLINE)
        return s;
    for (int i = 0; i < b->members; i++) {
        const lsi_slot *slot = lsi_board_slot(b, seq, i);
        uint32_t flags = i == b->self ? b->own_flags[seq % LSI_BOARD_SLOTS] : slot->flags;
        const int is_root = comm->locals[i] == c->root, brings = !rooted || is_root;
        const int is_given = c->coll == LSI_ALLREDUCE || (c->coll == LSI_REDUCE && is_root);
        if (i != b->self && slot->oldest < oldest)
            oldest = slot->oldest;
        if (brings && !(flags & LSI_SLOT_BOXED))
            s.stable = 0;
        if ((brings && !(flags & LSI_SLOT_SEND_SHARED)) ||
            (is_given && !(flags & LSI_SLOT_RECV_SHARED)))
            s.foreign = 1;
        if (!(flags & LSI_SLOT_CAN_READ))
            s.able = 0;
        common &= flags;
        first = i ? first : flags;
    }
    s.parted = s.stable && is_parted(b, c);
    s.alone = !s.stable && s.foreign && common;
    s.staged = s.alone && (!s.able || first & LSI_SLOT_STAGE);
    if (oldest > b->done_below)
        b->done_below = oldest;
    return s;
}

static int is_reduction(lsi_coll coll)
{
    return coll == LSI_ALLREDUCE || coll == LSI_REDUCE || coll == LSI_REDUCE_SCATTER;
}

/* Over the rings both sides copy at once, and no page is looked up: two to nine ranks on two cores
 * take 0.3 to 0.9 of the time of the kernel's copies, at any size. But two ranks take 1.1 to 1.6 of
 * it for what leaves the caches and is not added on both sides: from how many bytes on (Zen 5, one
 * cache of 32 MiB). */
static size_t leaves_caches(lsi_coll coll)
{
    switch (coll) {
    case LSI_REDUCE: return (size_t)20 << 20;
    case LSI_BROADCAST:
    case LSI_GATHER:
    case LSI_SCATTER: return (size_t)10 << 20;
    case LSI_ALLGATHER:
    case LSI_ALLTOALL: return (size_t)16 << 20;   /* each way */
    case LSI_ALLGATHERV: return (size_t)32 << 20; /* both ways */
    default: return SIZE_MAX;
    }
}

/* As messages, although nobody asked for an algorithm that needs them. */
static int goes_over_rings(const ls_request *r, const lsi_survey *s)
{
    const lsi_call *c = &r->call;
    if (s->stable || !s->foreign)
        return 0;
    if (!s->able)
        return 1;
    return c->coll != LSI_ALLREDUCE &&
           (r->comm->board.members > 2 || c->count * c->element < leaves_caches(c->coll));
}

ls_status lsi_board_step(ls_request *r)
{
    if (r->phase == 0) {
        LSI_TRY(lsi_board_entered(r));
        lsi_survey s = lsi_board_survey(r->comm, &r->call, r->seq);
        if (s.alone)
            lsi_board_stage_begin(r, s.staged);
        if (s.staged) {
            r->step = lsi_board_stage;
            return lsi_board_stage(r);
        }
        if (goes_over_rings(r, &s)) {
            r->step = lsi_schedule_progress;
            r->call.algorithm = lsi_select_tuned(r->call.coll, r->call.count * r->call.element,
                                                 r->comm->board.members, LSI_REACH_RINGS);
            LSI_TRY(lsi_build_schedule(r));
            return lsi_schedule_progress(r);
        }
        if (!s.stable && !lsi_board_begin_work(r->comm, r->seq))
            return LS_IN_PROGRESS;
        if (s.parted)
            lsi_board_reduce_part(r->comm, &r->call, r->seq);
        else
            LSI_TRY(is_reduction(r->call.coll) ? lsi_board_reduce(r, s.stable) : lsi_board_move(r));
        if (s.stable && !s.parted)
            return LS_OK;
        if (!s.stable)
            lsi_board_end_work(r->comm, r->seq);
        r->phase = 1;
        lsi_board_publish(r, LSI_PHASE_WORKED);
    }
    if (!lsi_board_all(r, LSI_PHASE_WORKED))
        return LS_IN_PROGRESS;
    if (is_parted(&r->comm->board, &r->call) && lsi_board_survey(r->comm, &r->call, r->seq).parted)
        lsi_board_fetch_parts(r->comm, &r->call, r->seq);
    lsi_board_stage_told(r);
    return LS_OK;
}

ls_status lsi_board_then_schedule(ls_request *r)
{
    LSI_TRY(lsi_board_entered(r));
    r->step = lsi_schedule_progress;
    LSI_TRY(lsi_build_schedule(r));
    return lsi_schedule_progress(r);
}

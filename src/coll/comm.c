/* Communicators: members, failure, splitting. */
#include "coll/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "coll/board_ops.h"

/* The board of a destroyed communicator, in our heap: freed when its last user has left. */
typedef struct lsi_retired {
    struct lsi_retired *next;
    lsi_board_head *head;
} lsi_retired;

int ls_comm_rank(const ls_comm *comm)
{
    return comm ? comm->rank : -1;
}

int ls_comm_size(const ls_comm *comm)
{
    return comm ? comm->size : 0;
}

int ls_comm_local_rank(const ls_comm *comm)
{
    return comm ? comm->local_rank : -1;
}

int ls_comm_local_size(const ls_comm *comm)
{
    return comm ? comm->local_size : 0;
}

ls_status lsi_comm_failed(const ls_comm *comm)
{
    return lsi_fail_text(comm->failed, comm->failure);
}

int lsi_comm_member(const ls_comm *comm, int world_rank)
{
    for (int m = 0; m < comm->size; m++)
        if (comm->ranks[m] == world_rank)
            return m;
    return -1;
}

ls_comm *lsi_world_comm(lsi_world *world, uint32_t id)
{
    for (ls_comm *c = world->comms; c; c = c->next)
        if (c->id == id)
            return c;
    return NULL;
}

const char *lsi_comm_doing(const ls_comm *comm, char *text, size_t bytes)
{
    if (comm->oldest <= comm->seq)
        return lsi_call_describe(&comm->history[comm->oldest % LSI_HISTORY], text, bytes);
    return comm->messages > 0 ? lsi_call_describe(&comm->message, text, bytes) : LSI_IDLE;
}

void lsi_comm_name_failure(ls_comm *comm, const lsi_wire_call *what)
{
    char call[LSI_DESCRIBE_MAX], text[LSI_ERROR_MAX];
    size_t skip = strlen(LSI_IDLE);
    if (strncmp(comm->failure, LSI_IDLE ":", skip + 1) != 0)
        return;
    const char *doing =
        what ? lsi_call_describe(what, call, sizeof call) : lsi_comm_doing(comm, call, sizeof call);
    snprintf(text, sizeof text, "%s%.*s", doing, LSI_ERROR_MAX - LSI_DESCRIBE_MAX - 1,
             comm->failure + skip);
    memcpy(comm->failure, text, sizeof text);
}

ls_status lsi_comm_fail(ls_comm *comm, ls_status status, const char *text)
{
    lsi_world *w = comm->world;
    if (comm->failed != LS_OK)
        return lsi_comm_failed(comm);
    comm->failed = status;
    snprintf(comm->failure, sizeof comm->failure, "%s", text);
    lsi_comm_name_failure(comm, NULL);
    text = comm->failure;
    if (comm->has_board) {
        lsi_board_abort(&comm->board, comm->rank, (int)status, text);
        atomic_fetch_add(&w->host.block->epoch, 1);
        lsi_host_ring_all(w->host.block);
    }
    for (int m = 0; m < comm->size && w->port; m++)
        if (m != comm->rank) {
            char frame[LSI_ERROR_MAX + 16];
            snprintf(frame, sizeof frame, "%d %s", (int)status, text);
            lsi_port_control(w->port, comm->ranks[m], LSI_WIRE_ABORT, comm->id, comm->seq, frame);
        }
    for (ls_request *r = w->active; r; r = r->next)
        if (r->comm == comm && r->status == LS_IN_PROGRESS)
            r->status = status;
    if (w->port)
        lsi_port_forget(w->port, comm->id);
    if (comm->has_board)
        lsi_board_settle(comm);
    return lsi_comm_failed(comm);
}

/* A death or a failure told by another member. */
static void look_at_board(ls_comm *comm)
{
    int32_t status = atomic_load_explicit(&comm->board.head->aborted, memory_order_acquire);
    if (status < 0) {
        char text[LSI_ERROR_MAX];
        snprintf(text, sizeof text, "%s", comm->board.head->text);
        lsi_comm_fail(comm, (ls_status)status, text);
    }
}

static void look_at_deaths(ls_comm *comm)
{
    lsi_host_block *block = comm->world->host.block;
    int m = lsi_host_first_dead(block, comm->ranks, comm->size);
    if (m < 0)
        return;
    char call[LSI_DESCRIBE_MAX], text[LSI_ERROR_MAX];
    snprintf(text, sizeof text, "%s: rank %d died: %.*s", lsi_comm_doing(comm, call, sizeof call),
             m, LSI_HOST_CAUSE_MAX, block->ranks[comm->ranks[m]].cause);
    lsi_comm_fail(comm, LS_ERR_PEER_DEAD, text);
}

void lsi_world_look(lsi_world *w)
{
    uint32_t epoch = atomic_load_explicit(&w->host.block->epoch, memory_order_acquire);
    if (epoch == w->epoch_seen)
        return;
    int writing = 0;
    for (ls_comm *c = w->comms; c; c = c->next) {
        if (c->failed == LS_OK && c->has_board)
            look_at_board(c);
        if (c->failed == LS_OK && c->has_board)
            writing |= atomic_load(&c->board.head->aborted) == 1;
        if (c->failed == LS_OK)
            look_at_deaths(c);
    }
    if (!writing) /* else look again: its text is not complete yet */
        w->epoch_seen = epoch;
}

/* Group the members by host; spans only if every host's members are contiguous. */
static ls_status find_hosts(ls_comm *comm)
{
    const int *host_of = comm->world->host_of;
    size_t n = (size_t)comm->size;
    comm->locals = calloc(n, sizeof *comm->locals);
    comm->spans = calloc(n, sizeof *comm->spans);
    if (!comm->locals || !comm->spans)
        return lsi_fail(LS_ERR_NOMEM, NULL, "communicator", "out of memory");
    int here = host_of[comm->world->rank], contiguous = 1;
    for (int m = 0; m < comm->size; m++) {
        int host = host_of[comm->ranks[m]];
        if (host == here) {
            if (comm->ranks[m] == comm->world->rank)
                comm->local_rank = comm->local_size;
            comm->locals[comm->local_size++] = m;
        }
        if (m == 0 || host_of[comm->ranks[m - 1]] != host) {
            for (int s = 0; s < comm->n_spans; s++)
                if (host_of[comm->ranks[comm->spans[s].first]] == host)
                    contiguous = 0;
            comm->spans[comm->n_spans++] = (lsi_span){m, m + 1};
        } else {
            comm->spans[comm->n_spans - 1].end = m + 1;
        }
        if (host == here)
            comm->span = comm->n_spans - 1;
    }
    comm->one_host = comm->local_size == comm->size;
    if (!contiguous)
        comm->n_spans = 0;
    return LS_OK;
}

lsi_reach lsi_comm_reach(const ls_comm *comm)
{
    if (!comm->one_host)
        return LSI_REACH_HOSTS;
    return comm->has_board ? LSI_REACH_BOARD : LSI_REACH_HOST;
}

void lsi_comm_selected(ls_comm *comm)
{
    const int pair = comm->size == 2 && comm->one_host && comm->has_board;
    size_t bytes = 0;
    while (pair && bytes <= LSI_BOARD_SMALL &&
           lsi_select(&comm->selection, LSI_ALLREDUCE, bytes) == LSI_DIRECT)
        bytes++;
    comm->pair_bytes = bytes;
}

ls_status lsi_comm_create(lsi_world *world, uint32_t id, const int *ranks, int size, void *board,
                          ls_comm **out)
{
    ls_comm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return lsi_fail(LS_ERR_NOMEM, NULL, "communicator", "out of memory");
    comm->world = world;
    comm->id = id;
    comm->size = size;
    comm->oldest = 1;
    comm->ranks = calloc((size_t)size, sizeof *comm->ranks);
    comm->entered = calloc((size_t)size, sizeof *comm->entered);
    comm->heard = calloc((size_t)size, sizeof *comm->heard);
    ls_status status = LS_OK;
    if (!comm->ranks || !comm->entered || !comm->heard) {
        status = lsi_fail(LS_ERR_NOMEM, NULL, "communicator", "out of memory");
    } else {
        memcpy(comm->ranks, ranks, (size_t)size * sizeof *ranks);
        comm->rank = lsi_comm_member(comm, world->rank);
        status = find_hosts(comm);
    }
    if (status == LS_OK) {
        if (board && comm->local_size > 1) {
            lsi_board_attach(&comm->board, board, comm->local_size, comm->local_rank,
                             world->host.block->heap_bytes);
            comm->has_board = 1;
        }
        lsi_select_defaults(&comm->selection, size, lsi_comm_reach(comm));
        status = lsi_select_environment(&comm->selection);
    }
    if (status != LS_OK) {
        lsi_comm_free(comm);
        return status;
    }
    lsi_comm_selected(comm);
    comm->next = world->comms;
    world->comms = comm;
    *out = comm;
    return LS_OK;
}

/* Boards whose last user has gone give their memory back. */
static void reap(lsi_world *w)
{
    for (lsi_retired **p = &w->retired; *p;) {
        lsi_retired *r = *p;
        if (atomic_load(&r->head->users) == 0) {
            *p = r->next;
            lsi_heap_free(w->heap, r->head);
            free(r);
        } else {
            p = &r->next;
        }
    }
}

void lsi_retired_free(lsi_world *w)
{
    while (w->retired) { /* their memory goes with the heap */
        lsi_retired *r = w->retired;
        w->retired = r->next;
        free(r);
    }
}

void lsi_comm_free(ls_comm *comm)
{
    if (!comm)
        return;
    lsi_world *w = comm->world;
    for (ls_comm **p = &w->comms; *p; p = &(*p)->next)
        if (*p == comm) {
            *p = comm->next;
            break;
        }
    if (w->port && comm->id)
        lsi_port_forget(w->port, comm->id);
    if (comm->has_board)
        atomic_fetch_sub(&comm->board.head->users, 1);
    lsi_retired *retired = comm->board_memory ? calloc(1, sizeof *retired) : NULL;
    if (retired) {
        *retired = (lsi_retired){w->retired, comm->board_memory};
        w->retired = retired;
    }
    free(comm->ranks);
    free(comm->locals);
    free(comm->spans);
    free(comm->entered);
    free(comm->heard);
    free(comm);
    reap(w);
}

void ls_comm_destroy(ls_comm *comm)
{
    if (comm && comm->id != 0) /* the world's own ends with ls_finalize */
        lsi_comm_free(comm);
}

typedef struct ticket {
    int64_t color, key, next_id, board; /* board: offset in the segment of the member's host */
} ticket;

static int by_key(const ticket *all, int a, int b)
{
    return all[a].key < all[b].key || (all[a].key == all[b].key && a < b);
}

/* Members with our color in (key, rank) order; returns how many. */
static int pick_members(const ls_comm *comm, const ticket *all, int *members)
{
    int n = 0;
    for (int m = 0; m < comm->size; m++) {
        if (all[m].color != all[comm->rank].color)
            continue;
        int at = n++;
        while (at > 0 && by_key(all, m, members[at - 1])) {
            members[at] = members[at - 1];
            at--;
        }
        members[at] = m;
    }
    return n;
}

/* The id that all members agree on: past every one in use, one for each color. */
static uint32_t agree_on_id(const ls_comm *comm, const ticket *all, uint32_t *next)
{
    int64_t base = 0;
    uint32_t before = 0, colors = 0;
    for (int m = 0; m < comm->size; m++)
        if (all[m].next_id > base)
            base = all[m].next_id;
    for (int m = 0; m < comm->size; m++) {
        int first = all[m].color >= 0;
        for (int k = 0; k < m; k++)
            first &= all[k].color != all[m].color;
        colors += (uint32_t)first;
        before += (uint32_t)(first && all[m].color < all[comm->rank].color);
    }
    *next = (uint32_t)base + colors;
    return (uint32_t)base + before;
}

/* The lowest member of each host makes the board; returns it for our own host, NULL if none. */
static ls_status make_board(ls_comm *comm, ticket *all, const int *members, int n, void **board,
                            int *owner)
{
    lsi_world *w = comm->world;
    int first = -1, locals = 0;
    for (int i = 0; i < n; i++)
        if (w->host_of[comm->ranks[members[i]]] == w->host_of[w->rank]) {
            first = first < 0 ? members[i] : first;
            locals++;
        }
    *owner = n > 0 && locals > 1 && w->use_boards && first == comm->rank;
    *board = NULL;
    ticket mine = all[comm->rank];
    mine.board = 0;
    ls_status status = LS_OK;
    if (*owner) {
        const size_t bytes = lsi_board_bytes(locals, w->host.block->heap_bytes);
        status = lsi_heap_alloc(w->heap, bytes, 128, board);
        if (status == LS_OK) {
            mine.board = (char *)*board - w->host.base;
            /* All of them now: one that is late must not find it given back. */
            atomic_store(&((lsi_board_head *)*board)->users, (uint32_t)locals);
        }
    }
    LSI_TRY(ls_allgather(comm, &mine, all, sizeof mine / 8, LS_I64));
    if (status == LS_OK && !*owner && locals > 1 && w->use_boards)
        *board = all[first].board ? w->host.base + all[first].board : NULL;
    if (status == LS_OK && locals > 1 && w->use_boards && n > 0 && !*board)
        status = lsi_fail(LS_ERR_NOMEM, "raise LOCKSTEP_HEAP", "splitting a communicator",
                          "no shared memory for its board");
    return status;
}

ls_status ls_comm_split(ls_comm *comm, int color, int key, ls_comm **out)
{
    if (!comm || !out)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_comm_split", "a NULL argument");
    lsi_world *w = comm->world;
    ticket *all = calloc((size_t)comm->size, sizeof *all);
    int *members = calloc((size_t)comm->size, sizeof *members);
    ls_comm *made = NULL;
    ls_status status = LS_OK;
    if (!all || !members) {
        status = lsi_fail(LS_ERR_NOMEM, NULL, "ls_comm_split", "out of memory");
        goto free_lists;
    }
    ticket mine = {color < 0 ? -1 : color, key, w->next_id, 0};
    status = ls_allgather(comm, &mine, all, sizeof mine / 8, LS_I64);
    if (status != LS_OK)
        goto free_lists;
    uint32_t id = agree_on_id(comm, all, &w->next_id);
    int n = color < 0 ? 0 : pick_members(comm, all, members), owner = 0;
    void *board = NULL;
    status = make_board(comm, all, members, n, &board, &owner);
    if (status == LS_OK && n > 0) {
        for (int i = 0; i < n; i++)
            members[i] = comm->ranks[members[i]];
        status = lsi_comm_create(w, id, members, n, board, &made);
        if (status == LS_OK && owner)
            made->board_memory = board;
    }
    if (status == LS_OK)
        *out = made;
free_lists:
    free(members);
    free(all);
    return status;
}

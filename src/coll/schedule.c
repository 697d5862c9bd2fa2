/* Building and running schedules. */
#include "coll/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "coll/comm.h"
#include "coll/reduce.h"

#define WINDOW 256 /* steps looked at beyond the first that is not done */

void lsi_schedule_reset(lsi_schedule *s, ls_dtype dtype, ls_op op, int in_host)
{
    s->in_host = in_host;
    s->window = in_host ? LSI_CHUNK_WINDOW_HOST : LSI_CHUNK_WINDOW_MAX;
    s->chunk = in_host ? LSI_CHUNK_HOST : LSI_CHUNK_LINE;
    s->backwards = 0;
    s->n = 0;
    s->first = 0;
    s->dtype = dtype;
    s->op = op;
    s->broken = LS_OK;
    if (s->arena)
        lsi_arena_reset(s->arena);
    else
        s->broken = lsi_arena_create(0, &s->arena);
}

void lsi_schedule_free(lsi_schedule *s)
{
    free(s->steps);
    lsi_arena_destroy(s->arena);
    memset(s, 0, sizeof *s);
}

void *lsi_schedule_alloc(lsi_schedule *s, size_t bytes)
{
    void *memory = NULL;
    if (s->broken == LS_OK)
        s->broken = lsi_arena_alloc(s->arena, bytes, &memory);
    return memory;
}

static lsi_step *append(lsi_schedule *s, lsi_step_kind kind, int after)
{
    if (s->broken != LS_OK)
        return NULL;
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 64;
        lsi_step *steps = realloc(s->steps, (size_t)room * sizeof *steps);
        if (!steps) {
            s->broken = lsi_fail(LS_ERR_NOMEM, NULL, "schedule", "out of memory");
            return NULL;
        }
        s->steps = steps;
        s->room = room;
    }
    lsi_step *step = &s->steps[s->n++];
    step->kind = (uint8_t)kind;
    step->state = LSI_STEP_WAITING;
    step->after_from = step->after_to = 0;
    if (after >= 0) {
        step->after_from = after;
        step->after_to = after + 1;
    }
    step->after_also = -1;
    return step;
}

int lsi_add_send(lsi_schedule *s, int peer, uint32_t tag, const void *data, size_t bytes, int after)
{
    lsi_step *step = append(s, LSI_STEP_SEND, after);
    if (!step)
        return -1;
    step->peer = peer;
    step->tag = tag;
    step->src = data;
    step->bytes = bytes;
    return s->n - 1;
}

int lsi_add_recv(lsi_schedule *s, int peer, uint32_t tag, void *data, size_t bytes, int after)
{
    lsi_step *step = append(s, LSI_STEP_RECV, after);
    if (!step)
        return -1;
    step->peer = peer;
    step->tag = tag;
    step->dst = data;
    step->bytes = bytes;
    return s->n - 1;
}

int lsi_add_copy(lsi_schedule *s, void *dst, const void *src, size_t bytes, int after)
{
    lsi_step *step = append(s, LSI_STEP_COPY, after);
    if (!step)
        return -1;
    step->dst = dst;
    step->src = src;
    step->bytes = bytes;
    return s->n - 1;
}

int lsi_add_none(lsi_schedule *s, int after)
{
    return append(s, LSI_STEP_NONE, after) ? s->n - 1 : -1;
}

int lsi_add_merge(lsi_schedule *s, const lsi_tree_plan *plan, const void *const *in,
                  void *const *out, size_t count, int after)
{
    lsi_step *step = append(s, LSI_STEP_MERGE, after);
    if (!step)
        return -1;
    step->plan = plan;
    step->bytes = count;
    step->in = lsi_schedule_alloc(s, (size_t)plan->n_in * sizeof *in);
    step->out = lsi_schedule_alloc(s, (size_t)plan->n_out * sizeof *out);
    if (s->broken != LS_OK)
        return -1;
    memcpy(step->in, in, (size_t)plan->n_in * sizeof *in);
    memcpy(step->out, out, (size_t)plan->n_out * sizeof *out);
    return s->n - 1;
}

int lsi_add_reduce(lsi_schedule *s, void *dst, const void *left, const void *right, size_t count,
                   int after)
{
    static const lsi_tree_plan two = {.n_in = 2,
                                      .n_out = 1,
                                      .n_steps = 1,
                                      .source = {-1},
                                      .steps_end = {1},
                                      .steps = {{LSI_TREE_OUTPUT, 0, 1}}};
    const void *in[2] = {left, right};
    return lsi_add_merge(s, &two, in, &dst, count, after);
}

void lsi_after_range(lsi_schedule *s, int from, int to)
{
    if (s->broken != LS_OK)
        return;
    s->steps[s->n - 1].after_from = from;
    s->steps[s->n - 1].after_to = to;
}

void lsi_after_also(lsi_schedule *s, int step)
{
    if (s->broken == LS_OK)
        s->steps[s->n - 1].after_also = step;
}

const lsi_tree_plan *lsi_schedule_plan(lsi_schedule *s, int leaves, const lsi_tree_node *in,
                                       int n_in, lsi_tree_node *out, int *n_out)
{
    lsi_tree_node rest[LSI_TREE_MAX_NODES];
    lsi_tree_plan *plan = lsi_schedule_alloc(s, sizeof *plan);
    if (!plan)
        return NULL;
    int n = lsi_tree_merge_plan(leaves, in, n_in, out ? out : rest, plan);
    if (n_out)
        *n_out = n;
    return plan;
}

static int ready(const lsi_schedule *s, const lsi_step *step)
{
    int from = step->after_from > s->first ? step->after_from : s->first;
    for (int i = from; i < step->after_to; i++)
        if (s->steps[i].state != LSI_STEP_DONE)
            return 0;
    return step->after_also < s->first || s->steps[step->after_also].state == LSI_STEP_DONE;
}

static void start_transfer(ls_request *r, lsi_step *step)
{
    ls_comm *comm = r->comm;
    lsi_xfer *x = &step->xfer;
    *x = (lsi_xfer){.peer = comm->ranks[step->peer]};
    x->wire.type = LSI_WIRE_DATA;
    x->wire.comm = comm->id;
    x->wire.seq = r->seq;
    x->wire.tag = step->tag;
    x->wire.bytes = step->bytes;
    x->wire.call = r->call.what;
    if (step->kind == LSI_STEP_SEND) {
        x->data = (void *)(uintptr_t)step->src;
        lsi_port_send(comm->world->port, x);
    } else {
        x->data = step->dst;
        lsi_port_recv(comm->world->port, x);
    }
}

static void start(ls_request *r, lsi_step *step)
{
    lsi_schedule *s = &r->schedule;
    step->state = LSI_STEP_DONE;
    switch ((lsi_step_kind)step->kind) {
    case LSI_STEP_SEND:
    case LSI_STEP_RECV:
        step->state = LSI_STEP_STARTED;
        start_transfer(r, step);
        break;
    case LSI_STEP_COPY:
        if (step->bytes && step->dst != step->src)
            memmove(step->dst, step->src, step->bytes);
        break;
    case LSI_STEP_MERGE:
        lsi_tree_merge_run(step->plan, s->dtype, s->op, step->in, step->out, step->bytes);
        break;
    case LSI_STEP_NONE: break;
    }
}

/* A transfer failed. If its peer died, the communicator has failed already; else it has left. */
static ls_status transfer_lost(ls_request *r, const lsi_step *step)
{
    char call[LSI_DESCRIBE_MAX], text[LSI_ERROR_MAX];
    if (r->comm->failed != LS_OK)
        return lsi_comm_failed(r->comm);
    snprintf(text, sizeof text, "%s: rank %d has left the group",
             lsi_call_describe(&r->call.what, call, sizeof call), step->peer);
    return lsi_comm_fail(r->comm, LS_ERR_PEER_DEAD, text);
}

ls_status lsi_schedule_progress(ls_request *r)
{
    lsi_schedule *s = &r->schedule;
    int last = s->first + WINDOW < s->n ? s->first + WINDOW : s->n;
    for (int i = s->first; i < last; i++) {
        lsi_step *step = &s->steps[i];
        if (r->comm->failed != LS_OK) /* then nobody would end what is posted now */
            return lsi_comm_failed(r->comm);
        if (step->state == LSI_STEP_WAITING && ready(s, step))
            start(r, step);
        if (step->state == LSI_STEP_STARTED && step->xfer.status != LS_IN_PROGRESS) {
            if (step->xfer.status != LS_OK)
                return transfer_lost(r, step);
            step->state = LSI_STEP_DONE;
        }
        if (i == s->first && step->state == LSI_STEP_DONE) {
            s->first++;
            if (last < s->n)
                last++;
        }
    }
    return s->first == s->n ? LS_OK : LS_IN_PROGRESS;
}

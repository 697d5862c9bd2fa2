/* When each buffer holds something that is needed later, and which buffers share memory.
 *
 * A buffer is a value, a gradient, or the bytes that a node keeps for its backward pass. The steps
 * of the program read and write buffers; a span lasts from a write to the last read before the next
 * write. A value that is computed again has two spans, and the same memory in both.
 *
 * Memory is shared beyond what the plan does when one buffer ends in the very step in which the
 * other begins, and the operation can work in place: output in the place of an input, gradient of
 * that input in the place of the output's gradient (of two outputs: the second's), gradient of a
 * loss in the place of its logits.
 *
 * 1. Buffers that share memory meet in one step only, an execution of the node that works in place.
 * 2. The output of the graph is read at the turn; a run with backward may have put its gradient
 *    there before, which then lasts beyond the turn, so that the memory is nobody else's.
 */
#include <stdlib.h>

#include "graph/graph.h"

typedef struct event {
    int buffer, time, write;
} event;

typedef struct event_list {
    event *list;
    int count, room;
    ls_status status;
} event_list;

static void touch(event_list *events, int buffer, int time, int write)
{
    if (buffer < 0 || events->status != LS_OK)
        return;
    events->status =
        lsi_grow((void **)&events->list, &events->room, events->count, sizeof *events->list);
    if (events->status == LS_OK)
        events->list[events->count++] = (event){buffer, time, write};
}

int lsi_buffer_of(const ls_graph *graph, int buffer)
{
    while (graph->memory[buffer].same_as >= 0)
        buffer = graph->memory[buffer].same_as;
    return buffer;
}

static int add_buffer(ls_graph *graph, size_t bytes)
{
    graph->memory[graph->memory_count] = (lsi_buffer){.bytes = bytes, .same_as = -1};
    return graph->memory_count++;
}

static ls_status make_buffers(ls_graph *graph)
{
    graph->memory = calloc(5 * (size_t)graph->node_count + 1, sizeof *graph->memory);
    if (!graph->memory)
        return lsi_fail(LS_ERR_NOMEM, NULL, "graph", "no memory for its plan");
    for (int n = 0; n < graph->node_count; n++) {
        lsi_node *node = graph->nodes[n];
        ls_tensor *outs[2] = {node->out, node->second};
        if (!node->needed || node->op->flags & LS_OP_VIEW)
            continue;
        for (int i = 0; i < 2 && outs[i]; i++) {
            outs[i]->value = add_buffer(graph, outs[i]->count * sizeof(float));
            if (node->backward && outs[i]->wanted && outs[i] != graph->loss)
                outs[i]->grad = add_buffer(graph, outs[i]->count * sizeof(float));
        }
        if (lsi_kept_bytes(graph, node))
            node->kept = add_buffer(graph, lsi_kept_bytes(graph, node));
    }
    return LS_OK;
}

/* ---- events --------------------------------------------------------------------------------- */

static void forward_events(const ls_graph *graph, const lsi_node *node, int time,
                           event_list *events)
{
    for (int i = 0; i < node->inputs; i++)
        touch(events, node->in[i]->root->value, time, 0);
    touch(events, node->out->value, time, 1);
    if (node->second)
        touch(events, node->second->value, time, 1);
    touch(events, node->kept, time, 1);
    /* The loss may compute its gradient at once. */
    for (int i = 0; node->backward && node->out == graph->loss && i < node->inputs; i++)
        touch(events, node->in[i]->root->grad, time, 1);
}

/* `started` has one flag a buffer: somebody has written this gradient in the backward pass. */
static void backward_events(const ls_graph *graph, lsi_node *node, int time, char *started,
                            event_list *events)
{
    touch(events, node->out->grad, time, 0);
    if (node->second)
        touch(events, node->second->grad, time, 0);
    for (int i = 0; i < node->inputs; i++)
        if (lsi_reads_input(node, i))
            touch(events, node->in[i]->root->value, time, 0);
    if (lsi_reads_output(node))
        touch(events, node->out->value, time, 0);
    if (lsi_reads_second(node))
        touch(events, node->second->value, time, 0);
    touch(events, node->kept, time, 0);
    for (int i = 0; i < node->inputs; i++) {
        const int grad = node->in[i]->root->grad;
        if (grad < 0)
            continue;
        node->call.add_in[i] = started[grad];
        touch(events, grad, time, !started[grad] && node->out != graph->loss);
        started[grad] = 1;
    }
}

static ls_status collect(ls_graph *graph, event_list *events)
{
    char *started = calloc((size_t)graph->memory_count + 1, 1);
    if (!started)
        return lsi_fail(LS_ERR_NOMEM, NULL, "graph", "no memory for its plan");
    for (int time = 0; time < graph->step_count; time++) {
        const lsi_step *step = &graph->steps[time];
        if (step->kind == LSI_BACKWARD)
            backward_events(graph, graph->nodes[step->node], time, started, events);
        else if (step->kind != LSI_TURN)
            forward_events(graph, graph->nodes[step->node], time, events);
    }
    free(started);
    return events->status;
}

/* Events, in order of time, into the spans of their buffers. */
static ls_status make_spans(ls_graph *graph, const event_list *events)
{
    for (int i = 0; i < events->count; i++) /* at most one span an event */
        graph->memory[events->list[i].buffer].count++;
    for (int b = 0; b < graph->memory_count; b++) {
        lsi_buffer *buffer = &graph->memory[b];
        void *spans;
        LSI_TRY(lsi_arena_alloc(graph->arena, (size_t)buffer->count * sizeof(lsi_span), &spans));
        buffer->spans = spans;
        buffer->count = 0;
    }
    for (int i = 0; i < events->count; i++) {
        const event *e = &events->list[i];
        lsi_buffer *buffer = &graph->memory[e->buffer];
        const int open = buffer->count > 0;
        if (!open || (e->write && buffer->spans[buffer->count - 1].to != e->time))
            buffer->spans[buffer->count++] = (lsi_span){e->time, e->time};
        else
            buffer->spans[buffer->count - 1].to = e->time;
    }
    return LS_OK;
}

/* ---- sharing -------------------------------------------------------------------------------- */

int lsi_spans_meet(const lsi_buffer *a, const lsi_buffer *b)
{
    for (int i = 0, j = 0; i < a->count && j < b->count;) {
        if (a->spans[i].to < b->spans[j].from)
            i++;
        else if (b->spans[j].to < a->spans[i].from)
            j++;
        else
            return 1;
    }
    return 0;
}

/* Does b begin where a ends whenever they meet? It is a step of the node in question then: nobody
 * else begins b. */
static int follows(const lsi_buffer *a, const lsi_buffer *b)
{
    for (int i = 0; i < a->count; i++)
        for (int j = 0; j < b->count; j++) {
            const lsi_span x = a->spans[i], y = b->spans[j];
            if (x.to < y.from || y.to < x.from)
                continue;
            if (x.to != y.from)
                return 0;
        }
    return 1;
}

static int by_start(const void *a, const void *b)
{
    const lsi_span *x = a, *y = b;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

/* If `to` follows `from`, let both have the same memory. */
static ls_status share(ls_graph *graph, int from, int to)
{
    if (from < 0 || to < 0)
        return LS_OK;
    const int ia = lsi_buffer_of(graph, from), ib = lsi_buffer_of(graph, to);
    lsi_buffer *a = &graph->memory[ia], *b = &graph->memory[ib];
    if (ia == ib || a->bytes != b->bytes || !follows(a, b))
        return LS_OK;
    void *memory;
    const int count = a->count + b->count;
    LSI_TRY(lsi_arena_alloc(graph->arena, (size_t)count * sizeof(lsi_span), &memory));
    lsi_span *spans = memory;
    for (int i = 0; i < count; i++)
        spans[i] = i < a->count ? a->spans[i] : b->spans[i - a->count];
    qsort(spans, (size_t)count, sizeof *spans, by_start);
    int used = 0;
    for (int i = 1; i < count; i++) {
        if (spans[i].from <= spans[used].to)
            spans[used].to = spans[i].to > spans[used].to ? spans[i].to : spans[used].to;
        else
            spans[++used] = spans[i];
    }
    a->spans = spans;
    a->count = used + 1;
    b->same_as = ia;
    return LS_OK;
}

/* Is input i another one too? Then two operands of one call would share memory. */
static int repeated(const lsi_node *node, int i)
{
    for (int j = 0; j < node->inputs; j++)
        if (j != i && node->in[j]->root == node->in[i]->root)
            return 1;
    return 0;
}

static ls_status share_loss(ls_graph *graph)
{
    const lsi_node *node = graph->nodes[graph->loss->node];
    if (!node->inputs || lsi_reads_input(node, 0) || repeated(node, 0))
        return LS_OK;
    const ls_tensor *logits = node->in[0]->root;
    return share(graph, logits->value, logits->grad);
}

static ls_status share_in_place(ls_graph *graph, int backward)
{
    for (int i = 0; i < graph->node_count; i++) {
        const int n = backward ? graph->node_count - 1 - i : i;
        const lsi_node *node = graph->nodes[n];
        const int k = node->shape.in_place;
        if (!node->needed || !(node->shape.flags & LS_OP_IN_PLACE) ||
            node->op->flags & (LS_OP_VIEW | LS_OP_LOSS) || !node->inputs || repeated(node, k))
            continue;
        const ls_tensor *in = node->in[k]->root, *out = node->second ? node->second : node->out;
        if (backward)
            LSI_TRY(share(graph, out->grad, in->grad));
        else if (!node->second)
            LSI_TRY(share(graph, in->value, out->value));
    }
    return LS_OK;
}

/* The output is read at the turn. */
static void extend_output(ls_graph *graph)
{
    if (!graph->output || graph->output->root->value < 0)
        return;
    lsi_buffer *buffer = &graph->memory[lsi_buffer_of(graph, graph->output->root->value)];
    for (int i = buffer->count - 1; i >= 0; i--)
        if (buffer->spans[i].from < graph->turn) {
            if (buffer->spans[i].to < graph->turn)
                buffer->spans[i].to = graph->turn;
            return;
        }
}

ls_status lsi_lifetimes(ls_graph *graph)
{
    LSI_TRY(make_buffers(graph));
    event_list events = {0};
    ls_status status = collect(graph, &events);
    if (status == LS_OK)
        status = make_spans(graph, &events);
    free(events.list);
    LSI_TRY(status);
    for (int b = 0; b < graph->memory_count; b++)
        graph->unshared += graph->memory[b].bytes;
    /* The loss first: the output may be the logits, which are still needed at the turn then. */
    if (graph->loss && !graph->unshared_plan)
        LSI_TRY(share_loss(graph));
    extend_output(graph);
    if (graph->unshared_plan)
        return LS_OK;
    LSI_TRY(share_in_place(graph, 0));
    return share_in_place(graph, 1);
}

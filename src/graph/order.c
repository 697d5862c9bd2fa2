/* Who is needed, where gradients flow, in which order everything happens.
 *
 * 1. Forward runs the needed nodes in the order in which they were added, backward those through
 *    which a gradient flows in the opposite order; nodes of a checkpoint run again just before the
 *    first backward step of their segment.
 * 2. Parameters are ordered by the backward step that completes their gradient: that of the first
 *    node that uses them. So the order depends on the graph alone, and gradients become ready in
 *    ascending order of index. Parameters without a gradient come last.
 * 3. A graph without a loss orders its parameters as if the output were one: a graph made for
 *    evaluation has the layout of the one made for training.
 */
#include <stdlib.h>

#include "graph/graph.h"

int lsi_reads_input(const lsi_node *node, int i)
{
    return node->shape.flags & LS_OP_KEEP_INPUTS && !(node->shape.unread >> i & 1);
}

int lsi_reads_output(const lsi_node *node)
{
    return (node->shape.flags & LS_OP_KEEP_OUTPUT) != 0;
}

int lsi_reads_second(const lsi_node *node)
{
    return node->second && node->shape.flags & LS_OP_KEEP_SECOND;
}

size_t lsi_kept_bytes(const ls_graph *graph, const lsi_node *node)
{
    return node->shape.kept_per_sample * graph->batch + node->shape.kept_fixed;
}

static int is_view(const lsi_node *node)
{
    return (node->op->flags & LS_OP_VIEW) != 0;
}

/* Does the gradient of the node's output lead anywhere? */
static int leads_on(const lsi_node *node)
{
    if (!node->op->backward)
        return 0;
    for (int i = 0; i < node->params; i++)
        if (!node->param[i]->config.buffer)
            return 1;
    for (int i = 0; i < node->inputs; i++)
        if (node->in[i]->root->flows)
            return 1;
    return 0;
}

void lsi_order_needs(ls_graph *graph)
{
    ls_tensor *target = graph->loss ? graph->loss : graph->output;
    if (graph->output && graph->output->node >= 0)
        graph->nodes[graph->output->node]->needed = 1;
    if (graph->loss)
        graph->nodes[graph->loss->node]->needed = 1;
    for (int n = graph->node_count - 1; n >= 0; n--) {
        const lsi_node *node = graph->nodes[n];
        for (int i = 0; node->needed && i < node->inputs; i++)
            if (node->in[i]->node >= 0)
                graph->nodes[node->in[i]->node]->needed = 1;
    }
    for (int n = 0; n < graph->node_count; n++) {
        const lsi_node *node = graph->nodes[n];
        if (node->needed && !is_view(node))
            node->out->flows = leads_on(node);
        if (node->second)
            node->second->flows = node->out->flows;
    }
    target->root->wanted = 1;
    for (int n = graph->node_count - 1; n >= 0; n--) {
        lsi_node *node = graph->nodes[n];
        const int wanted = node->out->wanted || (node->second && node->second->wanted);
        if (!node->needed || is_view(node) || !wanted || !node->out->flows)
            continue;
        node->backward = 1;
        for (int i = 0; i < node->inputs; i++)
            if (node->in[i]->root->flows)
                node->in[i]->root->wanted = 1;
    }
}

/* Where a parameter's gradient is complete, as a number that grows along the backward pass:
 * the node counted from the end, then the place among its parameters. */
static void completion(const ls_graph *graph, const ls_tensor *param, int *node, int *place)
{
    for (int n = 0; n < graph->node_count; n++)
        for (int i = 0; graph->nodes[n]->backward && i < graph->nodes[n]->params; i++)
            if (graph->nodes[n]->param[i] == param) {
                *node = graph->node_count - n;
                *place = i;
                return;
            }
    *node = graph->node_count + 1;
    *place = param->index;
}

typedef struct rank {
    int node, place;
    ls_tensor *param;
} rank;

static int compare(const void *a, const void *b)
{
    const rank *x = a, *y = b;
    return x->node != y->node ? x->node - y->node : x->place - y->place;
}

ls_status lsi_order_params(ls_graph *graph)
{
    const size_t count = (size_t)graph->param_count;
    rank *ranks = calloc(count + 1, sizeof *ranks);
    if (!ranks)
        return lsi_fail(LS_ERR_NOMEM, NULL, "graph", "no memory to order its parameters");
    for (int i = 0; i < graph->param_count; i++) {
        graph->params[i]->index = i;
        ranks[i].param = graph->params[i];
        completion(graph, graph->params[i], &ranks[i].node, &ranks[i].place);
    }
    qsort(ranks, count, sizeof *ranks, compare);
    graph->unused_from = 0;
    for (int i = 0; i < graph->param_count; i++) {
        graph->params[i] = ranks[i].param;
        graph->params[i]->index = i;
        if (ranks[i].node <= graph->node_count)
            graph->unused_from = i + 1;
    }
    free(ranks);
    for (int i = 0; i < graph->buffer_count; i++)
        graph->buffers[i]->index = i;
    return LS_OK;
}

static void add_step(ls_graph *graph, lsi_step_kind kind, int node)
{
    const int done = graph->step_count ? graph->steps[graph->step_count - 1].ready_to : 0;
    graph->steps[graph->step_count++] = (lsi_step){kind, node, done};
}

/* The steps that run again, before the backward pass of the segment whose last node is `last`. */
static void add_segment(ls_graph *graph, int last)
{
    const int segment = graph->nodes[last]->segment;
    int first = last;
    while (first > 0 && graph->nodes[first - 1]->segment == segment)
        first--;
    lsi_checkpoint_mark(graph, segment, first, last + 1);
    for (int n = first; n <= last; n++)
        if (graph->nodes[n]->again)
            add_step(graph, LSI_AGAIN, n);
}

ls_status lsi_order_steps(ls_graph *graph)
{
    graph->steps = calloc(3 * (size_t)graph->node_count + 1, sizeof *graph->steps);
    if (!graph->steps)
        return lsi_fail(LS_ERR_NOMEM, NULL, "graph", "no memory for its program");
    for (int n = 0; n < graph->node_count; n++)
        if (graph->nodes[n]->needed && !is_view(graph->nodes[n]))
            add_step(graph, LSI_FORWARD, n);
    graph->turn = graph->step_count;
    add_step(graph, LSI_TURN, -1);
    int segment = -1, next = 0;
    for (int n = graph->node_count - 1; graph->loss && n >= 0; n--) {
        const lsi_node *node = graph->nodes[n];
        if (!node->backward)
            continue;
        if (node->segment >= 0 && node->segment != segment) {
            segment = node->segment;
            add_segment(graph, n);
        }
        add_step(graph, LSI_BACKWARD, n);
        /* Complete: the parameters whose first user this is. They follow each other. */
        while (next < graph->unused_from) {
            int at, place;
            completion(graph, graph->params[next], &at, &place);
            if (at != graph->node_count - n)
                break;
            next++;
        }
        graph->steps[graph->step_count - 1].ready_to = next;
    }
    return LS_OK;
}

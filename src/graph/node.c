/* Appending a node: its operands are checked, its shape inferred, its name taken.
 *
 * 1. A node's inputs were made before it: the order of the nodes is an order of computation.
 * 2. Dimension 0 of every output is the graph's batch, but for losses, which have one element.
 * 3. An error names the node and leaves nothing half added that is used later: the graph is closed
 *    by it.
 */
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

/* Description for infer: shapes, no data. */
static void view_shape(const ls_tensor *tensor, ls_view *view)
{
    *view = (ls_view){.dtype = tensor->dtype, .ndim = tensor->ndim, .count = tensor->count};
    memcpy(view->dims, tensor->dims, sizeof view->dims);
}

static int check_operands(ls_graph *graph, int inputs, ls_tensor *const *input, int params,
                          ls_tensor *const *param)
{
    if (inputs < 0 || inputs > LS_OP_MAX_INPUTS || params < 0 || params > LS_OP_MAX_PARAMS) {
        ls_graph_fail(graph, "%d inputs and %d parameters; at most %d and %d are possible", inputs,
                      params, LS_OP_MAX_INPUTS, LS_OP_MAX_PARAMS);
        return 0;
    }
    for (int i = 0; i < inputs + params; i++) {
        const int is_param = i >= inputs, place = is_param ? i - inputs : i;
        const ls_tensor *tensor = is_param ? param[place] : input[place];
        const char *what = is_param ? "parameter" : "input";
        const char *wrong = NULL;
        if (!tensor)
            wrong = "is NULL";
        else if (tensor->graph != graph)
            wrong = "belongs to another graph";
        else if (!is_param && tensor->kind == LSI_PARAM)
            wrong = "is a parameter: it belongs among the parameters of the node";
        else if (is_param && tensor->kind != LSI_PARAM)
            wrong = "is no parameter";
        else if (is_param && place > 0 && tensor->config.sparse)
            wrong = "is sparse: only a node's first parameter can be";
        else if (!is_param && tensor->kind == LSI_VALUE && !tensor->batched)
            wrong = "is a loss, which nothing can be computed from";
        if (wrong) {
            ls_graph_fail(graph, "%s %d %s", what, place, wrong);
            return 0;
        }
    }
    return 1;
}

/* What infer returned: a possible output? */
static int check_shape(ls_graph *graph, const lsi_node *node)
{
    const ls_op_shape *shape = &node->shape;
    const int flags = node->op->flags;
    if (shape->ndim < 0 || shape->ndim > LS_MAX_DIMS)
        ls_graph_fail(graph, "its output has %d dimensions; at most %d are possible", shape->ndim,
                      LS_MAX_DIMS);
    else if (shape->dtype != LS_F32 && shape->dtype != LS_I32)
        ls_graph_fail(graph, "its output is of type %s; f32 and i32 are possible",
                      ls_dtype_name(shape->dtype));
    else if (!(flags & LS_OP_LOSS) && shape->ndim < 1)
        ls_graph_fail(graph, "its output has no dimension: the first is the batch");
    else if (!(flags & LS_OP_LOSS) && shape->dims[0] != graph->batch)
        ls_graph_fail(graph, "dimension 0 of its output is %zu, not the batch of %zu",
                      shape->dims[0], graph->batch);
    else if (shape->flags & LS_OP_IN_PLACE && node->inputs > 0 &&
             (shape->in_place < 0 || shape->in_place >= node->inputs))
        ls_graph_fail(graph, "there is no input %d that its output could take the place of",
                      shape->in_place);
    else if (node->params && node->param[0]->config.sparse && !shape->sparse_rows_per_sample)
        ls_graph_fail(graph, "parameter '%s' is sparse, and this operation gives no such gradients",
                      node->param[0]->name);
    return graph->status == LS_OK;
}

/* The outputs, once the shape is known. */
static int add_outputs(ls_graph *graph, lsi_node *node)
{
    const ls_op_shape *shape = &node->shape;
    ls_tensor *out =
        lsi_tensor_add(graph, LSI_VALUE, node->name, shape->dtype, shape->ndim, shape->dims);
    if (!out)
        return 0;
    out->batched = !(node->op->flags & LS_OP_LOSS);
    if (!out->batched && out->count != 1)
        ls_graph_fail(graph, "a loss has one element, not %zu", out->count);
    if (node->op->flags & LS_OP_VIEW) {
        out->root = node->in[0]->root;
        if (out->count != node->in[0]->count || out->dtype != node->in[0]->dtype)
            ls_graph_fail(graph, "a view of %zu elements of what has %zu", out->count,
                          node->in[0]->count);
    }
    out->node = graph->node_count;
    node->out = out;
    graph->outputs++;
    if (node->op->flags & LS_OP_SECOND) {
        node->second =
            lsi_tensor_add(graph, LSI_VALUE, node->name, shape->dtype, shape->ndim, shape->dims);
        if (!node->second)
            return 0;
        node->second->batched = 1;
        node->second->node = graph->node_count;
        graph->outputs++;
    }
    return graph->status == LS_OK;
}

static ls_status infer(ls_graph *graph, lsi_node *node)
{
    ls_op_call *call = &node->call;
    *call = (ls_op_call){.graph = graph,
                         .name = node->label,
                         .config = call->config,
                         .inputs = node->inputs,
                         .params = node->params,
                         .samples = graph->batch,
                         .seed = graph->seed,
                         .node = graph->outputs,
                         .device = graph->device};
    for (int i = 0; i < node->inputs; i++)
        view_shape(node->in[i], &call->in[i]);
    for (int i = 0; i < node->params; i++)
        view_shape(node->param[i], &call->param[i]);
    node->shape = (ls_op_shape){.dtype = LS_F32, .flags = node->op->flags};
    if (node->inputs) {
        node->shape.ndim = node->in[0]->ndim;
        memcpy(node->shape.dims, node->in[0]->dims, sizeof node->shape.dims);
    }
    return node->op->infer(call, &node->shape);
}

/* Everything of a node but its output. NULL with the error kept. */
static lsi_node *make_node(ls_graph *graph, const ls_op_kind *op, const void *config,
                           size_t config_bytes, int inputs, ls_tensor *const *input, int params,
                           ls_tensor *const *param)
{
    char label[2 * LSI_NAME_MAX];
    snprintf(label, sizeof label, "node '%s' (%s)", graph->layer_name, op->name);
    const lsi_node blank = {.op = op,
                            .name = graph->layer_name,
                            .inputs = inputs,
                            .params = params,
                            .segment = graph->in_segment ? graph->segments - 1 : -1,
                            .kept = -1};
    lsi_node *node = lsi_keep(graph, &blank, sizeof blank);
    if (!node)
        return NULL;
    node->label = lsi_keep(graph, label, strlen(label) + 1);
    node->in = lsi_keep(graph, input, (size_t)inputs * sizeof *input);
    node->param = lsi_keep(graph, param, (size_t)params * sizeof *param);
    node->call.config = config_bytes ? lsi_keep(graph, config, config_bytes) : NULL;
    return graph->status == LS_OK ? node : NULL;
}

ls_tensor *ls_op_add(ls_graph *graph, const ls_op_kind *op, const void *config, size_t config_bytes,
                     int inputs, ls_tensor *const *input, int params, ls_tensor *const *param)
{
    if (!lsi_graph_open(graph))
        return NULL;
    if (!op || op->size != sizeof *op || !op->name || !op->infer ||
        (!op->forward && !(op->flags & LS_OP_VIEW)))
        return ls_graph_fail(graph, "an operation needs its size, a name, infer and forward");
    if (!lsi_layer_name(graph, op->name))
        return NULL;
    graph->layer_kind = op->name;
    if (!check_operands(graph, inputs, input, params, param))
        return NULL;
    if (op->flags & LS_OP_VIEW && inputs < 1)
        return ls_graph_fail(graph, "a view of nothing");
    if (op->flags & LS_OP_SECOND && op->flags & (LS_OP_VIEW | LS_OP_LOSS))
        return ls_graph_fail(graph, "a view or a loss has one output");

    lsi_node *node = make_node(graph, op, config, config_bytes, inputs, input, params, param);
    if (!node)
        return NULL;
    ls_status status = infer(graph, node);
    if (status != LS_OK) {
        ls_graph_fail(graph, "the shape of its output cannot be told"); /* unless infer said why */
        return NULL;
    }
    if (!check_shape(graph, node) || !add_outputs(graph, node))
        return NULL;
    status = lsi_grow((void **)&graph->nodes, &graph->node_room, graph->node_count,
                      sizeof *graph->nodes);
    if (status != LS_OK) {
        lsi_graph_keep_error(graph, status);
        return NULL;
    }
    graph->nodes[graph->node_count++] = node;
    graph->layer_name = NULL;
    return node->out;
}

ls_tensor *ls_op_second(const ls_tensor *out)
{
    return out && out->node >= 0 ? out->graph->nodes[out->node]->second : NULL;
}

/* ls_graph_compile: from what was built to what can run; and what can be asked afterwards.
 *
 * 1. After success every call of a run is ready but for what a run can change: the number of
 *    samples, whether gradients accumulate, whose memory the parameters are.
 * 2. A graph is compiled once. A failure leaves it as unusable as a failure of building.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "graph/graph.h"

#define ALIGN ((size_t)64)

static ls_status check_targets(ls_graph *graph, ls_tensor *loss, ls_tensor *output)
{
    const char *who = "ls_graph_compile";
    if (graph->in_segment)
        return lsi_fail(LS_ERR_INVALID, NULL, who, "ls_checkpoint_begin without ls_checkpoint_end");
    if (!loss && !output)
        return lsi_fail(LS_ERR_INVALID, NULL, who, "neither a loss nor an output was given");
    if ((loss && loss->graph != graph) || (output && output->graph != graph))
        return lsi_fail(LS_ERR_INVALID, NULL, who, "loss or output belong to another graph");
    if (loss && (loss->node < 0 || !(graph->nodes[loss->node]->op->flags & LS_OP_LOSS)))
        return lsi_fail(LS_ERR_INVALID, "take the result of ls_cross_entropy or the like", who,
                        "'%s' is not a loss", loss->name);
    if (output && (output->kind == LSI_PARAM || !output->batched || output->dtype != LS_F32))
        return lsi_fail(LS_ERR_INVALID, NULL, who,
                        "'%s' cannot be an output: it must be an activation of type f32",
                        output->name);
    return LS_OK;
}

/* A graph that only runs forward has no gradients: needed for the order of the parameters only. */
static void forget_gradients(ls_graph *graph)
{
    for (int n = 0; n < graph->node_count; n++)
        graph->nodes[n]->backward = 0;
}

static void warn_unused(const ls_graph *graph)
{
    const int count = graph->param_count - graph->unused_from;
    if (!graph->loss || !count || !lsi_log_enabled(LSI_LOG_WARN))
        return;
    char names[LSI_ERROR_MAX];
    size_t used = 0;
    for (int i = graph->unused_from; i < graph->param_count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 graph->params[i]->name);
    lsi_log(LSI_LOG_WARN,
            "the loss does not depend on %d of the parameters, their gradient is 0: %s", count,
            names);
}

/* Which node is the first to give a gradient to each parameter. */
static void find_first(ls_graph *graph)
{
    for (int n = graph->node_count - 1; n >= 0; n--) {
        lsi_node *node = graph->nodes[n];
        for (int i = 0; node->backward && i < node->params; i++) {
            int seen = 0;
            for (int m = n; !seen && m < graph->node_count; m++)
                for (int j = 0; graph->nodes[m]->backward && j < graph->nodes[m]->params; j++)
                    seen |= graph->nodes[m]->param[j] == node->param[i] && (m > n || j < i);
            if (!seen)
                node->first_param |= 1u << i;
        }
    }
}

/* Who alone takes a value: all of its gradient comes from there. */
static void find_readers(ls_graph *graph)
{
    for (int t = 0; t < graph->tensor_count; t++) {
        ls_tensor *tensor = graph->tensors[t];
        int readers = 0;
        for (int n = 0; n < graph->node_count; n++)
            for (int i = 0; graph->nodes[n]->needed && i < graph->nodes[n]->inputs; i++)
                if (graph->nodes[n]->in[i]->root == tensor)
                    tensor->reader = readers++ ? -1 : n;
    }
}

/* ---- addresses ------------------------------------------------------------------------------ */

static void *buffer_data(const ls_graph *graph, int buffer)
{
    if (buffer < 0)
        return NULL;
    const lsi_buffer *shared = &graph->memory[lsi_buffer_of(graph, buffer)];
    return (char *)graph->activations.data + graph->input_bytes + shared->offset;
}

static void *tensor_data(const ls_graph *graph, const ls_tensor *tensor)
{
    const ls_tensor *root = tensor->root;
    if (root->kind == LSI_INPUT)
        return (char *)graph->activations.data + root->offset;
    return buffer_data(graph, root->value);
}

static void view(const ls_tensor *tensor, void *data, ls_view *out)
{
    *out = (ls_view){data, tensor->dtype, tensor->ndim, {0}, tensor->count};
    memcpy(out->dims, tensor->dims, sizeof out->dims);
}

static void connect(ls_graph *graph, lsi_node *node)
{
    ls_op_call *call = &node->call;
    for (int i = 0; i < node->inputs; i++) {
        view(node->in[i], tensor_data(graph, node->in[i]), &call->in[i]);
        view(node->in[i], node->backward ? buffer_data(graph, node->in[i]->root->grad) : NULL,
             &call->din[i]);
    }
    view(node->out, tensor_data(graph, node->out), &call->out);
    view(node->out, buffer_data(graph, node->out->root->grad), &call->dout);
    if (node->second) {
        view(node->second, buffer_data(graph, node->second->value), &call->second);
        view(node->second, buffer_data(graph, node->second->grad), &call->dsecond);
    }
    call->kept = buffer_data(graph, node->kept);
    for (int i = 0; i < node->params; i++)
        call->add_param[i] = !(node->first_param >> i & 1);
}

void lsi_calls_resize(ls_graph *graph, size_t samples)
{
    for (int n = 0; n < graph->node_count; n++) {
        const lsi_node *node = graph->nodes[n];
        ls_op_call *call = &graph->nodes[n]->call;
        for (int i = 0; i < node->inputs; i++) {
            call->in[i].dims[0] = call->din[i].dims[0] = samples;
            call->in[i].count = call->din[i].count = node->in[i]->count / graph->batch * samples;
        }
        if (node->out->batched) {
            call->out.dims[0] = call->dout.dims[0] = samples;
            call->out.count = call->dout.count = node->out->count / graph->batch * samples;
        }
        if (node->second) {
            call->second.dims[0] = call->dsecond.dims[0] = samples;
            call->second.count = call->dsecond.count = call->out.count;
        }
        call->samples = samples;
    }
    graph->samples = samples;
}

/* ---- memory --------------------------------------------------------------------------------- */

static ls_status allocate(ls_graph *graph)
{
    size_t inputs = 0;
    for (int i = 0; i < graph->input_count; i++) {
        graph->inputs[i]->offset = inputs;
        inputs += (graph->inputs[i]->count * sizeof(float) + ALIGN - 1) / ALIGN * ALIGN;
    }
    LSI_TRY(lsi_plan(graph->memory, graph->memory_count, !graph->unshared_plan, &graph->peak));
    graph->input_bytes = inputs;
    LSI_TRY(lsi_block_alloc(graph->device, inputs + graph->peak, &graph->activations));
    if (inputs)
        memset(graph->activations.data, 0, inputs); /* a run before the first fill is defined */
    return LS_OK;
}

static ls_status compile(ls_graph *graph)
{
    lsi_order_needs(graph);
    LSI_TRY(lsi_order_params(graph));
    if (graph->loss)
        graph->nodes[graph->loss->node]->segment = -1;
    else
        forget_gradients(graph);
    warn_unused(graph);
    find_first(graph);
    find_readers(graph);
    LSI_TRY(lsi_order_steps(graph));
    LSI_TRY(lsi_lifetimes(graph));
    LSI_TRY(allocate(graph));
    LSI_TRY(lsi_params_layout(graph));
    LSI_TRY(lsi_sparse_layout(graph));
    LSI_TRY(lsi_profile_layout(graph));
    for (int n = 0; n < graph->node_count; n++)
        if (graph->nodes[n]->needed)
            connect(graph, graph->nodes[n]);
    lsi_params_connect(graph);
    graph->samples = graph->batch;
    graph->loss_grad = 1;
    return LS_OK;
}

ls_status ls_graph_compile(ls_graph *graph, ls_tensor *loss, ls_tensor *output)
{
    if (!graph)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_graph_compile", "the graph is NULL");
    if (graph->status != LS_OK)
        return lsi_fail_text(graph->status, graph->error);
    if (graph->compiled)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_graph_compile", "it is compiled already");
    LSI_TRY(check_targets(graph, loss, output));
    graph->loss = loss;
    graph->output = output;
    const ls_status status = compile(graph);
    if (status == LS_OK)
        graph->compiled = 1;
    else
        lsi_graph_keep_error(graph, status);
    return status;
}

/* ---- asking --------------------------------------------------------------------------------- */

void *ls_input_data(ls_graph *graph, ls_tensor *input)
{
    if (!graph || !graph->compiled || !input || input->graph != graph || input->kind != LSI_INPUT)
        return NULL;
    return tensor_data(graph, input);
}

const float *ls_output_data(const ls_graph *graph)
{
    return graph && graph->compiled && graph->output ? tensor_data(graph, graph->output) : NULL;
}

void ls_graph_get_memory(const ls_graph *graph, ls_graph_memory *memory)
{
    *memory = (ls_graph_memory){0};
    if (!graph || !graph->compiled)
        return;
    memory->params = graph->own_params.bytes;
    memory->grads = graph->own_grads.bytes;
    memory->activations = graph->input_bytes + graph->peak;
    memory->kept_without_reuse = graph->input_bytes + graph->unshared;
    memory->scratch = graph->device->scratch_bytes;
}

double ls_graph_flops(const ls_graph *graph)
{
    double flops = 0;
    for (int n = 0; graph && graph->compiled && n < graph->node_count; n++) {
        const lsi_node *node = graph->nodes[n];
        if (node->needed)
            flops += node->shape.flops_per_sample * (node->backward ? 3 : 1);
    }
    return graph ? flops * (double)graph->batch : 0;
}

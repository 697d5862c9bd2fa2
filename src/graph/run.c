/* ls_graph_run: the steps of the program, one after the other.
 *
 * The calls are ready since compile; a run patches what differs from the run before it: the number
 * of samples, accumulation, the loss's gradient (forward-only runs must not write it). What differs
 * in every run (step, position) goes into each call right before it is made.
 *
 * 1. A run does not allocate, sparse gradients that outgrow their room aside.
 * 2. Gradients are touched only after the loss was found finite.
 * 3. The ready hook is called in ascending order of index, for all parameters, on every backward
 *    run that succeeds.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "graph/graph.h"

void ls_op_set_loss(const ls_op_call *call, double sum, double count)
{
    call->graph->loss_sum = sum;
    call->graph->loss_count = count;
}

void ls_graph_on_node(ls_graph *graph, ls_node_fn fn, void *arg)
{
    graph->on_node = fn;
    graph->on_node_arg = arg;
}

void ls_graph_on_ready(ls_graph *graph, ls_ready_fn fn, void *arg)
{
    graph->on_ready = fn;
    graph->on_ready_arg = arg;
}

/* ---- one step ------------------------------------------------------------------------------- */

static ls_status call_forward(ls_graph *graph, lsi_node *node)
{
    graph->running = node;
    const ls_status status = node->op->forward(&node->call);
    graph->running = NULL;
    return status;
}

static ls_status call_backward(ls_graph *graph, lsi_node *node)
{
    const int sparse = node->params && node->param[0]->config.sparse;
    if (sparse)
        LSI_TRY(lsi_sparse_begin(graph, node));
    graph->running = node;
    ls_status status = node->op->backward(&node->call);
    graph->running = NULL;
    if (sparse && status == LS_OK)
        status = lsi_sparse_end(graph, node);
    return status;
}

static ls_status execute(ls_graph *graph, const lsi_step *step, const ls_run_config *config)
{
    lsi_node *node = graph->nodes[step->node];
    ls_op_call *call = &node->call;
    call->training = config->training;
    call->backward = config->backward;
    call->step = config->step;
    call->first_position = config->first_position;
    const int backward = step->kind == LSI_BACKWARD;
    if (graph->on_node)
        graph->on_node(graph->on_node_arg, node->name, backward);
    if (!graph->profiling)
        return backward ? call_backward(graph, node) : call_forward(graph, node);

    const uint64_t start = lsi_now_ns();
    const ls_status status = backward ? call_backward(graph, node) : call_forward(graph, node);
    const uint64_t spent = lsi_now_ns() - start;
    lsi_profile *entry = &graph->profile[node->profile];
    *(backward ? &entry->backward_ns : &entry->forward_ns) += spent;
    entry->calls++;
    entry->flops += node->shape.flops_per_sample * (double)graph->samples * (backward ? 2 : 1);
    return status;
}

/* ---- before --------------------------------------------------------------------------------- */

static void patch_accumulate(ls_graph *graph, int accumulate)
{
    for (int n = 0; n < graph->node_count; n++) {
        lsi_node *node = graph->nodes[n];
        for (int i = 0; i < node->params; i++)
            node->call.add_param[i] = accumulate || !(node->first_param >> i & 1);
    }
    graph->accumulate = accumulate;
}

/* Without a backward pass the loss gets no address for its gradient, which may be the output's. */
static void patch_loss(ls_graph *graph, int backward)
{
    lsi_node *node = graph->nodes[graph->loss->node];
    for (int i = 0; i < node->inputs; i++) {
        const int grad = node->in[i]->root->grad;
        if (grad >= 0)
            node->call.din[i].data = backward
                                         ? (char *)graph->activations.data + graph->input_bytes +
                                               graph->memory[lsi_buffer_of(graph, grad)].offset
                                         : NULL;
    }
    graph->loss_grad = backward;
}

static ls_status check(const ls_graph *graph, const ls_run_config *config)
{
    const char *who = "ls_graph_run";
    if (!graph || !graph->compiled)
        return lsi_fail(LS_ERR_INVALID, "call ls_graph_compile first", who, "it is not compiled");
    if (config->size != sizeof *config)
        return lsi_fail(LS_ERR_INVALID, "initialise it by LS_RUN_CONFIG_INIT", who,
                        "the configuration has size %zu, not %zu", config->size, sizeof *config);
    if (config->batch > graph->batch)
        return lsi_fail(LS_ERR_INVALID, NULL, who, "%zu samples, and the graph was made for %zu",
                        config->batch, graph->batch);
    if (config->backward && !graph->loss)
        return lsi_fail(LS_ERR_INVALID, "give ls_graph_compile the loss", who,
                        "no gradients without a loss");
    return LS_OK;
}

/* ---- a loss that is no number --------------------------------------------------------------- */

static size_t first_bad(const ls_graph *graph, size_t count, const float *values)
{
    size_t first = count;
    if (graph->device->k->find_nonfinite(graph->device, count, values, &first) != LS_OK)
        return count;
    return first;
}

static ls_status name_bad(const ls_graph *graph, const char *what, const char *name,
                          const float *values, size_t at)
{
    return lsi_fail(LS_ERR_INVALID, "a smaller learning rate, or look at the data",
                    graph->nodes[graph->loss->node]->label,
                    "the loss is %g; the first such value is %g, element %zu of %s%s",
                    graph->loss_sum, (double)values[at], at, what, name);
}

/* Run forward once more and look at each value as it appears: memory is reused, so that most of
 * them are gone by the end. */
static ls_status find_bad(ls_graph *graph, const ls_run_config *config)
{
    const double loss = graph->loss_sum;
    for (int s = 0; s < graph->turn; s++) {
        const lsi_step *step = &graph->steps[s];
        const lsi_node *node = graph->nodes[step->node];
        const ls_op_call *call = &node->call;
        size_t at;
        for (int i = 0; i < node->inputs; i++) {
            const ls_tensor *in = node->in[i]->root;
            if (in->kind == LSI_INPUT && in->dtype == LS_F32 &&
                (at = first_bad(graph, call->in[i].count, call->in[i].data)) < call->in[i].count)
                return name_bad(graph, "input ", in->name, call->in[i].data, at);
        }
        for (int i = 0; i < node->params; i++)
            if ((at = first_bad(graph, call->param[i].count, call->param[i].data)) <
                call->param[i].count)
                return name_bad(graph, "parameter ", node->param[i]->name, call->param[i].data, at);
        LSI_TRY(execute(graph, step, config));
        graph->loss_sum = loss;
        if (node->second && call->out.dtype == LS_F32 &&
            (at = first_bad(graph, call->second.count, call->second.data)) < call->second.count)
            return name_bad(graph, "the second output of ", node->label, call->second.data, at);
        if (node->out != graph->loss && call->out.dtype == LS_F32 &&
            (at = first_bad(graph, call->out.count, call->out.data)) < call->out.count)
            return name_bad(graph, "the output of ", node->label, call->out.data, at);
    }
    return lsi_fail(LS_ERR_INVALID, "a smaller learning rate, or look at the data",
                    graph->nodes[graph->loss->node]->label,
                    "the loss is %g, and all values before it are finite", loss);
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void tell(ls_graph *graph, int from, int to)
{
    for (int i = from; graph->on_ready && i < to; i++)
        graph->on_ready(graph->on_ready_arg, i);
}

/* The parameters that no gradient reaches have one of zeros. */
static void end_backward(ls_graph *graph)
{
    float *grads = lsi_grads(graph);
    for (int i = graph->unused_from; i < graph->param_count; i++) {
        const ls_tensor *param = graph->params[i];
        if (!graph->run.accumulate && !param->config.sparse)
            memset(grads + param->offset, 0, param->count * sizeof *grads);
    }
    tell(graph, graph->ready, graph->param_count);
    graph->next_step = 0;
}

ls_status ls_graph_backward(ls_graph *graph)
{
    if (!graph || !graph->next_step)
        return lsi_fail(LS_ERR_INVALID, "call ls_graph_forward first", "ls_graph_backward",
                        "no backward pass is under way");
    if (graph->next_step < graph->step_count) {
        const lsi_step *step = &graph->steps[graph->next_step];
        const ls_status status = execute(graph, step, &graph->run);
        if (status != LS_OK) {
            graph->next_step = 0;
            return status;
        }
        graph->next_step++;
        tell(graph, graph->ready, step->ready_to);
        graph->ready = step->ready_to;
    }
    if (graph->next_step < graph->step_count)
        return LS_IN_PROGRESS;
    end_backward(graph);
    return LS_OK;
}

ls_status ls_graph_forward(ls_graph *graph, const ls_run_config *config, ls_run_result *result)
{
    const ls_run_config standard = LS_RUN_CONFIG_INIT;
    config = config ? config : &standard;
    LSI_TRY(check(graph, config));
    lsi_params(graph);
    const size_t samples = config->batch ? config->batch : graph->batch;
    if (samples != graph->samples)
        lsi_calls_resize(graph, samples);
    if (graph->accumulate != (config->accumulate != 0))
        patch_accumulate(graph, config->accumulate != 0);
    if (graph->loss && graph->loss_grad != (config->backward != 0))
        patch_loss(graph, config->backward != 0);

    lsi_device_weights(graph->device, config->same_weights);
    graph->next_step = graph->ready = 0;
    graph->run = *config;
    graph->loss_sum = graph->loss_count = 0;
    for (int s = 0; s < graph->turn; s++)
        LSI_TRY(execute(graph, &graph->steps[s], config));
    if (graph->loss && !isfinite(graph->loss_sum))
        return find_bad(graph, config);
    if (result)
        *result = (ls_run_result){graph->loss_sum, graph->loss_count};
    if (!config->backward)
        return LS_OK;
    lsi_grads(graph);
    for (int i = 0; !config->accumulate && i < graph->param_count; i++)
        graph->sparse[i].rows = 0;
    graph->next_step = graph->turn + 1;
    return LS_OK;
}

ls_status ls_graph_run(ls_graph *graph, const ls_run_config *config, ls_run_result *result)
{
    ls_run_result found;
    LSI_TRY(ls_graph_forward(graph, config, &found));
    ls_status status = config && config->backward ? LS_IN_PROGRESS : LS_OK;
    while (status == LS_IN_PROGRESS)
        status = ls_graph_backward(graph);
    if (status == LS_OK && result)
        *result = found;
    return status;
}

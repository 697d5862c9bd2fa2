/* Parameters and buffers: their layout, memory, addresses.
 *
 * 1. Each starts at a multiple of LSI_PARAM_ALIGN elements. The graph's own arrays have zeros in
 *    the gaps, always: nobody writes there.
 * 2. The graph's own weights get their initial values when somebody first needs them: a graph that
 *    is bound to other memory never touches its own.
 * 3. The part of a sparse parameter in the gradient array is never touched.
 */
#include <string.h>

#include "graph/graph.h"

/* Offsets; returns the length of the array. */
static size_t lay_out(ls_tensor *const *params, int count)
{
    size_t end = 0;
    for (int i = 0; i < count; i++) {
        params[i]->offset = end;
        end += (params[i]->count + LSI_PARAM_ALIGN - 1) / LSI_PARAM_ALIGN * LSI_PARAM_ALIGN;
    }
    return end;
}

static void clear_gaps(float *array, ls_tensor *const *params, int count)
{
    for (int i = 0; i < count; i++) {
        const size_t past = params[i]->count % LSI_PARAM_ALIGN;
        if (past)
            memset(array + params[i]->offset + params[i]->count, 0,
                   (LSI_PARAM_ALIGN - past) * sizeof *array);
    }
}

static void initialise(const ls_graph *graph, float *to, ls_tensor *const *params, int count)
{
    for (int i = 0; i < count; i++)
        lsi_init_values(graph->seed, params[i], to + params[i]->offset);
}

ls_status lsi_params_layout(ls_graph *graph)
{
    lsi_device *device = graph->device;
    graph->param_elements = lay_out(graph->params, graph->param_count);
    graph->buffer_elements = lay_out(graph->buffers, graph->buffer_count);
    for (int i = 0; i < graph->param_count; i++)
        graph->trained += graph->params[i]->count;
    const size_t bytes = graph->param_elements * sizeof(float);
    const size_t stats = graph->buffer_elements * sizeof(float);
    LSI_TRY(lsi_block_alloc(device, bytes, &graph->own_params));
    clear_gaps(graph->own_params.data, graph->params, graph->param_count);
    if (graph->loss) {
        LSI_TRY(lsi_block_alloc(device, bytes, &graph->own_grads));
        clear_gaps(graph->own_grads.data, graph->params, graph->param_count);
    }
    LSI_TRY(lsi_block_alloc(device, stats, &graph->stats));
    LSI_TRY(lsi_block_alloc(device, stats, &graph->observed));
    if (stats) {
        memset(graph->stats.data, 0, stats);
        memset(graph->observed.data, 0, stats);
    }
    initialise(graph, graph->stats.data, graph->buffers, graph->buffer_count);
    return LS_OK;
}

void lsi_params_free(ls_graph *graph)
{
    lsi_block_free(graph->device, &graph->own_params);
    lsi_block_free(graph->device, &graph->own_grads);
    lsi_block_free(graph->device, &graph->stats);
    lsi_block_free(graph->device, &graph->observed);
    lsi_sparse_free(graph);
}

float *lsi_params(ls_graph *graph)
{
    if (graph->bound_params)
        return graph->bound_params;
    if (!graph->initialised) {
        initialise(graph, graph->own_params.data, graph->params, graph->param_count);
        graph->initialised = 1;
    }
    return graph->own_params.data;
}

float *lsi_grads(ls_graph *graph)
{
    return graph->bound_grads ? graph->bound_grads : graph->own_grads.data;
}

static void set(const ls_tensor *param, void *array, ls_view *view)
{
    view->data = array ? (float *)array + param->offset : NULL;
    view->dtype = LS_F32;
    view->ndim = param->ndim;
    view->count = param->count;
    memcpy(view->dims, param->dims, sizeof view->dims);
}

void lsi_params_connect(ls_graph *graph)
{
    float *params = graph->bound_params ? graph->bound_params : graph->own_params.data;
    float *grads = lsi_grads(graph);
    for (int n = 0; n < graph->node_count; n++) {
        const lsi_node *node = graph->nodes[n];
        ls_op_call *call = &graph->nodes[n]->call;
        for (int i = 0; i < node->params; i++) {
            const ls_tensor *param = node->param[i];
            const int dense = node->backward && !param->config.sparse;
            if (param->config.buffer) {
                set(param, graph->stats.data, &call->param[i]);
                set(param, graph->observed.data, &call->dparam[i]);
            } else {
                set(param, params, &call->param[i]);
                set(param, dense ? grads : NULL, &call->dparam[i]);
            }
        }
    }
}

/* ---- public --------------------------------------------------------------------------------- */

static ls_status inform(const ls_graph *graph, int buffers, int index, ls_param_info *info)
{
    const int count = buffers ? ls_graph_buffer_count(graph) : ls_graph_param_count(graph);
    if (index < 0 || index >= count)
        return lsi_fail(LS_ERR_INVALID, NULL, buffers ? "ls_graph_buffer" : "ls_graph_param",
                        "there is no number %d, there are %d", index, count);
    const ls_tensor *param = buffers ? graph->buffers[index] : graph->params[index];
    *info = (ls_param_info){.name = param->name,
                            .ndim = param->ndim,
                            .offset = param->offset,
                            .count = param->count,
                            .no_decay = param->config.no_decay,
                            .sparse = param->config.sparse,
                            .layout = param->config.layout};
    memcpy(info->dims, param->dims, sizeof info->dims);
    return LS_OK;
}

int ls_graph_param_count(const ls_graph *graph)
{
    return graph && graph->compiled ? graph->param_count : 0;
}

ls_status ls_graph_param(const ls_graph *graph, int index, ls_param_info *info)
{
    return inform(graph, 0, index, info);
}

size_t ls_graph_trained(const ls_graph *graph)
{
    return graph ? graph->trained : 0;
}

size_t ls_graph_param_elements(const ls_graph *graph)
{
    return graph ? graph->param_elements : 0;
}

float *ls_graph_params(ls_graph *graph)
{
    return graph && graph->compiled ? lsi_params(graph) : NULL;
}

float *ls_graph_grads(ls_graph *graph)
{
    return graph && graph->compiled ? lsi_grads(graph) : NULL;
}

void ls_graph_bind(ls_graph *graph, float *params, float *grads)
{
    if (!graph || !graph->compiled)
        return;
    graph->bound_params = params;
    graph->bound_grads = grads;
    lsi_params_connect(graph);
}

void ls_graph_init(ls_graph *graph)
{
    if (!graph || !graph->compiled)
        return;
    float *params = graph->bound_params ? graph->bound_params : graph->own_params.data;
    initialise(graph, params, graph->params, graph->param_count);
    initialise(graph, graph->stats.data, graph->buffers, graph->buffer_count);
    graph->initialised |= !graph->bound_params;
}

int ls_graph_buffer_count(const ls_graph *graph)
{
    return graph && graph->compiled ? graph->buffer_count : 0;
}

ls_status ls_graph_buffer(const ls_graph *graph, int index, ls_param_info *info)
{
    return inform(graph, 1, index, info);
}

size_t ls_graph_buffer_elements(const ls_graph *graph)
{
    return graph ? graph->buffer_elements : 0;
}

float *ls_graph_buffers(ls_graph *graph)
{
    return graph ? graph->stats.data : NULL;
}

const float *ls_graph_observed(const ls_graph *graph)
{
    return graph ? graph->observed.data : NULL;
}

void ls_graph_observe(ls_graph *graph, const float *observed, float momentum)
{
    float *running = graph->stats.data;
    for (size_t i = 0; i < graph->buffer_elements; i++)
        running[i] = (1.0f - momentum) * running[i] + momentum * observed[i];
}

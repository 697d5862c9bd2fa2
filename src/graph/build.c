/* Building a graph: scopes and names, inputs, parameters, the first error.
 *
 * Everything here runs once, before ls_graph_compile; nodes are added in node.c.
 *
 * 1. graph->status is the first error of building; once it is set, every call that would add
 *    something does nothing and returns NULL.
 * 2. A layer begins with ls_layer, or with the first ls_param or ls_op_add after the layer before;
 *    ls_op_add ends it. Its name is fixed at the beginning.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

ls_status lsi_grow(void **array, int *room, int count, size_t each)
{
    if (count < *room)
        return LS_OK;
    const int more = *room ? 2 * *room : 32;
    void *larger = realloc(*array, (size_t)more * each);
    if (!larger)
        return lsi_fail(LS_ERR_NOMEM, NULL, "graph", "no memory for its description");
    *array = larger;
    *room = more;
    return LS_OK;
}

void lsi_graph_keep_error(ls_graph *graph, ls_status status)
{
    if (graph->status != LS_OK)
        return;
    graph->status = status;
    snprintf(graph->error, sizeof graph->error, "%s", ls_last_error());
}

void *lsi_keep(ls_graph *graph, const void *data, size_t bytes)
{
    void *copy = NULL;
    const ls_status status = lsi_arena_alloc(graph->arena, bytes, &copy);
    if (status != LS_OK) {
        lsi_graph_keep_error(graph, status);
        return NULL;
    }
    if (bytes)
        memcpy(copy, data, bytes);
    return copy;
}

static char *keep_text(ls_graph *graph, const char *text)
{
    return lsi_keep(graph, text, strlen(text) + 1);
}

int lsi_graph_open(ls_graph *graph)
{
    if (!graph || graph->status != LS_OK)
        return 0;
    if (graph->compiled) {
        lsi_fail(LS_ERR_INVALID, "build all of it, then compile it once", "graph",
                 "it is compiled, nothing can be added");
        return 0;
    }
    return 1;
}

/* How errors call what is being built: the layer, or where it will be. */
static void describe(const ls_graph *graph, char *text, size_t room)
{
    if (graph->layer_name)
        snprintf(text, room, "node '%s' (%s)", graph->layer_name, graph->layer_kind);
    else if (graph->node_count)
        snprintf(text, room, "graph, after %s", graph->nodes[graph->node_count - 1]->label);
    else
        snprintf(text, room, "graph");
}

ls_tensor *ls_graph_fail(ls_graph *graph, const char *detail, ...)
{
    if (!graph || (!graph->running && graph->status != LS_OK))
        return NULL;
    char text[LSI_ERROR_MAX], who[2 * LSI_NAME_MAX];
    va_list args;
    va_start(args, detail);
    vsnprintf(text, sizeof text, detail, args);
    va_end(args);
    if (graph->running) {
        lsi_fail(LS_ERR_INVALID, NULL, graph->running->label, "%s", text);
        return NULL;
    }
    describe(graph, who, sizeof who);
    lsi_fail(LS_ERR_INVALID, NULL, who, "%s", text);
    if (!graph->compiled)
        lsi_graph_keep_error(graph, LS_ERR_INVALID);
    return NULL;
}

ls_status ls_graph_create(const ls_graph_config *config, ls_graph **out)
{
    if (!config || !out || config->batch == 0)
        return lsi_fail(LS_ERR_INVALID, "set batch to the most samples of one run", "graph",
                        "it needs a configuration with a batch of at least 1");
    if (config->size != sizeof *config)
        return lsi_fail(LS_ERR_INVALID, "initialise it by LS_GRAPH_CONFIG_INIT", "graph",
                        "the configuration has size %zu, not %zu", config->size, sizeof *config);
    ls_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return lsi_fail(LS_ERR_NOMEM, NULL, "graph", "no memory for its description");
    graph->batch = config->batch;
    graph->seed = config->seed;
    ls_status status = lsi_device_open(config->device, &graph->device);
    if (status == LS_OK)
        status = lsi_arena_create(0, &graph->arena);
    if (status != LS_OK) {
        ls_graph_destroy(graph);
        return status;
    }
    *out = graph;
    return LS_OK;
}

void ls_graph_destroy(ls_graph *graph)
{
    if (!graph)
        return;
    if (graph->device) {
        lsi_params_free(graph);
        lsi_block_free(graph->device, &graph->activations);
    }
    free(graph->tensors);
    free(graph->nodes);
    free(graph->inputs);
    free(graph->params);
    free(graph->buffers);
    free(graph->steps);
    free(graph->memory);
    free(graph->profile);
    lsi_arena_destroy(graph->arena);
    lsi_device_close(graph->device);
    free(graph);
}

/* ---- names ---------------------------------------------------------------------------------- */

void ls_scope_push(ls_graph *graph, const char *name, ...)
{
    if (!lsi_graph_open(graph))
        return;
    const size_t used = strlen(graph->scope);
    const size_t dot = used > 0;
    char text[LSI_NAME_MAX];
    va_list args;
    va_start(args, name);
    const int length = vsnprintf(text, sizeof text, name, args);
    va_end(args);
    if (graph->depth == LSI_SCOPE_DEPTH || length < 0 ||
        used + dot + (size_t)length >= sizeof graph->scope) {
        ls_graph_fail(graph, "scopes are too deep or their names too long, at '%s.%s'",
                      graph->scope, text);
        return;
    }
    if (dot)
        graph->scope[used] = '.';
    memcpy(graph->scope + used + dot, text, (size_t)length + 1);
    graph->scope_ends[graph->depth++] = used;
}

void ls_scope_pop(ls_graph *graph)
{
    if (!lsi_graph_open(graph))
        return;
    if (graph->depth == 0)
        ls_graph_fail(graph, "ls_scope_pop without a scope");
    else
        graph->scope[graph->scope_ends[--graph->depth]] = 0;
}

void ls_name(ls_graph *graph, const char *name, ...)
{
    if (!lsi_graph_open(graph))
        return;
    va_list args;
    va_start(args, name);
    const int length = vsnprintf(graph->next_name, sizeof graph->next_name, name, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof graph->next_name)
        ls_graph_fail(graph, "the name '%s…' is too long", graph->next_name);
    graph->named = 1;
}

/* scope.name, either of which may be empty. NULL with the error kept. */
static char *join(ls_graph *graph, const char *scope, const char *name)
{
    char text[2 * LSI_NAME_MAX];
    snprintf(text, sizeof text, "%s%s%s", scope, *scope && *name ? "." : "", name);
    return keep_text(graph, text);
}

/* How many layers of this scope have a name of this kind and a number: names are given in order. */
static int count_layers(const ls_graph *graph, const char *kind)
{
    const size_t scope = strlen(graph->scope), length = strlen(kind);
    int most = 0;
    for (int i = 0; i < graph->node_count; i++) {
        const char *name = graph->nodes[i]->name;
        if (strncmp(name, graph->scope, scope) || (scope && name[scope] != '.'))
            continue;
        name += scope ? scope + 1 : 0;
        char *end;
        if (strncmp(name, kind, length) || name[length] < '0' || name[length] > '9')
            continue;
        const long number = strtol(name + length, &end, 10);
        if (*end == 0 && number > most && number < 1000000000)
            most = (int)number;
    }
    return most;
}

void ls_layer(ls_graph *graph, const char *kind)
{
    if (!lsi_graph_open(graph))
        return;
    char *copy = keep_text(graph, kind ? kind : "layer");
    if (!copy)
        return;
    if (!graph->named)
        snprintf(graph->next_name, sizeof graph->next_name, "%s%d", copy,
                 count_layers(graph, copy) + 1);
    graph->named = 0;
    graph->layer_name = join(graph, graph->scope, graph->next_name);
    graph->layer_kind = copy;
}

const char *lsi_layer_name(ls_graph *graph, const char *kind)
{
    if (!graph->layer_name)
        ls_layer(graph, kind);
    return graph->layer_name;
}

/* ---- tensors -------------------------------------------------------------------------------- */

ls_tensor *lsi_tensor_add(ls_graph *graph, lsi_tensor_kind kind, const char *name, ls_dtype dtype,
                          int ndim, const size_t *dims)
{
    size_t count = 1;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] == 0)
            return ls_graph_fail(graph, "dimension %d of '%s' is 0", i, name);
        if (__builtin_mul_overflow(count, dims[i], &count) || count > SIZE_MAX / 16)
            return ls_graph_fail(graph, "'%s' has more elements than there can be", name);
    }
    ls_tensor blank = {.graph = graph,
                       .kind = kind,
                       .dtype = dtype,
                       .ndim = ndim,
                       .count = count,
                       .node = -1,
                       .index = -1,
                       .value = -1,
                       .grad = -1,
                       .reader = -1};
    if (ndim)
        memcpy(blank.dims, dims, (size_t)ndim * sizeof *dims);
    blank.name = keep_text(graph, name);
    ls_tensor *tensor = blank.name ? lsi_keep(graph, &blank, sizeof blank) : NULL;
    if (!tensor)
        return NULL;
    tensor->root = tensor;
    const ls_status status = lsi_grow((void **)&graph->tensors, &graph->tensor_room,
                                      graph->tensor_count, sizeof *graph->tensors);
    if (status != LS_OK) {
        lsi_graph_keep_error(graph, status);
        return NULL;
    }
    graph->tensors[graph->tensor_count++] = tensor;
    return tensor;
}

/* Append to one of the graph's lists. */
static ls_tensor *list(ls_graph *graph, ls_tensor *tensor, ls_tensor ***array, int *room,
                       int *count)
{
    if (!tensor)
        return NULL;
    const ls_status status = lsi_grow((void **)array, room, *count, sizeof **array);
    if (status != LS_OK) {
        lsi_graph_keep_error(graph, status);
        return NULL;
    }
    (*array)[(*count)++] = tensor;
    return tensor;
}

ls_tensor *ls_input(ls_graph *graph, const char *name, ls_dtype dtype, int ndim, const size_t *dims)
{
    if (!lsi_graph_open(graph))
        return NULL;
    name = name ? name : "input";
    if (dtype != LS_F32 && dtype != LS_I32)
        return ls_graph_fail(graph, "input '%s' is of type %s; f32 and i32 are possible", name,
                             ls_dtype_name(dtype));
    if (ndim < 0 || ndim >= LS_MAX_DIMS || (ndim && !dims))
        return ls_graph_fail(graph, "input '%s' has %d dimensions; 0 to %d are possible", name,
                             ndim, LS_MAX_DIMS - 1);
    size_t with_batch[LS_MAX_DIMS] = {graph->batch};
    for (int i = 0; i < ndim; i++)
        with_batch[i + 1] = dims[i];
    ls_tensor *tensor = lsi_tensor_add(graph, LSI_INPUT, name, dtype, ndim + 1, with_batch);
    if (tensor)
        tensor->batched = 1;
    return list(graph, tensor, &graph->inputs, &graph->input_room, &graph->input_count);
}

ls_tensor *ls_param(ls_graph *graph, const char *name, int ndim, const size_t *dims,
                    const ls_param_config *config)
{
    if (!lsi_graph_open(graph) || !lsi_layer_name(graph, "layer"))
        return NULL;
    name = name ? name : "weight";
    if (!config || ndim < 1 || ndim > LS_MAX_DIMS || !dims)
        return ls_graph_fail(graph, "parameter '%s' has %d dimensions; 1 to %d are possible", name,
                             ndim, LS_MAX_DIMS);
    if (config->size != sizeof *config)
        return ls_graph_fail(graph, "the configuration of '%s' has size %zu, not %zu", name,
                             config->size, sizeof *config);
    if ((unsigned)config->init > LS_INIT_UNIFORM)
        return ls_graph_fail(graph, "'%s': %d is no way to initialise it", name, (int)config->init);
    if (config->sparse && config->buffer)
        return ls_graph_fail(graph, "'%s' cannot be both sparse and a buffer", name);
    if (strlen(name) >= LSI_NAME_MAX)
        return ls_graph_fail(graph, "the name '%.40s…' is too long", name);
    char *full = join(graph, graph->layer_name, name);
    if (!full)
        return NULL;
    for (int i = 0; i < graph->tensor_count; i++)
        if (graph->tensors[i]->kind == LSI_PARAM && !strcmp(graph->tensors[i]->name, full))
            return ls_graph_fail(graph, "there is a parameter named '%s' already", full);
    ls_tensor *tensor = lsi_tensor_add(graph, LSI_PARAM, full, LS_F32, ndim, dims);
    if (!tensor)
        return NULL;
    tensor->config = *config;
    const ls_status status = lsi_init_stream(tensor);
    if (status != LS_OK) {
        lsi_graph_keep_error(graph, status);
        return NULL;
    }
    if (config->buffer)
        return list(graph, tensor, &graph->buffers, &graph->buffer_room, &graph->buffer_count);
    return list(graph, tensor, &graph->params, &graph->param_room, &graph->param_count);
}

int ls_tensor_ndim(const ls_tensor *tensor)
{
    return tensor ? tensor->ndim : 0;
}

const size_t *ls_tensor_dims(const ls_tensor *tensor)
{
    return tensor ? tensor->dims : NULL;
}

const char *ls_tensor_name(const ls_tensor *tensor)
{
    return tensor ? tensor->name : NULL;
}

void ls_checkpoint_begin(ls_graph *graph)
{
    if (!lsi_graph_open(graph))
        return;
    if (graph->in_segment)
        ls_graph_fail(graph, "ls_checkpoint_begin inside of a checkpoint: they do not nest");
    graph->in_segment = 1;
    graph->segments++;
}

void ls_checkpoint_end(ls_graph *graph)
{
    if (!lsi_graph_open(graph))
        return;
    if (!graph->in_segment)
        ls_graph_fail(graph, "ls_checkpoint_end without ls_checkpoint_begin");
    graph->in_segment = 0;
}

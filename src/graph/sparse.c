/* Gradients of sparse parameters: rows by ascending id, merged when several come together.
 *
 * The first contribution of a run is written where the result lies; later ones, and those of a run
 * that accumulates, are written beside it and merged, unless the operation adds to the result
 * itself (sparse_adds).
 *
 * 1. Ids ascend strictly. A row that two contributions have is their sum, earlier plus later: sums
 *    are made in the order of arrival, whatever the ids.
 * 2. Merging happens in place, from the end; room grows by doubling and never beyond need for long:
 *    a step that repeats does not allocate.
 */
#include <string.h>

#include "graph/graph.h"

static ls_status reserve(lsi_device *device, lsi_sparse *sparse, size_t rows)
{
    if (rows <= sparse->room)
        return LS_OK;
    const size_t room = rows > 2 * sparse->room ? rows : 2 * sparse->room;
    lsi_block ids, values;
    LSI_TRY(lsi_block_alloc(device, room * sizeof(int32_t), &ids));
    const ls_status status = lsi_block_alloc(device, room * sparse->width * sizeof(float), &values);
    if (status != LS_OK) {
        lsi_block_free(device, &ids);
        return status;
    }
    if (sparse->rows) {
        memcpy(ids.data, sparse->ids.data, sparse->rows * sizeof(int32_t));
        memcpy(values.data, sparse->values.data, sparse->rows * sparse->width * sizeof(float));
    }
    lsi_block_free(device, &sparse->ids);
    lsi_block_free(device, &sparse->values);
    sparse->ids = ids;
    sparse->values = values;
    sparse->room = room;
    return LS_OK;
}

static size_t node_room(const ls_graph *graph, const lsi_node *node)
{
    return node->shape.sparse_rows_per_sample * graph->batch;
}

ls_status lsi_sparse_layout(ls_graph *graph)
{
    void *memory;
    const size_t bytes = (size_t)graph->param_count * sizeof(lsi_sparse);
    LSI_TRY(lsi_arena_alloc(graph->arena, bytes, &memory));
    memset(memory, 0, bytes);
    graph->sparse = memory;
    size_t widest = 0;
    int several = 0;
    for (int n = 0; n < graph->node_count; n++) {
        const lsi_node *node = graph->nodes[n];
        if (!node->backward || !node->params || !node->param[0]->config.sparse)
            continue;
        const ls_tensor *param = node->param[0];
        lsi_sparse *sparse = &graph->sparse[param->index];
        several |= sparse->width != 0;
        sparse->width = param->count / param->dims[0];
        widest = sparse->width > widest ? sparse->width : widest;
        const size_t room = node_room(graph, node);
        graph->fresh_room = room > graph->fresh_room ? room : graph->fresh_room;
        LSI_TRY(reserve(graph->device, sparse, sparse->room + room));
    }
    graph->fresh_width = widest;
    return several ? lsi_sparse_fresh(graph) : LS_OK;
}

void lsi_sparse_free(ls_graph *graph)
{
    for (int i = 0; graph->sparse && i < graph->param_count; i++) {
        lsi_block_free(graph->device, &graph->sparse[i].ids);
        lsi_block_free(graph->device, &graph->sparse[i].values);
    }
    lsi_block_free(graph->device, &graph->fresh_ids);
    lsi_block_free(graph->device, &graph->fresh_values);
}

/* Memory for a contribution that is to be merged: only graphs that merge have it. */
ls_status lsi_sparse_fresh(ls_graph *graph)
{
    if (graph->fresh_ids.data)
        return LS_OK;
    LSI_TRY(lsi_block_alloc(graph->device, graph->fresh_room * graph->fresh_width * sizeof(float),
                            &graph->fresh_values));
    const ls_status status =
        lsi_block_alloc(graph->device, graph->fresh_room * sizeof(int32_t), &graph->fresh_ids);
    if (status != LS_OK)
        lsi_block_free(graph->device, &graph->fresh_values);
    return status;
}

/* Is this contribution to be merged with others? */
static int merges(const ls_graph *graph, const lsi_node *node)
{
    return !node->shape.sparse_adds && (graph->accumulate || !(node->first_param & 1));
}

ls_status lsi_sparse_begin(ls_graph *graph, lsi_node *node)
{
    lsi_sparse *sparse = &graph->sparse[node->param[0]->index];
    ls_op_call *call = &node->call;
    call->sparse_room = node_room(graph, node);
    if (merges(graph, node)) {
        LSI_TRY(lsi_sparse_fresh(graph));
        call->sparse_ids = graph->fresh_ids.data;
        call->sparse_values = graph->fresh_values.data;
        call->sparse_rows = &graph->fresh_rows;
        graph->fresh_rows = 0;
        return LS_OK;
    }
    if (node->shape.sparse_adds) {
        call->sparse_room += sparse->rows;
        LSI_TRY(reserve(graph->device, sparse, call->sparse_room));
    }
    call->sparse_ids = sparse->ids.data;
    call->sparse_values = sparse->values.data;
    call->sparse_rows = &sparse->rows;
    return LS_OK;
}

ls_status lsi_sparse_end(ls_graph *graph, lsi_node *node)
{
    lsi_sparse *sparse = &graph->sparse[node->param[0]->index];
    if (!merges(graph, node))
        return LS_OK;
    return lsi_sparse_merge(graph->device, sparse, graph->fresh_rows, graph->fresh_ids.data,
                            graph->fresh_values.data);
}

/* Rows of the union of two ascending lists. */
static size_t count_union(size_t m, const int32_t *a, size_t n, const int32_t *b)
{
    size_t i = 0, j = 0, rows = 0;
    for (; i < m && j < n; rows++) {
        const int32_t x = a[i], y = b[j];
        i += x <= y;
        j += y <= x;
    }
    return rows + (m - i) + (n - j);
}

ls_status lsi_sparse_merge(lsi_device *device, lsi_sparse *sparse, size_t rows, const int32_t *ids,
                           const float *values)
{
    const size_t width = sparse->width;
    const size_t total = count_union(sparse->rows, sparse->ids.data, rows, ids);
    LSI_TRY(reserve(device, sparse, total));
    int32_t *to_ids = sparse->ids.data;
    float *to = sparse->values.data;
    size_t i = sparse->rows, j = rows;
    for (size_t k = total; j > 0; k--) { /* what is left of the old rows is in place then */
        const int old = i > 0 && to_ids[i - 1] >= ids[j - 1];
        const int new = i == 0 || ids[j - 1] >= to_ids[i - 1];
        const int32_t id = old ? to_ids[i - 1] : ids[j - 1];
        float *row = to + (k - 1) * width;
        if (old && i != k)
            memmove(row, to + (i - 1) * width, width * sizeof *row);
        if (old && new)
            for (size_t c = 0; c < width; c++)
                row[c] += values[(j - 1) * width + c];
        else if (new)
            memcpy(row, values + (j - 1) * width, width * sizeof *row);
        to_ids[k - 1] = id;
        i -= (size_t)old;
        j -= (size_t) new;
    }
    sparse->rows = total;
    return LS_OK;
}

ls_status ls_graph_sparse_grad(const ls_graph *graph, int index, ls_sparse_grad *out)
{
    if (!graph || !graph->compiled || index < 0 || index >= graph->param_count ||
        !graph->params[index]->config.sparse)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_graph_sparse_grad",
                        "parameter %d is not a sparse one", index);
    const lsi_sparse *sparse = &graph->sparse[index];
    *out =
        (ls_sparse_grad){sparse->rows, graph->params[index]->count / graph->params[index]->dims[0],
                         sparse->ids.data, sparse->values.data};
    return LS_OK;
}

ls_status ls_graph_sparse_ids(ls_graph *graph, int index, int k, ls_sparse_ids *out)
{
    for (int i = 0; i < graph->node_count; i++) {
        const lsi_node *node = graph->nodes[i];
        if (!node->needed || !node->params || !node->param[0]->config.sparse ||
            node->param[0]->index != index || k-- > 0)
            continue;
        const int32_t *ids = ls_input_data(graph, node->in[0]->root);
        if (!ids)
            return lsi_fail(LS_ERR_UNSUPPORTED, NULL, node->param[0]->name,
                            "its ids are not an input of the graph");
        const size_t each = node->in[0]->count / node->in[0]->dims[0];
        const int all = node->shape.sparse_rows_per_sample == each;
        out->ids = ids + node->shape.sparse_first;
        out->count = graph->batch * node->shape.sparse_rows_per_sample;
        out->stride = all ? 1 : each;
        return LS_OK;
    }
    return LS_ERR_NOT_FOUND;
}

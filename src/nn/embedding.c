/* Learned rows by number: embedding, positions, embedding bag.
 *
 * 1. Ids are checked against the table in each forward: an id out of range is an error that names
 *    the node, not a read of foreign memory.
 * 2. The gradient of an embedding is dense unless asked otherwise (vocabularies are small, and the
 *    table is often tied to the last layer); that of an embedding bag is by the rows that were
 *    used, because its table is larger than everything else.
 * 3. A row of an embedding has the same bits in either gradient, in runs that accumulate too.
 */
#include "nn/op.h"

/* ---- embedding ------------------------------------------------------------------------------ */

static ls_status embedding_infer(const ls_op_call *call, ls_op_shape *shape)
{
    LSI_TRY(lsi_need_i32(call, 0, 1, "ids"));
    const ls_view *ids = &call->in[0], *table = &call->param[0];
    if (ids->ndim == LS_MAX_DIMS) {
        ls_graph_fail(call->graph, "its ids have %d dimensions, one less is possible", ids->ndim);
        return LS_ERR_INVALID;
    }
    lsi_shape_as(ids, shape);
    shape->dims[shape->ndim++] = table->dims[1];
    if (*(const int *)call->config) {
        shape->sparse_rows_per_sample = lsi_each(ids);
        shape->sparse_adds = 1;
    }
    return LS_OK;
}

static ls_status embedding_forward(const ls_op_call *call)
{
    const ls_view *ids = &call->in[0], *table = &call->param[0];
    LSI_TRY(lsi_check_ids(call, "id", ids->count, ids->data, table->dims[0], LSI_NO_IGNORE));
    return LSI_KERNEL(call, embed, ids->count, table->dims[1], ids->data, table->data,
                      call->out.data, 0);
}

static ls_status embedding_backward(const ls_op_call *call)
{
    const ls_view *ids = &call->in[0], *table = &call->param[0];
    if (*(const int *)call->config)
        return LSI_KERNEL(call, embed_rows_grad, ids->count, table->dims[0], table->dims[1],
                          ids->data, call->dout.data, call->sparse_ids, call->sparse_values,
                          call->sparse_rows);
    return LSI_KERNEL(call, embed_grad, ids->count, table->dims[0], table->dims[1], ids->data,
                      call->dout.data, lsi_dparam(call, 0), call->add_param[0]);
}

static const ls_op_kind embedding = {sizeof embedding, "embedding",       LS_OP_KEEP_INPUTS,
                                     embedding_infer,  embedding_forward, embedding_backward};

ls_tensor *ls_embedding_with(ls_graph *graph, ls_tensor *ids, const ls_embedding_config *config,
                             ls_tensor **table)
{
    if (!lsi_layer_begin(graph, embedding.name, ids, 1) ||
        !lsi_config_fits(graph, config ? config->size : 0, sizeof *config))
        return NULL;
    ls_param_config how = LS_PARAM_CONFIG_INIT;
    how.init = LS_INIT_NORMAL;
    how.init_scale = config->std > 0 ? config->std : 1;
    how.sparse = config->sparse != 0;
    ls_tensor *weight =
        ls_param(graph, "weight", 2, (size_t[]){config->vocab, config->width}, &how);
    ls_tensor *out =
        ls_op_add(graph, &embedding, &how.sparse, sizeof how.sparse, 1, &ids, 1, &weight);
    if (!out)
        return NULL;
    lsi_tensor_limit(ids, config->vocab);
    if (table)
        *table = weight;
    return out;
}

ls_tensor *ls_embedding(ls_graph *graph, ls_tensor *ids, size_t vocab, size_t width, float std,
                        ls_tensor **table)
{
    const ls_embedding_config config = {sizeof config, vocab, width, std, 0};
    return ls_embedding_with(graph, ids, &config, table);
}

/* ---- positions ------------------------------------------------------------------------------ */

static ls_status positions_infer(const ls_op_call *call, ls_op_shape *shape)
{
    LSI_TRY(lsi_need_f32(call, 0, 3, "input"));
    lsi_shape_as(&call->in[0], shape);
    return LS_OK;
}

static ls_status positions_forward(const ls_op_call *call)
{
    return LSI_KERNEL(call, add, call->out.count, call->param[0].count, lsi_in(call, 0),
                      lsi_weight(call, 0), call->out.data);
}

static ls_status positions_backward(const ls_op_call *call)
{
    LSI_TRY(LSI_KERNEL(call, sum_repeats, call->dout.count, call->param[0].count, call->dout.data,
                       NULL, lsi_dparam(call, 0), call->add_param[0]));
    return lsi_pass_gradient(call, 0);
}

static const ls_op_kind positions = {sizeof positions, "positions",       LS_OP_IN_PLACE,
                                     positions_infer,  positions_forward, positions_backward};

ls_tensor *ls_positions(ls_graph *graph, ls_tensor *x, float std)
{
    if (!lsi_layer_begin(graph, positions.name, x, 3))
        return NULL;
    ls_param_config config = LS_PARAM_CONFIG_INIT;
    config.init = LS_INIT_NORMAL;
    config.init_scale = std > 0 ? std : 1;
    ls_tensor *weight = ls_param(graph, "weight", x->ndim - 1, x->dims + 1, &config);
    return ls_op_add(graph, &positions, NULL, 0, 1, &x, 1, &weight);
}

/* ---- embedding bag -------------------------------------------------------------------------- */

/* Ids of one column are gathered first: the kernels take them one after the other. */
static ls_status bag_infer(const ls_op_call *call, ls_op_shape *shape)
{
    const int column = *(const int *)call->config;
    LSI_TRY(lsi_need_i32(call, 0, 1, "ids"));
    const ls_view *ids = &call->in[0];
    if (column >= 0 && (ids->ndim != 2 || (size_t)column >= ids->dims[1])) {
        char text[LSI_SHAPE_TEXT];
        ls_graph_fail(call->graph, "its ids are %s, there is no column %d",
                      lsi_shape_text(ids, text), column);
        return LS_ERR_INVALID;
    }
    shape->ndim = 2;
    shape->dims[0] = ids->dims[0];
    shape->dims[1] = call->param[0].dims[1];
    shape->sparse_rows_per_sample = column >= 0 ? 1 : lsi_each(ids);
    if (column >= 0) {
        shape->kept_per_sample = sizeof(int32_t);
        shape->unread = 1u << 0;
        shape->sparse_first = (size_t)column;
    }
    return LS_OK;
}

static size_t bag_size(const ls_op_call *call)
{
    return *(const int *)call->config >= 0 ? 1 : lsi_each(&call->in[0]);
}

static const int32_t *bag_ids(const ls_op_call *call)
{
    return *(const int *)call->config >= 0 ? call->kept : call->in[0].data;
}

static ls_status bag_forward(const ls_op_call *call)
{
    const int column = *(const int *)call->config;
    const ls_view *table = &call->param[0];
    const size_t rows = call->samples, bag = bag_size(call);
    if (column >= 0) {
        const int32_t *from = (const int32_t *)call->in[0].data + column;
        int32_t *to = call->kept;
        for (size_t i = 0; i < rows; i++)
            to[i] = from[i * call->in[0].dims[1]];
    }
    const int32_t *ids = bag_ids(call);
    LSI_TRY(lsi_check_ids(call, "id", rows * bag, ids, table->dims[0], LSI_NO_IGNORE));
    return LSI_KERNEL(call, embed_bag, rows, bag, table->dims[1], ids, table->data, call->out.data,
                      table->dims[1]);
}

static ls_status bag_backward(const ls_op_call *call)
{
    const ls_view *table = &call->param[0];
    return LSI_KERNEL(call, embed_bag_grad, call->samples, bag_size(call), table->dims[0],
                      table->dims[1], bag_ids(call), call->dout.data, table->dims[1],
                      call->sparse_ids, call->sparse_values, call->sparse_rows);
}

static const ls_op_kind embedding_bag = {sizeof embedding_bag, "embedding_bag",
                                         LS_OP_KEEP_INPUTS,    bag_infer,
                                         bag_forward,          bag_backward};

ls_tensor *ls_embedding_bag(ls_graph *graph, ls_tensor *ids, int column, size_t vocab, size_t width,
                            float scale)
{
    if (!lsi_layer_begin(graph, embedding_bag.name, ids, 1))
        return NULL;
    ls_param_config config = LS_PARAM_CONFIG_INIT;
    config.init = LS_INIT_UNIFORM;
    config.init_scale = scale;
    config.sparse = 1;
    ls_tensor *weight = ls_param(graph, "weight", 2, (size_t[]){vocab, width}, &config);
    ls_tensor *out = ls_op_add(graph, &embedding_bag, &column, sizeof column, 1, &ids, 1, &weight);
    if (out)
        lsi_tensor_limit(ids, vocab);
    return out;
}

/* Values in other places or under other shapes: concat, slice, transpose, reshape.
 *
 * 1. The batch stays where it is: dimension 0.
 * 2. A reshape costs nothing: it is the same memory.
 */
#include <string.h>

#include "nn/op.h"

/* ---- concat --------------------------------------------------------------------------------- */

static ls_status concat_infer(const ls_op_call *call, ls_op_shape *shape)
{
    size_t last = 0;
    for (int i = 0; i < call->inputs; i++) {
        LSI_TRY(lsi_need_f32(call, i, 2, "input"));
        const ls_view *x = &call->in[i], *first = &call->in[0];
        ls_view widened = *x;
        widened.dims[widened.ndim - 1] = lsi_last(first);
        if (!lsi_same_shape(&widened, first)) {
            char a[LSI_SHAPE_TEXT], b[LSI_SHAPE_TEXT];
            ls_graph_fail(call->graph,
                          "input 0 is %s and input %d is %s; only the last dimension may differ",
                          lsi_shape_text(first, a), i, lsi_shape_text(x, b));
            return LS_ERR_INVALID;
        }
        last += lsi_last(x);
    }
    lsi_shape_as(&call->in[0], shape);
    shape->dims[shape->ndim - 1] = last;
    return LS_OK;
}

static ls_status concat_forward(const ls_op_call *call)
{
    float *to = call->out.data;
    const size_t stride = lsi_last(&call->out);
    for (int i = 0; i < call->inputs; i++) {
        const size_t c = lsi_last(&call->in[i]);
        LSI_TRY(
            LSI_KERNEL(call, copy2d, lsi_rows(&call->in[i]), c, lsi_in(call, i), c, to, stride, 0));
        to += c;
    }
    return LS_OK;
}

static ls_status concat_backward(const ls_op_call *call)
{
    const float *from = call->dout.data;
    const size_t stride = lsi_last(&call->out);
    for (int i = 0; i < call->inputs; i++) {
        const size_t c = lsi_last(&call->in[i]);
        if (lsi_din(call, i))
            LSI_TRY(LSI_KERNEL(call, copy2d, lsi_rows(&call->in[i]), c, from, stride,
                               lsi_din(call, i), c, call->add_in[i]));
        from += c;
    }
    return LS_OK;
}

static const ls_op_kind concat = {sizeof concat, "concat",       0,
                                  concat_infer,  concat_forward, concat_backward};

ls_tensor *ls_concat(ls_graph *graph, int count, ls_tensor *const *x)
{
    if (!lsi_layer_begin(graph, concat.name, count > 0 && x ? x[0] : NULL, 2))
        return NULL;
    return ls_op_add(graph, &concat, NULL, 0, count, x, 0, NULL);
}

/* ---- slice ---------------------------------------------------------------------------------- */

typedef struct slice_config {
    size_t from, to;
} slice_config;

static ls_status slice_infer(const ls_op_call *call, ls_op_shape *shape)
{
    const slice_config *config = call->config;
    LSI_TRY(lsi_need_f32(call, 0, 2, "input"));
    if (config->from >= config->to || config->to > lsi_last(&call->in[0])) {
        ls_graph_fail(call->graph, "[%zu, %zu) is no part of its last dimension [0, %zu)",
                      config->from, config->to, lsi_last(&call->in[0]));
        return LS_ERR_INVALID;
    }
    lsi_shape_as(&call->in[0], shape);
    shape->dims[shape->ndim - 1] = config->to - config->from;
    return LS_OK;
}

static ls_status slice_forward(const ls_op_call *call)
{
    const slice_config *config = call->config;
    const size_t c = config->to - config->from;
    return LSI_KERNEL(call, copy2d, lsi_rows(&call->in[0]), c, lsi_in(call, 0) + config->from,
                      lsi_last(&call->in[0]), call->out.data, c, 0);
}

static ls_status slice_backward(const ls_op_call *call)
{
    const slice_config *config = call->config;
    const size_t c = config->to - config->from;
    if (!lsi_din(call, 0))
        return LS_OK;
    if (!call->add_in[0])
        LSI_TRY(LSI_KERNEL(call, fill, call->in[0].count, 0, lsi_din(call, 0)));
    return LSI_KERNEL(call, copy2d, lsi_rows(&call->in[0]), c, call->dout.data, c,
                      lsi_din(call, 0) + config->from, lsi_last(&call->in[0]), call->add_in[0]);
}

static const ls_op_kind slice = {sizeof slice, "slice",       0,
                                 slice_infer,  slice_forward, slice_backward};

ls_tensor *ls_slice(ls_graph *graph, ls_tensor *x, size_t from, size_t to)
{
    if (!lsi_layer_begin(graph, slice.name, x, 2))
        return NULL;
    const slice_config config = {from, to};
    return ls_op_add(graph, &slice, &config, sizeof config, 1, &x, 0, NULL);
}

/* ---- transpose ------------------------------------------------------------------------------ */

typedef struct transpose_config {
    int there[LS_MAX_DIMS], back[LS_MAX_DIMS]; /* the batch included */
} transpose_config;

static ls_status transpose_infer(const ls_op_call *call, ls_op_shape *shape)
{
    const transpose_config *config = call->config;
    LSI_TRY(lsi_need_f32(call, 0, 2, "input"));
    shape->ndim = call->in[0].ndim;
    for (int i = 0; i < shape->ndim; i++)
        shape->dims[i] = call->in[0].dims[config->there[i]];
    return LS_OK;
}

static ls_status transpose_forward(const ls_op_call *call)
{
    const transpose_config *config = call->config;
    return LSI_KERNEL(call, permute, call->in[0].ndim, call->in[0].dims, config->there,
                      lsi_in(call, 0), call->out.data, 0);
}

static ls_status transpose_backward(const ls_op_call *call)
{
    const transpose_config *config = call->config;
    if (!lsi_din(call, 0))
        return LS_OK;
    return LSI_KERNEL(call, permute, call->out.ndim, call->out.dims, config->back, call->dout.data,
                      lsi_din(call, 0), call->add_in[0]);
}

static const ls_op_kind transpose = {sizeof transpose, "transpose",       0,
                                     transpose_infer,  transpose_forward, transpose_backward};

ls_tensor *ls_transpose(ls_graph *graph, ls_tensor *x, const int *perm)
{
    if (!lsi_layer_begin(graph, transpose.name, x, 2))
        return NULL;
    if (!perm)
        return ls_graph_fail(graph, "its permutation is NULL");
    transpose_config config = {{0}, {0}};
    int seen = 0;
    for (int i = 0; i < x->ndim - 1; i++) {
        if (perm[i] < 0 || perm[i] >= x->ndim - 1 || seen & 1 << perm[i])
            return ls_graph_fail(graph, "its permutation must have each of 0 to %d once",
                                 x->ndim - 2);
        seen |= 1 << perm[i];
        config.there[i + 1] = perm[i] + 1;
        config.back[perm[i] + 1] = i + 1;
    }
    return ls_op_add(graph, &transpose, &config, sizeof config, 1, &x, 0, NULL);
}

/* ---- reshape -------------------------------------------------------------------------------- */

typedef struct reshape_config {
    int ndim;
    size_t dims[LS_MAX_DIMS];
} reshape_config;

static ls_status reshape_infer(const ls_op_call *call, ls_op_shape *shape)
{
    const reshape_config *config = call->config;
    const ls_view *x = &call->in[0];
    shape->dtype = x->dtype;
    shape->ndim = config->ndim + 1;
    shape->dims[0] = x->dims[0];
    size_t each = 1;
    for (int i = 0; i < config->ndim; i++) {
        shape->dims[i + 1] = config->dims[i];
        if (__builtin_mul_overflow(each, config->dims[i], &each))
            each = 0;
    }
    if (each != lsi_each(x)) {
        ls_graph_fail(call->graph, "a sample of its input has %zu values, of its result %zu",
                      lsi_each(x), each);
        return LS_ERR_INVALID;
    }
    return LS_OK;
}

static const ls_op_kind reshape = {sizeof reshape, "reshape", LS_OP_VIEW,
                                   reshape_infer,  NULL,      NULL};

ls_tensor *ls_reshape(ls_graph *graph, ls_tensor *x, int ndim, const size_t *dims)
{
    if (!lsi_layer_begin(graph, reshape.name, x, 1))
        return NULL;
    if (ndim < 0 || ndim >= LS_MAX_DIMS || (ndim && !dims))
        return ls_graph_fail(graph, "its result has %d dimensions a sample; 0 to %d are possible",
                             ndim, LS_MAX_DIMS - 1);
    reshape_config config = {.ndim = ndim};
    if (ndim)
        memcpy(config.dims, dims, (size_t)ndim * sizeof *dims);
    return ls_op_add(graph, &reshape, &config, sizeof config, 1, &x, 0, NULL);
}

/* What the layers share. */
#include "nn/op.h"

#include <stdio.h>
#include <string.h>

int lsi_layer_begin(ls_graph *graph, const char *kind, const ls_tensor *x, int least)
{
    ls_layer(graph, kind);
    if (!x) {
        ls_graph_fail(graph, "its input is NULL");
        return 0;
    }
    if (x->ndim < least) {
        ls_graph_fail(graph, "its input has %d dimensions with the batch, it takes at least %d",
                      x->ndim, least);
        return 0;
    }
    return 1;
}

ls_tensor *lsi_layer_skip(ls_graph *graph, ls_tensor *x)
{
    if (graph)
        graph->named = 0;
    return x;
}

int lsi_config_fits(ls_graph *graph, size_t size, size_t expected)
{
    if (size == expected)
        return 1;
    ls_graph_fail(graph, "its configuration has size %zu, not %zu: start from the _INIT macro",
                  size, expected);
    return 0;
}

void lsi_tensor_limit(ls_tensor *ids, size_t bound)
{
    ls_tensor *root = ids->root;
    if (root->bound == 0 || bound < root->bound)
        root->bound = bound;
}

size_t ls_tensor_bound(const ls_tensor *input)
{
    return input ? input->root->bound : 0;
}

ls_tensor *ls_graph_input(ls_graph *graph, int i)
{
    return graph && i >= 0 && i < graph->input_count ? graph->inputs[i] : NULL;
}

void lsi_shape_as(const ls_view *view, ls_op_shape *shape)
{
    shape->ndim = view->ndim;
    memcpy(shape->dims, view->dims, sizeof shape->dims);
}

int lsi_same_shape(const ls_view *a, const ls_view *b)
{
    return a->ndim == b->ndim && memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims) == 0;
}

static ls_status need(const ls_op_call *call, int input, ls_dtype dtype, int least,
                      const char *what)
{
    const ls_view *view = &call->in[input];
    if (view->dtype != dtype) {
        ls_graph_fail(call->graph, "%s of type %s where it takes %s", what,
                      ls_dtype_name(view->dtype), ls_dtype_name(dtype));
        return LS_ERR_INVALID;
    }
    if (view->ndim < least) {
        char text[LSI_SHAPE_TEXT];
        ls_graph_fail(call->graph, "%s of shape %s where it takes at least %d dimensions", what,
                      lsi_shape_text(view, text), least);
        return LS_ERR_INVALID;
    }
    return LS_OK;
}

ls_status lsi_need_f32(const ls_op_call *call, int input, int least, const char *what)
{
    return need(call, input, LS_F32, least, what);
}

ls_status lsi_need_i32(const ls_op_call *call, int input, int least, const char *what)
{
    return need(call, input, LS_I32, least, what);
}

const char *lsi_shape_text(const ls_view *view, char text[LSI_SHAPE_TEXT])
{
    size_t used = 0;
    for (int i = 0; i < view->ndim && used < LSI_SHAPE_TEXT; i++)
        used += (size_t)snprintf(text + used, LSI_SHAPE_TEXT - used, "%s%zu", i ? ", " : "(",
                                 view->dims[i]);
    if (used < LSI_SHAPE_TEXT)
        snprintf(text + used, LSI_SHAPE_TEXT - used, "%s", view->ndim ? ")" : "()");
    return text;
}

ls_status lsi_pass_gradient(const ls_op_call *call, int input)
{
    float *to = lsi_din(call, input);
    if (!to || to == call->dout.data)
        return LS_OK;
    return LSI_KERNEL(call, scale, call->dout.count, 1, call->dout.data, to, call->add_in[input]);
}

/* Branch free, so that the compiler vectorises it: a step looks at every id. */
static int all_inside(size_t count, const int32_t *ids, uint32_t bound, int32_t ignore)
{
    uint32_t outside = 0;
    for (size_t i = 0; i < count; i++)
        outside |= (uint32_t)((uint32_t)ids[i] >= bound) & (uint32_t)(ids[i] != ignore);
    return !outside;
}

ls_status lsi_check_ids(const ls_op_call *call, const char *what, size_t count, const int32_t *ids,
                        size_t bound, int32_t ignore)
{
    const uint32_t limit = bound > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)bound;
    if (all_inside(count, ids, limit, ignore))
        return LS_OK;
    size_t i = 0;
    while ((uint32_t)ids[i] < limit || ids[i] == ignore)
        i++;
    char ignored[32] = "";
    if (ignore != LSI_NO_IGNORE)
        snprintf(ignored, sizeof ignored, ", nor the ignored %d", ignore);
    ls_graph_fail(call->graph, "%s %d at place %zu is not in [0, %zu)%s", what, ids[i], i, bound,
                  ignored);
    return LS_ERR_INVALID;
}

lsi_act lsi_act_of(ls_activation activation)
{
    switch (activation) {
    case LS_NONE: return LSI_ACT_NONE;
    case LS_RELU: return LSI_ACT_RELU;
    case LS_GELU: return LSI_ACT_GELU_TANH;
    case LS_GELU_ERF: return LSI_ACT_GELU_ERF;
    case LS_SILU: return LSI_ACT_SILU;
    case LS_TANH: return LSI_ACT_TANH;
    case LS_SIGMOID: return LSI_ACT_SIGMOID;
    }
    return LSI_ACT_COUNT;
}

lsi_dropout lsi_dropout_of(const ls_op_call *call, float p, size_t each)
{
    return (lsi_dropout){.samples = call->samples,
                         .each = each,
                         .p = p,
                         .seed = call->seed,
                         .step = call->step,
                         .node = call->node,
                         .first_position = call->first_position};
}

/* Sums and products, element by element; the second operand may be a parameter that is repeated.
 *
 * 1. Two activations have the same shape. A parameter has the shape of the other's last dimensions.
 * 2. Backward writes gradients in the order of the inputs, which may be one tensor: x + x, x * x.
 */
#include "nn/op.h"

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    const ls_view *a = &call->in[0], *b = call->params ? &call->param[0] : &call->in[1];
    LSI_TRY(lsi_need_f32(call, 0, 1, "first operand"));
    if (!call->params)
        LSI_TRY(lsi_need_f32(call, 1, 1, "second operand"));
    int fits = call->params ? b->ndim < a->ndim : b->ndim == a->ndim;
    for (int i = 1; fits && i <= b->ndim; i++)
        fits = a->dims[a->ndim - i] == b->dims[b->ndim - i];
    if (!fits) {
        char first[LSI_SHAPE_TEXT], second[LSI_SHAPE_TEXT];
        ls_graph_fail(call->graph,
                      "its operands are %s and %s; they must be equal, or the second a "
                      "parameter of the last dimensions of the first",
                      lsi_shape_text(a, first), lsi_shape_text(b, second));
        return LS_ERR_INVALID;
    }
    lsi_shape_as(a, shape);
    return LS_OK;
}

/* The second operand, and how many values it has. */
static const float *second(const ls_op_call *call, size_t *count)
{
    const ls_view *b = call->params ? &call->param[0] : &call->in[1];
    *count = b->count;
    return b->data;
}

static ls_status add_forward(const ls_op_call *call)
{
    size_t m;
    const float *b = second(call, &m);
    return LSI_KERNEL(call, add, call->out.count, m, lsi_in(call, 0), b, call->out.data);
}

static ls_status add_backward(const ls_op_call *call)
{
    if (call->params)
        LSI_TRY(LSI_KERNEL(call, sum_repeats, call->dout.count, call->param[0].count,
                           call->dout.data, NULL, lsi_dparam(call, 0), call->add_param[0]));
    LSI_TRY(lsi_pass_gradient(call, 0));
    return call->params ? LS_OK : lsi_pass_gradient(call, 1);
}

static ls_status mul_forward(const ls_op_call *call)
{
    size_t m;
    const float *b = second(call, &m);
    return LSI_KERNEL(call, mul, call->out.count, m, lsi_in(call, 0), b, call->out.data);
}

/* da (+)= dout b. Adding a product to a repeated operand's partner goes through dout itself. */
static ls_status mul_first(const ls_op_call *call)
{
    size_t m;
    const float *b = second(call, &m);
    const size_t n = call->dout.count;
    float *da = lsi_din(call, 0), *dy = call->dout.data;
    if (!da)
        return LS_OK;
    if (!call->add_in[0])
        return LSI_KERNEL(call, mul, n, m, dy, b, da);
    if (m == n)
        return LSI_KERNEL(call, sum_repeats, n, n, dy, b, da, 1);
    LSI_TRY(LSI_KERNEL(call, mul, n, m, dy, b, dy));
    return LSI_KERNEL(call, scale, n, 1, dy, da, 1);
}

static ls_status mul_backward(const ls_op_call *call)
{
    const size_t n = call->dout.count;
    if (call->params)
        LSI_TRY(LSI_KERNEL(call, sum_repeats, n, call->param[0].count, call->dout.data,
                           lsi_in(call, 0), lsi_dparam(call, 0), call->add_param[0]));
    LSI_TRY(mul_first(call));
    if (call->params || !lsi_din(call, 1))
        return LS_OK;
    return LSI_KERNEL(call, sum_repeats, n, n, call->dout.data, lsi_in(call, 0), lsi_din(call, 1),
                      call->add_in[1]);
}

static const ls_op_kind add = {sizeof add, "add", LS_OP_IN_PLACE, infer, add_forward, add_backward};
static const ls_op_kind mul = {sizeof mul, "mul",       LS_OP_KEEP_INPUTS,
                               infer,      mul_forward, mul_backward};

static ls_tensor *combine(ls_graph *graph, const ls_op_kind *op, ls_tensor *a, ls_tensor *b)
{
    if (!lsi_layer_begin(graph, op->name, a, 1))
        return NULL;
    if (!b)
        return ls_graph_fail(graph, "its second operand is NULL");
    ls_tensor *inputs[2] = {a, b};
    if (b->kind == LSI_PARAM)
        return ls_op_add(graph, op, NULL, 0, 1, &a, 1, &b);
    return ls_op_add(graph, op, NULL, 0, 2, inputs, 0, NULL);
}

ls_tensor *ls_add(ls_graph *graph, ls_tensor *a, ls_tensor *b)
{
    return combine(graph, &add, a, b);
}

ls_tensor *ls_mul(ls_graph *graph, ls_tensor *a, ls_tensor *b)
{
    return combine(graph, &mul, a, b);
}

/* Activations, element by element. Inside a linear layer they cost less: ls_linear_with.
 *
 * 1. relu keeps its result, positive where the gradient passes, and may replace its input; the
 *    others keep their input.
 */
#include "nn/op.h"

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    LSI_TRY(lsi_need_f32(call, 0, 1, "input"));
    lsi_shape_as(&call->in[0], shape);
    return LS_OK;
}

static ls_status forward(const ls_op_call *call)
{
    const lsi_act *act = call->config;
    return LSI_KERNEL(call, act, *act, call->out.count, lsi_in(call, 0), call->out.data);
}

static ls_status backward(const ls_op_call *call)
{
    const lsi_act *act = call->config;
    if (!lsi_din(call, 0))
        return LS_OK;
    return LSI_KERNEL(call, act_grad, *act, call->out.count,
                      *act == LSI_ACT_RELU ? call->out.data : call->in[0].data, call->dout.data,
                      lsi_din(call, 0), call->add_in[0]);
}

/* Kinds are told apart by name in a profile; the order is that of lsi_act. */
static const ls_op_kind kinds[LSI_ACT_COUNT] = {
    [LSI_ACT_RELU] = {sizeof(ls_op_kind), "relu", LS_OP_KEEP_OUTPUT | LS_OP_IN_PLACE, infer,
                      forward, backward},
    [LSI_ACT_GELU_TANH] = {sizeof(ls_op_kind), "gelu", LS_OP_KEEP_INPUTS, infer, forward, backward},
    [LSI_ACT_GELU_ERF] = {sizeof(ls_op_kind), "gelu_erf", LS_OP_KEEP_INPUTS, infer, forward,
                          backward},
    [LSI_ACT_SILU] = {sizeof(ls_op_kind), "silu", LS_OP_KEEP_INPUTS, infer, forward, backward},
    [LSI_ACT_TANH] = {sizeof(ls_op_kind), "tanh", LS_OP_KEEP_INPUTS, infer, forward, backward},
    [LSI_ACT_SIGMOID] = {sizeof(ls_op_kind), "sigmoid", LS_OP_KEEP_INPUTS, infer, forward,
                         backward},
};

ls_tensor *ls_activate(ls_graph *graph, ls_tensor *x, ls_activation activation)
{
    const lsi_act act = lsi_act_of(activation);
    if (act == LSI_ACT_NONE)
        return lsi_layer_skip(graph, x);
    if (act == LSI_ACT_COUNT)
        return ls_graph_fail(graph, "%d is no activation", (int)activation);
    if (!lsi_layer_begin(graph, kinds[act].name, x, 1))
        return NULL;
    return ls_op_add(graph, &kinds[act], &act, sizeof act, 1, &x, 0, NULL);
}

ls_tensor *ls_relu(ls_graph *graph, ls_tensor *x)
{
    return ls_activate(graph, x, LS_RELU);
}

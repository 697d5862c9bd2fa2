/* Softmax over the last dimension. For a loss, ls_cross_entropy takes the logits themselves. */
#include "nn/op.h"

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    LSI_TRY(lsi_need_f32(call, 0, 2, "input"));
    lsi_shape_as(&call->in[0], shape);
    return LS_OK;
}

static ls_status forward(const ls_op_call *call)
{
    return LSI_KERNEL(call, softmax, lsi_rows(&call->in[0]), lsi_last(&call->in[0]),
                      lsi_in(call, 0), call->out.data);
}

static ls_status backward(const ls_op_call *call)
{
    if (!lsi_din(call, 0))
        return LS_OK;
    return LSI_KERNEL(call, softmax_grad, lsi_rows(&call->in[0]), lsi_last(&call->in[0]),
                      call->out.data, call->dout.data, lsi_din(call, 0), call->add_in[0]);
}

static const ls_op_kind softmax = {sizeof softmax, "softmax", LS_OP_KEEP_OUTPUT,
                                   infer,          forward,   backward};

ls_tensor *ls_softmax(ls_graph *graph, ls_tensor *x)
{
    if (!lsi_layer_begin(graph, softmax.name, x, 2))
        return NULL;
    return ls_op_add(graph, &softmax, NULL, 0, 1, &x, 0, NULL);
}

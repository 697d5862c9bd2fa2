/* Dropout: in training, each value is zero with probability p and divided by 1 - p otherwise.
 *
 * 1. Which values are dropped is a function of seed, step, node, the sample's place in the global
 *    batch and the element (device/kernels.h): not of who computes it. So nothing is kept: backward
 *    and recomputation draw again.
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
    const lsi_dropout drop =
        lsi_dropout_of(call, *(const float *)call->config, lsi_each(&call->in[0]));
    if (call->training)
        return LSI_KERNEL(call, dropout, &drop, lsi_in(call, 0), call->out.data, 0);
    if (call->out.data == call->in[0].data)
        return LS_OK;
    return LSI_KERNEL(call, scale, call->out.count, 1, lsi_in(call, 0), call->out.data, 0);
}

static ls_status backward(const ls_op_call *call)
{
    const lsi_dropout drop =
        lsi_dropout_of(call, *(const float *)call->config, lsi_each(&call->in[0]));
    if (!lsi_din(call, 0))
        return LS_OK;
    if (!call->training)
        return lsi_pass_gradient(call, 0);
    return LSI_KERNEL(call, dropout, &drop, call->dout.data, lsi_din(call, 0), call->add_in[0]);
}

static const ls_op_kind dropout = {sizeof dropout, "dropout", LS_OP_IN_PLACE,
                                   infer,          forward,   backward};

ls_tensor *ls_dropout(ls_graph *graph, ls_tensor *x, float p)
{
    if (p == 0)
        return lsi_layer_skip(graph, x);
    if (!lsi_layer_begin(graph, dropout.name, x, 1))
        return NULL;
    if (!(p > 0 && p < 1))
        return ls_graph_fail(graph, "its probability is %g, it must be in [0, 1)", (double)p);
    return ls_op_add(graph, &dropout, &p, sizeof p, 1, &x, 0, NULL);
}

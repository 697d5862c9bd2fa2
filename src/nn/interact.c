/* Dot interaction of a recommendation model: (f, d) -> (f (f - 1) / 2), each pair of rows.
 *
 * M. Naumov et al., "Deep learning recommendation model for personalization and recommendation
 * systems", 2019. Pairs (i, j) with i > j, in the order (1, 0), (2, 0), (2, 1), …
 */
#include "nn/op.h"

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    LSI_TRY(lsi_need_f32(call, 0, 3, "input"));
    const ls_view *x = &call->in[0];
    if (x->ndim != 3 || x->dims[1] < 2) {
        char text[LSI_SHAPE_TEXT];
        ls_graph_fail(call->graph, "its input is %s: it takes (batch, f, d) with at least 2 rows",
                      lsi_shape_text(x, text));
        return LS_ERR_INVALID;
    }
    const size_t pairs = x->dims[1] * (x->dims[1] - 1) / 2;
    shape->ndim = 2;
    shape->dims[0] = x->dims[0];
    shape->dims[1] = pairs;
    shape->flops_per_sample = 2.0 * (double)pairs * (double)x->dims[2];
    return LS_OK;
}

static ls_status forward(const ls_op_call *call)
{
    const size_t *x = call->in[0].dims;
    return LSI_KERNEL(call, interact, x[0], x[1], x[2], lsi_in(call, 0), call->out.data);
}

static ls_status backward(const ls_op_call *call)
{
    const size_t *x = call->in[0].dims;
    if (!lsi_din(call, 0))
        return LS_OK;
    return LSI_KERNEL(call, interact_grad, x[0], x[1], x[2], lsi_in(call, 0), call->dout.data,
                      lsi_din(call, 0), call->add_in[0]);
}

static const ls_op_kind interact = {sizeof interact, "interact", LS_OP_KEEP_INPUTS,
                                    infer,           forward,    backward};

ls_tensor *ls_interact(ls_graph *graph, ls_tensor *x)
{
    if (!lsi_layer_begin(graph, interact.name, x, 3))
        return NULL;
    return ls_op_add(graph, &interact, NULL, 0, 1, &x, 0, NULL);
}

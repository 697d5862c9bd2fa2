/* Dot interaction of a recommendation model: (f, d) -> (f (f - 1) / 2), each pair of rows.
 *
 * M. Naumov et al., "Deep learning recommendation model for personalization and recommendation
 * systems", 2019. Pairs (i, j) with i > j, in the order (1, 0), (2, 0), (2, 1), …
 *
 * The rows may come from many tensors, and the first one may stand before the products, as the
 * model has it: nothing is copied for that.
 */
#include "nn/op.h"

/* Rows of an input: (batch, f, d), or (batch, d). */
static size_t rows_of(const ls_view *x)
{
    return x->ndim == 3 ? x->dims[1] : 1;
}

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    const int head = *(const int *)call->config;
    size_t f = 0;
    for (int i = 0; i < call->inputs; i++) {
        LSI_TRY(lsi_need_f32(call, i, 2, "input"));
        const ls_view *x = &call->in[i];
        if (x->ndim > 3 || lsi_last(x) != lsi_last(&call->in[0])) {
            char text[LSI_SHAPE_TEXT];
            ls_graph_fail(call->graph,
                          "input %d is %s: it takes (batch, d) and (batch, f, d), all of one d", i,
                          lsi_shape_text(x, text));
            return LS_ERR_INVALID;
        }
        f += rows_of(x);
    }
    if (f < 2) {
        ls_graph_fail(call->graph, "it takes at least 2 rows, there is %zu", f);
        return LS_ERR_INVALID;
    }
    const size_t pairs = f * (f - 1) / 2, d = lsi_last(&call->in[0]);
    shape->ndim = 2;
    shape->dims[0] = call->in[0].dims[0];
    shape->dims[1] = (head ? d : 0) + pairs;
    shape->flops_per_sample = 2.0 * (double)pairs * (double)d;
    return LS_OK;
}

static void list_parts(const ls_op_call *call, lsi_features part[LS_OP_MAX_INPUTS])
{
    for (int i = 0; i < call->inputs; i++)
        part[i] = (lsi_features){rows_of(&call->in[i]), lsi_in(call, i), lsi_din(call, i),
                                 call->add_in[i]};
}

static ls_status forward(const ls_op_call *call)
{
    lsi_features part[LS_OP_MAX_INPUTS];
    list_parts(call, part);
    return LSI_KERNEL(call, interact, call->samples, lsi_last(&call->in[0]), call->inputs, part,
                      *(const int *)call->config, call->out.data);
}

static ls_status backward(const ls_op_call *call)
{
    lsi_features part[LS_OP_MAX_INPUTS];
    list_parts(call, part);
    return LSI_KERNEL(call, interact_grad, call->samples, lsi_last(&call->in[0]), call->inputs,
                      part, *(const int *)call->config, call->dout.data);
}

static const ls_op_kind interact = {sizeof interact, "interact", LS_OP_KEEP_INPUTS,
                                    infer,           forward,    backward};

ls_tensor *ls_interact(ls_graph *graph, ls_tensor *x)
{
    const int head = 0;
    if (!lsi_layer_begin(graph, interact.name, x, 3))
        return NULL;
    return ls_op_add(graph, &interact, &head, sizeof head, 1, &x, 0, NULL);
}

ls_tensor *ls_interact_all(ls_graph *graph, int count, ls_tensor *const *x)
{
    const int head = 1;
    if (!lsi_layer_begin(graph, interact.name, count > 0 && x ? x[0] : NULL, 2))
        return NULL;
    return ls_op_add(graph, &interact, &head, sizeof head, count, x, 0, NULL);
}

/* Normalisation of rows, with a learned scale: layer norm and RMS norm.
 *
 * J. Ba, J. Kiros, G. Hinton, "Layer normalization", 2016; B. Zhang, R. Sennrich, "Root mean square
 * layer normalization", 2019.
 *
 * 1. Kept from forward to backward: rstd of each row, and for layer norm its mean before it.
 */
#include "nn/op.h"

static lsi_norm shape_of(const ls_op_call *call)
{
    const int rms = *(const int *)call->config;
    return (lsi_norm){.rows = lsi_rows(&call->in[0]),
                      .c = lsi_last(&call->in[0]),
                      .eps = rms ? 1e-6f : 1e-5f,
                      .rms = rms};
}

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    const int rms = *(const int *)call->config;
    LSI_TRY(lsi_need_f32(call, 0, 2, "input"));
    lsi_shape_as(&call->in[0], shape);
    const size_t rows = lsi_each(&call->in[0]) / lsi_last(&call->in[0]);
    shape->kept_per_sample = (rms ? 1 : 2) * rows * sizeof(float);
    return LS_OK;
}

/* kept: rstd (rows), then mean (rows). */
static ls_status forward(const ls_op_call *call)
{
    const lsi_norm shape = shape_of(call);
    float *rstd = call->kept;
    return LSI_KERNEL(call, layernorm, &shape, lsi_in(call, 0), NULL, lsi_weight(call, 0),
                      lsi_weight(call, 1), NULL, call->out.data,
                      shape.rms ? NULL : rstd + shape.rows, rstd);
}

static ls_status backward(const ls_op_call *call)
{
    const lsi_norm shape = shape_of(call);
    const float *rstd = call->kept;
    return LSI_KERNEL(call, layernorm_grad, &shape, lsi_in(call, 0), lsi_weight(call, 0),
                      shape.rms ? NULL : rstd + shape.rows, rstd, call->dout.data, lsi_din(call, 0),
                      call->add_in[0], lsi_dparam(call, 0), lsi_dparam(call, 1),
                      call->add_param[0]);
}

static const ls_op_kind layer_norm = {sizeof layer_norm, "layer_norm", LS_OP_KEEP_INPUTS, infer,
                                      forward,           backward};
static const ls_op_kind rms_norm = {sizeof rms_norm, "rms_norm", LS_OP_KEEP_INPUTS,
                                    infer,           forward,    backward};

static ls_tensor *norm(ls_graph *graph, ls_tensor *x, int rms)
{
    const ls_op_kind *op = rms ? &rms_norm : &layer_norm;
    if (!lsi_layer_begin(graph, op->name, x, 2))
        return NULL;
    const size_t c = x->dims[x->ndim - 1];
    ls_param_config weight = LS_PARAM_CONFIG_INIT, bias = LS_PARAM_CONFIG_INIT;
    weight.init = LS_INIT_ONE;
    weight.no_decay = bias.no_decay = 1;
    ls_tensor *params[2] = {ls_param(graph, "weight", 1, &c, &weight), NULL};
    if (!rms)
        params[1] = ls_param(graph, "bias", 1, &c, &bias);
    return ls_op_add(graph, op, &rms, sizeof rms, 1, &x, rms ? 1 : 2, params);
}

ls_tensor *ls_layer_norm(ls_graph *graph, ls_tensor *x)
{
    return norm(graph, x, 0);
}

ls_tensor *ls_rms_norm(ls_graph *graph, ls_tensor *x)
{
    return norm(graph, x, 1);
}

/* Normalisation of rows, with a learned scale: layer norm and RMS norm, of x or of x + residual.
 *
 * J. Ba, J. Kiros, G. Hinton, "Layer normalization", 2016; B. Zhang, R. Sennrich, "Root mean square
 * layer normalization", 2019.
 *
 * 1. Kept from forward to backward: rstd of each row, then for layer norm its mean.
 * 2. With a residual the sum is the second output, and what backward reads. Sum and norm have one
 *    gradient: that of the sum plus what the norm makes of its own, the same for both operands.
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
    if (call->inputs == 1)
        return LS_OK;
    LSI_TRY(lsi_need_f32(call, 1, 2, "residual"));
    if (!lsi_same_shape(&call->in[0], &call->in[1])) {
        char x[LSI_SHAPE_TEXT], residual[LSI_SHAPE_TEXT];
        ls_graph_fail(call->graph, "its residual is %s, its input %s",
                      lsi_shape_text(&call->in[1], residual), lsi_shape_text(&call->in[0], x));
        return LS_ERR_INVALID;
    }
    shape->in_place = 1;
    return LS_OK;
}

/* kept: rstd (rows), then mean (rows). */
static ls_status forward(const ls_op_call *call)
{
    const lsi_norm shape = shape_of(call);
    float *rstd = call->kept;
    return LSI_KERNEL(call, layernorm, &shape, lsi_in(call, 0),
                      call->inputs > 1 ? lsi_in(call, 1) : NULL, lsi_weight(call, 0),
                      lsi_weight(call, 1), call->second.data, call->out.data,
                      shape.rms ? NULL : rstd + shape.rows, rstd);
}

/* dx (+)= the gradient of x through the norm; those of the parameters too, if asked. */
static ls_status grad(const ls_op_call *call, const float *x, float *dx, int add, int params)
{
    const lsi_norm shape = shape_of(call);
    const float *rstd = call->kept;
    return LSI_KERNEL(call, layernorm_grad, &shape, x, lsi_weight(call, 0),
                      shape.rms ? NULL : rstd + shape.rows, rstd, call->dout.data, dx, add,
                      params ? lsi_dparam(call, 0) : NULL, params ? lsi_dparam(call, 1) : NULL,
                      call->add_param[0]);
}

static ls_status backward(const ls_op_call *call)
{
    return grad(call, lsi_in(call, 0), lsi_din(call, 0), call->add_in[0], 1);
}

/* Nobody reads the norm, only the sum. */
static ls_status no_params(const ls_op_call *call)
{
    for (int i = 0; i < call->params; i++)
        if (!call->add_param[i])
            LSI_TRY(LSI_KERNEL(call, fill, call->param[i].count, 0, lsi_dparam(call, i)));
    return LS_OK;
}

/* Nobody reads the sum, only the norm: its gradient goes where it is written, and from there to the
 * other operand; twice where both have something already. */
static ls_status backward_norm(const ls_op_call *call, const float *sum)
{
    const int second_is_new = lsi_din(call, 1) && !call->add_in[1];
    const int i = !lsi_din(call, 0) || (call->add_in[0] && second_is_new);
    float *to = lsi_din(call, i), *other = lsi_din(call, 1 - i);
    LSI_TRY(grad(call, sum, to, call->add_in[i], 1));
    if (!other)
        return LS_OK;
    if (call->add_in[i] || to == other)
        return grad(call, sum, other, call->add_in[1 - i], 0);
    return LSI_KERNEL(call, scale, call->out.count, 1, to, other, call->add_in[1 - i]);
}

static ls_status backward_sum(const ls_op_call *call)
{
    const float *sum = call->second.data;
    float *dsum = call->dsecond.data;
    if (!dsum)
        return backward_norm(call, sum);
    LSI_TRY(call->dout.data ? grad(call, sum, dsum, 1, 1) : no_params(call));
    for (int i = 0; i < 2; i++)
        if (lsi_din(call, i) && lsi_din(call, i) != dsum)
            LSI_TRY(LSI_KERNEL(call, scale, call->out.count, 1, dsum, lsi_din(call, i),
                               call->add_in[i]));
    return LS_OK;
}

static const ls_op_kind layer_norm = {sizeof layer_norm, "layer_norm", LS_OP_KEEP_INPUTS, infer,
                                      forward,           backward};
static const ls_op_kind rms_norm = {sizeof rms_norm, "rms_norm", LS_OP_KEEP_INPUTS,
                                    infer,           forward,    backward};
#define OF_A_SUM (LS_OP_SECOND | LS_OP_KEEP_SECOND | LS_OP_IN_PLACE)
static const ls_op_kind add_layer_norm = {
    sizeof add_layer_norm, "add_layer_norm", OF_A_SUM, infer, forward, backward_sum};
static const ls_op_kind add_rms_norm = {
    sizeof add_rms_norm, "add_rms_norm", OF_A_SUM, infer, forward, backward_sum};

/* inputs: x, and the residual if there are two. */
static ls_tensor *norm(ls_graph *graph, const ls_op_kind *op, int inputs, ls_tensor *const *input,
                       int rms)
{
    ls_tensor *x = input[0];
    if (!lsi_layer_begin(graph, op->name, x, 2))
        return NULL;
    const size_t c = x->dims[x->ndim - 1];
    ls_param_config weight = LS_PARAM_CONFIG_INIT, bias = LS_PARAM_CONFIG_INIT;
    weight.init = LS_INIT_ONE;
    weight.no_decay = bias.no_decay = 1;
    ls_tensor *params[2] = {ls_param(graph, "weight", 1, &c, &weight), NULL};
    if (!rms)
        params[1] = ls_param(graph, "bias", 1, &c, &bias);
    return ls_op_add(graph, op, &rms, sizeof rms, inputs, input, rms ? 1 : 2, params);
}

static ls_tensor *norm_of_sum(ls_graph *graph, ls_tensor *x, ls_tensor *residual, ls_tensor **sum,
                              int rms)
{
    ls_tensor *const inputs[2] = {x, residual};
    ls_tensor *out = norm(graph, rms ? &add_rms_norm : &add_layer_norm, 2, inputs, rms);
    if (sum)
        *sum = ls_op_second(out);
    return out;
}

ls_tensor *ls_layer_norm(ls_graph *graph, ls_tensor *x)
{
    return norm(graph, &layer_norm, 1, &x, 0);
}

ls_tensor *ls_rms_norm(ls_graph *graph, ls_tensor *x)
{
    return norm(graph, &rms_norm, 1, &x, 1);
}

ls_tensor *ls_add_layer_norm(ls_graph *graph, ls_tensor *x, ls_tensor *residual, ls_tensor **sum)
{
    return norm_of_sum(graph, x, residual, sum, 0);
}

ls_tensor *ls_add_rms_norm(ls_graph *graph, ls_tensor *x, ls_tensor *residual, ls_tensor **sum)
{
    return norm_of_sum(graph, x, residual, sum, 1);
}

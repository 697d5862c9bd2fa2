/* Batch norm over all but the last dimension, with the residual and relu that follow it in a
 * ResNet.
 *
 * S. Ioffe, C. Szegedy, "Batch normalization", 2015.
 *
 * 1. In training, the statistics are those of the call's samples; what was observed (mean, and
 *    variance with n - 1 as PyTorch's) goes where the graph says, and is combined into the running
 *    buffers by whoever knows all the calls of a step.
 * 2. In evaluation, the running buffers are used, and no gradient is computed.
 * 3. Kept: mean, variance and rstd of each channel. relu is undone by the sign of the result, which
 *    without a residual is found again from the input.
 */
#include "nn/op.h"

enum { WEIGHT, BIAS, MEAN, VAR, PARAMS };

typedef struct batch_norm_config {
    int residual, relu;
} batch_norm_config;

static lsi_norm shape_of(const ls_op_call *call)
{
    const batch_norm_config *config = call->config;
    return (lsi_norm){.rows = lsi_rows(&call->in[0]),
                      .c = lsi_last(&call->in[0]),
                      .eps = 1e-5f,
                      .relu = config->relu};
}

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    const batch_norm_config *config = call->config;
    LSI_TRY(lsi_need_f32(call, 0, 2, "input"));
    if (config->residual) {
        LSI_TRY(lsi_need_f32(call, 1, 2, "residual"));
        if (!lsi_same_shape(&call->in[0], &call->in[1])) {
            char input[LSI_SHAPE_TEXT], residual[LSI_SHAPE_TEXT];
            ls_graph_fail(call->graph, "its residual is %s, its input %s",
                          lsi_shape_text(&call->in[1], residual),
                          lsi_shape_text(&call->in[0], input));
            return LS_ERR_INVALID;
        }
        shape->flags |= LS_OP_IN_PLACE;
        shape->in_place = 1;
        shape->unread = 1u << 1;
    }
    if (config->relu && config->residual)
        shape->flags |= LS_OP_KEEP_OUTPUT;
    lsi_shape_as(&call->in[0], shape);
    shape->kept_fixed = 3 * lsi_last(&call->in[0]) * sizeof(float);
    return LS_OK;
}

static ls_status forward(const ls_op_call *call)
{
    const batch_norm_config *config = call->config;
    const lsi_norm shape = shape_of(call);
    const float *residual = config->residual ? lsi_in(call, 1) : NULL;
    if (!call->training)
        return LSI_KERNEL(call, batchnorm_eval, &shape, lsi_in(call, 0), lsi_weight(call, WEIGHT),
                          lsi_weight(call, BIAS), residual, lsi_weight(call, MEAN),
                          lsi_weight(call, VAR), call->out.data);
    float *mean = call->kept, *rstd = mean + shape.c, *var = rstd + shape.c;
    LSI_TRY(LSI_KERNEL(call, batchnorm, &shape, lsi_in(call, 0), lsi_weight(call, WEIGHT),
                       lsi_weight(call, BIAS), residual, call->out.data, mean, var, rstd));
    const float unbiased = shape.rows > 1 ? (float)shape.rows / (float)(shape.rows - 1) : 1;
    if (lsi_dparam(call, MEAN))
        LSI_TRY(LSI_KERNEL(call, scale, shape.c, 1, mean, lsi_dparam(call, MEAN), 0));
    if (lsi_dparam(call, VAR))
        LSI_TRY(LSI_KERNEL(call, scale, shape.c, unbiased, var, lsi_dparam(call, VAR), 0));
    return LS_OK;
}

static ls_status backward(const ls_op_call *call)
{
    const batch_norm_config *config = call->config;
    const lsi_norm shape = shape_of(call);
    const float *mean = call->kept, *rstd = mean + shape.c;
    if (!call->training) {
        ls_graph_fail(call->graph, "batch norm has gradients in training only");
        return LS_ERR_UNSUPPORTED;
    }
    return LSI_KERNEL(call, batchnorm_grad, &shape, lsi_in(call, 0),
                      config->residual ? call->out.data : NULL, lsi_weight(call, WEIGHT),
                      lsi_weight(call, BIAS), mean, rstd, call->dout.data, lsi_din(call, 0),
                      call->add_in[0], config->residual ? lsi_din(call, 1) : NULL, call->add_in[1],
                      lsi_dparam(call, WEIGHT), lsi_dparam(call, BIAS), call->add_param[WEIGHT]);
}

static const ls_op_kind batch_norm = {sizeof batch_norm, "batch_norm", LS_OP_KEEP_INPUTS, infer,
                                      forward,           backward};

ls_tensor *ls_batch_norm(ls_graph *graph, ls_tensor *x, ls_tensor *residual, int relu)
{
    if (!lsi_layer_begin(graph, batch_norm.name, x, 2))
        return NULL;
    const size_t c = x->dims[x->ndim - 1];
    ls_param_config ones = LS_PARAM_CONFIG_INIT, zeros = LS_PARAM_CONFIG_INIT;
    ones.init = LS_INIT_ONE;
    ones.no_decay = zeros.no_decay = 1;
    ls_tensor *params[PARAMS], *inputs[2] = {x, residual};
    params[WEIGHT] = ls_param(graph, "weight", 1, &c, &ones);
    params[BIAS] = ls_param(graph, "bias", 1, &c, &zeros);
    ones.buffer = zeros.buffer = 1;
    params[MEAN] = ls_param(graph, "running_mean", 1, &c, &zeros);
    params[VAR] = ls_param(graph, "running_var", 1, &c, &ones);
    const batch_norm_config config = {residual != NULL, relu != 0};
    return ls_op_add(graph, &batch_norm, &config, sizeof config, 1 + config.residual, inputs,
                     PARAMS, params);
}

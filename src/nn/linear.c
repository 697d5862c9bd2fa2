/* Fully connected: y = act(residual + x · weight + bias), one kernel each way and operand.
 *
 * 1. The residual and the activation are part of the product's epilogue; backward undoes them in
 *    the same order: dout becomes the gradient before the activation in place, that is passed to
 *    the residual as it is, then multiplied by the weight and by x.
 * 2. relu keeps its result (positive where the gradient passes); the other activations keep their
 *    slope, which shares most of its computation with the value.
 * 3. A tied weight is an embedding table of (out, in), used as it lies.
 */
#include <math.h>

#include "nn/op.h"

typedef struct linear_config {
    size_t out;
    int tied, residual;
    lsi_act act;
} linear_config;

static int keeps_slope(lsi_act act)
{
    return act != LSI_ACT_NONE && act != LSI_ACT_RELU;
}

static lsi_linear shape_of(const ls_op_call *call)
{
    const linear_config *config = call->config;
    return (lsi_linear){.rows = lsi_rows(&call->in[0]),
                        .in = lsi_last(&call->in[0]),
                        .out = config->out,
                        .transposed = config->tied,
                        .act = config->act};
}

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    const linear_config *config = call->config;
    LSI_TRY(lsi_need_f32(call, 0, 2, "input"));
    const ls_view *x = &call->in[0];
    lsi_shape_as(x, shape);
    shape->dims[x->ndim - 1] = config->out;

    char text[LSI_SHAPE_TEXT];
    if (config->tied && (call->param[0].ndim != 2 || call->param[0].dims[0] != config->out ||
                         call->param[0].dims[1] != lsi_last(x))) {
        ls_graph_fail(call->graph, "the tied table is %s, it must be (%zu, %zu)",
                      lsi_shape_text(&call->param[0], text), config->out, lsi_last(x));
        return LS_ERR_INVALID;
    }
    if (config->residual) {
        LSI_TRY(lsi_need_f32(call, 1, 2, "residual"));
        ls_view y = *x;
        y.dims[y.ndim - 1] = config->out;
        if (!lsi_same_shape(&call->in[1], &y)) {
            char result[LSI_SHAPE_TEXT];
            ls_graph_fail(call->graph, "its residual is %s, its result %s",
                          lsi_shape_text(&call->in[1], text), lsi_shape_text(&y, result));
            return LS_ERR_INVALID;
        }
    }
    if (config->act == LSI_ACT_RELU)
        shape->flags |= LS_OP_KEEP_OUTPUT;
    if (config->residual) {
        shape->flags |= LS_OP_IN_PLACE;
        shape->in_place = 1;
        shape->unread = 1u << 1;
    }
    const size_t rows = lsi_each(x) / lsi_last(x);
    if (keeps_slope(config->act))
        shape->kept_per_sample = rows * config->out * sizeof(float);
    shape->flops_per_sample = 2.0 * (double)rows * (double)lsi_last(x) * (double)config->out;
    return LS_OK;
}

static ls_status forward(const ls_op_call *call)
{
    const linear_config *config = call->config;
    const lsi_linear shape = shape_of(call);
    return LSI_KERNEL(call, linear, &shape, lsi_in(call, 0), lsi_weight(call, 0),
                      lsi_weight(call, 1), config->residual ? lsi_in(call, 1) : NULL,
                      call->backward && keeps_slope(shape.act) ? call->kept : NULL, call->out.data);
}

static ls_status backward(const ls_op_call *call)
{
    const linear_config *config = call->config;
    const lsi_linear shape = shape_of(call);
    float *dy = call->dout.data;
    const size_t n = call->dout.count;
    if (keeps_slope(shape.act))
        LSI_TRY(LSI_KERNEL(call, mul, n, n, dy, call->kept, dy));
    else if (shape.act == LSI_ACT_RELU)
        LSI_TRY(LSI_KERNEL(call, act_grad, shape.act, n, call->out.data, dy, dy, 0));
    if (lsi_dparam(call, 0))
        LSI_TRY(LSI_KERNEL(call, linear_dw, &shape, lsi_in(call, 0), dy, lsi_dparam(call, 0),
                           lsi_dparam(call, 1), call->add_param[0]));
    if (lsi_din(call, 0))
        LSI_TRY(LSI_KERNEL(call, linear_dx, &shape, dy, lsi_weight(call, 0), lsi_din(call, 0),
                           call->add_in[0]));
    return config->residual ? lsi_pass_gradient(call, 1) : LS_OK;
}

static const ls_op_kind linear = {sizeof linear, "linear", LS_OP_KEEP_INPUTS,
                                  infer,         forward,  backward};

/* Make weight and bias for `in` values; returns how many there are. */
static int make_params(ls_graph *graph, size_t in, const ls_linear_config *config,
                       ls_tensor *params[2])
{
    if (config->tied) {
        params[0] = config->tied;
        return 1;
    }
    ls_param_config weight = LS_PARAM_CONFIG_INIT, bias = LS_PARAM_CONFIG_INIT;
    weight.layout = config->conv1d ? LS_LAYOUT_PLAIN : LS_LAYOUT_LINEAR;
    bias.no_decay = 1;
    if (config->init == LS_INIT_ZERO && config->init_scale == 0) {
        /* PyTorch: kaiming uniform with a = sqrt(5), which is this. */
        weight.init = bias.init = LS_INIT_UNIFORM;
        weight.init_scale = bias.init_scale = 1.0f / sqrtf((float)in);
    } else {
        weight.init = config->init;
        weight.init_scale = config->init_scale;
        bias.init = config->bias_scale > 0 ? config->init : LS_INIT_ZERO;
        bias.init_scale = config->bias_scale;
    }
    params[0] = ls_param(graph, "weight", 2, (size_t[]){in, config->out}, &weight);
    if (config->no_bias)
        return 1;
    params[1] = ls_param(graph, "bias", 1, &config->out, &bias);
    return 2;
}

ls_tensor *ls_linear_with(ls_graph *graph, ls_tensor *x, const ls_linear_config *config)
{
    if (!lsi_layer_begin(graph, "linear", x, 2) ||
        !lsi_config_fits(graph, config ? config->size : 0, sizeof *config))
        return NULL;
    if (config->out == 0)
        return ls_graph_fail(graph, "it has no outputs: out is 0");
    const linear_config op = {config->out, config->tied != NULL, config->residual != NULL,
                              lsi_act_of(config->activation)};
    if (op.act == LSI_ACT_COUNT)
        return ls_graph_fail(graph, "%d is no activation", (int)config->activation);

    ls_tensor *params[2], *inputs[2] = {x, config->residual};
    const int count = make_params(graph, x->dims[x->ndim - 1], config, params);
    return ls_op_add(graph, &linear, &op, sizeof op, 1 + op.residual, inputs, count, params);
}

ls_tensor *ls_linear(ls_graph *graph, ls_tensor *x, size_t out)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.out = out;
    return ls_linear_with(graph, x, &config);
}

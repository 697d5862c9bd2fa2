/* Convolution in two dimensions, channels last: (h, w, c) -> (oh, ow, out).
 *
 * 1. The kernel is square, with the same stride and padding in both directions; groups cut input
 *    and output channels into as many separate convolutions.
 */
#include <math.h>

#include "nn/op.h"

typedef struct conv_config {
    size_t out, kernel, stride, padding, groups;
} conv_config;

static lsi_conv shape_of(const ls_op_call *call)
{
    const conv_config *config = call->config;
    const size_t *x = call->in[0].dims, *y = call->out.dims;
    return (lsi_conv){.n = x[0],
                      .h = x[1],
                      .w = x[2],
                      .c = x[3],
                      .oh = y[1],
                      .ow = y[2],
                      .o = config->out,
                      .kh = config->kernel,
                      .kw = config->kernel,
                      .stride_h = config->stride,
                      .stride_w = config->stride,
                      .pad_h = config->padding,
                      .pad_w = config->padding,
                      .groups = config->groups};
}

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    const conv_config *config = call->config;
    LSI_TRY(lsi_need_f32(call, 0, 4, "input"));
    const size_t *x = call->in[0].dims, pad = 2 * config->padding;
    if (x[1] + pad < config->kernel || x[2] + pad < config->kernel) {
        ls_graph_fail(call->graph,
                      "a kernel of %zu is larger than its input of %zu x %zu, padded "
                      "by %zu",
                      config->kernel, x[1], x[2], config->padding);
        return LS_ERR_INVALID;
    }
    shape->ndim = 4;
    shape->dims[0] = x[0];
    shape->dims[1] = (x[1] + pad - config->kernel) / config->stride + 1;
    shape->dims[2] = (x[2] + pad - config->kernel) / config->stride + 1;
    shape->dims[3] = config->out;
    shape->flops_per_sample = 2.0 * (double)(shape->dims[1] * shape->dims[2]) *
                              (double)(config->kernel * config->kernel) *
                              (double)(x[3] / config->groups) * (double)config->out;
    return LS_OK;
}

static ls_status forward(const ls_op_call *call)
{
    const lsi_conv shape = shape_of(call);
    return LSI_KERNEL(call, conv2d, &shape, lsi_in(call, 0), lsi_weight(call, 0),
                      lsi_weight(call, 1), call->out.data);
}

static ls_status backward(const ls_op_call *call)
{
    const lsi_conv shape = shape_of(call);
    const float *dy = call->dout.data;
    LSI_TRY(LSI_KERNEL(call, conv2d_dw, &shape, lsi_in(call, 0), dy, lsi_dparam(call, 0),
                       lsi_dparam(call, 1), call->add_param[0]));
    if (!lsi_din(call, 0))
        return LS_OK;
    return LSI_KERNEL(call, conv2d_dx, &shape, dy, lsi_weight(call, 0), lsi_din(call, 0),
                      call->add_in[0]);
}

static const ls_op_kind conv2d = {sizeof conv2d, "conv2d", LS_OP_KEEP_INPUTS,
                                  infer,         forward,  backward};

ls_tensor *ls_conv2d(ls_graph *graph, ls_tensor *x, const ls_conv2d_config *config)
{
    if (!lsi_layer_begin(graph, "conv2d", x, 4) ||
        !lsi_config_fits(graph, config ? config->size : 0, sizeof *config))
        return NULL;
    const conv_config op = {config->out, config->kernel, config->stride ? config->stride : 1,
                            config->padding, config->groups ? config->groups : 1};
    const size_t c = x->dims[3];
    if (op.out == 0 || op.kernel == 0)
        return ls_graph_fail(graph,
                             "its kernel is %zu and it has %zu outputs: both must be above 0",
                             op.kernel, op.out);
    if (c % op.groups || op.out % op.groups)
        return ls_graph_fail(graph, "%zu groups do not divide both %zu channels and %zu outputs",
                             op.groups, c, op.out);

    /* PyTorch: kaiming uniform with a = sqrt(5), or as the caller says. */
    const float bound = 1.0f / sqrtf((float)(c / op.groups * op.kernel * op.kernel));
    ls_param_config weight = LS_PARAM_CONFIG_INIT, bias = LS_PARAM_CONFIG_INIT;
    const int standard = config->init == LS_INIT_ZERO && config->init_scale == 0;
    weight.init = standard ? LS_INIT_UNIFORM : config->init;
    weight.init_scale = standard ? bound : config->init_scale;
    bias.init = standard ? LS_INIT_UNIFORM : LS_INIT_ZERO;
    bias.init_scale = standard ? bound : 0;
    bias.no_decay = 1;
    weight.layout = LS_LAYOUT_CONV;
    ls_tensor *params[2];
    int count = 0;
    params[count++] = ls_param(graph, "weight", 4,
                               (size_t[]){op.kernel, op.kernel, c / op.groups, op.out}, &weight);
    if (config->bias)
        params[count++] = ls_param(graph, "bias", 1, &op.out, &bias);
    return ls_op_add(graph, &conv2d, &op, sizeof op, 1, &x, count, params);
}

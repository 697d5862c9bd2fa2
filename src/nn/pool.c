/* Pooling, channels last: (h, w, c) -> (oh, ow, c).
 *
 * 1. The largest of a window: the place it came from is kept, the first of equals; padding never
 *    wins. 2. The mean of a window divides by its whole size, padding included, as PyTorch does by
 *    default. The global mean is one window as large as the image.
 */
#include "nn/op.h"

typedef struct pool_config {
    size_t kernel, stride, padding; /* kernel 0: the whole image */
} pool_config;

static lsi_pool shape_of(const ls_op_call *call)
{
    const pool_config *config = call->config;
    const size_t *x = call->in[0].dims, *y = call->out.dims;
    const int global = config->kernel == 0;
    return (lsi_pool){.n = x[0],
                      .h = x[1],
                      .w = x[2],
                      .c = x[3],
                      .oh = global ? 1 : y[1],
                      .ow = global ? 1 : y[2],
                      .kh = global ? x[1] : config->kernel,
                      .kw = global ? x[2] : config->kernel,
                      .stride_h = global ? 1 : config->stride,
                      .stride_w = global ? 1 : config->stride,
                      .pad_h = config->padding,
                      .pad_w = config->padding};
}

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    const pool_config *config = call->config;
    LSI_TRY(lsi_need_f32(call, 0, 4, "input"));
    const size_t *x = call->in[0].dims, pad = 2 * config->padding;
    if (call->in[0].ndim != 4 || x[1] + pad < config->kernel || x[2] + pad < config->kernel ||
        config->kernel == 0 || config->stride == 0 || pad > config->kernel) {
        char text[LSI_SHAPE_TEXT];
        ls_graph_fail(
            call->graph,
            "windows of %zu every %zu with padding %zu do not fit an input of %s: it takes "
            "(batch, h, w, c), windows no larger than that, and padding of at most half",
            config->kernel, config->stride, config->padding, lsi_shape_text(&call->in[0], text));
        return LS_ERR_INVALID;
    }
    shape->ndim = 4;
    shape->dims[0] = x[0];
    shape->dims[1] = (x[1] + pad - config->kernel) / config->stride + 1;
    shape->dims[2] = (x[2] + pad - config->kernel) / config->stride + 1;
    shape->dims[3] = x[3];
    return LS_OK;
}

static ls_status max_infer(const ls_op_call *call, ls_op_shape *shape)
{
    LSI_TRY(infer(call, shape));
    shape->kept_per_sample = shape->dims[1] * shape->dims[2] * shape->dims[3] * sizeof(int32_t);
    return LS_OK;
}

static ls_status max_forward(const ls_op_call *call)
{
    const lsi_pool shape = shape_of(call);
    return LSI_KERNEL(call, maxpool, &shape, lsi_in(call, 0), call->out.data, call->kept);
}

static ls_status max_backward(const ls_op_call *call)
{
    const lsi_pool shape = shape_of(call);
    if (!lsi_din(call, 0))
        return LS_OK;
    return LSI_KERNEL(call, maxpool_grad, &shape, call->kept, call->dout.data, lsi_din(call, 0),
                      call->add_in[0]);
}

static ls_status mean_forward(const ls_op_call *call)
{
    const lsi_pool shape = shape_of(call);
    return LSI_KERNEL(call, avgpool, &shape, lsi_in(call, 0), call->out.data);
}

static ls_status mean_backward(const ls_op_call *call)
{
    const lsi_pool shape = shape_of(call);
    if (!lsi_din(call, 0))
        return LS_OK;
    return LSI_KERNEL(call, avgpool_grad, &shape, call->dout.data, lsi_din(call, 0),
                      call->add_in[0]);
}

static ls_status global_infer(const ls_op_call *call, ls_op_shape *shape)
{
    LSI_TRY(lsi_need_f32(call, 0, 4, "input"));
    shape->ndim = 2;
    shape->dims[0] = call->in[0].dims[0];
    shape->dims[1] = call->in[0].dims[3];
    return LS_OK;
}

static const ls_op_kind max_pool = {sizeof max_pool, "max_pool",  0,
                                    max_infer,       max_forward, max_backward};
static const ls_op_kind avg_pool = {sizeof avg_pool, "avg_pool",   0,
                                    infer,           mean_forward, mean_backward};
static const ls_op_kind global_pool = {sizeof global_pool, "global_pool", 0,
                                       global_infer,       mean_forward,  mean_backward};

static ls_tensor *windows(ls_graph *graph, const ls_op_kind *op, ls_tensor *x, size_t kernel,
                          size_t stride, size_t padding)
{
    const pool_config config = {kernel, stride ? stride : kernel, padding};
    if (!lsi_layer_begin(graph, op->name, x, 4))
        return NULL;
    return ls_op_add(graph, op, &config, sizeof config, 1, &x, 0, NULL);
}

ls_tensor *ls_max_pool(ls_graph *graph, ls_tensor *x, size_t kernel, size_t stride, size_t padding)
{
    return windows(graph, &max_pool, x, kernel, stride, padding);
}

ls_tensor *ls_avg_pool(ls_graph *graph, ls_tensor *x, size_t kernel, size_t stride, size_t padding)
{
    return windows(graph, &avg_pool, x, kernel, stride, padding);
}

ls_tensor *ls_global_pool(ls_graph *graph, ls_tensor *x)
{
    return windows(graph, &global_pool, x, 0, 0, 0);
}

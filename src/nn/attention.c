/* Multi-head attention, queries, keys and values side by side: (t, 3 width) -> (t, width).
 *
 * A. Vaswani et al., "Attention is all you need", 2017. The matrix of t x t probabilities is never
 * in memory: T. Dao et al., "FlashAttention", 2022.
 *
 * 1. Kept: the result, and the logarithm of each row's sum of exponentials, from which backward
 *    finds the probabilities again.
 * 2. Dropout of the probabilities is drawn as everywhere (dropout.c), and drawn again in backward.
 */
#include <math.h>

#include "nn/op.h"

typedef struct attention_config {
    size_t heads;
    int causal;
    float dropout;
} attention_config;

/* qkv is (n, t, 3, heads, hd). */
static lsi_attention shape_of(const ls_op_call *call, const lsi_dropout *drop)
{
    const attention_config *config = call->config;
    const size_t *qkv = call->in[0].dims, hd = qkv[2] / 3 / config->heads;
    return (lsi_attention){.n = qkv[0],
                           .t = qkv[1],
                           .heads = config->heads,
                           .hd = hd,
                           .stride = qkv[2],
                           .causal = config->causal,
                           .scale = 1.0f / sqrtf((float)hd),
                           .dropout = call->training && config->dropout > 0 ? drop : NULL};
}

static ls_status infer(const ls_op_call *call, ls_op_shape *shape)
{
    const attention_config *config = call->config;
    LSI_TRY(lsi_need_f32(call, 0, 3, "input"));
    const ls_view *qkv = &call->in[0];
    if (qkv->ndim != 3 || config->heads == 0 || qkv->dims[2] % (3 * config->heads)) {
        char text[LSI_SHAPE_TEXT];
        ls_graph_fail(call->graph,
                      "its input is %s: it takes (batch, t, 3 width) with a width that %zu heads "
                      "divide",
                      lsi_shape_text(qkv, text), config->heads);
        return LS_ERR_INVALID;
    }
    const size_t t = qkv->dims[1], width = qkv->dims[2] / 3;
    lsi_shape_as(qkv, shape);
    shape->dims[2] = width;
    shape->kept_per_sample = config->heads * t * sizeof(float);
    const double pairs = config->causal ? (double)t * (double)(t + 1) / 2 : (double)t * (double)t;
    shape->flops_per_sample = 4.0 * pairs * (double)width;
    return LS_OK;
}

static ls_status forward(const ls_op_call *call)
{
    const attention_config *config = call->config;
    const lsi_dropout drop = lsi_dropout_of(call, config->dropout, 0);
    const lsi_attention shape = shape_of(call, &drop);
    const size_t width = shape.heads * shape.hd;
    const float *q = lsi_in(call, 0);
    return LSI_KERNEL(call, attention, &shape, q, q + width, q + 2 * width, call->out.data,
                      call->kept);
}

static ls_status gradient(const ls_op_call *call, float *dq)
{
    const attention_config *config = call->config;
    const lsi_dropout drop = lsi_dropout_of(call, config->dropout, 0);
    const lsi_attention shape = shape_of(call, &drop);
    const size_t width = shape.heads * shape.hd;
    const float *q = lsi_in(call, 0);
    return LSI_KERNEL(call, attention_grad, &shape, q, q + width, q + 2 * width, call->out.data,
                      call->kept, call->dout.data, dq, dq + width, dq + 2 * width);
}

static ls_status backward(const ls_op_call *call)
{
    float *to = lsi_din(call, 0);
    if (!to || !call->add_in[0])
        return to ? gradient(call, to) : LS_OK;
    /* The kernel writes. Somebody else read qkv too, which no model does: worth an allocation. */
    void *written;
    const lsi_device_ops *ops = call->device->ops;
    LSI_TRY(ops->alloc(call->in[0].count * sizeof(float), &written));
    ls_status status = gradient(call, written);
    if (status == LS_OK)
        status = LSI_KERNEL(call, scale, call->in[0].count, 1, written, to, 1);
    ops->free(written);
    return status;
}

static const ls_op_kind attention = {
    sizeof attention, "attention", LS_OP_KEEP_INPUTS | LS_OP_KEEP_OUTPUT, infer, forward, backward};

ls_tensor *ls_attention(ls_graph *graph, ls_tensor *qkv, size_t heads, int causal, float dropout)
{
    if (!lsi_layer_begin(graph, attention.name, qkv, 3))
        return NULL;
    if (!(dropout >= 0 && dropout < 1))
        return ls_graph_fail(graph, "its dropout is %g, it must be in [0, 1)", (double)dropout);
    const attention_config config = {heads, causal != 0, dropout};
    return ls_op_add(graph, &attention, &config, sizeof config, 1, &qkv, 0, NULL);
}

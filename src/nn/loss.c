/* Losses: sums over what counts, and their gradient in the same pass.
 *
 * 1. forward writes the gradient when a backward pass follows, so that the logits are read once; it
 *    may take their place. There is nothing left for backward to do.
 * 2. Rows that do not count (label `ignore`) have a gradient of zero.
 */
#include "nn/op.h"

static ls_status done_in_forward(const ls_op_call *call)
{
    (void)call;
    return LS_OK;
}

/* Where the gradient of input i goes, NULL when nobody wants it in this run. */
static float *gradient_of(const ls_op_call *call, int i)
{
    return call->backward ? call->din[i].data : NULL;
}

static void shape_of_loss(ls_op_shape *shape)
{
    shape->ndim = 1;
    shape->dims[0] = 1;
}

/* ---- cross entropy -------------------------------------------------------------------------- */

typedef struct cross_entropy_config {
    float smoothing;
    int32_t ignore;
} cross_entropy_config;

static ls_status cross_entropy_infer(const ls_op_call *call, ls_op_shape *shape)
{
    const ls_view *logits = &call->in[0], *labels = &call->in[1];
    LSI_TRY(lsi_need_f32(call, 0, 2, "logits"));
    LSI_TRY(lsi_need_i32(call, 1, 1, "labels"));
    ls_view rows = *logits;
    rows.ndim--;
    if (!lsi_same_shape(&rows, labels)) {
        char a[LSI_SHAPE_TEXT], b[LSI_SHAPE_TEXT];
        ls_graph_fail(call->graph,
                      "its logits are %s and its labels %s; there must be one label a "
                      "row of logits",
                      lsi_shape_text(logits, a), lsi_shape_text(labels, b));
        return LS_ERR_INVALID;
    }
    shape_of_loss(shape);
    return LS_OK;
}

static ls_status cross_entropy_forward(const ls_op_call *call)
{
    const cross_entropy_config *config = call->config;
    const ls_view *logits = &call->in[0], *labels = &call->in[1];
    const size_t rows = labels->count, classes = lsi_last(logits);
    LSI_TRY(lsi_check_ids(call, "label", rows, labels->data, classes, config->ignore));
    double loss = 0;
    size_t counted = 0;
    LSI_TRY(LSI_KERNEL(call, cross_entropy, rows, classes, logits->data, labels->data,
                       config->ignore, config->smoothing, &loss, &counted, gradient_of(call, 0)));
    ls_op_set_loss(call, loss, (double)counted);
    return LS_OK;
}

static const ls_op_kind cross_entropy = {
    sizeof cross_entropy, "cross_entropy",       LS_OP_LOSS,
    cross_entropy_infer,  cross_entropy_forward, done_in_forward};

ls_tensor *ls_cross_entropy(ls_graph *graph, ls_tensor *logits, ls_tensor *labels, float smoothing,
                            int32_t ignore)
{
    if (!lsi_layer_begin(graph, cross_entropy.name, logits, 2))
        return NULL;
    if (!(smoothing >= 0 && smoothing <= 1))
        return ls_graph_fail(graph, "its label smoothing is %g, it must be in [0, 1]",
                             (double)smoothing);
    ls_tensor *inputs[2] = {logits, labels};
    const cross_entropy_config config = {smoothing, ignore};
    ls_tensor *out = ls_op_add(graph, &cross_entropy, &config, sizeof config, 2, inputs, 0, NULL);
    if (out)
        lsi_tensor_limit(labels, logits->dims[logits->ndim - 1]);
    return out;
}

/* ---- against targets of the same shape ------------------------------------------------------ */

static ls_status pair_infer(const ls_op_call *call, ls_op_shape *shape)
{
    const ls_view *x = &call->in[0], *targets = &call->in[1];
    LSI_TRY(lsi_need_f32(call, 0, 1, "input"));
    LSI_TRY(lsi_need_f32(call, 1, 1, "targets"));
    if (!lsi_same_shape(x, targets)) {
        char a[LSI_SHAPE_TEXT], b[LSI_SHAPE_TEXT];
        ls_graph_fail(call->graph, "its input is %s and its targets are %s; they must be the same",
                      lsi_shape_text(x, a), lsi_shape_text(targets, b));
        return LS_ERR_INVALID;
    }
    shape_of_loss(shape);
    return LS_OK;
}

/* loss = x - x target + log(1 + exp(-x)): the gradient of a target that is computed is -x. */
static ls_status bce_forward(const ls_op_call *call)
{
    const size_t n = call->in[0].count;
    double loss = 0;
    if (gradient_of(call, 1))
        LSI_TRY(LSI_KERNEL(call, scale, n, -1, lsi_in(call, 0), gradient_of(call, 1), 0));
    LSI_TRY(
        LSI_KERNEL(call, bce, n, lsi_in(call, 0), lsi_in(call, 1), &loss, gradient_of(call, 0)));
    ls_op_set_loss(call, loss, (double)n);
    return LS_OK;
}

/* The gradient of a target that is computed is the other's with its sign changed. */
static ls_status mse_forward(const ls_op_call *call)
{
    const size_t n = call->in[0].count;
    float *dx = gradient_of(call, 0), *dt = gradient_of(call, 1);
    double loss = 0;
    LSI_TRY(LSI_KERNEL(call, mse, n, lsi_in(call, 0), lsi_in(call, 1), &loss, dx ? dx : dt));
    if (dt)
        LSI_TRY(LSI_KERNEL(call, scale, n, -1, dx ? dx : dt, dt, 0));
    ls_op_set_loss(call, loss, (double)n);
    return LS_OK;
}

static const ls_op_kind bce = {sizeof bce, "bce",       LS_OP_LOSS,
                               pair_infer, bce_forward, done_in_forward};
static const ls_op_kind mse = {sizeof mse, "mse",       LS_OP_LOSS,
                               pair_infer, mse_forward, done_in_forward};

static ls_tensor *against(ls_graph *graph, const ls_op_kind *op, ls_tensor *x, ls_tensor *targets)
{
    if (!lsi_layer_begin(graph, op->name, x, 1))
        return NULL;
    ls_tensor *inputs[2] = {x, targets};
    return ls_op_add(graph, op, NULL, 0, 2, inputs, 0, NULL);
}

ls_tensor *ls_bce_with_logits(ls_graph *graph, ls_tensor *logits, ls_tensor *targets)
{
    return against(graph, &bce, logits, targets);
}

ls_tensor *ls_mse(ls_graph *graph, ls_tensor *x, ls_tensor *targets)
{
    return against(graph, &mse, x, targets);
}

/* A layer from outside of the library: PReLU, which learns for each channel how much of the
 * negative values it lets through. y = x where x is positive, else slope · x.
 *
 * A layer is an ls_op_kind: how shapes follow, forward, backward. Here its gradient is compared
 * with differences, and it learns a slope that it is shown.
 *
 *     ./custom_layer
 */
#include <math.h>
#include <stdio.h>

#include <lockstep/lockstep.h>

#define BATCH 64
#define CHANNELS 5

/* x (batch, …, channels), slope (channels) -> the shape of x, which is what infer finds already. */
static ls_status prelu_infer(const ls_op_call *call, ls_op_shape *shape)
{
    const ls_view *x = &call->in[0];
    if (x->dtype != LS_F32 || x->dims[x->ndim - 1] != call->param[0].dims[0]) {
        ls_graph_fail(call->graph, "it takes one slope for each channel of its input");
        return LS_ERR_INVALID;
    }
    shape->flops_per_sample = (double)x->count / (double)x->dims[0];
    return LS_OK;
}

static ls_status prelu_forward(const ls_op_call *call)
{
    const float *x = call->in[0].data, *slope = call->param[0].data;
    float *y = call->out.data;
    for (size_t i = 0; i < call->out.count; i++)
        y[i] = x[i] > 0 ? x[i] : slope[i % call->param[0].count] * x[i];
    return LS_OK;
}

/* Gradients are written, or added to where the call says so; nobody may want that of the input. */
static ls_status prelu_backward(const ls_op_call *call)
{
    const size_t channels = call->param[0].count;
    const float *x = call->in[0].data, *slope = call->param[0].data, *dy = call->dout.data;
    float *dx = call->din[0].data, *dslope = call->dparam[0].data;
    for (size_t c = 0; c < channels && !call->add_param[0]; c++)
        dslope[c] = 0;
    for (size_t i = 0; i < call->dout.count; i++)
        dslope[i % channels] += x[i] > 0 ? 0 : dy[i] * x[i];
    for (size_t i = 0; dx && i < call->dout.count; i++)
        dx[i] = (x[i] > 0 ? 1 : slope[i % channels]) * dy[i] + (call->add_in[0] ? dx[i] : 0);
    return LS_OK;
}

/* backward reads the input, so it is kept until then. */
static const ls_op_kind prelu_kind = {sizeof prelu_kind, "prelu",       LS_OP_KEEP_INPUTS,
                                      prelu_infer,       prelu_forward, prelu_backward};

static ls_tensor *prelu(ls_graph *graph, ls_tensor *x)
{
    if (!x)
        return NULL;
    ls_param_config config = LS_PARAM_CONFIG_INIT; /* zeros: a relu to begin with */
    config.no_decay = 1;
    ls_layer(graph, "prelu");
    ls_tensor *slope =
        ls_param(graph, "slope", 1, &ls_tensor_dims(x)[ls_tensor_ndim(x) - 1], &config);
    return ls_op_add(graph, &prelu_kind, NULL, 0, 1, &x, 1, &slope);
}

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ls_last_error());
    return 1;
}

/* The loss (and gradients) for slopes 0, 0.1, 0.2, … as the truth. */
static double run(ls_graph *graph, ls_tensor *x, ls_tensor *truth)
{
    float *values = ls_input_data(graph, x), *targets = ls_input_data(graph, truth);
    for (int i = 0; i < BATCH * CHANNELS; i++) {
        values[i] = sinf((float)(i * i));
        targets[i] = values[i] > 0 ? values[i] : 0.1f * (float)(i % CHANNELS) * values[i];
    }
    ls_run_config config = LS_RUN_CONFIG_INIT;
    ls_run_result result;
    config.training = config.backward = 1;
    return ls_graph_run(graph, &config, &result) == LS_OK ? result.loss : NAN;
}

int main(void)
{
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.batch = BATCH;
    ls_graph *graph;
    if (ls_graph_create(&config, &graph) != LS_OK)
        return fail("ls_graph_create");
    ls_tensor *x = ls_input(graph, "x", LS_F32, 1, (size_t[]){CHANNELS});
    ls_tensor *truth = ls_input(graph, "truth", LS_F32, 1, (size_t[]){CHANNELS});
    ls_tensor *loss = ls_mse(graph, prelu(graph, x), truth);
    if (ls_graph_compile(graph, loss, NULL) != LS_OK)
        return fail("ls_graph_compile");

    float *slope = ls_graph_params(graph), *gradient = ls_graph_grads(graph);
    slope[2] = 0.51f;
    const double above = run(graph, x, truth);
    slope[2] = 0.49f;
    const double below = run(graph, x, truth), difference = (above - below) / 0.02;
    slope[2] = 0.5f;
    run(graph, x, truth);
    printf("gradient of slope 2: %.4f, by differences %.4f\n", (double)gradient[2], difference);
    if (!(fabs((double)gradient[2] - difference) < 0.01))
        return fail("the gradient is wrong");

    for (int step = 0; step < 50; step++) {
        run(graph, x, truth);
        for (int c = 0; c < CHANNELS; c++)
            slope[c] -= 0.02f * gradient[c];
    }
    for (int c = 0; c < CHANNELS; c++)
        printf("slope %d: %.3f\n", c, (double)slope[c]);
    const int learned = fabsf(slope[3] - 0.3f) < 0.001f;
    ls_graph_destroy(graph);
    return learned ? 0 : 1;
}

/* The bench that layers are tested on. */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"

/* ---- random numbers ------------------------------------------------------------------------- */

static float number(uint32_t seed, uint32_t place)
{
    const uint32_t counter[4] = {place, 0, 0, 0}, key[2] = {seed, 77};
    uint32_t words[4];
    lsi_philox(counter, key, words);
    return lsi_philox_uniform(words[0]) * 2 - 1;
}

/* ---- a leaf that has a gradient: a parameter of the whole batch's size ---------------------- */

static ls_status leaf_infer(const ls_op_call *call, ls_op_shape *shape)
{
    shape->ndim = call->param[0].ndim;
    memcpy(shape->dims, call->param[0].dims, sizeof shape->dims);
    return LS_OK;
}

static ls_status leaf_forward(const ls_op_call *call)
{
    memcpy(call->out.data, call->param[0].data, call->out.count * sizeof(float));
    return LS_OK;
}

static ls_status leaf_backward(const ls_op_call *call)
{
    float *to = call->dparam[0].data;
    const float *from = call->dout.data;
    for (size_t i = 0; i < call->dout.count; i++)
        to[i] = call->add_param[0] ? to[i] + from[i] : from[i];
    return LS_OK;
}

static const ls_op_kind leaf_kind = {sizeof leaf_kind, "leaf",       0,
                                     leaf_infer,       leaf_forward, leaf_backward};

ls_tensor *leaf(bench *b, int ndim, const size_t *dims)
{
    size_t with_batch[LS_MAX_DIMS] = {b->config.batch};
    for (int i = 0; i < ndim; i++)
        with_batch[i + 1] = dims[i];
    ls_tensor *x;
    if (b->config.as_inputs) {
        x = ls_input(b->graph, "leaf", LS_F32, ndim, dims);
    } else {
        ls_layer(b->graph, "leaf");
        ls_param_config config = LS_PARAM_CONFIG_INIT;
        ls_tensor *param = ls_param(b->graph, "value", ndim + 1, with_batch, &config);
        x = ls_op_add(b->graph, &leaf_kind, NULL, 0, 0, NULL, 1, &param);
    }
    b->leaf[b->leaves++] = x;
    return x;
}

ls_tensor *leaf_ids(bench *b, int ndim, const size_t *dims, int32_t low, int32_t high)
{
    ls_tensor *x = ls_input(b->graph, "ids", LS_I32, ndim, dims);
    b->id_low[b->ids] = low;
    b->id_high[b->ids] = high;
    b->id[b->ids++] = x;
    return x;
}

ls_tensor *leaf_param(bench *b, int ndim, const size_t *dims)
{
    ls_layer(b->graph, "free");
    ls_param_config config = LS_PARAM_CONFIG_INIT;
    return ls_param(b->graph, "value", ndim, dims, &config);
}

/* ---- the loss: a sum with fixed weights ----------------------------------------------------- */

static ls_status weigh_infer(const ls_op_call *call, ls_op_shape *shape)
{
    (void)call;
    shape->ndim = 1;
    shape->dims[0] = 1;
    return LS_OK;
}

static ls_status weigh_forward(const ls_op_call *call)
{
    double sum = 0;
    for (int i = 0; i < call->inputs; i++) {
        const float *x = call->in[i].data;
        for (size_t k = 0; k < call->in[i].count; k++)
            sum += (double)number((uint32_t)i + 5, (uint32_t)k) * (double)x[k];
    }
    ls_op_set_loss(call, sum, 1);
    return LS_OK;
}

static ls_status weigh_backward(const ls_op_call *call)
{
    for (int i = 0; i < call->inputs; i++) {
        float *to = call->din[i].data;
        for (size_t k = 0; to && k < call->in[i].count; k++) {
            const float weight = number((uint32_t)i + 5, (uint32_t)k);
            to[k] = call->add_in[i] ? to[k] + weight : weight;
        }
    }
    return LS_OK;
}

static const ls_op_kind weigh_kind = {sizeof weigh_kind, "weigh",       LS_OP_LOSS,
                                      weigh_infer,       weigh_forward, weigh_backward};

/* ---- a case --------------------------------------------------------------------------------- */

void bench_open(bench *b, const layer_case *c, const bench_config *config)
{
    memset(b, 0, sizeof *b);
    b->config = *config;
    if (!b->config.batch)
        b->config.batch = c->batch;
    ls_graph_config graph = LS_GRAPH_CONFIG_INIT;
    graph.device = config->device;
    graph.batch = b->config.batch;
    graph.seed = 3;
    assert_int_equal(ls_graph_create(&graph, &b->graph), LS_OK);
    ls_tensor *result = c->build(b), *loss = result;
    if (!c->is_loss) {
        b->out = result;
        ls_tensor *inputs[1 + LEAVES_MAX] = {result};
        int count = 1;
        for (int i = 0; i < b->leaves && config->shared; i++)
            inputs[count++] = b->leaf[i];
        loss = ls_op_add(b->graph, &weigh_kind, NULL, 0, count, inputs, 0, NULL);
    }
    if (ls_graph_compile(b->graph, loss, b->out) != LS_OK)
        fail_msg("case %s on %s: %s", c->name, config->device, ls_last_error());
}

void bench_close(bench *b)
{
    ls_graph_destroy(b->graph);
    b->graph = NULL;
}

void bench_fill(bench *b, uint32_t seed)
{
    float *params = ls_graph_params(b->graph), *buffers = ls_graph_buffers(b->graph);
    for (int i = 0; i < ls_graph_param_count(b->graph); i++) {
        ls_param_info info;
        assert_int_equal(ls_graph_param(b->graph, i, &info), LS_OK);
        /* By name: the order of parameters is not the same in every variant of a case. */
        uint32_t key = seed;
        for (const char *at = info.name; *at; at++)
            key = key * 31 + (unsigned char)*at;
        for (size_t k = 0; k < info.count; k++)
            params[info.offset + k] = number(key, (uint32_t)k);
    }
    for (size_t i = 0; i < ls_graph_buffer_elements(b->graph); i++)
        buffers[i] = 1 + 0.5f * number(seed + 1, (uint32_t)i);
    b->seed = seed;
    bench_fill_inputs(b);
}

/* [low, high) of an input of ids. */
static void range_of(const bench *b, const ls_tensor *input, int32_t *low, int32_t *high)
{
    for (int i = 0; i < b->ids; i++) {
        if (b->id[i] == input) {
            *low = b->id_low[i];
            *high = b->id_high[i];
            return;
        }
    }
    *low = *high = 0;
}

void bench_fill_inputs(bench *b)
{
    for (int i = 0; ls_graph_input(b->graph, i); i++) {
        ls_tensor *input = ls_graph_input(b->graph, i);
        const uint32_t key = b->seed + 100 + (uint32_t)i;
        size_t count = 1;
        for (int d = 0; d < ls_tensor_ndim(input); d++)
            count *= ls_tensor_dims(input)[d];
        int32_t low, high;
        range_of(b, input, &low, &high);
        float *values = ls_input_data(b->graph, input);
        int32_t *ids = ls_input_data(b->graph, input);
        for (size_t k = 0; k < count; k++) {
            const float x = number(key, (uint32_t)k);
            if (high > low)
                ids[k] = low + (int32_t)((x + 1) / 2 * (float)(high - low));
            else
                values[k] = x;
        }
    }
}

double bench_run(bench *b, int backward, int accumulate)
{
    ls_run_config run = LS_RUN_CONFIG_INIT;
    ls_run_result result;
    run.training = 1;
    run.backward = backward;
    run.accumulate = accumulate;
    run.step = 9;
    bench_fill_inputs(b);
    if (ls_graph_run(b->graph, &run, &result) != LS_OK)
        fail_msg("run: %s", ls_last_error());
    return result.loss;
}

void graph_gradient(ls_graph *graph, float *out)
{
    if (ls_graph_param_count(graph))
        memcpy(out, ls_graph_grads(graph), ls_graph_param_elements(graph) * sizeof *out);
    for (int i = 0; i < ls_graph_param_count(graph); i++) {
        ls_param_info info;
        assert_int_equal(ls_graph_param(graph, i, &info), LS_OK);
        if (!info.sparse)
            continue;
        ls_sparse_grad sparse;
        assert_int_equal(ls_graph_sparse_grad(graph, i, &sparse), LS_OK);
        memset(out + info.offset, 0, info.count * sizeof *out);
        for (size_t r = 0; r < sparse.rows; r++) {
            assert_true(sparse.ids[r] >= 0 && (size_t)sparse.ids[r] < info.dims[0]);
            assert_true(r == 0 || sparse.ids[r] > sparse.ids[r - 1]);
            memcpy(out + info.offset + (size_t)sparse.ids[r] * sparse.width,
                   sparse.values + r * sparse.width, sparse.width * sizeof *out);
        }
    }
}

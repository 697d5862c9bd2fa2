/* Every layer and loss against PyTorch: results, gradients, running statistics, on both devices.
 *
 * tests/fixtures/ops.safetensors has cases OP/NUMBER (what they consist of: tests/fixtures/ops.py).
 * Each becomes a graph of that one layer by the builder of its operation below.
 *
 * 1. Operands with a gradient are parameters of the batch's size (harness.h's leaves); the loss is
 *    the sum of the result times given weights.
 * 2. Every case of the file is replayed, every builder is used: neither side can lack one
 *    unnoticed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixtures.h"
#include "harness.h"

/* Both sides are single precision and sum in other orders: four times the worst that is seen. */
#define TOLERANCE 5e-6
#define CONFIG_MAX 8

typedef struct replay {
    const lsi_st_file *file;
    const char *name;
    bench b;
    float config[CONFIG_MAX];
    ls_tensor *fixed; /* an input without gradient */
    uint64_t step, first_position;
} replay;

/* ---- the loss: a sum with given weights ----------------------------------------------------- */

static ls_status weigh_infer(const ls_op_call *call, ls_op_shape *shape)
{
    (void)call;
    shape->ndim = 1;
    shape->dims[0] = 1;
    return LS_OK;
}

static ls_status weigh_forward(const ls_op_call *call)
{
    const float *x = call->in[0].data, *weights = call->in[1].data;
    double sum = 0;
    for (size_t i = 0; i < call->in[0].count; i++)
        sum += (double)x[i] * (double)weights[i];
    ls_op_set_loss(call, sum, 1);
    return LS_OK;
}

static ls_status weigh_backward(const ls_op_call *call)
{
    if (call->din[0].data)
        memcpy(call->din[0].data, call->in[1].data, call->in[1].count * sizeof(float));
    return LS_OK;
}

static const ls_op_kind weigh_kind = {
    sizeof weigh_kind, "weigh",       LS_OP_LOSS | LS_OP_KEEP_INPUTS,
    weigh_infer,       weigh_forward, weigh_backward};

/* ---- operands ------------------------------------------------------------------------------- */

static ls_tensor *operand(replay *r, int k)
{
    const lsi_st_tensor *x = fixtures_need(r->file, "%s/in/%d", r->name, k);
    ls_name(r->b.graph, "in%d", k);
    ls_tensor *out = leaf(&r->b, x->ndim - 1, x->dims + 1);
    ls_name(r->b.graph, "%s",
            ""); /* the layer's parameters are weight and bias, without a prefix */
    return out;
}

static ls_tensor *ids(replay *r)
{
    const lsi_st_tensor *x = fixtures_need(r->file, "%s/ids/0", r->name);
    ls_tensor *out = leaf_ids(&r->b, x->ndim - 1, x->dims + 1, 0, 1);
    ls_name(r->b.graph, "%s", "");
    return out;
}

static ls_tensor *free_param(replay *r)
{
    const lsi_st_tensor *x = fixtures_need(r->file, "%s/param/free", r->name);
    ls_param_config config = LS_PARAM_CONFIG_INIT;
    ls_layer(r->b.graph, "free");
    return ls_param(r->b.graph, "free", x->ndim, x->dims, &config);
}

static size_t whole(const replay *r, int i)
{
    return (size_t)r->config[i];
}

static int flag(const replay *r, int i)
{
    return r->config[i] != 0;
}

/* ---- builders, by operation ----------------------------------------------------------------- */

static ls_tensor *linear(replay *r)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.out = whole(r, 0);
    config.activation = (ls_activation)whole(r, 1);
    config.residual = flag(r, 2) ? operand(r, 1) : NULL;
    config.no_bias = flag(r, 3);
    ls_tensor *x = operand(r, 0);
    return ls_linear_with(r->b.graph, x, &config);
}

static ls_tensor *tied(replay *r)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.out = whole(r, 0);
    ls_tensor *x = ls_embedding(r->b.graph, ids(r), whole(r, 0), whole(r, 1), 1, &config.tied);
    x = ls_activate(r->b.graph, x, LS_TANH);
    return ls_linear_with(r->b.graph, x, &config);
}

static ls_tensor *conv2d(replay *r)
{
    ls_conv2d_config config = LS_CONV2D_CONFIG_INIT;
    config.out = whole(r, 0);
    config.kernel = whole(r, 1);
    config.stride = whole(r, 2);
    config.padding = whole(r, 3);
    config.groups = whole(r, 4);
    config.bias = flag(r, 5);
    return ls_conv2d(r->b.graph, operand(r, 0), &config);
}

static ls_tensor *max_pool(replay *r)
{
    return ls_max_pool(r->b.graph, operand(r, 0), whole(r, 0), whole(r, 1), whole(r, 2));
}

static ls_tensor *avg_pool(replay *r)
{
    return ls_avg_pool(r->b.graph, operand(r, 0), whole(r, 0), whole(r, 1), whole(r, 2));
}

static ls_tensor *global_pool(replay *r)
{
    return ls_global_pool(r->b.graph, operand(r, 0));
}

static ls_tensor *batch_norm(replay *r)
{
    ls_tensor *residual = flag(r, 0) ? operand(r, 1) : NULL;
    return ls_batch_norm(r->b.graph, operand(r, 0), residual, flag(r, 1));
}

static ls_tensor *layer_norm(replay *r)
{
    return ls_layer_norm(r->b.graph, operand(r, 0));
}

static ls_tensor *rms_norm(replay *r)
{
    return ls_rms_norm(r->b.graph, operand(r, 0));
}

/* Sum and norm, side by side. */
static ls_tensor *norm_of_sum(replay *r, int rms)
{
    ls_tensor *residual = operand(r, 1), *x = operand(r, 0), *both[2];
    both[1] = (rms ? ls_add_rms_norm : ls_add_layer_norm)(r->b.graph, x, residual, &both[0]);
    return ls_concat(r->b.graph, 2, both);
}

static ls_tensor *add_layer_norm(replay *r)
{
    return norm_of_sum(r, 0);
}

static ls_tensor *add_rms_norm(replay *r)
{
    return norm_of_sum(r, 1);
}

static ls_tensor *activate(replay *r)
{
    return ls_activate(r->b.graph, operand(r, 0), (ls_activation)whole(r, 0));
}

/* Which elements are dropped follows from these; the fixtures draw them for themselves. */
static ls_tensor *dropout(replay *r)
{
    r->step = whole(r, 2);
    r->first_position = whole(r, 3);
    return ls_dropout(r->b.graph, operand(r, 0), r->config[0]);
}

static ls_tensor *softmax(replay *r)
{
    return ls_softmax(r->b.graph, operand(r, 0));
}

static ls_tensor *add(replay *r)
{
    ls_tensor *b = operand(r, 1);
    return ls_add(r->b.graph, operand(r, 0), b);
}

static ls_tensor *mul(replay *r)
{
    ls_tensor *b = operand(r, 1);
    return ls_mul(r->b.graph, operand(r, 0), b);
}

static ls_tensor *add_self(replay *r)
{
    ls_tensor *x = operand(r, 0);
    return ls_add(r->b.graph, x, x);
}

static ls_tensor *mul_self(replay *r)
{
    ls_tensor *x = operand(r, 0);
    return ls_mul(r->b.graph, x, x);
}

static ls_tensor *add_param(replay *r)
{
    ls_tensor *x = operand(r, 0);
    return ls_add(r->b.graph, x, free_param(r));
}

static ls_tensor *mul_param(replay *r)
{
    ls_tensor *x = operand(r, 0);
    return ls_mul(r->b.graph, x, free_param(r));
}

static int sparse; /* embeddings have sparse gradients */

static ls_tensor *embedding(replay *r)
{
    ls_embedding_config config = LS_EMBEDDING_CONFIG_INIT;
    config.vocab = whole(r, 0);
    config.width = whole(r, 1);
    config.sparse = sparse;
    return ls_embedding_with(r->b.graph, ids(r), &config, NULL);
}

static ls_tensor *positions(replay *r)
{
    return ls_positions(r->b.graph, operand(r, 0), 1);
}

static ls_tensor *embedding_bag(replay *r)
{
    return ls_embedding_bag(r->b.graph, ids(r), (int)r->config[0], whole(r, 1), whole(r, 2), 1);
}

static ls_tensor *attention(replay *r)
{
    return ls_attention(r->b.graph, operand(r, 0), whole(r, 0), flag(r, 1), 0);
}

static ls_tensor *concat(replay *r)
{
    ls_tensor *x[LEAVES_MAX];
    int count = 0;
    for (; fixtures_find(r->file, "%s/in/%d", r->name, count); count++)
        x[count] = operand(r, count);
    return ls_concat(r->b.graph, count, x);
}

static ls_tensor *slice(replay *r)
{
    return ls_slice(r->b.graph, operand(r, 0), whole(r, 0), whole(r, 1));
}

static ls_tensor *transpose(replay *r)
{
    int perm[CONFIG_MAX];
    for (int i = 0; i < CONFIG_MAX; i++)
        perm[i] = (int)r->config[i];
    return ls_transpose(r->b.graph, operand(r, 0), perm);
}

static ls_tensor *reshape(replay *r)
{
    const size_t dims[3] = {whole(r, 0), whole(r, 1), whole(r, 2)};
    return ls_softmax(r->b.graph, ls_reshape(r->b.graph, operand(r, 0), 3, dims));
}

static ls_tensor *interact(replay *r)
{
    return ls_interact(r->b.graph, operand(r, 0));
}

static ls_tensor *cross_entropy(replay *r)
{
    ls_tensor *x = operand(r, 0);
    return ls_cross_entropy(r->b.graph, x, ids(r), r->config[0], (int32_t)r->config[1]);
}

static ls_tensor *bce(replay *r)
{
    const lsi_st_tensor *x = fixtures_need(r->file, "%s/fixed/0", r->name);
    r->fixed = ls_input(r->b.graph, "fixed", LS_F32, x->ndim - 1, x->dims + 1);
    return ls_bce_with_logits(r->b.graph, operand(r, 0), r->fixed);
}

static ls_tensor *mse(replay *r)
{
    ls_tensor *targets = operand(r, 1);
    return ls_mse(r->b.graph, operand(r, 0), targets);
}

enum { VALUE, LOSS, EVALUATION };

static struct operation {
    const char *name;
    ls_tensor *(*build)(replay *r);
    int kind;
    int used;
} operations[] = {
    {"linear", linear, VALUE, 0},
    {"tied", tied, VALUE, 0},
    {"conv2d", conv2d, VALUE, 0},
    {"max_pool", max_pool, VALUE, 0},
    {"avg_pool", avg_pool, VALUE, 0},
    {"global_pool", global_pool, VALUE, 0},
    {"batch_norm", batch_norm, VALUE, 0},
    {"batch_norm_eval", batch_norm, EVALUATION, 0},
    {"layer_norm", layer_norm, VALUE, 0},
    {"rms_norm", rms_norm, VALUE, 0},
    {"add_layer_norm", add_layer_norm, VALUE, 0},
    {"add_rms_norm", add_rms_norm, VALUE, 0},
    {"activate", activate, VALUE, 0},
    {"dropout", dropout, VALUE, 0},
    {"softmax", softmax, VALUE, 0},
    {"add", add, VALUE, 0},
    {"add_self", add_self, VALUE, 0},
    {"add_param", add_param, VALUE, 0},
    {"mul", mul, VALUE, 0},
    {"mul_self", mul_self, VALUE, 0},
    {"mul_param", mul_param, VALUE, 0},
    {"embedding", embedding, VALUE, 0},
    {"positions", positions, VALUE, 0},
    {"embedding_bag", embedding_bag, VALUE, 0},
    {"attention", attention, VALUE, 0},
    {"concat", concat, VALUE, 0},
    {"slice", slice, VALUE, 0},
    {"transpose", transpose, VALUE, 0},
    {"reshape", reshape, VALUE, 0},
    {"interact", interact, VALUE, 0},
    {"cross_entropy", cross_entropy, LOSS, 0},
    {"bce", bce, LOSS, 0},
    {"mse", mse, LOSS, 0},
};
#define OPERATIONS (sizeof operations / sizeof *operations)

static struct operation *operation_of(const char *name)
{
    const size_t length = strcspn(name, "/");
    for (size_t i = 0; i < OPERATIONS; i++) {
        if (strlen(operations[i].name) == length && !strncmp(operations[i].name, name, length))
            return &operations[i];
    }
    fail_msg("%s: there is no builder for it", name);
    return NULL;
}

/* ---- one case ------------------------------------------------------------------------------- */

static const char *device; /* that is looked at */

/* "in0.value" is in/0 of the fixtures, all else is a parameter of the layer. */
static const lsi_st_tensor *fixture_of(const replay *r, const char *prefix, const char *param)
{
    int k;
    if (sscanf(param, "in%d.value", &k) == 1)
        return fixtures_need(r->file, "%s/%sin/%d", r->name, prefix, k);
    return fixtures_need(r->file, "%s/%sparam/%s", r->name, prefix, param);
}

static void load(replay *r, ls_tensor *weights)
{
    ls_graph *graph = r->b.graph;
    ls_param_info info;
    for (int i = 0; ls_graph_param(graph, i, &info) == LS_OK; i++) {
        const lsi_st_tensor *from = fixture_of(r, "", info.name);
        assert_int_equal(from->count, info.count);
        fixtures_copy(from, ls_graph_params(graph) + info.offset);
    }
    for (int i = 0; ls_graph_buffer(graph, i, &info) == LS_OK; i++)
        fixtures_copy(fixtures_need(r->file, "%s/buffer/%s", r->name, info.name),
                      ls_graph_buffers(graph) + info.offset);
    if (r->b.ids)
        fixtures_copy_ids(fixtures_need(r->file, "%s/ids/0", r->name),
                          ls_input_data(graph, r->b.id[0]));
    if (r->fixed)
        fixtures_copy(fixtures_need(r->file, "%s/fixed/0", r->name),
                      ls_input_data(graph, r->fixed));
    if (weights)
        fixtures_copy(fixtures_need(r->file, "%s/weights", r->name), ls_input_data(graph, weights));
}

static void check_gradients(replay *r)
{
    ls_graph *graph = r->b.graph;
    float *gradient = calloc(ls_graph_param_elements(graph) + 1, sizeof *gradient);
    assert_non_null(gradient);
    graph_gradient(graph, gradient);
    ls_param_info info;
    for (int i = 0; ls_graph_param(graph, i, &info) == LS_OK; i++)
        fixtures_compare(device, fixture_of(r, "grad/", info.name), gradient + info.offset,
                         TOLERANCE);
    free(gradient);
    if (ls_graph_buffer_count(graph) == 0)
        return;
    ls_graph_observe(graph, ls_graph_observed(graph), 0.1f);
    for (int i = 0; ls_graph_buffer(graph, i, &info) == LS_OK; i++)
        fixtures_compare(device, fixtures_need(r->file, "%s/after/%s", r->name, info.name),
                         ls_graph_buffers(graph) + info.offset, TOLERANCE);
}

static void run(replay *r, int training, int backward, ls_run_result *result)
{
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.training = training;
    config.backward = backward;
    config.step = r->step;
    config.first_position = r->first_position;
    if (ls_graph_run(r->b.graph, &config, result) != LS_OK)
        fail_msg("%s on %s: %s", r->name, device, ls_last_error());
}

static void check_case(const lsi_st_file *file, const char *name)
{
    struct operation *op = operation_of(name);
    replay r = {.file = file, .name = name};
    const lsi_st_tensor *config = fixtures_find(file, "%s/config", name);
    if (config) {
        assert_true(config->count <= CONFIG_MAX);
        fixtures_copy(config, r.config);
    }
    const lsi_st_tensor *first = fixtures_find(file, "%s/in/0", name);
    const lsi_st_tensor *out = fixtures_need(file, "%s/out", name);
    ls_graph_config graph = LS_GRAPH_CONFIG_INIT;
    graph.device = device;
    if (op->build == dropout)
        graph.seed = whole(&r, 1);
    graph.batch = (first ? first : fixtures_need(file, "%s/ids/0", name))->dims[0];
    r.b.config.batch = graph.batch;
    assert_int_equal(ls_graph_create(&graph, &r.b.graph), LS_OK);
    ls_tensor *result = op->build(&r), *weights = NULL, *loss = NULL;
    if (op->kind == LOSS) {
        loss = result;
        result = NULL;
    } else if (op->kind == VALUE) {
        weights = ls_input(r.b.graph, "weights", LS_F32, out->ndim - 1, out->dims + 1);
        loss = ls_op_add(r.b.graph, &weigh_kind, NULL, 0, 2, (ls_tensor *[]){result, weights}, 0,
                         NULL);
    }
    if (ls_graph_compile(r.b.graph, loss, result) != LS_OK)
        fail_msg("%s on %s: %s", name, device, ls_last_error());
    load(&r, weights);

    ls_run_result sums;
    run(&r, op->kind != EVALUATION, 0, &sums);
    if (op->kind != LOSS)
        fixtures_compare(device, out, ls_output_data(r.b.graph), TOLERANCE);
    if (op->kind != EVALUATION) {
        run(&r, 1, 1, &sums);
        check_gradients(&r);
    }
    if (op->kind == LOSS)
        fixtures_compare(device, out, (float[]){(float)sums.loss, (float)sums.count}, TOLERANCE);
    ls_graph_destroy(r.b.graph);
    op->used++;
}

static void check_all(const char *on)
{
    device = on;
    for (size_t i = 0; i < OPERATIONS; i++)
        operations[i].used = 0;
    lsi_st_file *file = fixtures_open("ops");
    fixtures_each(file, 2, check_case);
    lsi_st_close(file);
    for (size_t i = 0; i < OPERATIONS; i++) {
        if (!operations[i].used)
            fail_msg("the fixtures have no case of %s", operations[i].name);
    }
}

static void test_ref(void **state)
{
    (void)state;
    check_all("ref");
}

static void test_cpu(void **state)
{
    (void)state;
    check_all("cpu");
}

static void check_embedding(const lsi_st_file *file, const char *name)
{
    if (operation_of(name)->build == embedding)
        check_case(file, name);
}

/* The cases of embeddings once more. */
static void test_sparse(void **state)
{
    (void)state;
    static const char *const devices[] = {"ref", "cpu"};
    lsi_st_file *file = fixtures_open("ops");
    operation_of("embedding/0")->used = 0;
    sparse = 1;
    for (size_t i = 0; i < 2; i++) {
        device = devices[i];
        fixtures_each(file, 2, check_embedding);
    }
    sparse = 0;
    lsi_st_close(file);
    assert_true(operation_of("embedding/0")->used > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_cpu),
                                       cmocka_unit_test(test_sparse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

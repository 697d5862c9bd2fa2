/* Models as a whole, small: a short training lowers the loss, the same step has the same bits, a
 * sample does not see its neighbours, blocks that are computed again change nothing, and after the
 * first step nothing is allocated. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <lockstep/nn.h>
#include <lockstep/optim.h>

#include "../count_allocations.h"
#include "base/philox.h"
#include "harness.h"

#define BATCH 7

typedef struct family {
    const char *name;
    const char *settings[8];
    float rate;     /* of plain gradient descent */
    int mixes;      /* batch norm */
    double falls;   /* the loss falls below this part of its first value */
    size_t outputs; /* values of the output, a sample */
} family;

static const family families[] = {
    {"mlp", {"inputs=9", "hidden=17,16", "classes=5", "dropout=0.1"}, 0.3f, 0, 0.5, 5},
    {"resnet", {"blocks=1,1", "width=4", "image=8", "classes=3"}, 0.1f, 1, 0.5, 3},
    {"resnet",
     {"blocks=1,1", "width=2", "image=13", "classes=3", "bottleneck=1", "stem=7"},
     0.1f,
     1,
     0.5,
     3},
    {"gpt", {"vocab=11", "context=6", "layers=2", "heads=2", "dim=12"}, 0.25f, 0, 0.8, 6 * 11},
    {"gpt",
     {"vocab=11", "context=6", "layers=2", "heads=2", "dim=12", "dropout=0.1"},
     0.25f,
     0,
     0.8,
     6 * 11},
    {"dlrm", {"tables=3", "rows=9", "width=8", "bottom=16", "top=32"}, 0.3f, 0, 0.7, 1},
};
#define FAMILIES (sizeof families / sizeof *families)

static ls_graph *build(const family *f, const char *device, const char *more)
{
    ls_model *model;
    ls_graph *graph;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.batch = BATCH;
    config.seed = 5;
    config.device = device;
    assert_int_equal(ls_model_create(f->name, &model), LS_OK);
    for (int i = 0; i < 8 && f->settings[i]; i++)
        assert_int_equal(ls_model_set(model, f->settings[i]), LS_OK);
    if (more)
        assert_int_equal(ls_model_set(model, more), LS_OK);
    if (ls_model_build(model, &config, &graph) != LS_OK)
        fail_msg("%s on %s: %s", f->name, device, ls_last_error());
    ls_model_destroy(model);
    return graph;
}

static size_t count_of(const ls_tensor *tensor, int from)
{
    size_t count = 1;
    for (int i = from; i < ls_tensor_ndim(tensor); i++)
        count *= ls_tensor_dims(tensor)[i];
    return count;
}

/* Samples by their number: ids in their range, targets of 0 and 1, other values around 0. */
static void fill_with(ls_graph *graph, uint32_t number)
{
    for (int i = 0; ls_graph_input(graph, i); i++) {
        ls_tensor *input = ls_graph_input(graph, i);
        const size_t count = count_of(input, 0), bound = ls_tensor_bound(input);
        uint32_t words[4], counter[4] = {0, (uint32_t)i, number, 0};
        const uint32_t key[2] = {1, 2};
        float *values = ls_input_data(graph, input);
        int32_t *ids = ls_input_data(graph, input);
        for (size_t k = 0; k < count; k++) {
            counter[0] = (uint32_t)k;
            lsi_philox(counter, key, words);
            if (bound)
                ids[k] = (int32_t)(words[0] % bound);
            else if (ls_tensor_ndim(input) == 1)
                values[k] = (float)(words[0] & 1);
            else
                values[k] = 2 * lsi_philox_uniform(words[0]) - 1;
        }
    }
}

/* The same every time. */
static void fill(ls_graph *graph)
{
    fill_with(graph, 0);
}

static ls_run_result run(ls_graph *graph, uint64_t step, int backward)
{
    ls_run_config config = LS_RUN_CONFIG_INIT;
    ls_run_result result;
    config.training = 1;
    config.backward = backward;
    config.step = step;
    fill(graph);
    if (ls_graph_run(graph, &config, &result) != LS_OK)
        fail_msg("step %d: %s", (int)step, ls_last_error());
    return result;
}

/* Plain gradient descent on dense and sparse parameters. */
static void descend(ls_graph *graph, float rate, double count)
{
    float *params = ls_graph_params(graph), *grads = ls_graph_grads(graph);
    const float by = rate / (float)count;
    ls_param_info info;
    for (int i = 0; ls_graph_param(graph, i, &info) == LS_OK; i++) {
        for (size_t k = 0; k < info.count && !info.sparse; k++)
            params[info.offset + k] -= by * grads[info.offset + k];
        ls_sparse_grad sparse = {0};
        if (info.sparse)
            assert_int_equal(ls_graph_sparse_grad(graph, i, &sparse), LS_OK);
        for (size_t r = 0; r < sparse.rows; r++)
            for (size_t k = 0; k < sparse.width; k++)
                params[info.offset + (size_t)sparse.ids[r] * sparse.width + k] -=
                    by * sparse.values[r * sparse.width + k];
    }
}

static void check_learns(const family *f, const char *device)
{
    ls_graph *graph = build(f, device, NULL);
    double first = 0, last = 0;
    for (uint64_t step = 0; step < 60; step++) {
        const ls_run_result result = run(graph, step, 1);
        last = result.loss / result.count;
        if (step == 0)
            first = last;
        assert_true(isfinite(last));
        descend(graph, f->rate, result.count);
        ls_graph_observe(graph, ls_graph_observed(graph), 0.1f);
    }
    if (last > f->falls * first)
        fail_msg("%s on %s: the loss went from %g to %g", f->name, device, first, last);
    ls_graph_destroy(graph);
}

static void test_training_lowers_the_loss(void **state)
{
    (void)state;
    for (size_t i = 0; i < FAMILIES; i++) {
        check_learns(&families[i], "ref");
        check_learns(&families[i], "cpu");
    }
}

/* Two graphs, and one graph twice. */
static void check_bits(const family *f, const char *device)
{
    ls_graph *graph = build(f, device, NULL), *other = build(f, device, NULL);
    const size_t n = ls_graph_param_elements(graph), bytes = n * sizeof(float);
    float *gradient[3];
    for (int i = 0; i < 3; i++)
        gradient[i] = malloc(bytes);
    assert_memory_equal(ls_graph_params(graph), ls_graph_params(other), bytes);
    const ls_run_result a = run(graph, 3, 1), b = run(other, 3, 1);
    graph_gradient(graph, gradient[0]);
    graph_gradient(other, gradient[1]);
    const ls_run_result c = run(graph, 3, 1);
    graph_gradient(graph, gradient[2]);
    assert_true(a.loss == b.loss && a.loss == c.loss && a.count == c.count);
    assert_memory_equal(gradient[0], gradient[1], bytes);
    assert_memory_equal(gradient[0], gradient[2], bytes);
    for (int i = 0; i < 3; i++)
        free(gradient[i]);
    ls_graph_destroy(graph);
    ls_graph_destroy(other);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < FAMILIES; i++) {
        check_bits(&families[i], "ref");
        check_bits(&families[i], "cpu");
    }
}

/* Evaluate a sample alone: logits as in the batch. In training too, unless batch norm mixes. */
static void check_alone(const family *f, const char *device, int training)
{
    ls_graph *graph = build(f, device, NULL);
    ls_run_config config = LS_RUN_CONFIG_INIT;
    ls_run_result result;
    config.training = training;
    config.step = 2;
    config.first_position = 100;
    fill(graph);
    assert_int_equal(ls_graph_run(graph, &config, &result), LS_OK);
    float together[BATCH * 6 * 11];
    memcpy(together, ls_output_data(graph), BATCH * f->outputs * sizeof *together);
    for (size_t s = 0; s < BATCH; s++) {
        fill(graph);
        for (int i = 0; ls_graph_input(graph, i); i++) {
            const size_t each = count_of(ls_graph_input(graph, i), 1) * 4;
            char *data = ls_input_data(graph, ls_graph_input(graph, i));
            memmove(data, data + s * each, each);
        }
        config.batch = 1;
        config.first_position = 100 + s;
        assert_int_equal(ls_graph_run(graph, &config, &result), LS_OK);
        if (memcmp(ls_output_data(graph), together + s * f->outputs, f->outputs * sizeof *together))
            fail_msg("%s on %s: sample %zu has other bits alone", f->name, device, s);
    }
    ls_graph_destroy(graph);
}

static void test_a_sample_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < FAMILIES; i++) {
        for (int training = 0; training < 2; training++) {
            if (training && families[i].mixes)
                continue;
            check_alone(&families[i], "ref", training);
            check_alone(&families[i], "cpu", training);
        }
    }
}

static void check_checkpoint(const family *f, const char *device)
{
    ls_graph *plain = build(f, device, NULL), *again = build(f, device, "checkpoint=1");
    const size_t bytes = ls_graph_param_elements(plain) * sizeof(float);
    assert_int_equal(ls_graph_param_elements(again) * sizeof(float), bytes);
    for (int i = 0; i < ls_graph_param_count(plain); i++) {
        ls_param_info a, b;
        assert_int_equal(ls_graph_param(plain, i, &a), LS_OK);
        assert_int_equal(ls_graph_param(again, i, &b), LS_OK);
        assert_string_equal(a.name, b.name);
    }
    const ls_run_result a = run(plain, 1, 1), b = run(again, 1, 1);
    assert_true(a.loss == b.loss && a.count == b.count);
    assert_memory_equal(ls_graph_grads(plain), ls_graph_grads(again), bytes);
    ls_graph_memory less, more;
    ls_graph_get_memory(again, &less);
    ls_graph_get_memory(plain, &more);
    assert_true(less.activations < more.activations);
    ls_graph_destroy(plain);
    ls_graph_destroy(again);
}

static void test_checkpoint_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < FAMILIES; i++) {
        if (strcmp(families[i].name, "gpt"))
            continue;
        check_checkpoint(&families[i], "ref");
        check_checkpoint(&families[i], "cpu");
    }
}

/* One step on both devices: the same loss and gradients, within rounding. */
static void test_cpu_equals_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < FAMILIES; i++) {
        ls_graph *ref = build(&families[i], "ref", NULL), *cpu = build(&families[i], "cpu", NULL);
        const ls_run_result a = run(ref, 1, 1), b = run(cpu, 1, 1);
        assert_true(fabs(a.loss - b.loss) < 1e-5 * fabs(a.loss));
        const size_t n = ls_graph_param_elements(ref);
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        graph_gradient(ref, x);
        graph_gradient(cpu, y);
        for (size_t k = 0; k < n; k++)
            if (fabsf(x[k] - y[k]) > 1e-4f * (1 + fabsf(x[k])))
                fail_msg("%s: gradient[%zu] is %g on cpu, %g on ref", families[i].name, k,
                         (double)y[k], (double)x[k]);
        free(x);
        free(y);
        ls_graph_destroy(ref);
        ls_graph_destroy(cpu);
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

#define PARAMS_MAX 128

static ls_optimizer *make_optimizer(ls_graph *graph, const char *name, ls_param_info *params)
{
    ls_optim_config config = LS_OPTIM_CONFIG_INIT;
    ls_optimizer *optimizer;
    const int count = ls_graph_param_count(graph);
    assert_true(count <= PARAMS_MAX);
    for (int i = 0; i < count; i++)
        assert_int_equal(ls_graph_param(graph, i, &params[i]), LS_OK);
    config.name = name;
    config.lr = 0.001f;
    config.clip = 1;
    assert_int_equal(ls_optimizer_create(&config, params, count, ls_graph_param_elements(graph),
                                         &optimizer),
                     LS_OK);
    return optimizer;
}

/* A whole step on other samples than the one before. Asserts nothing: nor does cmocka allocate. */
static ls_status whole_step(ls_graph *graph, ls_optimizer *optimizer, const ls_param_info *params,
                            uint32_t number)
{
    ls_run_config config = LS_RUN_CONFIG_INIT;
    ls_run_result result;
    ls_status status = LS_OK;
    config.training = config.backward = 1;
    config.step = number;
    config.batch = number % 4 == 3 ? BATCH - 2 : BATCH; /* as at the end of an epoch */
    fill_with(graph, number);
    for (int i = 0; i < ls_graph_param_count(graph); i++) {
        ls_sparse_ids rows;
        for (int k = 0; params[i].sparse && ls_graph_sparse_ids(graph, i, k, &rows) == LS_OK; k++)
            status = status ? status
                            : ls_optimizer_touch(optimizer, ls_graph_params(graph), i, rows.ids,
                                                 rows.count, rows.stride);
    }
    status = status ? status : ls_graph_run(graph, &config, &result);
    for (int i = 0; status == LS_OK && i < ls_graph_param_count(graph); i++) {
        ls_sparse_grad sparse;
        if (params[i].sparse && (status = ls_graph_sparse_grad(graph, i, &sparse)) == LS_OK)
            status = ls_optimizer_sparse(optimizer, i, &sparse);
    }
    status = status ? status
                    : ls_optimizer_step(optimizer, ls_graph_params(graph), ls_graph_grads(graph),
                                        (float)(1 / result.count));
    if (status == LS_OK)
        ls_graph_observe(graph, ls_graph_observed(graph), 0.1f);
    return status;
}

/* A graph that ends with this. */
static void check_steps(ls_graph *graph, const char *name, const char *device,
                        const char *optimizer_name)
{
    ls_param_info params[PARAMS_MAX];
    ls_optimizer *optimizer = make_optimizer(graph, optimizer_name, params);
    ls_status status = whole_step(graph, optimizer, params, 0);
    allocations = 0;
    counting = 1;
    for (uint32_t number = 1; number < 8 && status == LS_OK; number++)
        status = whole_step(graph, optimizer, params, number);
    counting = 0;
    if (status != LS_OK)
        fail_msg("%s on %s with %s: %s", name, device, optimizer_name, ls_last_error());
    if (allocations)
        fail_msg("%s on %s with %s: %d allocations after the first step", name, device,
                 optimizer_name, allocations);
    ls_optimizer_destroy(optimizer);
    ls_graph_destroy(graph);
}

static void check_memory(const family *f, const char *device, const char *optimizer_name)
{
    check_steps(build(f, device, NULL), f->name, device, optimizer_name);
}

/* An embedding with sparse gradients, which no model has. */
static ls_graph *build_sparse(const char *device)
{
    ls_graph *graph;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    ls_embedding_config table = LS_EMBEDDING_CONFIG_INIT;
    config.batch = BATCH;
    config.device = device;
    table.vocab = 50;
    table.width = 5;
    table.sparse = 1;
    assert_int_equal(ls_graph_create(&config, &graph), LS_OK);
    ls_tensor *ids = ls_input(graph, "ids", LS_I32, 1, (size_t[]){3});
    ls_tensor *labels = ls_input(graph, "labels", LS_I32, 1, (size_t[]){3});
    ls_tensor *x = ls_linear(graph, ls_embedding_with(graph, ids, &table, NULL), 4);
    assert_int_equal(ls_graph_compile(graph, ls_cross_entropy(graph, x, labels, 0, -100), NULL),
                     LS_OK);
    return graph;
}

static void test_no_allocation(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS)
        skip();
    allocations = 0;
    counting = 1;
    void *volatile memory = malloc(10);
    counting = 0;
    free(memory);
    assert_int_equal(allocations, 1); /* the counter counts */
    static const char *const optimizers[] = {"sgd", "adamw", "lamb"};
    static const family wide = {.name = "resnet:20", .settings = {"image=8"}}; /* Winograd */
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
        for (size_t i = 0; i < FAMILIES; i++) {
            check_memory(&families[i], "ref", optimizers[o]);
            check_memory(&families[i], "cpu", optimizers[o]);
        }
        check_memory(&wide, "cpu", optimizers[o]);
        check_steps(build_sparse("ref"), "a sparse embedding", "ref", optimizers[o]);
        check_steps(build_sparse("cpu"), "a sparse embedding", "cpu", optimizers[o]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training_lowers_the_loss),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_a_sample_alone),
        cmocka_unit_test(test_checkpoint_same_bits),
        cmocka_unit_test(test_cpu_equals_ref),
        cmocka_unit_test(test_no_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Fifty training steps of every kind of model beside PyTorch, from the same initial weights: the
 * loss of each step, the weights and running statistics after them, and an evaluation; on both
 * devices.
 *
 * tests/fixtures/models.py has the networks and the rule by which batches are made.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixtures.h"
#include <lockstep/nn.h>
#include <lockstep/optim.h>

#define STEPS 50
#define BATCHES 4
/* PyTorch in single and in double precision are up to 2.4e-6 apart in a loss, 7e-6 in a weight,
 * 2.4e-5 in a running mean (tests/fixtures/README.md). */
#define LOSS_TOLERANCE 2e-5
#define WEIGHT_TOLERANCE 1e-4

typedef struct model_case {
    const char *name, *fixture, *model;
    const char *settings[8];
    size_t batch;
    ls_optim_config optimizer;
    int cpu_only; /* what it adds does not depend on the device, and ref is slow */
} model_case;

#define SGD(rate, fade)                                                                            \
    {                                                                                              \
        .size = sizeof(ls_optim_config), .name = "sgd", .lr = (rate), .momentum = 0.9f,            \
        .decay = (fade)                                                                            \
    }
#define ADAMW                                                                                      \
    {                                                                                              \
        .size = sizeof(ls_optim_config), .name = "adamw", .lr = 3e-3f, .beta1 = 0.9f,              \
        .beta2 = 0.99f, .eps = 1e-5f, .decay = 0.1f                                                \
    }
#define RESNET_50 "blocks=1,2", "width=4", "image=17", "classes=5"
#define RESNET_18 "blocks=2,1", "width=4", "image=21", "classes=5"
#define RESNET_WIDE "blocks=1", "width=16", "image=7", "classes=5" /* cpu: Winograd */
#define GPT_SETTINGS "vocab=29", "context=16", "layers=2", "heads=2", "dim=32"
#define DLRM_SETTINGS "dense=13", "tables=5", "rows=40", "width=8", "bottom=16", "top=16,9"

static const model_case cases[] = {
    {"mlp", "mlp", "mlp", {"inputs=20", "hidden=33,32", "classes=10"}, 16, SGD(0.2f, 1e-3f), 0},
    {"resnet-20", "resnet-20", "resnet:20", {"width=4", "image=8"}, 8, SGD(0.01f, 1e-3f), 0},
    {"resnet-50", "resnet-50", "resnet:50", {RESNET_50}, 8, SGD(0.01f, 0), 0},
    {"resnet-18", "resnet-18", "resnet:18", {RESNET_18}, 8, SGD(0.01f, 1e-3f), 0},
    {"resnet-wide", "resnet-wide", "resnet:20", {RESNET_WIDE}, 8, SGD(0.01f, 1e-3f), 0},
    {"gpt", "gpt", "gpt:nano", {GPT_SETTINGS}, 6, ADAMW, 0},
    {"gpt, computed again", "gpt", "gpt:nano", {GPT_SETTINGS, "checkpoint=1"}, 6, ADAMW, 1},
    {"dlrm, sgd", "dlrm-sgd", "dlrm", {DLRM_SETTINGS}, 16, SGD(0.05f, 1e-3f), 0},
    {"dlrm, adamw", "dlrm-adamw", "dlrm", {DLRM_SETTINGS}, 16, ADAMW, 0},
};
#define CASES (sizeof cases / sizeof *cases)

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != LS_OK)                                                                       \
            fail_msg("%s on %s: %s", t->c->name, t->device, ls_last_error());                      \
    } while (0)

typedef struct training {
    const model_case *c;
    const char *device;
    const lsi_st_file *file;
    ls_graph *graph;
    ls_optimizer *optimizer;
    ls_param_info *params;
    int count;
} training;

static void open_training(training *t)
{
    ls_model *model;
    OK(ls_model_create(t->c->model, &model));
    for (int i = 0; t->c->settings[i]; i++)
        OK(ls_model_set(model, t->c->settings[i]));
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.device = t->device;
    config.batch = t->c->batch;
    OK(ls_model_build(model, &config, &t->graph));
    ls_model_destroy(model);

    t->count = ls_graph_param_count(t->graph);
    t->params = calloc((size_t)t->count, sizeof *t->params);
    assert_non_null(t->params);
    for (int i = 0; i < t->count; i++)
        OK(ls_graph_param(t->graph, i, &t->params[i]));
    ls_optim_config optimizer = t->c->optimizer;
    optimizer.device = t->device;
    OK(ls_optimizer_create(&optimizer, t->params, t->count, ls_graph_param_elements(t->graph),
                           &t->optimizer));
}

static void close_training(training *t)
{
    ls_optimizer_destroy(t->optimizer);
    ls_graph_destroy(t->graph);
    free(t->params);
}

/* What the fixtures call this parameter or buffer; its shape must be ours. */
static const lsi_st_tensor *fixture_of(const training *t, const char *when,
                                       const ls_param_info *info)
{
    const lsi_st_tensor *found =
        fixtures_need(t->file, "%s/%s/%s", t->c->fixture, when, info->name);
    assert_int_equal(found->ndim, info->ndim);
    for (int i = 0; i < info->ndim; i++)
        assert_int_equal(found->dims[i], info->dims[i]);
    return found;
}

static void load(training *t)
{
    ls_param_info buffer;
    size_t loaded = 0, stored = 0;
    for (int i = 0; i < t->count; i++, loaded++)
        fixtures_copy(fixture_of(t, "start", &t->params[i]),
                      ls_graph_params(t->graph) + t->params[i].offset);
    for (int i = 0; ls_graph_buffer(t->graph, i, &buffer) == LS_OK; i++, loaded++)
        fixtures_copy(fixture_of(t, "start", &buffer), ls_graph_buffers(t->graph) + buffer.offset);

    char prefix[64];
    const int length = snprintf(prefix, sizeof prefix, "%s/start/", t->c->fixture);
    for (size_t i = 0; i < lsi_st_count(t->file); i++)
        stored += !strncmp(lsi_st_at(t->file, i)->name, prefix, (size_t)length);
    assert_int_equal(loaded, stored);
}

/* Batch number b, by the rule. */
static void fill_batch(training *t, uint32_t b)
{
    stream s = {100 + b};
    ls_tensor *input;
    for (int i = 0; (input = ls_graph_input(t->graph, i)); i++) {
        const uint32_t bound = (uint32_t)ls_tensor_bound(input);
        const int is_target = !strcmp(ls_tensor_name(input), "target");
        size_t count = 1;
        for (int d = 0; d < ls_tensor_ndim(input); d++)
            count *= ls_tensor_dims(input)[d];
        float *values = ls_input_data(t->graph, input);
        int32_t *whole = ls_input_data(t->graph, input);
        for (size_t k = 0; k < count; k++) {
            if (bound)
                whole[k] = stream_integer(&s, bound);
            else if (is_target)
                values[k] = stream_float(&s) > 0 ? 1 : 0;
            else
                values[k] = stream_float(&s);
        }
    }
}

/* The mean loss of the step. */
static float step(training *t, uint64_t number)
{
    float *params = ls_graph_params(t->graph);
    fill_batch(t, (uint32_t)(number % BATCHES));
    for (int i = 0; i < t->count; i++) {
        ls_sparse_ids ids;
        for (int k = 0; t->params[i].sparse && ls_graph_sparse_ids(t->graph, i, k, &ids) == LS_OK;
             k++)
            OK(ls_optimizer_touch(t->optimizer, params, i, ids.ids, ids.count, ids.stride));
    }
    ls_run_config config = LS_RUN_CONFIG_INIT;
    ls_run_result result;
    config.training = config.backward = 1;
    config.step = number;
    OK(ls_graph_run(t->graph, &config, &result));
    for (int i = 0; i < t->count; i++) {
        ls_sparse_grad gradient;
        if (!t->params[i].sparse)
            continue;
        OK(ls_graph_sparse_grad(t->graph, i, &gradient));
        OK(ls_optimizer_sparse(t->optimizer, i, &gradient));
    }
    ls_graph_observe(t->graph, ls_graph_observed(t->graph), 0.1f);
    OK(ls_optimizer_step(t->optimizer, params, ls_graph_grads(t->graph),
                         (float)(1 / result.count)));
    return (float)(result.loss / result.count);
}

static void check_end(training *t)
{
    ls_param_info buffer;
    for (int i = 0; i < t->count; i++)
        fixtures_compare(t->device, fixture_of(t, "end", &t->params[i]),
                         ls_graph_params(t->graph) + t->params[i].offset, WEIGHT_TOLERANCE);
    for (int i = 0; ls_graph_buffer(t->graph, i, &buffer) == LS_OK; i++)
        fixtures_compare(t->device, fixture_of(t, "end", &buffer),
                         ls_graph_buffers(t->graph) + buffer.offset, WEIGHT_TOLERANCE);
    ls_run_config config = LS_RUN_CONFIG_INIT;
    ls_run_result result;
    fill_batch(t, 0);
    OK(ls_graph_run(t->graph, &config, &result));
    fixtures_compare(t->device, fixtures_need(t->file, "%s/evaluation", t->c->fixture),
                     (float[]){(float)(result.loss / result.count)}, LOSS_TOLERANCE);
}

static void check_case(const model_case *c, const char *device, const lsi_st_file *file)
{
    training t = {.c = c, .device = device, .file = file};
    float losses[STEPS];
    open_training(&t);
    load(&t);
    for (uint64_t i = 0; i < STEPS; i++)
        losses[i] = step(&t, i);
    const lsi_st_tensor *theirs = fixtures_need(file, "%s/losses", c->fixture);
    assert_int_equal(theirs->count, STEPS);
    fixtures_compare(device, theirs, losses, LOSS_TOLERANCE);
    if (ls_optimizer_flush(t.optimizer, ls_graph_params(t.graph)) != LS_OK)
        fail_msg("%s on %s: %s", c->name, device, ls_last_error());
    check_end(&t);
    close_training(&t);
}

static void has_case(const lsi_st_file *file, const char *name)
{
    (void)file;
    for (size_t i = 0; i < CASES; i++) {
        if (!strcmp(cases[i].fixture, name))
            return;
    }
    fail_msg("%s: nobody replays it", name);
}

static void check_all(const char *device)
{
    lsi_st_file *file = fixtures_open("models");
    fixtures_each(file, 1, has_case);
    for (size_t i = 0; i < CASES; i++) {
        if (!cases[i].cpu_only || !strcmp(device, "cpu"))
            check_case(&cases[i], device, file);
    }
    lsi_st_close(file);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Training on any number of workers, over shared memory, tcp and several hosts: one and the same
 * weights, optimizer state, statistics and losses, bit for bit.
 *
 * A scenario is trained by one worker first; every layout then has to repeat it.
 */
#include "feed.h"
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/engine.h"
#include <lockstep/nn.h>

#define STEPS 4

typedef struct scenario {
    const char *model, *settings[6];
    const char *optimizer;
    float momentum, clip;
    uint64_t batch, last; /* samples of a step; of the last one, which ends an epoch */
    int shards;
    size_t micro, bucket;
} scenario;

static const scenario scenarios[] = {
    {.model = "mlp",
     .settings = {"inputs=20", "hidden=24,17", "classes=5", "dropout=0.2"},
     .optimizer = "sgd",
     .momentum = 0.9f,
     .batch = 32,
     .last = 7,
     .shards = 8},
    {.model = "mlp",
     .settings = {"inputs=70", "hidden=130", "classes=3"},
     .optimizer = "adamw",
     .clip = 0.5f,
     .batch = 29,
     .last = 3,
     .shards = 13,
     .bucket = 4096},
    {.model = "resnet:20",
     .settings = {"image=8", "width=4"},
     .optimizer = "lars",
     .batch = 20,
     .last = 19,
     .shards = 5},
    {.model = "gpt:nano",
     .settings = {"layers=1", "dim=32", "heads=2", "context=8", "vocab=40", "dropout=0.1"},
     .optimizer = "lamb",
     .batch = 21,
     .last = 8,
     .shards = 8,
     .micro = 2,
     .bucket = 10000},
    {.model = "dlrm",
     .settings = {"rows=300", "tables=3", "width=8", "bottom=16,8", "top=16"},
     .optimizer = "sgd",
     .momentum = 0.9f,
     .batch = 40,
     .last = 5,
     .shards = 8},
    {.model = "dlrm",
     .settings = {"rows=300", "tables=3", "width=8", "bottom=16,8", "top=16"},
     .optimizer = "adam",
     .clip = 1,
     .batch = 24,
     .last = 23,
     .shards = 6,
     .micro = 3},
    {0},
};

/* What a run leaves behind. */
typedef struct outcome {
    float *weights, *state[3], *statistics;
    size_t elements, buffers;
    int states;
    double loss[STEPS], norm[STEPS];
} outcome;

typedef struct trial {
    const scenario *scenario;
    outcome expected;
    int writes;   /* this run makes the expectation */
    int together; /* shards of a worker side by side, where there are several hosts */
} trial;

/* ---- one run -------------------------------------------------------------------------------- */

typedef struct builder {
    rank *self;
    const scenario *scenario;
    size_t batch;
} builder;

static ls_graph *build(rank *self, const scenario *s, size_t batch)
{
    ls_model *model;
    ls_graph *graph;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    OK(self, ls_model_create(s->model, &model));
    for (int i = 0; i < 6 && s->settings[i]; i++)
        OK(self, ls_model_set(model, s->settings[i]));
    config.batch = batch;
    config.seed = 5;
    OK(self, ls_model_build(model, &config, &graph));
    ls_model_destroy(model);
    return graph;
}

static ls_status build_another(void *arg, ls_graph **out)
{
    const builder *b = arg;
    *out = build(b->self, b->scenario, b->batch);
    return LS_OK;
}

static float *copy(const float *from, size_t n)
{
    float *to = malloc((n + 1) * sizeof *to);
    if (n)
        memcpy(to, from, n * sizeof *to);
    return to;
}

static void keep(outcome *o, lsi_engine *engine, ls_graph *graph)
{
    lsi_replica *r = lsi_engine_replica(engine);
    const char *name;
    o->elements = ls_graph_param_elements(graph);
    o->buffers = ls_graph_buffer_elements(graph);
    o->weights = copy(r->weights, o->elements);
    o->statistics = copy(ls_graph_buffers(graph), o->buffers);
    for (o->states = 0; ls_optimizer_state(r->optimizer, o->states, &name); o->states++)
        o->state[o->states] = copy(ls_optimizer_state(r->optimizer, o->states, &name), o->elements);
}

static void compare(rank *self, const outcome *o, lsi_engine *engine, ls_graph *graph)
{
    lsi_replica *r = lsi_engine_replica(engine);
    const char *name = NULL;
    for (size_t i = 0; i < o->elements; i++)
        CHECK(self, memcmp(&r->weights[i], &o->weights[i], sizeof(float)) == 0,
              "weight %zu is %.9g, not %.9g", i, (double)r->weights[i], (double)o->weights[i]);
    for (int s = 0; s < o->states; s++) {
        const float *state = ls_optimizer_state(r->optimizer, s, &name);
        CHECK(self, memcmp(state, o->state[s], o->elements * sizeof(float)) == 0, "%s", name);
    }
    CHECK(self,
          !o->buffers ||
              memcmp(ls_graph_buffers(graph), o->statistics, o->buffers * sizeof(float)) == 0,
          "statistics of batch norm");
}

static void train(rank *self)
{
    trial *t = self->arg;
    const scenario *s = t->scenario;
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    optim.name = s->optimizer;
    optim.lr = 0.01f;
    optim.momentum = s->momentum;
    optim.clip = s->clip;
    builder b = {self, s, 0};
    const lsi_engine_config config = {.shards = s->shards,
                                      .batch = s->batch,
                                      .micro_batch = s->micro,
                                      .optimizer = &optim,
                                      .bucket_bytes = s->bucket,
                                      .another = t->together ? build_another : NULL,
                                      .another_arg = &b};
    b.batch = lsi_engine_graph_batch(&config);
    ls_graph *graph = build(self, s, b.batch);
    lsi_engine *engine;
    OK(self, lsi_engine_open(self->comm, graph, &config, &engine));
    for (uint64_t step = 0; step < STEPS; step++) {
        const uint64_t samples = step + 1 == STEPS ? s->last : s->batch;
        feed f = {step, 0};
        uint64_t end;
        lsi_step_result result;
        rank_case(self, "%s, step %d", s->model, (int)step);
        lsi_engine_part(engine, samples, &f.first, &end);
        OK(self, lsi_engine_step(engine, samples, fill, &f, &result));
        if (t->writes && self->rank == 0) {
            t->expected.loss[step] = result.loss;
            t->expected.norm[step] = result.grad_norm;
        }
        CHECK(self, result.loss == t->expected.loss[step], "%.17g, not %.17g", result.loss,
              t->expected.loss[step]);
        CHECK(self, result.grad_norm == t->expected.norm[step], "%.17g, not %.17g",
              result.grad_norm, t->expected.norm[step]);
    }
    OK(self, lsi_engine_settle(engine));
    if (t->writes)
        keep(&t->expected, engine, graph);
    compare(self, &t->expected, engine, graph);
    rank_meet(self);
    lsi_engine_close(engine);
    ls_graph_destroy(graph);
}

static void release(outcome *o)
{
    free(o->weights);
    free(o->statistics);
    for (int i = 0; i < o->states; i++)
        free(o->state[i]);
}

static void test_same_bits(void **state)
{
    (void)state;
    const ranks_layout layouts[] = {
        ranks_shm(2), ranks_shm(3),       ranks_shm(5),         ranks_tcp(2),       ranks_tcp(3),
        ranks_tcp(5), ranks_hosts("1+2"), ranks_hosts("2+1+2"), ranks_hosts("3+2"),
    };
    for (const scenario *s = scenarios; s->model; s++) {
        trial t = {.scenario = s, .writes = 1};
        const ranks_layout one = ranks_shm(1);
        ranks_run(&one, train, &t);
        t.writes = 0;
        for (t.together = 0; t.together < 2; t.together++)
            for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
                ranks_run(&layouts[i], train, &t);
        release(&t.expected);
    }
}

/* The rows of the next run are brought up to date; then their gradients are given, after it. */
static void by_rows(rank *self, ls_graph *graph, ls_optimizer *optimizer, int after)
{
    ls_param_info info;
    for (int i = 0; ls_graph_param(graph, i, &info) == LS_OK; i++) {
        ls_sparse_ids ids;
        ls_sparse_grad grad;
        if (info.sparse && after) {
            OK(self, ls_graph_sparse_grad(graph, i, &grad));
            OK(self, ls_optimizer_sparse(optimizer, i, &grad));
        } else if (info.sparse) {
            OK(self, ls_graph_sparse_ids(graph, i, 0, &ids));
            OK(self, ls_optimizer_touch(optimizer, ls_graph_params(graph), i, ids.ids, ids.count,
                                        ids.stride));
        }
    }
}

/* One shard of one worker, whose rows are not copied: as graph and optimizer without an engine. */
static void train_by_hand(rank *self)
{
    enum { PARAMS = 16 };
    const trial *t = self->arg;
    const scenario *s = t->scenario;
    ls_graph *graph = build(self, s, s->batch);
    ls_param_info params[PARAMS];
    int n = 0;
    while (n < PARAMS && ls_graph_param(graph, n, &params[n]) == LS_OK)
        n++;
    ls_optim_config config = LS_OPTIM_CONFIG_INIT;
    ls_optimizer *optimizer;
    config.name = s->optimizer;
    config.lr = 0.01f;
    config.momentum = s->momentum;
    OK(self, ls_optimizer_create(&config, params, n, ls_graph_param_elements(graph), &optimizer));
    float *weights = ls_graph_params(graph);
    for (uint64_t step = 0; step < STEPS; step++) {
        feed f = {step, 0};
        ls_run_config run = LS_RUN_CONFIG_INIT;
        ls_run_result result;
        run.training = run.backward = 1;
        run.batch = s->batch;
        run.step = step;
        OK(self, fill(&f, graph, 0, s->batch));
        by_rows(self, graph, optimizer, 0);
        OK(self, ls_graph_run(graph, &run, &result));
        by_rows(self, graph, optimizer, 1);
        OK(self,
           ls_optimizer_step(optimizer, weights, ls_graph_grads(graph), (float)(1 / result.count)));
    }
    OK(self, ls_optimizer_flush(optimizer, weights));
    for (size_t i = 0; i < t->expected.elements; i++)
        CHECK(self, memcmp(&weights[i], &t->expected.weights[i], sizeof(float)) == 0,
              "weight %zu is %.9g, not %.9g", i, (double)t->expected.weights[i],
              (double)weights[i]);
    ls_optimizer_destroy(optimizer);
    ls_graph_destroy(graph);
}

static void test_one_shard(void **state)
{
    (void)state;
    const scenario s = {.model = "dlrm",
                        .settings = {"rows=3000", "tables=3", "width=8", "bottom=16,8", "top=16"},
                        .optimizer = "sgd",
                        .momentum = 0.9f,
                        .batch = 40,
                        .last = 40,
                        .shards = 1};
    trial t = {.scenario = &s, .writes = 1};
    const ranks_layout one = ranks_shm(1);
    ranks_run(&one, train, &t);
    ranks_run(&one, train_by_hand, &t);
    release(&t.expected);
}

/* More workers than shards cannot help: refused by all, with the way out. */
static void too_many(rank *self)
{
    const scenario *s = &scenarios[0];
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    const lsi_engine_config config = {.shards = 2, .batch = 8, .optimizer = &optim};
    ls_graph *graph = build(self, s, lsi_engine_graph_batch(&config));
    lsi_engine *engine;
    IS(self, lsi_engine_open(self->comm, graph, &config, &engine), LS_ERR_CONFIG);
    CHECK(self, strstr(ls_last_error(), "2 shards"), "%s", ls_last_error());
    ls_graph_destroy(graph);
}

static void test_too_many_workers(void **state)
{
    (void)state;
    const ranks_layout layout = ranks_shm(3);
    ranks_run(&layout, too_many, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_one_shard),
        cmocka_unit_test(test_too_many_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

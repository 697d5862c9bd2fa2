/* Tables of embeddings with sparse gradients against the same with dense ones: the engine comes to
 * the same weights, optimizer state, losses and norms, bit for bit, on any number of workers.
 *
 * Ids come several times in a sample, in a shard, in a micro-batch, and in no shard at all.
 */
#include "feed.h"
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/engine.h"
#include <lockstep/nn.h>

#define STEPS 7

enum { BATCH = 23, LAST = 6, SHARDS = 5, T = 3, VOCAB = 211, WIDTH = 17, CLASSES = 4 };

typedef struct scenario {
    const char *optimizer;
    float momentum, decay, clip;
    size_t micro;
} scenario;

static const scenario scenarios[] = {
    {.optimizer = "sgd"},
    {.optimizer = "sgd", .momentum = 0.9f, .decay = 0.01f},
    {.optimizer = "sgd", .momentum = 0.9f, .decay = 0.01f, .clip = 0.1f, .micro = 2},
    {.optimizer = "adam", .decay = 0.01f},
    {.optimizer = "adamw"},
    {.optimizer = "adamw", .decay = 0.1f, .clip = 0.1f, .micro = 1},
    {.optimizer = "lamb"},
};

typedef struct trial {
    const scenario *scenario;
    int sparse;
    int together; /* shards of a worker side by side, where there are several hosts */
    /* of the dense run; state arrays one after the other */
    float *weights, *state;
    size_t elements, state_elements;
    double loss[STEPS], norm[STEPS];
} trial;

/* Two tables: one read once, the other by ids of a shape of their own, seen through a view. */
static ls_graph *build(int sparse, size_t batch)
{
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    ls_embedding_config table = LS_EMBEDDING_CONFIG_INIT;
    ls_graph *g;
    config.batch = batch;
    config.seed = 3;
    table.vocab = VOCAB;
    table.width = WIDTH;
    table.std = 0.5f;
    table.sparse = sparse;
    if (ls_graph_create(&config, &g) != LS_OK)
        return NULL;
    ls_tensor *ids = ls_input(g, "ids", LS_I32, 1, (size_t[]){T});
    ls_tensor *more = ls_input(g, "more", LS_I32, 2, (size_t[]){1, T});
    ls_tensor *x = ls_embedding_with(g, ids, &table, NULL);
    table.vocab = 5;
    more = ls_reshape(g, more, 1, (size_t[]){T});
    x = ls_add(g, x, ls_embedding_with(g, more, &table, NULL));
    x = ls_linear(g, ls_activate(g, x, LS_TANH), CLASSES);
    ls_tensor *labels = ls_input(g, "labels", LS_I32, 1, (size_t[]){T});
    if (ls_graph_compile(g, ls_cross_entropy(g, x, labels, 0, -100), NULL) == LS_OK)
        return g;
    ls_graph_destroy(g);
    return NULL;
}

typedef struct builder {
    int sparse;
    size_t batch;
} builder;

static ls_status build_another(void *arg, ls_graph **out)
{
    const builder *b = arg;
    *out = build(b->sparse, b->batch);
    return *out ? LS_OK : LS_ERR_INVALID;
}

/* All arrays of state, one after the other. */
static float *state_of(ls_optimizer *o, size_t elements, size_t *n)
{
    float *all = NULL;
    *n = 0;
    for (int i = 0; ls_optimizer_state(o, i, NULL); i++) {
        all = realloc(all, (*n + elements) * sizeof *all);
        memcpy(all + *n, ls_optimizer_state(o, i, NULL), elements * sizeof *all);
        *n += elements;
    }
    return all;
}

static void keep_or_compare(rank *self, trial *t, lsi_engine *engine, ls_graph *graph)
{
    const lsi_replica *r = lsi_engine_replica(engine);
    size_t n;
    if (!t->sparse) {
        t->elements = ls_graph_param_elements(graph);
        t->weights = malloc(t->elements * sizeof(float));
        memcpy(t->weights, r->weights, t->elements * sizeof(float));
        t->state = state_of(r->optimizer, t->elements, &t->state_elements);
        return;
    }
    for (size_t i = 0; i < t->elements; i++)
        CHECK(self, memcmp(&r->weights[i], &t->weights[i], sizeof(float)) == 0,
              "weight %zu is %.9g, not %.9g", i, (double)r->weights[i], (double)t->weights[i]);
    float *state = state_of(r->optimizer, t->elements, &n);
    CHECK(self, n == t->state_elements, "%zu", n);
    for (size_t i = 0; i < n; i++)
        CHECK(self, memcmp(&state[i], &t->state[i], sizeof(float)) == 0,
              "state %zu is %.9g, not %.9g", i, (double)state[i], (double)t->state[i]);
    free(state);
}

static void train(rank *self)
{
    trial *t = self->arg;
    const scenario *s = t->scenario;
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    optim.name = s->optimizer;
    optim.lr = 0.05f;
    optim.momentum = s->momentum;
    optim.decay = s->decay;
    optim.clip = s->clip;
    builder b = {t->sparse, 0};
    const lsi_engine_config config = {.shards = SHARDS,
                                      .batch = BATCH,
                                      .micro_batch = s->micro,
                                      .optimizer = &optim,
                                      .another = t->together ? build_another : NULL,
                                      .another_arg = &b};
    b.batch = lsi_engine_graph_batch(&config);
    ls_graph *graph = build(t->sparse, b.batch);
    lsi_engine *engine;
    CHECK(self, graph, "%s", ls_last_error());
    OK(self, lsi_engine_open(self->comm, graph, &config, &engine));
    for (uint64_t step = 0; step < STEPS; step++) {
        const uint64_t samples = step + 1 == STEPS ? LAST : BATCH;
        feed f = {step, 0};
        uint64_t end;
        lsi_step_result result;
        rank_case(self, "%s, step %d", s->optimizer, (int)step);
        lsi_engine_part(engine, samples, &f.first, &end);
        OK(self, lsi_engine_step(engine, samples, fill, &f, &result));
        if (!t->sparse) {
            t->loss[step] = result.loss;
            t->norm[step] = result.grad_norm;
        }
        CHECK(self, result.loss == t->loss[step], "%.17g, not %.17g", result.loss, t->loss[step]);
        CHECK(self, result.grad_norm == t->norm[step], "%.17g, not %.17g", result.grad_norm,
              t->norm[step]);
    }
    OK(self, lsi_engine_settle(engine));
    keep_or_compare(self, t, engine, graph);
    rank_meet(self);
    lsi_engine_close(engine);
    ls_graph_destroy(graph);
}

static void test_same_as_dense(void **state)
{
    (void)state;
    const ranks_layout layouts[] = {ranks_shm(1), ranks_shm(2), ranks_shm(3), ranks_tcp(2),
                                    ranks_hosts("2+1")};
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        trial t = {.scenario = &scenarios[i]};
        ranks_run(&layouts[0], train, &t);
        t.sparse = 1;
        for (t.together = 0; t.together < 2; t.together++)
            for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
                ranks_run(&layouts[l], train, &t);
        free(t.weights);
        free(t.state);
    }
}

/* ---- ids that are computed ------------------------------------------------------------------- */

static ls_status copy_infer(const ls_op_call *call, ls_op_shape *shape)
{
    (void)call;
    shape->dtype = LS_I32;
    return LS_OK;
}

static ls_status copy_forward(const ls_op_call *call)
{
    memcpy(call->out.data, call->in[0].data, call->out.count * sizeof(int32_t));
    return LS_OK;
}

static const ls_op_kind copy_op = {sizeof copy_op, "copy", 0, copy_infer, copy_forward, NULL};

/* Rows that nobody knows before a run cannot be brought up to date for it. */
static void refuse(rank *self)
{
    ls_graph_config graph_config = LS_GRAPH_CONFIG_INIT;
    ls_embedding_config table = LS_EMBEDDING_CONFIG_INIT;
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    const lsi_engine_config config = {.shards = 2, .batch = 4, .optimizer = &optim};
    ls_graph *g;
    lsi_engine *engine;
    graph_config.batch = lsi_engine_graph_batch(&config);
    table.vocab = VOCAB;
    table.width = CLASSES;
    table.sparse = 1;
    OK(self, ls_graph_create(&graph_config, &g));
    ls_tensor *ids = ls_input(g, "ids", LS_I32, 1, (size_t[]){T});
    ls_tensor *labels = ls_input(g, "labels", LS_I32, 1, (size_t[]){T});
    ids = ls_op_add(g, &copy_op, NULL, 0, 1, &ids, 0, NULL);
    ls_tensor *x = ls_embedding_with(g, ids, &table, NULL);
    OK(self, ls_graph_compile(g, ls_cross_entropy(g, x, labels, 0, -100), NULL));
    IS(self, lsi_engine_open(self->comm, g, &config, &engine), LS_ERR_UNSUPPORTED);
    CHECK(self, strstr(ls_last_error(), "embedding1.weight: its ids are not an input"), "%s",
          ls_last_error());
    ls_graph_destroy(g);
}

static void test_ids_are_inputs(void **state)
{
    (void)state;
    const ranks_layout layout = ranks_shm(2);
    ranks_run(&layout, refuse, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_dense),
                                       cmocka_unit_test(test_ids_are_inputs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

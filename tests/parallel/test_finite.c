/* A gradient that is no number is named by parameter, shard and worker, and changes nothing. */
#include "ranks.h"

#include <stdio.h>
#include <string.h>

#include "parallel/engine.h"
#include <lockstep/nn.h>

enum { SHARDS = 8, BAD = 5 };
#define WEIGHT 2e-38f /* times LARGE it is 2, and so the loss is small; its gradient is too large */
#define LARGE 1e38f

typedef struct feed {
    uint64_t first;
    int bad; /* the sample of shard BAD is large */
} feed;

static ls_status fill(void *arg, ls_graph *graph, uint64_t first, size_t count)
{
    const feed *f = arg;
    float *x = ls_input_data(graph, ls_graph_input(graph, 0));
    float *target = ls_input_data(graph, ls_graph_input(graph, 1));
    for (size_t i = 0; i < count; i++) {
        x[i] = f->bad && f->first + first + i == BAD ? LARGE : 1;
        target[i] = 0;
    }
    return LS_OK;
}

static ls_graph *build(rank *self)
{
    static const size_t one = 1;
    ls_graph *graph;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    ls_linear_config linear = LS_LINEAR_CONFIG_INIT;
    linear.out = 1;
    linear.no_bias = 1;
    config.batch = 1;
    OK(self, ls_graph_create(&config, &graph));
    ls_tensor *x = ls_input(graph, "x", LS_F32, 1, &one);
    ls_tensor *target = ls_input(graph, "target", LS_F32, 1, &one);
    ls_tensor *y = ls_linear_with(graph, x, &linear);
    OK(self, ls_graph_compile(graph, ls_mse(graph, y, target), NULL));
    return graph;
}

static void train(rank *self)
{
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    optim.name = "sgd";
    optim.lr = 0.001f;
    const lsi_engine_config config = {.shards = SHARDS, .batch = SHARDS, .optimizer = &optim};
    ls_graph *graph = build(self);
    lsi_engine *engine;
    lsi_step_result result;
    feed f = {0, 0};
    uint64_t end;
    OK(self, lsi_engine_open(self->comm, graph, &config, &engine));
    float *weight = lsi_engine_replica(engine)->weights;
    lsi_engine_part(engine, SHARDS, &f.first, &end);
    rank_meet(self);
    if (lsi_engine_replica(engine)->domain.member == 0)
        *weight = WEIGHT;
    rank_meet(self);
    const int mine = f.first <= BAD && BAD < end;
    f.bad = 1;
    const ls_status status = lsi_engine_step(engine, SHARDS, fill, &f, &result);
    char text[64];
    snprintf(text, sizeof text, "in shard %d of step 1, on worker %d", BAD, self->rank);
    CHECK(self, status != LS_OK, "it was taken");
    CHECK(self, !mine || status == LS_ERR_INVALID, "%s", ls_status_name(status));
    CHECK(self, !mine || strstr(ls_last_error(), text), "%s", ls_last_error());
    CHECK(self, !mine || strstr(ls_last_error(), "weight"), "%s", ls_last_error());
    if (mine)
        lsi_engine_give_up(engine, self->comm);
    const float now = *weight;
    CHECK(self, now == WEIGHT, "the weight is %g", (double)now);
    rank_meet(self);
    lsi_engine_close(engine);
    ls_graph_destroy(graph);
}

static void test_is_named(void **state)
{
    (void)state;
    const ranks_layout layouts[] = {ranks_shm(1), ranks_shm(2), ranks_tcp(2), ranks_hosts("1+2")};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        ranks_run(&layouts[i], train, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

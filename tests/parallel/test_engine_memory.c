/* Training steps of the engine do not allocate once the first is done, whoever the workers are.
 *
 * Malloc and its sisters are counted in all threads: those of the workers, and the library's own.
 * Over shared memory there is nothing from the second step on. A message that comes before its
 * receive is kept in memory from a pool, which fills by chance: with messages some steps more may
 * pass.
 */
#include "../count_allocations.h"
#include "feed.h"
#include "ranks.h"

#include <stdlib.h>

#include "parallel/engine.h"
#include <lockstep/nn.h>

enum { SHARDS = 6, BATCH = 24, LAST = 7, STEPS = 8, ATTEMPTS = 10 };

typedef struct scenario {
    const char *model, *settings[6];
    const char *optimizer;
    size_t micro;
} scenario;

static const scenario scenarios[] = {
    {"mlp", {"inputs=20", "hidden=24,17", "classes=5", "dropout=0.2"}, "sgd", 0},
    {"resnet:20", {"image=8", "width=16"}, "lars", 0},
    {"gpt:nano", {"layers=1", "dim=32", "heads=2", "context=8", "dropout=0.1"}, "lamb", 2},
    {"dlrm", {"rows=300", "tables=3", "width=8", "bottom=16,8", "top=16"}, "adam", 0},
    {0},
};

typedef struct trial {
    const scenario *scenario;
    int attempts; /* until so many steps in a row do not allocate */
} trial;

typedef struct builder {
    rank *self;
    const scenario *scenario;
    size_t batch;
} builder;

static ls_graph *build(const builder *b)
{
    ls_model *model;
    ls_graph *graph;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    OK(b->self, ls_model_create(b->scenario->model, &model));
    for (int i = 0; i < 6 && b->scenario->settings[i]; i++)
        OK(b->self, ls_model_set(model, b->scenario->settings[i]));
    config.batch = b->batch;
    config.seed = 5;
    OK(b->self, ls_model_build(model, &config, &graph));
    ls_model_destroy(model);
    return graph;
}

static ls_status build_another(void *arg, ls_graph **out)
{
    *out = build(arg);
    return LS_OK;
}

static void step(rank *self, lsi_engine *engine, uint64_t number)
{
    const uint64_t samples = number % 4 == 3 ? LAST : BATCH; /* as at the end of an epoch */
    feed f = {number, 0};
    uint64_t end;
    lsi_step_result result;
    lsi_engine_part(engine, samples, &f.first, &end);
    OK(self, lsi_engine_step(engine, samples, fill, &f, &result));
}

/* What some steps allocate: the same number on every worker. */
static int counted(rank *self, lsi_engine *engine, uint64_t first)
{
    rank_meet(self);
    if (self->rank == 0) {
        atomic_store(&allocations, 0);
        atomic_store(&counting, 1);
    }
    rank_meet(self);
    for (uint64_t i = 0; i < STEPS; i++)
        step(self, engine, first + i);
    rank_meet(self);
    atomic_store(&counting, 0);
    rank_meet(self);
    const int found = atomic_load(&allocations);
    rank_meet(self);
    return found;
}

static void train(rank *self)
{
    const trial *t = self->arg;
    const scenario *s = t->scenario;
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    optim.name = s->optimizer;
    optim.lr = 0.01f;
    optim.clip = 1;
    builder b = {self, s, 0};
    const lsi_engine_config config = {.shards = SHARDS,
                                      .batch = BATCH,
                                      .micro_batch = s->micro,
                                      .optimizer = &optim,
                                      .bucket_bytes = 4096,
                                      .another = build_another,
                                      .another_arg = &b};
    b.batch = lsi_engine_graph_batch(&config);
    ls_graph *graph = build(&b);
    lsi_engine *engine;
    rank_case(self, "%s", s->model);
    OK(self, lsi_engine_open(self->comm, graph, &config, &engine));
    step(self, engine, 0);
    int found = -1;
    for (int attempt = 0; found && attempt < t->attempts; attempt++)
        found = counted(self, engine, 1 + (uint64_t)(attempt * STEPS));
    CHECK(self, found == 0, "%d allocations after the first step", found);
    lsi_engine_close(engine);
    ls_graph_destroy(graph);
}

static void test_steps(void **state)
{
    (void)state;
    const ranks_layout layouts[] = {ranks_shm(1), ranks_shm(3), ranks_tcp(2), ranks_hosts("1+1"),
                                    ranks_hosts("2+1+2")};
    for (const scenario *s = scenarios; s->model; s++)
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
            const int messages = layouts[i].tcp || layouts[i].hosts > 1;
            trial t = {s, messages ? ATTEMPTS : 1};
            ranks_run(&layouts[i], train, &t);
        }
}

static void test_counter(void **state)
{
    (void)state;
    allocations = 0;
    counting = 1;
    void *volatile memory = malloc(10);
    counting = 0;
    free(memory);
    assert_int_equal(allocations, COUNTS_ALLOCATIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter),
        cmocka_unit_test(test_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

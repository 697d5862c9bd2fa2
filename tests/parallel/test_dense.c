/* Sparse gradients against dense ones: tables of a dlrm, trained by the engine through lists of
 * rows on several layouts, have the bits of a plain loop that sums whole tables and updates every
 * row.
 */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "parallel/engine.h"
#include <lockstep/nn.h>

#define STEPS 3
#define BATCH 23
#define SHARDS 5
#define PARAMS 64

static const char *const settings[] = {"rows=60", "tables=3", "width=8", "bottom=16,8", "top=12"};

typedef struct trial {
    const char *optimizer;
    float momentum;
    float *weights; /* of the plain loop */
    size_t elements;
} trial;

static ls_graph *build(size_t batch)
{
    ls_model *model = NULL;
    ls_graph *graph = NULL;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.batch = batch;
    config.seed = 3;
    if (ls_model_create("dlrm", &model) != LS_OK)
        return NULL;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (ls_model_set(model, settings[i]) != LS_OK)
            return NULL;
    if (ls_model_build(model, &config, &graph) != LS_OK)
        graph = NULL;
    ls_model_destroy(model);
    return graph;
}

/* Sample `first` and those after it, of a step; few different ids, so that rows meet in a sum. */
static void put_samples(ls_graph *graph, uint64_t step, uint64_t first, size_t count)
{
    ls_tensor *input;
    for (uint32_t i = 0; (input = ls_graph_input(graph, (int)i)); i++) {
        const size_t *dims = ls_tensor_dims(input), bound = ls_tensor_bound(input);
        const size_t each = ls_tensor_ndim(input) > 1 ? dims[1] : 1;
        float *real = ls_input_data(graph, input);
        int32_t *whole = ls_input_data(graph, input);
        for (size_t e = 0; e < count * each; e++) {
            const uint32_t key[2] = {11, i};
            const uint32_t counter[4] = {(uint32_t)(e % each), (uint32_t)(first + e / each),
                                         (uint32_t)step, 0};
            uint32_t words[4];
            lsi_philox(counter, key, words);
            if (bound)
                whole[e] = (int32_t)(words[0] % 9 * 5);
            else if (strcmp(ls_tensor_name(input), "target") == 0)
                real[e] = (float)(words[0] >> 31);
            else
                real[e] = 2.0f * lsi_philox_uniform(words[0]) - 1.0f;
        }
    }
}

static ls_optim_config optim_of(const trial *t)
{
    ls_optim_config config = LS_OPTIM_CONFIG_INIT;
    config.name = t->optimizer;
    config.momentum = t->momentum;
    config.lr = 0.05f;
    return config;
}

/* ---- the plain loop ------------------------------------------------------------------------- */

/* A shard's gradient as one dense vector. */
static void dense_gradient(ls_graph *graph, const ls_param_info *params, int n, float *out)
{
    memcpy(out, ls_graph_grads(graph), ls_graph_param_elements(graph) * sizeof *out);
    for (int p = 0; p < n; p++) {
        ls_sparse_grad grad;
        if (!params[p].sparse)
            continue;
        memset(out + params[p].offset, 0, params[p].count * sizeof *out);
        assert_int_equal(ls_graph_sparse_grad(graph, p, &grad), LS_OK);
        for (size_t r = 0; r < grad.rows; r++)
            memcpy(out + params[p].offset + (size_t)grad.ids[r] * grad.width,
                   grad.values + r * grad.width, grad.width * sizeof *out);
    }
}

/* Every row of every table with its gradient, used or not. */
static void give_all_rows(ls_optimizer *o, const ls_param_info *params, int n, const float *sum)
{
    static int32_t ids[4096];
    for (int i = 0; i < 4096; i++)
        ids[i] = i;
    for (int p = 0; p < n; p++) {
        if (!params[p].sparse)
            continue;
        const ls_sparse_grad all = {params[p].dims[0], params[p].dims[1], ids,
                                    sum + params[p].offset};
        assert_int_equal(ls_optimizer_sparse(o, p, &all), LS_OK);
    }
}

static void train_plainly(trial *t)
{
    ls_graph *graph = build(BATCH);
    ls_param_info params[PARAMS];
    const int n = ls_graph_param_count(graph);
    const ls_optim_config config = optim_of(t);
    ls_optimizer *optimizer;
    float *vectors[SHARDS];
    t->elements = ls_graph_param_elements(graph);
    for (int p = 0; p < n; p++)
        assert_int_equal(ls_graph_param(graph, p, &params[p]), LS_OK);
    assert_int_equal(ls_optimizer_create(&config, params, n, t->elements, &optimizer), LS_OK);
    for (int v = 0; v < SHARDS; v++)
        vectors[v] = calloc(t->elements, sizeof(float));
    for (uint64_t step = 0; step < STEPS; step++) {
        lsi_tree_node leaves[SHARDS], out[LSI_TREE_MAX_NODES];
        lsi_tree_plan plan;
        double count = 0;
        for (int v = 0; v < SHARDS; v++) {
            uint64_t first, end;
            ls_run_config run = LS_RUN_CONFIG_INIT;
            ls_run_result found;
            lsi_cut_shard(BATCH, SHARDS, v, &first, &end);
            run.batch = (size_t)(end - first);
            run.training = run.backward = 1;
            run.step = step;
            run.first_position = first;
            put_samples(graph, step, first, run.batch);
            assert_int_equal(ls_graph_run(graph, &run, &found), LS_OK);
            dense_gradient(graph, params, n, vectors[v]);
            leaves[v] = (lsi_tree_node){v, v + 1};
            count += found.count;
        }
        void *sum = vectors[0];
        lsi_tree_merge_plan(SHARDS, leaves, SHARDS, out, &plan);
        lsi_tree_merge_run(&plan, LS_F32, LS_SUM, (const void *const *)vectors, &sum, t->elements);
        give_all_rows(optimizer, params, n, vectors[0]);
        assert_int_equal(ls_optimizer_step(optimizer, ls_graph_params(graph), vectors[0],
                                           (float)(1 / count)),
                         LS_OK);
    }
    t->weights = malloc(t->elements * sizeof(float));
    memcpy(t->weights, ls_graph_params(graph), t->elements * sizeof(float));
    for (int v = 0; v < SHARDS; v++)
        free(vectors[v]);
    ls_optimizer_destroy(optimizer);
    ls_graph_destroy(graph);
}

/* ---- the engine ----------------------------------------------------------------------------- */

typedef struct feed {
    uint64_t step, first;
} feed;

static ls_status fill(void *arg, ls_graph *graph, uint64_t first, size_t count)
{
    const feed *f = arg;
    put_samples(graph, f->step, f->first + first, count);
    return LS_OK;
}

static void train(rank *self)
{
    const trial *t = self->arg;
    const ls_optim_config optim = optim_of(t);
    const lsi_engine_config config = {.shards = SHARDS, .batch = BATCH, .optimizer = &optim};
    ls_graph *graph = build(lsi_engine_graph_batch(&config));
    lsi_engine *engine;
    CHECK(self, graph, "%s", ls_last_error());
    OK(self, lsi_engine_open(self->comm, graph, &config, &engine));
    for (uint64_t step = 0; step < STEPS; step++) {
        feed f = {.step = step};
        uint64_t end;
        lsi_engine_part(engine, BATCH, &f.first, &end);
        OK(self, lsi_engine_step(engine, BATCH, fill, &f, NULL));
    }
    OK(self, lsi_engine_settle(engine));
    const float *weights = lsi_engine_replica(engine)->weights;
    for (size_t i = 0; i < t->elements; i++)
        CHECK(self, memcmp(&weights[i], &t->weights[i], sizeof(float)) == 0,
              "weight %zu is %.9g, not %.9g", i, (double)weights[i], (double)t->weights[i]);
    rank_meet(self);
    lsi_engine_close(engine);
    ls_graph_destroy(graph);
}

static void compare(const char *optimizer, float momentum)
{
    const ranks_layout layouts[] = {ranks_shm(1), ranks_shm(2), ranks_shm(3), ranks_tcp(2),
                                    ranks_hosts("2+1")};
    trial t = {.optimizer = optimizer, .momentum = momentum};
    train_plainly(&t);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        ranks_run(&layouts[i], train, &t);
    free(t.weights);
}

static void test_sgd(void **state)
{
    (void)state;
    compare("sgd", 0);
    compare("sgd", 0.9f);
}

static void test_adam(void **state)
{
    (void)state;
    compare("adam", 0);
    compare("adamw", 0);
}

static void test_lamb(void **state)
{
    (void)state;
    compare("lamb", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_lamb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ls_replica_*: gradients of one's own, on any number of workers; misuse is refused. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

#define SIZES 3
static const size_t sizes[SIZES] = {3, 5000, 17};

/* Gradients whose sum depends on the order of the additions. */
static float gradient(int param, size_t e, int shard)
{
    return (shard % 3 == 1 ? 1e6f : 1.0f) * (float)((int)(e * 31 + (size_t)shard * 7) % 13 - 6) +
           0.1f * (float)param;
}

typedef struct trial {
    const char *optimizer; /* NULL: the mean gradient is handed out */
    int own_memory;        /* the replica's instead of ours */
    int silent;            /* parameter 1 is never called ready */
    float *expected;
    double loss;
} trial;

static void check_all(rank *self, trial *t, ls_replica *r, float *const *values, double loss)
{
    size_t at = 0;
    (void)r;
    for (int p = 0; p < SIZES; p++)
        for (size_t e = 0; e < sizes[p]; e++, at++) {
            if (self->size == 1)
                t->expected[at] = values[p][e];
            CHECK(self, memcmp(&values[p][e], &t->expected[at], sizeof(float)) == 0,
                  "element %zu of parameter %d is %.9g, not %.9g", e, p, (double)values[p][e],
                  (double)t->expected[at]);
        }
    if (self->size == 1)
        t->loss = loss;
    CHECK(self, loss == t->loss, "%.17g, not %.17g", loss, t->loss);
}

static void one_step(rank *self, const trial *t, ls_replica *r, float *const *mine,
                     uint64_t samples, ls_replica_result *result)
{
    ls_shard shard;
    OK(self, ls_replica_begin(r, samples));
    while (ls_replica_next(r, &shard)) {
        CHECK(self, !ls_replica_next(r, &shard), "the shard before is not done");
        for (int p = 0; p < SIZES; p++) {
            float *to = t->own_memory ? ls_replica_gradient(r, p) : mine[p];
            for (size_t e = 0; e < sizes[p]; e++)
                to[e] = gradient(p, e, shard.number);
            if (!(t->silent && p == 1))
                ls_replica_ready(r, p);
        }
        OK(self, ls_replica_done(r, 0.1 * (double)shard.number, (double)(shard.end - shard.first)));
    }
    OK(self, ls_replica_sync(r, result));
}

static void steps(rank *self)
{
    trial *t = self->arg;
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    ls_replica_config config = LS_REPLICA_CONFIG_INIT;
    ls_replica *r;
    ls_replica_result result = {0};
    float *weights[SIZES], *gradients[SIZES], *shown[SIZES];
    optim.name = t->optimizer;
    config.shards = 8;
    config.batch = 40;
    config.bucket = 8192;
    config.optimizer = t->optimizer ? &optim : NULL;
    OK(self, ls_replica_create(self->comm, &config, &r));
    for (int p = 0; p < SIZES; p++) {
        const char *const names[SIZES] = {"last", "middle", "first"};
        weights[p] = calloc(sizes[p], sizeof(float));
        gradients[p] = calloc(sizes[p], sizeof(float));
        for (size_t e = 0; e < sizes[p]; e++) /* those of rank 0 count */
            weights[p][e] = self->rank == 0 ? 0.01f * (float)(e % 100) : 77;
        OK(self, ls_replica_add(r, names[p], t->own_memory ? NULL : weights[p],
                                t->own_memory ? NULL : gradients[p], sizes[p]));
    }
    OK(self, ls_replica_start(r));
    for (int i = 0; i < 3; i++)
        one_step(self, t, r, gradients, i == 2 ? 5 : 40, &result);
    for (int p = 0; p < SIZES; p++)
        shown[p] = t->optimizer ? ls_replica_weights(r, p) : gradients[p];
    check_all(self, t, r, shown, result.loss);
    rank_meet(self);
    ls_replica_destroy(r);
    for (int p = 0; p < SIZES; p++) {
        free(weights[p]);
        free(gradients[p]);
    }
}

static void compare_layouts(trial t)
{
    const ranks_layout layouts[] = {ranks_shm(1), ranks_shm(2),       ranks_shm(3),
                                    ranks_tcp(3), ranks_hosts("2+1"), ranks_hosts("1+1+3")};
    t.expected = calloc(sizes[0] + sizes[1] + sizes[2], sizeof(float));
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        ranks_run(&layouts[i], steps, &t);
    free(t.expected);
}

static void test_weights_have_the_same_bits(void **state)
{
    (void)state;
    compare_layouts((trial){.optimizer = "adamw"});
}

static void test_in_memory_of_the_replica(void **state)
{
    (void)state;
    compare_layouts((trial){.optimizer = "sgd", .own_memory = 1});
}

static void test_mean_gradient(void **state)
{
    (void)state;
    compare_layouts((trial){.optimizer = NULL});
}

static void test_parameter_without_gradient(void **state)
{
    (void)state;
    compare_layouts((trial){.optimizer = "sgd", .silent = 1});
}

/* ---- misuse --------------------------------------------------------------------------------- */

static void misuse(rank *self)
{
    ls_replica_config config = LS_REPLICA_CONFIG_INIT;
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    ls_replica *r;
    ls_shard shard;
    float w = 0, g = 0;
    IS(self, ls_replica_create(self->comm, &config, &r), LS_ERR_INVALID); /* no batch */
    config.batch = 4;
    optim.name = "nosuch";
    config.optimizer = &optim;
    IS(self, ls_replica_create(self->comm, &config, &r), LS_ERR_CONFIG);
    optim.name = "sgd";
    OK(self, ls_replica_create(self->comm, &config, &r));
    IS(self, ls_replica_start(r), LS_ERR_INVALID); /* no parameters */
    IS(self, ls_replica_begin(r, 4), LS_ERR_INVALID);
    IS(self, ls_replica_sync(r, NULL), LS_ERR_INVALID);
    IS(self, ls_replica_add(r, "w", &w, &g, 0), LS_ERR_INVALID);
    OK(self, ls_replica_add(r, "w", &w, &g, 1));
    IS(self, ls_replica_add(r, "w", &w, &g, 1), LS_ERR_INVALID);
    CHECK(self, strstr(ls_last_error(), "w already"), "%s", ls_last_error());
    OK(self, ls_replica_start(r));
    IS(self, ls_replica_add(r, "late", &w, &g, 1), LS_ERR_INVALID);
    IS(self, ls_replica_begin(r, 0), LS_ERR_INVALID);
    IS(self, ls_replica_begin(r, 5), LS_ERR_INVALID);
    CHECK(self, !ls_replica_weights(r, 1) && !ls_replica_gradient(r, -1), "out of range");
    OK(self, ls_replica_begin(r, 4));
    IS(self, ls_replica_done(r, 0, 1), LS_ERR_INVALID); /* no shard is under way */
    IS(self, ls_replica_sync(r, NULL), LS_ERR_INVALID); /* shards are missing */
    while (ls_replica_next(r, &shard))
        OK(self, ls_replica_done(r, 0, 0)); /* nothing counts */
    IS(self, ls_replica_sync(r, NULL), LS_ERR_INVALID);
    rank_meet(self);
    ls_replica_destroy(r);
}

static void test_misuse(void **state)
{
    (void)state;
    const ranks_layout layouts[] = {ranks_shm(1), ranks_shm(2)};
    for (size_t i = 0; i < 2; i++)
        ranks_run(&layouts[i], misuse, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_have_the_same_bits),
        cmocka_unit_test(test_in_memory_of_the_replica),
        cmocka_unit_test(test_mean_gradient),
        cmocka_unit_test(test_parameter_without_gradient),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

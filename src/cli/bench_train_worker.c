/* lockstep bench train: one worker.
 *
 * Steps of the real engine, again and again; no evaluation, no checkpoint. Batches are made before;
 * the same one is used in each step unless the model has sparse parameters, where rows that are
 * used again at once would be cheaper than others. The time of a step is the median over worker
 * 0's.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/philox.h"
#include "base/status.h"
#include "cli/bench_train.h"
#include "cli/cli.h"
#include "parallel/engine.h"
#include <lockstep/nn.h>

#define WARM_UP 3
#define STEPS_MAX 100000
#define POOL 16 /* batches that are made, with sparse parameters */
#define INPUTS_MAX 8

/* What is usual: of the first whose name the model's begins with. Samples of a small GPT run a few
 * at a time, about as many as a shard of `lockstep train` has: what they leave for the backward
 * pass then comes from nearer caches (gpt:nano on an Emerald Rapids: 6 % less time). Where weights
 * are large beside it, packing them more often costs more than that. */
static const struct usual {
    const char *model;
    long batch, micro; /* micro 0: a whole shard at a time */
} usual[] = {
    {"mlp", 128, 0},     {"resnet:20", 64, 0}, {"gpt:char", 8, 0}, {"gpt:124m", 4, 0},
    {"gpt:nano", 12, 3}, {"gpt", 12, 0},       {"dlrm", 256, 0},   {"", 32, 0},
};

typedef struct bench {
    const lsi_bench_train *o;
    ls_comm *comm;
    int workers, worker;
    long batch, shards, micro;
    size_t graph_batch;
    ls_graph *graph;
    lsi_engine *engine;
    /* this worker's samples of each batch of the pool */
    char *pool[INPUTS_MAX];
    size_t each[INPUTS_MAX]; /* bytes of a sample */
    int inputs, pools, turn; /* turn: the batch in use */
    size_t samples;
    const ls_graph *filled; /* the graph that was filled last, with which samples of the pool */
    size_t filled_at, filled_count;
} bench;

typedef struct figures {
    double step_s;                /* of a step: the median, */
    double fast_s;                /* what a tenth of them stays below, */
    double mean_s, cpu_s, wait_s; /* the mean; processor time and waiting likewise */
    double exchanged_s, exposed_s;
    double rss, pss; /* MiB: the largest worker, all workers */
    long steps;
} figures;

/* ---- set-up --------------------------------------------------------------------------------- */

static void settle(bench *b)
{
    const lsi_bench_train *o = b->o;
    const struct usual *u = usual;
    while (strncmp(o->model, u->model, strlen(u->model)) != 0)
        u++;
    b->batch = o->batch ? o->batch : u->batch * b->workers;
    b->shards = o->shards ? o->shards : b->workers;
    b->micro = o->micro ? o->micro : u->micro * b->shards < b->batch ? u->micro : 0;
}

static ls_status make_graph(void *arg, ls_graph **out)
{
    const bench *b = arg;
    ls_model *model;
    LSI_TRY(ls_model_create(b->o->model, &model));
    ls_status status = LS_OK;
    for (int i = 0; i < b->o->n_sets && status == LS_OK; i++) {
        const char *set = b->o->sets[i];
        status = ls_model_set(model, strncmp(set, "model.", 6) == 0 ? set + 6 : set);
    }
    if (status == LS_OK) {
        ls_graph_config config = LS_GRAPH_CONFIG_INIT;
        config.device = b->o->device;
        config.batch = b->graph_batch;
        config.seed = (uint64_t)b->o->seed;
        status = ls_model_build(model, &config, out);
    }
    ls_model_destroy(model);
    return status;
}

static ls_status make_engine(bench *b)
{
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    const int gpt = strncmp(b->o->model, "gpt", 3) == 0;
    optim.device = b->o->device;
    optim.name = b->o->optimizer ? b->o->optimizer : gpt ? "adamw" : "sgd";
    optim.lr = strcmp(optim.name, "sgd") == 0 ? 0.01f : 1e-4f;
    if (strcmp(optim.name, "sgd") == 0)
        optim.momentum = 0.9f;
    const lsi_engine_config config = {.shards = (int)b->shards,
                                      .batch = (uint64_t)b->batch,
                                      .micro_batch = (size_t)b->micro,
                                      .optimizer = &optim,
                                      .bucket_bytes = (size_t)b->o->bucket,
                                      .another = make_graph,
                                      .another_arg = b};
    b->graph_batch = lsi_engine_graph_batch(&config);
    LSI_TRY(make_graph(b, &b->graph));
    return lsi_engine_open(b->comm, b->graph, &config, &b->engine);
}

/* Ids and labels evenly over their range, targets 0 or 1, all else in [-1, 1). */
static void generate(const bench *b, int input, uint64_t first_sample, size_t values)
{
    ls_tensor *tensor = ls_graph_input(b->graph, input);
    const size_t bound = ls_tensor_bound(tensor), each = b->each[input] / sizeof(float);
    const int is_target = strcmp(ls_tensor_name(tensor), "target") == 0;
    const uint32_t key[2] = {(uint32_t)b->o->seed, 1};
    float *real = (float *)b->pool[input];
    int32_t *whole = (int32_t *)b->pool[input];
    for (size_t e = 0; e < values; e++) {
        const uint64_t sample = first_sample + e / each;
        const uint32_t counter[4] = {(uint32_t)(e % each), (uint32_t)sample, (uint32_t)input, 0};
        uint32_t words[4];
        lsi_philox(counter, key, words);
        if (bound)
            whole[e] = (int32_t)(words[0] % bound);
        else if (is_target)
            real[e] = (float)(words[0] >> 31);
        else
            real[e] = 2.0f * lsi_philox_uniform(words[0]) - 1.0f;
    }
}

static ls_status make_pool(bench *b)
{
    uint64_t first, end;
    ls_tensor *input;
    ls_param_info info;
    lsi_engine_part(b->engine, (uint64_t)b->batch, &first, &end);
    b->samples = (size_t)(end - first);
    b->pools = 1;
    for (int i = 0; ls_graph_param(b->graph, i, &info) == LS_OK; i++)
        if (info.sparse)
            b->pools = POOL;
    for (; b->inputs < INPUTS_MAX && (input = ls_graph_input(b->graph, b->inputs)); b->inputs++) {
        const size_t *dims = ls_tensor_dims(input);
        size_t values = 1;
        for (int d = 1; d < ls_tensor_ndim(input); d++)
            values *= dims[d];
        const size_t all = (size_t)b->pools * b->samples;
        b->each[b->inputs] = values * sizeof(float);
        b->pool[b->inputs] = malloc(all * b->each[b->inputs] + 1);
        if (!b->pool[b->inputs])
            return lsi_fail(LS_ERR_NOMEM, NULL, "bench train", "out of memory");
        generate(b, b->inputs, (uint64_t)b->worker << 24, all * values);
    }
    return LS_OK;
}

static ls_status fill(void *arg, ls_graph *graph, uint64_t first, size_t count)
{
    bench *b = arg;
    const size_t at = (size_t)b->turn * b->samples + (size_t)first;
    if (b->filled == graph && b->filled_at == at && b->filled_count == count)
        return LS_OK; /* they are there */
    b->filled = graph;
    b->filled_at = at;
    b->filled_count = count;
    for (int i = 0; i < b->inputs; i++)
        memcpy(ls_input_data(graph, ls_graph_input(graph, i)), b->pool[i] + at * b->each[i],
               count * b->each[i]);
    return LS_OK;
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* Seconds of processor time: a step that takes much longer than that has lost its core to others.
 */
static double cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double peak_rss_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

/* Our share of all memory in use, shared pages divided by their users; 0 where it is not told. */
static double pss_mb(void)
{
    char line[256];
    double kb = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %lf kB", &kb) == 1)
            break;
    if (file)
        fclose(file);
    return kb / 1024;
}

static ls_status step(bench *b, lsi_step_result *result)
{
    b->turn = (b->turn + 1) % b->pools;
    return lsi_engine_step(b->engine, (uint64_t)b->batch, fill, b, result);
}

/* Worker 0 says whether there is time for more, every few steps; all stop after the same one. */
static ls_status go_on(const bench *b, long n, double end, int *more)
{
    if (b->workers > 1 && n % 4)
        return LS_OK;
    *more = n < STEPS_MAX && (n < 3 || lsi_now() < end);
    return ls_broadcast(b->comm, more, 1, LS_I32, 0);
}

static ls_status measure(bench *b, figures *f)
{
    double *times = calloc(STEPS_MAX + 4, sizeof *times), last, cpu;
    if (!times)
        return lsi_fail(LS_ERR_NOMEM, NULL, "bench train", "out of memory");
    ls_status status = LS_OK;
    long n = 0;
    int more = 1;
    for (int i = 0; i < WARM_UP && status == LS_OK; i++)
        status = step(b, NULL);
    ls_graph_profile(b->graph, b->o->profile);
    const double end = lsi_now() + b->o->seconds;
    cpu = cpu_time();
    while (status == LS_OK && (status = go_on(b, n, end, &more)) == LS_OK && more) {
        lsi_step_result result = {0};
        last = lsi_now();
        status = step(b, &result);
        times[n++] = lsi_now() - last;
        f->wait_s += result.waited;
        f->exchanged_s += result.exchanged;
        f->exposed_s += result.exposed;
    }
    if (status == LS_OK) {
        qsort(times, (size_t)n, sizeof *times, by_size);
        for (long i = 0; i < n; i++)
            f->mean_s += times[i] / (double)n;
        f->step_s = times[n / 2];
        f->fast_s = times[n / 10];
        f->cpu_s = (cpu_time() - cpu) / (double)n;
        f->wait_s /= (double)n;
        f->exchanged_s /= (double)n;
        f->exposed_s /= (double)n;
        f->steps = n;
        double memory[2] = {peak_rss_mb(), pss_mb()};
        status = ls_allreduce(b->comm, LS_IN_PLACE, &memory[0], 1, LS_F64, LS_MAX);
        if (status == LS_OK)
            status = ls_allreduce(b->comm, LS_IN_PLACE, &memory[1], 1, LS_F64, LS_SUM);
        f->rss = memory[0];
        f->pss = memory[1];
    }
    free(times);
    return status;
}

/* ---- printing ------------------------------------------------------------------------------- */

static void print_profile(const bench *b, const figures *f)
{
    ls_profile_entry entries[64];
    const int n = ls_graph_profile_entries(b->graph, entries, 64);
    double total = 0, whole = f->mean_s * (double)f->steps;
    printf("\n%-18s %8s %9s %9s %7s %9s\n", "operation", "calls", "forward", "backward", "share",
           "GFLOP/s");
    for (int i = 0; i < n; i++) {
        const ls_profile_entry *e = &entries[i];
        const double time = e->forward_s + e->backward_s;
        total += time;
        printf("%-18s %8" PRIu64 " %7.2fms %7.2fms %6.1f%%", e->op, e->calls / (uint64_t)f->steps,
               1e3 * e->forward_s / (double)f->steps, 1e3 * e->backward_s / (double)f->steps,
               100 * time / whole);
        if (e->flops > 0)
            printf(" %9.1f", e->flops / time * 1e-9);
        putchar('\n');
    }
    printf("%-18s %8s %9s %7.2fms %6.1f%%\n", "update, rest", "", "",
           1e3 * (whole - total) / (double)f->steps, 100 * (whole - total) / whole);
}

static double flops_of_step(const bench *b)
{
    const double graph_batch = (double)ls_tensor_dims(ls_graph_input(b->graph, 0))[0];
    return ls_graph_flops(b->graph) / graph_batch * (double)b->batch;
}

static void print(const bench *b, const figures *f)
{
    const double gflops = flops_of_step(b) / f->step_s * 1e-9;
    const double rate = (double)b->batch / f->step_s;
    if (b->o->json) {
        printf("{\"model\": \"%s\", \"params\": %zu, \"workers\": %d, \"shards\": %ld, \"batch\": "
               "%ld, \"micro_batch\": %zu, \"step_ms\": %.4f, \"fast_ms\": %.4f, \"cpu_ms\": %.4f, "
               "\"wait_ms\": %.4f, "
               "\"exchanged_ms\": %.4f, \"exposed_ms\": %.4f, \"samples_per_s\": %.3f, "
               "\"gflops\": %.3f, \"peak_rss_mb\": %.1f, \"pss_mb\": %.1f}\n",
               b->o->model, ls_graph_trained(b->graph), b->workers, b->shards, b->batch,
               b->graph_batch, f->step_s * 1e3, f->fast_s * 1e3, f->cpu_s * 1e3, f->wait_s * 1e3,
               f->exchanged_s * 1e3, f->exposed_s * 1e3, rate, gflops, f->rss, f->pss);
        return;
    }
    ls_graph_memory memory;
    ls_graph_get_memory(b->graph, &memory);
    printf("%s: %zu parameters, batch %ld in %ld shard%s, ", b->o->model,
           ls_graph_trained(b->graph), b->batch, b->shards, b->shards == 1 ? "" : "s");
    if (b->micro)
        printf("%zu samples at a time, ", b->graph_batch);
    printf("%d worker%s, %ld steps\n", b->workers, b->workers == 1 ? "" : "s", f->steps);
    printf("step %.3f ms (processor %.3f)   %.1f samples/s   %.1f GFLOP/s   peak memory %.1f MiB\n",
           f->step_s * 1e3, f->cpu_s * 1e3, rate, gflops, f->rss);
    printf("activations %.1f MiB (%.1f without reuse), parameters and gradients %.1f MiB\n",
           (double)memory.activations / 0x1p20, (double)memory.kept_without_reuse / 0x1p20,
           (double)(memory.params + memory.grads) / 0x1p20);
    if (b->workers > 1)
        printf("waiting for others %.3f ms a step (%.1f %%); all workers together use %.1f MiB\n",
               f->wait_s * 1e3, 100 * f->wait_s / f->step_s, f->pss);
    if (f->exchanged_s > 0)
        printf("with other hosts %.3f ms a step, of which %.1f %% are hidden behind backward\n",
               f->exchanged_s * 1e3, 100 * (1 - f->exposed_s / f->exchanged_s));
    if (b->o->profile)
        print_profile(b, f);
}

int lsi_bench_train_work(const lsi_bench_train *o)
{
    bench b = {.o = o};
    figures f = {0};
    ls_config config = LS_CONFIG_INIT;
    config.transport = o->transport;
    ls_status done = ls_init(&config, &b.comm);
    if (done == LS_OK) {
        b.workers = ls_comm_size(b.comm);
        b.worker = ls_comm_rank(b.comm);
        settle(&b);
        done = make_engine(&b);
    }
    if (done == LS_OK)
        done = make_pool(&b);
    if (done == LS_OK)
        done = measure(&b, &f);
    int status = 0;
    if (done != LS_OK && (b.worker == 0 || done != LS_ERR_CONFIG))
        status = done == LS_ERR_CONFIG ? lsi_cli_bad_value("bench train") : lsi_cli_fail();
    else if (done != LS_OK)
        status = LSI_CLI_USAGE; /* worker 0 says why */
    else if (b.worker == 0)
        print(&b, &f);
    lsi_engine_close(b.engine);
    ls_graph_destroy(b.graph);
    for (int i = 0; i < b.inputs; i++)
        free(b.pool[i]);
    ls_finalize(b.comm);
    return status;
}

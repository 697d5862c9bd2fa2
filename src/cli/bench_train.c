/* lockstep bench train: the speed of a model's training step on generated data, on one worker.
 *
 * Forward, backward and update, again and again; no evaluation, no checkpoint. The batch is the
 * same each time unless the model has sparse parameters; making it is not timed. The time of a step
 * is the median.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/philox.h"
#include "base/status.h"
#include "cli/cli.h"
#include <lockstep/nn.h>
#include <lockstep/optim.h>

#define WARM_UP 3
#define STEPS_MAX 100000
#define SETS_MAX 32

static const char help[] =
    "usage: lockstep bench train MODEL [OPTIONS]\n"
    "\n"
    "Measures the training step of a model on generated data: forward, backward and update, on "
    "one\n"
    "worker. Prints samples a second, the time of a step (the median), GFLOP/s and memory.\n"
    "\n"
    "  MODEL                 mlp, resnet:20, resnet:18, resnet:34, resnet:50, gpt:nano, gpt:char,\n"
    "                        gpt:124m, dlrm\n"
    "\n"
    "      --batch B         samples of a step (as usual for the model)\n"
    "      --set KEY=VALUE   a setting of the model, e.g. model.layers=6; may be repeated\n"
    "      --optimizer NAME  sgd, adam, adamw, lars, lamb (adamw for gpt, else sgd with momentum)\n"
    "      --device NAME     cpu or ref (cpu)\n"
    "      --seconds S       how long to measure (5)\n"
    "      --seed S          of weights and data (1)\n"
    "      --profile         also the share of each kind of operation\n"
    "      --json            one object instead of the text\n"
    "  -n, --workers N       1: more than one worker is not available yet\n"
    "\n"
    "Exit status: 0; 1 if the work failed; 2 for wrong usage.\n"
    "\n"
    "example: lockstep bench train gpt:nano --batch 12 --profile\n";

enum {
    OPT_BATCH = 256,
    OPT_SET,
    OPT_OPTIMIZER,
    OPT_DEVICE,
    OPT_SECONDS,
    OPT_SEED,
    OPT_PROFILE,
    OPT_JSON
};

static const struct option long_options[] = {
    {"batch", required_argument, NULL, OPT_BATCH},
    {"set", required_argument, NULL, OPT_SET},
    {"optimizer", required_argument, NULL, OPT_OPTIMIZER},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"seed", required_argument, NULL, OPT_SEED},
    {"profile", no_argument, NULL, OPT_PROFILE},
    {"json", no_argument, NULL, OPT_JSON},
    {"workers", required_argument, NULL, 'n'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* What is usual: of the first whose name the model's begins with. */
static const struct usual {
    const char *model;
    long batch;
} usual[] = {
    {"mlp", 128}, {"resnet:20", 64}, {"gpt:char", 8}, {"gpt:124m", 4},
    {"gpt", 12},  {"dlrm", 256},     {"", 32},
};

typedef struct options {
    const char *model, *optimizer, *device;
    const char *sets[SETS_MAX];
    int n_sets;
    long batch, workers, seed;
    double seconds;
    int profile, json;
} options;

typedef struct trainer {
    ls_graph *graph;
    ls_optimizer *optimizer;
    ls_param_info *params;
    int n_params;
} trainer;

static ls_status take_option(int option, options *o)
{
    switch (option) {
    case 'n': return lsi_parse_int("-n", optarg, 1, 1 << 20, &o->workers);
    case OPT_BATCH: return lsi_parse_int("--batch", optarg, 1, 1 << 24, &o->batch);
    case OPT_SET:
        if (o->n_sets == SETS_MAX)
            return lsi_fail(LS_ERR_CONFIG, NULL, "--set", "more than %d", SETS_MAX);
        o->sets[o->n_sets++] = optarg;
        break;
    case OPT_OPTIMIZER: o->optimizer = optarg; break;
    case OPT_DEVICE: o->device = optarg; break;
    case OPT_SECONDS: return lsi_parse_seconds("--seconds", optarg, &o->seconds);
    case OPT_SEED: return lsi_parse_int("--seed", optarg, 0, 1L << 62, &o->seed);
    case OPT_PROFILE: o->profile = 1; break;
    case OPT_JSON: o->json = 1; break;
    }
    return LS_OK;
}

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, options *o)
{
    *o = (options){.workers = 1, .seed = 1, .seconds = 5};
    opterr = 0;
    for (;;) {
        int option = getopt_long(argc, argv, "+:n:h", long_options, NULL);
        if (option == -1 && optind == argc)
            break;
        if (option == -1) { /* a word: the model; options may follow it */
            if (o->model)
                return lsi_cli_usage("bench train", "one model at a time, not '%.40s' too",
                                     argv[optind]);
            o->model = argv[optind++];
            continue;
        }
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (option == '?' || option == ':')
            return lsi_cli_bad_option("bench train", option, argv);
        if (take_option(option, o) != LS_OK)
            return lsi_cli_bad_value("bench train");
    }
    if (!o->model)
        return lsi_cli_usage("bench train", "which model?");
    if (o->workers != 1)
        return lsi_cli_usage("bench train", "-n %ld: only one worker is available yet", o->workers);
    for (size_t i = 0; !o->batch; i++)
        if (strncmp(o->model, usual[i].model, strlen(usual[i].model)) == 0)
            o->batch = usual[i].batch;
    return -1;
}

static ls_status make_graph(const options *o, ls_graph **out)
{
    ls_model *model;
    LSI_TRY(ls_model_create(o->model, &model));
    ls_status status = LS_OK;
    for (int i = 0; i < o->n_sets && status == LS_OK; i++) {
        const char *set = o->sets[i];
        status = ls_model_set(model, strncmp(set, "model.", 6) == 0 ? set + 6 : set);
    }
    if (status == LS_OK) {
        ls_graph_config config = LS_GRAPH_CONFIG_INIT;
        config.device = o->device;
        config.batch = (size_t)o->batch;
        config.seed = (uint64_t)o->seed;
        status = ls_model_build(model, &config, out);
    }
    ls_model_destroy(model);
    return status;
}

static ls_status make_optimizer(const options *o, trainer *t)
{
    ls_optim_config config = LS_OPTIM_CONFIG_INIT;
    config.device = o->device;
    config.name = o->optimizer ? o->optimizer : strncmp(o->model, "gpt", 3) == 0 ? "adamw" : "sgd";
    config.lr = strcmp(config.name, "sgd") == 0 ? 0.01f : 1e-4f;
    if (strcmp(config.name, "sgd") == 0)
        config.momentum = 0.9f;
    t->n_params = ls_graph_param_count(t->graph);
    t->params = calloc((size_t)t->n_params, sizeof *t->params);
    if (!t->params)
        return lsi_fail(LS_ERR_NOMEM, NULL, "bench train", "out of memory");
    for (int i = 0; i < t->n_params; i++)
        LSI_TRY(ls_graph_param(t->graph, i, &t->params[i]));
    return ls_optimizer_create(&config, t->params, t->n_params, ls_graph_param_elements(t->graph),
                               &t->optimizer);
}

/* Ids and labels evenly over their range, targets 0 or 1, all else in [-1, 1). */
static void fill_inputs(const options *o, ls_graph *graph, uint64_t number)
{
    const uint32_t key[2] = {(uint32_t)o->seed, 1};
    ls_tensor *input;
    for (uint32_t i = 0; (input = ls_graph_input(graph, (int)i)); i++) {
        const size_t *dims = ls_tensor_dims(input), bound = ls_tensor_bound(input);
        size_t n = 1;
        for (int d = 0; d < ls_tensor_ndim(input); d++)
            n *= dims[d];
        uint32_t counter[4] = {0, 0, i, (uint32_t)number}, words[4];
        float *real = ls_input_data(graph, input);
        int32_t *whole = ls_input_data(graph, input);
        const int is_target = strcmp(ls_tensor_name(input), "target") == 0;
        for (size_t e = 0; e < n; e++) {
            counter[0] = (uint32_t)e;
            lsi_philox(counter, key, words);
            if (bound)
                whole[e] = (int32_t)(words[0] % bound);
            else if (is_target)
                real[e] = (float)(words[0] >> 31);
            else
                real[e] = 2.0f * lsi_philox_uniform(words[0]) - 1.0f;
        }
    }
}

/* Sparse parameters: rows that the forward pass will read are brought up to date, and the gradient
 * is handed over by rows. */
static ls_status touch_rows(const trainer *t)
{
    for (int i = 0; i < t->n_params; i++) {
        ls_sparse_ids ids;
        for (int k = 0; t->params[i].sparse && ls_graph_sparse_ids(t->graph, i, k, &ids) == LS_OK;
             k++)
            LSI_TRY(ls_optimizer_touch(t->optimizer, ls_graph_params(t->graph), i, ids.ids,
                                       ids.count, ids.stride));
    }
    return LS_OK;
}

static ls_status hand_rows(const trainer *t)
{
    for (int i = 0; i < t->n_params; i++) {
        ls_sparse_grad grad;
        if (!t->params[i].sparse)
            continue;
        LSI_TRY(ls_graph_sparse_grad(t->graph, i, &grad));
        LSI_TRY(ls_optimizer_sparse(t->optimizer, i, &grad));
    }
    return LS_OK;
}

static ls_status step(const trainer *t, uint64_t number, double *update_s)
{
    ls_run_config config = LS_RUN_CONFIG_INIT;
    ls_run_result result;
    config.training = config.backward = 1;
    config.step = number;
    LSI_TRY(touch_rows(t));
    LSI_TRY(ls_graph_run(t->graph, &config, &result));
    const double from = lsi_now();
    LSI_TRY(hand_rows(t));
    ls_graph_observe(t->graph, ls_graph_observed(t->graph), 0.1f);
    LSI_TRY(ls_optimizer_step(t->optimizer, ls_graph_params(t->graph), ls_graph_grads(t->graph),
                              (float)(1.0 / (result.count > 0 ? result.count : 1))));
    *update_s += lsi_now() - from;
    return LS_OK;
}

/* The next batch, where it matters to time: rows of sparse parameters that are used again at once
 * are cheaper than others. */
static void next_inputs(const options *o, const trainer *t, uint64_t number)
{
    for (int i = 0; i < t->n_params; i++)
        if (t->params[i].sparse) {
            fill_inputs(o, t->graph, number);
            return;
        }
}

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

typedef struct figures {
    double step_s, cpu_s, update_s; /* of a step: the median; processor time; the optimizer */
    long steps;
} figures;

static ls_status measure(const options *o, const trainer *t, figures *out)
{
    double *times = calloc(STEPS_MAX, sizeof *times), update = 0;
    if (!times)
        return lsi_fail(LS_ERR_NOMEM, NULL, "bench train", "out of memory");
    ls_status status = LS_OK;
    long n = 0;
    for (uint64_t i = 0; i < WARM_UP && status == LS_OK; i++)
        status = step(t, i, &update);
    ls_graph_profile(t->graph, o->profile);
    update = 0;
    const double end = lsi_now() + o->seconds;
    double cpu = 0;
    while (status == LS_OK && n < STEPS_MAX && (n < 3 || lsi_now() < end)) {
        next_inputs(o, t, WARM_UP + (uint64_t)n);
        const double from = lsi_now(), cpu_from = cpu_time();
        status = step(t, WARM_UP + (uint64_t)n, &update);
        cpu += cpu_time() - cpu_from;
        times[n++] = lsi_now() - from;
    }
    if (status == LS_OK) {
        qsort(times, (size_t)n, sizeof *times, by_size);
        *out = (figures){.step_s = times[n / 2],
                         .cpu_s = cpu / (double)n,
                         .update_s = update / (double)n,
                         .steps = n};
    }
    free(times);
    return status;
}

static double peak_rss_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static void print_profile(const trainer *t, const figures *f)
{
    ls_profile_entry entries[64];
    const int n = ls_graph_profile_entries(t->graph, entries, 64);
    double total = f->update_s * (double)f->steps;
    for (int i = 0; i < n; i++)
        total += entries[i].forward_s + entries[i].backward_s;
    printf("\n%-18s %8s %9s %9s %7s %9s\n", "operation", "calls", "forward", "backward", "share",
           "GFLOP/s");
    for (int i = 0; i < n; i++) {
        const ls_profile_entry *e = &entries[i];
        const double time = e->forward_s + e->backward_s;
        printf("%-18s %8" PRIu64 " %7.2fms %7.2fms %6.1f%%", e->op, e->calls / (uint64_t)f->steps,
               1e3 * e->forward_s / (double)f->steps, 1e3 * e->backward_s / (double)f->steps,
               100 * time / total);
        if (e->flops > 0)
            printf(" %9.1f", e->flops / time * 1e-9);
        putchar('\n');
    }
    printf("%-18s %8d %9s %7.2fms %6.1f%%\n", "update", 1, "", 1e3 * f->update_s,
           100 * f->update_s * (double)f->steps / total);
}

static void print(const options *o, const trainer *t, const figures *f)
{
    const double gflops = ls_graph_flops(t->graph) / f->step_s * 1e-9;
    const double rate = (double)o->batch / f->step_s;
    if (o->json) {
        printf(
            "{\"model\": \"%s\", \"params\": %zu, \"workers\": 1, \"shards\": 1, \"batch\": %ld, "
            "\"step_ms\": %.4f, \"cpu_ms\": %.4f, \"samples_per_s\": %.3f, \"gflops\": %.3f, "
            "\"peak_rss_mb\": "
            "%.1f}\n",
            o->model, ls_graph_trained(t->graph), o->batch, f->step_s * 1e3, f->cpu_s * 1e3, rate,
            gflops, peak_rss_mb());
        return;
    }
    ls_graph_memory memory;
    ls_graph_get_memory(t->graph, &memory);
    printf("%s: %zu parameters, batch %ld, 1 worker, %ld steps\n", o->model,
           ls_graph_trained(t->graph), o->batch, f->steps);
    printf("step %.3f ms (processor %.3f)   %.1f samples/s   %.1f GFLOP/s   peak memory %.1f MiB\n",
           f->step_s * 1e3, f->cpu_s * 1e3, rate, gflops, peak_rss_mb());
    printf("activations %.1f MiB (%.1f without reuse), parameters and gradients %.1f MiB\n",
           (double)memory.activations / 0x1p20, (double)memory.kept_without_reuse / 0x1p20,
           (double)(memory.params + memory.grads) / 0x1p20);
    if (o->profile)
        print_profile(t, f);
}

int lsi_cli_bench_train(int argc, char **argv)
{
    options o;
    int status = parse(argc, argv, &o);
    if (status >= 0)
        return status;
    trainer t = {0};
    figures f = {0};
    ls_status done = make_graph(&o, &t.graph);
    if (done == LS_OK)
        done = make_optimizer(&o, &t);
    if (done == LS_OK) {
        fill_inputs(&o, t.graph, 0);
        done = measure(&o, &t, &f);
    }
    if (done == LS_OK)
        print(&o, &t, &f);
    else
        status = done == LS_ERR_CONFIG ? lsi_cli_bad_value("bench train") : lsi_cli_fail();
    ls_optimizer_destroy(t.optimizer);
    ls_graph_destroy(t.graph);
    free(t.params);
    return done == LS_OK ? 0 : status;
}

/* lockstep bench train: the command line.
 *
 * With one worker it measures in this process. With several it starts itself as the workers,
 * through the launcher, as `lockstep bench-worker train` with the same arguments; as the program of
 * a launcher it is a worker itself.
 */
#include "cli/bench_train.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/boot.h"
#include "base/env.h"
#include "base/host.h"
#include "base/status.h"
#include "cli/cli.h"
#include "launch/launch.h"

static const char help[] =
    "usage: lockstep bench train MODEL [OPTIONS]\n"
    "\n"
    "Measures the training step of a model on generated data: forward, backward, the sum over all\n"
    "workers and the update. Prints samples a second, the time of a step (the median), GFLOP/s "
    "and\n"
    "memory.\n"
    "\n"
    "  MODEL                 mlp, resnet:20, resnet:18, resnet:34, resnet:50, gpt:nano, gpt:char,\n"
    "                        gpt:124m, dlrm\n"
    "\n"
    "  -n, --workers N       processes, 1 to 256 (1)\n"
    "      --batch B         samples of a step, of all workers together (as usual for the model, "
    "for\n"
    "                        each worker)\n"
    "      --shards V        parts of the batch: with the batch they decide the result (one a "
    "worker;\n"
    "                        lockstep train has 8)\n"
    "      --micro-batch M   samples that run at once (a whole shard; gpt:nano: 3)\n"
    "      --set KEY=VALUE   a setting of the model, e.g. model.layers=6; may be repeated\n"
    "      --optimizer NAME  sgd, adam, adamw, lars, lamb (adamw for gpt, else sgd with momentum)\n"
    "      --device NAME     cpu or ref (cpu)\n"
    "      --transport NAME  auto, shm or tcp (LOCKSTEP_TRANSPORT, else auto)\n"
    "      --bucket BYTES    gradients that travel together between hosts (4 MiB)\n"
    "      --bind core|none  pin worker i to the i-th core that may be used (none)\n"
    "      --seconds S       how long to measure (5)\n"
    "      --seed S          of weights and data (1)\n"
    "      --profile         one worker: also the share of each kind of operation\n"
    "      --json            one object instead of the text\n"
    "\n"
    "Several hosts: run it by the launcher of each, which then decides on the workers:\n"
    "  lockstep run -n 2 --listen HOST:PORT --hosts 2 --key-file FILE -- lockstep bench train mlp\n"
    "\n"
    "Exit status: 0; 1 if the work failed; 2 for wrong usage.\n"
    "\n"
    "example: lockstep bench train gpt:nano -n 2 --batch 24\n";

enum {
    OPT_BATCH = 256,
    OPT_SHARDS,
    OPT_MICRO,
    OPT_SET,
    OPT_OPTIMIZER,
    OPT_DEVICE,
    OPT_TRANSPORT,
    OPT_BUCKET,
    OPT_BIND,
    OPT_SECONDS,
    OPT_SEED,
    OPT_PROFILE,
    OPT_JSON
};

static const struct option long_options[] = {
    {"workers", required_argument, NULL, 'n'},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"shards", required_argument, NULL, OPT_SHARDS},
    {"micro-batch", required_argument, NULL, OPT_MICRO},
    {"set", required_argument, NULL, OPT_SET},
    {"optimizer", required_argument, NULL, OPT_OPTIMIZER},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"transport", required_argument, NULL, OPT_TRANSPORT},
    {"bucket", required_argument, NULL, OPT_BUCKET},
    {"bind", required_argument, NULL, OPT_BIND},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"seed", required_argument, NULL, OPT_SEED},
    {"profile", no_argument, NULL, OPT_PROFILE},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static ls_status take_option(int option, lsi_bench_train *o)
{
    switch (option) {
    case 'n': return lsi_parse_int("-n", optarg, 1, LSI_MAX_RANKS, &o->workers);
    case OPT_BATCH: return lsi_parse_int("--batch", optarg, 1, 1 << 24, &o->batch);
    case OPT_SHARDS: return lsi_parse_int("--shards", optarg, 1, 512, &o->shards);
    case OPT_MICRO: return lsi_parse_int("--micro-batch", optarg, 1, 1 << 24, &o->micro);
    case OPT_SET:
        if (o->n_sets == LSI_BENCH_SETS_MAX)
            return lsi_fail(LS_ERR_CONFIG, NULL, "--set", "more than %d", LSI_BENCH_SETS_MAX);
        o->sets[o->n_sets++] = optarg;
        break;
    case OPT_OPTIMIZER: o->optimizer = optarg; break;
    case OPT_DEVICE: o->device = optarg; break;
    case OPT_TRANSPORT: o->transport = optarg; return lsi_cli_check_environment(optarg);
    case OPT_BUCKET: return lsi_parse_int("--bucket", optarg, 1 << 10, 1 << 30, &o->bucket);
    case OPT_BIND:
        o->bind_core = strcmp(optarg, "core") == 0;
        if (!o->bind_core && strcmp(optarg, "none") != 0)
            return lsi_fail(LS_ERR_CONFIG, NULL, "--bind", "'%.40s' is none of none, core", optarg);
        break;
    case OPT_SECONDS: return lsi_parse_seconds("--seconds", optarg, &o->seconds);
    case OPT_SEED: return lsi_parse_int("--seed", optarg, 0, 1L << 62, &o->seed);
    case OPT_PROFILE: o->profile = 1; break;
    case OPT_JSON: o->json = 1; break;
    }
    return LS_OK;
}

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, lsi_bench_train *o)
{
    *o = (lsi_bench_train){.seed = 1, .seconds = 5};
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
    if (o->profile && o->workers > 1)
        return lsi_cli_usage("bench train", "--profile is for one worker");
    if (o->shards && o->workers > o->shards)
        return lsi_cli_usage("bench train", "-n %ld: %ld shards are too few for so many workers",
                             o->workers, o->shards);
    return -1;
}

static int launch(int argc, char **argv, const lsi_bench_train *o)
{
    char program[] = "/proc/self/exe", worker[] = "bench-worker";
    char **words = calloc((size_t)argc + 3, sizeof *words);
    if (!words) {
        lsi_fail(LS_ERR_NOMEM, NULL, "bench train", "out of memory");
        return lsi_cli_fail();
    }
    words[0] = program;
    words[1] = worker;
    for (int i = 0; i < argc; i++) /* argv[0] is "train" */
        words[i + 2] = argv[i];
    int exit_status = 0;
    const lsi_launch_config config = {.ranks_tell = 1,
                                      .ranks = (int)o->workers,
                                      .argv = words,
                                      .bind_core = o->bind_core};
    const ls_status status = lsi_launch(&config, &exit_status);
    free(words);
    return status == LS_OK ? exit_status : lsi_cli_fail();
}

int lsi_cli_bench_train(int argc, char **argv)
{
    lsi_bench_train o;
    const int status = parse(argc, argv, &o);
    if (status >= 0)
        return status;
    if (o.workers > 1 && !getenv(LSI_BOOT_ENV))
        return launch(argc, argv, &o);
    return lsi_bench_train_work(&o);
}

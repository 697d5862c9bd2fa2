/* lockstep train: the command line of a training run.
 *
 * The command is the launcher: it starts itself as the workers, as `lockstep train-worker` with the
 * same arguments, and replaces those that die.
 *
 * Invariants:
 * 1. What makes no sense is refused here, once, before anything is started.
 * 2. Both sides read the same arguments by the same function, so they mean the same to both.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/env.h"
#include "base/host.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/elastic_options.h"
#include "cli/hosts_options.h"
#include "train/job.h"

#define GRACE_S 600.0   /* from the first Ctrl-C to SIGKILL: a step and a checkpoint */
#define TIMEOUT_S 300.0 /* to wait for a worker that is slow; one that died is known at once */

static const char help[] =
    "usage: lockstep train MODEL [OPTIONS]\n"
    "       lockstep train --config FILE.ini | --resume DIR | --join HOST:PORT [OPTIONS]\n"
    "\n"
    "Trains a model on all cores of this machine, or on several hosts. The weights that come out\n"
    "depend on the configuration alone: not on the number of workers, nor on the hosts.\n"
    "\n"
    "  MODEL                 mlp, resnet:20, resnet:50, gpt:nano, gpt:char, gpt:124m, dlrm, …\n"
    "\n"
    "what is trained\n"
    "      --data KIND[:PATH]  synthetic (default), idx:DIR, cifar:DIR, text:FILE, tokens:FILE,\n"
    "                        criteo:FILE\n"
    "      --batch B         samples of a step, of all workers together (as usual for the model)\n"
    "      --shards V        parts of a batch that are summed in a fixed order (8, or the largest\n"
    "                        power of two that divides the batch when that is smaller)\n"
    "      --micro-batch M   samples that run at once, to save memory (a whole shard)\n"
    "      --steps S, --epochs E   how long\n"
    "      --optimizer NAME  sgd, adam, adamw, lars, lamb (as usual for the model)\n"
    "      --lr X            learning rate\n"
    "      --schedule NAME   const, linear, cosine, step\n"
    "      --warmup STEPS    in which the rate grows\n"
    "      --seed S          of weights, order of the data, dropout (1)\n"
    "      --threads T       of a worker (1)\n"
    "      --set section.key=value   any setting: see config.ini of a run; may be repeated\n"
    "      --config FILE     settings from a file; flags come on top\n"
    "\n"
    "how it is run\n"
    "  -n, --workers N       on this host (cores that may be used, at most one a shard)\n"
    "      --out DIR         keep configuration, metrics and checkpoints there (keep nothing)\n"
    "      --resume DIR      go on with the run of that directory, or from one of its checkpoints\n"
    "      --eval-every S    steps between two evaluations (as usual for the model; 0: at the "
    "end)\n"
    "      --checkpoint-every S   steps between two checkpoints (likewise)\n"
    "      --sync, --reduce, --wire   sync; auto, direct, hd, ring, tree between hosts; f32\n"
    "      --transport NAME  inside a host: auto, shm or tcp (LOCKSTEP_TRANSPORT, else auto); "
    "that\n"
    "                        of the first host counts for all\n"
    "      --bind core|none  pin worker i to the i-th core that may be used (none)\n"
    "      --quiet           only the last line\n"
    "      --json            one object a step instead of the progress line\n"
    "\n"
    "who takes part: workers that die are replaced, hosts may come and go; not a step is lost and "
    "the\n"
    "result is the same. Ctrl-C ends the run; SIGTERM makes this host leave it, if there are "
    "others\n"
    "      --restarts N      of a worker within 10 minutes (10; 0: none)\n"
    "      --min-workers N   wait for more when there are fewer (1)\n"
    "      --max-workers N   keep more as spares (one a shard)\n"
    "      --patience SECONDS   wait so long for them, then save and end (600)\n"
    "      --evict-after SECONDS   give up a worker or host that shows no sign of life (10)\n"
    "      --balance even|speed   shards for each worker: equal parts, or as many as it can do in\n"
    "                        the time of the others, measured (even)\n"
    "      --check-every S   steps between two comparisons of the states of all hosts (50; 0: "
    "none)\n"
    "      --on-divergence stop|repair   when one is not that of the others: end before the next\n"
    "                        checkpoint, or copy it from them (stop)\n"
    "      --grace SECONDS   from the first signal to SIGKILL (600)\n"
    "\n"
    "several hosts: one listens and has the configuration, the others join, at any time, with -n,\n"
    "--key-file and, where the data lies elsewhere, --data; `lockstep join HOST:PORT` is the same\n"
    "(a host that has no data, and was given no --data, gets its samples from the others)\n"
    "      --listen HOST:PORT --hosts H   wait here for H - 1 others\n"
    "      --join HOST:PORT  take part in the run of that listener, or of any host of it\n"
    "      --quorum majority|any   how many hosts of the last generation must be there to go on\n"
    "                        (majority: more than half, or half with the first)\n"
    "      --store URL       etcd://HOST:PORT in place of the store that the hosts serve\n"
    "                        themselves\n"
    "      --key-file FILE   the run's secret, needed by all (the listener makes it)\n"
    "      --wait SECONDS    for the others to come (60)\n"
    "\n"
    "Ctrl-C ends the run after the step, with a checkpoint; a second one at once. The last line "
    "is\n"
    "`done step=… loss=… sha256=…`, the digest of the weights.\n"
    "\n"
    "Exit status: 0, also when it was interrupted in order; 1 if the work failed; 2 for wrong\n"
    "usage.\n"
    "\n"
    "example: lockstep train gpt:nano --data text:book.txt --steps 500 --out runs/book\n";

enum {
    OPT_SET = 256,
    OPT_CONFIG,
    OPT_RESUME,
    OPT_DATA,
    OPT_QUIET,
    OPT_JSON,
    OPT_SETTING /* and beyond: a setting of its own, by its place in `settings` */
};

/* Flags that are settings. */
static const struct setting {
    const char *flag, *key;
} settings[] = {
    {"batch", "train.batch"},
    {"shards", "train.shards"},
    {"micro-batch", "train.micro_batch"},
    {"steps", "train.steps"},
    {"epochs", "train.epochs"},
    {"seed", "train.seed"},
    {"threads", "train.threads"},
    {"sync", "train.sync"},
    {"reduce", "train.reduce"},
    {"wire", "train.wire"},
    {"optimizer", "optimizer.name"},
    {"lr", "optimizer.lr"},
    {"schedule", "optimizer.schedule"},
    {"warmup", "optimizer.warmup"},
    {"eval-every", "eval.every"},
    {"checkpoint-every", "checkpoint.every"},
    {"workers", "run.workers"},
    {"out", "run.out"},
    {"transport", "run.transport"},
    {"bind", "run.bind"},
    {"check-every", "run.check_every"},
    {"on-divergence", "run.on_divergence"},
    {"balance", "run.balance"},
};
#define SETTINGS (sizeof settings / sizeof *settings)
#define WORKERS 16 /* its place there */

typedef struct train_options {
    lsi_train_job job;
    lsi_launch_config launch;
} train_options;

static void fill_options(struct option *options)
{
    static const struct option others[] = {
        {"set", required_argument, NULL, OPT_SET},
        {"config", required_argument, NULL, OPT_CONFIG},
        {"resume", required_argument, NULL, OPT_RESUME},
        {"data", required_argument, NULL, OPT_DATA},
        {"quiet", no_argument, NULL, OPT_QUIET},
        {"json", no_argument, NULL, OPT_JSON},
        {"help", no_argument, NULL, 'h'},
        LSI_HOSTS_OPTIONS,
        LSI_ELASTIC_OPTIONS,
        {NULL, 0, NULL, 0},
    };
    for (size_t i = 0; i < SETTINGS; i++)
        options[i] =
            (struct option){settings[i].flag, required_argument, NULL, OPT_SETTING + (int)i};
    memcpy(options + SETTINGS, others, sizeof others);
}

static ls_status add_setting(lsi_train_job *job, const char *key, const char *value)
{
    if (job->n_settings == LSI_JOB_SETTINGS)
        return lsi_fail(LS_ERR_CONFIG, "put them into a file: --config", "settings",
                        "more than %d of them", LSI_JOB_SETTINGS);
    job->keys[job->n_settings] = key;
    job->values[job->n_settings++] = value;
    return LS_OK;
}

static ls_status take_launch_option(int option, lsi_launch_config *launch)
{
    const ls_status status = lsi_cli_elastic_option(option, launch);
    return status == LS_IN_PROGRESS ? lsi_cli_hosts_option(option, launch) : status;
}

static ls_status take_option(int option, train_options *o)
{
    lsi_train_job *job = &o->job;
    if (option >= OPT_SETTING && option < OPT_SETTING + (int)SETTINGS)
        return add_setting(job, settings[option - OPT_SETTING].key, optarg);
    switch (option) {
    case 'n': return add_setting(job, settings[WORKERS].key, optarg);
    case OPT_SET: return add_setting(job, NULL, optarg);
    case OPT_CONFIG: job->config_file = optarg; break;
    case OPT_RESUME: job->resume = optarg; break;
    case OPT_DATA: return add_setting(job, LSI_JOB_DATA, optarg);
    case OPT_QUIET: job->quiet = 1; break;
    case OPT_JSON: job->json = 1; break;
    default: return take_launch_option(option, &o->launch);
    }
    return LS_OK;
}

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, train_options *o)
{
    struct option options[SETTINGS + 24];
    fill_options(options);
    opterr = 0;
    for (;;) {
        int option = getopt_long(argc, argv, "+:n:h", options, NULL);
        if (option == -1 && optind == argc)
            return -1;
        if (option == -1) { /* a word: the model; options may follow it */
            if (o->job.model)
                return lsi_cli_usage("train", "one model at a time, not '%.40s' too", argv[optind]);
            o->job.model = argv[optind++];
            continue;
        }
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (option == '?' || option == ':')
            return lsi_cli_bad_option("train", option, argv);
        if (take_option(option, o) != LS_OK)
            return lsi_cli_bad_value("train");
    }
}

/* ---- a worker ------------------------------------------------------------------------------- */

static int work(const lsi_train_job *job)
{
    ls_config config = LS_CONFIG_INIT;
    lsi_member member;
    int interrupted = 0, status = 0;
    if (!getenv("LOCKSTEP_TIMEOUT"))
        config.timeout_s = TIMEOUT_S;
    ls_status done = lsi_member_open(&member, &config);
    if (done == LS_OK)
        done = lsi_train_work(job, &member, &interrupted);
    if (done != LS_OK && !*ls_last_error()) /* another worker says it */
        status = done == LS_ERR_CONFIG ? LSI_CLI_USAGE : LSI_CLI_FAILED;
    else if (done == LS_ERR_CONFIG)
        status = lsi_cli_bad_value("train");
    else if (done != LS_OK)
        status = lsi_cli_fail();
    lsi_member_close(&member);
    return status;
}

/* A host that joins has no configuration of its own: what it says of the data is where it lies. */
static void keep_data_path(lsi_train_job *job)
{
    for (int i = 0; i < job->n_settings; i++)
        if (job->keys[i] && strcmp(job->keys[i], LSI_JOB_DATA) == 0 && strchr(job->values[i], ':'))
            job->data_path = strchr(job->values[i], ':') + 1;
}

int lsi_cli_train_worker(int argc, char **argv)
{
    train_options o = {0};
    const int status = parse(argc, argv, &o);
    if (status >= 0)
        return status;
    if (o.launch.join)
        keep_data_path(&o.job);
    return work(&o.job);
}

/* ---- the launcher --------------------------------------------------------------------------- */

static int usual_workers(uint64_t shards)
{
    const int cores = lsi_cores_usable();
    const int most = cores < LSI_MAX_RANKS ? cores : LSI_MAX_RANKS;
    return shards < (uint64_t)most ? (int)shards : most;
}

static int launch(int argc, char **argv, train_options *o)
{
    char program[] = "/proc/self/exe", worker[] = "train-worker";
    char **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words) {
        lsi_fail(LS_ERR_NOMEM, NULL, "train", "out of memory");
        return lsi_cli_fail();
    }
    words[0] = program;
    words[1] = worker;
    for (int i = 1; i < argc; i++)
        words[i + 1] = argv[i];
    int exit_status = 0;
    o->launch.argv = words;
    if (o->launch.grace_s == 0)
        o->launch.grace_s = GRACE_S;
    o->launch.ranks_tell = 1;
    const ls_status status = lsi_launch_elastic(&o->launch, &exit_status);
    free(words);
    return status == LS_OK ? exit_status : lsi_cli_fail();
}

/* What can be known of the run before it starts. A host that joins knows its own part only. */
static ls_status settle(train_options *o, lsi_train_config *config)
{
    if (!o->launch.join)
        return lsi_train_job_config(&o->job, config);
    LSI_TRY(lsi_train_config_init(config, NULL));
    LSI_TRY(lsi_train_job_apply(&o->job, config));
    if (config->run.workers == LSI_UNSET)
        config->run.workers = 0;
    config->train.shards = LSI_MAX_RANKS;
    return LS_OK;
}

int lsi_cli_join(int argc, char **argv)
{
    char flag[] = "--join", **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words) {
        lsi_fail(LS_ERR_NOMEM, NULL, "join", "out of memory");
        return lsi_cli_fail();
    }
    words[0] = argv[0];
    int n = 1;
    if (argc > 1 && argv[1][0] != '-')
        words[n++] = flag;
    for (int i = 1; i < argc; i++)
        words[n++] = argv[i];
    const int status = argc > 1 ? lsi_cli_train(n, words)
                                : lsi_cli_usage("train", "join which run? HOST:PORT is missing");
    free(words);
    return status;
}

int lsi_cli_train(int argc, char **argv)
{
    train_options o = {0};
    int status = parse(argc, argv, &o);
    if (status >= 0)
        return status;
    if (!o.job.model && !o.job.config_file && !o.job.resume && !o.launch.join)
        return lsi_cli_usage("train", "which model?");
    const char *wrong = lsi_cli_hosts_contradiction(&o.launch);
    if (!wrong)
        wrong = lsi_cli_elastic_contradiction(&o.launch);
    if (wrong)
        return lsi_cli_usage("train", "%s", wrong);
    lsi_train_config *config = calloc(1, sizeof *config);
    if (!config) {
        lsi_fail(LS_ERR_NOMEM, NULL, "train", "out of memory");
        return lsi_cli_fail();
    }
    if (settle(&o, config) != LS_OK) {
        free(config);
        return lsi_cli_bad_value("train");
    }
    const char *transport = config->run.transport;
    if (*transport && strcmp(transport, "auto") != 0)
        setenv("LOCKSTEP_TRANSPORT", transport, 1); /* for the workers */
    o.launch.ranks =
        config->run.workers ? (int)config->run.workers : usual_workers(config->train.shards);
    o.launch.bind_core = strcmp(config->run.bind, "core") == 0;
    if (!o.launch.max_workers || (uint64_t)o.launch.max_workers > config->train.shards)
        o.launch.max_workers = (int)config->train.shards;
    status = launch(argc, argv, &o);
    free(config);
    return status;
}

/* lockstep eval: loss, perplexity and accuracy of a finished run.
 *
 * The command is the launcher: it starts itself as the workers, as `lockstep eval-worker`, each
 * with a part of the data. One worker alone does it in this process.
 *
 * Invariants:
 * 1. The launcher chooses the checkpoint, so that all workers use the same one, also when a run
 *    goes on and saves another meanwhile.
 * 2. What cannot be done is refused by the launcher, once, before anything is started.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/env.h"
#include "base/host.h"
#include "base/status.h"
#include "cli/cli.h"
#include "launch/launch.h"
#include "train/number.h"
#include "train/saved.h"
#include "train/softmax.h"

#define TIMEOUT_S 300.0 /* to wait for a worker that is slow; one that died is known at once */
#define COMMAND "eval"

static const char help[] =
    "usage: lockstep eval DIR [OPTIONS]\n"
    "\n"
    "Evaluates a run's newest checkpoint on the data that was held out from training: the loss,\n"
    "the perplexity of a gpt, the accuracy of a classifier. The figures are those that training\n"
    "printed for this checkpoint, to the last digit, with any number of workers.\n"
    "\n"
    "  DIR                    a run directory, or one of its checkpoints\n"
    "      --data KIND[:PATH] other data than the run's, or where it lies now\n"
    "      --train            the part that was trained on, without augmentation\n"
    "      --batches K        at most so many batches of the run's size, 0: all (as the run did)\n"
    "  -n, --workers N        on this host (cores that may be used)\n"
    "      --json             one object\n"
    "\n"
    "Exit status: 0; 1 if the work failed; 2 for wrong usage.\n"
    "\n"
    "example: lockstep eval runs/book --data text:other.txt\n";

enum { OPT_DATA = 256, OPT_TRAIN, OPT_BATCHES, OPT_JSON };

static const struct option long_options[] = {
    {"data", required_argument, NULL, OPT_DATA},
    {"train", no_argument, NULL, OPT_TRAIN},
    {"batches", required_argument, NULL, OPT_BATCHES},
    {"workers", required_argument, NULL, 'n'},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

typedef struct eval_options {
    lsi_evaluate_job job;
    long workers; /* 0: not given */
    int place;    /* of DIR among the arguments */
    int json;
} eval_options;

/* Does --data name a kind that there is? Whether it fits is found out with the run. */
static ls_status check_data(const char *data)
{
    lsi_train_config *config = calloc(1, sizeof *config); /* too large for a stack */
    if (!config)
        return lsi_fail(LS_ERR_NOMEM, NULL, COMMAND, "out of memory");
    ls_status status = lsi_train_config_init(config, NULL);
    if (status == LS_OK)
        status = lsi_train_config_put_data(config, data);
    free(config);
    return status;
}

/* Returns -1 to go on, else the exit status. */
static int take_option(int option, char **argv, eval_options *o)
{
    long number;
    switch (option) {
    case OPT_DATA:
        o->job.data = optarg;
        return check_data(optarg) == LS_OK ? -1 : lsi_cli_bad_value(COMMAND);
    case OPT_TRAIN: o->job.training = 1; break;
    case OPT_JSON: o->json = 1; break;
    case OPT_BATCHES:
        if (lsi_parse_int("--batches", optarg, 0, 1000000000, &number) != LS_OK)
            return lsi_cli_bad_value(COMMAND);
        o->job.batches = (uint64_t)number;
        break;
    case 'n':
        if (lsi_parse_int("-n", optarg, 1, LSI_MAX_RANKS, &o->workers) != LS_OK)
            return lsi_cli_bad_value(COMMAND);
        break;
    case 'h': fputs(help, stdout); return 0;
    default: return lsi_cli_bad_option(COMMAND, option, argv);
    }
    return -1;
}

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, eval_options *o)
{
    o->job.batches = LSI_UNSET;
    opterr = 0;
    for (;;) {
        const int option = getopt_long(argc, argv, "+:n:h", long_options, NULL);
        if (option == -1 && optind == argc)
            break;
        if (option == -1) { /* a word: the run; options may follow it */
            if (o->job.path)
                return lsi_cli_usage(COMMAND, "one run at a time, not '%.200s' too", argv[optind]);
            o->place = optind;
            o->job.path = argv[optind++];
            continue;
        }
        const int status = take_option(option, argv, o);
        if (status >= 0)
            return status;
    }
    return o->job.path ? -1 : lsi_cli_usage(COMMAND, "of which run?");
}

/* ---- a worker ------------------------------------------------------------------------------- */

static ls_status print(const eval_options *o, const char *model, const lsi_checkpoint *c,
                       const lsi_evaluation *e)
{
    char number[LSI_NUMBER_TEXT];
    const int gpt = !strcmp(model, "gpt"), judged = !isnan(e->accuracy);
    const char *part = o->job.training ? "train" : "held-out";
    const unsigned long long step = c->step, samples = e->samples;
    if (o->json) {
        printf("{\"model\": \"%s\", \"step\": %llu, \"part\": \"%s\", \"samples\": %llu", model,
               step, part, samples);
        printf(", \"loss\": %s", lsi_number_text(e->loss, number));
        if (gpt)
            printf(", \"perplexity\": %s", lsi_number_text(lsi_exp(e->loss), number));
        if (judged)
            printf(", \"accuracy\": %s", lsi_number_text(e->accuracy, number));
        printf(", \"seconds\": %.6f, \"sha256\": \"%s\"}\n", e->seconds, c->weights);
    } else {
        printf("step=%llu part=%s samples=%llu", step, part, samples);
        printf(" loss=%s", lsi_number_text(e->loss, number));
        if (gpt)
            printf(" perplexity=%s", lsi_number_text(lsi_exp(e->loss), number));
        if (judged)
            printf(" accuracy=%s", lsi_number_text(e->accuracy, number));
        putchar('\n');
    }
    return fflush(stdout) == 0 ? LS_OK : lsi_fail_errno(COMMAND, "cannot write the result");
}

static int work(const eval_options *o)
{
    ls_config config = LS_CONFIG_INIT;
    ls_comm *comm = NULL;
    lsi_evaluation found;
    lsi_checkpoint checkpoint;
    char model[LSI_CONFIG_WORD];
    int exit_status = 0;
    if (!getenv("LOCKSTEP_TIMEOUT"))
        config.timeout_s = TIMEOUT_S;
    ls_status status = ls_init(&config, &comm);
    if (status == LS_OK)
        status = lsi_saved_evaluate(comm, &o->job, &found, &checkpoint, model);
    if (status == LS_OK && ls_comm_rank(comm) == 0)
        status = print(o, model, &checkpoint, &found);
    if (status == LS_ERR_ABORTED && !*ls_last_error())
        exit_status = LSI_CLI_FAILED;
    else if (status != LS_OK)
        exit_status = lsi_cli_fail();
    ls_finalize(comm);
    return exit_status;
}

int lsi_cli_eval_worker(int argc, char **argv)
{
    eval_options o = {0};
    const int status = parse(argc, argv, &o);
    return status >= 0 ? status : work(&o);
}

/* ---- the launcher --------------------------------------------------------------------------- */

static int launch(int argc, char **argv, const eval_options *o)
{
    char program[] = "/proc/self/exe", worker[] = "eval-worker";
    lsi_checkpoint checkpoint;
    int exit_status = 0;
    if (lsi_saved_check(&o->job, &checkpoint) != LS_OK)
        return lsi_cli_fail();
    char **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words) {
        lsi_fail(LS_ERR_NOMEM, NULL, COMMAND, "out of memory");
        return lsi_cli_fail();
    }
    words[0] = program;
    words[1] = worker;
    for (int i = 1; i < argc; i++)
        words[i + 1] = i == o->place ? checkpoint.folder : argv[i];
    const lsi_launch_config config = {.ranks = (int)o->workers, .argv = words, .ranks_tell = 1};
    const ls_status status = lsi_launch(&config, &exit_status);
    free(words);
    return status == LS_OK ? exit_status : lsi_cli_fail();
}

int lsi_cli_eval(int argc, char **argv)
{
    eval_options o = {0};
    const int status = parse(argc, argv, &o);
    if (status >= 0)
        return status;
    if (!o.workers) {
        const int cores = lsi_cores_usable();
        o.workers = cores < LSI_MAX_RANKS ? cores : LSI_MAX_RANKS;
    }
    return o.workers == 1 ? work(&o) : launch(argc, argv, &o);
}

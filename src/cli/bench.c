/* lockstep bench: the command line of the benchmark of collectives.
 *
 * The command starts itself N times, as `lockstep bench-worker` with the same arguments, through
 * the launcher; each of these is a rank (bench_worker.c). As the program of a launcher, of
 * `lockstep run --listen … -- lockstep bench allreduce` say, it is a rank itself.
 *
 * Invariants:
 * 1. What makes no sense is refused here, once, before anything is started.
 * 2. Both sides read the same arguments by the same function, so they mean the same to both.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/boot.h"
#include "base/env.h"
#include "base/status.h"
#include "cli/cli.h"
#include "coll/select.h"
#include "launch/launch.h"

#define DEFAULT_SIZES "8:128M:x4"
#define CALLS_MAX 1000000000

static const char help[] =
    "usage: lockstep bench COLLECTIVE [OPTIONS]\n"
    "       lockstep bench train MODEL [OPTIONS]   (see lockstep bench train --help)\n"
    "\n"
    "Measures a collective between N processes that it starts on this machine, size by size, and\n"
    "compares every result with the exact one.\n"
    "\n"
    "  COLLECTIVE            allreduce, reduce, reduce_scatter, allgather, allgatherv, broadcast,\n"
    "                        gather, scatter, alltoall, alltoallv, barrier, sendrecv\n"
    "\n"
    "  -n, --ranks N         processes, 1 to 256 (the cores that may be used, at least 2)\n"
    "      --sizes LIST      bytes: FROM:TO:xFACTOR, FROM:TO:+STEP, or sizes with commas between\n"
    "                        them; k, M and G may follow a number (" DEFAULT_SIZES ", less where\n"
    "                        memory is short)\n"
    "      --dtype TYPE      f32, f64, bf16, f16, i8, u8, i32, i64 (f32)\n"
    "      --op OP           of the reductions: sum, prod, min, max, band, bor (sum)\n"
    "      --reduce A        algorithm: auto, direct, hd, ring, tree, as far as the collective "
    "has\n"
    "                        it, or ranges such as 0-4k:tree,4k-inf:ring (as the environment "
    "says:\n"
    "                        LOCKSTEP_ALLREDUCE and its sisters; else auto)\n"
    "      --transport NAME  auto, shm or tcp (LOCKSTEP_TRANSPORT, else auto)\n"
    "      --bind core|none  pin rank i to the i-th core that may be used (none)\n"
    "      --private         buffers from malloc instead of ls_alloc\n"
    "      --in-place        time the call in place; else input and result are two buffers\n"
    "      --iters K         calls that are timed (as many as take about 0.3 s, at least 5)\n"
    "      --warmup K        calls before that (1, and those of a short trial unless --iters is\n"
    "                        given)\n"
    "      --no-check        do not compare results; --check does (check)\n"
    "      --json            one object a line instead of the table\n"
    "\n"
    "  size    bytes of the larger side: all blocks of an allgather, say; count is of one block,\n"
    "          the mean for allgatherv and alltoallv: their blocks have 1/2 and 3/2 of it in "
    "turns\n"
    "  time    of a call: the median, on the slowest rank; min likewise. Calls follow each other "
    "at\n"
    "          once; reduce, broadcast, gather and scatter after a barrier, which is not timed\n"
    "  algbw   size / time\n"
    "  busbw   algbw * 2(n-1)/n for allreduce, * (n-1)/n for reduce_scatter, allgather(v) and\n"
    "          alltoall(v): what a link would have to carry; the same for any n on the same wires\n"
    "  wrong   elements that are not what they should be, in place and not, over all ranks\n"
    "\n"
    "Several hosts: run it by the launcher of each, which then decides on the ranks:\n"
    "  lockstep run -n 2 --listen HOST:PORT --hosts 2 --key-file FILE -- lockstep bench allreduce\n"
    "  lockstep run -n 2 --join HOST:PORT --key-file FILE -- lockstep bench allreduce\n"
    "\n"
    "Exit status: 0; 1 if a result was wrong or the work failed; 2 for wrong usage.\n"
    "\n"
    "example: lockstep bench allreduce -n 2 --sizes 8:64M:x8\n";

enum {
    OPT_SIZES = 256,
    OPT_DTYPE,
    OPT_OP,
    OPT_REDUCE,
    OPT_TRANSPORT,
    OPT_BIND,
    OPT_PRIVATE,
    OPT_IN_PLACE,
    OPT_ITERS,
    OPT_WARMUP,
    OPT_CHECK,
    OPT_NO_CHECK,
    OPT_JSON
};

static const struct option long_options[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"sizes", required_argument, NULL, OPT_SIZES},
    {"dtype", required_argument, NULL, OPT_DTYPE},
    {"op", required_argument, NULL, OPT_OP},
    {"reduce", required_argument, NULL, OPT_REDUCE},
    {"transport", required_argument, NULL, OPT_TRANSPORT},
    {"bind", required_argument, NULL, OPT_BIND},
    {"private", no_argument, NULL, OPT_PRIVATE},
    {"in-place", no_argument, NULL, OPT_IN_PLACE},
    {"iters", required_argument, NULL, OPT_ITERS},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"check", no_argument, NULL, OPT_CHECK},
    {"no-check", no_argument, NULL, OPT_NO_CHECK},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* The place of optarg among the words of a NULL-terminated list. */
static ls_status choose(const char *name, const char *const *words, const char *all, int *out)
{
    for (int i = 0; words[i]; i++) {
        if (strcmp(optarg, words[i]) == 0) {
            *out = i;
            return LS_OK;
        }
    }
    return lsi_fail(LS_ERR_CONFIG, NULL, name, "'%.40s' is none of %s", optarg, all);
}

/* One option with its value in optarg. */
static ls_status take_option(int option, lsi_bench_options *o)
{
    static const char *const transports[] = {"auto", "shm", "tcp", NULL};
    static const char *const binds[] = {"none", "core", NULL};
    long number = 0;
    int choice = 0;
    switch (option) {
    case 'n':
        LSI_TRY(lsi_parse_int("-n", optarg, 1, LSI_MAX_RANKS, &number));
        o->ranks = (int)number;
        break;
    case OPT_SIZES: o->sizes_given = 1; return lsi_bench_parse_sizes(optarg, o);
    case OPT_DTYPE: return ls_dtype_parse(optarg, &o->dtype);
    case OPT_OP: return ls_op_parse(optarg, &o->reduction);
    case OPT_REDUCE: o->rules = optarg; break;
    case OPT_TRANSPORT:
        LSI_TRY(choose("--transport", transports, "auto, shm, tcp", &choice));
        o->transport = transports[choice];
        break;
    case OPT_BIND: return choose("--bind", binds, "none, core", &o->bind_core);
    case OPT_PRIVATE: o->private_memory = 1; break;
    case OPT_IN_PLACE: o->in_place = 1; break;
    case OPT_ITERS: return lsi_parse_int("--iters", optarg, 1, CALLS_MAX, &o->iters);
    case OPT_WARMUP: return lsi_parse_int("--warmup", optarg, 0, CALLS_MAX, &o->warmup);
    case OPT_CHECK: o->check = 1; break;
    case OPT_NO_CHECK: o->check = 0; break;
    case OPT_JSON: o->json = 1; break;
    }
    return LS_OK;
}

/* The options together, once all are read: 0, or the exit status after saying what is wrong. */
static int check_options(const lsi_bench_options *o)
{
    lsi_selection selection;
    lsi_select_defaults(&selection, 2, LSI_REACH_BOARD);
    if (o->op->reduces && !ls_op_supports(o->reduction, o->dtype))
        return lsi_cli_usage("bench", "--op %s is not defined on %s, for integers only",
                             ls_op_name(o->reduction), ls_dtype_name(o->dtype));
    if (o->in_place && !o->op->in_place)
        return lsi_cli_usage("bench", "--in-place: %s cannot be done in place", o->op->name);
    if (o->rules && lsi_select_parse("--reduce", o->rules, o->op->coll, &selection) != LS_OK)
        return lsi_cli_bad_value("bench");
    if (lsi_cli_check_environment(o->transport) != LS_OK)
        return lsi_cli_bad_value("bench");
    return 0;
}

/* Returns -1 to go on, else the exit status. */
static int parse(int argc, char **argv, lsi_bench_options *o)
{
    int option;
    *o = (lsi_bench_options){.dtype = LS_F32, .reduction = LS_SUM, .warmup = 1, .check = 1};
    if (lsi_bench_parse_sizes(DEFAULT_SIZES, o) != LS_OK)
        return lsi_cli_bad_value("bench");
    opterr = 0;
    for (;;) {
        option = getopt_long(argc, argv, "+:n:h", long_options, NULL);
        if (option == -1 && optind == argc)
            break;
        if (option == -1) { /* a word: the collective; options may follow it */
            const char *word = argv[optind++];
            if (o->op)
                return lsi_cli_usage("bench", "one collective at a time, not '%.40s' too", word);
            o->op = lsi_bench_find(word);
            if (!o->op)
                return lsi_cli_usage("bench", "'%.40s' cannot be measured; there are %s", word,
                                     lsi_bench_list());
            continue;
        }
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (option == '?' || option == ':')
            return lsi_cli_bad_option("bench", option, argv);
        if (take_option(option, o) != LS_OK)
            return lsi_cli_bad_value("bench");
    }
    if (!o->op)
        return lsi_cli_usage("bench", "which collective? there are %s", lsi_bench_list());
    int status = check_options(o);
    return status ? status : -1;
}

/* Sizes that were asked for have to fit; the default ones are lessened by the ranks. */
static int check_memory(const lsi_bench_options *o)
{
    size_t most = 0, available = lsi_cli_memory("MemAvailable");
    for (int i = 0; i < o->n_sizes; i++)
        most = o->sizes[i] > most ? o->sizes[i] : most;
    if (!o->sizes_given || !available || o->op->send == LSI_BENCH_NONE)
        return 0;
    if (most / 1024 * 2 * (size_t)o->ranks <= available / 1024)
        return 0;
    return lsi_cli_usage("bench",
                         "--sizes: two buffers of %zu MiB for each of %d ranks do not fit the %zu "
                         "MiB of memory that are available",
                         most >> 20, o->ranks, available >> 20);
}

static int launch(int argc, char **argv, lsi_bench_options *o)
{
    char program[] = "/proc/self/exe", worker[] = "bench-worker";
    if (!o->ranks)
        o->ranks = lsi_cli_usual_ranks();
    int exit_status = check_memory(o);
    if (exit_status)
        return exit_status;
    char **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words) {
        lsi_fail(LS_ERR_NOMEM, NULL, "bench", "out of memory");
        return lsi_cli_fail();
    }
    words[0] = program;
    words[1] = worker;
    for (int i = 1; i < argc; i++)
        words[i + 1] = argv[i];
    lsi_launch_config config = {.ranks = o->ranks, .argv = words, .bind_core = o->bind_core};
    ls_status status = lsi_launch(&config, &exit_status);
    free(words);
    return status == LS_OK ? exit_status : lsi_cli_fail();
}

int lsi_cli_bench(int argc, char **argv)
{
    lsi_bench_options options;
    if (argc > 1 && strcmp(argv[1], "train") == 0)
        return lsi_cli_bench_train(argc - 1, argv + 1);
    int status = parse(argc, argv, &options);
    if (status >= 0)
        return status;
    if (!getenv(LSI_BOOT_ENV))
        return launch(argc, argv, &options);
    if (options.ranks || options.bind_core)
        return lsi_cli_usage("bench", "-n and --bind are for the launcher, which runs already");
    return lsi_bench_work(&options);
}

int lsi_cli_bench_worker(int argc, char **argv)
{
    lsi_bench_options options;
    if (!getenv(LSI_BOOT_ENV))
        return lsi_cli_usage(NULL, "no command '%s'", argv[0]);
    if (argc > 1 && strcmp(argv[1], "train") == 0)
        return lsi_cli_bench_train(argc - 1, argv + 1);
    int status = parse(argc, argv, &options);
    return status >= 0 ? status : lsi_bench_work(&options);
}

/* lockstep chaos: a training job, disturbed in every way that it promises to survive.
 *
 *     undisturbed run (one worker) -> schedule from the seed -> disturbed run -> what has to hold
 *
 * Invariants:
 * 1. The seed and the command line decide what is done after which step.
 * 2. Whatever happens, nothing is left: processes are found by a mark in their environment, the
 *    rest is in one temporary folder, which stays after a failure only.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/host.h"
#include "base/status.h"
#include "cli/chaos.h"
#include "cli/cli.h"
#include "train/checkpoint.h"

#define EVICT_S 2.0
#define RESTARTS 1000
#define DEADLINE_S 60.0
#define SHARDS 8 /* as usual: more workers than that would be spares */

static const char help[] =
    "usage: lockstep chaos [OPTIONS] train MODEL [ARGUMENTS OF lockstep train]\n"
    "\n"
    "Runs a training job of yours while workers and hosts are killed, stopped, cut off, joined by\n"
    "others and sent away, as the seed decides; and checks that it comes to the same weights as\n"
    "undisturbed, with every step in metrics.jsonl once and with the same loss, that all hosts "
    "end\n"
    "with status 0, and that nothing is left behind. Only what the run promises to survive is "
    "done:\n"
    "more than half of the hosts stay, or half of them with the first.\n"
    "\n"
    "      --seed S        of the schedule (1)\n"
    "      --hosts H       launchers at the start (2)\n"
    "      --workers K     of each host (2)\n"
    "      --events N      that are drawn (6)\n"
    "      --kinds LIST    of kill, stop (a worker); store, launcher, host (killed); pause, join,\n"
    "                      leave; cut, delay (a host's link, with --netns); all (default)\n"
    "      --netns         every host in a network namespace of its own (root, iproute2)\n"
    "      --store URL     etcd://HOST:PORT in place of the store that the hosts serve; with "
    "--netns\n"
    "                      it listens here, on all addresses\n"
    "      --expect SHA256   of the weights; the undisturbed run is not done (needs --steps)\n"
    "      --reference DIR   likewise: the directory of an undisturbed run\n"
    "      --deadline S    nothing has happened for so long: the run hangs (60)\n"
    "      --log           show what the hosts say, on standard error\n"
    "      --json          one object a line\n"
    "\n"
    "Hosts are started with --evict-after 2 and --restarts 1000 unless the job says otherwise. The "
    "last\n"
    "line is `chaos seed=… events=… generations=… sha256=same|DIFFERENT lost=… verdict=ok|FAILED`; "
    "lost\n"
    "are steps without a line in metrics.jsonl.\n"
    "\n"
    "Exit status: 0; 1 if something did not hold, or the job failed; 2 for wrong usage.\n"
    "\n"
    "example: lockstep chaos --seed 7 --hosts 3 --events 8 train gpt:nano --steps 200\n";

volatile sig_atomic_t lsi_chaos_interrupted;

static void on_signal(int number)
{
    lsi_chaos_interrupted = number;
}

void lsi_chaos_fail(lsi_chaos *c, const char *format, ...)
{
    va_list args;
    if (c->failed)
        return;
    c->failed = 1;
    va_start(args, format);
    vsnprintf(c->why, sizeof c->why, format, args);
    va_end(args);
}

/* ---- flags ---------------------------------------------------------------------------------- */

enum {
    OPT_SEED = 256,
    OPT_HOSTS,
    OPT_WORKERS,
    OPT_EVENTS,
    OPT_KINDS,
    OPT_NETNS,
    OPT_STORE,
    OPT_EXPECT,
    OPT_REFERENCE,
    OPT_DEADLINE,
    OPT_LOG,
    OPT_JSON
};

static const struct option long_options[] = {
    {"seed", required_argument, NULL, OPT_SEED},
    {"hosts", required_argument, NULL, OPT_HOSTS},
    {"workers", required_argument, NULL, OPT_WORKERS},
    {"events", required_argument, NULL, OPT_EVENTS},
    {"kinds", required_argument, NULL, OPT_KINDS},
    {"netns", no_argument, NULL, OPT_NETNS},
    {"store", required_argument, NULL, OPT_STORE},
    {"expect", required_argument, NULL, OPT_EXPECT},
    {"reference", required_argument, NULL, OPT_REFERENCE},
    {"deadline", required_argument, NULL, OPT_DEADLINE},
    {"log", no_argument, NULL, OPT_LOG},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static ls_status take_number(const char *name, long least, long most, int *out)
{
    long number = 0;
    LSI_TRY(lsi_parse_int(name, optarg, least, most, &number));
    *out = (int)number;
    return LS_OK;
}

static ls_status take_expect(lsi_chaos_options *o)
{
    o->expect = optarg;
    if (strlen(optarg) == LSI_SHA256_HEX - 1 &&
        strspn(optarg, "0123456789abcdef") == LSI_SHA256_HEX - 1)
        return LS_OK;
    return lsi_fail(LS_ERR_CONFIG, "64 hexadecimal digits", "--expect", "'%.80s' is no SHA-256",
                    optarg);
}

static ls_status take_option(int option, lsi_chaos_options *o, const char **kinds)
{
    long number = 0;
    switch (option) {
    case OPT_SEED:
        LSI_TRY(lsi_parse_int("--seed", optarg, 0, LONG_MAX, &number));
        o->seed = (uint64_t)number;
        break;
    case OPT_HOSTS: return take_number("--hosts", 1, LSI_CHAOS_HOSTS / 2, &o->hosts);
    case OPT_WORKERS: return take_number("--workers", 1, LSI_MAX_RANKS, &o->workers);
    case OPT_EVENTS: return take_number("--events", 0, LSI_CHAOS_EVENTS, &o->events);
    case OPT_KINDS: *kinds = optarg; break;
    case OPT_NETNS: o->netns = 1; break;
    case OPT_STORE: o->store = optarg; break;
    case OPT_EXPECT: return take_expect(o);
    case OPT_REFERENCE: o->reference = optarg; break;
    case OPT_DEADLINE: return lsi_parse_seconds("--deadline", optarg, &o->deadline_s);
    case OPT_LOG: o->log = 1; break;
    case OPT_JSON: o->json = 1; break;
    default: break;
    }
    return LS_OK;
}

/* The value of a flag of the job, "--steps 7" or "--steps=7"; NULL: it does not say. The last
 * counts. */
static const char *job_value(const lsi_chaos_options *o, const char *flag)
{
    const size_t length = strlen(flag);
    const char *value = NULL;
    for (int i = 0; i < o->n_words; i++) {
        if (strcmp(o->words[i], flag) == 0 && i + 1 < o->n_words)
            value = o->words[i + 1];
        else if (strncmp(o->words[i], flag, length) == 0 && o->words[i][length] == '=')
            value = o->words[i] + length + 1;
    }
    return value;
}

/* What of the job is ours to say. */
static const char *forbidden(const lsi_chaos_options *o)
{
    static const char *const flags[] = {"--listen", "--join",   "--hosts",   "--key-file",
                                        "--store",  "--resume", "--workers", "-n",
                                        "--json",   "--quiet"};
    for (int i = 0; i < o->n_words; i++)
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
            if (strncmp(o->words[i], flags[k], strlen(flags[k])) == 0 &&
                strchr("=", o->words[i][strlen(flags[k])]))
                return flags[k];
    return NULL;
}

static ls_status read_job(lsi_chaos_options *o)
{
    const char *text;
    long number = 0;
    o->out = job_value(o, "--out");
    if ((text = job_value(o, "--evict-after")))
        LSI_TRY(lsi_parse_seconds("--evict-after", text, &o->evict_s));
    if ((text = job_value(o, "--restarts"))) {
        LSI_TRY(lsi_parse_int("--restarts", text, 0, INT_MAX, &number));
        o->restarts = (int)number;
    }
    if ((text = job_value(o, "--shards"))) {
        LSI_TRY(lsi_parse_int("--shards", text, 1, INT_MAX, &number));
        o->shards = (int)number;
    }
    if ((text = job_value(o, "--steps"))) {
        LSI_TRY(lsi_parse_int("--steps", text, 1, LONG_MAX, &number));
        o->steps = (uint64_t)number;
    }
    return LS_OK;
}

/* Returns -1 to go on, else the exit status. */
static int check(lsi_chaos_options *o, const char *kinds)
{
    if (o->n_words < 2 || strcmp(o->words[0], "train") != 0)
        return lsi_cli_usage("chaos", "which job? train MODEL … is missing");
    o->words++;
    o->n_words--;
    if (o->n_words > LSI_CHAOS_WORDS)
        return lsi_cli_usage("chaos", "more than %d arguments of the job", LSI_CHAOS_WORDS);
    const char *flag = forbidden(o);
    if (flag)
        return lsi_cli_usage("chaos", "%s is not for the job to say here", flag);
    if (read_job(o) != LS_OK || lsi_chaos_parse_kinds(kinds, o->netns, &o->kinds) != LS_OK)
        return lsi_cli_bad_value("chaos");
    if (o->expect && o->reference)
        return lsi_cli_usage("chaos", "--expect and --reference exclude each other");
    if (o->expect && !o->steps)
        return lsi_cli_usage("chaos", "--expect needs --steps among the arguments of the job");
    if (o->netns && geteuid() != 0)
        return lsi_cli_usage("chaos", "--netns needs root");
    return -1;
}

static int parse(int argc, char **argv, lsi_chaos_options *o)
{
    const char *kinds = "all";
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "+:h", long_options, NULL)) != -1;) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (option == '?' || option == ':')
            return lsi_cli_bad_option("chaos", option, argv);
        if (take_option(option, o, &kinds) != LS_OK)
            return lsi_cli_bad_value("chaos");
    }
    o->words = argv + optind;
    o->n_words = argc - optind;
    return check(o, kinds);
}

/* ---- the work ------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info;
    (void)type;
    (void)at;
    return remove(path);
}

static ls_status open_folder(lsi_chaos *c)
{
    char path[PATH_MAX];
    uint64_t random[2];
    const char *where = getenv("TMPDIR") && *getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    const int n = snprintf(c->folder, sizeof c->folder, "%s/lockstep-chaos-XXXXXX", where);
    if (n >= (int)sizeof c->folder)
        return lsi_fail(LS_ERR_CONFIG, NULL, "TMPDIR", "its path is too long");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random || !mkdtemp(c->folder))
        return lsi_fail_errno("chaos", "cannot make a temporary folder");
    snprintf(c->id, sizeof c->id, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    snprintf(path, sizeof path, "%s/tmp", c->folder);
    if (mkdir(path, 0700) != 0)
        return lsi_fail_errno("chaos", "cannot make %s", path);
    if (c->o.out)
        snprintf(c->out, sizeof c->out, "%s", c->o.out);
    else
        snprintf(c->out, sizeof c->out, "%s/run", c->folder);
    c->pid = getpid();
    c->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    return c->null_fd >= 0 ? LS_OK : lsi_fail_errno("chaos", "cannot open /dev/null");
}

/* The last words of the undisturbed run, for whoever wants to know why it failed. */
static void show_words(const lsi_chaos *c)
{
    char path[PATH_MAX], line[512];
    lsi_chaos_log_path(c, -1, "err", path);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        fputs(line, stderr);
    if (file)
        fclose(file);
}

/* What the run has to come to, and how many steps it takes. */
static void find_expected(lsi_chaos *c)
{
    lsi_checkpoint found;
    if (c->o.expect) {
        snprintf(c->expected, sizeof c->expected, "%s", c->o.expect);
        c->plan.steps = c->o.steps;
        return;
    }
    if (c->o.reference)
        snprintf(c->reference, sizeof c->reference, "%s", c->o.reference);
    else
        snprintf(c->reference, sizeof c->reference, "%s/undisturbed", c->folder);
    const int status = c->o.reference ? 0 : lsi_chaos_undisturbed(c, c->reference);
    if (lsi_chaos_interrupted) {
        lsi_chaos_fail(c, "interrupted");
    } else if (status) {
        show_words(c);
        lsi_chaos_fail(c, "the job fails by itself, with status %d", status);
    } else if (lsi_checkpoint_find(c->reference, &found) != LS_OK) {
        lsi_chaos_fail(c, "%s", ls_last_error());
    } else {
        snprintf(c->expected, sizeof c->expected, "%s", found.weights);
        c->plan.steps = lsi_chaos_steps(c->reference);
    }
}

static void disturb(lsi_chaos *c)
{
    lsi_chaos_draw(&c->o, c->plan.steps, &c->plan);
    lsi_chaos_print_plan(c);
    if (c->o.netns && lsi_chaos_net_open(c, c->plan.hosts) != LS_OK)
        lsi_chaos_fail(c, "%s", ls_last_error());
    else
        lsi_chaos_run(c);
    lsi_chaos_check(c);
}

static int chaos(lsi_chaos *c)
{
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* whoever has stopped reading: we still clean up */
    if (open_folder(c) != LS_OK)
        return lsi_cli_fail();
    find_expected(c);
    if (!c->failed)
        disturb(c);
    lsi_chaos_kill_all(c);
    lsi_chaos_net_close(c);
    lsi_chaos_print_end(c);
    close(c->null_fd);
    if (!c->failed || lsi_chaos_interrupted)
        (void)nftw(c->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return c->failed ? LSI_CLI_FAILED : 0;
}

int lsi_cli_chaos(int argc, char **argv)
{
    lsi_chaos *c = calloc(1, sizeof *c);
    if (!c) {
        lsi_fail(LS_ERR_NOMEM, NULL, "chaos", "out of memory");
        return lsi_cli_fail();
    }
    c->o = (lsi_chaos_options){.seed = 1,
                               .hosts = 2,
                               .workers = 2,
                               .events = 6,
                               .deadline_s = DEADLINE_S,
                               .evict_s = EVICT_S,
                               .restarts = RESTARTS,
                               .shards = SHARDS};
    int status = parse(argc, argv, &c->o);
    if (status < 0)
        status = chaos(c);
    free(c);
    return status;
}

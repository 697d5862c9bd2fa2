/* lockstep run: the command line of the launcher.
 *
 * Nothing is decided here: flags become an lsi_launch_config, and what makes no sense is refused
 * before anything is started.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/host.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/hosts_options.h"
#include "launch/launch.h"

static const char help[] =
    "usage: lockstep run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "\n"
    "Starts N copies of a program that uses the library (ls_init) as the ranks of one group, and\n"
    "watches over them: a rank that dies is known to the others at once, and nothing is left "
    "behind\n"
    "when the run ends, however it ends.\n"
    "\n"
    "  -n, --ranks N         ranks on this host, 1 to 256\n"
    "      --prefix          put \"[rank] \" before each line that the ranks write\n"
    "      --bind core|none  pin rank i of this host to the i-th core that may be used (none)\n"
    "      --on-death end|leave\n"
    "                        when a rank dies: end the others, after a second to say so "
    "themselves\n"
    "                        (end; 5 seconds when it left in order, but failed), or leave it to "
    "the\n"
    "                        group to go on without it, until it does nothing for 30 seconds\n"
    "      --transport NAME  force a transport, as LOCKSTEP_TRANSPORT does: auto, shm, tcp\n"
    "  -v, --verbose         say more, as LOCKSTEP_LOG=info does: the addresses and the interface\n"
    "                        of every connection between ranks, for one\n"
    "\n"
    "several hosts: start one with --listen and the others with --join; ranks are counted host by\n"
    "host, those of the listener first, then in order of arrival\n"
    "      --listen HOST:PORT  wait here for the others; HOST is an address that they can reach,\n"
    "                        port 0 takes a free one and says which\n"
    "      --hosts H         with --listen: hosts of the run, this one included\n"
    "      --join HOST:PORT  take part in the run of that listener\n"
    "      --key-file FILE   the run's secret, needed by all; the listener makes it (mode 0600) "
    "if\n"
    "                        there is none, the others need a copy; - reads it from standard "
    "input\n"
    "      --wait SECONDS    for the others to come (60)\n"
    "\n"
    "Ranks find LOCKSTEP_RANK, LOCKSTEP_SIZE and LOCKSTEP_LOCAL_RANK in their environment. "
    "Standard\n"
    "input is theirs unless it is a terminal. SIGINT, SIGTERM, SIGHUP and SIGQUIT are handed on "
    "to\n"
    "them and end the run, after 5 seconds (or at the second Ctrl-C) by SIGKILL; SIGUSR1, "
    "SIGUSR2,\n"
    "SIGTSTP and SIGCONT are handed on as well.\n"
    "\n"
    "Exit status: 0 if all ranks ended with 0 (with --listen: of all hosts), else that of the "
    "first\n"
    "that failed, 128 + N if signal N killed it; 127 or 126 if the program is not there or cannot "
    "be\n"
    "executed; 1 if the run could not be started; 2 for wrong usage.\n"
    "\n"
    "example: lockstep run -n 2 -- ./train --steps 100\n";

enum { OPT_PREFIX = 256, OPT_BIND, OPT_ON_DEATH, OPT_TRANSPORT };

static const struct option options[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"prefix", no_argument, NULL, OPT_PREFIX},
    {"bind", required_argument, NULL, OPT_BIND},
    {"on-death", required_argument, NULL, OPT_ON_DEATH},
    {"transport", required_argument, NULL, OPT_TRANSPORT},
    {"verbose", no_argument, NULL, 'v'},
    LSI_HOSTS_OPTIONS,
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static ls_status parse_choice(const char *name, const char *first, const char *second, int *out)
{
    if (strcmp(optarg, first) != 0 && strcmp(optarg, second) != 0)
        return lsi_fail(LS_ERR_CONFIG, NULL, name, "'%.40s' is neither %s nor %s", optarg, first,
                        second);
    *out = strcmp(optarg, second) == 0;
    return LS_OK;
}

/* More words of the launcher and the ranks; who has asked for even more gets it. */
static void be_verbose(void)
{
    const char *level = getenv("LOCKSTEP_LOG");
    if (!level || strcmp(level, "debug") != 0)
        setenv("LOCKSTEP_LOG", "info", 1);
}

/* One option with its value in optarg. */
static ls_status take_option(int option, lsi_launch_config *config)
{
    long number = 0;
    int choice = 0;
    switch (option) {
    case 'n':
        LSI_TRY(lsi_parse_int("-n", optarg, 1, LSI_MAX_RANKS, &number));
        config->ranks = (int)number;
        break;
    case OPT_PREFIX: config->prefix = 1; break;
    case OPT_BIND: return parse_choice("--bind", "none", "core", &config->bind_core);
    case OPT_ON_DEATH:
        LSI_TRY(parse_choice("--on-death", "end", "leave", &choice));
        config->on_death = choice ? LSI_ON_DEATH_LEAVE : LSI_ON_DEATH_END;
        break;
    case OPT_TRANSPORT: setenv("LOCKSTEP_TRANSPORT", optarg, 1); break;
    case 'v': be_verbose(); break;
    default: return lsi_cli_hosts_option(option, config);
    }
    return LS_OK;
}

/* What is wrong with the options together; NULL when they make sense. */
static const char *find_contradiction(const lsi_launch_config *config, int has_program)
{
    if (config->ranks == 0)
        return "how many ranks? -n N is missing";
    if (!has_program)
        return "no program is given";
    return lsi_cli_hosts_contradiction(config);
}

int lsi_cli_run(int argc, char **argv)
{
    lsi_launch_config config = {0};
    int option, status = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+:n:vh", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (option == '?' || option == ':')
            return lsi_cli_bad_option("run", option, argv);
        if (take_option(option, &config) != LS_OK)
            return lsi_cli_bad_value("run");
    }
    const char *wrong = find_contradiction(&config, optind < argc);
    if (wrong)
        return lsi_cli_usage("run", "%s", wrong);
    config.argv = argv + optind;
    if (lsi_launch(&config, &status) != LS_OK)
        return lsi_cli_fail();
    return status;
}

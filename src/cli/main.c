/* The lockstep command: one ordered table of subcommands, help, and the words for wrong usage.
 *
 * Invariants:
 * 1. Help goes to standard output with status 0; complaints are one line (and where to find help)
 *    on standard error with status 2.
 * 2. Descriptors 0, 1 and 2 are open from the first line on: what is opened later is never taken
 *    for standard output.
 */
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include <lockstep/version.h>

typedef struct command {
    const char *name;
    const char *summary;
    int (*function)(int argc, char **argv);
} command;

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

/* In the order in which help shows them; those without a summary it does not. */
static const command commands[] = {
    {"train", "train a model, on all cores or on several hosts", lsi_cli_train},
    {"train-worker", NULL, lsi_cli_train_worker},
    {"join", "take part in a training run: HOST:PORT --key-file FILE [-n K]", lsi_cli_join},
    {"status", "what every worker of a run does at this moment", lsi_cli_status},
    {"eval", "loss and accuracy of a run, on what was held out or on other data", lsi_cli_eval},
    {"eval-worker", NULL, lsi_cli_eval_worker},
    {"generate", "text from a trained gpt", lsi_cli_generate},
    {"predict", "what a trained model says of the samples of a file", lsi_cli_predict},
    {"hash", "the SHA-256 of the weights of a run", lsi_cli_hash},
    {"run", "start a program as the ranks of a group, on one host or several", lsi_cli_run},
    {"chaos", "a training job, disturbed in every way that it promises to survive", lsi_cli_chaos},
    {"bench", "measure the collectives, or the training step of a model", lsi_cli_bench},
    {"bench-worker", NULL, lsi_cli_bench_worker},
    {"info", "the machine, and what can be used on it; selection, environment", lsi_cli_info},
    {"help", "this text, or that of one command: lockstep help run", cmd_help},
    {"version", "the version of this program", cmd_version},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static const command *find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    }
    return NULL;
}

static void print_help(void)
{
    puts("usage: lockstep COMMAND [ARGUMENTS]\n"
         "\n"
         "Lockstep trains models on many workers; the result depends on the configuration,\n"
         "never on the machines it ran on.\n"
         "\n"
         "commands:");
    for (size_t i = 0; i < COMMANDS; i++) {
        if (commands[i].summary)
            printf("  %-8s  %s\n", commands[i].name, commands[i].summary);
    }
    puts("\n`lockstep COMMAND --help` tells more about each.");
}

static int cmd_help(int argc, char **argv)
{
    if (argc < 2 || argv[1][0] == '-') {
        print_help();
        return 0;
    }
    const command *c = find(argv[1]);
    if (!c)
        return lsi_cli_usage(NULL, "no command '%s'", argv[1]);
    if (c->function == cmd_help || c->function == cmd_version) {
        printf("usage: lockstep %s\n\n%s\n", c->name, c->summary);
        return 0;
    }
    char help[] = "--help";
    char *args[] = {argv[1], help, NULL};
    return c->function(2, args);
}

static int cmd_version(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        puts("usage: lockstep version\n\nPrints the version of this program.");
        return 0;
    }
    printf("lockstep %s\n", ls_version());
    return 0;
}

int lsi_cli_usage(const char *command_name, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (command_name)
        fprintf(stderr, "lockstep %s: %s; see lockstep %s --help\n", command_name, text,
                command_name);
    else
        fprintf(stderr, "lockstep: %s; see lockstep --help\n", text);
    return LSI_CLI_USAGE;
}

int lsi_cli_bad_value(const char *command_name)
{
    return lsi_cli_usage(command_name, "%s", ls_last_error());
}

int lsi_cli_fail(void)
{
    fprintf(stderr, "lockstep: %s\n", ls_last_error());
    return LSI_CLI_FAILED;
}

int lsi_cli_bad_option(const char *command_name, int code, char **argv)
{
    const char *word = argv[optind - 1];
    if (code == ':')
        return lsi_cli_usage(command_name, "%s needs a value", word);
    if (optopt && strncmp(word, "--", 2) == 0)
        return lsi_cli_usage(command_name, "%s takes no value", word);
    if (optopt) /* one letter of several, as in -xyz: the word may not be passed yet */
        return lsi_cli_usage(command_name, "unknown option -%c", optopt);
    return lsi_cli_usage(command_name, "unknown option %s", word);
}

static void open_standard_files(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

int main(int argc, char **argv)
{
    open_standard_files();
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0)
        return cmd_version(1, argv);
    const command *c = find(argv[1]);
    if (!c)
        return lsi_cli_usage(NULL, "no %s '%s'", argv[1][0] == '-' ? "option" : "command", argv[1]);
    return c->function(argc - 1, argv + 1);
}

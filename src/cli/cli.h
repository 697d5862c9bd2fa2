/* The subcommands of `lockstep`. Each gets its own arguments (argv[0] is its name) and returns the
 * exit status: 0, 1 when the work failed, 2 when the arguments make no sense. */
#ifndef LSI_CLI_CLI_H
#define LSI_CLI_CLI_H

#include <lockstep/status.h>

#define LSI_CLI_FAILED 1
#define LSI_CLI_USAGE 2

int lsi_cli_run(int argc, char **argv);
int lsi_cli_bench(int argc, char **argv);
int lsi_cli_info(int argc, char **argv);

/* Say on stderr what is wrong with the arguments of `command` (NULL: of lockstep itself), and
 * where help is. Returns LSI_CLI_USAGE. */
int lsi_cli_usage(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with the error that was recorded last, by a parser of base/env.h say. */
int lsi_cli_bad_value(const char *command);
/* Say on stderr what failed, as recorded. Returns LSI_CLI_FAILED. */
int lsi_cli_fail(void);
/* After getopt_long returned '?' or ':' (opterr must be 0, optstring begin with "+:"). */
int lsi_cli_bad_option(const char *command, int code, char **argv);

#endif

/* Flags of a run over several hosts: --listen, --hosts, --join, --key-file, --wait. */
#ifndef LSI_CLI_HOSTS_OPTIONS_H
#define LSI_CLI_HOSTS_OPTIONS_H

#include "launch/launch.h"

/* Values of getopt_long, beyond those of any command. */
enum { LSI_OPT_LISTEN = 1024, LSI_OPT_HOSTS, LSI_OPT_JOIN, LSI_OPT_KEY_FILE, LSI_OPT_WAIT };

/* For a command's table of long options. */
#define LSI_HOSTS_OPTIONS                                                                          \
    {"listen", required_argument, NULL, LSI_OPT_LISTEN},                                           \
        {"hosts", required_argument, NULL, LSI_OPT_HOSTS},                                         \
        {"join", required_argument, NULL, LSI_OPT_JOIN},                                           \
        {"key-file", required_argument, NULL, LSI_OPT_KEY_FILE},                                   \
    {                                                                                              \
        "wait", required_argument, NULL, LSI_OPT_WAIT                                              \
    }

/* One of these, with its value in optarg. LS_ERR_CONFIG. */
ls_status lsi_cli_hosts_option(int option, lsi_launch_config *config);
/* What is wrong with them together; NULL when they make sense. */
const char *lsi_cli_hosts_contradiction(const lsi_launch_config *config);

#endif

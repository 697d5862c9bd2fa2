/* Flags of an elastic run: how many workers, who is replaced, who decides. */
#ifndef LSI_CLI_ELASTIC_OPTIONS_H
#define LSI_CLI_ELASTIC_OPTIONS_H

#include "launch/launch.h"

/* Values of getopt_long, beyond those of any command and of hosts_options.h. */
enum {
    LSI_OPT_RESTARTS = 1100,
    LSI_OPT_MIN_WORKERS,
    LSI_OPT_MAX_WORKERS,
    LSI_OPT_EVICT_AFTER,
    LSI_OPT_PATIENCE,
    LSI_OPT_QUORUM,
    LSI_OPT_STORE,
    LSI_OPT_GRACE
};

/* For a command's table of long options. */
#define LSI_ELASTIC_OPTIONS                                                                        \
    {"restarts", required_argument, NULL, LSI_OPT_RESTARTS},                                       \
        {"min-workers", required_argument, NULL, LSI_OPT_MIN_WORKERS},                             \
        {"max-workers", required_argument, NULL, LSI_OPT_MAX_WORKERS},                             \
        {"evict-after", required_argument, NULL, LSI_OPT_EVICT_AFTER},                             \
        {"patience", required_argument, NULL, LSI_OPT_PATIENCE},                                   \
        {"quorum", required_argument, NULL, LSI_OPT_QUORUM},                                       \
        {"store", required_argument, NULL, LSI_OPT_STORE},                                         \
    {                                                                                              \
        "grace", required_argument, NULL, LSI_OPT_GRACE                                            \
    }

/* One of these, with its value in optarg; or LS_IN_PROGRESS when it is none of them. */
ls_status lsi_cli_elastic_option(int option, lsi_launch_config *config);
/* What is wrong with them together; NULL when they make sense. */
const char *lsi_cli_elastic_contradiction(const lsi_launch_config *config);

#endif

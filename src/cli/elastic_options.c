/* The flags of an elastic run. */
#include "cli/elastic_options.h"

#include <getopt.h>
#include <string.h>

#include "base/env.h"
#include "base/host.h"
#include "base/status.h"

#define MOST_RESTARTS 1000000

static ls_status take_number(const char *name, long least, long most, int *out)
{
    long number = 0;
    LSI_TRY(lsi_parse_int(name, optarg, least, most, &number));
    *out = (int)number;
    return LS_OK;
}

static ls_status take_restarts(lsi_launch_config *config)
{
    LSI_TRY(take_number("--restarts", 0, MOST_RESTARTS, &config->restarts));
    if (config->restarts == 0)
        config->restarts = -1;
    return LS_OK;
}

static ls_status take_quorum(lsi_launch_config *config)
{
    config->quorum_any = strcmp(optarg, "any") == 0;
    if (config->quorum_any || strcmp(optarg, "majority") == 0)
        return LS_OK;
    return lsi_fail(LS_ERR_CONFIG, "majority or any", "--quorum", "'%.40s' is neither", optarg);
}

static ls_status take_store(lsi_launch_config *config)
{
    config->store = optarg;
    if (strstr(optarg, "://"))
        return LS_OK;
    return lsi_fail(LS_ERR_CONFIG, "such as etcd://HOST:2379", "--store", "'%.80s' is not a URL",
                    optarg);
}

ls_status lsi_cli_elastic_option(int option, lsi_launch_config *config)
{
    switch (option) {
    case LSI_OPT_RESTARTS: return take_restarts(config);
    case LSI_OPT_MIN_WORKERS:
        return take_number("--min-workers", 1, LSI_MAX_RANKS, &config->min_workers);
    case LSI_OPT_MAX_WORKERS:
        return take_number("--max-workers", 1, LSI_MAX_RANKS, &config->max_workers);
    case LSI_OPT_EVICT_AFTER: return lsi_parse_seconds("--evict-after", optarg, &config->evict_s);
    case LSI_OPT_PATIENCE: return lsi_parse_seconds("--patience", optarg, &config->short_s);
    case LSI_OPT_QUORUM: return take_quorum(config);
    case LSI_OPT_STORE: return take_store(config);
    case LSI_OPT_GRACE: return lsi_parse_seconds("--grace", optarg, &config->grace_s);
    default: return LS_IN_PROGRESS;
    }
}

const char *lsi_cli_elastic_contradiction(const lsi_launch_config *config)
{
    if (config->min_workers && config->max_workers && config->min_workers > config->max_workers)
        return "--min-workers is above --max-workers";
    if (config->join && (config->min_workers || config->max_workers))
        return "--min-workers and --max-workers are for the first host to say";
    return NULL;
}

/* The flags of a run over several hosts, which `run` and `train` share. */
#include <getopt.h>

#include "base/env.h"
#include "base/host.h"
#include "base/net.h"
#include "base/status.h"
#include "cli/hosts_options.h"

static ls_status check_address(const char *name, int min_port)
{
    char host[LSI_ADDR_MAX];
    int port;
    LSI_TRY(lsi_net_split(optarg, host, &port));
    if (port < min_port)
        return lsi_fail(LS_ERR_CONFIG, NULL, name, "'%.80s' has no port to connect to", optarg);
    return LS_OK;
}

ls_status lsi_cli_hosts_option(int option, lsi_launch_config *config)
{
    long number = 0;
    switch (option) {
    case LSI_OPT_LISTEN: config->listen = optarg; return check_address("--listen", 0);
    case LSI_OPT_HOSTS:
        LSI_TRY(lsi_parse_int("--hosts", optarg, 1, LSI_MAX_HOSTS, &number));
        config->hosts = (int)number;
        break;
    case LSI_OPT_JOIN: config->join = optarg; return check_address("--join", 1);
    case LSI_OPT_KEY_FILE: config->key_file = optarg; break;
    case LSI_OPT_WAIT: return lsi_parse_seconds("--wait", optarg, &config->wait_s);
    }
    return LS_OK;
}

const char *lsi_cli_hosts_contradiction(const lsi_launch_config *config)
{
    if (config->listen && config->join)
        return "--listen and --join exclude each other";
    if (config->listen && !config->hosts)
        return "--listen needs --hosts, the number of hosts that take part";
    if (!config->listen && config->hosts)
        return "--hosts goes with --listen";
    if ((config->listen || config->join) && !config->key_file)
        return "--listen and --join need --key-file";
    if (!config->listen && !config->join && (config->key_file || config->wait_s > 0))
        return "--key-file and --wait go with --listen or --join";
    return NULL;
}

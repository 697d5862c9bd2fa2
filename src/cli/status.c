/* lockstep status: what every worker of a run does at this moment. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/status.h"
#include "cli/cli.h"
#include "launch/council.h"
#include "launch/status.h"

#define ANSWER_S 3.0

static const char help[] =
    "usage: lockstep status DIR\n"
    "       lockstep status HOST:PORT --key-file FILE\n"
    "\n"
    "Says what every worker of a run does: which step, which operation, how long it has been "
    "silent.\n"
    "DIR is the folder that `lockstep train --out` named: its host is shown. HOST:PORT is what a "
    "run\n"
    "over several hosts listens on: all of them are.\n"
    "\n"
    "  --key-file FILE   the run's secret\n"
    "\n"
    "Exit status: 0; 1 when no run is there, or it does not answer; 2 for wrong usage.\n";

typedef struct answers {
    int hosts; /* that are here */
    int heard;
} answers;

static void take_event(const lsi_store_event *e, uint64_t since, answers *a)
{
    if (e->deleted)
        return;
    if (strncmp(e->key, "host/", 5) == 0)
        a->hosts++;
    if (strncmp(e->key, "phase/", 6) == 0 && e->version > since) {
        printf("%.*s", (int)e->bytes, (const char *)e->value);
        a->heard++;
    }
}

/* Ask all hosts, and print what they say as it comes. */
static ls_status ask_all(lsi_store *store)
{
    uint64_t asked = 0;
    answers a = {0};
    LSI_TRY(store->ops->put(store, "ask", "1", 1, 0, &asked));
    LSI_TRY(store->ops->watch(store, "host/"));
    LSI_TRY(store->ops->watch(store, "phase/"));
    const double until = lsi_now() + ANSWER_S;
    while (lsi_now() < until && (a.hosts == 0 || a.heard < a.hosts)) {
        lsi_store_event event;
        const ls_status status = store->ops->next(store, 0.1, &event);
        if (status == LS_OK)
            take_event(&event, asked, &a);
        else if (status != LS_IN_PROGRESS)
            return status;
    }
    if (a.heard < a.hosts)
        printf("%d of %d hosts have not answered within %.0f s\n", a.hosts - a.heard, a.hosts,
               ANSWER_S);
    if (a.hosts == 0)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, "status", "no host of a run is there");
    return LS_OK;
}

static ls_status ask_hosts(const char *address, const char *key_file)
{
    char url[LSI_ADDR_MAX + 8];
    lsi_key key;
    lsi_store *store;
    LSI_TRY(lsi_key_load(key_file, &key));
    snprintf(url, sizeof url, "%s%.*s", strstr(address, "://") ? "" : "tcp://", LSI_ADDR_MAX - 1,
             address);
    ls_status status = lsi_store_open(url, &key, ANSWER_S, &store);
    explicit_bzero(&key, sizeof key);
    if (status != LS_OK)
        return status;
    status = ask_all(store);
    lsi_store_close(store);
    return status;
}

static ls_status ask_folder(const char *folder)
{
    char *text = NULL;
    LSI_TRY(lsi_status_ask(folder, &text));
    fputs(text, stdout);
    free(text);
    return LS_OK;
}

int lsi_cli_status(int argc, char **argv)
{
    static const struct option options[] = {
        {"key-file", required_argument, NULL, 'k'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *key_file = NULL, *where = NULL;
    struct stat info;
    opterr = 0;
    for (;;) {
        const int option = getopt_long(argc, argv, "+:h", options, NULL);
        if (option == -1 && optind < argc && !where) {
            where = argv[optind++];
            continue;
        }
        if (option == -1)
            break;
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (option != 'k')
            return lsi_cli_bad_option("status", option, argv);
        key_file = optarg;
    }
    if (!where || optind < argc)
        return lsi_cli_usage("status", "of which run? one DIR or HOST:PORT");
    const int is_folder = stat(where, &info) == 0 && S_ISDIR(info.st_mode);
    if (!is_folder && !key_file)
        return lsi_cli_usage("status", "'%.80s' is no folder, and HOST:PORT needs --key-file",
                             where);
    const ls_status status = is_folder ? ask_folder(where) : ask_hosts(where, key_file);
    return status == LS_OK ? 0 : lsi_cli_fail();
}

/* What has to hold when the run is over: the weights, the statuses, and that nothing is left. */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/chaos.h"

#define GONE_S 5.0 /* for what a killed host leaves to be cleaned up by its guard */

static void check_digest(lsi_chaos *c)
{
    if (!c->sha256[0])
        lsi_chaos_fail(c, "no host has printed a digest");
    else if (c->differs)
        lsi_chaos_fail(c, "hosts have printed different digests");
    else if (strcmp(c->sha256, c->expected) != 0)
        lsi_chaos_fail(c, "the weights are %.16s…, expected %.16s…", c->sha256, c->expected);
}

static void check_statuses(lsi_chaos *c)
{
    for (int i = 0; i < c->n_hosts; i++) {
        const lsi_chaos_host *h = &c->hosts[i];
        if (h->killed || !h->ended || h->wait_status == 0)
            continue;
        if (WIFSIGNALED(h->wait_status))
            lsi_chaos_fail(c, "host %d was killed by signal %d", i, WTERMSIG(h->wait_status));
        else
            lsi_chaos_fail(c, "host %d has ended with status %d", i, WEXITSTATUS(h->wait_status));
    }
}

static void check_processes(lsi_chaos *c)
{
    pid_t pids[LSI_CHAOS_WORKERS];
    int n;
    const double until = lsi_now() + GONE_S;
    while ((n = lsi_chaos_find(c, -1, pids, LSI_CHAOS_WORKERS)) > 0 && lsi_now() < until)
        (void)poll(NULL, 0, 10);
    if (n)
        lsi_chaos_fail(c, "left behind: %d processes, %ld among them", n, (long)pids[0]);
}

static void check_ports(lsi_chaos *c)
{
    for (int i = 0; i < c->n_hosts; i++) {
        int fd = -1;
        if (c->has_net && lsi_chaos_net_listeners(c, i))
            lsi_chaos_fail(c, "left behind: a port that is open on host %d", i);
        if (c->has_net || c->o.store || lsi_net_connect(c->hosts[i].store, 0, &fd) != LS_OK)
            continue;
        close(fd);
        lsi_chaos_fail(c, "left behind: somebody listens on %s", c->hosts[i].store);
    }
}

/* Files in `folder` whose names contain `part`. Folders are not ours: others run here, too. */
static void check_folder(lsi_chaos *c, const char *folder, const char *part)
{
    struct dirent *e;
    DIR *list = opendir(folder);
    while (list && (e = readdir(list)) != NULL)
        if (e->d_type != DT_DIR && strstr(e->d_name, part))
            lsi_chaos_fail(c, "left behind: %.200s/%.200s", folder, e->d_name);
    if (list)
        closedir(list);
}

/* A checkpoint that was not finished is a folder: .step-N.tmp. */
static void check_checkpoints(lsi_chaos *c)
{
    char path[PATH_MAX];
    struct dirent *e;
    snprintf(path, sizeof path, "%.*s/checkpoint", PATH_MAX - 16, c->out);
    DIR *list = opendir(path);
    while (list && (e = readdir(list)) != NULL)
        if (strstr(e->d_name, ".tmp"))
            lsi_chaos_fail(c, "left behind: %.200s/%.200s", path, e->d_name);
    if (list)
        closedir(list);
}

static void check_files(lsi_chaos *c)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/tmp", c->folder);
    check_folder(c, path, "");
    check_folder(c, "/dev/shm", "lockstep");
    check_folder(c, c->out, ".tmp");
    check_checkpoints(c);
}

void lsi_chaos_check(lsi_chaos *c)
{
    if (c->failed)
        return;
    check_statuses(c);
    check_digest(c);
    if (!c->failed)
        lsi_chaos_compare(c, c->out, c->reference[0] ? c->reference : NULL);
    check_processes(c);
    check_ports(c);
    check_files(c);
}

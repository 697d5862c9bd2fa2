/* Processes of the run, by the mark in their environment: "LOCKSTEP_CHAOS=ID.HOST". */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/chaos.h"

#define TEXT_MAX ((size_t)1 << 18)
#define KILL_S 10.0

/* A file of /proc, as far as it fits; its length. */
static size_t read_proc(long pid, const char *name, char *text, size_t room)
{
    char path[64];
    size_t used = 0;
    ssize_t n;
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    while (used < room - 1 && (n = read(fd, text + used, room - 1 - used)) > 0)
        used += (size_t)n;
    close(fd);
    text[used] = 0;
    return used;
}

/* Has it ended, and waits to be collected? */
static int is_zombie(long pid)
{
    char text[512] = "";
    read_proc(pid, "stat", text, sizeof text);
    const char *state = strrchr(text, ')');
    return !state || state[1] != ' ' || state[2] == 'Z' || state[2] == 'X';
}

static int is_marked(long pid, const char *mark, size_t length)
{
    static char text[TEXT_MAX];
    const size_t bytes = read_proc(pid, "environ", text, sizeof text);
    for (const char *at = text; at < text + bytes; at += strlen(at) + 1)
        if (strncmp(at, mark, length) == 0)
            return 1;
    return 0;
}

int lsi_chaos_find(const lsi_chaos *c, int host, pid_t *pids, int room)
{
    char mark[sizeof LSI_CHAOS_ENV + sizeof c->id + 16];
    int n = 0;
    struct dirent *entry;
    snprintf(mark, sizeof mark, LSI_CHAOS_ENV "=%s.", c->id);
    size_t length = strlen(mark);
    if (host >= 0) /* with the final 0: 1 is not 10 */
        length += (size_t)snprintf(mark + length, sizeof mark - length, "%d", host) + 1;
    DIR *proc = opendir("/proc");
    while (proc && n < room && (entry = readdir(proc)) != NULL) {
        const long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 1 && is_marked(pid, mark, length) && !is_zombie(pid))
            pids[n++] = (pid_t)pid;
    }
    if (proc)
        closedir(proc);
    return n;
}

int lsi_chaos_signal(const lsi_chaos *c, int host, int number)
{
    pid_t pids[LSI_CHAOS_WORKERS];
    const int n = lsi_chaos_find(c, host, pids, LSI_CHAOS_WORKERS);
    for (int i = 0; i < n; i++)
        kill(pids[i], number);
    return n;
}

int lsi_chaos_kill_all(lsi_chaos *c)
{
    const double until = lsi_now() + KILL_S;
    const int first = lsi_chaos_signal(c, -1, SIGKILL);
    int left = first;
    while (left && lsi_now() < until) {
        usleep(5000);
        lsi_chaos_listen(c);
        left = lsi_chaos_signal(c, -1, SIGKILL);
    }
    if (left)
        lsi_chaos_fail(c, "%d processes cannot be killed", left);
    return first;
}

static int is_worker(long pid)
{
    char text[4096] = "";
    const size_t bytes = read_proc(pid, "cmdline", text, sizeof text);
    const size_t first = strlen(text) + 1;
    return bytes > first && strcmp(text + first, "train-worker") == 0 && !is_zombie(pid);
}

static int is_store(long pid)
{
    char text[64] = "";
    read_proc(pid, "comm", text, sizeof text);
    return strcmp(text, "lockstep-store\n") == 0 && !is_zombie(pid);
}

static int find_children(pid_t launcher, int (*is_meant)(long pid), pid_t *pids, int room)
{
    char text[8192] = "", name[32], *at = text, *end;
    int n = 0;
    snprintf(name, sizeof name, "task/%ld/children", (long)launcher);
    read_proc(launcher, name, text, sizeof text);
    for (long pid; n < room && (pid = strtol(at, &end, 10)) > 0; at = end)
        if (is_meant(pid))
            pids[n++] = (pid_t)pid;
    return n;
}

int lsi_chaos_workers(pid_t launcher, pid_t *pids, int room)
{
    return find_children(launcher, is_worker, pids, room);
}

pid_t lsi_chaos_store(pid_t launcher)
{
    pid_t pid;
    return find_children(launcher, is_store, &pid, 1) ? pid : 0;
}

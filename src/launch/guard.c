/* The guard process and the pipe by which it hears of process groups.
 *
 * Invariants:
 * 1. A message is one int32_t, written whole: a group to add (> 0), a group to forget (< 0), or 0,
 *    goodbye. The end of the pipe without goodbye is the launcher's death.
 * 2. A group is forgotten as soon as it is known to be empty: its number may be somebody else's
 *    from then on.
 * 3. The guard itself does not have the mark: it is set in the ranks only.
 * 4. A process is signalled by its pidfd, opened before its mark was read: never another one that
 *    got its number meanwhile.
 */
#include "launch/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/host.h"
#include "base/status.h"

#define ENVIRON_MAX ((size_t)2 << 20)
#define PASSES 50

static void update(int32_t *groups, int *count, int32_t message)
{
    if (message > 0) {
        if (*count < LSI_MAX_RANKS)
            groups[(*count)++] = message;
        return;
    }
    for (int i = 0; i < *count; i++) {
        if (groups[i] == -message) {
            groups[i] = groups[--*count];
            return;
        }
    }
}

/* Does this process have the mark in its environment? No when it may not be read, or has ended. */
static int is_marked(const char *pid, const char *mark)
{
    static char text[ENVIRON_MAX]; /* untouched pages cost nothing */
    char path[32];
    size_t used = 0, length = strlen(mark) + 1;
    ssize_t n;
    snprintf(path, sizeof path, "/proc/%.16s/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    while (used < sizeof text && (n = read(fd, text + used, sizeof text - used)) > 0)
        used += (size_t)n;
    close(fd);
    const char *at = text, *end = text + used;
    while ((at = memmem(at, (size_t)(end - at), mark, length)) != NULL) {
        if (at == text || at[-1] == 0)
            return 1;
        at++;
    }
    return 0;
}

/* Kill all that have the mark; returns how many there were. */
static int kill_marked(const char *mark)
{
    int count = 0;
    struct dirent *entry;
    DIR *proc = opendir("/proc");
    while (proc && (entry = readdir(proc)) != NULL) {
        long pid = strtol(entry->d_name, NULL, 10);
        int fd = pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
        if (fd < 0)
            continue;
        if (is_marked(entry->d_name, mark)) {
            syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
            count++;
        }
        close(fd);
    }
    if (proc)
        closedir(proc);
    return count;
}

/* The launcher is dead. What forks while we look is found by the next look. */
static void clean_up(const int32_t *groups, int count, const char *id)
{
    char mark[sizeof LSI_GUARD_ENV + LSI_ID_BYTES];
    for (int i = 0; i < count; i++)
        kill(-groups[i], SIGKILL);
    snprintf(mark, sizeof mark, "%s=%s", LSI_GUARD_ENV, id);
    for (int pass = 0; pass < PASSES && kill_marked(mark) > 0; pass++)
        usleep(1000);
}

/* A rank that was being forked when the launcher died has not added its group yet, but such a one
 * looks for its parent before it goes on, and ends by itself. */
static _Noreturn void guard_main(int pipe_end, const char *id)
{
    int32_t groups[LSI_MAX_RANKS], message;
    int count = 0;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    prctl(PR_SET_NAME, "lockstep-guard");
    if (chdir("/") != 0 || dup2(pipe_end, 0) != 0 || close_range(1, ~0U, 0) != 0)
        _exit(1);

    for (;;) {
        ssize_t n = read(0, &message, sizeof message);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof message)
            break;
        if (message == 0)
            _exit(0);
        update(groups, &count, message);
    }
    clean_up(groups, count, id);
    _exit(0);
}

ls_status lsi_guard_start(lsi_guard *guard)
{
    int ends[2];
    LSI_TRY(lsi_id_make(guard->id));
    if (pipe2(ends, O_CLOEXEC) != 0)
        return lsi_fail_errno("cannot start the guard", "pipe");
    pid_t pid = fork();
    if (pid == 0)
        guard_main(ends[0], guard->id);
    int code = errno;
    close(ends[0]);
    if (pid > 0)
        setpgid(pid, pid); /* by us: before there are any ranks, whenever it first runs */
    if (pid < 0) {
        close(ends[1]);
        errno = code;
        return lsi_fail_errno("cannot start the guard", "fork");
    }
    guard->pid = pid;
    guard->fd = ends[1];
    return LS_OK;
}

/* The pipe has room for thousands of messages; a guard that is gone is no reason to stop. */
static void tell(const lsi_guard *guard, int32_t message)
{
    if (guard->pid > 0)
        (void)!write(guard->fd, &message, sizeof message);
}

void lsi_guard_add(const lsi_guard *guard, pid_t group)
{
    tell(guard, group);
}

void lsi_guard_forget(const lsi_guard *guard, pid_t group)
{
    tell(guard, -group);
}

void lsi_guard_is_gone(lsi_guard *guard)
{
    close(guard->fd);
    guard->pid = 0;
}

void lsi_guard_stop(lsi_guard *guard)
{
    if (guard->pid <= 0)
        return;
    tell(guard, 0);
    close(guard->fd);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    guard->pid = 0;
}

/* Strays: descendants that ranks left behind.
 *
 * The launcher is the reaper of its descendants' orphans (PR_SET_CHILD_SUBREAPER): a process whose
 * parents have ended becomes its child, in whatever session or process group it hides. So at the
 * end of a run everything that is left of it is a child of ours.
 *
 * Invariants:
 * 1. Only children are signalled, and a child's number is its own until we collect it.
 * 2. Children that we had before the run (of a shell that made itself the launcher by exec) are
 *    not strays: they are collected when they end, and left alone otherwise.
 */
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/run.h"

static FILE *open_children(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", syscall(SYS_gettid));
    return fopen(path, "re"); /* NULL without CONFIG_PROC_CHILDREN: process groups must do */
}

static int is_rank(const lsi_run *run, pid_t pid)
{
    for (int i = 0; i < run->config->ranks; i++) {
        if (run->children[i].pid == pid)
            return 1;
    }
    return 0;
}

static int is_stray(const lsi_run *run, pid_t pid)
{
    for (int i = 0; i < run->elders_count; i++) {
        if (run->elders[i] == pid)
            return 0;
    }
    return pid != run->guard.pid && !is_rank(run, pid);
}

void lsi_strays_note_elders(lsi_run *run)
{
    int pid;
    FILE *list = open_children();
    while (list && run->elders_count < LSI_RUN_ELDERS && fscanf(list, "%d", &pid) == 1)
        run->elders[run->elders_count++] = pid;
    if (list)
        fclose(list);
}

void lsi_strays_collect(lsi_run *run)
{
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        if (is_rank(run, info.si_pid))
            return; /* its own event comes, and this function again after it */
        waitpid(info.si_pid, NULL, 0);
        if (info.si_pid == run->guard.pid)
            lsi_guard_is_gone(&run->guard);
    }
}

int lsi_strays_signal(const lsi_run *run, int number)
{
    int pid, count = 0;
    FILE *list = open_children();
    while (list && fscanf(list, "%d", &pid) == 1) {
        if (!is_stray(run, pid))
            continue;
        count++;
        kill(pid, number);
    }
    if (list)
        fclose(list);
    return count;
}

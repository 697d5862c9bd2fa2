/* Signals of the launcher: caught as events, handed on to the ranks.
 *
 * The ranks have process groups of their own, so what a terminal sends reaches us only.
 *
 * Invariants:
 * 1. A signal that was ignored when we started (nohup, a background job) stays ignored.
 * 2. SIGINT, SIGTERM, SIGHUP and SIGQUIT ask the ranks to end; a second SIGINT, or the end of
 *    the grace, kills them.
 * 3. A rank starts with the signal mask and the actions that we were started with.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "launch/run.h"

/* `timeout -s INT` and some shells send a signal both to us and to our group: one wish, not two. */
#define SAME_WISH_S 0.2

static const int to_catch[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1,
                               SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD};

ls_status lsi_signals_catch(lsi_run *run)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, normal = {.sa_handler = SIG_DFL}, old;
    sigemptyset(&run->caught);
    for (size_t i = 0; i < sizeof to_catch / sizeof *to_catch; i++) {
        int number = to_catch[i];
        if (number == SIGCHLD || number == SIGCONT ||
            (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN))
            sigaddset(&run->caught, number);
    }
    run->signal_fd = signalfd(-1, &run->caught, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run->signal_fd < 0)
        return lsi_fail_errno("cannot catch signals", "signalfd");
    sigprocmask(SIG_BLOCK, &run->caught, &run->old_mask);
    sigaction(SIGPIPE, &ignore, &run->old_pipe);
    sigaction(SIGCHLD, &normal, &run->old_child); /* ignored, it would collect our children */
    prctl(PR_GET_CHILD_SUBREAPER, &run->old_subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return lsi_run_watch(run->epoll, run->signal_fd, EPOLLIN, LSI_EVENT_SIGNAL, 0);
}

void lsi_signals_restore(lsi_run *run)
{
    if (run->signal_fd < 0)
        return;
    prctl(PR_SET_CHILD_SUBREAPER, run->old_subreaper);
    sigaction(SIGPIPE, &run->old_pipe, NULL);
    sigaction(SIGCHLD, &run->old_child, NULL);
    struct signalfd_siginfo info;
    while (read(run->signal_fd, &info, sizeof info) > 0)
        ; /* what came too late to be handed on must not kill us now */
    sigprocmask(SIG_SETMASK, &run->old_mask, NULL);
    close(run->signal_fd);
    run->signal_fd = -1;
}

void lsi_signals_reset_child(const lsi_run *run)
{
    sigaction(SIGPIPE, &run->old_pipe, NULL);
    sigaction(SIGCHLD, &run->old_child, NULL);
    sigprocmask(SIG_SETMASK, &run->old_mask, NULL);
}

static void ask_to_end(lsi_run *run, int number)
{
    double now = lsi_now();
    if (run->elastic) {
        lsi_elastic_ask(run, number);
        return;
    }
    if (run->alive == 0) {
        run->stop = number; /* what is left (strays, other hosts, output) is not waited for */
        run->kill_at = now;
        return;
    }
    if (number == SIGINT && run->interrupted > 0) {
        if (now - run->interrupted > SAME_WISH_S)
            run->kill_at = now;
        return;
    }
    if (number == SIGINT)
        run->interrupted = now;
    lsi_children_signal_groups(run, number);
    lsi_children_signal_groups(run, SIGCONT); /* or a stopped rank would not hear it */
    const double grace = run->config->grace_s > 0 ? run->config->grace_s : LSI_RUN_GRACE_S;
    if (run->kill_at > now + grace)
        run->kill_at = now + grace;
}

static void suspend(lsi_run *run)
{
    if (run->hosts->hosts > 1) {
        lsi_log(LSI_LOG_WARN, "a run over several hosts cannot be suspended on one of them");
        return;
    }
    lsi_children_signal_groups(run, SIGTSTP);
    raise(SIGSTOP); /* SIGCONT wakes us, and is then handed on like any other */
}

static void forward(lsi_run *run, int number)
{
    switch (number) {
    case SIGCHLD: lsi_strays_collect(run); break;
    case SIGCONT: lsi_children_signal_groups(run, SIGCONT); break;
    case SIGTSTP: suspend(run); break;
    case SIGUSR1:
    case SIGUSR2: lsi_children_signal(run, number); break;
    default: ask_to_end(run, number); break;
    }
}

void lsi_signals_ready(lsi_run *run)
{
    struct signalfd_siginfo info;
    while (read(run->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        forward(run, (int)info.ssi_signo);
}

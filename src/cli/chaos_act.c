/* How each thing is done to the run, and undone. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/chaos.h"

/* ---- undoing -------------------------------------------------------------------------------- */

static void plan_undo(lsi_chaos *c, const lsi_chaos_event *e, int pidfd)
{
    c->undo[c->n_undo++] = (lsi_chaos_undo){.kind = e->kind,
                                            .host = e->host,
                                            .pidfd = pidfd,
                                            .at = lsi_now() + e->seconds};
}

static void undo(lsi_chaos *c, const lsi_chaos_undo *u)
{
    switch (u->kind) {
    case LSI_CHAOS_STOP:
        syscall(SYS_pidfd_send_signal, u->pidfd, SIGCONT, NULL, 0);
        close(u->pidfd);
        break;
    case LSI_CHAOS_PAUSE: lsi_chaos_signal(c, u->host, SIGCONT); break;
    case LSI_CHAOS_CUT: lsi_chaos_net_cut(c, u->host, 0); break;
    case LSI_CHAOS_DELAY: lsi_chaos_net_slow(c, u->host, 0); break;
    default: break;
    }
    const lsi_chaos_event e = {.step = c->steps, .kind = u->kind, .host = u->host};
    lsi_chaos_print_event(c, &e, "over", "");
    c->moved_at = lsi_now();
    c->steps_acted = lsi_chaos_hits_hosts(u->kind) ? c->steps : c->steps_acted;
}

void lsi_chaos_undo_due(lsi_chaos *c, int all)
{
    for (int i = 0; i < c->n_undo;) {
        const lsi_chaos_undo u = c->undo[i];
        if (!all && lsi_now() < u.at) {
            i++;
            continue;
        }
        c->undo[i] = c->undo[--c->n_undo];
        undo(c, &u);
    }
}

int lsi_chaos_is_troubled(const lsi_chaos *c, int host)
{
    for (int i = 0; i < c->n_undo; i++)
        if (c->undo[i].host == host)
            return 1;
    return 0;
}

/* ---- doing ---------------------------------------------------------------------------------- */

static int signal_worker(lsi_chaos *c, const lsi_chaos_event *e, char *what)
{
    pid_t pids[LSI_CHAOS_WORKERS];
    const int n = lsi_chaos_workers(c->hosts[e->host].pid, pids, LSI_CHAOS_WORKERS);
    if (!n)
        return 0;
    const pid_t pid = pids[e->worker % n];
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return 0;
    const int number = e->kind == LSI_CHAOS_KILL ? SIGKILL : SIGSTOP;
    syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
    snprintf(what, LSI_CHAOS_WHY, "process %ld", (long)pid);
    if (e->kind == LSI_CHAOS_STOP)
        plan_undo(c, e, fd);
    else
        close(fd);
    return 1;
}

static int kill_host(lsi_chaos *c, const lsi_chaos_event *e, char *what)
{
    lsi_chaos_host *h = &c->hosts[e->host];
    h->killed = 1;
    if (e->kind == LSI_CHAOS_HOST)
        lsi_chaos_signal(c, e->host, SIGKILL);
    else
        kill(h->pid, SIGKILL);
    snprintf(what, LSI_CHAOS_WHY, "process %ld", (long)h->pid);
    return 1;
}

static int kill_store(lsi_chaos *c, const lsi_chaos_event *e, char *what)
{
    const pid_t pid = lsi_chaos_store(c->hosts[e->host].pid);
    snprintf(what, LSI_CHAOS_WHY, pid ? "process %ld" : "it has none now", (long)pid);
    if (!pid)
        return -1;
    kill(pid, SIGKILL);
    return 1;
}

static int pause_host(lsi_chaos *c, const lsi_chaos_event *e, char *what)
{
    kill(c->hosts[e->host].pid, SIGSTOP); /* so that no more are started */
    const int n = lsi_chaos_signal(c, e->host, SIGSTOP);
    snprintf(what, LSI_CHAOS_WHY, "%d processes", n);
    plan_undo(c, e, -1);
    return 1;
}

static int start_joiner(lsi_chaos *c, char *what)
{
    if (lsi_chaos_start_joiner(c) != LS_OK) {
        snprintf(what, LSI_CHAOS_WHY, "%s", ls_last_error());
        return -1;
    }
    snprintf(what, LSI_CHAOS_WHY, "at %s", c->hosts[c->n_hosts - 1].store);
    return 1;
}

static int act_on_net(lsi_chaos *c, const lsi_chaos_event *e, char *what)
{
    const int status = e->kind == LSI_CHAOS_CUT ? lsi_chaos_net_cut(c, e->host, 1)
                                                : lsi_chaos_net_slow(c, e->host, e->seconds);
    if (status) {
        snprintf(what, LSI_CHAOS_WHY, "iproute2 says %d", status);
        return -1;
    }
    if (e->kind == LSI_CHAOS_DELAY)
        snprintf(what, LSI_CHAOS_WHY, "by %d ms", lsi_chaos_delay_ms(e->seconds));
    plan_undo(c, e, -1);
    return 1;
}

/* Hosts of the latest generation that are here. */
static int count_members(const lsi_chaos *c)
{
    int n = 0;
    for (int i = 0; i < c->n_hosts; i++)
        n += !c->hosts[i].ended && !c->hosts[i].killed && !c->hosts[i].leaving &&
             c->hosts[i].generation == c->generation;
    return n;
}

static int is_possible(const lsi_chaos *c, const lsi_chaos_event *e, char *what)
{
    const lsi_chaos_host *h = &c->hosts[e->host];
    if (e->kind == LSI_CHAOS_JOIN)
        return e->host == c->n_hosts;
    if (e->host >= c->n_hosts || h->ended || h->killed || h->leaving)
        snprintf(what, LSI_CHAOS_WHY, "it is not here");
    else if (!lsi_chaos_is_covered(&c->o, e->kind, count_members(c), h->first))
        snprintf(what, LSI_CHAOS_WHY, "not covered now");
    else
        return 1;
    return 0;
}

int lsi_chaos_act(lsi_chaos *c, const lsi_chaos_event *e, char what[LSI_CHAOS_WHY])
{
    what[0] = 0;
    if (!is_possible(c, e, what))
        return -1;
    if (c->n_undo == LSI_CHAOS_UNDOS)
        return 0;
    switch (e->kind) {
    case LSI_CHAOS_KILL:
    case LSI_CHAOS_STOP: return signal_worker(c, e, what);
    case LSI_CHAOS_LAUNCHER:
    case LSI_CHAOS_HOST: return kill_host(c, e, what);
    case LSI_CHAOS_STORE: return kill_store(c, e, what);
    case LSI_CHAOS_PAUSE: return pause_host(c, e, what);
    case LSI_CHAOS_JOIN: return start_joiner(c, what);
    case LSI_CHAOS_LEAVE:
        c->hosts[e->host].leaving = 1;
        kill(c->hosts[e->host].pid, SIGTERM);
        return 1;
    case LSI_CHAOS_CUT:
    case LSI_CHAOS_DELAY: return act_on_net(c, e, what);
    case LSI_CHAOS_KINDS: break;
    }
    return -1;
}

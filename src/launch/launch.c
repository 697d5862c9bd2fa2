/* The launcher: one thread, one event loop, from the meeting of the hosts to the exit status.
 *
 * The ranks are not ours to understand: all we know of them is how they end (pidfd), what the
 * host block says they had reached by then, and what the other hosts tell (hosts.c).
 *
 * Invariants:
 * 1. A death is marked in the host block before anything else is done about it: the ranks of this
 *    host, who may be asleep on their doorbells, learn it first.
 * 2. When lsi_launch returns there is no process, descriptor or mapping of the run left.
 * 3. The first failure decides the exit status; what follows from it (ranks that give up, ranks
 *    that we end) does not.
 * 4. Once a rank has failed, no other that is stuck (stopped, say) keeps us waiting for ever.
 */
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "launch/run.h"
#include "launch/verdict.h"

#define EVENTS 64
#define KILL_AGAIN_S 0.5
#define LOOK_S 1.0    /* how often to look whether the ranks still work */
#define LISTED_MAX 16 /* ranks that a line names */

ls_status lsi_run_watch(int epoll, int fd, uint32_t events, lsi_event kind, uint32_t index)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | index};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return lsi_fail_errno("cannot watch a descriptor", "epoll_ctl");
    return LS_OK;
}

/* End the ranks, `delay` seconds from now at the latest. `because` is said of those who are left
 * then, if it is not NULL. */
static void begin_end(lsi_run *run, double delay, const char *because)
{
    double at = lsi_now() + delay;
    if (at >= run->terminate_at || !isinf(run->kill_at))
        return;
    run->terminate_at = at;
    run->because = because;
}

/* The first failure is for everyone to see, what follows for those who asked. */
static void say_failure(lsi_run *run, int rank, const char *cause, int is_exec)
{
    lsi_log_level level = run->said ? LSI_LOG_INFO : LSI_LOG_ERROR;
    if (is_exec)
        lsi_log(level, "%s", cause);
    else if (run->hosts->hosts > 1)
        lsi_log(level, "rank %d (host %d): %s", rank, lsi_hosts_host_of(run->hosts, rank), cause);
    else
        lsi_log(level, "rank %d: %s", rank, cause);
    run->said = 1;
}

/* A rank has failed, here or on another host: so has the run, whatever the others do. Those who do
 * not end by themselves are ended; where it is left to them, only once they do nothing any more. */
static void on_failure(lsi_run *run)
{
    if (run->config->on_death == LSI_ON_DEATH_END) /* the text says LSI_RUN_FAILED_S */
        begin_end(run, LSI_RUN_FAILED_S, "still running 5 s after the first failure");
    else if (run->worked_at == 0)
        run->worked_at = run->look_at = lsi_now();
}

static void on_death(lsi_run *run)
{
    run->died = 1;
    on_failure(run);
    if (run->config->on_death == LSI_ON_DEATH_END)
        begin_end(run, LSI_RUN_NOTICE_S, NULL);
}

/* Who has noticed a death and left in order may have been faster than the dying: then what failed
 * so far does not count. (Other hosts may have been told already: there the first word stands.) */
static void prefer_death(lsi_run *run)
{
    if (run->died || !isinf(run->kill_at) || lsi_now() > run->failed_at + LSI_RUN_NOTICE_S)
        return; /* not the first, or ended by us, or too late to be the cause */
    run->failed_status = 0;
    run->said = 0;
    if (run->hosts->hosts == 1)
        run->hosts->failure.rank = -1;
}

static void on_rank(lsi_run *run, int index)
{
    lsi_child *child = &run->children[index];
    lsi_host_block *block = run->segment.block;
    int rank = run->hosts->first_rank + index;
    lsi_verdict verdict;
    if (!lsi_child_has_ended(child, &child->wait_status))
        return;
    lsi_child_read_exec(run);
    lsi_verdict_judge(child->wait_status, atomic_load(&block->ranks[rank].state), child->exec_errno,
                      run->config->argv[0], &verdict);
    if (verdict.dead) {
        lsi_host_mark_dead(block, rank, verdict.cause);
        kill(-child->pid, SIGKILL); /* what it started is of no use without it */
    }
    if (verdict.failed) {
        if (verdict.dead)
            prefer_death(run);
        if (!run->failed_status) {
            run->failed_status = verdict.status;
            run->failed_at = lsi_now();
        }
        lsi_hosts_publish_failure(run->hosts, rank, verdict.status, verdict.cause);
        if (verdict.dead || !run->config->ranks_tell)
            say_failure(run, rank, verdict.cause, child->exec_errno != 0);
        on_failure(run);
    }
    if (verdict.dead) {
        lsi_hosts_publish_death(run->hosts, rank, verdict.cause);
        on_death(run);
        if (child->exec_errno)
            begin_end(run, 0, NULL); /* nothing to notice: nobody has begun */
    }
    lsi_child_collect(run, index);
    lsi_strays_collect(run);
}

static void on_remote_failure(void *arg, int rank, const char *cause)
{
    say_failure(arg, rank, cause, 0);
    on_failure(arg);
}

static void on_remote_death(void *arg, int rank, const char *cause)
{
    lsi_run *run = arg;
    lsi_host_mark_dead(run->segment.block, rank, cause);
    say_failure(run, rank, cause, 0);
    on_death(run);
}

static void on_listener_lost(void *arg)
{
    lsi_run *run = arg;
    lsi_log(LSI_LOG_ERROR, "lost the launcher of the run's first host, on %s",
            run->hosts->store_address);
    run->said = 1;
    if (!run->failed_status)
        run->orphaned = 1;
    on_death(run); /* also when its own ranks have ended well */
}

static void step_hosts(lsi_run *run)
{
    lsi_hosts_sink sink = {run, on_remote_failure, on_remote_death, on_listener_lost};
    lsi_hosts_step(run->hosts, &sink);
}

static void dispatch(lsi_run *run, uint64_t tag)
{
    uint32_t index = (uint32_t)tag;
    switch ((lsi_event)(tag >> 32)) {
    case LSI_EVENT_SIGNAL: lsi_signals_ready(run); break;
    case LSI_EVENT_RANK: on_rank(run, (int)index); break;
    case LSI_EVENT_EXEC: lsi_child_read_exec(run); break;
    case LSI_EVENT_HOSTS: break; /* every turn of the loop steps them */
    case LSI_EVENT_STREAM: lsi_output_stream_ready(run->output, index); break;
    case LSI_EVENT_SINK: lsi_output_sink_ready(run->output, index); break;
    case LSI_EVENT_GATE:
    case LSI_EVENT_STATUS: break; /* of elastic runs */
    }
}

/* After a failure that was left to the others: do they still do anything? */
static void look_for_work(lsi_run *run, double now)
{
    double idle_s = run->config->idle_s > 0 ? run->config->idle_s : LSI_RUN_IDLE_S;
    if (run->worked_at == 0 || now < run->look_at || run->alive == 0)
        return;
    uint64_t ticks = lsi_work_ticks(run);
    int overdue = now > run->look_at + LOOK_S; /* we were stopped ourselves, and they with us */
    run->look_at = now + LOOK_S;
    if (ticks != run->ticks || overdue) {
        run->ticks = ticks;
        run->worked_at = now;
    } else if (now > run->worked_at + idle_s) {
        begin_end(run, 0, "idle since another rank failed");
    }
}

/* Say which ranks are being ended, and why. */
static void say_ended(const lsi_run *run)
{
    char list[LISTED_MAX * 8 + 32];
    size_t used = 0;
    int count = 0;
    for (int i = 0; i < run->config->ranks; i++) {
        if (run->children[i].pid > 0 && count++ < LISTED_MAX)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "",
                                     run->hosts->first_rank + i);
    }
    if (count > LISTED_MAX)
        snprintf(list + used, sizeof list - used, " and %d more", count - LISTED_MAX);
    if (count > 0 && run->because)
        lsi_log(LSI_LOG_WARN, "ending rank%s %s: %s", count > 1 ? "s" : "", list, run->because);
}

void lsi_run_timers(lsi_run *run)
{
    double now = lsi_now();
    look_for_work(run, now);
    if (now >= run->terminate_at) {
        run->terminate_at = INFINITY;
        say_ended(run);
        lsi_children_signal_groups(run, SIGTERM);
        lsi_children_signal_groups(run, SIGCONT);
        if (run->kill_at > now + LSI_RUN_GRACE_S)
            run->kill_at = now + LSI_RUN_GRACE_S;
    }
    if (now >= run->kill_at) {
        run->kill_at = now + KILL_AGAIN_S; /* somebody may have forked meanwhile */
        run->terminate_at = INFINITY;
        lsi_children_signal_groups(run, SIGKILL);
        if (run->alive == 0)
            lsi_strays_signal(run, SIGKILL);
    }
}

/* The exit status as far as this host's ranks decide it. */
static int own_status(const lsi_run *run)
{
    for (int i = 0; i < run->config->ranks; i++) {
        if (run->children[i].wait_status != 0)
            return run->failed_status;
    }
    return 0; /* also when some exited with 0 without ls_finalize: all is well in the end */
}

int lsi_run_sweep(lsi_run *run)
{
    if (run->ending == 0) {
        run->ending = 1;
        run->terminate_at = INFINITY;
        run->kill_at = lsi_now() + LSI_RUN_GRACE_S;
    }
    if (lsi_strays_signal(run, SIGTERM) > 0)
        return 0;
    run->ending = 2;
    run->kill_at = INFINITY;
    lsi_output_finish(run->output);
    return 1;
}

/* Is the run over? Moves through what is left to do once the ranks have ended. */
static int is_over(lsi_run *run)
{
    if (run->alive > 0)
        return 0;
    if (run->ending < 2) {
        if (!lsi_run_sweep(run))
            return 0;
        lsi_hosts_publish_end(run->hosts, own_status(run));
    }
    return run->stop || (lsi_hosts_others_ended(run->hosts) && !lsi_output_pending(run->output));
}

int lsi_run_timeout_ms(const lsi_run *run)
{
    double now = lsi_now(), at = now + LSI_HOSTS_TICK_S;
    at = run->terminate_at < at ? run->terminate_at : at;
    at = run->kill_at < at ? run->kill_at : at;
    return at <= now ? 0 : (int)((at - now) * 1000) + 1;
}

static ls_status loop(lsi_run *run)
{
    struct epoll_event events[EVENTS];
    while (!is_over(run)) {
        int n = epoll_wait(run->epoll, events, EVENTS, lsi_run_timeout_ms(run));
        if (n < 0 && errno != EINTR)
            return lsi_fail_errno("cannot wait for events", "epoll_wait");
        for (int i = 0; i < n; i++)
            dispatch(run, events[i].data.u64);
        step_hosts(run);
        lsi_run_timers(run);
    }
    return LS_OK;
}

/* The exit status of the whole: the first host answers for all, the others for themselves. */
static int exit_status(const lsi_run *run)
{
    const lsi_hosts *hosts = run->hosts;
    int own = own_status(run), others = 0;
    if (run->stop && own == 0)
        return 128 + run->stop;
    if (hosts->host > 0)
        return run->orphaned ? 1 : own;
    for (int h = 1; h < hosts->hosts; h++)
        others |= hosts->lost[h] || hosts->end_status[h] != 0;
    if (own == 0 && !others)
        return 0;
    return hosts->failure.rank >= 0 ? hosts->failure.status : own ? own : 1;
}

/* Descriptors: a pidfd and two pipes a rank, a connection of each rank to the store. */
static void raise_file_limit(lsi_run *run)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &run->old_files);
    limit = run->old_files;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

ls_status lsi_run_open(lsi_run *run)
{
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (run->epoll < 0 || pipe2(run->exec_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return lsi_fail_errno("cannot start the launcher", "epoll or pipe");
    LSI_TRY(lsi_run_watch(run->epoll, run->exec_pipe[0], EPOLLIN, LSI_EVENT_EXEC, 0));
    lsi_strays_note_elders(run);
    LSI_TRY(lsi_signals_catch(run));
    LSI_TRY(lsi_guard_start(&run->guard));
    if (!run->config->prefix)
        return LS_OK;
    return lsi_output_create(run->epoll, run->config->ranks, run->hosts->first_rank, &run->output);
}

static ls_status open_loop(lsi_run *run)
{
    LSI_TRY(lsi_run_open(run));
    LSI_TRY(lsi_run_watch(run->epoll, lsi_hosts_fd(run->hosts), EPOLLIN, LSI_EVENT_HOSTS, 0));
    return lsi_host_create(run->hosts->ranks, run->hosts->first_rank, run->config->ranks,
                           &run->segment);
}

static ls_status start_ranks(lsi_run *run)
{
    for (int i = 0; i < run->config->ranks; i++)
        LSI_TRY(lsi_child_start(run, i));
    close(run->exec_pipe[1]); /* from now on its end means that all have passed their exec */
    run->exec_pipe[1] = -1;
    return LS_OK;
}

/* The start failed: end what was started, and tell the other hosts why they wait in vain. */
static void undo_start(lsi_run *run)
{
    char cause[LSI_HOST_CAUSE_MAX], reason[LSI_ERROR_MAX];
    snprintf(reason, sizeof reason, "%s", ls_last_error());
    snprintf(cause, sizeof cause, "not started: %.200s", reason);
    lsi_children_signal_groups(run, SIGKILL);
    for (int i = 0; i < run->config->ranks; i++) {
        int rank = run->hosts->first_rank + i;
        if (run->children[i].pid > 0)
            lsi_child_collect(run, i);
        lsi_hosts_publish_failure(run->hosts, rank, 1, cause);
        lsi_hosts_publish_death(run->hosts, rank, cause);
    }
    lsi_hosts_publish_end(run->hosts, 1);
    lsi_fail_text(LS_ERR_SYSTEM, reason);
}

void lsi_run_close(lsi_run *run)
{
    int files[] = {run->epoll, run->exec_pipe[0], run->exec_pipe[1]};
    lsi_output_destroy(run->output);
    lsi_hosts_close(run->hosts);
    lsi_host_unmap(&run->segment);
    lsi_guard_stop(&run->guard);
    lsi_signals_restore(run);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (files[i] >= 0)
            close(files[i]);
    }
    setrlimit(RLIMIT_NOFILE, &run->old_files);
    free(run);
}

ls_status lsi_run_new(const lsi_launch_config *config, lsi_run **out)
{
    lsi_run *run = calloc(1, sizeof *run);
    if (!run)
        return lsi_fail_errno("cannot start the launcher", "calloc");
    run->config = config;
    run->epoll = run->exec_pipe[0] = run->exec_pipe[1] = run->signal_fd = -1;
    run->terminate_at = run->kill_at = INFINITY;
    for (int i = 0; i < LSI_MAX_RANKS; i++)
        run->children[i].pidfd = run->children[i].gate = run->children[i].state = -1;
    raise_file_limit(run);
    *out = run;
    return LS_OK;
}

ls_status lsi_launch(const lsi_launch_config *config, int *out)
{
    lsi_run *run;
    LSI_TRY(lsi_run_new(config, &run));
    ls_status status = lsi_hosts_meet(config, &run->hosts);
    if (status != LS_OK)
        goto close_all;
    status = open_loop(run);
    if (status == LS_OK)
        status = start_ranks(run);
    if (status != LS_OK) {
        undo_start(run);
        goto close_all;
    }
    status = loop(run);
    if (status == LS_OK)
        *out = exit_status(run);
    else
        undo_start(run);

close_all:
    lsi_run_close(run);
    return status;
}

/* The launcher of an elastic run: workers die and are replaced, hosts come and go.
 *
 *     worker at the gate -> council: so many wait here -> a generation is decided -> segment, boot
 *     records, let them in -> a death, a wish -> all come back to the gate -> …
 *
 * Invariants:
 * 1. A death is marked in the host block of the generation before anything else is done about it.
 * 2. A new generation is entered only when none of our workers is inside the one before: whoever
 *    reads or finishes what was left there is alone with it.
 * 3. What workers gave us to keep (gate.h) stays open while the launcher lives.
 * 4. A worker that ends with an error of its own ends the run: it would fail again. One that was
 *    killed is replaced, at once at first, then with pauses, a limited number of times.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "launch/decide.h"
#include "launch/elastic.h"
#include "launch/status.h"

#define EVENTS 64
#define SAME_WISH_S 0.2 /* as in signals.c */
#define GOODBYE_S 2.0   /* for other hosts to hear of the end */
#define MEET_S 1.0      /* for workers of a generation to find each other */

/* Asked twice, or the grace is over: nothing is waited for any more. */
static void give_up(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    run->kill_at = lsi_now();
    if (e->ended)
        return;
    e->status = 128 + SIGKILL;
    if (!lsi_council_others(&e->council))
        lsi_council_end(&e->council, e->status, "interrupted");
    lsi_elastic_on_end(run);
}

void lsi_elastic_ask(lsi_run *run, int number)
{
    lsi_elastic *e = run->elastic;
    const double now = lsi_now();
    const double grace = run->config->grace_s > 0 ? run->config->grace_s : LSI_RUN_GRACE_S;
    if (run->interrupted > 0) {
        if (number == SIGINT && now - run->interrupted > SAME_WISH_S)
            give_up(run);
        return;
    }
    run->interrupted = now;
    run->kill_at = now + grace < run->kill_at ? now + grace : run->kill_at;
    lsi_children_signal(run, SIGCONT); /* or a stopped worker would not hear it */
    if (number == SIGTERM && lsi_council_others(&e->council)) {
        e->leaving = 1;
        lsi_council_ask_change(&e->council);
        lsi_elastic_set_wishes(run);
        lsi_elastic_tell(run);
        return;
    }
    lsi_council_ask_stop(&e->council);
}

/* Is the embedded store of this host the one in use? */
static int serves_store(const lsi_council *c)
{
    return c->own.pid > 0 && strstr(c->url, c->own.address);
}

/* The store goes with us, so the others begin the next generation first; and its workers have to
 * find each other there. */
static int may_go(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    if (lsi_council_others(&e->council) == 0)
        return 1;
    if (e->council.table.generation <= e->generation)
        return 0;
    if (e->go_at == 0)
        e->go_at = lsi_now() + (serves_store(&e->council) ? MEET_S : 0);
    return lsi_now() >= e->go_at;
}

/* We were asked to go, and our workers have come back: they may go home, unless they have still to
 * hand over what they have, or to save it. */
static void leave(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    if (!e->leaving || e->ended || lsi_elastic_count_inside(run))
        return;
    if (run->alive > 0 && !lsi_decide_has_heir(&e->council))
        return;
    for (int i = 0; i < run->config->ranks; i++)
        if (run->children[i].here)
            lsi_elastic_send_home(&run->children[i]);
    if (run->alive == 0 && may_go(run))
        e->ended = 1;
}

static void dispatch(lsi_run *run, uint64_t tag)
{
    const uint32_t index = (uint32_t)tag;
    switch ((lsi_event)(tag >> 32)) {
    case LSI_EVENT_SIGNAL: lsi_signals_ready(run); break;
    case LSI_EVENT_RANK: lsi_elastic_on_rank(run, (int)index); break;
    case LSI_EVENT_GATE: lsi_elastic_on_gate(run, (int)index); break;
    case LSI_EVENT_STATUS: lsi_elastic_on_status(run); break;
    case LSI_EVENT_EXEC: lsi_child_read_exec(run); break;
    case LSI_EVENT_HOSTS: break; /* every turn of the loop steps the council */
    case LSI_EVENT_STREAM: lsi_output_stream_ready(run->output, index); break;
    case LSI_EVENT_SINK: lsi_output_sink_ready(run->output, index); break;
    }
}

/* Our store is no stray, also when it is a new one. */
static void note_store(lsi_run *run)
{
    const pid_t pid = run->elastic->council.own.pid;
    for (int i = 0; i < run->elders_count; i++)
        if (run->elders[i] == pid)
            return;
    if (pid > 0 && run->elders_count < LSI_RUN_ELDERS)
        run->elders[run->elders_count++] = pid;
}

static void watch_council(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    const int fd = lsi_council_fd(&e->council);
    if (fd == e->watched)
        return;
    e->watched = fd; /* one that was closed has left the set by itself */
    if (fd >= 0 && lsi_run_watch(run->epoll, fd, EPOLLIN, LSI_EVENT_HOSTS, 0) != LS_OK)
        lsi_log(LSI_LOG_WARN, "%s", ls_last_error());
}

static ls_status restart_due(lsi_run *run)
{
    const double now = lsi_now();
    for (int i = 0; i < run->config->ranks; i++)
        if (run->children[i].pid == 0 && now >= run->children[i].start_at)
            LSI_TRY(lsi_elastic_start(run, i));
    return LS_OK;
}

static int timeout_ms(const lsi_run *run)
{
    int ms = lsi_run_timeout_ms(run);
    const double now = lsi_now();
    for (int i = 0; i < run->config->ranks; i++) {
        const double left = run->children[i].start_at - now;
        if (run->children[i].pid == 0 && left * 1000 < ms)
            ms = left > 0 ? (int)(left * 1000) + 1 : 0;
    }
    return ms;
}

static int is_over(lsi_run *run)
{
    if (run->alive > 0 || !run->elastic->ended)
        return 0;
    return (run->ending == 2 || lsi_run_sweep(run)) && !lsi_output_pending(run->output);
}

static ls_status loop(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    struct epoll_event events[EVENTS];
    const lsi_council_sink sink = lsi_elastic_sink(run);
    while (!is_over(run)) {
        lsi_council_step(&e->council, &sink);
        lsi_elastic_hand_out(run);
        note_store(run);
        watch_council(run);
        const int n = epoll_wait(run->epoll, events, EVENTS, timeout_ms(run));
        if (n < 0 && errno != EINTR)
            return lsi_fail_errno("cannot wait for events", "epoll_wait");
        for (int i = 0; i < n; i++)
            dispatch(run, events[i].data.u64);
        LSI_TRY(restart_due(run));
        lsi_elastic_tell(run);
        leave(run);
        lsi_watch_look(run, &e->watch, e->folder);
        if (lsi_now() >= run->kill_at)
            give_up(run);
        lsi_run_timers(run);
    }
    return LS_OK;
}

/* The embedded store goes with its host: let the others hear of the end. */
static void say_goodbye(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    lsi_council *c = &e->council;
    const lsi_council_sink sink = lsi_elastic_sink(run);
    const double until = lsi_now() + GOODBYE_S;
    while (serves_store(c) && c->ended && c->store && lsi_council_others(c) && lsi_now() < until) {
        usleep(5000);
        lsi_council_step(c, &sink);
    }
}

static ls_status run_all(lsi_run *run, int *out)
{
    lsi_elastic *e = run->elastic;
    snprintf(run->hosts->bind, sizeof run->hosts->bind, "%s", e->council.bind);
    setenv("LOCKSTEP_TRANSPORT", e->council.transport, 1); /* for the workers */
    LSI_TRY(lsi_run_open(run));
    for (int i = 0; i < run->config->ranks; i++) {
        run->children[i].span_at = lsi_now();
        LSI_TRY(lsi_elastic_start(run, i));
    }
    LSI_TRY(loop(run));
    say_goodbye(run);
    *out = e->status ? e->status : e->council.end_status;
    return LS_OK;
}

static void close_kept(lsi_run *run)
{
    lsi_status_close(run->elastic->status_fd, run->elastic->folder);
    for (int k = 0; k < LSI_KEPT_COUNT; k++)
        if (run->elastic->kept[k] >= 0)
            close(run->elastic->kept[k]);
    for (int i = 0; i < run->config->ranks; i++) {
        if (run->children[i].state >= 0)
            close(run->children[i].state);
        if (run->children[i].gate >= 0)
            close(run->children[i].gate);
    }
}

ls_status lsi_launch_elastic(const lsi_launch_config *config, int *out)
{
    lsi_run *run;
    LSI_TRY(lsi_run_new(config, &run));
    run->elastic = calloc(1, sizeof *run->elastic);
    run->hosts = calloc(1, sizeof *run->hosts);
    ls_status status = run->elastic && run->hosts
                           ? LS_OK
                           : lsi_fail(LS_ERR_NOMEM, NULL, "launcher", "out of memory");
    if (status == LS_OK) {
        for (int k = 0; k < LSI_KEPT_COUNT; k++)
            run->elastic->kept[k] = -1;
        run->elastic->watched = run->elastic->status_fd = -1;
        run->hosts->hosts = 1;
        for (int i = 0; i < config->ranks; i++)
            run->children[i].start_at = INFINITY;
        status = lsi_council_open(config, &run->elastic->council);
    }
    if (status == LS_OK) {
        status = run_all(run, out);
        if (status != LS_OK) {
            char text[LSI_ERROR_MAX];
            snprintf(text, sizeof text, "%s", ls_last_error());
            lsi_children_signal_groups(run, SIGKILL);
            for (int i = 0; i < config->ranks; i++)
                if (run->children[i].pid > 0)
                    lsi_child_collect(run, i);
            lsi_fail_text(status, text);
        }
        lsi_council_close(&run->elastic->council);
        close_kept(run);
    }
    free(run->elastic);
    run->elastic = NULL;
    lsi_run_close(run);
    return status;
}

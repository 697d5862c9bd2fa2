/* The disturbed run: when what is done, and what is waited for.
 *
 * 1. An event is due after so many steps. One that hits hosts waits until the one before is over:
 *    all hosts that are here train in one generation, and a step was done since.
 * 2. When nothing was seen to happen for the deadline, the run hangs, and who is waited for is
 *    named.
 * 3. Whoever was away when the work was done is not waited for.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/chaos.h"

#define TICK_MS 10
#define AWAY_S 3.0 /* for hosts that were away at the end, before they are killed */

extern volatile sig_atomic_t lsi_chaos_interrupted;

static int is_here(const lsi_chaos_host *h)
{
    return !h->ended && !h->killed && !h->leaving;
}

static int is_settled(const lsi_chaos *c)
{
    int here = 0, of = 0;
    if (c->n_undo || c->generation == 0 || c->steps <= c->steps_then || c->steps <= c->steps_acted)
        return 0;
    for (int i = 0; i < c->n_hosts; i++) {
        const lsi_chaos_host *h = &c->hosts[i];
        if (!is_here(h) && !h->ended)
            return 0; /* it is on its way out */
        if (!is_here(h))
            continue;
        if (h->generation != c->generation)
            return 0;
        here++;
        of = h->of_hosts;
    }
    return here == of;
}

static int is_time(const lsi_chaos *c, const lsi_chaos_event *e)
{
    if (c->steps < e->step || c->done_at > 0)
        return 0;
    if (lsi_chaos_hits_hosts(e->kind))
        return is_settled(c);
    return e->host >= c->n_hosts || !lsi_chaos_is_troubled(c, e->host);
}

static void act_if_time(lsi_chaos *c)
{
    const lsi_chaos_event *e = &c->plan.events[c->next];
    char what[LSI_CHAOS_WHY];
    if (c->next == c->plan.n || !is_time(c, e))
        return;
    const uint64_t steps = c->steps;
    const int done = lsi_chaos_act(c, e, what);
    if (!done)
        return;
    c->next++;
    c->moved_at = lsi_now();
    if (lsi_chaos_hits_hosts(e->kind) && done > 0)
        c->steps_acted = steps;
    *(done > 0 ? &c->done : &c->skipped) += 1;
    lsi_chaos_print_event(c, e, done > 0 ? "done" : "skipped", what);
}

/* The work is done: who was away then cannot know, and need not come back. */
static void excuse(lsi_chaos *c)
{
    static int said;
    for (int i = 0; c->n_undo && i < c->n_hosts; i++)
        if (lsi_chaos_is_troubled(c, i) && !c->hosts[i].ended)
            c->hosts[i].killed = 1;
    for (int i = 0; !said && i < c->n_hosts; i++)
        if (c->hosts[i].generation != c->generation && !c->hosts[i].ended)
            c->hosts[i].killed = 1; /* it was on its way in */
    said = 1;
    lsi_chaos_undo_due(c, 1);
    for (int i = 0; lsi_now() > c->done_at + AWAY_S && i < c->n_hosts; i++)
        if (c->hosts[i].killed && !c->hosts[i].ended)
            lsi_chaos_signal(c, i, SIGKILL);
}

static void name_waiting(lsi_chaos *c)
{
    char who[LSI_CHAOS_WHY] = "";
    size_t used = 0;
    for (int i = 0; i < c->n_hosts && used < sizeof who - 96; i++) {
        const lsi_chaos_host *h = &c->hosts[i];
        pid_t pids[LSI_CHAOS_WORKERS];
        if (h->ended)
            continue;
        used +=
            (size_t)snprintf(who + used, sizeof who - used,
                             "%shost %d (process %ld, generation %llu, %d workers)",
                             used ? ", " : "", i, (long)h->pid, (unsigned long long)h->generation,
                             lsi_chaos_workers(h->pid, pids, LSI_CHAOS_WORKERS));
    }
    lsi_chaos_fail(c,
                   "it hangs: nothing for %g s after step %llu of generation %llu; waiting for %s",
                   c->o.deadline_s, (unsigned long long)c->steps, (unsigned long long)c->generation,
                   who);
}

static void look(lsi_chaos *c)
{
    lsi_chaos_listen(c);
    const uint64_t steps = lsi_chaos_steps(c->out);
    if (steps > c->steps) {
        c->steps = steps;
        c->moved_at = lsi_now();
    }
}

static void watch(lsi_chaos *c)
{
    while (lsi_chaos_running(c) && !c->failed) {
        (void)poll(NULL, 0, TICK_MS);
        look(c);
        lsi_chaos_undo_due(c, 0);
        act_if_time(c);
        if (c->done_at > 0)
            excuse(c);
        if (lsi_chaos_interrupted)
            lsi_chaos_fail(c, "interrupted");
        else if (lsi_now() - c->moved_at > c->o.deadline_s)
            name_waiting(c);
    }
    look(c);
}

void lsi_chaos_run(lsi_chaos *c)
{
    c->began = c->moved_at = lsi_now();
    ls_status status = lsi_chaos_start_first(c);
    for (int i = 1; status == LS_OK && i < c->o.hosts; i++)
        status = lsi_chaos_start_joiner(c);
    if (status == LS_OK)
        watch(c);
    else
        lsi_chaos_fail(c, "%s", ls_last_error());
    lsi_chaos_undo_due(c, 1);
}

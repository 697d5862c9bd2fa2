/* Ends of workers in an elastic run: in order, by an error of their own, by death; who follows. */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "launch/elastic.h"
#include "launch/verdict.h"

#define SHORT_LIFE_S 10.0 /* a worker that lived for less gets a pause before the next */
#define PAUSE_S 0.1       /* the first; then twice as long each time, up to */
#define PAUSE_MOST_S 10.0

static void forget_child(lsi_child *child)
{
    if (child->gate >= 0)
        close(child->gate);
    child->gate = -1;
    child->here = child->done = child->leaving = 0;
    child->wants_state = child->wants_papers = 0;
    child->inside = child->since = 0;
    child->hungry = 0;
}

/* The next process in the place of one that died. */
static void plan_restart(lsi_run *run, int index)
{
    lsi_child *child = &run->children[index];
    const double now = lsi_now();
    const int most = run->config->restarts < 0   ? 0
                     : run->config->restarts > 0 ? run->config->restarts
                                                 : LSI_RESTARTS;
    if (run->elastic->ended || run->elastic->leaving)
        return;
    if (now - child->span_at > LSI_RESTART_SPAN_S) {
        child->span_at = now;
        child->restarts = 0;
    }
    if (child->restarts == most) {
        lsi_log(LSI_LOG_WARN, "worker %d of this host is not replaced: %d times in %.0f s", index,
                most, LSI_RESTART_SPAN_S);
        return;
    }
    double pause = 0;
    if (now - child->started_at < SHORT_LIFE_S && child->restarts > 0)
        pause = PAUSE_S * (double)(1u << (child->restarts < 8 ? child->restarts - 1 : 7));
    child->restarts++;
    child->start_at = now + (pause < PAUSE_MOST_S ? pause : PAUSE_MOST_S);
}

/* Nobody is left here, and nobody will be. */
static int is_deserted(const lsi_run *run)
{
    for (int i = 0; i < run->config->ranks; i++)
        if (run->children[i].pid > 0 || !isinf(run->children[i].start_at))
            return 0;
    return 1;
}

/* It ended with an error of its own: so has the run. But not where it never took part: the others
 * do not need it. */
static void on_error(lsi_run *run, const lsi_child *child, const lsi_verdict *v)
{
    lsi_elastic *e = run->elastic;
    if (child->exec_errno)
        lsi_log(LSI_LOG_ERROR, "%s", v->cause);
    if (!child->since && e->council.table.generation)
        return;
    if (!e->status)
        e->status = v->status;
    lsi_council_end(&e->council, v->status, v->cause);
    lsi_elastic_on_end(run);
}

/* First of all: those who wait for it learn that it will not come. */
static void mark_dead(lsi_run *run, const lsi_child *child, const char *cause)
{
    if (!child->inside)
        return;
    lsi_host_mark_dead(run->segment.block, child->rank, cause);
    lsi_council_tell_dead(&run->elastic->council, child->inside, child->rank, cause);
}

static void on_death(lsi_run *run, int index, const char *cause)
{
    const lsi_elastic *e = run->elastic;
    lsi_child *child = &run->children[index];
    kill(-child->pid, SIGKILL); /* what it started is of no use without it */
    if (!e->ended)
        lsi_log(LSI_LOG_WARN, "worker %d (process %ld): %s", index, (long)child->pid, cause);
    plan_restart(run, index);
}

/* After the last one: the run goes on elsewhere, or ends as its worker has ended. */
static void look_around(lsi_run *run, const lsi_verdict *v)
{
    lsi_elastic *e = run->elastic;
    if (e->ended || e->council.ended || e->leaving || !is_deserted(run))
        return;
    e->status = v->status;
    if (lsi_council_others(&e->council) == 0)
        lsi_council_end(&e->council, v->status, v->cause);
    lsi_log(LSI_LOG_ERROR, "no worker is left on this host");
    lsi_elastic_on_end(run);
}

void lsi_elastic_on_rank(lsi_run *run, int index)
{
    lsi_child *child = &run->children[index];
    lsi_verdict v;
    if (!lsi_child_has_ended(child, &child->wait_status))
        return;
    lsi_elastic_on_gate(run, index); /* its last words */
    lsi_child_read_exec(run);
    const int in_order = child->done || child->leaving;
    lsi_verdict_judge(child->wait_status, LSI_RANK_JOINED, child->exec_errno, run->config->argv[0],
                      &v);
    if (!in_order)
        mark_dead(run, child, v.cause);
    const int hopeless = WIFSIGNALED(child->wait_status) && WTERMSIG(child->wait_status) == SIGPIPE;
    if (hopeless || (WIFEXITED(child->wait_status) && WEXITSTATUS(child->wait_status) != 0))
        on_error(run, child, &v); /* nobody reads what it says: so with the next */
    else if (!in_order || WIFSIGNALED(child->wait_status))
        on_death(run, index, WIFSIGNALED(child->wait_status) ? v.cause : "ended too early");
    forget_child(child);
    lsi_child_collect(run, index);
    lsi_strays_collect(run);
    look_around(run, &v);
    lsi_elastic_tell(run);
}

ls_status lsi_elastic_start(lsi_run *run, int index)
{
    lsi_child *child = &run->children[index];
    child->start_at = INFINITY;
    child->started_at = lsi_now();
    child->exec_errno = child->wait_status = 0;
    return lsi_child_start(run, index);
}

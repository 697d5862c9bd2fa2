/* What the council tells an elastic run, and what it answers. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "launch/elastic.h"
#include "launch/status.h"

static void on_wishes(void *arg)
{
    lsi_elastic_set_wishes(arg);
}

static void on_remote_death(void *arg, uint64_t generation, int rank, const char *cause)
{
    lsi_run *run = arg;
    const lsi_elastic *e = run->elastic;
    if (generation == e->generation && run->segment.block && rank < (int)run->segment.block->size)
        lsi_host_mark_dead(run->segment.block, rank, cause);
}

static void on_lost_host(void *arg, uint64_t id, const char *cause)
{
    lsi_run *run = arg;
    const lsi_elastic *e = run->elastic;
    int rank = 0;
    for (int h = 0; h < e->table.hosts; h++) {
        for (int i = 0; i < e->table.size[h]; i++, rank++)
            if (e->table.id[h] == id && run->segment.block)
                lsi_host_mark_dead(run->segment.block, rank, cause);
        if (e->table.id[h] == id && lsi_elastic_count_inside(run))
            lsi_log(LSI_LOG_WARN, "host %llu is gone (%s); going on without it",
                    (unsigned long long)id, cause);
    }
}

void lsi_elastic_on_end(void *arg)
{
    lsi_run *run = arg;
    lsi_elastic *e = run->elastic;
    if (e->ended)
        return;
    e->ended = 1;
    e->ended_at = lsi_now();
    if (e->council.end_status && !e->status)
        lsi_log(LSI_LOG_ERROR, "the run has ended: %s", e->council.end_cause);
    for (int i = 0; i < run->config->ranks; i++) {
        run->children[i].start_at = INFINITY;
        if (run->children[i].here)
            lsi_elastic_send_home(&run->children[i]);
    }
    if (e->council.end_status)
        lsi_elastic_abandon(run, "the run has ended");
    run->terminate_at = lsi_now() + LSI_RUN_FAILED_S;
}

/* What our workers do, for whoever asked. */
static void report(const lsi_run *run, char text[LSI_WATCH_TEXT])
{
    const lsi_elastic *e = run->elastic;
    const lsi_council *c = &e->council;
    int workers = 0;
    for (int h = 0; h < e->table.hosts; h++)
        workers += e->table.size[h];
    const int used =
        snprintf(text, LSI_WATCH_TEXT,
                 "host %llu (%s): generation %llu of %d workers on %d hosts, step %llu\n",
                 (unsigned long long)c->me.id, c->me.address[0] ? c->me.address : c->bind,
                 (unsigned long long)e->generation, workers, e->table.hosts,
                 (unsigned long long)e->watch.step);
    lsi_watch_report(run, &e->watch, text + used, LSI_WATCH_TEXT - (size_t)used);
}

static void on_asked(void *arg)
{
    lsi_run *run = arg;
    char text[LSI_WATCH_TEXT];
    report(run, text);
    lsi_council_tell_phases(&run->elastic->council, text);
}

void lsi_elastic_on_status(lsi_run *run)
{
    char text[LSI_WATCH_TEXT];
    report(run, text);
    lsi_status_answer(run->elastic->status_fd, text);
}

lsi_council_sink lsi_elastic_sink(lsi_run *run)
{
    return (lsi_council_sink){.arg = run,
                              .entered = lsi_elastic_on_generation,
                              .wishes = on_wishes,
                              .dead = on_remote_death,
                              .lost = on_lost_host,
                              .ended = lsi_elastic_on_end,
                              .asked = on_asked,
                              .papers = lsi_elastic_on_papers};
}

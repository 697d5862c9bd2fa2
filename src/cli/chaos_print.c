/* What `lockstep chaos` tells: the schedule, what was done when, the verdict. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/chaos.h"

/* "worker 1 of host 0", "host 2 for 3.1 s". */
static void describe(const lsi_chaos_event *e, char text[96])
{
    char span[32] = "";
    if (e->seconds > 0)
        snprintf(span, sizeof span, " for %.2f s", e->seconds);
    if (e->kind == LSI_CHAOS_KILL || e->kind == LSI_CHAOS_STOP)
        snprintf(text, 96, "worker %d of host %d%s", e->worker, e->host, span);
    else
        snprintf(text, 96, "host %d%s", e->host, span);
}

static void print_object(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    if (text)
        puts(text);
    free(text);
    json_decref(object);
}

void lsi_chaos_print_plan(const lsi_chaos *c)
{
    char text[96];
    if (!c->o.json)
        printf("chaos: seed %llu, %d events in %llu steps, %d host%s with %d worker%s each\n",
               (unsigned long long)c->o.seed, c->plan.n, (unsigned long long)c->plan.steps,
               c->o.hosts, c->o.hosts == 1 ? "" : "s", c->o.workers, c->o.workers == 1 ? "" : "s");
    for (int i = 0; i < c->plan.n; i++) {
        const lsi_chaos_event *e = &c->plan.events[i];
        describe(e, text);
        if (c->o.json)
            print_object(json_pack("{s:I, s:s, s:i, s:i, s:f}", "plan", (json_int_t)e->step, "kind",
                                   lsi_chaos_names[e->kind], "host", e->host, "worker", e->worker,
                                   "seconds", e->seconds));
        else
            printf("  after step %5llu  %-8s  %s\n", (unsigned long long)e->step,
                   lsi_chaos_names[e->kind], text);
    }
    fflush(stdout);
}

void lsi_chaos_print_event(const lsi_chaos *c, const lsi_chaos_event *e, const char *how,
                           const char *what)
{
    char text[96];
    describe(e, text);
    if (strcmp(how, "over") == 0) /* of a stop it is not known which worker it was */
        snprintf(text, sizeof text, "host %d", e->host);
    const double at = lsi_now() - c->began;
    if (c->o.json)
        print_object(json_pack("{s:s, s:f, s:I, s:I, s:s, s:i, s:s}", "event", how, "seconds", at,
                               "step", (json_int_t)c->steps, "generation",
                               (json_int_t)c->generation, "kind", lsi_chaos_names[e->kind], "host",
                               e->host, "what", what));
    else
        printf("%7.2f s  step %5llu  generation %3llu  %s %s: %s%s%s%s\n", at,
               (unsigned long long)c->steps, (unsigned long long)c->generation,
               lsi_chaos_names[e->kind], text, how, *what ? " (" : "", what, *what ? ")" : "");
    fflush(stdout);
}

void lsi_chaos_print_line(const lsi_chaos *c, int host, const char *line)
{
    fprintf(stderr, "%7.2f s  [host %d] %s\n", lsi_now() - c->began, host, line);
}

void lsi_chaos_print_end(const lsi_chaos *c)
{
    const char *same = !c->sha256[0]                                        ? "none"
                       : !c->differs && strcmp(c->sha256, c->expected) == 0 ? "same"
                                                                            : "DIFFERENT";
    const double seconds = c->began > 0 ? lsi_now() - c->began : 0;
    if (c->failed)
        fprintf(stderr, "lockstep chaos: %s; the words of all hosts are in %s\n", c->why,
                c->folder);
    if (c->o.json) {
        print_object(json_pack("{s:I, s:i, s:i, s:i, s:I, s:s, s:I, s:s, s:s, s:f}", "seed",
                               (json_int_t)c->o.seed, "events", c->done, "planned", c->plan.n,
                               "skipped", c->skipped, "generations", (json_int_t)c->generation,
                               "sha256", same, "lost", (json_int_t)c->lost, "verdict",
                               c->failed ? "FAILED" : "ok", "why", c->why, "seconds", seconds));
    } else {
        if (c->done < c->plan.n)
            printf("%d of %d events were not done: the run was over, or they were not covered\n",
                   c->plan.n - c->done, c->plan.n);
        printf("chaos seed=%llu events=%d generations=%llu sha256=%s lost=%llu verdict=%s\n",
               (unsigned long long)c->o.seed, c->done, (unsigned long long)c->generation, same,
               (unsigned long long)c->lost, c->failed ? "FAILED" : "ok");
    }
    fflush(stdout);
}

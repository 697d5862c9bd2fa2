/* The schedule: what is done to the run after how many steps, from the seed alone.
 *
 * 1. Event i is drawn from block i of the stream of the seed: a longer schedule begins differently
 *    only in the steps.
 * 2. While it is drawn, who takes part is followed: hosts in the order of their numbers in the run.
 *    One that was away for a while comes back with the number that it had.
 * 3. Nothing is drawn that the run does not promise to survive: more than half of the hosts of the
 *    latest generation stay, or half of them with the first (launch/decide.c).
 */
#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "base/status.h"
#include "cli/chaos.h"

#define LAST 0.8 /* of the steps: what comes later might find nobody left */
#define TRIES 64 /* to draw a kind that can be done now */
#define LEAST_S 0.05

const char *const lsi_chaos_names[LSI_CHAOS_KINDS] = {"kill",  "stop", "launcher", "host",
                                                      "pause", "join", "leave",    "cut",
                                                      "delay", "store"};

#define OF_NET (1u << LSI_CHAOS_CUT | 1u << LSI_CHAOS_DELAY)
#define ALL ((1u << LSI_CHAOS_KINDS) - 1)

static int find_kind(const char *name, size_t length)
{
    for (int k = 0; k < LSI_CHAOS_KINDS; k++)
        if (strlen(lsi_chaos_names[k]) == length && !strncmp(name, lsi_chaos_names[k], length))
            return k;
    return -1;
}

ls_status lsi_chaos_parse_kinds(const char *text, int netns, unsigned *out)
{
    unsigned kinds = 0;
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, ",");
        const int kind = find_kind(at, length);
        if (length == 3 && !strncmp(at, "all", 3))
            kinds |= netns ? ALL : ALL & ~OF_NET;
        else if (kind < 0)
            return lsi_fail(
                LS_ERR_CONFIG,
                "kill, stop, store, launcher, host, pause, join, leave, cut, delay or all",
                "--kinds", "'%.*s' is none", (int)length, at);
        else
            kinds |= 1u << kind;
        at += length + (at[length] == ',');
    }
    if (!kinds)
        return lsi_fail(LS_ERR_CONFIG, NULL, "--kinds", "none is named");
    if (kinds & OF_NET && !netns)
        return lsi_fail(LS_ERR_CONFIG, "add --netns", "--kinds", "cut and delay need namespaces");
    *out = kinds;
    return LS_OK;
}

int lsi_chaos_hits_hosts(lsi_chaos_kind kind)
{
    return kind != LSI_CHAOS_KILL && kind != LSI_CHAOS_STOP && kind != LSI_CHAOS_DELAY;
}

int lsi_chaos_is_covered(const lsi_chaos_options *o, lsi_chaos_kind kind, int hosts, int is_first)
{
    switch (kind) {
    case LSI_CHAOS_LAUNCHER:
    case LSI_CHAOS_HOST: return hosts > 2 || (hosts == 2 && (!is_first || o->store));
    case LSI_CHAOS_LEAVE:
    case LSI_CHAOS_CUT:
    case LSI_CHAOS_DELAY: return hosts > 1;
    default: return 1;
    }
}

/* Who takes part while the schedule is drawn. */
typedef struct crowd {
    int n, ever; /* hosts here, and that there have been */
    int host[LSI_CHAOS_HOSTS];
} crowd;

static void take_out(crowd *w, int place)
{
    w->n--;
    memmove(w->host + place, w->host + place + 1, (size_t)(w->n - place) * sizeof *w->host);
}

static int can_be(const lsi_chaos_options *o, const crowd *w, lsi_chaos_kind kind, int place)
{
    if (!(o->kinds >> kind & 1))
        return 0;
    if (kind == LSI_CHAOS_JOIN)
        return w->ever < LSI_CHAOS_HOSTS && (w->n + 1) * o->workers <= o->shards;
    return lsi_chaos_is_covered(o, kind, w->n, place == 0);
}

static void follow(crowd *w, const lsi_chaos_event *e, int place)
{
    switch (e->kind) {
    case LSI_CHAOS_LAUNCHER:
    case LSI_CHAOS_HOST:
    case LSI_CHAOS_LEAVE: take_out(w, place); break;
    case LSI_CHAOS_JOIN: w->host[w->n++] = w->ever++; break;
    default: break;
    }
}

/* Clearly shorter than what makes the others give up, or clearly longer. */
static double duration(const lsi_chaos_options *o, lsi_chaos_kind kind, uint32_t word)
{
    const double u = (double)lsi_philox_uniform(word << 1);
    const int is_long = word >> 31 != 0;
    switch (kind) {
    case LSI_CHAOS_STOP:
    case LSI_CHAOS_PAUSE:
    case LSI_CHAOS_CUT: return o->evict_s * (is_long ? 1.5 + u : LEAST_S + 0.35 * u);
    case LSI_CHAOS_DELAY: return 0.3 + 1.2 * u;
    default: return 0;
    }
}

static void draw_one(const lsi_chaos_options *o, crowd *w, uint32_t number, lsi_chaos_event *e)
{
    const uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
    uint32_t words[4];
    int place = 0;
    for (uint32_t t = 0; t < TRIES; t++) {
        const uint32_t counter[4] = {number, t, 0, 0};
        lsi_philox(counter, key, words);
        e->kind = (lsi_chaos_kind)(words[0] % LSI_CHAOS_KINDS);
        place = (int)(words[1] % (uint32_t)w->n);
        if (can_be(o, w, e->kind, place))
            break;
        e->kind = LSI_CHAOS_KINDS;
    }
    e->host = e->kind == LSI_CHAOS_JOIN ? w->ever : w->host[place];
    e->worker = (int)(words[2] % (uint32_t)o->workers);
    e->seconds = duration(o, e->kind, words[3]);
    follow(w, e, place);
}

/* Workers may die until the very end; hosts that come then find nobody. */
static double last_of(const lsi_chaos_options *o)
{
    return o->kinds == 1u << LSI_CHAOS_KILL ? 1 : LAST;
}

void lsi_chaos_draw(const lsi_chaos_options *o, uint64_t steps, lsi_chaos_plan *plan)
{
    crowd w = {.n = o->hosts, .ever = o->hosts};
    const uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
    for (int h = 0; h < o->hosts; h++)
        w.host[h] = h;
    *plan = (lsi_chaos_plan){.steps = steps};
    for (int i = 0; i < o->events; i++) {
        lsi_chaos_event *e = &plan->events[plan->n];
        const uint32_t counter[4] = {(uint32_t)i, 0, 1, 0};
        uint32_t words[4];
        lsi_philox(counter, key, words);
        const double at = (i + (double)lsi_philox_uniform(words[0])) / o->events;
        draw_one(o, &w, (uint32_t)i, e);
        e->step = 1 + (uint64_t)(last_of(o) * at * (double)steps);
        plan->n += e->kind != LSI_CHAOS_KINDS; /* nothing of what was asked for is covered now */
    }
    plan->hosts = w.ever;
}

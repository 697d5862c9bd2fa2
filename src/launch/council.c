/* The council's store: what is said there, and what is heard. */
#include "launch/council.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/status.h"
#include "launch/decide.h"
#include "launch/seat.h"

#define WORD_FIRST_S 2.0
#define WORD_EVERY_S 5.0
#define GAP LSI_MAX_HOSTS /* numbers that hosts have got of whom we have not heard */

static double lease_s(const lsi_council *c)
{
    return c->config->evict_s > 0 ? c->config->evict_s : LSI_EVICT_S;
}

/* How a call has ended. A store that is late for a while is not lost. */
static void note(lsi_council *c, ls_status status)
{
    const double now = lsi_now();
    if (status != LS_ERR_TIMEOUT)
        c->late_since = 0;
    else if (c->late_since == 0)
        c->late_since = now - LSI_COUNCIL_CALL_S;
    if (status == LS_OK || !c->store || ls_status_get_reach(status) != LS_STATUS_PEER ||
        (status == LS_ERR_TIMEOUT && now - c->late_since < lease_s(c) / 2))
        return;
    lsi_log(LSI_LOG_INFO, "store: %s", ls_last_error());
    lsi_store_close(c->store);
    c->store = NULL;
}

static void put(lsi_council *c, const char *key, const char *text, uint64_t lease)
{
    if (c->store)
        note(c, c->store->ops->put(c->store, key, text, strlen(text), lease, NULL));
}

static void seat_text(const lsi_council *c, char key[32], char text[LSI_SEAT_TEXT])
{
    snprintf(key, 32, "host/%llu", (unsigned long long)c->me.id);
    lsi_seat_print(&c->me, text);
}

static void say_seat(lsi_council *c)
{
    char key[32], text[LSI_SEAT_TEXT];
    seat_text(c, key, text);
    put(c, key, text, c->lease);
}

void lsi_council_tell(lsi_council *c, const lsi_seat *seat)
{
    char before[LSI_SEAT_TEXT], now[LSI_SEAT_TEXT];
    lsi_seat_print(&c->me, before);
    lsi_seat_print(seat, now);
    if (strcmp(before, now) == 0)
        return;
    c->me = *seat;
    say_seat(c);
}

void lsi_council_tell_dead(lsi_council *c, uint64_t generation, int rank, const char *cause)
{
    char key[64];
    snprintf(key, sizeof key, "dead/%llu/%d", (unsigned long long)generation, rank);
    if (lsi_council_others(c))
        put(c, key, cause, 0);
}

void lsi_council_tell_phases(lsi_council *c, const char *text)
{
    char key[32];
    snprintf(key, sizeof key, "phase/%llu", (unsigned long long)c->me.id);
    put(c, key, text, c->lease);
}

void lsi_council_ask_change(lsi_council *c)
{
    char key[32];
    snprintf(key, sizeof key, "change/%llu", (unsigned long long)c->table.generation);
    put(c, key, "1", 0);
}

void lsi_council_limit(lsi_council *c)
{
    char text[48];
    snprintf(text, sizeof text, "%d %d %s", c->least, c->most, c->transport);
    put(c, "limits", text, 0);
}

void lsi_council_ask_stop(lsi_council *c)
{
    put(c, "stop", "1", 0);
}

static void say_papers(lsi_council *c)
{
    if (c->store && c->papers)
        note(c, c->store->ops->put(c->store, "papers", c->papers, c->papers_bytes, 0, NULL));
}

/* Returns 1 if they are new. */
static int take_papers(lsi_council *c, const char *text, size_t bytes)
{
    if (c->papers || bytes > LSI_STORE_VALUE_MAX || !(c->papers = malloc(bytes + 1)))
        return 0;
    memcpy(c->papers, text, bytes);
    c->papers_bytes = bytes;
    return 1;
}

void lsi_council_tell_papers(lsi_council *c, const char *text, size_t bytes)
{
    if (take_papers(c, text, bytes))
        say_papers(c);
}

void lsi_council_end(lsi_council *c, int status, const char *cause)
{
    char text[LSI_HOST_CAUSE_MAX + 16];
    snprintf(text, sizeof text, "%d %s", status, cause);
    if (c->ended)
        return;
    put(c, "end", text, 0);
    c->ended = 1;
    c->end_status = status;
    snprintf(c->end_cause, sizeof c->end_cause, "%s", cause);
}

int lsi_council_place(const lsi_council *c, const lsi_table *table, int *first, int *ranks)
{
    int place = -1;
    *ranks = 0;
    for (int h = 0; h < table->hosts; h++) {
        if (table->id[h] == c->me.id) {
            place = h;
            *first = *ranks;
        }
        *ranks += table->size[h];
    }
    return place;
}

int lsi_council_others(const lsi_council *c)
{
    int n = 0;
    for (int i = 0; i < c->n_seats; i++)
        n += c->seats[i].id != c->me.id;
    return n;
}

/* ---- coming --------------------------------------------------------------------------------- */

/* What "next" says, and its version: 0 when there is none yet. */
static ls_status read_next(lsi_council *c, uint64_t *next, uint64_t *version)
{
    char text[24];
    const uint8_t *value;
    size_t bytes;
    const ls_status status = c->store->ops->get(c->store, "next", &value, &bytes, version);
    *next = 1;
    if (status == LS_ERR_NOT_FOUND) {
        *version = 0;
        return LS_OK;
    }
    if (status != LS_OK)
        return status;
    snprintf(text, sizeof text, "%.*s", (int)bytes, (const char *)value);
    *next = strtoull(text, NULL, 10);
    return LS_OK;
}

static ls_status write_next(lsi_council *c, uint64_t next, uint64_t version)
{
    char text[24];
    const int n = snprintf(text, sizeof text, "%llu", (unsigned long long)next);
    return c->store->ops->compare_and_put(c->store, "next", version, text, (size_t)n, 0, NULL);
}

/* A number of our own. The first host begins to count; whoever comes earlier is not first, and
 * where nobody counts there is no run yet, or it meets elsewhere. */
static ls_status take_number(lsi_council *c)
{
    for (;;) {
        uint64_t next, version;
        LSI_TRY(read_next(c, &next, &version));
        if (version == 0 && (c->config->join || c->table.generation))
            return lsi_fail(LS_ERR_NOT_FOUND, NULL, "cannot join", "no run meets here yet");
        const ls_status status = write_next(c, next + 1, version);
        if (status == LS_OK)
            c->me.id = next;
        if (status != LS_ERR_CONFLICT)
            return status;
    }
}

/* Write a table, unless there is one of its number: somebody else was quicker, we shall hear it. */
static void put_table(lsi_council *c, const lsi_table *table)
{
    char key[32], text[LSI_MAX_HOSTS * 24];
    snprintf(key, sizeof key, "gen/%llu", (unsigned long long)table->generation);
    const size_t bytes = lsi_table_print(table, text);
    const ls_status status = c->store->ops->compare_and_put(c->store, key, 0, text, bytes, 0, NULL);
    note(c, status == LS_ERR_CONFLICT ? LS_OK : status);
}

void lsi_council_furnish(lsi_council *c)
{
    uint64_t last = c->me.id;
    ls_status status = LS_OK;
    lsi_council_limit(c);
    say_papers(c);
    if (c->stop)
        lsi_council_ask_stop(c);
    if (c->store && c->table.generation)
        put_table(c, &c->table);
    for (int i = 0; i < c->n_known; i++)
        last = c->known[i].id > last ? c->known[i].id : last;
    do { /* at last: from now on others may come */
        uint64_t next, version;
        status = c->store ? read_next(c, &next, &version) : LS_OK;
        if (c->store && status == LS_OK && next <= last)
            status = write_next(c, last + 1 + GAP, version);
    } while (status == LS_ERR_CONFLICT);
    note(c, status);
}

/* Take a seat at the store. */
static ls_status sit_down(lsi_council *c)
{
    char key[32], text[LSI_SEAT_TEXT];
    c->keep_at = lsi_now() + lease_s(c) / 3;
    LSI_TRY(c->store->ops->lease(c->store, lease_s(c), &c->lease));
    if (!c->me.id)
        LSI_TRY(take_number(c));
    seat_text(c, key, text);
    return c->store->ops->put(c->store, key, text, strlen(text), c->lease, &c->seat_version);
}

/* Our own seat is the last that we hear of those that were there when we came: until then we do not
 * know who is first. */
ls_status lsi_council_connect(lsi_council *c, const char *url, double timeout_s)
{
    lsi_store *store;
    LSI_TRY(lsi_store_open(url, &c->key, timeout_s, &store));
    lsi_store_close(c->store);
    c->store = store;
    c->n_seats = c->seated = 0;
    ls_status status = c->store->ops->watch(c->store, "");
    if (status == LS_OK)
        status = sit_down(c);
    if (status == LS_OK) {
        snprintf(c->url, sizeof c->url, "%s", url);
        return LS_OK;
    }
    lsi_store_close(c->store);
    c->store = NULL;
    return status;
}

void lsi_council_close(lsi_council *c)
{
    lsi_store_close(c->store); /* and with the connection the lease */
    c->store = NULL;
    lsi_store_process_stop(&c->own);
    free(c->papers);
    c->papers = NULL;
    explicit_bzero(&c->key, sizeof c->key);
}

/* ---- hearing -------------------------------------------------------------------------------- */

int lsi_council_fd(const lsi_council *c)
{
    return c->store ? c->store->ops->fd(c->store) : -1;
}

static void hear_host(lsi_council *c, const lsi_store_event *e, const char *text,
                      const lsi_council_sink *sink)
{
    const uint64_t id = strtoull(e->key + strlen("host/"), NULL, 10);
    lsi_seat seat;
    if (!e->deleted) {
        if (lsi_seat_parse(id, text, &seat))
            lsi_seats_put(c, &seat);
        c->seated |= id == c->me.id && e->version >= c->seat_version;
        return;
    }
    if (lsi_seats_drop(c, id) && id != c->me.id && !c->ended)
        sink->lost(sink->arg, id, "its launcher is gone");
    if (id == c->me.id && !c->ended && e->version >= c->seat_version) { /* asleep for too long */
        lsi_log(LSI_LOG_WARN, "given up by the other hosts; coming back");
        c->lease = 0;
    }
}

static void hear_generation(lsi_council *c, const lsi_store_event *e, const char *text,
                            const lsi_council_sink *sink)
{
    lsi_table table;
    if (!lsi_table_parse(strtoull(e->key + strlen("gen/"), NULL, 10), text, &table) ||
        table.generation <= c->table.generation)
        return;
    c->table = table;
    c->since = 0;
    sink->entered(sink->arg, &c->table);
}

static void hear_death(const lsi_store_event *e, const char *text, const lsi_council_sink *sink)
{
    char *rest;
    const uint64_t generation = strtoull(e->key + strlen("dead/"), &rest, 10);
    const long rank = *rest == '/' ? strtol(rest + 1, NULL, 10) : -1;
    if (rank >= 0 && rank < LSI_MAX_RANKS)
        sink->dead(sink->arg, generation, (int)rank, text);
}

static void hear_end(lsi_council *c, const char *text, const lsi_council_sink *sink)
{
    char *rest;
    const long status = strtol(text, &rest, 10);
    if (!c->ended) {
        c->ended = 1;
        c->end_status = status >= 0 && status < 256 ? (int)status : 1;
        snprintf(c->end_cause, sizeof c->end_cause, "%s", *rest == ' ' ? rest + 1 : rest);
    }
    sink->ended(sink->arg);
}

static int begins(const char *key, const char *with)
{
    return strncmp(key, with, strlen(with)) == 0;
}

static void hear(lsi_council *c, const lsi_store_event *e, const lsi_council_sink *sink)
{
    char text[LSI_SEAT_TEXT + LSI_MAX_HOSTS * 24];
    snprintf(text, sizeof text, "%.*s", e->deleted ? 0 : (int)e->bytes, (const char *)e->value);
    if (begins(e->key, "host/")) {
        hear_host(c, e, text, sink);
    } else if (e->deleted) {
        return;
    } else if (begins(e->key, "gen/")) {
        hear_generation(c, e, text, sink);
    } else if (begins(e->key, "change/")) {
        const uint64_t generation = strtoull(e->key + strlen("change/"), NULL, 10);
        c->change = generation > c->change ? generation : c->change;
        sink->wishes(sink->arg);
    } else if (begins(e->key, "dead/")) {
        hear_death(e, text, sink);
    } else if (strcmp(e->key, "ask") == 0) {
        sink->asked(sink->arg);
    } else if (strcmp(e->key, "papers") == 0) {
        if (take_papers(c, (const char *)e->value, e->bytes))
            sink->papers(sink->arg, c->papers, c->papers_bytes);
    } else if (strcmp(e->key, "limits") == 0) {
        lsi_limits_parse(c, text);
    } else if (strcmp(e->key, "stop") == 0) {
        c->stop = 1;
        sink->wishes(sink->arg);
    } else if (strcmp(e->key, "end") == 0) {
        hear_end(c, text, sink);
    }
}

/* ---- deciding ------------------------------------------------------------------------------- */

static int is_first(const lsi_council *c)
{
    return c->seated && c->n_seats > 0 && c->seats[0].id == c->me.id;
}

static void wait_for(lsi_council *c, double waited, const char *why)
{
    const double now = lsi_now();
    if (waited < WORD_FIRST_S || now < c->next_word)
        return;
    c->next_word = now + WORD_EVERY_S;
    lsi_log(LSI_LOG_WARN, "waiting for %s", why);
}

static void decide(lsi_council *c, const lsi_council_sink *sink)
{
    const double now = lsi_now();
    char why[LSI_HOST_CAUSE_MAX] = "";
    lsi_table table;
    if (c->ended || !is_first(c))
        return;
    if (c->since == 0)
        c->since = now;
    const double waited = now - c->since;
    switch (lsi_decide(c, waited, &table, why)) {
    case LSI_DECIDE_NOTHING: c->since = 0; break;
    case LSI_DECIDE_CHANGE: lsi_council_ask_change(c); break;
    case LSI_DECIDE_STOP: lsi_council_ask_stop(c); break;
    case LSI_DECIDE_FORM: put_table(c, &table); break;
    case LSI_DECIDE_LOOK:
        wait_for(c, waited, why);
        lsi_council_look(c);
        break;
    case LSI_DECIDE_WAIT:
        wait_for(c, waited, why);
        if (!c->table.generation && c->config->wait_s > 0 && waited > c->config->wait_s) {
            lsi_council_end(c, 1, why);
            sink->ended(sink->arg);
        }
        break;
    case LSI_DECIDE_END:
        lsi_council_end(c, 1, why);
        sink->ended(sink->arg);
        break;
    }
}

/* The lease, in time; our seat again if it was lost meanwhile, with the number that we have: the
 * generation that we are of counts on us, should all have been given up. */
static void keep_seat(lsi_council *c)
{
    const double now = lsi_now();
    if (now < c->keep_at || !c->store)
        return;
    const ls_status status = c->lease ? c->store->ops->keep(c->store, c->lease) : LS_ERR_NOT_FOUND;
    if (status == LS_ERR_NOT_FOUND) {
        note(c, sit_down(c));
        return;
    }
    if (status == LS_OK) /* else at once again */
        c->keep_at = lsi_now() + lease_s(c) / 3;
    note(c, status);
}

/* Hosts of this generation that have not followed us to another store count as lost. */
static void miss(lsi_council *c, const lsi_council_sink *sink)
{
    if (c->moved_at == 0 || lsi_now() < c->moved_at + LSI_COUNCIL_LATE_S)
        return;
    c->moved_at = 0;
    for (int h = 0; h < c->table.hosts; h++) {
        int here = 0;
        for (int i = 0; i < c->n_seats; i++)
            here |= c->seats[i].id == c->table.id[h];
        if (!here)
            sink->lost(sink->arg, c->table.id[h], "it was lost with the store");
    }
}

/* A store that is not ours, and is gone. While our workers are at work nothing is needed of it. */
static void miss_store(lsi_council *c, const lsi_council_sink *sink)
{
    const double now = lsi_now();
    const double most_s = c->config->short_s > 0 ? c->config->short_s : LSI_LAUNCH_SHORT_S;
    if (c->store || c->lost_at == 0 || c->me.busy)
        c->lost_at = c->store ? 0 : now;
    if (!c->config->store || c->lost_at == 0 || c->ended)
        return;
    wait_for(c, now - c->lost_at, c->config->store);
    if (now - c->lost_at > most_s) {
        lsi_council_end(c, 1, "the store does not answer");
        sink->ended(sink->arg);
    }
}

/* Returns how many there were. */
static int hear_all(lsi_council *c, const lsi_council_sink *sink)
{
    lsi_store_event event;
    ls_status status = LS_IN_PROGRESS;
    int n = 0;
    while (c->store && (status = c->store->ops->next(c->store, 0, &event)) == LS_OK) {
        hear(c, &event, sink);
        n++;
    }
    if (status != LS_IN_PROGRESS)
        note(c, status);
    return n;
}

void lsi_council_step(lsi_council *c, const lsi_council_sink *sink)
{
    if (!c->store)
        lsi_council_move(c);
    miss_store(c, sink);
    do { /* what we decide we hear at once, and the descriptor would not tell */
        (void)hear_all(c, sink);
        if (c->lease == 0)
            c->keep_at = 0;
        keep_seat(c);
        miss(c, sink);
        if (c->store)
            decide(c, sink);
    } while (hear_all(c, sink));
}

/* Asking an etcd that has several endpoints, some of which may be dead, stopped, or not etcds.
 *
 *     request -> endpoint `at` -> answer;  unreached, lost, silent -> the next endpoint, in rounds
 *
 * Invariants 1 and 3 of etcd.c are kept here. */
#include "store/etcd.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"

#define ANSWER_MAX ((size_t)32 << 20) /* 16 values of 1 MiB in base64, and what is around them */

void lsi_etcd_name(const lsi_etcd *c, const char *key, char name[LSI_ETCD_NAME_MAX + 1])
{
    snprintf(name, LSI_ETCD_NAME_MAX + 1, "%s%s", c->prefix, key);
}

ls_status lsi_etcd_break(lsi_etcd *c, ls_status status)
{
    if (ls_status_get_reach(status) == LS_STATUS_PEER)
        c->broken = status;
    return status;
}

ls_status lsi_etcd_fail_broken(const lsi_etcd *c)
{
    return lsi_fail(c->broken, "open the store again", "store", "%s was given up before", c->who);
}

ls_status lsi_etcd_begin(lsi_etcd *c)
{
    lsi_buffer_drop(&c->events, c->shown);
    c->shown = 0;
    lsi_etcd_answer_free(&c->answer);
    lsi_buffer_drop(&c->request, c->request.used);
    return c->broken == LS_OK ? LS_OK : lsi_etcd_fail_broken(c);
}

ls_status lsi_etcd_fail_transfer(const lsi_http_transfer *t, const char *address)
{
    switch (t->state) {
    case LSI_HTTP_UNREACHED:
    case LSI_HTTP_LOST:
        return lsi_fail(LS_ERR_PEER_DEAD, "is etcd running, and is this its address?", "store",
                        "etcd at %s: %s", address, t->error);
    case LSI_HTTP_NOMEM:
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for the answer of etcd at %s",
                        address);
    case LSI_HTTP_TOO_LARGE:
        return lsi_fail(LS_ERR_PROTOCOL, "is that an etcd?", "store",
                        "etcd at %s: the answer is larger than any of etcd's", address);
    case LSI_HTTP_NONSENSE:
        return lsi_fail(LS_ERR_PROTOCOL, "is that an etcd?", "store", "etcd at %s: %s", address,
                        t->error);
    default: break;
    }
    if (t->code >= 502 && t->code <= 504) /* something between us and etcd, or etcd ending */
        return lsi_fail(LS_ERR_PEER_DEAD, "is etcd running?", "store",
                        "etcd at %s: HTTP status %ld", address, t->code);
    return lsi_fail(LS_ERR_PROTOCOL, "is that an etcd with its v3 JSON gateway?", "store",
                    "etcd at %s: HTTP status %ld%s", address, t->code,
                    t->code / 100 == 3 ? ", and redirects are not followed" : "");
}

/* The answer of a transfer that is done. Errors of etcd are answers too, except that it cannot
 * serve now: that is LS_ERR_PEER_DEAD. */
static ls_status read_answer(lsi_etcd *c, const lsi_http_transfer *t, const char *address)
{
    lsi_etcd_answer_free(&c->answer);
    ls_status status = lsi_etcd_parse(lsi_buffer_front(&t->body), t->body.used, &c->answer);
    if (status == LS_OK && c->answer.revision > c->heard)
        c->heard = c->answer.revision;
    if (t->code != 200 && (status == LS_ERR_PROTOCOL || c->answer.code == LSI_ETCD_FINE))
        return lsi_etcd_fail_transfer(t, address);
    LSI_TRY(status);
    if (c->answer.code == LSI_ETCD_UNAVAILABLE || c->answer.code == LSI_ETCD_LATE)
        return lsi_fail(LS_ERR_PEER_DEAD, "has etcd lost its majority?", "store",
                        "etcd at %s says: %s", address, c->answer.words);
    return LS_OK;
}

/* Ask the endpoint `at`: LS_IN_PROGRESS when it did not answer before `until`. *is_unsure: it may
 * have done what was asked for. */
static ls_status ask_endpoint(lsi_etcd *c, const char *path, double until, int *is_unsure)
{
    const char *address = c->endpoints[c->at];
    lsi_http_transfer *t;
    *is_unsure = 0;
    LSI_TRY(lsi_http_post(c->http, address, path, lsi_buffer_front(&c->request), c->request.used,
                          ANSWER_MAX, &t));
    ls_status status = LS_OK;
    while (t->state == LSI_HTTP_RUNNING && status == LS_OK) {
        status = lsi_http_drive(c->http, until);
        if (status == LS_OK && t->state == LSI_HTTP_RUNNING && lsi_now() >= until)
            status = LS_IN_PROGRESS;
    }
    if (t->state == LSI_HTTP_DONE)
        status = read_answer(c, t, address);
    else if (t->state != LSI_HTTP_RUNNING)
        status = lsi_etcd_fail_transfer(t, address);
    *is_unsure = t->state != LSI_HTTP_UNREACHED;
    lsi_http_end(t);
    return status;
}

static ls_status sleep_until(lsi_etcd *c, double when)
{
    while (lsi_now() < when) {
        ls_status status = lsi_http_drive(c->http, when);
        if (status != LS_OK && status != LS_IN_PROGRESS)
            return status;
    }
    return LS_OK;
}

static ls_status ask_in_turn(lsi_etcd *c, const char *path, double deadline, int is_change)
{
    double give_up = lsi_now() + c->patience_s, pause = LSI_ETCD_PAUSE_FIRST_S;
    for (size_t failed = 0;;) { /* endpoints of this round */
        double now = lsi_now();
        size_t left = c->endpoint_count - failed, at = c->at;
        int is_unsure;
        ls_status status = ask_endpoint(c, path, now + (deadline - now) / (double)left, &is_unsure);
        if (status != LS_IN_PROGRESS && status != LS_ERR_PEER_DEAD)
            return status;
        c->at = (at + 1) % c->endpoint_count;
        if (status == LS_IN_PROGRESS)
            lsi_etcd_watch_leave(c, at);
        if (lsi_now() >= deadline)
            return status;
        if (is_unsure && is_change)
            return LS_ERR_ABORTED;
        if (++failed < c->endpoint_count)
            continue;
        double again = lsi_now() + pause;
        if (again >= give_up || again >= deadline)
            return status;
        failed = 0;
        LSI_TRY(sleep_until(c, again));
        pause = pause * 2 < LSI_ETCD_PAUSE_MOST_S ? pause * 2 : LSI_ETCD_PAUSE_MOST_S;
    }
}

ls_status lsi_etcd_ask(lsi_etcd *c, const char *path, double deadline, int is_change)
{
    ls_status status = ask_in_turn(c, path, deadline, is_change);
    lsi_etcd_watch_remind(c);
    return lsi_etcd_break(c, status);
}

ls_status lsi_etcd_fail_late(const lsi_etcd *c, const char *what, const char *key)
{
    return lsi_fail(LS_ERR_TIMEOUT, "is it alive, and not stopped?", what,
                    "%s%s%s did not answer within %.1f s", key, *key ? ": " : "", c->who,
                    c->timeout_s);
}

ls_status lsi_etcd_fail_refused(lsi_etcd *c, const char *what, const char *key, uint64_t lease)
{
    const char *words = c->answer.words;
    switch (c->answer.code) {
    case LSI_ETCD_NOT_FOUND:
        return lsi_fail(LS_ERR_NOT_FOUND, "keep it more often than its time to live", what,
                        "%s%slease %llu has ended", key, *key ? ": " : "",
                        (unsigned long long)lease);
    case LSI_ETCD_INVALID:
        return lsi_fail(LS_ERR_INVALID, NULL, what, "%s: etcd says: %s", key, words);
    case LSI_ETCD_EXHAUSTED:
        return lsi_fail(LS_ERR_NOMEM, "remove keys that nobody needs, and compact etcd", what,
                        "%s: the store is full, etcd says: %s", key, words);
    case LSI_ETCD_FORBIDDEN:
    case LSI_ETCD_STRANGER:
        return lsi_etcd_break(c,
                              lsi_fail(LS_ERR_AUTH, "users and passwords of etcd are not supported",
                                       what, "%s: etcd says: %s", key, words));
    default:
        return lsi_etcd_break(c, lsi_fail(LS_ERR_PROTOCOL, NULL, what, "%s: etcd says: %s (%d)",
                                          key, words, c->answer.code));
    }
}

ls_status lsi_etcd_call(lsi_etcd *c, const char *path, const char *what, const char *key,
                        double deadline)
{
    ls_status status = lsi_etcd_ask(c, path, deadline, 0);
    if (status == LS_IN_PROGRESS)
        return lsi_etcd_fail_late(c, what, key);
    LSI_TRY(status);
    return c->answer.code == LSI_ETCD_FINE ? LS_OK : lsi_etcd_fail_refused(c, what, key, 0);
}

ls_status lsi_etcd_ask_for_change(lsi_etcd *c, const char *path, const char *what, const char *key,
                                  int *is_unsure)
{
    double deadline = lsi_now() + c->timeout_s;
    ls_status status;
    *is_unsure = 0;
    while ((status = lsi_etcd_ask(c, path, deadline, 1)) == LS_ERR_ABORTED)
        *is_unsure = 1;
    return status == LS_IN_PROGRESS ? lsi_etcd_fail_late(c, what, key) : status;
}

ls_status lsi_etcd_open_value(lsi_etcd *c, const char *name, const lsi_etcd_entry *entry,
                              const uint8_t **value, size_t *bytes)
{
    return lsi_etcd_break(c,
                          lsi_seal_check(c->seal, name, entry->value, entry->bytes, value, bytes));
}

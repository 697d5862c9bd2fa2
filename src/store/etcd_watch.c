/* Watching an etcd: one stream of all changes of the run, sorted here by what is watched.
 *
 *     stream -> body -> line after line (etcd_json) -> watched? -> seal checked -> events -> next
 *
 * Invariants:
 * 1. One stream a client, over the whole prefix of the run: so changes come in the order in which
 *    they were made, whatever prefixes are watched, and a key under several of them comes once.
 *    (The existing keys of a prefix that is added may come before older changes of others.)
 * 2. A prefix is watched from the revision at which its existing keys were listed. A line is read
 *    when next asks for it, never while a list is under way: no change falls in between.
 * 3. `seen` and `taken` say up to where changes were taken. A stream that is lost is resumed there,
 *    at the next endpoint, within LSI_ETCD_PATIENCE_S: nothing is skipped, nothing comes twice.
 *    What etcd has compacted before it was read is an error.
 * 4. Lines that nobody reads are bounded: a stream that is too far ahead is ended, and resumed when
 *    they have been read.
 */
#include "store/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "store/protocol.h"

#define STREAM_MAX ((size_t)32 << 20)
#define LINE_MAX_BYTES (STREAM_MAX / 2) /* etcd cuts at 1.5 MiB, 4 MiB as JSON */
#define PAGE 16                         /* keys: see ANSWER_MAX in etcd_ask.c */
#define LATE_LOOKS 64    /* of next after its deadline, when something comes all the time */
#define SIT_S 10.0       /* a wait that hears nothing asks again: is etcd still there? */
#define SHORT_WAIT_S 1.0 /* what a wait of 0 s leaves etcd for its answer */

#define EVER UINT64_MAX

static int begins(const char *key, const char *prefix)
{
    return strncmp(key, prefix, strlen(prefix)) == 0;
}

/* Whether a change of `key` at `revision` (EVER: some change) is to be reported. */
static int is_watched(const lsi_etcd *c, const char *key, uint64_t revision)
{
    for (size_t i = 0; i < c->watch_count; i++) {
        if (revision > c->watches[i].since && begins(key, c->watches[i].text))
            return 1;
    }
    return 0;
}

/* The seam's key of an entry; what is no key at all is cut short, and 0 is returned. */
static int get_key(const lsi_etcd *c, const lsi_etcd_entry *entry, char key[LSI_STORE_KEY_MAX + 1])
{
    size_t prefix = strlen(c->prefix), all = entry->key_bytes;
    const char *name = (const char *)entry->key;
    size_t bytes = all > prefix ? all - prefix : 0;
    int is_key = bytes > 0 && bytes <= LSI_STORE_KEY_MAX && memcmp(name, c->prefix, prefix) == 0 &&
                 lsi_store_key_valid(name + prefix, bytes);
    snprintf(key, LSI_STORE_KEY_MAX + 1, "%.*s",
             (int)(bytes < LSI_STORE_KEY_MAX ? bytes : LSI_STORE_KEY_MAX),
             bytes > 0 ? name + prefix : "");
    return is_key;
}

static ls_status fail_stranger(lsi_etcd *c)
{
    return lsi_etcd_break(c, lsi_fail(LS_ERR_AUTH, "remove it", "watch",
                                      "under %s lies a key that no member of the run has written",
                                      c->prefix));
}

/* An entry as a frame of protocol.h. */
static ls_status add_event(lsi_etcd *c, const lsi_etcd_entry *entry, const char *key,
                           lsi_buffer *out)
{
    lsi_store_message m = {.op = LSI_STORE_EVENT,
                           .version = entry->version,
                           .number = entry->deleted ? 1 : 0};
    char name[LSI_ETCD_NAME_MAX + 1];
    memcpy(m.key, key, strlen(key) + 1);
    lsi_etcd_name(c, key, name);
    if (!entry->deleted)
        LSI_TRY(lsi_etcd_open_value(c, name, entry, &m.value, &m.bytes));
    if (m.bytes > LSI_STORE_VALUE_MAX)
        return lsi_etcd_break(c, lsi_fail(LS_ERR_PROTOCOL, NULL, "store",
                                          "%s: a value of %zu bytes, %zu are the limit", key,
                                          m.bytes, LSI_STORE_VALUE_MAX));
    return lsi_store_encode(&m, out);
}

static ls_status take_change(lsi_etcd *c, const lsi_etcd_entry *entry)
{
    char key[LSI_STORE_KEY_MAX + 1];
    uint64_t revision = entry->version;
    if (revision <= c->seen)
        return LS_OK;
    if (revision > c->seen + 1) { /* all before it came */
        c->seen = revision - 1;
        c->taken = c->passed = 0;
    }
    if (++c->passed <= c->taken)
        return LS_OK; /* came by before the stream was lost */
    c->taken = c->passed;
    int is_key = get_key(c, entry, key);
    if (!is_watched(c, key, revision))
        return LS_OK;
    if (is_key)
        return add_event(c, entry, key, &c->events);
    return entry->deleted ? LS_OK : fail_stranger(c);
}

static ls_status take_answer(lsi_etcd *c, const lsi_etcd_answer *a)
{
    const char *address = c->endpoints[c->stream_at];
    if (a->compacted > 0)
        return lsi_fail(LS_ERR_PEER_DEAD,
                        "open the store again, and let etcd keep its history for longer", "watch",
                        "etcd at %s has compacted the changes from revision %llu to %llu before "
                        "they were read",
                        address, (unsigned long long)c->seen + 1,
                        (unsigned long long)a->compacted - 1);
    if (a->canceled || a->code != LSI_ETCD_FINE)
        return lsi_fail(LS_ERR_PEER_DEAD, "open the store again", "watch",
                        "etcd at %s has ended the watch: %s", address,
                        *a->words ? a->words : "it does not say why");
    if (a->created) {
        c->is_created = c->was_created = 1;
        c->is_refused = 0;
        c->at = c->stream_at; /* calls notice when it stops answering; then the stream is moved */
        c->lost = 0;
        c->tries = 0;
        c->pause = LSI_ETCD_PAUSE_FIRST_S;
    }
    for (size_t i = 0; i < a->count; i++)
        LSI_TRY(take_change(c, &a->entries[i]));
    if (a->count > 0 && !a->fragment) {
        c->seen = a->entries[a->count - 1].version;
        c->taken = c->passed = 0;
    } else if (a->count == 0 && !a->created && c->taken == 0 && a->revision > c->seen) {
        c->seen = a->revision; /* a word in silence: nothing has happened up to here */
    }
    return LS_OK;
}

/* Read one line of the stream: LS_IN_PROGRESS when there is none. */
static ls_status take_line(lsi_etcd *c)
{
    lsi_buffer *body = &c->stream->body;
    if (c->stream->code != 200 || body->used == c->scanned)
        return LS_IN_PROGRESS;
    const uint8_t *front = lsi_buffer_front(body);
    const uint8_t *end = memchr(front + c->scanned, '\n', body->used - c->scanned);
    if (!end) {
        c->scanned = body->used;
        return LS_IN_PROGRESS;
    }
    size_t bytes = (size_t)(end - front);
    ls_status status = LS_OK;
    if (bytes > 0) {
        lsi_etcd_answer answer;
        status = lsi_etcd_parse(front, bytes, &answer);
        if (status == LS_OK) {
            status = take_answer(c, &answer);
            lsi_etcd_answer_free(&answer);
        }
    }
    lsi_buffer_drop(body, bytes + 1);
    c->scanned = 0;
    return lsi_etcd_break(c, status);
}

static void lose_stream(lsi_etcd *c, double pause)
{
    lsi_http_end(c->stream);
    c->stream = NULL;
    c->is_created = 0;
    if (c->lost == 0)
        c->lost = lsi_now();
    c->resume = lsi_now() + pause;
}

static void try_next_endpoint(lsi_etcd *c, const char *why)
{
    snprintf(c->why, sizeof c->why, "%s: %s", c->endpoints[c->stream_at], why);
    lose_stream(c, c->pause);
    c->pause = c->pause * 2 < LSI_ETCD_PAUSE_MOST_S ? c->pause * 2 : LSI_ETCD_PAUSE_MOST_S;
    c->stream_at = (c->stream_at + 1) % c->endpoint_count;
}

void lsi_etcd_watch_leave(lsi_etcd *c, size_t endpoint)
{
    /* Lines that were not read come again. */
    if (c->stream && c->stream_at == endpoint && c->endpoint_count > 1)
        try_next_endpoint(c, "it does not answer");
}

void lsi_etcd_watch_remind(lsi_etcd *c)
{
    if (c->watch_count == 0)
        return;
    if (!c->stream)
        lsi_http_wake_at(c->http, c->resume);
    else if (c->stream->state != LSI_HTTP_RUNNING || c->stream->body.used > c->scanned)
        lsi_http_wake_at(c->http, lsi_now());
}

static ls_status start_stream(lsi_etcd *c)
{
    lsi_buffer request = {0};
    char end[LSI_ETCD_PREFIX_MAX + 1];
    lsi_etcd_prefix_end(c->prefix, end);
    c->passed = 0;
    c->scanned = 0;
    c->began = lsi_now();
    c->tries++;
    ls_status status = lsi_etcd_watch(&request, c->prefix, end, c->seen + 1);
    if (status == LS_OK)
        status = lsi_http_post(c->http, c->endpoints[c->stream_at], "v3/watch",
                               lsi_buffer_front(&request), request.used, STREAM_MAX, &c->stream);
    lsi_buffer_free(&request);
    return status;
}

/* The stream has ended, and all its lines were read: shall there be another? */
static ls_status after_end(lsi_etcd *c)
{
    const lsi_http_transfer *t = c->stream;
    if (t->state == LSI_HTTP_TOO_LARGE && t->body.used < LINE_MAX_BYTES) {
        lose_stream(c, 0);
        return LS_OK;
    }
    if (t->state == LSI_HTTP_DONE && t->code == 200 && t->body.used > 0)
        return lsi_etcd_break(c, lsi_fail(LS_ERR_PROTOCOL, "is that an etcd?", "watch",
                                          "etcd at %s ends in the middle of a line",
                                          c->endpoints[c->stream_at]));
    if (t->state != LSI_HTTP_DONE || t->code != 200) {
        ls_status status = lsi_etcd_fail_transfer(t, c->endpoints[c->stream_at]);
        if (status != LS_ERR_PEER_DEAD)
            return lsi_etcd_break(c, status);
    }
    c->is_refused = 1;
    try_next_endpoint(c, *t->error ? t->error : "it has ended the stream");
    return LS_OK;
}

static ls_status fail_lost(lsi_etcd *c)
{
    return lsi_etcd_break(c, lsi_fail(LS_ERR_PEER_DEAD, "is etcd running?", "watch",
                                      "%s could not be watched for %.1f s; %s", c->who,
                                      lsi_now() - c->lost, c->why));
}

/* Read lines until there is an event; look after a stream that is lost or does not begin. */
static ls_status tend(lsi_etcd *c)
{
    if (c->watch_count == 0)
        return LS_OK;
    if (c->stream) {
        ls_status status = LS_OK;
        while (status == LS_OK && (c->events.used == 0 || !c->is_created))
            status = take_line(c);
        if (status != LS_IN_PROGRESS)
            return status;
        double share = c->timeout_s / (double)c->endpoint_count;
        if (c->stream->state != LSI_HTTP_RUNNING) {
            LSI_TRY(after_end(c));
        } else if (!c->is_created && lsi_now() >= c->began + share) {
            c->is_refused = 0;
            try_next_endpoint(c, "it does not answer");
        } else if (!c->is_created) {
            lsi_http_wake_at(c->http, c->began + share);
        }
    }
    if (c->stream)
        return LS_OK;
    double now = lsi_now();
    /* Time alone does not tell: next may have been called rarely. */
    if (now - c->lost > c->patience_s && c->tries > c->endpoint_count + 1)
        return fail_lost(c);
    if (now < c->resume) {
        lsi_http_wake_at(c->http, c->resume);
        return LS_OK;
    }
    return start_stream(c);
}

ls_status lsi_etcd_store_next(lsi_store *store, double timeout_s, lsi_store_event *event)
{
    lsi_etcd *c = (lsi_etcd *)store;
    double deadline = lsi_now() + timeout_s;
    ls_status begun = lsi_etcd_begin(c);
    for (int late = 0; c->events.used == 0;) {
        LSI_TRY(begun); /* what came before it broke is handed out first */
        LSI_TRY(tend(c));
        if (c->events.used > 0)
            break;
        LSI_TRY(lsi_http_drive(c->http, deadline));
        if (lsi_now() >= deadline && ++late > LATE_LOOKS)
            return LS_IN_PROGRESS;
    }
    return lsi_store_show(&c->events, &c->shown, event);
}

/* List the keys that begin with `prefix` and are not watched yet, as events; *revision is when. */
static ls_status list(lsi_etcd *c, const char *prefix, double deadline, lsi_buffer *out,
                      uint64_t *revision)
{
    char from[LSI_ETCD_NAME_MAX + 2], end[LSI_ETCD_NAME_MAX + 1], key[LSI_STORE_KEY_MAX + 1];
    lsi_etcd_name(c, prefix, from);
    lsi_etcd_prefix_end(from, end);
    *revision = 0;
    do {
        LSI_TRY(lsi_etcd_begin(c));
        LSI_TRY(lsi_etcd_range(&c->request, from, end, *revision, PAGE));
        LSI_TRY(lsi_etcd_call(c, "v3/kv/range", "watch", prefix, deadline));
        if (*revision == 0)
            *revision = c->answer.revision;
        for (size_t i = 0; i < c->answer.count; i++) {
            const lsi_etcd_entry *entry = &c->answer.entries[i];
            if (!get_key(c, entry, key))
                return fail_stranger(c);
            if (!is_watched(c, key, EVER))
                LSI_TRY(add_event(c, entry, key, out));
            /* Keys have no byte below '!': this is before the next one. */
            snprintf(from, sizeof from, "%s%s\x01", c->prefix, key);
        }
    } while (c->answer.more && c->answer.count > 0);
    if (*revision == 0)
        return lsi_etcd_break(c, lsi_fail(LS_ERR_PROTOCOL, "is that an etcd?", "watch",
                                          "%s does not say its revision", c->who));
    return LS_OK;
}

/* The new prefix takes the place of longer ones. Changes that were made before it was listed, and
 * are still to come, are theirs: they stay until the stream is past that. */
static ls_status make_room(lsi_etcd *c, const char *prefix)
{
    size_t kept = 0, counted = 0;
    for (size_t i = 0; i < c->watch_count; i++) {
        int is_past = 0;
        for (size_t j = 0; c->watches[i].is_covered && j < c->watch_count; j++)
            is_past |= !c->watches[j].is_covered && c->seen >= c->watches[j].since &&
                       begins(c->watches[i].text, c->watches[j].text);
        if (is_past)
            continue;
        counted += !c->watches[i].is_covered && !begins(c->watches[i].text, prefix);
        c->watches[kept++] = c->watches[i];
    }
    c->watch_count = kept;
    if (counted >= LSI_ETCD_WATCHES_MAX)
        return lsi_fail(LS_ERR_UNSUPPORTED, "watch a shorter prefix instead of many", "watch",
                        "%s: too many watches", prefix);
    lsi_etcd_prefix *longer = realloc(c->watches, (kept + 1) * sizeof *longer);
    if (!longer)
        return lsi_fail(LS_ERR_NOMEM, NULL, "watch", "no memory for one more");
    c->watches = longer;
    return LS_OK;
}

/* Wait until etcd says that it watches. */
static ls_status await_stream(lsi_etcd *c, const char *prefix, double deadline)
{
    for (;;) {
        LSI_TRY(tend(c));
        if (c->was_created)
            return LS_OK;
        ls_status status = lsi_http_drive(c->http, deadline);
        if (status != LS_OK && status != LS_IN_PROGRESS)
            return status;
        if (lsi_now() >= deadline && c->is_refused)
            return fail_lost(c);
        if (lsi_now() >= deadline)
            return lsi_fail(LS_ERR_TIMEOUT, "is it alive, and not stopped?", "watch",
                            "%s%s%s did not begin to watch within %.1f s", prefix,
                            *prefix ? ": " : "", c->who, c->timeout_s);
    }
}

ls_status lsi_etcd_store_watch(lsi_store *store, const char *prefix)
{
    lsi_etcd *c = (lsi_etcd *)store;
    double deadline = lsi_now() + c->timeout_s;
    size_t bytes = strnlen(prefix, LSI_STORE_KEY_MAX + 1);
    if (!lsi_store_key_valid(prefix, bytes))
        return lsi_fail(LS_ERR_INVALID, "0 to 200 printable ASCII characters without spaces",
                        "watch", "'%.*s' is not a prefix", LSI_STORE_KEY_MAX, prefix);
    LSI_TRY(lsi_etcd_begin(c));
    if (is_watched(c, prefix, EVER))
        return LS_OK; /* all of it is watched */
    LSI_TRY(make_room(c, prefix));
    lsi_buffer existing = {0};
    uint64_t revision;
    ls_status status = list(c, prefix, deadline, &existing, &revision);
    if (status == LS_OK)
        status = lsi_buffer_append(&c->events, lsi_buffer_front(&existing), existing.used);
    lsi_buffer_free(&existing);
    LSI_TRY(status);

    int is_first = c->watch_count == 0;
    for (size_t i = 0; i < c->watch_count; i++)
        c->watches[i].is_covered |= begins(c->watches[i].text, prefix);
    lsi_etcd_prefix *watch = &c->watches[c->watch_count++];
    *watch = (lsi_etcd_prefix){.since = revision};
    memcpy(watch->text, prefix, bytes + 1);
    if (!is_first)
        return LS_OK;
    c->seen = revision;
    c->stream_at = c->at;
    c->pause = LSI_ETCD_PAUSE_FIRST_S;
    c->lost = lsi_now();
    return await_stream(c, prefix, deadline);
}

/* Whether the lines that came so far say more than that the watch stands. */
static int has_news(lsi_http_transfer *t)
{
    const uint8_t *end;
    while (t->code == 200 && t->body.used > 0 &&
           (end = memchr(lsi_buffer_front(&t->body), '\n', t->body.used))) {
        size_t bytes = (size_t)(end - lsi_buffer_front(&t->body));
        lsi_etcd_answer answer = {0};
        ls_status status = lsi_etcd_parse(lsi_buffer_front(&t->body), bytes, &answer);
        int is_news = status != LS_OK || !answer.created || answer.canceled;
        lsi_etcd_answer_free(&answer);
        lsi_buffer_drop(&t->body, bytes + 1);
        if (is_news)
            return 1;
    }
    return 0;
}

/* Sit until `name` changes after `revision`, or anything else makes it worth to ask again; at most
 * until the deadline. */
static ls_status sit(lsi_etcd *c, const char *name, uint64_t revision, double deadline)
{
    lsi_http_transfer *t;
    LSI_TRY(lsi_etcd_begin(c));
    LSI_TRY(lsi_etcd_watch(&c->request, name, NULL, revision + 1));
    LSI_TRY(lsi_http_post(c->http, c->endpoints[c->at], "v3/watch", lsi_buffer_front(&c->request),
                          c->request.used, STREAM_MAX, &t));
    double until = lsi_now() + SIT_S < deadline ? lsi_now() + SIT_S : deadline;
    ls_status status = LS_OK;
    while (status == LS_OK && !has_news(t) && lsi_now() < until) {
        status = lsi_http_drive(c->http, until);
        /* The next question finds out why it ended; not at once, in case that is futile too. */
        if (t->state != LSI_HTTP_RUNNING && until > lsi_now() + LSI_ETCD_PAUSE_FIRST_S)
            until = lsi_now() + LSI_ETCD_PAUSE_FIRST_S;
    }
    lsi_http_end(t);
    return status == LS_IN_PROGRESS ? LS_OK : status;
}

ls_status lsi_etcd_store_wait(lsi_store *store, const char *key, double timeout_s,
                              const uint8_t **value, size_t *bytes)
{
    lsi_etcd *c = (lsi_etcd *)store;
    char name[LSI_ETCD_NAME_MAX + 1];
    double now = lsi_now(), deadline = now + timeout_s;
    double grace = c->timeout_s < SHORT_WAIT_S ? c->timeout_s : SHORT_WAIT_S;
    double patience = now + (timeout_s > grace ? timeout_s : grace);
    size_t length = strnlen(key, LSI_STORE_KEY_MAX + 1);
    if (length == 0 || !lsi_store_key_valid(key, length))
        return lsi_fail(LS_ERR_INVALID, "1 to 200 printable ASCII characters without spaces",
                        "wait for", "'%.*s' is not a key", LSI_STORE_KEY_MAX, key);
    lsi_etcd_name(c, key, name);
    for (;;) {
        LSI_TRY(lsi_etcd_begin(c));
        LSI_TRY(lsi_etcd_range(&c->request, name, NULL, 0, 1));
        LSI_TRY(lsi_etcd_ask(c, "v3/kv/range", patience, 0));
        if (c->answer.code != LSI_ETCD_FINE)
            return lsi_etcd_fail_refused(c, "wait for", key, 0);
        if (c->answer.count > 0)
            return lsi_etcd_open_value(c, name, &c->answer.entries[0], value, bytes);
        if (lsi_now() >= deadline)
            return LS_IN_PROGRESS;
        ls_status status = sit(c, name, c->answer.revision, deadline);
        lsi_etcd_watch_remind(c);
        LSI_TRY(status);
    }
}

/* Fuzzes the store: decoder and request handling on a map, without sockets.
 *
 * An input is a script. A step begins with a byte: bits 0-1 name a session, bits 2-4 what happens:
 *
 *     0-3  bytes from the client: a length byte (255: all the rest), then that many
 *     4    time goes on by a byte's worth of tenths of a second
 *     5    the connection ends, another takes its place
 *     6    the client reads
 *     7    the rest of the input is decoded as what a server says
 *
 * A fourth session watches everything. Checked: whatever the server says decodes; what was decoded
 * encodes to the same bytes; the watcher's versions grow; the history it heard adds up to what the
 * map holds; a failed session does not touch the others. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/protocol.h"
#include "store/service.h"

enum { SESSIONS = 4, WATCHER = SESSIONS };

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct world {
    lsi_service *service;
    lsi_session *sessions[SESSIONS + 1];
    lsi_map *heard;         /* what the watcher's events add up to */
    uint64_t heard_version; /* of its latest event */
    double now;
} world;

static void ignore(void *arg, const lsi_map_entry *entry, int deleted)
{
    (void)arg, (void)entry, (void)deleted;
}

static void check_inverse(const lsi_store_message *m, const uint8_t *frame, size_t bytes)
{
    lsi_buffer again = {0};
    CHECK(lsi_store_encode(m, &again) == LS_OK);
    CHECK(again.used == bytes && memcmp(lsi_buffer_front(&again), frame, bytes) == 0);
    lsi_buffer_free(&again);
}

static void hear(world *w, const lsi_store_message *m)
{
    uint64_t version;
    CHECK(m->version > w->heard_version);
    w->heard_version = m->version;
    if (m->number)
        CHECK(lsi_map_remove(w->heard, m->key) == LS_OK);
    else
        CHECK(lsi_map_put(w->heard, m->key, m->value, m->bytes, 0, &version) == LS_OK);
}

/* Read all that a session says. */
static void drain(world *w, int s)
{
    lsi_buffer *out = lsi_session_output(w->sessions[s]);
    while (out->used > 0) {
        lsi_store_message m;
        size_t frame;
        CHECK(lsi_store_decode(LSI_STORE_SERVER, lsi_buffer_front(out), out->used, &m, &frame) ==
              LS_OK);
        check_inverse(&m, lsi_buffer_front(out), frame);
        if (s == WATCHER && m.op == LSI_STORE_EVENT)
            hear(w, &m);
        lsi_buffer_drop(out, frame);
    }
}

static void reopen(world *w, int s)
{
    lsi_session_close(w->sessions[s]);
    w->sessions[s] = NULL;
    CHECK(lsi_session_open(w->service, &w->sessions[s]) == LS_OK);
}

static void input(world *w, int s, const uint8_t *data, size_t size)
{
    if (lsi_session_input(w->sessions[s], data, size, w->now) != LS_OK) {
        CHECK(lsi_session_health(w->sessions[s]) != LS_OK);
        reopen(w, s);
    }
    CHECK(lsi_session_health(w->sessions[WATCHER]) == LS_OK);
    drain(w, WATCHER);
}

static void decode_rest(const uint8_t *data, size_t size)
{
    lsi_store_message m;
    for (size_t frame; size > 0; data += frame, size -= frame) {
        if (lsi_store_decode(LSI_STORE_SERVER, data, size, &m, &frame) != LS_OK)
            return;
        CHECK(frame <= size);
        check_inverse(&m, data, frame);
    }
}

/* Every step takes at least one byte, so it ends. */
static void play(world *w, const uint8_t *data, size_t size)
{
    while (size > 0) {
        int s = data[0] & 3, what = (data[0] >> 2) & 7;
        data++, size--;
        if (what < 4 && size > 0) {
            size_t n = data[0] == 255 ? size - 1 : data[0];
            n = n < size - 1 ? n : size - 1;
            input(w, s, data + 1, n);
            data += 1 + n, size -= 1 + n;
        } else if (what == 4 && size > 0) {
            w->now += data[0] * 0.1;
            data++, size--;
            lsi_service_expire(w->service, w->now);
            drain(w, WATCHER);
        } else if (what == 5) {
            reopen(w, s);
            drain(w, WATCHER);
        } else if (what == 6) {
            drain(w, s);
        } else if (what == 7) {
            decode_rest(data, size);
            return;
        }
    }
}

typedef struct comparison {
    const lsi_map *other;
    size_t count;
} comparison;

static void compare(void *arg, const lsi_map_entry *entry)
{
    comparison *c = arg;
    const lsi_map_entry *same = lsi_map_find(c->other, entry->key);
    CHECK(same && same->bytes == entry->bytes);
    CHECK(memcmp(same->value, entry->value, entry->bytes) == 0);
    c->count++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    world w = {.now = 1};
    CHECK(lsi_service_create(&w.service) == LS_OK);
    CHECK(lsi_map_create(ignore, NULL, &w.heard) == LS_OK);
    for (int s = 0; s <= SESSIONS; s++)
        CHECK(lsi_session_open(w.service, &w.sessions[s]) == LS_OK);
    lsi_buffer watch = {0};
    lsi_store_message m = {.id = 1, .op = LSI_STORE_WATCH};
    CHECK(lsi_store_encode(&m, &watch) == LS_OK);
    input(&w, WATCHER, lsi_buffer_front(&watch), watch.used);
    lsi_buffer_free(&watch);

    play(&w, data, size);

    for (int s = 0; s < SESSIONS; s++) {
        drain(&w, s);
        lsi_session_close(w.sessions[s]); /* leases end, the watcher hears */
    }
    drain(&w, WATCHER);
    comparison there = {.other = w.heard}, back = {.other = lsi_service_map(w.service)};
    lsi_map_each(back.other, "", compare, &there);
    lsi_map_each(there.other, "", compare, &back);
    CHECK(there.count == back.count);
    lsi_service_destroy(w.service);
    lsi_map_destroy(w.heard);
    return 0;
}

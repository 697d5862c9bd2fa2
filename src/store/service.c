/* Sessions on a map (contract and invariants: service.h). */
#include "store/service.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/status.h"
#include "store/protocol.h"

struct lsi_session {
    TAILQ_ENTRY(lsi_session) link;
    lsi_service *service;
    uint64_t number; /* owner of its leases */
    ls_status health;
    lsi_buffer in; /* at most one incomplete frame between calls */
    lsi_buffer out;
    char *watches[LSI_SESSION_WATCHES_MAX]; /* prefixes, none a beginning of another */
    size_t watch_count;
    uint32_t wait_id; /* request that waits, 0: none */
    double wait_until;
    char wait_key[LSI_STORE_KEY_MAX + 1];
};

struct lsi_service {
    lsi_map *map;
    uint64_t last_session;
    TAILQ_HEAD(, lsi_session) sessions;
};

/* Queue a message; a session that cannot take it has failed. */
static void say(lsi_session *session, const lsi_store_message *message)
{
    if (session->health != LS_OK)
        return;
    session->health = lsi_store_encode(message, &session->out);
    if (session->health == LS_OK && session->out.used > LSI_SESSION_OUTPUT_MAX)
        session->health =
            lsi_fail(LS_ERR_TIMEOUT, "call next or close the client", "store",
                     "a client does not read what it asked for, %zu bytes", session->out.used);
}

static void say_event(lsi_session *session, const lsi_map_entry *entry, int deleted)
{
    lsi_store_message m = {.op = LSI_STORE_EVENT,
                           .version = entry->version,
                           .number = deleted ? 1 : 0,
                           .bytes = deleted ? 0 : entry->bytes,
                           .value = entry->value};
    memcpy(m.key, entry->key, strlen(entry->key) + 1);
    say(session, &m);
}

/* Answer with an entry, or that there is none. */
static void say_entry(lsi_session *session, uint32_t id, const lsi_map_entry *entry)
{
    lsi_store_message m = {.op = LSI_STORE_ANSWER, .id = id, .status = LS_ERR_NOT_FOUND};
    if (entry) {
        m.status = LS_OK;
        m.version = entry->version;
        m.bytes = entry->bytes;
        m.value = entry->value;
    }
    say(session, &m);
}

static void end_wait(lsi_session *session, ls_status status)
{
    lsi_store_message m = {.op = LSI_STORE_ANSWER, .id = session->wait_id, .status = status};
    session->wait_id = 0;
    say(session, &m);
}

static int is_watched(const lsi_session *session, const char *key)
{
    for (size_t i = 0; i < session->watch_count; i++) {
        if (strncmp(key, session->watches[i], strlen(session->watches[i])) == 0)
            return 1;
    }
    return 0;
}

/* The map's listener. */
static void changed(void *arg, const lsi_map_entry *entry, int deleted)
{
    lsi_service *service = arg;
    lsi_session *s;
    TAILQ_FOREACH(s, &service->sessions, link)
    {
        if (is_watched(s, entry->key))
            say_event(s, entry, deleted);
        if (!deleted && s->wait_id && strcmp(s->wait_key, entry->key) == 0) {
            uint32_t id = s->wait_id;
            s->wait_id = 0;
            say_entry(s, id, entry);
        }
    }
}

ls_status lsi_service_create(lsi_service **out)
{
    lsi_service *service = calloc(1, sizeof *service);
    if (!service)
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for the server");
    TAILQ_INIT(&service->sessions);
    ls_status status = lsi_map_create(changed, service, &service->map);
    if (status != LS_OK) {
        free(service);
        return status;
    }
    *out = service;
    return LS_OK;
}

void lsi_service_destroy(lsi_service *service)
{
    if (!service)
        return;
    while (!TAILQ_EMPTY(&service->sessions))
        lsi_session_close(TAILQ_FIRST(&service->sessions));
    lsi_map_destroy(service->map);
    free(service);
}

lsi_map *lsi_service_map(lsi_service *service)
{
    return service->map;
}

void lsi_service_expire(lsi_service *service, double now)
{
    lsi_map_expire(service->map, now);
    lsi_session *s;
    TAILQ_FOREACH(s, &service->sessions, link)
    {
        if (s->wait_id && s->wait_until <= now)
            end_wait(s, LS_ERR_TIMEOUT);
    }
}

ls_status lsi_session_open(lsi_service *service, lsi_session **out)
{
    lsi_session *session = calloc(1, sizeof *session);
    if (!session)
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for one more client");
    session->service = service;
    session->number = ++service->last_session;
    TAILQ_INSERT_TAIL(&service->sessions, session, link);
    *out = session;
    return LS_OK;
}

void lsi_session_close(lsi_session *session)
{
    if (!session)
        return;
    TAILQ_REMOVE(&session->service->sessions, session, link);
    lsi_map_disown(session->service->map, session->number);
    for (size_t i = 0; i < session->watch_count; i++)
        free(session->watches[i]);
    lsi_buffer_free(&session->in);
    lsi_buffer_free(&session->out);
    free(session);
}

ls_status lsi_session_health(const lsi_session *session)
{
    return session->health;
}

lsi_buffer *lsi_session_output(lsi_session *session)
{
    return &session->out;
}

/* Tell an existing key to a session that is about to watch it, unless it watches it already. */
static void tell_existing(void *arg, const lsi_map_entry *entry)
{
    lsi_session *session = arg;
    if (!is_watched(session, entry->key))
        say_event(session, entry, 0);
}

static ls_status watch(lsi_session *session, const char *prefix)
{
    if (is_watched(session, prefix))
        return LS_OK; /* all of it is watched */
    /* The new prefix takes the place of longer ones that begin with it. */
    size_t bytes = strlen(prefix), covered = 0;
    for (size_t i = 0; i < session->watch_count; i++)
        covered += strncmp(session->watches[i], prefix, bytes) == 0;
    if (session->watch_count - covered == LSI_SESSION_WATCHES_MAX)
        return LS_ERR_UNSUPPORTED;
    char *copy = malloc(bytes + 1);
    if (!copy)
        return LS_ERR_NOMEM;
    memcpy(copy, prefix, bytes + 1);
    lsi_map_each(session->service->map, prefix, tell_existing, session);

    size_t kept = 0;
    for (size_t i = 0; i < session->watch_count; i++) {
        if (strncmp(session->watches[i], prefix, bytes) == 0)
            free(session->watches[i]);
        else
            session->watches[kept++] = session->watches[i];
    }
    session->watches[kept++] = copy;
    session->watch_count = kept;
    return LS_OK;
}

static void wait_for(lsi_session *session, const lsi_store_message *q, double now)
{
    if (session->wait_id)
        end_wait(session, LS_ERR_ABORTED);
    const lsi_map_entry *entry = lsi_map_find(session->service->map, q->key);
    if (entry) {
        say_entry(session, q->id, entry);
        return;
    }
    session->wait_id = q->id;
    session->wait_until = now + (double)q->number * 1e-3;
    memcpy(session->wait_key, q->key, sizeof session->wait_key);
}

static void execute(lsi_session *session, const lsi_store_message *q, double now)
{
    lsi_map *map = session->service->map;
    lsi_store_message a = {.op = LSI_STORE_ANSWER, .id = q->id};
    switch (q->op) {
    case LSI_STORE_GET: say_entry(session, q->id, lsi_map_find(map, q->key)); return;
    case LSI_STORE_WAIT: wait_for(session, q, now); return;
    case LSI_STORE_PUT:
        a.status = lsi_map_put(map, q->key, q->value, q->bytes, q->number, &a.version);
        break;
    case LSI_STORE_CAS:
        a.status = lsi_map_compare_and_put(map, q->key, q->version, q->value, q->bytes, q->number,
                                           &a.version);
        if (a.status == LS_ERR_CONFLICT) {
            const lsi_map_entry *present = lsi_map_find(map, q->key);
            a.version = present ? present->version : 0;
        }
        break;
    case LSI_STORE_REMOVE: a.status = lsi_map_remove(map, q->key); break;
    case LSI_STORE_LEASE:
        a.status = lsi_map_lease(map, session->number, (double)q->number * 1e-3, now, &a.number);
        break;
    case LSI_STORE_KEEP: a.status = lsi_map_keep(map, q->number, now); break;
    case LSI_STORE_REVOKE: a.status = lsi_map_revoke(map, q->number); break;
    case LSI_STORE_WATCH: a.status = watch(session, q->key); break;
    case LSI_STORE_ANSWER:
    case LSI_STORE_EVENT: assert(0 && "the decoder lets only requests of a client pass"); return;
    }
    say(session, &a);
}

ls_status lsi_session_input(lsi_session *session, const uint8_t *data, size_t bytes, double now)
{
    /* What is whole in `data` is executed from there; only an incomplete rest is copied. */
    int direct = session->in.used == 0;
    if (session->health == LS_OK && !direct)
        session->health = lsi_buffer_append(&session->in, data, bytes);
    const uint8_t *at = direct ? data : lsi_buffer_front(&session->in);
    size_t left = direct ? bytes : session->in.used, done = 0;
    while (session->health == LS_OK) {
        lsi_store_message request;
        size_t frame;
        ls_status status =
            lsi_store_decode(LSI_STORE_CLIENT, at + done, left - done, &request, &frame);
        if (status == LS_IN_PROGRESS)
            break;
        session->health = status;
        if (status == LS_OK) {
            execute(session, &request, now);
            done += frame;
        }
    }
    if (session->health != LS_OK)
        return session->health;
    if (!direct)
        lsi_buffer_drop(&session->in, done);
    else if (done < bytes)
        session->health = lsi_buffer_append(&session->in, data + done, bytes - done);
    return session->health;
}

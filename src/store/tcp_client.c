/* The client of the embedded store, over one authenticated TCP connection.
 *
 *     call: request -> out -> socket -> in -> answer       events met on the way -> events -> next
 *
 * Invariants:
 * 1. One request is under way at a time. Answers carry its number: the answer to a request that
 *    was given up at its deadline is recognised and dropped, and what was not sent of it goes
 *    before the next one. So a time-out does not cost the connection.
 * 2. Once broken (lost, or nonsense received) a client stays broken; events that came before are
 *    still handed out.
 * 3. What get and wait return lies in `answer`, what next returns at the front of `events`; both
 *    stay there until the next call.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auth.h"
#include "base/clock.h"
#include "base/net.h"
#include "base/status.h"
#include "store/buffer.h"
#include "store/protocol.h"
#include "store/tcp.h"

#define RECEIVE_BYTES 16384
#define SHORT_WAIT_S 1.0
#define OPEN_ATTEMPTS 30 /* a server that is flooded with strangers may drop us: about 5 s */

typedef struct client {
    lsi_store base;
    int fd;
    double timeout_s;
    ls_status broken; /* LS_OK while the connection works */
    uint32_t last_id; /* of the latest request, never 0 */
    int answered;     /* `answer` holds the answer to last_id */
    size_t shown;     /* bytes at the front of `events` that next has handed out */
    lsi_buffer out, in, answer, events;
    char who[LSI_ADDR_MAX + 16];
} client;

static void store_close(lsi_store *store)
{
    client *c = (client *)store;
    if (!c)
        return;
    if (c->fd >= 0)
        close(c->fd);
    lsi_buffer_free(&c->out);
    lsi_buffer_free(&c->in);
    lsi_buffer_free(&c->answer);
    lsi_buffer_free(&c->events);
    free(c);
}

/* Connect, prove each other and become a member, once. */
static ls_status join(client *c, const char *address, const lsi_key *key, double deadline)
{
    static const uint8_t nobody[LSI_AUTH_IDENTITY_BYTES];
    uint8_t welcome;
    int fd;
    LSI_TRY(lsi_net_connect(address, deadline, &fd));
    lsi_auth auth;
    ls_status status = lsi_auth_client(&auth, fd, key, LSI_AUTH_STORE, nobody);
    if (status == LS_OK)
        status = lsi_auth_run(&auth, deadline, c->who);
    if (status == LS_OK) /* the server may not have read our proof yet, and drop us */
        status = lsi_net_recv_all(fd, &welcome, 1, deadline, c->who);
    if (status == LS_OK && welcome != LSI_STORE_WELCOME)
        status = lsi_fail(LS_ERR_PROTOCOL, "do both sides have the same version of Lockstep?",
                          "store", "%s does not greet", c->who);
    if (status != LS_OK) {
        close(fd);
        return status;
    }
    c->fd = fd;
    return LS_OK;
}

static ls_status store_open(const char *address, const lsi_key *key, double timeout_s,
                            lsi_store **out)
{
    double deadline = lsi_now() + timeout_s;
    client *c = calloc(1, sizeof *c);
    if (!c)
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for a client");
    c->base.ops = &lsi_store_tcp;
    c->fd = -1;
    c->timeout_s = timeout_s;
    snprintf(c->who, sizeof c->who, "the store at %.*s", LSI_ADDR_MAX - 1, address);
    ls_status status = LS_OK;
    for (int attempt = 0; attempt < OPEN_ATTEMPTS; attempt++) {
        status = join(c, address, key, deadline);
        if (status != LS_ERR_PEER_DEAD || !(lsi_now() < deadline))
            break;
        poll(NULL, 0, attempt < 6 ? 2 << attempt : 200);
    }
    if (status != LS_OK) {
        store_close(&c->base);
        return status;
    }
    *out = &c->base;
    return LS_OK;
}

static ls_status break_off(client *c, ls_status status)
{
    c->broken = status;
    return status;
}

static ls_status fail_broken(const client *c)
{
    return lsi_fail(c->broken, "open the store again", "store",
                    "the connection to %s was lost before", c->who);
}

/* Sort the complete frames of `in`: events are queued, the awaited answer is kept. */
static ls_status sort_frames(client *c)
{
    for (;;) {
        lsi_store_message m;
        size_t frame;
        ls_status status =
            lsi_store_decode(LSI_STORE_SERVER, lsi_buffer_front(&c->in), c->in.used, &m, &frame);
        if (status == LS_IN_PROGRESS)
            return LS_OK;
        if (status != LS_OK)
            return break_off(c, status);
        if (m.op == LSI_STORE_EVENT) {
            status = lsi_buffer_append(&c->events, lsi_buffer_front(&c->in), frame);
        } else if (m.id == c->last_id && !c->answered) {
            status = lsi_buffer_append(&c->answer, lsi_buffer_front(&c->in), frame);
            c->answered = 1;
        } else if ((int32_t)(m.id - c->last_id) >= 0) {
            status = lsi_fail(LS_ERR_PROTOCOL, NULL, "store", "%s answers a question never asked",
                              c->who);
        }
        if (status != LS_OK)
            return break_off(c, status);
        lsi_buffer_drop(&c->in, frame);
    }
}

/* Take what the socket has: LS_IN_PROGRESS when that is nothing. */
static ls_status receive(client *c)
{
    uint8_t *end;
    ls_status status = lsi_buffer_reserve(&c->in, RECEIVE_BYTES, &end);
    if (status != LS_OK)
        return break_off(c, status);
    for (;;) {
        ssize_t n = recv(c->fd, end, RECEIVE_BYTES, 0);
        if (n > 0) {
            lsi_buffer_added(&c->in, (size_t)n);
            return sort_frames(c);
        }
        if (n == 0)
            return break_off(c, lsi_fail(LS_ERR_PEER_DEAD, "has the launcher ended?", "store",
                                         "%s closed the connection", c->who));
        if (errno == EAGAIN)
            return LS_IN_PROGRESS;
        if (errno != EINTR)
            return break_off(c, lsi_net_fail("store", c->who));
    }
}

/* Send what is left of requests: LS_IN_PROGRESS when the deadline passed before all was gone. */
static ls_status send_requests(client *c, double deadline)
{
    while (c->out.used > 0) {
        ssize_t n = send(c->fd, lsi_buffer_front(&c->out), c->out.used, MSG_NOSIGNAL);
        if (n >= 0)
            lsi_buffer_drop(&c->out, (size_t)n);
        else if (errno == EAGAIN)
            LSI_TRY(lsi_net_wait(c->fd, POLLOUT, deadline));
        else if (errno != EINTR)
            return break_off(c, lsi_net_fail("store", c->who));
    }
    return LS_OK;
}

/* Receive, waiting at most until the deadline: LS_IN_PROGRESS when that passed. */
static ls_status receive_before(client *c, double deadline)
{
    ls_status status = receive(c);
    if (status != LS_IN_PROGRESS)
        return status;
    status = lsi_net_wait(c->fd, POLLIN, deadline);
    return status == LS_OK ? receive(c) : status;
}

/* The events handed out by the previous call are not needed any more. */
static void begin_call(client *c)
{
    lsi_buffer_drop(&c->events, c->shown);
    c->shown = 0;
}

/* Send a request and wait for its answer: LS_IN_PROGRESS at the deadline. */
static ls_status ask(client *c, lsi_store_message *request, double deadline,
                     lsi_store_message *answer)
{
    begin_call(c);
    if (c->broken != LS_OK)
        return fail_broken(c);
    LSI_TRY(send_requests(c, deadline)); /* the rest of one that was given up */
    if (++c->last_id == 0)
        c->last_id = 1;
    request->id = c->last_id;
    c->answered = 0;
    lsi_buffer_drop(&c->answer, c->answer.used);
    LSI_TRY(lsi_store_encode(request, &c->out));
    LSI_TRY(send_requests(c, deadline));
    while (!c->answered)
        LSI_TRY(receive_before(c, deadline));
    size_t frame;
    return lsi_store_decode(LSI_STORE_SERVER, lsi_buffer_front(&c->answer), c->answer.used, answer,
                            &frame);
}

/* Words for the refusal of a request. */
static ls_status fail_refused(const lsi_store_message *request, const lsi_store_message *answer,
                              const char *what)
{
    const char *key = request->key;
    unsigned long long number = request->number, present = answer->version;
    switch (answer->status) {
    case LS_ERR_NOT_FOUND:
        if (number != 0)
            return lsi_fail(answer->status, "keep it more often than its time to live", what,
                            "%s%slease %llu has ended", key, *key ? ": " : "", number);
        return lsi_fail(answer->status, NULL, what, "there is no key %s", key);
    case LS_ERR_CONFLICT:
        return lsi_fail(answer->status, "read it again and decide anew", what,
                        "%s has version %llu, not %llu", key, present,
                        (unsigned long long)request->version);
    case LS_ERR_NOMEM:
        return lsi_fail(answer->status, "remove keys that nobody needs", what,
                        "%s: the store is full", key);
    case LS_ERR_UNSUPPORTED:
        return lsi_fail(answer->status, "watch a shorter prefix instead of many", what,
                        "%s: too many watches", key);
    default:
        return lsi_fail(answer->status, NULL, what, "%s: the store answers %s", key,
                        ls_status_name(answer->status));
    }
}

/* Ask with the deadline of open; all but LS_OK is recorded. */
static ls_status call(client *c, lsi_store_message *request, const char *what,
                      lsi_store_message *answer)
{
    ls_status status = ask(c, request, lsi_now() + c->timeout_s, answer);
    if (status == LS_IN_PROGRESS)
        return lsi_fail(LS_ERR_TIMEOUT, "is its launcher alive, and not stopped?", what,
                        "%s: %s did not answer within %.1f s", request->key, c->who, c->timeout_s);
    LSI_TRY(status);
    return answer->status == LS_OK ? LS_OK : fail_refused(request, answer, what);
}

/* A key into a request, after looking at it. */
static ls_status set_key(lsi_store_message *request, const char *key, int may_be_empty,
                         const char *what)
{
    size_t bytes = strnlen(key, LSI_STORE_KEY_MAX + 1);
    if (!lsi_store_key_valid(key, bytes) || (bytes == 0 && !may_be_empty))
        return lsi_fail(LS_ERR_INVALID, "1 to 200 printable ASCII characters without spaces", what,
                        "'%.*s' is not a key", LSI_STORE_KEY_MAX, key);
    memcpy(request->key, key, bytes + 1);
    return LS_OK;
}

static ls_status store_get(lsi_store *store, const char *key, const uint8_t **value, size_t *bytes,
                           uint64_t *version)
{
    lsi_store_message request = {.op = LSI_STORE_GET}, answer;
    LSI_TRY(set_key(&request, key, 0, "get"));
    LSI_TRY(call((client *)store, &request, "get", &answer));
    *value = answer.value;
    *bytes = answer.bytes;
    *version = answer.version;
    return LS_OK;
}

static ls_status put(lsi_store *store, lsi_store_message *request, const char *what,
                     const char *key, const void *value, size_t bytes, uint64_t *version)
{
    lsi_store_message answer;
    LSI_TRY(set_key(request, key, 0, what));
    if (bytes > LSI_STORE_VALUE_MAX)
        return lsi_fail(LS_ERR_INVALID, "the store is for addresses and lists, not for data", what,
                        "%s: a value of %zu bytes, %zu are the limit", key, bytes,
                        LSI_STORE_VALUE_MAX);
    request->value = value;
    request->bytes = bytes;
    LSI_TRY(call((client *)store, request, what, &answer));
    if (version)
        *version = answer.version;
    return LS_OK;
}

static ls_status store_put(lsi_store *store, const char *key, const void *value, size_t bytes,
                           uint64_t lease, uint64_t *version)
{
    lsi_store_message request = {.op = LSI_STORE_PUT, .number = lease};
    return put(store, &request, "put", key, value, bytes, version);
}

static ls_status store_compare_and_put(lsi_store *store, const char *key, uint64_t expected,
                                       const void *value, size_t bytes, uint64_t lease,
                                       uint64_t *version)
{
    lsi_store_message request = {.op = LSI_STORE_CAS, .version = expected, .number = lease};
    return put(store, &request, "compare-and-put", key, value, bytes, version);
}

static ls_status store_remove(lsi_store *store, const char *key)
{
    lsi_store_message request = {.op = LSI_STORE_REMOVE}, answer;
    LSI_TRY(set_key(&request, key, 0, "remove"));
    return call((client *)store, &request, "remove", &answer);
}

static ls_status store_lease(lsi_store *store, double ttl_s, uint64_t *lease)
{
    if (!(ttl_s >= 1e-3 && ttl_s <= LSI_STORE_MS_MAX * 1e-3))
        return lsi_fail(LS_ERR_INVALID, "1 ms to 30 days", "lease", "a time to live of %g s",
                        ttl_s);
    lsi_store_message request = {.op = LSI_STORE_LEASE, .number = (uint64_t)(ttl_s * 1e3)}, answer;
    LSI_TRY(call((client *)store, &request, "lease", &answer));
    *lease = answer.number;
    return LS_OK;
}

/* Keep and revoke. */
static ls_status call_lease(lsi_store *store, lsi_store_op op, uint64_t lease, const char *what)
{
    if (lease == 0)
        return lsi_fail(LS_ERR_INVALID, NULL, what, "0 is no lease");
    lsi_store_message request = {.op = op, .number = lease}, answer;
    return call((client *)store, &request, what, &answer);
}

static ls_status store_keep(lsi_store *store, uint64_t lease)
{
    return call_lease(store, LSI_STORE_KEEP, lease, "keep");
}

static ls_status store_revoke(lsi_store *store, uint64_t lease)
{
    return call_lease(store, LSI_STORE_REVOKE, lease, "revoke");
}

static ls_status store_watch(lsi_store *store, const char *prefix)
{
    lsi_store_message request = {.op = LSI_STORE_WATCH}, answer;
    LSI_TRY(set_key(&request, prefix, 1, "watch"));
    return call((client *)store, &request, "watch", &answer);
}

static ls_status store_next(lsi_store *store, double timeout_s, lsi_store_event *event)
{
    client *c = (client *)store;
    double deadline = lsi_now() + timeout_s;
    begin_call(c);
    while (c->events.used == 0) {
        if (c->broken != LS_OK)
            return fail_broken(c);
        LSI_TRY(receive_before(c, deadline));
    }
    return lsi_store_show(&c->events, &c->shown, event);
}

static int store_fd(lsi_store *store)
{
    return ((client *)store)->fd;
}

static ls_status store_wait(lsi_store *store, const char *key, double timeout_s,
                            const uint8_t **value, size_t *bytes)
{
    client *c = (client *)store;
    /* The server keeps the time; the client's own deadline is for a server that is stuck. A short
     * wait leaves it enough time to answer that the key is there already. */
    double grace = c->timeout_s < SHORT_WAIT_S ? c->timeout_s : SHORT_WAIT_S;
    double deadline = lsi_now() + timeout_s;
    double patience = lsi_now() + (timeout_s > grace ? timeout_s : grace);
    for (;;) {
        lsi_store_message request = {.op = LSI_STORE_WAIT}, answer;
        LSI_TRY(set_key(&request, key, 0, "wait for"));
        double ms = (deadline - lsi_now()) * 1e3;
        request.number = ms > LSI_STORE_MS_MAX ? LSI_STORE_MS_MAX : ms > 0 ? (uint64_t)ms + 1 : 0;
        LSI_TRY(ask(c, &request, patience, &answer));
        if (answer.status == LS_OK) {
            *value = answer.value;
            *bytes = answer.bytes;
            return LS_OK;
        }
        if (answer.status != LS_ERR_TIMEOUT)
            return fail_refused(&request, &answer, "wait for");
        if (!(lsi_now() < deadline))
            return LS_IN_PROGRESS;
    }
}

const lsi_store_ops lsi_store_tcp = {
    .name = "tcp",
    .open = store_open,
    .close = store_close,
    .get = store_get,
    .put = store_put,
    .compare_and_put = store_compare_and_put,
    .remove = store_remove,
    .lease = store_lease,
    .keep = store_keep,
    .revoke = store_revoke,
    .watch = store_watch,
    .next = store_next,
    .fd = store_fd,
    .wait = store_wait,
};

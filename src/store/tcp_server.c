/* The embedded server's sockets: who may come in, and bytes in both directions.
 *
 *     listener -> stranger (handshake) -> member (session of the service, see service.h)
 *
 * Invariants:
 * 1. Nothing here blocks. A step reads at most RECEIVE_BYTES of a client, so none starves others.
 * 2. A stranger costs a descriptor and a fixed struct, for at most LSI_AUTH_DEADLINE_S: no byte of
 *    it reaches the service before both sides are proven. When there are too many strangers, or too
 *    many clients, the oldest stranger goes first.
 * 3. A dropped client's struct lives until the end of the step, because epoll events already taken
 *    may point to it.
 * 4. Descriptors leave epoll before they are closed: a child just forked may hold a copy, and then
 *    closing alone would leave the registration, and a pointer to freed memory, behind.
 */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auth.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net.h"
#include "base/status.h"
#include "store/protocol.h"
#include "store/service.h"
#include "store/store.h"

#define CLIENTS_MAX 4096
#define STRANGERS_MAX 128
#define EVENTS_MAX 128
#define ACCEPTS_MAX 64 /* a step */
#define RECEIVE_BYTES 65536
#define PAUSE_S 0.1 /* of the listener, when descriptors have run out */

typedef struct client {
    TAILQ_ENTRY(client) link;
    int fd;
    int is_member, is_dropped;
    uint32_t interest;    /* epoll events asked for */
    double deadline;      /* of a stranger's handshake */
    lsi_session *session; /* of a member */
    lsi_auth auth;
} client;

TAILQ_HEAD(client_list, client);

struct lsi_store_server {
    int epoll, listener;
    double paused_until; /* the listener is not looked at before, 0: it is */
    int has_complained;  /* that descriptors have run out, since they did */
    lsi_key key;
    lsi_service *service;
    struct client_list strangers, members, dropped; /* each in order of arrival */
    size_t stranger_count, member_count;
    char address[LSI_ADDR_MAX];
    uint8_t received[RECEIVE_BYTES];
};

static ls_status set_interest(lsi_store_server *server, int op, int fd, uint32_t interest,
                              void *who)
{
    struct epoll_event event = {.events = interest, .data.ptr = who};
    if (epoll_ctl(server->epoll, op, fd, &event) != 0)
        return lsi_fail_errno("store", "epoll_ctl");
    return LS_OK;
}

ls_status lsi_store_server_create(const char *host, int port, const lsi_key *key,
                                  lsi_store_server **out)
{
    lsi_store_server *server = calloc(1, sizeof *server);
    if (!server)
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for the server");
    TAILQ_INIT(&server->strangers);
    TAILQ_INIT(&server->members);
    TAILQ_INIT(&server->dropped);
    server->key = *key;
    server->listener = -1;
    ls_status status = LS_OK;
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll < 0)
        status = lsi_fail_errno("store", "epoll_create1");
    if (status == LS_OK)
        status = lsi_net_listen(host, port, &server->listener, server->address);
    if (status == LS_OK)
        status = set_interest(server, EPOLL_CTL_ADD, server->listener, EPOLLIN, NULL);
    if (status == LS_OK)
        status = lsi_service_create(&server->service);
    if (status != LS_OK) {
        lsi_store_server_destroy(server);
        return status;
    }
    *out = server;
    return LS_OK;
}

/* Part with a client; its struct is freed at the end of the step. `why` may be NULL. */
static void drop(lsi_store_server *server, client *c, const char *why)
{
    if (lsi_log_enabled(LSI_LOG_INFO) && why) {
        char address[LSI_ADDR_MAX];
        lsi_net_peer(c->fd, address);
        lsi_log(LSI_LOG_INFO, "store: dropped %s: %s", address, why);
    }
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    shutdown(c->fd, SHUT_RDWR); /* also if a child just forked holds a copy */
    close(c->fd);
    TAILQ_REMOVE(c->is_member ? &server->members : &server->strangers, c, link);
    if (c->is_member)
        server->member_count--;
    else
        server->stranger_count--;
    lsi_session_close(c->session);
    c->session = NULL;
    c->is_dropped = 1;
    TAILQ_INSERT_TAIL(&server->dropped, c, link);
}

static void free_dropped(lsi_store_server *server)
{
    while (!TAILQ_EMPTY(&server->dropped)) {
        client *c = TAILQ_FIRST(&server->dropped);
        TAILQ_REMOVE(&server->dropped, c, link);
        free(c);
    }
}

void lsi_store_server_destroy(lsi_store_server *server)
{
    if (!server)
        return;
    while (!TAILQ_EMPTY(&server->strangers))
        drop(server, TAILQ_FIRST(&server->strangers), NULL);
    while (!TAILQ_EMPTY(&server->members))
        drop(server, TAILQ_FIRST(&server->members), NULL);
    free_dropped(server);
    lsi_service_destroy(server->service);
    if (server->listener >= 0) {
        shutdown(server->listener, SHUT_RDWR);
        close(server->listener);
    }
    if (server->epoll >= 0)
        close(server->epoll);
    OPENSSL_cleanse(&server->key, sizeof server->key);
    free(server);
}

const char *lsi_store_server_address(const lsi_store_server *server)
{
    return server->address;
}

int lsi_store_server_fd(const lsi_store_server *server)
{
    return server->epoll;
}

static ls_status want(lsi_store_server *server, client *c, uint32_t interest)
{
    if (c->interest == interest)
        return LS_OK;
    LSI_TRY(set_interest(server, EPOLL_CTL_MOD, c->fd, interest, c));
    c->interest = interest;
    return LS_OK;
}

/* A new connection becomes a stranger. Takes over `fd`. */
static void welcome_take(lsi_store_server *server, int fd)
{
    client *c = calloc(1, sizeof *c);
    if (!c || lsi_auth_server(&c->auth, fd, &server->key, LSI_AUTH_STORE) != LS_OK ||
        set_interest(server, EPOLL_CTL_ADD, fd, EPOLLIN, c) != LS_OK) {
        free(c);
        close(fd);
        return;
    }
    c->fd = fd;
    c->interest = EPOLLIN;
    c->deadline = lsi_now() + LSI_AUTH_DEADLINE_S;
    TAILQ_INSERT_TAIL(&server->strangers, c, link);
    server->stranger_count++;
}

/* Descriptors have run out: give up the oldest stranger, or look away for a moment (the waiting
 * connection would make epoll report it again and again). */
static void relieve(lsi_store_server *server)
{
    client *oldest = TAILQ_FIRST(&server->strangers);
    if (oldest) {
        drop(server, oldest, "descriptors have run out");
        return;
    }
    if (!server->has_complained)
        lsi_log(LSI_LOG_WARN, "store: %s", ls_last_error());
    server->has_complained = 1;
    if (set_interest(server, EPOLL_CTL_MOD, server->listener, 0, NULL) == LS_OK)
        server->paused_until = lsi_now() + PAUSE_S;
}

static void accept_some(lsi_store_server *server)
{
    for (int i = 0; i < ACCEPTS_MAX && server->paused_until == 0; i++) {
        int fd;
        ls_status status = lsi_net_accept(server->listener, &fd);
        if (status == LS_IN_PROGRESS)
            return;
        if (status != LS_OK) {
            relieve(server);
            continue;
        }
        server->has_complained = 0;
        client *oldest = TAILQ_FIRST(&server->strangers);
        int is_full = server->member_count + server->stranger_count >= CLIENTS_MAX;
        if (oldest && (is_full || server->stranger_count >= STRANGERS_MAX))
            drop(server, oldest, "too many connections without a handshake");
        else if (is_full) {
            lsi_log(LSI_LOG_WARN, "store: refused a connection, there are %d", CLIENTS_MAX);
            close(fd);
            continue;
        }
        welcome_take(server, fd);
    }
}

/* A stranger's handshake moves on; at its end it is a member, and is told so. */
static void advance(lsi_store_server *server, client *c)
{
    static const uint8_t welcome = LSI_STORE_WELCOME;
    ls_status status = lsi_auth_step(&c->auth);
    int writes = status == LS_IN_PROGRESS && lsi_auth_wants_write(&c->auth);
    if (status >= LS_OK && want(server, c, writes ? EPOLLOUT : EPOLLIN) != LS_OK)
        status = LS_ERR_SYSTEM;
    if (status == LS_OK)
        status = lsi_session_open(server->service, &c->session);
    if (status == LS_OK)
        status = lsi_buffer_append(lsi_session_output(c->session), &welcome, 1);
    if (status == LS_OK) {
        TAILQ_REMOVE(&server->strangers, c, link);
        server->stranger_count--;
        c->is_member = 1;
        TAILQ_INSERT_TAIL(&server->members, c, link);
        server->member_count++;
    } else if (status != LS_IN_PROGRESS) {
        drop(server, c, ls_last_error());
    }
}

static void read_requests(lsi_store_server *server, client *c, double now)
{
    ssize_t n = recv(c->fd, server->received, sizeof server->received, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        drop(server, c, strerror(errno));
    else if (n == 0)
        drop(server, c, NULL); /* the usual end */
    else
        lsi_session_input(c->session, server->received, (size_t)n, now); /* flush looks at health */
}

/* Send what the socket takes. An error means that the client is to be dropped. */
static ls_status send_answers(lsi_store_server *server, client *c)
{
    lsi_buffer *out = lsi_session_output(c->session);
    while (out->used > 0) {
        ssize_t n = send(c->fd, lsi_buffer_front(out), out->used, MSG_NOSIGNAL);
        if (n >= 0)
            lsi_buffer_drop(out, (size_t)n);
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR)
            return lsi_net_fail("store", "a client");
    }
    return want(server, c, out->used > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Send to all members what is queued for them. One that has failed is dropped, of which others may
 * have to hear (its leases end): then once more. */
static void flush(lsi_store_server *server)
{
    for (int again = 1; again;) {
        again = 0;
        for (client *c = TAILQ_FIRST(&server->members), *next; c; c = next) {
            next = TAILQ_NEXT(c, link);
            if (lsi_session_health(c->session) != LS_OK) {
                drop(server, c, ls_status_name(lsi_session_health(c->session)));
                again = 1;
            } else if (lsi_session_output(c->session)->used > 0 &&
                       send_answers(server, c) != LS_OK) {
                drop(server, c, ls_last_error());
                again = 1;
            }
        }
    }
}

static void expire(lsi_store_server *server, double now)
{
    lsi_service_expire(server->service, now);
    /* Strangers are in order of arrival, so of deadlines too. */
    for (client *c; (c = TAILQ_FIRST(&server->strangers)) && c->deadline <= now;)
        drop(server, c, "no handshake before the deadline");
    if (server->paused_until != 0 && server->paused_until <= now &&
        set_interest(server, EPOLL_CTL_MOD, server->listener, EPOLLIN, NULL) == LS_OK)
        server->paused_until = 0;
}

void lsi_store_server_step(lsi_store_server *server)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(server->epoll, events, EVENTS_MAX, 0);
    double now = lsi_now();
    for (int i = 0; i < n; i++) {
        client *c = events[i].data.ptr;
        if (!c)
            accept_some(server);
        else if (c->is_dropped)
            continue;
        else if (!c->is_member)
            advance(server, c);
        else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            read_requests(server, c, now);
    }
    expire(server, now);
    flush(server);
    free_dropped(server);
}

ls_status lsi_store_server_put(lsi_store_server *server, const char *key, const void *value,
                               size_t bytes)
{
    size_t key_bytes = strnlen(key, LSI_STORE_KEY_MAX + 1);
    if (key_bytes == 0 || !lsi_store_key_valid(key, key_bytes) || bytes > LSI_STORE_VALUE_MAX)
        return lsi_fail(LS_ERR_INVALID, NULL, "put", "'%.*s' with %zu bytes is too long or no key",
                        LSI_STORE_KEY_MAX, key, bytes);
    uint64_t version;
    ls_status status =
        lsi_map_put(lsi_service_map(server->service), key, value, bytes, 0, &version);
    if (status != LS_OK)
        return lsi_fail(status, "remove keys that nobody needs", "put", "%s: the store is full",
                        key);
    flush(server);
    free_dropped(server);
    return LS_OK;
}

ls_status lsi_store_server_get(lsi_store_server *server, const char *key, const uint8_t **value,
                               size_t *bytes)
{
    const lsi_map_entry *entry = lsi_map_find(lsi_service_map(server->service), key);
    if (!entry)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, "get", "there is no key %.*s", LSI_STORE_KEY_MAX,
                        key);
    *value = entry->value;
    *bytes = entry->bytes;
    return LS_OK;
}

typedef struct visit {
    void (*each)(void *arg, const char *key, const uint8_t *value, size_t bytes);
    void *arg;
} visit;

static void visit_entry(void *arg, const lsi_map_entry *entry)
{
    const visit *v = arg;
    v->each(v->arg, entry->key, entry->value, entry->bytes);
}

void lsi_store_server_each(lsi_store_server *server, const char *prefix,
                           void (*each)(void *arg, const char *key, const uint8_t *value,
                                        size_t bytes),
                           void *arg)
{
    visit v = {each, arg};
    lsi_map_each(lsi_service_map(server->service), prefix, visit_entry, &v);
}

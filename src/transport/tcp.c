/* TCP links: the mesh of sockets, and moving bytes on one of them.
 *
 * 1. The connecting side says who it is (rank, lane, size) inside the handshake, which proves it.
 * 2. Nothing waits for one socket: all connections are driven together until the mesh is complete
 *    or the deadline passes.
 * 3. The accepting side ends the handshake with a byte of welcome, for it may have dropped the
 *    connection meanwhile (too many strangers): both sides adopt it, or the connecting one retries.
 */
#include "transport/tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

#define MAX_STRANGERS 64 /* connections that have not proven themselves yet */
#define RETRY_S 0.02

typedef struct tcp_link {
    lsi_link link;
    int fd;
} tcp_link;

static ls_status tcp_lost(const char *what)
{
    if (errno == EPIPE || errno == ECONNRESET || errno == ETIMEDOUT)
        return lsi_fail(LS_ERR_PEER_DEAD, NULL, what, "connection lost: %s", strerror(errno));
    return lsi_fail_errno(what, "socket");
}

static ls_status tcp_send(lsi_link *link, const struct iovec *vectors, int n, size_t *moved)
{
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)vectors, .msg_iovlen = (size_t)n};
    ssize_t k;
    do
        k = sendmsg(((tcp_link *)link)->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
        return tcp_lost("tcp send");
    *moved = k < 0 ? 0 : (size_t)k;
    return LS_OK;
}

static ls_status tcp_recv(lsi_link *link, const struct iovec *vectors, int n, size_t *moved)
{
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)vectors, .msg_iovlen = (size_t)n};
    ssize_t k;
    do
        k = recvmsg(((tcp_link *)link)->fd, &m, MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k == 0)
        return lsi_fail(LS_ERR_PEER_DEAD, NULL, "tcp recv", "connection closed");
    if (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
        return tcp_lost("tcp recv");
    *moved = k < 0 ? 0 : (size_t)k;
    return LS_OK;
}

static int tcp_fd(const lsi_link *link)
{
    return ((const tcp_link *)link)->fd;
}

static void tcp_close(lsi_link *link)
{
    close(((tcp_link *)link)->fd);
    free(link);
}

static const lsi_link_ops tcp_ops = {"tcp", tcp_send, tcp_recv, tcp_fd, tcp_close};

static lsi_link *make_link(int fd)
{
    tcp_link *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->link.ops = &tcp_ops;
    l->fd = fd;
    return &l->link;
}

/* One connection on its way into the mesh. */
typedef struct candidate {
    int fd;         /* -1: waiting for the next try (outgoing) */
    int peer, lane; /* outgoing: to whom; incoming: -1 until proven */
    int connecting;
    double next_try, deadline;
    lsi_auth auth;
} candidate;

typedef struct mesh_state {
    const lsi_tcp_mesh *mesh;
    lsi_link **links;
    candidate *all;
    struct pollfd *polls;
    int n, capacity, strangers, missing;
} mesh_state;

static void put_identity(uint8_t id[LSI_AUTH_IDENTITY_BYTES], int rank, int lane, int size)
{
    int32_t v[4] = {rank, lane, size, 0};
    memcpy(id, v, sizeof v);
}

static void drop(mesh_state *s, int i)
{
    if (s->all[i].peer < 0)
        s->strangers--;
    if (s->all[i].fd >= 0)
        close(s->all[i].fd);
    s->all[i] = s->all[--s->n];
}

/* A proven connection becomes a link. Returns 0 if it is not one that was expected. */
static int adopt(mesh_state *s, int i, int peer, int lane)
{
    const lsi_tcp_mesh *m = s->mesh;
    lsi_link **place = &s->links[peer * m->lanes + lane];
    if (*place)
        return 0;
    *place = make_link(s->all[i].fd);
    if (!*place)
        return 0;
    s->all[i].fd = -1;
    s->missing--;
    return 1;
}

/* Who says it is on the other end, and may it be? */
static int check_incoming(const lsi_tcp_mesh *m, const uint8_t *id, int *peer, int *lane)
{
    int32_t v[4];
    memcpy(v, id, sizeof v);
    *peer = v[0];
    *lane = v[1];
    return v[2] == m->size && v[0] > m->self && v[0] < m->size && v[1] >= 0 && v[1] < m->lanes &&
           m->addresses[v[0]][0];
}

/* Has the other side adopted this connection, too? LS_IN_PROGRESS: not yet. */
static ls_status await_welcome(const candidate *c)
{
    char welcome;
    ssize_t k = recv(c->fd, &welcome, 1, MSG_DONTWAIT);
    if (k == 1)
        return LS_OK;
    return k < 0 && (errno == EAGAIN || errno == EINTR) ? LS_IN_PROGRESS : LS_ERR_PEER_DEAD;
}

/* Drive candidate i; returns 1 if it left the list. */
static int drive(mesh_state *s, int i)
{
    const lsi_tcp_mesh *m = s->mesh;
    candidate *c = &s->all[i];
    if (c->connecting) {
        if (lsi_net_connected(c->fd, m->addresses[c->peer]) != LS_OK)
            goto retry;
        c->connecting = 0;
    }
    ls_status status = lsi_auth_step(&c->auth);
    if (status == LS_OK && c->peer >= 0)
        status = await_welcome(c);
    if (status == LS_IN_PROGRESS)
        return 0;
    if (c->peer >= 0) {
        if (status != LS_OK)
            goto retry;
        adopt(s, i, c->peer, c->lane);
    } else if (status == LS_OK) {
        int peer, lane;
        if (check_incoming(m, lsi_auth_identity(&c->auth), &peer, &lane) &&
            send(c->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
            adopt(s, i, peer, lane);
    } else {
        lsi_log(LSI_LOG_INFO, "tcp: dropped a connection: %s", ls_last_error());
    }
    drop(s, i);
    return 1;
retry:
    close(c->fd);
    c->fd = -1;
    c->connecting = 0;
    c->next_try = lsi_now() + RETRY_S;
    return 0;
}

static void start_connect(mesh_state *s, candidate *c)
{
    const lsi_tcp_mesh *m = s->mesh;
    uint8_t id[LSI_AUTH_IDENTITY_BYTES];
    put_identity(id, m->self, c->lane, m->size);
    c->next_try = lsi_now() + RETRY_S;
    if (lsi_net_connect_start(m->addresses[c->peer], &c->fd) != LS_OK) {
        c->fd = -1;
        return;
    }
    c->connecting = 1;
    if (lsi_auth_client(&c->auth, c->fd, m->key, LSI_AUTH_RANK, id) != LS_OK) {
        close(c->fd);
        c->fd = -1;
    }
}

static void accept_all(mesh_state *s)
{
    int fd;
    while (lsi_net_accept(s->mesh->listener, &fd) == LS_OK) {
        if (s->strangers == MAX_STRANGERS) { /* make room: drop the oldest stranger */
            int oldest = -1;
            for (int i = 0; i < s->n; i++)
                if (s->all[i].peer < 0 &&
                    (oldest < 0 || s->all[i].deadline < s->all[oldest].deadline))
                    oldest = i;
            drop(s, oldest);
        }
        candidate *c = &s->all[s->n];
        *c = (candidate){.fd = fd, .peer = -1, .deadline = lsi_now() + LSI_AUTH_DEADLINE_S};
        if (lsi_auth_server(&c->auth, fd, s->mesh->key, LSI_AUTH_RANK) != LS_OK) {
            close(fd);
            continue;
        }
        s->n++;
        s->strangers++;
    }
}

static ls_status report_missing(const mesh_state *s)
{
    const lsi_tcp_mesh *m = s->mesh;
    char list[256] = "";
    size_t used = 0;
    for (int p = 0; p < m->size; p++)
        for (int l = 0; l < m->lanes; l++)
            if (p != m->self && m->addresses[p][0] && !s->links[p * m->lanes + l]) {
                if (used < sizeof list - 32)
                    used += (size_t)snprintf(list + used, sizeof list - used, " %d (%s)", p,
                                             m->addresses[p]);
                break;
            }
    return lsi_fail(LS_ERR_TIMEOUT, "is it running, and does the network let it through?",
                    "connecting the group", "rank %d has no connection with rank%s", m->self, list);
}

/* One round: connect what is due, wait a little, drive what is ready. */
static ls_status mesh_round(mesh_state *s)
{
    double now = lsi_now(), wake = s->mesh->deadline;
    for (int i = s->n - 1; i >= 0; i--) {
        candidate *c = &s->all[i];
        if (c->peer < 0 && now > c->deadline) {
            drop(s, i);
            continue;
        }
        if (c->peer >= 0 && c->fd < 0 && now >= c->next_try)
            start_connect(s, c);
        if (c->fd < 0 && c->next_try < wake)
            wake = c->next_try;
    }
    for (int i = 0; i < s->n; i++) {
        const candidate *c = &s->all[i];
        short events =
            c->connecting || (c->fd >= 0 && lsi_auth_wants_write(&c->auth)) ? POLLOUT : POLLIN;
        s->polls[i] = (struct pollfd){c->fd, events, 0};
    }
    int n = s->n, wait_ms = (int)((wake - now) * 1e3) + 1;
    s->polls[n] = (struct pollfd){s->mesh->listener, POLLIN, 0};
    if (poll(s->polls, (nfds_t)n + 1,
             wait_ms < 1     ? 1
             : wait_ms > 100 ? 100
                             : wait_ms) < 0 &&
        errno != EINTR)
        return lsi_fail_errno("connecting the group", "poll");
    for (int i = n - 1; i >= 0; i--) /* backwards: a drop moves the last one into the hole */
        if (s->polls[i].revents)
            drive(s, i);
    if (s->polls[n].revents)
        accept_all(s);
    return LS_OK;
}

ls_status lsi_tcp_connect(const lsi_tcp_mesh *mesh, lsi_link **links)
{
    mesh_state s = {.mesh = mesh, .links = links};
    s.capacity = mesh->size * mesh->lanes + MAX_STRANGERS + 1;
    s.all = calloc((size_t)s.capacity, sizeof *s.all);
    s.polls = calloc((size_t)s.capacity + 1, sizeof *s.polls);
    ls_status status = LS_OK;
    if (!s.all || !s.polls) {
        status = lsi_fail(LS_ERR_NOMEM, NULL, "connecting the group", "out of memory");
        goto free_lists;
    }
    for (int p = 0; p < mesh->size; p++)
        for (int l = 0; l < mesh->lanes && p != mesh->self && mesh->addresses[p][0]; l++) {
            s.missing++;
            if (p < mesh->self)
                s.all[s.n++] = (candidate){.fd = -1, .peer = p, .lane = l};
        }
    while (s.missing > 0 && status == LS_OK) {
        if (mesh->check)
            status = mesh->check(mesh->arg);
        if (status == LS_OK)
            status = lsi_now() > mesh->deadline ? report_missing(&s) : mesh_round(&s);
    }
    while (s.n > 0)
        drop(&s, s.n - 1);
    for (int i = 0; status != LS_OK && i < mesh->size * mesh->lanes; i++)
        if (links[i] && links[i]->ops == &tcp_ops) {
            tcp_close(links[i]);
            links[i] = NULL;
        }
free_lists:
    free(s.polls);
    free(s.all);
    return status;
}

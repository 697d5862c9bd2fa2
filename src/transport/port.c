/* The port's queues, matching and life. */
#include "transport/port.h"

#include <errno.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/port_internal.h"

#define DISCARD_BYTES ((size_t)64 << 10)
#define MAX_EVENTS 64
#define KEPT_LEAST ((size_t)4096)
#define FLUSH_S 0.1

void lsi_queue_init(lsi_xfer_queue *queue)
{
    queue->head = NULL;
    queue->tail = &queue->head;
}

void lsi_queue_push(lsi_xfer_queue *queue, lsi_xfer *xfer)
{
    xfer->next = NULL;
    *queue->tail = xfer;
    queue->tail = &xfer->next;
}

lsi_xfer *lsi_queue_take(lsi_xfer_queue *queue, const lsi_wire *wire)
{
    for (lsi_xfer **p = &queue->head; *p; p = &(*p)->next) {
        lsi_xfer *x = *p;
        if (!lsi_same_key(&x->wire, wire))
            continue;
        *p = x->next;
        if (!*p)
            queue->tail = p;
        return x;
    }
    return NULL;
}

void lsi_port_end(lsi_port *port, lsi_xfer *xfer, ls_status status)
{
    if (xfer->part_of) {
        lsi_part_end(port, xfer, status);
        return;
    }
    xfer->status = status;
    if (xfer->pooled) {
        free(xfer->data);
        xfer->data = NULL;
        xfer->next = port->control_free;
        port->control_free = xfer;
    }
}

/* Complete all of a queue with an error. */
static void fail_queue(lsi_port *port, lsi_xfer_queue *queue)
{
    while (queue->head) {
        lsi_xfer *x = queue->head;
        queue->head = x->next;
        lsi_port_end(port, x, LS_ERR_PEER_DEAD);
    }
    lsi_queue_init(queue);
}

void lsi_port_lose(lsi_port *port, int rank, const char *text)
{
    lsi_peer *peer = &port->peers[rank];
    char cause[LSI_ERROR_MAX];
    if (!peer->linked || peer->losing)
        return;
    peer->losing = 1;
    snprintf(cause, sizeof cause, "%s", text);
    for (int l = 0; l < peer->n_lanes; l++) /* its last words may stand in another lane */
        while (lsi_lane_receive(port, &peer->lanes[l]))
            ;
    peer->linked = 0;
    for (int l = 0; l < peer->n_lanes; l++) {
        lsi_lane *lane = &peer->lanes[l];
        if (lane->xfer)
            lsi_port_end(port, lane->xfer, LS_ERR_PEER_DEAD);
        lane->xfer = NULL;
        fail_queue(port, &lane->sending);
        for (int i = 0; i < port->n_polled; i++)
            if (port->polled[i] == lane)
                port->polled[i] = port->polled[--port->n_polled];
        if (lane->link->ops->fd(lane->link) >= 0)
            port->sockets--;
        lane->link->ops->close(lane->link);
        lane->link = NULL;
    }
    fail_queue(port, &peer->receiving);
    fail_queue(port, &peer->unacked);
    if (port->config.events.lost)
        port->config.events.lost(port->config.events.arg, rank, peer->orderly, cause);
}

lsi_kept *lsi_port_keep(lsi_port *port, int peer, const lsi_wire *wire, size_t bytes)
{
    lsi_kept **p = &port->kept_free;
    while (*p && (*p)->capacity < bytes)
        p = &(*p)->next;
    lsi_kept *k = *p;
    if (k) {
        *p = k->next;
    } else {
        while (port->kept_free && port->kept_bytes + bytes > LSI_PORT_KEPT_LIMIT) {
            k = port->kept_free; /* too small, as are all that are free: give them back */
            port->kept_free = k->next;
            port->kept_bytes -= k->capacity;
            free(k->data);
            free(k);
        }
        if (port->kept_bytes && port->kept_bytes + bytes > LSI_PORT_KEPT_LIMIT &&
            !lsi_part_kept_alone(port, peer, wire))
            return NULL;
        size_t least = KEPT_LEAST; /* sizes that fit others, too: the pool is warm soon */
        while (least < bytes)
            least *= 2;
        bytes = bytes ? least : 0;
        k = calloc(1, sizeof *k);
        if (k && bytes && !(k->data = malloc(bytes))) {
            free(k);
            k = NULL;
        }
        if (!k)
            return NULL;
        k->capacity = bytes;
        port->kept_bytes += bytes;
    }
    k->peer = peer;
    k->wire = *wire;
    k->complete = 0;
    k->next = NULL;
    lsi_kept **end = &port->kept;
    while (*end)
        end = &(*end)->next;
    *end = k;
    return k;
}

void lsi_port_release(lsi_port *port, lsi_kept *kept)
{
    for (lsi_kept **p = &port->kept; *p; p = &(*p)->next)
        if (*p == kept) {
            *p = kept->next;
            break;
        }
    kept->next = port->kept_free;
    port->kept_free = kept;
}

int lsi_port_agrees(lsi_port *port, lsi_xfer *xfer, const lsi_wire *wire, uint64_t bytes)
{
    const lsi_wire mine = xfer->wire;
    const lsi_wire_call *a = &mine.call, *b = &wire->call;
    const int peer = xfer->peer;
    if (bytes == mine.bytes && wire->whole == mine.whole && a->coll == b->coll &&
        a->dtype == b->dtype && a->count == b->count)
        return 1;
    lsi_port_end(port, xfer, LS_ERR_MISMATCH);
    port->config.events.differs(port->config.events.arg, peer, wire, &mine);
    return 0;
}

void lsi_port_copy_reference(lsi_port *port, lsi_xfer *xfer, const lsi_wire *wire, uint64_t offset,
                             uint64_t bytes)
{
    if (!lsi_port_agrees(port, xfer, wire, bytes))
        return;
    if (offset > port->config.segment_bytes || bytes > port->config.segment_bytes - offset) {
        xfer->status = LS_ERR_PEER_DEAD;
        lsi_port_lose(port, xfer->peer, "sent a reference outside of the segment");
        return;
    }
    if (bytes)
        memcpy(xfer->data, port->config.segment + offset, (size_t)bytes);
    xfer->status = LS_OK;
    lsi_xfer *ack = port->control_free;
    if (ack)
        port->control_free = ack->next;
    else
        ack = calloc(1, sizeof *ack);
    if (!ack) {
        lsi_port_lose(port, xfer->peer, "out of memory for an acknowledgement");
        return;
    }
    *ack = (lsi_xfer){.peer = xfer->peer, .wire = xfer->wire, .pooled = 1};
    ack->wire.type = LSI_WIRE_ACK;
    ack->wire.bytes = 0;
    lsi_port_send(port, ack);
}

void lsi_port_sent(lsi_port *port, lsi_xfer *xfer)
{
    if (xfer->by_reference && !xfer->pooled) { /* pooled: its owner has forgotten it */
        lsi_queue_push(&port->peers[xfer->peer].unacked, xfer);
        return;
    }
    lsi_port_end(port, xfer, LS_OK);
}

static int in_segment(const lsi_port *port, const lsi_xfer *x)
{
    const char *p = x->data;
    return port->config.segment && p >= port->config.segment &&
           p < port->config.segment + port->config.segment_bytes;
}

void lsi_port_send(lsi_port *port, lsi_xfer *xfer)
{
    lsi_peer *peer = &port->peers[xfer->peer];
    if (!peer->linked) {
        lsi_port_end(port, xfer, LS_ERR_PEER_DEAD);
        return;
    }
    const int parts = lsi_port_parts(port, peer, xfer);
    if (parts > 1) {
        lsi_port_cut(port, xfer, parts, lsi_port_send);
        return;
    }
    lsi_lane *lane = &peer->lanes[(xfer->wire.tag + xfer->wire.part) % (uint32_t)peer->n_lanes];
    if (!xfer->wire.type)
        xfer->wire.type = LSI_WIRE_DATA;
    xfer->status = LS_IN_PROGRESS;
    xfer->started = 0;
    xfer->by_reference = xfer->wire.type == LSI_WIRE_DATA && xfer->wire.bytes >= 4096 &&
                         peer->n_lanes == 1 && lane->link->ops->fd(lane->link) < 0 &&
                         in_segment(port, xfer);
    int idle = !lane->sending.head;
    lsi_queue_push(&lane->sending, xfer);
    if (idle)
        lsi_lane_send(port, lane);
}

void lsi_port_recv(lsi_port *port, lsi_xfer *xfer)
{
    lsi_peer *peer = &port->peers[xfer->peer];
    const int parts = lsi_port_parts(port, peer, xfer);
    if (parts > 1) {
        lsi_port_cut(port, xfer, parts, lsi_port_recv);
        return;
    }
    xfer->status = LS_IN_PROGRESS;
    for (lsi_kept *k = port->kept; k; k = k->next) {
        if (k->peer != xfer->peer || !lsi_same_key(&k->wire, &xfer->wire))
            continue;
        if (!k->complete) /* its lane hands it over when the payload is in */
            break;
        if (k->wire.type == LSI_WIRE_REF) {
            lsi_wire wire = k->wire;
            uint64_t offset = k->ref_offset, bytes = k->ref_bytes;
            lsi_port_release(port, k);
            lsi_port_copy_reference(port, xfer, &wire, offset, bytes);
        } else if (lsi_port_agrees(port, xfer, &k->wire, k->wire.bytes)) {
            if (k->wire.bytes)
                memcpy(xfer->data, k->data, (size_t)k->wire.bytes);
            lsi_port_release(port, k);
            lsi_port_end(port, xfer, LS_OK);
        }
        return;
    }
    if (!peer->linked) {
        lsi_port_end(port, xfer, LS_ERR_PEER_DEAD);
        return;
    }
    lsi_queue_push(&peer->receiving, xfer);
}

void lsi_port_control(lsi_port *port, int peer, lsi_wire_type type, uint32_t comm, uint64_t seq,
                      const char *text)
{
    if (!port->peers[peer].linked)
        return;
    lsi_xfer *x = port->control_free;
    if (x)
        port->control_free = x->next;
    else if (!(x = calloc(1, sizeof *x)))
        return;
    *x = (lsi_xfer){.peer = peer, .pooled = 1};
    x->wire.type = type;
    x->wire.comm = comm;
    x->wire.seq = seq;
    if (text && (x->data = strndup(text, LSI_WIRE_MAX_CONTROL)))
        x->wire.bytes = strlen(x->data);
    lsi_port_send(port, x);
}

int lsi_port_progress(lsi_port *port)
{
    int moved = 0;
    for (int i = 0; i < port->n_polled; i++) {
        lsi_lane *lane = port->polled[i];
        if (lane->sending.head)
            moved |= lsi_lane_send(port, lane);
        moved |= lsi_lane_receive(port, lane);
    }
    if (port->sockets) {
        struct epoll_event events[MAX_EVENTS];
        int n = epoll_wait(port->epoll, events, MAX_EVENTS, 0);
        for (int i = 0; i < n; i++) {
            lsi_lane *lane = events[i].data.ptr;
            if (lane->link && lane->sending.head)
                moved |= lsi_lane_send(port, lane);
            if (lane->link)
                moved |= lsi_lane_receive(port, lane);
        }
    }
    if (port->again) {
        port->again = 0;
        for (int i = 0; i < port->n_lanes; i++)
            if (port->lane_store[i].link && lsi_lane_holds_message(&port->lane_store[i]))
                moved |= lsi_lane_receive(port, &port->lane_store[i]);
    }
    return moved;
}

void lsi_port_wait(lsi_port *port, double seconds)
{
    struct epoll_event event;
    if (port->sockets && !port->again)
        epoll_wait(port->epoll, &event, 1, (int)(seconds * 1e3 + 0.5));
}

int lsi_port_sockets(const lsi_port *port)
{
    return port->sockets;
}

/* Drop the xfers of a communicator from a queue. The one being sent (`active`) is replaced by a
 * copy that the port owns, so that the stream stays intact. */
static void forget_queue(lsi_port *port, lsi_xfer_queue *queue, uint32_t comm, int is_sending)
{
    lsi_xfer **p = &queue->head;
    queue->tail = &queue->head;
    while (*p) {
        lsi_xfer *x = *p;
        if (x->wire.comm != comm || x->pooled) {
            p = &x->next;
        } else if (is_sending && x->started) {
            size_t bytes = x->by_reference ? 0 : (size_t)x->wire.bytes;
            lsi_xfer *copy = calloc(1, sizeof *copy);
            char *data = malloc(bytes + 1);
            if (!copy || !data) { /* cannot finish the stream: give the peer up */
                free(copy);
                free(data);
                int peer = x->peer;
                while (*p)
                    p = &(*p)->next;
                queue->tail = p;
                lsi_port_lose(port, peer, "out of memory while ending an operation");
                return;
            }
            *copy = *x;
            copy->pooled = 1;
            copy->part_of = NULL;
            copy->data = bytes ? memcpy(data, x->data, bytes) : data;
            *p = copy;
            p = &copy->next;
            lsi_part_give(port, x);
        } else {
            *p = x->next;
            lsi_part_give(port, x);
        }
    }
    queue->tail = p;
}

void lsi_port_forget(lsi_port *port, uint32_t comm)
{
    for (int r = 0; r < port->config.size; r++) {
        lsi_peer *peer = &port->peers[r];
        if (!peer->linked)
            continue;
        forget_queue(port, &peer->receiving, comm, 0);
        forget_queue(port, &peer->unacked, comm, 0);
        for (int l = 0; l < peer->n_lanes && peer->linked; l++) {
            lsi_lane *lane = &peer->lanes[l];
            forget_queue(port, &lane->sending, comm, 1);
            if (lane->stage != LSI_RX_HEADER && lane->wire.comm == comm &&
                lane->wire.type == LSI_WIRE_DATA) {
                if (lane->xfer)
                    lsi_part_give(port, lane->xfer);
                lane->xfer = NULL;
                lane->target = NULL;
                lane->kept = NULL;
            }
        }
    }
    for (lsi_kept *k = port->kept, *next; k; k = next) {
        next = k->next;
        if (k->wire.comm == comm)
            lsi_port_release(port, k);
    }
}

ls_status lsi_port_recheck(lsi_port *port, uint32_t comm, uint64_t seq)
{
    for (lsi_kept *k = port->kept; k; k = k->next)
        if (k->wire.comm == comm && k->wire.seq == seq)
            LSI_TRY(port->config.events.check(port->config.events.arg, k->peer, &k->wire));
    return LS_OK;
}

int lsi_port_alive(const lsi_port *port, int peer)
{
    return peer == port->config.self || port->peers[peer].linked;
}

const char *lsi_port_transport(const lsi_port *port, int peer)
{
    if (peer == port->config.self)
        return "self";
    if (!port->peers[peer].linked)
        return "none";
    return port->peers[peer].lanes[0].link->ops->name;
}

static ls_status watch_lane(lsi_port *port, lsi_lane *lane)
{
    int fd = lane->link->ops->fd(lane->link);
    if (fd < 0) {
        port->polled[port->n_polled++] = lane;
        return LS_OK;
    }
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = lane};
    if (epoll_ctl(port->epoll, EPOLL_CTL_ADD, fd, &e))
        return lsi_fail_errno("port", "epoll_ctl");
    port->sockets++;
    return LS_OK;
}

static ls_status open_lanes(lsi_port *port, const lsi_port_config *config)
{
    int next = 0;
    for (int r = 0; r < config->size; r++) {
        lsi_peer *peer = &port->peers[r];
        lsi_queue_init(&peer->receiving);
        lsi_queue_init(&peer->unacked);
        if (!config->links[r * config->lanes])
            continue;
        peer->lanes = &port->lane_store[next];
        peer->linked = 1;
        for (int l = 0; l < config->lanes && config->links[r * config->lanes + l]; l++) {
            lsi_lane *lane = &port->lane_store[next++];
            peer->n_lanes++;
            lane->link = config->links[r * config->lanes + l];
            lane->peer = r;
            lsi_queue_init(&lane->sending);
            LSI_TRY(watch_lane(port, lane));
        }
    }
    return LS_OK;
}

static void free_port(lsi_port *port)
{
    for (lsi_kept *k = port->kept, *next; k; k = next) {
        next = k->next;
        lsi_port_release(port, k);
    }
    for (lsi_kept *k = port->kept_free, *next; k; k = next) {
        next = k->next;
        free(k->data);
        free(k);
    }
    for (lsi_xfer *x = port->control_free, *next; x; x = next) {
        next = x->next;
        free(x->data);
        free(x);
    }
    lsi_parts_free(port);
    if (port->epoll >= 0)
        close(port->epoll);
    free(port->polled);
    free(port->lane_store);
    free(port->peers);
    free(port->discard);
    free(port);
}

ls_status lsi_port_create(const lsi_port_config *config, lsi_port **out)
{
    lsi_port *port = calloc(1, sizeof *port);
    if (!port)
        return lsi_fail(LS_ERR_NOMEM, NULL, "port", "out of memory");
    size_t links = 0, slots = (size_t)config->size * (size_t)config->lanes;
    for (size_t i = 0; i < slots; i++)
        links += config->links[i] != NULL;
    port->config = *config;
    port->config.links = NULL;
    port->n_lanes = (int)links;
    port->epoll = epoll_create1(EPOLL_CLOEXEC);
    port->peers = calloc((size_t)config->size, sizeof *port->peers);
    port->lane_store = calloc(links + 1, sizeof *port->lane_store);
    port->polled = calloc(links + 1, sizeof(lsi_lane *));
    port->discard = malloc(DISCARD_BYTES);
    port->discard_bytes = DISCARD_BYTES;
    ls_status status;
    if (!port->peers || !port->lane_store || !port->polled || !port->discard)
        status = lsi_fail(LS_ERR_NOMEM, NULL, "port", "out of memory");
    else if (port->epoll < 0)
        status = lsi_fail_errno("port", "epoll_create1");
    else
        status = open_lanes(port, config);
    if (status != LS_OK) {
        free_port(port);
        return status;
    }
    *out = port;
    return LS_OK;
}

static ls_status refuse(void *arg, int peer, const lsi_wire *wire)
{
    (void)arg;
    (void)peer;
    (void)wire;
    return LS_ERR_ABORTED;
}

static void ignore(void *arg, int peer, const lsi_wire *wire, const char *text)
{
    (void)arg;
    (void)peer;
    (void)wire;
    (void)text;
}

/* Is something still to go out? What a socket has not sent is lost when it is closed while there
 * are bytes to read. */
static int has_unsent(const lsi_lane *lane)
{
    int unsent = 0, fd = lane->link ? lane->link->ops->fd(lane->link) : -1;
    if (fd >= 0 && ioctl(fd, SIOCOUTQNSD, &unsent) != 0)
        unsent = 0;
    return lane->link && (lane->sending.head || unsent > 0);
}

/* Let out what is queued behind half a message: who hears why we leave does not blame us. Reads,
 * too, and throws it away: the peer may wait for that before it reads. */
static void flush(lsi_port *port)
{
    double until = lsi_now() + FLUSH_S;
    port->config.events.check = refuse;
    port->config.events.control = ignore;
    for (;;) {
        int waiting = 0;
        for (int i = 0; i < port->n_lanes; i++)
            waiting |= has_unsent(&port->lane_store[i]);
        if (!waiting || lsi_now() > until)
            return;
        if (lsi_port_progress(port))
            continue;
        if (port->sockets)
            lsi_port_wait(port, 1e-3);
        else
            sched_yield();
    }
}

void lsi_port_destroy(lsi_port *port)
{
    if (!port)
        return;
    port->config.events.lost = NULL;
    for (int r = 0; r < port->config.size; r++)
        lsi_port_control(port, r, LSI_WIRE_GOODBYE, 0, 0, NULL);
    flush(port);
    for (int i = 0; i < port->n_lanes; i++) {
        lsi_lane *lane = &port->lane_store[i];
        if (lane->link) {
            fail_queue(port, &lane->sending);
            lane->link->ops->close(lane->link);
        }
    }
    free_port(port);
}

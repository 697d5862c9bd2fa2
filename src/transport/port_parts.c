/* Large messages in parts: cut where they are posted, one part a lane.
 *
 * A socket is one stream of packets, on one queue of the network card, with one congestion window;
 * several of them together fill a line that one does not.
 *
 * 1. Both ends cut by the bytes of a message and the number of lanes alone, so that parts meet
 *    parts. A part is a message with the key of the whole and its number: it is matched, kept and
 *    checked as any other, and those with equal keys keep their order on their lane.
 * 2. Each part says how long the whole is. Ends that disagree on that find out by part 0, which
 *    every message has.
 * 3. A part belongs to the port, from a pool; it is linked into the port from its post until it is
 *    over. The whole is linked nowhere. Of a receive that has failed no part is linked any more.
 */
#include <stdlib.h>

#include "transport/port_internal.h"

int lsi_port_parts(const lsi_port *port, const lsi_peer *peer, const lsi_xfer *xfer)
{
    const size_t least = port->config.part_least ? port->config.part_least : LSI_PORT_PART_LEAST;
    const uint64_t worth = xfer->wire.bytes / least;
    const int most = peer->n_lanes < LSI_WIRE_MAX_PARTS ? peer->n_lanes : LSI_WIRE_MAX_PARTS;
    if (xfer->wire.whole || xfer->wire.type > LSI_WIRE_DATA || worth < 2)
        return 1;
    return worth < (uint64_t)most ? (int)worth : most;
}

/* A part and those that were made before it: the port frees them wherever they are linked. */
struct lsi_part {
    lsi_xfer xfer;
    lsi_part *made_before;
};

static lsi_xfer *take_part(lsi_port *port)
{
    lsi_xfer *xfer = port->parts_free;
    if (xfer) {
        port->parts_free = xfer->next;
        return xfer;
    }
    lsi_part *part = calloc(1, sizeof *part);
    if (!part)
        return NULL;
    part->made_before = port->parts;
    port->parts = part;
    return &part->xfer;
}

void lsi_parts_free(lsi_port *port)
{
    while (port->parts) {
        lsi_part *part = port->parts;
        port->parts = part->made_before;
        free(part);
    }
}

void lsi_part_give(lsi_port *port, lsi_xfer *xfer)
{
    if (!xfer->part_of)
        return;
    xfer->part_of = NULL;
    xfer->next = port->parts_free;
    port->parts_free = xfer;
}

void lsi_port_cut(lsi_port *port, lsi_xfer *xfer, int parts, void (*post)(lsi_port *, lsi_xfer *))
{
    const uint64_t even = xfer->wire.bytes / (uint64_t)parts;
    const uint64_t size = even > 64 ? even & ~(uint64_t)63 : even; /* no line in two parts */
    xfer->status = LS_IN_PROGRESS;
    xfer->parts_left = (uint8_t)parts;
    for (int p = 0; p < parts && xfer->status == LS_IN_PROGRESS; p++) {
        const uint64_t from = size * (uint64_t)p;
        lsi_xfer *part = take_part(port);
        if (!part) {
            lsi_port_lose(port, xfer->peer, "out of memory for a part of a message");
            xfer->status = LS_ERR_PEER_DEAD;
            return;
        }
        *part = (lsi_xfer){.peer = xfer->peer, .wire = xfer->wire, .part_of = xfer};
        part->wire.part = (uint8_t)p;
        part->wire.whole = xfer->wire.bytes;
        part->wire.bytes = p < parts - 1 ? size : xfer->wire.bytes - from;
        part->data = (char *)xfer->data + from;
        post(port, part);
    }
}

/* Nothing more may be written where this receive's buffer was. */
static void drop_receives(lsi_port *port, const lsi_xfer *whole)
{
    lsi_peer *peer = &port->peers[whole->peer];
    lsi_xfer **p = &peer->receiving.head;
    while (*p) {
        lsi_xfer *x = *p;
        if (x->part_of == whole) {
            *p = x->next;
            lsi_part_give(port, x);
        } else {
            p = &x->next;
        }
    }
    peer->receiving.tail = p;
    for (int l = 0; l < peer->n_lanes; l++) {
        lsi_lane *lane = &peer->lanes[l];
        if (lane->xfer && lane->xfer->part_of == whole) {
            lsi_part_give(port, lane->xfer);
            lane->xfer = NULL;
            lane->target = NULL;
        }
    }
}

void lsi_part_end(lsi_port *port, lsi_xfer *part, ls_status status)
{
    lsi_xfer *whole = part->part_of;
    lsi_part_give(port, part);
    if (status != LS_OK) {
        drop_receives(port, whole);
        whole->status = status;
    } else if (--whole->parts_left == 0) {
        whole->status = LS_OK;
    }
}

int lsi_part_kept_alone(const lsi_port *port, int peer, const lsi_wire *wire)
{
    for (const lsi_kept *k = port->kept; k; k = k->next) {
        lsi_wire other = k->wire;
        const int same_part = other.part == wire->part;
        other.part = wire->part;
        if (k->peer != peer || !wire->whole || same_part || !lsi_same_key(&other, wire))
            return 0;
    }
    return 1;
}

/* The port's structures, shared by port.c (queues, matching, life), port_move.c (bytes) and
 * port_parts.c (large messages). */
#ifndef LSI_TRANSPORT_PORT_INTERNAL_H
#define LSI_TRANSPORT_PORT_INTERNAL_H

#include "transport/port.h"

#define LSI_PORT_RX_BYTES 4096
#define LSI_PORT_KEPT_LIMIT ((size_t)256 << 20)

/* A message that came before its receive. */
typedef struct lsi_kept {
    struct lsi_kept *next;
    int peer, complete;
    lsi_wire wire; /* as it came: DATA or REF */
    uint64_t ref_offset, ref_bytes;
    size_t capacity;
    char *data;
} lsi_kept;

typedef struct lsi_part lsi_part;

typedef struct lsi_xfer_queue {
    lsi_xfer *head, **tail;
} lsi_xfer_queue;

typedef enum lsi_rx_stage { LSI_RX_HEADER, LSI_RX_MATCH, LSI_RX_PAYLOAD } lsi_rx_stage;

typedef struct lsi_lane {
    lsi_link *link; /* NULL once lost */
    int peer, writable_wanted;
    /* Sending: the head of the queue is on its way. */
    lsi_xfer_queue sending;
    size_t sent; /* of header + payload of the head */
    uint8_t tx_header[LSI_WIRE_BYTES + 16];
    /* Receiving. */
    lsi_rx_stage stage;
    lsi_wire wire;
    char *target;
    size_t left;
    lsi_xfer *xfer; /* matched receive, or NULL */
    lsi_kept *kept; /* kept message, or NULL */
    uint32_t check;
    size_t have, at; /* read-ahead buffer */
    char rx[LSI_PORT_RX_BYTES];
    char control[LSI_WIRE_MAX_CONTROL + 1];
} lsi_lane;

typedef struct lsi_peer {
    lsi_lane *lanes; /* [n_lanes] */
    int n_lanes;
    lsi_xfer_queue receiving; /* posted, not matched yet */
    lsi_xfer_queue unacked;   /* references the peer has not read yet */
    int linked, losing, orderly;
} lsi_peer;

struct lsi_port {
    lsi_port_config config;
    lsi_peer *peers;
    lsi_lane *lane_store;
    int n_lanes, epoll, sockets;
    int again;         /* a lane holds a message that no descriptor will tell of */
    lsi_lane **polled; /* lanes without a descriptor */
    int n_polled;
    lsi_kept *kept, *kept_free;
    size_t kept_bytes;
    lsi_xfer *control_free, *parts_free;
    lsi_part *parts; /* all that were made */
    char *discard;   /* where unwanted bytes go */
    size_t discard_bytes;
};

void lsi_queue_init(lsi_xfer_queue *queue);
void lsi_queue_push(lsi_xfer_queue *queue, lsi_xfer *xfer);
/* Remove and return the first with the key of `wire`, or NULL. */
lsi_xfer *lsi_queue_take(lsi_xfer_queue *queue, const lsi_wire *wire);

static inline int lsi_same_key(const lsi_wire *a, const lsi_wire *b)
{
    return a->seq == b->seq && a->tag == b->tag && a->comm == b->comm && a->part == b->part;
}

/* Is there something to do that has been read from the link already? */
static inline int lsi_lane_holds_message(const lsi_lane *lane)
{
    return lane->stage == LSI_RX_MATCH || lane->have - lane->at >= LSI_WIRE_BYTES;
}

/* port.c, for port_move.c */
void lsi_port_lose(lsi_port *port, int peer, const char *text);
lsi_kept *lsi_port_keep(lsi_port *port, int peer, const lsi_wire *wire, size_t bytes);
void lsi_port_release(lsi_port *port, lsi_kept *kept);
/* Is this the message that the receive expects? If not, the owner is told and the receive ends. */
int lsi_port_agrees(lsi_port *port, lsi_xfer *xfer, const lsi_wire *wire, uint64_t bytes);
void lsi_port_copy_reference(lsi_port *port, lsi_xfer *xfer, const lsi_wire *wire, uint64_t offset,
                             uint64_t bytes);
void lsi_port_sent(lsi_port *port, lsi_xfer *xfer);
/* The xfer is over: its owner gets the status, the port's own go back to their pools. */
void lsi_port_end(lsi_port *port, lsi_xfer *xfer, ls_status status);
/* port_parts.c, for port.c: how many parts such a message is cut into (1: none). */
int lsi_port_parts(const lsi_port *port, const lsi_peer *peer, const lsi_xfer *xfer);
/* Post each part of it with `post`. */
void lsi_port_cut(lsi_port *port, lsi_xfer *xfer, int parts, void (*post)(lsi_port *, lsi_xfer *));
/* A part is over: its whole is over with the last of them, or with the first that fails. */
void lsi_part_end(lsi_port *port, lsi_xfer *part, ls_status status);
/* Back into the pool, if it is a part; its whole hears nothing. */
void lsi_part_give(lsi_port *port, lsi_xfer *xfer);
void lsi_parts_free(lsi_port *port);
/* Are all messages that are kept parts of the one that this is a part of? */
int lsi_part_kept_alone(const lsi_port *port, int peer, const lsi_wire *wire);
/* port_move.c, for port.c: 1 if anything moved */
int lsi_lane_send(lsi_port *port, lsi_lane *lane);
int lsi_lane_receive(lsi_port *port, lsi_lane *lane);

#endif

/* A rank's port: messages to and from every peer, over whatever links lead there.
 *
 *     coll  --xfer-->  port (matching, queues)  --bytes-->  links (shm, tcp, fault)
 *
 * A message is matched by (peer, comm, seq, tag); equal keys match in the order of sending.
 *
 * Invariants:
 * 1. An xfer belongs to its creator; it is linked into the port from post until its status is no
 *    longer LS_IN_PROGRESS, and must not move or die meanwhile (lsi_port_forget ends that early).
 * 2. A peer has one or more links (lanes). A message travels on lane tag % lanes, a large one in
 *    parts on all of them, by a rule that looks at its bytes alone. Messages with equal keys
 *    therefore keep their order.
 * 3. A message that comes before its receive is kept (up to a limit, then its lane waits), so no
 *    order of receives can deadlock.
 * 4. A send from the shared segment to a peer of the same host, who has one lane, travels as a
 *    reference: the receiver copies straight from the sender's memory and acknowledges.
 * 5. Nothing here blocks except lsi_port_wait, and nothing allocates once the pools are warm.
 */
#ifndef LSI_TRANSPORT_PORT_H
#define LSI_TRANSPORT_PORT_H

#include "transport/link.h"
#include "transport/wire.h"

typedef struct lsi_port lsi_port;

/* One message. The creator fills peer, wire.{comm,seq,tag,bytes,call} and data. */
typedef struct lsi_xfer {
    struct lsi_xfer *next; /* the port's */
    int peer;
    ls_status status; /* LS_IN_PROGRESS, then the result; errors are recorded in the port */
    lsi_wire wire;
    void *data;                            /* borrowed until completion */
    uint8_t by_reference, started, pooled; /* the port's */
    uint8_t parts_left;                    /* the port's, of one that is cut */
    struct lsi_xfer *part_of;              /* the port's: the one that was cut */
} lsi_xfer;

/* What the port tells its owner; called from inside port calls. */
typedef struct lsi_port_events {
    void *arg;
    /* A message for this operation arrived: does its call agree with ours? Not LS_OK: the owner
     * has noted the failure and the message is discarded. */
    ls_status (*check)(void *arg, int peer, const lsi_wire *wire);
    /* A message met a receive that expects another one (length, type). The owner notes the
     * failure; the message is discarded and the receive completes with LS_ERR_MISMATCH. */
    void (*differs)(void *arg, int peer, const lsi_wire *theirs, const lsi_wire *mine);
    /* ABORT or STATUS frame. `text` is NUL-terminated; a STATUS with "?" wants one back. */
    void (*control)(void *arg, int peer, const lsi_wire *wire, const char *text);
    /* The links with this peer are gone. `text` says why; `orderly`: it said goodbye. */
    void (*lost)(void *arg, int peer, int orderly, const char *text);
} lsi_port_events;

#define LSI_PORT_PART_LEAST ((size_t)512 << 10)

typedef struct lsi_port_config {
    int self, size, lanes;
    lsi_link **links; /* [size * lanes], a peer's first; NULL where there is none; taken over */
    char *segment;    /* the host's shared segment, for references; NULL: none */
    size_t segment_bytes;
    int checksum;      /* check payloads too */
    size_t part_least; /* bytes of a message that a lane more is worth; 0: LSI_PORT_PART_LEAST */
    lsi_port_events events;
} lsi_port_config;

ls_status lsi_port_create(const lsi_port_config *config, lsi_port **out);
/* Says goodbye on every link, then closes them. May block for a tenth of a second while a peer does
 * not take what was sent to it. */
void lsi_port_destroy(lsi_port *port);

/* Post; completion (maybe at once) is in xfer->status. A lost peer completes it with
 * LS_ERR_PEER_DEAD. */
void lsi_port_send(lsi_port *port, lsi_xfer *xfer);
void lsi_port_recv(lsi_port *port, lsi_xfer *xfer);
/* Send a control frame with an optional text. Quietly does nothing for a lost peer. */
void lsi_port_control(lsi_port *port, int peer, lsi_wire_type type, uint32_t comm, uint64_t seq,
                      const char *text);
/* Move what can be moved. Returns 1 if anything did. */
int lsi_port_progress(lsi_port *port);
/* Sleep until a socket is ready, at most `seconds`. Returns at once if there is no socket. */
void lsi_port_wait(lsi_port *port, double seconds);
/* Number of links that have a descriptor. */
int lsi_port_sockets(const lsi_port *port);
/* Forget every xfer and kept message of a communicator (it has failed or is destroyed). Messages
 * in the middle of a stream are finished from or into the port's own memory. */
void lsi_port_forget(lsi_port *port, uint32_t comm);
/* Call `check` again for kept messages of this operation, which has just been started here. */
ls_status lsi_port_recheck(lsi_port *port, uint32_t comm, uint64_t seq);
/* 1 while the peer can be reached; self counts. */
int lsi_port_alive(const lsi_port *port, int peer);
/* The name of the transport to a peer ("shm", "tcp", "self", "none"). */
const char *lsi_port_transport(const lsi_port *port, int peer);

#endif

/* Links over TCP: a full mesh of authenticated sockets between ranks.
 *
 * Every rank listens (lsi_net_listen), publishes its address, connects to all lower ranks and
 * accepts the higher ones; after that the listening socket is closed, so that nothing of a
 * running group can be connected to.
 */
#ifndef LSI_TRANSPORT_TCP_H
#define LSI_TRANSPORT_TCP_H

#include "base/auth.h"
#include "base/net.h"
#include "transport/link.h"

typedef struct lsi_tcp_mesh {
    int listener;                          /* borrowed */
    const lsi_key *key;                    /* borrowed */
    int self, size;                        /* ranks */
    int lanes;                             /* sockets for each peer */
    const char (*addresses)[LSI_ADDR_MAX]; /* by rank; "" for a peer that needs no socket */
    double deadline;                       /* lsi_now() seconds */
    ls_status (*check)(void *arg);         /* asked ten times a second: go on? NULL: yes */
    void *arg;
} lsi_tcp_mesh;

/* Fill links[peer * lanes + lane] for every peer with an address (self aside); others keep their
 * value. On failure nothing is left open and the error names the ranks that are missing. Strangers
 * on the port (garbage, silence, a wrong key) are dropped and change nothing. */
ls_status lsi_tcp_connect(const lsi_tcp_mesh *mesh, lsi_link **links);

#endif

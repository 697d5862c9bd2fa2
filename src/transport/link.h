/* The transport seam: a link is one reliable, ordered byte stream to one peer.
 *
 * Messages, matching and control frames are built above it (port.h), so that a new transport is
 * these five functions. Links come from lsi_shm_link (two processes of one host) and from
 * lsi_tcp_connect (any two hosts); lsi_fault_wrap puts faults in front of either.
 *
 * Contract:
 * 1. send and recv never block; LS_OK with 0 bytes means "not now".
 * 2. After an error the link moves nothing more; close is still called, once.
 * 3. recv returns bytes that arrived before the peer closed, then LS_ERR_PEER_DEAD.
 */
#ifndef LSI_TRANSPORT_LINK_H
#define LSI_TRANSPORT_LINK_H

#include <stddef.h>
#include <sys/uio.h>

#include <lockstep/status.h>

typedef struct lsi_link lsi_link;

typedef struct lsi_link_ops {
    const char *name;
    /* Move up to the sum of the vectors; *moved says how much went. */
    ls_status (*send)(lsi_link *link, const struct iovec *vectors, int n, size_t *moved);
    ls_status (*recv)(lsi_link *link, const struct iovec *vectors, int n, size_t *moved);
    /* A descriptor for epoll, or -1 for a link that is polled in memory. */
    int (*fd)(const lsi_link *link);
    /* Free the link; the peer sees the end of the stream. */
    void (*close)(lsi_link *link);
} lsi_link_ops;

struct lsi_link {
    const lsi_link_ops *ops; /* first member of every implementation */
};

#endif

/* A single-producer, single-consumer byte ring in shared memory for each ordered pair.
 *
 * 1. `written` is stored by the producer only, `read` by the consumer only; both only grow, and
 *    written - read <= capacity.
 * 2. Bytes are copied before `written` is released, and copied out before `read` is released.
 * 3. Each side keeps the other's counter as it last saw it and looks again only when that one
 *    leaves no room or no data: one cache-line transfer for many small messages.
 */
#include "transport/shm.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define RING_BYTES (LSI_HOST_PAIR_BYTES - 4096)

typedef struct ring {
    _Alignas(128) _Atomic uint64_t written;
    _Alignas(128) _Atomic uint64_t read;
    _Alignas(4096) char data[RING_BYTES];
} ring;
_Static_assert(sizeof(ring) <= LSI_HOST_PAIR_BYTES, "the ring must fit the pair's area");

typedef struct shm_link {
    lsi_link link;
    lsi_host_block *block;
    int peer; /* world rank, to ring its doorbell */
    ring *out, *in;
    uint64_t out_written, out_read_seen;
    uint64_t in_read, in_written_seen;
} shm_link;

static void copy_in(ring *r, uint64_t at, const char *from, size_t bytes)
{
    size_t start = (size_t)(at % RING_BYTES), first = RING_BYTES - start;
    if (first > bytes)
        first = bytes;
    memcpy(r->data + start, from, first);
    memcpy(r->data, from + first, bytes - first);
}

static void copy_out(const ring *r, uint64_t at, char *to, size_t bytes)
{
    size_t start = (size_t)(at % RING_BYTES), first = RING_BYTES - start;
    if (first > bytes)
        first = bytes;
    memcpy(to, r->data + start, first);
    memcpy(to + first, r->data, bytes - first);
}

static ls_status shm_send(lsi_link *link, const struct iovec *vectors, int n, size_t *moved)
{
    shm_link *l = (shm_link *)link;
    size_t total = 0;
    for (int i = 0; i < n; i++) {
        size_t left = vectors[i].iov_len;
        const char *from = vectors[i].iov_base;
        while (left) {
            uint64_t room = RING_BYTES - (l->out_written - l->out_read_seen);
            if (room < left) {
                l->out_read_seen = atomic_load_explicit(&l->out->read, memory_order_acquire);
                room = RING_BYTES - (l->out_written - l->out_read_seen);
            }
            size_t part = left < room ? left : (size_t)room;
            if (!part)
                goto full;
            copy_in(l->out, l->out_written, from, part);
            l->out_written += part;
            from += part;
            left -= part;
            total += part;
        }
    }
full:
    if (total) {
        atomic_store_explicit(&l->out->written, l->out_written, memory_order_release);
        lsi_host_ring(l->block, l->peer);
    }
    *moved = total;
    return LS_OK;
}

static ls_status shm_recv(lsi_link *link, const struct iovec *vectors, int n, size_t *moved)
{
    shm_link *l = (shm_link *)link;
    size_t total = 0;
    for (int i = 0; i < n; i++) {
        size_t left = vectors[i].iov_len;
        char *to = vectors[i].iov_base;
        while (left) {
            uint64_t ready = l->in_written_seen - l->in_read;
            if (!ready) {
                l->in_written_seen = atomic_load_explicit(&l->in->written, memory_order_acquire);
                ready = l->in_written_seen - l->in_read;
            }
            size_t part = left < ready ? left : (size_t)ready;
            if (!part)
                goto empty;
            copy_out(l->in, l->in_read, to, part);
            l->in_read += part;
            to += part;
            left -= part;
            total += part;
        }
    }
empty:
    if (total) {
        atomic_store_explicit(&l->in->read, l->in_read, memory_order_release);
        lsi_host_ring(l->block, l->peer);
    }
    *moved = total;
    return LS_OK;
}

static int shm_fd(const lsi_link *link)
{
    (void)link;
    return -1;
}

static void shm_close(lsi_link *link)
{
    free(link); /* the ring belongs to the segment; a GOODBYE or the launcher tells of the end */
}

static const lsi_link_ops shm_ops = {"shm", shm_send, shm_recv, shm_fd, shm_close};

ls_status lsi_shm_link(const lsi_host *host, int local_self, int local_peer, lsi_link **out)
{
    shm_link *l = calloc(1, sizeof *l);
    if (!l)
        return lsi_fail(LS_ERR_NOMEM, NULL, "shm link", "out of memory");
    l->link.ops = &shm_ops;
    l->block = host->block;
    l->peer = (int)host->block->first_rank + local_peer;
    l->out = (ring *)(void *)lsi_host_pair(host, local_self, local_peer);
    l->in = (ring *)(void *)lsi_host_pair(host, local_peer, local_self);
    *out = &l->link;
    return LS_OK;
}

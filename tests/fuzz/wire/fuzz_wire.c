/* Fuzzes what a rank reads from its peers: the message header, and a port fed with any bytes.
 *
 * 1. A header that decodes encodes to the same bytes again.
 * 2. A port whose peer sends garbage never crashes, hangs or leaks: at the end of the bytes the
 *    peer is lost, and every receive has come to an end.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "transport/port.h"

/* A link that hands out the input in pieces of odd sizes, then ends; what is sent vanishes. */
typedef struct feed {
    lsi_link link;
    const uint8_t *data;
    size_t left, piece;
} feed;

static ls_status feed_send(lsi_link *link, const struct iovec *v, int n, size_t *moved)
{
    (void)link;
    *moved = 0;
    for (int i = 0; i < n; i++)
        *moved += v[i].iov_len;
    return LS_OK;
}

static ls_status feed_recv(lsi_link *link, const struct iovec *v, int n, size_t *moved)
{
    feed *f = (feed *)link;
    *moved = 0;
    if (!f->left)
        return LS_ERR_PEER_DEAD;
    f->piece = f->piece * 5 % 127 + 1;
    size_t most = f->piece < f->left ? f->piece : f->left;
    for (int i = 0; i < n && most; i++) {
        size_t part = v[i].iov_len < most ? v[i].iov_len : most;
        memcpy(v[i].iov_base, f->data, part);
        f->data += part;
        f->left -= part;
        most -= part;
        *moved += part;
    }
    return LS_OK;
}

static int feed_fd(const lsi_link *link)
{
    (void)link;
    return -1;
}

static void feed_close(lsi_link *link)
{
    free(link);
}

static const lsi_link_ops feed_ops = {"feed", feed_send, feed_recv, feed_fd, feed_close};

static int losses;

static ls_status on_check(void *arg, int peer, const lsi_wire *wire)
{
    (void)arg, (void)peer;
    return wire->seq == 13 ? LS_ERR_MISMATCH : LS_OK;
}

static void on_differs(void *arg, int peer, const lsi_wire *theirs, const lsi_wire *mine)
{
    (void)arg, (void)peer, (void)theirs, (void)mine;
}

static void on_control(void *arg, int peer, const lsi_wire *wire, const char *text)
{
    (void)arg, (void)peer;
    if (strlen(text) > LSI_WIRE_MAX_CONTROL || wire->bytes > LSI_WIRE_MAX_CONTROL)
        abort();
}

static void on_lost(void *arg, int peer, int orderly, const char *text)
{
    (void)arg, (void)peer, (void)orderly, (void)text;
    losses++;
}

static void feed_port(const uint8_t *data, size_t size)
{
    static char segment[256];
    char in[3][40];
    feed *f = calloc(1, sizeof *f);
    lsi_link *links[2] = {NULL, &f->link};
    *f = (feed){{&feed_ops}, data, size, size % 61};
    lsi_port_config config = {.self = 0,
                              .size = 2,
                              .lanes = 1,
                              .links = links,
                              .segment = segment,
                              .segment_bytes = sizeof segment,
                              .checksum = 1,
                              .events = {NULL, on_check, on_differs, on_control, on_lost}};
    lsi_port *port;
    if (lsi_port_create(&config, &port) != LS_OK)
        abort();
    lsi_xfer receives[3];
    for (uint32_t i = 0; i < 3; i++) {
        receives[i] = (lsi_xfer){.peer = 1, .data = in[i]};
        receives[i].wire = (lsi_wire){.comm = 1, .seq = i, .bytes = 8 * i};
        lsi_port_recv(port, &receives[i]);
    }
    losses = 0;
    for (size_t turn = 0; turn <= size + 8 && !losses; turn++)
        lsi_port_progress(port);
    if (losses != 1)
        abort(); /* it hangs on something */
    for (int i = 0; i < 3; i++)
        if (receives[i].status == LS_IN_PROGRESS)
            abort();
    lsi_port_forget(port, 1);
    lsi_port_destroy(port);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lsi_wire wire;
    uint8_t again[LSI_WIRE_BYTES];
    if (size >= LSI_WIRE_BYTES && lsi_wire_decode(data, &wire) == LS_OK) {
        lsi_wire_encode(&wire, again);
        if (memcmp(again, data, LSI_WIRE_BYTES))
            abort();
    }
    feed_port(data, size);
    return 0;
}

/* Fuzzes what a rank reads from its peers: the message header, and a port fed with any bytes.
 *
 * 1. A header that decodes encodes to the same bytes again.
 * 2. A port whose peer sends garbage never crashes, hangs or leaks: at the end of the bytes the
 *    peer is lost, and every receive and send has come to an end.
 *
 * The first byte of an input says how it is used:
 *
 *     1   put the headers right (magic, type, check sum …), so that the rest of the port is reached
 *     2   and the payload check sums, too
 *     4   writing to the peer fails
 *     8   a refused message is answered, as a communicator does
 *    16   the communicator is forgotten half-way
 *    32   receives are posted half-way, not before
 *    64   two lanes, so that messages of 16 bytes have two parts
 *
 * The rest is the stream; of two lanes each gets a half.
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
    int send_breaks;
} feed;

enum { REPAIR = 1, RECHECK = 2, DEAF = 4, ANSWER = 8, FORGET = 16, LATE = 32, LANES = 64 };
enum { RECEIVES = 6, SENDS = 2, PART_LEAST = 8 };

typedef struct world {
    lsi_port *port;
    int mode, losses;
    lsi_xfer receives[RECEIVES], sends[SENDS];
} world;

static ls_status feed_send(lsi_link *link, const struct iovec *v, int n, size_t *moved)
{
    *moved = 0;
    if (((feed *)link)->send_breaks)
        return LS_ERR_PEER_DEAD;
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

static ls_status on_check(void *arg, int peer, const lsi_wire *wire)
{
    world *w = arg;
    if (wire->seq != 13)
        return LS_OK;
    if (w->mode & ANSWER) {
        lsi_port_control(w->port, peer, LSI_WIRE_ABORT, wire->comm, wire->seq, "refused");
        lsi_port_forget(w->port, wire->comm);
    }
    return LS_ERR_MISMATCH;
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
    (void)peer, (void)orderly, (void)text;
    ((world *)arg)->losses++;
}

/* Make every header of the stream one that is accepted, with keys and lengths that often meet. */
static void repair(uint8_t *data, size_t size, int recheck)
{
    for (size_t at = 0; size - at >= LSI_WIRE_BYTES;) {
        uint8_t *h = data + at;
        lsi_wire w = {.type = (lsi_wire_type)(1 + h[4] % (LSI_WIRE_TYPE_END - 1)),
                      .flags = h[5] & LSI_WIRE_CHECKED,
                      .comm = h[8] & 1,
                      .tag = h[12] & 1,
                      .seq = h[16] & 15,
                      .call = {.dtype = h[33] & 1, .count = h[40] & 1}};
        w.bytes = h[24] | (h[25] & 0x3fu) << 8;
        if (w.type != LSI_WIRE_DATA)
            w.bytes %= w.type == LSI_WIRE_REF ? 20 : LSI_WIRE_MAX_CONTROL + 1;
        size_t payload = (size_t)w.bytes;
        at += LSI_WIRE_BYTES;
        if (payload > size - at)
            payload = size - at;
        if (w.type == LSI_WIRE_DATA && (h[6] || h[52])) {
            w.part = h[6] % LSI_WIRE_MAX_PARTS;
            w.whole = h[52] > w.bytes ? h[52] : w.bytes + 1;
        }
        w.payload_check = recheck ? lsi_wire_check(0, data + at, payload) : h[48];
        lsi_wire_encode(&w, h);
        at += payload;
    }
}

static void post_receives(world *w, char in[RECEIVES][40])
{
    for (uint32_t i = 0; i < RECEIVES; i++) {
        w->receives[i] = (lsi_xfer){.peer = 1, .data = in[i]};
        w->receives[i].wire =
            (lsi_wire){.comm = 1, .tag = i & 1, .seq = i / 2, .bytes = 8 * (i / 2)};
        lsi_port_recv(w->port, &w->receives[i]);
    }
}

static void feed_port(int mode, const uint8_t *data, size_t size)
{
    static char segment[3 * 4096];
    char in[RECEIVES][40];
    world w = {.mode = mode};
    const int lanes = mode & LANES ? 2 : 1;
    const size_t half = lanes == 2 ? size / 2 : size;
    feed *f[2] = {calloc(1, sizeof **f), lanes == 2 ? calloc(1, sizeof **f) : NULL};
    lsi_link *links[4] = {NULL};
    links[lanes] = &f[0]->link;
    *f[0] = (feed){{&feed_ops}, data, half, size % 61, 0};
    if (f[1]) {
        links[lanes + 1] = &f[1]->link;
        *f[1] = (feed){{&feed_ops}, data + half, size - half, size % 53, 0};
    }
    lsi_port_config config = {.self = 0,
                              .size = 2,
                              .lanes = lanes,
                              .links = links,
                              .part_least = PART_LEAST,
                              .segment = segment,
                              .segment_bytes = sizeof segment,
                              .checksum = 1,
                              .events = {&w, on_check, on_differs, on_control, on_lost}};
    if (lsi_port_create(&config, &w.port) != LS_OK)
        abort();
    if (!(mode & LATE))
        post_receives(&w, in);
    for (uint32_t i = 0; i < SENDS; i++) { /* references, which the stream may acknowledge */
        w.sends[i] = (lsi_xfer){.peer = 1, .data = segment + 4096 * i};
        w.sends[i].wire = (lsi_wire){.comm = 1, .seq = i, .bytes = 4096 + i};
        lsi_port_send(w.port, &w.sends[i]);
    }
    for (int l = 0; l < lanes && !w.losses; l++)
        f[l]->send_breaks = mode & DEAF;
    for (size_t turn = 0; turn <= size + 8 && !w.losses; turn++) {
        if (turn == 2 && mode & LATE)
            post_receives(&w, in);
        if (turn == 3 && mode & FORGET)
            lsi_port_forget(w.port, 1);
        lsi_port_progress(w.port);
    }
    if (w.losses != 1)
        abort(); /* it hangs on something */
    for (int i = 0; i < RECEIVES + SENDS && !(mode & (FORGET | ANSWER)); i++)
        if ((i < RECEIVES ? &w.receives[i] : &w.sends[i - RECEIVES])->status == LS_IN_PROGRESS)
            abort();
    lsi_port_forget(w.port, 1);
    lsi_port_destroy(w.port);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lsi_wire wire;
    uint8_t again[LSI_WIRE_BYTES];
    if (size == 0)
        return 0;
    int mode = *data++;
    uint8_t *stream = malloc(size); /* one byte more than needed: never NULL */
    memcpy(stream, data, --size);
    const size_t half = mode & LANES ? size / 2 : size;
    if (mode & REPAIR) {
        repair(stream, half, mode & RECHECK);
        repair(stream + half, size - half, mode & RECHECK);
    }
    if (size >= LSI_WIRE_BYTES && lsi_wire_decode(stream, &wire) == LS_OK) {
        lsi_wire_encode(&wire, again);
        if (memcmp(again, stream, LSI_WIRE_BYTES))
            abort();
    }
    feed_port(mode, stream, size);
    free(stream);
    return 0;
}

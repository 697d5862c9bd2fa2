/* The fault transport: counts messages in the stream it forwards and spoils the chosen ones.
 *
 * 1. It follows the stream by the headers it forwards, so it needs no help from above.
 * 2. What it swallows it reports as sent: the sender cannot tell.
 */
#include "transport/fault.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "transport/wire.h"

#define MAX_ITEMS 8

typedef enum fault_kind { DROP, DELAY, CUT, CORRUPT, GARBLE, SHORT, KINDS } fault_kind;
static const char *const kind_names[KINDS] = {"drop", "delay", "cut", "corrupt", "garble", "short"};

typedef struct fault_item {
    fault_kind kind;
    unsigned long at, ms;
} fault_item;

typedef struct fault_link {
    lsi_link link;
    lsi_link *inner;
    fault_item items[MAX_ITEMS];
    int n_items;
    unsigned long message; /* number of the message being forwarded, from 1 */
    uint8_t header[LSI_WIRE_BYTES];
    size_t header_have; /* bytes of the header taken from above */
    size_t header_sent; /* bytes of it passed on */
    int owed;           /* its last byte counts as sent once all of it is passed on */
    uint64_t payload;   /* bytes of the payload still to come from above */
    uint64_t spoil_at;  /* payload bytes left when the bit flips; 0: never */
    int dropping, cut;
    double held_until;
} fault_link;

/* A number, or -1 for '*'. */
static int parse_rank(const char *text, int *rank)
{
    char *end;
    *rank = strcmp(text, "*") ? (int)strtol(text, &end, 10) : -1;
    return *rank < 0 || !*end;
}

static int parse_item(const char *text, int *self, int *peer, fault_item *item)
{
    char from[8], to[8], kind[16], at[11], ms[11] = "";
    int end = 0, more = 0;
    if (sscanf(text, " %7[0-9*]>%7[0-9*] %15[a-z]=%10[0-9] %n", from, to, kind, at, &end) < 4 ||
        !parse_rank(from, self) || !parse_rank(to, peer))
        return 0;
    if (text[end] == ':' && sscanf(text + end, ":%10[0-9] %n", ms, &more) == 1)
        end += more;
    item->at = strtoul(at, NULL, 10);
    item->ms = strtoul(ms, NULL, 10);
    for (int k = 0; k < KINDS; k++)
        if (!strcmp(kind, kind_names[k])) {
            item->kind = (fault_kind)k;
            return item->at > 0 && !text[end] && (k == DELAY) == (ms[0] != 0);
        }
    return 0;
}

/* Collect the items for self > peer; returns how many, or -1 with the error recorded. */
static int parse_plan(const char *plan, int self, int peer, fault_item items[MAX_ITEMS])
{
    int n = 0;
    while (plan && *plan) {
        size_t length = strcspn(plan, ";");
        char text[80];
        snprintf(text, sizeof text, "%.*s", (int)(length < 79 ? length : 79), plan);
        int from, to;
        fault_item item;
        if (!parse_item(text, &from, &to, &item)) {
            lsi_fail(LS_ERR_CONFIG, "e.g. LOCKSTEP_FAULT='0>1 drop=3; *>2 delay=5:200'",
                     "LOCKSTEP_FAULT", "cannot read '%s'", text);
            return -1;
        }
        if ((from < 0 || from == self) && (to < 0 || to == peer) && n < MAX_ITEMS)
            items[n++] = item;
        plan += length + (plan[length] == ';');
    }
    return n;
}

/* A header is complete: what happens to this message? */
static void begin_message(fault_link *f)
{
    lsi_wire wire;
    f->message++;
    f->payload = lsi_wire_decode(f->header, &wire) == LS_OK ? wire.bytes : 0;
    f->header_sent = 0;
    f->dropping = 0;
    f->spoil_at = 0;
    for (int i = 0; i < f->n_items; i++) {
        const fault_item *item = &f->items[i];
        if (item->at != f->message)
            continue;
        switch (item->kind) {
        case DROP: f->dropping = 1; break;
        case DELAY: f->held_until = lsi_now() + (double)item->ms * 1e-3; break;
        case CUT: f->cut = 1; break;
        case CORRUPT: f->header[20] ^= 1; break;
        case GARBLE: f->spoil_at = f->payload; break;
        case SHORT:
        case KINDS: break;
        }
    }
}

static size_t limit_write(const fault_link *f, size_t bytes)
{
    for (int i = 0; i < f->n_items; i++)
        if (f->items[i].kind == SHORT && bytes > f->items[i].at)
            return f->items[i].at;
    return bytes;
}

/* Forward some bytes of one vector; *took says how many the caller may consider sent. */
static ls_status forward(fault_link *f, const char *data, size_t bytes, size_t *took)
{
    *took = 0;
    if (f->header_have < LSI_WIRE_BYTES) { /* collect the header first */
        size_t part = LSI_WIRE_BYTES - f->header_have;
        if (part > bytes)
            part = bytes;
        memcpy(f->header + f->header_have, data, part);
        f->header_have += part;
        *took = part;
        if (f->header_have == LSI_WIRE_BYTES) {
            begin_message(f);
            f->owed = 1; /* else nobody would ask again to send a held message without payload */
            *took -= 1;
        }
        return LS_OK;
    }
    if (bytes > f->payload)
        bytes = (size_t)f->payload;
    if (f->dropping) {
        *took = bytes;
    } else {
        char spoiled = (char)(data[0] ^ 1);
        int spoil = f->spoil_at && f->payload == f->spoil_at;
        struct iovec v = {spoil ? &spoiled : (char *)(uintptr_t)data,
                          spoil ? 1 : limit_write(f, bytes)};
        LSI_TRY(f->inner->ops->send(f->inner, &v, 1, took));
    }
    f->payload -= *took;
    return LS_OK;
}

/* Pass the collected header on; *done is set once nothing of it is left. */
static ls_status flush_header(fault_link *f, int *done)
{
    *done = 0;
    if (f->cut)
        return lsi_fail(LS_ERR_PEER_DEAD, NULL, "fault", "link cut before message %lu", f->message);
    if (f->held_until > 0 && lsi_now() < f->held_until)
        return LS_OK;
    while (f->header_have == LSI_WIRE_BYTES && !f->dropping && f->header_sent < LSI_WIRE_BYTES) {
        struct iovec v = {f->header + f->header_sent,
                          limit_write(f, LSI_WIRE_BYTES - f->header_sent)};
        size_t moved;
        LSI_TRY(f->inner->ops->send(f->inner, &v, 1, &moved));
        if (!moved)
            return LS_OK;
        f->header_sent += moved;
    }
    *done = 1;
    return LS_OK;
}

static ls_status fault_send(lsi_link *link, const struct iovec *vectors, int n, size_t *moved)
{
    fault_link *f = (fault_link *)link;
    *moved = 0;
    for (int i = 0; i < n; i++) {
        size_t at = 0;
        for (;;) {
            int done;
            LSI_TRY(flush_header(f, &done));
            if (!done)
                return LS_OK;
            at += (size_t)f->owed;
            *moved += (size_t)f->owed;
            f->owed = 0;
            if (f->header_have == LSI_WIRE_BYTES && f->payload == 0)
                f->header_have = 0; /* message complete, the next bytes are a header */
            if (at == vectors[i].iov_len)
                break;
            size_t took;
            LSI_TRY(forward(f, (char *)vectors[i].iov_base + at, vectors[i].iov_len - at, &took));
            if (!took && !f->owed)
                return LS_OK;
            at += took;
            *moved += took;
        }
    }
    return LS_OK;
}

static ls_status fault_recv(lsi_link *link, const struct iovec *vectors, int n, size_t *moved)
{
    fault_link *f = (fault_link *)link;
    return f->inner->ops->recv(f->inner, vectors, n, moved);
}

static int fault_fd(const lsi_link *link)
{
    const fault_link *f = (const fault_link *)link;
    return f->inner->ops->fd(f->inner);
}

static void fault_close(lsi_link *link)
{
    fault_link *f = (fault_link *)link;
    f->inner->ops->close(f->inner);
    free(f);
}

static const lsi_link_ops fault_ops = {"fault", fault_send, fault_recv, fault_fd, fault_close};

ls_status lsi_fault_check(const char *plan)
{
    fault_item items[MAX_ITEMS];
    return parse_plan(plan, -2, -2, items) < 0 ? LS_ERR_CONFIG : LS_OK;
}

ls_status lsi_fault_wrap(const char *plan, int self, int peer, lsi_link **link)
{
    fault_item items[MAX_ITEMS];
    int n = parse_plan(plan, self, peer, items);
    if (n < 0)
        return LS_ERR_CONFIG;
    if (n == 0)
        return LS_OK;
    fault_link *f = calloc(1, sizeof *f);
    if (!f)
        return lsi_fail(LS_ERR_NOMEM, NULL, "fault link", "out of memory");
    f->link.ops = &fault_ops;
    f->inner = *link;
    memcpy(f->items, items, sizeof items);
    f->n_items = n;
    *link = &f->link;
    return LS_OK;
}

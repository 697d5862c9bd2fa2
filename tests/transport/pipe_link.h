/* A pair of links in memory whose every byte the test controls: how many move at a time, when none
 * do, when one end breaks, and what is on the way. */
#ifndef LS_TEST_PIPE_LINK_H
#define LS_TEST_PIPE_LINK_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "transport/link.h"

typedef struct pipe_channel {
    char *data;
    size_t at, end, room; /* bytes [at, end) are on the way */
    int closed;           /* the sender has gone */
} pipe_channel;

typedef struct pipe_link {
    lsi_link link;
    pipe_channel *out, *in;
    size_t send_most, recv_most; /* bytes a call */
    size_t send_left, recv_left; /* bytes in all, then none until the test gives more */
    int send_breaks, recv_breaks;
    int fd;
    int *alive; /* counts the links that are not closed */
} pipe_link;

static inline ls_status pipe_send(lsi_link *link, const struct iovec *v, int n, size_t *moved)
{
    pipe_link *l = (pipe_link *)link;
    size_t left = l->send_most < l->send_left ? l->send_most : l->send_left;
    *moved = 0;
    if (l->send_breaks)
        return lsi_fail(LS_ERR_PEER_DEAD, NULL, "pipe", "the sending end is broken");
    for (int i = 0; i < n; i++) {
        size_t part = v[i].iov_len < left ? v[i].iov_len : left;
        pipe_channel *c = l->out;
        if (c->end + part > c->room) {
            c->room = 2 * (c->end + part);
            c->data = realloc(c->data, c->room);
        }
        if (part)
            memcpy(c->data + c->end, v[i].iov_base, part);
        c->end += part;
        left -= part;
        *moved += part;
    }
    if (l->send_left != SIZE_MAX)
        l->send_left -= *moved;
    return LS_OK;
}

static inline ls_status pipe_recv(lsi_link *link, const struct iovec *v, int n, size_t *moved)
{
    pipe_link *l = (pipe_link *)link;
    size_t left = l->recv_most < l->recv_left ? l->recv_most : l->recv_left;
    pipe_channel *c = l->in;
    *moved = 0;
    if (l->recv_breaks || (c->closed && c->at == c->end))
        return lsi_fail(LS_ERR_PEER_DEAD, NULL, "pipe", "the other end has closed");
    for (int i = 0; i < n; i++) {
        size_t part = v[i].iov_len < left ? v[i].iov_len : left;
        if (part > c->end - c->at)
            part = c->end - c->at;
        if (part)
            memcpy(v[i].iov_base, c->data + c->at, part);
        c->at += part;
        left -= part;
        *moved += part;
    }
    if (l->recv_left != SIZE_MAX)
        l->recv_left -= *moved;
    if (c->at == c->end)
        c->at = c->end = 0;
    return LS_OK;
}

static inline int pipe_fd(const lsi_link *link)
{
    return ((const pipe_link *)link)->fd;
}

static inline void pipe_close(lsi_link *link)
{
    pipe_link *l = (pipe_link *)link;
    l->out->closed = 1;
    if (l->alive)
        --*l->alive;
    free(l);
}

static inline pipe_link *pipe_open(pipe_channel *out, pipe_channel *in, int *alive)
{
    static const lsi_link_ops ops = {"pipe", pipe_send, pipe_recv, pipe_fd, pipe_close};
    pipe_link *l = calloc(1, sizeof *l);
    *l = (pipe_link){.link = {&ops}, .out = out, .in = in, .alive = alive, .fd = -1};
    l->send_most = l->recv_most = l->send_left = l->recv_left = SIZE_MAX;
    if (alive)
        ++*alive;
    return l;
}

#endif

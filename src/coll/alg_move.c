/* Collectives that only move data, over messages: every block goes straight to whoever wants it.
 *
 * One latency, n-1 messages a rank; the order of the peers is rotated so that nobody is everyone's
 * first.
 */
#include "coll/algorithm.h"

void lsi_direct_broadcast(lsi_schedule *s, const lsi_team *t, void *data, size_t bytes, int root)
{
    int parts = lsi_parts(s, bytes, 1, 2);
    for (int p = 0; p < parts; p++) {
        size_t from, to;
        lsi_part(bytes, parts, p, &from, &to);
        char *at = (char *)data + from;
        if (t->self != root) {
            lsi_add_recv(s, lsi_team_rank(t, root), lsi_tag(0, 0, 0, p), at, to - from, -1);
            continue;
        }
        for (int i = 1; i < t->n; i++)
            lsi_add_send(s, lsi_team_rank(t, (root + i) % t->n), lsi_tag(0, 0, 0, p), at, to - from,
                         -1);
    }
}

/* A chain from the root on, pipelined: n-1 latencies, each link carries the data once. */
void lsi_ring_broadcast(lsi_schedule *s, const lsi_team *t, void *data, size_t bytes, int root)
{
    int parts = lsi_parts(s, bytes, 1, 1), place = (t->self - root + t->n) % t->n;
    for (int p = 0; p < parts; p++) {
        size_t from, to;
        lsi_part(bytes, parts, p, &from, &to);
        char *at = (char *)data + from;
        int got = -1;
        if (place > 0)
            got = lsi_add_recv(s, lsi_team_rank(t, (t->self - 1 + t->n) % t->n),
                               lsi_tag(0, 0, 0, p), at, to - from, -1);
        if (place < t->n - 1)
            lsi_add_send(s, lsi_team_rank(t, (t->self + 1) % t->n), lsi_tag(0, 0, 0, p), at,
                         to - from, got);
    }
}

void lsi_add_broadcast(lsi_schedule *s, lsi_algorithm algorithm, const lsi_team *t, void *data,
                       size_t bytes, int root)
{
    if (algorithm == LSI_TREE)
        lsi_tree_broadcast(s, t, data, bytes, root);
    else if (algorithm == LSI_RING)
        lsi_ring_broadcast(s, t, data, bytes, root);
    else
        lsi_direct_broadcast(s, t, data, bytes, root);
}

void lsi_direct_allgather(lsi_schedule *s, const ls_comm *comm, const lsi_call *call)
{
    int n = comm->size;
    size_t *lo = lsi_schedule_alloc(s, sizeof *lo * (size_t)(n + 1));
    if (!lo)
        return;
    lo[0] = 0;
    for (int m = 0; m < n; m++)
        lo[m + 1] =
            lo[m] + (call->recv_counts ? call->recv_counts[m] : call->count) * call->element;
    size_t own = lo[comm->rank + 1] - lo[comm->rank];
    for (int i = 1; i < n; i++) {
        int to = (comm->rank + i) % n, from = (comm->rank - i + n) % n;
        lsi_add_recv(s, from, lsi_tag(0, 0, 0, 0), (char *)call->recv + lo[from],
                     lo[from + 1] - lo[from], -1);
        lsi_add_send(s, to, lsi_tag(0, 0, 0, 0), call->send, own, -1);
    }
    lsi_add_copy(s, (char *)call->recv + lo[comm->rank], call->send, own, -1);
}

void lsi_direct_gather(lsi_schedule *s, const ls_comm *comm, const lsi_call *call)
{
    size_t bytes = call->count * call->element;
    if (comm->rank != call->root) {
        lsi_add_send(s, call->root, lsi_tag(0, 0, 0, 0), call->send, bytes, -1);
        return;
    }
    for (int m = 0; m < comm->size; m++) {
        char *at = (char *)call->recv + bytes * (size_t)m;
        if (m == comm->rank)
            lsi_add_copy(s, at, call->send, bytes, -1);
        else
            lsi_add_recv(s, m, lsi_tag(0, 0, 0, 0), at, bytes, -1);
    }
}

void lsi_direct_scatter(lsi_schedule *s, const ls_comm *comm, const lsi_call *call)
{
    size_t bytes = call->count * call->element;
    if (comm->rank != call->root) {
        lsi_add_recv(s, call->root, lsi_tag(0, 0, 0, 0), call->recv, bytes, -1);
        return;
    }
    for (int m = 0; m < comm->size; m++) {
        const char *at = (const char *)call->send + bytes * (size_t)m;
        if (m != comm->rank)
            lsi_add_send(s, m, lsi_tag(0, 0, 0, 0), at, bytes, -1);
        else if (!call->in_place)
            lsi_add_copy(s, call->recv, at, bytes, -1);
    }
}

void lsi_direct_alltoall(lsi_schedule *s, const ls_comm *comm, const lsi_call *call)
{
    int n = comm->size;
    size_t *send_at = lsi_schedule_alloc(s, sizeof *send_at * (size_t)(n + 1));
    size_t *recv_at = lsi_schedule_alloc(s, sizeof *recv_at * (size_t)(n + 1));
    if (!send_at || !recv_at)
        return;
    send_at[0] = recv_at[0] = 0;
    for (int m = 0; m < n; m++) {
        size_t sends = call->send_counts ? call->send_counts[m] : call->count;
        size_t recvs = call->recv_counts ? call->recv_counts[m] : call->count;
        send_at[m + 1] = send_at[m] + sends * call->element;
        recv_at[m + 1] = recv_at[m] + recvs * call->element;
    }
    for (int i = 1; i < n; i++) {
        int to = (comm->rank + i) % n, from = (comm->rank - i + n) % n;
        lsi_add_recv(s, from, lsi_tag(0, 0, 0, 0), (char *)call->recv + recv_at[from],
                     recv_at[from + 1] - recv_at[from], -1);
        lsi_add_send(s, to, lsi_tag(0, 0, 0, 0), (const char *)call->send + send_at[to],
                     send_at[to + 1] - send_at[to], -1);
    }
    lsi_add_copy(s, (char *)call->recv + recv_at[comm->rank],
                 (const char *)call->send + send_at[comm->rank],
                 send_at[comm->rank + 1] - send_at[comm->rank], -1);
}

/* Everybody's chunks of our block meet in `scratch`, and are added there; the next ones are sent
 * when ours have come. */
void lsi_direct_reduce_scatter(lsi_schedule *s, const ls_comm *comm, const lsi_call *call)
{
    const int n = comm->size, parts = lsi_parts_all_to_all(s, n, call->count, call->element);
    const size_t bytes = call->count * call->element;
    int merged[LSI_CHUNK_WINDOW_MAX];
    size_t from, to;
    lsi_part(call->count, parts, 0, &from, &to); /* the largest */
    const size_t chunk = (to - from) * call->element;
    const int windows = parts < s->window ? parts : s->window;
    lsi_tree_node *leaves = lsi_schedule_alloc(s, sizeof *leaves * (size_t)n);
    const void **in = lsi_schedule_alloc(s, sizeof *in * (size_t)n);
    char *scratch = lsi_schedule_alloc(s, chunk * (size_t)n * (size_t)windows);
    if (!leaves || !in || !scratch)
        return;
    for (int m = 0; m < n; m++)
        leaves[m] = (lsi_tree_node){m, m + 1};
    const lsi_tree_plan *plan = lsi_schedule_plan(s, n, leaves, n, NULL, NULL);
    if (!plan)
        return;
    char *own = call->in_place ? (char *)call->recv + bytes * (size_t)comm->rank : call->recv;
    for (int p = 0; p < parts; p++) {
        const int w = p % s->window, after = p < s->window ? -1 : merged[w], first = s->n;
        lsi_part(call->count, parts, p, &from, &to);
        for (int i = 1; i < n; i++) {
            const int m = (comm->rank + i) % n;
            in[m] = scratch + chunk * (size_t)(w * n + m);
            lsi_add_recv(s, m, lsi_tag(0, 0, 0, p), (void *)(uintptr_t)in[m],
                         (to - from) * call->element, after);
            lsi_add_send(s, m, lsi_tag(0, 0, 0, p),
                         (const char *)call->send + bytes * (size_t)m + from * call->element,
                         (to - from) * call->element, after);
        }
        in[comm->rank] =
            (const char *)call->send + bytes * (size_t)comm->rank + from * call->element;
        const int end = s->n;
        void *out = lsi_at_mut(own, from, call->element);
        merged[w] = lsi_add_merge(s, plan, in, &out, to - from, -1);
        lsi_after_range(s, first, end);
    }
}

void lsi_add_barrier(lsi_schedule *s, const lsi_team *t)
{
    int before_from = 0, before_to = 0, round = 0;
    for (int distance = 1; distance < t->n; distance *= 2, round++) {
        int to = (t->self + distance) % t->n, from = (t->self - distance + t->n) % t->n;
        int first = s->n;
        lsi_add_send(s, lsi_team_rank(t, to), lsi_tag(0, 0, round, 0), NULL, 0, -1);
        lsi_after_range(s, before_from, before_to);
        lsi_add_recv(s, lsi_team_rank(t, from), lsi_tag(0, 0, round, 0), NULL, 0, -1);
        lsi_after_range(s, before_from, before_to);
        before_from = first;
        before_to = s->n;
    }
}

/* ring: segments travel around the ring, growing by one summand a hop, then once more complete.
 *
 * Bandwidth-optimal for any number of members, 2(n-1) latencies (Patarasu and Yuan 2009). The sum
 * of a segment starts at a member that depends on the segment: deterministic for a given n, but
 * not in tree order. Large vectors run as several rings, one a part, pipelined.
 */
#include "coll/algorithm.h"

enum { REDUCE, GATHER };

typedef struct ring {
    lsi_schedule *s;
    const lsi_team *t;
    int next, prev; /* ranks */
    int part;
    char *scratch[LSI_CHUNK_WINDOW_MAX];
    size_t element;
} ring;

/* Reduce-scatter: afterwards member m holds the complete segment (m + 1) % n in `work`. `in` and
 * `work` are whole vectors, lo[m]..lo[m+1] the segments. Returns the last step. */
static int reduce_hops(ring *g, const char *in, char *work, const size_t *lo, int after)
{
    int n = g->t->n, self = g->t->self, last = after;
    char *scratch = g->scratch[g->part % g->s->window];
    for (int hop = 0; hop < n - 1; hop++) {
        int out = (self - hop + n) % n, add = (out - 1 + n) % n;
        size_t sent = (lo[out + 1] - lo[out]) * g->element;
        size_t got = (lo[add + 1] - lo[add]) * g->element;
        const char *from = hop == 0 ? in : work;
        lsi_add_send(g->s, g->next, lsi_tag(REDUCE, 0, hop, g->part), from + lo[out] * g->element,
                     sent, last);
        int received = lsi_add_recv(g->s, g->prev, lsi_tag(REDUCE, 0, hop, g->part), scratch, got,
                                    last); /* scratch is free: `last` is the sum that used it */
        last = lsi_add_reduce(g->s, work + lo[add] * g->element, scratch, in + lo[add] * g->element,
                              lo[add + 1] - lo[add], received);
    }
    return last;
}

/* All-gather: member m starts with segment (m + shift) % n. Returns the last step. */
static int gather_hops(ring *g, char *work, const size_t *lo, int shift, int after)
{
    int n = g->t->n, self = g->t->self, last = after;
    for (int hop = 0; hop < n - 1; hop++) {
        int out = (self + shift - hop + 2 * n) % n, into = (out - 1 + n) % n;
        lsi_add_send(g->s, g->next, lsi_tag(GATHER, 0, hop, g->part), work + lo[out] * g->element,
                     (lo[out + 1] - lo[out]) * g->element, last);
        last = lsi_add_recv(g->s, g->prev, lsi_tag(GATHER, 0, hop, g->part),
                            work + lo[into] * g->element, (lo[into + 1] - lo[into]) * g->element,
                            last);
    }
    return last;
}

/* For a reduce: the finished segments go to the root. */
static int collect(ring *g, char *work, const size_t *lo, int root, int after)
{
    int n = g->t->n, self = g->t->self, own = (self + 1) % n;
    if (self != root)
        return lsi_add_send(g->s, lsi_team_rank(g->t, root), lsi_tag(GATHER, 0, own, g->part),
                            work + lo[own] * g->element, (lo[own + 1] - lo[own]) * g->element,
                            after);
    int first = g->s->n;
    for (int m = 0; m < n; m++) {
        int segment = (m + 1) % n;
        if (m != root)
            lsi_add_recv(g->s, lsi_team_rank(g->t, m), lsi_tag(GATHER, 0, segment, g->part),
                         work + lo[segment] * g->element,
                         (lo[segment + 1] - lo[segment]) * g->element, after);
    }
    int end = g->s->n, done = lsi_add_none(g->s, -1);
    lsi_after_range(g->s, first, end);
    return done;
}

/* Sum our own node list into one vector: the ring does not keep the tree's order anyway. */
static const char *collapse(lsi_schedule *s, const lsi_reduction *r, int *after)
{
    const char *in = r->mine[0];
    *after = -1;
    for (int j = 1; j < r->n_mine; j++) {
        *after = lsi_add_reduce(s, r->work, in, r->mine[j], r->count, *after);
        in = r->work;
    }
    return in;
}

static int open_ring(ring *g, lsi_schedule *s, const lsi_team *t, size_t segment, size_t element)
{
    *g = (ring){.s = s, .t = t, .element = element};
    g->next = lsi_team_rank(t, (t->self + 1) % t->n);
    g->prev = lsi_team_rank(t, (t->self - 1 + t->n) % t->n);
    for (int w = 0; w < s->window; w++)
        g->scratch[w] = lsi_schedule_alloc(s, segment * element);
    return s->broken == LS_OK;
}

void lsi_ring_reduce(lsi_schedule *s, const lsi_reduction *r)
{
    ring g;
    int start, parts = lsi_parts(s, r->count, r->element, (size_t)r->team->n);
    int ends[LSI_CHUNK_WINDOW_MAX], n = r->team->n;
    size_t from, to, largest;
    lsi_part(r->count, parts, 0, &from, &to);
    lsi_part(to - from, n, 0, &from, &largest);
    size_t *lo = lsi_schedule_alloc(s, sizeof *lo * (size_t)(n + 1));
    if (!lo || !open_ring(&g, s, r->team, largest, r->element))
        return;
    const char *in = collapse(s, r, &start);
    for (int p = 0; p < parts; p++) {
        lsi_part(r->count, parts, p, &from, &to);
        for (int m = 0; m < n; m++) {
            size_t a, b;
            lsi_part(to - from, n, m, &a, &b);
            lo[m] = a;
            lo[m + 1] = b;
        }
        g.part = p;
        int after = p < s->window ? start : ends[p % s->window];
        char *work = lsi_at_mut(r->work, from, r->element);
        int last = reduce_hops(&g, in + from * r->element, work, lo, after);
        last =
            r->root < 0 ? gather_hops(&g, work, lo, 1, last) : collect(&g, work, lo, r->root, last);
        ends[p % s->window] = last;
    }
}

void lsi_ring_reduce_scatter(lsi_schedule *s, const ls_comm *comm, const lsi_call *call)
{
    /* The segments are the blocks, shifted by one so that member m ends with its own. */
    ring g;
    int n = comm->size;
    lsi_team team = {n, comm->rank, n, NULL, 0}, *t = lsi_schedule_alloc(s, sizeof team);
    size_t bytes = call->count * call->element;
    char *work = lsi_schedule_alloc(s, bytes * (size_t)n);
    size_t *lo = lsi_schedule_alloc(s, sizeof *lo * (size_t)(n + 1));
    if (!t || !work || !lo)
        return;
    *t = team;
    t->self = (comm->rank - 1 + n) % n;
    for (int m = 0; m <= n; m++)
        lo[m] = call->count * (size_t)m;
    if (!open_ring(&g, s, t, call->count, call->element))
        return;
    g.next = (comm->rank + 1) % n;
    g.prev = (comm->rank - 1 + n) % n;
    int last = reduce_hops(&g, call->send, work, lo, -1);
    char *own = call->in_place ? (char *)call->recv + bytes * (size_t)comm->rank : call->recv;
    lsi_add_copy(s, own, work + bytes * (size_t)comm->rank, bytes, last);
}

void lsi_ring_allgather(lsi_schedule *s, const ls_comm *comm, const lsi_call *call)
{
    ring g;
    int n = comm->size;
    lsi_team *t = lsi_schedule_alloc(s, sizeof *t);
    size_t *lo = lsi_schedule_alloc(s, sizeof *lo * (size_t)(n + 1));
    if (!t || !lo)
        return;
    *t = (lsi_team){n, comm->rank, n, NULL, 0};
    lo[0] = 0;
    for (int m = 0; m < n; m++)
        lo[m + 1] = lo[m] + (call->recv_counts ? call->recv_counts[m] : call->count);
    if (!open_ring(&g, s, t, 0, call->element))
        return;
    size_t own = lo[comm->rank] * call->element;
    int copied = lsi_add_copy(s, (char *)call->recv + own, call->send,
                              (lo[comm->rank + 1] - lo[comm->rank]) * call->element, -1);
    gather_hops(&g, call->recv, lo, 0, copied);
}

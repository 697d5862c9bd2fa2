/* hd: recursive halving, then recursive doubling, neighbours first.
 *
 * In round k a member exchanges halves of its piece with the member whose number differs in bit k,
 * so after round k it holds the sum over its aligned block of 2^(k+1) members: exactly the nodes
 * of the summation tree, in tree order. (Rabenseifner 2004 with the distances in rising order.)
 *
 * Any number of members: positions up to the next power of two are virtual, played by the member
 * that lsi_tree_host names; a block without members is skipped, as an absent leaf is. The pieces
 * of the skipped block stay with the sibling that plays it.
 *
 * Invariants:
 * 1. In round k position v holds piece(v, k): [0, count) halved by the bits 0..k-1 of v.
 * 2. The values on that piece are the node list of the leaves of v's block of 2^k members.
 * 3. Value 0 is kept in `work`, the others (only where hosts cut subtrees) in scratch vectors.
 */
#include "coll/algorithm.h"

#include <string.h>

typedef struct hd {
    const lsi_reduction *r;
    lsi_schedule *s;
    int rounds, part;
    size_t base, count;                  /* this part of the vector */
    char *store[2][LSI_TREE_MAX_NODES];  /* two sets, so that a merge does not overwrite inputs */
    const char *now[LSI_TREE_MAX_NODES]; /* current values, whole vectors */
    int level_from, level_to;            /* steps that the next round waits for */
    const lsi_tree_plan *plans[LSI_TREE_MAX_DEPTH]; /* by round */
    char **received;                                /* [window][round][position] */
} hd;

static void piece(const hd *h, int v, int round, size_t *from, size_t *to)
{
    size_t a = 0, b = h->count;
    for (int k = 0; k < round; k++) {
        size_t mid = a + ((b - a + 1) / 2 + 15) / 16 * 16;
        if (mid > b)
            mid = b;
        if (v >> k & 1)
            a = mid;
        else
            b = mid;
    }
    *from = h->base + a;
    *to = h->base + b;
}

/* Members of the aligned block of 2^round positions around v: how many nodes do they hold? */
static int block_nodes(const hd *h, int v, int round, lsi_tree_node nodes[LSI_TREE_MAX_NODES])
{
    const lsi_team *t = h->r->team;
    int first = v >> round << round, end = first + (1 << round);
    if (first >= t->n)
        return 0;
    if (end > t->n)
        end = t->n;
    return lsi_tree_nodes(t->leaves, lsi_team_span(t, first).first, lsi_team_span(t, end - 1).end,
                          nodes);
}

/* Does position v, played by us, exchange in this round? With whom? */
static int partner(const hd *h, int v, int round, int *rank)
{
    const lsi_team *t = h->r->team;
    int u = v ^ 1 << round;
    if (lsi_tree_host(v, t->n) != t->self || v >> round << round >= t->n ||
        u >> round << round >= t->n)
        return 0;
    *rank = lsi_team_rank(t, lsi_tree_host(u, t->n));
    return 1;
}

/* Room for what position v receives in this round; parts a window apart share it. */
static char *scratch(hd *h, int v, int round, size_t bytes)
{
    size_t place = ((size_t)(h->part % h->s->window) * (size_t)h->rounds + (size_t)round)
                       << h->rounds |
                   (size_t)v;
    if (!h->received[place])
        h->received[place] = lsi_schedule_alloc(h->s, bytes);
    return h->received[place];
}

/* One exchange of the halving phase for position v. */
static void halve(hd *h, int v, int round, char *const *out)
{
    lsi_tree_node nodes[2 * LSI_TREE_MAX_NODES], merged[LSI_TREE_MAX_NODES];
    int rank, u = v ^ 1 << round, left = v < u ? v : u;
    if (!partner(h, v, round, &rank))
        return;
    size_t element = h->r->element, keep_from, keep_to, give_from, give_to;
    piece(h, v, round + 1, &keep_from, &keep_to);
    piece(h, u, round + 1, &give_from, &give_to);
    int n_left = block_nodes(h, left, round, nodes);
    int n_right = block_nodes(h, left ^ 1 << round, round, nodes + n_left);
    int n_mine = v < u ? n_left : n_right, n_theirs = v < u ? n_right : n_left;
    for (int j = 0; j < n_mine && give_to > give_from; j++)
        if (lsi_add_send(h->s, rank, lsi_tag(round, j, u, h->part),
                         lsi_at(h->now[j], give_from, element), (give_to - give_from) * element,
                         -1) >= 0)
            lsi_after_range(h->s, h->level_from, h->level_to);
    if (keep_to == keep_from)
        return;
    size_t n = keep_to - keep_from;
    char *received = scratch(h, v, round, n * element * (size_t)n_theirs);
    if (!h->plans[round])
        h->plans[round] =
            lsi_schedule_plan(h->s, h->r->team->leaves, nodes, n_left + n_right, merged, NULL);
    const lsi_tree_plan *plan = h->plans[round];
    if (!received || !plan)
        return;
    const void *in[2 * LSI_TREE_MAX_NODES];
    void *to[LSI_TREE_MAX_NODES];
    int first = h->s->n;
    for (int j = 0; j < n_theirs; j++) {
        char *place = received + (size_t)j * n * element;
        in[v < u ? n_left + j : j] = place;
        lsi_add_recv(h->s, rank, lsi_tag(round, j, v, h->part), place, n * element, -1);
        lsi_after_range(h->s, h->level_from, h->level_to);
    }
    for (int j = 0; j < n_mine; j++)
        in[v < u ? j : n_left + j] = lsi_at(h->now[j], keep_from, element);
    for (int j = 0; j < plan->n_out; j++)
        to[j] = lsi_at_mut(out[j], keep_from, element);
    int end = h->s->n;
    lsi_add_merge(h->s, plan, in, to, n, -1);
    lsi_after_range(h->s, first, end);
}

/* Where the values of the next round go: whole vectors, made on first use. */
static char **next_store(hd *h, int n_out)
{
    int set = n_out > 1 && h->now[0] == h->store[0][0] ? 1 : 0;
    for (int j = 0; j < n_out; j++)
        if (!h->store[set][j])
            h->store[set][j] = lsi_schedule_alloc(h->s, h->r->count * h->r->element);
    return h->store[set];
}

/* The steps since `first` are what the next round waits for; a round without any changes none. */
static void close_level(hd *h, int first)
{
    if (h->s->n == first)
        return;
    h->level_from = first;
    h->level_to = h->s->n;
}

static void halving(hd *h)
{
    const lsi_team *t = h->r->team;
    lsi_tree_node nodes[LSI_TREE_MAX_NODES];
    for (int k = 0; k < h->rounds; k++) {
        int rank, exchanged = 0, positions = 1 << h->rounds;
        int n_out = block_nodes(h, t->self, k + 1, nodes);
        char **out = next_store(h, n_out);
        if (h->s->broken != LS_OK)
            return;
        for (int v = 0; v < positions; v++)
            exchanged |= partner(h, v, k, &rank);
        if (!exchanged)
            continue; /* alone in the block: nothing changes */
        int first = h->s->n;
        for (int v = 0; v < positions; v++)
            halve(h, v, k, out);
        for (int j = 0; j < n_out; j++)
            h->now[j] = out[j];
        close_level(h, first);
    }
}

/* The way back: everybody's finished pieces to everybody. */
static void doubling(hd *h)
{
    size_t element = h->r->element;
    for (int k = h->rounds - 1; k >= 0; k--) {
        int first = h->s->n;
        for (int v = 0; v < 1 << h->rounds; v++) {
            int rank, u = v ^ 1 << k;
            if (!partner(h, v, k, &rank))
                continue;
            size_t from, to;
            piece(h, v, k + 1, &from, &to);
            if (to > from) {
                lsi_add_send(h->s, rank, lsi_tag(15, 0, u, h->part),
                             lsi_at(h->r->work, from, element), (to - from) * element, -1);
                lsi_after_range(h->s, h->level_from, h->level_to);
            }
            piece(h, u, k + 1, &from, &to);
            if (to > from) {
                lsi_add_recv(h->s, rank, lsi_tag(15, 0, v, h->part),
                             lsi_at_mut(h->r->work, from, element), (to - from) * element, -1);
                lsi_after_range(h->s, h->level_from, h->level_to);
            }
        }
        close_level(h, first);
    }
}

/* For a reduce: everybody's finished pieces to the root. */
static void collect(hd *h)
{
    const lsi_team *t = h->r->team;
    size_t element = h->r->element, from, to;
    int first = h->s->n;
    for (int v = 0; v < 1 << h->rounds; v++) {
        int host = lsi_tree_host(v, t->n);
        piece(h, v, h->rounds, &from, &to);
        if (to == from || host == h->r->root)
            continue;
        if (host == t->self) {
            lsi_add_send(h->s, lsi_team_rank(t, h->r->root), lsi_tag(15, 0, v, h->part),
                         lsi_at(h->r->work, from, element), (to - from) * element, -1);
            lsi_after_range(h->s, h->level_from, h->level_to);
        } else if (t->self == h->r->root) {
            lsi_add_recv(h->s, lsi_team_rank(t, host), lsi_tag(15, 0, v, h->part),
                         lsi_at_mut(h->r->work, from, element), (to - from) * element, -1);
            lsi_after_range(h->s, h->level_from, h->level_to);
        }
    }
    close_level(h, first);
}

void lsi_hd_reduce(lsi_schedule *s, const lsi_reduction *r)
{
    hd h = {.r = r, .s = s};
    while (1 << h.rounds < r->team->n)
        h.rounds++;
    int parts = lsi_parts(s, r->count, r->element, 2), ends[LSI_CHUNK_WINDOW_MAX] = {0};
    size_t places = (size_t)s->window * (size_t)h.rounds << h.rounds;
    h.received = lsi_schedule_alloc(s, places * sizeof *h.received);
    if (!h.received)
        return;
    memset(h.received, 0, places * sizeof *h.received);
    for (int p = 0; p < parts; p++) {
        size_t from, to;
        lsi_part(r->count, parts, p, &from, &to);
        h.part = p;
        h.base = from;
        h.count = to - from;
        h.level_from = h.level_to = 0;
        if (p >= s->window) { /* start when the part a window ago has ended */
            h.level_from = ends[p % s->window];
            h.level_to = h.level_from + 1;
        }
        h.store[0][0] = r->work;
        for (int j = 0; j < r->n_mine; j++)
            h.now[j] = r->mine[j];
        halving(&h);
        if (r->root < 0)
            doubling(&h);
        else
            collect(&h);
        ends[p % s->window] = lsi_add_none(s, -1);
        lsi_after_range(s, h.level_from, h.level_to);
        if (s->broken != LS_OK)
            return;
    }
}

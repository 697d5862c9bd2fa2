/* direct: every member reduces its own segment from everybody's messages, in tree order, and sends
 * the result to everybody. All messages of a chunk are under way at once: two latencies, whatever
 * the number of members; bandwidth-optimal, but for small vectors, which few members reduce. (The
 * reduce-scatter + all-gather of Rabenseifner 2004 with pairwise exchange.)
 */
#include "coll/algorithm.h"

const lsi_reduce_algorithm lsi_reduce_algorithms[LSI_ALGORITHM_COUNT] = {
    [LSI_DIRECT] = lsi_direct_reduce,
    [LSI_HD] = lsi_hd_reduce,
    [LSI_RING] = lsi_ring_reduce,
    [LSI_TREE] = lsi_tree_reduce,
};

int lsi_parts(const lsi_schedule *s, size_t count, size_t element, size_t scale)
{
    size_t parts = (count * element + s->chunk * scale - 1) / (s->chunk * scale);
    if (parts < 1)
        parts = 1;
    return parts < LSI_MAX_PARTS ? (int)parts : LSI_MAX_PARTS - 1;
}

void lsi_part(size_t count, int parts, int p, size_t *from, size_t *to)
{
    size_t size = ((count + (size_t)parts - 1) / (size_t)parts + 15) & ~(size_t)15;
    size_t a = size * (size_t)p, b = a + size;
    *from = a < count ? a : count;
    *to = b < count ? b : count;
}

/* Bytes that are not worth more messages. Inside a host all of them cost the same processors, if
 * there are more than two members (a crowd); between hosts each has its own, and its own line. */
#define LEAST_SEGMENT_HOST ((size_t)32 << 10)
#define LEAST_SEGMENT ((size_t)1 << 10)

/* All to all, a chunk of every pair of a crowd is under way: together they should meet in the
 * cache. A reduce of 4 or 25 MiB with 10 MiB of them takes seven to nine ranks 0.86 to 1 of the
 * time of halves of LSI_CHUNK_HOST, which is what fewer ranks have (Zen 5, two cores, 32 MiB). */
#define CROWD ((size_t)10 << 20)

enum { INPUT, RESULT }; /* phases */

typedef struct direct {
    const lsi_reduction *r;
    lsi_schedule *s;
    int parts;
    const lsi_tree_plan *plan; /* merges everybody's node lists */
    int n_in, at_self;         /* inputs of the plan; ours begin at at_self */
    const void **in;
    char *scratch[LSI_CHUNK_WINDOW_MAX];
    size_t scratch_part; /* bytes of one vector in it */
    int *got_result;     /* [n * WINDOW] step that received the result of (member, part) */
    int *merged;         /* [WINDOW] */
} direct;

static int is_crowd(const lsi_schedule *s, int n)
{
    return s->in_host && n > 2;
}

int lsi_parts_all_to_all(lsi_schedule *s, int n, size_t count, size_t element)
{
    if (is_crowd(s, n)) {
        const size_t share = CROWD / ((size_t)n * (size_t)(n - 1));
        s->chunk = share < s->chunk / 2 ? share : s->chunk / 2;
        s->chunk = s->chunk < LSI_CHUNK_SEGMENT ? LSI_CHUNK_SEGMENT : s->chunk;
    }
    return lsi_parts(s, count, element, 1);
}

/* What member m reduces: [*lo, *hi). Of a small vector the first ones take it all: then the number
 * of messages grows with the members, not with their square. Not the root of a reduction instead:
 * of two who disagree on who that is, each would wait for the other. */
static void segment(const direct *d, int m, size_t *lo, size_t *hi)
{
    const lsi_reduction *r = d->r;
    const size_t n = (size_t)r->team->n;
    const size_t least = (is_crowd(d->s, (int)n) ? LEAST_SEGMENT_HOST : LEAST_SEGMENT) / r->element;
    size_t size = ((r->count + n - 1) / n + 15) & ~(size_t)15;
    size = size < least ? least : size;
    *lo = size * (size_t)m < r->count ? size * (size_t)m : r->count;
    *hi = *lo + size < r->count ? *lo + size : r->count;
}

/* Member m's part p as a range of the vector. */
static size_t segment_part(const direct *d, int m, int p, size_t *from)
{
    size_t lo, hi, a, b;
    segment(d, m, &lo, &hi);
    lsi_part(hi - lo, d->parts, d->s->backwards ? d->parts - 1 - p : p, &a, &b);
    *from = lo + a;
    return b - a;
}

static int wants_result(const lsi_reduction *r, int m)
{
    return r->root < 0 || r->root == m;
}

/* Our inputs for the segments of the others, and their results back to us. */
static void exchange_others(direct *d, int p)
{
    const lsi_reduction *r = d->r;
    const lsi_team *t = r->team;
    for (int i = 1; i < t->n; i++) {
        int m = (t->self + i) % t->n, first = d->s->n;
        size_t from, n = segment_part(d, m, p, &from);
        if (!n)
            continue;
        int window = m * d->s->window + p % d->s->window;
        int after = -1; /* nobody's chunks run ahead: they would be kept and copied */
        if (p >= d->s->window)
            after = wants_result(r, t->self) ? d->got_result[window] : d->merged[p % d->s->window];
        for (int j = 0; j < r->n_mine; j++)
            lsi_add_send(d->s, lsi_team_rank(t, m), lsi_tag(INPUT, j, 0, p),
                         lsi_at(r->mine[j], from, r->element), n * r->element, after);
        if (!wants_result(r, t->self))
            continue;
        int end = d->s->n;
        d->got_result[window] =
            lsi_add_recv(d->s, lsi_team_rank(t, m), lsi_tag(RESULT, 0, 0, p),
                         lsi_at_mut(r->work, from, r->element), n * r->element, -1);
        lsi_after_range(d->s, first, end); /* the result may overwrite the input */
    }
}

/* The others' inputs for our segment, the sum, and its way to those who want it. */
static void reduce_own(direct *d, int p)
{
    const lsi_reduction *r = d->r;
    const lsi_team *t = r->team;
    size_t from, n = segment_part(d, t->self, p, &from);
    if (!n)
        return;
    int w = p % d->s->window, first = d->s->n, k = 0;
    int after = p >= d->s->window ? d->merged[w] : -1;
    for (int m = 0; m < t->n; m++) {
        lsi_tree_node nodes[LSI_TREE_MAX_NODES];
        lsi_span span = lsi_team_span(t, m);
        int n_nodes = lsi_tree_nodes(t->leaves, span.first, span.end, nodes);
        for (int j = 0; j < n_nodes; j++, k++) {
            if (m == t->self) {
                d->in[k] = lsi_at(r->mine[j], from, r->element);
                continue;
            }
            char *place = d->scratch[w] + (size_t)k * d->scratch_part;
            d->in[k] = place;
            lsi_add_recv(d->s, lsi_team_rank(t, m), lsi_tag(INPUT, j, 0, p), place, n * r->element,
                         after);
        }
    }
    int end = d->s->n;
    void *out = lsi_at_mut(r->work, from, r->element);
    d->merged[w] = lsi_add_merge(d->s, d->plan, d->in, &out, n, -1);
    lsi_after_range(d->s, first, end);
    for (int i = 1; i < t->n; i++) {
        int m = (t->self + i) % t->n;
        if (wants_result(r, m))
            lsi_add_send(d->s, lsi_team_rank(t, m), lsi_tag(RESULT, 0, 0, p), out, n * r->element,
                         d->merged[w]);
    }
}

/* The plan over all members' node lists, and scratch for what is received. */
static int prepare(direct *d)
{
    const lsi_team *t = d->r->team;
    lsi_tree_node *nodes = lsi_schedule_alloc(d->s, sizeof *nodes * (size_t)(t->leaves + 1));
    if (!nodes)
        return 0;
    for (int m = 0; m < t->n; m++) {
        lsi_span span = lsi_team_span(t, m);
        d->n_in += lsi_tree_nodes(t->leaves, span.first, span.end, nodes + d->n_in);
    }
    d->plan = lsi_schedule_plan(d->s, t->leaves, nodes, d->n_in, NULL, NULL);
    d->in = lsi_schedule_alloc(d->s, sizeof *d->in * (size_t)d->n_in);
    d->got_result = lsi_schedule_alloc(d->s, sizeof(int) * (size_t)(t->n * d->s->window));
    d->merged = lsi_schedule_alloc(d->s, sizeof(int) * (size_t)d->s->window);
    size_t lo, hi, from, to;
    segment(d, t->self, &lo, &hi);
    lsi_part(hi - lo, d->parts, 0, &from, &to); /* the largest */
    d->scratch_part = ((to - from) * d->r->element + 63) & ~(size_t)63;
    for (int i = 0; d->got_result && i < t->n * d->s->window; i++)
        d->got_result[i] = -1;
    for (int w = 0; d->merged && w < d->s->window; w++)
        d->merged[w] = -1;
    int windows = d->parts < d->s->window ? d->parts : d->s->window;
    for (int w = 0; w < windows; w++)
        d->scratch[w] = lsi_schedule_alloc(d->s, d->scratch_part * (size_t)d->n_in);
    return d->s->broken == LS_OK;
}

void lsi_direct_reduce(lsi_schedule *s, const lsi_reduction *r)
{
    direct d = {.r = r, .s = s};
    size_t lo, hi;
    segment(&d, 0, &lo, &hi); /* the largest */
    d.parts = lsi_parts_all_to_all(s, r->team->n, hi - lo, r->element);
    if (!prepare(&d))
        return;
    for (int p = 0; p < d.parts; p++) {
        exchange_others(&d, p);
        reduce_own(&d, p);
    }
}

/* tree: two binomial trees, each carrying half of the vector up to its top and down again.
 *
 * In round k neighbouring blocks of 2^k members become one. In the first tree the left block's
 * keeper takes the right one's sums (1 to 0, 3 to 2; then 2 to 0), in the second the right one's
 * takes the left one's (0 to 1, 2 to 3; then 1 to 3), unless the right block is not whole: the
 * leaves of the one are inner members of the other, as in the two trees of Sanders, Speck and Träff
 * 2009, and both keep the order of the summation tree. Parts are pipelined. (Of an odd number of
 * ranks on two cores, in turns, the last one would be the top beside the first: seven and nine took
 * a fifth longer.)
 *
 * 4 (n-1) messages a part, fewer than `hd` and `direct` send of a large vector, and so fewer
 * changes of process where ranks share processors. But the top sends and receives log2 n halves:
 * ranks with lines of their own should do better by those two.
 *
 * Invariants:
 * 1. What a member sends up is the node list of the leaves of its subtree's members.
 * 2. A member adds once a part, when all its children have sent.
 * 3. A list of one value is kept in `work`; longer ones (only where members cut subtrees of the
 *    summation tree) in scratch vectors, because `work` may be an input further to the right.
 */
#include "coll/algorithm.h"

enum { UP, DOWN = 2 }; /* phases: the tree's number is added */

/* Inside a host the parts of all members meet in the cache: vectors larger than WHOLE_HOST are cut
 * into small ones, two of them under way. On a Zen 5, two cores, TCP, in turns in another order
 * each time: halves of 3 to 7 segments differ by 5 %; of 2, three under way, five to twelve ranks
 * need 1.04 to 1.1 of the time, uncut from 4 MiB on 1.05 to 1.2. Of 1 and 1.5 MiB cutting costs
 * three to twelve ranks 0 to 12 %, but eight and nine gain 4 to 8 % at 1.5 MiB. */
#define WHOLE_HOST ((size_t)3 << 19)
#define PART_HOST (6 * LSI_CHUNK_SEGMENT) /* bytes of either half */
#define WINDOW_HOST 2

/* Members [first, end), next to each other, whose sums are with the keeper. */
typedef struct subtree {
    int keeper, first, end;
} subtree;

typedef struct tree {
    const lsi_reduction *r;
    lsi_schedule *s;
    int which;  /* 0: the left keeper takes, 1: the right one */
    int parent; /* member, -1: we are the top */
    int n_sources;
    subtree source[1 + LSI_TREE_MAX_DEPTH]; /* ourselves, then our children, small ones first */
    int from_left[1 + LSI_TREE_MAX_DEPTH];  /* the same in the order of their members */
    const lsi_tree_plan *plan;              /* merges the sources' node lists */
    char *scratch[LSI_CHUNK_WINDOW_MAX];
    size_t stride;                  /* bytes of a vector in it */
    int ends[LSI_CHUNK_WINDOW_MAX]; /* last step of the latest part */
} tree;

/* One part's half of the vector. */
typedef struct share {
    int part;
    size_t from, count;
} share;

/* Who keeps the sums of the members [first, first + size), as far as there are some. */
static int keeper_of(int which, int first, int size, int n)
{
    while (first + size > n) /* not whole: the whole block at its left end decides */
        size /= 2;
    return which ? first + size - 1 : first;
}

static void add_source(tree *g, subtree b)
{
    int at = g->n_sources;
    if (b.first < g->source[0].first)
        for (; at > 0; at--)
            g->from_left[at] = g->from_left[at - 1];
    g->from_left[at] = g->n_sources;
    g->source[g->n_sources++] = b;
}

static void find_place(tree *g)
{
    const int n = g->r->team->n, self = g->r->team->self;
    g->parent = -1;
    g->source[g->n_sources++] = (subtree){self, self, self + 1};
    for (int size = 1; size < n && g->parent < 0; size *= 2) {
        const int ours = self / size * size, first = ours ^ size;
        const int end = first + size < n ? first + size : n;
        if (first >= n)
            continue; /* absent: skipped, as in the summation tree */
        const int keeper = keeper_of(g->which, first, size, n);
        if (keeper_of(g->which, ours < first ? ours : first, 2 * size, n) == self)
            add_source(g, (subtree){keeper, first, end});
        else
            g->parent = keeper;
    }
}

static const subtree *source_from_left(const tree *g, int i)
{
    return &g->source[g->from_left[i]];
}

static int list_nodes(const lsi_team *t, const subtree *b, lsi_tree_node *nodes)
{
    return lsi_tree_nodes(t->leaves, lsi_team_span(t, b->first).first,
                          lsi_team_span(t, b->end - 1).end, nodes);
}

/* Our place, the plan that merges what comes, and room for shares of up to `count` elements. */
static int prepare(tree *g, size_t count, int windows)
{
    const lsi_team *t = g->r->team;
    lsi_tree_node nodes[(1 + LSI_TREE_MAX_DEPTH) * LSI_TREE_MAX_NODES];
    int n_in = 0;
    find_place(g);
    for (int i = 0; i < g->n_sources; i++)
        n_in += list_nodes(t, source_from_left(g, i), nodes + n_in);
    g->plan = lsi_schedule_plan(g->s, t->leaves, nodes, n_in, NULL, NULL);
    g->stride = (count * g->r->element + 63) & ~(size_t)63;
    for (int w = 0; w < windows && g->plan && g->n_sources > 1; w++)
        g->scratch[w] = lsi_schedule_alloc(g->s, g->stride * (size_t)(n_in + g->plan->n_out));
    return g->s->broken == LS_OK;
}

/* The step that ends when all since `first` have. */
static int all_since(lsi_schedule *s, int first)
{
    int end = s->n;
    if (end == first + 1)
        return first;
    int step = lsi_add_none(s, -1);
    lsi_after_range(s, first, end);
    return step;
}

/* Up: our children's values and our own, merged, to the parent. Returns the last step. */
static int climb(tree *g, const share *h, int after)
{
    const lsi_reduction *r = g->r;
    const lsi_team *t = r->team;
    char *scratch = g->scratch[h->part % g->s->window];
    const void *in[(1 + LSI_TREE_MAX_DEPTH) * LSI_TREE_MAX_NODES];
    void *out[LSI_TREE_MAX_NODES];
    lsi_tree_node nodes[LSI_TREE_MAX_NODES];
    const size_t bytes = h->count * r->element;
    int k = 0, first = g->s->n;
    for (int i = 0; i < g->n_sources; i++) {
        const subtree *from = source_from_left(g, i);
        int n = list_nodes(t, from, nodes);
        for (int j = 0; j < n; j++, k++) {
            in[k] = scratch + (size_t)k * g->stride;
            if (from->keeper == t->self)
                in[k] = lsi_at(r->mine[j], h->from, r->element);
            else
                lsi_add_recv(g->s, lsi_team_rank(t, from->keeper),
                             lsi_tag(UP + g->which, j, 0, h->part), (void *)(uintptr_t)in[k], bytes,
                             after);
        }
    }
    const void *const *values = in; /* of a leaf: what it brings */
    if (g->n_sources > 1 || g->parent < 0) {
        for (int j = 0; j < g->plan->n_out; j++)
            out[j] = scratch + (size_t)(k + j) * g->stride;
        if (g->plan->n_out == 1)
            out[0] = lsi_at_mut(r->work, h->from, r->element);
        int end = g->s->n;
        after = lsi_add_merge(g->s, g->plan, in, out, h->count, -1);
        lsi_after_range(g->s, first, end);
        values = (const void *const *)out;
    }
    if (g->parent < 0)
        return after;
    first = g->s->n;
    for (int j = 0; j < g->plan->n_out; j++)
        lsi_add_send(g->s, lsi_team_rank(t, g->parent), lsi_tag(UP + g->which, j, 0, h->part),
                     values[j], bytes, after);
    return all_since(g->s, first);
}

static int pass_on(tree *g, const share *h, int member, int after)
{
    return lsi_add_send(g->s, lsi_team_rank(g->r->team, member),
                        lsi_tag(DOWN + g->which, 0, 0, h->part),
                        lsi_at(g->r->work, h->from, g->r->element), h->count * g->r->element,
                        after);
}

static int take(tree *g, const share *h, int member, int after)
{
    return lsi_add_recv(g->s, lsi_team_rank(g->r->team, member),
                        lsi_tag(DOWN + g->which, 0, 0, h->part),
                        lsi_at_mut(g->r->work, h->from, g->r->element), h->count * g->r->element,
                        after);
}

/* Down: the result from the parent to the children, the large subtrees first. */
static int descend(tree *g, const share *h, int after)
{
    if (g->parent >= 0)
        after = take(g, h, g->parent, after);
    if (g->n_sources == 1)
        return after;
    int first = g->s->n;
    for (int i = g->n_sources - 1; i > 0; i--)
        pass_on(g, h, g->source[i].keeper, after);
    return all_since(g->s, first);
}

/* For a reduce: from the top to the one who asked. */
static int deliver(tree *g, const share *h, int after)
{
    const lsi_team *t = g->r->team;
    const int top = keeper_of(g->which, 0, 1 << LSI_TREE_MAX_DEPTH, t->n);
    if (top != g->r->root && t->self == top)
        return pass_on(g, h, g->r->root, after);
    if (top != g->r->root && t->self == g->r->root)
        return take(g, h, top, after);
    return after;
}

void lsi_tree_reduce(lsi_schedule *s, const lsi_reduction *r)
{
    tree trees[2] = {{.r = r, .s = s, .which = 0}, {.r = r, .s = s, .which = 1}};
    if (s->in_host) {
        s->window = WINDOW_HOST;
        s->chunk = r->count * r->element <= WHOLE_HOST ? WHOLE_HOST : PART_HOST;
    }
    int parts = lsi_parts(s, r->count, r->element, 2);
    int windows = parts < s->window ? parts : s->window;
    size_t from, to, a, b;
    lsi_part(r->count, parts, 0, &from, &to); /* the largest, */
    lsi_part(to - from, 2, 0, &a, &b);        /* and its half */
    if (!prepare(&trees[0], b - a, windows) || !prepare(&trees[1], b - a, windows))
        return;
    for (int p = 0; p < parts && s->broken == LS_OK; p++) {
        int w = p % s->window;
        lsi_part(r->count, parts, p, &from, &to);
        for (int which = 0; which < 2; which++) {
            tree *g = &trees[which];
            lsi_part(to - from, 2, which, &a, &b);
            share h = {p, from + a, b - a};
            int after = p < s->window ? -1 : g->ends[w];
            if (h.count)
                after = climb(g, &h, after);
            if (h.count)
                after = r->root < 0 ? descend(g, &h, after) : deliver(g, &h, after);
            g->ends[w] = after;
        }
    }
}

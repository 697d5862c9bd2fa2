/* tree: two binary trees, each carrying half of the vector up to its root and down again.
 *
 * In the second tree positions are shifted by one, so that the leaves of the one are mostly inner
 * nodes of the other and both directions of every link are busy: 2 log2 n latencies at full
 * bandwidth (Sanders, Speck and Träff 2009). Parts are pipelined.
 */
#include "coll/algorithm.h"

typedef struct tree_place {
    int parent, child[2]; /* positions, -1: none */
} tree_place;

/* Our place in the balanced search tree over positions [0, n). */
static tree_place find_place(int position, int n)
{
    int lo = 0, hi = n, parent = -1, mid;
    while ((mid = (lo + hi) / 2) != position) {
        parent = mid;
        if (position < mid)
            hi = mid;
        else
            lo = mid + 1;
    }
    return (tree_place){parent,
                        {lo < mid ? (lo + mid) / 2 : -1, mid + 1 < hi ? (mid + 1 + hi) / 2 : -1}};
}

/* Position of member m in tree 0 or 1, and back; `first` is the member at position 0 of tree 0. */
static int position_of(int m, int n, int first, int which)
{
    return (m - first + n + which) % n;
}

static int member_at(int position, int n, int first, int which)
{
    return (position + first - which + n) % n;
}

typedef struct tree {
    lsi_schedule *s;
    const lsi_team *t;
    int which, part;
    size_t element;
    char *scratch[2];
} tree;

/* Up: sums of the children and our own to the parent. Returns the last step. */
static int climb(tree *g, const tree_place *place, const char *in, char *work, size_t from,
                 size_t to, int after)
{
    int n = g->t->n, last = after, received[2] = {-1, -1};
    size_t bytes = (to - from) * g->element, offset = from * g->element;
    for (int c = 0; c < 2; c++)
        if (place->child[c] >= 0) {
            int m = member_at(place->child[c], n, 0, g->which);
            received[c] =
                lsi_add_recv(g->s, lsi_team_rank(g->t, m), lsi_tag(g->which, 0, 0, g->part),
                             g->scratch[c], bytes, after);
        }
    const char *sum = in + offset;
    for (int c = 0; c < 2; c++)
        if (received[c] >= 0) {
            int before = last;
            last = lsi_add_reduce(g->s, work + offset, sum, g->scratch[c], to - from, received[c]);
            lsi_after_also(g->s, before);
            sum = work + offset;
        }
    if (sum == in + offset && in != work)
        last = lsi_add_copy(g->s, work + offset, sum, bytes, last);
    if (place->parent >= 0)
        last = lsi_add_send(g->s, lsi_team_rank(g->t, member_at(place->parent, n, 0, g->which)),
                            lsi_tag(g->which, 0, 0, g->part), work + offset, bytes, last);
    return last;
}

/* Down: the result from the parent to the children. */
static int descend(tree *g, const tree_place *place, char *work, size_t from, size_t to, int after)
{
    int n = g->t->n, last = after;
    size_t bytes = (to - from) * g->element, offset = from * g->element;
    if (place->parent >= 0)
        last = lsi_add_recv(g->s, lsi_team_rank(g->t, member_at(place->parent, n, 0, g->which)),
                            lsi_tag(2 + g->which, 0, 0, g->part), work + offset, bytes, last);
    int first = g->s->n;
    for (int c = 0; c < 2; c++)
        if (place->child[c] >= 0)
            lsi_add_send(g->s, lsi_team_rank(g->t, member_at(place->child[c], n, 0, g->which)),
                         lsi_tag(2 + g->which, 0, 0, g->part), work + offset, bytes, last);
    int end = g->s->n;
    if (end > first) {
        last = lsi_add_none(g->s, -1);
        lsi_after_range(g->s, first, end);
    }
    return last;
}

/* For a reduce: from the tree's root to the one who asked. */
static int deliver(tree *g, char *work, size_t from, size_t to, int root, int after)
{
    int n = g->t->n, top = member_at(n / 2, n, 0, g->which);
    size_t bytes = (to - from) * g->element, offset = from * g->element;
    if (top == root)
        return after;
    if (g->t->self == top)
        return lsi_add_send(g->s, lsi_team_rank(g->t, root), lsi_tag(2 + g->which, 0, 0, g->part),
                            work + offset, bytes, after);
    if (g->t->self == root)
        return lsi_add_recv(g->s, lsi_team_rank(g->t, top), lsi_tag(2 + g->which, 0, 0, g->part),
                            work + offset, bytes, after);
    return after;
}

void lsi_tree_reduce(lsi_schedule *s, const lsi_reduction *r)
{
    tree g = {.s = s, .t = r->team, .element = r->element};
    int n = r->team->n, parts = lsi_parts(s, r->count, r->element, 2), start = -1;
    int ends[2][LSI_CHUNK_WINDOW_MAX];
    char *scratch[LSI_CHUNK_WINDOW_MAX][2][2];
    size_t from, to, whole;
    lsi_part(r->count, parts, 0, &from, &whole);
    int windows = parts < s->window ? parts : s->window;
    for (int i = 0; i < 4 * windows; i++)
        scratch[i / 4][i / 2 % 2][i % 2] = lsi_schedule_alloc(s, (whole / 2 + 16) * r->element);
    const char *in = r->mine[0];
    for (int j = 1; j < r->n_mine; j++) {
        start = lsi_add_reduce(s, r->work, in, r->mine[j], r->count, start);
        in = r->work;
    }
    for (int p = 0; p < parts && s->broken == LS_OK; p++) {
        int w = p % s->window;
        lsi_part(r->count, parts, p, &from, &to);
        for (g.which = 0; g.which < 2; g.which++) {
            size_t a, b;
            lsi_part(to - from, 2, g.which, &a, &b);
            a += from;
            b += from;
            g.part = p;
            g.scratch[0] = scratch[w][g.which][0];
            g.scratch[1] = scratch[w][g.which][1];
            tree_place place = find_place(position_of(r->team->self, n, 0, g.which), n);
            int after = p < s->window ? start : ends[g.which][w];
            int last = climb(&g, &place, in, r->work, a, b, after);
            ends[g.which][w] = r->root < 0 ? descend(&g, &place, r->work, a, b, last)
                                           : deliver(&g, r->work, a, b, r->root, last);
        }
    }
}

void lsi_tree_broadcast(lsi_schedule *s, const lsi_team *t, void *data, size_t bytes, int root)
{
    /* The trees stand over all but the root, which feeds the top of each. */
    int n = t->n - 1, parts = lsi_parts(s, bytes, 1, 2);
    int from_root = (t->self - root + t->n) % t->n; /* 0: the root */
    int ends[2][LSI_CHUNK_WINDOW_MAX];
    for (int p = 0; p < parts; p++)
        for (int which = 0; which < 2; which++) {
            size_t from, to, a, b;
            lsi_part(bytes, parts, p, &from, &to);
            lsi_part(to - from, 2, which, &a, &b);
            char *at = (char *)data + from + a;
            uint32_t tag = lsi_tag(which, 0, 0, p);
            int *end = &ends[which][p % s->window];
            int after = p < s->window ? -1 : *end;
            if (from_root == 0) {
                int top = member_at(n / 2, n, 0, which);
                *end = lsi_add_send(s, lsi_team_rank(t, (root + 1 + top) % t->n), tag, at, b - a,
                                    after);
                continue;
            }
            tree_place place = find_place(position_of(from_root - 1, n, 0, which), n);
            int parent =
                place.parent < 0 ? root : (root + 1 + member_at(place.parent, n, 0, which)) % t->n;
            int last = lsi_add_recv(s, lsi_team_rank(t, parent), tag, at, b - a, after);
            for (int c = 0; c < 2; c++)
                if (place.child[c] >= 0) {
                    int child = (root + 1 + member_at(place.child[c], n, 0, which)) % t->n;
                    lsi_add_send(s, lsi_team_rank(t, child), tag, at, b - a, last);
                }
            *end = last;
        }
}

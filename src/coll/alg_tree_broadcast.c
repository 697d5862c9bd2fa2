/* tree, the broadcast: two binary search trees, each carrying half of the data down from its top.
 *
 * In the second tree positions are shifted by one, so that the leaves of the one are mostly inner
 * nodes of the other and both directions of every link are busy: 2 log2 n latencies at full
 * bandwidth (Sanders, Speck and Träff 2009). Parts are pipelined. Nothing is added here, so the
 * trees need not be those of the reduction (alg_tree.c), whose tops have more children.
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

/* Position of member m in tree 0 or 1, and back. */
static int position_of(int m, int n, int which)
{
    return (m + which) % n;
}

static int member_at(int position, int n, int which)
{
    return (position - which + n) % n;
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
                int top = member_at(n / 2, n, which);
                *end = lsi_add_send(s, lsi_team_rank(t, (root + 1 + top) % t->n), tag, at, b - a,
                                    after);
                continue;
            }
            tree_place place = find_place(position_of(from_root - 1, n, which), n);
            int parent =
                place.parent < 0 ? root : (root + 1 + member_at(place.parent, n, which)) % t->n;
            int last = lsi_add_recv(s, lsi_team_rank(t, parent), tag, at, b - a, after);
            for (int c = 0; c < 2; c++)
                if (place.child[c] >= 0) {
                    int child = (root + 1 + member_at(place.child[c], n, which)) % t->n;
                    lsi_add_send(s, lsi_team_rank(t, child), tag, at, b - a, last);
                }
            *end = last;
        }
}

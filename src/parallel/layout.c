/* Who brings what into the sums, and the buckets.
 *
 * Both are known to every worker from the number of shards and of workers alone.
 */
#include <stdlib.h>

#include "base/status.h"
#include "parallel/replica.h"

ls_status lsi_layout_make(lsi_replica *r, int leaves)
{
    const lsi_domain *d = &r->domain;
    lsi_layout *l = &r->layout;
    if (l->leaves == leaves)
        return LS_OK;
    if (!l->spans && !(l->spans = calloc((size_t)d->count, sizeof *l->spans)))
        return lsi_fail(LS_ERR_NOMEM, NULL, "replica", "out of memory");
    lsi_tree_node nodes[LSI_TREE_MAX_LEAVES + LSI_TREE_MAX_NODES], out[LSI_TREE_MAX_NODES];
    l->leaves = leaves;
    l->n_in = 0;
    for (int m = 0; m < d->members; m++) {
        int first, end;
        lsi_domain_range(d, leaves, d->first[d->index] + m, &first, &end);
        const int n = lsi_tree_nodes(leaves, first, end, nodes + l->n_in);
        for (int k = 0; k < n; k++)
            l->in[l->n_in++] = (struct lsi_input){m, k};
    }
    l->n_out = lsi_tree_merge_plan(leaves, nodes, l->n_in, out, &l->plan);
    for (int i = 0; i < d->count; i++) {
        int unused;
        lsi_domain_range(d, leaves, d->first[i], &l->spans[i].first, &unused);
        lsi_domain_range(d, leaves, d->first[i + 1] - 1, &unused, &l->spans[i].end);
    }
    for (int b = 0; b < r->n_buckets; b++) {
        lsi_shards *s = &r->buckets[b].shards;
        s->leaves = leaves;
        s->spans = l->spans;
        s->n_mine = l->n_out;
        for (int k = 0; k < l->n_out; k++)
            s->mine[k] = lsi_vector(r, 0, k) + r->buckets[b].from;
    }
    return LS_OK;
}

int lsi_dense_run(const lsi_replica *r, size_t from, size_t to, size_t *a, size_t *b)
{
    int low = 0, high = r->n_params; /* the first parameter that ends after `from` */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (r->params[middle].offset + r->params[middle].count <= from)
            low = middle + 1;
        else
            high = middle;
    }
    while (low < r->n_params && r->params[low].sparse)
        low++;
    if (low == r->n_params || r->params[low].offset >= to || from >= to)
        return 0;
    *a = r->params[low].offset > from ? r->params[low].offset : from;
    while (low < r->n_params && !r->params[low].sparse && r->params[low].offset < to)
        low++;
    const size_t end = r->params[low - 1].offset + r->params[low - 1].count;
    *b = end < to ? end : to;
    return 1;
}

/* The parameter that holds element `at`. */
static int param_at(const lsi_replica *r, size_t at)
{
    int p = 0;
    while (r->params[p].offset + r->params[p].count <= at)
        p++;
    return p;
}

ls_status lsi_buckets_make(lsi_replica *r, size_t bucket_bytes)
{
    const size_t most = bucket_bytes / sizeof(float) / 16 * 16;
    size_t a, b;
    int room = 0;
    for (size_t at = 0; lsi_dense_run(r, at, r->elements, &a, &b); at = b)
        room += (int)((b - a + most - 1) / most);
    r->buckets = calloc((size_t)room + 1, sizeof *r->buckets);
    r->requests = calloc((size_t)room + 1, sizeof(ls_request *));
    if (!r->buckets || !r->requests)
        return lsi_fail(LS_ERR_NOMEM, NULL, "replica", "out of memory");
    for (size_t at = 0; lsi_dense_run(r, at, r->elements, &a, &b); at = b)
        for (size_t from = a; from < b; from += most) {
            const size_t to = b - from < most ? b : from + most;
            r->buckets[r->n_buckets++] = (lsi_bucket){from, to, param_at(r, to - 1), {0}};
        }
    return LS_OK;
}

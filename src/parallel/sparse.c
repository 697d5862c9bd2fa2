/* Lists of rows: folding, merging, and what the optimizer gets. */
#include "parallel/sparse.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Rows of one list. */
typedef struct rows {
    size_t n;
    int32_t *ids;
    float *values;
} rows;

/* A sparse parameter. */
typedef struct table {
    int param;
    size_t width, most; /* rows of one list at most */
    size_t at;          /* of its lists in a member's memory: `room` of them */
    size_t list_bytes;
    size_t wanted_at, wanted_most; /* ids that its shards read */
    rows folded;                   /* scratch: a merge under way */
    rows merged;                   /* of our blocks, for the optimizer */
    ls_sparse_grad only;           /* of the only shard, where it was given from */
    size_t merged_room;
} table;

/* All lists of one table, left to right. */
typedef struct inputs {
    int n;
    rows lists[LSI_TREE_MAX_LEAVES];
    lsi_tree_node nodes[LSI_TREE_MAX_LEAVES + LSI_TREE_MAX_NODES];
} inputs;

struct lsi_sparse_set {
    table *tables;
    int n;
    int *table_of;         /* [n_params], -1: dense */
    size_t bytes;          /* of a member's rows: its tables, then, of the leader, */
    size_t gathered_at;    /* with several domains: everybody's lists, one after the other */
    size_t *counts;        /* bytes of each domain */
    float *zeros;          /* a row of the widest table */
    struct inputs *inputs; /* [n] all lists of each table */
    int32_t *owned;        /* ids to touch */
    size_t owned_room;
};

/* ---- lists in memory ------------------------------------------------------------------------ */

static size_t up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* A list lies as: number of rows (64 bytes), ids, values. */
static rows list_at(const table *t, char *memory)
{
    return (rows){*(const size_t *)memory, (int32_t *)(memory + 64),
                  (float *)(memory + 64 + up(t->most * sizeof(int32_t)))};
}

/* A member's memory of rows. */
static char *rows_of(const lsi_replica *r, int member)
{
    return r->of[member] + r->rows_at;
}

static rows list_of(const lsi_replica *r, const table *t, int member, int k)
{
    return list_at(t, rows_of(r, member) + t->at + (size_t)k * t->list_bytes);
}

static void set_rows(const lsi_replica *r, const table *t, int k, size_t n)
{
    char *memory = rows_of(r, r->domain.member) + t->at + (size_t)k * t->list_bytes;
    *(size_t *)memory = n;
}

static size_t *wanted_of(const lsi_replica *r, const table *t, int member)
{
    return (size_t *)(rows_of(r, member) + t->wanted_at);
}

/* ---- opening -------------------------------------------------------------------------------- */

static ls_status out_of_memory(void)
{
    return lsi_fail(LS_ERR_NOMEM, NULL, "sparse gradients", "out of memory");
}

static ls_status open_table(lsi_replica *r, int param, size_t rows_of_shard)
{
    lsi_sparse_set *s = r->sparse;
    table *t = &s->tables[s->n];
    const ls_param_info *info = &r->params[param];
    /* in a vault the workers may become fewer */
    const size_t range = (size_t)(r->slots ? r->shards : r->shards / r->domain.workers + 1);
    t->param = param;
    t->width = info->count / info->dims[0];
    t->most = rows_of_shard * range < info->dims[0] ? rows_of_shard * range : info->dims[0];
    t->at = s->bytes;
    t->list_bytes = 64 + up(t->most * sizeof(int32_t)) + up(t->most * t->width * sizeof(float));
    t->wanted_at = t->at + (size_t)r->room * t->list_bytes;
    t->wanted_most = rows_of_shard * range;
    s->bytes = t->wanted_at + 64 + up(t->wanted_most * sizeof(int32_t));
    const size_t each = rows_of_shard < info->dims[0] ? rows_of_shard : info->dims[0];
    s->gathered_at += (size_t)r->shards * (64 + up(each * (1 + t->width) * sizeof(float)));
    s->table_of[param] = s->n++;
    t->folded.ids = malloc(t->most * sizeof(int32_t));
    t->folded.values = malloc(t->most * t->width * sizeof(float));
    return t->folded.ids && t->folded.values ? LS_OK : out_of_memory();
}

ls_status lsi_sparse_open(lsi_replica *r, const lsi_replica_setup *setup, size_t *bytes)
{
    lsi_sparse_set *s = r->sparse = calloc(1, sizeof *s);
    if (!s || !(s->tables = calloc((size_t)r->n_params, sizeof *s->tables)) ||
        !(s->table_of = calloc((size_t)r->n_params, sizeof *s->table_of)))
        return out_of_memory();
    size_t widest = 1;
    for (int p = 0; p < r->n_params; p++) {
        s->table_of[p] = -1;
        if (r->params[p].sparse)
            LSI_TRY(open_table(r, p, setup->sparse_rows[p]));
    }
    for (int i = 0; i < s->n; i++)
        widest = s->tables[i].width > widest ? s->tables[i].width : widest;
    s->zeros = calloc(widest, sizeof *s->zeros);
    s->inputs = calloc((size_t)s->n + 1, sizeof *s->inputs);
    s->counts = calloc((size_t)r->domain.count, sizeof *s->counts);
    if (!s->zeros || !s->inputs || !s->counts)
        return out_of_memory();
    *bytes = s->bytes + s->gathered_at; /* so far the bytes that are gathered at most */
    s->gathered_at = s->bytes;
    return LS_OK;
}

void lsi_sparse_close(lsi_replica *r)
{
    lsi_sparse_set *s = r->sparse;
    if (!s)
        return;
    for (int i = 0; i < s->n; i++) {
        free(s->tables[i].folded.ids);
        free(s->tables[i].folded.values);
        free(s->tables[i].merged.ids);
        free(s->tables[i].merged.values);
    }
    free(s->tables);
    free(s->table_of);
    free(s->zeros);
    free(s->inputs);
    free(s->counts);
    free(s->owned);
    free(s);
    r->sparse = NULL;
}

/* ---- merging -------------------------------------------------------------------------------- */

/* Rows of n lists in tree order. Only rows for which `wanted` holds, when it is given. The output
 * has room for all of them, and overlaps none. */
static void merge_rows(const lsi_replica *r, const table *t, const lsi_tree_plan *plan,
                       const rows *in, int n,
                       int (*wanted)(const lsi_replica *, const table *, int32_t), rows *out)
{
    size_t at[LSI_TREE_MAX_LEAVES] = {0};
    const void *values[LSI_TREE_MAX_LEAVES];
    out->n = 0;
    for (;;) {
        int32_t id = INT32_MAX;
        for (int i = 0; i < n; i++)
            if (at[i] < in[i].n && in[i].ids[at[i]] < id)
                id = in[i].ids[at[i]];
        if (id == INT32_MAX)
            return;
        const int take = !wanted || wanted(r, t, id);
        for (int i = 0; i < n; i++) {
            values[i] = r->sparse->zeros;
            if (at[i] < in[i].n && in[i].ids[at[i]] == id)
                values[i] = in[i].values + at[i]++ * t->width;
        }
        if (!take)
            continue;
        void *to = out->values + out->n * t->width;
        lsi_tree_merge_run(plan, LS_F32, LS_SUM, values, &to, t->width);
        out->ids[out->n++] = id;
    }
}

/* One shard of one worker, and nobody to outlive it: nothing has to be put together, nor kept. */
static int is_only(const lsi_replica *r)
{
    return r->domain.workers == 1 && r->layout.leaves == 1 && !r->vault;
}

ls_status lsi_sparse_give(lsi_replica *r, int param, const ls_sparse_grad *grad)
{
    const lsi_fold_step *f = &r->step;
    table *t = &r->sparse->tables[r->sparse->table_of[param]];
    if (grad->rows > t->most)
        return lsi_fail(LS_ERR_INVALID, NULL, r->params[param].name,
                        "%zu rows of gradient, and there is room for %zu", grad->rows, t->most);
    if (is_only(r)) {
        t->only = *grad;
        return LS_OK;
    }
    rows in[LSI_TREE_MAX_NODES + 1], into = list_of(r, t, r->domain.member, f->into);
    if (f->into == f->place) {
        memcpy(into.ids, grad->ids, grad->rows * sizeof(int32_t));
        memcpy(into.values, grad->values, grad->rows * t->width * sizeof(float));
        set_rows(r, t, f->into, grad->rows);
        return LS_OK;
    }
    for (int k = f->into; k < f->place; k++)
        in[k - f->into] = list_of(r, t, r->domain.member, k);
    in[f->place - f->into] =
        (rows){grad->rows, (int32_t *)(uintptr_t)grad->ids, (float *)(uintptr_t)grad->values};
    size_t total = 0;
    for (int i = 0; i <= f->place - f->into; i++)
        total += in[i].n;
    if (total > t->most && t->most < r->params[param].dims[0])
        return lsi_fail(LS_ERR_INVALID, NULL, r->params[param].name,
                        "%zu rows of gradient, and there is room for %zu", total, t->most);
    merge_rows(r, t, &f->plan, in, f->place - f->into + 1, NULL, &t->folded);
    memcpy(into.ids, t->folded.ids, t->folded.n * sizeof(int32_t));
    memcpy(into.values, t->folded.values, t->folded.n * t->width * sizeof(float));
    set_rows(r, t, f->into, t->folded.n);
    return LS_OK;
}

/* ---- combining ------------------------------------------------------------------------------ */

/* Does any element of the row lie in a block of ours? */
static int row_is_ours(const lsi_replica *r, const table *t, int32_t id)
{
    const size_t from = r->params[t->param].offset + (size_t)id * t->width;
    for (size_t b = from / LS_OPTIM_BLOCK; b <= (from + t->width - 1) / LS_OPTIM_BLOCK; b++)
        if (lsi_owns_block(r, b))
            return 1;
    return 0;
}

static ls_status merged_room(table *t, size_t n)
{
    if (n <= t->merged_room)
        return LS_OK;
    free(t->merged.ids);
    free(t->merged.values);
    t->merged_room = n + n / 2;
    t->merged.ids = malloc(t->merged_room * sizeof(int32_t));
    t->merged.values = malloc(t->merged_room * t->width * sizeof(float));
    if (t->merged.ids && t->merged.values)
        return LS_OK;
    t->merged_room = 0;
    return out_of_memory();
}

/* Between domains: a member's lists as bytes, one after the other. */
static size_t packed_bytes(const lsi_replica *r, const table *t, int member, int k)
{
    return 64 + up(list_of(r, t, member, k).n * (1 + t->width) * sizeof(float));
}

/* Vectors of worker w in a batch of these shards. */
static int nodes_of(const lsi_replica *r, int w, lsi_tree_node nodes[LSI_TREE_MAX_NODES])
{
    int first, end;
    lsi_domain_range(&r->domain, r->layout.leaves, w, &first, &end);
    return lsi_tree_nodes(r->layout.leaves, first, end, nodes);
}

/* The leader puts all lists of its domain together, in order of members, vectors and tables. */
static void pack(const lsi_replica *r, char *to)
{
    lsi_tree_node nodes[LSI_TREE_MAX_NODES];
    for (int m = 0; m < r->domain.members; m++) {
        const int n = nodes_of(r, r->domain.first[r->domain.index] + m, nodes);
        for (int k = 0; k < n; k++)
            for (int i = 0; i < r->sparse->n; i++) {
                const table *t = &r->sparse->tables[i];
                const rows l = list_of(r, t, m, k);
                *(size_t *)to = l.n;
                memcpy(to + 64, l.ids, l.n * sizeof(int32_t));
                memcpy(to + 64 + l.n * sizeof(int32_t), l.values, l.n * t->width * sizeof(float));
                to += packed_bytes(r, t, m, k);
            }
    }
}

/* The leader's part: all lists of all domains into its memory. */
static ls_status gather(lsi_replica *r)
{
    lsi_domain *d = &r->domain;
    lsi_sparse_set *s = r->sparse;
    lsi_tree_node nodes[LSI_TREE_MAX_NODES];
    size_t mine = 0, before = 0;
    char *to = rows_of(r, 0) + s->gathered_at;
    for (int m = 0; m < d->members; m++)
        for (int k = nodes_of(r, d->first[d->index] + m, nodes) - 1; k >= 0; k--)
            for (int i = 0; i < s->n; i++)
                mine += packed_bytes(r, &s->tables[i], m, k);
    LSI_TRY(ls_allgather(d->leaders, &mine, s->counts, 1, LS_I64));
    for (int i = 0; i < d->index; i++)
        before += s->counts[i];
    pack(r, to + before);
    return ls_allgatherv(d->leaders, LS_IN_PLACE, to, s->counts, LS_U8);
}

static void find_inputs(const lsi_replica *r, char *all, inputs *in)
{
    const lsi_domain *d = &r->domain;
    const lsi_sparse_set *s = r->sparse;
    for (int i = 0; i < s->n; i++)
        in[i].n = 0;
    for (int w = 0; w < d->workers; w++) {
        lsi_tree_node nodes[LSI_TREE_MAX_NODES];
        const int n = nodes_of(r, w, nodes);
        for (int k = 0; k < n; k++)
            for (int i = 0; i < s->n; i++) {
                const table *t = &s->tables[i];
                rows l;
                if (all) {
                    l.n = *(size_t *)all;
                    l.ids = (int32_t *)(all + 64);
                    l.values = (float *)(l.ids + l.n);
                    all += 64 + up(l.n * (1 + t->width) * sizeof(float));
                } else {
                    l = list_of(r, t, w, k);
                }
                in[i].nodes[in[i].n] = nodes[k];
                in[i].lists[in[i].n++] = l;
            }
    }
}

static ls_status combine_table(lsi_replica *r, table *t, const inputs *in)
{
    lsi_tree_plan plan;
    lsi_tree_node out[LSI_TREE_MAX_NODES];
    const rows *sum = &in->lists[0]; /* of one worker alone: there is nothing to merge */
    if (in->n > 1 || r->domain.members > 1) {
        size_t total = 0;
        for (int i = 0; i < in->n; i++)
            total += in->lists[i].n;
        LSI_TRY(merged_room(t, total));
        lsi_tree_merge_plan(r->layout.leaves, in->nodes, in->n, out, &plan);
        merge_rows(r, t, &plan, in->lists, in->n, row_is_ours, &t->merged);
        sum = &t->merged;
    }
    if (!r->optimizer)
        return LS_OK;
    const ls_sparse_grad grad = {sum->n, t->width, sum->ids, sum->values};
    return ls_optimizer_sparse(r->optimizer, t->param, &grad);
}

ls_status lsi_sparse_combine(lsi_replica *r)
{
    if (r->domain.count > 1) {
        if (r->domain.leaders)
            LSI_TRY(gather(r));
        LSI_TRY(lsi_domain_meet(&r->domain));
    }
    return lsi_sparse_give_all(r);
}

ls_status lsi_sparse_give_all(lsi_replica *r)
{
    lsi_sparse_set *s = r->sparse;
    if (is_only(r)) {
        for (int i = 0; r->optimizer && i < s->n; i++)
            LSI_TRY(ls_optimizer_sparse(r->optimizer, s->tables[i].param, &s->tables[i].only));
        return LS_OK;
    }
    find_inputs(r, r->domain.count > 1 ? rows_of(r, 0) + s->gathered_at : NULL, s->inputs);
    for (int i = 0; i < s->n; i++)
        LSI_TRY(combine_table(r, &s->tables[i], &s->inputs[i]));
    return LS_OK;
}

/* ---- before a forward pass ------------------------------------------------------------------ */

void lsi_sparse_want_none(lsi_replica *r)
{
    for (int i = 0; i < r->sparse->n; i++)
        *wanted_of(r, &r->sparse->tables[i], r->domain.member) = 0;
}

ls_status lsi_sparse_want(lsi_replica *r, int param, const ls_sparse_ids *ids)
{
    const table *t = &r->sparse->tables[r->sparse->table_of[param]];
    size_t *n = wanted_of(r, t, r->domain.member);
    int32_t *to = (int32_t *)((char *)n + 64);
    if (*n + ids->count > t->wanted_most)
        return lsi_fail(LS_ERR_INVALID, NULL, r->params[param].name,
                        "%zu rows to read, and there is room for %zu", *n + ids->count,
                        t->wanted_most);
    for (size_t i = 0; i < ids->count; i++)
        to[(*n)++] = ids->ids[i * ids->stride];
    return LS_OK;
}

/* A row belongs to the member with the block of its first element. */
static int begins_in_ours(const lsi_replica *r, const table *t, int32_t id)
{
    return lsi_owns_block(r, (r->params[t->param].offset + (size_t)id * t->width) / LS_OPTIM_BLOCK);
}

static ls_status touch_table(lsi_replica *r, const table *t)
{
    lsi_sparse_set *s = r->sparse;
    const size_t table_rows = r->params[t->param].dims[0];
    size_t n = 0, total = 0;
    for (int m = 0; m < r->domain.members; m++)
        total += *wanted_of(r, t, m);
    if (total > s->owned_room) {
        free(s->owned);
        s->owned_room = 2 * total;
        if (!(s->owned = malloc(s->owned_room * sizeof *s->owned))) {
            s->owned_room = 0;
            return out_of_memory();
        }
    }
    for (int m = 0; m < r->domain.members; m++) {
        const size_t *count = wanted_of(r, t, m);
        const int32_t *ids = (const int32_t *)((const char *)count + 64);
        for (size_t i = 0; i < *count; i++)
            if ((size_t)ids[i] < table_rows && begins_in_ours(r, t, ids[i]))
                s->owned[n++] = ids[i]; /* one out of range is refused by the forward pass */
    }
    return lsi_transaction_touch(r, t->param, s->owned, n);
}

ls_status lsi_sparse_touch(lsi_replica *r)
{
    LSI_TRY(lsi_domain_meet(&r->domain));
    for (int i = 0; i < r->sparse->n; i++)
        LSI_TRY(touch_table(r, &r->sparse->tables[i]));
    return lsi_domain_meet(&r->domain);
}

/* Hashes of runs of blocks, summed: no order, so every member takes its own blocks. */
#include "parallel/compare.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "optim/optimizer.h"
#include "parallel/handover.h"

#define LANES 4

static uint64_t mixed(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h * 0xd6e8feb86659fd93u;
}

/* A flipped bit changes its lane, and the multiplications keep it changed: they are invertible. */
static uint64_t hash_values(const float *values, size_t n, uint64_t seed)
{
    uint64_t lane[LANES] = {seed, seed + 1, seed + 2, seed + 3}, words[LANES];
    const size_t step = 2 * LANES; /* values in a word of each lane */
    size_t at = 0;
    for (; at + step <= n; at += step) {
        memcpy(words, values + at, sizeof words);
        for (int i = 0; i < LANES; i++)
            lane[i] = (lane[i] ^ words[i]) * 0x9e3779b97f4a7c15u;
    }
    memset(words, 0, sizeof words);
    memcpy(words, values + at, (n - at) * sizeof *values);
    uint64_t sum = 0;
    for (int i = 0; i < LANES; i++)
        sum = mixed(sum ^ ((lane[i] ^ words[i]) * 0x9e3779b97f4a7c15u));
    return sum;
}

static uint64_t hash_range(const lsi_replica *r, size_t from, size_t to)
{
    const ls_optimizer *o = r->optimizer;
    uint64_t sum = hash_values(r->weights + from, to - from, mixed(from));
    for (int a = 0; o && a < LSI_OPTIM_ARRAYS && o->ops->arrays[a] && a < o->arrays; a++)
        sum += hash_values(o->array[a] + from, to - from, mixed(from + 1 + (size_t)a));
    return sum;
}

/* This member's blocks. */
static uint64_t hash_own(const lsi_replica *r, int rows)
{
    uint64_t sum = 0;
    size_t last, a, b;
    for (size_t first = 0; lsi_own_run(r, &first, &last); first = last) {
        const size_t from = first * LS_OPTIM_BLOCK, to = last * LS_OPTIM_BLOCK;
        const size_t end =
            r->n_params ? r->params[r->n_params - 1].offset + r->params[r->n_params - 1].count : 0;
        if (rows && from < end)
            sum += hash_range(r, from, to < end ? to : end);
        for (size_t at = from; !rows && lsi_dense_run(r, at, to, &a, &b); at = b)
            sum += hash_range(r, a, b);
    }
    return sum;
}

/* The leaders: whose is not that of most? The word says so: 0 when all agree, else 1 + the first
 * domain that differs, how many do in the upper half, and the top bit when nobody has a
 * majority. */
static ls_status judge(lsi_replica *r, uint64_t mine, uint64_t *word)
{
    lsi_domain *d = &r->domain;
    uint64_t *all = calloc((size_t)d->count, sizeof *all);
    if (!all)
        return lsi_fail(LS_ERR_NOMEM, NULL, "comparison", "out of memory");
    const ls_status status = ls_allgather(d->leaders, &mine, all, 1, LS_I64);
    int best = 0, votes = 0;
    for (int i = 0; i < d->count; i++) {
        int same = 0;
        for (int k = 0; k < d->count; k++)
            same += all[k] == all[i];
        best = same > votes ? i : best;
        votes = same > votes ? same : votes;
    }
    r->differs = all[d->index] != all[best];
    *word = 0;
    for (int i = d->count - 1; i >= 0; i--)
        if (all[i] != all[best])
            *word = (uint64_t)(d->count - votes) << 32 | (uint64_t)(i + 1);
    if (2 * votes <= d->count)
        *word |= (uint64_t)1 << 63;
    free(all);
    return status;
}

ls_status lsi_compare(lsi_replica *r, int rows, lsi_comparison *out)
{
    lsi_domain *d = &r->domain;
    lsi_counters *mine = lsi_counters_of(r, d->member);
    *out = (lsi_comparison){0};
    if (d->count == 1)
        return LS_OK;
    LSI_TRY(lsi_handover_finish(r));
    LSI_TRY(lsi_domain_meet(d));
    atomic_store(&mine->hash, hash_own(r, rows));
    LSI_TRY(lsi_domain_meet(d));
    if (d->leaders) {
        uint64_t sum = 0, word;
        for (int m = 0; m < d->members; m++)
            sum += atomic_load(&lsi_counters_of(r, m)->hash);
        LSI_TRY(judge(r, sum, &word));
        atomic_store(&mine->verdict, word);
    }
    LSI_TRY(lsi_domain_meet(d));
    const uint64_t word = atomic_load(&lsi_counters_of(r, 0)->verdict);
    if (!word)
        return LS_OK;
    out->undecided = (int)(word >> 63);
    out->differ = (int)(word >> 32 & 0x7fffffff);
    out->domain = (int)(word & 0xffffffff) - 1;
    out->first = d->first[out->domain];
    out->last = d->first[out->domain + 1] - 1;
    return LS_OK;
}

ls_status lsi_repair(lsi_replica *r)
{
    int filled;
    uint64_t steps;
    if (!r->vault)
        return lsi_fail(LS_ERR_UNSUPPORTED, NULL, "repair", "the state is not kept in a vault");
    if (r->domain.leaders && r->differs)
        atomic_store(&r->vault->head->filled, LSI_VAULT_EMPTY);
    LSI_TRY(lsi_handover(r, &filled, &steps));
    LSI_TRY(lsi_handover_finish(r));
    return lsi_domain_meet(&r->domain);
}

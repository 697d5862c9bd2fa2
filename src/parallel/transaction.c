/* Changes of the state that a death cannot leave half done: what is kept while they are made.
 *
 * What a member is about to change is copied to its slot first, a run of blocks or a few rows at a
 * time, so the copies stay in its cache. The word `undo` of the slot says what is kept there. While
 * the next copy is made the word still names the one before, which has its mark by then: whoever
 * recovers (recover.c) knows that it is done.
 */
#include <string.h>

#include "optim/optimizer.h"
#include "parallel/replica.h"
#include "parallel/transaction.h"

#define FLUSH 1024 /* rows at a time */

static char *undo_memory(const lsi_replica *r)
{
    return r->mine + r->undo_at;
}

static void keep(lsi_replica *r, uint64_t word)
{
    atomic_store_explicit(&lsi_counters_of(r, r->domain.member)->undo, word, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst); /* nothing is changed before it stands there */
}

void lsi_transaction_begin(lsi_replica *r)
{
    if (!r->vault || r->domain.member != 0 || !r->optimizer)
        return;
    const lsi_domain *d = &r->domain;
    lsi_vault_step *s = &r->vault->head->step;
    s->number = ls_optimizer_get_step(r->optimizer) + 1;
    s->samples = r->samples;
    s->leaves = r->layout.leaves;
    s->workers = d->workers;
    s->domains = d->count;
    s->first = d->first[d->index];
    s->members = d->members;
    memcpy(s->slot, r->slots, (size_t)d->members * sizeof *s->slot);
    s->shares[d->workers] = 0;
    if (d->shares)
        memcpy(s->shares, d->shares, ((size_t)d->workers + 1) * sizeof *s->shares);
}

void lsi_transaction_change(lsi_replica *r)
{
    if (r->vault)
        atomic_store(&lsi_counters_of(r, r->domain.member)->begun,
                     ls_optimizer_get_step(r->optimizer) + 1);
}

/* Keep what blocks [first, last) were; the run's mark is to follow. */
static void keep_run(lsi_replica *r, size_t first, size_t last, uint64_t mark)
{
    lsi_undo_save(r->optimizer, r->weights, first, last, undo_memory(r));
    keep(r, lsi_undo_run(mark, first / LSI_OWN_BLOCKS));
}

static void mark_run(lsi_replica *r, size_t first, uint64_t mark)
{
    atomic_store_explicit(&r->vault->marks[first / LSI_OWN_BLOCKS], mark, memory_order_release);
}

ls_status lsi_transaction_measure(lsi_replica *r, int round, size_t first, size_t last)
{
    const int changes = r->vault && lsi_optimizer_directs(r->optimizer, round);
    const uint64_t mark = lsi_mark(ls_optimizer_get_step(r->optimizer) + 1, 0);
    if (changes)
        keep_run(r, first, last, mark);
    LSI_TRY(
        ls_optimizer_measure(r->optimizer, round, r->weights, lsi_vector(r, 0, 0), first, last));
    if (changes)
        mark_run(r, first, mark);
    return LS_OK;
}

ls_status lsi_transaction_update(lsi_replica *r, const float *sums, size_t first, size_t last)
{
    const uint64_t mark = lsi_mark(ls_optimizer_get_step(r->optimizer) + 1, 1);
    if (r->vault)
        keep_run(r, first, last, mark);
    LSI_TRY(ls_optimizer_update(r->optimizer, r->weights, sums, first, last));
    if (r->vault)
        mark_run(r, first, mark);
    return LS_OK;
}

ls_status lsi_transaction_touch(lsi_replica *r, int param, const int32_t *ids, size_t n)
{
    if (!r->vault)
        return ls_optimizer_touch(r->optimizer, r->weights, param, ids, n, 1);
    const size_t most = lsi_undo_rows(r->optimizer, param, r->undo_bytes);
    for (size_t at = 0; at < n; at += most) {
        const size_t some = n - at < most ? n - at : most;
        lsi_undo_save_rows(r->optimizer, r->weights, param, ids + at, some, undo_memory(r));
        keep(r, LSI_UNDO_ROWS);
        LSI_TRY(ls_optimizer_touch(r->optimizer, r->weights, param, ids + at, some, 1));
        keep(r, 0);
    }
    return LS_OK;
}

ls_status lsi_transaction_flush(lsi_replica *r)
{
    int32_t ids[FLUSH];
    if (!r->vault)
        return ls_optimizer_flush(r->optimizer, r->weights);
    for (int p = 0; p < r->n_params; p++)
        for (size_t row = 0; r->params[p].sparse && row < r->params[p].dims[0];) {
            size_t n = 0;
            for (; n < FLUSH && row < r->params[p].dims[0]; n++)
                ids[n] = (int32_t)row++;
            LSI_TRY(lsi_transaction_touch(r, p, ids, n));
        }
    return LS_OK;
}

void lsi_transaction_end(lsi_replica *r)
{
    if (r->vault && r->domain.member == 0 && r->optimizer)
        atomic_store(&r->vault->head->steps, ls_optimizer_get_step(r->optimizer));
}

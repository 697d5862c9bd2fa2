/* Finishing what the members of an earlier group left.
 *
 * One member does it alone, before the first step of the new group, and may die in it as well: the
 * next one finds the same things to do.
 *
 *     1. What was being changed when its member died is put back, wherever its mark is missing.
 *     2. If any member had begun the update of the step under way, the update is finished: the
 *        gradients are complete, and stand where they stood (vault.h). Otherwise nothing of the
 *        state has changed, and the step is computed again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "parallel/replica.h"
#include "parallel/sparse.h"
#include "parallel/transaction.h"

static lsi_counters *slot_counters(const lsi_vault *v, uint64_t slot)
{
    return (lsi_counters *)lsi_vault_slot(v, (int)slot);
}

/* 1. */
static void put_back(lsi_replica *r)
{
    lsi_vault *v = r->vault;
    for (uint64_t i = 0; i < v->head->shape.slots; i++) {
        lsi_counters *c = slot_counters(v, i);
        const uint64_t word = atomic_load(&c->undo);
        const int done = (word & LSI_UNDO_KIND) == LSI_UNDO_RUN &&
                         atomic_load(&v->marks[lsi_undo_run_of(word)]) >= lsi_undo_mark_of(word);
        if ((word & LSI_UNDO_KIND) && !done)
            lsi_undo_restore(r->optimizer, r->weights, lsi_vault_slot(v, (int)i) + r->undo_at);
        atomic_store(&c->undo, 0);
    }
}

static int has_begun(const lsi_vault *v, uint64_t number)
{
    int any = 0;
    for (uint64_t i = 0; i < v->head->shape.slots; i++)
        any |= atomic_load(&slot_counters(v, i)->begun) == number;
    return any;
}

/* The replica as its members of then saw it, but all blocks are ours. */
static ls_status see_as(lsi_replica *then, lsi_vault_step *s)
{
    int *first = calloc(3, sizeof *first);
    then->of = calloc((size_t)s->members, sizeof *then->of);
    then->layout = (lsi_layout){0};
    if (!first || !then->of) {
        free(first);
        return lsi_fail(LS_ERR_NOMEM, NULL, "recovery", "out of memory");
    }
    first[0] = s->first;
    first[1] = s->first + s->members;
    then->domain = (lsi_domain){.worker = s->first,
                                .workers = s->workers,
                                .members = s->members,
                                .count = 1,
                                .first = first,
                                .shares = s->shares[s->workers] ? s->shares : NULL};
    then->n_buckets = 0; /* none of ours is to be laid out */
    then->owns_all = 1;
    then->samples = s->samples;
    for (int m = 0; m < s->members; m++)
        then->of[m] = lsi_vault_slot(then->vault, s->slot[m]);
    then->mine = then->of[0];
    return lsi_layout_make(then, s->leaves);
}

static ls_status measure_all(lsi_replica *then, int round, uint64_t number)
{
    const int changes = lsi_optimizer_directs(then->optimizer, round);
    size_t last;
    for (size_t first = 0; changes && lsi_own_run(then, &first, &last); first = last)
        if (atomic_load(&then->vault->marks[first / LSI_OWN_BLOCKS]) < lsi_mark(number, 0))
            LSI_TRY(lsi_transaction_measure(then, round, first, last));
    return ls_optimizer_combine(then->optimizer, round);
}

/* 2. `summed`: gradients are in the leader's first vector. */
static ls_status finish(lsi_replica *then, uint64_t number, double count, int summed)
{
    const int rounds = ls_optimizer_rounds(then->optimizer);
    size_t last;
    LSI_TRY(ls_optimizer_begin(then->optimizer, (float)(1 / count)));
    for (int round = 0; round < rounds; round++)
        LSI_TRY(measure_all(then, round, number));
    for (size_t first = 0; lsi_own_run(then, &first, &last); first = last) {
        if (atomic_load(&then->vault->marks[first / LSI_OWN_BLOCKS]) >= lsi_mark(number, 1))
            continue;
        const float *sums =
            rounds || summed ? lsi_vector(then, 0, 0) : lsi_combine_run(then, first, last);
        LSI_TRY(lsi_transaction_update(then, sums, first, last));
    }
    ls_optimizer_end(then->optimizer);
    return LS_OK;
}

/* Every run has its mark. If the figures are known too, the members may have gone on, and the
 * gradients are not these any more; if not, all is there to find what belongs into them. */
static int all_marked(const lsi_replica *r, uint64_t number)
{
    int all = 1;
    for (size_t first = 0; first < r->blocks; first += LSI_OWN_BLOCKS)
        all &= atomic_load(&r->vault->marks[first / LSI_OWN_BLOCKS]) >= lsi_mark(number, 1);
    return all;
}

static ls_status finish_step(lsi_replica *then, const lsi_vault_step *s)
{
    const lsi_vault_figures *f = &then->vault->head->figures[s->number % LSI_VAULT_FIGURES];
    const int known = atomic_load(&f->number) == s->number, summed = s->domains > 1;
    if (!known && summed)
        memcpy(then->totals, lsi_tail(then, 0, 0), then->tails * sizeof *then->totals);
    else if (!known)
        lsi_combine_tails(then);
    if (known && all_marked(then, s->number))
        return LS_OK;
    then->domain.count = s->domains; /* rows were gathered, or not */
    if (then->sparse)
        LSI_TRY(lsi_sparse_give_all(then));
    then->domain.count = 1;
    return finish(then, s->number, known ? f->count : then->totals[LSI_TAIL_COUNT], summed);
}

ls_status lsi_recover(lsi_replica *r, uint64_t *finished)
{
    lsi_vault_step s = r->vault->head->step;
    const uint64_t steps = atomic_load(&r->vault->head->steps);
    *finished = 0;
    if (!r->optimizer)
        return LS_OK;
    lsi_optimizer_seek(r->optimizer, steps);
    put_back(r);
    if (s.number != steps + 1 || !has_begun(r->vault, s.number))
        return LS_OK;
    lsi_replica then = *r;
    ls_status status = see_as(&then, &s);
    if (status == LS_OK)
        status = finish_step(&then, &s);
    if (status == LS_OK) {
        *finished = s.number;
        lsi_log(LSI_LOG_INFO, "step %llu was finished for those who died in it",
                (unsigned long long)s.number);
    }
    free(then.layout.spans);
    free(then.domain.first);
    free(then.of);
    return status;
}

/* Rows of sparse parameters that are left alone until they are needed.
 *
 * In each step few rows of an embedding table have a gradient, but momentum and decay move all of
 * them. Going over the table in every step would cost its whole memory traffic; here a row that is
 * not used is not touched, and what it missed is made up for, exactly, when it is read next.
 *
 * 1. stamps[row] is the step up to which a row is up to date. A row with stamp s differs from the
 *    dense result of step t by t - s updates with a gradient of zero, and by nothing else.
 * 2. No stamp is older than LSI_RATES steps: in every step a slice of each table is brought up to
 *    date, another one each time, so that LSI_RATES - 1 steps go over all of it. It depends on
 *    the step alone, not on who updates which blocks.
 * 3. Rows are independent: callers with different rows do not meet, a stamp is written by whoever
 *    brings the row up to date.
 *
 * Parameters whose rows do not move by themselves (sgd without momentum and decay) have no stamps.
 */
#include <string.h>

#include "base/status.h"
#include "optim/optimizer.h"

#define BATCH 8  /* rows that go to the kernel together */
#define AHEAD 16 /* rows that are asked for early */

void lsi_history_keep(ls_optimizer *o)
{
    lsi_history *h = o->history;
    if (!h)
        return;
    const size_t i = (size_t)(o->step + 1) & (LSI_RATES - 1);
    h->lr[i] = h->lr[i + LSI_RATES] = o->rate;
    h->adam[i] = h->adam[i + LSI_RATES] = lsi_adam_rate_at(&o->adam);
}

/* Rows of a parameter on their way to step number `last`. */
typedef struct batch {
    ls_optimizer *o;
    const lsi_optim_param *param;
    float *params;
    uint64_t last;
    size_t count;
    lsi_idle row[BATCH];
} batch;

static ls_status run(batch *b)
{
    const size_t count = b->count;
    b->count = 0;
    return count ? b->o->ops->idle(b->o, b->param, count, b->row, b->last, b->params) : LS_OK;
}

/* Asks for a row that is added soon: tables are larger than the caches. One of those to come at a
 * time: the processor drops requests when too many are under way. Always in line: the compiler
 * takes a function that only asks for one without effect, and leaves it out. */
static inline __attribute__((always_inline)) void expect(const batch *b, size_t row)
{
    const ls_optimizer *o = b->o;
    if (row >= b->param->rows)
        return;
    const size_t at = b->param->offset + row * b->param->width;
    if (b->param->lazy)
        __builtin_prefetch(&o->stamps[b->param->first_stamp + row], 1);
    __builtin_prefetch(b->params + at, 1);
    for (int a = 0; a < o->arrays; a++)
        __builtin_prefetch(o->array[a] + at, 1);
}

/* The stamp is set at once: a row that is named twice is added once. */
static ls_status add(batch *b, size_t row)
{
    ls_optimizer *o = b->o;
    const size_t at = b->param->offset + row * b->param->width;
    uint32_t *stamp = &o->stamps[b->param->first_stamp + row];
    const uint32_t missed = (uint32_t)b->last - *stamp;
    if (missed == 0)
        return LS_OK;
    if (missed > LSI_RATES) {
        LSI_TRY(run(b)); /* those that are stamped already */
        return lsi_fail(LS_ERR_INVALID, "update every block in every step", "optimizer",
                        "row %zu of parameter %s has missed %u steps: more than are remembered",
                        row, b->param->name, (unsigned)missed);
    }
    *stamp = (uint32_t)b->last;
    b->row[b->count++] = (lsi_idle){at, missed};
    return b->count == BATCH ? run(b) : LS_OK;
}

static ls_status add_range(batch *b, size_t first, size_t last)
{
    for (size_t row = first; row < last; row++)
        LSI_TRY(add(b, row));
    return LS_OK;
}

ls_status ls_optimizer_touch(ls_optimizer *o, float *params, int index, const int32_t *ids,
                             size_t n, size_t stride)
{
    if (index < 0 || index >= o->count)
        return lsi_fail(LS_ERR_INVALID, NULL, "optimizer", "there is no parameter %d", index);
    const lsi_optim_param *param = &o->params[index];
    if (!param->lazy)
        return LS_OK;
    batch b = {.o = o, .param = param, .params = params, .last = o->step};
    ls_status status = LS_OK;
    for (size_t i = 0; i < n && i < AHEAD; i++)
        expect(&b, (size_t)ids[i * stride]);
    for (size_t i = 0; status == LS_OK && i < n; i++) {
        const int32_t id = ids[i * stride];
        if (i + AHEAD < n)
            expect(&b, (size_t)ids[(i + AHEAD) * stride]);
        if (id < 0 || (size_t)id >= param->rows)
            status =
                lsi_fail(LS_ERR_INVALID, NULL, "optimizer", "parameter %s has no row %ld of %zu",
                         param->name, (long)id, param->rows);
        else
            status = add(&b, (size_t)id);
    }
    const ls_status rest = run(&b); /* those before a bad id too: they are stamped */
    return status != LS_OK ? status : rest;
}

ls_status ls_optimizer_flush(ls_optimizer *o, float *params)
{
    for (int p = 0; p < o->count; p++) {
        const lsi_optim_param *param = &o->params[p];
        if (!param->lazy)
            continue;
        batch b = {.o = o, .param = param, .params = params, .last = o->step};
        LSI_TRY(add_range(&b, 0, param->rows));
        LSI_TRY(run(&b));
    }
    return LS_OK;
}

void lsi_lazy_slice(const lsi_optim_param *param, size_t first, size_t last, uint64_t step,
                    size_t *from, size_t *to)
{
    const size_t turns = LSI_RATES - 1, slice = (param->rows + turns - 1) / turns;
    *from = (size_t)(step % turns) * slice;
    *to = *from + slice;
    *from = *from > first ? *from : first;
    *to = *to < last ? *to : last;
}

static ls_status sweep(ls_optimizer *o, const lsi_optim_param *param, size_t first, size_t last,
                       uint64_t step, float *params)
{
    size_t from, to;
    lsi_lazy_slice(param, first, last, step, &from, &to);
    batch b = {.o = o, .param = param, .params = params, .last = step};
    LSI_TRY(add_range(&b, from, to));
    return run(&b);
}

ls_status lsi_lazy_update(ls_optimizer *o, const lsi_optim_param *param, size_t from, size_t to,
                          float *params)
{
    const ls_sparse_grad *grad = &param->grad;
    const size_t width = param->width;
    const size_t first = (from - param->offset + width - 1) / width;
    const size_t last = (to - param->offset + width - 1) / width;
    const size_t begin = lsi_rows_find(grad, first), end = lsi_rows_find(grad, last);
    batch b = {.o = o, .param = param, .params = params, .last = o->step};
    for (size_t i = begin; i < end && i < begin + AHEAD; i++)
        expect(&b, (size_t)grad->ids[i]);
    for (size_t i = begin, n; i < end; i += n) {
        size_t at[BATCH];
        n = end - i < BATCH ? end - i : BATCH;
        for (size_t j = 0; j < n; j++) {
            const size_t row = (size_t)grad->ids[i + j];
            if (i + j + AHEAD < end)
                expect(&b, (size_t)grad->ids[i + j + AHEAD]);
            at[j] = param->offset + row * width;
            if (param->lazy) /* as a rule it has been touched */
                LSI_TRY(add(&b, row));
        }
        LSI_TRY(run(&b));
        LSI_TRY(o->ops->update_rows(o, param, n, at, grad->values + i * width, params));
        for (size_t j = 0; param->lazy && j < n; j++)
            o->stamps[param->first_stamp + (size_t)grad->ids[i + j]] = (uint32_t)(o->step + 1);
    }
    return param->lazy ? sweep(o, param, first, last, o->step + 1, params) : LS_OK;
}

/* A step: begin, rounds of norms (norms.c), updates of ranges of blocks, end.
 *
 * 1. Nothing here depends on how blocks are divided: kernels work element by element, and a range
 *    is cut at parameters only.
 * 2. The step number moves in end; whatever failed before can be begun again.
 */
#include <math.h>

#include "base/status.h"
#include "optim/exact.h"
#include "optim/optimizer.h"

int lsi_optim_find(const ls_optimizer *o, size_t at)
{
    int low = 0, high = o->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (o->params[middle].offset + o->params[middle].count <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t ls_optimizer_blocks(const ls_optimizer *o)
{
    return o->blocks;
}

int ls_optimizer_rounds(const ls_optimizer *o)
{
    return o->round_count;
}

ls_status ls_optimizer_begin(ls_optimizer *o, float scale)
{
    if (!(scale > 0) || !isfinite(scale))
        return lsi_fail(LS_ERR_INVALID, "1 / count of samples", "optimizer",
                        "the gradient's scale must be above 0 and finite, not %g", (double)scale);
    const ls_optim_config *s = &o->settings;
    o->rate = lsi_schedule_rate(s, o->step);
    o->given_scale = o->scale = scale;
    o->clipped = 1;
    o->grad_norm = 0;
    if (o->ops->has & LSI_HAS_BETAS) {
        o->adam.lr = o->rate;
        o->adam.number = o->step + 1;
        o->adam.correct1 = (float)(1 - lsi_power((double)s->beta1, o->step + 1));
        o->adam.correct2 = (float)(1 - lsi_power((double)s->beta2, o->step + 1));
    }
    lsi_history_keep(o);
    return LS_OK;
}

void lsi_optimizer_seek(ls_optimizer *o, uint64_t step)
{
    if (o->history)
        for (o->step = step > LSI_RATES ? step - LSI_RATES : 0; o->step < step; o->step++)
            (void)ls_optimizer_begin(o, 1);
    o->step = step;
}

int lsi_optimizer_directs(const ls_optimizer *o, int round)
{
    return (o->rounds[round] & LSI_SUM_BIT(LSI_SUM_DIRECTION)) != 0;
}

static ls_status update_run(ls_optimizer *o, const lsi_optim_param *param, size_t at, size_t n,
                            const float *g, void *arg)
{
    float *params = arg;
    return o->ops->update(o, param, at, n, g, params + at);
}

ls_status ls_optimizer_update(ls_optimizer *o, float *params, const float *grads, size_t first,
                              size_t last)
{
    if (first > last || last > o->blocks)
        return lsi_fail(LS_ERR_INVALID, NULL, "optimizer", "there are no blocks %zu to %zu of %zu",
                        first, last, o->blocks);
    const size_t from = first * LS_OPTIM_BLOCK, to = last * LS_OPTIM_BLOCK;
    const int begin = lsi_optim_find(o, from);
    for (int p = begin; p < o->count && o->params[p].offset < to; p++) /* before anything changes */
        LSI_TRY(lsi_rows_given(&o->params[p]));
    for (int p = begin; p < o->count && o->params[p].offset < to; p++) {
        const lsi_optim_param *param = &o->params[p];
        const size_t end = param->offset + param->count;
        const size_t a = from > param->offset ? from : param->offset, b = to < end ? to : end;
        if (!param->rows)
            LSI_TRY(o->ops->update(o, param, a, b - a, grads + a, params + a));
        else if (o->ops->moves)
            LSI_TRY(lsi_lazy_update(o, param, a, b, params));
        else
            LSI_TRY(lsi_rows_each_run(o, param, a, b - a, update_run, params));
    }
    return LS_OK;
}

void ls_optimizer_end(ls_optimizer *o)
{
    o->step++;
    for (int p = 0; p < o->count; p++)
        o->params[p].given = 0;
}

ls_status ls_optimizer_step(ls_optimizer *o, float *params, const float *grads, float scale)
{
    LSI_TRY(ls_optimizer_begin(o, scale));
    for (int round = 0; round < o->round_count; round++) {
        LSI_TRY(ls_optimizer_measure(o, round, params, grads, 0, o->blocks));
        LSI_TRY(ls_optimizer_combine(o, round));
    }
    LSI_TRY(ls_optimizer_update(o, params, grads, 0, o->blocks));
    ls_optimizer_end(o);
    return LS_OK;
}

void ls_optimizer_figures(const ls_optimizer *o, ls_optim_figures *figures)
{
    *figures = (ls_optim_figures){o->rate, o->grad_norm, o->clipped};
}

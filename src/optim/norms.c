/* Norms: sums of squares by pieces, and one fixed tree over them.
 *
 * 1. A piece's sum depends on its elements alone (the kernel's order is fixed), so it does not
 *    matter who computes it, nor which other pieces he computes.
 * 2. Sums are put together in the balanced binary tree over piece numbers: node (l, i) = (l+1, 2i)
 *    + (l+1, 2i+1), an absent leaf skipped. A parameter's own norm takes the tree over its pieces.
 * 3. A sparse parameter's sums have the bits of a dense gradient with zeros in the other rows.
 * 4. Norms that are not finite end the step before any weight has changed.
 *
 * Cost of combine: one addition a piece, i.e. one for 4096 elements.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "optim/optimizer.h"

#define CLIP_EPS 1e-6 /* as torch.nn.utils.clip_grad_norm_ */

/* Complete subtrees wait on a stack, the larger to the left; equal neighbours are added at once. */
double lsi_optim_tree(const double *values, size_t n)
{
    double sum[64];
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        sum[depth++] = values[i];
        for (size_t full = i + 1; full % 2 == 0; full /= 2, depth--)
            sum[depth - 2] += sum[depth - 1];
    }
    for (; depth > 1; depth--)
        sum[depth - 2] += sum[depth - 1];
    return depth ? sum[0] : 0;
}

static size_t piece_count(const lsi_optim_param *param)
{
    return lsi_optim_piece(param, param->offset + param->count - 1) + 1 - param->first_piece;
}

/* x is the flat array. The kernel counts blocks from where it starts: the part before the first
 * boundary goes alone. */
static ls_status squares(ls_optimizer *o, const lsi_optim_param *param, size_t from, size_t to,
                         float scale, const float *x, double *sums)
{
    size_t boundary = (from / LS_OPTIM_BLOCK + 1) * LS_OPTIM_BLOCK;
    boundary = boundary < to ? boundary : to;
    double *out = sums + lsi_optim_piece(param, from);
    LSI_TRY(o->device->k->block_squares(o->device, boundary - from, scale, x + from, out));
    if (boundary == to)
        return LS_OK;
    return o->device->k->block_squares(o->device, to - boundary, scale, x + boundary, out + 1);
}

static ls_status squares_of_rows(ls_optimizer *o, const lsi_optim_param *param, size_t from,
                                 size_t to, double *sums)
{
    while (from < to) {
        size_t boundary = (from / LS_OPTIM_BLOCK + 1) * LS_OPTIM_BLOCK;
        boundary = boundary < to ? boundary : to;
        LSI_TRY(
            lsi_rows_squares(o, param, from, boundary - from, &sums[lsi_optim_piece(param, from)]));
        from = boundary;
    }
    return LS_OK;
}

static ls_status direct_run(ls_optimizer *o, const lsi_optim_param *param, size_t at, size_t n,
                            const float *g, void *arg)
{
    const float *params = arg;
    return o->ops->direct(o, param, at, n, g, params + at);
}

static ls_status measure(ls_optimizer *o, unsigned bits, const lsi_optim_param *param, size_t from,
                         size_t to, const float *params, const float *grads)
{
    LSI_TRY(lsi_rows_given(param));
    if (bits & LSI_SUM_BIT(LSI_SUM_DIRECTION)) {
        if (param->rows)
            LSI_TRY(lsi_rows_each_run(o, param, from, to - from, direct_run, (void *)params));
        else
            LSI_TRY(o->ops->direct(o, param, from, to - from, grads + from, params + from));
        LSI_TRY(squares(o, param, from, to, 1, o->array[2], o->sums[LSI_SUM_DIRECTION]));
    }
    if (bits & LSI_SUM_BIT(LSI_SUM_WEIGHT))
        LSI_TRY(squares(o, param, from, to, 1, params, o->sums[LSI_SUM_WEIGHT]));
    if (!(bits & LSI_SUM_BIT(LSI_SUM_GRAD)))
        return LS_OK;
    double *sums = o->sums[LSI_SUM_GRAD];
    return param->rows ? squares_of_rows(o, param, from, to, sums)
                       : squares(o, param, from, to, o->given_scale, grads, sums);
}

ls_status ls_optimizer_measure(ls_optimizer *o, int round, const float *params, const float *grads,
                               size_t first, size_t last)
{
    if (round < 0 || round >= o->round_count || first > last || last > o->blocks)
        return lsi_fail(LS_ERR_INVALID, NULL, "optimizer",
                        "round %d of %d, blocks %zu to %zu of %zu: there are none such", round,
                        o->round_count, first, last, o->blocks);
    const size_t from = first * LS_OPTIM_BLOCK, to = last * LS_OPTIM_BLOCK;
    for (int p = lsi_optim_find(o, from); p < o->count && o->params[p].offset < to; p++) {
        const lsi_optim_param *param = &o->params[p];
        const size_t end = param->offset + param->count;
        LSI_TRY(measure(o, o->rounds[round], param, from > param->offset ? from : param->offset,
                        to < end ? to : end, params, grads));
    }
    return LS_OK;
}

double *ls_optimizer_sums(ls_optimizer *o, int round, int i, size_t first, size_t last,
                          size_t *count)
{
    if (round < 0 || round >= o->round_count || i < 0 || first > last || last > o->blocks)
        return NULL;
    const size_t edge[2] = {first * LS_OPTIM_BLOCK, last * LS_OPTIM_BLOCK};
    size_t piece[2]; /* the first that does not lie before each edge */
    for (int e = 0; e < 2; e++) {
        const int p = lsi_optim_find(o, edge[e]);
        piece[e] = o->pieces;
        if (p < o->count) {
            const lsi_optim_param *param = &o->params[p];
            piece[e] =
                edge[e] > param->offset ? lsi_optim_piece(param, edge[e]) : param->first_piece;
        }
    }
    for (int kind = 0; kind < LSI_SUM_KINDS; kind++) {
        if (!(o->rounds[round] & LSI_SUM_BIT(kind)) || i-- > 0)
            continue;
        *count = piece[1] - piece[0];
        return o->sums[kind] + piece[0];
    }
    return NULL;
}

/* Sums of this kind are not finite, in all: name the first parameter at fault. */
static ls_status not_finite(const ls_optimizer *o, enum lsi_optim_sum kind)
{
    static const char *const what[] = {"the gradient", "the value", "the step"};
    for (int p = 0; p < o->count; p++) {
        const lsi_optim_param *param = &o->params[p];
        if (!isfinite(lsi_optim_tree(o->sums[kind] + param->first_piece, piece_count(param))))
            return lsi_fail(LS_ERR_INVALID, "a smaller learning rate may help", "optimizer",
                            "%s of parameter %s is infinite or not a number", what[kind],
                            param->name);
    }
    return lsi_fail(LS_ERR_INVALID, "a smaller learning rate may help", "optimizer",
                    "%s is too large for its norm", what[kind]);
}

ls_status ls_optimizer_combine(ls_optimizer *o, int round)
{
    if (round < 0 || round >= o->round_count)
        return lsi_fail(LS_ERR_INVALID, NULL, "optimizer", "there is no round %d of %d", round,
                        o->round_count);
    const unsigned bits = o->rounds[round];
    for (int kind = 0; kind < LSI_SUM_KINDS; kind++) {
        if (!(bits & LSI_SUM_BIT(kind)))
            continue;
        const double sum = lsi_optim_tree(o->sums[kind], o->pieces);
        if (!isfinite(sum))
            return not_finite(o, (enum lsi_optim_sum)kind);
        if (kind == LSI_SUM_GRAD)
            o->grad_norm = sqrt(sum);
    }
    if (bits & LSI_SUM_BIT(LSI_SUM_GRAD) && o->settings.clip > 0) {
        const double factor = (double)o->settings.clip / (o->grad_norm + CLIP_EPS);
        o->clipped = factor < 1 ? factor : 1;
        o->scale = (float)((double)o->given_scale * o->clipped);
    }
    if (round + 1 < o->round_count || !o->ops->ratio)
        return LS_OK;
    for (int p = 0; p < o->count; p++) {
        lsi_optim_param *param = &o->params[p];
        double norm[LSI_SUM_KINDS] = {0};
        for (int kind = 0; kind < LSI_SUM_KINDS; kind++) {
            if (bits & LSI_SUM_BIT(kind))
                norm[kind] =
                    sqrt(lsi_optim_tree(o->sums[kind] + param->first_piece, piece_count(param)));
        }
        norm[LSI_SUM_GRAD] *= o->clipped;
        param->ratio = o->ops->ratio(o, param, norm);
    }
    return LS_OK;
}

/* The gradient of a sparse parameter (used rows and their values) seen as the dense one that it
 * stands for.
 *
 * 1. Rows are ascending and each there once: ls_optimizer_sparse has checked it.
 * 2. Values of consecutive rows are contiguous, so a run of used rows is one range, wherever it is
 *    cut.
 */
#include <string.h>

#include "base/status.h"
#include "optim/optimizer.h"

size_t lsi_rows_find(const ls_sparse_grad *grad, size_t row)
{
    size_t low = 0, high = grad->rows;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((size_t)grad->ids[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

ls_status lsi_rows_each_run(ls_optimizer *o, const lsi_optim_param *param, size_t at, size_t n,
                            lsi_run_fn fn, void *arg)
{
    const ls_sparse_grad *grad = &param->grad;
    const size_t width = param->width, end = at - param->offset + n;
    size_t from = at - param->offset, i = lsi_rows_find(grad, from / width);
    while (from < end) {
        const float *g = NULL;
        size_t to = end;
        if (i < grad->rows && (size_t)grad->ids[i] == from / width) {
            g = grad->values + i * width + from % width;
            while (i + 1 < grad->rows && grad->ids[i + 1] == grad->ids[i] + 1)
                i++;
            to = ((size_t)grad->ids[i++] + 1) * width;
        } else if (i < grad->rows) {
            to = (size_t)grad->ids[i] * width;
        }
        to = to < end ? to : end;
        LSI_TRY(fn(o, param, param->offset + from, to - from, g, arg));
        from = to;
    }
    return LS_OK;
}

static ls_status place_run(ls_optimizer *o, const lsi_optim_param *param, size_t at, size_t n,
                           const float *g, void *arg)
{
    (void)param;
    float *to = o->block + (at - *(size_t *)arg);
    if (g)
        memcpy(to, g, n * sizeof *to);
    else
        memset(to, 0, n * sizeof *to);
    return LS_OK;
}

/* The kernel adds element e to lane e mod 16 in order, and a zero changes no lane. When rows are
 * whole groups of 16, leaving out the unused ones moves no element to another lane: the values of
 * the piece, which lie one after the other, give the same bits. Other widths are put in their
 * places first. */
ls_status lsi_rows_squares(ls_optimizer *o, const lsi_optim_param *param, size_t at, size_t n,
                           double *sum)
{
    const ls_sparse_grad *grad = &param->grad;
    const size_t width = param->width, from = at - param->offset, to = from + n;
    if (width % 16) {
        LSI_TRY(lsi_rows_each_run(o, param, at, n, place_run, &at));
        return o->device->k->block_squares(o->device, n, o->given_scale, o->block, sum);
    }
    const size_t first = from / width, last = (to - 1) / width;
    const size_t i = lsi_rows_find(grad, first), end = lsi_rows_find(grad, last + 1);
    *sum = 0;
    if (i == end)
        return LS_OK;
    size_t begin = i * width, stop = end * width;
    if ((size_t)grad->ids[i] == first)
        begin += from % width;
    if ((size_t)grad->ids[end - 1] == last)
        stop -= (last + 1) * width - to;
    return o->device->k->block_squares(o->device, stop - begin, o->given_scale,
                                       grad->values + begin, sum);
}

ls_status lsi_rows_given(const lsi_optim_param *param)
{
    if (!param->rows || param->given)
        return LS_OK;
    return lsi_fail(LS_ERR_INVALID, "ls_optimizer_sparse gives it", "optimizer",
                    "the gradient of sparse parameter %s is missing", param->name);
}

ls_status ls_optimizer_sparse(ls_optimizer *o, int index, const ls_sparse_grad *grad)
{
    if (index < 0 || index >= o->count || !o->params[index].rows)
        return lsi_fail(LS_ERR_INVALID, NULL, "optimizer", "parameter %d is not a sparse one",
                        index);
    lsi_optim_param *param = &o->params[index];
    if (grad->rows && grad->width != param->width)
        return lsi_fail(LS_ERR_INVALID, NULL, "optimizer",
                        "rows of parameter %s have %zu elements, not %zu", param->name,
                        param->width, grad->width);
    for (size_t i = 0; i < grad->rows; i++) {
        if (grad->ids[i] < 0 || (size_t)grad->ids[i] >= param->rows)
            return lsi_fail(LS_ERR_INVALID, NULL, "optimizer", "parameter %s has no row %ld of %zu",
                            param->name, (long)grad->ids[i], param->rows);
        if (i && grad->ids[i] <= grad->ids[i - 1])
            return lsi_fail(LS_ERR_INVALID, NULL, "optimizer",
                            "rows of the gradient of parameter %s are not ascending: %ld after %ld",
                            param->name, (long)grad->ids[i], (long)grad->ids[i - 1]);
    }
    param->grad = *grad;
    param->given = 1;
    return LS_OK;
}

/* Stochastic gradient descent, with momentum and Nesterov's variant, as torch.optim.SGD:
 *
 *     g = scale gradient + decay w
 *     m = momentum m + g
 *     w = w - lr (nesterov ? g + momentum m : m)
 *
 * I. Sutskever et al.: On the importance of initialization and momentum in deep learning, ICML 2013
 * (the rate outside of m, as PyTorch has it). The first step's m = g needs no case: m starts as
 * zero.
 */
#include "optim/optimizer.h"

static int array_count(const ls_optim_config *settings)
{
    return settings->momentum > 0;
}

static lsi_sgd constants(const ls_optimizer *o, const lsi_optim_param *param)
{
    const ls_optim_config *s = &o->settings;
    return (lsi_sgd){.lr = o->rate,
                     .momentum = s->momentum,
                     .decay = param->no_decay ? 0 : s->decay,
                     .nesterov = s->nesterov,
                     .scale = o->scale,
                     .number = o->step + 1};
}

static ls_status update(ls_optimizer *o, const lsi_optim_param *param, size_t at, size_t n,
                        const float *g, float *w)
{
    const lsi_sgd sgd = constants(o, param);
    return o->device->k->sgd(o->device, &sgd, n, g, o->arrays ? o->array[0] + at : NULL, w);
}

static ls_status update_rows(ls_optimizer *o, const lsi_optim_param *param, size_t rows,
                             const size_t *at, const float *g, float *params)
{
    const lsi_sgd sgd = constants(o, param);
    return o->device->k->sgd_rows(o->device, &sgd, rows, at, param->width, g,
                                  o->arrays ? o->array[0] : NULL, params);
}

static int moves(const ls_optim_config *settings, const lsi_optim_param *param)
{
    return settings->momentum > 0 || (settings->decay > 0 && !param->no_decay);
}

static ls_status idle(ls_optimizer *o, const lsi_optim_param *param, size_t rows,
                      const lsi_idle *row, uint64_t last, float *params)
{
    lsi_sgd sgd = constants(o, param);
    sgd.number = last;
    return o->device->k->sgd_idle(o->device, &sgd, rows, row, LSI_RATES,
                                  o->history->lr + lsi_history_window(last), param->width,
                                  o->arrays ? o->array[0] : NULL, params);
}

const lsi_optim_ops lsi_optim_sgd = {
    .name = "sgd",
    .has = LSI_HAS_MOMENTUM,
    .arrays = {"momentum_buffer"},
    .array_count = array_count,
    .update = update,
    .update_rows = update_rows,
    .moves = moves,
    .idle = idle,
};

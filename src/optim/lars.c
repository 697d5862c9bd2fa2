/* LARS: momentum with a rate for each parameter. Y. You, I. Gitman, B. Ginsburg: Large batch
 * training of convolutional networks, arXiv:1708.03888. For each parameter, with g = scale
 * gradient:
 *
 *     ratio = trust |w| / (|g| + decay |w| + eps)      1 where |w| or |g| is 0
 *     g = ratio (g + decay w)
 *     m = momentum m + g
 *     w = w - lr (nesterov ? g + momentum m : m)
 *
 * The rate stands outside of m as in PyTorch's SGD (in the paper inside: the same as long as lr is
 * constant). Parameters without decay, biases and norms, are updated by plain momentum. With decay
 * 0 the ratio is applied all the same.
 */
#include "optim/optimizer.h"

static int array_count(const ls_optim_config *settings)
{
    return settings->momentum > 0;
}

static float ratio(const ls_optimizer *o, const lsi_optim_param *param, const double *norms)
{
    const ls_optim_config *s = &o->settings;
    const double w = norms[LSI_SUM_WEIGHT], g = norms[LSI_SUM_GRAD];
    if (param->no_decay || w == 0 || g == 0)
        return 1;
    return (float)((double)s->trust * w / (g + (double)s->decay * w + (double)s->eps));
}

static ls_status update(ls_optimizer *o, const lsi_optim_param *param, size_t at, size_t n,
                        const float *g, float *w)
{
    const ls_optim_config *s = &o->settings;
    const lsi_sgd sgd = {.lr = o->rate,
                         .momentum = s->momentum,
                         .decay = param->no_decay ? 0 : param->ratio * s->decay,
                         .nesterov = s->nesterov,
                         .scale = param->ratio * o->scale,
                         .number = o->step + 1};
    return o->device->k->sgd(o->device, &sgd, n, g, o->arrays ? o->array[0] + at : NULL, w);
}

const lsi_optim_ops lsi_optim_lars = {
    .name = "lars",
    .has = LSI_HAS_MOMENTUM | LSI_HAS_EPS | LSI_HAS_TRUST,
    .momentum = 0.9f,
    .eps = 1e-8f,
    .trust = 0.001f,
    .arrays = {"momentum_buffer"},
    .array_count = array_count,
    .rounds = {LSI_SUM_BIT(LSI_SUM_GRAD) | LSI_SUM_BIT(LSI_SUM_WEIGHT)},
    .ratio = ratio,
    .update = update,
};

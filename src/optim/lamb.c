/* LAMB: Adam with a rate for each parameter. Y. You et al.: Large batch optimization for deep
 * learning: training BERT in 76 minutes, ICLR 2020 (arXiv:1904.00962, algorithm 2, phi the
 * identity). With t counted from 1 and g = scale gradient:
 *
 *     m = beta1 m + (1 - beta1) g
 *     v = beta2 v + (1 - beta2) g^2
 *     u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay w
 *     w = w - lr |w| / |u|  u                          lr u where |w| or |u| is 0
 *
 * Parameters without decay, biases and norms, take lr u, as in NVIDIA's apex. Unlike there, nothing
 * is clipped unless asked for. u is array 2, which lives from measuring to updating and is not
 * saved.
 */
#include "optim/optimizer.h"

static int array_count(const ls_optim_config *settings)
{
    (void)settings;
    return 3;
}

static ls_status direct(ls_optimizer *o, const lsi_optim_param *param, size_t at, size_t n,
                        const float *g, const float *w)
{
    lsi_adam adam = o->adam;
    adam.scale = o->scale;
    if (param->no_decay)
        adam.decay = 0;
    return o->device->k->lamb_direction(o->device, &adam, n, g, o->array[0] + at, o->array[1] + at,
                                        w, o->array[2] + at);
}

static float ratio(const ls_optimizer *o, const lsi_optim_param *param, const double *norms)
{
    (void)o;
    const double w = norms[LSI_SUM_WEIGHT], u = norms[LSI_SUM_DIRECTION];
    return param->no_decay || w == 0 || u == 0 ? 1 : (float)(w / u);
}

static ls_status update(ls_optimizer *o, const lsi_optim_param *param, size_t at, size_t n,
                        const float *g, float *w)
{
    (void)g;
    return o->device->k->scale(o->device, n, -(o->rate * param->ratio), o->array[2] + at, w, 1);
}

const lsi_optim_ops lsi_optim_lamb = {
    .name = "lamb",
    .has = LSI_HAS_BETAS | LSI_HAS_EPS,
    .beta1 = 0.9f,
    .beta2 = 0.999f,
    .eps = 1e-6f,
    .decay = 0.01f,
    .arrays = {"exp_avg", "exp_avg_sq"},
    .array_count = array_count,
    .rounds = {0, LSI_SUM_BIT(LSI_SUM_WEIGHT) | LSI_SUM_BIT(LSI_SUM_DIRECTION)},
    .direct = direct,
    .ratio = ratio,
    .update = update,
};

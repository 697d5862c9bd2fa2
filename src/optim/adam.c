/* Adam and AdamW, as torch.optim's. With t counted from 1 and g = scale gradient:
 *
 *     adam:   g = g + decay w                  D. Kingma, J. Ba, ICLR 2015
 *     adamw:  w = w - lr decay w               I. Loshchilov, F. Hutter, ICLR 2019
 *     m = beta1 m + (1 - beta1) g
 *     v = beta2 v + (1 - beta2) g^2
 *     w = w - lr / (1 - beta1^t)  m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 */
#include "optim/optimizer.h"

static int array_count(const ls_optim_config *settings)
{
    (void)settings;
    return 2;
}

/* Without decay both kinds are the same: nothing is added to g, nothing taken from w. */
static lsi_adam constants(const ls_optimizer *o, const lsi_optim_param *param)
{
    lsi_adam adam = o->adam;
    adam.scale = o->scale;
    if (param->no_decay) {
        adam.decay = 0;
        adam.decoupled = 0;
    }
    return adam;
}

static ls_status update(ls_optimizer *o, const lsi_optim_param *param, size_t at, size_t n,
                        const float *g, float *w)
{
    const lsi_adam adam = constants(o, param);
    return o->device->k->adam(o->device, &adam, n, g, o->array[0] + at, o->array[1] + at, w);
}

static ls_status update_rows(ls_optimizer *o, const lsi_optim_param *param, size_t rows,
                             const size_t *at, const float *g, float *params)
{
    const lsi_adam adam = constants(o, param);
    return o->device->k->adam_rows(o->device, &adam, rows, at, param->width, g, o->array[0],
                                   o->array[1], params);
}

static int moves(const ls_optim_config *settings, const lsi_optim_param *param)
{
    (void)settings, (void)param;
    return 1;
}

static ls_status idle(ls_optimizer *o, const lsi_optim_param *param, size_t rows,
                      const lsi_idle *row, uint64_t last, float *params)
{
    lsi_adam adam = constants(o, param);
    adam.number = last;
    return o->device->k->adam_idle(o->device, &adam, rows, row, LSI_RATES,
                                   o->history->adam + lsi_history_window(last), param->width,
                                   o->array[0], o->array[1], params);
}

const lsi_optim_ops lsi_optim_adam = {
    .name = "adam",
    .has = LSI_HAS_BETAS | LSI_HAS_EPS,
    .beta1 = 0.9f,
    .beta2 = 0.999f,
    .eps = 1e-8f,
    .arrays = {"exp_avg", "exp_avg_sq"},
    .array_count = array_count,
    .update = update,
    .update_rows = update_rows,
    .moves = moves,
    .idle = idle,
};

const lsi_optim_ops lsi_optim_adamw = {
    .name = "adamw",
    .has = LSI_HAS_BETAS | LSI_HAS_EPS,
    .beta1 = 0.9f,
    .beta2 = 0.999f,
    .eps = 1e-8f,
    .decay = 0.01f,
    .arrays = {"exp_avg", "exp_avg_sq"},
    .array_count = array_count,
    .update = update,
    .update_rows = update_rows,
    .moves = moves,
    .idle = idle,
};

/* Settings of an optimizer: defaults, and what is refused.
 *
 * 1. 0 in a field means its default; LS_OPTIM_ZERO means zero. After settling, a field is its
 *    value.
 * 2. A setting that the optimizer has no use for is refused rather than ignored: it is a
 *    misunderstanding or a slip of the pen.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "optim/optimizer.h"

static const lsi_optim_ops *const known[] = {&lsi_optim_sgd, &lsi_optim_adam, &lsi_optim_adamw,
                                             &lsi_optim_lars, &lsi_optim_lamb};
enum { KNOWN = sizeof known / sizeof *known };

const char *ls_optimizer_known(int i)
{
    return i >= 0 && i < KNOWN ? known[i]->name : NULL;
}

static ls_status find(const char *name, const lsi_optim_ops **out)
{
    for (int i = 0; i < KNOWN; i++) {
        if (!strcmp(known[i]->name, name)) {
            *out = known[i];
            return LS_OK;
        }
    }
    return lsi_fail(LS_ERR_CONFIG, "known: sgd, adam, adamw, lars, lamb", "optimizer",
                    "there is none named '%s'", name);
}

/* One number: where it is, whether this optimizer has it, its default, and what is accepted. */
typedef struct number {
    const char *name;
    const float *given;
    float *out;
    int has;
    float otherwise; /* the default */
    float below;     /* values are at least 0 and below this */
    int zero;        /* 0 is a value */
} number;

static ls_status settle(const number *n, const char *optimizer)
{
    const float x = *n->given;
    if (!n->has && x != 0)
        return lsi_fail(LS_ERR_CONFIG, NULL, "optimizer", "%s has no '%s'", optimizer, n->name);
    float value = x == 0 ? n->otherwise : x;
    if (x == LS_OPTIM_ZERO && n->zero)
        value = 0;
    if (n->has && !(value >= 0 && value < n->below && (n->zero || value > 0))) {
        char limit[32] = "";
        if (isfinite(n->below))
            snprintf(limit, sizeof limit, " and below %g", (double)n->below);
        return lsi_fail(LS_ERR_CONFIG, NULL, "optimizer", "%s: '%s' must be %s 0%s, not %g",
                        optimizer, n->name, n->zero ? "at least" : "above",
                        isfinite(n->below) ? limit : " and finite", (double)x);
    }
    *n->out = value;
    return LS_OK;
}

ls_status lsi_optim_settle(const ls_optim_config *config, const lsi_optim_ops **ops_out,
                           ls_optim_config *out)
{
    if (!config || config->size != sizeof *config)
        return lsi_fail(LS_ERR_INVALID, "start from LS_OPTIM_CONFIG_INIT", "optimizer",
                        "the configuration has size %zu, not %zu", config ? config->size : 0,
                        sizeof *config);
    const lsi_optim_ops *ops = NULL;
    LSI_TRY(find(config->name && *config->name ? config->name : "sgd", &ops));
    ls_optim_config s = *config;
    const int momentum = (ops->has & LSI_HAS_MOMENTUM) != 0,
              betas = (ops->has & LSI_HAS_BETAS) != 0;
    const number numbers[] = {
        {"lr", &config->lr, &s.lr, 1, 0.001f, INFINITY, 0},
        {"momentum", &config->momentum, &s.momentum, momentum, ops->momentum, 1, 1},
        {"beta1", &config->beta1, &s.beta1, betas, ops->beta1, 1, 1},
        {"beta2", &config->beta2, &s.beta2, betas, ops->beta2, 1, 1},
        {"eps", &config->eps, &s.eps, (ops->has & LSI_HAS_EPS) != 0, ops->eps, INFINITY, 1},
        {"decay", &config->decay, &s.decay, 1, ops->decay, INFINITY, 1},
        {"trust", &config->trust, &s.trust, (ops->has & LSI_HAS_TRUST) != 0, ops->trust, INFINITY,
         0},
        {"clip", &config->clip, &s.clip, 1, 0, INFINITY, 1},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        LSI_TRY(settle(&numbers[i], ops->name));
    if (config->nesterov && !momentum)
        return lsi_fail(LS_ERR_CONFIG, NULL, "optimizer", "%s has no 'nesterov'", ops->name);
    if (config->nesterov && s.momentum == 0)
        return lsi_fail(LS_ERR_CONFIG, NULL, "optimizer", "%s: 'nesterov' needs a momentum",
                        ops->name);
    LSI_TRY(lsi_schedule_check(config, &s));
    s.name = ops->name;
    *ops_out = ops;
    *out = s;
    return LS_OK;
}

/* A settled zero whose field would turn it into a default that is not zero. */
static float keep_zero(float settled, float otherwise)
{
    return settled == 0 && otherwise != 0 ? LS_OPTIM_ZERO : settled;
}

ls_status ls_optim_config_check(const ls_optim_config *config, ls_optim_config *out)
{
    const lsi_optim_ops *ops;
    ls_optim_config s;
    LSI_TRY(lsi_optim_settle(config, &ops, &s));
    s.momentum = keep_zero(s.momentum, ops->momentum);
    s.beta1 = keep_zero(s.beta1, ops->beta1);
    s.beta2 = keep_zero(s.beta2, ops->beta2);
    s.eps = keep_zero(s.eps, ops->eps);
    s.decay = keep_zero(s.decay, ops->decay);
    *out = s;
    return LS_OK;
}

/* Schedules: the learning rate as a pure function of the step.
 *
 * 1. Computed in double and rounded once; nothing is carried from step to step.
 * 2. Warm-up comes first and is the same for all: step s of `warmup` has (s + 1) / (warmup + 1) of
 *    lr, so that the first step does something and step `warmup` has all of it.
 * 3. Beyond the last step the rate stays where it is.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "optim/exact.h"
#include "optim/optimizer.h"

/* How a schedule goes down from 1 after the warm-up, given the part of the way p in [0, 1] from the
 * warm-up to `steps`; NULL: it is no matter of p. */
typedef struct schedule {
    const char *name;
    double (*fall)(double p);
} schedule;

static double linear(double p)
{
    return 1 - p;
}

static double cosine(double p) /* I. Loshchilov, F. Hutter: SGDR, ICLR 2017, without restarts */
{
    return 0.5 * (1 + lsi_cosine_of_half_turns(p));
}

static const schedule known[] = {{"const", NULL},
                                 {"linear", linear},
                                 {"step", NULL},
                                 {"cosine", cosine}};
enum { KNOWN = sizeof known / sizeof *known };

const char *ls_schedule_known(int i)
{
    return i >= 0 && i < KNOWN ? known[i].name : NULL;
}

static const schedule *find(const char *name)
{
    for (int i = 0; i < KNOWN; i++) {
        if (!strcmp(known[i].name, name))
            return &known[i];
    }
    return NULL;
}

float lsi_schedule_rate(const ls_optim_config *settings, uint64_t step)
{
    const schedule *s = find(settings->schedule);
    const double lr = (double)settings->lr, min = (double)settings->min_lr;
    if (step < settings->warmup)
        return (float)(lr * (double)(step + 1) / ((double)settings->warmup + 1));
    if (!strcmp(s->name, "step"))
        return (float)(lr * lsi_power((double)settings->gamma, step / settings->every));
    if (!s->fall)
        return settings->lr;
    if (step >= settings->steps)
        return settings->min_lr;
    const double p =
        (double)(step - settings->warmup) / (double)(settings->steps - settings->warmup);
    return (float)(min + (lr - min) * s->fall(p));
}

ls_status ls_schedule_rate(const ls_optim_config *config, uint64_t step, float *rate)
{
    const lsi_optim_ops *ops;
    ls_optim_config settings;
    LSI_TRY(lsi_optim_settle(config, &ops, &settings));
    *rate = lsi_schedule_rate(&settings, step);
    return LS_OK;
}

/* A setting that this schedule has no use for. */
static ls_status unused(const char *schedule_name, const char *setting, const char *whose)
{
    return lsi_fail(LS_ERR_CONFIG, NULL, "optimizer", "schedule '%s' has no '%s': it belongs to %s",
                    schedule_name, setting, whose);
}

ls_status lsi_schedule_check(const ls_optim_config *config, ls_optim_config *out)
{
    const char *name = config->schedule && *config->schedule ? config->schedule : "const";
    const schedule *s = find(name);
    if (!s)
        return lsi_fail(LS_ERR_CONFIG, "known: const, linear, step, cosine", "optimizer",
                        "there is no schedule named '%s'", name);
    const int steps = !strcmp(name, "step"), falls = s->fall != NULL;
    out->schedule = s->name;
    if (!falls && config->steps)
        return unused(name, "steps", "linear and cosine");
    if (!falls && config->min_lr != 0)
        return unused(name, "min_lr", "linear and cosine");
    if (!steps && config->every)
        return unused(name, "every", "step");
    if (!steps && config->gamma != 0)
        return unused(name, "gamma", "step");
    if (falls && config->steps <= config->warmup)
        return lsi_fail(LS_ERR_CONFIG, NULL, "optimizer",
                        "schedule '%s' needs 'steps' above the %llu of 'warmup', not %llu", name,
                        (unsigned long long)config->warmup, (unsigned long long)config->steps);
    if (falls && !(config->min_lr >= 0 && config->min_lr <= out->lr))
        return lsi_fail(LS_ERR_CONFIG, NULL, "optimizer",
                        "'min_lr' must be from 0 to the learning rate %g, not %g", (double)out->lr,
                        (double)config->min_lr);
    if (steps && !config->every)
        return lsi_fail(LS_ERR_CONFIG, NULL, "optimizer",
                        "schedule 'step' needs 'every', a number of steps");
    if (steps)
        out->gamma = config->gamma != 0 ? config->gamma : 0.1f;
    if (steps && !(out->gamma > 0 && out->gamma <= 1))
        return lsi_fail(LS_ERR_CONFIG, NULL, "optimizer",
                        "'gamma' must be above 0 and at most 1, not %g", (double)out->gamma);
    return LS_OK;
}

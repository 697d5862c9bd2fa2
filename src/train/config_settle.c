/* What is usual for each model, and what settings must satisfy together.
 *
 * 1. Only what is unset is filled in.
 * 2. Settling a settled configuration changes nothing.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "optim/optimizer.h"
#include "train/config.h"

#define WHAT "configuration"
#define SHARDS 8
#define GPT_EVAL_BATCHES 20 /* a tenth of a book takes longer than many steps */

/* Of the first whose name the model's begins with. gpt as in nanoGPT, resnet as in its paper with
 * the rate in proportion to the batch. */
typedef struct usual {
    const char *model;
    uint64_t batch, steps, warmup, eval_every, checkpoint_every;
    const char *optimizer, *schedule;
    double lr, min_share; /* the rate ends at this share of lr */
    double decay, clip, beta2;
} usual;

static const usual known[] = {
    {"mlp", 128, 2000, 50, 500, 1000, "sgd", "cosine", 0.05, 0, 0, 0, 0},
    {"resnet:18", 32, 5000, 200, 500, 500, "sgd", "cosine", 0.0125, 0, 1e-4, 0, 0},
    {"resnet:34", 32, 5000, 200, 500, 500, "sgd", "cosine", 0.0125, 0, 1e-4, 0, 0},
    {"resnet:50", 32, 5000, 200, 500, 500, "sgd", "cosine", 0.0125, 0, 1e-4, 0, 0},
    {"resnet:101", 32, 5000, 200, 500, 500, "sgd", "cosine", 0.0125, 0, 1e-4, 0, 0},
    {"resnet:152", 32, 5000, 200, 500, 500, "sgd", "cosine", 0.0125, 0, 1e-4, 0, 0},
    {"resnet", 64, 2000, 100, 500, 500, "sgd", "cosine", 0.05, 0, 1e-4, 0, 0},
    {"gpt:char", 8, 5000, 100, 250, 500, "adamw", "cosine", 6e-4, 0.1, 0.1, 1, 0.99},
    {"gpt:124m", 4, 1000, 100, 250, 250, "adamw", "cosine", 3e-4, 0.1, 0.1, 1, 0.95},
    {"gpt", 12, 2000, 100, 250, 500, "adamw", "cosine", 1e-3, 0.1, 0.1, 1, 0.99},
    {"dlrm", 256, 2000, 0, 500, 1000, "sgd", "const", 0.01, 0, 0, 0, 0},
    {"", 32, 1000, 0, 0, 500, "sgd", "const", 0.01, 0, 0, 0, 0},
};

static const usual *usual_of(const lsi_train_config *config)
{
    const usual *u = known;
    while (strncmp(config->model.name, u->model, strlen(u->model)) != 0)
        u++;
    return u;
}

static void fill(uint64_t *at, uint64_t value)
{
    if (*at == LSI_UNSET)
        *at = value;
}

static void fill_real(double *at, double value)
{
    if (isnan(*at))
        *at = value;
}

static void fill_word(char *at, const char *value)
{
    if (!*at)
        snprintf(at, LSI_CONFIG_WORD, "%s", value);
}

/* ---- filling in ------------------------------------------------------------------------------ */

static uint64_t usual_shards(uint64_t batch)
{
    uint64_t shards = SHARDS;
    while (batch % shards)
        shards /= 2;
    return shards;
}

static void fill_train(lsi_train_config *c, const usual *u)
{
    fill(&c->train.batch, u->batch);
    fill(&c->train.shards, usual_shards(c->train.batch));
    fill(&c->train.micro_batch, 0);
    if (c->train.epochs == LSI_UNSET)
        fill(&c->train.steps, u->steps);
    fill(&c->train.steps, 0);
    fill(&c->train.epochs, 0);
    fill(&c->train.seed, 1);
    fill(&c->train.threads, 1);
    fill_word(c->train.sync, "sync");
    fill_word(c->train.reduce, "auto");
    fill_word(c->train.wire, "f32");
}

static void fill_data(lsi_train_config *c)
{
    fill_word(c->data.kind, "synthetic");
    fill_real(&c->data.holdout, 0.1);
    const int images = !strcmp(c->data.kind, "cifar") || !strcmp(c->data.kind, "idx");
    fill(&c->data.augment, images && !strncmp(c->model.name, "resnet", 6));
    fill(&c->data.samples, 0);
    if (c->data.letters.kind == LSI_LETTERS_UNSET) {
        c->data.letters.kind = strcmp(c->data.kind, "text") ? LSI_LETTERS_BYTES : LSI_LETTERS_OWN;
        c->data.letters.text[0] = 0;
    }
}

static void fill_rest(lsi_train_config *c, const usual *u)
{
    fill(&c->eval.every, u->eval_every);
    fill(&c->eval.batches, strncmp(c->model.name, "gpt", 3) == 0 ? GPT_EVAL_BATCHES : 0);
    fill(&c->checkpoint.every, u->checkpoint_every);
    fill(&c->checkpoint.keep, 3);
    fill(&c->run.workers, 0);
    fill_word(c->run.transport, "auto");
    fill(&c->run.tensorboard, 1);
    fill(&c->run.check_every, 50);
    fill_word(c->run.on_divergence, "stop");
    fill_word(c->run.balance, "even");
}

/* The rate that is usual for an optimizer other than the model's own. */
static double usual_rate(const char *optimizer)
{
    static const struct {
        const char *name;
        double lr;
    } rates[] = {{"sgd", 0.01}, {"adam", 1e-3}, {"adamw", 1e-3}, {"lars", 1}, {"lamb", 2e-3}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        if (!strcmp(rates[i].name, optimizer))
            return rates[i].lr;
    }
    return 1e-3;
}

static int falls(const lsi_train_config *c)
{
    return !strcmp(c->optimizer.schedule, "linear") || !strcmp(c->optimizer.schedule, "cosine");
}

/* Warming up takes a tenth of the run at most. */
static void fill_warmup(lsi_train_config *c, const usual *u, uint64_t total)
{
    fill(&c->optimizer.warmup, u->warmup < total / 10 ? u->warmup : total / 10);
}

/* A setting that the optimizer does not have: zero and unset are the same then. */
static void drop_zero(double *at, int has)
{
    if (!has && *at == 0)
        *at = NAN;
}

static ls_status fill_optimizer(lsi_train_config *c, const usual *u)
{
    fill_word(c->optimizer.name, u->optimizer);
    fill_word(c->optimizer.schedule, u->schedule);
    ls_optim_config defaults = LS_OPTIM_CONFIG_INIT;
    const lsi_optim_ops *ops;
    defaults.name = c->optimizer.name;
    LSI_TRY(lsi_optim_settle(&defaults, &ops, &defaults));
    const int own = !strcmp(c->optimizer.name, u->optimizer);
    const int momentum = (ops->has & LSI_HAS_MOMENTUM) != 0;
    const int betas = (ops->has & LSI_HAS_BETAS) != 0;
    const int eps = (ops->has & LSI_HAS_EPS) != 0, trust = (ops->has & LSI_HAS_TRUST) != 0;
    const double none = NAN;
    fill_real(&c->optimizer.lr, own ? u->lr : usual_rate(c->optimizer.name));
    fill_real(&c->optimizer.momentum, momentum ? 0.9 : none);
    drop_zero(&c->optimizer.momentum, momentum);
    if (momentum)
        fill(&c->optimizer.nesterov, 0);
    else if (!c->optimizer.nesterov)
        c->optimizer.nesterov = LSI_UNSET;
    fill_real(&c->optimizer.beta1, betas ? (double)defaults.beta1 : none);
    drop_zero(&c->optimizer.beta1, betas);
    fill_real(&c->optimizer.beta2, own && u->beta2 > 0 ? u->beta2
                                   : betas             ? (double)defaults.beta2
                                                       : none);
    drop_zero(&c->optimizer.beta2, betas);
    fill_real(&c->optimizer.eps, eps ? (double)defaults.eps : none);
    drop_zero(&c->optimizer.eps, eps);
    fill_real(&c->optimizer.decay, own || u->decay > 0 ? u->decay : (double)defaults.decay);
    fill_real(&c->optimizer.trust, trust ? (double)defaults.trust : none);
    fill_real(&c->optimizer.clip, u->clip);
    const int by_steps = !strcmp(c->optimizer.schedule, "step");
    fill_real(&c->optimizer.min_lr, falls(c) ? u->min_share * c->optimizer.lr : none);
    drop_zero(&c->optimizer.min_lr, falls(c));
    fill(&c->optimizer.steps, falls(c) ? 0 : LSI_UNSET);
    if (!by_steps && !c->optimizer.every)
        c->optimizer.every = LSI_UNSET;
    fill_real(&c->optimizer.gamma, by_steps ? 0.1 : none);
    if (c->train.steps)
        fill_warmup(c, u, c->train.steps);
    return LS_OK;
}

/* ---- checking -------------------------------------------------------------------------------- */

static ls_status not_yet(const char *key, const char *value, const char *use)
{
    char hint[48];
    snprintf(hint, sizeof hint, "use %s", use);
    return lsi_fail(LS_ERR_UNSUPPORTED, hint, key, "'%s' is not available yet", value);
}

static ls_status check_train(const lsi_train_config *c)
{
    const uint64_t largest = (c->train.batch + c->train.shards - 1) / c->train.shards;
    if (strcmp(c->train.sync, "sync") != 0)
        return not_yet("train.sync", c->train.sync, "sync");
    if (strcmp(c->train.wire, "f32") != 0)
        return not_yet("train.wire", c->train.wire, "f32");
    if (c->train.threads != 1)
        return lsi_fail(LS_ERR_UNSUPPORTED, "use 1, and more workers", "train.threads",
                        "%llu threads a worker are not available yet",
                        (unsigned long long)c->train.threads);
    if (c->train.shards > c->train.batch)
        return lsi_fail(LS_ERR_CONFIG, "a shard has at least one sample", "train.shards",
                        "%llu shards are more than the %llu samples of train.batch",
                        (unsigned long long)c->train.shards, (unsigned long long)c->train.batch);
    if (c->train.micro_batch > largest)
        return lsi_fail(LS_ERR_CONFIG, "0 takes the whole shard at once", "train.micro_batch",
                        "%llu samples are more than the %llu of a shard",
                        (unsigned long long)c->train.micro_batch, (unsigned long long)largest);
    if (!c->train.steps && !c->train.epochs)
        return lsi_fail(LS_ERR_CONFIG, "give one of them", WHAT,
                        "train.steps and train.epochs are both 0");
    if (c->train.steps && c->train.epochs)
        return lsi_fail(LS_ERR_CONFIG, "give one of them", WHAT,
                        "train.steps is %llu and train.epochs is %llu",
                        (unsigned long long)c->train.steps, (unsigned long long)c->train.epochs);
    if (c->run.workers > c->train.shards)
        return lsi_fail(LS_ERR_CONFIG, "a worker runs at least one shard", "run.workers",
                        "%llu workers are more than the %llu of train.shards",
                        (unsigned long long)c->run.workers, (unsigned long long)c->train.shards);
    return LS_OK;
}

static ls_status check_data(const lsi_train_config *c)
{
    const char *kind = c->data.kind;
    const int synthetic = !strcmp(kind, "synthetic"), text = !strcmp(kind, "text");
    if (synthetic && c->data.path[0])
        return lsi_fail(LS_ERR_CONFIG, "say which format it has: data.kind", "data.path",
                        "synthetic data has no file such as '%.200s'", c->data.path);
    if (!synthetic && !c->data.path[0])
        return lsi_fail(LS_ERR_CONFIG, "give it as KIND:PATH", "data.path",
                        "data of kind %s has to come from a file or folder", kind);
    if (!synthetic && c->data.samples)
        return lsi_fail(LS_ERR_CONFIG, NULL, "data.samples",
                        "only synthetic data has as many as one wants, %s has not", kind);
    if (!text && c->data.letters.kind != LSI_LETTERS_BYTES)
        return lsi_fail(LS_ERR_CONFIG, NULL, "data.letters", "data of kind %s has none", kind);
    if (c->data.augment && strcmp(kind, "idx") != 0 && strcmp(kind, "cifar") != 0)
        return lsi_fail(LS_ERR_CONFIG, "it is for images of files: idx, cifar", "data.augment",
                        "data of kind %s cannot be shifted and mirrored", kind);
    return LS_OK;
}

ls_status lsi_train_config_settle(lsi_train_config *config)
{
    ls_model *model;
    ls_optim_config optim;
    LSI_TRY(lsi_train_config_model(config, &model));
    ls_model_destroy(model);
    const usual *u = usual_of(config);
    fill_train(config, u);
    fill_data(config);
    fill_rest(config, u);
    LSI_TRY(fill_optimizer(config, u));
    LSI_TRY(check_train(config));
    LSI_TRY(check_data(config));
    /* With epochs the length is not known yet: any that is long enough will do. */
    const uint64_t warmup = config->optimizer.warmup != LSI_UNSET ? config->optimizer.warmup : 0;
    return lsi_train_config_optim(config, config->train.steps ? config->train.steps : warmup + 1,
                                  &optim);
}

ls_status lsi_train_config_total(lsi_train_config *config, uint64_t samples, uint64_t *steps)
{
    ls_optim_config optim;
    uint64_t total = config->train.steps;
    if (!samples)
        return lsi_fail(LS_ERR_CONFIG, NULL, "data", "there is nothing to train on");
    if (!total && __builtin_mul_overflow(config->train.epochs,
                                         (samples - 1) / config->train.batch + 1, &total))
        return lsi_fail(LS_ERR_CONFIG, NULL, "train.epochs", "%llu are too many",
                        (unsigned long long)config->train.epochs);
    fill_warmup(config, usual_of(config), total);
    LSI_TRY(lsi_train_config_optim(config, total, &optim));
    *steps = total;
    return LS_OK;
}

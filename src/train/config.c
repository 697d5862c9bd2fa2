/* Giving settings, and handing them on: to the model, the dataset, the optimizer.
 *
 * 1. A setting that is refused changes nothing.
 */
#include "train/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "optim/optimizer.h"
#include "train/config_keys.h"

#define WHAT "configuration"

ls_status lsi_train_config_init(lsi_train_config *config, const char *model)
{
    const lsi_row *row;
    memset(config, 0, sizeof *config);
    for (int i = 0; (row = lsi_row_at(i)); i++)
        lsi_row_unset(row, config);
    return model ? lsi_train_config_put(config, "model.name", model) : LS_OK;
}

/* ---- settings of the model ------------------------------------------------------------------- */

/* The place of a setting with the key of "key=value" among those given, -1: there is none. */
static int find_setting(const lsi_train_config *config, const char *assignment)
{
    const size_t length = strcspn(assignment, "=") + 1;
    for (int i = 0; i < config->model.count; i++) {
        if (!strncmp(config->model.settings[i], assignment, length))
            return i;
    }
    return -1;
}

/* The model's own words for what is wrong; without a model, that comes out when settling. */
static ls_status try_setting(const lsi_train_config *config, const char *assignment)
{
    ls_model *model;
    if (!config->model.name[0])
        return LS_OK;
    LSI_TRY(ls_model_create(config->model.name, &model));
    const ls_status status = ls_model_set(model, assignment);
    ls_model_destroy(model);
    return status;
}

static ls_status put_setting(lsi_train_config *config, const char *assignment)
{
    int i = find_setting(config, assignment);
    if (strlen(assignment) >= LSI_CONFIG_SETTING)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "model.%.60s… is longer than %d bytes",
                        assignment, LSI_CONFIG_SETTING - 1);
    if (i < 0 && config->model.count == LSI_CONFIG_SETTINGS)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "more than %d settings of the model",
                        LSI_CONFIG_SETTINGS);
    LSI_TRY(try_setting(config, assignment));
    if (i < 0)
        i = config->model.count++;
    snprintf(config->model.settings[i], LSI_CONFIG_SETTING, "%s", assignment);
    return LS_OK;
}

ls_status lsi_train_config_offer(lsi_train_config *config, const char *assignment)
{
    return find_setting(config, assignment) < 0 ? put_setting(config, assignment) : LS_OK;
}

ls_status lsi_train_config_model(const lsi_train_config *config, ls_model **out)
{
    ls_model *model;
    if (!config->model.name[0])
        return lsi_fail(LS_ERR_CONFIG, "e.g. model.name=gpt:nano", WHAT, "no model is named");
    LSI_TRY(ls_model_create(config->model.name, &model));
    for (int i = 0; i < config->model.count; i++) {
        const ls_status status = ls_model_set(model, config->model.settings[i]);
        if (status != LS_OK) {
            ls_model_destroy(model);
            return status;
        }
    }
    *out = model;
    return LS_OK;
}

/* ---- settings of all kinds ------------------------------------------------------------------- */

static ls_status unknown(const lsi_train_config *config, const char *key)
{
    char nearest[LSI_CONFIG_KEY] = "", hint[LSI_CONFIG_KEY + 32];
    lsi_row_nearest(config, key, nearest);
    snprintf(hint, sizeof hint, "did you mean %s?", nearest);
    return lsi_fail(LS_ERR_CONFIG, hint, WHAT, "there is no setting '%.60s'", key);
}

/* A setting of the model, unless the model is known and has none of that name. */
static ls_status put_model(lsi_train_config *config, const char *key, const char *value)
{
    char assignment[LSI_CONFIG_SETTING + LSI_CONFIG_KEY], setting[LSI_CONFIG_SETTING];
    const int n = snprintf(assignment, sizeof assignment, "%s=%s", key + strlen("model."), value);
    if (n < 0 || (size_t)n >= sizeof assignment)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%.60s: '%.60s…' is too long", key, value);
    ls_model *model = NULL;
    int known = !config->model.name[0];
    if (!known)
        LSI_TRY(ls_model_create(config->model.name, &model));
    const size_t length = strcspn(assignment, "=") + 1;
    for (int i = 0; !known && ls_model_get(model, i, setting, sizeof setting) == LS_OK; i++)
        known = !strncmp(setting, assignment, length);
    ls_model_destroy(model);
    return known ? put_setting(config, assignment) : unknown(config, key);
}

ls_status lsi_train_config_put(lsi_train_config *config, const char *key, const char *value)
{
    const lsi_row *row = lsi_row_find(key);
    if (!row)
        return strncmp(key, "model.", 6) ? unknown(config, key) : put_model(config, key, value);
    LSI_TRY(lsi_row_parse(row, value, config));
    if (!strcmp(key, "train.steps") && config->train.steps)
        config->train.epochs = 0;
    if (!strcmp(key, "train.epochs") && config->train.epochs)
        config->train.steps = 0;
    return LS_OK;
}

ls_status lsi_train_config_set(lsi_train_config *config, const char *assignment)
{
    char key[LSI_CONFIG_KEY];
    const size_t length = strcspn(assignment, "=");
    if (!assignment[length])
        return lsi_fail(LS_ERR_CONFIG, "write section.key=value", WHAT, "'%.60s' has no value",
                        assignment);
    snprintf(key, sizeof key, "%.*s", length < sizeof key ? (int)length : (int)sizeof key,
             assignment);
    return lsi_train_config_put(config, key, assignment + length + 1);
}

ls_status lsi_train_config_put_data(lsi_train_config *config, const char *data)
{
    char kind[LSI_CONFIG_WORD];
    const size_t length = strcspn(data, ":");
    const char *path = data[length] ? data + length + 1 : "";
    if (strlen(path) >= sizeof config->data.path)
        return lsi_fail(LS_ERR_CONFIG, NULL, "data.path", "it is longer than %d bytes",
                        LSI_CONFIG_PATH - 1);
    snprintf(kind, sizeof kind, "%.*s", length < sizeof kind ? (int)length : (int)sizeof kind,
             data);
    LSI_TRY(lsi_train_config_put(config, "data.kind", kind));
    snprintf(config->data.path, sizeof config->data.path, "%s", path);
    return LS_OK;
}

ls_status lsi_train_config_letters(lsi_train_config *config, const char *letters)
{
    lsi_config_letters *l = &config->data.letters;
    if (l->kind == LSI_LETTERS_BYTES)
        return LS_OK;
    if (strlen(letters) >= sizeof l->text)
        return lsi_fail(LS_ERR_CONFIG, "letters=bytes takes any text", "data.letters",
                        "the text has %zu bytes of different characters, %zu are the limit",
                        strlen(letters), sizeof l->text - 1);
    snprintf(l->text, sizeof l->text, "%s", letters);
    l->kind = LSI_LETTERS_GIVEN;
    return LS_OK;
}

void lsi_train_config_forget_run(lsi_train_config *config)
{
    const lsi_row *row;
    for (int i = 0; (row = lsi_row_at(i)); i++) {
        if (!strcmp(row->section, "run"))
            lsi_row_unset(row, config);
    }
}

/* ---- handing them on ------------------------------------------------------------------------- */

void lsi_train_config_data(const lsi_train_config *config, int validation, ls_data_config *out)
{
    ls_data_config data = LS_DATA_CONFIG_INIT;
    data.kind = config->data.kind;
    data.path = config->data.path[0] ? config->data.path : NULL;
    data.validation = validation;
    data.holdout = config->data.holdout;
    data.seed = config->train.seed;
    data.samples = config->data.samples;
    data.augment = config->data.augment && !validation;
    data.letters =
        config->data.letters.kind == LSI_LETTERS_BYTES ? NULL : config->data.letters.text;
    static const char *const models[] = {"mlp", "resnet", "gpt", "dlrm"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (!strncmp(config->model.name, models[i], strlen(models[i])))
            data.model = models[i];
    }
    *out = data;
}

/* What the field of ls_optim_config has for a value: 0 there is the default, not zero. */
static float field(double value, int has)
{
    if (isnan(value))
        return 0;
    return value == 0 && has ? LS_OPTIM_ZERO : (float)value;
}

ls_status lsi_train_config_optim(const lsi_train_config *config, uint64_t total,
                                 ls_optim_config *out)
{
    ls_optim_config o = LS_OPTIM_CONFIG_INIT, ignored;
    const lsi_optim_ops *ops;
    o.name = config->optimizer.name;
    LSI_TRY(lsi_optim_settle(&o, &ops, &ignored));
    const int betas = (ops->has & LSI_HAS_BETAS) != 0;
    o.lr = field(config->optimizer.lr, 0);
    o.momentum = field(config->optimizer.momentum, (ops->has & LSI_HAS_MOMENTUM) != 0);
    o.nesterov = config->optimizer.nesterov != LSI_UNSET && config->optimizer.nesterov;
    o.beta1 = field(config->optimizer.beta1, betas);
    o.beta2 = field(config->optimizer.beta2, betas);
    o.eps = field(config->optimizer.eps, (ops->has & LSI_HAS_EPS) != 0);
    o.decay = field(config->optimizer.decay, 1);
    o.trust = field(config->optimizer.trust, 0);
    o.clip = field(config->optimizer.clip, 0);
    o.schedule = config->optimizer.schedule;
    o.warmup = config->optimizer.warmup != LSI_UNSET ? config->optimizer.warmup : 0;
    const int falls = !strcmp(o.schedule, "linear") || !strcmp(o.schedule, "cosine");
    if (falls && config->optimizer.steps && config->optimizer.steps != LSI_UNSET)
        o.steps = config->optimizer.steps;
    else if (falls)
        o.steps = total;
    else if (config->optimizer.steps != LSI_UNSET)
        o.steps = config->optimizer.steps;
    o.min_lr = field(config->optimizer.min_lr, 0);
    o.every = config->optimizer.every != LSI_UNSET ? config->optimizer.every : 0;
    o.gamma = field(config->optimizer.gamma, 0);
    LSI_TRY(ls_optim_config_check(&o, &ignored));
    *out = o;
    return LS_OK;
}

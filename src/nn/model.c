/* Models by name: presets, settings as text, building. */
#include "nn/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/status.h"

static const lsi_model_kind *const kinds[] = {&lsi_model_mlp, &lsi_model_resnet, &lsi_model_gpt,
                                              &lsi_model_dlrm};
#define KINDS ((int)(sizeof kinds / sizeof *kinds))

#define TEXT_MAX 256

const lsi_model_kind *lsi_model_known(int i)
{
    return i >= 0 && i < KINDS ? kinds[i] : NULL;
}

/* Append ", text" (", " only between), as far as there is room. */
static void append(char text[TEXT_MAX], const char *more)
{
    const size_t used = strlen(text);
    snprintf(text + used, TEXT_MAX - used, "%s%s", used ? ", " : "", more);
}

static ls_status no_such_model(const char *name)
{
    char known[TEXT_MAX] = "", hint[TEXT_MAX + 16];
    for (int i = 0; i < KINDS; i++)
        append(known, kinds[i]->name);
    snprintf(hint, sizeof hint, "known: %s", known);
    return lsi_fail(LS_ERR_CONFIG, hint, "model", "there is none named '%.60s'", name);
}

static ls_status no_such_preset(const lsi_model_kind *kind, const char *name)
{
    char known[TEXT_MAX] = "", hint[TEXT_MAX + 16];
    for (int i = 0; i < kind->preset_count; i++)
        append(known, kind->presets[i].name);
    snprintf(hint, sizeof hint, "presets: %s", known);
    return lsi_fail(LS_ERR_CONFIG, hint, "model", "%s has no preset '%.60s'", kind->name, name);
}

static ls_status no_such_setting(const lsi_model_kind *kind, const char *key, int length)
{
    char known[TEXT_MAX] = "", hint[TEXT_MAX + 16];
    for (int i = 0; i < kind->setting_count; i++)
        append(known, kind->settings[i].key);
    snprintf(hint, sizeof hint, "settings: %s", known);
    return lsi_fail(LS_ERR_CONFIG, hint, "model", "%s has no setting '%.*s'", kind->name,
                    length > 60 ? 60 : length, key);
}

/* ---- values --------------------------------------------------------------------------------- */

static ls_status parse_real(const char *what, const lsi_setting *setting, const char *text,
                            lsi_value *value)
{
    char *end = NULL;
    const double real = strtod(text, &end);
    if (end == text || *end || !(real >= setting->least && real < setting->most))
        return lsi_fail(LS_ERR_CONFIG, NULL, what,
                        "'%.60s' is not a number of at least %g and below %g", text, setting->least,
                        setting->most);
    *value = (lsi_value){.real = real};
    return LS_OK;
}

static ls_status parse_list(const char *what, const lsi_setting *setting, const char *text,
                            lsi_value *value)
{
    lsi_value list = {.count = 0};
    for (const char *at = text;; at++) {
        char number[32];
        const size_t length = strcspn(at, ",");
        long whole;
        if (list.count == LSI_LIST_MAX)
            return lsi_fail(LS_ERR_CONFIG, NULL, what, "'%.60s' has more than %d numbers", text,
                            LSI_LIST_MAX);
        snprintf(number, sizeof number, "%.*s", length > 30 ? 30 : (int)length, at);
        LSI_TRY(lsi_parse_int(what, number, (long)setting->least, (long)setting->most, &whole));
        list.whole[list.count++] = (size_t)whole;
        at += length;
        if (!*at)
            break;
    }
    *value = list;
    return LS_OK;
}

static ls_status parse_value(const lsi_model_kind *kind, const lsi_setting *setting,
                             const char *text, lsi_value *value)
{
    char what[64];
    snprintf(what, sizeof what, "model %s, %s", kind->name, setting->key);
    if (setting->kind == LSI_SETTING_REAL)
        return parse_real(what, setting, text, value);
    if (setting->kind == LSI_SETTING_LIST)
        return parse_list(what, setting, text, value);
    long whole;
    LSI_TRY(lsi_parse_int(what, text, (long)setting->least, (long)setting->most, &whole));
    *value = (lsi_value){.count = 1, .whole = {(size_t)whole}};
    return LS_OK;
}

ls_status ls_model_set(ls_model *model, const char *assignment)
{
    if (!model || !assignment)
        return lsi_fail(LS_ERR_INVALID, NULL, "model", "a model and a setting are needed");
    const size_t length = strcspn(assignment, "=");
    const lsi_model_kind *kind = model->kind;
    for (int i = 0; i < kind->setting_count; i++) {
        const lsi_setting *setting = &kind->settings[i];
        if (strlen(setting->key) != length || strncmp(setting->key, assignment, length))
            continue;
        if (!assignment[length])
            return lsi_fail(LS_ERR_CONFIG, "write key=value", "model", "'%.60s' has no value",
                            assignment);
        return parse_value(kind, setting, assignment + length + 1, &model->values[i]);
    }
    return no_such_setting(kind, assignment, (int)(length > 60 ? 60 : length));
}

ls_status ls_model_get(const ls_model *model, int i, char *text, size_t room)
{
    if (!model || !text)
        return lsi_fail(LS_ERR_INVALID, NULL, "model", "a model and room for text are needed");
    const lsi_model_kind *kind = model->kind;
    if (i < 0 || i >= kind->setting_count)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, "model", "%s has %d settings, not %d", kind->name,
                        kind->setting_count, i + 1);
    const lsi_value *value = &model->values[i];
    char line[TEXT_MAX + 128];
    size_t used = (size_t)snprintf(line, sizeof line, "%s=", kind->settings[i].key);
    if (kind->settings[i].kind == LSI_SETTING_REAL) {
        char *number = line + used;
        snprintf(number, sizeof line - used, "%.15g", value->real);
        if (strtod(number, NULL) != value->real)
            snprintf(number, sizeof line - used, "%.17g", value->real);
    }
    for (int k = 0; k < value->count && used < sizeof line; k++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%zu", k ? "," : "",
                                 value->whole[k]);
    if (strlen(line) >= room)
        return lsi_fail(LS_ERR_INVALID, NULL, "model", "'%s' does not fit in %zu bytes", line,
                        room);
    memcpy(text, line, strlen(line) + 1);
    return LS_OK;
}

/* ---- models --------------------------------------------------------------------------------- */

static ls_status apply(ls_model *model, const lsi_preset *preset)
{
    char one[TEXT_MAX];
    for (const char *at = preset->settings; *at;) {
        const size_t length = strcspn(at, " ");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        LSI_TRY(ls_model_set(model, one));
        at += length + (at[length] == ' ');
    }
    return LS_OK;
}

ls_status ls_model_create(const char *name, ls_model **out)
{
    if (!name || !out)
        return lsi_fail(LS_ERR_INVALID, NULL, "model", "a name is needed");
    const size_t length = strcspn(name, ":");
    const char *wanted = name[length] ? name + length + 1 : NULL;
    const lsi_model_kind *kind = NULL;
    for (int i = 0; i < KINDS && !kind; i++)
        if (strlen(kinds[i]->name) == length && !strncmp(kinds[i]->name, name, length))
            kind = kinds[i];
    if (!kind)
        return no_such_model(name);
    const lsi_preset *preset = wanted ? NULL : &kind->presets[0];
    for (int i = 0; i < kind->preset_count && !preset; i++)
        if (!strcmp(kind->presets[i].name, wanted))
            preset = &kind->presets[i];
    if (!preset)
        return no_such_preset(kind, wanted);

    ls_model *model = calloc(1, sizeof *model);
    if (!model)
        return lsi_fail(LS_ERR_NOMEM, NULL, "model", "no memory for its settings");
    model->kind = kind;
    ls_status status = apply(model, &kind->presets[0]);
    if (status == LS_OK)
        status = apply(model, preset);
    if (status != LS_OK) {
        ls_model_destroy(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

void ls_model_destroy(ls_model *model)
{
    free(model);
}

const char *ls_model_name(const ls_model *model)
{
    return model ? model->kind->name : NULL;
}

ls_status ls_model_build(const ls_model *model, const ls_graph_config *config, ls_graph **out)
{
    if (!model || !out)
        return lsi_fail(LS_ERR_INVALID, NULL, "model",
                        "a model and a place for its graph are needed");
    if (model->kind->check)
        LSI_TRY(model->kind->check(model));
    ls_graph *graph;
    LSI_TRY(ls_graph_create(config, &graph));
    ls_tensor *output = NULL, *loss = model->kind->build(model, graph, &output);
    const ls_status status = ls_graph_compile(graph, loss, output);
    if (status != LS_OK) {
        ls_graph_destroy(graph);
        return status;
    }
    *out = graph;
    return LS_OK;
}

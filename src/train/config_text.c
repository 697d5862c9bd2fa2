/* A configuration as text: INI for files, lines to be compared and hashed.
 *
 * 1. The same settings give the same bytes, wherever they came from.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "train/config.h"
#include "train/config_keys.h"

#define WHAT "configuration"

static const char head[] =
    "# The settings of a training run, every one of them. This repeats it, to the last bit:\n"
    "#     lockstep train --config config.ini --out DIR\n"
    "# Sections eval, checkpoint and run do not change the result, nor does where the data lies.\n";

/* Does the result depend on this setting? The length of a run matters only to a schedule that goes
 * by it: otherwise a run may be prolonged. All of `reduce` but `ring` give
 * the same bits. */
static int decides(const lsi_row *row, const lsi_train_config *c)
{
    const char *schedule = c->optimizer.schedule;
    if (!strcmp(row->section, "train") &&
        (!strcmp(row->key, "steps") || !strcmp(row->key, "epochs")))
        return (!strcmp(schedule, "linear") || !strcmp(schedule, "cosine")) && !c->optimizer.steps;
    if (!strcmp(row->key, "reduce"))
        return !strcmp(c->train.reduce, "ring");
    return row->decides;
}

/* All settings of the model, in its order: "layers = 4\n". */
static ls_status put_model(const lsi_train_config *config, const char *format, FILE *f)
{
    ls_model *model;
    char setting[2 * LSI_CONFIG_SETTING];
    LSI_TRY(lsi_train_config_model(config, &model));
    for (int i = 0; ls_model_get(model, i, setting, sizeof setting) == LS_OK; i++) {
        char *value = strchr(setting, '=');
        *value++ = 0;
        fprintf(f, format, setting, value);
    }
    ls_model_destroy(model);
    return LS_OK;
}

static ls_status put_ini(const lsi_train_config *config, FILE *f)
{
    const lsi_row *row;
    const char *section = "";
    fputs(head, f);
    for (int i = 0; (row = lsi_row_at(i)); i++) {
        if (strcmp(section, row->section) != 0)
            fprintf(f, "\n[%s]\n", section = row->section);
        if (lsi_row_is_set(row, config)) {
            char *text = lsi_row_text(row, config);
            if (!text)
                return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory");
            fprintf(f, "%s = %s\n", row->key, text);
            free(text);
        }
        if (row->kind == LSI_ROW_MODEL)
            LSI_TRY(put_model(config, "%s = %s\n", f));
    }
    return LS_OK;
}

/* Lines "section.key=value" of all that decides. */
static ls_status put_deciding(const lsi_train_config *config, FILE *f)
{
    const lsi_row *row;
    for (int i = 0; (row = lsi_row_at(i)); i++) {
        if (decides(row, config) && lsi_row_is_set(row, config)) {
            char *text = lsi_row_text(row, config);
            if (!text)
                return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory");
            if (row->kind != LSI_ROW_MODEL) /* the preset is nothing but its settings */
                fprintf(f, "%s.%s=%s\n", row->section, row->key, text);
            else
                fprintf(f, "%s.%s=%.*s\n", row->section, row->key, (int)strcspn(text, ":"), text);
            free(text);
        }
        if (row->kind == LSI_ROW_MODEL)
            LSI_TRY(put_model(config, "model.%s=%s\n", f));
    }
    return LS_OK;
}

static ls_status make_text(const lsi_train_config *config,
                           ls_status (*put)(const lsi_train_config *, FILE *), char **out)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    ls_status status = f ? put(config, f) : LS_OK;
    const int bad = !f || (ferror(f) | fclose(f));
    if (status == LS_OK && bad)
        status = lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for its text");
    if (status != LS_OK) {
        free(text);
        return status;
    }
    *out = text;
    return LS_OK;
}

ls_status lsi_train_config_print(const lsi_train_config *config, char **text)
{
    return make_text(config, put_ini, text);
}

ls_status lsi_train_config_sha256(const lsi_train_config *config, char hex[LSI_SHA256_HEX])
{
    char *text;
    unsigned char digest[LSI_SHA256_BYTES];
    LSI_TRY(make_text(config, put_deciding, &text));
    const ls_status status = lsi_sha256_of(text, strlen(text), digest);
    free(text);
    LSI_TRY(status);
    lsi_sha256_hex(digest, hex);
    return LS_OK;
}

/* The value of `key` (of `length` bytes with its '=') among lines; NULL: it has none. */
static const char *value_of(const char *lines, const char *key, size_t length)
{
    while (*lines && strncmp(lines, key, length) != 0)
        lines += strcspn(lines, "\n") + 1;
    return *lines ? lines + length : NULL;
}

/* The first line of `a` whose setting `b` has otherwise, or not; NULL: none. */
static const char *first_difference(const char *a, const char *b)
{
    for (; *a; a += strcspn(a, "\n") + 1) {
        const size_t key = strcspn(a, "=") + 1, line = strcspn(a, "\n") + 1;
        const char *other = value_of(b, a, key);
        if (!other || strncmp(a + key, other, line - key) != 0)
            return a;
    }
    return NULL;
}

static void tell(const char *line, const char *run, const char *here, char *text, size_t room)
{
    const size_t key = strcspn(line, "=") + 1;
    const char *there = value_of(run, line, key), *now = value_of(here, line, key);
    int lengths[2] = {there ? (int)strcspn(there, "\n") : 0, now ? (int)strcspn(now, "\n") : 0};
    for (int i = 0; i < 2; i++)
        lengths[i] = lengths[i] > 100 ? 100 : lengths[i];
    snprintf(text, room, "%.*s is %.*s in the run and %.*s here", (int)key - 1, line,
             there ? lengths[0] : 7, there ? there : "not set", now ? lengths[1] : 7,
             now ? now : "not set");
}

int lsi_train_config_same(const lsi_train_config *run, const lsi_train_config *here, char *text,
                          size_t room)
{
    char *there = NULL, *now = NULL;
    int same = 0;
    snprintf(text, room, "the settings cannot be compared");
    if (make_text(run, put_deciding, &there) == LS_OK &&
        make_text(here, put_deciding, &now) == LS_OK) {
        const char *line = first_difference(there, now);
        if (!line)
            line = first_difference(now, there);
        same = !line;
        if (line)
            tell(line, there, now, text, room);
    }
    free(there);
    free(now);
    return same;
}

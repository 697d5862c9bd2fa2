/* Reading INI files.
 *
 *     # a comment
 *     [section]
 *     key = value            ; a comment after white space
 *     text = "with \"escapes\", # and all"
 *
 * 1. Errors name file:line. Nothing has changed then: settings are put into a copy.
 * 2. A key that is there twice is a mistake.
 * 3. The model comes first wherever its line stands, so that its settings can be checked.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "train/config.h"
#include "train/config_keys.h"

#define WHAT "configuration"
#define FILE_BYTES ((size_t)1 << 20)
#define ENTRIES 512

typedef struct entry {
    char key[LSI_CONFIG_KEY]; /* section.key */
    const char *value;        /* in the text */
    int line;
} entry;

typedef struct reading {
    const char *label;
    char section[LSI_CONFIG_WORD];
    entry *entries;
    int count;
} reading;

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = 0;
    return text;
}

/* Cut a comment off: '#' or ';' after white space, not inside of quotes. */
static void cut_comment(char *value)
{
    int quoted = 0;
    for (char *c = value; *c; c++) {
        if (quoted && *c == '\\' && c[1])
            c++;
        else if (*c == '"' && (quoted || c == value))
            quoted = !quoted;
        else if (!quoted && (*c == '#' || *c == ';') &&
                 (c == value || isspace((unsigned char)c[-1]))) {
            *c = 0;
            return;
        }
    }
}

static ls_status bad_line(const reading *r, int line, const char *hint, const char *text)
{
    return lsi_fail(LS_ERR_CONFIG, hint, WHAT, "%s:%d: '%.60s' makes no sense", r->label, line,
                    text);
}

static ls_status take_section(reading *r, char *text, int line)
{
    char *end = strchr(text, ']');
    if (!end || *(cut_comment(end + 1), trim(end + 1)))
        return bad_line(r, line, "a section is [name]", text);
    *end = 0;
    const char *name = trim(text + 1);
    const lsi_row *row;
    for (int i = 0; (row = lsi_row_at(i)); i++) {
        if (!strcmp(row->section, name)) {
            snprintf(r->section, sizeof r->section, "%s", name);
            return LS_OK;
        }
    }
    return lsi_fail(LS_ERR_CONFIG, "known: model, data, train, optimizer, eval, checkpoint, run",
                    WHAT, "%s:%d: there is no section '%.60s'", r->label, line, name);
}

static ls_status take_entry(reading *r, char *text, int line)
{
    char *value = strchr(text, '=');
    if (!value)
        return bad_line(r, line, "a line is key = value", text);
    *value++ = 0;
    const char *key = trim(text);
    value = trim(value);
    cut_comment(value);
    if (!*key)
        return bad_line(r, line, "a line is key = value", value);
    if (!r->section[0])
        return lsi_fail(LS_ERR_CONFIG, "a line such as [train] comes first", WHAT,
                        "%s:%d: '%.60s' is in no section", r->label, line, key);
    if (r->count == ENTRIES)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s:%d: more than %d settings", r->label, line,
                        ENTRIES);
    entry *e = &r->entries[r->count];
    const int n = snprintf(e->key, sizeof e->key, "%s.%s", r->section, key);
    if (n < 0 || (size_t)n >= sizeof e->key)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s:%d: there is no setting '%.60s…'", r->label,
                        line, e->key);
    e->value = trim(value);
    e->line = line;
    for (int i = 0; i < r->count; i++) {
        if (!strcmp(r->entries[i].key, e->key))
            return lsi_fail(LS_ERR_CONFIG, "remove one of them", WHAT,
                            "%s:%d: %s is in line %d already", r->label, line, e->key,
                            r->entries[i].line);
    }
    r->count++;
    return LS_OK;
}

/* Cut `text` (which is written to) into entries. */
static ls_status take_lines(reading *r, char *text)
{
    char *next = text;
    if (!strncmp(next, "\xef\xbb\xbf", 3)) /* a byte order mark */
        next += 3;
    for (int line = 1; next; line++) {
        char *at = next;
        next = strchr(at, '\n');
        if (next)
            *next++ = 0;
        at = trim(at);
        if (!*at || *at == '#' || *at == ';')
            continue;
        LSI_TRY(*at == '[' ? take_section(r, at, line) : take_entry(r, at, line));
    }
    return LS_OK;
}

/* The same error with file and line in front. */
static ls_status at_line(const reading *r, int line, ls_status status)
{
    char text[LSI_ERROR_MAX];
    snprintf(text, sizeof text, "%s", ls_last_error());
    return lsi_fail(status, NULL, WHAT, "%s:%d: %s", r->label, line, text);
}

/* The line of a setting whose value is not 0; 0: there is none. */
static int line_of(const reading *r, const char *key)
{
    for (int i = 0; i < r->count; i++) {
        if (!strcmp(r->entries[i].key, key) && strcmp(r->entries[i].value, "0") != 0)
            return r->entries[i].line;
    }
    return 0;
}

static ls_status apply(const reading *r, lsi_train_config *config)
{
    const int steps = line_of(r, "train.steps"), epochs = line_of(r, "train.epochs");
    if (steps && epochs) /* of two flags the later counts, but lines of a file have no order */
        return lsi_fail(LS_ERR_CONFIG, "make one of them 0", WHAT,
                        "%s:%d: train.epochs cannot be given with train.steps, line %d", r->label,
                        epochs, steps);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < r->count; i++) {
            const entry *e = &r->entries[i];
            if (strcmp(e->key, "model.name") ? pass == 0 : pass == 1)
                continue;
            const ls_status status = lsi_train_config_put(config, e->key, e->value);
            if (status != LS_OK)
                return at_line(r, e->line, status);
        }
    }
    return LS_OK;
}

ls_status lsi_train_config_read_text(lsi_train_config *config, const char *label, const char *text,
                                     size_t length)
{
    if (memchr(text, 0, length))
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s is not a text file", label);
    reading r = {.label = label};
    r.entries = calloc(ENTRIES, sizeof *r.entries);
    char *copy = strndup(text, length);
    lsi_train_config *changed = malloc(sizeof *changed);
    ls_status status = LS_OK;
    if (!r.entries || !copy || !changed)
        status = lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "%s: no memory", label);
    if (status == LS_OK)
        status = take_lines(&r, copy);
    if (status == LS_OK) {
        *changed = *config;
        status = apply(&r, changed);
    }
    if (status == LS_OK)
        *config = *changed;
    free(changed);
    free(copy);
    free(r.entries);
    return status;
}

ls_status lsi_train_config_read(lsi_train_config *config, const char *path)
{
    FILE *f = fopen(path, "rbe");
    if (!f && errno == ENOENT)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, WHAT, "there is no file %s", path);
    if (!f)
        return lsi_fail_errno(WHAT, "%s cannot be opened", path);
    char *text = malloc(FILE_BYTES + 1);
    const size_t length = text ? fread(text, 1, FILE_BYTES + 1, f) : 0;
    ls_status status = LS_OK;
    if (!text)
        status = lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "%s: no memory", path);
    else if (ferror(f))
        status = lsi_fail_errno(WHAT, "%s cannot be read", path);
    else if (length > FILE_BYTES)
        status =
            lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s is longer than %zu bytes", path, FILE_BYTES);
    fclose(f);
    if (status == LS_OK)
        status = lsi_train_config_read_text(config, path, text, length);
    free(text);
    return status;
}

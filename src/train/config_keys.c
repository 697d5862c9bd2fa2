/* The table of settings, and their values as text.
 *
 * 1. The whole text counts, and is in the row's range, or nothing has changed.
 * 2. Texts are quoted when they would not survive an INI file as they are: \n \r \t \" \\ and \xHH
 *    for what does not print; bytes of UTF-8 stay as they are.
 */
#include "train/config_keys.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"
#include "train/number.h"

#define AT(member) offsetof(lsi_train_config, member)
#define STEPS_MAX 1e15
#define SEED_MAX 4611686018427387904.0 /* 2^62: what JSON and shells bear */

static const lsi_row rows[] = {
    {"model", "name", LSI_ROW_MODEL, AT(model.name), 1, 0, 0, NULL},
    {"data", "kind", LSI_ROW_WORD, AT(data.kind), 1, 0, 0,
     "synthetic, idx, cifar, text, tokens, criteo"},
    {"data", "path", LSI_ROW_TEXT, AT(data.path), 0, 0, 0, NULL},
    {"data", "holdout", LSI_ROW_REAL, AT(data.holdout), 1, 1e-9, 0.999, NULL},
    {"data", "augment", LSI_ROW_FLAG, AT(data.augment), 1, 0, 1, NULL},
    {"data", "samples", LSI_ROW_WHOLE, AT(data.samples), 1, 0, 1e15, NULL},
    {"data", "letters", LSI_ROW_LETTERS, AT(data.letters), 1, 0, 0, NULL},
    {"train", "batch", LSI_ROW_WHOLE, AT(train.batch), 1, 1, 1 << 24, NULL},
    {"train", "shards", LSI_ROW_WHOLE, AT(train.shards), 1, 1, 4096, NULL},
    {"train", "micro_batch", LSI_ROW_WHOLE, AT(train.micro_batch), 1, 0, 1 << 24, NULL},
    {"train", "steps", LSI_ROW_WHOLE, AT(train.steps), 1, 0, STEPS_MAX, NULL},
    {"train", "epochs", LSI_ROW_WHOLE, AT(train.epochs), 1, 0, 1e9, NULL},
    {"train", "seed", LSI_ROW_WHOLE, AT(train.seed), 1, 0, SEED_MAX, NULL},
    {"train", "threads", LSI_ROW_WHOLE, AT(train.threads), 1, 1, 1024, NULL},
    {"train", "sync", LSI_ROW_WORD, AT(train.sync), 1, 0, 0, "sync, async, local"},
    {"train", "reduce", LSI_ROW_WORD, AT(train.reduce), 1, 0, 0, "auto, direct, hd, ring, tree"},
    {"train", "wire", LSI_ROW_WORD, AT(train.wire), 1, 0, 0,
     "f32, bf16, f16, int8, topk, powersgd"},
    {"optimizer", "name", LSI_ROW_WORD, AT(optimizer.name), 1, 0, 0,
     "sgd, adam, adamw, lars, lamb"},
    {"optimizer", "lr", LSI_ROW_REAL, AT(optimizer.lr), 1, 1e-30, 1e30, NULL},
    {"optimizer", "momentum", LSI_ROW_REAL, AT(optimizer.momentum), 1, 0, 1, NULL},
    {"optimizer", "nesterov", LSI_ROW_FLAG, AT(optimizer.nesterov), 1, 0, 1, NULL},
    {"optimizer", "beta1", LSI_ROW_REAL, AT(optimizer.beta1), 1, 0, 1, NULL},
    {"optimizer", "beta2", LSI_ROW_REAL, AT(optimizer.beta2), 1, 0, 1, NULL},
    {"optimizer", "eps", LSI_ROW_REAL, AT(optimizer.eps), 1, 0, 1e30, NULL},
    {"optimizer", "decay", LSI_ROW_REAL, AT(optimizer.decay), 1, 0, 1e30, NULL},
    {"optimizer", "trust", LSI_ROW_REAL, AT(optimizer.trust), 1, 1e-30, 1e30, NULL},
    {"optimizer", "clip", LSI_ROW_REAL, AT(optimizer.clip), 1, 0, 1e30, NULL},
    {"optimizer", "schedule", LSI_ROW_WORD, AT(optimizer.schedule), 1, 0, 0,
     "const, linear, step, cosine"},
    {"optimizer", "warmup", LSI_ROW_WHOLE, AT(optimizer.warmup), 1, 0, STEPS_MAX, NULL},
    {"optimizer", "steps", LSI_ROW_WHOLE, AT(optimizer.steps), 1, 0, STEPS_MAX, NULL},
    {"optimizer", "min_lr", LSI_ROW_REAL, AT(optimizer.min_lr), 1, 0, 1e30, NULL},
    {"optimizer", "every", LSI_ROW_WHOLE, AT(optimizer.every), 1, 0, STEPS_MAX, NULL},
    {"optimizer", "gamma", LSI_ROW_REAL, AT(optimizer.gamma), 1, 1e-30, 1, NULL},
    {"eval", "every", LSI_ROW_WHOLE, AT(eval.every), 0, 0, STEPS_MAX, NULL},
    {"eval", "batches", LSI_ROW_WHOLE, AT(eval.batches), 0, 0, STEPS_MAX, NULL},
    {"checkpoint", "every", LSI_ROW_WHOLE, AT(checkpoint.every), 0, 0, STEPS_MAX, NULL},
    {"checkpoint", "keep", LSI_ROW_WHOLE, AT(checkpoint.keep), 0, 1, 1e6, NULL},
    {"run", "workers", LSI_ROW_WHOLE, AT(run.workers), 0, 0, 4096, NULL},
    {"run", "out", LSI_ROW_TEXT, AT(run.out), 0, 0, 0, NULL},
    {"run", "transport", LSI_ROW_WORD, AT(run.transport), 0, 0, 0, "auto, shm, tcp"},
    {"run", "bind", LSI_ROW_TEXT, AT(run.bind), 0, 0, 0, NULL},
    {"run", "tensorboard", LSI_ROW_FLAG, AT(run.tensorboard), 0, 0, 1, NULL},
    {"run", "check_every", LSI_ROW_WHOLE, AT(run.check_every), 0, 0, STEPS_MAX, NULL},
    {"run", "balance", LSI_ROW_WORD, AT(run.balance), 0, 0, 0, "even, speed"},
    {"run", "on_divergence", LSI_ROW_WORD, AT(run.on_divergence), 0, 0, 0, "stop, repair"},
};
enum { ROWS = sizeof rows / sizeof *rows };

const lsi_row *lsi_row_at(int i)
{
    return i >= 0 && i < ROWS ? &rows[i] : NULL;
}

const lsi_row *lsi_row_find(const char *name)
{
    for (int i = 0; i < ROWS; i++) {
        const size_t length = strlen(rows[i].section);
        if (!strncmp(rows[i].section, name, length) && name[length] == '.' &&
            !strcmp(rows[i].key, name + length + 1))
            return &rows[i];
    }
    return NULL;
}

/* ---- the nearest name ------------------------------------------------------------------------ */

/* How many letters must be added, removed or changed (V. Levenshtein, 1965). */
static size_t distance(const char *a, const char *b)
{
    size_t row[LSI_CONFIG_KEY + 1];
    const size_t m = strnlen(a, LSI_CONFIG_KEY), n = strnlen(b, LSI_CONFIG_KEY);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            const size_t above = row[j], other = above < row[j - 1] ? above : row[j - 1];
            const size_t change = diagonal + (tolower(a[i - 1]) != tolower(b[j - 1]));
            row[j] = change < other + 1 ? change : other + 1;
            diagonal = above;
        }
    }
    return row[n];
}

static void offer(const char *name, const char *candidate, size_t *least, char *out)
{
    const size_t d = distance(name, candidate);
    if (d < *least) {
        *least = d;
        snprintf(out, LSI_CONFIG_KEY, "%s", candidate);
    }
}

void lsi_row_nearest(const lsi_train_config *config, const char *name, char out[LSI_CONFIG_KEY])
{
    size_t least = SIZE_MAX;
    char candidate[LSI_CONFIG_KEY];
    for (int i = 0; i < ROWS; i++) {
        snprintf(candidate, sizeof candidate, "%s.%s", rows[i].section, rows[i].key);
        offer(name, candidate, &least, out);
        if (!strchr(name, '.') && !strcasecmp(name, rows[i].key)) { /* the section is missing */
            snprintf(out, LSI_CONFIG_KEY, "%s", candidate);
            return;
        }
    }
    ls_model *model;
    if (config->model.name[0] && ls_model_create(config->model.name, &model) == LS_OK) {
        char setting[LSI_CONFIG_SETTING];
        for (int i = 0; ls_model_get(model, i, setting, sizeof setting) == LS_OK; i++) {
            setting[strcspn(setting, "=")] = 0;
            snprintf(candidate, sizeof candidate, "model.%.50s", setting);
            offer(name, candidate, &least, out);
        }
        ls_model_destroy(model);
    }
}

/* ---- quoting --------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, tolower((unsigned char)c)) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* The character after a backslash at *at, which moves past it; -1 when there is no such escape. */
static int unescape(const char **at)
{
    const char c = *(*at)++;
    switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case '"':
    case '\\': return (unsigned char)c;
    case 'x':
        if (hex_digit((*at)[0]) >= 0 && hex_digit((*at)[1]) >= 0) {
            const int value = 16 * hex_digit((*at)[0]) + hex_digit((*at)[1]);
            *at += 2;
            return value ? value : -1;
        }
        return -1;
    default: return -1;
    }
}

ls_status lsi_unquote(const char *what, const char *quoted, char *out, size_t room)
{
    size_t used = 0;
    const char *at = quoted + 1;
    while (*at && *at != '"') {
        int c = (unsigned char)*at++;
        if (c == '\\')
            c = unescape(&at);
        if (c < 0)
            return lsi_fail(LS_ERR_CONFIG, "\\n \\r \\t \\\" \\\\ and \\xHH are known", what,
                            "'%.60s' has an escape that is none", quoted);
        if (used + 1 >= room)
            return lsi_fail(LS_ERR_CONFIG, NULL, what, "it is longer than %zu bytes", room - 1);
        out[used++] = (char)c;
    }
    if (*at != '"' || at[1])
        return lsi_fail(LS_ERR_CONFIG, "a text in quotes ends with a quote", what,
                        "'%.60s' is not a text in quotes", quoted);
    out[used] = 0;
    return LS_OK;
}

static void put_quoted(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", f);
        else if (c == '\r')
            fputs("\\r", f);
        else if (c == '\t')
            fputs("\\t", f);
        else if (c < 32 || c == 127)
            fprintf(f, "\\x%02x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

static int is_plain(const char *text)
{
    for (const char *c = text; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("/._-+:,@%=~", *c))
            return 0;
    }
    return *text != 0;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static ls_status refuse(const char *what, const char *text, const char *accepted)
{
    return lsi_fail(LS_ERR_CONFIG, NULL, what, "'%.60s' is not %s", text, accepted);
}

static ls_status parse_whole(const char *what, const lsi_row *row, const char *text, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long value = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno || (double)value < row->least || (double)value > row->most)
        return lsi_fail(LS_ERR_CONFIG, NULL, what,
                        "'%.60s' is not a whole number from %.0f to %.0f", text, row->least,
                        row->most);
    *out = value;
    return LS_OK;
}

static ls_status parse_real(const char *what, const lsi_row *row, const char *text, double *out)
{
    char *end = NULL;
    const int starts = isdigit((unsigned char)text[0]) || text[0] == '.';
    const double value = starts ? strtod(text, &end) : 0;
    if (!end || *end || !isfinite(value) || value < row->least || value > row->most ||
        strpbrk(text, "xX"))
        return lsi_fail(LS_ERR_CONFIG, NULL, what, "'%.60s' is not a number from %g to %g", text,
                        row->least, row->most);
    *out = value;
    return LS_OK;
}

static ls_status parse_flag(const char *what, const char *text, uint64_t *out)
{
    static const char *const known[] = {"0", "1", "no", "yes", "off", "on", "false", "true"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!strcasecmp(text, known[i])) {
            *out = i % 2;
            return LS_OK;
        }
    }
    return refuse(what, text, "yes or no");
}

static ls_status parse_word(const char *what, const lsi_row *row, const char *text, char *out)
{
    const size_t length = strlen(text);
    for (const char *at = row->words; length && at; at = strstr(at, ", ")) {
        at += at == row->words ? 0 : 2;
        if (strcspn(at, ",") == length && !strncmp(at, text, length)) {
            snprintf(out, LSI_CONFIG_WORD, "%s", text);
            return LS_OK;
        }
    }
    char accepted[160];
    snprintf(accepted, sizeof accepted, "one of %s", row->words);
    return refuse(what, text, accepted);
}

static ls_status parse_text(const char *what, const char *text, char *out, size_t room)
{
    if (text[0] == '"')
        return lsi_unquote(what, text, out, room);
    if (strlen(text) >= room)
        return lsi_fail(LS_ERR_CONFIG, NULL, what, "it is longer than %zu bytes", room - 1);
    snprintf(out, room, "%s", text);
    return LS_OK;
}

static ls_status parse_letters(const char *what, const char *text, lsi_config_letters *out)
{
    if (text[0] == '"') {
        char *letters = calloc(1, sizeof out->text);
        if (!letters)
            return lsi_fail(LS_ERR_NOMEM, NULL, what, "no memory");
        const ls_status status = lsi_unquote(what, text, letters, sizeof out->text);
        if (status == LS_OK && letters[0]) {
            memcpy(out->text, letters, strlen(letters) + 1);
            out->kind = LSI_LETTERS_GIVEN;
        }
        const int empty = !letters[0];
        free(letters);
        LSI_TRY(status);
        return empty ? refuse(what, text, "bytes, own, or the characters in quotes") : LS_OK;
    }
    if (strcmp(text, "bytes") != 0 && strcmp(text, "own") != 0)
        return refuse(what, text, "bytes, own, or the characters in quotes");
    out->kind = text[0] == 'b' ? LSI_LETTERS_BYTES : LSI_LETTERS_OWN;
    out->text[0] = 0;
    return LS_OK;
}

static ls_status parse_model(const char *what, const char *text, char *out)
{
    ls_model *model;
    if (strlen(text) >= LSI_CONFIG_WORD)
        return refuse(what, text, "a model's name");
    LSI_TRY(ls_model_create(text, &model));
    ls_model_destroy(model);
    snprintf(out, LSI_CONFIG_WORD, "%s", text);
    return LS_OK;
}

ls_status lsi_row_parse(const lsi_row *row, const char *text, lsi_train_config *config)
{
    char what[LSI_CONFIG_KEY], path[LSI_CONFIG_PATH];
    char *const at = (char *)config + row->offset;
    snprintf(what, sizeof what, "%s.%s", row->section, row->key);
    switch (row->kind) {
    case LSI_ROW_WHOLE: return parse_whole(what, row, text, (uint64_t *)(void *)at);
    case LSI_ROW_REAL: return parse_real(what, row, text, (double *)(void *)at);
    case LSI_ROW_FLAG: return parse_flag(what, text, (uint64_t *)(void *)at);
    case LSI_ROW_WORD: return parse_word(what, row, text, at);
    case LSI_ROW_LETTERS: return parse_letters(what, text, (lsi_config_letters *)(void *)at);
    case LSI_ROW_MODEL: return parse_model(what, text, at);
    case LSI_ROW_TEXT:
        LSI_TRY(parse_text(what, text, path, sizeof path));
        memcpy(at, path, strlen(path) + 1);
        return LS_OK;
    }
    return LS_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

int lsi_row_is_set(const lsi_row *row, const lsi_train_config *config)
{
    const char *const at = (const char *)config + row->offset;
    switch (row->kind) {
    case LSI_ROW_WHOLE:
    case LSI_ROW_FLAG: return *(const uint64_t *)(const void *)at != LSI_UNSET;
    case LSI_ROW_REAL: return !isnan(*(const double *)(const void *)at);
    case LSI_ROW_LETTERS:
        return ((const lsi_config_letters *)(const void *)at)->kind != LSI_LETTERS_UNSET;
    case LSI_ROW_WORD:
    case LSI_ROW_MODEL: return *at != 0;
    case LSI_ROW_TEXT: return 1; /* none is a value */
    }
    return 0;
}

void lsi_row_unset(const lsi_row *row, lsi_train_config *config)
{
    char *const at = (char *)config + row->offset;
    if (row->kind == LSI_ROW_WHOLE || row->kind == LSI_ROW_FLAG)
        *(uint64_t *)(void *)at = LSI_UNSET;
    else if (row->kind == LSI_ROW_REAL)
        *(double *)(void *)at = NAN;
    else if (row->kind == LSI_ROW_LETTERS)
        ((lsi_config_letters *)(void *)at)->kind = LSI_LETTERS_UNSET;
    else
        *at = 0;
}

static void put_value(FILE *f, const lsi_row *row, const char *at)
{
    char number[LSI_NUMBER_TEXT];
    const lsi_config_letters *letters;
    switch (row->kind) {
    case LSI_ROW_WHOLE:
        fprintf(f, "%llu", (unsigned long long)*(const uint64_t *)(const void *)at);
        break;
    case LSI_ROW_REAL:
        fputs(lsi_number_text_float(*(const double *)(const void *)at, number), f);
        break;
    case LSI_ROW_FLAG: fputs(*(const uint64_t *)(const void *)at ? "yes" : "no", f); break;
    case LSI_ROW_WORD:
    case LSI_ROW_MODEL: fputs(at, f); break;
    case LSI_ROW_TEXT:
        if (is_plain(at))
            fputs(at, f);
        else
            put_quoted(f, at);
        break;
    case LSI_ROW_LETTERS:
        letters = (const lsi_config_letters *)(const void *)at;
        if (letters->kind == LSI_LETTERS_GIVEN)
            put_quoted(f, letters->text);
        else
            fputs(letters->kind == LSI_LETTERS_OWN ? "own" : "bytes", f);
        break;
    }
}

char *lsi_row_text(const lsi_row *row, const lsi_train_config *config)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    put_value(f, row, (const char *)config + row->offset);
    const int bad = ferror(f) | fclose(f);
    if (bad) {
        free(text);
        return NULL;
    }
    return text;
}

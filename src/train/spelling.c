/* Tokens and text; the contract is in spelling.h. */
#include "train/spelling.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static ls_status list_codes(lsi_spelling *s)
{
    s->codes = calloc(s->letters.count + 1u, sizeof *s->codes);
    if (!s->codes)
        return lsi_fail(LS_ERR_NOMEM, NULL, "letters", "out of memory");
    for (uint32_t code = 0; code < s->letters.codes; code++) {
        if (s->letters.number[code] >= 0)
            s->codes[s->letters.number[code]] = code;
    }
    return LS_OK;
}

ls_status lsi_spelling_open(const lsi_train_config *config, size_t vocab, lsi_spelling *out)
{
    lsi_spelling s = {.kind = LSI_SPELL_NUMBERS};
    size_t known = vocab;
    if (!strcmp(config->data.kind, "text")) {
        s.kind =
            config->data.letters.kind == LSI_LETTERS_BYTES ? LSI_SPELL_BYTES : LSI_SPELL_LETTERS;
        known = 256;
    }
    if (s.kind == LSI_SPELL_LETTERS) {
        LSI_TRY(lsi_letters_parse("data.letters", config->data.letters.text, &s.letters));
        known = s.letters.count;
        const ls_status status = list_codes(&s);
        if (status != LS_OK) {
            lsi_spelling_close(&s);
            return status;
        }
    }
    s.count = known < vocab ? known : vocab;
    *out = s;
    return LS_OK;
}

void lsi_spelling_close(lsi_spelling *s)
{
    lsi_letters_free(&s->letters);
    free(s->codes);
    *s = (lsi_spelling){.count = 0};
}

/* ---- reading -------------------------------------------------------------------------------- */

static ls_status next_byte(const lsi_spelling *s, const char *what, const uint8_t *p, size_t at,
                           int32_t *token)
{
    *token = p[at];
    if ((size_t)*token >= s->count)
        return lsi_fail(LS_ERR_CONFIG, NULL, what,
                        "the run knows bytes below %zu only, not %d at offset %zu", s->count,
                        *token, at);
    return LS_OK;
}

static ls_status next_letter(const lsi_spelling *s, const char *what, const uint8_t *p, size_t left,
                             size_t at, int32_t *token, size_t *bytes)
{
    uint32_t code = 0;
    *bytes = lsi_utf8_read(p + at, left, &code);
    if (*bytes == 0)
        return lsi_fail(LS_ERR_CONFIG, NULL, what, "it is not UTF-8 at offset %zu", at);
    *token = lsi_letter_number(&s->letters, code);
    if (*token >= 0 && (size_t)*token < s->count)
        return LS_OK;
    char shown[8] = "";
    if (code >= 0x20 && code != 0x7f)
        snprintf(shown, sizeof shown, "'%.*s' ", (int)*bytes, (const char *)p + at);
    return lsi_fail(LS_ERR_CONFIG, "data.letters in its config.ini has those that it knows", what,
                    "the text of the run has no character %s(U+%04X), it is at offset %zu", shown,
                    code, at);
}

/* Numbers with spaces, commas or line ends between. *bytes is 0 at the end of the text. */
static ls_status next_number(const lsi_spelling *s, const char *what, const char *text, size_t left,
                             size_t at, int32_t *token, size_t *bytes)
{
    static const char between[] = " ,\t\r\n";
    size_t from = 0;
    unsigned long long value = 0;
    while (from < left && text[at + from] && strchr(between, text[at + from]))
        from++;
    size_t to = from;
    for (; to < left && text[at + to] >= '0' && text[at + to] <= '9'; to++)
        value = value < s->count ? value * 10 + (unsigned)(text[at + to] - '0') : value;
    if (from == left) {
        *bytes = 0;
        return LS_OK;
    }
    if (to == from || (to < left && !(text[at + to] && strchr(between, text[at + to]))))
        return lsi_fail(LS_ERR_CONFIG, "write whole numbers with spaces between", what,
                        "the run was trained on tokens, and there is no number at offset %zu",
                        at + from);
    if (value >= s->count)
        return lsi_fail(LS_ERR_CONFIG, NULL, what,
                        "the run knows tokens below %zu, that at offset %zu is not", s->count,
                        at + from);
    *token = (int32_t)value;
    *bytes = to;
    return LS_OK;
}

ls_status lsi_spelling_read(const lsi_spelling *s, const char *what, const char *text, size_t bytes,
                            int32_t **tokens, size_t *count)
{
    int32_t *list = malloc((bytes + 1) * sizeof *list); /* a token has at least a byte */
    size_t n = 0;
    ls_status status = list ? LS_OK : lsi_fail(LS_ERR_NOMEM, NULL, what, "out of memory");
    for (size_t at = 0, step = 1; status == LS_OK && at < bytes; at += step) {
        const uint8_t *p = (const uint8_t *)text;
        if (s->kind == LSI_SPELL_BYTES)
            status = next_byte(s, what, p, at, &list[n]);
        else if (s->kind == LSI_SPELL_LETTERS)
            status = next_letter(s, what, p, bytes - at, at, &list[n], &step);
        else
            status = next_number(s, what, text, bytes - at, at, &list[n], &step);
        if (step == 0)
            break;
        n++;
    }
    if (status == LS_OK && n == 0)
        status = lsi_fail(LS_ERR_CONFIG, NULL, what, "it is empty");
    if (status != LS_OK) {
        free(list);
        return status;
    }
    *tokens = list;
    *count = n;
    return LS_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* May more bytes make these a character? */
static int is_beginning(const uint8_t *p, size_t n)
{
    const size_t whole = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n >= whole)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    return 1;
}

/* Write what is whole of the bytes held, and what cannot become so; `last`: no more will come. */
static size_t write_held(lsi_spelling *s, int last, char out[LSI_SPELL_ROOM])
{
    size_t used = 0;
    while (s->n_held) {
        uint32_t code;
        size_t n = lsi_utf8_read(s->held, s->n_held, &code);
        if (n) {
            memcpy(out + used, s->held, n);
            used += n;
        } else if (!last && is_beginning(s->held, s->n_held)) {
            break;
        } else {
            memcpy(out + used, REPLACEMENT, 3);
            used += 3;
            n = 1;
        }
        s->n_held -= n;
        memmove(s->held, s->held + n, s->n_held);
    }
    return used;
}

size_t lsi_spelling_write(lsi_spelling *s, int32_t token, char out[LSI_SPELL_ROOM])
{
    const int begun = s->begun;
    s->begun = 1;
    if (s->kind == LSI_SPELL_LETTERS)
        return lsi_utf8_write(s->codes[token], (uint8_t *)out);
    if (s->kind == LSI_SPELL_NUMBERS)
        return (size_t)snprintf(out, LSI_SPELL_ROOM, "%s%d", begun ? " " : "", token);
    s->held[s->n_held++] = (uint8_t)token;
    return write_held(s, 0, out);
}

size_t lsi_spelling_end(lsi_spelling *s, char out[LSI_SPELL_ROOM])
{
    return write_held(s, 1, out);
}

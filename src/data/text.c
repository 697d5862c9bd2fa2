/* Any text: byte by byte, or character by character with its own letters or given ones.
 *
 *     letters NULL    tokens are bytes, vocab=256; the file may be anything
 *     letters ""      the characters of the whole file, by code point; it must be UTF-8
 *     letters "abc"   these; a file with another character is refused
 *
 * The last share of the file is held out. Where characters have several bytes, the offset of every
 * MARK-th one is noted, so that any place is found in a bounded number of steps.
 *
 * 1. The whole text is checked once, at open: reading fails only if somebody changes the file.
 *    Bytes need no look at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/file.h"
#include "data/letters.h"
#include "data/sequence.h"

#define WHAT "data text"
#define MARK 1024

typedef struct state {
    lsi_file file;
    lsi_letters letters; /* count 0: bytes */
    uint64_t total;      /* characters */
    uint64_t *marks;     /* offsets of characters 0, MARK, 2 MARK, …; NULL: one byte each */
    lsi_sequence sequence;
} state;

static ls_status bad_bytes(const state *s, size_t at)
{
    return lsi_fail(LS_ERR_CONFIG, "without letters the text is taken byte by byte", WHAT,
                    "%s: byte %02x at offset %zu is not UTF-8 text", s->file.path,
                    s->file.bytes[at], at);
}

/* Check the text, count its characters and collect them in `set`. */
static ls_status scan(state *s, uint64_t *set)
{
    const uint8_t *p = s->file.bytes;
    const size_t size = s->file.size;
    uint32_t code = 0;
    uint64_t total = 0;
    for (size_t at = 0, n; at < size; at += n, total++) {
        n = lsi_utf8_read(p + at, size - at, &code);
        if (n == 0 || code == 0)
            return bad_bytes(s, at);
        set[code / 64] |= (uint64_t)1 << code % 64;
    }
    s->total = total;
    return LS_OK;
}

static ls_status note_marks(state *s)
{
    s->marks = malloc((size_t)(s->total / MARK + 1) * sizeof *s->marks);
    if (!s->marks)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for the index of %s", s->file.path);
    uint64_t i = 0;
    for (size_t at = 0; at < s->file.size; at++) {
        if ((s->file.bytes[at] & 0xc0) == 0x80) /* not the first byte of a character */
            continue;
        if (i % MARK == 0)
            s->marks[i / MARK] = at;
        i++;
    }
    return LS_OK;
}

/* All characters of the text must be letters; the first that is not is named. */
static ls_status check_letters(const state *s)
{
    const uint8_t *p = s->file.bytes;
    uint32_t code = 0;
    for (size_t at = 0, n; at < s->file.size; at += n) {
        n = lsi_utf8_read(p + at, s->file.size - at, &code);
        if (lsi_letter_number(&s->letters, code) < 0)
            return lsi_fail(LS_ERR_CONFIG, "the model was made for another text's letters", WHAT,
                            "%s: character '%.*s' (U+%04X) at offset %zu is none of the %u letters",
                            s->file.path, code < 32 ? 0 : (int)n, (const char *)p + at, code, at,
                            s->letters.count);
    }
    return LS_OK;
}

static ls_status open_characters(ls_dataset *dataset, state *s)
{
    const char *given = dataset->config.letters;
    uint64_t *set = calloc(LSI_CODE_POINTS / 64, sizeof *set);
    if (!set)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for the letters");
    ls_status status = scan(s, set);
    if (status == LS_OK && *given)
        status = lsi_letters_parse(WHAT, given, &s->letters);
    else if (status == LS_OK)
        status = lsi_letters_of(WHAT, set, &s->letters);
    free(set);
    LSI_TRY(status);
    if (*given)
        LSI_TRY(check_letters(s));
    if (s->total != s->file.size)
        LSI_TRY(note_marks(s));
    dataset->letters = s->letters.text;
    return LS_OK;
}

static ls_status open_text(ls_dataset *dataset)
{
    state *s = calloc(1, sizeof *s);
    if (!s)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for it");
    dataset->state = s;
    LSI_TRY(lsi_file_map(WHAT, dataset->config.path, &s->file));
    s->total = s->file.size;
    if (dataset->config.letters) {
        lsi_file_read_through(&s->file);
        LSI_TRY(open_characters(dataset, s));
    }
    lsi_file_read_anywhere(&s->file);
    if (lsi_is_for(dataset, "gpt"))
        snprintf(dataset->settings, sizeof dataset->settings, "vocab=%u",
                 s->letters.count ? s->letters.count : 256);
    return lsi_sequence_part(dataset, WHAT, s->file.path, s->total, 0, &s->sequence);
}

static ls_status bind(ls_dataset *dataset, const ls_data_field *fields, int count)
{
    state *s = dataset->state;
    return lsi_sequence_bind(dataset, WHAT, s->file.path, s->letters.count ? s->letters.count : 256,
                             fields, count, &s->sequence);
}

/* Tokens [first, first + n). Returns 0 when one is no letter: the file was changed meanwhile. */
static int convert(const state *s, uint64_t first, size_t n, int32_t *out)
{
    const uint8_t *p = s->file.bytes;
    if (!s->letters.count) {
        for (size_t i = 0; i < n; i++)
            out[i] = p[first + i];
        return 1;
    }
    int32_t all = 0; /* negative as soon as one is */
    if (!s->marks) {
        for (size_t i = 0; i < n; i++)
            all |= out[i] = lsi_letter_number(&s->letters, p[first + i]);
        return all >= 0;
    }
    uint64_t at = s->marks[first / MARK];
    uint32_t code = 0;
    for (uint64_t i = first / MARK * MARK; i < first + n; i++) {
        const size_t bytes =
            at < s->file.size ? lsi_utf8_read(p + at, s->file.size - at, &code) : 0;
        if (bytes == 0)
            return 0;
        at += bytes;
        if (i >= first)
            all |= out[i - first] = lsi_letter_number(&s->letters, code);
    }
    return all >= 0;
}

static ls_status read_sample(const ls_dataset *dataset, uint64_t index, uint64_t epoch,
                             void *const *fields)
{
    (void)epoch;
    const state *s = dataset->state;
    const lsi_sequence *q = &s->sequence;
    for (int shift = 0; shift < 2; shift++) { /* tokens, then targets */
        const uint64_t first = q->begin + index * q->context + (uint64_t)shift;
        if (q->place[shift] >= 0 && !convert(s, first, q->context, fields[q->place[shift]]))
            return lsi_fail(LS_ERR_INVALID, NULL, WHAT,
                            "%s was changed since it was opened: among %zu characters from number "
                            "%llu is one that is no letter",
                            s->file.path, q->context, (unsigned long long)first);
    }
    return LS_OK;
}

static void close_text(void *argument)
{
    state *s = argument;
    if (!s)
        return;
    lsi_file_close(&s->file);
    lsi_letters_free(&s->letters);
    free(s->marks);
    free(s);
}

const lsi_format lsi_format_text = {
    .name = "text",
    .path = "a file of text",
    .open = open_text,
    .bind = bind,
    .read = read_sample,
    .close = close_text,
};

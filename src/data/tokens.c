/* Tokens in a .bin file, as nanoGPT and llm.c write them, little endian:
 *
 *     llm.c      256 words of 32 bits: 20240520, 1, count of 16-bit tokens (GPT-2), or 20240801, 7,
 *                count of 32-bit tokens (Llama 3); then the tokens
 *     nanoGPT    16-bit tokens and nothing else; 32-bit ones if the name ends in .u32.bin
 *
 * A path is such a file, of which the last share is held out, or a folder with train.bin and
 * val.bin; without val.bin the share of train.bin. GPT-2 has no tokens as large as the lower half
 * of the magic numbers, so that a file without a header is not taken for one with it.
 *
 * Sample k is the tokens [k * context, k * context + context] and the targets are one further.
 *
 * 1. A token is compared with the model's vocabulary when it is read: looking at all of them first
 *    would fetch the whole file.
 */
#include <stdlib.h>
#include <string.h>

#include "data/file.h"
#include "data/sequence.h"

#define WHAT "data tokens"
#define HEAD 1024
#define MAGIC_16 20240520u
#define MAGIC_EVAL 20240522u
#define MAGIC_32 20240801u

typedef struct state {
    lsi_file file;
    size_t head;  /* bytes before the tokens */
    size_t width; /* bytes of a token */
    lsi_sequence sequence;
} state;

static uint32_t word(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static int ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* The header of llm.c: sets head, width and total. */
static ls_status read_head(state *s, uint64_t *total)
{
    const lsi_file *f = &s->file;
    const int wide = word(f->bytes) == MAGIC_32;
    const uint32_t version = wide ? 7 : 1;
    if (f->size < HEAD)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                        "%s has %zu bytes, the header of llm.c alone has %d", f->path, f->size,
                        HEAD);
    if (word(f->bytes + 4) != version)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                        "%s: version %u at offset 4, expected %u after the magic number %u",
                        f->path, word(f->bytes + 4), version, word(f->bytes));
    s->head = HEAD;
    s->width = wide ? 4 : 2;
    *total = word(f->bytes + 8);
    if (f->size != HEAD + *total * s->width)
        return lsi_fail(LS_ERR_CONFIG, "write or fetch the file again", WHAT,
                        "%s has %zu bytes, its header says %llu tokens of %zu bytes after %d",
                        f->path, f->size, (unsigned long long)*total, s->width, HEAD);
    return LS_OK;
}

static ls_status measure(state *s, uint64_t *total)
{
    const lsi_file *f = &s->file;
    const uint32_t magic = f->size >= 4 ? word(f->bytes) : 0;
    if (magic == MAGIC_16 || magic == MAGIC_32)
        return read_head(s, total);
    if (magic == MAGIC_EVAL)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                        "%s is an evaluation file of llm.c (%u at offset 0), not tokens", f->path,
                        magic);
    s->width = ends_in(f->path, ".u32.bin") ? 4 : 2;
    *total = f->size / s->width;
    if (f->size % s->width)
        return lsi_fail(LS_ERR_CONFIG, "16-bit numbers, or 32-bit ones in a file named *.u32.bin",
                        WHAT, "%s has %zu bytes, not a multiple of tokens of %zu bytes", f->path,
                        f->size, s->width);
    return LS_OK;
}

static ls_status open_tokens(ls_dataset *dataset)
{
    state *s = calloc(1, sizeof *s);
    if (!s)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for it");
    dataset->state = s;
    const char *path = dataset->config.path;
    int own = 0; /* the part is a file of its own */
    if (lsi_path_is_folder(path)) {
        own = lsi_path_exists(path, "val.bin");
        char *full =
            lsi_path_join(path, own && dataset->config.validation ? "val.bin" : "train.bin");
        const ls_status status = full ? lsi_file_map(WHAT, full, &s->file)
                                      : lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for a path");
        free(full);
        LSI_TRY(status);
    } else {
        LSI_TRY(lsi_file_map(WHAT, path, &s->file));
    }
    uint64_t total = 0;
    LSI_TRY(measure(s, &total));
    lsi_file_read_anywhere(&s->file);
    return lsi_sequence_part(dataset, WHAT, s->file.path, total, own, &s->sequence);
}

static ls_status bind(ls_dataset *dataset, const ls_data_field *fields, int count)
{
    state *s = dataset->state;
    return lsi_sequence_bind(dataset, WHAT, s->file.path, 0, fields, count, &s->sequence);
}

/* Tokens [first, first + n) of the file; the largest of them. */
static uint32_t convert(const state *s, uint64_t first, size_t n, int32_t *out)
{
    const uint8_t *in = s->file.bytes + s->head + first * s->width;
    uint32_t most = 0;
    if (s->width == 4) {
        memcpy(out, in, n * 4);
    } else {
        for (size_t i = 0; i < n; i++) {
            uint16_t x;
            memcpy(&x, in + 2 * i, 2);
            out[i] = x;
        }
    }
    for (size_t i = 0; i < n; i++)
        most = (uint32_t)out[i] > most ? (uint32_t)out[i] : most;
    return most;
}

static ls_status out_of_range(const state *s, uint64_t first, size_t n, const int32_t *tokens)
{
    size_t i = 0;
    while (i + 1 < n && (uint32_t)tokens[i] < s->sequence.vocab)
        i++;
    return lsi_fail(LS_ERR_INVALID, "set the model's vocab to that of the tokens", WHAT,
                    "%s: token %u at offset %llu, expected below the model's vocab=%u",
                    s->file.path, (uint32_t)tokens[i],
                    (unsigned long long)(s->head + (first + i) * s->width), s->sequence.vocab);
}

static ls_status read_sample(const ls_dataset *dataset, uint64_t index, uint64_t epoch,
                             void *const *fields)
{
    (void)epoch;
    const state *s = dataset->state;
    const lsi_sequence *q = &s->sequence;
    for (int shift = 0; shift < 2; shift++) { /* tokens, then targets */
        const uint64_t first = q->begin + index * q->context + (uint64_t)shift;
        if (q->place[shift] < 0)
            continue;
        int32_t *out = fields[q->place[shift]];
        if (convert(s, first, q->context, out) >= q->vocab)
            return out_of_range(s, first, q->context, out);
    }
    return LS_OK;
}

static void close_tokens(void *argument)
{
    state *s = argument;
    if (!s)
        return;
    lsi_file_close(&s->file);
    free(s);
}

const lsi_format lsi_format_tokens = {
    .name = "tokens",
    .path = "a .bin file of tokens, or a folder with train.bin and val.bin",
    .open = open_tokens,
    .bind = bind,
    .read = read_sample,
    .close = close_tokens,
};

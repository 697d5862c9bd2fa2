/* Characters and their numbers; the contract is in letters.h. */
#include "data/letters.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

size_t lsi_utf8_write(uint32_t code, uint8_t *out)
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    const size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (uint8_t)(0x80 | (code & 0x3f));
    out[0] = (uint8_t)(0xf00u >> n | code);
    return n;
}

/* Room for numbers of code points below `codes`, all -1, and for a text of `bytes`. */
static ls_status allocate(const char *what, uint32_t codes, size_t bytes, lsi_letters *letters)
{
    int32_t *number = malloc((size_t)codes * sizeof *number);
    char *text = malloc(bytes + 1);
    if (!number || !text) {
        free(number);
        free(text);
        return lsi_fail(LS_ERR_NOMEM, NULL, what, "no memory for the letters");
    }
    memset(number, 0xff, (size_t)codes * sizeof *number);
    *letters = (lsi_letters){text, 0, codes, number};
    return LS_OK;
}

ls_status lsi_letters_parse(const char *what, const char *text, lsi_letters *letters)
{
    const size_t bytes = strlen(text);
    const uint8_t *p = (const uint8_t *)text;
    uint32_t code = 0, most = 0;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = lsi_utf8_read(p + at, bytes - at, &code);
        if (n == 0)
            return lsi_fail(LS_ERR_CONFIG, NULL, what, "the letters are not UTF-8 at offset %zu",
                            at);
        most = code > most ? code : most;
    }
    LSI_TRY(allocate(what, most + 1, bytes, letters));
    for (size_t at = 0; at < bytes;) {
        const size_t n = lsi_utf8_read(p + at, bytes - at, &code);
        if (letters->number[code] >= 0) {
            lsi_letters_free(letters);
            return lsi_fail(LS_ERR_CONFIG, NULL, what, "the letter '%.*s' (U+%04X) is given twice",
                            (int)n, text + at, code);
        }
        letters->number[code] = (int32_t)letters->count++;
        at += n;
    }
    memcpy(letters->text, text, bytes + 1);
    return LS_OK;
}

ls_status lsi_letters_of(const char *what, const uint64_t *set, lsi_letters *letters)
{
    uint32_t most = 0;
    size_t bytes = 0;
    uint8_t one[4];
    for (uint32_t code = 0; code < LSI_CODE_POINTS; code++)
        if (set[code / 64] >> code % 64 & 1) {
            most = code;
            bytes += lsi_utf8_write(code, one);
        }
    LSI_TRY(allocate(what, most + 1, bytes, letters));
    char *end = letters->text;
    for (uint32_t code = 0; code <= most; code++)
        if (set[code / 64] >> code % 64 & 1) {
            letters->number[code] = (int32_t)letters->count++;
            end += lsi_utf8_write(code, (uint8_t *)end);
        }
    *end = 0;
    return LS_OK;
}

void lsi_letters_free(lsi_letters *letters)
{
    free(letters->text);
    free(letters->number);
    *letters = (lsi_letters){0};
}

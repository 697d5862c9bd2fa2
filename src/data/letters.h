/* Characters and their numbers: UTF-8, and a text's letters.
 *
 * 1. Letters are numbered in the order in which they are given; a text's own ones in that of their
 *    code points.
 */
#ifndef LSI_DATA_LETTERS_H
#define LSI_DATA_LETTERS_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#define LSI_CODE_POINTS 0x110000u

/* The character at the head of `left` bytes: returns its bytes, 0 when they are not UTF-8
 * (over-long forms and surrogates are not). */
static inline size_t lsi_utf8_read(const uint8_t *p, size_t left, uint32_t *code)
{
    const uint8_t a = p[0];
    if (a < 0x80) {
        *code = a;
        return 1;
    }
    const size_t n = a >= 0xf0 ? 4 : a >= 0xe0 ? 3 : 2;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (a < 0xc2 || a > 0xf4 || n > left)
        return 0;
    uint32_t x = a & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        x = x << 6 | (p[i] & 0x3f);
    }
    if (x < least[n] || x >= LSI_CODE_POINTS || (x >= 0xd800 && x < 0xe000))
        return 0;
    *code = x;
    return n;
}

/* Write a character, at most 4 bytes; returns how many. */
size_t lsi_utf8_write(uint32_t code, uint8_t *out);

typedef struct lsi_letters {
    char *text; /* UTF-8 */
    uint32_t count;
    uint32_t codes;  /* of `number` */
    int32_t *number; /* of each code point below `codes`; -1: not a letter */
} lsi_letters;

/* Letters from UTF-8, each once; from a set of code points (one bit each, of LSI_CODE_POINTS).
 * LS_ERR_CONFIG, LS_ERR_NOMEM. */
ls_status lsi_letters_parse(const char *what, const char *text, lsi_letters *letters);
ls_status lsi_letters_of(const char *what, const uint64_t *set, lsi_letters *letters);
void lsi_letters_free(lsi_letters *letters);

static inline int32_t lsi_letter_number(const lsi_letters *letters, uint32_t code)
{
    return code < letters->codes ? letters->number[code] : -1;
}

#endif

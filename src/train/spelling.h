/* What the tokens of a GPT's run stand for: bytes, the letters of its text, or just numbers.
 *
 * 1. What is written is UTF-8 whatever the model says: a character of several bytes is written when
 *    its last byte has come, and bytes that make no character as U+FFFD.
 * 2. A text that is read and written again is the same, if it is UTF-8.
 *
 * An object belongs to one thread at a time.
 */
#ifndef LSI_TRAIN_SPELLING_H
#define LSI_TRAIN_SPELLING_H

#include "data/letters.h"
#include "train/config.h"

#define LSI_SPELL_ROOM 16

typedef struct lsi_spelling {
    enum { LSI_SPELL_BYTES, LSI_SPELL_LETTERS, LSI_SPELL_NUMBERS } kind;
    size_t count; /* tokens below this can be written */
    lsi_letters letters;
    uint32_t *codes; /* of each letter */
    uint8_t held[4]; /* the beginning of a character */
    size_t n_held;
    int begun; /* something has been written: numbers need a space between */
} lsi_spelling;

/* For a run of this configuration, settled, and a model that knows `vocab` tokens. */
ls_status lsi_spelling_open(const lsi_train_config *config, size_t vocab, lsi_spelling *out);
void lsi_spelling_close(lsi_spelling *spelling);

/* Tokens of a text of `bytes` bytes, *count of them, at least one; the caller frees *tokens. `what`
 * names the text in errors: LS_ERR_CONFIG with the character that the run does not know. */
ls_status lsi_spelling_read(const lsi_spelling *spelling, const char *what, const char *text,
                            size_t bytes, int32_t **tokens, size_t *count);

/* What to write for the next token; returns its bytes, maybe none yet. */
size_t lsi_spelling_write(lsi_spelling *spelling, int32_t token, char out[LSI_SPELL_ROOM]);
/* What is still to be written at the end. */
size_t lsi_spelling_end(lsi_spelling *spelling, char out[LSI_SPELL_ROOM]);

#endif

/* The table of settings: names, kinds, ranges; values as text. What the config_*.c files share.
 *
 * 1. A row's text form is parsed and printed here and nowhere else, and what is printed is parsed
 *    to the same value.
 */
#ifndef LSI_TRAIN_CONFIG_KEYS_H
#define LSI_TRAIN_CONFIG_KEYS_H

#include "train/config.h"

typedef enum lsi_row_kind {
    LSI_ROW_WHOLE,   /* uint64_t in [least, most] */
    LSI_ROW_REAL,    /* double, at least `least` and at most `most` */
    LSI_ROW_FLAG,    /* uint64_t: 0 or 1 */
    LSI_ROW_WORD,    /* char[LSI_CONFIG_WORD]: one of `words` */
    LSI_ROW_TEXT,    /* char[LSI_CONFIG_PATH] */
    LSI_ROW_LETTERS, /* lsi_config_letters */
    LSI_ROW_MODEL    /* char[LSI_CONFIG_WORD]: a model and its preset */
} lsi_row_kind;

typedef struct lsi_row {
    const char *section, *key;
    lsi_row_kind kind;
    size_t offset; /* in lsi_train_config */
    int decides;   /* the result depends on it */
    double least, most;
    const char *words; /* "sync, async, local" */
} lsi_row;

/* The i-th row in the order of printing, NULL past the end. */
const lsi_row *lsi_row_at(int i);
/* NULL when there is none of this name ("train.batch"). */
const lsi_row *lsi_row_find(const char *name);
/* The known name that is nearest to this one: a row's, or a setting of the model's. */
void lsi_row_nearest(const lsi_train_config *config, const char *name, char out[LSI_CONFIG_KEY]);

ls_status lsi_row_parse(const lsi_row *row, const char *text, lsi_train_config *config);
int lsi_row_is_set(const lsi_row *row, const lsi_train_config *config);
void lsi_row_unset(const lsi_row *row, lsi_train_config *config);
/* The value as text, quoted where necessary. The caller frees it; NULL: no memory. */
char *lsi_row_text(const lsi_row *row, const lsi_train_config *config);

/* "text" with quotes, escapes undone. LS_ERR_CONFIG naming `what`. */
ls_status lsi_unquote(const char *what, const char *quoted, char *out, size_t room);

#endif

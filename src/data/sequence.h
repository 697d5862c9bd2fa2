/* A long sequence cut into samples of `context` tokens: what text and tokens have in common.
 *
 * Sample k is [begin + k * context, … + context] and its targets are one further, so that each
 * token but the first is a target exactly once; a rest that does not fill a sample is left out.
 */
#ifndef LSI_DATA_SEQUENCE_H
#define LSI_DATA_SEQUENCE_H

#include "data/format.h"

typedef struct lsi_sequence {
    uint64_t begin, end; /* the part of the file, in tokens */
    size_t context;
    uint32_t vocab; /* tokens are below, or the model cannot take them */
    int place[2];   /* of "tokens" and "targets" */
} lsi_sequence;

/* Choose the part of `total` tokens: all when it has a file of its own, else the first ones or the
 * last share. */
ls_status lsi_sequence_part(const ls_dataset *dataset, const char *what, const char *path,
                            uint64_t total, int own, lsi_sequence *sequence);
/* Match "tokens" and "targets" (context) of a vocabulary (0: unknown), and count samples. */
ls_status lsi_sequence_bind(ls_dataset *dataset, const char *what, const char *path, size_t vocab,
                            const ls_data_field *fields, int count, lsi_sequence *sequence);

#endif

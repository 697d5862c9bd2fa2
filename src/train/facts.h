/* What all workers of a run must find in its data: how much there is, and a fingerprint.
 *
 * The fingerprint is the SHA-256 of a few dozen samples, spread evenly over both parts and read as
 * the model wants them. It tells other files, another version of them, another cut of them; it does
 * not look at every byte. The papers of a run have it as text (papers.c).
 */
#ifndef LSI_TRAIN_FACTS_H
#define LSI_TRAIN_FACTS_H

#include "base/sha256.h"
#include "train/fields.h"

#define LSI_FACTS_TEXT 128

typedef struct lsi_facts {
    uint64_t train, held; /* samples to train on, and held out */
    char sha256[LSI_SHA256_HEX];
} lsi_facts;

/* Of data that is bound to the fields; `held` NULL: nothing is held out. A sample that cannot be
 * read is one of its facts: whoever trains on it will tell. */
ls_status lsi_facts_find(const ls_dataset *train, const ls_dataset *held, const lsi_fields *fields,
                         lsi_facts *out);
int lsi_facts_are_same(const lsi_facts *a, const lsi_facts *b);

void lsi_facts_print(const lsi_facts *facts, char text[LSI_FACTS_TEXT]);
/* From the beginning of a text, up to the end of its line; 0: it makes no sense. */
int lsi_facts_parse(const char *text, lsi_facts *out);

#endif

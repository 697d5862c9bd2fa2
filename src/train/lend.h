/* Samples for workers that have no data, from workers that have it.
 *
 *     provider   reader of the customer's part -> send, one step ahead
 *     customer   receives two steps ahead -> into its graph, as if it had read them itself
 *
 * Order, batches and shards are arithmetic that everybody can do: a provider knows what its
 * customer computes in each step, and nobody asks for anything.
 *
 * 1. What is sent is what the customer would have read: the result does not depend on it.
 * 2. Each worker without data has one provider in a generation; customers are dealt out in turn.
 * 3. The samples of step s + 1 are sent when step s begins, and its receive was posted when step
 *    s - 1 began: nothing is kept on the way, and after the first step nothing is allocated.
 * 4. A provider that dies is a peer that dies: the next generation deals anew.
 */
#ifndef LSI_TRAIN_LEND_H
#define LSI_TRAIN_LEND_H

#include "train/fields.h"
#include <lockstep/coll.h>

#define LSI_LEND_SLOTS 3 /* the step that is computed, and two to come */

/* Reads a worker's part of each step ahead. */
typedef struct lsi_reader {
    int worker;
    ls_loader *loader;
    uint64_t asked; /* the next step to ask the loader for */
} lsi_reader;

typedef struct lsi_customer {
    lsi_reader reader;
    ls_request *requests[LSI_FIELDS_MAX]; /* the samples that are being sent */
} lsi_customer;

/* Of a generation. */
typedef struct lsi_lend {
    int n;
    lsi_customer *customers; /* [n] */
    int provider;            /* of this worker, if it lacks the data */
    unsigned char *memory;   /* for what it receives */
    unsigned char *field[LSI_LEND_SLOTS][LSI_FIELDS_MAX];
    ls_request *requests[LSI_LEND_SLOTS][LSI_FIELDS_MAX];
} lsi_lend;

/* Who lends to worker w, of those who have the data (has[workers]); -1: it has it itself, or nobody
 * has. Pure. */
int lsi_lend_provider(const uint8_t *has, int workers, int w);

#endif

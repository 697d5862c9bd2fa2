/* Generated tasks: the seam between the format `synthetic` and what it generates.
 *
 * 1. A sample is a function of (seed, part, index), whatever was read before; a table of moderate
 *    size made at bind keeps it about as cheap as copying it.
 * 2. The task (its tables) depends on the seed only: the held-out part has other samples of the
 *    same task.
 * 3. The distribution of the answer given the question is known, and with it the best loss.
 */
#ifndef LSI_DATA_SYNTHETIC_H
#define LSI_DATA_SYNTHETIC_H

#include "data/format.h"

typedef struct lsi_task {
    const char *model; /* that it is made for */
    /* A field by which the model is recognised when the configuration does not name it. */
    const char *field;
    int ndim; /* of that field */
    /* Match the fields and make the tables, one block that is released by free(). */
    ls_status (*make)(ls_dataset *dataset, const ls_data_field *fields, int count, void **task);
    /* Write a sample from four words that are random and its own, and more where `number` (the
     * sample's, different in both parts) is drawn from again. */
    void (*write)(const ls_dataset *dataset, const void *task, uint64_t number,
                  const uint32_t words[4], void *const *fields);
    double (*best_loss)(const ls_dataset *dataset, const void *task);
} lsi_task;

extern const lsi_task lsi_task_mlp, lsi_task_resnet, lsi_task_gpt, lsi_task_dlrm;

/* The sample's number: index, and a bit for the part. */
uint64_t lsi_synthetic_number(const ls_dataset *dataset, uint64_t index);

#endif

/* A file of samples without answers, for a model to judge.
 *
 *     .npy            float32 rows (samples, …): the model's input as it is
 *     idx, idx .gz    images of the MNIST family, normalised as in training (idx.c)
 *     cifar           records of the binary version; their labels are not looked at (cifar.c)
 *     criteo          lines with a label, which is not used (criteo.c)
 *
 * 1. Samples become what they would have become in training, bit for bit, without augmentation.
 * 2. .npy and idx are known by their first bytes, the others by the kind of data of the run.
 *
 * Any thread may read.
 */
#ifndef LSI_DATA_SAMPLES_H
#define LSI_DATA_SAMPLES_H

#include <lockstep/data.h>

typedef struct lsi_samples lsi_samples;

/* Open a file for a model with these inputs; `kind` is that of the data it was trained on. The
 * caller closes *out. LS_ERR_CONFIG or LS_ERR_NOT_FOUND names the file and what was expected. */
ls_status lsi_samples_open(const char *kind, const char *path, const ls_data_field *fields,
                           int count, lsi_samples **out);
void lsi_samples_close(lsi_samples *samples);
uint64_t lsi_samples_count(const lsi_samples *samples);
/* As ls_dataset_read. A field with an answer is left alone, or gets the file's. */
ls_status lsi_samples_read(const lsi_samples *samples, uint64_t index, void *const *fields);

#endif

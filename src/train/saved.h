/* A finished run, to be used: its configuration, its model with the weights of a checkpoint.
 *
 *     run directory or checkpoint -> files compared with their digests -> config.ini -> graph
 *
 * 1. Nothing is written, and no lock is taken: a run may be used while it is being trained. The
 *    newest checkpoint is chosen once, at open.
 * 2. There is no optimizer and no communicator: one process alone can use a run.
 * 3. Evaluation cuts the data into the same chunks as training does, for any number of workers: the
 *    figures are those that training printed, to the last bit.
 *
 * An object belongs to one thread at a time.
 */
#ifndef LSI_TRAIN_SAVED_H
#define LSI_TRAIN_SAVED_H

#include "train/trainer.h"

typedef struct lsi_saved {
    lsi_checkpoint checkpoint;
    lsi_train_config config;     /* settled */
    char model[LSI_CONFIG_WORD]; /* "gpt", without the preset */
    ls_graph *graph;
    lsi_fields fields;
} lsi_saved;

/* The run directory that a checkpoint's folder lies in, as an absolute path: two folders up, also
 * when the folder was named from inside of it. */
ls_status lsi_saved_run(const char *folder, char path[LSI_CHECKPOINT_PATH]);

/* Open a run directory (its newest checkpoint) or one checkpoint. The graph takes up to `batch`
 * samples; 0: as many as in training. The caller closes *out.
 * LS_ERR_NOT_FOUND: there is no checkpoint; LS_ERR_CONFIG names the file that is damaged, or what
 * of config.ini makes no sense. */
ls_status lsi_saved_open(const char *path, size_t batch, lsi_saved **out);
void lsi_saved_close(lsi_saved *saved);

/* Use other data than the run's from now on: KIND[:PATH]. Settings of the run that the other kind
 * does not have are dropped. LS_ERR_CONFIG. */
ls_status lsi_saved_use_data(lsi_saved *saved, const char *data);

/* An evaluation as a caller asks for it; texts are borrowed. */
typedef struct lsi_evaluate_job {
    const char *path;
    const char *data; /* KIND[:PATH]; NULL: the run's */
    int training;     /* the part trained on, without augmentation, instead of the held-out one */
    uint64_t batches; /* of the run's size, at most; 0: all, LSI_UNSET: as the run did */
} lsi_evaluate_job;

/* Could it be done? Opens everything, and tells which checkpoint that is. */
ls_status lsi_saved_check(const lsi_evaluate_job *job, lsi_checkpoint *checkpoint);
/* Open a run and find loss and accuracy. Collective, blocks; the same bits for any number of
 * workers. `checkpoint` gets what was evaluated, `model` its name ("gpt"). When one worker fails
 * before the first sample, the others have LS_ERR_ABORTED and no text: they need not say so. */
ls_status lsi_saved_evaluate(ls_comm *comm, const lsi_evaluate_job *job, lsi_evaluation *out,
                             lsi_checkpoint *checkpoint, char model[LSI_CONFIG_WORD]);

#endif

/* A training run as a caller asks for it: `lockstep train`, or a program. */
#ifndef LSI_TRAIN_JOB_H
#define LSI_TRAIN_JOB_H

#include "parallel/membership.h"
#include "train/config.h"

#define LSI_JOB_SETTINGS 128
#define LSI_JOB_DATA "data" /* a key that is not one of config.h: the value is KIND[:PATH] */

/* All texts are borrowed. Those of worker 0 count, but for data_path. */
typedef struct lsi_train_job {
    const char *model;       /* NULL: the file or the run has it */
    const char *config_file; /* settings to begin with, or NULL */
    const char *resume;      /* run directory to go on with, or one of its checkpoints; or NULL */
    int n_settings;          /* over those: in the order given, */
    const char *keys[LSI_JOB_SETTINGS]; /* "train.batch"; NULL: the value is "train.batch=96" */
    const char *values[LSI_JOB_SETTINGS];
    const char *data_path; /* where the data lies on this host, and must; NULL: where worker 0
                              says, and if there is none, others lend it */
    int quiet, json;
} lsi_train_job;

/* Its settings, one by one. LS_ERR_CONFIG. */
ls_status lsi_train_job_apply(const lsi_train_job *job, lsi_train_config *config);
/* The configuration that the job describes, settled as far as can be without looking at the data.
 * LS_ERR_CONFIG names what makes no sense, or what contradicts the run that is to be resumed. */
ls_status lsi_train_job_config(const lsi_train_job *job, lsi_train_config *config);

/* Be one worker of the run, through all its generations, to the last step. Collective, blocks.
 * SIGINT and SIGTERM end the run after the step, with a checkpoint: LS_OK, and *interrupted is the
 * signal; in an elastic run SIGTERM ends this worker after the step, and the others go on.
 * What failed before the first step or after the last is the same error on all, with a text on one
 * of them; what fails on one worker between is LS_ERR_ABORTED without a text on the others. Who has
 * no text need not say so. */
ls_status lsi_train_work(const lsi_train_job *job, lsi_member *member, int *interrupted);

#endif

/* A worker of a training run: what the files of the loop share.
 *
 *     setup     worker 0 decides on the configuration and tells the others; data, model, engine
 *     papers    the same as text, for those who come later
 *     source    the data: what this worker has of it, who has it
 *     feed      the worker's part of each batch, read ahead or lent, into the inputs of its graph
 *     lend      samples for workers that have no data
 *     evaluate  the held-out data, each worker a part
 *     record    worker 0: run directory, metrics, checkpoints, what the user sees
 *     loop      the steps, in one generation after the other
 *
 * 1. Everything that decides the result is in `config`, which is the same on every worker.
 * 2. Step s belongs to epoch s / per_epoch and trains the places [i, i + batch) of its order, where
 *    i = s % per_epoch * batch; the last batch of an epoch is smaller if the data does not divide.
 * 3. Whoever is worker 0 in a generation records; all that is needed to take that over is in the
 *    vault, the papers and the run directory.
 * 4. Weights change only in a sync that worker 0 takes part in: what it reads between two steps
 *    (to save, to hash) stands still.
 */
#ifndef LSI_TRAIN_TRAINER_H
#define LSI_TRAIN_TRAINER_H

#include "parallel/engine.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/facts.h"
#include "train/job.h"
#include "train/lend.h"
#include "train/metrics.h"
#include "train/progress.h"
#include "train/run_dir.h"
#include "train/saver.h"
#include "train/tensorboard.h"

typedef struct lsi_trainer {
    const lsi_train_job *job;
    lsi_member *member;
    int all_failed; /* and know it */

    /* of a generation */
    ls_comm *comm;
    int worker, workers;
    lsi_engine *engine;
    uint8_t *has; /* [workers] who has the data, */
    int sources;  /* and how many they are */
    lsi_reader reader;
    lsi_lend lend;
    const void *taken[LSI_FIELDS_MAX];
    int stop;                /* somebody wants the run to end */
    double began, usual;     /* when the step under way did; seconds of the one before, 0: none */
    int32_t *powers;         /* [workers] what each can do; NULL: all the same */
    uint64_t measured;       /* steps of which the time is known, */
    double shards, computed; /* their shards, and the seconds that those took */

    /* of the run */
    int configured, decided; /* it is known what the run is; it was this worker that decided */
    char *out;               /* run directory, NULL: none */
    char id[LSI_RUN_ID];     /* no other run has it */
    lsi_train_config config;
    ls_optim_config optim;
    int lacks;                /* there is no data here: others lend it */
    ls_dataset *train, *held; /* NULL then; held: also when nothing is held out */
    int known;                /* the facts are those of the run, */
    lsi_facts facts;          /* not only those of the data here */
    uint64_t count, per_epoch, total;
    ls_graph *graph;
    size_t graph_batch;
    lsi_fields fields;

    /* worker 0 */
    int records;       /* this worker does */
    uint64_t recorded; /* and did in this generation */
    lsi_run_dir *dir;  /* NULL: nothing is kept */
    lsi_weights weights;
    lsi_metrics *metrics;
    lsi_events *events;
    lsi_saver *saver;
    lsi_progress progress;
    int told;               /* that a line could not be written */
    double loss, eval_loss; /* the latest; NaN: none */
    uint64_t evaluated;     /* the step that eval_loss belongs to */
    uint64_t saved;         /* the step of the latest checkpoint asked for; LSI_SAVER_NONE: none */
} lsi_trainer;

typedef struct lsi_evaluation {
    double loss, accuracy; /* accuracy is NaN where there is none */
    uint64_t samples;
    double seconds;
} lsi_evaluation;

/* balance.c: shards in proportion to what workers can do, on request. */
/* What each could do in the generation before: t->powers. Collective. */
ls_status lsi_balance_open(lsi_trainer *t);
/* A step has been done; 1: enough is known for a better division. */
int lsi_balance_step(lsi_trainer *t, const lsi_step_result *result, uint64_t samples);

/* loop.c: what this worker, or its launcher, wants to follow the step. */
void lsi_trainer_ask(void *trainer);
/* Is the step to be computed anew, with workers that wait? */
int lsi_trainer_leaves_step(void *trainer);

/* setup.c */
/* Before the first generation: what can be made without the others, if it is known what the run
 * is. They do not wait for it, and what fails here does not concern them. */
ls_status lsi_trainer_prepare(lsi_trainer *t);
/* The generation that the member is in: configuration, data and model if they are not there yet,
 * engine, feed, record. Collective. */
ls_status lsi_trainer_enter(lsi_trainer *t);
/* Leave it: what is of the run stays. */
void lsi_trainer_leave(lsi_trainer *t);
void lsi_trainer_close(lsi_trainer *t);
/* Has everybody succeeded? An error otherwise; of those who have failed, the first has a text to
 * tell. Collective. */
ls_status lsi_succeed_together(lsi_trainer *t, ls_status mine);

/* papers.c */
/* What the run is, as text; the caller frees it. */
ls_status lsi_papers_write(const lsi_trainer *t, char **text);
/* LS_ERR_PROTOCOL, or an error of the configuration: t->configured is not set. */
ls_status lsi_papers_read(lsi_trainer *t, const char *text);
/* For those who come later, unless that was done. */
ls_status lsi_papers_keep(lsi_trainer *t);

/* source.c */
/* Open the data, or find that there is none here (t->lacks). LS_ERR_INVALID: it is not the run's.
 * Once; needs the fields. */
ls_status lsi_source_open(lsi_trainer *t);
/* What the run's data must be, if that was not known, and who has it. Collective. */
ls_status lsi_source_agree(lsi_trainer *t);
/* This worker's place among those who have it; -1: it has not. */
int lsi_source_place(const lsi_trainer *t);

/* feed.c */
/* Samples of the batch of a step, its epoch and the place of the first. */
uint64_t lsi_batch_of(const lsi_trainer *t, uint64_t step, uint64_t *epoch, uint64_t *place);
/* Samples of a worker's part of it, and the place of the first; the most that there are in a step,
 * at least 1. */
size_t lsi_part_of(const lsi_trainer *t, int worker, uint64_t step, uint64_t *epoch,
                   uint64_t *place);
size_t lsi_part_most(const lsi_trainer *t, int worker);
/* Read the parts of a worker ahead, from a step on. */
ls_status lsi_reader_open(const lsi_trainer *t, int worker, uint64_t first_step, lsi_reader *r);
void lsi_reader_close(lsi_reader *r);
/* Its *n samples of `step`, which follows the one before; valid until the next are taken. */
ls_status lsi_reader_take(const lsi_trainer *t, lsi_reader *r, uint64_t step, const void **fields,
                          size_t *n);
ls_status lsi_feed_open(lsi_trainer *t, uint64_t first_step);
/* The data of `step`, which follows the one before; then lsi_feed_fill hands it to the engine. */
ls_status lsi_feed_take(lsi_trainer *t, uint64_t step);
ls_status lsi_feed_fill(void *trainer, ls_graph *graph, uint64_t first, size_t count);

/* After the generation was left: nobody writes to its memory, or reads from it, any more. */
void lsi_feed_close(lsi_trainer *t);

/* lend.c */
/* From a step on. Provider and customer, whichever this worker is. */
ls_status lsi_lend_open(lsi_trainer *t, uint64_t first_step);
void lsi_lend_close(lsi_trainer *t);
/* To all customers: the samples of `step`, which follows the one before. */
ls_status lsi_lend_send(lsi_trainer *t, uint64_t step);
/* From the provider: t->taken. */
ls_status lsi_lend_take(lsi_trainer *t, uint64_t step);
/* Drive what is under way. */
void lsi_lend_look(lsi_trainer *t);

/* evaluate.c */
typedef struct lsi_exam {
    const ls_dataset *data; /* NULL: this worker has none */
    uint64_t samples;       /* of it, */
    uint64_t most;          /* but not more than these; 0: all */
    int place, of;          /* this worker among those who have it, -1: it has not; their number */
} lsi_exam;
/* Collective. */
ls_status lsi_evaluate(ls_comm *comm, ls_graph *graph, const lsi_fields *fields,
                       const lsi_exam *exam, lsi_evaluation *out);

/* record.c: nothing happens on other workers than 0. */
/* Go on recording, or begin to. */
ls_status lsi_record_open(lsi_trainer *t);
void lsi_record_close(lsi_trainer *t);
/* Fill in all that a checkpoint of this moment has. */
void lsi_record_state(lsi_trainer *t, lsi_state *state);
ls_status lsi_record_step(lsi_trainer *t, uint64_t step, const lsi_step_result *result,
                          uint64_t samples);
ls_status lsi_record_eval(lsi_trainer *t, const lsi_evaluation *found);
/* Start a checkpoint; `wait`: until it is on the disk. A save that fails is told and tried again at
 * the next; with `wait` it is the error. The engine has settled. */
ls_status lsi_record_save(lsi_trainer *t, int wait);
/* The last line. */
ls_status lsi_record_done(lsi_trainer *t, int interrupted);

#endif

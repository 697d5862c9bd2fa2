/* metrics.jsonl: one JSON object a line, for each step and each evaluation.
 *
 * 1. A line is written whole, by one write(2), or not at all.
 * 2. What a run's result decides comes first and prints equally when it is equal, to the last
 *    digit; speeds, which differ from run to run, come after "samples_per_s".
 * 3. Steps ascend. A resumed run first drops the lines of the steps that it will do again.
 *
 * An object belongs to one thread at a time.
 */
#ifndef LSI_TRAIN_METRICS_H
#define LSI_TRAIN_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#define LSI_METRIC_LINE 512

typedef struct lsi_metric_step {
    uint64_t step, epoch;
    double loss, lr;
    double grad_norm;     /* NaN: unknown, left out */
    double samples_per_s; /* NaN, as the two that follow: left out */
    double wait_share;    /* of the time, spent waiting for communication */
    double step_s;
    int workers;
} lsi_metric_step;

typedef struct lsi_metric_eval {
    uint64_t step, epoch, samples;
    double loss;
    double accuracy; /* NaN: left out */
    double seconds;
} lsi_metric_eval;

typedef struct lsi_metrics lsi_metrics;

/* Open or create the file, without the lines of step `first` and later (0: without any), which is
 * done atomically. The caller owns *out. */
ls_status lsi_metrics_open(const char *path, uint64_t first, lsi_metrics **out);
/* The latest step, and the latest evaluation, that have a line; 0: none. */
uint64_t lsi_metrics_last(const lsi_metrics *metrics);
uint64_t lsi_metrics_last_eval(const lsi_metrics *metrics);
/* Accepts NULL. */
void lsi_metrics_close(lsi_metrics *metrics);

/* Append a line. LS_ERR_SYSTEM names the file; it ends with a whole line then, and this one comes
 * with the next that can be written: a disk is full for a while only, as a rule. */
ls_status lsi_metrics_step(lsi_metrics *metrics, const lsi_metric_step *step);
ls_status lsi_metrics_eval(lsi_metrics *metrics, const lsi_metric_eval *eval);
/* Write what could not be written. LS_ERR_SYSTEM: it still cannot. */
ls_status lsi_metrics_flush(lsi_metrics *metrics);

/* The line as text, newline included; returns its length. */
size_t lsi_metric_step_text(const lsi_metric_step *step, char text[LSI_METRIC_LINE]);
size_t lsi_metric_eval_text(const lsi_metric_eval *eval, char text[LSI_METRIC_LINE]);

#endif

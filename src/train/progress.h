/* What a user sees of a training run as it goes on.
 *
 *     a terminal     one line, rewritten at most ten times a second, as wide as there is room
 *     a file, pipe   a plain line at the first step, every tenth of the way, and every ten seconds
 *     json           every step, as the line of metrics.jsonl
 *     quiet          nothing
 *
 * 1. A line leaves in one write(2).
 * 2. Output that nobody takes is no reason to stop.
 *
 * An object belongs to one thread at a time.
 */
#ifndef LSI_TRAIN_PROGRESS_H
#define LSI_TRAIN_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "train/metrics.h"

typedef enum lsi_progress_mode {
    LSI_PROGRESS_AUTO, /* a line or lines, as `fd` is a terminal or not */
    LSI_PROGRESS_QUIET,
    LSI_PROGRESS_JSON
} lsi_progress_mode;

typedef struct lsi_progress {
    int fd;
    lsi_progress_mode mode;
    int terminal;
    uint64_t first, total; /* steps of this process: [first, total) */
    double start;          /* when it began, in seconds of lsi_now() */
    double last;           /* when something was shown; negative: never */
    int tenth;             /* of the way, at that time */
    int shown;             /* the cursor is in a line that is to be rewritten */
} lsi_progress;

/* `first` steps of `total` are done already. `fd` is borrowed. */
void lsi_progress_begin(lsi_progress *progress, int fd, lsi_progress_mode mode, uint64_t first,
                        uint64_t total, double now);
/* A step has been done; step->step counts those done so far, this one included. */
void lsi_progress_step(lsi_progress *progress, const lsi_metric_step *step, double now);
/* An evaluation. */
void lsi_progress_eval(lsi_progress *progress, const lsi_metric_eval *eval);
/* A line of its own, above the one that is rewritten. Nothing when quiet or json. */
void lsi_progress_say(lsi_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The rewritten line is left as it is; what is printed next starts below it. */
void lsi_progress_end(lsi_progress *progress);

/* The line as text, without a newline, at most `width` characters (0: any); returns its length. */
size_t lsi_progress_text(const lsi_progress *progress, const lsi_metric_step *step, double now,
                         size_t width, char text[LSI_METRIC_LINE]);

#endif

/* A run directory: config.ini, metrics.jsonl, checkpoint/, log.txt, event files of TensorBoard.
 *
 * 1. One run at a time writes to it: a lock (flock on .lock) is held until it is closed, by this
 *    process and those forked from it.
 * 2. What is wrong with it comes out before training starts.
 * 3. A folder is a run directory when it has config.ini: creating writes that file last.
 *
 * An object belongs to one thread at a time, but lsi_run_dir_log may be called by any.
 */
#ifndef LSI_TRAIN_RUN_DIR_H
#define LSI_TRAIN_RUN_DIR_H

#include <stddef.h>

#include <stdint.h>

#include "base/id.h"
#include <lockstep/status.h>

#define LSI_RUN_ID LSI_ID_BYTES

typedef struct lsi_run_dir lsi_run_dir;

/* For a new run: a folder that does not exist (it is made, with those above it) or that is empty.
 * The caller owns *out. LS_ERR_CONFLICT: it holds a run, or something else; LS_ERR_SYSTEM: it
 * cannot be made, or not be written to. */
ls_status lsi_run_dir_create(const char *path, lsi_run_dir **out);
/* To go on with the run that it holds. LS_ERR_NOT_FOUND: there is none. */
ls_status lsi_run_dir_open(const char *path, lsi_run_dir **out);
/* Say in the lock which run it is (text of less than LSI_RUN_ID bytes, without spaces), and in
 * which generation. */
ls_status lsi_run_dir_sign(lsi_run_dir *dir, const char *run, uint64_t generation);
/* To go on with a run whose worker 0 was another process, which may have died at any moment: waits
 * a little for its lock, and makes what is missing. A lock that is signed with the same run and an
 * earlier generation is taken from its owner after a while: that one is stopped, or was cut off. */
ls_status lsi_run_dir_take(const char *path, const char *run, uint64_t generation,
                           lsi_run_dir **out);
/* Accepts NULL. A new run that has no config.ini yet leaves nothing behind. */
void lsi_run_dir_close(lsi_run_dir *dir);

const char *lsi_run_dir_path(const lsi_run_dir *dir);
/* Write PATH/NAME: the old file or the new one is there, whole, whatever happens. */
ls_status lsi_run_dir_write(lsi_run_dir *dir, const char *name, const char *text);
/* A line of log.txt with the time of day in front. A log that cannot be written is no error. */
void lsi_run_dir_log(lsi_run_dir *dir, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif

/* Saving checkpoints while training goes on.
 *
 * The state is copied into memory that the saver keeps, and a thread of its own writes the copy.
 *
 * 1. At most one save is under way. The arrays given to start may be changed once it has returned.
 * 2. An error of the thread comes out at the next call, once, with its text; training may go on,
 *    and the next save is tried as if nothing had happened.
 * 3. The thread takes no signals.
 *
 * A saver belongs to one thread at a time.
 */
#ifndef LSI_TRAIN_SAVER_H
#define LSI_TRAIN_SAVER_H

#include "train/checkpoint.h"

typedef struct lsi_saver lsi_saver;

/* For states of this form in the folder `run`: names and descriptions are borrowed, memory for a
 * copy of the arrays is allocated. `keep`: how many checkpoints stay besides the best. */
ls_status lsi_saver_create(const char *run, const lsi_state *form, uint64_t keep, lsi_saver **out);
/* Waits for a save that is under way. Accepts NULL. */
void lsi_saver_destroy(lsi_saver *saver);

/* Copy the state and start writing. LS_IN_PROGRESS: the one before is under way, nothing was done.
 * Returns the error of the one before, if it has one that was not told yet; nothing was started
 * then. Blocks for as long as copying takes. */
ls_status lsi_saver_start(lsi_saver *saver, const lsi_state *state);
/* LS_IN_PROGRESS while a save is under way; else LS_OK or its error. `done` (may be NULL) is set to
 * the latest checkpoint that has been saved; its step is LSI_SAVER_NONE when there is none. Does
 * not block. */
#define LSI_SAVER_NONE UINT64_MAX
ls_status lsi_saver_poll(lsi_saver *saver, lsi_checkpoint *done);
/* The same after waiting for it to end. */
ls_status lsi_saver_wait(lsi_saver *saver, lsi_checkpoint *done);

#endif

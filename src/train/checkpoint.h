/* Checkpoints: folders RUN/checkpoint/step-00001234 that hold all that a run needs to go on.
 *
 *     model.safetensors      parameters and buffers, names and layouts as the ecosystem's
 *     optimizer.safetensors  the optimizer's state: exp_avg.NAME, as it lies in memory
 *     state.json             step, epoch, seed, losses, digests; the last line is a checksum of it
 *
 * 1. A checkpoint appears whole under its name or not at all: it is written into a hidden folder
 *    beside it, brought onto the disk, then renamed. Whatever happens, the older ones stay usable.
 * 2. Older ones are removed only when the new one is on the disk. The newest `keep` stay, and of
 *    all there were, the one with the least validation loss.
 * 3. Every bit is covered by a SHA-256, which is compared before anything is loaded. A damaged
 *    checkpoint is never passed over in silence.
 * 4. The digest of the weights is that of model.safetensors (nn/weights.h); that of the whole state
 *    is the SHA-256 of the text "WEIGHTS OPTIMIZER STEP\n", where the first two are the digests of
 *    the files. Both depend on names, shapes and values alone.
 *
 * One process at a time writes to a run (run_dir.h). Calls block for as long as the disk does.
 */
#ifndef LSI_TRAIN_CHECKPOINT_H
#define LSI_TRAIN_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "nn/weights.h"

#define LSI_CHECKPOINT_PATH 1200
#define LSI_CHECKPOINT_ARRAYS 3
#define LSI_CHECKPOINT_FORMAT 1
#define LSI_CHECKPOINT_MODEL "model.safetensors"
#define LSI_CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define LSI_CHECKPOINT_STATE "state.json"

/* Which of the files. */
enum { LSI_FILE_MODEL, LSI_FILE_OPTIMIZER, LSI_CHECKPOINT_FILES };

/* What is saved, and where it is loaded to. Descriptions, names and arrays are borrowed. */
typedef struct lsi_state {
    lsi_weights weights;
    int array_count; /* of the optimizer's state, each laid out as the parameters */
    const char *array_names[LSI_CHECKPOINT_ARRAYS];
    float *arrays[LSI_CHECKPOINT_ARRAYS];

    uint64_t step;               /* steps done */
    uint64_t epoch, seed;        /* epoch of the next step */
    double loss, eval_loss;      /* the latest; NaN: unknown */
    char config[LSI_SHA256_HEX]; /* lsi_train_config_sha256 */
} lsi_state;

/* What state.json says. */
typedef struct lsi_checkpoint {
    char folder[LSI_CHECKPOINT_PATH];
    uint64_t step, epoch, seed;
    double loss, eval_loss; /* NaN: unknown */
    char config[LSI_SHA256_HEX], weights[LSI_SHA256_HEX], state[LSI_SHA256_HEX];
    struct {
        uint64_t bytes;
        char sha256[LSI_SHA256_HEX];
    } files[LSI_CHECKPOINT_FILES];
} lsi_checkpoint;

/* The two digests of invariant 4, without writing anything. Of `state`, loss, epoch, seed and
 * config do not matter. */
ls_status lsi_state_sha256(const lsi_state *state, char weights[LSI_SHA256_HEX],
                           char whole[LSI_SHA256_HEX]);

/* Save, then remove what need not be kept. `out` may be NULL. LS_ERR_SYSTEM names the file, and
 * when the disk is full how many bytes are needed; nothing is left behind then. A checkpoint of the
 * same step is replaced. */
ls_status lsi_checkpoint_save(const char *run, const lsi_state *state, uint64_t keep,
                              lsi_checkpoint *out);

/* All checkpoints whose state.json is good, oldest first; the caller frees *list. LS_ERR_NOT_FOUND:
 * there is no folder of checkpoints. */
ls_status lsi_checkpoint_list(const char *run, lsi_checkpoint **list, size_t *count);
/* Remove all but the newest `keep` and the best; and what an interrupted save has left. */
ls_status lsi_checkpoint_prune(const char *run, uint64_t keep);

/* Read state.json of a folder; the other files are not looked at. */
ls_status lsi_checkpoint_open(const char *folder, lsi_checkpoint *out);
/* The checkpoint at `path`: a run's newest, or the one that is named. Every file has been compared
 * with its digest. LS_ERR_NOT_FOUND: there is none. LS_ERR_CONFIG names the file that is damaged,
 * and an older checkpoint that is whole, if there is one. */
ls_status lsi_checkpoint_find(const char *path, lsi_checkpoint *out);
/* Compare every file with its digest. LS_ERR_CONFIG names the one that is damaged. */
ls_status lsi_checkpoint_verify(const lsi_checkpoint *checkpoint);
/* Verify, then load weights and arrays, and set step, epoch, seed, losses, config of `state`. A
 * name, shape or number of arrays that does not fit: LS_ERR_CONFIG. `state` is unchanged after an
 * error. */
ls_status lsi_checkpoint_load(const lsi_checkpoint *checkpoint, lsi_state *state);

#endif

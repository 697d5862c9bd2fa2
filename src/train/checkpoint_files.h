/* What the files checkpoint_*.c share: files whose bytes are hashed as they are written, folders,
 * state.json. */
#ifndef LSI_TRAIN_CHECKPOINT_FILES_H
#define LSI_TRAIN_CHECKPOINT_FILES_H

#include "train/checkpoint.h"

/* ---- checkpoint_files.c ---- */

typedef struct lsi_out_file {
    int fd;
    char path[LSI_CHECKPOINT_PATH];
    lsi_sha256 *hash;
    uint64_t bytes;
} lsi_out_file;

/* A new file FOLDER/NAME. */
ls_status lsi_out_open(const char *folder, const char *name, lsi_out_file *out);
/* An lsi_weights_sink. */
ls_status lsi_out_put(void *file, const void *data, size_t bytes);
/* Onto the disk; `status` is that of writing, and is passed on. The file is closed in any case; on
 * success `hex` has the digest. */
ls_status lsi_out_close(lsi_out_file *file, ls_status status, char hex[LSI_SHA256_HEX]);

/* PATH = FOLDER/NAME. LS_ERR_INVALID when it is too long. */
ls_status lsi_run_path(const char *folder, const char *name, char path[LSI_CHECKPOINT_PATH]);
/* The names in a folder are on the disk when this returns. */
ls_status lsi_folder_sync(const char *folder);
/* Remove a folder with the files in it; what is not there is no error. */
ls_status lsi_folder_remove(const char *folder);
/* The digest and the size of a file. */
ls_status lsi_file_sha256(const char *path, char hex[LSI_SHA256_HEX], uint64_t *bytes);

/* ---- checkpoint_state.c ---- */

extern const char *const lsi_checkpoint_names[LSI_CHECKPOINT_FILES];
/* The digest of the whole state from those of the files, and the step. */
ls_status lsi_state_digest(const lsi_checkpoint *checkpoint, char hex[LSI_SHA256_HEX]);
ls_status lsi_state_write(const char *folder, const lsi_checkpoint *checkpoint);

/* ---- checkpoint_list.c ---- */

/* "step-00001234"; 0 and no step when a name is not of this form. */
int lsi_checkpoint_step(const char *name, uint64_t *step);

/* ---- checkpoint_load.c ---- */

/* The bytes of optimizer.safetensors. */
ls_status lsi_arrays_stream(const lsi_state *state, lsi_weights_sink put, void *arg);

#endif

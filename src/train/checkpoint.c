/* Saving a checkpoint.
 *
 *     .step-N.RANDOM.tmp/ is made -> files written and synced -> folder synced -> renamed to
 *     step-N/ -> checkpoint/ synced -> older ones removed
 *
 * 1. Until the rename nothing but the hidden folder has changed; after an error it is removed.
 * 2. Its name is nobody else's: a worker that was given up and wakes up writes into its own.
 * 3. A checkpoint of the same step (of a run that went on from an older one) is exchanged for the
 *    new one in one system call, where the file system can.
 */
#include "train/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/id.h"
#include "base/log.h"
#include "base/status.h"
#include "train/checkpoint_files.h"

#define WHAT "checkpoint"

/* ---- digests --------------------------------------------------------------------------------- */

static ls_status hash_bytes(void *hash, const void *data, size_t bytes)
{
    return lsi_sha256_update(hash, data, bytes);
}

ls_status lsi_state_sha256(const lsi_state *state, char weights[LSI_SHA256_HEX],
                           char whole[LSI_SHA256_HEX])
{
    lsi_checkpoint c = {.step = state->step};
    lsi_sha256 *hash;
    unsigned char digest[LSI_SHA256_BYTES];
    LSI_TRY(lsi_weights_sha256(&state->weights, c.files[LSI_FILE_MODEL].sha256));
    LSI_TRY(lsi_sha256_create(&hash));
    ls_status status = lsi_arrays_stream(state, hash_bytes, hash);
    if (status == LS_OK)
        status = lsi_sha256_final(hash, digest);
    lsi_sha256_destroy(hash);
    LSI_TRY(status);
    lsi_sha256_hex(digest, c.files[LSI_FILE_OPTIMIZER].sha256);
    LSI_TRY(lsi_state_digest(&c, whole));
    snprintf(weights, LSI_SHA256_HEX, "%s", c.files[LSI_FILE_MODEL].sha256);
    return LS_OK;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static ls_status count_bytes(void *total, const void *data, size_t bytes)
{
    (void)data;
    *(uint64_t *)total += bytes;
    return LS_OK;
}

/* The error of a save, with what a full disk lacks. */
static ls_status explain(const char *run, const lsi_state *state, ls_status status, int code)
{
    char text[LSI_ERROR_MAX], hint[200];
    uint64_t bytes = 0;
    struct statvfs fs;
    if (code != ENOSPC && code != EDQUOT && code != EFBIG)
        return status;
    snprintf(text, sizeof text, "%s", ls_last_error());
    if (lsi_weights_stream(&state->weights, count_bytes, &bytes) != LS_OK ||
        lsi_arrays_stream(state, count_bytes, &bytes) != LS_OK)
        return lsi_fail_text(status, text);
    const int n = snprintf(hint, sizeof hint, "the checkpoint needs %" PRIu64 " bytes", bytes);
    if (statvfs(run, &fs) == 0)
        snprintf(hint + n, sizeof hint - (size_t)n, ", %" PRIu64 " are free",
                 (uint64_t)fs.f_bavail * fs.f_frsize);
    char full[LSI_ERROR_MAX + 300];
    snprintf(full, sizeof full, "%s (%s; older checkpoints are as they were)", text, hint);
    return lsi_fail_text(status, full);
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef ls_status (*stream_fn)(const lsi_state *state, lsi_weights_sink put, void *arg);

static ls_status weights_stream(const lsi_state *state, lsi_weights_sink put, void *arg)
{
    return lsi_weights_stream(&state->weights, put, arg);
}

static ls_status write_files(const char *folder, const lsi_state *state, lsi_checkpoint *c)
{
    static const stream_fn streams[LSI_CHECKPOINT_FILES] = {
        [LSI_FILE_MODEL] = weights_stream, [LSI_FILE_OPTIMIZER] = lsi_arrays_stream};
    for (int i = 0; i < LSI_CHECKPOINT_FILES; i++) {
        lsi_out_file file;
        LSI_TRY(lsi_out_open(folder, lsi_checkpoint_names[i], &file));
        const ls_status status = streams[i](state, lsi_out_put, &file);
        LSI_TRY(lsi_out_close(&file, status, c->files[i].sha256));
        c->files[i].bytes = file.bytes;
    }
    snprintf(c->weights, sizeof c->weights, "%s", c->files[LSI_FILE_MODEL].sha256);
    LSI_TRY(lsi_state_digest(c, c->state));
    LSI_TRY(lsi_state_write(folder, c));
    return lsi_folder_sync(folder);
}

/* Give the hidden folder its name. */
static ls_status publish(const char *hidden, const char *folder)
{
    if (rename(hidden, folder) == 0)
        return LS_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return lsi_fail_errno(WHAT, "%s cannot be named", folder);
    if (renameat2(AT_FDCWD, hidden, AT_FDCWD, folder, RENAME_EXCHANGE) == 0)
        return (void)lsi_folder_remove(hidden), LS_OK; /* the replaced one; pruning tries again */
    LSI_TRY(lsi_folder_remove(folder));
    return rename(hidden, folder) == 0 ? LS_OK : lsi_fail_errno(WHAT, "%s cannot be named", folder);
}

static ls_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return LS_OK;
    return lsi_fail_errno(WHAT, "the folder %s cannot be created", path);
}

static ls_status save(const char *parent, const lsi_state *state, lsi_checkpoint *c)
{
    char id[LSI_ID_BYTES], name[48], hidden[LSI_CHECKPOINT_PATH];
    snprintf(name, sizeof name, "step-%08" PRIu64, state->step);
    LSI_TRY(lsi_run_path(parent, name, c->folder));
    LSI_TRY(lsi_id_make(id));
    snprintf(name, sizeof name, ".step-%08" PRIu64 ".%.8s.tmp", state->step, id);
    LSI_TRY(lsi_run_path(parent, name, hidden));
    LSI_TRY(make_folder(hidden));
    ls_status status = write_files(hidden, state, c);
    if (status == LS_OK)
        status = publish(hidden, c->folder);
    if (status == LS_OK)
        return lsi_folder_sync(parent);
    const int code = errno;
    char text[LSI_ERROR_MAX];
    snprintf(text, sizeof text, "%s", ls_last_error());
    (void)lsi_folder_remove(hidden); /* the first error is the one to tell */
    errno = code;
    return lsi_fail_text(status, text);
}

ls_status lsi_checkpoint_save(const char *run, const lsi_state *state, uint64_t keep,
                              lsi_checkpoint *out)
{
    lsi_checkpoint c = {.step = state->step,
                        .epoch = state->epoch,
                        .seed = state->seed,
                        .loss = state->loss,
                        .eval_loss = state->eval_loss};
    char parent[LSI_CHECKPOINT_PATH];
    snprintf(c.config, sizeof c.config, "%s", state->config);
    LSI_TRY(lsi_run_path(run, "checkpoint", parent));
    LSI_TRY(make_folder(parent));
    LSI_TRY(lsi_folder_sync(run));
    errno = 0;
    const ls_status status = save(parent, state, &c);
    if (status != LS_OK)
        return explain(run, state, status, errno);
    /* The checkpoint is there: that an older one cannot be removed is no reason to stop. */
    if (lsi_checkpoint_prune(run, keep) != LS_OK)
        lsi_log(LSI_LOG_WARN, "%s", ls_last_error());
    if (out)
        *out = c;
    return LS_OK;
}

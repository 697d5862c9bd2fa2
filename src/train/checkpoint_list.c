/* Which checkpoints there are, which are whole, which are kept.
 *
 * 1. The folder itself is the only list: there is no index that could disagree with it.
 * 2. The best is the one with the least eval_loss; it is always kept, so it is the best of all that
 *    were ever saved. Of equals, the oldest.
 * 3. What cannot be read is never removed: somebody may want to look at it.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"
#include "train/checkpoint_files.h"

#define WHAT "checkpoint"

int lsi_checkpoint_step(const char *name, uint64_t *step)
{
    char again[48];
    if (strncmp(name, "step-", 5) != 0)
        return 0;
    const uint64_t value = strtoull(name + 5, NULL, 10);
    snprintf(again, sizeof again, "step-%08" PRIu64, value);
    if (strcmp(name, again) != 0)
        return 0;
    *step = value;
    return 1;
}

static int is_hidden(const char *name)
{
    const size_t length = strlen(name);
    return !strncmp(name, ".step-", 6) && length > 4 && !strcmp(name + length - 4, ".tmp");
}

static int by_step(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Steps of all folders that are named as checkpoints, oldest first; the caller frees *steps. */
static ls_status list_steps(const char *parent, uint64_t **steps, size_t *count)
{
    DIR *d = opendir(parent);
    if (!d && (errno == ENOENT || errno == ENOTDIR))
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, WHAT, "there is no folder %s", parent);
    if (!d)
        return lsi_fail_errno(WHAT, "%s cannot be read", parent);
    uint64_t *list = NULL;
    size_t n = 0, room = 0;
    for (struct dirent *e; (e = readdir(d));) {
        uint64_t step;
        if (!lsi_checkpoint_step(e->d_name, &step))
            continue;
        if (n == room) {
            room = room ? 2 * room : 16;
            uint64_t *more = realloc(list, room * sizeof *more);
            if (!more) {
                free(list);
                closedir(d);
                return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for their list");
            }
            list = more;
        }
        list[n++] = step;
    }
    closedir(d);
    if (n)
        qsort(list, n, sizeof *list, by_step);
    *steps = list;
    *count = n;
    return LS_OK;
}

static ls_status folder_of(const char *parent, uint64_t step, char folder[LSI_CHECKPOINT_PATH])
{
    char name[48];
    snprintf(name, sizeof name, "step-%08" PRIu64, step);
    return lsi_run_path(parent, name, folder);
}

ls_status lsi_checkpoint_list(const char *run, lsi_checkpoint **list, size_t *count)
{
    char parent[LSI_CHECKPOINT_PATH], folder[LSI_CHECKPOINT_PATH];
    uint64_t *steps;
    size_t n, good = 0;
    LSI_TRY(lsi_run_path(run, "checkpoint", parent));
    LSI_TRY(list_steps(parent, &steps, &n));
    lsi_checkpoint *all = calloc(n ? n : 1, sizeof *all);
    for (size_t i = 0; all && i < n; i++) {
        if (folder_of(parent, steps[i], folder) == LS_OK &&
            lsi_checkpoint_open(folder, &all[good]) == LS_OK)
            good++;
    }
    free(steps);
    if (!all)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for their list");
    *list = all;
    *count = good;
    return LS_OK;
}

/* ---- removing -------------------------------------------------------------------------------- */

static ls_status remove_hidden(const char *parent)
{
    DIR *d = opendir(parent);
    char path[LSI_CHECKPOINT_PATH];
    ls_status status = LS_OK;
    for (struct dirent *e; d && status == LS_OK && (e = readdir(d));) {
        if (!is_hidden(e->d_name))
            continue;
        status = lsi_run_path(parent, e->d_name, path);
        if (status == LS_OK)
            status = lsi_folder_remove(path);
    }
    if (d)
        closedir(d);
    return status;
}

/* Out of sight first: a folder that is half removed must not be taken for a checkpoint. */
static ls_status remove_one(const char *parent, const lsi_checkpoint *c)
{
    char name[48], hidden[LSI_CHECKPOINT_PATH];
    snprintf(name, sizeof name, ".step-%08" PRIu64 ".old.tmp", c->step);
    LSI_TRY(lsi_run_path(parent, name, hidden));
    if (rename(c->folder, hidden) != 0)
        return lsi_fail_errno(WHAT, "%s cannot be removed", c->folder);
    return lsi_folder_remove(hidden);
}

ls_status lsi_checkpoint_prune(const char *run, uint64_t keep)
{
    char parent[LSI_CHECKPOINT_PATH];
    lsi_checkpoint *list;
    size_t count, best = SIZE_MAX;
    LSI_TRY(lsi_run_path(run, "checkpoint", parent));
    LSI_TRY(remove_hidden(parent));
    LSI_TRY(lsi_checkpoint_list(run, &list, &count));
    for (size_t i = 0; i < count; i++) {
        if (!isnan(list[i].eval_loss) &&
            (best == SIZE_MAX || list[i].eval_loss < list[best].eval_loss))
            best = i;
    }
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i + keep < count; i++) {
        if (i != best)
            status = remove_one(parent, &list[i]);
    }
    free(list);
    return status;
}

/* ---- finding --------------------------------------------------------------------------------- */

ls_status lsi_checkpoint_verify(const lsi_checkpoint *c)
{
    char path[LSI_CHECKPOINT_PATH], hex[LSI_SHA256_HEX];
    for (int i = 0; i < LSI_CHECKPOINT_FILES; i++) {
        uint64_t bytes;
        LSI_TRY(lsi_run_path(c->folder, lsi_checkpoint_names[i], path));
        LSI_TRY(lsi_file_sha256(path, hex, &bytes));
        if (bytes != c->files[i].bytes)
            return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                            "%s is damaged: it has %" PRIu64 " bytes, not %" PRIu64, path, bytes,
                            c->files[i].bytes);
        if (strcmp(hex, c->files[i].sha256) != 0)
            return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                            "%s is damaged: its SHA-256 is %.16s…, not %.16s…", path, hex,
                            c->files[i].sha256);
    }
    return LS_OK;
}

static ls_status open_whole(const char *folder, lsi_checkpoint *out)
{
    lsi_checkpoint c;
    LSI_TRY(lsi_checkpoint_open(folder, &c));
    LSI_TRY(lsi_checkpoint_verify(&c));
    *out = c;
    return LS_OK;
}

/* The error of the newest one, and what can be done about it: steps[0 .. count) are older. */
static ls_status suggest(const char *parent, const uint64_t *steps, size_t count, ls_status status)
{
    char text[LSI_ERROR_MAX], folder[LSI_CHECKPOINT_PATH];
    char full[LSI_ERROR_MAX + LSI_CHECKPOINT_PATH + 64];
    lsi_checkpoint c;
    snprintf(text, sizeof text, "%s", ls_last_error());
    snprintf(full, sizeof full, "%s (no older checkpoint is whole)", text);
    for (size_t i = count; i-- > 0;) {
        if (folder_of(parent, steps[i], folder) == LS_OK && open_whole(folder, &c) == LS_OK) {
            snprintf(full, sizeof full, "%s (%s is whole: use that instead)", text, folder);
            break;
        }
    }
    return lsi_fail_text(status == LS_ERR_NOT_FOUND ? LS_ERR_CONFIG : status, full);
}

ls_status lsi_checkpoint_find(const char *path, lsi_checkpoint *out)
{
    char parent[LSI_CHECKPOINT_PATH], folder[LSI_CHECKPOINT_PATH];
    uint64_t *steps = NULL;
    size_t count = 0;
    struct stat info;
    LSI_TRY(lsi_run_path(path, LSI_CHECKPOINT_STATE, folder));
    if (stat(folder, &info) == 0)
        return open_whole(path, out);
    LSI_TRY(lsi_run_path(path, "checkpoint", parent));
    LSI_TRY(list_steps(parent, &steps, &count));
    if (!count) {
        free(steps);
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, WHAT, "%s has none yet", parent);
    }
    ls_status status = folder_of(parent, steps[count - 1], folder);
    if (status == LS_OK)
        status = open_whole(folder, out);
    if (status != LS_OK)
        status = suggest(parent, steps, count - 1, status);
    free(steps);
    return status;
}

/* Writing safetensors files.
 *
 * 1. Bytes go to a file of another name in the same folder; only when all are on the disk does it
 *    get its name, by rename(2). A crash leaves the old file, or at most a stray *.tmp.
 * 2. The same calls give the same bytes: tensors in the order given, the header compact and filled
 *    with spaces to a multiple of 8, so that data is aligned.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/safetensors.h"
#include "base/status.h"

#define WHAT "safetensors"

struct lsi_st_writer {
    int fd;
    size_t left; /* bytes of data that have not been given yet */
    char *path, *temporary;
};

/* The entry of a tensor whose data begins at `begin`; NULL when there is no memory. */
static json_t *describe(const lsi_st_tensor *t, size_t begin, size_t end)
{
    json_t *shape = json_array();
    int bad = 0;
    for (int d = 0; d < t->ndim; d++)
        bad |= json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
    if (bad) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", lsi_st_dtype_name(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static ls_status fill_header(json_t *header, const lsi_st_tensor *tensors, size_t count,
                             const char *const *metadata, size_t pairs, size_t *total)
{
    size_t at = 0;
    if (pairs) {
        json_t *texts = json_object();
        int bad = json_object_set_new(header, "__metadata__", texts);
        for (size_t i = 0; i < pairs; i++)
            bad |= json_object_set_new(texts, metadata[2 * i], json_string(metadata[2 * i + 1]));
        if (bad)
            return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "metadata that is not UTF-8");
    }
    for (size_t i = 0; i < count; i++) {
        const lsi_st_tensor *t = &tensors[i];
        size_t elements = 1, end = 0;
        int bad =
            !t->name || !lsi_st_dtype_size(t->dtype) || t->ndim < 0 || t->ndim > LSI_ST_MAX_DIMS;
        for (int d = 0; !bad && d < t->ndim; d++)
            bad |= __builtin_mul_overflow(elements, t->dims[d], &elements);
        bad = bad || __builtin_mul_overflow(elements, lsi_st_dtype_size(t->dtype), &end) ||
              __builtin_add_overflow(end, at, &end) || end > INT64_MAX;
        if (bad)
            return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "tensor '%s' makes no sense",
                            t->name ? t->name : "");
        if (json_object_get(header, t->name) || !strcmp(t->name, "__metadata__"))
            return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "the name '%s' is there twice, or reserved",
                            t->name);
        if (json_object_set_new(header, t->name, describe(t, at, end)))
            return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "the name '%s' is not UTF-8", t->name);
        at = end;
    }
    *total = at;
    return LS_OK;
}

static ls_status write_all(const lsi_st_writer *w, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes) {
        const ssize_t n = write(w->fd, at, bytes < SSIZE_MAX ? bytes : SSIZE_MAX);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return lsi_fail_errno(WHAT, "%s cannot be written", w->temporary);
        at += n;
        bytes -= (size_t)n;
    }
    return LS_OK;
}

/* Length, text and padding. */
static ls_status encode(const json_t *header, void **bytes, size_t *size)
{
    char *text = json_dumps(header, JSON_COMPACT);
    const size_t length = text ? strlen(text) : 0, padded = (length + 7) / 8 * 8;
    unsigned char *out = text ? malloc(8 + padded) : NULL;
    ls_status status = LS_OK;
    if (!out)
        status = lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for the header");
    else if (padded > LSI_ST_MAX_HEADER)
        status = lsi_fail(LS_ERR_INVALID, NULL, WHAT, "too many tensors");
    if (status != LS_OK) {
        free(out);
        free(text);
        return status;
    }
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    memcpy(out + 8, text, length);
    memset(out + 8 + length, ' ', padded - length);
    free(text);
    *bytes = out;
    *size = 8 + padded;
    return LS_OK;
}

ls_status lsi_st_header(const lsi_st_tensor *tensors, size_t count, const char *const *metadata,
                        size_t pairs, void **bytes, size_t *size, size_t *data)
{
    size_t total = 0;
    json_t *header = json_object();
    ls_status status = header ? fill_header(header, tensors, count, metadata, pairs, &total)
                              : lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for the header");
    if (status == LS_OK)
        status = encode(header, bytes, size);
    if (status == LS_OK)
        *data = total;
    json_decref(header);
    return status;
}

/* A file of a name that nobody else has, with the permissions that the user's umask leaves. */
static ls_status create_temporary(lsi_st_writer *w)
{
    const size_t room = strlen(w->path) + 40;
    w->temporary = malloc(room);
    if (!w->temporary)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "%s: no memory", w->path);
    for (unsigned n = 0; n < 1000; n++) {
        snprintf(w->temporary, room, "%s.%ld-%u.tmp", w->path, (long)getpid(), n);
        w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0 || errno != EEXIST)
            break;
    }
    if (w->fd >= 0)
        return LS_OK;
    const ls_status status = lsi_fail_errno(WHAT, "%s cannot be created", w->temporary);
    free(w->temporary); /* somebody else's, or nobody's: not to be removed */
    w->temporary = NULL;
    return status;
}

ls_status lsi_st_create(const char *path, const lsi_st_tensor *tensors, size_t count,
                        const char *const *metadata, size_t pairs, lsi_st_writer **out)
{
    lsi_st_writer *w = calloc(1, sizeof *w);
    void *header = NULL;
    size_t size = 0;
    ls_status status = LS_OK;
    if (w) {
        w->fd = -1;
        w->path = strdup(path);
    }
    if (!w || !w->path)
        status = lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "%s: no memory", path);
    if (status == LS_OK)
        status = lsi_st_header(tensors, count, metadata, pairs, &header, &size, &w->left);
    if (status == LS_OK)
        status = create_temporary(w);
    if (status == LS_OK)
        status = write_all(w, header, size);
    free(header);
    if (status != LS_OK) {
        lsi_st_abandon(w);
        return status;
    }
    *out = w;
    return LS_OK;
}

ls_status lsi_st_append(lsi_st_writer *w, const void *data, size_t bytes)
{
    if (bytes > w->left)
        return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "%s: %zu bytes more than its tensors have",
                        w->path, bytes - w->left);
    LSI_TRY(write_all(w, data, bytes));
    w->left -= bytes;
    return LS_OK;
}

/* The name itself is on the disk when its folder is. */
static ls_status sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (!folder)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "%s: no memory", path);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ls_status status = LS_OK;
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) /* some file systems have no such thing */
        status = lsi_fail_errno(WHAT, "the folder %s cannot be synced", folder);
    if (fd >= 0)
        close(fd);
    free(folder);
    return status;
}

ls_status lsi_st_commit_take(lsi_st_writer *w)
{
    ls_status status = LS_OK;
    if (w->left)
        status = lsi_fail(LS_ERR_INVALID, NULL, WHAT, "%s: %zu bytes of data are missing", w->path,
                          w->left);
    else if (fsync(w->fd) != 0)
        status = lsi_fail_errno(WHAT, "%s cannot be written", w->temporary);
    else if (rename(w->temporary, w->path) != 0)
        status = lsi_fail_errno(WHAT, "%s cannot be replaced", w->path);
    else {
        free(w->temporary); /* it has become the file itself */
        w->temporary = NULL;
        status = sync_folder(w->path);
    }
    lsi_st_abandon(w);
    return status;
}

void lsi_st_abandon(lsi_st_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->temporary)
        unlink(w->temporary);
    free(w->temporary);
    free(w->path);
    free(w);
}

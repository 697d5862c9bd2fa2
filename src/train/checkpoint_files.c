/* Files that are hashed as they are written, and folders.
 *
 * 1. A file counts as written when fsync(2) has returned, a name when that of its folder has.
 */
#include "train/checkpoint_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

#define WHAT "checkpoint"
#define CHUNK ((size_t)1 << 20)

ls_status lsi_run_path(const char *folder, const char *name, char path[LSI_CHECKPOINT_PATH])
{
    const int n = snprintf(path, LSI_CHECKPOINT_PATH, "%s/%s", folder, name);
    if (n < 0 || n >= LSI_CHECKPOINT_PATH)
        return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "the path %.100s…/%s is too long", folder,
                        name);
    return LS_OK;
}

ls_status lsi_out_open(const char *folder, const char *name, lsi_out_file *out)
{
    lsi_out_file f = {.fd = -1};
    LSI_TRY(lsi_run_path(folder, name, f.path));
    LSI_TRY(lsi_sha256_create(&f.hash));
    f.fd = open(f.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f.fd < 0) {
        lsi_sha256_destroy(f.hash);
        return lsi_fail_errno(WHAT, "%s cannot be created", f.path);
    }
    *out = f;
    return LS_OK;
}

/* In pieces that stay in the cache between hashing and writing. */
ls_status lsi_out_put(void *file, const void *data, size_t bytes)
{
    lsi_out_file *f = file;
    const char *at = data;
    while (bytes) {
        const size_t chunk = bytes < CHUNK ? bytes : CHUNK;
        LSI_TRY(lsi_sha256_update(f->hash, at, chunk));
        for (size_t done = 0; done < chunk;) {
            const ssize_t n = write(f->fd, at + done, chunk - done);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                return lsi_fail_errno(WHAT, "%s cannot be written", f->path);
            done += (size_t)n;
        }
        f->bytes += chunk;
        at += chunk;
        bytes -= chunk;
    }
    return LS_OK;
}

ls_status lsi_out_close(lsi_out_file *f, ls_status status, char hex[LSI_SHA256_HEX])
{
    unsigned char digest[LSI_SHA256_BYTES];
    if (status == LS_OK && fsync(f->fd) != 0)
        status = lsi_fail_errno(WHAT, "%s cannot be written", f->path);
    if (status == LS_OK)
        status = lsi_sha256_final(f->hash, digest);
    if (close(f->fd) != 0 && status == LS_OK)
        status = lsi_fail_errno(WHAT, "%s cannot be written", f->path);
    lsi_sha256_destroy(f->hash);
    if (status == LS_OK)
        lsi_sha256_hex(digest, hex);
    return status;
}

ls_status lsi_folder_sync(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ls_status status = LS_OK;
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) /* some file systems have no such thing */
        status = lsi_fail_errno(WHAT, "the folder %s cannot be synced", folder);
    if (fd >= 0)
        close(fd);
    return status;
}

ls_status lsi_folder_remove(const char *folder)
{
    DIR *d = opendir(folder);
    if (!d && errno == ENOENT)
        return LS_OK;
    ls_status status = d ? LS_OK : lsi_fail_errno(WHAT, "%s cannot be removed", folder);
    for (struct dirent *e; d && status == LS_OK && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (unlinkat(dirfd(d), e->d_name, 0) != 0 && errno != ENOENT)
            status = lsi_fail_errno(WHAT, "%s/%s cannot be removed", folder, e->d_name);
    }
    if (d)
        closedir(d);
    if (status == LS_OK && rmdir(folder) != 0 && errno != ENOENT)
        status = lsi_fail_errno(WHAT, "%s cannot be removed", folder);
    return status;
}

static ls_status hash_file(int fd, const char *path, lsi_sha256 *hash, void *chunk, uint64_t *bytes)
{
    for (;;) {
        const ssize_t n = read(fd, chunk, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return lsi_fail_errno(WHAT, "%s cannot be read", path);
        if (n == 0)
            return LS_OK;
        LSI_TRY(lsi_sha256_update(hash, chunk, (size_t)n));
        *bytes += (uint64_t)n;
    }
}

ls_status lsi_file_sha256(const char *path, char hex[LSI_SHA256_HEX], uint64_t *bytes)
{
    unsigned char digest[LSI_SHA256_BYTES];
    lsi_sha256 *hash = NULL;
    uint64_t total = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? lsi_fail(LS_ERR_NOT_FOUND, NULL, WHAT, "%s is missing", path)
                               : lsi_fail_errno(WHAT, "%s cannot be opened", path);
    void *chunk = malloc(CHUNK);
    ls_status status = chunk ? lsi_sha256_create(&hash)
                             : lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "%s: no memory", path);
    if (status == LS_OK)
        status = hash_file(fd, path, hash, chunk, &total);
    if (status == LS_OK)
        status = lsi_sha256_final(hash, digest);
    lsi_sha256_destroy(hash);
    free(chunk);
    close(fd);
    LSI_TRY(status);
    lsi_sha256_hex(digest, hex);
    *bytes = total;
    return LS_OK;
}

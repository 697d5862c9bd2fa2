/* Mapping and unpacking files; the contract is in file.h.
 *
 * 1. Opening never hangs: O_NONBLOCK, so that a pipe without a writer is refused like any other
 *    thing that is no file.
 * 2. A .gz cannot make us allocate more than it can hold: deflate packs at most 1032 to 1.
 */
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/status.h"

#define RATIO_MAX 1032
#define SMALL ((size_t)256 << 20) /* bytes that may be read into the page cache at once */

char *lsi_path_join(const char *folder, const char *name)
{
    const size_t room = strlen(folder) + strlen(name) + 2;
    char *path = malloc(room);
    if (path)
        snprintf(path, room, "%s/%s", folder, name);
    return path;
}

int lsi_path_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int lsi_path_exists(const char *folder, const char *name)
{
    char *path = lsi_path_join(folder, name);
    const int exists = path && access(path, F_OK) == 0;
    free(path);
    return exists;
}

/* Open a regular file that is not empty. */
static ls_status open_file(const char *what, const char *path, int *fd, size_t *size)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, what, "%s: there is no such file", path);
    if (*fd < 0)
        return lsi_fail_errno(what, "cannot open %s", path);
    struct stat info;
    ls_status status = LS_OK;
    if (fstat(*fd, &info) != 0)
        status = lsi_fail_errno(what, "cannot look at %s", path);
    else if (S_ISDIR(info.st_mode))
        status = lsi_fail(LS_ERR_CONFIG, NULL, what, "%s is a folder, not a file", path);
    else if (!S_ISREG(info.st_mode))
        status = lsi_fail(LS_ERR_CONFIG, "copy it to a file first", what,
                          "%s is not a regular file; only these can be mapped", path);
    else if (info.st_size == 0)
        status = lsi_fail(LS_ERR_CONFIG, NULL, what, "%s is empty", path);
    if (status != LS_OK) {
        close(*fd);
        return status;
    }
    *size = (size_t)info.st_size;
    return LS_OK;
}

ls_status lsi_file_map(const char *what, const char *path, lsi_file *file)
{
    int fd;
    size_t size = 0;
    LSI_TRY(open_file(what, path, &fd, &size));
    char *name = strdup(path);
    void *bytes = name ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    const int error = errno;
    close(fd);
    if (bytes == MAP_FAILED) {
        errno = name ? error : ENOMEM;
        free(name);
        return lsi_fail_errno(what, "cannot map %s", path);
    }
    *file = (lsi_file){bytes, size, name, 1};
    return LS_OK;
}

/* What zlib says, without the "<fd:N>: " that it puts before it. */
static const char *words_of(gzFile gz, int *code)
{
    const char *words = gzerror(gz, code);
    const char *colon = *code == Z_ERRNO ? NULL : strstr(words, ">: ");
    return *code == Z_ERRNO ? strerror(errno) : colon ? colon + 3 : words;
}

/* Read exactly `count` bytes of what the file unpacks to; `done` were read before. */
static ls_status inflate_some(const char *what, const char *path, gzFile gz, size_t done,
                              uint8_t *out, size_t count)
{
    for (size_t got = 0; got < count;) {
        const size_t rest = count - got, some = rest < (1u << 30) ? rest : 1u << 30;
        const int n = gzread(gz, out + got, (unsigned)some);
        int code = Z_OK;
        const char *words = words_of(gz, &code);
        if (n < 0 || (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END))
            return lsi_fail(LS_ERR_CONFIG, "fetch the file again", what,
                            "%s is damaged after %zu unpacked bytes: %s", path, done + got, words);
        if (n == 0)
            return lsi_fail(LS_ERR_CONFIG, "fetch the file again", what,
                            "%s ends after %zu unpacked bytes, %zu were expected", path, done + got,
                            done + count);
        got += (size_t)n;
    }
    return LS_OK;
}

/* Nothing may follow, and the check sum that zlib compares at the end must be right. */
static ls_status expect_end(const char *what, const char *path, gzFile gz, size_t size)
{
    uint8_t more;
    const int n = gzread(gz, &more, 1);
    int code = Z_OK;
    const char *words = words_of(gz, &code);
    if (n > 0)
        return lsi_fail(LS_ERR_CONFIG, NULL, what,
                        "%s unpacks to more than the %zu bytes that its header says", path, size);
    if (n < 0 || (code != Z_OK && code != Z_STREAM_END))
        return lsi_fail(LS_ERR_CONFIG, "fetch the file again", what,
                        "%s is damaged after %zu unpacked bytes: %s", path, size, words);
    return LS_OK;
}

ls_status lsi_file_unpack(const char *what, const char *path, size_t head,
                          size_t (*size_of)(const uint8_t *head), lsi_file *file)
{
    int fd;
    size_t packed = 0;
    LSI_TRY(open_file(what, path, &fd, &packed));
    gzFile gz = gzdopen(fd, "rb");
    if (!gz) {
        close(fd);
        return lsi_fail(LS_ERR_NOMEM, NULL, what, "no memory to unpack %s", path);
    }
    gzbuffer(gz, 1 << 17);
    uint8_t *bytes = malloc(head);
    char *name = strdup(path);
    ls_status status = LS_OK;
    if (!bytes || !name)
        status = lsi_fail(LS_ERR_NOMEM, NULL, what, "no memory to unpack %s", path);
    if (status == LS_OK)
        status = inflate_some(what, path, gz, 0, bytes, head);
    size_t size = head;
    if (status == LS_OK) {
        const size_t wanted = size_of(bytes);
        if (wanted / RATIO_MAX > packed)
            status = lsi_fail(LS_ERR_CONFIG, NULL, what,
                              "%s: its header says %zu bytes, more than %zu packed ones can hold",
                              path, wanted, packed);
        size = wanted > head ? wanted : head;
    }
    if (status == LS_OK && size > head) {
        uint8_t *all = realloc(bytes, size);
        bytes = all ? all : bytes;
        status = all ? inflate_some(what, path, gz, head, bytes + head, size - head)
                     : lsi_fail(LS_ERR_NOMEM, NULL, what, "no %zu bytes to unpack %s", size, path);
        if (status == LS_OK)
            status = expect_end(what, path, gz, size);
    }
    gzclose_r(gz);
    if (status != LS_OK) {
        free(bytes);
        free(name);
        return status;
    }
    *file = (lsi_file){bytes, size, name, 0};
    return LS_OK;
}

void lsi_file_close(lsi_file *file)
{
    if (file->mapped)
        munmap((void *)file->bytes, file->size);
    else
        free((void *)file->bytes);
    free(file->path);
    *file = (lsi_file){0};
}

void lsi_file_read_through(const lsi_file *file)
{
    if (file->mapped)
        madvise((void *)file->bytes, file->size, MADV_SEQUENTIAL);
}

/* Samples come in random order: reading ahead of one would fetch others that may be dropped before
 * their turn. A file that surely stays in memory is better fetched as a whole. */
void lsi_file_read_anywhere(const lsi_file *file)
{
    if (!file->mapped)
        return;
    madvise((void *)file->bytes, file->size, file->size <= SMALL ? MADV_NORMAL : MADV_RANDOM);
    if (file->size <= SMALL)
        madvise((void *)file->bytes, file->size, MADV_WILLNEED);
}

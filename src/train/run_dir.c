/* Run directories: making, locking, writing whole files, the log. */
#include "train/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"

#define WHAT "run directory"
#define LOCK ".lock"
#define NEW_LOCK ".lock.new"
#define STATUS ".status" /* launch/status.h: of a run that was killed */
#define LOG "log.txt"
#define CONFIG "config.ini"
#define METRICS "metrics.jsonl"
#define EVENTS "events.out.tfevents."
#define LINE_BYTES 2048
#define LOCK_TEXT (LSI_RUN_ID + 64)
#define LOCK_TRIES 100 /* for the lock of a process that has just died */
#define LOCK_PAUSE_US 20000
#define LOCK_PATIENCE 25 /* tries, before it is taken from another process of the same run */

struct lsi_run_dir {
    char path[PATH_MAX];
    int folder, lock, log;
    int is_locked;
    int is_new, is_made; /* by us, for a run that has still to begin; the folder too */
};

/* mkdir for each part of the path that is not there. */
static ls_status make_folders(const char *path)
{
    char part[PATH_MAX];
    const size_t length = strlen(path);
    if (!length || length >= sizeof part)
        return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "its path has %zu bytes, expected 1 to %d",
                        length, PATH_MAX - 1);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i])
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return lsi_fail_errno(WHAT, "%s cannot be made", part);
    }
    return LS_OK;
}

static int has(const lsi_run_dir *d, const char *name)
{
    struct stat info;
    return fstatat(d->folder, name, &info, 0) == 0;
}

/* The first thing in it that is not of a run that ended before it began. "": nothing. */
static ls_status first_name(const lsi_run_dir *d, char name[NAME_MAX + 1])
{
    const int fd = openat(d->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (!folder) {
        const ls_status status = lsi_fail_errno(WHAT, "%s cannot be read", d->path);
        if (fd >= 0)
            close(fd);
        return status;
    }
    name[0] = 0;
    for (struct dirent *e; !name[0] && (e = readdir(folder));) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, LOCK) != 0 && strcmp(e->d_name, NEW_LOCK) != 0 &&
            strcmp(e->d_name, LOG) != 0 && strcmp(e->d_name, STATUS) != 0)
            snprintf(name, NAME_MAX + 1, "%s", e->d_name);
    }
    closedir(folder);
    return LS_OK;
}

static ls_status open_folder(const char *path, lsi_run_dir **out)
{
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        return lsi_fail(LS_ERR_CONFLICT, "give a folder", WHAT, "%s is not a folder", path);
    lsi_run_dir *d = calloc(1, sizeof *d);
    if (!d)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory");
    d->lock = d->log = -1;
    snprintf(d->path, sizeof d->path, "%s", path);
    d->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->folder < 0) {
        const ls_status status =
            errno == ENOENT ? lsi_fail(LS_ERR_NOT_FOUND, NULL, WHAT, "there is no %s", path)
                            : lsi_fail_errno(WHAT, "%s cannot be opened", path);
        lsi_run_dir_close(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

/* What the lock says of its owner: "PROCESS RUN GENERATION". */
static void read_lock(const lsi_run_dir *d, char who[LOCK_TEXT])
{
    const ssize_t n = pread(d->lock, who, LOCK_TEXT - 1, 0);
    who[n > 0 ? n : 0] = 0;
    who[strcspn(who, "\n")] = 0;
}

ls_status lsi_run_dir_sign(lsi_run_dir *d, const char *run, uint64_t generation)
{
    char who[LOCK_TEXT];
    const int n = snprintf(who, sizeof who, "%ld %.*s %llu\n", (long)getpid(), LSI_RUN_ID - 1, run,
                           (unsigned long long)generation);
    if (pwrite(d->lock, who, (size_t)n, 0) != n || ftruncate(d->lock, n) != 0)
        return lsi_fail_errno(WHAT, "%s/" LOCK " cannot be written", d->path);
    return LS_OK;
}

static ls_status own_lock(lsi_run_dir *d, const char *run, uint64_t generation)
{
    d->is_locked = 1;
    LSI_TRY(lsi_run_dir_sign(d, run, generation));
    d->log = openat(d->folder, LOG, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (d->log < 0)
        return lsi_fail_errno(WHAT, "%s/" LOG " cannot be written", d->path);
    return LS_OK;
}

/* Is the file that we have open still the lock? It may have been replaced meanwhile. */
static int is_the_lock(const lsi_run_dir *d)
{
    struct stat ours, there;
    return fstat(d->lock, &ours) == 0 && fstatat(d->folder, LOCK, &there, 0) == 0 &&
           ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

/* Take the lock, and tell who has it otherwise. Shows, too, whether the folder can be written. */
static ls_status take_lock(lsi_run_dir *d, const char *run, uint64_t generation)
{
    char who[LOCK_TEXT];
    d->lock = openat(d->folder, LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (d->lock < 0)
        return lsi_fail_errno(WHAT, "%s cannot be written to", d->path);
    const int failed = flock(d->lock, LOCK_EX | LOCK_NB);
    if (failed && errno != EWOULDBLOCK)
        return lsi_fail_errno(WHAT, "%s/" LOCK " cannot be locked", d->path);
    if (!failed && is_the_lock(d))
        return own_lock(d, run, generation);
    read_lock(d, who);
    who[strcspn(who, " ")] = 0;
    return lsi_fail(LS_ERR_CONFLICT, "wait for it, or choose another folder", WHAT,
                    "another run writes to %s%s%s", d->path, who[0] ? ", process " : "", who);
}

/* A process of an earlier generation of the same run has the lock, and does not let go of it: it is
 * stopped, or was cut off, and the run has gone on without it. What it still writes goes to files
 * that are replaced (metrics.h), or that are the same whoever writes them. */
static int is_left_behind(const lsi_run_dir *d, const char *run, uint64_t generation)
{
    char who[LOCK_TEXT];
    read_lock(d, who);
    const char *theirs = strchr(who, ' '), *since = theirs ? strchr(theirs + 1, ' ') : NULL;
    const size_t length = since ? (size_t)(since - theirs - 1) : 0;
    return length && strlen(run) == length && strncmp(theirs + 1, run, length) == 0 &&
           strtoull(since, NULL, 10) < generation;
}

static ls_status replace_lock(lsi_run_dir *d, const char *run, uint64_t generation)
{
    close(d->lock);
    d->lock = openat(d->folder, NEW_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (d->lock < 0 || flock(d->lock, LOCK_EX | LOCK_NB) != 0 ||
        renameat(d->folder, NEW_LOCK, d->folder, LOCK) != 0)
        return lsi_fail_errno(WHAT, "%s/" LOCK " cannot be replaced", d->path);
    return own_lock(d, run, generation);
}

static ls_status check_empty(const lsi_run_dir *d)
{
    char name[NAME_MAX + 1];
    if (has(d, CONFIG)) {
        char hint[PATH_MAX + 64];
        snprintf(hint, sizeof hint, "--resume %s goes on with it", d->path);
        return lsi_fail(LS_ERR_CONFLICT, hint, WHAT, "%s holds a run already", d->path);
    }
    LSI_TRY(first_name(d, name));
    if (name[0])
        return lsi_fail(LS_ERR_CONFLICT, "choose a folder that is empty, or a new one", WHAT,
                        "%s is no run and not empty: it has %s", d->path, name);
    return LS_OK;
}

ls_status lsi_run_dir_create(const char *path, lsi_run_dir **out)
{
    struct stat info;
    lsi_run_dir *d;
    const int make = stat(path, &info) != 0;
    if (make)
        LSI_TRY(make_folders(path));
    LSI_TRY(open_folder(path, &d));
    d->is_made = make;
    ls_status status = check_empty(d);
    if (status == LS_OK)
        status = take_lock(d, "", 0);
    if (status == LS_OK)
        status = check_empty(d); /* once more: somebody may have been quicker */
    d->is_new = status == LS_OK;
    if (status != LS_OK) {
        lsi_run_dir_close(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

ls_status lsi_run_dir_open(const char *path, lsi_run_dir **out)
{
    lsi_run_dir *d;
    LSI_TRY(open_folder(path, &d));
    ls_status status = has(d, CONFIG)
                           ? take_lock(d, "", 0)
                           : lsi_fail(LS_ERR_NOT_FOUND, "give the folder that --out named", WHAT,
                                      "%s holds no run: it has no " CONFIG, path);
    if (status != LS_OK) {
        lsi_run_dir_close(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

ls_status lsi_run_dir_take(const char *path, const char *run, uint64_t generation,
                           lsi_run_dir **out)
{
    lsi_run_dir *d;
    ls_status status;
    LSI_TRY(make_folders(path));
    LSI_TRY(open_folder(path, &d));
    for (int left = LOCK_TRIES;; left--) {
        status = take_lock(d, run, generation);
        if (status == LS_ERR_CONFLICT && left <= LOCK_TRIES - LOCK_PATIENCE &&
            is_left_behind(d, run, generation))
            status = replace_lock(d, run, generation);
        if (status != LS_ERR_CONFLICT || left == 0)
            break;
        close(d->lock);
        d->lock = -1;
        usleep(LOCK_PAUSE_US);
    }
    if (status != LS_OK) {
        lsi_run_dir_close(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

/* Is this file of ours? All but a log were made by us; that was perhaps there, but is not empty
 * then: what is written to it comes after the beginning. */
static int is_ours(const lsi_run_dir *d, const char *name)
{
    struct stat info;
    if (!strcmp(name, LOG))
        return fstatat(d->folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_size == 0;
    return !strcmp(name, LOCK) || !strcmp(name, STATUS) || !strcmp(name, METRICS) ||
           !strncmp(name, EVENTS, strlen(EVENTS));
}

/* Leave nothing of a run that has not begun. */
static void undo(const lsi_run_dir *d)
{
    const int fd = openat(d->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (d->is_locked && is_ours(d, e->d_name))
            (void)unlinkat(d->folder, e->d_name, 0);
    }
    if (folder)
        closedir(folder);
    else if (fd >= 0)
        close(fd);
    if (d->is_made)
        (void)rmdir(d->path);
}

void lsi_run_dir_close(lsi_run_dir *d)
{
    if (!d)
        return;
    if ((d->is_new || d->is_made) && !has(d, CONFIG))
        undo(d);
    if (d->log >= 0)
        close(d->log);
    if (d->lock >= 0)
        close(d->lock);
    if (d->folder >= 0)
        close(d->folder);
    free(d);
}

const char *lsi_run_dir_path(const lsi_run_dir *d)
{
    return d->path;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int write_all(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        const ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        text += n;
        bytes -= (size_t)n;
    }
    return 0;
}

ls_status lsi_run_dir_write(lsi_run_dir *d, const char *name, const char *text)
{
    char temporary[NAME_MAX + 1];
    snprintf(temporary, sizeof temporary, ".%s.tmp", name);
    const int fd = openat(d->folder, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return lsi_fail_errno(WHAT, "%s/%s cannot be created", d->path, temporary);
    ls_status status = LS_OK;
    if (write_all(fd, text, strlen(text)) != 0 || fsync(fd) != 0)
        status = lsi_fail_errno(WHAT, "%s/%s cannot be written", d->path, name);
    if (close(fd) != 0 && status == LS_OK)
        status = lsi_fail_errno(WHAT, "%s/%s cannot be written", d->path, name);
    if (status == LS_OK && renameat(d->folder, temporary, d->folder, name) != 0)
        status = lsi_fail_errno(WHAT, "%s/%s cannot be replaced", d->path, name);
    if (status != LS_OK)
        unlinkat(d->folder, temporary, 0);
    else if (fsync(d->folder) != 0 && errno != EINVAL) /* some file systems have no such thing */
        status = lsi_fail_errno(WHAT, "%s cannot be synced", d->path);
    return status;
}

void lsi_run_dir_log(lsi_run_dir *d, const char *format, ...)
{
    const int saved = errno;
    char line[LINE_BYTES];
    struct tm parts;
    const time_t now = time(NULL);
    size_t used = strftime(line, sizeof line, "%Y-%m-%d %H:%M:%S ", localtime_r(&now, &parts));
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    used += n > 0 ? (size_t)n : 0;
    used = used > sizeof line - 2 ? sizeof line - 2 : used;
    line[used++] = '\n';
    (void)write_all(d->log, line, used);
    errno = saved;
}

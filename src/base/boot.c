/* The boot record: writing it by the launcher, reading it by a rank.
 *
 * Invariants:
 * 1. The file is sealed before anyone else sees it: a record that reads well stays as it is.
 * 2. A rank believes nothing: every number is checked against its bounds and every text is
 *    terminated before lsi_boot_read succeeds.
 * 3. The record is read once. After that nothing in the rank, nor what it starts, can find the key
 *    but in the caller's copy.
 */
#include "base/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/memfile.h"
#include "base/status.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

static const char what_write[] = "cannot write the boot record";
static const char what_read[] = "cannot read the boot record";

ls_status lsi_boot_write(const lsi_boot *boot, int *fd)
{
    int file = lsi_memfile_create("lockstep-boot", 0);
    if (file < 0)
        return lsi_fail_errno(what_write, "a memory file");

    ls_status status = LS_OK;
    ssize_t n = pwrite(file, boot, sizeof *boot, 0);
    if (n < 0)
        status = lsi_fail_errno(what_write, "pwrite");
    else if (n != (ssize_t)sizeof *boot)
        status = lsi_fail(LS_ERR_SYSTEM, NULL, what_write, "only %zd bytes were taken", n);
    else if (fcntl(file, F_ADD_SEALS, SEALS) != 0)
        status = lsi_fail_errno(what_write, "sealing");
    if (status != LS_OK) {
        close(file);
        return status;
    }
    *fd = file;
    return LS_OK;
}

const char *lsi_boot_fault(const lsi_boot *boot)
{
    if (boot->magic != LSI_BOOT_MAGIC)
        return "it is not a boot record";
    if (boot->version != LSI_BOOT_VERSION)
        return "it has another version";
    if (boot->size < 1 || boot->size > LSI_MAX_RANKS || boot->rank < 0 || boot->rank >= boot->size)
        return "rank and size make no sense";
    if (boot->hosts < 1 || boot->hosts > LSI_MAX_HOSTS || boot->host < 0 ||
        boot->host >= boot->hosts)
        return "host and hosts make no sense";

    int32_t sum = 0, first = 0;
    for (int32_t h = 0; h < boot->hosts; h++) {
        if (boot->host_size[h] < 1 || boot->host_size[h] > LSI_MAX_RANKS)
            return "a host has no ranks, or too many";
        if (h == boot->host)
            first = sum;
        sum += boot->host_size[h];
    }
    if (sum != boot->size)
        return "the hosts' ranks do not add up";
    if (boot->rank < first || boot->rank >= first + boot->host_size[boot->host])
        return "the rank belongs to another host";
    if (!memchr(boot->store, 0, sizeof boot->store) || !memchr(boot->bind, 0, sizeof boot->bind))
        return "an address has no end";
    if (boot->slots < 0 || boot->slots > LSI_MAX_RANKS || boot->slot < 0 ||
        (boot->slots && boot->slot >= boot->slots))
        return "slot and slots make no sense";
    return NULL;
}

static ls_status malformed(const char *detail)
{
    return lsi_fail(LS_ERR_CONFIG,
                    "start the program with `lockstep run`, or unset " LSI_BOOT_ENV
                    " to run it alone",
                    what_read, "%s", detail);
}

ls_status lsi_boot_read(lsi_boot *boot)
{
    long fd = -1;
    LSI_TRY(lsi_env_int(LSI_BOOT_ENV, 0, INT_MAX, &fd));
    if (fd < 0)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, what_read, LSI_BOOT_ENV " is not set");

    lsi_boot record;
    struct stat info;
    int seals = fcntl((int)fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return malformed("the descriptor of " LSI_BOOT_ENV " is not a sealed memory file");
    if (fstat((int)fd, &info) != 0 || info.st_size != (off_t)sizeof record ||
        pread((int)fd, &record, sizeof record, 0) != (ssize_t)sizeof record)
        return malformed("it has another size");
    const char *fault = lsi_boot_fault(&record);
    if (fault)
        return malformed(fault);
    int flags = fcntl(record.segment_fd, F_GETFD);
    if (flags < 0 || fcntl(record.segment_fd, F_SETFD, flags | FD_CLOEXEC) != 0)
        return malformed("a descriptor that it names is not open");
    close((int)fd);
    unsetenv(LSI_BOOT_ENV);
    *boot = record;
    explicit_bzero(&record, sizeof record);
    return LS_OK;
}

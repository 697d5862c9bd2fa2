/* The boot record: how the launcher tells a rank who it is.
 *
 * A sealed memory file, inherited as the descriptor that LOCKSTEP_BOOT_FD names; the run's key
 * travels in it and never through argv or the environment.
 */
#ifndef LSI_BASE_BOOT_H
#define LSI_BASE_BOOT_H

#include <stdint.h>

#include "base/auth.h"
#include "base/host.h"
#include "base/net.h"
#include <lockstep/status.h>

#define LSI_BOOT_ENV "LOCKSTEP_BOOT_FD"
#define LSI_BOOT_MAGIC 0x544f4f42u
#define LSI_BOOT_VERSION 2u

typedef struct lsi_boot {
    uint32_t magic, version;
    int32_t rank, size;
    int32_t host, hosts;
    int32_t host_size[LSI_MAX_HOSTS]; /* ranks per host; host h's ranks follow host h-1's */
    int32_t segment_fd;               /* the host block, inherited too */
    char store[LSI_ADDR_MAX];         /* "ADDRESS:PORT" of the store */
    char bind[LSI_ADDR_MAX];          /* address (no port) on which this rank's tcp listens */
    /* Elastic runs (gate.h), else zeros: which group of the run this is, from 1; the place of the
     * worker among those that its launcher has, which it keeps through all of them. */
    int32_t slot, slots;
    uint64_t generation;
    lsi_key key;
} lsi_boot;

/* Make a sealed, inheritable memory file with the record. */
ls_status lsi_boot_write(const lsi_boot *boot, int *fd);
/* Read the record named by the environment: LS_ERR_NOT_FOUND when there is none, LS_ERR_CONFIG
 * when it is malformed. Once it is read its descriptor, which leads to the key, is closed and the
 * variable unset: neither the program's own children nor a second call find it. The segment's
 * descriptor is the caller's, and close-on-exec. */
ls_status lsi_boot_read(lsi_boot *boot);
/* The first thing wrong with a record, NULL when it is sound. */
const char *lsi_boot_fault(const lsi_boot *boot);

#endif

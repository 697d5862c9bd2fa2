/* Groups of processes: joining, splitting, shared memory.
 *
 * A program started by `lockstep run -n N -- PROGRAM` calls ls_init and gets the communicator of
 * all N ranks; without a launcher it gets a group of one, so that the same program runs alone.
 *
 * Threads: a communicator and everything made from it belong to one thread at a time.
 */
#ifndef LOCKSTEP_COMM_H
#define LOCKSTEP_COMM_H

#include <stddef.h>

#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_comm ls_comm;

/* Start with LS_CONFIG_INIT; zero or NULL means the environment's value, then the default. */
typedef struct ls_config {
    size_t size;           /* sizeof(ls_config), set by LS_CONFIG_INIT */
    const char *transport; /* "auto", "shm" or "tcp": LOCKSTEP_TRANSPORT, "auto" */
    double timeout_s;      /* deadline of blocking calls: LOCKSTEP_TIMEOUT, 30 */
    double warn_after_s;   /* a word on stderr about whom we wait for: LOCKSTEP_WARN_AFTER, 3 */
} ls_config;
#define LS_CONFIG_INIT                                                                             \
    {                                                                                              \
        sizeof(ls_config), NULL, 0, 0                                                              \
    }

/* Join the group this process was started in, or make a group of one. `config` may be NULL.
 * Blocks until all ranks have joined or the deadline passes. The caller owns *world and ends it
 * with ls_finalize. One group at a time: a second ls_init is LS_ERR_INVALID while the first is
 * open, and under a launcher also after ls_finalize or a failed attempt: the place in the group is
 * gone. */
LS_API ls_status ls_init(const ls_config *config, ls_comm **world);

/* Leave: frees the communicator, its requests, and all ls_alloc memory of this rank. Waits for
 * the other ranks (up to the deadline) unless the group has failed. Accepts NULL. */
LS_API void ls_finalize(ls_comm *world);

LS_API int ls_comm_rank(const ls_comm *comm);
LS_API int ls_comm_size(const ls_comm *comm);
/* Ranks of the communicator that share this host's memory, and this rank's place among them. */
LS_API int ls_comm_local_rank(const ls_comm *comm);
LS_API int ls_comm_local_size(const ls_comm *comm);

/* Collective: ranks with the same `color` (>= 0) form a new communicator, ordered by (key, rank).
 * A negative color takes part and gets *out = NULL. The caller destroys *out before the parent.
 * Blocks. */
LS_API ls_status ls_comm_split(ls_comm *comm, int color, int key, ls_comm **out);

/* Local: frees a communicator made by ls_comm_split; its requests must be complete. Accepts NULL.
 */
LS_API void ls_comm_destroy(ls_comm *comm);

/* Which algorithm serves which size, as text: "hd", or ranges of bytes such as
 * "0-4k:tree,4k-inf:ring"; "auto" restores the tuned defaults. `collective` is a name such as
 * "allreduce". Must be the same on every rank. Local. LS_ERR_CONFIG lists what is offered. */
LS_API ls_status ls_comm_select(ls_comm *comm, const char *collective, const char *rules);
/* The rules in force, printed into text[bytes]. LS_ERR_INVALID for an unknown collective. */
LS_API ls_status ls_comm_selection(const ls_comm *comm, const char *collective, char *text,
                                   size_t bytes);

/* Memory in the host's shared segment, 64-byte aligned (2 MiB when larger than that), zeroed.
 * Collectives on it never stage or copy. In large pages where the system has them; that memory is
 * taken at once, other when it is touched. Local, waits for nobody. Freed with ls_free, or by
 * ls_finalize. No collective that uses the memory may be under way when it is freed. */
LS_API ls_status ls_alloc(ls_comm *comm, size_t bytes, void **out);
LS_API void ls_free(ls_comm *comm, void *memory);

#ifdef __cplusplus
}
#endif
#endif

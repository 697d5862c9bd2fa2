/* The guard: a tiny process that cleans up when the launcher itself is killed.
 *
 * The kernel kills the ranks of a launcher that dies (PR_SET_PDEATHSIG), but not the processes
 * that the ranks started. When the launcher ends without saying goodbye, the guard kills the ranks'
 * process groups, then whoever has the run's mark in its environment, and ends.
 */
#ifndef LSI_LAUNCH_GUARD_H
#define LSI_LAUNCH_GUARD_H

#include <sys/types.h>

#include "base/id.h"
#include <lockstep/status.h>

#define LSI_GUARD_ENV "LOCKSTEP_RUN_ID" /* the mark: ranks have it, and pass it on */

typedef struct lsi_guard {
    pid_t pid;
    int fd;
    char id[LSI_ID_BYTES]; /* value of the mark, random; no secret */
} lsi_guard;

/* Fork the guard. It holds no descriptor of the launcher's, and has left the launcher's process
 * group when this returns: a signal to that group spares it. */
ls_status lsi_guard_start(lsi_guard *guard);
/* Kill process group `group` too, should it come to that; or not any more. Never block. A forked
 * child may add itself. */
void lsi_guard_add(const lsi_guard *guard, pid_t group);
void lsi_guard_forget(const lsi_guard *guard, pid_t group);
/* Somebody killed the guard, and it was collected: go on without. */
void lsi_guard_is_gone(lsi_guard *guard);
/* All is well: end the guard and wait until it has ended. Also before lsi_guard_start. */
void lsi_guard_stop(lsi_guard *guard);

#endif

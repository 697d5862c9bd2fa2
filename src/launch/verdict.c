/* What the end of a rank means: for the group (a death?) and for the exit status.
 *
 * Invariants:
 * 1. Nothing that happens after ls_finalize is a death: the group does not need that rank.
 * 2. A rank that never joined and exits with 0 is no death: programs need not use the library.
 * 3. A rank that has joined and did not leave is dead, whatever its exit status says.
 */
#include "launch/verdict.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* The statuses of shells: 127 no such program, 126 there is one that cannot be executed. */
static int exec_status(int code)
{
    return code == ENOENT || code == ENOTDIR ? 127 : 126;
}

static const char *when(uint32_t state)
{
    switch (state) {
    case LSI_RANK_JOINED: return " before ls_finalize";
    case LSI_RANK_LEFT: return " after ls_finalize";
    default: return "";
    }
}

void lsi_verdict_judge(int wait_status, uint32_t state, int exec_errno, const char *program,
                       lsi_verdict *out)
{
    lsi_verdict v = {.failed = 1, .dead = state != LSI_RANK_LEFT};
    if (exec_errno) {
        v.status = exec_status(exec_errno);
        snprintf(v.cause, sizeof v.cause, "cannot run '%.120s': %s", program, strerror(exec_errno));
    } else if (WIFSIGNALED(wait_status)) {
        int number = WTERMSIG(wait_status);
        const char *name = sigabbrev_np(number);
        v.status = 128 + number;
        if (name)
            snprintf(v.cause, sizeof v.cause, "killed by signal %d (SIG%s)%s", number, name,
                     state == LSI_RANK_LEFT ? when(state) : "");
        else
            snprintf(v.cause, sizeof v.cause, "killed by signal %d", number);
    } else if (WEXITSTATUS(wait_status) != 0) {
        v.status = WEXITSTATUS(wait_status);
        snprintf(v.cause, sizeof v.cause, "exited with status %d%s", v.status, when(state));
    } else if (state == LSI_RANK_JOINED) {
        v.status = 1;
        snprintf(v.cause, sizeof v.cause, "exited without ls_finalize");
    } else {
        v.failed = 0;
        v.dead = 0;
    }
    *out = v;
}

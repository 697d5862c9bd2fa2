/* What the end of a rank means. */
#ifndef LSI_LAUNCH_VERDICT_H
#define LSI_LAUNCH_VERDICT_H

#include <stdint.h>

#include "base/host.h"

typedef struct lsi_verdict {
    int failed; /* it counts for the exit status of the run */
    int dead;   /* it counts as a death for the group */
    int status; /* of the run, should this be the first failure; never 0 when failed */
    char cause[LSI_HOST_CAUSE_MAX];
} lsi_verdict;

/* Judge a rank by its wait status (as waitpid gives it) and the state it had reached in the host
 * block. `exec_errno` is not 0 when `program` could not be executed. Pure. */
void lsi_verdict_judge(int wait_status, uint32_t state, int exec_errno, const char *program,
                       lsi_verdict *out);

#endif

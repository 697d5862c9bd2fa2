/* The beginning of a generation: one and the same state in every domain.
 *
 * A domain whose members have changed finishes what was left half done (recover.c); one that has
 * missed steps, or has just come, gets the state from all those who have it, each a part.
 */
#ifndef LSI_PARALLEL_HANDOVER_H
#define LSI_PARALLEL_HANDOVER_H

#include "parallel/replica.h"

/* Bring this domain's vault up to date. Collective over all workers; by r's vault. *steps are done
 * then; *filled is 0 when nobody has a state yet, and nothing was done. */
ls_status lsi_handover(lsi_replica *r, int *filled, uint64_t *steps);

#endif

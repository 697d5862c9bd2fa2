/* Places to die at: writes of this process to its vault. */
#ifndef TEST_PARALLEL_CREW_PLACES_H
#define TEST_PARALLEL_CREW_PLACES_H

#include "parallel/vault.h"

/* From now on writes are counted, and the one of number `place` (-1: none) is not survived. `slot`:
 * whose; undo_at: where in it what can be undone is kept. -1: of all slots, wherever in them. */
void crew_places_arm(lsi_vault *vault, int slot, size_t undo_at, int place);
/* How many were counted. */
int crew_places_disarm(void);

#endif

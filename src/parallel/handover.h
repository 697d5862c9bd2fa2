/* The beginning of a generation: one and the same state in every domain.
 *
 * A domain whose members have changed finishes what was left half done (recover.c); one that has
 * missed steps, or has just come, gets the state from all those who have it, each a part.
 *
 * Nobody waits for all of it. State changes at the end of a step only, so it is sent while the
 * first step is computed, which begins when the weights are there: for those who send them, too, as
 * the step ends with those who lack them. What the optimizer keeps comes after them, driven by
 * looks between two nodes of the graph. Before the update of that step it is complete, on both
 * sides. Lazy rows (optim/lazy.c) change before that, so a model that has any waits for everything.
 */
#ifndef LSI_PARALLEL_HANDOVER_H
#define LSI_PARALLEL_HANDOVER_H

#include "parallel/replica.h"

/* Who has the state, who lacks it? *steps are done; statistics and figures are there, weights and
 * the rest come with the first step or before. *filled is 0 when nobody has a state yet. Collective
 * over all workers; by r's vault. LS_ERR_INVALID: those who had one are gone. */
ls_status lsi_handover(lsi_replica *r, int *filled, uint64_t *steps);
/* A step begins: the weights are there, and were sent. Collective over all workers. */
ls_status lsi_handover_weights(lsi_replica *r);
/* Drive what is on its way. Does not block; an error comes out in finish. */
void lsi_handover_look(lsi_replica *r);
/* All of it has arrived, and was sent. Collective over the leaders; nothing happens on others, whom
 * they are to meet then. */
ls_status lsi_handover_finish(lsi_replica *r);
/* The replica is closed, whatever was on its way. */
void lsi_handover_close(lsi_replica *r);

#endif

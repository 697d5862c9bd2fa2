/* Do all domains have the same state? They should, to the bit: memory, processors and networks fail
 * without a word, and a host whose weights have changed would spoil the work of all. */
#ifndef LSI_PARALLEL_COMPARE_H
#define LSI_PARALLEL_COMPARE_H

#include "parallel/replica.h"

typedef struct lsi_comparison {
    int differ;      /* domains that do not have the state of most; 0: all is well */
    int undecided;   /* no state is that of more than half: nobody knows who is right */
    int domain;      /* the first that differs */
    int first, last; /* its workers */
} lsi_comparison;

/* Hash the state of every domain, each member a part of it, and compare. `rows`: sparse parameters
 * too; they are to be settled then. Collective, blocks. */
ls_status lsi_compare(lsi_replica *r, int rows, lsi_comparison *out);
/* Those that differ get the state of the others. Collective, after a comparison that decided. */
ls_status lsi_repair(lsi_replica *r);

#endif

/* What follows from what the hosts say: the rules of the council, without a store. */
#ifndef LSI_LAUNCH_DECIDE_H
#define LSI_LAUNCH_DECIDE_H

#include "launch/council.h"

typedef enum lsi_decision {
    LSI_DECIDE_NOTHING,
    LSI_DECIDE_CHANGE, /* ask the workers of this generation to the gate */
    LSI_DECIDE_STOP,   /* ask for the end: everybody was asked to go */
    LSI_DECIDE_FORM,   /* the next generation is *out */
    LSI_DECIDE_WAIT,   /* nobody is inside, and the next one cannot be formed: *why */
    LSI_DECIDE_LOOK,   /* likewise, for want of a quorum: there may be one elsewhere */
    LSI_DECIDE_END     /* nor will it ever: *why */
} lsi_decision;

/* `waited`: seconds since this has been so. *why is a text of LSI_HOST_CAUSE_MAX. Pure. */
lsi_decision lsi_decide(const lsi_council *c, double waited, lsi_table *out, char *why);

/* Workers that wait while the latest generation runs, and would fit into it. Pure. */
int lsi_decide_spare(const lsi_council *c);

/* Is there a host that stays and keeps the state as well as any? Else those who were asked to go
 * are still needed: to hand it over or, when nobody stays, to save it. Pure. */
int lsi_decide_has_heir(const lsi_council *c);

#endif

/* Waiting for a request. */
#ifndef LSI_COLL_WAIT_H
#define LSI_COLL_WAIT_H

#include "coll/comm.h"

typedef struct lsi_wait {
    double start, deadline; /* lsi_now() seconds; deadline < 0: the world's, from now */
    double ask_at, warn_at;
    unsigned looks, yields; /* since something of the request was done */
    int asked, warned;
} lsi_wait;

/* Between two looks at a request that is not done: look again soon, or later. May find that it is
 * done, or that its communicator has failed; at the deadline it makes it fail, and returns that. */
ls_status lsi_wait_pause(ls_request *r, lsi_wait *wait);

/* request.c: the request has come to its end. */
void lsi_request_finish(ls_request *r, ls_status status);

#endif

/* Collectives of one host on its board. */
#ifndef LSI_COLL_BOARD_OPS_H
#define LSI_COLL_BOARD_OPS_H

#include "coll/comm.h"

#define LSI_CMA_CHUNK ((size_t)128 << 10) /* foreign memory is read in pieces of this size */

/* What the slots say, once all have entered: equal on every member, as all read the same. */
typedef struct lsi_survey {
    int stable;  /* every input that is read stands in a slot or box */
    int parted;  /* and it is an all-reduce of so much that each member sums a part of it */
    int foreign; /* a buffer that others read or write lies in private memory */
    int able;    /* everybody may read and write its peers' memory */
    int alone;   /* an all-reduce of private memory, and nobody has another operation under way */
    int staged;  /* then: it goes through rooms */
} lsi_survey;

/* Announce operation `seq` on the board. */
void lsi_board_post(ls_comm *comm, const lsi_call *c, uint64_t seq);
lsi_survey lsi_board_survey(ls_comm *comm, const lsi_call *c, uint64_t seq);
/* The short way for a blocking all-reduce of few bytes: no request is made. LS_IN_PROGRESS: it is
 * posted as *seq and a request has to go on from *phase (of lsi_board_step). LS_ERR_UNSUPPORTED:
 * it is not for this way, and nothing was done. */
ls_status lsi_board_quick(ls_comm *comm, const lsi_call *c, uint64_t *seq, int *phase);
/* Shorter still, for two ranks and from the bare arguments: all that fits a slot, or a box of
 * LSI_BOARD_SMALL bytes. Returns likewise (phase 0). */
ls_status lsi_board_tiny(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                         ls_op op, uint64_t *seq);
/* Have all local members entered? LS_OK, LS_IN_PROGRESS, or LS_ERR_MISMATCH (all are told). */
ls_status lsi_board_entered(ls_request *r);
/* Have all local members reached `phase`? r->seen counts them; it starts at 0 for each phase. */
int lsi_board_all(ls_request *r, lsi_phase phase);
/* Of those whom this operation waits for, is one where we are ourselves? It cannot go on before we
 * let it. Only in a crowd, and while the operation waits for the board. */
int lsi_board_awaits_neighbour(const ls_request *r);
/* Announce a phase of our own. */
void lsi_board_publish(ls_request *r, lsi_phase phase);
/* Steps: direct on the board; or entry on the board, then the schedule. */
ls_status lsi_board_step(ls_request *r);
ls_status lsi_board_then_schedule(ls_request *r);

/* We are about to work in the others' buffers; 0: no, somebody has given up, and we shall hear of
 * it. lsi_board_end_work says that we have done so, before the phase that announces it. */
int lsi_board_begin_work(ls_comm *comm, uint64_t seq);
void lsi_board_end_work(ls_comm *comm, uint64_t seq);
/* After an abort: wait until nobody works in our buffers any more. Somebody who is stopped in the
 * middle is waited for a second. */
void lsi_board_settle(ls_comm *comm);

/* The work itself, once everybody has entered (board_reduce.c, board_move.c). `stable`: all inputs
 * stand in slots or boxes, so nobody's buffers are touched by others. */
ls_status lsi_board_reduce(ls_request *r, int stable);
ls_status lsi_board_move(ls_request *r);
/* The reduction of stable inputs into our own buffer. */
void lsi_board_reduce_stable(ls_comm *comm, const lsi_call *c, uint64_t seq);
/* Our part of it, into our own buffer and box; and, once all have said so, everybody else's. */
void lsi_board_reduce_part(ls_comm *comm, const lsi_call *c, uint64_t seq);
void lsi_board_fetch_parts(ls_comm *comm, const lsi_call *c, uint64_t seq);
/* Our segment of an all-reduce whose buffers all lie in the segment. */
void lsi_board_reduce_shared(ls_comm *comm, const lsi_call *c, uint64_t seq);
/* Elements of a member's share of `count`: whole cache lines. The last ones may have less. */
size_t lsi_board_segment(const ls_comm *comm, size_t count, size_t element);
/* Announce a phase of operation `seq`. */
void lsi_board_announce(ls_comm *comm, uint64_t seq, lsi_phase phase);

/* Where member i's input can be read, or NULL if only by lsi_board_read. */
const char *lsi_board_input(const ls_comm *comm, const lsi_call *c, uint64_t seq, int i);
/* Copy from the input (or result) buffer of local member i, wherever it lies. */
ls_status lsi_board_read(ls_request *r, int i, size_t offset, void *to, size_t bytes);
ls_status lsi_board_write(ls_request *r, int i, size_t offset, const void *from, size_t bytes);
/* Bytes that this operation's contributor brings (0 where a rank brings nothing). */
size_t lsi_board_contribution(const ls_comm *comm, const lsi_call *call);

/* board_stage.c: private memory through rooms. What an entry says of it (LSI_SLOT_…). */
uint32_t lsi_board_stage_flags(ls_comm *comm, const lsi_call *c, uint64_t seq);
/* An all-reduce of private memory begins, one way or the other; an operation, maybe such a one, has
 * ended. */
void lsi_board_stage_begin(ls_request *r, int staged);
void lsi_board_stage_told(ls_request *r);
/* A step of it: LS_OK, LS_IN_PROGRESS. */
ls_status lsi_board_stage(ls_request *r);
/* Has this member brought, or summed, what our part of the turn needs? */
int lsi_board_stage_has(const ls_request *r, int member);

/* schedule_build.c: append the steps of the call over messages. */
ls_status lsi_build_schedule(ls_request *r);
/* two_level.c */
int lsi_two_level_serves(const ls_comm *comm, const lsi_call *call);
ls_status lsi_two_level_start(ls_request *r);
ls_status lsi_two_level_step(ls_request *r);
/* Does this two-level operation wait for other hosts now? */
int lsi_two_level_between(const ls_request *r);

#endif

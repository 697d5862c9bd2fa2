/* Communicators, requests, and the world they live in.
 *
 * A world is one rank's view of its group: the host segment, the port, the timing rules. It has
 * no global state, so that several ranks can live as threads of one process (as the tests do).
 *
 * Invariants:
 * 1. Operation numbers of a communicator count from 1 in the order of the calls, on every rank.
 * 2. A communicator that has failed stays failed: `failed` and `failure` are the first cause, and
 *    every request on it completes with them.
 * 3. A request is in the world's active list exactly while its status is LS_IN_PROGRESS and it
 *    is not being run by its own blocking call.
 */
#ifndef LSI_COLL_COMM_H
#define LSI_COLL_COMM_H

#include "base/boot.h"
#include "base/heap.h"
#include "base/host.h"
#include "base/status.h"
#include "coll/board.h"
#include "coll/call.h"
#include "coll/schedule.h"
#include "coll/select.h"
#include "transport/port.h"
#include <lockstep/coll.h>
#include <lockstep/comm.h>

#define LSI_HISTORY 64
#define LSI_DESCRIBE_MAX 160
#define LSI_IDLE "idle"
#define LSI_INTERFACES_MAX 96

typedef struct lsi_world {
    int rank, size;
    lsi_host host;
    int own_host; /* unmap it at the end */
    int first_local, local_rank, local_size;
    int hosts;
    int *host_of;   /* [size] */
    lsi_port *port; /* NULL in a group of one */
    lsi_heap *heap;
    double timeout_s, warn_after_s;
    int spins;                           /* looks before yielding: few when ranks outnumber cores */
    int crowded;                         /* they do, and nobody has set `spins` */
    int core;                            /* in a crowd: where we run, as the others know it */
    int use_boards;                      /* 0 when a transport other than shm is forced */
    char interfaces[LSI_INTERFACES_MAX]; /* by which peers are reached: "eth0, eth1", or "" */
    int can_read; /* this process may read and write its peers' memory (CMA) */
    uint32_t epoch_seen;
    uint32_t next_id; /* of communicators */
    lsi_selection selection;
    struct ls_comm *comms;
    struct ls_request *active, *free;
    struct ls_request *requests; /* all that were made, by made_before */
    struct lsi_retired *retired; /* boards of destroyed communicators, until all have left */
    void *cma_scratch;           /* for reading foreign memory, LSI_CMA_CHUNK a local rank */
} lsi_world;

/* Ranks [first, end) of a communicator that share a host. */
typedef struct lsi_span {
    int first, end;
} lsi_span;

struct ls_comm {
    lsi_world *world;
    ls_comm *next;
    uint32_t id;
    int rank, size;
    int *ranks;  /* world rank of each member */
    int *locals; /* members on this host, ascending */
    int local_rank, local_size;
    int n_spans; /* hosts, in rank order; 0 when hosts interleave (no two-level then) */
    lsi_span *spans;
    int span; /* this rank's */
    int has_board, one_host;
    size_t pair_bytes;  /* two ranks of one host: all-reduces of fewer bytes are `direct`, boxed */
    lsi_board board;    /* of the local members */
    void *board_memory; /* in our heap, when we allocated it */
    uint64_t seq;       /* last operation started */
    uint64_t oldest;    /* first operation that is not complete here */
    uint64_t done_bits; /* of operations oldest.. */
    lsi_wire_call history[LSI_HISTORY];
    int messages;          /* sends and receives under way */
    lsi_wire_call message; /* the last one of them */
    uint64_t *entered;     /* [size] highest operation each member is known to have entered */
    uint8_t *heard;        /* [size] it has answered since we asked: wait.c */
    ls_status failed;
    char failure[LSI_ERROR_MAX];
    lsi_selection selection;
};

/* Where a two-level operation keeps its vectors, all in the segment. */
typedef struct lsi_two_level {
    const char *input;               /* what the host's ranks read of us */
    char *lists[LSI_TREE_MAX_NODES]; /* leader: the host's node list; [0] is the result */
    int n_lists;
    const lsi_tree_plan *plan; /* local inputs to lists */
} lsi_two_level;

/* How far an all-reduce of private memory is: board_stage.c. */
typedef struct lsi_staging {
    size_t turn;
    int part, way;
    double began;
} lsi_staging;

struct ls_request {
    ls_request *next, *made_before;
    ls_comm *comm;
    lsi_call call;
    uint64_t seq; /* 0 for send and recv */
    ls_status status;
    /* LS_IN_PROGRESS, LS_OK, or an error that has been recorded. */
    ls_status (*step)(ls_request *request);
    int phase, seen; /* of the board operations */
    unsigned moves;  /* grows when something of it has been done */
    lsi_staging stage;
    int active; /* in the world's list */
    lsi_schedule schedule;
    size_t *counts; /* room for the v variants: 2 * counts_room */
    size_t counts_room;
    lsi_xfer xfer; /* send and recv */
    char *shared;  /* two-level: memory in the segment, grown on demand */
    size_t shared_bytes;
    lsi_two_level two_level;
};

/* A failure of the whole communicator: tell the members, end its requests. Returns the status. */
ls_status lsi_comm_fail(ls_comm *comm, ls_status status, const char *text);
/* The failure as the calling thread's last error. */
ls_status lsi_comm_failed(const ls_comm *comm);
/* The operation that this rank is inside of, LSI_IDLE when there is none; may use `text`. */
const char *lsi_comm_doing(const ls_comm *comm, char *text, size_t bytes);
/* A failure noticed between two operations names none: let it name `what`, or the one we are in. */
void lsi_comm_name_failure(ls_comm *comm, const lsi_wire_call *what);
/* Member number of a world rank, or -1. */
int lsi_comm_member(const ls_comm *comm, int world_rank);
ls_comm *lsi_world_comm(lsi_world *world, uint32_t id);
/* Build a communicator over `ranks` (copied). `board` is shared memory for the members on this
 * host, or NULL when there is to be none. */
ls_status lsi_comm_create(lsi_world *world, uint32_t id, const int *ranks, int size, void *board,
                          ls_comm **out);
void lsi_comm_free(ls_comm *comm);
/* Forget the boards that wait for their last user: the world ends. */
void lsi_retired_free(lsi_world *world);
/* Look for deaths and failures announced by others; cheap when nothing is new. */
void lsi_world_look(lsi_world *world);

/* Join the group of this boot record; its segment_fd is taken over. As ls_init in all else, and as
 * often as there are groups, one after the other. */
ls_status lsi_init_from(const ls_config *config, const lsi_boot *boot, ls_comm **world);

/* What lsi_world_open needs to know. */
typedef struct lsi_world_config {
    int rank, size;
    const int *host_size; /* ranks on each host, in order */
    int hosts, host;
    const lsi_host *segment;
    int own_segment;
    lsi_link **links; /* [size * lanes], taken over; NULL in a group of one */
    int lanes;
    const char *interfaces; /* of the connections, NULL: none */
    int use_boards;
    double timeout_s, warn_after_s;
} lsi_world_config;

/* Make the world and its communicator 0. Links that it takes over become NULL in the array; on
 * failure the others, and the segment, are still the caller's. */
ls_status lsi_world_open(const lsi_world_config *config, ls_comm **world);
void lsi_world_close(lsi_world *world);
/* The environment's LOCKSTEP_TIMEOUT and so on over the defaults, under `config`'s values. */
ls_status lsi_world_settings(const ls_config *config, double *timeout_s, double *warn_after_s,
                             const char **transport);
/* Links among the ranks of one host through its segment: fills links[peer * lanes]. */
ls_status lsi_world_shm_links(const lsi_host *host, int rank, int lanes, lsi_link **links);

/* request.c */
ls_status lsi_start(ls_comm *comm, const lsi_call *call, ls_request **out);
/* Start, run to the end, free. */
ls_status lsi_run(ls_comm *comm, const lsi_call *call);
/* As lsi_run for an operation that the short way has posted as `seq` and brought to `phase`. */
ls_status lsi_run_posted(ls_comm *comm, const lsi_call *call, uint64_t seq, int phase);
/* How its ranks reach each other. */
lsi_reach lsi_comm_reach(const ls_comm *comm);
/* Note what follows from the selection, after it has changed. */
void lsi_comm_selected(ls_comm *comm);
void lsi_requests_free(lsi_world *world);
/* The barrier of ls_finalize (api.c). */
ls_status lsi_leave(ls_comm *comm);
/* Wake the host's ranks that sleep: something was published. */
static inline void lsi_world_ring(lsi_world *w)
{
    for (int i = 0; i < w->local_size; i++) {
        lsi_host_rank *r = &w->host.block->ranks[w->first_local + i];
        if (atomic_load_explicit(&r->asleep, memory_order_relaxed))
            lsi_host_ring(w->host.block, w->first_local + i);
    }
}

#endif

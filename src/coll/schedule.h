/* Schedules: a collective written down as steps with dependencies, then run without blocking.
 *
 * An algorithm over messages is a function that appends steps (send, recv, copy, merge); the
 * executor starts each step as soon as what it depends on is done. So an algorithm reads like its
 * paper, is asynchronous for free, and pipelines by its dependencies alone.
 *
 * Invariants:
 * 1. A step depends only on earlier steps: a contiguous range [after_from, after_to) and one more.
 * 2. Steps are appended before the first progress call and never move after it.
 * 3. The memory of a schedule is kept by its request and reused: a repeated operation does not
 *    allocate.
 */
#ifndef LSI_COLL_SCHEDULE_H
#define LSI_COLL_SCHEDULE_H

#include "base/arena.h"
#include "coll/call.h"
#include "coll/tree_order.h"
#include "transport/port.h"

/* Large vectors are pipelined in chunks, `window` of them under way: one large one inside a host,
 * where it should stay in the cache, many between hosts, where they fill the line. With its header
 * a chunk is just within so many segments of TCP on loopback (65483 bytes each): a small rest in
 * one more would cost as much as a full one. All-reduces over TCP by two members take, with two
 * chunks of 4, 8 and 16 segments, 310, 280 and 230 us of 1 MiB, 28, 24.5 and 24.5 ms of 100 MiB,
 * with one of 16 segments 230 us and 23.6 ms (Zen 4). More members have more under way and switch
 * more often: with two of 8 segments and one of 16, eight of them take 4.4 and 3.9 ms of 1 MiB,
 * four 27 and 24 ms of 25 MiB (2 cores of a Zen 3); one of 32 segments is too much for the cache.
 */
#define LSI_CHUNK_SEGMENT ((size_t)65456)
#define LSI_CHUNK_HOST (16 * LSI_CHUNK_SEGMENT)
#define LSI_CHUNK_LINE (4 * LSI_CHUNK_SEGMENT)
#define LSI_CHUNK_WINDOW_HOST 1
#define LSI_CHUNK_WINDOW_MAX 16

typedef enum lsi_step_kind {
    LSI_STEP_SEND,
    LSI_STEP_RECV,
    LSI_STEP_COPY,  /* memcpy */
    LSI_STEP_MERGE, /* tree-ordered reduction by a plan */
    LSI_STEP_NONE   /* a point to depend on */
} lsi_step_kind;

enum { LSI_STEP_WAITING, LSI_STEP_STARTED, LSI_STEP_DONE };

typedef struct lsi_step {
    uint8_t kind, state;
    int peer; /* member */
    uint32_t tag;
    int after_from, after_to, after_also; /* -1: none */
    void *dst;
    const void *src;
    size_t bytes; /* MERGE: elements */
    const lsi_tree_plan *plan;
    const void **in;
    void **out;
    lsi_xfer xfer;
} lsi_step;

typedef struct lsi_schedule {
    lsi_step *steps;
    int n, room;
    int first;     /* all steps before are done */
    int in_host;   /* all members are on one host */
    int window;    /* chunks under way, */
    size_t chunk;  /* of about so many bytes */
    int backwards; /* the last chunk first: it may still be in the cache */
    ls_dtype dtype;
    ls_op op;
    lsi_arena *arena; /* plans, pointer lists, scratch buffers */
    ls_status broken; /* out of memory while appending */
} lsi_schedule;

struct ls_comm;
struct ls_request;

/* Ready for a new operation; keeps the memory. `in_host`: all members are on one host. */
void lsi_schedule_reset(lsi_schedule *s, ls_dtype dtype, ls_op op, int in_host);
void lsi_schedule_free(lsi_schedule *s);

/* Append; each returns the step's number (or -1 after a failure, noted in `broken`). `after` is
 * the step it waits for, -1 for none. */
int lsi_add_send(lsi_schedule *s, int peer, uint32_t tag, const void *data, size_t bytes,
                 int after);
int lsi_add_recv(lsi_schedule *s, int peer, uint32_t tag, void *data, size_t bytes, int after);
int lsi_add_copy(lsi_schedule *s, void *dst, const void *src, size_t bytes, int after);
int lsi_add_none(lsi_schedule *s, int after);
/* Merge node lists: `in` and `out` are data pointers (copied), `count` in elements. */
int lsi_add_merge(lsi_schedule *s, const lsi_tree_plan *plan, const void *const *in,
                  void *const *out, size_t count, int after);
/* dst = left op right, element-wise. */
int lsi_add_reduce(lsi_schedule *s, void *dst, const void *left, const void *right, size_t count,
                   int after);
/* More dependencies of the last step appended: all of [from, to). */
void lsi_after_range(lsi_schedule *s, int from, int to);
void lsi_after_also(lsi_schedule *s, int step);
/* Memory that lives as long as the operation; NULL (and broken) when there is none. */
void *lsi_schedule_alloc(lsi_schedule *s, size_t bytes);
/* A plan that merges `in` (copied into the schedule); *n_out and out may be NULL. */
const lsi_tree_plan *lsi_schedule_plan(lsi_schedule *s, int leaves, const lsi_tree_node *in,
                                       int n_in, lsi_tree_node *out, int *n_out);

/* Drive: LS_IN_PROGRESS, LS_OK, or an error (a peer was lost). */
ls_status lsi_schedule_progress(struct ls_request *request);

#endif

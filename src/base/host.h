/* The host block: what the launcher and the ranks of one host share.
 *
 * The launcher creates one anonymous memory file (memfd: it has no name, so nothing is left
 * behind however its users die) and every local rank maps it whole. Layout:
 *
 *     block      lsi_host_block: who is here, who died, why the group failed
 *     comm       slots of the world communicator            (LSI_HOST_COMM_BYTES a local rank)
 *     pairs      one byte ring for each ordered pair         (LSI_HOST_PAIR_BYTES a pair)
 *     heaps      ls_alloc memory, one heap a local rank      (sparse: paid for when touched)
 *
 * Invariants:
 * 1. Offsets are the same in every process; addresses are not. Only offsets are stored.
 * 2. A rank's state only moves forward: absent, joined, then left or dead.
 * 3. `epoch` grows with every death or failure; waiting loops compare it and then look closer.
 * 4. A sleeper sets `asleep`, looks once more, then waits on `doorbell`; whoever publishes
 *    something rings those who are asleep.
 */
#ifndef LSI_BASE_HOST_H
#define LSI_BASE_HOST_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#define LSI_HOST_MAGIC 0x4b4c5354534f4831u
#define LSI_HOST_VERSION 5u
#define LSI_MAX_RANKS 256
#define LSI_MAX_HOSTS 64
#define LSI_HOST_COMM_BYTES ((size_t)8 << 20)
#define LSI_HOST_PAIR_BYTES ((size_t)(256 + 4) << 10)
#define LSI_HOST_CAUSE_MAX 240
#define LSI_HOST_DOING_MAX 100

typedef enum lsi_rank_state {
    LSI_RANK_ABSENT = 0,
    LSI_RANK_JOINED, /* ls_init has mapped the segment */
    LSI_RANK_LEFT,   /* ls_finalize */
    LSI_RANK_DEAD
} lsi_rank_state;

/* One a world rank; only those of this host have a doorbell in use. */
typedef struct lsi_host_rank {
    _Alignas(128) _Atomic uint32_t state; /* lsi_rank_state */
    _Atomic int32_t pid;
    _Atomic uint32_t claimed;       /* somebody is writing the cause: lsi_host_mark_dead */
    char cause[LSI_HOST_CAUSE_MAX]; /* written before state = DEAD: "killed by signal 9" */
    uint32_t order;                 /* of deaths, likewise: who died first has the smallest */
    _Alignas(64) _Atomic uint32_t asleep;
    _Atomic uint32_t doorbell; /* futex word */
    _Atomic int32_t core;      /* where it ran when it last posted, in a crowd */
    /* Signs of life: life.h. */
    _Alignas(64) _Atomic uint64_t beat;
    _Atomic uint64_t step;
    _Atomic uint32_t patient;
    char doing[LSI_HOST_DOING_MAX];
} lsi_host_rank;

/* What the launcher of an elastic run wishes of its workers, as bits. */
enum {
    LSI_WISH_CHANGE = 1, /* leave this generation after the step */
    LSI_WISH_STOP = 2    /* end the run after the step, in order */
};

typedef struct lsi_host_block {
    uint64_t magic;
    uint32_t version;
    uint32_t size;       /* ranks of the world */
    uint32_t first_rank; /* world rank of local rank 0: a host's ranks are contiguous */
    uint32_t local_size;
    int32_t launcher;    /* pid of the creator, whose descendants the ranks are */
    int32_t cores;       /* that the creator may use, and so the ranks together */
    uint64_t heap_bytes; /* of one local rank */
    _Alignas(64) _Atomic uint32_t epoch;
    _Atomic uint32_t wish;    /* LSI_WISH_… */
    _Atomic uint32_t waiting; /* workers that a change would add */
    lsi_host_rank ranks[LSI_MAX_RANKS];
} lsi_host_block;

/* A mapped segment. `fd` stays open while it is mapped. */
typedef struct lsi_host {
    int fd;
    size_t bytes;
    lsi_host_block *block;
    char *base; /* == (char *)block */
    size_t comm_offset, pair_offset, heap_offset;
} lsi_host;

/* Create the segment of a host with ranks [first_rank, first_rank + local_size) of `size`. The
 * heap of a rank is LOCKSTEP_HEAP bytes, default all of the machine's memory (sparse). */
ls_status lsi_host_create(int size, int first_rank, int local_size, lsi_host *out);
/* Map an inherited segment; checks magic, version and size. Takes over `fd` on success. */
ls_status lsi_host_map(int fd, lsi_host *out);
void lsi_host_unmap(lsi_host *host);

static inline char *lsi_host_heap(const lsi_host *host, int local_rank)
{
    return host->base + host->heap_offset + (size_t)local_rank * host->block->heap_bytes;
}

/* Nobody but this rank will read its heap: memory of its own, in large pages where the system has
 * them, which it often has not for shared memory. Before the heap is used. Best effort. */
void lsi_host_heap_alone(const lsi_host *host, int local_rank);

static inline char *lsi_host_pair(const lsi_host *host, int local_from, int local_to)
{
    size_t n = host->block->local_size;
    return host->base + host->pair_offset +
           ((size_t)local_from * n + (size_t)local_to) * LSI_HOST_PAIR_BYTES;
}

/* Record that world rank `rank` died, and wake every sleeper of the host. The first cause wins.
 * Called by the launcher (and by a rank that loses its connection to a remote one). */
void lsi_host_mark_dead(lsi_host_block *block, int rank, const char *cause);
/* Of `count` world ranks the one that died first, as its place in `ranks`; -1: all are alive. What
 * came later may be a consequence. */
int lsi_host_first_dead(const lsi_host_block *block, const int *ranks, int count);
/* Wake every local rank that is asleep. */
void lsi_host_ring_all(lsi_host_block *block);
/* Wake one (world) rank if it is asleep. */
void lsi_host_ring(lsi_host_block *block, int rank);

#endif

/* What a rank called: the description that ranks compare, and the buffers that they do not. */
#ifndef LSI_COLL_CALL_H
#define LSI_COLL_CALL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "transport/wire.h"
#include <lockstep/types.h>

typedef enum lsi_coll {
    LSI_ALLREDUCE,
    LSI_REDUCE,
    LSI_REDUCE_SCATTER,
    LSI_ALLGATHER,
    LSI_ALLGATHERV,
    LSI_BROADCAST,
    LSI_GATHER,
    LSI_SCATTER,
    LSI_ALLTOALL,
    LSI_ALLTOALLV,
    LSI_BARRIER,
    LSI_P2P, /* send and recv: not collective, matched by tag */
    LSI_COLL_COUNT
} lsi_coll;

typedef enum lsi_algorithm {
    LSI_DIRECT,
    LSI_HD,
    LSI_RING,
    LSI_TREE,
    LSI_ALGORITHM_COUNT
} lsi_algorithm;

struct lsi_shards;

typedef struct lsi_call {
    lsi_wire_call what; /* collective, dtype, op, algorithm, root, count: equal on all ranks */
    lsi_coll coll;
    lsi_algorithm algorithm;
    ls_dtype dtype;
    ls_op op;
    int root, tag;         /* P2P: root is the peer */
    int sending;           /* P2P: which side */
    size_t count, element; /* element: bytes of one */
    const void *send;      /* never LS_IN_PROGRESS: resolved to the place of the input */
    void *recv;
    int in_place;
    const size_t *send_counts, *recv_counts; /* the v variants; owned by the request */
    const struct lsi_shards *shards;         /* an all-reduce over shards (shards.h), else NULL */
} lsi_call;

extern const char *const lsi_coll_names[LSI_COLL_COUNT];
extern const char *const lsi_algorithm_names[LSI_ALGORITHM_COUNT];

/* "allreduce(sum f32, 1000 elements)" and the like, for errors. Values from the network are
 * printed safely. Returns `text`. */
const char *lsi_call_describe(const lsi_wire_call *what, char *text, size_t bytes);
/* Two calls that must be equal: are they? */
int lsi_call_agrees(const lsi_wire_call *a, const lsi_wire_call *b);
/* A short hash of `what`, for the shared-memory board. */
uint32_t lsi_call_signature(const lsi_wire_call *what);

/* The same for who is in a hurry, with `what` in two words: whoever reads in one go what was just
 * written in parts waits until the parts have left for the cache. */
static inline uint64_t lsi_call_head(lsi_coll coll, ls_dtype dtype, ls_op op, lsi_algorithm by)
{
    const uint8_t bytes[8] = {(uint8_t)coll, (uint8_t)dtype, (uint8_t)op, (uint8_t)by};
    uint64_t head; /* root: 0 */
    memcpy(&head, bytes, sizeof head);
    return head;
}

static inline uint32_t lsi_call_hash(uint64_t head, uint64_t count)
{
    const uint64_t h = (head ^ (count * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32) | 1u;
}

static inline void lsi_call_put(lsi_wire_call *what, uint64_t head, uint64_t count)
{
    memcpy(what, &head, sizeof head);
    what->count = count;
}

#endif

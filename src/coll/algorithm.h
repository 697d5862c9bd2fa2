/* The algorithms over messages: each appends the steps of one collective to a schedule.
 *
 * The participants are a team: the ranks of a communicator (flat), or its hosts, each played by
 * its first rank (two-level). Member m stands for the leaves [first, end) of the summation tree
 * and brings the values of the node list of those leaves (tree_order.h): a single vector for a
 * rank, one or more for a host whose ranks do not form a whole subtree.
 *
 * `direct`, `hd` and `tree` add in the order of the tree, so their results are equal bit for bit
 * for any team over the same leaves. `ring` adds in an order of its own: deterministic for a given
 * team, not across teams.
 *
 * Cost, for n members, b bytes, latency a, time per byte t (reduction aside):
 *     direct   2 a (all messages at once, 2(n-1) of them)      2 b t (n-1)/n
 *     hd       2 a log2 n                                      2 b t (n-1)/n   (n a power of two)
 *     ring     2 a (n-1)                                       2 b t (n-1)/n
 *     tree     2 a log2 n                                      b t log2 n      (pipelined)
 * Where members share processors, messages and changes of process count instead, for each part:
 *     direct   2 n (n-1)      hd   2 n log2 n      ring   2 n (n-1)      tree   4 (n-1)
 */
#ifndef LSI_COLL_ALGORITHM_H
#define LSI_COLL_ALGORITHM_H

#include "coll/comm.h"

typedef struct lsi_team {
    int n, self;
    int leaves;            /* of the whole tree */
    const lsi_span *spans; /* [n] leaves of each member; NULL: member m is leaf m */
    int by_number;         /* leaves are no ranks: member m is rank m */
} lsi_team;

static inline lsi_span lsi_team_span(const lsi_team *t, int m)
{
    return t->spans ? t->spans[m] : (lsi_span){m, m + 1};
}

/* The rank (of the communicator) that plays member m. */
static inline int lsi_team_rank(const lsi_team *t, int m)
{
    return t->by_number ? m : lsi_team_span(t, m).first;
}

/* A reduction over a team. */
typedef struct lsi_reduction {
    const lsi_team *team;
    const void *const *mine; /* values of our node list */
    int n_mine;
    void *work; /* room for the vector; holds the result where there is one. May be mine[0]. */
    size_t count, element;
    int root; /* member that gets the result, -1: all */
} lsi_reduction;

typedef void (*lsi_reduce_algorithm)(lsi_schedule *s, const lsi_reduction *r);
void lsi_direct_reduce(lsi_schedule *s, const lsi_reduction *r);
void lsi_hd_reduce(lsi_schedule *s, const lsi_reduction *r);
void lsi_ring_reduce(lsi_schedule *s, const lsi_reduction *r);
void lsi_tree_reduce(lsi_schedule *s, const lsi_reduction *r);
/* By algorithm number. */
extern const lsi_reduce_algorithm lsi_reduce_algorithms[LSI_ALGORITHM_COUNT];

/* The root's buffer to all members. */
void lsi_direct_broadcast(lsi_schedule *s, const lsi_team *t, void *data, size_t bytes, int root);
void lsi_ring_broadcast(lsi_schedule *s, const lsi_team *t, void *data, size_t bytes, int root);
void lsi_tree_broadcast(lsi_schedule *s, const lsi_team *t, void *data, size_t bytes, int root);
void lsi_add_broadcast(lsi_schedule *s, lsi_algorithm algorithm, const lsi_team *t, void *data,
                       size_t bytes, int root);

/* Flat teams only: the other collectives of a communicator. */
void lsi_direct_reduce_scatter(lsi_schedule *s, const ls_comm *comm, const lsi_call *call);
void lsi_ring_reduce_scatter(lsi_schedule *s, const ls_comm *comm, const lsi_call *call);
void lsi_direct_allgather(lsi_schedule *s, const ls_comm *comm, const lsi_call *call);
void lsi_ring_allgather(lsi_schedule *s, const ls_comm *comm, const lsi_call *call);
void lsi_direct_gather(lsi_schedule *s, const ls_comm *comm, const lsi_call *call);
void lsi_direct_scatter(lsi_schedule *s, const ls_comm *comm, const lsi_call *call);
void lsi_direct_alltoall(lsi_schedule *s, const ls_comm *comm, const lsi_call *call);
/* Dissemination: log2 n rounds. */
void lsi_add_barrier(lsi_schedule *s, const lsi_team *t);

/* Tags: which message of the operation. `part` < 2^14, `node` < 2^5, `phase` < 2^4, `of` < 2^9. */
static inline uint32_t lsi_tag(int phase, int node, int of, int part)
{
    return (uint32_t)phase << 28 | (uint32_t)node << 23 | (uint32_t)of << 14 | (uint32_t)part;
}
#define LSI_MAX_PARTS (1 << 14)

/* Cut `count` elements into parts of about s->chunk * scale bytes: how many (at least 1). */
int lsi_parts(const lsi_schedule *s, size_t count, size_t element, size_t scale);
/* The same, of what each of n members sends to each; sets s->chunk. */
int lsi_parts_all_to_all(lsi_schedule *s, int n, size_t count, size_t element);
/* Part p of `parts` over [0, count): boundaries are multiples of 16 elements. */
void lsi_part(size_t count, int parts, int p, size_t *from, size_t *to);

static inline const void *lsi_at(const void *p, size_t index, size_t element)
{
    return (const char *)p + index * element;
}

static inline void *lsi_at_mut(void *p, size_t index, size_t element)
{
    return (char *)p + index * element;
}

#endif

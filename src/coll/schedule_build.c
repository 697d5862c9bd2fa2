/* From a call to its schedule over messages: which algorithm, over which team. */
#include <string.h>

#include "coll/algorithm.h"
#include "coll/board_ops.h"

/* Every rank of the communicator for itself. */
static void flat_reduction(ls_request *r, int root)
{
    const lsi_call *c = &r->call;
    lsi_schedule *s = &r->schedule;
    lsi_team team = {r->comm->size, r->comm->rank, r->comm->size, NULL, 0};
    void *work = c->recv;
    if (root >= 0 && root != r->comm->rank) /* our own buffer is not to be touched */
        work = lsi_schedule_alloc(s, c->count * c->element);
    lsi_reduction reduction = {&team, &c->send, 1, work, c->count, c->element, root};
    if (work || !c->count)
        lsi_reduce_algorithms[c->algorithm](s, &reduction);
}

ls_status lsi_build_schedule(ls_request *r)
{
    const lsi_call *c = &r->call;
    const ls_comm *comm = r->comm;
    lsi_schedule *s = &r->schedule;
    lsi_team team = {comm->size, comm->rank, comm->size, NULL, 0};
    int ring = c->algorithm == LSI_RING;
    lsi_schedule_reset(s, c->dtype, c->op, comm->one_host);
    s->backwards = r->seq % 2;
    switch (c->coll) {
    case LSI_ALLREDUCE: flat_reduction(r, -1); break;
    case LSI_REDUCE: flat_reduction(r, c->root); break;
    case LSI_REDUCE_SCATTER:
        (ring ? lsi_ring_reduce_scatter : lsi_direct_reduce_scatter)(s, comm, c);
        break;
    case LSI_ALLGATHER:
    case LSI_ALLGATHERV: (ring ? lsi_ring_allgather : lsi_direct_allgather)(s, comm, c); break;
    case LSI_BROADCAST:
        lsi_add_broadcast(s, c->algorithm, &team, c->recv, c->count * c->element, c->root);
        break;
    case LSI_GATHER: lsi_direct_gather(s, comm, c); break;
    case LSI_SCATTER: lsi_direct_scatter(s, comm, c); break;
    case LSI_ALLTOALL:
    case LSI_ALLTOALLV: lsi_direct_alltoall(s, comm, c); break;
    case LSI_BARRIER: lsi_add_barrier(s, &team); break;
    case LSI_P2P:
    case LSI_COLL_COUNT: break;
    }
    return s->broken;
}

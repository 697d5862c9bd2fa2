/* The all-reduce over shards: the algorithms of the plain one, over another tree. */
#include "coll/shards.h"

#include "coll/algorithm.h"

ls_status lsi_shards_build(ls_request *r)
{
    const lsi_call *c = &r->call;
    const lsi_shards *shards = c->shards;
    lsi_team team = {r->comm->size, r->comm->rank, shards->leaves, shards->spans, 1};
    lsi_reduction reduction = {&team, shards->mine, shards->n_mine, c->recv, c->count, c->element,
                               -1};
    lsi_schedule_reset(&r->schedule, c->dtype, c->op, 0);
    lsi_reduce_algorithms[c->algorithm](&r->schedule, &reduction);
    return r->schedule.broken;
}

/* Who holds no shard has no values to pass on: only `direct` can do with that. */
static int all_hold_some(const ls_comm *comm, const lsi_shards *shards)
{
    for (int i = 0; i < comm->size; i++)
        if (shards->spans[i].first == shards->spans[i].end)
            return 0;
    return 1;
}

ls_status lsi_allreduce_shards_start(ls_comm *comm, const lsi_shards *shards, void *work,
                                     size_t count, ls_dtype dtype, ls_request **request)
{
    lsi_call c = {.coll = LSI_ALLREDUCE,
                  .dtype = dtype,
                  .op = LS_SUM,
                  .count = count,
                  .element = ls_dtype_size(dtype),
                  .send = shards->n_mine ? shards->mine[0] : work,
                  .recv = work,
                  .shards = shards};
    c.algorithm = all_hold_some(comm, shards)
                      ? lsi_select(&comm->selection, LSI_ALLREDUCE, count * c.element)
                      : LSI_DIRECT;
    c.what =
        (lsi_wire_call){(uint8_t)c.coll, (uint8_t)c.dtype, (uint8_t)c.op, (uint8_t)c.algorithm, 0,
                        c.count};
    return lsi_start(comm, &c, request);
}

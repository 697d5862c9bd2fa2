/* The public collectives: check the arguments, describe the call, run or start it. */
#include <stdint.h>
#include <string.h>

#include "coll/board_ops.h"
#include "coll/comm.h"

/* A call with what all collectives share. */
static lsi_call make_call(lsi_coll coll, const void *send, void *recv, size_t count, ls_dtype dtype)
{
    lsi_call c = {.coll = coll, .dtype = dtype, .count = count, .send = send, .recv = recv};
    c.element = ls_dtype_size(dtype);
    if (send == LS_IN_PLACE) {
        c.send = recv;
        c.in_place = 1;
    }
    return c;
}

/* What every collective checks, and the selection of its algorithm. `blocks`: how many times
 * `count` the largest buffer holds. */
static ls_status prepare(ls_comm *comm, lsi_call *c, size_t blocks)
{
    if (__builtin_expect(!comm, 0))
        return lsi_fail(LS_ERR_INVALID, NULL, lsi_coll_names[c->coll], "the communicator is NULL");
    const char *what = lsi_coll_names[c->coll];
    if (__builtin_expect(!c->element, 0))
        return lsi_fail(LS_ERR_INVALID, "use an ls_dtype", what, "%d is no type", (int)c->dtype);
    size_t bytes;
    if (__builtin_mul_overflow(c->count, c->element * blocks, &bytes) || bytes > SIZE_MAX / 2)
        return lsi_fail(LS_ERR_INVALID, NULL, what, "%zu elements of %zu bytes do not fit memory",
                        c->count, c->element);
    if (__builtin_expect(c->root < 0 || c->root >= comm->size, 0))
        return lsi_fail(LS_ERR_INVALID, NULL, what, "root %d is not in 0…%d", c->root,
                        comm->size - 1);
    bytes = c->count * c->element; /* of one block */
    if (c->coll == LSI_ALLGATHERV)
        bytes /= (size_t)comm->size;
    c->algorithm = lsi_select(&comm->selection, c->coll, bytes);
    c->what = (lsi_wire_call){(uint8_t)c->coll,      (uint8_t)c->dtype, (uint8_t)c->op,
                              (uint8_t)c->algorithm, c->root,           c->count};
    return LS_OK;
}

static ls_status need(const lsi_call *c, const void *buffer, const char *name)
{
    if (__builtin_expect(buffer || !c->count, 1))
        return LS_OK;
    return lsi_fail(LS_ERR_INVALID, NULL, lsi_coll_names[c->coll], "%s is NULL", name);
}

static ls_status need_both(const lsi_call *c)
{
    LSI_TRY(need(c, c->recv, "recv"));
    return need(c, c->send, "send");
}

static ls_status need_op(const lsi_call *c)
{
    if (__builtin_expect(ls_op_supports(c->op, c->dtype), 1))
        return LS_OK;
    return lsi_fail(LS_ERR_INVALID, "band and bor are for integers", lsi_coll_names[c->coll],
                    "%s is not defined on %s", ls_op_name(c->op), ls_dtype_name(c->dtype));
}

/* Run when `request` is NULL, else start. */
static ls_status go(ls_comm *comm, const lsi_call *c, int start, ls_request **request)
{
    if (!start)
        return lsi_run(comm, c);
    if (!request)
        return lsi_fail(LS_ERR_INVALID, NULL, lsi_coll_names[c->coll], "request is NULL");
    return lsi_start(comm, c, request);
}

static ls_status allreduce(ls_comm *comm, const void *send, void *recv, size_t count,
                           ls_dtype dtype, ls_op op, int start, ls_request **request)
{
    ls_status tiny = LS_ERR_UNSUPPORTED;
    uint64_t seq = 0;
    if (!start && comm && count < comm->pair_bytes) {
        tiny = lsi_board_tiny(comm, send, recv, count, dtype, op, &seq);
        if (tiny == LS_OK)
            return LS_OK;
    }
    lsi_call c = make_call(LSI_ALLREDUCE, send, recv, count, dtype);
    c.op = op;
    LSI_TRY(prepare(comm, &c, 1));
    LSI_TRY(need_op(&c));
    LSI_TRY(need_both(&c));
    return tiny == LS_IN_PROGRESS ? lsi_run_posted(comm, &c, seq, 0) : go(comm, &c, start, request);
}

ls_status ls_allreduce(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                       ls_op op)
{
    return allreduce(comm, send, recv, count, dtype, op, 0, NULL);
}

ls_status ls_allreduce_start(ls_comm *comm, const void *send, void *recv, size_t count,
                             ls_dtype dtype, ls_op op, ls_request **request)
{
    return allreduce(comm, send, recv, count, dtype, op, 1, request);
}

static ls_status reduce(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                        ls_op op, int root, int start, ls_request **request)
{
    lsi_call c = make_call(LSI_REDUCE, send, recv, count, dtype);
    c.op = op;
    c.root = root;
    LSI_TRY(prepare(comm, &c, 1));
    LSI_TRY(need_op(&c));
    LSI_TRY(need(&c, c.send, "send"));
    if (comm->rank == root)
        LSI_TRY(need(&c, c.recv, "recv"));
    return go(comm, &c, start, request);
}

ls_status ls_reduce(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                    ls_op op, int root)
{
    return reduce(comm, send, recv, count, dtype, op, root, 0, NULL);
}

ls_status ls_reduce_start(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                          ls_op op, int root, ls_request **request)
{
    return reduce(comm, send, recv, count, dtype, op, root, 1, request);
}

static ls_status reduce_scatter(ls_comm *comm, const void *send, void *recv, size_t count,
                                ls_dtype dtype, ls_op op, int start, ls_request **request)
{
    lsi_call c = make_call(LSI_REDUCE_SCATTER, send, recv, count, dtype);
    c.op = op;
    LSI_TRY(prepare(comm, &c, comm ? (size_t)comm->size : 1));
    LSI_TRY(need_op(&c));
    LSI_TRY(need_both(&c));
    return go(comm, &c, start, request);
}

ls_status ls_reduce_scatter(ls_comm *comm, const void *send, void *recv, size_t count,
                            ls_dtype dtype, ls_op op)
{
    return reduce_scatter(comm, send, recv, count, dtype, op, 0, NULL);
}

ls_status ls_reduce_scatter_start(ls_comm *comm, const void *send, void *recv, size_t count,
                                  ls_dtype dtype, ls_op op, ls_request **request)
{
    return reduce_scatter(comm, send, recv, count, dtype, op, 1, request);
}

static ls_status allgather(ls_comm *comm, const void *send, void *recv, size_t count,
                           ls_dtype dtype, int start, ls_request **request)
{
    lsi_call c = make_call(LSI_ALLGATHER, send, recv, count, dtype);
    LSI_TRY(prepare(comm, &c, comm ? (size_t)comm->size : 1));
    LSI_TRY(need_both(&c));
    if (c.in_place)
        c.send = (char *)recv + (size_t)comm->rank * count * c.element;
    return go(comm, &c, start, request);
}

ls_status ls_allgather(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype)
{
    return allgather(comm, send, recv, count, dtype, 0, NULL);
}

ls_status ls_allgather_start(ls_comm *comm, const void *send, void *recv, size_t count,
                             ls_dtype dtype, ls_request **request)
{
    return allgather(comm, send, recv, count, dtype, 1, request);
}

/* The sum of the first n counts, SIZE_MAX (which prepare refuses) when it overflows. */
static size_t add_up(const size_t *counts, int n)
{
    size_t sum = 0;
    for (int m = 0; m < n; m++)
        if (__builtin_add_overflow(sum, counts[m], &sum))
            return SIZE_MAX;
    return sum;
}

static ls_status allgatherv(ls_comm *comm, const void *send, void *recv, const size_t *counts,
                            ls_dtype dtype, int start, ls_request **request)
{
    lsi_call c = make_call(LSI_ALLGATHERV, send, recv, 0, dtype);
    size_t mixed = 0;
    if (comm && !counts)
        return lsi_fail(LS_ERR_INVALID, NULL, "allgatherv", "counts is NULL");
    for (int m = 0; comm && m < comm->size; m++)
        mixed = (mixed ^ counts[m]) * 0x9e3779b97f4a7c15u;
    c.count = comm ? add_up(counts, comm->size) : 0;
    LSI_TRY(prepare(comm, &c, 1));
    c.what.root = (int32_t)(mixed >> 40); /* the sum and this stand for the array when compared */
    LSI_TRY(need(&c, c.recv, "recv"));
    if (counts[comm->rank])
        LSI_TRY(need(&c, c.send, "send"));
    c.recv_counts = counts;
    if (c.in_place)
        c.send = (char *)recv + add_up(counts, comm->rank) * c.element;
    return go(comm, &c, start, request);
}

ls_status ls_allgatherv(ls_comm *comm, const void *send, void *recv, const size_t *counts,
                        ls_dtype dtype)
{
    return allgatherv(comm, send, recv, counts, dtype, 0, NULL);
}

ls_status ls_allgatherv_start(ls_comm *comm, const void *send, void *recv, const size_t *counts,
                              ls_dtype dtype, ls_request **request)
{
    return allgatherv(comm, send, recv, counts, dtype, 1, request);
}

static ls_status broadcast(ls_comm *comm, void *buffer, size_t count, ls_dtype dtype, int root,
                           int start, ls_request **request)
{
    lsi_call c = make_call(LSI_BROADCAST, buffer, buffer, count, dtype);
    c.root = root;
    LSI_TRY(prepare(comm, &c, 1));
    LSI_TRY(need(&c, buffer, "buffer"));
    return go(comm, &c, start, request);
}

ls_status ls_broadcast(ls_comm *comm, void *buffer, size_t count, ls_dtype dtype, int root)
{
    return broadcast(comm, buffer, count, dtype, root, 0, NULL);
}

ls_status ls_broadcast_start(ls_comm *comm, void *buffer, size_t count, ls_dtype dtype, int root,
                             ls_request **request)
{
    return broadcast(comm, buffer, count, dtype, root, 1, request);
}

static ls_status gather(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                        int root, int start, ls_request **request)
{
    lsi_call c = make_call(LSI_GATHER, send, recv, count, dtype);
    c.root = root;
    LSI_TRY(prepare(comm, &c, comm ? (size_t)comm->size : 1));
    if (c.in_place && comm->rank != root)
        return lsi_fail(LS_ERR_INVALID, NULL, "gather", "only the root may gather in place");
    LSI_TRY(need(&c, c.send, "send"));
    if (comm->rank == root)
        LSI_TRY(need(&c, c.recv, "recv"));
    if (c.in_place)
        c.send = (char *)recv + (size_t)root * count * c.element;
    return go(comm, &c, start, request);
}

ls_status ls_gather(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                    int root)
{
    return gather(comm, send, recv, count, dtype, root, 0, NULL);
}

ls_status ls_gather_start(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                          int root, ls_request **request)
{
    return gather(comm, send, recv, count, dtype, root, 1, request);
}

static ls_status scatter(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                         int root, int start, ls_request **request)
{
    lsi_call c = make_call(LSI_SCATTER, send, recv, count, dtype);
    c.root = root;
    LSI_TRY(prepare(comm, &c, comm ? (size_t)comm->size : 1));
    if (c.in_place && comm->rank != root)
        return lsi_fail(LS_ERR_INVALID, NULL, "scatter", "only the root may scatter in place");
    LSI_TRY(need(&c, c.recv, "recv"));
    if (comm->rank == root)
        LSI_TRY(need(&c, c.send, "send"));
    return go(comm, &c, start, request);
}

ls_status ls_scatter(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                     int root)
{
    return scatter(comm, send, recv, count, dtype, root, 0, NULL);
}

ls_status ls_scatter_start(ls_comm *comm, const void *send, void *recv, size_t count,
                           ls_dtype dtype, int root, ls_request **request)
{
    return scatter(comm, send, recv, count, dtype, root, 1, request);
}

static ls_status alltoall(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                          int start, ls_request **request)
{
    lsi_call c = make_call(LSI_ALLTOALL, send, recv, count, dtype);
    LSI_TRY(prepare(comm, &c, comm ? (size_t)comm->size : 1));
    if (c.in_place)
        return lsi_fail(LS_ERR_UNSUPPORTED, NULL, "alltoall", "cannot be done in place");
    LSI_TRY(need_both(&c));
    return go(comm, &c, start, request);
}

ls_status ls_alltoall(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype)
{
    return alltoall(comm, send, recv, count, dtype, 0, NULL);
}

ls_status ls_alltoall_start(ls_comm *comm, const void *send, void *recv, size_t count,
                            ls_dtype dtype, ls_request **request)
{
    return alltoall(comm, send, recv, count, dtype, 1, request);
}

static ls_status alltoallv(ls_comm *comm, const void *send, const size_t *send_counts, void *recv,
                           const size_t *recv_counts, ls_dtype dtype, int start,
                           ls_request **request)
{
    lsi_call c = make_call(LSI_ALLTOALLV, send, recv, 0, dtype);
    if (comm && (!send_counts || !recv_counts))
        return lsi_fail(LS_ERR_INVALID, NULL, "alltoallv", "a counts array is NULL");
    c.count = comm ? add_up(recv_counts, comm->size) : 0;
    LSI_TRY(prepare(comm, &c, 1));
    LSI_TRY(need(&c, c.recv, "recv"));
    c.count = add_up(send_counts, comm->size);
    LSI_TRY(prepare(comm, &c, 1));
    LSI_TRY(need(&c, c.send, "send"));
    c.count = c.what.count = 0; /* they differ between ranks */
    if (c.in_place)
        return lsi_fail(LS_ERR_UNSUPPORTED, NULL, "alltoallv", "cannot be done in place");
    if (send_counts[comm->rank] != recv_counts[comm->rank])
        return lsi_fail(LS_ERR_INVALID, NULL, "alltoallv",
                        "rank %d sends itself %zu elements and expects %zu", comm->rank,
                        send_counts[comm->rank], recv_counts[comm->rank]);
    c.send_counts = send_counts;
    c.recv_counts = recv_counts;
    return go(comm, &c, start, request);
}

ls_status ls_alltoallv(ls_comm *comm, const void *send, const size_t *send_counts, void *recv,
                       const size_t *recv_counts, ls_dtype dtype)
{
    return alltoallv(comm, send, send_counts, recv, recv_counts, dtype, 0, NULL);
}

ls_status ls_alltoallv_start(ls_comm *comm, const void *send, const size_t *send_counts, void *recv,
                             const size_t *recv_counts, ls_dtype dtype, ls_request **request)
{
    return alltoallv(comm, send, send_counts, recv, recv_counts, dtype, 1, request);
}

static ls_status barrier(ls_comm *comm, int start, ls_request **request)
{
    lsi_call c = make_call(LSI_BARRIER, NULL, NULL, 0, LS_U8);
    LSI_TRY(prepare(comm, &c, 1));
    return go(comm, &c, start, request);
}

ls_status ls_barrier(ls_comm *comm)
{
    return barrier(comm, 0, NULL);
}

ls_status ls_barrier_start(ls_comm *comm, ls_request **request)
{
    return barrier(comm, 1, request);
}

ls_status lsi_leave(ls_comm *comm)
{
    lsi_call c = make_call(LSI_BARRIER, NULL, NULL, 0, LS_U8);
    LSI_TRY(prepare(comm, &c, 1));
    c.what.count = 1; /* unlike any ls_barrier: who goes on while others leave is told so */
    return lsi_run(comm, &c);
}

static ls_status message(ls_comm *comm, const void *send, void *recv, size_t count, ls_dtype dtype,
                         int peer, int tag, int start, ls_request **request)
{
    lsi_call c = make_call(LSI_P2P, send, recv, count, dtype);
    LSI_TRY(prepare(comm, &c, 1));
    if (peer < 0 || peer >= comm->size || peer == comm->rank)
        return lsi_fail(LS_ERR_INVALID, NULL, "send/recv", "rank %d cannot exchange with rank %d",
                        comm->rank, peer);
    if (tag < 0)
        return lsi_fail(LS_ERR_INVALID, NULL, "send/recv", "tag %d is negative", tag);
    c.sending = recv == NULL;
    LSI_TRY(need(&c, c.sending ? send : recv, "buffer"));
    c.root = peer;
    c.tag = tag;
    c.what.root = tag;
    return go(comm, &c, start, request);
}

ls_status ls_send(ls_comm *comm, const void *buffer, size_t count, ls_dtype dtype, int peer,
                  int tag)
{
    return message(comm, buffer, NULL, count, dtype, peer, tag, 0, NULL);
}

ls_status ls_send_start(ls_comm *comm, const void *buffer, size_t count, ls_dtype dtype, int peer,
                        int tag, ls_request **request)
{
    return message(comm, buffer, NULL, count, dtype, peer, tag, 1, request);
}

ls_status ls_recv(ls_comm *comm, void *buffer, size_t count, ls_dtype dtype, int peer, int tag)
{
    return message(comm, NULL, buffer, count, dtype, peer, tag, 0, NULL);
}

ls_status ls_recv_start(ls_comm *comm, void *buffer, size_t count, ls_dtype dtype, int peer,
                        int tag, ls_request **request)
{
    return message(comm, NULL, buffer, count, dtype, peer, tag, 1, request);
}

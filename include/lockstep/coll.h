/* Collectives and messages on a communicator.
 *
 * All ranks of a communicator call the same collectives in the same order with the same count,
 * type, operator and root; a difference is LS_ERR_MISMATCH on every rank, and names who called
 * what. `count` is in elements and may be 0. LS_IN_PLACE as `send` takes the input from `recv`.
 * Buffers may lie anywhere; memory from ls_alloc is fastest. Send and receive buffers must not
 * overlap otherwise.
 *
 * Sums with the algorithms `direct`, `hd` and `tree` are made in the order of one fixed binary tree
 * over the ranks, so they agree bit for bit, on one host or on many.
 *
 * Two forms: the plain call blocks up to the communicator's deadline; `..._start` returns at once
 * with a request that ls_request_test or ls_request_wait completes. The library makes progress
 * inside its calls only. Buffers of a started operation are borrowed until it completes.
 *
 * Errors: operation errors (bad arguments) leave the communicator usable. Peer and group errors
 * end the operation on every rank and leave the communicator failed: each later call returns the
 * first cause again. A call that has returned an error has given its buffers back: no rank writes
 * into them any more (one that is stopped in the middle of it is waited for, but not longer than a
 * second), and what stands in the receive buffers is undefined. Who has not heard of the failure
 * may still read an input from ls_alloc, and may come to the end of that one operation: its result
 * is right if the input was left as it is.
 */
#ifndef LOCKSTEP_COLL_H
#define LOCKSTEP_COLL_H

#include <stddef.h>

#include <lockstep/comm.h>
#include <lockstep/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_request ls_request;

#define LS_IN_PLACE ((const void *)-1)

/* recv = reduction over all ranks of send; `count` elements on every rank. */
LS_API ls_status ls_allreduce(ls_comm *comm, const void *send, void *recv, size_t count,
                              ls_dtype dtype, ls_op op);
LS_API ls_status ls_allreduce_start(ls_comm *comm, const void *send, void *recv, size_t count,
                                    ls_dtype dtype, ls_op op, ls_request **request);

/* As ls_allreduce, result on `root` only; `recv` is ignored elsewhere (unless in place: there the
 * input is taken from it on every rank, and only the root's is overwritten). */
LS_API ls_status ls_reduce(ls_comm *comm, const void *send, void *recv, size_t count,
                           ls_dtype dtype, ls_op op, int root);
LS_API ls_status ls_reduce_start(ls_comm *comm, const void *send, void *recv, size_t count,
                                 ls_dtype dtype, ls_op op, int root, ls_request **request);

/* send holds size*count elements; rank r receives the reduction of block r, `count` elements.
 * In place: recv holds size*count elements and the result is left in its block r. */
LS_API ls_status ls_reduce_scatter(ls_comm *comm, const void *send, void *recv, size_t count,
                                   ls_dtype dtype, ls_op op);
LS_API ls_status ls_reduce_scatter_start(ls_comm *comm, const void *send, void *recv, size_t count,
                                         ls_dtype dtype, ls_op op, ls_request **request);

/* Rank r's `count` elements become block r of everyone's recv. In place: the own block is already
 * there. */
LS_API ls_status ls_allgather(ls_comm *comm, const void *send, void *recv, size_t count,
                              ls_dtype dtype);
LS_API ls_status ls_allgather_start(ls_comm *comm, const void *send, void *recv, size_t count,
                                    ls_dtype dtype, ls_request **request);

/* As ls_allgather with counts[r] elements from rank r, placed one after the other. The array is
 * the same on every rank and is copied. */
LS_API ls_status ls_allgatherv(ls_comm *comm, const void *send, void *recv, const size_t *counts,
                               ls_dtype dtype);
LS_API ls_status ls_allgatherv_start(ls_comm *comm, const void *send, void *recv,
                                     const size_t *counts, ls_dtype dtype, ls_request **request);

/* The root's buffer is copied to everyone's. */
LS_API ls_status ls_broadcast(ls_comm *comm, void *buffer, size_t count, ls_dtype dtype, int root);
LS_API ls_status ls_broadcast_start(ls_comm *comm, void *buffer, size_t count, ls_dtype dtype,
                                    int root, ls_request **request);

/* Rank r's `count` elements become block r of the root's recv (NULL elsewhere is fine). In place
 * on the root: its block is already there. */
LS_API ls_status ls_gather(ls_comm *comm, const void *send, void *recv, size_t count,
                           ls_dtype dtype, int root);
LS_API ls_status ls_gather_start(ls_comm *comm, const void *send, void *recv, size_t count,
                                 ls_dtype dtype, int root, ls_request **request);

/* Block r of the root's send becomes rank r's recv, `count` elements. In place on the root:
 * `recv` holds all the blocks and its own stays where it is. */
LS_API ls_status ls_scatter(ls_comm *comm, const void *send, void *recv, size_t count,
                            ls_dtype dtype, int root);
LS_API ls_status ls_scatter_start(ls_comm *comm, const void *send, void *recv, size_t count,
                                  ls_dtype dtype, int root, ls_request **request);

/* Block r of send goes to rank r; block r of recv comes from rank r. Not in place. */
LS_API ls_status ls_alltoall(ls_comm *comm, const void *send, void *recv, size_t count,
                             ls_dtype dtype);
LS_API ls_status ls_alltoall_start(ls_comm *comm, const void *send, void *recv, size_t count,
                                   ls_dtype dtype, ls_request **request);

/* As ls_alltoall with send_counts[r] elements to and recv_counts[r] elements from rank r, blocks
 * one after the other. The arrays are copied. What r sends to s must be what s expects. */
LS_API ls_status ls_alltoallv(ls_comm *comm, const void *send, const size_t *send_counts,
                              void *recv, const size_t *recv_counts, ls_dtype dtype);
LS_API ls_status ls_alltoallv_start(ls_comm *comm, const void *send, const size_t *send_counts,
                                    void *recv, const size_t *recv_counts, ls_dtype dtype,
                                    ls_request **request);

/* Returns once every rank has entered. */
LS_API ls_status ls_barrier(ls_comm *comm);
LS_API ls_status ls_barrier_start(ls_comm *comm, ls_request **request);

/* Messages between two ranks, matched by (sender, tag) in order; tag in 0…2^31-1. The receiver
 * names the same count and type. A send is complete when its buffer may be reused. */
LS_API ls_status ls_send(ls_comm *comm, const void *buffer, size_t count, ls_dtype dtype, int peer,
                         int tag);
LS_API ls_status ls_send_start(ls_comm *comm, const void *buffer, size_t count, ls_dtype dtype,
                               int peer, int tag, ls_request **request);
LS_API ls_status ls_recv(ls_comm *comm, void *buffer, size_t count, ls_dtype dtype, int peer,
                         int tag);
LS_API ls_status ls_recv_start(ls_comm *comm, void *buffer, size_t count, ls_dtype dtype, int peer,
                               int tag, ls_request **request);

/* LS_IN_PROGRESS, or the operation's result: then the request is freed and *request is NULL. A
 * NULL request is complete. Does not block; drives every operation under way. */
LS_API ls_status ls_request_test(ls_request **request);

/* As ls_request_test, but waits up to `timeout_s` (0: the communicator's deadline). At the
 * deadline the operation and the communicator fail with LS_ERR_TIMEOUT, which names the ranks
 * that have not entered, and the request is freed. */
LS_API ls_status ls_request_wait(ls_request **request, double timeout_s);

#ifdef __cplusplus
}
#endif
#endif

/* The collectives that can be measured: one line each, and how each is called.
 *
 * Size is what nccl-tests calls size: the bytes of the larger side. Where that side has a block
 * for each rank (all-gather, say), `count` is the elements of one block, the argument of the call;
 * of the v variants the mean of all blocks, whose sizes differ.
 */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "cli/cli.h"
#include <lockstep/coll.h>

#define ONE LSI_BENCH_ONE
#define ALL LSI_BENCH_ALL

/* In the order in which help lists them. */
static const lsi_bench_op ops[] = {
    {"allreduce", LSI_ALLREDUCE, ONE, ONE, .reduces = 1, .in_place = 1},
    {"reduce", LSI_REDUCE, ONE, ONE, .root_receives = 1, .reduces = 1, .in_place = 1},
    {"reduce_scatter", LSI_REDUCE_SCATTER, ALL, ONE, .reduces = 1, .in_place = 1},
    {"allgather", LSI_ALLGATHER, ONE, ALL, .in_place = 1},
    {"allgatherv", LSI_ALLGATHERV, ONE, ALL, .in_place = 1, .uneven = 1},
    {"broadcast", LSI_BROADCAST, ONE, ONE, .root_sends = 1, .in_place = 1},
    {"gather", LSI_GATHER, ONE, ALL, .root_receives = 1, .in_place = 1},
    {"scatter", LSI_SCATTER, ALL, ONE, .root_sends = 1, .in_place = 1},
    {"alltoall", LSI_ALLTOALL, ALL, ALL, .in_place = 0},
    {"alltoallv", LSI_ALLTOALLV, ALL, ALL, .in_place = 0, .uneven = 1},
    {"barrier", LSI_BARRIER, LSI_BENCH_NONE, LSI_BENCH_NONE, .in_place = 0},
    {"sendrecv", LSI_P2P, ONE, ONE, .in_place = 0},
};
#define OPS (sizeof ops / sizeof *ops)

const lsi_bench_op *lsi_bench_find(const char *name)
{
    for (size_t i = 0; i < OPS; i++) {
        if (strcmp(name, ops[i].name) == 0)
            return &ops[i];
    }
    return NULL;
}

const char *lsi_bench_list(void)
{
    static char text[200];
    size_t used = 0;
    for (size_t i = 0; i < OPS && used < sizeof text; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", ops[i].name);
    return text;
}

static size_t blocks(const lsi_bench_op *op, int ranks)
{
    if (op->send == LSI_BENCH_NONE)
        return 0;
    return op->send == ALL || op->recv == ALL ? (size_t)ranks : 1;
}

size_t lsi_bench_count(const lsi_bench_op *op, size_t bytes, ls_dtype dtype, int ranks)
{
    size_t parts = blocks(op, ranks), one = ls_dtype_size(dtype) * parts;
    if (parts == 0 || bytes == 0)
        return 0;
    return bytes < one ? 1 : bytes / one;
}

size_t lsi_bench_bytes(const lsi_bench_op *op, size_t count, ls_dtype dtype, int ranks)
{
    return count * ls_dtype_size(dtype) * blocks(op, ranks);
}

void lsi_bench_deal(lsi_bench_call *c, size_t count)
{
    const int n = c->size, from = c->op->coll == LSI_ALLTOALLV ? c->rank : 0;
    c->count = count;
    for (int b = 0; b < n && c->op->uneven; b++) {
        const int place = (from + b) % n; /* what a sends to b is what b sends to a */
        const int has_pair = n % 2 == 0 || place < n - 1;
        const size_t half = has_pair ? count / 2 : 0;
        c->blocks[b] = place % 2 ? count + half : count - half;
    }
}

size_t lsi_bench_block(const lsi_bench_call *c, int b)
{
    return c->op->uneven ? c->blocks[b] : c->count;
}

double lsi_bench_bus_factor(const lsi_bench_op *op, int ranks)
{
    double n = ranks;
    switch (op->coll) {
    case LSI_ALLREDUCE: return 2 * (n - 1) / n;
    case LSI_REDUCE_SCATTER:
    case LSI_ALLGATHER:
    case LSI_ALLGATHERV:
    case LSI_ALLTOALL:
    case LSI_ALLTOALLV: return (n - 1) / n;
    default: return 1;
    }
}

/* Each rank sends to the next and receives from the one before; a rank alone copies. */
static ls_status exchange(const lsi_bench_call *c)
{
    ls_request *sending = NULL;
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    if (c->size == 1) {
        memcpy(c->recv, c->send, c->count * ls_dtype_size(c->dtype));
        return LS_OK;
    }
    LSI_TRY(ls_send_start(c->comm, c->send, c->count, c->dtype, next, 0, &sending));
    ls_status received = ls_recv(c->comm, c->recv, c->count, c->dtype, before, 0);
    ls_status sent = ls_request_wait(&sending, 0);
    return received != LS_OK ? received : sent;
}

int lsi_bench_is_in_place(const lsi_bench_call *c)
{
    int by_root = !c->op->reduces && (c->op->root_sends || c->op->root_receives);
    return c->op->coll == LSI_BROADCAST || (c->in_place && (!by_root || c->rank == c->root));
}

ls_status lsi_bench_run(const lsi_bench_call *c)
{
    const void *send = lsi_bench_is_in_place(c) ? LS_IN_PLACE : c->send;
    switch (c->op->coll) {
    case LSI_ALLREDUCE:
        return ls_allreduce(c->comm, send, c->recv, c->count, c->dtype, c->reduction);
    case LSI_REDUCE:
        return ls_reduce(c->comm, send, c->recv, c->count, c->dtype, c->reduction, c->root);
    case LSI_REDUCE_SCATTER:
        return ls_reduce_scatter(c->comm, send, c->recv, c->count, c->dtype, c->reduction);
    case LSI_ALLGATHER: return ls_allgather(c->comm, send, c->recv, c->count, c->dtype);
    case LSI_ALLGATHERV: return ls_allgatherv(c->comm, send, c->recv, c->blocks, c->dtype);
    case LSI_BROADCAST: return ls_broadcast(c->comm, c->recv, c->count, c->dtype, c->root);
    case LSI_GATHER: return ls_gather(c->comm, send, c->recv, c->count, c->dtype, c->root);
    case LSI_SCATTER: return ls_scatter(c->comm, send, c->recv, c->count, c->dtype, c->root);
    case LSI_ALLTOALL: return ls_alltoall(c->comm, c->send, c->recv, c->count, c->dtype);
    case LSI_ALLTOALLV:
        return ls_alltoallv(c->comm, c->send, c->blocks, c->recv, c->blocks, c->dtype);
    case LSI_BARRIER: return ls_barrier(c->comm);
    case LSI_P2P: return exchange(c);
    default: return lsi_fail(LS_ERR_UNSUPPORTED, NULL, c->op->name, "cannot be measured");
    }
}

/* Large messages use all sockets between two ranks, whichever operation sends them: the bytes of
 * each are counted at the seam. And what goes wrong in one of them is told as ever: who, and in
 * what. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ranks.h"

enum { RANKS = 3, LANES = 3 };
#define BLOCK ((size_t)1 << 20) /* elements of 4 bytes */
#define LARGE ((uint64_t)2 << 20)
#define SOON_S (UNDER_SANITIZER ? 8.0 : 3.0)

/* A link that counts what it has sent. */
typedef struct counter {
    lsi_link link;
    lsi_link *inner;
    _Atomic uint64_t *sent;
} counter;

static _Atomic uint64_t sent[RANKS][RANKS][LANES];

static ls_status count_send(lsi_link *link, const struct iovec *v, int n, size_t *moved)
{
    counter *c = (counter *)link;
    *moved = 0;
    ls_status status = c->inner->ops->send(c->inner, v, n, moved);
    atomic_fetch_add(c->sent, *moved);
    return status;
}

static ls_status count_recv(lsi_link *link, const struct iovec *v, int n, size_t *moved)
{
    lsi_link *inner = ((counter *)link)->inner;
    return inner->ops->recv(inner, v, n, moved);
}

static int count_fd(const lsi_link *link)
{
    lsi_link *inner = ((const counter *)link)->inner;
    return inner->ops->fd(inner);
}

static void count_close(lsi_link *link)
{
    lsi_link *inner = ((counter *)link)->inner;
    inner->ops->close(inner);
    free(link);
}

static void count(int self, int peer, int lane, lsi_link **link)
{
    static const lsi_link_ops ops = {"counter", count_send, count_recv, count_fd, count_close};
    counter *c = malloc(sizeof *c);
    *c = (counter){{&ops}, *link, &sent[self][peer][lane]};
    *link = &c->link;
}

typedef enum operation {
    SEND,
    ALLGATHER,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    GATHER,
    SCATTER,
    BROADCAST,
    REDUCE_SCATTER,
    REDUCE,
    ALLREDUCE,
    OPERATIONS
} operation;

static const struct {
    const char *name;
    int pairs; /* that exchange at least LARGE bytes, of the ordered ones */
} operations[OPERATIONS] = {
    {"send/recv", 1},      {"allgather", 6}, {"allgatherv", 4}, {"alltoall", 6},
    {"alltoallv", 6},      {"gather", 2},    {"scatter", 2},    {"broadcast", 2},
    {"reduce_scatter", 6}, {"reduce", 2},    {"allreduce", 6},
};

/* Blocks of BLOCK elements; of the one that comes from rank r, element i is r + i. */
static void fill(int32_t *at, int from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        at[i] = from + (int32_t)i;
}

static void check(rank *self, const int32_t *at, int times, int from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        CHECK(self, at[i] == from + times * (int32_t)i, "element %zu is %d", i, at[i]);
}

/* What came in blocks from everybody. */
static void check_blocks(rank *self, const int32_t *in)
{
    for (int r = 0; r < RANKS; r++)
        check(self, in + (size_t)r * BLOCK, 1, r, BLOCK);
}

static void move(rank *self, operation op, int32_t *out, int32_t *in)
{
    ls_comm *comm = self->comm;
    const size_t each[RANKS] = {BLOCK, 0, BLOCK}, all[RANKS] = {BLOCK, BLOCK, BLOCK};
    const int root = 1;
    switch (op) {
    case SEND:
        if (self->rank == 0)
            OK(self, ls_send(comm, out, BLOCK, LS_I32, 2, 77));
        if (self->rank == 2) {
            OK(self, ls_recv(comm, in, BLOCK, LS_I32, 0, 77));
            check(self, in, 1, 0, BLOCK);
        }
        break;
    case ALLGATHER:
        OK(self, ls_allgather(comm, out, in, BLOCK, LS_I32));
        check_blocks(self, in);
        break;
    case ALLGATHERV:
        OK(self, ls_allgatherv(comm, out, in, each, LS_I32));
        check(self, in, 1, 0, BLOCK);
        check(self, in + BLOCK, 1, 2, BLOCK);
        break;
    case ALLTOALL:
        OK(self, ls_alltoall(comm, out, in, BLOCK, LS_I32));
        check_blocks(self, in);
        break;
    case ALLTOALLV:
        OK(self, ls_alltoallv(comm, out, all, in, all, LS_I32));
        check_blocks(self, in);
        break;
    case GATHER:
        OK(self, ls_gather(comm, out, in, BLOCK, LS_I32, root));
        if (self->rank == root)
            check_blocks(self, in);
        break;
    case SCATTER:
        OK(self, ls_scatter(comm, out, in, BLOCK, LS_I32, root));
        check(self, in, 1, root, BLOCK);
        break;
    case BROADCAST:
        fill(in, self->rank, BLOCK);
        OK(self, ls_broadcast(comm, in, BLOCK, LS_I32, root));
        check(self, in, 1, root, BLOCK);
        break;
    case REDUCE_SCATTER:
        OK(self, ls_reduce_scatter(comm, out, in, BLOCK, LS_I32, LS_SUM));
        check(self, in, 3, 0 + 1 + 2, BLOCK);
        break;
    case REDUCE: OK(self, ls_reduce(comm, out, in, 3 * BLOCK, LS_I32, LS_SUM, root)); break;
    case ALLREDUCE:
        OK(self, ls_allreduce(comm, out, in, 3 * BLOCK, LS_I32, LS_SUM));
        check(self, in, 3, 0 + 1 + 2, BLOCK);
        break;
    case OPERATIONS: break;
    }
}

/* Of every pair that has exchanged much, each lane has carried a good share. */
static void check_shares(rank *self, operation op)
{
    int pairs = 0;
    for (int a = 0; a < RANKS; a++)
        for (int b = 0; b < RANKS; b++) {
            uint64_t all = 0;
            for (int l = 0; l < LANES; l++)
                all += sent[a][b][l];
            if (all < LARGE)
                continue;
            pairs++;
            for (int l = 0; l < LANES; l++)
                CHECK(self, sent[a][b][l] >= all / (2 * LANES),
                      "%d > %d: lane %d has carried %llu of %llu bytes", a, b, l,
                      (unsigned long long)sent[a][b][l], (unsigned long long)all);
        }
    CHECK(self, pairs >= operations[op].pairs, "%d pairs", pairs);
}

static void shares(rank *self)
{
    int32_t *out = malloc(RANKS * BLOCK * 4), *in = malloc(RANKS * BLOCK * 4);
    for (int r = 0; r < RANKS; r++)
        fill(out + (size_t)r * BLOCK, self->rank, BLOCK);
    for (operation op = 0; op < OPERATIONS; op++) {
        rank_case(self, "%s", operations[op].name);
        rank_meet(self);
        if (self->rank == 0)
            memset((void *)sent, 0, sizeof sent);
        rank_meet(self);
        move(self, op, out, in);
        rank_meet(self);
        if (self->rank == 0)
            check_shares(self, op);
    }
    free(out);
    free(in);
}

static ranks_layout layout(void)
{
    ranks_layout l = ranks_tcp(RANKS);
    l.lanes = LANES;
    return l;
}

static void test_shares(void **unused)
{
    (void)unused;
    ranks_layout inside = layout(), between = ranks_hosts("1+1+1");
    between.lanes = LANES;
    inside.wrap = between.wrap = count;
    ranks_run(&inside, shares, NULL);
    ranks_run(&between, shares, NULL);
}

/* Everybody sends to everybody before anybody receives, the same tag twice, a small one between. */
static void crossing(rank *self)
{
    int32_t *out = malloc(2 * BLOCK * 4), *in = malloc(2 * BLOCK * 4);
    fill(out, self->rank, BLOCK);
    fill(out + BLOCK, 100 + self->rank, BLOCK);
    for (int i = 1; i < RANKS; i++) {
        int to = (self->rank + i) % RANKS;
        OK(self, ls_send(self->comm, out, BLOCK, LS_I32, to, 5));
        OK(self, ls_send(self->comm, out, 7, LS_I32, to, 5));
        OK(self, ls_send(self->comm, out + BLOCK, BLOCK, LS_I32, to, 5));
    }
    for (int i = 1; i < RANKS; i++) {
        int from = (self->rank + i) % RANKS;
        OK(self, ls_recv(self->comm, in, BLOCK, LS_I32, from, 5));
        check(self, in, 1, from, BLOCK);
        OK(self, ls_recv(self->comm, in, 7, LS_I32, from, 5));
        check(self, in, 1, from, 7);
        OK(self, ls_recv(self->comm, in, BLOCK, LS_I32, from, 5));
        check(self, in, 1, 100 + from, BLOCK);
    }
    free(out);
    free(in);
}

static void test_crossing(void **unused)
{
    (void)unused;
    ranks_layout l = layout();
    ranks_run(&l, crossing, NULL);
}

/* A message of another length than is expected. */
static void differ(rank *self)
{
    static const size_t counts[][2] = {{BLOCK, BLOCK - 1}, {BLOCK, 10}, {10, BLOCK}};
    const int *kind = self->arg;
    char *data = calloc(BLOCK, 4);
    rank_case(self, "messages that differ, %d", *kind);
    if (self->rank == 0) {
        ls_status status = ls_send(self->comm, data, counts[*kind / 2][0], LS_I32, 1, 9);
        CHECK(self, status == LS_OK || status == LS_ERR_MISMATCH, "%s", ls_last_error());
    } else if (self->rank == 1) {
        if (*kind & 1)
            sleep_ms(20); /* the receive is posted before or after */
        IS(self, ls_recv(self->comm, data, counts[*kind / 2][1], LS_I32, 0, 9), LS_ERR_MISMATCH);
        CHECK(self, strstr(ls_last_error(), "rank 0") && strstr(ls_last_error(), "rank 1"), "%s",
              ls_last_error());
        CHECK(self, strstr(ls_last_error(), "tag 9"), "%s", ls_last_error());
    }
    IS(self, ls_barrier(self->comm), LS_ERR_MISMATCH);
    free(data);
}

static void test_differ(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < 6; kind++) {
        ranks_layout l = layout();
        ranks_run(&l, differ, &kind);
    }
}

/* A socket is lost while parts are under way, in each direction of a pair. */
static void lose(rank *self)
{
    int32_t *out = calloc(RANKS * BLOCK, 4), *in = malloc(RANKS * BLOCK * 4);
    ls_status status = LS_OK;
    double begun = lsi_now();
    for (int i = 0; i < 20 && status == LS_OK; i++)
        status = ls_alltoall(self->comm, out, in, BLOCK, LS_I32);
    CHECK(self, status == LS_ERR_PEER_DEAD, "%s: %s", ls_status_name(status), ls_last_error());
    CHECK(self, strstr(ls_last_error(), "alltoall(i32"), "%s", ls_last_error());
    CHECK(self,
          strstr(ls_last_error(), "rank 0 has lost rank 1") ||
              strstr(ls_last_error(), "rank 1 has lost rank 0"),
          "%s", ls_last_error());
    CHECK(self, lsi_now() - begun < SOON_S, "only after %.1f s", lsi_now() - begun);
    free(out);
    free(in);
}

static void test_lost(void **unused)
{
    (void)unused;
    static const char *const plans[] = {"0>1 cut=9", "1>0 cut=12", "0>1 corrupt=10"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        ranks_layout l = layout();
        l.fault = plans[i];
        ranks_run(&l, lose, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_crossing),
        cmocka_unit_test(test_differ),
        cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

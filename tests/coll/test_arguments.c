/* Bad arguments are refused where they are given, with words, and harm nothing: the communicator
 * goes on. And the edges that are no error: nothing to do, no buffers, no request. */
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

static char a[4096], b[4096]; /* never touched by what is refused */

/* The status is expected, and the error names the operation. */
#define REFUSED(self, call, status, word)                                                          \
    do {                                                                                           \
        IS(self, call, status);                                                                    \
        CHECK(self, strstr(ls_last_error(), word), "no '%s' in '%s'", word, ls_last_error());      \
    } while (0)
#define INVALID(self, call, word) REFUSED(self, call, LS_ERR_INVALID, word)

static void check_usable(rank *self)
{
    int64_t sum = self->rank;
    OK(self, ls_allreduce(self->comm, LS_IN_PLACE, &sum, 1, LS_I64, LS_SUM));
    CHECK(self, sum == self->size * (self->size - 1) / 2);
}

static void no_communicator(rank *self)
{
    size_t n[RANKS_MAX] = {0};
    ls_request *r;
    rank_case(self, "no communicator");
    INVALID(self, ls_allreduce(NULL, a, b, 1, LS_F32, LS_SUM), "allreduce");
    INVALID(self, ls_allreduce_start(NULL, a, b, 1, LS_F32, LS_SUM, &r), "allreduce");
    INVALID(self, ls_reduce(NULL, a, b, 1, LS_F32, LS_SUM, 0), "reduce");
    INVALID(self, ls_reduce_scatter(NULL, a, b, 1, LS_F32, LS_SUM), "reduce_scatter");
    INVALID(self, ls_allgather(NULL, a, b, 1, LS_F32), "allgather");
    INVALID(self, ls_allgatherv(NULL, a, b, n, LS_F32), "allgatherv");
    INVALID(self, ls_broadcast(NULL, a, 1, LS_F32, 0), "broadcast");
    INVALID(self, ls_gather(NULL, a, b, 1, LS_F32, 0), "gather");
    INVALID(self, ls_scatter(NULL, a, b, 1, LS_F32, 0), "scatter");
    INVALID(self, ls_alltoall(NULL, a, b, 1, LS_F32), "alltoall");
    INVALID(self, ls_alltoallv(NULL, a, n, b, n, LS_F32), "alltoallv");
    INVALID(self, ls_barrier(NULL), "barrier");
    INVALID(self, ls_send(NULL, a, 1, LS_F32, 0, 0), "send");
    INVALID(self, ls_recv(NULL, a, 1, LS_F32, 0, 0), "recv");
    CHECK(self, ls_comm_rank(NULL) == -1 && ls_comm_size(NULL) == 0);
    CHECK(self, ls_comm_local_rank(NULL) == -1 && ls_comm_local_size(NULL) == 0);
    ls_comm_destroy(NULL);
    ls_finalize(NULL);
    OK(self, ls_request_wait(NULL, 0));
    OK(self, ls_request_test(NULL));
    r = NULL;
    OK(self, ls_request_wait(&r, 0));
    OK(self, ls_request_test(&r));
}

static void types_and_operators(rank *self, ls_comm *c)
{
    static const int types[] = {-1, LS_DTYPE_COUNT, 255, 1 << 20};
    size_t n[RANKS_MAX] = {0};
    rank_case(self, "types and operators");
    for (int i = 0; i < 4; i++) {
        ls_dtype d = (ls_dtype)types[i];
        INVALID(self, ls_allreduce(c, a, b, 1, d, LS_SUM), "allreduce");
        INVALID(self, ls_reduce(c, a, b, 1, d, LS_SUM, 0), "reduce");
        INVALID(self, ls_reduce_scatter(c, a, b, 1, d, LS_SUM), "reduce_scatter");
        INVALID(self, ls_allgather(c, a, b, 1, d), "allgather");
        INVALID(self, ls_allgatherv(c, a, b, n, d), "allgatherv");
        INVALID(self, ls_broadcast(c, a, 1, d, 0), "broadcast");
        INVALID(self, ls_gather(c, a, b, 1, d, 0), "gather");
        INVALID(self, ls_scatter(c, a, b, 1, d, 0), "scatter");
        INVALID(self, ls_alltoall(c, a, b, 1, d), "alltoall");
        INVALID(self, ls_alltoallv(c, a, n, b, n, d), "alltoallv");
        INVALID(self, ls_send(c, a, 1, d, !self->rank, 0), "send");
        INVALID(self, ls_recv(c, a, 1, d, !self->rank, 0), "recv");
        ls_op o = (ls_op)(types[i] == LS_DTYPE_COUNT ? LS_OP_COUNT : types[i]);
        INVALID(self, ls_allreduce(c, a, b, 1, LS_F32, o), "allreduce");
        INVALID(self, ls_reduce(c, a, b, 1, LS_I64, o, 0), "reduce");
        INVALID(self, ls_reduce_scatter(c, a, b, 1, LS_F32, o), "reduce_scatter");
    }
    for (int d = LS_F32; d <= LS_F16; d++)
        for (int o = LS_BAND; o <= LS_BOR; o++) {
            INVALID(self, ls_allreduce(c, a, b, 1, (ls_dtype)d, (ls_op)o), "integers");
            INVALID(self, ls_reduce(c, a, b, 100, (ls_dtype)d, (ls_op)o, 0), "integers");
            INVALID(self, ls_reduce_scatter(c, a, b, 1, (ls_dtype)d, (ls_op)o), "integers");
        }
}

static void roots_peers_and_tags(rank *self, ls_comm *c)
{
    const int bad[] = {-1, self->size, 1 << 30, -(1 << 30)};
    rank_case(self, "roots, peers and tags");
    for (int i = 0; i < 4; i++) {
        INVALID(self, ls_reduce(c, a, b, 1, LS_F32, LS_SUM, bad[i]), "root");
        INVALID(self, ls_broadcast(c, a, 1, LS_F32, bad[i]), "root");
        INVALID(self, ls_gather(c, a, b, 1, LS_F32, bad[i]), "root");
        INVALID(self, ls_scatter(c, a, b, 1, LS_F32, bad[i]), "root");
        INVALID(self, ls_send(c, a, 1, LS_F32, bad[i], 0), "rank");
        INVALID(self, ls_recv(c, a, 1, LS_F32, bad[i], 0), "rank");
    }
    INVALID(self, ls_send(c, a, 1, LS_F32, self->rank, 0), "rank");
    INVALID(self, ls_recv(c, a, 1, LS_F32, self->rank, 0), "rank");
    if (self->size > 1) {
        INVALID(self, ls_send(c, a, 1, LS_F32, !self->rank, -1), "tag");
        INVALID(self, ls_recv(c, a, 1, LS_F32, !self->rank, -5), "tag");
    }
}

static void no_buffers(rank *self, ls_comm *c)
{
    int other = (self->rank + 1) % self->size;
    size_t n[RANKS_MAX] = {0};
    rank_case(self, "no buffers");
    INVALID(self, ls_allreduce(c, NULL, b, 1, LS_F32, LS_SUM), "send is NULL");
    INVALID(self, ls_allreduce(c, a, NULL, 1, LS_F32, LS_SUM), "recv is NULL");
    INVALID(self, ls_allreduce(c, LS_IN_PLACE, NULL, 1, LS_F32, LS_SUM), "NULL");
    INVALID(self, ls_allreduce(c, NULL, NULL, 1000, LS_F32, LS_SUM), "NULL");
    INVALID(self, ls_reduce(c, NULL, b, 1, LS_F32, LS_SUM, other), "send is NULL");
    INVALID(self, ls_reduce(c, a, NULL, 1, LS_F32, LS_SUM, self->rank), "recv is NULL");
    INVALID(self, ls_reduce_scatter(c, a, NULL, 1, LS_F32, LS_SUM), "recv is NULL");
    INVALID(self, ls_allgather(c, NULL, b, 1, LS_F32), "send is NULL");
    INVALID(self, ls_allgather(c, LS_IN_PLACE, NULL, 1, LS_F32), "NULL");
    INVALID(self, ls_broadcast(c, NULL, 1, LS_F32, other), "NULL");
    INVALID(self, ls_gather(c, NULL, b, 1, LS_F32, other), "send is NULL");
    INVALID(self, ls_gather(c, a, NULL, 1, LS_F32, self->rank), "recv is NULL");
    INVALID(self, ls_scatter(c, NULL, b, 1, LS_F32, self->rank), "send is NULL");
    INVALID(self, ls_scatter(c, a, NULL, 1, LS_F32, other), "recv is NULL");
    INVALID(self, ls_alltoall(c, NULL, b, 1, LS_F32), "send is NULL");
    INVALID(self, ls_alltoall(c, a, NULL, 1, LS_F32), "recv is NULL");
    n[self->rank] = 3;
    INVALID(self, ls_allgatherv(c, NULL, b, n, LS_F32), "send is NULL");
    INVALID(self, ls_allgatherv(c, a, NULL, n, LS_F32), "recv is NULL");
    INVALID(self, ls_allgatherv(c, a, b, NULL, LS_F32), "counts is NULL");
    INVALID(self, ls_alltoallv(c, NULL, n, b, n, LS_F32), "send is NULL");
    INVALID(self, ls_alltoallv(c, a, n, NULL, n, LS_F32), "recv is NULL");
    INVALID(self, ls_alltoallv(c, a, NULL, b, n, LS_F32), "NULL");
    INVALID(self, ls_alltoallv(c, a, n, b, NULL, LS_F32), "NULL");
    if (self->size > 1) {
        INVALID(self, ls_send(c, NULL, 1, LS_F32, other, 0), "NULL");
        INVALID(self, ls_recv(c, NULL, 1, LS_F32, other, 0), "NULL");
    }
}

static void in_place_where_it_is_not(rank *self, ls_comm *c)
{
    size_t n[RANKS_MAX] = {0};
    int other = (self->rank + 1) % self->size;
    rank_case(self, "in place where it cannot be");
    REFUSED(self, ls_alltoall(c, LS_IN_PLACE, b, 1, LS_F32), LS_ERR_UNSUPPORTED, "place");
    REFUSED(self, ls_alltoallv(c, LS_IN_PLACE, n, b, n, LS_F32), LS_ERR_UNSUPPORTED, "place");
    if (self->size > 1) {
        INVALID(self, ls_gather(c, LS_IN_PLACE, b, 1, LS_F32, other), "root");
        INVALID(self, ls_scatter(c, LS_IN_PLACE, b, 1, LS_F32, other), "root");
    }
}

static void huge_counts(rank *self, ls_comm *c)
{
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 4 + 1};
    int other = (self->rank + 1) % self->size;
    rank_case(self, "huge counts");
    for (int i = 0; i < 3; i++) {
        size_t n[RANKS_MAX] = {0};
        INVALID(self, ls_allreduce(c, a, b, huge[i], LS_F32, LS_SUM), "memory");
        INVALID(self, ls_reduce(c, a, b, huge[i], LS_F64, LS_SUM, 0), "memory");
        INVALID(self, ls_reduce_scatter(c, a, b, huge[i], LS_F32, LS_SUM), "memory");
        INVALID(self, ls_allgather(c, a, b, huge[i], LS_F32), "memory");
        INVALID(self, ls_broadcast(c, a, huge[i], LS_I64, 0), "memory");
        INVALID(self, ls_gather(c, a, b, huge[i], LS_F32, 0), "memory");
        INVALID(self, ls_scatter(c, a, b, huge[i], LS_F32, 0), "memory");
        INVALID(self, ls_alltoall(c, a, b, huge[i], LS_F32), "memory");
        n[0] = huge[i];
        INVALID(self, ls_allgatherv(c, a, b, n, LS_F32), "memory");
        INVALID(self, ls_alltoallv(c, a, n, b, n, LS_F32), "memory");
        if (self->size > 1) {
            n[0] = n[1] = SIZE_MAX / 2 + 1; /* their sum is 0 again */
            INVALID(self, ls_allgatherv(c, a, b, n, LS_U8), "memory");
            INVALID(self, ls_alltoallv(c, a, n, b, n, LS_U8), "memory");
            INVALID(self, ls_send(c, a, huge[i], LS_F32, other, 0), "memory");
            INVALID(self, ls_recv(c, a, huge[i], LS_F32, other, 0), "memory");
            INVALID(self, ls_allgather(c, a, b, SIZE_MAX / 2 - 1, LS_U8), "memory"); /* of all */
        }
    }
    size_t n[RANKS_MAX] = {0}, k[RANKS_MAX] = {0};
    n[self->rank] = 2; /* what we send to ourselves is not what we expect of ourselves */
    k[self->rank] = 1;
    INVALID(self, ls_alltoallv(c, a, n, b, k, LS_F32), "alltoallv");
}

static void no_request(rank *self, ls_comm *c)
{
    size_t n[RANKS_MAX] = {0};
    rank_case(self, "no place for the request");
    INVALID(self, ls_allreduce_start(c, a, b, 1, LS_F32, LS_SUM, NULL), "request");
    INVALID(self, ls_reduce_start(c, a, b, 1, LS_F32, LS_SUM, 0, NULL), "request");
    INVALID(self, ls_reduce_scatter_start(c, a, b, 1, LS_F32, LS_SUM, NULL), "request");
    INVALID(self, ls_allgather_start(c, a, b, 1, LS_F32, NULL), "request");
    INVALID(self, ls_allgatherv_start(c, a, b, n, LS_F32, NULL), "request");
    INVALID(self, ls_broadcast_start(c, a, 1, LS_F32, 0, NULL), "request");
    INVALID(self, ls_gather_start(c, a, b, 1, LS_F32, 0, NULL), "request");
    INVALID(self, ls_scatter_start(c, a, b, 1, LS_F32, 0, NULL), "request");
    INVALID(self, ls_alltoall_start(c, a, b, 1, LS_F32, NULL), "request");
    INVALID(self, ls_alltoallv_start(c, a, n, b, n, LS_F32, NULL), "request");
    INVALID(self, ls_barrier_start(c, NULL), "request");
    if (self->size > 1) {
        INVALID(self, ls_send_start(c, a, 1, LS_F32, !self->rank, 0, NULL), "request");
        INVALID(self, ls_recv_start(c, a, 1, LS_F32, !self->rank, 0, NULL), "request");
    }
}

static void the_rest(rank *self, ls_comm *c)
{
    char text[64];
    void *memory = NULL;
    ls_comm *sub = NULL;
    rank_case(self, "memory, groups, selection");
    INVALID(self, ls_comm_split(NULL, 0, 0, &sub), "split");
    INVALID(self, ls_comm_split(c, 0, 0, NULL), "split");
    INVALID(self, ls_alloc(NULL, 10, &memory), "ls_alloc");
    INVALID(self, ls_alloc(c, 10, NULL), "ls_alloc");
    REFUSED(self, ls_alloc(c, SIZE_MAX, &memory), LS_ERR_NOMEM, "");
    REFUSED(self, ls_alloc(c, (size_t)1 << 40, &memory), LS_ERR_NOMEM, "");
    CHECK(self, memory == NULL);
    ls_free(c, NULL);
    ls_free(NULL, a);
    ls_free(c, a);
    OK(self, ls_alloc(c, 0, &memory));
    ls_free(c, memory);
    ls_free(c, memory);
    INVALID(self, ls_comm_select(NULL, "allreduce", "ring"), "ls_comm_select");
    INVALID(self, ls_comm_select(c, NULL, "ring"), "collective");
    INVALID(self, ls_comm_select(c, "allreduce", NULL), "ls_comm_select");
    INVALID(self, ls_comm_select(c, "allreduc", "ring"), "allreduc");
    INVALID(self, ls_comm_selection(c, "sing", text, sizeof text), "sing");
    INVALID(self, ls_comm_selection(c, "allreduce", NULL, 10), "ls_comm_selection");
    INVALID(self, ls_comm_selection(c, "allreduce", text, 0), "ls_comm_selection");
    static const char *const bad[] = {"rings",        "0-4k",
                                      "0-4k:",        ":ring",
                                      "4k-0:ring",    "4-4:ring",
                                      "0-4x:ring",    "-4:ring",
                                      "0-inf:ring,,", "0-4k:ring,x",
                                      "a-b:c",        "99999999999999999999999-inf:ring"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSED(self, ls_comm_select(c, "allreduce", bad[i]), LS_ERR_CONFIG, "offers direct, hd");
    REFUSED(self, ls_comm_select(c, "gather", "ring"), LS_ERR_CONFIG, "offers direct");
    OK(self, ls_comm_select(c, "allreduce", "0-4k:tree,4k-inf:ring"));
    OK(self, ls_comm_selection(c, "allreduce", text, sizeof text));
    CHECK(self, strstr(text, "0-4k:tree,4k-inf:ring") == text, "%s", text);
    OK(self, ls_comm_select(c, "allreduce", "auto"));
}

/* Nothing to do is no error, with or without buffers; all ranks take part. */
static void nothing(rank *self, ls_comm *c)
{
    size_t n[RANKS_MAX] = {0};
    for (int in_place = 0; in_place < 2; in_place++) {
        const void *send = in_place ? LS_IN_PLACE : NULL;
        rank_case(self, "nothing, %d", in_place);
        OK(self, ls_allreduce(c, send, NULL, 0, LS_F32, LS_SUM));
        OK(self, ls_reduce(c, send, NULL, 0, LS_F32, LS_SUM, self->size - 1));
        OK(self, ls_reduce_scatter(c, send, NULL, 0, LS_F32, LS_SUM));
        OK(self, ls_allgather(c, send, NULL, 0, LS_F32));
        OK(self, ls_allgatherv(c, send, NULL, n, LS_F32));
        OK(self, ls_broadcast(c, NULL, 0, LS_F32, 0));
        OK(self, ls_gather(c, self->rank ? NULL : send, NULL, 0, LS_F32, 0));
        OK(self, ls_scatter(c, self->rank ? NULL : send, NULL, 0, LS_F32, 0));
        OK(self, ls_alltoall(c, NULL, NULL, 0, LS_F32));
        OK(self, ls_alltoallv(c, NULL, n, NULL, n, LS_F32));
    }
    if (self->size > 1 && self->rank == 0) {
        OK(self, ls_send(c, NULL, 0, LS_F32, 1, 0));
        OK(self, ls_send(c, a, 0, LS_F32, 1, 2147483647));
    } else if (self->rank == 1) {
        OK(self, ls_recv(c, a, 0, LS_F32, 0, 2147483647));
        OK(self, ls_recv(c, NULL, 0, LS_F32, 0, 0));
    }
}

static void body(rank *self)
{
    ls_comm *sub;
    OK(self, ls_comm_split(self->comm, 0, 0, &sub));
    for (int i = 0; i < 2; i++) {
        ls_comm *c = i ? sub : self->comm;
        no_communicator(self);
        types_and_operators(self, c);
        check_usable(self);
        roots_peers_and_tags(self, c);
        check_usable(self);
        no_buffers(self, c);
        check_usable(self);
        in_place_where_it_is_not(self, c);
        check_usable(self);
        huge_counts(self, c);
        check_usable(self);
        no_request(self, c);
        check_usable(self);
        the_rest(self, c);
        check_usable(self);
        nothing(self, c);
        check_usable(self);
    }
    ls_comm_destroy(sub);
}

static void test_all(void **unused)
{
    (void)unused;
    ranks_layout l[] = {ranks_shm(1), ranks_shm(2),       ranks_shm(5),       ranks_tcp(2),
                        ranks_tcp(4), ranks_hosts("2+1"), ranks_hosts("1+1"), ranks_hosts("1+3+2")};
    for (size_t i = 0; i < sizeof l / sizeof *l; i++)
        ranks_run(&l[i], body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

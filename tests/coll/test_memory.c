/* A repeated collective does not allocate: malloc and its sisters are counted while each collective
 * of each size class runs again and again, over shared memory, tcp and two levels; in shared and in
 * private memory with the algorithms that are chosen by default, in both with each of the others,
 * and likewise in sub-groups. Nor does it wait for pages of the rooms for private memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "../count_allocations.h"
#include "ranks.h"

#define WARM_UP (UNDER_SANITIZER ? 4 : 20) /* then nothing is counted: it is just one more run */
#define REPEATS (UNDER_SANITIZER ? 4 : 100)
#define ATTEMPTS 10
#define MOST 300000 /* elements: several chunks */

/* The group that is looked at, and where this rank is in it. */
typedef struct group {
    ls_comm *comm;
    int rank, size;
} group;

static void once(rank *self, const group *g, float *a, float *b, size_t count)
{
    ls_comm *comm = g->comm;
    size_t block = count / (size_t)g->size, each[RANKS_MAX];
    int next = (g->rank + 1) % g->size, before = (g->rank + g->size - 1) % g->size;
    ls_request *out, *in;
    for (int r = 0; r < g->size; r++)
        each[r] = r % 2 ? block : block / 2;
    OK(self, ls_allreduce(comm, LS_IN_PLACE, a, count, LS_F32, LS_MAX));
    OK(self, ls_allreduce_start(comm, a, b, count, LS_F32, LS_MIN, &out));
    OK(self, ls_request_wait(&out, 0));
    OK(self, ls_reduce(comm, a, b, count, LS_F32, LS_SUM, 1));
    OK(self, ls_reduce_scatter(comm, a, b, block, LS_F32, LS_SUM));
    OK(self, ls_allgather(comm, a, b, block, LS_F32));
    OK(self, ls_allgatherv(comm, a, b, each, LS_F32));
    OK(self, ls_broadcast(comm, a, count, LS_F32, 0));
    OK(self, ls_gather(comm, a, b, block, LS_F32, 0));
    OK(self, ls_scatter(comm, a, b, block, LS_F32, g->size - 1));
    OK(self, ls_alltoall(comm, a, b, block, LS_F32));
    for (int r = 0; r < g->size; r++)
        each[r] = (r + g->rank) % 2 ? block : 0;
    OK(self, ls_alltoallv(comm, a, each, b, each, LS_F32));
    OK(self, ls_barrier(comm));
    OK(self, ls_recv_start(comm, b, count, LS_F32, before, 3, &in));
    OK(self, ls_send_start(comm, a, count, LS_F32, next, 3, &out));
    OK(self, ls_request_wait(&in, 0));
    OK(self, ls_request_wait(&out, 0));
}

/* Repeat and count: the same number on every rank. */
static int counted(rank *self, const group *g, float *a, float *b, size_t count, int repeats)
{
    rank_meet(self);
    if (self->rank == 0) {
        atomic_store(&allocations, 0);
        atomic_store(&counting, 1);
    }
    rank_meet(self);
    for (int i = 0; i < repeats; i++)
        once(self, g, a, b, count);
    rank_meet(self);
    atomic_store(&counting, 0);
    rank_meet(self);
    int found = atomic_load(&allocations);
    rank_meet(self);
    return found;
}

/* Every `thin`-th count, and much less often. */
static void repeat(rank *self, const group *g, float *a, float *b, const char *what, int thin)
{
    static const size_t counts[] = {2, 100, 2000, 20000, MOST};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c += (size_t)thin) {
        int repeats = counts[c] == MOST ? REPEATS / 20 + 1 : REPEATS / (thin * thin);
        rank_case(self, "%s, %zu elements", what, counts[c]);
        for (int i = 0; i < (counts[c] == MOST ? WARM_UP / 4 : WARM_UP); i++)
            once(self, g, a, b, counts[c]);
        int found = -1; /* messages that come early fill the pools by chance: allow for a while */
        for (int attempt = 0; found && attempt < ATTEMPTS; attempt++)
            found = counted(self, g, a, b, counts[c], repeats);
        CHECK(self, found == 0, "%d allocations", found);
    }
}

/* Wherever it is offered. */
static void select_algorithm(rank *self, const group *g, int algorithm)
{
    for (int c = 0; c < LSI_P2P; c++)
        if (lsi_select_offers((lsi_coll)c, (lsi_algorithm)algorithm))
            rank_select(self, g->comm, lsi_coll_names[c], lsi_algorithm_names[algorithm]);
}

static void repeat_in(rank *self, const group *g)
{
    void *a, *b;
    OK(self, ls_alloc(self->comm, MOST * sizeof(float), &a));
    OK(self, ls_alloc(self->comm, MOST * sizeof(float), &b));
    repeat(self, g, a, b, "shared", 1);
    float *c = calloc(MOST, sizeof *c), *d = calloc(MOST, sizeof *d);
    repeat(self, g, c, d, "private", 1);
    for (int algorithm = 0; algorithm < LSI_ALGORITHM_COUNT; algorithm++) {
        char what[32];
        snprintf(what, sizeof what, "mixed, %s", lsi_algorithm_names[algorithm]);
        select_algorithm(self, g, algorithm);
        repeat(self, g, a, d, what, 2);
    }
    free(c);
    free(d);
    ls_free(self->comm, a);
    ls_free(self->comm, b);
}

static void body(rank *self)
{
    const group world = {self->comm, self->rank, self->size};
    repeat_in(self, &world);
}

/* Private memory through rooms: all of them are there from the first operation on. */
static void body_rooms(rank *self)
{
    const size_t count = 65536; /* four pieces an operation, of many rooms */
    float *a = calloc(count, sizeof *a);
    struct rusage before, after;
    rank_case(self, "rooms");
    memset(a, 1, count * sizeof *a);
    OK(self, ls_allreduce(self->comm, LS_IN_PLACE, a, count, LS_F32, LS_MAX));
    OK(self, ls_allreduce(self->comm, LS_IN_PLACE, a, count, LS_F32, LS_MAX));
    getrusage(RUSAGE_THREAD, &before);
    for (int i = 0; i < 20; i++)
        OK(self, ls_allreduce(self->comm, LS_IN_PLACE, a, count, LS_F32, LS_MAX));
    getrusage(RUSAGE_THREAD, &after);
    const long missed = after.ru_minflt - before.ru_minflt;
    if (!UNDER_SANITIZER) /* whose shadow of that memory has pages, too */
        CHECK(self, missed < 16, "%ld pages were not there", missed);
    free(a);
}

/* Two sub-groups at once, with the order of the ranks turned round. */
static void body_split(rank *self)
{
    group g;
    rank_case(self, "splitting");
    OK(self, ls_comm_split(self->comm, self->rank % 2, -self->rank, &g.comm));
    g.rank = ls_comm_rank(g.comm);
    g.size = ls_comm_size(g.comm);
    CHECK(self, g.size == self->size / 2);
    repeat_in(self, &g);
    ls_comm_destroy(g.comm);
}

static void test_rooms(void **state)
{
    (void)state;
    setenv("LOCKSTEP_CMA", "0", 1); /* no other way */
    for (int n = 2; n <= 3; n++) {
        ranks_layout layout = ranks_shm(n);
        ranks_run(&layout, body_rooms, NULL);
    }
    unsetenv("LOCKSTEP_CMA");
}

static void test_shm(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) {
        ranks_layout layout = ranks_shm(n);
        if (n == 4)
            setenv("LOCKSTEP_CMA", "0", 1);
        ranks_run(&layout, body, NULL);
    }
    unsetenv("LOCKSTEP_CMA");
}

static void test_tcp(void **state)
{
    (void)state;
    ranks_layout layout = ranks_tcp(3);
    layout.lanes = 2;
    ranks_run(&layout, body, NULL);
}

static void test_two_levels(void **state)
{
    (void)state;
    static const char *const splits[] = {"2+1", "1+2+1"};
    for (int i = 0; i < 2; i++) {
        ranks_layout layout = ranks_hosts(splits[i]);
        ranks_run(&layout, body, NULL);
    }
}

static void test_split(void **state)
{
    (void)state;
    for (int way = 0; way < RANKS_WAYS; way++) {
        ranks_layout layout = ranks_ways[way].layout(4);
        ranks_run(&layout, body_split, NULL);
    }
}

/* The counter counts: a test that could not fail would be none. */
static void test_counter(void **state)
{
    (void)state;
    if (UNDER_SANITIZER)
        skip();
    atomic_store(&allocations, 0);
    atomic_store(&counting, 1);
    void *volatile memory = malloc(10);
    atomic_store(&counting, 0);
    assert_int_equal(atomic_load(&allocations), 1);
    free(memory);
    atomic_store(&allocations, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter), cmocka_unit_test(test_shm),
        cmocka_unit_test(test_tcp),     cmocka_unit_test(test_two_levels),
        cmocka_unit_test(test_split),   cmocka_unit_test(test_rooms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A repeated collective does not allocate: malloc and its sisters are counted while each collective
 * of each size class runs again and again, over shared memory, tcp and two levels. */
#include <stdlib.h>

#include "../count_allocations.h"
#include "ranks.h"

#define WARM_UP (UNDER_SANITIZER ? 4 : 20) /* then nothing is counted: it is just one more run */
#define REPEATS (UNDER_SANITIZER ? 4 : 100)
#define ATTEMPTS 10
#define MOST 300000 /* elements: several chunks */

static void once(rank *self, float *a, float *b, size_t count)
{
    ls_comm *comm = self->comm;
    size_t block = count / (size_t)self->size, each[RANKS_MAX];
    int next = (self->rank + 1) % self->size, before = (self->rank + self->size - 1) % self->size;
    ls_request *out, *in;
    for (int r = 0; r < self->size; r++)
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
    OK(self, ls_scatter(comm, a, b, block, LS_F32, self->size - 1));
    OK(self, ls_alltoall(comm, a, b, block, LS_F32));
    for (int r = 0; r < self->size; r++)
        each[r] = (r + self->rank) % 2 ? block : 0;
    OK(self, ls_alltoallv(comm, a, each, b, each, LS_F32));
    OK(self, ls_barrier(comm));
    OK(self, ls_recv_start(comm, b, count, LS_F32, before, 3, &in));
    OK(self, ls_send_start(comm, a, count, LS_F32, next, 3, &out));
    OK(self, ls_request_wait(&in, 0));
    OK(self, ls_request_wait(&out, 0));
}

/* Repeat and count: the same number on every rank. */
static int counted(rank *self, float *a, float *b, size_t count, int repeats)
{
    rank_meet(self);
    if (self->rank == 0) {
        atomic_store(&allocations, 0);
        atomic_store(&counting, 1);
    }
    rank_meet(self);
    for (int i = 0; i < repeats; i++)
        once(self, a, b, count);
    rank_meet(self);
    atomic_store(&counting, 0);
    rank_meet(self);
    int found = atomic_load(&allocations);
    rank_meet(self);
    return found;
}

static void repeat(rank *self, float *a, float *b, const char *what)
{
    static const size_t counts[] = {2, 100, 2000, 20000, MOST};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int repeats = counts[c] == MOST ? REPEATS / 20 + 1 : REPEATS;
        rank_case(self, "%s, %zu elements", what, counts[c]);
        for (int i = 0; i < (counts[c] == MOST ? WARM_UP / 4 : WARM_UP); i++)
            once(self, a, b, counts[c]);
        int found = -1; /* messages that come early fill the pools by chance: allow for a while */
        for (int attempt = 0; found && attempt < ATTEMPTS; attempt++)
            found = counted(self, a, b, counts[c], repeats);
        CHECK(self, found == 0, "%d allocations", found);
    }
}

static void body(rank *self)
{
    static const char *const collectives[] = {"allreduce", "reduce", "broadcast"};
    void *a, *b;
    OK(self, ls_alloc(self->comm, MOST * sizeof(float), &a));
    OK(self, ls_alloc(self->comm, MOST * sizeof(float), &b));
    repeat(self, a, b, "shared");
    float *c = calloc(MOST, sizeof *c), *d = calloc(MOST, sizeof *d);
    repeat(self, c, d, "private");
    for (int i = 0; i < 3; i++)
        rank_select(self, self->comm, collectives[i], self->size % 2 ? "ring" : "tree");
    repeat(self, a, d, "mixed, ring or tree");
    free(c);
    free(d);
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
    ranks_layout layout = ranks_hosts("2+1");
    ranks_run(&layout, body, NULL);
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
        cmocka_unit_test(test_counter),
        cmocka_unit_test(test_shm),
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_two_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A repeated collective does not allocate: malloc and its sisters are counted while each collective
 * of each size class runs again and again, over shared memory, tcp and two levels. */
#include <stdatomic.h>
#include <stdlib.h>

#include "ranks.h"

#define WARM_UP 20
#define REPEATS 100
#define ATTEMPTS 10
#define MOST 300000 /* elements: several chunks */

static atomic_int counting, allocations;

#if !UNDER_SANITIZER
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

static void count(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed))
        atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t bytes)
{
    count();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    count();
    return __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    count();
    return __libc_realloc(memory, bytes);
}
#endif

static void once(rank *self, float *a, float *b, size_t count)
{
    ls_comm *comm = self->comm;
    size_t block = count / (size_t)self->size;
    int next = (self->rank + 1) % self->size, before = (self->rank + self->size - 1) % self->size;
    ls_request *out, *in;
    OK(self, ls_allreduce(comm, LS_IN_PLACE, a, count, LS_F32, LS_MAX));
    OK(self, ls_allreduce_start(comm, a, b, count, LS_F32, LS_MIN, &out));
    OK(self, ls_request_wait(&out, 0));
    OK(self, ls_reduce(comm, a, b, count, LS_F32, LS_SUM, 1));
    OK(self, ls_reduce_scatter(comm, a, b, block, LS_F32, LS_SUM));
    OK(self, ls_allgather(comm, a, b, block, LS_F32));
    OK(self, ls_broadcast(comm, a, count, LS_F32, 0));
    OK(self, ls_alltoall(comm, a, b, block, LS_F32));
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

static void body(rank *self)
{
    static const size_t counts[] = {2, 100, 2000, 20000, MOST};
    void *a, *b;
    OK(self, ls_alloc(self->comm, MOST * sizeof(float), &a));
    OK(self, ls_alloc(self->comm, MOST * sizeof(float), &b));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int repeats = counts[c] == MOST ? REPEATS / 10 : REPEATS;
        rank_case(self, "%zu elements", counts[c]);
        for (int i = 0; i < WARM_UP; i++)
            once(self, a, b, counts[c]);
        int found = -1; /* messages that come early fill the pools by chance: allow for a while */
        for (int attempt = 0; found && attempt < ATTEMPTS; attempt++)
            found = counted(self, a, b, counts[c], repeats);
        CHECK(self, found == 0, "%d allocations", found);
    }
}

static void run(const ranks_layout *layout)
{
    atomic_store(&allocations, 0);
    ranks_run(layout, body, NULL);
}

static void test_shm(void **state)
{
    (void)state;
    ranks_layout layout = ranks_shm(3);
    run(&layout);
}

static void test_tcp(void **state)
{
    (void)state;
    ranks_layout layout = ranks_tcp(3);
    run(&layout);
}

static void test_two_levels(void **state)
{
    (void)state;
    ranks_layout layout = ranks_hosts("2+1");
    run(&layout);
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

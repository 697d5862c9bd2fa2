/* The host block: layout, mapping by others, limits, deaths and doorbells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/status.h"

#define MIB ((size_t)1 << 20)

static void layout(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 9, LSI_MAX_RANKS};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        lsi_host h;
        int n = sizes[i];
        assert_int_equal(lsi_host_create(n, 0, n, &h), LS_OK);
        assert_int_equal((uintptr_t)h.base % (2 * MIB), 0);
        assert_int_equal(h.heap_offset % (2 * MIB), 0);
        assert_int_equal(h.comm_offset % 4096, 0);
        assert_int_equal(h.pair_offset % 4096, 0);
        assert_true(h.comm_offset >= sizeof(lsi_host_block));
        assert_true(h.pair_offset >= h.comm_offset + (size_t)n * LSI_HOST_COMM_BYTES);
        assert_true(lsi_host_pair(&h, n - 1, n - 1) + LSI_HOST_PAIR_BYTES <= lsi_host_heap(&h, 0));
        assert_true(lsi_host_heap(&h, n - 1) + h.block->heap_bytes == h.base + h.bytes);
        assert_true(h.block->heap_bytes >= 64 * MIB);
        /* Both ends of every part are there, and cost nothing until touched. */
        memset(lsi_host_heap(&h, n - 1) + h.block->heap_bytes - 10, 7, 10);
        memset(lsi_host_pair(&h, 0, n - 1), 7, 10);
        struct stat info;
        assert_int_equal(fstat(h.fd, &info), 0);
        assert_true((size_t)info.st_blocks * 512 < 8 * MIB);
        assert_int_equal(fcntl(h.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        lsi_host_unmap(&h);
        assert_null(h.base);
        lsi_host_unmap(&h);
    }
}

static void refuses_bad_numbers(void **state)
{
    (void)state;
    static const int bad[][3] = {{0, 0, 1},  {1, 0, 0}, {2, 1, 2},
                                 {2, -1, 1}, {2, 2, 1}, {LSI_MAX_RANKS + 1, 0, 1},
                                 {3, 0, 4},  {3, 0, -1}};
    lsi_host h;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(lsi_host_create(bad[i][0], bad[i][1], bad[i][2], &h), LS_ERR_INVALID);
}

static void maps_again(void **state)
{
    (void)state;
    lsi_host a, b;
    assert_int_equal(lsi_host_create(5, 2, 3, &a), LS_OK);
    int fd = dup(a.fd);
    assert_int_equal(lsi_host_map(fd, &b), LS_OK);
    assert_int_equal(b.fd, fd);
    assert_true(a.base != b.base && a.bytes == b.bytes);
    assert_true(a.comm_offset == b.comm_offset && a.pair_offset == b.pair_offset &&
                a.heap_offset == b.heap_offset);
    assert_int_equal((uintptr_t)b.base % (2 * MIB), 0);
    lsi_host_heap(&a, 2)[100] = 42;
    assert_int_equal(lsi_host_heap(&b, 2)[100], 42);
    assert_int_equal(b.block->first_rank, 2);

    /* Nobody can pull the memory away under the others. */
    assert_int_equal(ftruncate(a.fd, 0), -1);
    assert_int_equal(errno, EPERM);
    lsi_host_unmap(&b);
    lsi_host_unmap(&a);
}

static void expect_refusal(lsi_host *h)
{
    lsi_host out;
    assert_int_equal(lsi_host_map(h->fd, &out), LS_ERR_CONFIG);
    assert_non_null(strstr(ls_last_error(), "same version"));
}

static void refuses_what_is_no_segment(void **state)
{
    (void)state;
    lsi_host h, out;
    assert_int_equal(lsi_host_map(-1, &out), LS_ERR_SYSTEM);
    int fd = memfd_create("empty", 0);
    assert_int_equal(lsi_host_map(fd, &out), LS_ERR_CONFIG);
    close(fd);

    assert_int_equal(lsi_host_create(2, 0, 2, &h), LS_OK);
    h.block->magic ^= 1;
    expect_refusal(&h);
    h.block->magic ^= 1;
    h.block->version++;
    expect_refusal(&h);
    h.block->version--;
    h.block->local_size = 3;
    expect_refusal(&h);
    h.block->local_size = 1;
    expect_refusal(&h);
    h.block->local_size = 2;
    h.block->first_rank = 1;
    expect_refusal(&h);
    h.block->first_rank = 0;
    h.block->cores = 0;
    expect_refusal(&h);
    h.block->cores = 1;
    h.block->heap_bytes = UINT64_MAX - 2 * MIB + 1;
    expect_refusal(&h);
    lsi_host_unmap(&h);
}

/* Under taskset, in a container, in a job of Slurm: what the ranks may use, not what there is. */
static void counts_the_cores_it_may_use(void **state)
{
    (void)state;
    cpu_set_t all, one;
    lsi_host h;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(lsi_host_create(2, 0, 2, &h), LS_OK);
    assert_int_equal(h.block->cores, CPU_COUNT(&all));
    lsi_host_unmap(&h);

    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(lsi_host_create(2, 0, 2, &h), LS_OK);
    assert_int_equal(h.block->cores, 1);
    lsi_host_unmap(&h);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void heap_as_asked(void **state)
{
    (void)state;
    lsi_host h;
    setenv("LOCKSTEP_HEAP", "3M", 1);
    assert_int_equal(lsi_host_create(2, 0, 2, &h), LS_OK);
    assert_int_equal(h.block->heap_bytes, 4 * MIB);
    lsi_host_unmap(&h);
    setenv("LOCKSTEP_HEAP", "lots", 1);
    assert_int_equal(lsi_host_create(2, 0, 2, &h), LS_ERR_CONFIG);
    assert_non_null(strstr(ls_last_error(), "LOCKSTEP_HEAP"));
    setenv("LOCKSTEP_HEAP", "10000000G", 1);
    assert_int_equal(lsi_host_create(2, 0, 2, &h), LS_ERR_CONFIG);
    assert_non_null(strstr(ls_last_error(), "LOCKSTEP_HEAP"));
    unsetenv("LOCKSTEP_HEAP");
}

/* In a child, because limits only go down. Returns what `body` returned. */
static int in_child(int resource, size_t limit, int (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit r = {limit, limit};
        setrlimit(resource, &r);
        _exit(body());
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int heap_in_mib(void)
{
    lsi_host h;
    ls_status status = lsi_host_create(2, 0, 2, &h);
    if (status == LS_ERR_NOMEM)
        return strstr(ls_last_error(), "LOCKSTEP_HEAP") ? 201 : 202;
    if (status != LS_OK)
        return 203;
    size_t mib = h.block->heap_bytes / MIB;
    lsi_host_heap(&h, 1)[h.block->heap_bytes - 1] = 1;
    return mib > 200 ? 200 : (int)mib;
}

static void limits_shrink_the_heap(void **state)
{
    (void)state;
    assert_int_equal(in_child(RLIMIT_FSIZE, 1024 * MIB, heap_in_mib), 200);
    assert_in_range(in_child(RLIMIT_FSIZE, 300 * MIB, heap_in_mib), 64, 130);
    assert_int_equal(in_child(RLIMIT_FSIZE, 100 * MIB, heap_in_mib), 201);
    setenv("LOCKSTEP_HEAP", "10M", 1);
    assert_int_equal(in_child(RLIMIT_FSIZE, 100 * MIB, heap_in_mib), 10);
    setenv("LOCKSTEP_HEAP", "100M", 1);
    assert_int_equal(in_child(RLIMIT_FSIZE, 100 * MIB, heap_in_mib), 201);
    unsetenv("LOCKSTEP_HEAP");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they need terabytes */
    assert_int_equal(in_child(RLIMIT_AS, 4096 * MIB, heap_in_mib), 200);
    assert_in_range(in_child(RLIMIT_AS, 512 * MIB, heap_in_mib), 64, 130);
    assert_int_equal(in_child(RLIMIT_AS, 200 * MIB, heap_in_mib), 201);
#endif
}

static void deaths(void **state)
{
    (void)state;
    lsi_host h;
    assert_int_equal(lsi_host_create(4, 1, 2, &h), LS_OK);
    lsi_host_block *b = h.block;
    lsi_host_mark_dead(b, 3, "killed by signal 9 (SIGKILL)");
    assert_int_equal(atomic_load(&b->ranks[3].state), LSI_RANK_DEAD);
    assert_string_equal(b->ranks[3].cause, "killed by signal 9 (SIGKILL)");
    assert_int_equal(atomic_load(&b->epoch), 1);

    lsi_host_mark_dead(b, 3, "another cause"); /* the first wins */
    assert_string_equal(b->ranks[3].cause, "killed by signal 9 (SIGKILL)");
    assert_int_equal(atomic_load(&b->epoch), 1);

    atomic_store(&b->ranks[1].state, LSI_RANK_LEFT); /* states only move forward */
    lsi_host_mark_dead(b, 1, "too late");
    assert_int_equal(atomic_load(&b->ranks[1].state), LSI_RANK_LEFT);
    assert_int_equal(atomic_load(&b->epoch), 1);

    char cause[400];
    memset(cause, 'c', sizeof cause - 1);
    cause[sizeof cause - 1] = 0;
    lsi_host_mark_dead(b, 0, cause);
    assert_int_equal(strlen(b->ranks[0].cause), LSI_HOST_CAUSE_MAX - 1);
    lsi_host_mark_dead(b, -1, "no such rank");
    lsi_host_mark_dead(b, 4, "no such rank");
    assert_int_equal(atomic_load(&b->epoch), 2);

    atomic_store(&b->ranks[2].claimed, 1); /* the one who claimed it was killed */
    lsi_host_mark_dead(b, 2, "overtaken");
    assert_int_equal(atomic_load(&b->ranks[2].state), LSI_RANK_DEAD);
    assert_string_equal(b->ranks[2].cause, "overtaken");
    lsi_host_unmap(&h);
}

typedef struct sleeper {
    lsi_host_rank *rank;
    _Atomic uint32_t *published;
    pthread_t thread;
} sleeper;

/* As host.h says: asleep, look once more, wait. */
static void *sleep_until_published(void *arg)
{
    sleeper *s = arg;
    while (!atomic_load(s->published)) {
        uint32_t bell = atomic_load(&s->rank->doorbell);
        atomic_store(&s->rank->asleep, 1);
        if (!atomic_load(s->published))
            syscall(SYS_futex, &s->rank->doorbell, FUTEX_WAIT, bell, NULL, NULL, 0);
        atomic_store(&s->rank->asleep, 0);
    }
    return NULL;
}

static void doorbells(void **state)
{
    (void)state;
    lsi_host h;
    assert_int_equal(lsi_host_create(4, 1, 2, &h), LS_OK);
    lsi_host_block *b = h.block;
    for (int round = 0; round < 200; round++) {
        _Atomic uint32_t published = 0;
        sleeper s[2] = {{&b->ranks[1], &published, 0}, {&b->ranks[2], &published, 0}};
        for (int i = 0; i < 2; i++)
            pthread_create(&s[i].thread, NULL, sleep_until_published, &s[i]);
        if (round % 3 == 0)
            usleep(500);
        atomic_store(&published, 1);
        if (round % 2 == 0) {
            lsi_host_ring_all(b);
        } else {
            lsi_host_ring(b, 1);
            lsi_host_ring(b, 2);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(s[i].thread, NULL);
    }
    uint32_t before = atomic_load(&b->ranks[1].doorbell);
    lsi_host_ring(b, 1); /* nobody sleeps: no bell, no system call */
    assert_int_equal(atomic_load(&b->ranks[1].doorbell), before);
    atomic_store(&b->ranks[3].asleep, 1);
    lsi_host_ring(b, 3); /* of another host */
    lsi_host_ring(b, 0);
    assert_int_equal(atomic_load(&b->ranks[3].doorbell), 0);
    lsi_host_unmap(&h);
}

/* A death wakes a sleeper in another process. */
static void a_death_wakes(void **state)
{
    (void)state;
    lsi_host h;
    assert_int_equal(lsi_host_create(2, 0, 2, &h), LS_OK);
    lsi_host_block *b = h.block;
    pid_t pid = fork();
    if (pid == 0) {
        uint32_t bell = atomic_load(&b->ranks[0].doorbell);
        atomic_store(&b->ranks[0].asleep, 1);
        while (atomic_load(&b->epoch) == 0)
            syscall(SYS_futex, &b->ranks[0].doorbell, FUTEX_WAIT, bell, NULL, NULL, 0);
        _exit(strcmp(b->ranks[1].cause, "why") == 0 ? 0 : 1);
    }
    while (!atomic_load(&b->ranks[0].asleep))
        usleep(100);
    usleep(20000);
    lsi_host_mark_dead(b, 1, "why");
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    lsi_host_unmap(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout),
        cmocka_unit_test(refuses_bad_numbers),
        cmocka_unit_test(maps_again),
        cmocka_unit_test(refuses_what_is_no_segment),
        cmocka_unit_test(counts_the_cores_it_may_use),
        cmocka_unit_test(heap_as_asked),
        cmocka_unit_test(limits_shrink_the_heap),
        cmocka_unit_test(deaths),
        cmocka_unit_test(doorbells),
        cmocka_unit_test(a_death_wakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

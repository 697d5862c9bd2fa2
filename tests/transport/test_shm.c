/* The rings of shared memory: wrap-around, full and empty, vectors, both directions, and a producer
 * and a consumer at full speed. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/shm.h"

#define RING (LSI_HOST_PAIR_BYTES - 4096)

static lsi_host host;
static lsi_link *a, *b; /* the two ends between ranks 0 and 2 of 3 */

static int open_links(void **unused)
{
    (void)unused;
    alarm(100);
    setenv("LOCKSTEP_HEAP", "64M", 1);
    if (lsi_host_create(5, 1, 3, &host) != LS_OK || lsi_shm_link(&host, 0, 2, &a) != LS_OK ||
        lsi_shm_link(&host, 2, 0, &b) != LS_OK)
        return -1;
    return 0;
}

static int close_links(void **unused)
{
    (void)unused;
    a->ops->close(a);
    b->ops->close(b);
    lsi_host_unmap(&host);
    return 0;
}

static size_t put(lsi_link *l, const void *data, size_t bytes)
{
    struct iovec v = {(void *)(uintptr_t)data, bytes};
    size_t moved = 99;
    assert_int_equal(l->ops->send(l, &v, 1, &moved), LS_OK);
    return moved;
}

static size_t get(lsi_link *l, void *data, size_t bytes)
{
    struct iovec v = {data, bytes};
    size_t moved = 99;
    assert_int_equal(l->ops->recv(l, &v, 1, &moved), LS_OK);
    return moved;
}

static char pattern(uint64_t i)
{
    return (char)(i * 2654435761u >> 13);
}

static void fill(char *at, uint64_t from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = pattern(from + i);
}

static void assert_pattern(const char *at, uint64_t from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != pattern(from + i))
            fail_msg("byte %zu of %zu from %llu differs", i, bytes, (unsigned long long)from);
}

static void test_empty(void **unused)
{
    (void)unused;
    char c;
    assert_string_equal(a->ops->name, "shm");
    assert_int_equal(a->ops->fd(a), -1);
    assert_int_equal(get(a, &c, 1), 0);
    assert_int_equal(get(b, &c, 1), 0);
    assert_int_equal(put(a, &c, 0), 0);
    assert_int_equal(get(b, &c, 1), 0);
}

static void test_full(void **unused)
{
    (void)unused;
    char *data = malloc(RING + 100), *back = malloc(RING + 100);
    fill(data, 0, RING + 100);
    assert_int_equal(put(a, data, RING + 100), RING); /* what fits */
    assert_int_equal(put(a, data, 1), 0);
    assert_int_equal(get(b, back, 10), 10);
    assert_int_equal(put(a, data + RING, 100), 10);
    assert_int_equal(put(a, data + RING, 100), 0);
    assert_int_equal(get(b, back + 10, RING + 90), RING);
    assert_pattern(back, 0, RING + 10);
    assert_int_equal(get(b, back, 1), 0);
    free(data);
    free(back);
}

/* Pieces of every size pass the end of the ring at every offset that matters. */
static void test_wrap(void **unused)
{
    (void)unused;
    static char data[RING], back[RING];
    uint64_t in = 0, out = 0, random = 3;
    while (out < 40 * (uint64_t)RING) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t n = (random >> 33) % (random >> 20 & 7 ? 5000 : RING);
        fill(data, in, n);
        in += put(a, data, n);
        n = (random >> 40) % (random >> 23 & 7 ? 5000 : RING);
        n = get(b, back, n);
        assert_pattern(back, out, n);
        out += n;
        assert_true(in - out <= RING);
    }
    while (out < in) {
        size_t n = get(b, back, 777);
        assert_pattern(back, out, n);
        out += n;
    }
}

static void test_vectors(void **unused)
{
    (void)unused;
    char one[10], two[1], three[300], x[4], y[307];
    fill(one, 0, sizeof one);
    fill(two, 10, sizeof two);
    fill(three, 11, sizeof three);
    struct iovec out[4] = {{one, sizeof one}, {two, sizeof two}, {NULL, 0}, {three, sizeof three}};
    struct iovec in[3] = {{x, sizeof x}, {NULL, 0}, {y, sizeof y}};
    size_t moved;
    assert_int_equal(b->ops->send(b, out, 4, &moved), LS_OK);
    assert_int_equal(moved, 311);
    assert_int_equal(a->ops->recv(a, in, 3, &moved), LS_OK);
    assert_int_equal(moved, 311);
    assert_pattern(x, 0, sizeof x);
    assert_pattern(y, sizeof x, sizeof y);
}

/* The two directions, and the other pairs of the host, do not touch each other. */
static void test_directions(void **unused)
{
    (void)unused;
    lsi_link *other[2];
    char x[3] = "";
    assert_int_equal(lsi_shm_link(&host, 0, 1, &other[0]), LS_OK);
    assert_int_equal(lsi_shm_link(&host, 1, 2, &other[1]), LS_OK);
    put(a, "ab", 2);
    put(b, "cd", 2);
    put(other[0], "ef", 2);
    put(other[1], "gh", 2);
    assert_int_equal(get(b, x, 2), 2);
    assert_string_equal(x, "ab");
    assert_int_equal(get(a, x, 2), 2);
    assert_string_equal(x, "cd");
    assert_int_equal(get(a, x, 2), 0);
    other[0]->ops->close(other[0]);
    other[1]->ops->close(other[1]);
}

static void *produce(void *arg)
{
    uint64_t total = *(uint64_t *)arg;
    static char data[9001];
    for (uint64_t at = 0; at < total;) {
        size_t n = (size_t)(at * 7919 % sizeof data) + 1;
        if (n > total - at)
            n = (size_t)(total - at);
        fill(data, at, n);
        struct iovec v = {data, n};
        size_t moved;
        a->ops->send(a, &v, 1, &moved);
        at += moved;
        if (!moved)
            sched_yield();
    }
    return NULL;
}

static void test_threads(void **unused)
{
    (void)unused;
    uint64_t total = (uint64_t)40 << 20, at = 0;
    static char back[12345];
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, produce, &total), 0);
    while (at < total) {
        size_t n = get(b, back, (size_t)(at * 31 % sizeof back) + 1);
        assert_pattern(back, at, n);
        at += n;
        if (!n)
            sched_yield();
    }
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_empty, open_links, close_links),
        cmocka_unit_test_setup_teardown(test_full, open_links, close_links),
        cmocka_unit_test_setup_teardown(test_wrap, open_links, close_links),
        cmocka_unit_test_setup_teardown(test_vectors, open_links, close_links),
        cmocka_unit_test_setup_teardown(test_directions, open_links, close_links),
        cmocka_unit_test_setup_teardown(test_threads, open_links, close_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

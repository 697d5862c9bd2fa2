/* What every store does, whatever its URL: tests of the seam, for each implementation to run.
 *
 * They take the store from the fixture: its URL, what a short lease is, how many changes are many.
 * An executable that includes this runs SEAM_TESTS. */
#ifndef LS_TEST_STORE_SEAM_H
#define LS_TEST_STORE_SEAM_H

#include "fixture.h"

#include <stdlib.h>

static void puts_and_gets(void **state)
{
    (void)state;
    lsi_store *one = open_client(5), *two = open_client(5);
    const uint8_t *value = NULL;
    size_t bytes = 0;
    uint64_t version = 0, first = put_text(one, "run/rank/0/addr", "10.0.0.1:5", 0);
    assert_true(first > 0);
    assert_int_equal(two->ops->get(two, "run/rank/0/addr", &value, &bytes, &version), LS_OK);
    assert_int_equal(version, first);
    assert_text(two, "run/rank/0/addr", "10.0.0.1:5");
    assert_true(put_text(two, "run/rank/0/addr", "", 0) > first);
    assert_text(one, "run/rank/0/addr", "");
    assert_int_equal(one->ops->put(one, "k", NULL, 0, 0, NULL), LS_OK); /* version not wanted */
    assert_text(two, "k", "");

    assert_int_equal(one->ops->remove(one, "run/rank/0/addr"), LS_OK);
    assert_int_equal(one->ops->remove(one, "run/rank/0/addr"), LS_ERR_NOT_FOUND);
    assert_absent(two, "run/rank/0/addr");
    assert_error_has("run/rank/0/addr");
    lsi_store_close(one);
    lsi_store_close(two);
}

static void takes_large_values_and_refuses_larger(void **state)
{
    (void)state;
    lsi_store *store = open_client(20);
    const uint8_t *value;
    size_t bytes;
    uint64_t version;
    uint8_t *big = malloc(LSI_STORE_VALUE_MAX + 1);
    for (size_t i = 0; i <= LSI_STORE_VALUE_MAX; i++)
        big[i] = (uint8_t)(i * 7 + (i >> 8));
    assert_int_equal(store->ops->put(store, "big", big, LSI_STORE_VALUE_MAX, 0, NULL), LS_OK);
    assert_int_equal(store->ops->get(store, "big", &value, &bytes, &version), LS_OK);
    assert_int_equal(bytes, LSI_STORE_VALUE_MAX);
    assert_memory_equal(value, big, bytes);
    assert_int_equal(store->ops->put(store, "big", big, LSI_STORE_VALUE_MAX + 1, 0, NULL),
                     LS_ERR_INVALID);
    char key[LSI_STORE_KEY_MAX + 2];
    memset(key, 'k', sizeof key);
    key[LSI_STORE_KEY_MAX + 1] = '\0';
    assert_int_equal(store->ops->put(store, key, "", 0, 0, NULL), LS_ERR_INVALID);
    key[LSI_STORE_KEY_MAX] = '\0';
    put_text(store, key, "longest", 0);
    assert_text(store, key, "longest");
    assert_int_equal(store->ops->put(store, "", "", 0, 0, NULL), LS_ERR_INVALID);
    assert_int_equal(store->ops->put(store, "a b", "", 0, 0, NULL), LS_ERR_INVALID);
    assert_int_equal(store->ops->remove(store, "a\n"), LS_ERR_INVALID);
    free(big);
    lsi_store_close(store);
}

static void compares_and_puts(void **state)
{
    (void)state;
    lsi_store *one = open_client(5), *two = open_client(5);
    uint64_t v1 = 0, v2 = 0, v3 = 99;
    assert_int_equal(one->ops->compare_and_put(one, "leader", 0, "one", 3, 0, &v1), LS_OK);
    assert_int_equal(two->ops->compare_and_put(two, "leader", 0, "two", 3, 0, &v3),
                     LS_ERR_CONFLICT);
    assert_error_has("leader");
    assert_int_equal(v3, 99);
    assert_text(two, "leader", "one");
    assert_int_equal(two->ops->compare_and_put(two, "leader", v1, "two", 3, 0, &v2), LS_OK);
    assert_true(v2 > v1);
    assert_int_equal(one->ops->compare_and_put(one, "leader", v1, "one", 3, 0, NULL),
                     LS_ERR_CONFLICT);
    assert_text(one, "leader", "two");
    lsi_store_close(one);
    lsi_store_close(two);
}

static void *count_up(void *arg)
{
    (void)arg;
    lsi_store *store = NULL;
    if (lsi_store_open(fixture.url, &right_key, 20, &store) != LS_OK)
        return (void *)1;
    for (int done = 0; done < 100;) {
        const uint8_t *value;
        size_t bytes;
        uint64_t version;
        char text[32];
        if (store->ops->get(store, "counter", &value, &bytes, &version) != LS_OK)
            return (void *)2;
        snprintf(text, sizeof text, "%.*s", (int)bytes, (const char *)value);
        snprintf(text, sizeof text, "%ld", strtol(text, NULL, 10) + 1);
        ls_status status =
            store->ops->compare_and_put(store, "counter", version, text, strlen(text), 0, NULL);
        if (status != LS_OK && status != LS_ERR_CONFLICT)
            return (void *)3;
        done += status == LS_OK;
    }
    lsi_store_close(store);
    return NULL;
}

static void many_count_without_losing_one(void **state)
{
    (void)state;
    pthread_t threads[4];
    lsi_store *store = open_client(5);
    put_text(store, "counter", "0", 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_text(store, "counter", "400");
    lsi_store_close(store);
}

static void leases_expire_unless_kept(void **state)
{
    (void)state;
    lsi_store *one = open_client(5), *two = open_client(5);
    uint64_t lease = 0;
    assert_int_equal(two->ops->watch(two, "rank/"), LS_OK);
    assert_int_equal(one->ops->lease(one, fixture.lease_s, &lease), LS_OK);
    put_text(one, "rank/1", "here", lease);
    assert_event(two, "rank/1", "here");
    double began = lsi_now();
    for (int i = 0; i < 5; i++) {
        poll(NULL, 0, (int)(fixture.lease_s * 500));
        assert_int_equal(one->ops->keep(one, lease), LS_OK);
    }
    assert_text(two, "rank/1", "here"); /* after 2.5 times its life */
    assert_event(two, "rank/1", NULL);
    double took = lsi_now() - began;
    assert_true(took >= 3.45 * fixture.lease_s && took < 3.5 * fixture.lease_s + 2.5);
    assert_absent(one, "rank/1");
    assert_int_equal(one->ops->keep(one, lease), LS_ERR_NOT_FOUND);
    assert_error_has("lease");
    assert_int_equal(one->ops->put(one, "rank/1", "", 0, lease, NULL), LS_ERR_NOT_FOUND);
    assert_int_equal(one->ops->lease(one, 0, &lease), LS_ERR_INVALID);
    assert_int_equal(one->ops->lease(one, -1, &lease), LS_ERR_INVALID);
    assert_int_equal(one->ops->lease(one, 1e9, &lease), LS_ERR_INVALID);
    assert_int_equal(one->ops->keep(one, 0), LS_ERR_INVALID);
    lsi_store_close(one);
    lsi_store_close(two);
}

static void leases_are_revoked(void **state)
{
    (void)state;
    lsi_store *one = open_client(5);
    uint64_t lease = 0, other = 0;
    assert_int_equal(one->ops->lease(one, 100, &lease), LS_OK);
    assert_int_equal(one->ops->lease(one, 100, &other), LS_OK);
    put_text(one, "a", "1", lease);
    put_text(one, "b", "2", other);
    put_text(one, "c", "3", lease);
    assert_int_equal(one->ops->revoke(one, lease), LS_OK);
    assert_int_equal(one->ops->revoke(one, lease), LS_ERR_NOT_FOUND);
    assert_absent(one, "a");
    assert_text(one, "b", "2");
    assert_absent(one, "c");
    lsi_store_close(one);
}

static void leases_end_with_their_connection(void **state)
{
    (void)state;
    lsi_store *one = open_client(5), *two = open_client(5);
    uint64_t lease = 0;
    assert_int_equal(two->ops->watch(two, ""), LS_OK);
    assert_int_equal(one->ops->lease(one, 1000, &lease), LS_OK);
    put_text(one, "x", "1", lease);
    put_text(one, "stays", "2", 0);
    lsi_store_close(one);
    assert_event(two, "x", "1");
    assert_event(two, "stays", "2");
    assert_event(two, "x", NULL);
    assert_text(two, "stays", "2");
    lsi_store_close(two);
}

static void *change_much(void *arg)
{
    lsi_store *store = NULL;
    if (lsi_store_open(fixture.url, &right_key, 20, &store) != LS_OK)
        return (void *)1;
    for (int i = 0; i < fixture.changes; i++) {
        char key[32], text[16];
        snprintf(key, sizeof key, "many/%s/%d", (const char *)arg, i % 10);
        snprintf(text, sizeof text, "%d", i);
        ls_status status = i % 7 == 6 ? store->ops->remove(store, key)
                                      : store->ops->put(store, key, text, strlen(text), 0, NULL);
        if (status != LS_OK && status != LS_ERR_NOT_FOUND)
            return (void *)2;
    }
    lsi_store_close(store);
    return NULL;
}

/* Two watchers, one of them busy with other calls in between, see the same history: growing
 * versions, and what it adds up to is what the store holds in the end. */
static void watch_order_with_many_changes(void **state)
{
    (void)state;
    pthread_t threads[2];
    lsi_store *watchers[2] = {open_client(20), open_client(20)};
    put_text(watchers[0], "many/early/0", "before", 0);
    put_text(watchers[0], "mane", "not watched", 0);
    for (int w = 0; w < 2; w++)
        assert_int_equal(watchers[w]->ops->watch(watchers[w], "many/"), LS_OK);
    assert_int_equal(pthread_create(&threads[0], NULL, change_much, (void *)"a"), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, change_much, (void *)"b"), 0);

    uint64_t history[2] = {0, 0}, count[2] = {0, 0};
    char last_text[16];
    snprintf(last_text, sizeof last_text, "%d", fixture.changes - 1);
    static char last[2][2][10][16]; /* watcher, writer, key */
    memset(last, 0, sizeof last);
    for (int w = 0; w < 2; w++) {
        lsi_store *store = watchers[w];
        assert_event(store, "many/early/0", "before");
        uint64_t version = 0;
        for (int done = 0; done < 2;) {
            lsi_store_event event;
            assert_int_equal(store->ops->next(store, 20, &event), LS_OK);
            assert_true(event.version > version);
            version = event.version;
            count[w]++;
            for (size_t i = 0; i < strlen(event.key); i++)
                history[w] = history[w] * 31 + (uint8_t)event.key[i];
            history[w] = history[w] * 31 + event.version + (uint64_t)event.deleted;
            char *text = last[w][event.key[5] - 'a'][event.key[7] - '0'];
            snprintf(text, 16, "%.*s", (int)event.bytes, (const char *)event.value);
            done += strcmp(text, last_text) == 0; /* the last change of each writer */
            if (w == 1 && count[w] % 16 == 0)
                assert_text(store, "mane", "not watched");
        }
    }
    for (int i = 0; i < 2; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_true(count[0] > (uint64_t)fixture.changes);
    assert_int_equal(count[0], count[1]);
    assert_int_equal(history[0], history[1]);
    for (int k = 0; k < 20; k++) {
        char key[32];
        snprintf(key, sizeof key, "many/%c/%d", 'a' + k / 10, k % 10);
        if (last[0][k / 10][k % 10][0])
            assert_text(watchers[0], key, last[0][k / 10][k % 10]);
        else
            assert_absent(watchers[0], key);
    }
    lsi_store_event event;
    assert_int_equal(watchers[1]->ops->next(watchers[1], 0, &event), LS_IN_PROGRESS);
    lsi_store_close(watchers[0]);
    lsi_store_close(watchers[1]);
}

static void next_waits_as_told(void **state)
{
    (void)state;
    lsi_store *one = open_client(5), *two = open_client(5);
    lsi_store_event event;
    assert_int_equal(one->ops->watch(one, "k"), LS_OK);
    double began = lsi_now();
    assert_int_equal(one->ops->next(one, 0, &event), LS_IN_PROGRESS);
    assert_true(lsi_now() - began < 0.1);
    assert_int_equal(one->ops->next(one, 0.2, &event), LS_IN_PROGRESS);
    assert_true(lsi_now() - began >= 0.2 && lsi_now() - began < 1.5);
    put_text(two, "k1", "v", 0);
    struct pollfd p = {.fd = one->ops->fd(one), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 2000), 1); /* the descriptor tells */
    assert_event(one, "k1", "v");
    put_text(two, "k2", "w", 0);
    assert_text(one, "k1", "v"); /* a call may meet the event: it is kept */
    assert_event(one, "k2", "w");
    lsi_store_close(one);
    lsi_store_close(two);
}

/* Shorter than the patience for an answer: the server itself says that the time is over. */
static void short_waits_end_in_time(void **state)
{
    (void)state;
    lsi_store *store = open_client(5);
    const uint8_t *value;
    size_t bytes;
    double began = lsi_now();
    assert_int_equal(lsi_store_wait(store, "k", 0, NULL, &value, &bytes), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began < 0.9); /* its patience is 1 s */
    began = lsi_now();
    assert_int_equal(lsi_store_wait(store, "k", 0.2, NULL, &value, &bytes), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began >= 0.2 && lsi_now() - began < 0.9);
    put_text(store, "k", "v", 0);
    assert_int_equal(lsi_store_wait(store, "k", 0, NULL, &value, &bytes), LS_OK);
    lsi_store_close(store);
}

static void too_many_watches_are_refused(void **state)
{
    (void)state;
    lsi_store *store = open_client(5);
    ls_status status = LS_OK;
    int n = 0;
    for (; n < 1000 && status == LS_OK; n++) {
        char prefix[16];
        snprintf(prefix, sizeof prefix, "%d/", n);
        status = store->ops->watch(store, prefix);
    }
    assert_int_equal(status, LS_ERR_UNSUPPORTED);
    assert_error_has("shorter prefix");
    assert_true(n > 32);
    assert_int_equal(store->ops->watch(store, ""), LS_OK);
    lsi_store_close(store);
}

static void *put_late(void *arg)
{
    lsi_store *store = arg;
    poll(NULL, 0, 200);
    return (void *)(intptr_t)store->ops->put(store, "late", "now", 3, 0, NULL);
}

static void waits_for_keys(void **state)
{
    (void)state;
    lsi_store *one = open_client(0.1), *two = open_client(5);
    const uint8_t *value = NULL;
    size_t bytes = 0;
    pthread_t thread;
    double began = lsi_now();
    assert_int_equal(lsi_store_wait(one, "late", 0.3, "rank 3's address", &value, &bytes),
                     LS_ERR_TIMEOUT); /* longer than the time-out of open */
    assert_true(lsi_now() - began >= 0.3 && lsi_now() - began < 1.5);
    assert_error_has("late");
    assert_error_has("rank 3's address");
    assert_null(value);
    assert_int_equal(pthread_create(&thread, NULL, put_late, two), 0);
    began = lsi_now();
    assert_int_equal(lsi_store_wait(one, "late", 10, NULL, &value, &bytes), LS_OK);
    assert_true(lsi_now() - began < 2);
    assert_int_equal(bytes, 3);
    assert_memory_equal(value, "now", 3);
    pthread_join(thread, NULL);
    assert_int_equal(lsi_store_wait(one, "late", 0, NULL, &value, &bytes), LS_OK);
    assert_int_equal(lsi_store_wait(one, "a b", 0, NULL, &value, &bytes), LS_ERR_INVALID);
    lsi_store_close(one);
    lsi_store_close(two);
}

#define SEAM_TEST(test, start, stop) cmocka_unit_test_setup_teardown(test, start, stop)
#define SEAM_TESTS(start, stop)                                                                    \
    SEAM_TEST(puts_and_gets, start, stop),                                                         \
        SEAM_TEST(takes_large_values_and_refuses_larger, start, stop),                             \
        SEAM_TEST(compares_and_puts, start, stop),                                                 \
        SEAM_TEST(many_count_without_losing_one, start, stop),                                     \
        SEAM_TEST(leases_expire_unless_kept, start, stop),                                         \
        SEAM_TEST(leases_are_revoked, start, stop),                                                \
        SEAM_TEST(leases_end_with_their_connection, start, stop),                                  \
        SEAM_TEST(watch_order_with_many_changes, start, stop),                                     \
        SEAM_TEST(next_waits_as_told, start, stop),                                                \
        SEAM_TEST(short_waits_end_in_time, start, stop),                                           \
        SEAM_TEST(too_many_watches_are_refused, start, stop),                                      \
        SEAM_TEST(waits_for_keys, start, stop)

#endif

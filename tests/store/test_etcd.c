/* The seam on a real etcd, and what only etcd does: prefixes, sealed values, leases that live in
 * etcd, pages of keys. */
#include "etcd_fixture.h"
#include "seam.h"

#include "store/etcd_json.h"
#include "store/seal.h"

static void opens_by_url(void **state)
{
    (void)state;
    lsi_store *store = NULL;
    assert_string_equal(lsi_store_names()[1], "etcd");
    assert_null(lsi_store_why_unusable("etcd"));
    static const char *const bad[] = {"",     "h",        "h:0",   ":1",     "h:1,",
                                      ",h:1", "h:1,,i:2", "a@h:1", "h:1?x",  "h:1/a b",
                                      "h:x",  "h:1 /a",   "h#:1",  "[::1:1", "h:1,i"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char url[64];
        snprintf(url, sizeof url, "etcd://%s", bad[i]);
        assert_int_equal(lsi_store_open(url, &right_key, 1, &store), LS_ERR_CONFIG);
        assert_error_has("etcd://HOST:PORT");
    }
    assert_null(store);
    snprintf(fixture.url, sizeof fixture.url, "etcd://%s/", shared_etcd.address);
    lsi_store_close(open_client(5));
    snprintf(fixture.url, sizeof fixture.url, "etcd://localhost%s/test-name",
             strrchr(shared_etcd.address, ':'));
    lsi_store *named = open_client(5);
    work(named);
    lsi_store_close(named);
}

/* What curl opens is not inherited by the programs that a launcher starts. */
static void descriptors_end_with_exec(void **state)
{
    (void)state;
    int was_open[256];
    for (int fd = 0; fd < 256; fd++)
        was_open[fd] = fcntl(fd, F_GETFD) >= 0;
    lsi_store *store = open_client(5);
    assert_int_equal(store->ops->watch(store, ""), LS_OK);
    put_text(store, "k", "v", 0);
    int opened = 0;
    for (int fd = 0; fd < 256; fd++) {
        int flags = fcntl(fd, F_GETFD);
        struct sockaddr_storage name = {0};
        socklen_t bytes = sizeof name;
        if (flags < 0 || was_open[fd])
            continue;
        if (getsockname(fd, (struct sockaddr *)&name, &bytes) == 0 && name.ss_family == AF_UNIX)
            continue; /* the pair by which curl wakes itself */
        opened++;
        assert_true(flags & FD_CLOEXEC);
    }
    assert_true(opened == 4);
    lsi_store_close(store);
}

/* By default the prefix follows from the key: runs share an etcd and do not meet. */
static void runs_do_not_meet(void **state)
{
    (void)state;
    lsi_store *one = NULL, *two = NULL;
    lsi_store_event event;
    char url[LSI_ADDR_MAX + 8];
    snprintf(url, sizeof url, "etcd://%s", shared_etcd.address);
    assert_int_equal(lsi_store_open(url, &right_key, 5, &one), LS_OK);
    assert_int_equal(lsi_store_open(url, &wrong_key, 5, &two), LS_OK);
    assert_int_equal(two->ops->watch(two, ""), LS_OK);
    put_text(one, "k", "one", 0);
    assert_absent(two, "k");
    put_text(two, "k", "two", 0);
    assert_text(one, "k", "one");
    assert_event(two, "k", "two");
    assert_int_equal(two->ops->next(two, 0.2, &event), LS_IN_PROGRESS);
    assert_int_equal(one->ops->remove(one, "k"), LS_OK);
    assert_int_equal(two->ops->remove(two, "k"), LS_OK);
    lsi_store_close(one);
    lsi_store_close(two);
}

static void the_wrong_key_is_noticed(void **state)
{
    (void)state;
    lsi_store *early = NULL, *late = NULL, *one = open_client(5);
    const uint8_t *value = NULL;
    size_t bytes = 0;
    uint64_t version;
    assert_int_equal(lsi_store_open(fixture.url, &wrong_key, 5, &early), LS_OK); /* nothing there */
    put_text(one, "k", "v", 0);
    assert_int_equal(early->ops->get(early, "k", &value, &bytes, &version), LS_ERR_AUTH);
    assert_error_has("/k was not written with the run's key");
    assert_null(value);
    assert_int_equal(early->ops->get(early, "l", &value, &bytes, &version), LS_ERR_AUTH);
    assert_error_has("given up before");
    lsi_store_close(early);
    assert_int_equal(lsi_store_open(fixture.url, &wrong_key, 5, &late), LS_ERR_AUTH);
    assert_null(late);
    lsi_store_close(one);
}

/* Put `value` where `key` lies, without the run's key. */
static void put_as_stranger(const char *key, const void *value, size_t bytes)
{
    char name[128];
    lsi_buffer body = {0};
    snprintf(name, sizeof name, "%s/%s", strrchr(fixture.url, '/') + 1, key);
    assert_int_equal(lsi_etcd_put(&body, name, value, bytes, 0), LS_OK);
    assert_int_equal(lsi_buffer_append(&body, "", 1), LS_OK);
    assert_int_equal(post_raw("kv/put", (const char *)lsi_buffer_front(&body)), 200);
    lsi_buffer_free(&body);
}

/* A put that was sent before others and reaches etcd after them, from a server that was stopped:
 * it has no effect. Clients that know less than others still overwrite what they wrote. */
static void late_puts_have_no_effect(void **state)
{
    (void)state;
    char name[128];
    uint64_t first;
    lsi_buffer body = {0};
    lsi_store *one = open_client(5), *two = open_client(5);
    assert_int_equal(one->ops->put(one, "k", "1", 1, 0, &first), LS_OK);
    put_text(one, "k", "2", 0);
    put_text(two, "k", "3", 0); /* two has not heard of anything */
    put_text(one, "k", "4", 0);
    snprintf(name, sizeof name, "%s/k", strrchr(fixture.url, '/') + 1);
    assert_int_equal(lsi_etcd_put_unless_changed(&body, name, first, "late", 4, 0), LS_OK);
    assert_int_equal(lsi_buffer_append(&body, "", 1), LS_OK);
    assert_int_equal(post_raw("kv/txn", (const char *)lsi_buffer_front(&body)), 200);
    assert_text(two, "k", "4");
    lsi_buffer_free(&body);
    lsi_store_close(one);
    lsi_store_close(two);
}

static void values_of_strangers_are_refused(void **state)
{
    (void)state;
    const uint8_t *value = NULL;
    size_t bytes = 0;
    uint64_t version;
    lsi_store_event event;
    lsi_store *watcher = open_client(5), *other = open_client(5), *late = open_client(5);
    assert_int_equal(watcher->ops->watch(watcher, "mine/"), LS_OK);
    assert_int_equal(other->ops->watch(other, "good/"), LS_OK);
    put_text(other, "mine/a", "right", 0);
    put_as_stranger("mine/b", "forged", 6);
    put_text(other, "good/c", "right", 0);
    assert_event(watcher, "mine/a", "right"); /* what came before is handed out */
    assert_int_equal(watcher->ops->next(watcher, 5, &event), LS_ERR_AUTH);
    assert_error_has("mine/b was not written with the run's key");
    assert_int_equal(watcher->ops->next(watcher, 5, &event), LS_ERR_AUTH);
    assert_error_has("given up before");
    assert_event(other, "good/c", "right"); /* who does not look at it is not disturbed */
    assert_int_equal(late->ops->watch(late, "mine/"), LS_ERR_AUTH);
    assert_int_equal(other->ops->get(other, "mine/b", &value, &bytes, &version), LS_ERR_AUTH);
    assert_null(value);
    lsi_store_close(watcher);
    lsi_store_close(other);
    lsi_store_close(late);

    lsi_store *cleaner = open_client(5); /* open looks at one key: mine is good/c */
    assert_int_equal(cleaner->ops->remove(cleaner, "mine/b"), LS_OK);
    assert_int_equal(cleaner->ops->watch(cleaner, "mine/"), LS_OK);
    assert_event(cleaner, "mine/a", "right");
    put_as_stranger("mine/a key", "", 0); /* not even a name of ours */
    assert_int_equal(cleaner->ops->next(cleaner, 5, &event), LS_ERR_AUTH);
    assert_error_has("no member of the run");
    lsi_store_close(cleaner);
}

static void seals_hold_name_and_value(void **state)
{
    (void)state;
    lsi_seal *seal = NULL, *wrong = NULL;
    lsi_buffer one = {0}, two = {0};
    const uint8_t *value = NULL;
    size_t bytes = 0;
    assert_int_equal(lsi_seal_create(&right_key, &seal), LS_OK);
    assert_int_equal(lsi_seal_create(&wrong_key, &wrong), LS_OK);
    assert_int_equal(lsi_seal_put(seal, "name", "value", 5, &one), LS_OK);
    assert_int_equal(lsi_seal_put(seal, "name", "value", 5, &two), LS_OK);
    assert_int_equal(one.used, LSI_SEAL_BYTES + 5);
    assert_memory_not_equal(lsi_buffer_front(&one), lsi_buffer_front(&two), one.used);
    uint8_t *sealed = one.data + one.head;
    assert_int_equal(lsi_seal_check(seal, "name", sealed, one.used, &value, &bytes), LS_OK);
    assert_int_equal(bytes, 5);
    assert_memory_equal(value, "value", 5);
    assert_int_equal(lsi_seal_check(seal, "nam", sealed, one.used, &value, &bytes), LS_ERR_AUTH);
    assert_int_equal(lsi_seal_check(seal, "named", sealed, one.used, &value, &bytes), LS_ERR_AUTH);
    assert_int_equal(lsi_seal_check(wrong, "name", sealed, one.used, &value, &bytes), LS_ERR_AUTH);
    for (size_t n = 0; n < one.used; n++)
        assert_int_equal(lsi_seal_check(seal, "name", sealed, n, &value, &bytes), LS_ERR_AUTH);
    for (size_t i = 0; i < one.used * 8; i++) {
        sealed[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(lsi_seal_check(seal, "name", sealed, one.used, &value, &bytes),
                         LS_ERR_AUTH);
        sealed[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    assert_int_equal(lsi_seal_check(seal, "name", sealed, one.used, &value, &bytes), LS_OK);
    lsi_buffer_free(&one);
    lsi_buffer_free(&two);
    lsi_seal_destroy(seal);
    lsi_seal_destroy(wrong);
    lsi_seal_destroy(NULL);
}

/* Nobody closes anything: the lease's time ends it. */
static void leases_of_killed_processes_expire(void **state)
{
    (void)state;
    lsi_store *watcher = open_client(5);
    assert_int_equal(watcher->ops->watch(watcher, "rank/"), LS_OK);
    pid_t child = fork();
    if (child == 0) {
        lsi_store *store = NULL;
        uint64_t lease = 0;
        if (lsi_store_open(fixture.url, &right_key, 5, &store) != LS_OK ||
            store->ops->lease(store, 0.001, &lease) != LS_OK ||
            store->ops->put(store, "rank/3", "up", 2, lease, NULL) != LS_OK)
            _exit(1);
        pause();
        _exit(2);
    }
    assert_event(watcher, "rank/3", "up");
    double began = lsi_now();
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_event(watcher, "rank/3", NULL);
    assert_true(lsi_now() - began < 4); /* rounded up to 1 s */
    lsi_store_close(watcher);
}

/* More keys than a page holds, under prefixes that overlap, with changes in between. */
static void lists_and_watches_many_prefixes(void **state)
{
    (void)state;
    lsi_store *one = open_client(10), *two = open_client(10);
    lsi_store_event event;
    char key[32], text[32];
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "a/%02d", 39 - i);
        put_text(two, key, key, 0);
    }
    put_text(two, "b", "1", 0);
    put_text(two, "a0", "1", 0); /* the first key after all of a/ */
    assert_int_equal(one->ops->watch(one, "a/1"), LS_OK);
    put_text(two, "a/15", "new", 0); /* not read yet */
    assert_int_equal(one->ops->watch(one, "a/"), LS_OK);
    put_text(two, "a/16", "new", 0);
    assert_int_equal(one->ops->watch(one, "a/2"), LS_OK); /* covered */
    assert_int_equal(one->ops->watch(one, "b"), LS_OK);
    for (int i = 0; i < 40; i++) { /* a/1… first, then the rest in order */
        int n = i < 10 ? 10 + i : i < 20 ? i - 10 : i;
        snprintf(key, sizeof key, "a/%02d", n);
        snprintf(text, sizeof text, "%s", key);
        assert_event(one, key, text);
    }
    assert_event(one, "b", "1");
    assert_event(one, "a/15", "new");
    assert_event(one, "a/16", "new");
    assert_int_equal(two->ops->remove(two, "a/20"), LS_OK);
    put_text(two, "c", "1", 0);
    put_text(two, "b", "2", 0);
    assert_event(one, "a/20", NULL);
    assert_event(one, "b", "2");
    assert_int_equal(one->ops->next(one, 0.2, &event), LS_IN_PROGRESS);
    assert_int_equal(one->ops->watch(one, ""), LS_OK);
    assert_event(one, "a0", "1");
    assert_event(one, "c", "1");
    assert_int_equal(one->ops->next(one, 0.2, &event), LS_IN_PROGRESS);
    assert_int_equal(one->ops->watch(one, "a b"), LS_ERR_INVALID);
    lsi_store_close(one);
    lsi_store_close(two);
}

/* A watcher that does other things while far more changes come than it keeps unread. */
static void unread_changes_are_bounded(void **state)
{
    (void)state;
    lsi_store *one = open_client(20), *two = open_client(20);
    uint8_t *big = calloc(1, LSI_STORE_VALUE_MAX);
    lsi_store_event event;
    assert_int_equal(one->ops->watch(one, "big"), LS_OK);
    for (int i = 0; i < 60; i++) {
        big[0] = (uint8_t)i;
        assert_int_equal(two->ops->put(two, "big", big, LSI_STORE_VALUE_MAX, 0, NULL), LS_OK);
        if (i % 5 == 0)
            assert_absent(one, "nothing");
    }
    for (int i = 0; i < 20; i++)
        assert_absent(one, "nothing");
    uint64_t version = 0;
    for (int i = 0; i < 60; i++) {
        ls_status status = one->ops->next(one, 20, &event);
        if (status != LS_OK)
            fail_msg("event %d: %s", i, ls_last_error());
        assert_int_equal(event.bytes, LSI_STORE_VALUE_MAX);
        assert_int_equal(event.value[0], i);
        assert_true(event.version > version);
        version = event.version;
    }
    assert_int_equal(one->ops->next(one, 0.2, &event), LS_IN_PROGRESS);
    free(big);
    lsi_store_close(one);
    lsi_store_close(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SEAM_TESTS(etcd_test_start, etcd_test_stop),
        ETCD(opens_by_url),
        ETCD(descriptors_end_with_exec),
        ETCD(runs_do_not_meet),
        ETCD(the_wrong_key_is_noticed),
        ETCD(values_of_strangers_are_refused),
        ETCD(seals_hold_name_and_value),
        ETCD(leases_of_killed_processes_expire),
        ETCD(lists_and_watches_many_prefixes),
        ETCD(unread_changes_are_bounded),
        ETCD(late_puts_have_no_effect),
    };
    return RUN_WITH_ETCD(tests);
}

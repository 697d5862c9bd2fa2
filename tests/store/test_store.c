/* The embedded store as its users see it: the seam over real connections, and what only it does. */
#include "seam.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

static void opens_by_url(void **state)
{
    (void)state;
    lsi_store *store = NULL;
    assert_string_equal(lsi_store_names()[0], "tcp");
    static const char *const bad[] = {"",         "127.0.0.1:1", "zookeeper://127.0.0.1:1",
                                      "tc://h:1", "tcpx://h:1",  "://h:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(lsi_store_open(bad[i], &right_key, 1, &store), LS_ERR_CONFIG);
        assert_error_has("tcp://HOST:PORT");
    }
    assert_int_equal(lsi_store_open("tcp://127.0.0.1", &right_key, 1, &store), LS_ERR_CONFIG);
    assert_null(store);
    lsi_store_close(NULL);
    lsi_store_server_destroy(NULL);
}

static void is_full_at_some_time(void **state)
{
    (void)state;
    lsi_store *store = open_client(20);
    uint8_t *big = calloc(1, LSI_STORE_VALUE_MAX);
    char key[32];
    ls_status status = LS_OK;
    for (int i = 0; i < 100 && status == LS_OK; i++) {
        snprintf(key, sizeof key, "fill/%d", i);
        status = store->ops->put(store, key, big, LSI_STORE_VALUE_MAX, 0, NULL);
    }
    assert_int_equal(status, LS_ERR_NOMEM);
    assert_error_has("full");
    assert_int_equal(store->ops->remove(store, "fill/0"), LS_OK);
    assert_int_equal(store->ops->put(store, key, big, LSI_STORE_VALUE_MAX, 0, NULL), LS_OK);
    free(big);
    lsi_store_close(store);
}

/* As leases_end_with_their_connection when the process is killed: nobody closes anything, and no
 * time-out is waited for. */
static void leases_end_with_their_process(void **state)
{
    (void)state;
    lsi_store *watcher = open_client(5);
    assert_int_equal(watcher->ops->watch(watcher, "rank/"), LS_OK);
    pid_t child = fork();
    if (child == 0) {
        lsi_store *store = NULL;
        uint64_t lease = 0;
        if (lsi_store_open(fixture.url, &right_key, 5, &store) != LS_OK ||
            store->ops->lease(store, 1000, &lease) != LS_OK ||
            store->ops->put(store, "rank/3", "up", 2, lease, NULL) != LS_OK)
            _exit(1);
        pause();
        _exit(2);
    }
    assert_event(watcher, "rank/3", "up");
    double began = lsi_now();
    kill(child, SIGKILL);
    assert_event(watcher, "rank/3", NULL);
    assert_true(lsi_now() - began < 1);
    waitpid(child, NULL, 0);
    lsi_store_close(watcher);
}

/* A store that cannot wait is asked again and again. */
static int gets_left;

static ls_status get_later(lsi_store *store, const char *key, const uint8_t **value, size_t *bytes,
                           uint64_t *version)
{
    (void)store, (void)key, (void)version;
    if (gets_left-- > 0)
        return LS_ERR_NOT_FOUND;
    *value = (const uint8_t *)"v";
    *bytes = 1;
    return LS_OK;
}

static void waits_without_help(void **state)
{
    (void)state;
    static const lsi_store_ops ops = {.name = "poor", .get = get_later};
    lsi_store store = {.ops = &ops};
    const uint8_t *value;
    size_t bytes;
    gets_left = 3;
    assert_int_equal(lsi_store_wait(&store, "k", 5, NULL, &value, &bytes), LS_OK);
    gets_left = 1000000;
    double began = lsi_now();
    assert_int_equal(lsi_store_wait(&store, "k", 0.1, "x", &value, &bytes), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began >= 0.1 && lsi_now() - began < 1);
    assert_true(gets_left > 1000000 - 200); /* without burning the processor */
}

static void concat(void *arg, const char *key, const uint8_t *value, size_t bytes)
{
    char *words = arg;
    size_t used = strlen(words);
    snprintf(words + used, 256 - used, "%s=%.*s ", key, (int)bytes, (const char *)value);
}

/* The launcher's own access; watchers hear of it without a step in between. */
static void owner_has_access(void **state)
{
    (void)state;
    lsi_store *store = open_client(5);
    const uint8_t *value;
    size_t bytes;
    char words[256] = "";
    assert_int_equal(store->ops->watch(store, "run/"), LS_OK);
    put_text(store, "run/b", "2", 0);
    assert_event(store, "run/b", "2");
    pthread_mutex_lock(&fixture.lock); /* no step meanwhile */
    assert_int_equal(lsi_store_server_put(fixture.server, "run/a", "1", 1), LS_OK);
    assert_event(store, "run/a", "1");
    assert_int_equal(lsi_store_server_put(fixture.server, "run b", "1", 1), LS_ERR_INVALID);
    assert_int_equal(lsi_store_server_put(fixture.server, "other", "", 0), LS_OK);
    assert_int_equal(lsi_store_server_get(fixture.server, "run/b", &value, &bytes), LS_OK);
    assert_int_equal(bytes, 1);
    assert_memory_equal(value, "2", 1);
    assert_int_equal(lsi_store_server_get(fixture.server, "none", &value, &bytes),
                     LS_ERR_NOT_FOUND);
    lsi_store_server_each(fixture.server, "run/", concat, words);
    pthread_mutex_unlock(&fixture.lock);
    assert_string_equal(words, "run/a=1 run/b=2 ");

    char host[LSI_ADDR_MAX];
    int port;
    lsi_store_server *second = NULL;
    assert_int_equal(lsi_net_split(fixture.address, host, &port), LS_OK);
    assert_int_equal(lsi_store_server_create(host, port, &right_key, &second), LS_ERR_SYSTEM);
    assert_null(second);
    lsi_store_close(store);
}

#define BOTH(test) cmocka_unit_test_setup_teardown(test, fixture_start, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SEAM_TESTS(fixture_start, fixture_stop),
        BOTH(opens_by_url),
        BOTH(is_full_at_some_time),
        BOTH(leases_end_with_their_process),
        BOTH(owner_has_access),
        cmocka_unit_test(waits_without_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

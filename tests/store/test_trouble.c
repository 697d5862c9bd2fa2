/* Trouble without malice: a server that ends, is stuck, lies, or has no descriptors left. */
#include "fixture.h"
#include "waiter.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void server_ends_while_clients_wait(void **state)
{
    (void)state;
    waiter w[2] = {{.store = open_client(5)}, {.store = open_client(5), .watches = 1}};
    lsi_store *idle = open_client(5);
    uint64_t version;
    assert_int_equal(w[1].store->ops->watch(w[1].store, ""), LS_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&w[i].thread, NULL, wait_long, &w[i]), 0);
    poll(NULL, 0, 200);
    fixture_end_server();
    for (int i = 0; i < 2; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].status, LS_ERR_PEER_DEAD);
        assert_true(w[i].took >= 0.1 && w[i].took < 2);
        assert_int_equal(w[i].store->ops->put(w[i].store, "k", "", 0, 0, &version),
                         LS_ERR_PEER_DEAD); /* and ever after */
        assert_error_has(fixture.address);
        lsi_store_close(w[i].store);
    }
    assert_int_equal(idle->ops->put(idle, "k", "", 0, 0, &version), LS_ERR_PEER_DEAD);
    lsi_store_close(idle);
    double began = lsi_now();
    lsi_store *late = NULL;
    assert_int_equal(lsi_store_open(fixture.url, &right_key, 0.3, &late), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began < 1.5);
}

/* A stuck server costs each call its deadline and no more; when it wakes, all is well, and the
 * answers that come late are not taken for those of later questions. */
static void stuck_server(void **state)
{
    (void)state;
    lsi_store *store = open_client(0.3), *late = NULL;
    const uint8_t *value;
    size_t bytes;
    uint64_t version;
    put_text(store, "a", "1", 0);
    put_text(store, "b", "2", 0);
    freeze();
    for (int i = 0; i < 3; i++) {
        double began = lsi_now();
        assert_int_equal(store->ops->get(store, i % 2 ? "a" : "b", &value, &bytes, &version),
                         LS_ERR_TIMEOUT);
        assert_true(lsi_now() - began >= 0.3 && lsi_now() - began < 1.5);
        assert_error_has("did not answer");
    }
    assert_int_equal(lsi_store_wait(store, "z", 0.3, NULL, &value, &bytes), LS_ERR_TIMEOUT);
    double began = lsi_now();
    assert_int_equal(lsi_store_open(fixture.url, &right_key, 0.3, &late), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began < 1.5);
    atomic_store(&fixture.freeze, 0);
    assert_text(store, "a", "1"); /* four stale answers come first */
    assert_text(store, "b", "2");
    work(store);
    lsi_store_close(store);
}

/* A request that the stuck server does not even take is finished later: the stream stays whole. */
static void stuck_in_the_middle_of_a_request(void **state)
{
    (void)state;
    lsi_store *store = open_client(0.2);
    uint8_t *big = malloc(LSI_STORE_VALUE_MAX);
    memset(big, 'x', LSI_STORE_VALUE_MAX);
    freeze();
    for (int i = 0; i < 14; i++) /* more than the kernel buffers */
        assert_int_equal(store->ops->put(store, "big", big, LSI_STORE_VALUE_MAX, 0, NULL),
                         LS_ERR_TIMEOUT);
    atomic_store(&fixture.freeze, 0);
    const uint8_t *value;
    size_t bytes;
    uint64_t version;
    ls_status status = LS_ERR_TIMEOUT;
    for (int i = 0; i < 20 && status == LS_ERR_TIMEOUT; i++)
        status = store->ops->get(store, "big", &value, &bytes, &version);
    assert_int_equal(status, LS_OK);
    assert_int_equal(bytes, LSI_STORE_VALUE_MAX);
    assert_memory_equal(value, big, bytes);
    work(store);
    free(big);
    lsi_store_close(store);
}

/* A server that holds the key and misbehaves all the same. */
typedef struct fake {
    int listener;
    int drops; /* connections closed before the good one, */
    int late;  /* after their handshake */
    uint8_t greeting;
    const void *says; /* after the first request */
    size_t bytes;
    char url[LSI_ADDR_MAX + 8];
} fake;

static void *run_fake(void *arg)
{
    fake *f = arg;
    for (int i = 0; i <= f->drops; i++) {
        int fd = -1;
        lsi_auth auth;
        char request[512];
        while (lsi_net_accept(f->listener, &fd) == LS_IN_PROGRESS)
            poll(NULL, 0, 1);
        if ((i == f->drops || f->late) &&
            lsi_auth_server(&auth, fd, &right_key, LSI_AUTH_STORE) == LS_OK &&
            lsi_auth_run(&auth, lsi_now() + 5, "the client") == LS_OK && i == f->drops) {
            send(fd, &f->greeting, 1, MSG_NOSIGNAL);
            lsi_net_wait(fd, POLLIN, lsi_now() + 5);
            recv(fd, request, sizeof request, 0);
            send(fd, f->says, f->bytes, MSG_NOSIGNAL);
            lsi_net_wait(fd, POLLIN, lsi_now() + 1);
        }
        close(fd);
    }
    return NULL;
}

static ls_status get_from(fake f)
{
    char address[LSI_ADDR_MAX];
    pthread_t thread;
    lsi_store *store = NULL;
    const uint8_t *value;
    size_t size;
    uint64_t version;
    assert_int_equal(lsi_net_listen(NULL, 0, &f.listener, address), LS_OK);
    snprintf(f.url, sizeof f.url, "tcp://%s", address);
    assert_int_equal(pthread_create(&thread, NULL, run_fake, &f), 0);
    ls_status status = lsi_store_open(f.url, &right_key, 5, &store);
    if (status == LS_OK)
        status = store->ops->get(store, "k", &value, &size, &version);
    if (store && status != LS_OK && status != LS_ERR_NOT_FOUND)
        assert_int_equal(store->ops->get(store, "k", &value, &size, &version), status);
    lsi_store_close(store);
    pthread_join(thread, NULL);
    close(f.listener);
    return status;
}

static ls_status get_from_fake(int drops, const void *says, size_t bytes)
{
    return get_from(
        (fake){.drops = drops, .says = says, .bytes = bytes, .greeting = LSI_STORE_WELCOME});
}

static void client_does_not_believe_everything(void **state)
{
    (void)state;
    static const uint8_t no_key[28] = {24, 0, 0, 0, 1, 0, 0, 0, LSI_STORE_ANSWER, 3};
    static const uint8_t never_asked[28] = {24, 0, 0, 0, 2, 0, 0, 0, LSI_STORE_ANSWER};
    static const uint8_t twice[56] = {
        24, 0, 0, 0, 1, 0, 0, 0, LSI_STORE_ANSWER, [28] = 24, [32] = 1, [36] = LSI_STORE_ANSWER};
    static const uint8_t request[29] = {25, 0, 0, 0, 1, 0, 0, 0, LSI_STORE_GET, 0, 1, [28] = 'k'};
    static const uint8_t endless[4] = {0xff, 0xff, 0xff, 0xff};
    assert_int_equal(get_from_fake(0, no_key, sizeof no_key), LS_ERR_NOT_FOUND);
    assert_int_equal(get_from_fake(3, no_key, sizeof no_key), LS_ERR_NOT_FOUND); /* tries again */
    assert_int_equal(get_from_fake(0, never_asked, sizeof never_asked), LS_ERR_PROTOCOL);
    assert_int_equal(get_from_fake(0, twice, sizeof twice), LS_ERR_PROTOCOL);
    assert_int_equal(get_from_fake(0, request, sizeof request), LS_ERR_PROTOCOL);
    assert_int_equal(get_from_fake(0, endless, sizeof endless), LS_ERR_PROTOCOL);
    assert_int_equal(get_from_fake(0, no_key, sizeof no_key - 1), LS_ERR_PEER_DEAD); /* half */
}

/* A server that is flooded drops strangers, also one whose proof it has not read yet. */
static void client_is_a_member_when_it_is_greeted(void **state)
{
    (void)state;
    static const uint8_t no_key[28] = {24, 0, 0, 0, 1, 0, 0, 0, LSI_STORE_ANSWER, 3};
    fake f = {.drops = 3,
              .late = 1,
              .says = no_key,
              .bytes = sizeof no_key,
              .greeting = LSI_STORE_WELCOME};
    assert_int_equal(get_from(f), LS_ERR_NOT_FOUND);
    f.drops = 0;
    f.greeting = 1;
    assert_int_equal(get_from(f), LS_ERR_PROTOCOL);
    assert_error_has("does not greet");
}

/* Ends with strangers at the door. */
static void server_ends_among_strangers(void **state)
{
    (void)state;
    int silent = raw_connect(), member = raw_join();
    fixture_end_server();
    assert_true(is_dropped_within(silent, 1, NULL));
    assert_true(is_dropped_within(member, 1, NULL));
    close(silent);
    close(member);
}

/* The number that the next descriptor will have. */
static rlim_t lowest_free(void)
{
    int fd = dup(STDIN_FILENO);
    close(fd);
    return (rlim_t)fd;
}

/* When descriptors run out, strangers make room; members stay. */
static void descriptors_run_out(void **state)
{
    (void)state;
    lsi_store *good = open_client(5);
    struct rlimit old, few;
    pid_t child = fork();
    if (child == 0) { /* a hundred idle connections, then an honest client */
        lsi_store *store = NULL;
        int fd;
        poll(NULL, 0, 200);
        for (int i = 0; i < 100; i++) {
            if (lsi_net_connect(fixture.address, lsi_now() + 5, &fd) != LS_OK)
                _exit(1);
        }
        if (lsi_store_open(fixture.url, &right_key, 5, &store) != LS_OK)
            _exit(2);
        _exit(store->ops->put(store, "child", "in", 2, 0, NULL) == LS_OK ? 0 : 3);
    }
    getrlimit(RLIMIT_NOFILE, &old);
    few = old;
    few.rlim_cur = lowest_free() + 20;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int status = -1;
    while (waitpid(child, &status, WNOHANG) == 0)
        work(good);
    assert_int_equal(status, 0);
    work(good);
    assert_text(good, "child", "in");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    lsi_store_close(good);
}

/* When there is no stranger to give up either, newcomers wait until somebody leaves; the server
 * does not spin meanwhile. */
static void descriptors_run_out_among_members(void **state)
{
    (void)state;
    lsi_store *good = open_client(5);
    int members[8];
    for (int i = 0; i < 8; i++)
        members[i] = raw_join();
    struct rlimit old, few;
    getrlimit(RLIMIT_NOFILE, &old);
    pid_t child = fork();
    if (child == 0) {
        lsi_store *store = NULL;
        poll(NULL, 0, 200);
        if (lsi_store_open(fixture.url, &right_key, 10, &store) != LS_OK)
            _exit(2);
        _exit(store->ops->put(store, "child", "in", 2, 0, NULL) == LS_OK ? 0 : 3);
    }
    few = old;
    few.rlim_cur = lowest_free();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    poll(NULL, 0, 300);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    poll(NULL, 0, 700);
    getrusage(RUSAGE_SELF, &after);
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0); /* outside */
    long spent = after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec -
                 before.ru_stime.tv_usec;
    assert_true(spent < 300000);
    work(good);
    for (int i = 0; i < 8; i++)
        close(members[i]);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_text(good, "child", "in");
    lsi_store_close(good);
}

#define BOTH(test) cmocka_unit_test_setup_teardown(test, fixture_start, fixture_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(server_ends_while_clients_wait),
        BOTH(stuck_server),
        BOTH(stuck_in_the_middle_of_a_request),
        BOTH(client_does_not_believe_everything),
        BOTH(client_is_a_member_when_it_is_greeted),
        BOTH(server_ends_among_strangers),
        BOTH(descriptors_run_out),
        BOTH(descriptors_run_out_among_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

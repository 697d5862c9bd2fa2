/* A store server that runs in a thread of the test, clients of it, and raw connections to it.
 *
 * The server is one of one thread; `lock` lets the test reach it in between. Freezing keeps it from
 * being stepped: to its clients it is stuck. */
#ifndef LS_TEST_STORE_FIXTURE_H
#define LS_TEST_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auth.h"
#include "base/clock.h"
#include "base/net.h"
#include "store/protocol.h"
#include "store/store.h"

static const lsi_key right_key = {"the right key, thirty-two bytes."};
static const lsi_key wrong_key = {"the wrong key, thirty-two bytes."};

static struct {
    lsi_store_server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    atomic_int stop, freeze;
    int descriptors; /* open before */
    char address[LSI_ADDR_MAX];
    char url[LSI_ADDR_MAX + 32];
    double lease_s; /* a short lease */
    int changes;    /* many */
} fixture = {.lock = PTHREAD_MUTEX_INITIALIZER, .lease_s = 1, .changes = 5000};

static inline int count_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static inline void *fixture_serve(void *arg)
{
    (void)arg;
    while (!atomic_load(&fixture.stop)) {
        struct pollfd p = {.fd = lsi_store_server_fd(fixture.server), .events = POLLIN};
        poll(&p, 1, 20);
        pthread_mutex_lock(&fixture.lock);
        int is_frozen = atomic_load(&fixture.freeze);
        if (!is_frozen)
            lsi_store_server_step(fixture.server);
        pthread_mutex_unlock(&fixture.lock);
        if (is_frozen)
            poll(NULL, 0, 1);
    }
    return NULL;
}

static inline int fixture_start(void **state)
{
    (void)state;
    fixture.descriptors = count_descriptors();
    atomic_store(&fixture.stop, 0);
    atomic_store(&fixture.freeze, 0);
    if (lsi_store_server_create(NULL, 0, &right_key, &fixture.server) != LS_OK)
        return -1;
    snprintf(fixture.address, sizeof fixture.address, "%s",
             lsi_store_server_address(fixture.server));
    snprintf(fixture.url, sizeof fixture.url, "tcp://%s", fixture.address);
    return pthread_create(&fixture.thread, NULL, fixture_serve, NULL);
}

/* Also from within a test: the launcher ends. */
static inline void fixture_end_server(void)
{
    atomic_store(&fixture.stop, 1);
    if (fixture.server) {
        pthread_join(fixture.thread, NULL);
        lsi_store_server_destroy(fixture.server);
        fixture.server = NULL;
    }
}

/* Nothing may be left open, whatever happened. */
static inline int fixture_stop(void **state)
{
    (void)state;
    fixture_end_server();
    int left = count_descriptors() - fixture.descriptors;
    if (left != 0)
        print_error("%d descriptors are left open\n", left);
    return left;
}

static inline lsi_store *open_client(double timeout_s)
{
    lsi_store *store = NULL;
    ls_status status = lsi_store_open(fixture.url, &right_key, timeout_s, &store);
    if (status != LS_OK)
        fail_msg("open: %s", ls_last_error());
    return store;
}

static inline uint64_t put_text(lsi_store *store, const char *key, const char *text, uint64_t lease)
{
    uint64_t version = 0;
    if (store->ops->put(store, key, text, strlen(text), lease, &version) != LS_OK)
        fail_msg("put: %s", ls_last_error());
    return version;
}

static inline void assert_text(lsi_store *store, const char *key, const char *text)
{
    const uint8_t *value;
    size_t bytes;
    uint64_t version;
    if (store->ops->get(store, key, &value, &bytes, &version) != LS_OK)
        fail_msg("get: %s", ls_last_error());
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(value, text, bytes);
}

static inline void assert_absent(lsi_store *store, const char *key)
{
    const uint8_t *value;
    size_t bytes;
    uint64_t version;
    assert_int_equal(store->ops->get(store, key, &value, &bytes, &version), LS_ERR_NOT_FOUND);
}

static inline void assert_event(lsi_store *store, const char *key, const char *text)
{
    lsi_store_event event;
    ls_status status = store->ops->next(store, 5, &event);
    if (status != LS_OK)
        fail_msg("no event of %s: %s, %s", key, ls_status_name(status), ls_last_error());
    assert_string_equal(event.key, key);
    assert_int_equal(event.deleted, text == NULL);
    assert_int_equal(event.bytes, text ? strlen(text) : 0);
    if (text)
        assert_memory_equal(event.value, text, event.bytes);
}

static inline void assert_error_has(const char *words)
{
    if (!strstr(ls_last_error(), words))
        fail_msg("'%s' lacks '%s'", ls_last_error(), words);
}

/* A connection that has said nothing yet. */
static inline int raw_connect(void)
{
    int fd = -1;
    if (lsi_net_connect(fixture.address, lsi_now() + 5, &fd) != LS_OK)
        fail_msg("%s", ls_last_error());
    return fd;
}

static inline void raw_be_welcome(int fd)
{
    uint8_t welcome = 0;
    assert_int_equal(lsi_net_recv_all(fd, &welcome, 1, lsi_now() + 5, "the server"), LS_OK);
    assert_int_equal(welcome, LSI_STORE_WELCOME);
}

/* A connection past its handshake, for saying what no client says. */
static inline int raw_join(void)
{
    static const uint8_t nobody[LSI_AUTH_IDENTITY_BYTES];
    lsi_auth auth;
    int fd = raw_connect();
    assert_int_equal(lsi_auth_client(&auth, fd, &right_key, LSI_AUTH_STORE, nobody), LS_OK);
    assert_int_equal(lsi_auth_run(&auth, lsi_now() + 5, "the server"), LS_OK);
    raw_be_welcome(fd);
    return fd;
}

static inline void raw_ask(int fd, lsi_store_message message)
{
    lsi_buffer out = {0};
    assert_int_equal(lsi_store_encode(&message, &out), LS_OK);
    assert_int_equal(lsi_net_send_all(fd, lsi_buffer_front(&out), out.used, lsi_now() + 5,
                                      "the server"),
                     LS_OK);
    lsi_buffer_free(&out);
}

/* Whether the server parts with the connection in time; how many bytes it said before. */
static inline int is_dropped_within(int fd, double seconds, size_t *said)
{
    double deadline = lsi_now() + seconds;
    size_t total = 0;
    for (;;) {
        static char sink[65536];
        if (lsi_net_wait(fd, POLLIN, deadline) != LS_OK)
            return 0;
        ssize_t n = recv(fd, sink, sizeof sink, 0);
        if (n <= 0) {
            if (said)
                *said = total;
            return 1;
        }
        total += (size_t)n;
    }
}

/* A good client does its work; nobody may slow it down beyond this. */
static inline void work(lsi_store *store)
{
    double began = lsi_now();
    for (int i = 0; i < 50; i++) {
        char key[32], text[32];
        snprintf(key, sizeof key, "work/%d", i % 5);
        snprintf(text, sizeof text, "%d %p", i, (void *)store);
        put_text(store, key, text, 0);
        assert_text(store, key, text);
    }
    if (lsi_now() - began > 2)
        fail_msg("100 calls took %.1f s", lsi_now() - began);
}

static inline void send_raw(int fd, const void *data, size_t bytes)
{
    assert_int_equal(lsi_net_send_all(fd, data, bytes, lsi_now() + 5, "the server"), LS_OK);
}

/* From here on the test steps the server itself. */
static inline void freeze(void)
{
    atomic_store(&fixture.freeze, 1);
    pthread_mutex_lock(&fixture.lock);
    pthread_mutex_unlock(&fixture.lock); /* the step under way has ended */
}

#endif

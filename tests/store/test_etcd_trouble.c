/* An etcd that is killed, stopped, started again, compacted, full, or one of several. */
#include "etcd_fixture.h"
#include "waiter.h"

static void killed_while_clients_wait(void **state)
{
    (void)state;
    waiter w[2] = {{.store = open_client(1)}, {.store = open_client(1), .watches = 1}};
    lsi_store *idle = open_client(1);
    uint64_t version, lease;
    assert_int_equal(w[1].store->ops->watch(w[1].store, ""), LS_OK);
    assert_int_equal(idle->ops->lease(idle, 5, &lease), LS_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&w[i].thread, NULL, wait_long, &w[i]), 0);
    poll(NULL, 0, 300);
    etcd_kill(&shared_etcd);
    for (int i = 0; i < 2; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].status, LS_ERR_PEER_DEAD);
        assert_true(w[i].took >= 0.9 && w[i].took < 8); /* asked again for 1 s */
        double began = lsi_now();
        assert_int_equal(w[i].store->ops->put(w[i].store, "k", "", 0, 0, &version),
                         LS_ERR_PEER_DEAD); /* and ever after */
        assert_true(lsi_now() - began < 0.2);
        assert_error_has(fixture.address);
        lsi_store_close(w[i].store);
    }
    assert_int_equal(idle->ops->put(idle, "k", "", 0, 0, &version), LS_ERR_PEER_DEAD);
    assert_error_has(fixture.address);
    lsi_store_close(idle);
    double began = lsi_now();
    lsi_store *late = NULL;
    assert_int_equal(lsi_store_open(fixture.url, &right_key, 0.3, &late), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began < 1.5);
    assert_null(late);
}

/* A stopped etcd costs each call its deadline and no more; when it goes on, so do we. */
static void stopped(void **state)
{
    (void)state;
    lsi_store *store = open_client(1), *watcher = open_client(1), *late = NULL;
    lsi_store_event event;
    const uint8_t *value;
    size_t bytes;
    uint64_t version, lease = 0;
    put_text(store, "a", "1", 0);
    assert_int_equal(watcher->ops->watch(watcher, ""), LS_OK);
    assert_event(watcher, "a", "1");
    assert_int_equal(store->ops->lease(store, 60, &lease), LS_OK);
    etcd_pause(&shared_etcd);
    for (int i = 0; i < 6; i++) {
        double began = lsi_now();
        ls_status status = i == 0   ? store->ops->get(store, "a", &value, &bytes, &version)
                           : i == 1 ? store->ops->put(store, "b", "2", 1, 0, NULL)
                           : i == 2 ? store->ops->compare_and_put(store, "c", 0, "3", 1, 0, NULL)
                           : i == 3 ? store->ops->keep(store, lease)
                           : i == 4 ? store->ops->watch(store, "a")
                                    : lsi_store_wait(store, "z", 1, NULL, &value, &bytes);
        assert_int_equal(status, LS_ERR_TIMEOUT);
        assert_true(lsi_now() - began >= 0.95 && lsi_now() - began < 4);
        if (i < 5)
            assert_error_has("did not answer");
    }
    double began = lsi_now();
    assert_int_equal(watcher->ops->next(watcher, 0.7, &event), LS_IN_PROGRESS);
    assert_int_equal(lsi_store_open(fixture.url, &right_key, 0.3, &late), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began < 5);
    kill(shared_etcd.pid, SIGCONT);
    ls_status status = LS_ERR_TIMEOUT;
    for (int i = 0; i < 20 && status == LS_ERR_TIMEOUT; i++) /* it may need a moment */
        status = store->ops->get(store, "a", &value, &bytes, &version);
    assert_int_equal(status, LS_OK);
    put_text(store, "d", "4", 0);
    do /* b and c were made or not */
        assert_int_equal(watcher->ops->next(watcher, 5, &event), LS_OK);
    while (strcmp(event.key, "d") != 0);
    lsi_store_close(watcher);
    etcd_pause(&shared_etcd);
    began = lsi_now();
    lsi_store_close(store); /* cannot revoke its lease */
    assert_true(lsi_now() - began < 4);
    kill(shared_etcd.pid, SIGCONT);
    etcd_await(&shared_etcd);
}

typedef struct writer {
    pthread_t thread;
    atomic_int stop;
    int done;
    ls_status status;
} writer;

static void *write_on(void *arg)
{
    writer *w = arg;
    lsi_store *store = NULL;
    w->status = lsi_store_open(fixture.url, &right_key, 20, &store);
    uint64_t version = 0;
    while (w->status == LS_OK && !atomic_load(&w->stop)) {
        char text[16];
        snprintf(text, sizeof text, "%d", w->done + 1);
        w->status =
            store->ops->compare_and_put(store, "n", version, text, strlen(text), 0, &version);
        w->done += w->status == LS_OK;
        poll(NULL, 0, 2);
    }
    lsi_store_close(store);
    return NULL;
}

static void assert_number(const lsi_store_event *event, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%.*s", (int)event->bytes, (const char *)event->value);
    assert_int_equal(strtol(text, NULL, 10), number);
}

/* Killed and started again in the middle of writing and watching: every change once, in order; no
 * compare-and-put is made twice or lost, whatever moment the death hit. */
static void killed_and_started_again(void **state)
{
    (void)state;
    writer w = {0};
    lsi_store *watcher = open_client(20);
    lsi_store_event event;
    assert_int_equal(watcher->ops->watch(watcher, "n"), LS_OK);
    assert_int_equal(pthread_create(&w.thread, NULL, write_on, &w), 0);
    int heard = 0;
    for (int round = 0; round < 3; round++) {
        double until = lsi_now() + 0.3;
        while (lsi_now() < until) {
            if (watcher->ops->next(watcher, 0.05, &event) != LS_OK)
                continue;
            assert_number(&event, ++heard);
        }
        kill(shared_etcd.pid, SIGKILL);
        waitpid(shared_etcd.pid, NULL, 0);
        etcd_spawn(&shared_etcd);
    }
    etcd_await(&shared_etcd);
    poll(NULL, 0, 300);
    atomic_store(&w.stop, 1);
    pthread_join(w.thread, NULL);
    if (w.status != LS_OK)
        fail_msg("writing ended with %s", ls_status_name(w.status));
    while (heard < w.done) {
        assert_int_equal(watcher->ops->next(watcher, 10, &event), LS_OK);
        assert_number(&event, ++heard);
    }
    assert_int_equal(watcher->ops->next(watcher, 0.3, &event), LS_IN_PROGRESS);
    lsi_store_close(watcher);
}

static void descriptor_tells_of_a_resumed_watch(void **state)
{
    (void)state;
    lsi_store *watcher = open_client(20);
    lsi_store_event event;
    assert_int_equal(watcher->ops->watch(watcher, ""), LS_OK);
    assert_int_equal(watcher->ops->next(watcher, 0, &event), LS_IN_PROGRESS);
    etcd_restart(&shared_etcd);
    lsi_store *other = open_client(20);
    put_text(other, "k", "v", 0);
    ls_status status = LS_IN_PROGRESS;
    double deadline = lsi_now() + 10;
    while (status == LS_IN_PROGRESS && lsi_now() < deadline) { /* as an event loop does */
        struct pollfd p = {.fd = watcher->ops->fd(watcher), .events = POLLIN};
        assert_int_equal(poll(&p, 1, 10000), 1);
        status = watcher->ops->next(watcher, 0, &event);
    }
    assert_int_equal(status, LS_OK);
    assert_string_equal(event.key, "k");
    for (int i = 0; i < 20; i++) { /* a call that reads the event reminds of it */
        put_text(other, "k", "w", 0);
        assert_text(watcher, "k", "w");
        struct pollfd p = {.fd = watcher->ops->fd(watcher), .events = POLLIN};
        assert_int_equal(poll(&p, 1, 5000), 1);
        assert_event(watcher, "k", "w");
    }
    lsi_store_close(watcher);
    lsi_store_close(other);
}

/* Who has other things to do than to look at his watch finds it resumed, not given up. */
static void a_watch_that_is_rarely_looked_at(void **state)
{
    (void)state;
    lsi_store *watcher = open_client(1), *other;
    lsi_store_event event;
    assert_int_equal(watcher->ops->watch(watcher, ""), LS_OK);
    etcd_kill(&shared_etcd);
    assert_int_equal(watcher->ops->next(watcher, 0.05, &event), LS_IN_PROGRESS);
    etcd_restart(&shared_etcd);
    other = open_client(20);
    put_text(other, "k", "v", 0);
    poll(NULL, 0, 1200);
    assert_event(watcher, "k", "v");
    lsi_store_close(watcher);
    lsi_store_close(other);
}

/* What was compacted while the watch was down cannot be had any more: that is said. */
static void compacted_while_away(void **state)
{
    (void)state;
    lsi_store *watcher = open_client(10);
    lsi_store_event event;
    assert_int_equal(watcher->ops->watch(watcher, ""), LS_OK);
    etcd_restart(&shared_etcd);
    lsi_store *other = open_client(10);
    char body[64];
    uint64_t version = 0;
    for (int i = 0; i < 3; i++)
        version = put_text(other, "k", "v", 0);
    snprintf(body, sizeof body, "{\"revision\":\"%llu\"}", (unsigned long long)version);
    assert_int_equal(post_raw("kv/compaction", body), 200);
    assert_int_equal(watcher->ops->next(watcher, 10, &event), LS_ERR_PEER_DEAD);
    assert_error_has("compacted");
    assert_int_equal(watcher->ops->next(watcher, 10, &event), LS_ERR_PEER_DEAD);
    lsi_store_close(watcher);
    lsi_store_close(other);
}

static void full(void **state)
{
    (void)state;
    etcd small = {.name = "small", .quota = "16777216"};
    lsi_store *store = NULL;
    uint8_t *big = calloc(1, LSI_STORE_VALUE_MAX);
    char url[LSI_ADDR_MAX + 32], key[32];
    etcd_start(&small);
    snprintf(url, sizeof url, "etcd://%s", small.address);
    assert_int_equal(lsi_store_open(url, &right_key, 10, &store), LS_OK);
    ls_status status = LS_OK;
    for (int i = 0; i < 100 && status == LS_OK; i++) {
        snprintf(key, sizeof key, "fill/%d", i);
        status = store->ops->put(store, key, big, LSI_STORE_VALUE_MAX, 0, NULL);
    }
    assert_int_equal(status, LS_ERR_NOMEM);
    assert_error_has("full");
    assert_int_equal(store->ops->remove(store, "fill/0"), LS_OK); /* it can still be used */
    lsi_store_close(store);
    free(big);
    etcd_stop(&small);
}

/* The first endpoints are dead or never answer: the next is asked, within one deadline. */
static void other_endpoints_are_asked(void **state)
{
    (void)state;
    int silent;
    char nobody[LSI_ADDR_MAX], quiet[LSI_ADDR_MAX], url[4 * LSI_ADDR_MAX];
    lsi_store *store = NULL;
    free_port(nobody);
    assert_int_equal(lsi_net_listen(NULL, 0, &silent, quiet), LS_OK);
    snprintf(url, sizeof url, "etcd://%s,%s,%s%s", nobody, quiet, shared_etcd.address,
             strrchr(fixture.url, '/'));
    double began = lsi_now();
    if (lsi_store_open(url, &right_key, 3, &store) != LS_OK)
        fail_msg("open: %s", ls_last_error());
    assert_true(lsi_now() - began < 3);
    began = lsi_now();
    assert_int_equal(store->ops->watch(store, ""), LS_OK);
    put_text(store, "k", "v", 0);
    assert_event(store, "k", "v");
    work(store);
    assert_true(lsi_now() - began < 3); /* it stays where it was answered */
    lsi_store_close(store);
    close(silent);
}

/* Three of a kind; the one that is asked dies, later the one asked then is stopped. */
static void a_cluster_goes_on(void **state)
{
    (void)state;
    etcd e[3] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    char cluster[256] = "", url[4 * LSI_ADDR_MAX];
    lsi_store *one = NULL, *two = NULL;
    lsi_store_event event;
    uint64_t lease = 0;
    for (int i = 0; i < 3; i++) {
        size_t used = strlen(cluster);
        etcd_prepare(&e[i]);
        snprintf(cluster + used, sizeof cluster - used, "%s%s=http://%s", i ? "," : "", e[i].name,
                 e[i].peer);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(e[i].cluster, sizeof e[i].cluster, "%s", cluster);
        etcd_spawn(&e[i]);
    }
    for (int i = 0; i < 3; i++)
        etcd_await(&e[i]);
    snprintf(url, sizeof url, "etcd://%s,%s,%s", e[0].address, e[1].address, e[2].address);
    assert_int_equal(lsi_store_open(url, &right_key, 9, &one), LS_OK);
    assert_int_equal(lsi_store_open(url, &right_key, 9, &two), LS_OK);
    assert_int_equal(one->ops->watch(one, "n/"), LS_OK);
    assert_int_equal(two->ops->lease(two, 20, &lease), LS_OK);
    put_text(two, "n/1", "1", lease);
    assert_event(one, "n/1", "1");
    etcd_kill(&e[0]);
    put_text(two, "n/2", "2", lease);
    put_text(two, "n/3", "3", 0);
    assert_event(one, "n/2", "2");
    assert_event(one, "n/3", "3");
    etcd_spawn(&e[0]);
    etcd_await(&e[0]);
    etcd_pause(&e[1]);
    put_text(two, "n/4", "4", 0); /* asks b, which does not answer, then c */
    assert_text(one, "n/4", "4"); /* and so notices this one that its watch is to be moved */
    assert_event(one, "n/4", "4");
    assert_int_equal(one->ops->next(one, 0.2, &event), LS_IN_PROGRESS);
    assert_int_equal(two->ops->keep(two, lease), LS_OK);
    kill(e[1].pid, SIGCONT);
    lsi_store_close(two);
    /* Its lease ends with it, in one go: any order. Where it is revoked while a leader is being
     * chosen that is not heard, and the lease runs out. */
    for (int i = 0; i < 2; i++)
        assert_int_equal(one->ops->next(one, 40, &event), LS_OK), assert_true(event.deleted);
    lsi_store_close(one);
    for (int i = 0; i < 3; i++)
        etcd_stop(&e[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ETCD(killed_while_clients_wait),
        ETCD(stopped),
        ETCD(killed_and_started_again),
        ETCD(descriptor_tells_of_a_resumed_watch),
        ETCD(a_watch_that_is_rarely_looked_at),
        ETCD(compacted_while_away),
        ETCD(full),
        ETCD(other_endpoints_are_asked),
        ETCD(a_cluster_goes_on),
    };
    return RUN_WITH_ETCD(tests);
}

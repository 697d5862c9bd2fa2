/* Something that is not an etcd, or one that has lost its mind: one clear error each, no hang. */
#include "etcd_fixture.h"

#include "store/etcd_json.h"

#define OK_HEAD "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
#define CHUNKED OK_HEAD "Transfer-Encoding: chunked\r\n\r\n"
#define HEADER "\"header\":{\"revision\":\"5\"}"
#define EMPTY "{" HEADER "}"
#define FLOOD_BYTES ((size_t)48 << 20)

/* The first `good` requests have a good answer, others `says`; watches `watch`. */
typedef struct fake {
    int listener;
    atomic_int stop, requests, good, watches;
    char last[1024]; /* request for a watch */
    const char *says, *watch;
    const char *flood; /* sent again and again after `says` */
    char url[LSI_ADDR_MAX + 16];
    pthread_t thread;
} fake;

static void send_some(int fd, const char *text, size_t bytes)
{
    double deadline = lsi_now() + 10;
    while (bytes > 0 && lsi_now() < deadline) {
        ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            lsi_net_wait(fd, POLLOUT, deadline);
        else if (n < 0)
            return;
        else
            text += n, bytes -= (size_t)n;
    }
}

/* Read one request; 0 when there is none. All that we send has less than 8 KiB. */
static int read_request(fake *f, int fd, char *text, size_t size)
{
    size_t used = 0;
    for (;;) {
        if (atomic_load(&f->stop))
            return 0;
        if (lsi_net_wait(fd, POLLIN, lsi_now() + 0.05) != LS_OK)
            continue;
        ssize_t n = recv(fd, text + used, size - 1 - used, 0);
        if (n <= 0)
            return 0;
        used += (size_t)n;
        text[used] = '\0';
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        if (end && length && used >= (size_t)(end + 4 - text) + strtoul(length + 16, NULL, 10))
            return 1;
    }
}

static void answer(fake *f, int fd)
{
    char request[8192];
    static const char good[] = OK_HEAD "Connection: close\r\n\r\n" EMPTY;
    if (!read_request(f, fd, request, sizeof request))
        return;
    int is_watch = strstr(request, "POST /v3/watch ") != NULL;
    if (!is_watch && atomic_fetch_add(&f->requests, 1) < atomic_load(&f->good)) {
        send_some(fd, good, sizeof good - 1);
        return;
    }
    if (is_watch) {
        snprintf(f->last, sizeof f->last, "%.1000s", request);
        atomic_fetch_add(&f->watches, 1);
    }
    const char *says = is_watch && f->watch ? f->watch : f->says;
    send_some(fd, says, strlen(says));
    for (size_t sent = 0; f->flood && sent < FLOOD_BYTES; sent += strlen(f->flood))
        send_some(fd, f->flood, strlen(f->flood));
}

static void *run_fake(void *arg)
{
    fake *f = arg;
    while (!atomic_load(&f->stop)) {
        int fd = -1;
        if (lsi_net_accept(f->listener, &fd) != LS_OK) {
            lsi_net_wait(f->listener, POLLIN, lsi_now() + 0.02);
            continue;
        }
        answer(f, fd);
        close(fd);
    }
    return NULL;
}

static void fake_start(fake *f)
{
    char address[LSI_ADDR_MAX];
    assert_int_equal(lsi_net_listen(NULL, 0, &f->listener, address), LS_OK);
    snprintf(f->url, sizeof f->url, "etcd://%s/fake", address);
    assert_int_equal(pthread_create(&f->thread, NULL, run_fake, f), 0);
}

static void fake_stop(fake *f)
{
    atomic_store(&f->stop, 1);
    pthread_join(f->thread, NULL);
    close(f->listener);
}

/* Opens with a good answer, then gets a bad one. */
static void assert_get(const char *says, const char *flood, ls_status expected, const char *words)
{
    fake f = {.says = says, .flood = flood, .good = 1};
    lsi_store *store = NULL;
    const uint8_t *value = NULL;
    size_t bytes;
    uint64_t version;
    fake_start(&f);
    if (lsi_store_open(f.url, &right_key, 2, &store) != LS_OK)
        fail_msg("%s", ls_last_error());
    double began = lsi_now();
    ls_status status = store->ops->get(store, "k", &value, &bytes, &version);
    if (status != expected)
        fail_msg("'%.60s': %s, not %s: %s", says, ls_status_name(status), ls_status_name(expected),
                 ls_last_error());
    assert_error_has(words);
    assert_true(lsi_now() - began < 6);
    assert_null(value);
    if (ls_status_get_reach(expected) == LS_STATUS_PEER) {
        assert_int_equal(store->ops->get(store, "k", &value, &bytes, &version), expected);
        assert_error_has("given up before");
    }
    lsi_store_close(store);
    fake_stop(&f);
}

static void answers_that_make_no_sense(void **state)
{
    (void)state;
#define SAYS(body) OK_HEAD "Connection: close\r\n\r\n" body
    static const struct {
        const char *says;
        ls_status status;
        const char *words;
    } cases[] = {
        {SAYS(EMPTY), LS_ERR_NOT_FOUND, "no key"},
        {SAYS(""), LS_ERR_PROTOCOL, "is empty"},
        {SAYS("{"), LS_ERR_PROTOCOL, "not JSON"},
        {SAYS("hello"), LS_ERR_PROTOCOL, "not JSON"},
        {SAYS(EMPTY EMPTY), LS_ERR_PROTOCOL, "not JSON"},
        {SAYS("[]"), LS_ERR_PROTOCOL, "not an object"},
        {SAYS("{}"), LS_ERR_PROTOCOL, "'header' is missing"},
        {SAYS("{\"header\":5}"), LS_ERR_PROTOCOL, "'header' has another type"},
        {SAYS("{\"header\":{\"revision\":\"x\"}}"), LS_ERR_PROTOCOL, "'revision' is not a number"},
        {SAYS("{\"header\":{\"revision\":\"99999999999999999999\"}}"), LS_ERR_PROTOCOL,
         "'revision'"},
        {SAYS("{\"header\":{\"revision\":-1}}"), LS_ERR_PROTOCOL, "'revision'"},
        {SAYS("{" HEADER "," HEADER "}"), LS_ERR_PROTOCOL, "not JSON"},
        {SAYS("{" HEADER ",\"kvs\":{}}"), LS_ERR_PROTOCOL, "'kvs' has another type"},
        {SAYS("{" HEADER ",\"kvs\":[5]}"), LS_ERR_PROTOCOL, "'kv' has another type"},
        {SAYS("{" HEADER ",\"kvs\":[{}]}"), LS_ERR_PROTOCOL, "lacks its key"},
        {SAYS("{" HEADER ",\"kvs\":[{\"key\":\"a\",\"mod_revision\":\"1\"}]}"), LS_ERR_PROTOCOL,
         "'key' is not base64"},
        {SAYS("{" HEADER
              ",\"kvs\":[{\"key\":\"YQ==\",\"value\":\"YR==\",\"mod_revision\":\"1\"}]}"),
         LS_ERR_PROTOCOL, "'value' is not base64"},
        {SAYS("{" HEADER ",\"kvs\":[{\"key\":\"YQ==\",\"value\":7,\"mod_revision\":\"1\"}]}"),
         LS_ERR_PROTOCOL, "'value' is not base64"},
        {SAYS("{" HEADER
              ",\"kvs\":[{\"key\":\"YQ==\",\"value\":\"YQ==\",\"mod_revision\":\"1\"}]}"),
         LS_ERR_AUTH, "not written with the run's key"},
        {SAYS("{\"error\":\"\\u001b[2Jx\",\"code\":2}"), LS_ERR_PROTOCOL, "etcd says: ?[2Jx"},
        {SAYS("{\"error\":\"x\",\"code\":77}"), LS_ERR_PROTOCOL, "'code'"},
        {SAYS("{\"error\":{},\"code\":5}"), LS_ERR_PROTOCOL, "'code'"},
        {"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", LS_ERR_PROTOCOL, "HTTP status 500"},
        {"HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\nNot Found", LS_ERR_PROTOCOL,
         "HTTP status 404"},
        {"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
         LS_ERR_PROTOCOL, "redirects are not followed"},
        {"HTTP/1.1 401 No\r\nContent-Length: 29\r\n\r\n{\"error\":\"no user\",\"code\":16} ",
         LS_ERR_AUTH, "no user"},
        {"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", LS_ERR_PEER_DEAD, "HTTP status 503"},
        {"HTTP/1.1 503 No\r\nContent-Length: 31\r\n\r\n{\"error\":\"no leader\",\"code\":14} ",
         LS_ERR_PEER_DEAD, "no leader"},
        {"SSH-2.0-OpenSSH_9.2\r\n", LS_ERR_PROTOCOL, "HTTP/0.9"},
        {"", LS_ERR_PEER_DEAD, "127.0.0.1:"},
        {"HTTP/1.1 200 OK\r\nContent-Le", LS_ERR_PROTOCOL, "is empty"},
        {OK_HEAD "Content-Length: 1000\r\n\r\n{", LS_ERR_PEER_DEAD, "127.0.0.1:"},
        {CHUNKED "1d\r\n{", LS_ERR_PEER_DEAD, "127.0.0.1:"},
        {CHUNKED "zz\r\n{", LS_ERR_PEER_DEAD, "127.0.0.1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_get(cases[i].says, NULL, cases[i].status, cases[i].words);
}

static void answers_without_end(void **state)
{
    (void)state;
    static char letters[65536], braces[65536];
    memset(letters, 'x', sizeof letters - 1);
    for (size_t i = 0; i + 3 < sizeof braces; i += 3)
        memcpy(braces + i, "{},", 3);
    assert_get(SAYS("{\"x\":\""), letters, LS_ERR_PROTOCOL, "larger than any");
    assert_get(SAYS("{\"x\":["), braces, LS_ERR_PROTOCOL, "larger than any");
    assert_get(OK_HEAD, "X-Header: 0123456789012345678901234567890123456789\r\n", LS_ERR_PROTOCOL,
               "larger than any");
}

static void texts_that_want_too_much(void **state)
{
    (void)state;
    size_t bytes = (size_t)3 << 20;
    char *text = malloc(bytes);
    lsi_etcd_answer parsed;
    for (size_t i = 0; i < bytes; i++)
        text[i] = "{},"[i % 3];
    assert_int_equal(lsi_etcd_parse(text, bytes, &parsed), LS_ERR_PROTOCOL);
    assert_error_has("more members");
    memset(text, '[', 200000); /* deep */
    assert_int_equal(lsi_etcd_parse(text, 200000, &parsed), LS_ERR_PROTOCOL);
    free(text);
}

/* The existing keys are listed, then the stream goes wrong. */
static void assert_watch(const char *watch, const char *flood, ls_status expected,
                         const char *words)
{
    fake f = {.says = "", .watch = watch, .flood = flood, .good = 1000};
    lsi_store *store = NULL;
    lsi_store_event event;
    fake_start(&f);
    if (lsi_store_open(f.url, &right_key, 1, &store) != LS_OK)
        fail_msg("%s", ls_last_error());
    double began = lsi_now();
    ls_status status = store->ops->watch(store, "");
    if (status == LS_OK)
        status = store->ops->next(store, 10, &event);
    if (status != expected)
        fail_msg("'%.60s': %s, not %s: %s", watch, ls_status_name(status), ls_status_name(expected),
                 ls_last_error());
    assert_error_has(words);
    assert_true(lsi_now() - began < 6);
    lsi_store_close(store);
    fake_stop(&f);
}

static void streams_that_make_no_sense(void **state)
{
    (void)state;
#define CREATED "{\"result\":{" HEADER ",\"created\":true}}\n"
    static char letters[65536];
    memset(letters, 'x', sizeof letters - 1);
    assert_watch(SAYS("hello\n"), NULL, LS_ERR_PROTOCOL, "not JSON");
    assert_watch(SAYS("hello"), NULL, LS_ERR_PROTOCOL, "middle of a line");
    assert_watch(SAYS("{}\n"), NULL, LS_ERR_PROTOCOL, "'header' is missing");
    assert_watch(SAYS(CREATED "nonsense\n"), NULL, LS_ERR_PROTOCOL, "not JSON");
    assert_watch(SAYS(CREATED "{\"result\":{" HEADER ",\"events\":[7]}}\n"), NULL, LS_ERR_PROTOCOL,
                 "'kv' has another type");
    assert_watch(SAYS(CREATED "{\"result\":{" HEADER ",\"events\":[{\"type\":\"MOVE\"}]}}\n"), NULL,
                 LS_ERR_PROTOCOL, "neither PUT nor DELETE");
    assert_watch(SAYS(CREATED "{\"result\":{" HEADER ",\"canceled\":true,"
                              "\"cancel_reason\":\"bored\"}}\n"),
                 NULL, LS_ERR_PEER_DEAD, "bored");
    assert_watch(SAYS(CREATED "{\"result\":{" HEADER ",\"canceled\":true,"
                              "\"compact_revision\":\"9\"}}\n"),
                 NULL, LS_ERR_PEER_DEAD, "compacted the changes from revision 6 to 8");
    assert_watch(SAYS(CREATED "{\"error\":{\"grpc_code\":13,\"message\":\"sorry\"}}\n"), NULL,
                 LS_ERR_PEER_DEAD, "sorry");
    assert_watch("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", NULL, LS_ERR_PROTOCOL,
                 "HTTP status 500");
    assert_watch("HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                 NULL, LS_ERR_PROTOCOL, "redirects");
    assert_watch(SAYS(CREATED), letters, LS_ERR_PROTOCOL, "larger than any");
    assert_watch("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", NULL, LS_ERR_PEER_DEAD,
                 "could not be watched");
    assert_watch(CHUNKED "5\r\n{", NULL, LS_ERR_PEER_DEAD, "could not be watched");
}

/* A stream that begins and ends again and again is resumed patiently, and harms nobody. */
static void streams_that_end_at_once(void **state)
{
    (void)state;
    fake f = {.says = "", .watch = SAYS(CREATED), .good = 1000};
    lsi_store *store = NULL;
    lsi_store_event event;
    fake_start(&f);
    assert_int_equal(lsi_store_open(f.url, &right_key, 1, &store), LS_OK);
    assert_int_equal(store->ops->watch(store, ""), LS_OK);
    double began = lsi_now();
    assert_int_equal(store->ops->next(store, 0.5, &event), LS_IN_PROGRESS);
    assert_true(lsi_now() - began >= 0.5 && lsi_now() - began < 3);
    lsi_store_close(store);
    fake_stop(&f);
}

/* A stream that ends in the middle of the changes of one revision: it is resumed at that revision,
 * and those that came before are not reported again. */
static void pieces_of_a_revision_come_once(void **state)
{
    (void)state;
#define DELETED(key) "{\"type\":\"DELETE\",\"kv\":{\"key\":\"" key "\",\"mod_revision\":\"8\"}}"
#define CHANGES(more)                                                                              \
    SAYS(CREATED "{\"result\":{" HEADER                                                            \
                 ",\"events\":[" DELETED("ZmFrZS9h") "," DELETED("ZmFrZS9i") "]" more "}}\n")
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        fake f = {.says = "",
                  .watch = is_whole ? CHANGES("") : CHANGES(",\"fragment\":true"),
                  .good = 1000};
        lsi_store *store = NULL;
        lsi_store_event event;
        fake_start(&f);
        assert_int_equal(lsi_store_open(f.url, &right_key, 1, &store), LS_OK);
        assert_int_equal(store->ops->watch(store, ""), LS_OK);
        assert_non_null(strstr(f.last, "\"start_revision\":\"6\""));
        assert_event(store, "a", NULL);
        assert_event(store, "b", NULL);
        assert_int_equal(store->ops->next(store, 0.5, &event), LS_IN_PROGRESS);
        lsi_store_close(store);
        fake_stop(&f);
        assert_true(atomic_load(&f.watches) > 2);
        assert_non_null(
            strstr(f.last, is_whole ? "\"start_revision\":\"9\"" : "\"start_revision\":\"8\""));
    }
}

static int note_descriptors(void **state)
{
    (void)state;
    fixture.descriptors = count_descriptors();
    return 0;
}

#define ALONE(test) cmocka_unit_test_setup_teardown(test, note_descriptors, etcd_test_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE(answers_that_make_no_sense), ALONE(answers_without_end),
        ALONE(texts_that_want_too_much),   ALONE(streams_that_make_no_sense),
        ALONE(streams_that_end_at_once),   ALONE(pieces_of_a_revision_come_once),
    };
    forbid_proxies();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* HTTP requests through curl's multi interface: curl says which sockets and which time it waits
 * for, one epoll with one timer waits for all of them. */
#include "store/http.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/net.h"
#include "base/status.h"
#include "store/curl.h"

#define EVENTS_AT_ONCE 8
#define HEADERS_MAX ((size_t)1 << 16)
#define LONGEST_SLEEP_S 60.0

struct lsi_http {
    const lsi_curl *curl;
    CURLM *multi;
    struct curl_slist *headers;
    int epoll, timer;
    double curl_due, wake_due; /* INFINITY: not wanted */
};

const char *lsi_http_why_unusable(void)
{
    const lsi_curl *curl;
    return lsi_curl_load(&curl) == LS_OK ? NULL : "libcurl.so.4 cannot be loaded";
}

static void arm_timer(lsi_http *http)
{
    double due = http->curl_due < http->wake_due ? http->curl_due : http->wake_due;
    struct itimerspec at = {0};
    if (due < 1e18) {
        at.it_value.tv_sec = (time_t)due;
        at.it_value.tv_nsec = (long)((due - (double)at.it_value.tv_sec) * 1e9);
        if (at.it_value.tv_sec == 0 && at.it_value.tv_nsec == 0)
            at.it_value.tv_nsec = 1; /* all zero would disarm it */
    }
    timerfd_settime(http->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

void lsi_http_wake_at(lsi_http *http, double when)
{
    http->wake_due = when;
    arm_timer(http);
}

static int on_timer(CURLM *multi, long ms, void *arg)
{
    (void)multi;
    lsi_http *http = arg;
    http->curl_due = ms < 0 ? INFINITY : lsi_now() + (double)ms * 1e-3;
    arm_timer(http);
    return 0;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    (void)easy, (void)socket_arg;
    lsi_http *http = arg;
    struct epoll_event event = {.data.fd = fd};
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(http->epoll, EPOLL_CTL_DEL, fd, &event);
        return 0;
    }
    event.events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) |
                   (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0);
    if (epoll_ctl(http->epoll, EPOLL_CTL_MOD, fd, &event) == 0 ||
        (errno == ENOENT && epoll_ctl(http->epoll, EPOLL_CTL_ADD, fd, &event) == 0))
        return 0;
    return -1;
}

static curl_socket_t on_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)arg, (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    lsi_http_transfer *t = arg;
    size_t bytes = size * count;
    if (t->code == 0)
        t->http->curl->easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->code);
    if (bytes > t->most - t->body.used)
        t->state = LSI_HTTP_TOO_LARGE;
    else if (lsi_buffer_append(&t->body, data, bytes) != LS_OK)
        t->state = LSI_HTTP_NOMEM;
    return t->state == LSI_HTTP_RUNNING ? bytes : 0;
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
    (void)data;
    lsi_http_transfer *t = arg;
    t->header_bytes += size * count;
    if (t->header_bytes > HEADERS_MAX)
        t->state = LSI_HTTP_TOO_LARGE;
    return t->state == LSI_HTTP_RUNNING ? size * count : 0;
}

ls_status lsi_http_create(lsi_http **out)
{
    const lsi_curl *curl;
    LSI_TRY(lsi_curl_load(&curl));
    lsi_http *http = calloc(1, sizeof *http);
    if (!http)
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for HTTP");
    http->curl = curl;
    http->curl_due = http->wake_due = INFINITY;
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    http->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = http->timer};
    if (http->epoll < 0 || http->timer < 0 ||
        epoll_ctl(http->epoll, EPOLL_CTL_ADD, http->timer, &event) != 0) {
        ls_status status = lsi_fail_errno("store", "an epoll with a timer");
        lsi_http_destroy(http);
        return status;
    }
    http->multi = curl->multi_init();
    /* "Expect: 100-continue" would cost large requests a round trip. */
    static const char *const lines[] = {"Content-Type: application/json", "Expect:"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct curl_slist *longer = curl->slist_append(http->headers, lines[i]);
        if (!http->multi || !longer) {
            lsi_http_destroy(http);
            return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for HTTP");
        }
        http->headers = longer;
    }
    curl->multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl->multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    curl->multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl->multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    *out = http;
    return LS_OK;
}

void lsi_http_destroy(lsi_http *http)
{
    if (!http)
        return;
    if (http->multi)
        http->curl->multi_cleanup(http->multi);
    http->curl->slist_free_all(http->headers);
    if (http->timer >= 0)
        close(http->timer);
    if (http->epoll >= 0)
        close(http->epoll);
    free(http);
}

int lsi_http_fd(const lsi_http *http)
{
    return http->epoll;
}

/* Options in the order of importance; the first refusal counts. */
static CURLcode set_options(lsi_http_transfer *t, const char *url, const void *body, size_t bytes)
{
    const lsi_curl *curl = t->http->curl;
    CURLcode code = CURLE_OK;
#define SET(option, value)                                                                         \
    if (code == CURLE_OK)                                                                          \
    code = curl->easy_setopt(t->easy, option, value)
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PROTOCOLS_STR, "http");
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_TCP_KEEPIDLE, 10L);
    SET(CURLOPT_TCP_KEEPINTVL, 5L);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_open);
    SET(CURLOPT_HTTPHEADER, t->http->headers);
    SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)bytes);
    SET(CURLOPT_COPYPOSTFIELDS, body);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_PRIVATE, t);
    SET(CURLOPT_ERRORBUFFER, t->error);
#undef SET
    return code;
}

ls_status lsi_http_post(lsi_http *http, const char *address, const char *path, const void *body,
                        size_t bytes, size_t most, lsi_http_transfer **out)
{
    char url[LSI_ADDR_MAX + 64];
    snprintf(url, sizeof url, "http://%s/%s", address, path);
    lsi_http_transfer *t = calloc(1, sizeof *t);
    if (!t)
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for a request");
    t->http = http;
    t->most = most;
    _Static_assert(LSI_HTTP_ERROR_MAX >= CURL_ERROR_SIZE, "curl writes its words there");
    t->easy = http->curl->easy_init();
    CURLcode code = t->easy ? set_options(t, url, body, bytes) : CURLE_OUT_OF_MEMORY;
    if (code != CURLE_OK) {
        if (t->easy)
            http->curl->easy_cleanup(t->easy);
        free(t);
        return lsi_fail(code == CURLE_OUT_OF_MEMORY ? LS_ERR_NOMEM : LS_ERR_UNSUPPORTED, NULL,
                        "store", "%s: curl says: %s", url, http->curl->easy_strerror(code));
    }
    CURLMcode added = http->curl->multi_add_handle(http->multi, t->easy);
    if (added != CURLM_OK) {
        http->curl->easy_cleanup(t->easy);
        free(t);
        return lsi_fail(LS_ERR_SYSTEM, NULL, "store", "%s: curl says: %d", url, (int)added);
    }
    *out = t;
    return LS_OK;
}

void lsi_http_end(lsi_http_transfer *t)
{
    if (!t)
        return;
    const lsi_curl *curl = t->http->curl;
    curl->multi_remove_handle(t->http->multi, t->easy);
    curl->easy_cleanup(t->easy);
    lsi_buffer_free(&t->body);
    free(t);
}

static lsi_http_state state_after(CURLcode code)
{
    switch (code) {
    case CURLE_OK: return LSI_HTTP_DONE;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT: return LSI_HTTP_UNREACHED;
    case CURLE_UNSUPPORTED_PROTOCOL: /* so it calls HTTP/0.9 */
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING: return LSI_HTTP_NONSENSE;
    case CURLE_OUT_OF_MEMORY: return LSI_HTTP_NOMEM;
    default: return LSI_HTTP_LOST;
    }
}

static void note_ended(lsi_http *http)
{
    const lsi_curl *curl = http->curl;
    const CURLMsg *message;
    int left;
    while ((message = curl->multi_info_read(http->multi, &left))) {
        char *private = NULL;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        lsi_http_transfer *t = (lsi_http_transfer *)(void *)private;
        curl->easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->code);
        if (t->state == LSI_HTTP_RUNNING)
            t->state = state_after(code);
        if (code != CURLE_OK && !*t->error)
            snprintf(t->error, sizeof t->error, "%s", curl->easy_strerror(code));
    }
}

static void on_time(lsi_http *http)
{
    uint64_t times;
    ssize_t n = read(http->timer, &times, sizeof times);
    (void)n; /* EAGAIN when it was set anew meanwhile */
    double now = lsi_now();
    int running;
    if (http->wake_due <= now)
        http->wake_due = INFINITY;
    if (http->curl_due <= now) {
        http->curl_due = INFINITY;
        http->curl->multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    arm_timer(http);
}

ls_status lsi_http_drive(lsi_http *http, double deadline)
{
    double left = deadline - lsi_now();
    int ms = left > LONGEST_SLEEP_S ? (int)(LONGEST_SLEEP_S * 1e3)
             : left > 0             ? (int)(left * 1e3) + 1
                                    : 0;
    struct epoll_event events[EVENTS_AT_ONCE];
    int n = epoll_wait(http->epoll, events, EVENTS_AT_ONCE, ms);
    if (n < 0 && errno != EINTR)
        return lsi_fail_errno("store", "epoll_wait");
    if (n == 0)
        return lsi_now() < deadline ? LS_OK : LS_IN_PROGRESS;
    for (int i = 0; i < n; i++) {
        int fd = events[i].data.fd, running;
        uint32_t what = events[i].events;
        if (fd == http->timer) {
            on_time(http);
            continue;
        }
        int mask = (what & EPOLLIN ? CURL_CSELECT_IN : 0) |
                   (what & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (what & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        http->curl->multi_socket_action(http->multi, fd, mask, &running);
    }
    note_ended(http);
    return LS_OK;
}

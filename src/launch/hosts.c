/* What the launchers of a run tell each other once it has begun: deaths, failures, ends.
 *
 * The listener sits on the store and looks at its keys after each step of the server; the others
 * have a connection and watches. Both end in the same three functions: on_dead, on_end, on_gone.
 * The invariants are in hosts.h.
 */
#include "launch/hosts.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/status.h"

typedef struct look {
    lsi_hosts *hosts;
    const lsi_hosts_sink *sink;
} look;

/* The number at the end of a key such as "run/dead/17"; -1 when there is none below `limit`. */
static int key_number(const char *key, const char *prefix, int limit)
{
    long number;
    size_t length = strlen(prefix);
    if (strncmp(key, prefix, length) != 0 ||
        lsi_parse_int("key", key + length, 0, limit - 1, &number) != LS_OK)
        return -1;
    return (int)number;
}

int lsi_hosts_host_of(const lsi_hosts *hosts, int rank)
{
    int h = 0;
    while (h < hosts->hosts - 1 && rank >= hosts->size[h]) {
        rank -= hosts->size[h];
        h++;
    }
    return h;
}

static void on_dead(const look *l, const char *key, const uint8_t *value, size_t bytes)
{
    int rank = key_number(key, "run/dead/", l->hosts->ranks);
    if (rank < 0 || l->hosts->dead[rank])
        return;
    char cause[LSI_HOST_CAUSE_MAX];
    snprintf(cause, sizeof cause, "%.*s", (int)(bytes < sizeof cause ? bytes : sizeof cause),
             (const char *)value);
    l->hosts->dead[rank] = 1;
    l->sink->dead(l->sink->arg, rank, cause);
}

static void on_end(const look *l, const char *key, const uint8_t *value, size_t bytes)
{
    char text[16];
    long status = 1;
    int host = key_number(key, "launch/end/", l->hosts->hosts);
    if (host < 0 || l->hosts->ended[host])
        return;
    snprintf(text, sizeof text, "%.*s", (int)(bytes < sizeof text ? bytes : sizeof text),
             (const char *)value);
    (void)lsi_parse_int("exit status", text, 0, 255, &status);
    l->hosts->ended[host] = 1;
    l->hosts->end_status[host] = (int)status;
}

static void on_failure(const look *l, const uint8_t *value, size_t bytes)
{
    lsi_failure f = {.rank = -1};
    char text[LSI_HOST_CAUSE_MAX + 32];
    int used = 0;
    if (l->hosts->failure.rank >= 0)
        return;
    snprintf(text, sizeof text, "%.*s", (int)(bytes < sizeof text ? bytes : sizeof text),
             (const char *)value);
    if (sscanf(text, "%d %d %n", &f.rank, &f.status, &used) < 2 || f.rank < 0)
        return;
    snprintf(f.cause, sizeof f.cause, "%s", text + used);
    l->hosts->failure = f;
    l->sink->failed(l->sink->arg, f.rank, f.cause);
}

/* Host `host` is no longer there. The listener tells everybody what that means. */
static void on_gone(const look *l, int host)
{
    lsi_hosts *hosts = l->hosts;
    if (host == hosts->host || hosts->ended[host] || hosts->lost[host])
        return;
    hosts->lost[host] = 1;
    char cause[64];
    snprintf(cause, sizeof cause, "lost with its launcher on host %d", host);
    int first = 0;
    for (int h = 0; h < host; h++)
        first += hosts->size[h];
    for (int r = first; r < first + hosts->size[host]; r++) {
        if (hosts->dead[r])
            continue;
        lsi_hosts_publish_failure(hosts, r, 1, cause);
        lsi_hosts_publish_death(hosts, r, cause);
        l->sink->dead(l->sink->arg, r, cause);
    }
}

static void each_dead(void *arg, const char *key, const uint8_t *value, size_t bytes)
{
    on_dead(arg, key, value, bytes);
}

static void each_end(void *arg, const char *key, const uint8_t *value, size_t bytes)
{
    on_end(arg, key, value, bytes);
}

static void each_failure(void *arg, const char *key, const uint8_t *value, size_t bytes)
{
    (void)key;
    on_failure(arg, value, bytes);
}

static void each_host(void *arg, const char *key, const uint8_t *value, size_t bytes)
{
    const look *l = arg;
    int host = key_number(key, "launch/host/", l->hosts->hosts);
    (void)value;
    (void)bytes;
    if (host >= 0)
        l->hosts->present[host] = 1;
}

/* What the listener sees in its own store. Failures before deaths: they name the first. */
static void step_as_listener(const look *l)
{
    lsi_hosts *hosts = l->hosts;
    lsi_store_server_step(hosts->server);
    if (hosts->hosts == 1)
        return;
    void *arg = (void *)(uintptr_t)l;
    memset(hosts->present, 0, sizeof hosts->present);
    lsi_store_server_each(hosts->server, "launch/failure", each_failure, arg);
    lsi_store_server_each(hosts->server, "launch/end/", each_end, arg);
    lsi_store_server_each(hosts->server, "launch/host/", each_host, arg);
    lsi_store_server_each(hosts->server, "run/dead/", each_dead, arg);
    for (int h = 1; h < hosts->hosts; h++) {
        if (!hosts->present[h])
            on_gone(l, h);
    }
}

/* The store does not answer any more: nothing can be told or learned from now on. */
static void lose_listener(lsi_hosts *hosts)
{
    if (hosts->listener_lost)
        return;
    hosts->listener_lost = 1;
    lsi_store_close(hosts->store);
    hosts->store = NULL;
}

/* Is a failed call the end of the connection? A time-out is not, until the lease has run out. */
static void judge(lsi_hosts *hosts, ls_status status)
{
    if (status == LS_OK || status == LS_IN_PROGRESS || status == LS_ERR_CONFLICT)
        return;
    if (status == LS_ERR_TIMEOUT && lsi_now() < hosts->keep_at + LSI_HOSTS_LEASE_S * 2 / 3)
        return;
    lsi_log(LSI_LOG_INFO, "the store of the run: %s", ls_last_error());
    lose_listener(hosts);
}

static void on_event(const look *l, const lsi_store_event *event)
{
    if (event->deleted)
        return; /* of a host that is gone: the listener publishes its deaths */
    if (strncmp(event->key, "run/dead/", strlen("run/dead/")) == 0)
        on_dead(l, event->key, event->value, event->bytes);
    else if (strncmp(event->key, "launch/end/", strlen("launch/end/")) == 0)
        on_end(l, event->key, event->value, event->bytes);
    else if (strcmp(event->key, "launch/failure") == 0)
        on_failure(l, event->value, event->bytes);
}

static void step_as_joiner(const look *l)
{
    lsi_hosts *hosts = l->hosts;
    if (!hosts->listener_lost && lsi_now() > hosts->keep_at) {
        ls_status status = hosts->store->ops->keep(hosts->store, hosts->lease);
        if (status == LS_OK)
            hosts->keep_at = lsi_now() + LSI_HOSTS_LEASE_S / 3;
        judge(hosts, status);
    }
    ls_status status = LS_OK;
    while (!hosts->listener_lost && status == LS_OK) {
        lsi_store_event event;
        status = hosts->store->ops->next(hosts->store, 0, &event);
        if (status == LS_OK)
            on_event(l, &event);
        judge(hosts, status);
    }
    if (hosts->listener_lost && !hosts->loss_told) {
        hosts->loss_told = 1;
        l->sink->listener_lost(l->sink->arg);
        on_gone(l, 0);
    }
}

void lsi_hosts_step(lsi_hosts *hosts, const lsi_hosts_sink *sink)
{
    look l = {hosts, sink};
    if (hosts->server)
        step_as_listener(&l);
    else
        step_as_joiner(&l);
}

int lsi_hosts_fd(const lsi_hosts *hosts)
{
    if (hosts->server)
        return lsi_store_server_fd(hosts->server);
    return hosts->store ? hosts->store->ops->fd(hosts->store) : -1;
}

static void publish(lsi_hosts *hosts, const char *key, const char *value)
{
    if (hosts->hosts == 1)
        return;
    if (hosts->server) {
        lsi_store_server_put(hosts->server, key, value, strlen(value));
        return;
    }
    /* A call that timed out may or may not have arrived; saying it twice does no harm. */
    ls_status status = LS_ERR_TIMEOUT;
    for (int i = 0; i < 2 && status == LS_ERR_TIMEOUT && hosts->store; i++) {
        status = hosts->store->ops->put(hosts->store, key, value, strlen(value), 0, NULL);
        judge(hosts, status);
    }
}

void lsi_hosts_publish_death(lsi_hosts *hosts, int rank, const char *cause)
{
    char key[32];
    if (hosts->dead[rank])
        return;
    hosts->dead[rank] = 1;
    snprintf(key, sizeof key, "run/dead/%d", rank);
    publish(hosts, key, cause);
}

void lsi_hosts_publish_failure(lsi_hosts *hosts, int rank, int status, const char *cause)
{
    static const char key[] = "launch/failure";
    const uint8_t *value;
    size_t bytes;
    char text[LSI_HOST_CAUSE_MAX + 32];
    int n = snprintf(text, sizeof text, "%d %d %s", rank, status, cause);

    if (hosts->failure.rank >= 0)
        return;
    if (hosts->hosts > 1 && hosts->server) {
        if (lsi_store_server_get(hosts->server, key, &value, &bytes) == LS_OK)
            return; /* another host was first; the next step reads it */
        publish(hosts, key, text);
    } else if (hosts->store) {
        uint64_t version;
        ls_status s =
            hosts->store->ops->compare_and_put(hosts->store, key, 0, text, (size_t)n, 0, &version);
        judge(hosts, s);
        if (s != LS_OK)
            return;
    }
    hosts->failure.rank = rank;
    hosts->failure.status = status;
    snprintf(hosts->failure.cause, sizeof hosts->failure.cause, "%s", cause);
}

void lsi_hosts_publish_end(lsi_hosts *hosts, int status)
{
    char key[32], text[16];
    hosts->ended[hosts->host] = 1;
    hosts->end_status[hosts->host] = status;
    snprintf(key, sizeof key, "launch/end/%d", hosts->host);
    snprintf(text, sizeof text, "%d", status);
    publish(hosts, key, text);
}

int lsi_hosts_others_ended(const lsi_hosts *hosts)
{
    for (int h = 1; hosts->server && h < hosts->hosts; h++) {
        if (!hosts->ended[h] && !hosts->lost[h])
            return 0;
    }
    return 1;
}

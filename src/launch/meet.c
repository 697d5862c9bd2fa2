/* How the launchers of a run meet: the listener counts, the others are counted in.
 *
 * This is the only blocking part of the launcher. It runs before signals are caught and before
 * anything exists that would have to be cleaned up, so an impatient user simply interrupts it.
 *
 * Invariants:
 * 1. The listener waits no longer than its --wait, and a host that joins no longer than its own
 *    for the listener to appear; after that the listener's deadline holds for both.
 * 2. Whoever is refused is told why.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/status.h"
#include "launch/hosts.h"
#include "launch/keys.h"

#define NOTICE_FIRST_S 2.0
#define NOTICE_EVERY_S 5.0
#define GOODBYE_S 1.0 /* for those who wait to read why the run was refused */

static const char what[] = "cannot start the run";

/* Words for the one who waits: soon, then every few seconds. */
typedef struct notice {
    double next;
} notice;

static int notice_due(notice *n)
{
    double now = lsi_now();
    if (n->next == 0)
        n->next = now + NOTICE_FIRST_S;
    if (now < n->next)
        return 0;
    n->next = now + NOTICE_EVERY_S;
    return 1;
}

/* The table is known: where are we in it? */
static ls_status take_table(lsi_hosts *hosts)
{
    int sum = 0;
    for (int h = 0; h < hosts->hosts; h++) {
        if (h == hosts->host)
            hosts->first_rank = sum;
        sum += hosts->size[h];
    }
    if (sum > LSI_MAX_RANKS)
        return lsi_fail(LS_ERR_CONFIG, NULL, what, "%d ranks on %d hosts, at most %d are possible",
                        sum, hosts->hosts, LSI_MAX_RANKS);
    hosts->ranks = sum;
    return LS_OK;
}

/* "launch/host/2": host number and the ranks that it brings; 0 when it makes no sense. */
static int parse_arrival(const char *key, const uint8_t *value, size_t bytes, int *host)
{
    char text[16];
    long number, ranks;
    if (bytes >= sizeof text)
        return 0;
    memcpy(text, value, bytes);
    text[bytes] = 0;
    if (lsi_parse_int(key, key + strlen("launch/host/"), 1, LSI_MAX_HOSTS - 1, &number) != LS_OK ||
        lsi_parse_int(key, text, 1, LSI_MAX_RANKS, &ranks) != LS_OK)
        return 0;
    *host = (int)number;
    return (int)ranks;
}

static void count_arrival(void *arg, const char *key, const uint8_t *value, size_t bytes)
{
    lsi_hosts *hosts = arg;
    int host, ranks = parse_arrival(key, value, bytes, &host);
    if (ranks > 0 && host < hosts->hosts)
        hosts->size[host] = ranks;
}

/* How many of the others are here now; hosts->size tells which. */
static int count_arrivals(lsi_hosts *hosts)
{
    int count = 0;
    for (int h = 1; h < hosts->hosts; h++)
        hosts->size[h] = 0;
    lsi_store_server_each(hosts->server, "launch/host/", count_arrival, hosts);
    for (int h = 1; h < hosts->hosts; h++)
        count += hosts->size[h] > 0;
    return count;
}

static void serve(lsi_hosts *hosts)
{
    struct pollfd p = {.fd = lsi_store_server_fd(hosts->server), .events = POLLIN};
    (void)poll(&p, 1, (int)(LSI_HOSTS_TICK_S * 1000));
    lsi_store_server_step(hosts->server);
}

/* Tell those who came that the run does not start, and let them go before the store closes. The
 * error that was recorded is passed on. */
static ls_status refuse(lsi_hosts *hosts, ls_status status)
{
    char text[LSI_ERROR_MAX];
    snprintf(text, sizeof text, "%s", ls_last_error());
    lsi_store_server_put(hosts->server, "launch/refused", text, strlen(text));
    double until = lsi_now() + GOODBYE_S;
    while (count_arrivals(hosts) > 0 && lsi_now() < until)
        serve(hosts);
    return lsi_fail_text(status, text);
}

static ls_status wait_for_others(lsi_hosts *hosts, double wait_s)
{
    notice words = {0};
    double deadline = lsi_now() + wait_s;
    int others = hosts->hosts - 1, here;
    while ((here = count_arrivals(hosts)) < others) {
        if (lsi_now() > deadline) {
            ls_status status =
                lsi_fail(LS_ERR_TIMEOUT, "--wait sets how long", what,
                         "%d of %d other hosts came within %g s", here, others, wait_s);
            return refuse(hosts, status);
        }
        if (notice_due(&words))
            lsi_log(LSI_LOG_WARN, "waiting at %s for %d of %d other hosts", hosts->store_address,
                    others - here, others);
        serve(hosts);
    }

    ls_status status = take_table(hosts);
    if (status != LS_OK)
        return refuse(hosts, status);
    char table[LSI_MAX_HOSTS * 4 + 1];
    int used = 0;
    for (int h = 0; h < hosts->hosts; h++)
        used += snprintf(table + used, sizeof table - (size_t)used, "%s%d", h ? " " : "",
                         hosts->size[h]);
    return lsi_store_server_put(hosts->server, "launch/table", table, (size_t)used);
}

ls_status lsi_launch_key(const char *path, lsi_key *key)
{
    if (strcmp(path, "-") == 0 || access(path, F_OK) == 0 || errno != ENOENT)
        return lsi_key_load(path, key);
    LSI_TRY(lsi_key_generate(key));
    LSI_TRY(lsi_key_save(key, path));
    fprintf(stderr, "lockstep: made a new key: %s\n", path);
    return LS_OK;
}

ls_status lsi_launch_check_reachable(const char *host, const char *listen)
{
    if (strcmp(host, "0.0.0.0") != 0 && strcmp(host, "::") != 0 && strcmp(host, "*") != 0)
        return LS_OK;
    return lsi_fail(LS_ERR_CONFIG, "name the address by which the other hosts reach this one",
                    "--listen", "'%s' does not say which", listen);
}

static ls_status meet_as_listener(const lsi_launch_config *config, double wait_s, lsi_hosts *hosts)
{
    char host[LSI_ADDR_MAX] = "127.0.0.1", count[16];
    int port = 0;
    if (config->listen) {
        LSI_TRY(lsi_net_split(config->listen, host, &port));
        LSI_TRY(lsi_launch_check_reachable(host, config->listen));
        LSI_TRY(lsi_launch_key(config->key_file, &hosts->key));
    } else {
        LSI_TRY(lsi_key_generate(&hosts->key));
    }
    LSI_TRY(lsi_store_server_create(host, port, &hosts->key, &hosts->server));
    snprintf(hosts->store_address, sizeof hosts->store_address, "%s",
             lsi_store_server_address(hosts->server));
    LSI_TRY(lsi_net_split(hosts->store_address, hosts->bind, &port));
    if (config->listen)
        fprintf(stderr, "lockstep: listening on %s\n", hosts->store_address);

    hosts->size[0] = config->ranks;
    int n = snprintf(count, sizeof count, "%d", hosts->hosts);
    LSI_TRY(lsi_store_server_put(hosts->server, "launch/hosts", count, (size_t)n));
    return wait_for_others(hosts, wait_s);
}

/* Open the listener's store, retrying while there is no listener. */
static ls_status find_listener(const char *address, double wait_s, lsi_hosts *hosts)
{
    char url[LSI_ADDR_MAX + 8];
    snprintf(url, sizeof url, "tcp://%s", address);
    notice words = {0};
    for (double deadline = lsi_now() + wait_s;;) {
        double left = deadline - lsi_now();
        double patience = left < LSI_HOSTS_CALL_S ? left : LSI_HOSTS_CALL_S;
        ls_status status = lsi_store_open(url, &hosts->key, patience, &hosts->store);
        if (status == LS_OK)
            return LS_OK;
        if (status != LS_ERR_TIMEOUT && status != LS_ERR_PEER_DEAD)
            return status;
        if (lsi_now() >= deadline)
            return lsi_fail(LS_ERR_TIMEOUT, "is `lockstep run --listen` running there?", what,
                            "nobody listens on %s, after %g s", address, wait_s);
        if (notice_due(&words))
            lsi_log(LSI_LOG_WARN, "waiting for a listener on %s", address);
        if (status == LS_ERR_PEER_DEAD) /* at once: do not spin */
            (void)poll(NULL, 0, 100);
    }
}

/* The value of a small key as text. */
static ls_status get_text(lsi_store *store, const char *key, size_t room, char *text)
{
    const uint8_t *value;
    size_t bytes;
    uint64_t version;
    LSI_TRY(store->ops->get(store, key, &value, &bytes, &version));
    snprintf(text, room, "%.*s", (int)(bytes < room ? bytes : room), (const char *)value);
    return LS_OK;
}

/* Take the first free host number. *version is that of the claim. */
static ls_status claim_host(int ranks, lsi_hosts *hosts, uint64_t *version)
{
    lsi_store *store = hosts->store;
    char count[16], key[32], size[16];
    long number;
    LSI_TRY(get_text(store, "launch/hosts", sizeof count, count));
    LSI_TRY(lsi_parse_int("hosts of the run", count, 1, LSI_MAX_HOSTS, &number));
    hosts->hosts = (int)number;
    LSI_TRY(store->ops->lease(store, LSI_HOSTS_LEASE_S, &hosts->lease));

    int n = snprintf(size, sizeof size, "%d", ranks);
    for (int h = 1; h < hosts->hosts; h++) {
        snprintf(key, sizeof key, "launch/host/%d", h);
        ls_status status =
            store->ops->compare_and_put(store, key, 0, size, (size_t)n, hosts->lease, version);
        if (status == LS_OK)
            hosts->host = h;
        if (status != LS_ERR_CONFLICT)
            return status;
    }
    return lsi_fail(LS_ERR_CONFLICT, "--hosts of the listener says how many", what,
                    "all %d hosts of the run have come already", hosts->hosts);
}

static ls_status parse_table(const lsi_store_event *event, lsi_hosts *hosts)
{
    char text[LSI_MAX_HOSTS * 4 + 1], *at = text, *field;
    snprintf(text, sizeof text, "%.*s", (int)event->bytes, (const char *)event->value);
    int h = 0;
    for (; (field = strsep(&at, " ")) != NULL; h++) {
        long ranks;
        if (h == hosts->hosts)
            break;
        LSI_TRY(lsi_parse_int("table of the run's hosts", field, 1, LSI_MAX_RANKS, &ranks));
        hosts->size[h] = (int)ranks;
    }
    if (field || h != hosts->hosts)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "the table of hosts is '%s'", text);
    return take_table(hosts);
}

/* One event while we wait: LS_IN_PROGRESS to go on waiting. */
static ls_status on_waiting_event(const lsi_store_event *event, uint64_t claim, lsi_hosts *hosts)
{
    if (strcmp(event->key, "launch/refused") == 0 && !event->deleted)
        return lsi_fail(LS_ERR_ABORTED, NULL, "the listener gave up", "%.*s", (int)event->bytes,
                        (const char *)event->value);
    if (strcmp(event->key, "launch/table") != 0 || event->deleted)
        return LS_IN_PROGRESS;
    if (event->version < claim)
        return lsi_fail(LS_ERR_CONFLICT, NULL, what, "it has begun already, without this host");
    return parse_table(event, hosts);
}

static ls_status wait_for_table(uint64_t claim, lsi_hosts *hosts)
{
    lsi_store *store = hosts->store;
    notice words = {0};
    LSI_TRY(store->ops->watch(store, "launch/"));
    LSI_TRY(store->ops->watch(store, "run/dead/"));
    hosts->keep_at = lsi_now();
    for (;;) {
        lsi_store_event event;
        ls_status status = store->ops->next(store, 0.5, &event);
        if (status == LS_OK)
            status = on_waiting_event(&event, claim, hosts);
        if (status == LS_ERR_PEER_DEAD)
            return lsi_fail(LS_ERR_PEER_DEAD, NULL, what, "the listener ended before the start");
        if (status != LS_IN_PROGRESS)
            return status;
        if (lsi_now() > hosts->keep_at) {
            LSI_TRY(store->ops->keep(store, hosts->lease));
            hosts->keep_at = lsi_now() + LSI_HOSTS_LEASE_S / 3;
        }
        if (notice_due(&words))
            lsi_log(LSI_LOG_WARN, "waiting for the rest of %d hosts", hosts->hosts);
    }
}

static ls_status meet_as_joiner(const lsi_launch_config *config, double wait_s, lsi_hosts *hosts)
{
    char interface[32];
    uint64_t claim = 0;
    int fd, port;
    LSI_TRY(lsi_net_split(config->join, hosts->bind, &port));
    LSI_TRY(lsi_key_load(config->key_file, &hosts->key));
    LSI_TRY(find_listener(config->join, wait_s, hosts));
    snprintf(hosts->store_address, sizeof hosts->store_address, "%s", config->join);

    /* The route to the listener tells which of our addresses the others can reach. */
    LSI_TRY(lsi_net_connect(config->join, lsi_now() + LSI_HOSTS_CALL_S, &fd));
    ls_status status = lsi_net_local(fd, hosts->bind, interface);
    close(fd);
    LSI_TRY(status);

    LSI_TRY(claim_host(config->ranks, hosts, &claim));
    LSI_TRY(wait_for_table(claim, hosts));
    fprintf(stderr, "lockstep: joined as host %d of %d, from %s (%s)\n", hosts->host, hosts->hosts,
            hosts->bind, interface);
    lsi_log(LSI_LOG_INFO, "ranks %d to %d of %d are here", hosts->first_rank,
            hosts->first_rank + config->ranks - 1, hosts->ranks);
    return LS_OK;
}

ls_status lsi_hosts_meet(const lsi_launch_config *config, lsi_hosts **out)
{
    lsi_hosts *hosts = calloc(1, sizeof *hosts);
    if (!hosts)
        return lsi_fail_errno(what, "calloc");
    hosts->failure.rank = -1;
    hosts->hosts = config->hosts > 0 ? config->hosts : 1;
    double wait_s = config->wait_s > 0 ? config->wait_s : LSI_LAUNCH_WAIT_S;
    ls_status status = config->join ? meet_as_joiner(config, wait_s, hosts)
                                    : meet_as_listener(config, wait_s, hosts);
    if (status != LS_OK) {
        lsi_hosts_close(hosts);
        return status;
    }
    for (int h = 0; h < hosts->hosts; h++)
        hosts->present[h] = 1;
    *out = hosts;
    return LS_OK;
}

void lsi_hosts_close(lsi_hosts *hosts)
{
    if (!hosts)
        return;
    lsi_store_close(hosts->store);
    lsi_store_server_destroy(hosts->server);
    explicit_bzero(&hosts->key, sizeof hosts->key);
    free(hosts);
}

/* Where the council meets: coming to a store, and finding another when it is lost.
 *
 * 1. The store in use is that of the host with the smallest number that can be reached. Whoever has
 *    lost it tries them in that order; its own is the last that fails.
 * 2. A host that waits without a quorum looks again and again for one that others use: with a
 *    smaller number, or where a later generation was formed.
 * 3. A store that is not ours (--store) is tried again until it answers.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "launch/keys.h"
#include "launch/seat.h"

#define TRY_S 0.5   /* for a store to answer, when there are others */
#define AGAIN_S 0.2 /* between two looks at all of them */
#define LOOK_S 1.0
#define SLOW_S 15.0 /* for a store that is not ours to answer for the first time */
#define WORD_S 5.0

static const char what[] = "cannot start the run";

/* ---- coming --------------------------------------------------------------------------------- */

static void url_of(const char *address, char url[LSI_ADDR_MAX + 8])
{
    snprintf(url, LSI_ADDR_MAX + 8, "tcp://%.*s", LSI_ADDR_MAX - 1, address);
}

/* Begin at the store; one that is not ours may be slow at first. */
static ls_status sit_first(lsi_council *c, const char *url)
{
    const double lease_s = c->config->evict_s > 0 ? c->config->evict_s : LSI_EVICT_S;
    const double deadline = lsi_now() + SLOW_S;
    for (;;) {
        ls_status status = c->config->store ? lsi_council_clear(c, lease_s) : LS_OK;
        if (status == LS_OK)
            status = lsi_council_connect(c, url, LSI_COUNCIL_CALL_S);
        if (status != LS_ERR_TIMEOUT || lsi_now() > deadline)
            return status;
    }
}

static ls_status open_as_first(lsi_council *c)
{
    char url[LSI_ADDR_MAX + 8];
    int port = 0;
    snprintf(c->bind, sizeof c->bind, "127.0.0.1");
    if (c->config->listen) {
        LSI_TRY(lsi_net_split(c->config->listen, c->bind, &port));
        LSI_TRY(lsi_launch_check_reachable(c->bind, c->config->listen));
        LSI_TRY(lsi_launch_key(c->config->key_file, &c->key));
    } else {
        LSI_TRY(lsi_key_generate(&c->key));
    }
    LSI_TRY(lsi_store_process_start(c->bind, port, &c->key, &c->own));
    snprintf(c->me.address, sizeof c->me.address, "%s", c->own.address);
    LSI_TRY(lsi_net_split(c->own.address, c->bind, &port));
    if (c->config->listen)
        fprintf(stderr, "lockstep: listening on %s\n", c->own.address);
    url_of(c->own.address, url);
    return sit_first(c, c->config->store ? c->config->store : url);
}

/* The route to the others tells which of our addresses they can reach. */
static ls_status find_bind(lsi_council *c, const char *address, char interface[32])
{
    int fd;
    LSI_TRY(lsi_net_connect(address, lsi_now() + LSI_COUNCIL_CALL_S, &fd));
    const ls_status status = lsi_net_local(fd, c->bind, interface);
    close(fd);
    return status;
}

static ls_status find_first(lsi_council *c, const char *url, double wait_s)
{
    double word = lsi_now() + WORD_S / 2;
    for (const double deadline = lsi_now() + wait_s;;) {
        ls_status status = c->config->store ? lsi_council_find_hosts(c) : LS_OK;
        if (status == LS_OK)
            status = lsi_council_connect(c, url, LSI_COUNCIL_CALL_S);
        if (status == LS_OK ||
            (status != LS_ERR_TIMEOUT && status != LS_ERR_PEER_DEAD && status != LS_ERR_NOT_FOUND))
            return status;
        if (lsi_now() >= deadline)
            return lsi_fail(LS_ERR_TIMEOUT, "is `lockstep train --listen` running there?", what,
                            "nobody answers at %s, after %g s", url, wait_s);
        if (lsi_now() > word) {
            word = lsi_now() + WORD_S;
            lsi_log(LSI_LOG_WARN, "waiting for a run at %s", url);
        }
        (void)poll(NULL, 0, 100);
    }
}

/* What the first host says of all: it does so as soon as it has sat down. */
static ls_status read_limits(lsi_council *c)
{
    char text[48];
    const uint8_t *value;
    size_t bytes;
    uint64_t version;
    ls_status status;
    const double deadline = lsi_now() + LSI_COUNCIL_CALL_S;
    while ((status = c->store->ops->get(c->store, "limits", &value, &bytes, &version)) ==
               LS_ERR_NOT_FOUND &&
           lsi_now() < deadline)
        (void)poll(NULL, 0, 5);
    LSI_TRY(status);
    snprintf(text, sizeof text, "%.*s", (int)bytes, (const char *)value);
    lsi_limits_parse(c, text);
    return LS_OK;
}

static ls_status open_as_joiner(lsi_council *c)
{
    char url[LSI_ADDR_MAX + 8], interface[32];
    const double wait_s = c->config->wait_s > 0 ? c->config->wait_s : LSI_LAUNCH_WAIT_S;
    const double deadline = lsi_now() + wait_s;
    LSI_TRY(lsi_key_load(c->config->key_file, &c->key));
    while (find_bind(c, c->config->join, interface) != LS_OK) {
        if (lsi_now() > deadline)
            return lsi_fail(LS_ERR_TIMEOUT, "is `lockstep train --listen` running there?", what,
                            "nobody listens on %s, after %g s", c->config->join, wait_s);
        (void)poll(NULL, 0, 100);
    }
    LSI_TRY(lsi_store_process_start(c->bind, 0, &c->key, &c->own));
    snprintf(c->me.address, sizeof c->me.address, "%s", c->own.address);
    url_of(c->config->join, url);
    LSI_TRY(find_first(c, c->config->store ? c->config->store : url, wait_s));
    LSI_TRY(read_limits(c));
    fprintf(stderr, "lockstep: joined from %s (%s)\n", c->bind, interface);
    return LS_OK;
}

ls_status lsi_council_open(const lsi_launch_config *config, lsi_council *c)
{
    *c = (lsi_council){.config = config,
                       .least = config->min_workers > 0 ? config->min_workers : 1,
                       .most = config->max_workers > 0 ? config->max_workers : LSI_MAX_RANKS};
    const char *transport = getenv("LOCKSTEP_TRANSPORT");
    snprintf(c->transport, sizeof c->transport, "%s", transport && *transport ? transport : "auto");
    const ls_status status = config->join ? open_as_joiner(c) : open_as_first(c);
    if (status == LS_OK && !config->join)
        lsi_council_limit(c);
    if (status != LS_OK)
        lsi_council_close(c);
    return status;
}

/* ---- moving --------------------------------------------------------------------------------- */

/* Has a later generation than ours been formed at that store? */
static int is_ahead(lsi_council *c, const char *url)
{
    char key[32];
    const uint8_t *value;
    size_t bytes;
    uint64_t version;
    lsi_store *store;
    if (lsi_store_open(url, &c->key, TRY_S, &store) != LS_OK)
        return 0;
    snprintf(key, sizeof key, "gen/%llu", (unsigned long long)c->table.generation + 1);
    const int ahead = store->ops->get(store, key, &value, &bytes, &version) == LS_OK;
    lsi_store_close(store);
    return ahead;
}

/* Try the stores of all hosts that were ever heard of, smallest number first. `better`: only those
 * with a smaller number than the one in use, or where others have gone on. */
static int try_all(lsi_council *c, int better)
{
    char url[LSI_ADDR_MAX + 8];
    for (int i = 0; i < c->n_known; i++) {
        const lsi_seat *seat = &c->known[i];
        url_of(seat->address, url);
        if (better && (!strcmp(url, c->url) || seat->id == c->me.id))
            continue;
        if (better && seat->id > c->owner && !is_ahead(c, url))
            continue;
        if (lsi_council_connect(c, url, TRY_S) != LS_OK)
            continue;
        lsi_log(LSI_LOG_INFO, "meeting the other hosts at %s from now on", url);
        c->owner = seat->id;
        c->moved_at = lsi_now();
        if (!better)
            lsi_council_furnish(c);
        return 1;
    }
    return 0;
}

/* Our own store was killed: another one, where the others look for it if that can be. */
static void revive(lsi_council *c)
{
    char host[LSI_ADDR_MAX];
    int port;
    if (lsi_store_process_is_alive(&c->own) || lsi_net_split(c->me.address, host, &port) != LS_OK)
        return;
    lsi_store_process_stop(&c->own);
    ls_status status = lsi_store_process_start(c->bind, port, &c->key, &c->own);
    if (status != LS_OK)
        status = lsi_store_process_start(c->bind, 0, &c->key, &c->own);
    if (status != LS_OK) {
        lsi_log(LSI_LOG_WARN, "%s", ls_last_error());
        return;
    }
    snprintf(c->me.address, sizeof c->me.address, "%s", c->own.address);
    lsi_seats_put(c, &c->me);
    lsi_log(LSI_LOG_WARN, "the store of this host had ended; there is a new one at %s",
            c->own.address);
}

void lsi_council_move(lsi_council *c)
{
    const double now = lsi_now();
    if (now < c->try_at)
        return;
    c->try_at = now + AGAIN_S;
    c->since = 0;
    if (c->config->store)
        (void)lsi_council_connect(c, c->config->store, TRY_S);
    else if (!try_all(c, 0))
        revive(c);
}

void lsi_council_look(lsi_council *c)
{
    const double now = lsi_now();
    if (c->config->store || now < c->try_at)
        return;
    c->try_at = now + LOOK_S;
    c->me.busy = 0;
    (void)try_all(c, 1);
}

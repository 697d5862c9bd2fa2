/* ls_init and ls_finalize: from the launcher's boot record to a communicator. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/boot.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/pages.h"
#include "coll/comm.h"
#include "store/store.h"
#include "transport/fault.h"
#include "transport/tcp.h"

#define TCP_LANES 2
#define STORE_ATTEMPTS 6
#define STORE_LOST_S 2.0 /* of a generation: its launcher has just been there */
#define LOOK_S 0.05      /* while joining: how often to look for ranks that will never come */

/* One group at a time, and of a launcher's only one: the boot record names one rank, once. */
static atomic_int opened, has_joined;

/* What is being put together. */
typedef struct joining {
    lsi_boot boot;
    lsi_host host;
    const char *transport;
    double timeout_s, warn_after_s, deadline;
    int lanes, use_boards;
    lsi_link **links;
    char interfaces[LSI_INTERFACES_MAX];
} joining;

static ls_status open_alone(joining *j, ls_comm **world)
{
    static const int one = 1;
    LSI_TRY(lsi_host_create(1, 0, 1, &j->host));
    lsi_world_config config = {.size = 1,
                               .host_size = &one,
                               .hosts = 1,
                               .segment = &j->host,
                               .own_segment = 1,
                               .timeout_s = j->timeout_s,
                               .warn_after_s = j->warn_after_s};
    ls_status status = lsi_world_open(&config, world);
    if (status != LS_OK)
        lsi_host_unmap(&j->host);
    return status;
}

/* Which peers need a socket? */
static int needs_tcp(const joining *j, int peer)
{
    int first = (int)j->host.block->first_rank, n = (int)j->host.block->local_size;
    int here = peer >= first && peer < first + n;
    return peer != j->boot.rank && (!here || !strcmp(j->transport, "tcp"));
}

/* Has a rank died before the group was complete? */
static ls_status look_for_deaths(void *arg)
{
    const joining *j = arg;
    int ranks[LSI_MAX_RANKS];
    for (int p = 0; p < j->boot.size; p++)
        ranks[p] = p;
    int dead = lsi_host_first_dead(j->host.block, ranks, j->boot.size);
    if (dead < 0)
        return LS_OK;
    return lsi_fail(LS_ERR_PEER_DEAD, NULL, "ls_init", "rank %d died: %.*s", dead,
                    LSI_HOST_CAUSE_MAX, j->host.block->ranks[dead].cause);
}

/* Where a rank says how to reach it: in each generation anew. */
static void address_key(const joining *j, int rank, char key[64])
{
    if (j->boot.generation)
        snprintf(key, 64, "run/%llu/rank/%d/addr", (unsigned long long)j->boot.generation, rank);
    else
        snprintf(key, 64, "run/rank/%d/addr", rank);
}

/* What follows the address when the ranks of a host do not share memory. */
#define TCP_ONLY " tcp"

static int is_tcp_only(const joining *j)
{
    return strcmp(j->transport, "tcp") == 0;
}

/* Ranks that do not agree on it would wait for each other in different ways. */
static ls_status check_transport(const joining *j, int peer, char address[LSI_ADDR_MAX])
{
    char *end = strchr(address, ' ');
    const int theirs = end && strcmp(end, TCP_ONLY) == 0;
    if (end)
        *end = 0;
    if (theirs == is_tcp_only(j))
        return LS_OK;
    return lsi_fail(LS_ERR_CONFIG, "set it to the same on all hosts", "LOCKSTEP_TRANSPORT",
                    "it is %stcp for rank %d, and %stcp for rank %d", is_tcp_only(j) ? "" : "not ",
                    j->boot.rank, theirs ? "" : "not ", peer);
}

static ls_status wait_for_address(joining *j, lsi_store *store, int peer,
                                  char address[LSI_ADDR_MAX])
{
    char key[64];
    const uint8_t *value;
    size_t bytes;
    ls_status status;
    address_key(j, peer, key);
    do {
        LSI_TRY(look_for_deaths(j));
        if (lsi_now() > j->deadline)
            return lsi_fail(LS_ERR_TIMEOUT, "did it start, and does it call ls_init?", "ls_init",
                            "rank %d has not joined within %.3g s", peer, j->timeout_s);
        status = lsi_store_wait(store, key, LOOK_S, NULL, &value, &bytes);
    } while (status == LS_ERR_TIMEOUT);
    LSI_TRY(status);
    if (bytes == 0 || bytes >= LSI_ADDR_MAX)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, "ls_init", "rank %d has a bad address", peer);
    memcpy(address, value, bytes);
    address[bytes] = 0;
    return check_transport(j, peer, address);
}

/* Open the store and say where we listen. A store that is flooded with strangers may drop us as one
 * of them when our proof is still under way: then again. */
static ls_status publish_address(joining *j, const char *own, lsi_store **store)
{
    char url[LSI_ADDR_MAX + 8], key[64], text[LSI_ADDR_MAX + sizeof TCP_ONLY];
    snprintf(text, sizeof text, "%s%s", own, is_tcp_only(j) ? TCP_ONLY : "");
    snprintf(url, sizeof url, "%s%s", strstr(j->boot.store, "://") ? "" : "tcp://", j->boot.store);
    address_key(j, j->boot.rank, key);
    const int is_brief = j->boot.generation && j->timeout_s > STORE_LOST_S;
    for (int attempt = 0;; attempt++) {
        LSI_TRY(lsi_store_open(url, &j->boot.key, is_brief ? STORE_LOST_S : j->timeout_s, store));
        ls_status status = (*store)->ops->put(*store, key, text, strlen(text), 0, NULL);
        if (status == LS_OK)
            return LS_OK;
        lsi_store_close(*store);
        if (status != LS_ERR_PEER_DEAD || attempt == STORE_ATTEMPTS || lsi_now() > j->deadline)
            return status;
        usleep(1000u << attempt);
    }
}

static ls_status exchange_addresses(joining *j, const char *own, char (*addresses)[LSI_ADDR_MAX])
{
    lsi_store *store;
    ls_status status = LS_OK;
    LSI_TRY(publish_address(j, own, &store));
    for (int p = 0; p < j->boot.size && status == LS_OK; p++)
        if (needs_tcp(j, p))
            status = wait_for_address(j, store, p, addresses[p]);
    lsi_store_close(store);
    return status;
}

/* Note an interface in the list of those that are used. */
static void note_interface(joining *j, const char *interface)
{
    size_t used = strlen(j->interfaces), n = strlen(interface);
    for (const char *at = j->interfaces; (at = strstr(at, interface)); at += n)
        if ((at == j->interfaces || at[-1] == ' ') && (at[n] == 0 || at[n] == ','))
            return;
    snprintf(j->interfaces + used, sizeof j->interfaces - used, "%s%s", used ? ", " : "",
             interface);
}

/* The first of the peers after `p` that is reached at another address, or otherwise. */
static int end_of_host(const joining *j, char (*addresses)[LSI_ADDR_MAX], int p)
{
    char host[LSI_ADDR_MAX], other[LSI_ADDR_MAX];
    int port, end = p + 1;
    if (lsi_net_split(addresses[p], host, &port) != LS_OK)
        return end;
    while (end < j->boot.size && needs_tcp(j, end) &&
           lsi_net_split(addresses[end], other, &port) == LS_OK && strcmp(host, other) == 0)
        end++;
    return end;
}

/* Which way do the connections go? Once for the ranks of a host: they have one address. */
static void tell_routes(joining *j, char (*addresses)[LSI_ADDR_MAX])
{
    for (int p = 0, end; p < j->boot.size; p = end) {
        end = p + 1;
        if (!needs_tcp(j, p))
            continue;
        char local[LSI_ADDR_MAX] = "?", remote[LSI_ADDR_MAX] = "?", interface[32] = "?", ranks[40];
        const lsi_link *link = j->links[p * j->lanes];
        end = end_of_host(j, addresses, p);
        lsi_net_peer(link->ops->fd(link), remote);
        if (lsi_net_local(link->ops->fd(link), local, interface) == LS_OK)
            note_interface(j, interface);
        if (end > p + 1)
            snprintf(ranks, sizeof ranks, "ranks %d to %d", p, end - 1);
        else
            snprintf(ranks, sizeof ranks, "rank %d", p);
        lsi_log(LSI_LOG_INFO, "tcp with %s: from %s, interface %s, to %s; %d sockets a peer", ranks,
                local, interface, remote, j->lanes);
    }
}

static ls_status connect_tcp(joining *j)
{
    int any = 0, listener;
    for (int p = 0; p < j->boot.size; p++)
        any |= needs_tcp(j, p);
    if (!any)
        return LS_OK;
    char own[LSI_ADDR_MAX];
    char(*addresses)[LSI_ADDR_MAX] = calloc((size_t)j->boot.size, sizeof *addresses);
    if (!addresses)
        return lsi_fail(LS_ERR_NOMEM, NULL, "ls_init", "out of memory");
    ls_status status = lsi_net_listen(j->boot.bind[0] ? j->boot.bind : NULL, 0, &listener, own);
    if (status != LS_OK)
        goto free_addresses;
    status = exchange_addresses(j, own, addresses);
    if (status == LS_OK) {
        lsi_tcp_mesh mesh = {.listener = listener,
                             .key = &j->boot.key,
                             .self = j->boot.rank,
                             .size = j->boot.size,
                             .lanes = j->lanes,
                             .addresses = (const char(*)[LSI_ADDR_MAX])addresses,
                             .deadline = j->deadline,
                             .check = look_for_deaths,
                             .arg = j};
        status = lsi_tcp_connect(&mesh, j->links);
    }
    if (status == LS_OK)
        tell_routes(j, addresses);
    close(listener);
free_addresses:
    free(addresses);
    return status;
}

static ls_status make_links(joining *j)
{
    const char *plan = getenv("LOCKSTEP_FAULT");
    j->links = calloc((size_t)j->boot.size * (size_t)j->lanes, sizeof(lsi_link *));
    if (!j->links)
        return lsi_fail(LS_ERR_NOMEM, NULL, "ls_init", "out of memory");
    if (strcmp(j->transport, "tcp"))
        LSI_TRY(lsi_world_shm_links(&j->host, j->boot.rank, j->lanes, j->links));
    LSI_TRY(connect_tcp(j));
    for (int p = 0; plan && p < j->boot.size; p++)
        for (int l = 0; l < j->lanes; l++)
            if (j->links[p * j->lanes + l])
                LSI_TRY(lsi_fault_wrap(plan, j->boot.rank, p, &j->links[p * j->lanes + l]));
    return LS_OK;
}

static void close_links(joining *j)
{
    for (int i = 0; j->links && i < j->boot.size * j->lanes; i++)
        if (j->links[i])
            j->links[i]->ops->close(j->links[i]);
}

static ls_status join(joining *j, ls_comm **world)
{
    long lanes = TCP_LANES;
    ls_status status = lsi_host_map(j->boot.segment_fd, &j->host);
    if (status != LS_OK) {
        close(j->boot.segment_fd);
        return status;
    }
    status = lsi_env_int("LOCKSTEP_TCP_SOCKETS", 1, 16, &lanes);
    j->lanes = (int)lanes;
    if (status == LS_OK && j->boot.hosts > 1 && !strcmp(j->transport, "shm"))
        status = lsi_fail(LS_ERR_CONFIG, "use auto or tcp", "LOCKSTEP_TRANSPORT",
                          "shm does not reach the other %d hosts", j->boot.hosts - 1);
    if (status == LS_OK && j->boot.size > 1)
        status = make_links(j);
    if (status == LS_OK) {
        lsi_world_config config = {.rank = j->boot.rank,
                                   .size = j->boot.size,
                                   .host_size = j->boot.host_size,
                                   .hosts = j->boot.hosts,
                                   .host = j->boot.host,
                                   .segment = &j->host,
                                   .own_segment = 1,
                                   .links = j->links,
                                   .lanes = j->lanes,
                                   .interfaces = j->interfaces,
                                   .use_boards = strcmp(j->transport, "tcp") != 0,
                                   .timeout_s = j->timeout_s,
                                   .warn_after_s = j->warn_after_s};
        *world = NULL;
        status = lsi_world_open(&config, world);
    }
    if (status != LS_OK) {
        close_links(j);
        lsi_host_unmap(&j->host);
    }
    free(j->links);
    return status;
}

static ls_status settle(joining *j, const ls_config *config)
{
    LSI_TRY(lsi_world_settings(config, &j->timeout_s, &j->warn_after_s, &j->transport));
    LSI_TRY(lsi_fault_check(getenv("LOCKSTEP_FAULT")));
    j->deadline = lsi_now() + j->timeout_s;
    return LS_OK;
}

ls_status lsi_init_from(const ls_config *config, const lsi_boot *boot, ls_comm **world)
{
    joining j = {.boot = *boot};
    const char *fault = lsi_boot_fault(boot);
    ls_status status = settle(&j, config);
    if (status == LS_OK && fault)
        status = lsi_fail(LS_ERR_PROTOCOL, NULL, "joining a generation", "%s", fault);
    if (status == LS_OK && atomic_exchange(&opened, 1))
        status = lsi_fail(LS_ERR_INVALID, NULL, "joining a generation", "there is a group already");
    if (status != LS_OK) {
        close(j.boot.segment_fd);
    } else {
        lsi_log_set_rank(j.boot.rank);
        status = join(&j, world);
        if (status != LS_OK)
            atomic_store(&opened, 0);
    }
    explicit_bzero(&j.boot.key, sizeof j.boot.key);
    return status;
}

ls_status ls_init(const ls_config *config, ls_comm **world)
{
    joining j = {0};
    if (!world)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_init", "world is NULL");
    LSI_TRY(settle(&j, config));
    if (atomic_load(&has_joined)) /* alone it would do everybody's work, and nobody would notice */
        return lsi_fail(LS_ERR_INVALID, "call ls_init once in each process that is started",
                        "ls_init", "this process has joined, or tried to join, its group already");
    if (atomic_exchange(&opened, 1))
        return lsi_fail(LS_ERR_INVALID, "call ls_finalize first", "ls_init",
                        "this process has a group already");
    ls_comm *comm = NULL;
    ls_status status = lsi_boot_read(&j.boot);
    if (status == LS_OK) {
        atomic_store(&has_joined, 1);
        lsi_log_set_rank(j.boot.rank);
        status = join(&j, &comm);
    } else if (status == LS_ERR_NOT_FOUND) {
        status = open_alone(&j, &comm);
    }
    explicit_bzero(&j.boot.key, sizeof j.boot.key);
    if (status != LS_OK) {
        atomic_store(&opened, 0);
        return status;
    }
    *world = comm;
    return LS_OK;
}

void ls_finalize(ls_comm *world)
{
    if (!world)
        return;
    lsi_world *w = world->world;
    const ls_status left = world->failed == LS_OK && world->size > 1 ? lsi_leave(world) : LS_OK;
    /* Of a death the launcher tells, and who gave the group up says why itself. */
    const int is_told = left == LS_ERR_PEER_DEAD || left == LS_ERR_ABORTED;
    if (left != LS_OK)
        lsi_log(is_told ? LSI_LOG_INFO : LSI_LOG_WARN, "leaving: %s", ls_last_error());
    atomic_store(&w->host.block->ranks[w->rank].state, LSI_RANK_LEFT);
    lsi_host_ring_all(w->host.block);
    lsi_world_close(w);
    atomic_store(&opened, 0);
}

ls_status ls_alloc(ls_comm *comm, size_t bytes, void **out)
{
    if (!comm || !out)
        return lsi_fail(LS_ERR_INVALID, NULL, "ls_alloc", "a NULL argument");
    const lsi_world *w = comm->world;
    LSI_TRY(lsi_heap_alloc(w->heap, bytes, 0, out));
    if (w->use_boards && w->local_size > 1) /* other memory gets them by itself */
        lsi_pages_enlarge(*out, bytes);
    return LS_OK;
}

void ls_free(ls_comm *comm, void *memory)
{
    if (comm)
        lsi_heap_free(comm->world->heap, memory);
}

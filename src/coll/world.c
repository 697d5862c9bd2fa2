/* The world: opening it, what the port tells, closing it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "coll/board_ops.h"
#include "coll/comm.h"
#include "transport/shm.h"

#define SPINS 2000       /* looks before yielding when every rank has a core */
#define SPINS_REMOTE 200 /* when the answer comes from another host: it takes that long anyway */
#define SPINS_CROWDED 8  /* when ranks outnumber the cores */

/* A message came for an operation that we know: is it the same operation there? */
static ls_status check_message(void *arg, int peer, const lsi_wire *wire)
{
    lsi_world *w = arg;
    ls_comm *comm = lsi_world_comm(w, wire->comm);
    if (!comm || wire->call.coll == LSI_P2P)
        return LS_OK; /* not split yet here, or matched by its tag */
    if (comm->failed != LS_OK)
        return comm->failed;
    int m = lsi_comm_member(comm, peer);
    if (m < 0)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, "message", "rank %d is not of the group", peer);
    if (wire->seq > comm->entered[m])
        comm->entered[m] = wire->seq;
    if (wire->seq == 0 || wire->seq > comm->seq || wire->seq + LSI_HISTORY <= comm->seq)
        return LS_OK;
    const lsi_wire_call *ours = &comm->history[wire->seq % LSI_HISTORY];
    if (lsi_call_agrees(ours, &wire->call))
        return LS_OK;
    char mine[LSI_DESCRIBE_MAX], theirs[LSI_DESCRIBE_MAX], text[LSI_ERROR_MAX];
    snprintf(text, sizeof text,
             "mismatched calls: operation %llu is %s on rank %d and %s on rank %d (all ranks must "
             "call the same collectives in the same order)",
             (unsigned long long)wire->seq, lsi_call_describe(ours, mine, sizeof mine), comm->rank,
             lsi_call_describe(&wire->call, theirs, sizeof theirs), m);
    return lsi_comm_fail(comm, LS_ERR_MISMATCH, text);
}

static void message_differs(void *arg, int peer, const lsi_wire *theirs, const lsi_wire *mine)
{
    ls_comm *comm = lsi_world_comm(arg, mine->comm);
    char a[LSI_DESCRIBE_MAX], b[LSI_DESCRIBE_MAX], text[LSI_ERROR_MAX];
    if (!comm)
        return;
    snprintf(text, sizeof text, "mismatched calls: rank %d expects %s, rank %d sends %s",
             comm->rank, lsi_call_describe(&mine->call, a, sizeof a), lsi_comm_member(comm, peer),
             lsi_call_describe(&theirs->call, b, sizeof b));
    lsi_comm_fail(comm, LS_ERR_MISMATCH, text);
}

static void control_message(void *arg, int peer, const lsi_wire *wire, const char *text)
{
    lsi_world *w = arg;
    ls_comm *comm = lsi_world_comm(w, wire->comm);
    int m = comm ? lsi_comm_member(comm, peer) : -1;
    if (!comm && wire->type == LSI_WIRE_STATUS && *text == '?') /* not split yet here, but alive */
        lsi_port_control(w->port, peer, LSI_WIRE_STATUS, wire->comm, 0, NULL);
    if (m < 0)
        return;
    if (wire->type == LSI_WIRE_STATUS) {
        comm->heard[m] = 1;
        if (wire->seq > comm->entered[m])
            comm->entered[m] = wire->seq;
        if (*text == '?')
            lsi_port_control(w->port, peer, LSI_WIRE_STATUS, comm->id, comm->seq, NULL);
        return;
    }
    char *rest;
    long status = strtol(text, &rest, 10);
    if (status >= 0 || status < -100)
        status = LS_ERR_ABORTED;
    lsi_comm_fail(comm, (ls_status)status, *rest == ' ' ? rest + 1 : rest);
}

static void peer_lost(void *arg, int peer, int orderly, const char *text)
{
    lsi_world *w = arg;
    if (orderly)
        return; /* whoever still needs it finds out by its own transfer */
    char cause[LSI_ERROR_MAX];
    snprintf(cause, sizeof cause, "%s", text);
    lsi_world_look(w); /* the launcher's word says more, if it is here already */
    for (ls_comm *comm = w->comms; comm; comm = comm->next) {
        int m = lsi_comm_member(comm, peer);
        if (m < 0 || comm->failed != LS_OK)
            continue;
        char call[LSI_DESCRIBE_MAX], full[LSI_ERROR_MAX];
        snprintf(full, sizeof full, "%s: rank %d has lost rank %d: %.600s",
                 lsi_comm_doing(comm, call, sizeof call), comm->rank, m, cause);
        lsi_comm_fail(comm, LS_ERR_PEER_DEAD, full);
    }
}

ls_status lsi_world_settings(const ls_config *config, double *timeout_s, double *warn_after_s,
                             const char **transport)
{
    *timeout_s = 30;
    *warn_after_s = 3;
    LSI_TRY(lsi_env_seconds("LOCKSTEP_TIMEOUT", timeout_s));
    LSI_TRY(lsi_env_seconds("LOCKSTEP_WARN_AFTER", warn_after_s));
    *transport = getenv("LOCKSTEP_TRANSPORT");
    if (config && config->size != sizeof *config)
        return lsi_fail(LS_ERR_INVALID, "begin with LS_CONFIG_INIT", "ls_init",
                        "the configuration has size %zu, not %zu", config->size, sizeof *config);
    if (config && config->timeout_s > 0)
        *timeout_s = config->timeout_s;
    if (config && config->warn_after_s > 0)
        *warn_after_s = config->warn_after_s;
    if (config && config->transport)
        *transport = config->transport;
    if (!*transport || !**transport)
        *transport = "auto";
    if (strcmp(*transport, "auto") && strcmp(*transport, "shm") && strcmp(*transport, "tcp"))
        return lsi_fail(LS_ERR_CONFIG, "use auto, shm or tcp", "LOCKSTEP_TRANSPORT",
                        "there is no transport '%s'", *transport);
    return LS_OK;
}

ls_status lsi_world_shm_links(const lsi_host *host, int rank, int lanes, lsi_link **links)
{
    int first = (int)host->block->first_rank, n = (int)host->block->local_size;
    for (int i = 0; i < n; i++)
        if (first + i != rank)
            LSI_TRY(lsi_shm_link(host, rank - first, i, &links[(first + i) * lanes]));
    return LS_OK;
}

static ls_status open_port(lsi_world *w, const lsi_world_config *config)
{
    long checksum = 0;
    LSI_TRY(lsi_env_int("LOCKSTEP_CHECKSUM", 0, 1, &checksum));
    lsi_port_config port = {.self = w->rank,
                            .size = w->size,
                            .lanes = config->lanes,
                            .links = config->links,
                            .segment = w->host.base,
                            .segment_bytes = w->host.bytes,
                            .checksum = (int)checksum,
                            .events = {w, check_message, message_differs, control_message,
                                       peer_lost}};
    return lsi_port_create(&port, &w->port);
}

/* May this process read and write the memory of its neighbour on the host? Also the moment when
 * all ranks have joined. */
static ls_status probe_memory(ls_comm *comm)
{
    static const uint64_t magic = 0x6c6f636b73746570u;
    lsi_world *w = comm->world;
    int64_t mine = (int64_t)(uintptr_t)&magic, *all = calloc((size_t)comm->size, sizeof *all);
    if (!all)
        return lsi_fail(LS_ERR_NOMEM, NULL, "ls_init", "out of memory");
    if (w->host.block->launcher >
        0) /* where only descendants may be read, ours are the launcher's */
        prctl(PR_SET_PTRACER, (unsigned long)w->host.block->launcher, 0, 0, 0);
    ls_status status = ls_allgather(comm, &mine, all, 1, LS_I64);
    long allowed = 1;
    if (status == LS_OK)
        status = lsi_env_int("LOCKSTEP_CMA", 0, 1, &allowed);
    if (status == LS_OK && allowed && w->local_size > 1) {
        int peer = w->first_local + (w->local_rank + 1) % w->local_size;
        uint64_t seen = 0;
        struct iovec here = {&seen, sizeof seen};
        struct iovec there = {(void *)(uintptr_t)all[peer], sizeof seen};
        pid_t pid = w->host.block->ranks[peer].pid;
        w->can_read = process_vm_readv(pid, &here, 1, &there, 1, 0) == sizeof seen && seen == magic;
        lsi_log(LSI_LOG_DEBUG, "reading the peers' memory: %s", w->can_read ? "yes" : "no");
    }
    free(all);
    return status;
}

static ls_status find_cores(lsi_world *w)
{
    long spins = -1;
    LSI_TRY(lsi_env_int("LOCKSTEP_SPIN", 0, 1000000000, &spins));
    w->crowded = spins < 0 && w->local_size > w->host.block->cores;
    if (spins < 0)
        spins = w->crowded ? SPINS_CROWDED : w->hosts > 1 ? SPINS_REMOTE : SPINS;
    w->spins = (int)spins;
    return LS_OK;
}

static ls_status fill_world(lsi_world *w, const lsi_world_config *config)
{
    w->rank = config->rank;
    w->size = config->size;
    w->host = *config->segment;
    w->own_host = config->own_segment;
    w->timeout_s = config->timeout_s;
    w->warn_after_s = config->warn_after_s;
    w->use_boards = config->use_boards;
    snprintf(w->interfaces, sizeof w->interfaces, "%s",
             config->interfaces ? config->interfaces : "");
    w->next_id = 1;
    w->host_of = calloc((size_t)config->size, sizeof *w->host_of);
    if (!w->host_of)
        return lsi_fail(LS_ERR_NOMEM, NULL, "ls_init", "out of memory");
    for (int h = 0, r = 0; h < config->hosts; h++)
        for (int i = 0; i < config->host_size[h]; i++, r++) {
            w->host_of[r] = h;
            if (h == config->host && i == 0)
                w->first_local = r;
        }
    w->hosts = config->hosts;
    w->local_rank = w->rank - w->first_local;
    w->local_size = config->host_size[config->host];
    w->cma_scratch = malloc((size_t)w->local_size * LSI_CMA_CHUNK);
    if (!w->cma_scratch)
        return lsi_fail(LS_ERR_NOMEM, NULL, "ls_init", "out of memory");
    LSI_TRY(find_cores(w));
    if (!w->use_boards || w->local_size == 1)
        lsi_host_heap_alone(&w->host, w->local_rank);
    return lsi_heap_create(lsi_host_heap(&w->host, w->local_rank), w->host.block->heap_bytes,
                           &w->heap);
}

ls_status lsi_world_open(const lsi_world_config *config, ls_comm **world)
{
    lsi_world *w = calloc(1, sizeof *w);
    if (!w)
        return lsi_fail(LS_ERR_NOMEM, NULL, "ls_init", "out of memory");
    int ranks[LSI_MAX_RANKS];
    for (int r = 0; r < config->size; r++)
        ranks[r] = r;
    ls_comm *comm = NULL;
    ls_status status = fill_world(w, config);
    if (status == LS_OK) {
        char *board = w->use_boards ? w->host.base + w->host.comm_offset : NULL;
        status = lsi_comm_create(w, 0, ranks, config->size, board, &comm);
    }
    if (status == LS_OK && config->links)
        status = open_port(w, config);
    if (status != LS_OK) {
        w->own_host = 0; /* still the caller's */
        lsi_world_close(w);
        return status;
    }
    for (int i = 0; config->links && i < config->size * config->lanes; i++)
        config->links[i] = NULL; /* the port has them */
    lsi_host_rank *me = &w->host.block->ranks[w->rank];
    atomic_store(&me->pid, (int32_t)getpid());
    atomic_store(&me->state, LSI_RANK_JOINED);
    *world = comm;
    if (config->size > 1)
        status = probe_memory(comm);
    if (status != LS_OK) {        /* the links are gone with the port; report, and leave */
        char text[LSI_ERROR_MAX]; /* goodbyes may fail, too: the first error counts */
        snprintf(text, sizeof text, "%s", ls_last_error());
        atomic_store(&me->state, LSI_RANK_LEFT);
        w->own_host = 0;
        lsi_world_close(w);
        *world = NULL;
        lsi_fail_text(status, text);
    }
    return status;
}

void lsi_world_close(lsi_world *w)
{
    if (!w)
        return;
    lsi_port_destroy(w->port);
    w->port = NULL;
    if (w->heap)
        lsi_requests_free(w);
    while (w->comms)
        lsi_comm_free(w->comms);
    lsi_retired_free(w);
    lsi_heap_destroy(w->heap);
    free(w->host_of);
    free(w->cma_scratch);
    if (w->own_host)
        lsi_host_unmap(&w->host);
    free(w);
}

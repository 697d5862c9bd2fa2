/* One rank does something else while the others go on with a collective.
 *
 *     act RANK ACTION [COLLECTIVE [ALGORITHM [COUNT]]]
 *
 * All ranks call the collective three times; then RANK acts:
 *
 *     none     goes on
 *     stop     is stopped (SIGSTOP)
 *     kill     dies by SIGKILL
 *     exit     calls exit(0) without ls_finalize
 *     leave    calls ls_finalize, then sleeps until SIGTERM
 *     sleep    does nothing for 1.2 s, then goes on
 *
 * and the others go on up to 100 calls in all, or until it fails (report.h, status 3). Who comes
 * to the end says {"rank", "calls"}. A collective is a name (RANK is the root of gather and
 * scatter, 0 of the others), "send" (everyone but RANK waits for a message from it) or "started"
 * (an all-reduce in two parts).
 */
#include <signal.h>
#include <stdlib.h>

#include "report.h"

#define CALLS 100

typedef struct group {
    ls_comm *world;
    int rank, size, actor;
    const char *collective;
    size_t count, *each; /* of a rank; of each rank, all equal */
    float *in, *out;
} group;

static ls_status started(const group *g)
{
    ls_request *request;
    ls_status status =
        ls_allreduce_start(g->world, g->in, g->out, g->count, LS_F32, LS_SUM, &request);
    while (status == LS_OK && (status = ls_request_test(&request)) == LS_IN_PROGRESS) {
        status = ls_request_wait(&request, 0);
        break;
    }
    return status;
}

static ls_status message(const group *g)
{
    if (g->rank != g->actor)
        return ls_recv(g->world, g->out, g->count, LS_F32, g->actor, 5);
    ls_status status = LS_OK;
    for (int peer = 0; peer < g->size && status == LS_OK; peer++)
        if (peer != g->rank)
            status = ls_send(g->world, g->in, g->count, LS_F32, peer, 5);
    return status;
}

static ls_status call(const group *g)
{
    const char *c = g->collective;
    size_t n = g->count;
    if (!strcmp(c, "allreduce"))
        return ls_allreduce(g->world, g->in, g->out, n, LS_F32, LS_SUM);
    if (!strcmp(c, "reduce"))
        return ls_reduce(g->world, g->in, g->out, n, LS_F32, LS_SUM, 0);
    if (!strcmp(c, "reduce_scatter"))
        return ls_reduce_scatter(g->world, g->in, g->out, n, LS_F32, LS_SUM);
    if (!strcmp(c, "allgather"))
        return ls_allgather(g->world, g->in, g->out, n, LS_F32);
    if (!strcmp(c, "allgatherv"))
        return ls_allgatherv(g->world, g->in, g->out, g->each, LS_F32);
    if (!strcmp(c, "broadcast"))
        return ls_broadcast(g->world, g->out, n, LS_F32, 0);
    if (!strcmp(c, "alltoall"))
        return ls_alltoall(g->world, g->in, g->out, n, LS_F32);
    if (!strcmp(c, "alltoallv"))
        return ls_alltoallv(g->world, g->in, g->each, g->out, g->each, LS_F32);
    if (!strcmp(c, "gather"))
        return ls_gather(g->world, g->in, g->out, n, LS_F32, g->actor);
    if (!strcmp(c, "scatter"))
        return ls_scatter(g->world, g->in, g->out, n, LS_F32, g->actor);
    if (!strcmp(c, "barrier"))
        return ls_barrier(g->world);
    return !strcmp(c, "send") ? message(g) : started(g);
}

/* Returns when the actor shall go on. */
static void act(const group *g, const char *action)
{
    say("{\"rank\": %d, \"acts\": \"%s\", \"at\": %.6f}", g->rank, action, now_s());
    if (!strcmp(action, "stop"))
        raise(SIGSTOP);
    if (!strcmp(action, "kill"))
        raise(SIGKILL);
    if (!strcmp(action, "exit"))
        exit(0);
    if (!strcmp(action, "sleep"))
        usleep(1200000);
    if (!strcmp(action, "leave")) {
        ls_finalize(g->world);
        for (;;)
            pause();
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    group g = {.rank = own_rank(),
               .actor = (int)strtol(argv[1], NULL, 10),
               .collective = argc > 3 ? argv[3] : "allreduce",
               .count = argc > 5 ? strtoul(argv[5], NULL, 10) : 1000};
    ls_status status = ls_init(NULL, &g.world);
    int calls = 0;
    double last_ok = now_s();
    if (status == LS_OK) {
        g.size = ls_comm_size(g.world);
        g.in = calloc(g.count * (size_t)g.size + 1, sizeof *g.in);
        g.out = calloc(g.count * (size_t)g.size + 1, sizeof *g.out);
        g.each = calloc((size_t)g.size, sizeof *g.each);
        for (int r = 0; r < g.size; r++)
            g.each[r] = g.count;
    }
    if (status == LS_OK && argc > 4 && strcmp(argv[4], "auto"))
        status = ls_comm_select(g.world, g.collective, argv[4]);
    for (; calls < CALLS && status == LS_OK; calls++) {
        if (calls == 3 && g.rank == g.actor && strcmp(argv[2], "none"))
            act(&g, argv[2]);
        last_ok = now_s();
        status = call(&g);
    }
    if (status != LS_OK)
        report_failure(g.rank, g.collective, status, last_ok);
    else
        say("{\"rank\": %d, \"calls\": %d}", g.rank, calls);
    ls_finalize(g.world);
    free(g.in);
    free(g.out);
    free(g.each);
    return status == LS_OK ? 0 : 3;
}

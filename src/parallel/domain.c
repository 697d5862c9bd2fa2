/* Domains: who shares memory, and the memory. */
#include "parallel/domain.h"

#include <stdlib.h>

#include "base/clock.h"

/* The worker that leads the domain of worker w. */
static int leader_of(const ls_comm *comm, int w)
{
    const lsi_world *world = comm->world;
    if (!world->use_boards)
        return w;
    while (w > 0 && world->host_of[comm->ranks[w - 1]] == world->host_of[comm->ranks[w]])
        w--;
    return w;
}

static ls_status number_domains(lsi_domain *d)
{
    d->first = calloc((size_t)d->workers + 1, sizeof *d->first);
    if (!d->first)
        return lsi_fail(LS_ERR_NOMEM, NULL, "domain", "out of memory");
    for (int w = 0; w < d->workers; w++) {
        if (leader_of(d->world, w) != w)
            continue;
        if (w <= d->worker)
            d->index = d->count;
        d->first[d->count++] = w;
    }
    d->first[d->count] = d->workers;
    return LS_OK;
}

ls_status lsi_domain_open(ls_comm *comm, lsi_domain *d)
{
    *d = (lsi_domain){.world = comm, .worker = ls_comm_rank(comm), .workers = ls_comm_size(comm)};
    LSI_TRY(number_domains(d));
    d->member = d->worker - d->first[d->index];
    d->members = d->first[d->index + 1] - d->first[d->index];
    LSI_TRY(ls_comm_split(comm, d->index, d->worker, &d->local));
    if (d->count > 1)
        LSI_TRY(ls_comm_split(comm, d->member == 0 ? 0 : -1, d->worker, &d->leaders));
    return LS_OK;
}

void lsi_domain_close(lsi_domain *d)
{
    ls_comm_destroy(d->leaders);
    ls_comm_destroy(d->local);
    free(d->first);
    free(d->shares);
    *d = (lsi_domain){0};
}

ls_status lsi_domain_divide(lsi_domain *d, const int32_t *weights)
{
    d->shares = calloc((size_t)d->workers + 1, sizeof *d->shares);
    if (!d->shares)
        return lsi_fail(LS_ERR_NOMEM, NULL, "domain", "out of memory");
    for (int w = 0; w < d->workers; w++)
        d->shares[w + 1] = d->shares[w] + weights[w];
    return LS_OK;
}

ls_status lsi_domain_alloc(lsi_domain *d, size_t bytes, void **out)
{
    return ls_alloc(d->world, bytes, out);
}

void lsi_domain_free(lsi_domain *d, void *memory)
{
    if (memory)
        ls_free(d->world, memory);
}

ls_status lsi_domain_share(lsi_domain *d, const void *mine, void **all)
{
    char *base = d->world->world->host.base;
    const int64_t place = mine ? (const char *)mine - base : -1;
    int64_t *places = calloc((size_t)d->members, sizeof *places);
    if (!places)
        return lsi_fail(LS_ERR_NOMEM, NULL, "domain", "out of memory");
    const ls_status status = ls_allgather(d->local, &place, places, 1, LS_I64);
    for (int m = 0; status == LS_OK && m < d->members; m++)
        all[m] = places[m] < 0 ? NULL : base + places[m];
    free(places);
    return status;
}

ls_status lsi_domain_meet(lsi_domain *d)
{
    if (d->members == 1)
        return LS_OK;
    const double from = lsi_now();
    const ls_status status = ls_barrier(d->local);
    d->waited += lsi_now() - from;
    return status;
}

ls_status lsi_domain_look(lsi_domain *d)
{
    lsi_world_look(d->world->world);
    return d->local->failed != LS_OK ? lsi_comm_failed(d->local) : LS_OK;
}

ls_status lsi_domain_wait(lsi_domain *d, ls_request **request)
{
    const double from = lsi_now();
    const ls_status status = ls_request_wait(request, 0);
    d->waited += lsi_now() - from;
    return status;
}

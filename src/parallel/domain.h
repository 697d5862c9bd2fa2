/* A domain: the workers that share one memory, and with it one copy of the model's state.
 *
 * The ranks of a communicator on one host form a domain; where shared memory is not to be used (a
 * transport other than shm is forced), every rank is a domain of its own. One worker of each, the
 * first, speaks with the other domains.
 *
 * 1. Domains hold adjacent ranges of workers, left to right.
 * 2. Memory is allocated by one worker each and mapped by all: addresses differ, offsets are equal.
 *    It lies in the segment that the launcher owns, and outlives the worker.
 * 3. Every wait has the communicator's deadline and ends at once when somebody dies.
 */
#ifndef LSI_PARALLEL_DOMAIN_H
#define LSI_PARALLEL_DOMAIN_H

#include "base/life.h"
#include "coll/comm.h"
#include "coll/shards.h"
#include "parallel/cut.h"
#include <lockstep/comm.h>

typedef struct lsi_domain {
    ls_comm *world;   /* all workers; borrowed */
    ls_comm *local;   /* those of this domain */
    ls_comm *leaders; /* the first of each domain; NULL for the others and with one domain */
    int worker, workers;
    int member, members; /* of this domain */
    int index, count;    /* of domains */
    int *first;          /* [count + 1] worker that leads each domain; the last entry is workers */
    int32_t *shares;     /* [workers + 1] what workers before each can do; NULL: all the same */
    double waited;       /* seconds spent waiting for others, since it was last set to 0 */
} lsi_domain;

/* Collective over `comm`. The caller owns what *domain refers to. */
ls_status lsi_domain_open(ls_comm *comm, lsi_domain *domain);
void lsi_domain_close(lsi_domain *domain);

/* `bytes` of zeroed memory of this worker, that the others of the domain can reach. */
ls_status lsi_domain_alloc(lsi_domain *domain, size_t bytes, void **out);
void lsi_domain_free(lsi_domain *domain, void *memory);
/* Collective over the domain: `mine` (from lsi_domain_alloc, or NULL) of every member, as addresses
 * of this process: all[members]. */
ls_status lsi_domain_share(lsi_domain *domain, const void *mine, void **all);

/* Shards of worker w, of so many. */
static inline void lsi_domain_range(const lsi_domain *d, int shards, int w, int *first, int *end)
{
    if (d->shares)
        lsi_cut_shares(shards, d->shares, d->workers, w, first, end);
    else
        lsi_cut_range(shards, d->workers, w, first, end);
}

/* Divide shards in proportion to weights[workers], each at least 1, the same on every worker. */
ls_status lsi_domain_divide(lsi_domain *domain, const int32_t *weights);

/* What this worker tells its launcher of itself: base/life.h. */
static inline lsi_host_rank *lsi_domain_life(const lsi_domain *d)
{
    const lsi_world *w = d->world->world;
    return &w->host.block->ranks[w->rank];
}

/* All members have come here. */
ls_status lsi_domain_meet(lsi_domain *domain);
/* A look at whether anybody has failed; for loops that wait for something in shared memory. */
ls_status lsi_domain_look(lsi_domain *domain);
/* Wait for a request, and count the time. */
ls_status lsi_domain_wait(lsi_domain *domain, ls_request **request);

#endif

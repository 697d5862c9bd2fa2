/* The memory of a domain: a slot for each member, weights and the optimizer's state.
 *
 * On a heap of the group's segment it ends with the group. In a vault it outlives workers and
 * groups (vault.h): there slots are as large as one worker alone would need them, for the others
 * may die.
 */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "optim/optimizer.h"
#include "parallel/replica.h"
#include "parallel/sparse.h"

#define PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)

static ls_status out_of_memory(void)
{
    return lsi_fail(LS_ERR_NOMEM, NULL, "replica", "out of memory");
}

/* Vectors that a member needs, and the leader for the domain's sums, whatever the batch's size. */
static int vectors_needed(const lsi_domain *d, int shards, int together)
{
    int room = 1;
    for (int leaves = 1; leaves <= shards; leaves++) {
        lsi_tree_node nodes[LSI_TREE_MAX_NODES];
        int domain_first = 0, first = 0, end = 0;
        for (int m = 0; m < d->members; m++) {
            lsi_cut_range(leaves, d->workers, d->first[d->index] + m, &first, &end);
            if (m == 0)
                domain_first = first;
            const int needed = together ? end - first : lsi_fold_room(leaves, first, end);
            room = needed > room ? needed : room;
        }
        const int sums = lsi_tree_nodes(leaves, domain_first, end, nodes);
        room = sums > room ? sums : room;
    }
    return room;
}

/* Likewise for any number of workers and domains: a node list has at most two nodes a level, and
 * one more vector is being computed. */
static int vectors_at_most(int shards)
{
    int levels = 1;
    while (1 << levels < shards)
        levels++;
    const int nodes = 2 * levels + 1;
    return shards > nodes ? shards : nodes;
}

/* What a slot holds, and where. */
static ls_status lay_out(lsi_replica *r, const lsi_replica_setup *setup)
{
    size_t rows = 0;
    r->room =
        r->slots ? vectors_at_most(r->shards) : vectors_needed(&r->domain, r->shards, r->together);
    if (setup->sparse_rows)
        LSI_TRY(lsi_sparse_open(r, setup, &rows));
    const size_t tails = (size_t)r->room * r->tails * sizeof(double);
    r->tail_at = sizeof(lsi_counters);
    r->vector_at = (r->tail_at + tails + PAGE - 1) / PAGE * PAGE;
    r->vector_bytes = r->elements * sizeof(float);
    r->rows_at = r->vector_at + (size_t)r->room * r->vector_bytes;
    r->undo_at = (r->rows_at + rows + PAGE - 1) / PAGE * PAGE;
    r->undo_bytes = r->slots && r->optimizer ? lsi_undo_room(r->optimizer, LSI_OWN_BLOCKS) : 0;
    const size_t bytes = r->undo_at + r->undo_bytes, unit = r->slots ? HUGE_PAGE : PAGE;
    r->slot_bytes = (bytes + unit - 1) / unit * unit;
    return LS_OK;
}

static ls_status open_heap(lsi_replica *r)
{
    lsi_domain *d = &r->domain;
    void *memory = NULL, **all = calloc((size_t)d->members, sizeof *all);
    if (!all)
        return out_of_memory();
    ls_status status = lsi_domain_alloc(d, r->slot_bytes, &memory);
    r->mine = memory;
    if (status == LS_OK)
        status = lsi_domain_share(d, memory, (void **)r->of);
    memory = NULL;
    if (status == LS_OK && d->member == 0)
        status = lsi_domain_alloc(d, r->elements * sizeof(float) + r->state_bytes, &memory);
    if (d->member == 0)
        r->weights = memory;
    if (status == LS_OK)
        status = lsi_domain_share(d, memory, all);
    if (status == LS_OK)
        r->weights = all[0];
    free(all);
    return status;
}

static ls_status open_vault(lsi_replica *r, const lsi_replica_setup *setup)
{
    lsi_domain *d = &r->domain;
    const lsi_keeper *keeper = setup->keeper;
    const lsi_vault_shape shape = {.elements = r->elements,
                                   .state_bytes = r->state_bytes,
                                   .buffers = setup->buffers,
                                   .runs = r->blocks / LSI_OWN_BLOCKS + 1,
                                   .slots = (uint64_t)keeper->slots,
                                   .slot_bytes = r->slot_bytes};
    int32_t slot = r->slot = keeper->slot;
    r->keeper = *keeper;
    if (d->member == 0)
        LSI_TRY(keeper->get(keeper->arg, &shape, 1, &r->vault));
    LSI_TRY(lsi_domain_meet(d));
    if (d->member != 0)
        LSI_TRY(keeper->get(keeper->arg, &shape, 0, &r->vault));
    LSI_TRY(ls_allgather(d->local, &slot, r->slots, 1, LS_I32));
    for (int m = 0; m < d->members; m++)
        r->of[m] = lsi_vault_slot(r->vault, r->slots[m]);
    r->mine = r->of[d->member];
    r->weights = r->vault->weights;
    lsi_counters *mine = lsi_counters_of(r, d->member);
    atomic_store(&mine->ready, 0);
    atomic_store(&mine->reduced, 0);
    return lsi_domain_meet(d);
}

ls_status lsi_memory_open(lsi_replica *r, const lsi_replica_setup *setup)
{
    const size_t members = (size_t)r->domain.members;
    r->of = calloc(members, sizeof *r->of);
    r->totals = calloc(r->tails, sizeof *r->totals);
    r->sums = aligned_alloc(64, LSI_OWN_BLOCKS * LS_OPTIM_BLOCK * sizeof *r->sums);
    if (setup->keeper)
        r->slots = calloc(members, sizeof *r->slots);
    if (!r->of || !r->totals || !r->sums || (setup->keeper && !r->slots))
        return out_of_memory();
    LSI_TRY(lay_out(r, setup));
    return setup->keeper ? open_vault(r, setup) : open_heap(r);
}

void lsi_memory_tell(const lsi_replica *r, int whole)
{
    if (r->keeper.tell)
        r->keeper.tell(r->keeper.arg, whole);
}

void lsi_memory_close(lsi_replica *r)
{
    if (!r->slots) {
        if (r->domain.member == 0)
            lsi_domain_free(&r->domain, r->weights);
        lsi_domain_free(&r->domain, r->mine);
    }
    lsi_sparse_close(r);
    free(r->slots);
    free(r->of);
    free(r->totals);
    free(r->sums);
}

/* The vault: a domain's state in memory that outlives its workers.
 *
 * One anonymous memory file, made by the first worker of a domain and kept by the launcher, which
 * hands it to whoever comes later. Layout, each part at a page:
 *
 *     head        how many steps are done, who computes the step under way, figures of the latest
 *     weights     of the model, then the state of the optimizer
 *     buffers     running statistics, twice: those after step s are at s mod 2
 *     marks       how far each run of blocks is: lsi_mark
 *     slots       one a worker: counters, tails, gradients, what its update is about to change
 *
 * Memory is paid for when it is touched; slots are as large as one worker alone would need them.
 *
 * A step changes the state in place, each member its runs of blocks. So that a death in the middle
 * of it does no harm (transaction.c, recover.c):
 *
 * 1. Until a member says that it has begun the update, nothing of the state has changed, and the
 *    step can be computed again. A member says so after all gradients and tails are complete.
 * 2. From then on the gradients of the step stand still, and the update is finished by whoever is
 *    left: each run is either as before or marked as done, but for those under way, and what these
 *    were before is kept in their members' slots.
 * 3. `steps` moves when all runs are done.
 */
#ifndef LSI_PARALLEL_VAULT_H
#define LSI_PARALLEL_VAULT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/host.h"
#include <lockstep/status.h>

#define LSI_VAULT_FIGURES 1024 /* steps whose figures are kept */

/* How large everything is. All who map a vault agree on it. */
typedef struct lsi_vault_shape {
    uint64_t elements;    /* of the weights */
    uint64_t state_bytes; /* of the optimizer */
    uint64_t buffers;     /* elements of statistics */
    uint64_t runs;
    uint64_t slots, slot_bytes;
} lsi_vault_shape;

/* The step under way, as its members divide it. */
typedef struct lsi_vault_step {
    uint64_t number; /* 1 for the first */
    uint64_t samples;
    int32_t leaves, workers, domains;
    int32_t first, members; /* workers first…first+members-1 are this domain's */
    int32_t slot[LSI_MAX_RANKS];
    int32_t shares[LSI_MAX_RANKS + 1]; /* as in the domain; the last is 0 when they are equal */
} lsi_vault_step;

/* What is known of a step that is done. */
typedef struct lsi_vault_figures {
    _Atomic uint64_t number; /* written last */
    uint64_t samples;
    double loss, count, grad_norm, rate;
    uint64_t workers;
} lsi_vault_figures;

/* Is there a state? */
enum lsi_vault_filled {
    LSI_VAULT_EMPTY,
    LSI_VAULT_FULL,
    LSI_VAULT_ARRIVING, /* others have one, and were sending it: handover.c */
};

typedef struct lsi_vault_head {
    uint64_t magic;
    lsi_vault_shape shape;
    _Atomic uint32_t filled; /* lsi_vault_filled */
    _Atomic uint64_t steps;  /* done */
    double judged_loss;      /* of the latest evaluation that was recorded, */
    _Atomic uint64_t judged; /* and the steps done by then */
    lsi_vault_step step;
    lsi_vault_figures figures[LSI_VAULT_FIGURES]; /* of step n at n modulo their number */
} lsi_vault_head;

typedef struct lsi_vault {
    int fd;
    size_t bytes;
    lsi_vault_head *head;
    float *weights; /* and behind them the optimizer's state */
    float *buffers[2];
    _Atomic uint64_t *marks; /* [runs] */
    char *slots;
} lsi_vault;

/* Memory for a vault to come, whatever its shape: touching it takes a while (half a step, for a
 * small batch), so a worker does that while it has nothing else to do. All zeros: there is none. */
typedef struct lsi_vault_stock {
    char *base;
    size_t bytes, touched;
    int fd;
} lsi_vault_stock;

/* So many bytes of address space, from the beginning of the vault on. Best effort, as all of it: a
 * vault is made without a stock as well. */
void lsi_vault_stock_open(lsi_vault_stock *stock, size_t bytes);
/* Touch some more of it, for milliseconds; 0 when nothing is left to do. */
int lsi_vault_stock_touch(lsi_vault_stock *stock);
void lsi_vault_stock_close(lsi_vault_stock *stock);

/* A new one, empty, in the memory of the stock if there is one (NULL: none), which is used up then.
 * The caller owns it. */
ls_status lsi_vault_create(const lsi_vault_shape *shape, lsi_vault_stock *stock, lsi_vault **out);
/* One that exists; `fd` is taken over on success. LS_ERR_PROTOCOL when it has another shape. */
ls_status lsi_vault_map(int fd, const lsi_vault_shape *shape, lsi_vault **out);
/* Unmap. The memory lives on while anybody has its descriptor. Accepts NULL. */
void lsi_vault_close(lsi_vault *vault);

/* A run is after update number n when its mark is 2n; 2n - 1: measured, where that changes it. */
static inline uint64_t lsi_mark(uint64_t number, int updated)
{
    return 2 * number - (updated ? 0 : 1);
}

static inline char *lsi_vault_slot(const lsi_vault *vault, int slot)
{
    return vault->slots + (size_t)slot * vault->head->shape.slot_bytes;
}

#endif

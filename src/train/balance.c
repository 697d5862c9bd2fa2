/* Shards in proportion to what workers can do (--balance speed).
 *
 * Each worker knows how many shards it has computed in how many seconds, waiting aside. At the
 * beginning of a generation all learn what all have measured in the one before, and divide the
 * shards alike. Which worker computes a shard never changes the result.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "train/trainer.h"

#define MEASURED 20   /* steps after which a first division is worth while */
#define AGAIN 1000    /* and then every so many */
#define WEIGHT 1000.0 /* of the fastest */

static void forget(lsi_trainer *t)
{
    t->measured = 0;
    t->shards = t->computed = 0;
}

/* Weights from speeds; who has measured nothing counts as the mean of the others. */
static void weigh(lsi_trainer *t, const double *speeds)
{
    double most = 0, sum = 0;
    int known = 0;
    for (int w = 0; w < t->workers; w++) {
        most = speeds[w] > most ? speeds[w] : most;
        sum += speeds[w];
        known += speeds[w] > 0;
    }
    for (int w = 0; w < t->workers; w++) {
        const double speed = speeds[w] > 0 ? speeds[w] : known ? sum / known : 1;
        const int32_t weight = (int32_t)(WEIGHT * (known ? speed / most : 1));
        t->powers[w] = weight > 0 ? weight : 1;
    }
    if (t->worker == 0 && known)
        for (int w = 0; w < t->workers; w++)
            lsi_log(LSI_LOG_INFO, "worker %d can do %.2f of what the fastest does", w,
                    (double)t->powers[w] / WEIGHT);
}

ls_status lsi_balance_open(lsi_trainer *t)
{
    if (strcmp(t->config.run.balance, "speed") != 0 || !lsi_member_lasts(t->member))
        return LS_OK;
    const double mine = t->measured >= MEASURED && t->computed > 0 ? t->shards / t->computed : 0;
    double *all = calloc((size_t)t->workers, sizeof *all);
    t->powers = calloc((size_t)t->workers, sizeof *t->powers);
    ls_status status = all && t->powers ? ls_allgather(t->comm, &mine, all, 1, LS_F64)
                                        : lsi_fail(LS_ERR_NOMEM, NULL, "balance", "out of memory");
    if (status == LS_OK)
        weigh(t, all);
    free(all);
    if (mine > 0)
        t->measured = MEASURED + 1; /* the next division is not soon */
    else
        forget(t);
    t->shards = t->computed = 0;
    return status;
}

int lsi_balance_step(lsi_trainer *t, const lsi_step_result *result, uint64_t samples)
{
    uint64_t first, end;
    if (!t->powers)
        return 0;
    lsi_engine_part(t->engine, samples, &first, &end);
    t->shards += (double)(end - first);
    t->computed += result->seconds - result->waited;
    t->measured++;
    return t->measured == MEASURED || (t->measured > MEASURED && t->measured % AGAIN == 0);
}

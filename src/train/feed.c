/* From the data to the graph: this worker's part of each batch, read one step ahead. */
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "train/trainer.h"

#define AHEAD 3

uint64_t lsi_batch_of(const lsi_trainer *t, uint64_t step, uint64_t *epoch, uint64_t *place)
{
    const uint64_t batch = t->config.train.batch;
    *epoch = step / t->per_epoch;
    *place = step % t->per_epoch * batch;
    return t->count - *place < batch ? t->count - *place : batch;
}

/* This worker's samples of a step: how many, and where. */
static size_t part_of(const lsi_trainer *t, uint64_t step, uint64_t *epoch, uint64_t *place)
{
    uint64_t first, end;
    const uint64_t samples = lsi_batch_of(t, step, epoch, place);
    lsi_engine_part(t->engine, samples, &first, &end);
    *place += first;
    return (size_t)(end - first);
}

static ls_status ask(lsi_trainer *t)
{
    for (; t->asked < t->total; t->asked++) {
        uint64_t epoch, place;
        const size_t n = part_of(t, t->asked, &epoch, &place);
        if (!n)
            continue;
        const ls_status status = ls_loader_ask(t->loader, epoch, place, n);
        if (status != LS_OK)
            return status == LS_IN_PROGRESS ? LS_OK : status;
    }
    return LS_OK;
}

/* This worker's samples of a batch. */
static size_t part_size(const lsi_trainer *t, uint64_t samples)
{
    uint64_t first, end;
    lsi_engine_part(t->engine, samples, &first, &end);
    return (size_t)(end - first);
}

ls_status lsi_feed_open(lsi_trainer *t, uint64_t first_step)
{
    const uint64_t batch = t->config.train.batch;
    const size_t usual = part_size(t, t->count < batch ? t->count : batch);
    const size_t last = t->count % batch ? part_size(t, t->count % batch) : 0;
    const size_t most = usual > last ? usual : last;
    LSI_TRY(
        ls_loader_create(t->train, most ? most : 1, AHEAD, t->config.train.seed, 1, &t->loader));
    t->asked = first_step;
    return ask(t);
}

ls_status lsi_feed_take(lsi_trainer *t, uint64_t step)
{
    uint64_t epoch, place;
    size_t count;
    const size_t n = part_of(t, step, &epoch, &place);
    if (!n)
        return LS_OK;
    LSI_TRY(ls_loader_take(t->loader, t->taken, &count));
    if (lsi_log_enabled(LSI_LOG_DEBUG))
        lsi_log(LSI_LOG_DEBUG, "step %llu: places %llu to %llu of epoch %llu",
                (unsigned long long)step + 1, (unsigned long long)place,
                (unsigned long long)(place + n), (unsigned long long)epoch);
    return ask(t);
}

ls_status lsi_feed_fill(void *trainer, ls_graph *graph, uint64_t first, size_t count)
{
    const lsi_trainer *t = trainer;
    for (int f = 0; f < t->fields.n; f++) {
        const size_t bytes = t->fields.bytes[f];
        memcpy(ls_input_data(graph, ls_graph_input(graph, f)),
               (const char *)t->taken[f] + first * bytes, count * bytes);
    }
    return LS_OK;
}

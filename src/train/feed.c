/* From the data to the graph: this worker's part of each batch, read ahead or lent. */
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

size_t lsi_part_of(const lsi_trainer *t, int worker, uint64_t step, uint64_t *epoch,
                   uint64_t *place)
{
    uint64_t first, end;
    const uint64_t samples = lsi_batch_of(t, step, epoch, place);
    lsi_engine_part_of(t->engine, worker, samples, &first, &end);
    *place += first;
    return (size_t)(end - first);
}

/* A worker's samples of a batch. */
static size_t part_size(const lsi_trainer *t, int worker, uint64_t samples)
{
    uint64_t first, end;
    lsi_engine_part_of(t->engine, worker, samples, &first, &end);
    return (size_t)(end - first);
}

size_t lsi_part_most(const lsi_trainer *t, int worker)
{
    const uint64_t batch = t->config.train.batch;
    const size_t usual = part_size(t, worker, t->count < batch ? t->count : batch);
    const size_t last = t->count % batch ? part_size(t, worker, t->count % batch) : 0;
    const size_t most = usual > last ? usual : last;
    return most ? most : 1;
}

/* ---- reading ahead -------------------------------------------------------------------------- */

static ls_status ask(const lsi_trainer *t, lsi_reader *r)
{
    for (; r->asked < t->total; r->asked++) {
        uint64_t epoch, place;
        const size_t n = lsi_part_of(t, r->worker, r->asked, &epoch, &place);
        if (!n)
            continue;
        const ls_status status = ls_loader_ask(r->loader, epoch, place, n);
        if (status != LS_OK)
            return status == LS_IN_PROGRESS ? LS_OK : status;
    }
    return LS_OK;
}

ls_status lsi_reader_open(const lsi_trainer *t, int worker, uint64_t first_step, lsi_reader *r)
{
    *r = (lsi_reader){.worker = worker, .asked = first_step};
    LSI_TRY(ls_loader_create(t->train, lsi_part_most(t, worker), AHEAD, t->config.train.seed, 1,
                             &r->loader));
    return ask(t, r);
}

void lsi_reader_close(lsi_reader *r)
{
    ls_loader_destroy(r->loader);
    r->loader = NULL;
}

ls_status lsi_reader_take(const lsi_trainer *t, lsi_reader *r, uint64_t step, const void **fields,
                          size_t *n)
{
    uint64_t epoch, place;
    *n = lsi_part_of(t, r->worker, step, &epoch, &place);
    if (!*n)
        return LS_OK;
    LSI_TRY(ls_loader_take(r->loader, fields, NULL));
    return ask(t, r);
}

/* ---- the worker's own ----------------------------------------------------------------------- */

ls_status lsi_feed_open(lsi_trainer *t, uint64_t first_step)
{
    if (!t->sources)
        return LS_OK;
    if (!t->lacks)
        LSI_TRY(lsi_reader_open(t, t->worker, first_step, &t->reader));
    return lsi_lend_open(t, first_step);
}

ls_status lsi_feed_take(lsi_trainer *t, uint64_t step)
{
    uint64_t epoch, place;
    size_t n;
    LSI_TRY(lsi_lend_send(t, step + 1));
    if (t->lacks)
        LSI_TRY(lsi_lend_take(t, step));
    else
        LSI_TRY(lsi_reader_take(t, &t->reader, step, t->taken, &n));
    n = lsi_part_of(t, t->worker, step, &epoch, &place);
    if (n && lsi_log_enabled(LSI_LOG_DEBUG))
        lsi_log(LSI_LOG_DEBUG, "step %llu: places %llu to %llu of epoch %llu",
                (unsigned long long)step + 1, (unsigned long long)place,
                (unsigned long long)(place + n), (unsigned long long)epoch);
    return LS_OK;
}

ls_status lsi_feed_fill(void *trainer, ls_graph *graph, uint64_t first, size_t count)
{
    lsi_trainer *t = trainer;
    lsi_lend_look(t);
    for (int f = 0; f < t->fields.n; f++) {
        const size_t bytes = t->fields.bytes[f];
        memcpy(ls_input_data(graph, ls_graph_input(graph, f)),
               (const char *)t->taken[f] + first * bytes, count * bytes);
    }
    return LS_OK;
}

void lsi_feed_close(lsi_trainer *t)
{
    lsi_reader_close(&t->reader);
    lsi_lend_close(t);
}

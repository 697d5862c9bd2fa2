/* Reading ahead: a thread that fills a ring of slots.
 *
 * Three counters of requests, all under one mutex: taken <= done <= asked. The thread fills slot
 * done % slots while done < asked; the owner reads slot (taken - 1) % slots. There is one slot more
 * than requests may be under way, so the samples that were taken last stay while others are read.
 *
 * 1. Everything is allocated at creation.
 * 2. Every wait is for a counter, looked at under the mutex before sleeping and told by a signal
 *    after each change: no wake-up can be lost.
 * 3. A slot belongs to the thread while done <= its number < asked, to the owner otherwise.
 * 4. The thread takes no signals, and looks after each sample whether it shall end.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "data/format.h"

#define ALIGN ((size_t)64)
#define AHEAD_MAX 4096

typedef struct slot {
    uint64_t epoch, first;
    size_t count;
    ls_status status;
    char error[LSI_ERROR_MAX];
    unsigned char *memory;
} slot;

struct ls_loader {
    const ls_dataset *dataset;
    size_t batch;
    uint64_t ahead, slots, seed;
    int shuffle;
    int field_count;
    size_t bytes[LSI_DATA_FIELDS];  /* of a field of one sample */
    size_t offset[LSI_DATA_FIELDS]; /* of a field in a slot */
    slot *ring;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work; /* asked or stop has changed */
    pthread_cond_t news; /* done has changed */
    uint64_t asked, done, taken;
    atomic_int stop;
};

/* ---- the thread ----------------------------------------------------------------------------- */

static ls_status fill(const ls_loader *loader, const slot *s)
{
    const uint64_t samples = ls_dataset_count(loader->dataset);
    for (size_t i = 0; i < s->count; i++) {
        if (atomic_load_explicit(&loader->stop, memory_order_relaxed))
            return LS_OK;
        void *fields[LSI_DATA_FIELDS];
        for (int f = 0; f < loader->field_count; f++)
            fields[f] = s->memory + loader->offset[f] + i * loader->bytes[f];
        uint64_t index = s->first + i;
        if (loader->shuffle)
            index = ls_data_order(loader->seed, s->epoch, samples, index);
        LSI_TRY(ls_dataset_read(loader->dataset, index, s->epoch, fields));
    }
    return LS_OK;
}

static void *run(void *argument)
{
    ls_loader *loader = argument;
    pthread_mutex_lock(&loader->lock);
    while (!atomic_load(&loader->stop)) {
        if (loader->done == loader->asked) {
            pthread_cond_wait(&loader->work, &loader->lock);
            continue;
        }
        slot *s = &loader->ring[loader->done % loader->slots];
        pthread_mutex_unlock(&loader->lock);
        s->status = fill(loader, s);
        if (s->status != LS_OK) { /* the text is this thread's: take it along */
            const size_t length = strlen(ls_last_error());
            memcpy(s->error, ls_last_error(), length + 1);
        }
        pthread_mutex_lock(&loader->lock);
        loader->done++;
        pthread_cond_signal(&loader->news);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

/* ---- creation ------------------------------------------------------------------------------- */

/* Offsets of the fields, and the bytes of a slot; 0 when that is more than can be. */
static size_t lay_out(ls_loader *loader)
{
    size_t total = 0;
    loader->field_count = loader->dataset->field_count;
    for (int f = 0; f < loader->field_count; f++) {
        size_t bytes;
        loader->bytes[f] = loader->dataset->field_bytes[f];
        if (__builtin_mul_overflow(loader->bytes[f], loader->batch, &bytes) ||
            bytes > ((size_t)1 << 46) - total)
            return 0;
        loader->offset[f] = total;
        total += (bytes + ALIGN - 1) & ~(ALIGN - 1);
    }
    return total;
}

static void free_memory(ls_loader *loader)
{
    for (uint64_t i = 0; loader->ring && i < loader->slots; i++)
        free(loader->ring[i].memory);
    free(loader->ring);
    free(loader);
}

static ls_status allocate(const ls_dataset *dataset, size_t batch, int ahead, ls_loader **out)
{
    ls_loader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return lsi_fail(LS_ERR_NOMEM, NULL, "loader", "no memory for it");
    loader->dataset = dataset;
    loader->batch = batch;
    loader->ahead = (uint64_t)ahead;
    loader->slots = loader->ahead + 1;
    const size_t bytes = lay_out(loader);
    loader->ring = bytes ? calloc(loader->slots, sizeof *loader->ring) : NULL;
    int complete = loader->ring != NULL;
    for (uint64_t i = 0; complete && i < loader->slots; i++)
        complete = (loader->ring[i].memory = aligned_alloc(ALIGN, bytes)) != NULL;
    if (!complete) {
        free_memory(loader);
        return lsi_fail(LS_ERR_NOMEM, "a smaller batch, or fewer requests ahead", "loader",
                        "no memory for %d batches of %zu samples", ahead + 1, batch);
    }
    *out = loader;
    return LS_OK;
}

ls_status ls_loader_create(const ls_dataset *dataset, size_t batch, int ahead, uint64_t seed,
                           int shuffle, ls_loader **out)
{
    if (!dataset || !dataset->ready || !out)
        return lsi_fail(LS_ERR_INVALID, "call ls_dataset_bind first", "loader",
                        "a dataset whose fields are known, and a place, are needed");
    if (batch < 1 || ahead < 1 || ahead > AHEAD_MAX)
        return lsi_fail(LS_ERR_INVALID, NULL, "loader",
                        "a batch of at least 1 and from 1 to %d requests ahead are needed, "
                        "not %zu and %d",
                        AHEAD_MAX, batch, ahead);
    ls_loader *loader = NULL;
    LSI_TRY(allocate(dataset, batch, ahead, &loader));
    loader->seed = seed;
    loader->shuffle = shuffle != 0;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->news, NULL);
    const int error = lsi_thread_start(&loader->thread, run, loader);
    if (error) {
        free_memory(loader);
        return lsi_fail(LS_ERR_SYSTEM, NULL, "loader", "cannot start a thread: %s",
                        strerror(error));
    }
    *out = loader;
    return LS_OK;
}

void ls_loader_destroy(ls_loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    atomic_store(&loader->stop, 1);
    pthread_cond_signal(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    pthread_join(loader->thread, NULL);
    pthread_cond_destroy(&loader->news);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->lock);
    free_memory(loader);
}

/* ---- requests ------------------------------------------------------------------------------- */

ls_status ls_loader_ask(ls_loader *loader, uint64_t epoch, uint64_t first, size_t count)
{
    if (!loader)
        return lsi_fail(LS_ERR_INVALID, NULL, "loader", "a loader is needed");
    const uint64_t samples = ls_dataset_count(loader->dataset);
    if (count < 1 || count > loader->batch || first > samples || count > samples - first)
        return lsi_fail(LS_ERR_INVALID, NULL, "loader",
                        "%zu samples from place %llu were asked for; a request has from 1 to %zu, "
                        "an epoch %llu",
                        count, (unsigned long long)first, loader->batch,
                        (unsigned long long)samples);
    if (loader->asked - loader->taken == loader->ahead) /* both are changed by this thread only */
        return LS_IN_PROGRESS;
    slot *s = &loader->ring[loader->asked % loader->slots];
    s->epoch = epoch;
    s->first = first;
    s->count = count;
    pthread_mutex_lock(&loader->lock);
    loader->asked++;
    pthread_cond_signal(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    return LS_OK;
}

ls_status ls_loader_take(ls_loader *loader, const void **fields, size_t *count)
{
    if (!loader || !fields)
        return lsi_fail(LS_ERR_INVALID, NULL, "loader", "a loader and room are needed");
    if (loader->taken == loader->asked)
        return lsi_fail(LS_ERR_INVALID, "call ls_loader_ask first", "loader",
                        "no request is under way");
    pthread_mutex_lock(&loader->lock);
    while (loader->done == loader->taken)
        pthread_cond_wait(&loader->news, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    const slot *s = &loader->ring[loader->taken++ % loader->slots];
    if (s->status != LS_OK)
        return lsi_fail_text(s->status, s->error);
    for (int f = 0; f < loader->field_count; f++)
        fields[f] = s->memory + loader->offset[f];
    if (count)
        *count = s->count;
    return LS_OK;
}

/* Saving checkpoints while training goes on: a copy, a thread, a mutex.
 *
 * 1. `busy` says whose the copy is: the thread's while it is set, the caller's otherwise.
 */
#include "train/saver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/thread.h"

#define WHAT "saver"

struct lsi_saver {
    char run[LSI_CHECKPOINT_PATH];
    uint64_t keep;
    lsi_state copy;         /* its arrays are ours */
    size_t params, buffers; /* elements of the arrays */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int busy, ending; /* under lock, as is all that follows */
    ls_status status;
    char error[LSI_ERROR_MAX];
    lsi_checkpoint done;
};

static size_t elements(const ls_param_info *infos, int count)
{
    size_t end = 0;
    for (int i = 0; i < count; i++) {
        const size_t this_end = infos[i].offset + infos[i].count;
        end = this_end > end ? this_end : end;
    }
    return end;
}

static void *write_copies(void *arg)
{
    lsi_saver *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->busy && !s->ending)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->busy)
            break;
        pthread_mutex_unlock(&s->lock);
        lsi_checkpoint done;
        const ls_status status = lsi_checkpoint_save(s->run, &s->copy, s->keep, &done);
        pthread_mutex_lock(&s->lock);
        s->status = status;
        if (status == LS_OK)
            s->done = done;
        else
            snprintf(s->error, sizeof s->error, "%s", ls_last_error());
        s->busy = 0;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static ls_status copy_of(size_t count, float **out)
{
    *out = malloc((count ? count : 1) * sizeof **out);
    return *out ? LS_OK
                : lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for a copy of %zu values", count);
}

static ls_status allocate(lsi_saver *s, const lsi_state *form)
{
    s->copy = *form;
    s->copy.weights.param_values = s->copy.weights.buffer_values = NULL;
    for (int a = 0; a < form->array_count; a++)
        s->copy.arrays[a] = NULL;
    s->params = elements(form->weights.params, form->weights.param_count);
    s->buffers = elements(form->weights.buffers, form->weights.buffer_count);
    LSI_TRY(copy_of(s->params, &s->copy.weights.param_values));
    LSI_TRY(copy_of(s->buffers, &s->copy.weights.buffer_values));
    for (int a = 0; a < form->array_count; a++)
        LSI_TRY(copy_of(s->params, &s->copy.arrays[a]));
    return LS_OK;
}

static void release(lsi_saver *s)
{
    free(s->copy.weights.param_values);
    free(s->copy.weights.buffer_values);
    for (int a = 0; a < s->copy.array_count; a++)
        free(s->copy.arrays[a]);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static ls_status start_thread(lsi_saver *s)
{
    const int code = lsi_thread_start(&s->thread, write_copies, s);
    return code ? lsi_fail(LS_ERR_SYSTEM, NULL, WHAT, "no thread: %s", strerror(code)) : LS_OK;
}

ls_status lsi_saver_create(const char *run, const lsi_state *form, uint64_t keep, lsi_saver **out)
{
    if (strlen(run) >= LSI_CHECKPOINT_PATH || form->array_count < 0 ||
        form->array_count > LSI_CHECKPOINT_ARRAYS)
        return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "a path of %zu bytes, %d arrays", strlen(run),
                        form->array_count);
    lsi_saver *s = calloc(1, sizeof *s);
    if (!s)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory");
    snprintf(s->run, sizeof s->run, "%s", run);
    s->keep = keep;
    s->done.step = LSI_SAVER_NONE;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    ls_status status = allocate(s, form);
    if (status == LS_OK)
        status = start_thread(s);
    if (status != LS_OK) {
        release(s);
        return status;
    }
    *out = s;
    return LS_OK;
}

void lsi_saver_destroy(lsi_saver *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->ending = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    release(s);
}

/* How the last save has ended, told once. Under lock. */
static ls_status tell(lsi_saver *s, lsi_checkpoint *done)
{
    if (s->busy)
        return LS_IN_PROGRESS;
    const ls_status status = s->status;
    s->status = LS_OK;
    if (done)
        *done = s->done;
    return status == LS_OK ? LS_OK : lsi_fail_text(status, s->error);
}

ls_status lsi_saver_poll(lsi_saver *s, lsi_checkpoint *done)
{
    pthread_mutex_lock(&s->lock);
    const ls_status status = tell(s, done);
    pthread_mutex_unlock(&s->lock);
    return status;
}

ls_status lsi_saver_wait(lsi_saver *s, lsi_checkpoint *done)
{
    pthread_mutex_lock(&s->lock);
    while (s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    const ls_status status = tell(s, done);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void copy_state(lsi_saver *s, const lsi_state *state)
{
    const lsi_state own = s->copy;
    s->copy.step = state->step;
    s->copy.epoch = state->epoch;
    s->copy.seed = state->seed;
    s->copy.loss = state->loss;
    s->copy.eval_loss = state->eval_loss;
    memcpy(s->copy.config, state->config, sizeof own.config);
    memcpy(own.weights.param_values, state->weights.param_values, s->params * sizeof(float));
    if (s->buffers)
        memcpy(own.weights.buffer_values, state->weights.buffer_values, s->buffers * sizeof(float));
    for (int a = 0; a < own.array_count; a++)
        memcpy(own.arrays[a], state->arrays[a], s->params * sizeof(float));
}

ls_status lsi_saver_start(lsi_saver *s, const lsi_state *state)
{
    LSI_TRY(lsi_saver_poll(s, NULL));
    if (state->array_count != s->copy.array_count ||
        state->weights.param_count != s->copy.weights.param_count ||
        state->weights.buffer_count != s->copy.weights.buffer_count)
        return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "the state is not of the form agreed upon");
    copy_state(s, state); /* ours: the thread is idle */
    pthread_mutex_lock(&s->lock);
    s->busy = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return LS_OK;
}

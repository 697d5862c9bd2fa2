/* A client that waits for a long time, in a thread of its own: how it ended, and after how long. */
#ifndef TESTS_STORE_WAITER_H
#define TESTS_STORE_WAITER_H

#include <pthread.h>

#include "base/clock.h"
#include "store/store.h"

typedef struct waiter {
    pthread_t thread;
    lsi_store *store;
    int watches;
    ls_status status;
    double took;
} waiter;

static void *wait_long(void *arg)
{
    waiter *w = arg;
    double began = lsi_now();
    const uint8_t *value;
    size_t bytes;
    lsi_store_event event;
    w->status = w->watches ? w->store->ops->next(w->store, 30, &event)
                           : lsi_store_wait(w->store, "never", 30, "nobody", &value, &bytes);
    w->took = lsi_now() - began;
    return NULL;
}

#endif

/* Threads that help: signals are for the one that started them. */
#ifndef LSI_BASE_THREAD_H
#define LSI_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* As pthread_create, with all signals blocked: the mask is inherited. 0, or an errno. */
static inline int lsi_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif

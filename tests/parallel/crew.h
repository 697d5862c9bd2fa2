/* Workers as processes, without a launcher: generations of them on one vault, and deaths at places
 * that can be named.
 *
 * The test is what a launcher is: it makes the segment of each generation, lets workers in through
 * their gates, marks those that die and keeps the memory of the vault. A worker that lives through
 * a generation takes part in the next; others are forked anew.
 *
 * Places to die at are writes to the vault: its pages are made read-only, and the handler counts.
 * Every write to words that say how far things are is a place (the page is protected again behind
 * it, where the processor can do single steps); of weights, state and what is kept to be undone the
 * first write to some of their pages.
 */
#ifndef TEST_PARALLEL_CREW_H
#define TEST_PARALLEL_CREW_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/types.h>

#include "coll/comm.h"
#include "launch/store_process.h"
#include "parallel/engine.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CREW_SLOW 3 /* times fewer of what could be more */
#else
#define CREW_SLOW 1
#endif

enum { CREW_MOST = 3 };

/* When a worker is to die. Zeros: not at all. */
typedef struct crew_order {
    int place;         /* at the place of this number, from 1 on; -1: only count them */
    int opening;       /* counted from the moment that it gets the vault */
    uint64_t step;     /* or else: in this step, from 1 on */
    unsigned after_us; /* so much time after it was let in */
} crew_order;

typedef struct crew crew;

typedef struct crew_worker {
    crew *crew;
    int slot, gate;
    ls_comm *comm;
    lsi_keeper keeper;
    lsi_vault *vault;
    crew_order order;
} crew_worker;

/* What workers and the test share. */
typedef struct crew_shared {
    crew_order order[CREW_MOST];
    int places[CREW_MOST]; /* that were counted in the latest generation */
    int status[CREW_MOST];
    char error[CREW_MOST][600];
} crew_shared;

/* A worker's part in a generation. An error that follows from another's death is fine. */
typedef ls_status (*crew_body)(crew_worker *worker, void *arg);

struct crew {
    crew_body body;
    void *arg;
    int slots;
    int apart;            /* each has a vault of its own, as if on a host of its own */
    int vault[CREW_MOST]; /* descriptors; the first is that of all who are not apart */
    lsi_key key;
    lsi_store_process store; /* where those who are apart find each other */
    uint64_t generation;
    pid_t pid[CREW_MOST]; /* 0: none */
    int gate[CREW_MOST];
    int dead[CREW_MOST]; /* in the latest generation */
    crew_shared *shared;
};

void crew_open(crew *c, int slots, int apart, crew_body body, void *arg);
/* All that are left go home, in order. */
void crew_close(crew *c);
/* One generation of the workers in these slots, in order of ranks; how many of them died. `orders`
 * is by slot (NULL: nobody dies). Fails the test when something else goes wrong. */
int crew_run(crew *c, const int *slots, int n, const crew_order *orders);

/* In a worker: its step of this number is about to begin. */
void crew_step(crew_worker *w, const lsi_replica *r, uint64_t number);
/* Places are not counted any more. */
void crew_safe(crew_worker *w);

#endif

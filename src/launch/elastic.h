/* An elastic run, as its files share it: see elastic.c. */
#ifndef LSI_LAUNCH_ELASTIC_H
#define LSI_LAUNCH_ELASTIC_H

#include <limits.h>

#include "base/gate.h"
#include "launch/council.h"
#include "launch/run.h"
#include "launch/watch.h"

struct lsi_elastic {
    lsi_council council;
    int watched; /* the council's descriptor that is in the epoll set; -1: none */
    int kept[LSI_KEPT_COUNT];
    uint64_t whole;      /* the latest in which the state that is kept was whole; 0: it is not */
    int fed;             /* a worker of this host has the data, or had it */
    uint64_t generation; /* the latest that our workers have entered */
    uint64_t declined;   /* one that began while they were still inside an older one */
    int first_rank;      /* there */
    lsi_table table;     /* its hosts */
    int leaving;         /* this host was asked to go */
    double go_at;        /* then: when it may; 0: not known yet */
    int ended;           /* the run has, and our workers know it */
    double ended_at;
    int status; /* of our own first failure */
    lsi_watch watch;
    char folder[PATH_MAX]; /* of the run; "": none */
    int status_fd;         /* listens there; -1: not */
};

/* elastic_gate.c */
/* A worker has said something. */
void lsi_elastic_on_gate(lsi_run *run, int index);
/* A worker at the gate may go: nothing is left to do. */
void lsi_elastic_send_home(lsi_child *child);
/* Workers of this host inside a generation. */
int lsi_elastic_count_inside(const lsi_run *run);
/* Tell the council how many wait and how many are inside. */
void lsi_elastic_tell(lsi_run *run);
/* Give workers what they wanted and is there. */
void lsi_elastic_hand_out(lsi_run *run);
/* The papers of the run, from another host. */
void lsi_elastic_on_papers(void *run, const char *text, size_t bytes);

/* elastic_enter.c */
/* A generation was decided. */
void lsi_elastic_on_generation(void *run, const lsi_table *table);
/* Whoever is still inside an older generation is alone there. */
void lsi_elastic_abandon(lsi_run *run, const char *cause);
/* What the workers are to do after the step. */
void lsi_elastic_set_wishes(lsi_run *run);

/* elastic_ends.c */
ls_status lsi_elastic_start(lsi_run *run, int index);
void lsi_elastic_on_rank(lsi_run *run, int index);

/* elastic_told.c */
lsi_council_sink lsi_elastic_sink(lsi_run *run);
/* The run has ended: so do the workers. */
void lsi_elastic_on_end(void *run);
/* Somebody asks what the workers do. */
void lsi_elastic_on_status(lsi_run *run);

#endif

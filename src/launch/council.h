/* The council: the launchers of an elastic run agree on its generations.
 *
 * Everything goes through a store, of which every launcher is a client. Its keys:
 *
 *     next            the number that the next host to come gets
 *     host/ID         under a lease: "GENERATION READY BUSY LEAVING STATE BROUGHT FED HUNGRY
 *                     ADDRESS" of a host: the latest generation that it has entered, workers that
 *                     wait at its gate, workers that are still inside that generation; how good
 *                     the state is that it keeps and that those who wait would bring; whether it
 *                     has the data, and whether all who wait lack it; where its own store listens
 *     gen/G           "STOP ID:N ID:N …": generation G and how many workers of each host it has;
 *                     STOP is 1 when it is to save and end
 *     change/G        somebody wants generation G to end after the step
 *     dead/G/RANK     the cause of a death in generation G
 *     ask             somebody wants to know what the workers do
 *     phase/ID        what those of a host do, or did when it was asked last
 *     limits          "LEAST MOST TRANSPORT": how many workers, and how those of a host reach each
 *                     other, as the first host says
 *     stop            the run is to end in order
 *     end             "STATUS CAUSE": the run has ended
 *     papers          what the run is, as its workers write and read it
 *     run/G/rank/…    addresses of workers: coll/init.c
 *
 * 1. Hosts are numbered as they come, and no number is used twice. Ranks of a generation are
 *    contiguous, host by host, in that order.
 * 2. A generation is decided by compare-and-put: there is one of each number. The host with the
 *    smallest number proposes, when no worker is inside the one before.
 * 3. A host whose key is gone is lost, and so are its workers.
 * 4. The embedded store dies with its host. Each launcher has one of its own, and when the one in
 *    use is lost all go to that of the smallest number that answers (council_move.c).
 * 5. No generation is decided unless more than half of the hosts of the one before are here, or
 *    half of them with the smallest number (quorum): a network that falls apart leaves one part
 *    training.
 *
 * One thread. Calls block for up to LSI_COUNCIL_CALL_S.
 */
#ifndef LSI_LAUNCH_COUNCIL_H
#define LSI_LAUNCH_COUNCIL_H

#include "base/auth.h"
#include "base/host.h"
#include "launch/launch.h"
#include "launch/store_process.h"
#include "store/store.h"

#define LSI_COUNCIL_CALL_S 2.0
#define LSI_COUNCIL_LATE_S 1.0 /* for hosts of a generation to find another store */

/* A host, as its key says. */
typedef struct lsi_seat {
    uint64_t id;
    uint64_t generation;
    int ready, busy, leaving;
    uint64_t state, brought; /* the latest generation in which it was whole; 0: there is none */
    int fed, hungry;         /* it has the data; none of those who wait has */
    char address[LSI_ADDR_MAX];
} lsi_seat;

/* A generation, as it was decided. */
typedef struct lsi_table {
    uint64_t generation; /* 0: none yet */
    int stop;
    int hosts;
    uint64_t id[LSI_MAX_HOSTS];
    int size[LSI_MAX_HOSTS];
} lsi_table;

typedef struct lsi_council {
    const lsi_launch_config *config;
    lsi_key key;
    char bind[LSI_ADDR_MAX];    /* of this host */
    char url[LSI_ADDR_MAX + 8]; /* of the store in use */
    lsi_store_process own;      /* this host's store, in use or not */
    lsi_store *store;           /* NULL: lost */
    uint64_t lease;
    double keep_at, late_since; /* since when calls have timed out; 0: they do not */
    uint64_t seat_version;      /* of our seat when we took it here */
    int seated;                 /* we have heard of it, and of all others before */
    lsi_seat me;                /* what we say of ourselves */
    lsi_seat seats[LSI_MAX_HOSTS];
    int n_seats;
    lsi_seat known[LSI_MAX_HOSTS]; /* likewise, whoever was ever heard of */
    int n_known;
    int least, most;   /* workers of a generation */
    char transport[8]; /* inside a host: the same on all, or their collectives would not meet */
    lsi_table table;   /* the latest generation */
    uint64_t change;   /* the generation that is to end */
    int stop, ended, end_status;
    char *papers; /* what the run is; NULL: not known yet */
    size_t papers_bytes;
    uint64_t owner;          /* the host whose store is in use; 0: the first */
    double moved_at, try_at; /* when we came there; when to try others */
    double lost_at;          /* when the store was; 0: it is there */
    double since, next_word; /* when the latest wait began; when to say so again */
    char end_cause[LSI_HOST_CAUSE_MAX];
} lsi_council;

/* What lsi_council_step has to tell. */
typedef struct lsi_council_sink {
    void *arg;
    void (*entered)(void *arg, const lsi_table *table); /* a generation was decided */
    void (*wishes)(void *arg);                          /* change or stop: look at them */
    void (*dead)(void *arg, uint64_t generation, int rank, const char *cause);
    void (*lost)(void *arg, uint64_t id, const char *cause);   /* a host */
    void (*ended)(void *arg);                                  /* look at end_status, end_cause */
    void (*asked)(void *arg);                                  /* what do the workers do? */
    void (*papers)(void *arg, const char *text, size_t bytes); /* what the run is */
} lsi_council_sink;

/* As the first host, or at the one that config->join names. Blocks, with words on stderr. */
ls_status lsi_council_open(const lsi_launch_config *config, lsi_council *c);
/* Leave. */
void lsi_council_close(lsi_council *c);

/* Readable when step has something to do; -1: none. Changes when the store does. */
int lsi_council_fd(const lsi_council *c);
/* Report what was said, decide what can be decided, keep the lease. At least every 100 ms. */
void lsi_council_step(lsi_council *c, const lsi_council_sink *sink);

/* Say how it is here: c->me, with what has changed. */
void lsi_council_tell(lsi_council *c, const lsi_seat *seat);
void lsi_council_tell_dead(lsi_council *c, uint64_t generation, int rank, const char *cause);
void lsi_council_tell_phases(lsi_council *c, const char *text);
void lsi_council_ask_change(lsi_council *c);
void lsi_council_ask_stop(lsi_council *c);
void lsi_council_end(lsi_council *c, int status, const char *cause);
/* What the run is, for hosts that come later. */
void lsi_council_tell_papers(lsi_council *c, const char *text, size_t bytes);

/* This host's place in the table: -1 when it has none. First rank, and ranks of all. */
int lsi_council_place(const lsi_council *c, const lsi_table *table, int *first, int *ranks);
/* Hosts other than this one that are here. */
int lsi_council_others(const lsi_council *c);

#endif

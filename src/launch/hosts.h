/* The hosts of a run: how their launchers meet, and what they tell each other.
 *
 * Everything goes through the store, which the first host (the listener) serves. Its keys:
 *
 *     launch/hosts      how many hosts the run has                   written by the listener
 *     launch/host/H     ranks of host H; under the lease of its launcher      by H, when it comes
 *     launch/table      ranks of all hosts, "2 3 1"                  by the listener: the start
 *     launch/refused    why the run does not start                   by the listener
 *     launch/failure    the first failure, "RANK STATUS CAUSE"       by whoever is first
 *     launch/end/H      exit status of host H                        by H, when its ranks ended
 *     run/dead/RANK     the cause                                    by the rank's launcher
 *
 * Invariants:
 * 1. Host numbers are given by compare-and-put on launch/host/H in order of arrival; the listener
 *    is host 0. World ranks are contiguous, host by host.
 * 2. A host whose launch/host/H goes away before launch/end/H has come is lost, and so are its
 *    ranks: the listener publishes them as dead.
 * 3. Whoever claims a host number after launch/table was written is too late: versions tell.
 * 4. Each death is reported once by lsi_hosts_step, and never one that this host published.
 */
#ifndef LSI_LAUNCH_HOSTS_H
#define LSI_LAUNCH_HOSTS_H

#include <stdint.h>

#include "base/auth.h"
#include "base/host.h"
#include "base/net.h"
#include "launch/launch.h"
#include "store/store.h"

#define LSI_HOSTS_LEASE_S 10.0
#define LSI_HOSTS_CALL_S 2.0 /* deadline of one store call */
#define LSI_HOSTS_TICK_S 0.1 /* lsi_hosts_step is due at least that often */

/* The first failure of the run. */
typedef struct lsi_failure {
    int rank; /* -1: none */
    int status;
    char cause[LSI_HOST_CAUSE_MAX];
} lsi_failure;

typedef struct lsi_hosts {
    int host, hosts;         /* this one, and how many */
    int size[LSI_MAX_HOSTS]; /* ranks of each */
    int ranks;               /* of the world */
    int first_rank;          /* of this host */
    lsi_key key;
    char store_address[LSI_ADDR_MAX]; /* as the ranks of this host reach it */
    char bind[LSI_ADDR_MAX];          /* the address on which ranks of this host listen */

    lsi_store_server *server; /* host 0 */
    lsi_store *store;         /* the others */
    uint64_t lease;
    double keep_at;
    int listener_lost, loss_told;

    unsigned char present[LSI_MAX_HOSTS]; /* host 0: as seen by the last look at launch/host/ */
    unsigned char ended[LSI_MAX_HOSTS];   /* its launch/end/H was seen */
    unsigned char lost[LSI_MAX_HOSTS];
    int end_status[LSI_MAX_HOSTS];
    unsigned char dead[LSI_MAX_RANKS]; /* published or reported */
    lsi_failure failure;
} lsi_hosts;

/* What lsi_hosts_step has to tell. */
typedef struct lsi_hosts_sink {
    void *arg;
    /* The first failure of the run, if it is one of another host; once. */
    void (*failed)(void *arg, int rank, const char *cause);
    void (*dead)(void *arg, int rank, const char *cause); /* a rank of another host */
    void (*listener_lost)(void *arg);                     /* once; its deaths follow */
} lsi_hosts_sink;

/* Serve the store and wait for the others (host 0), or find it and be counted in (the others).
 * Blocks until the run can start; the deadlines are those of `config`. Words on stderr while it
 * waits. A run of one host does not wait. */
ls_status lsi_hosts_meet(const lsi_launch_config *config, lsi_hosts **out);
/* Leave. Accepts NULL. */
void lsi_hosts_close(lsi_hosts *hosts);

/* Readable when lsi_hosts_step has something to do. */
int lsi_hosts_fd(const lsi_hosts *hosts);
/* Serve, and report what the others have published. Never blocks as host 0; as another host it
 * waits up to LSI_HOSTS_CALL_S for the listener, which then counts as lost. */
void lsi_hosts_step(lsi_hosts *hosts, const lsi_hosts_sink *sink);

/* Tell the others. Without effect once the listener is lost: nobody is there to be told. */
void lsi_hosts_publish_death(lsi_hosts *hosts, int rank, const char *cause);
void lsi_hosts_publish_failure(lsi_hosts *hosts, int rank, int status, const char *cause);
void lsi_hosts_publish_end(lsi_hosts *hosts, int status);
/* Have all other hosts ended, one way or another? Always true on hosts that joined. */
int lsi_hosts_others_ended(const lsi_hosts *hosts);
/* The host to which a world rank belongs. */
int lsi_hosts_host_of(const lsi_hosts *hosts, int rank);

#endif

/* The `etcd` store: its ops, for the registry; the client, for the files that it is made of. */
#ifndef LSI_STORE_ETCD_H
#define LSI_STORE_ETCD_H

#include "base/net.h"
#include "store/etcd_json.h"
#include "store/http.h"
#include "store/seal.h"
#include "store/store.h"

#define LSI_ETCD_ENDPOINTS_MAX 16
#define LSI_ETCD_PREFIX_MAX 200
#define LSI_ETCD_NAME_MAX (LSI_ETCD_PREFIX_MAX + LSI_STORE_KEY_MAX) /* as etcd knows it */
#define LSI_ETCD_WATCHES_MAX 64
/* Endpoints that cannot be reached are asked again for so long, or for the time-out of open if
 * that is shorter: a restart or an election takes 1 to 3 s. */
#define LSI_ETCD_PATIENCE_S 5.0
/* Between two rounds, doubling. */
#define LSI_ETCD_PAUSE_FIRST_S 0.02
#define LSI_ETCD_PAUSE_MOST_S 0.25

extern const lsi_store_ops lsi_store_etcd;

typedef struct lsi_etcd_prefix {
    uint64_t since; /* changes up to this revision were reported as existing keys */
    int is_covered; /* by a shorter one that was watched later, and began later */
    char text[LSI_STORE_KEY_MAX + 1];
} lsi_etcd_prefix;

typedef struct lsi_etcd {
    lsi_store base;
    lsi_http *http;
    lsi_seal *seal;
    double timeout_s, patience_s;
    ls_status broken; /* LS_OK while it can be used */
    char endpoints[LSI_ETCD_ENDPOINTS_MAX][LSI_ADDR_MAX];
    size_t endpoint_count, at; /* `at`: the one that is asked first */
    char prefix[LSI_ETCD_PREFIX_MAX + 1];
    char who[LSI_ADDR_MAX + 64];
    uint64_t *leases; /* that this client made */
    size_t lease_count;
    lsi_buffer request;
    lsi_etcd_answer answer; /* of the latest call; get's value lies in it */
    uint64_t heard;         /* the latest revision of an answer */

    /* watching: etcd_watch.c */
    lsi_etcd_prefix *watches;
    size_t watch_count;
    lsi_http_transfer *stream; /* all changes under `prefix`; NULL: to be resumed */
    size_t stream_at;          /* its endpoint */
    size_t scanned;            /* bytes at the front of its body without an end of line */
    int is_created;            /* etcd has said that it watches */
    int was_created;           /* the same of any stream */
    size_t tries;              /* streams that were asked for since the last that worked */
    int is_refused;            /* the latest failed; it was not just silent */
    double began;              /* when this stream was asked for */
    double lost;               /* since when there is none that works; 0: there is */
    char why[LSI_ADDR_MAX + LSI_HTTP_ERROR_MAX]; /* it was lost */
    double resume, pause; /* when the next is tried; and how long after the next loss */
    uint64_t seen;        /* all changes up to this revision were taken */
    size_t taken, passed; /* of the revision after it: ever; as they came by in this stream */
    lsi_buffer events;    /* frames of protocol.h */
    size_t shown;         /* bytes at the front of `events` that next has handed out */
} lsi_etcd;

/* etcd_ask.c. Name of `key` in etcd. */
void lsi_etcd_name(const lsi_etcd *c, const char *key, char name[LSI_ETCD_NAME_MAX + 1]);
ls_status lsi_etcd_break(lsi_etcd *c, ls_status status);
ls_status lsi_etcd_fail_broken(const lsi_etcd *c);
/* Every call begins with this: what the previous one handed out is not needed any more, and the
 * request is empty. */
ls_status lsi_etcd_begin(lsi_etcd *c);
/* POST c->request to the endpoints in turn until one answers; the answer, which may be a refusal,
 * is in c->answer. LS_IN_PROGRESS at the deadline. With `is_change`, LS_ERR_ABORTED (nothing is
 * recorded) when it is unknown what became of it: look before asking again. */
ls_status lsi_etcd_ask(lsi_etcd *c, const char *path, double deadline, int is_change);
/* Ask for something that may be asked twice; all but LS_OK is recorded, refusals too. */
ls_status lsi_etcd_call(lsi_etcd *c, const char *path, const char *what, const char *key,
                        double deadline);
/* Ask for a change that may be asked for twice; a refusal is left in c->answer. *is_unsure: it may
 * have been made before the time that was answered. */
ls_status lsi_etcd_ask_for_change(lsi_etcd *c, const char *path, const char *what, const char *key,
                                  int *is_unsure);
ls_status lsi_etcd_fail_late(const lsi_etcd *c, const char *what, const char *key);
/* Words for a refusal in c->answer. */
ls_status lsi_etcd_fail_refused(lsi_etcd *c, const char *what, const char *key, uint64_t lease);
/* What a transfer that is not DONE, or answered with something else than 200, says. */
ls_status lsi_etcd_fail_transfer(const lsi_http_transfer *t, const char *address);
/* The value of an entry of the answer, checked; its key is `name`. */
ls_status lsi_etcd_open_value(lsi_etcd *c, const char *name, const lsi_etcd_entry *entry,
                              const uint8_t **value, size_t *bytes);

/* Ops in etcd_watch.c. */
ls_status lsi_etcd_store_watch(lsi_store *store, const char *prefix);
ls_status lsi_etcd_store_next(lsi_store *store, double timeout_s, lsi_store_event *event);
ls_status lsi_etcd_store_wait(lsi_store *store, const char *key, double timeout_s,
                              const uint8_t **value, size_t *bytes);
/* If `next` has something to do, let the descriptor say so. */
void lsi_etcd_watch_remind(lsi_etcd *c);
/* The endpoint did not answer: a stream from there is not to be trusted if there are others. */
void lsi_etcd_watch_leave(lsi_etcd *c, size_t endpoint);

#endif

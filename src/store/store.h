/* The store: who is here. A small key-value map with versions, leases and watches.
 *
 * The seam is lsi_store_ops: `tcp` is embedded in the launcher, `etcd` speaks to one that runs
 * already. Keys are short paths such as "run/rank/3/addr": 1 to LSI_STORE_KEY_MAX printable
 * ASCII characters without spaces. Values are bytes, none is fine too.
 *
 * Invariants:
 * 1. Every successful change of a key gives it a version larger than any before in this store.
 * 2. A key put under a lease disappears when the lease is revoked, expires, or when the client
 *    that made the lease closes (tcp: or is killed); watchers are told like for any other deletion.
 * 3. Watch events arrive in the order of the changes, none skipped, none twice.
 *
 * Calls block until the deadline given at open; one client belongs to one thread. After
 * LS_ERR_TIMEOUT the client is usable and the outcome of the call unknown; after any other error of
 * a peer (LS_STATUS_PEER) it can only be closed.
 */
#ifndef LSI_STORE_STORE_H
#define LSI_STORE_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/auth.h"
#include "base/net.h"
#include <lockstep/status.h>

#define LSI_STORE_KEY_MAX 200
#define LSI_STORE_VALUE_MAX ((size_t)1 << 20)

typedef struct lsi_store lsi_store;

typedef struct lsi_store_event {
    char key[LSI_STORE_KEY_MAX + 1];
    uint64_t version;
    int deleted;
    size_t bytes;
    const uint8_t *value; /* owned by the client, valid until its next call */
} lsi_store_event;

typedef struct lsi_store_ops {
    const char *name;
    /* NULL, or why it cannot be used in this process; NULL itself if it always can. */
    const char *(*why_unusable)(void);
    /* Connect and authenticate. `address` is what follows "name://" in the URL. On success *out
     * is owned by the caller and closed with close. */
    ls_status (*open)(const char *address, const lsi_key *key, double timeout_s, lsi_store **out);
    void (*close)(lsi_store *store); /* accepts NULL; revokes the client's leases */
    /* *value is owned by the client and valid until its next call. LS_ERR_NOT_FOUND if absent. */
    ls_status (*get)(lsi_store *store, const char *key, const uint8_t **value, size_t *bytes,
                     uint64_t *version);
    /* Set unconditionally. lease 0: none. *version (may be NULL) is the new one. */
    ls_status (*put)(lsi_store *store, const char *key, const void *value, size_t bytes,
                     uint64_t lease, uint64_t *version);
    /* Set if the key's version is `expected` (0: absent), else LS_ERR_CONFLICT. */
    ls_status (*compare_and_put)(lsi_store *store, const char *key, uint64_t expected,
                                 const void *value, size_t bytes, uint64_t lease,
                                 uint64_t *version);
    ls_status (*remove)(lsi_store *store, const char *key); /* LS_ERR_NOT_FOUND if absent */
    /* A lease of ttl_s seconds (1 ms to 30 days; etcd rounds up to whole ones). Whoever knows its
     * number may put under it, keep and revoke it, but it is bound to this client. A lease that is
     * gone: LS_ERR_NOT_FOUND. */
    ls_status (*lease)(lsi_store *store, double ttl_s, uint64_t *lease);
    ls_status (*keep)(lsi_store *store, uint64_t lease); /* restart its time to live */
    ls_status (*revoke)(lsi_store *store, uint64_t lease);
    /* From now on report changes of keys that begin with `prefix` ("": all), existing keys first,
     * in key order. A key under several watched prefixes is reported once. */
    ls_status (*watch)(lsi_store *store, const char *prefix);
    /* The next event: LS_IN_PROGRESS when none came within timeout_s (0: do not wait). */
    ls_status (*next)(lsi_store *store, double timeout_s, lsi_store_event *event);
    /* A descriptor that is readable when `next` may have something (events may also be queued
     * already: call next until LS_IN_PROGRESS first). */
    int (*fd)(lsi_store *store);
    /* As get, but wait for the key: LS_IN_PROGRESS when it did not appear within timeout_s. NULL
     * if the store cannot: lsi_store_wait then asks again and again. */
    ls_status (*wait)(lsi_store *store, const char *key, double timeout_s, const uint8_t **value,
                      size_t *bytes);
} lsi_store_ops;

struct lsi_store {
    const lsi_store_ops *ops; /* first member of every implementation */
};

/* Open by URL: "tcp://HOST:PORT", "etcd://HOST:PORT[,HOST:PORT...][/PREFIX]". Unknown schemes list
 * the known ones. */
ls_status lsi_store_open(const char *url, const lsi_key *key, double timeout_s, lsi_store **out);
void lsi_store_close(lsi_store *store);
/* Wait until `key` exists, at most timeout_s (which may be longer than that of open); then
 * LS_ERR_TIMEOUT, and the error names the key and `whose` it is (NULL: not said). *value is owned
 * by the client and valid until its next call. */
ls_status lsi_store_wait(lsi_store *store, const char *key, double timeout_s, const char *whose,
                         const uint8_t **value, size_t *bytes);
/* NULL-terminated list of implementation names, in order. */
const char *const *lsi_store_names(void);
/* NULL, or why the store of that name cannot be used here. */
const char *lsi_store_why_unusable(const char *name);

/* The embedded server: lives in the launcher's event loop, never blocks, no thread. */
typedef struct lsi_store_server lsi_store_server;

/* Listen on `host` (NULL: loopback), `port` (0: any). The key is copied. */
ls_status lsi_store_server_create(const char *host, int port, const lsi_key *key,
                                  lsi_store_server **out);
void lsi_store_server_destroy(lsi_store_server *server);
/* "ADDRESS:PORT" of the listening socket. */
const char *lsi_store_server_address(const lsi_store_server *server);
/* One descriptor (epoll) that is readable when step has work. */
int lsi_store_server_fd(const lsi_store_server *server);
/* Do what is ready. Also call it at least every 100 ms: leases and handshake deadlines expire in
 * it. Errors of single clients only end those clients. */
void lsi_store_server_step(lsi_store_server *server);
/* The owner's own access, without a connection; watchers are told at once. *value is valid until
 * the next step or put. */
ls_status lsi_store_server_put(lsi_store_server *server, const char *key, const void *value,
                               size_t bytes);
ls_status lsi_store_server_get(lsi_store_server *server, const char *key, const uint8_t **value,
                               size_t *bytes);
/* Calls `each` for every key beginning with `prefix`, in key order. */
void lsi_store_server_each(lsi_store_server *server, const char *prefix,
                           void (*each)(void *arg, const char *key, const uint8_t *value,
                                        size_t bytes),
                           void *arg);

#endif

/* The client of an etcd, through its JSON gateway: etcd://HOST:PORT[,HOST:PORT…][/PREFIX].
 *
 *     call: request (etcd_json) -> http -> endpoint after endpoint -> answer
 *     values: sealed (seal) on their way out, checked on their way in
 *
 * Keys lie under PREFIX, by default "lockstep/" and 16 hexadecimal digits of the SHA-256 of the
 * run's key: runs with different keys share an etcd without meeting. Versions are etcd's
 * mod_revisions: all keys of a lease that ends have the same one.
 *
 * What the run's key protects: nobody without it can write a value that members take for one of
 * theirs (see seal.h). What it does not: whoever reaches the etcd can read all values, delete keys,
 * end leases, and put back what a key had before. Against that, etcd is to be reachable by members
 * only. Requests are not encrypted.
 *
 * Invariants:
 * 1. Every call ends at its deadline. An endpoint that does not answer gets its share of that time
 *    and no more when there are others.
 * 2. When a connection is lost in the middle of a change, nobody knows whether it was made. The
 *    nonce of seal.h tells: a compare-and-put is never made twice, nor reported as a conflict with
 *    itself. A put is made again unless its own value is there; what was sent before, and reaches
 *    etcd only after the key was changed (a server that was stopped wakes), has no effect then.
 * 3. Endpoints that refuse are asked again for LSI_ETCD_PATIENCE_S at most; then, as after
 *    nonsense and values of strangers, the client is broken and stays so. A time-out does not
 *    break it.
 * 4. Leases live in etcd, not in a connection: close revokes them, a client that is killed leaves
 *    them to their time to live, which etcd counts in whole seconds.
 */
#include "store/etcd.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "base/status.h"
#include "store/protocol.h"

#define PREFIX_DIGITS 16
#define CLOSE_S 2.0 /* for revoking the leases */

static ls_status check_key(const char *key, const char *what)
{
    size_t bytes = strnlen(key, LSI_STORE_KEY_MAX + 1);
    if (bytes == 0 || !lsi_store_key_valid(key, bytes))
        return lsi_fail(LS_ERR_INVALID, "1 to 200 printable ASCII characters without spaces", what,
                        "'%.*s' is not a key", LSI_STORE_KEY_MAX, key);
    return LS_OK;
}

static ls_status store_get(lsi_store *store, const char *key, const uint8_t **value, size_t *bytes,
                           uint64_t *version)
{
    lsi_etcd *c = (lsi_etcd *)store;
    char name[LSI_ETCD_NAME_MAX + 1];
    LSI_TRY(check_key(key, "get"));
    lsi_etcd_name(c, key, name);
    LSI_TRY(lsi_etcd_begin(c));
    LSI_TRY(lsi_etcd_range(&c->request, name, NULL, 0, 1));
    LSI_TRY(lsi_etcd_call(c, "v3/kv/range", "get", key, lsi_now() + c->timeout_s));
    if (c->answer.count == 0)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, "get", "there is no key %s", key);
    LSI_TRY(lsi_etcd_open_value(c, name, &c->answer.entries[0], value, bytes));
    *version = c->answer.entries[0].version;
    return LS_OK;
}

/* Whether the key has the very value that we sent. */
static int is_ours(const lsi_etcd *c, const lsi_buffer *sealed)
{
    const lsi_etcd_entry *entry = c->answer.entries;
    return c->answer.count > 0 && entry->bytes == sealed->used &&
           memcmp(entry->value, lsi_buffer_front(sealed), sealed->used) == 0;
}

/* Put what is sealed; with `expected`, if that is the version. LS_OK: *version is the new one. */
static ls_status put_sealed(lsi_etcd *c, const char *what, const char *key, const char *name,
                            const uint64_t *expected, const lsi_buffer *sealed, uint64_t lease,
                            uint64_t *version)
{
    double deadline = lsi_now() + c->timeout_s;
    uint64_t until = c->heard; /* changes of the key up to here are ours to overwrite */
    for (;;) {
        const uint8_t *value = lsi_buffer_front(sealed);
        LSI_TRY(lsi_etcd_begin(c));
        LSI_TRY(expected ? lsi_etcd_compare_and_put(&c->request, name, *expected, value,
                                                    sealed->used, lease)
                         : lsi_etcd_put_unless_changed(&c->request, name, until, value,
                                                       sealed->used, lease));
        ls_status status = lsi_etcd_ask(c, "v3/kv/txn", deadline, 1);
        if (status == LS_IN_PROGRESS)
            return lsi_etcd_fail_late(c, what, key);
        if (status != LS_ERR_ABORTED) {
            LSI_TRY(status);
            const lsi_etcd_answer *a = &c->answer;
            if (expected || a->code != LSI_ETCD_FINE || a->succeeded || a->revision <= until ||
                is_ours(c, sealed))
                break;
            until = a->revision; /* others have changed it, before us */
            continue;
        }
        LSI_TRY(lsi_etcd_begin(c));
        LSI_TRY(lsi_etcd_range(&c->request, name, NULL, 0, 1));
        LSI_TRY(lsi_etcd_call(c, "v3/kv/range", what, key, deadline));
        if (is_ours(c, sealed)) {
            *version = c->answer.entries[0].version;
            return LS_OK;
        }
    }
    if (c->answer.code != LSI_ETCD_FINE)
        return lsi_etcd_fail_refused(c, what, key, lease);
    if (c->answer.revision == 0)
        return lsi_etcd_break(c, lsi_fail(LS_ERR_PROTOCOL, "is that an etcd?", what,
                                          "%s: %s does not say its revision", key, c->who));
    *version = c->answer.revision;
    if (c->answer.succeeded)
        return LS_OK;
    *version = c->answer.count > 0 ? c->answer.entries[0].version : 0;
    if (is_ours(c, sealed)) /* curl itself sends a request again on a connection that was closed */
        return LS_OK;
    if (!expected)
        return lsi_etcd_break(c, lsi_fail(LS_ERR_PROTOCOL, "is that an etcd?", what,
                                          "%s: %s refuses without a reason", key, c->who));
    return lsi_fail(LS_ERR_CONFLICT, "read it again and decide anew", what,
                    "%s has version %llu, not %llu", key, (unsigned long long)*version,
                    (unsigned long long)*expected);
}

static ls_status put(lsi_store *store, const char *what, const char *key, const uint64_t *expected,
                     const void *value, size_t bytes, uint64_t lease, uint64_t *version)
{
    lsi_etcd *c = (lsi_etcd *)store;
    char name[LSI_ETCD_NAME_MAX + 1];
    lsi_buffer sealed = {0};
    uint64_t made = 0;
    LSI_TRY(check_key(key, what));
    if (bytes > LSI_STORE_VALUE_MAX)
        return lsi_fail(LS_ERR_INVALID, "the store is for addresses and lists, not for data", what,
                        "%s: a value of %zu bytes, %zu are the limit", key, bytes,
                        LSI_STORE_VALUE_MAX);
    lsi_etcd_name(c, key, name);
    ls_status status = lsi_seal_put(c->seal, name, value, bytes, &sealed);
    if (status == LS_OK)
        status = put_sealed(c, what, key, name, expected, &sealed, lease, &made);
    lsi_buffer_free(&sealed);
    if (status == LS_OK && version)
        *version = made;
    return status;
}

static ls_status store_put(lsi_store *store, const char *key, const void *value, size_t bytes,
                           uint64_t lease, uint64_t *version)
{
    return put(store, "put", key, NULL, value, bytes, lease, version);
}

static ls_status store_compare_and_put(lsi_store *store, const char *key, uint64_t expected,
                                       const void *value, size_t bytes, uint64_t lease,
                                       uint64_t *version)
{
    return put(store, "compare-and-put", key, &expected, value, bytes, lease, version);
}

static ls_status store_remove(lsi_store *store, const char *key)
{
    lsi_etcd *c = (lsi_etcd *)store;
    char name[LSI_ETCD_NAME_MAX + 1];
    int is_unsure;
    LSI_TRY(check_key(key, "remove"));
    lsi_etcd_name(c, key, name);
    LSI_TRY(lsi_etcd_begin(c));
    LSI_TRY(lsi_etcd_delete(&c->request, name));
    LSI_TRY(lsi_etcd_ask_for_change(c, "v3/kv/deleterange", "remove", key, &is_unsure));
    if (c->answer.code != LSI_ETCD_FINE)
        return lsi_etcd_fail_refused(c, "remove", key, 0);
    if (c->answer.deleted == 0 && !is_unsure)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, "remove", "there is no key %s", key);
    return LS_OK;
}

static ls_status store_lease(lsi_store *store, double ttl_s, uint64_t *lease)
{
    lsi_etcd *c = (lsi_etcd *)store;
    if (!(ttl_s >= 1e-3 && ttl_s <= LSI_STORE_MS_MAX * 1e-3))
        return lsi_fail(LS_ERR_INVALID, "1 ms to 30 days", "lease", "a time to live of %g s",
                        ttl_s);
    /* etcd counts whole seconds: round up, so that keeping in time is in time. It also raises what
     * is below its election time-out (2 s as it is shipped) and looks twice a second. */
    uint64_t seconds = (uint64_t)ceil(ttl_s), number = 0;
    uint64_t *longer = realloc(c->leases, (c->lease_count + 1) * sizeof *longer);
    if (!longer)
        return lsi_fail(LS_ERR_NOMEM, NULL, "lease", "no memory for one more");
    c->leases = longer;
    /* Our own number: asked for twice, it is granted once. */
    while (number == 0) {
        if (getrandom(&number, sizeof number, 0) != sizeof number && errno != EINTR)
            return lsi_fail_errno("getrandom", "a lease");
        number &= INT64_MAX;
    }
    int is_unsure;
    LSI_TRY(lsi_etcd_begin(c));
    LSI_TRY(lsi_etcd_grant(&c->request, number, seconds));
    LSI_TRY(lsi_etcd_ask_for_change(c, "v3/lease/grant", "lease", "", &is_unsure));
    if (c->answer.code != LSI_ETCD_FINE && !(is_unsure && c->answer.code == LSI_ETCD_PRECONDITION))
        return lsi_etcd_fail_refused(c, "lease", "", number);
    c->leases[c->lease_count++] = number;
    *lease = number;
    return LS_OK;
}

static ls_status fail_ended(uint64_t lease, const char *what)
{
    return lsi_fail(LS_ERR_NOT_FOUND, "keep it more often than its time to live", what,
                    "lease %llu has ended", (unsigned long long)lease);
}

static ls_status store_keep(lsi_store *store, uint64_t lease)
{
    lsi_etcd *c = (lsi_etcd *)store;
    if (lease == 0)
        return lsi_fail(LS_ERR_INVALID, NULL, "keep", "0 is no lease");
    LSI_TRY(lsi_etcd_begin(c));
    LSI_TRY(lsi_etcd_lease(&c->request, lease));
    LSI_TRY(lsi_etcd_call(c, "v3/lease/keepalive", "keep", "", lsi_now() + c->timeout_s));
    return c->answer.ttl_s > 0 ? LS_OK : fail_ended(lease, "keep");
}

static void forget_lease(lsi_etcd *c, uint64_t lease)
{
    for (size_t i = 0; i < c->lease_count; i++) {
        if (c->leases[i] == lease)
            c->leases[i--] = c->leases[--c->lease_count];
    }
}

static ls_status store_revoke(lsi_store *store, uint64_t lease)
{
    lsi_etcd *c = (lsi_etcd *)store;
    int is_unsure;
    if (lease == 0)
        return lsi_fail(LS_ERR_INVALID, NULL, "revoke", "0 is no lease");
    LSI_TRY(lsi_etcd_begin(c));
    LSI_TRY(lsi_etcd_lease(&c->request, lease));
    LSI_TRY(lsi_etcd_ask_for_change(c, "v3/lease/revoke", "revoke", "", &is_unsure));
    if (c->answer.code != LSI_ETCD_FINE && c->answer.code != LSI_ETCD_NOT_FOUND)
        return lsi_etcd_fail_refused(c, "revoke", "", lease);
    forget_lease(c, lease);
    return c->answer.code == LSI_ETCD_FINE || is_unsure ? LS_OK : fail_ended(lease, "revoke");
}

static int store_fd(lsi_store *store)
{
    return lsi_http_fd(((lsi_etcd *)store)->http);
}

static void store_close(lsi_store *store)
{
    lsi_etcd *c = (lsi_etcd *)store;
    if (!c)
        return;
    lsi_http_end(c->stream);
    c->stream = NULL;
    c->watch_count = 0;
    double deadline = lsi_now() + (c->timeout_s < CLOSE_S ? c->timeout_s : CLOSE_S);
    while (c->lease_count > 0 && c->broken == LS_OK && lsi_etcd_begin(c) == LS_OK &&
           lsi_etcd_lease(&c->request, c->leases[c->lease_count - 1]) == LS_OK &&
           lsi_etcd_ask(c, "v3/lease/revoke", deadline, 0) == LS_OK)
        c->lease_count--;
    lsi_http_destroy(c->http);
    lsi_seal_destroy(c->seal);
    lsi_etcd_answer_free(&c->answer);
    lsi_buffer_free(&c->request);
    lsi_buffer_free(&c->events);
    free(c->watches);
    free(c->leases);
    free(c);
}

static ls_status fail_address(const char *address)
{
    return lsi_fail(LS_ERR_CONFIG, "write etcd://HOST:PORT[,HOST:PORT...][/PREFIX]", "store",
                    "'etcd://%.200s' is not the address of an etcd", address);
}

/* HOST:PORT[,HOST:PORT…][/PREFIX] */
static ls_status parse_address(lsi_etcd *c, const char *address, const lsi_key *key)
{
    size_t length = strcspn(address, "/");
    for (const char *at = address, *end = address + length; at <= end;) {
        size_t bytes = strcspn(at, ",/");
        char host[LSI_ADDR_MAX], *endpoint = c->endpoints[c->endpoint_count];
        int port;
        if (c->endpoint_count == LSI_ETCD_ENDPOINTS_MAX || bytes >= LSI_ADDR_MAX)
            return fail_address(address);
        memcpy(endpoint, at, bytes);
        if (lsi_net_split(endpoint, host, &port) != LS_OK || port == 0 ||
            strspn(endpoint, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._:[]"
                             "%") != bytes)
            return fail_address(address);
        c->endpoint_count++;
        at += bytes + 1;
    }
    const char *prefix = address[length] ? address + length + 1 : "";
    size_t bytes = strlen(prefix);
    if (bytes == 0) {
        unsigned char digest[LSI_SHA256_BYTES];
        char hex[LSI_SHA256_HEX];
        LSI_TRY(lsi_sha256_of(key->bytes, sizeof key->bytes, digest));
        lsi_sha256_hex(digest, hex);
        snprintf(c->prefix, sizeof c->prefix, "lockstep/%.*s/", PREFIX_DIGITS, hex);
        return LS_OK;
    }
    if (bytes >= LSI_ETCD_PREFIX_MAX || !lsi_store_key_valid(prefix, bytes))
        return fail_address(address);
    snprintf(c->prefix, sizeof c->prefix, "%s%s", prefix, prefix[bytes - 1] == '/' ? "" : "/");
    return LS_OK;
}

/* See that there is an etcd, and that what lies under the prefix was written with our key. */
static ls_status greet(lsi_etcd *c, double deadline)
{
    char end[LSI_ETCD_PREFIX_MAX + 1], name[LSI_ETCD_NAME_MAX + 1];
    lsi_etcd_prefix_end(c->prefix, end);
    c->patience_s = c->timeout_s;
    LSI_TRY(lsi_etcd_range(&c->request, c->prefix, end, 0, 1));
    ls_status status = lsi_etcd_ask(c, "v3/kv/range", deadline, 0);
    if (status == LS_ERR_PEER_DEAD) {
        char why[LSI_ERROR_MAX];
        snprintf(why, sizeof why, "%s", ls_last_error());
        return lsi_fail(LS_ERR_TIMEOUT, NULL, "open", "no etcd was found within %.1f s; %s",
                        c->timeout_s, why);
    }
    if (status == LS_IN_PROGRESS)
        return lsi_etcd_fail_late(c, "open", "");
    LSI_TRY(status);
    if (c->answer.code != LSI_ETCD_FINE)
        return lsi_etcd_fail_refused(c, "open", c->prefix, 0);
    c->patience_s = c->timeout_s < LSI_ETCD_PATIENCE_S ? c->timeout_s : LSI_ETCD_PATIENCE_S;
    const lsi_etcd_entry *entry = c->answer.entries;
    if (c->answer.count == 0)
        return LS_OK;
    const uint8_t *value;
    size_t bytes;
    snprintf(name, sizeof name, "%.*s",
             (int)(entry->key_bytes < sizeof name ? entry->key_bytes : 0),
             (const char *)entry->key);
    return lsi_etcd_open_value(c, name, entry, &value, &bytes);
}

static ls_status store_open(const char *address, const lsi_key *key, double timeout_s,
                            lsi_store **out)
{
    double deadline = lsi_now() + timeout_s;
    lsi_etcd *c = calloc(1, sizeof *c);
    if (!c)
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for a client");
    c->base.ops = &lsi_store_etcd;
    c->timeout_s = timeout_s;
    ls_status status = parse_address(c, address, key);
    if (status == LS_OK)
        status = lsi_seal_create(key, &c->seal);
    if (status == LS_OK)
        status = lsi_http_create(&c->http);
    if (status != LS_OK)
        goto undo;
    snprintf(c->who, sizeof c->who, "the etcd at %s%s", c->endpoints[0],
             c->endpoint_count > 1 ? " (and others)" : "");
    status = greet(c, deadline);
    if (status != LS_OK)
        goto undo;
    *out = &c->base;
    return LS_OK;
undo:
    store_close(&c->base);
    return status;
}

const lsi_store_ops lsi_store_etcd = {
    .name = "etcd",
    .why_unusable = lsi_http_why_unusable,
    .open = store_open,
    .close = store_close,
    .get = store_get,
    .put = store_put,
    .compare_and_put = store_compare_and_put,
    .remove = store_remove,
    .lease = store_lease,
    .keep = store_keep,
    .revoke = store_revoke,
    .watch = lsi_etcd_store_watch,
    .next = lsi_etcd_store_next,
    .fd = store_fd,
    .wait = lsi_etcd_store_wait,
};

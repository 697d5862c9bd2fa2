/* Opening a store by URL, and what all stores share.
 *
 * Adding a store: its ops in `registry`, its name at the same place in `names`. */
#include "store/store.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "store/etcd.h"
#include "store/tcp.h"

#define POLL_FIRST_S 0.001
#define POLL_MOST_S 0.05

static const lsi_store_ops *const registry[] = {
    &lsi_store_tcp,
#ifdef LSI_HAVE_CURL
    &lsi_store_etcd,
#endif
};
static const char *const names[] = {
    "tcp",
#ifdef LSI_HAVE_CURL
    "etcd",
#endif
    NULL,
};
_Static_assert(sizeof names / sizeof names[0] == sizeof registry / sizeof registry[0] + 1,
               "one name a store");

const char *const *lsi_store_names(void)
{
    return names;
}

const char *lsi_store_why_unusable(const char *name)
{
    for (size_t i = 0; i < sizeof registry / sizeof registry[0]; i++) {
        if (strcmp(registry[i]->name, name) == 0)
            return registry[i]->why_unusable ? registry[i]->why_unusable() : NULL;
    }
    return "not built";
}

static ls_status fail_scheme(const char *url)
{
    char hint[200] = "write ";
    for (size_t i = 0; names[i]; i++) {
        size_t used = strlen(hint);
        snprintf(hint + used, sizeof hint - used, "%s%s://HOST:PORT", i > 0 ? " or " : "",
                 names[i]);
    }
    return lsi_fail(LS_ERR_CONFIG, hint, "store", "'%.200s' names no store that is known", url);
}

ls_status lsi_store_open(const char *url, const lsi_key *key, double timeout_s, lsi_store **out)
{
    const char *colon = strstr(url, "://");
    if (!colon)
        return fail_scheme(url);
    size_t length = (size_t)(colon - url);
    for (size_t i = 0; i < sizeof registry / sizeof registry[0]; i++) {
        const char *name = registry[i]->name;
        if (strlen(name) == length && strncmp(name, url, length) == 0)
            return registry[i]->open(colon + 3, key, timeout_s, out);
    }
    return fail_scheme(url);
}

void lsi_store_close(lsi_store *store)
{
    if (store)
        store->ops->close(store);
}

/* For stores that cannot wait: ask, sleep, ask again. LS_IN_PROGRESS at the deadline. */
static ls_status ask_until(lsi_store *store, const char *key, double timeout_s,
                           const uint8_t **value, size_t *bytes)
{
    double deadline = lsi_now() + timeout_s;
    for (double pause = POLL_FIRST_S;; pause = pause * 2 < POLL_MOST_S ? pause * 2 : POLL_MOST_S) {
        uint64_t version;
        ls_status status = store->ops->get(store, key, value, bytes, &version);
        if (status != LS_ERR_NOT_FOUND)
            return status;
        double left = deadline - lsi_now();
        if (!(left > 0))
            return LS_IN_PROGRESS;
        poll(NULL, 0, (int)((pause < left ? pause : left) * 1e3) + 1);
    }
}

ls_status lsi_store_wait(lsi_store *store, const char *key, double timeout_s, const char *whose,
                         const uint8_t **value, size_t *bytes)
{
    ls_status status = store->ops->wait ? store->ops->wait(store, key, timeout_s, value, bytes)
                                        : ask_until(store, key, timeout_s, value, bytes);
    if (status != LS_IN_PROGRESS)
        return status;
    return lsi_fail(LS_ERR_TIMEOUT, "did that process start, and can it reach the store?",
                    "wait for", "%s%s%s%s is not in the store after %.1f s", key, whose ? " (" : "",
                    whose ? whose : "", whose ? ")" : "", timeout_s);
}

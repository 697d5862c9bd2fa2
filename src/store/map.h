/* The store's memory: keys with versions and leases. No sockets, no clock: time is an argument.
 *
 * Invariants:
 * 1. Keys are unique and kept in byte order.
 * 2. Every change (a put, a deletion) takes the next version; versions start at 1.
 * 3. Every change is told to the listener exactly once, after it was made, in version order. The
 *    listener must not change the map.
 * 4. A call that fails changes nothing and tells nothing.
 * 5. All that the map holds counts against LSI_MAP_BYTES_MAX.
 *
 * Statuses are returned without a recorded text: what is an error to a client (no such key) is none
 * to the server. One thread.
 */
#ifndef LSI_STORE_MAP_H
#define LSI_STORE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#define LSI_MAP_BYTES_MAX ((size_t)32 << 20)

typedef struct lsi_map lsi_map;

typedef struct lsi_map_entry {
    uint64_t version;
    uint64_t lease; /* 0: none */
    size_t bytes;
    uint8_t *value;                    /* never NULL */
    struct lsi_map_entry *next_orphan; /* the map's own */
    char key[];
} lsi_map_entry;

/* A deleted entry shows its last value and the version of the deletion. */
typedef void lsi_map_listener(void *arg, const lsi_map_entry *entry, int deleted);
typedef void lsi_map_visitor(void *arg, const lsi_map_entry *entry);

ls_status lsi_map_create(lsi_map_listener *listener, void *arg, lsi_map **out);
void lsi_map_destroy(lsi_map *map); /* tells nobody */

/* NULL if absent; valid until the next change. */
const lsi_map_entry *lsi_map_find(const lsi_map *map, const char *key);
/* Visit the keys that begin with `prefix` in order. The visitor must not change the map. */
void lsi_map_each(const lsi_map *map, const char *prefix, lsi_map_visitor *visit, void *arg);

/* Set. LS_ERR_NOT_FOUND: no such lease (0 is none); LS_ERR_NOMEM: the map is full. The value is
 * copied. */
ls_status lsi_map_put(lsi_map *map, const char *key, const void *value, size_t bytes,
                      uint64_t lease, uint64_t *version);
/* Set if the version is `expected` (0: absent), else LS_ERR_CONFLICT. */
ls_status lsi_map_compare_and_put(lsi_map *map, const char *key, uint64_t expected,
                                  const void *value, size_t bytes, uint64_t lease,
                                  uint64_t *version);
ls_status lsi_map_remove(lsi_map *map, const char *key); /* or LS_ERR_NOT_FOUND */

/* A lease that ends ttl_s after `now` or its last keep, or with its owner (a number of the
 * caller's). The keys of leases that end together are deleted in key order. */
ls_status lsi_map_lease(lsi_map *map, uint64_t owner, double ttl_s, double now, uint64_t *lease);
ls_status lsi_map_keep(lsi_map *map, uint64_t lease, double now); /* or LS_ERR_NOT_FOUND */
ls_status lsi_map_revoke(lsi_map *map, uint64_t lease);           /* or LS_ERR_NOT_FOUND */
/* End the leases whose time is over at `now`, and those of one owner. */
void lsi_map_expire(lsi_map *map, double now);
void lsi_map_disown(lsi_map *map, uint64_t owner);

#endif

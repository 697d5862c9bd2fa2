/* Keys in a sorted array, leases in another (contract and invariants: map.h).
 *
 * Finding is a binary search, inserting moves pointers: a store holds addresses and member lists,
 * hundreds of keys, rarely thousands. What one call can be made to do stays linear all the same
 * (a client that leaves with a hundred thousand leases must not stall the others). */
#include "store/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

typedef struct lease {
    uint64_t id, owner;
    double ttl_s, expires;
    size_t keys;   /* how many entries are under it */
    int has_ended; /* only until the sweep at the end of the same call */
} lease;

struct lsi_map {
    lsi_map_listener *listener;
    void *arg;
    uint64_t version;        /* of the latest change */
    uint64_t last_lease;     /* number of the latest lease */
    size_t bytes;            /* held, against LSI_MAP_BYTES_MAX */
    lsi_map_entry **entries; /* sorted by key */
    size_t count, room;
    lease *leases; /* sorted by id */
    size_t lease_count, lease_room;
    double earliest; /* no lease expires before */
};

ls_status lsi_map_create(lsi_map_listener *listener, void *arg, lsi_map **out)
{
    lsi_map *map = calloc(1, sizeof *map);
    if (!map)
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for the map");
    map->listener = listener;
    map->arg = arg;
    map->earliest = INFINITY;
    *out = map;
    return LS_OK;
}

static void free_entry(lsi_map_entry *entry)
{
    if (entry)
        free(entry->value);
    free(entry);
}

void lsi_map_destroy(lsi_map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < map->count; i++)
        free_entry(map->entries[i]);
    free(map->entries);
    free(map->leases);
    free(map);
}

/* Index of the first key >= `key`. */
static size_t lower_bound(const lsi_map *map, const char *key)
{
    size_t low = 0, high = map->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(map->entries[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int is_at(const lsi_map *map, size_t index, const char *key)
{
    return index < map->count && strcmp(map->entries[index]->key, key) == 0;
}

const lsi_map_entry *lsi_map_find(const lsi_map *map, const char *key)
{
    size_t i = lower_bound(map, key);
    return is_at(map, i, key) ? map->entries[i] : NULL;
}

void lsi_map_each(const lsi_map *map, const char *prefix, lsi_map_visitor *visit, void *arg)
{
    size_t n = strlen(prefix);
    for (size_t i = lower_bound(map, prefix); i < map->count; i++) {
        if (strncmp(map->entries[i]->key, prefix, n) != 0)
            break;
        visit(arg, map->entries[i]);
    }
}

static lease *find_lease(const lsi_map *map, uint64_t id)
{
    size_t low = 0, high = map->lease_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (map->leases[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < map->lease_count && map->leases[low].id == id ? &map->leases[low] : NULL;
}

/* Room for one more element in a growing array. */
static ls_status grow(void **array, size_t count, size_t *room, size_t element_bytes)
{
    if (count < *room)
        return LS_OK;
    size_t wanted = *room ? *room * 2 : 16;
    void *bigger = realloc(*array, wanted * element_bytes);
    if (!bigger)
        return LS_ERR_NOMEM;
    *array = bigger;
    *room = wanted;
    return LS_OK;
}

/* What an entry costs. */
static size_t cost(size_t key_bytes, size_t value_bytes)
{
    return sizeof(lsi_map_entry) + sizeof(lsi_map_entry *) + key_bytes + 1 + value_bytes;
}

/* Set the value of an entry that exists, or insert it: everything that can fail comes first. */
static ls_status set(lsi_map *map, size_t index, int exists, const char *key, const void *value,
                     size_t bytes)
{
    size_t key_bytes = strlen(key);
    size_t held = map->bytes + cost(key_bytes, bytes);
    if (exists)
        held -= cost(key_bytes, map->entries[index]->bytes);
    if (held > LSI_MAP_BYTES_MAX)
        return LS_ERR_NOMEM;
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    if (!copy)
        return LS_ERR_NOMEM;
    if (bytes > 0)
        memcpy(copy, value, bytes);

    lsi_map_entry *entry;
    if (exists) {
        entry = map->entries[index];
        free(entry->value);
    } else {
        entry = malloc(sizeof *entry + key_bytes + 1);
        void *array = map->entries;
        if (!entry || grow(&array, map->count, &map->room, sizeof *map->entries) != LS_OK) {
            free(entry);
            free(copy);
            return LS_ERR_NOMEM;
        }
        map->entries = array;
        memcpy(entry->key, key, key_bytes + 1);
        entry->lease = 0;
        memmove(map->entries + index + 1, map->entries + index,
                (map->count - index) * sizeof *map->entries);
        map->entries[index] = entry;
        map->count++;
    }
    entry->value = copy;
    entry->bytes = bytes;
    map->bytes = held;
    return LS_OK;
}

/* Put an entry under a lease (0: none) instead of the one it is under. */
static void move_lease(lsi_map *map, lsi_map_entry *entry, uint64_t id)
{
    if (entry->lease)
        find_lease(map, entry->lease)->keys--;
    if (id)
        find_lease(map, id)->keys++;
    entry->lease = id;
}

static ls_status put_at(lsi_map *map, size_t index, const char *key, const void *value,
                        size_t bytes, uint64_t lease_id, uint64_t *version)
{
    if (lease_id && !find_lease(map, lease_id))
        return LS_ERR_NOT_FOUND;
    LSI_TRY(set(map, index, is_at(map, index, key), key, value, bytes));
    lsi_map_entry *entry = map->entries[index];
    move_lease(map, entry, lease_id);
    entry->version = ++map->version;
    *version = entry->version;
    map->listener(map->arg, entry, 0);
    return LS_OK;
}

ls_status lsi_map_put(lsi_map *map, const char *key, const void *value, size_t bytes,
                      uint64_t lease_id, uint64_t *version)
{
    return put_at(map, lower_bound(map, key), key, value, bytes, lease_id, version);
}

ls_status lsi_map_compare_and_put(lsi_map *map, const char *key, uint64_t expected,
                                  const void *value, size_t bytes, uint64_t lease_id,
                                  uint64_t *version)
{
    size_t index = lower_bound(map, key);
    uint64_t present = is_at(map, index, key) ? map->entries[index]->version : 0;
    if (present != expected)
        return LS_ERR_CONFLICT;
    return put_at(map, index, key, value, bytes, lease_id, version);
}

/* The last act of an entry that is in no array and under no lease any more. */
static void bury(lsi_map *map, lsi_map_entry *entry)
{
    map->bytes -= cost(strlen(entry->key), entry->bytes);
    entry->version = ++map->version;
    map->listener(map->arg, entry, 1);
    free_entry(entry);
}

ls_status lsi_map_remove(lsi_map *map, const char *key)
{
    size_t index = lower_bound(map, key);
    if (!is_at(map, index, key))
        return LS_ERR_NOT_FOUND;
    lsi_map_entry *entry = map->entries[index];
    map->count--;
    memmove(map->entries + index, map->entries + index + 1,
            (map->count - index) * sizeof *map->entries);
    move_lease(map, entry, 0);
    bury(map, entry);
    return LS_OK;
}

ls_status lsi_map_lease(lsi_map *map, uint64_t owner, double ttl_s, double now, uint64_t *lease_id)
{
    void *array = map->leases;
    if (map->bytes + sizeof(lease) > LSI_MAP_BYTES_MAX ||
        grow(&array, map->lease_count, &map->lease_room, sizeof(lease)) != LS_OK)
        return LS_ERR_NOMEM;
    map->leases = array;
    map->bytes += sizeof(lease);
    map->leases[map->lease_count++] =
        (lease){.id = ++map->last_lease, .owner = owner, .ttl_s = ttl_s, .expires = now + ttl_s};
    if (now + ttl_s < map->earliest)
        map->earliest = now + ttl_s;
    *lease_id = map->last_lease;
    return LS_OK;
}

ls_status lsi_map_keep(lsi_map *map, uint64_t lease_id, double now)
{
    lease *l = find_lease(map, lease_id);
    if (!l)
        return LS_ERR_NOT_FOUND;
    l->expires = now + l->ttl_s;
    return LS_OK;
}

/* Take the keys of ended leases out of the array, in one pass; returns them linked, in order. */
static lsi_map_entry *take_orphans(lsi_map *map)
{
    lsi_map_entry *first = NULL, **last = &first;
    size_t kept = 0;
    for (size_t i = 0; i < map->count; i++) {
        lsi_map_entry *entry = map->entries[i];
        if (entry->lease && find_lease(map, entry->lease)->has_ended) {
            *last = entry;
            last = &entry->next_orphan;
        } else {
            map->entries[kept++] = entry;
        }
    }
    map->count = kept;
    *last = NULL;
    return first;
}

/* Delete the leases marked as ended, then tell of their keys. */
static void sweep(lsi_map *map)
{
    size_t keys = 0, kept = 0;
    for (size_t i = 0; i < map->lease_count; i++)
        keys += map->leases[i].has_ended ? map->leases[i].keys : 0;
    lsi_map_entry *orphan = keys > 0 ? take_orphans(map) : NULL;

    map->earliest = INFINITY;
    for (size_t i = 0; i < map->lease_count; i++) {
        const lease *l = &map->leases[i];
        if (l->has_ended)
            continue;
        map->earliest = l->expires < map->earliest ? l->expires : map->earliest;
        map->leases[kept++] = *l;
    }
    map->bytes -= (map->lease_count - kept) * sizeof(lease);
    map->lease_count = kept;

    while (orphan) {
        lsi_map_entry *next = orphan->next_orphan;
        bury(map, orphan);
        orphan = next;
    }
}

ls_status lsi_map_revoke(lsi_map *map, uint64_t lease_id)
{
    lease *l = find_lease(map, lease_id);
    if (!l)
        return LS_ERR_NOT_FOUND;
    l->has_ended = 1;
    sweep(map);
    return LS_OK;
}

void lsi_map_expire(lsi_map *map, double now)
{
    if (now < map->earliest)
        return;
    for (size_t i = 0; i < map->lease_count; i++)
        map->leases[i].has_ended = map->leases[i].expires <= now;
    sweep(map);
}

void lsi_map_disown(lsi_map *map, uint64_t owner)
{
    int any = 0;
    for (size_t i = 0; i < map->lease_count; i++)
        any |= map->leases[i].has_ended = map->leases[i].owner == owner;
    if (any)
        sweep(map);
}

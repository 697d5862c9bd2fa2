/* The JSON of etcd's gateway: requests to bytes, bytes to answers. Pure functions.
 *
 * Keys and values travel as base64, 64-bit numbers as strings of digits; members that are zero,
 * false or empty are left out. One struct serves for the answers to all requests.
 *
 * Invariants:
 * 1. A member that we know has the type that etcd gives it, or the whole answer is refused
 *    (LS_ERR_PROTOCOL); members that we do not know are passed over.
 * 2. Reading takes memory in proportion to the bytes: text with too many members is refused before
 *    it is parsed.
 */
#ifndef LSI_STORE_ETCD_JSON_H
#define LSI_STORE_ETCD_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "store/buffer.h"
#include <lockstep/status.h>

#define LSI_ETCD_WORDS_MAX 200

/* gRPC's codes, as far as we tell them apart. */
typedef enum lsi_etcd_code {
    LSI_ETCD_FINE = 0,
    LSI_ETCD_INVALID = 3,
    LSI_ETCD_LATE = 4,
    LSI_ETCD_NOT_FOUND = 5,
    LSI_ETCD_FORBIDDEN = 7,
    LSI_ETCD_EXHAUSTED = 8,
    LSI_ETCD_PRECONDITION = 9,
    LSI_ETCD_OUT_OF_RANGE = 11,
    LSI_ETCD_UNAVAILABLE = 14,
    LSI_ETCD_STRANGER = 16
} lsi_etcd_code;

typedef struct lsi_etcd_entry {
    const uint8_t *key, *value; /* within the answer */
    size_t key_bytes, bytes;
    uint64_t version; /* mod_revision */
    int deleted;
} lsi_etcd_entry;

/* All zero is an empty answer. */
typedef struct lsi_etcd_answer {
    int code; /* LSI_ETCD_FINE, or the error's; then `words` says it */
    char words[LSI_ETCD_WORDS_MAX];
    uint64_t revision;               /* of the store, when it answered */
    int succeeded;                   /* txn: the comparison held */
    int more;                        /* range: the limit cut it */
    uint64_t deleted;                /* deleterange: how many keys */
    uint64_t ttl_s;                  /* keepalive: 0 when the lease is gone */
    int created, canceled, fragment; /* watch; canceled: `words` may say why */
    uint64_t compacted;              /* watch: the oldest revision there is */
    lsi_etcd_entry *entries;         /* of range, of txn's range, of watch */
    size_t count;
    uint8_t *memory; /* keys and values */
} lsi_etcd_answer;

/* Read one JSON object. On success *out is to be freed with lsi_etcd_answer_free. */
ls_status lsi_etcd_parse(const void *text, size_t bytes, lsi_etcd_answer *out);
void lsi_etcd_answer_free(lsi_etcd_answer *answer); /* leaves an empty one */

/* The first key after all that begin with `prefix`, which is not empty and printable. */
void lsi_etcd_prefix_end(const char *prefix, char *end);

/* Requests, appended to `out`. `end` NULL: the key itself, else all keys from `key` to before
 * `end`. A revision of 0: the present one. */
ls_status lsi_etcd_range(lsi_buffer *out, const char *key, const char *end, uint64_t revision,
                         int limit);
ls_status lsi_etcd_put(lsi_buffer *out, const char *key, const void *value, size_t bytes,
                       uint64_t lease);
/* Put unless the key was changed after `revision`, else range. */
ls_status lsi_etcd_put_unless_changed(lsi_buffer *out, const char *key, uint64_t revision,
                                      const void *value, size_t bytes, uint64_t lease);
/* Put if the key's version is `expected` (0: absent), else range. */
ls_status lsi_etcd_compare_and_put(lsi_buffer *out, const char *key, uint64_t expected,
                                   const void *value, size_t bytes, uint64_t lease);
ls_status lsi_etcd_delete(lsi_buffer *out, const char *key);
ls_status lsi_etcd_grant(lsi_buffer *out, uint64_t lease, uint64_t ttl_s);
ls_status lsi_etcd_lease(lsi_buffer *out, uint64_t lease); /* keepalive, revoke */
ls_status lsi_etcd_watch(lsi_buffer *out, const char *key, const char *end, uint64_t revision);

#endif

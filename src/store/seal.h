/* Values that carry a proof: for stores that the run's key does not guard.
 *
 * A sealed value is  MAC (32 bytes) | nonce (16, random) | value,  where
 *
 *     MAC = HMAC-SHA-256(run's key, "lockstep sealed 1" | u16 bytes of the name | name | nonce |
 *                        value)
 *
 * and the name is the full one that the store knows. Whoever lacks the key can neither write a
 * value nor change one nor move one to another name. It does not keep them from reading, from
 * deleting, nor from putting back a value that the same name had before: there is no encryption,
 * and no memory of what came last.
 *
 * The nonce makes each sealed value one of a kind: who wrote it can tell that it is his.
 *
 * An object belongs to one thread at a time.
 */
#ifndef LSI_STORE_SEAL_H
#define LSI_STORE_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/auth.h"
#include "store/buffer.h"
#include <lockstep/status.h>

#define LSI_SEAL_BYTES ((size_t)48)

typedef struct lsi_seal lsi_seal;

/* The key is copied (into OpenSSL's keeping). */
ls_status lsi_seal_create(const lsi_key *key, lsi_seal **out);
void lsi_seal_destroy(lsi_seal *seal); /* accepts NULL */
/* Append the sealed value to `out`. */
ls_status lsi_seal_put(lsi_seal *seal, const char *name, const void *value, size_t bytes,
                       lsi_buffer *out);
/* Look at the proof: *value points into `sealed`. LS_ERR_AUTH when it does not hold. */
ls_status lsi_seal_check(lsi_seal *seal, const char *name, const uint8_t *sealed,
                         size_t sealed_bytes, const uint8_t **value, size_t *bytes);

#endif

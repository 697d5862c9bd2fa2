/* SHA-256 of a stream of bytes (FIPS 180-4), by OpenSSL.
 *
 * 1. A digest depends on the bytes, not on how they were cut into updates.
 *
 * An object belongs to one thread at a time.
 */
#ifndef LSI_BASE_SHA256_H
#define LSI_BASE_SHA256_H

#include <stddef.h>

#include <lockstep/status.h>

#define LSI_SHA256_BYTES 32
#define LSI_SHA256_HEX (2 * LSI_SHA256_BYTES + 1) /* with the final 0 */

typedef struct lsi_sha256 lsi_sha256;

/* An empty stream. The caller owns *out. LS_ERR_SYSTEM when OpenSSL refuses. */
ls_status lsi_sha256_create(lsi_sha256 **out);

/* Accepts NULL. */
void lsi_sha256_destroy(lsi_sha256 *hash);

/* Append bytes to the stream. `data` may be NULL when `bytes` is 0. */
ls_status lsi_sha256_update(lsi_sha256 *hash, const void *data, size_t bytes);

/* The digest of the stream, which is empty afterwards. */
ls_status lsi_sha256_final(lsi_sha256 *hash, unsigned char digest[LSI_SHA256_BYTES]);

/* The digest as 64 lower-case hexadecimal digits. */
void lsi_sha256_hex(const unsigned char digest[LSI_SHA256_BYTES], char text[LSI_SHA256_HEX]);

/* The digest of one piece of memory. */
ls_status lsi_sha256_of(const void *data, size_t bytes, unsigned char digest[LSI_SHA256_BYTES]);

#endif

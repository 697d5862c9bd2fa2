/* HMAC-SHA-256 by OpenSSL over a name and a value; the form is in seal.h. */
#include "store/seal.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/status.h"

#define MAC_BYTES 32
#define NONCE_BYTES 16
_Static_assert(LSI_SEAL_BYTES == MAC_BYTES + NONCE_BYTES, "seal.h says so");

static const char label[] = "lockstep sealed 1";

struct lsi_seal {
    EVP_MAC_CTX *mac; /* holds the key */
};

static ls_status fail_openssl(void)
{
    return lsi_fail(LS_ERR_SYSTEM, NULL, "store", "OpenSSL cannot compute an HMAC-SHA-256");
}

ls_status lsi_seal_create(const lsi_key *key, lsi_seal **out)
{
    lsi_seal *seal = calloc(1, sizeof *seal);
    if (!seal)
        return lsi_fail(LS_ERR_NOMEM, NULL, "store", "no memory for a key");
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };
    EVP_MAC *algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
    seal->mac = algorithm ? EVP_MAC_CTX_new(algorithm) : NULL;
    EVP_MAC_free(algorithm);
    if (!seal->mac || !EVP_MAC_init(seal->mac, key->bytes, sizeof key->bytes, params)) {
        lsi_seal_destroy(seal);
        return fail_openssl();
    }
    *out = seal;
    return LS_OK;
}

void lsi_seal_destroy(lsi_seal *seal)
{
    if (!seal)
        return;
    EVP_MAC_CTX_free(seal->mac);
    free(seal);
}

static ls_status compute(lsi_seal *seal, const char *name, const uint8_t *nonce, const void *value,
                         size_t bytes, uint8_t mac[MAC_BYTES])
{
    size_t length = strlen(name), written = 0;
    const uint8_t size[2] = {(uint8_t)length, (uint8_t)(length >> 8)};
    if (!EVP_MAC_init(seal->mac, NULL, 0, NULL) || /* begin anew with the same key */
        !EVP_MAC_update(seal->mac, (const uint8_t *)label, sizeof label - 1) ||
        !EVP_MAC_update(seal->mac, size, sizeof size) ||
        !EVP_MAC_update(seal->mac, (const uint8_t *)name, length) ||
        !EVP_MAC_update(seal->mac, nonce, NONCE_BYTES) ||
        (bytes > 0 && !EVP_MAC_update(seal->mac, value, bytes)) ||
        !EVP_MAC_final(seal->mac, mac, &written, MAC_BYTES) || written != MAC_BYTES)
        return fail_openssl();
    return LS_OK;
}

ls_status lsi_seal_put(lsi_seal *seal, const char *name, const void *value, size_t bytes,
                       lsi_buffer *out)
{
    uint8_t *at;
    LSI_TRY(lsi_buffer_reserve(out, LSI_SEAL_BYTES + bytes, &at));
    while (getrandom(at + MAC_BYTES, NONCE_BYTES, 0) != NONCE_BYTES) {
        if (errno != EINTR)
            return lsi_fail_errno("getrandom", "%d bytes", NONCE_BYTES);
    }
    LSI_TRY(compute(seal, name, at + MAC_BYTES, value, bytes, at));
    if (bytes > 0)
        memcpy(at + LSI_SEAL_BYTES, value, bytes);
    lsi_buffer_added(out, LSI_SEAL_BYTES + bytes);
    return LS_OK;
}

ls_status lsi_seal_check(lsi_seal *seal, const char *name, const uint8_t *sealed,
                         size_t sealed_bytes, const uint8_t **value, size_t *bytes)
{
    uint8_t mac[MAC_BYTES];
    int is_right = 0;
    if (sealed_bytes >= LSI_SEAL_BYTES) {
        LSI_TRY(compute(seal, name, sealed + MAC_BYTES, sealed + LSI_SEAL_BYTES,
                        sealed_bytes - LSI_SEAL_BYTES, mac));
        is_right = CRYPTO_memcmp(mac, sealed, MAC_BYTES) == 0;
    }
    if (!is_right)
        return lsi_fail(LS_ERR_AUTH, "somebody without the run's key wrote it; remove it", "store",
                        "the value of %s was not written with the run's key", name);
    *value = sealed + LSI_SEAL_BYTES;
    *bytes = sealed_bytes - LSI_SEAL_BYTES;
    return LS_OK;
}

/* SHA-256 by OpenSSL's EVP interface; the contract is in sha256.h. */
#include "base/sha256.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include "base/status.h"

struct lsi_sha256 {
    EVP_MD_CTX *context;
};

static ls_status fail_openssl(const char *call)
{
    char text[160];
    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    return lsi_fail(LS_ERR_SYSTEM, NULL, "sha256", "%s: %s", call, text);
}

static ls_status restart(lsi_sha256 *hash)
{
    if (!EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL))
        return fail_openssl("EVP_DigestInit_ex");
    return LS_OK;
}

ls_status lsi_sha256_create(lsi_sha256 **out)
{
    lsi_sha256 *hash = malloc(sizeof *hash);
    if (!hash)
        return lsi_fail(LS_ERR_NOMEM, NULL, "sha256", "no memory for its context");
    hash->context = EVP_MD_CTX_new();
    const ls_status status = hash->context ? restart(hash) : fail_openssl("EVP_MD_CTX_new");
    if (status != LS_OK) {
        lsi_sha256_destroy(hash);
        return status;
    }
    *out = hash;
    return LS_OK;
}

void lsi_sha256_destroy(lsi_sha256 *hash)
{
    if (!hash)
        return;
    EVP_MD_CTX_free(hash->context);
    free(hash);
}

ls_status lsi_sha256_update(lsi_sha256 *hash, const void *data, size_t bytes)
{
    if (bytes > 0 && !EVP_DigestUpdate(hash->context, data, bytes))
        return fail_openssl("EVP_DigestUpdate");
    return LS_OK;
}

ls_status lsi_sha256_final(lsi_sha256 *hash, unsigned char digest[LSI_SHA256_BYTES])
{
    unsigned char value[EVP_MAX_MD_SIZE];
    if (!EVP_DigestFinal_ex(hash->context, value, NULL))
        return fail_openssl("EVP_DigestFinal_ex");
    LSI_TRY(restart(hash));
    for (int i = 0; i < LSI_SHA256_BYTES; i++)
        digest[i] = value[i];
    return LS_OK;
}

void lsi_sha256_hex(const unsigned char digest[LSI_SHA256_BYTES], char text[LSI_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < LSI_SHA256_BYTES; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    text[2 * LSI_SHA256_BYTES] = 0;
}

ls_status lsi_sha256_of(const void *data, size_t bytes, unsigned char digest[LSI_SHA256_BYTES])
{
    lsi_sha256 *hash = NULL;
    LSI_TRY(lsi_sha256_create(&hash));
    ls_status status = lsi_sha256_update(hash, data, bytes);
    if (status == LS_OK)
        status = lsi_sha256_final(hash, digest);
    lsi_sha256_destroy(hash);
    return status;
}

/* The run's key, and the handshake that opens every connection (messages: see auth.h).
 *
 * The first message, byte for byte: "LSTP", version (2 bytes, little endian), purpose (2 bytes),
 * nonce_c, identity.
 *
 * Invariants:
 * 1. The server proves itself first, so a client with the wrong key learns it (LS_ERR_AUTH) and
 *    never shows a MAC of its own to an impostor.
 * 2. Both nonces enter both MACs and the labels differ: nothing recorded on another connection,
 *    nor the peer's own MAC sent back, is of use.
 * 3. A handshake that failed stays failed.
 * 4. At most the bytes of the current message are read: what follows belongs to the caller.
 */
#include "base/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/net.h"
#include "base/status.h"

#define VERSION 1u
#define PREFIX_BYTES 8 /* magic, version, purpose */
#define LABEL_BYTES 15
#define KEY_DIGITS ((size_t)LSI_KEY_BYTES * 2)

/* Which message is moving; after PROOF comes DONE. */
enum { HELLO, ANSWER, PROOF, DONE, FAILED };

static ls_status fill_random(uint8_t *out, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = getrandom(out + done, bytes - done, 0);
        if (n < 0 && errno != EINTR)
            return lsi_fail_errno("getrandom", "%zu bytes", bytes);
        if (n > 0)
            done += (size_t)n;
    }
    return LS_OK;
}

ls_status lsi_key_generate(lsi_key *key)
{
    return fill_random(key->bytes, sizeof key->bytes);
}

ls_status lsi_key_save(const lsi_key *key, const char *path)
{
    char text[KEY_DIGITS + 2]; /* digits, newline, NUL */
    for (size_t i = 0; i < LSI_KEY_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", key->bytes[i]);
    text[KEY_DIGITS] = '\n';

    ls_status status = LS_OK;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        status = errno == EEXIST ? lsi_fail(LS_ERR_CONFIG, "choose another name, or remove it",
                                            "save key", "%s exists already", path)
                                 : lsi_fail_errno("save key", "%s", path);
        goto wipe;
    }
    size_t done = 0;
    while (done < KEY_DIGITS + 1) {
        ssize_t n = write(fd, text + done, KEY_DIGITS + 1 - done);
        if (n < 0 && errno != EINTR) {
            status = lsi_fail_errno("save key", "%s", path);
            break;
        }
        if (n > 0)
            done += (size_t)n;
    }
    if (close(fd) != 0 && status == LS_OK)
        status = lsi_fail_errno("save key", "%s", path);
    if (status != LS_OK)
        unlink(path);
wipe:
    OPENSSL_cleanse(text, sizeof text);
    return status;
}

/* Read at most `bytes`; short at the end of the file. */
static ls_status read_some(int fd, const char *path, char *text, size_t bytes, size_t *count)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = read(fd, text + done, bytes - done);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            return lsi_fail_errno("read key", "%s", path);
        if (n > 0)
            done += (size_t)n;
    }
    *count = done;
    return LS_OK;
}

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* 64 digits, then nothing but white space. */
static int parse_key(const char *text, size_t bytes, lsi_key *key)
{
    if (bytes < KEY_DIGITS)
        return -1;
    for (size_t i = 0; i < LSI_KEY_BYTES; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return -1;
        key->bytes[i] = (uint8_t)(high << 4 | low);
    }
    for (size_t i = KEY_DIGITS; i < bytes; i++) {
        if (!strchr(" \t\r\n", text[i]) || text[i] == '\0')
            return -1;
    }
    return 0;
}

static ls_status open_key(const char *path, int *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return lsi_fail(LS_ERR_NOT_FOUND, "give the path of the key file that the run wrote",
                        "read key", "there is no %s", path);
    if (fd < 0)
        return lsi_fail_errno("read key", "%s", path);
    struct stat info;
    if (fstat(fd, &info) != 0) {
        ls_status status = lsi_fail_errno("read key", "%s", path);
        close(fd);
        return status;
    }
    if (info.st_mode & (S_IRWXG | S_IRWXO)) {
        close(fd);
        char hint[PATH_MAX + 16];
        snprintf(hint, sizeof hint, "chmod 600 %s", path);
        return lsi_fail(LS_ERR_CONFIG, hint, "read key", "others may open %s, its mode is %04o",
                        path, (unsigned)info.st_mode & 07777u);
    }
    *out = fd;
    return LS_OK;
}

ls_status lsi_key_load(const char *path, lsi_key *key)
{
    int fd = STDIN_FILENO, is_file = strcmp(path, "-") != 0;
    if (is_file)
        LSI_TRY(open_key(path, &fd));
    char text[KEY_DIGITS + 16];
    size_t bytes = 0;
    lsi_key found;
    ls_status status = read_some(fd, is_file ? path : "standard input", text, sizeof text, &bytes);
    if (is_file)
        close(fd);
    if (status == LS_OK && (bytes == sizeof text || parse_key(text, bytes, &found) != 0))
        status = lsi_fail(LS_ERR_CONFIG, "give the file that the run wrote, unchanged", "read key",
                          "%s does not hold %zu hexadecimal digits and nothing else",
                          is_file ? path : "standard input", KEY_DIGITS);
    if (status == LS_OK)
        *key = found;
    OPENSSL_cleanse(text, sizeof text);
    OPENSSL_cleanse(&found, sizeof found);
    return status;
}

/* HMAC-SHA256(key, label | hello | nonce_s). */
static ls_status mac(const lsi_auth *auth, const char *label, uint8_t out[LSI_AUTH_MAC_BYTES])
{
    uint8_t text[LABEL_BYTES + LSI_AUTH_HELLO_BYTES + LSI_AUTH_NONCE_BYTES];
    memcpy(text, label, LABEL_BYTES);
    memcpy(text + LABEL_BYTES, auth->hello, LSI_AUTH_HELLO_BYTES);
    memcpy(text + LABEL_BYTES + LSI_AUTH_HELLO_BYTES, auth->answer, LSI_AUTH_NONCE_BYTES);
    unsigned length = 0;
    if (!HMAC(EVP_sha256(), auth->key->bytes, LSI_KEY_BYTES, text, sizeof text, out, &length) ||
        length != LSI_AUTH_MAC_BYTES)
        return lsi_fail(LS_ERR_SYSTEM, "is OpenSSL's default provider usable?", "handshake",
                        "HMAC-SHA256 failed");
    return LS_OK;
}

static const char server_label[] = "lockstep server", client_label[] = "lockstep client";
_Static_assert(sizeof server_label == LABEL_BYTES + 1, "labels are of one length");
_Static_assert(sizeof client_label == LABEL_BYTES + 1, "labels are of one length");

static void write_prefix(lsi_auth_purpose purpose, uint8_t out[PREFIX_BYTES])
{
    const uint8_t prefix[PREFIX_BYTES] = {
        'L', 'S', 'T', 'P', VERSION & 0xff, VERSION >> 8, (uint8_t)purpose, 0};
    memcpy(out, prefix, PREFIX_BYTES);
}

static void begin(lsi_auth *auth, int fd, const lsi_key *key, lsi_auth_purpose purpose)
{
    memset(auth, 0, sizeof *auth);
    auth->fd = fd;
    auth->step = HELLO;
    auth->purpose = purpose;
    auth->key = key;
}

ls_status lsi_auth_client(lsi_auth *auth, int fd, const lsi_key *key, lsi_auth_purpose purpose,
                          const uint8_t identity[LSI_AUTH_IDENTITY_BYTES])
{
    begin(auth, fd, key, purpose);
    write_prefix(purpose, auth->hello);
    LSI_TRY(fill_random(auth->hello + PREFIX_BYTES, LSI_AUTH_NONCE_BYTES));
    memcpy(auth->hello + PREFIX_BYTES + LSI_AUTH_NONCE_BYTES, identity, LSI_AUTH_IDENTITY_BYTES);
    return LS_OK;
}

ls_status lsi_auth_server(lsi_auth *auth, int fd, const lsi_key *key, lsi_auth_purpose purpose)
{
    begin(auth, fd, key, purpose);
    auth->is_server = 1;
    return fill_random(auth->answer, LSI_AUTH_NONCE_BYTES);
}

int lsi_auth_wants_write(const lsi_auth *auth)
{
    return auth->is_server ? auth->step == ANSWER : auth->step == HELLO || auth->step == PROOF;
}

const uint8_t *lsi_auth_identity(const lsi_auth *auth)
{
    return auth->hello + PREFIX_BYTES + LSI_AUTH_NONCE_BYTES;
}

/* Move the current message: LS_OK when it is complete. */
static ls_status move(lsi_auth *auth, uint8_t *message, size_t bytes, const char *who)
{
    int writes = lsi_auth_wants_write(auth);
    while (auth->done < bytes) {
        uint8_t *at = message + auth->done;
        size_t left = bytes - auth->done;
        ssize_t n = writes ? send(auth->fd, at, left, MSG_NOSIGNAL) : recv(auth->fd, at, left, 0);
        if (n > 0) {
            auth->done += (size_t)n;
        } else if (n == 0) {
            return lsi_fail(LS_ERR_PEER_DEAD,
                            "do both sides run the same version with the same key?", "handshake",
                            "%s closed the connection", who);
        } else if (errno == EAGAIN) {
            return LS_IN_PROGRESS;
        } else if (errno != EINTR) {
            return lsi_net_fail("handshake", who);
        }
    }
    auth->done = 0;
    return LS_OK;
}

/* The part of the first message that has come so far must be what a client of ours sends. */
static ls_status check_hello(const lsi_auth *auth, size_t bytes, const char *who)
{
    uint8_t wanted[PREFIX_BYTES];
    write_prefix(auth->purpose, wanted);
    if (memcmp(auth->hello, wanted, bytes < PREFIX_BYTES ? bytes : PREFIX_BYTES) == 0)
        return LS_OK;
    return lsi_fail(LS_ERR_PROTOCOL, "do both sides run the same version?", "handshake",
                    "%s does not speak this protocol", who);
}

static ls_status check_mac(const lsi_auth *auth, const char *label, const uint8_t *shown,
                           const char *who)
{
    uint8_t wanted[LSI_AUTH_MAC_BYTES];
    LSI_TRY(mac(auth, label, wanted));
    int differs = CRYPTO_memcmp(wanted, shown, LSI_AUTH_MAC_BYTES);
    OPENSSL_cleanse(wanted, sizeof wanted);
    if (differs)
        return lsi_fail(LS_ERR_AUTH, "give both sides the same key file", "handshake",
                        "%s does not hold this run's key", who);
    return LS_OK;
}

/* One message, to its end if the socket allows. */
static ls_status exchange(lsi_auth *auth, const char *who)
{
    ls_status status;
    switch (auth->step) {
    case HELLO:
        status = move(auth, auth->hello, LSI_AUTH_HELLO_BYTES, who);
        if (auth->is_server && status >= LS_OK)
            LSI_TRY(check_hello(auth, status == LS_OK ? LSI_AUTH_HELLO_BYTES : auth->done, who));
        if (auth->is_server && status == LS_OK)
            LSI_TRY(mac(auth, server_label, auth->answer + LSI_AUTH_NONCE_BYTES));
        return status;
    case ANSWER:
        LSI_TRY(move(auth, auth->answer, sizeof auth->answer, who));
        if (auth->is_server)
            return LS_OK;
        LSI_TRY(check_mac(auth, server_label, auth->answer + LSI_AUTH_NONCE_BYTES, who));
        return mac(auth, client_label, auth->proof);
    case PROOF:
        LSI_TRY(move(auth, auth->proof, sizeof auth->proof, who));
        return auth->is_server ? check_mac(auth, client_label, auth->proof, who) : LS_OK;
    default:
        return lsi_fail(LS_ERR_AUTH, NULL, "handshake", "the handshake with %s failed before", who);
    }
}

static ls_status step(lsi_auth *auth, const char *who)
{
    while (auth->step != DONE) {
        ls_status status = exchange(auth, who);
        if (status == LS_IN_PROGRESS)
            return status;
        if (status != LS_OK) {
            auth->step = FAILED;
            return status;
        }
        auth->step++;
    }
    return LS_OK;
}

ls_status lsi_auth_step(lsi_auth *auth)
{
    return step(auth, "the peer");
}

ls_status lsi_auth_run(lsi_auth *auth, double deadline, const char *who)
{
    for (;;) {
        ls_status status = step(auth, who);
        if (status != LS_IN_PROGRESS)
            return status;
        status = lsi_net_wait(auth->fd, lsi_auth_wants_write(auth) ? POLLOUT : POLLIN, deadline);
        if (status == LS_IN_PROGRESS) {
            auth->step = FAILED;
            return lsi_fail(LS_ERR_TIMEOUT, "is that side alive, and a Lockstep of this version?",
                            "handshake", "%s did not finish it before the deadline", who);
        }
        LSI_TRY(status);
    }
}

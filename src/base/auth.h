/* The run's key, and the handshake that opens every connection.
 *
 * Both sides prove that they hold the key before anything else is said; a side that cannot is
 * dropped without a word. Three fixed-size messages (C client, S server, nonces of 32 bytes):
 *
 *     C -> S   magic, version, purpose, nonce_c, identity (16 bytes that the purpose defines)
 *     S -> C   nonce_s, HMAC-SHA256(key, "lockstep server" | transcript)
 *     C -> S   HMAC-SHA256(key, "lockstep client" | transcript)
 *
 * where transcript = first message | nonce_s. The identity is covered by the MACs: a replayed or
 * spliced handshake fails. Encryption will be added in this file and nowhere else.
 *
 * The state machine never blocks: drive it when the socket is ready, drop it at its deadline.
 */
#ifndef LSI_BASE_AUTH_H
#define LSI_BASE_AUTH_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#define LSI_KEY_BYTES 32
#define LSI_AUTH_NONCE_BYTES 32
#define LSI_AUTH_MAC_BYTES 32
#define LSI_AUTH_IDENTITY_BYTES 16
#define LSI_AUTH_HELLO_BYTES (8 + LSI_AUTH_NONCE_BYTES + LSI_AUTH_IDENTITY_BYTES)
#define LSI_AUTH_DEADLINE_S 5.0

typedef struct lsi_key {
    uint8_t bytes[LSI_KEY_BYTES];
} lsi_key;

typedef enum lsi_auth_purpose { LSI_AUTH_STORE = 1, LSI_AUTH_RANK = 2 } lsi_auth_purpose;

typedef struct lsi_auth {
    int fd;
    int is_server;
    int step;
    lsi_auth_purpose purpose;
    const lsi_key *key; /* borrowed */
    size_t done;        /* bytes of the current message moved so far */
    uint8_t hello[LSI_AUTH_HELLO_BYTES];
    uint8_t answer[LSI_AUTH_NONCE_BYTES + LSI_AUTH_MAC_BYTES];
    uint8_t proof[LSI_AUTH_MAC_BYTES];
} lsi_auth;

/* A fresh random key. */
ls_status lsi_key_generate(lsi_key *key);
/* 64 hexadecimal digits in a file of mode 0600; create fails if the file exists. */
ls_status lsi_key_save(const lsi_key *key, const char *path);
/* Path, or "-" for standard input. Refuses a file that others may open, or that holds anything
 * else: LS_ERR_CONFIG. No such file: LS_ERR_NOT_FOUND. */
ls_status lsi_key_load(const char *path, lsi_key *key);

/* Begin on a connected non-blocking socket (borrowed). The client's identity is 16 bytes. */
ls_status lsi_auth_client(lsi_auth *auth, int fd, const lsi_key *key, lsi_auth_purpose purpose,
                          const uint8_t identity[LSI_AUTH_IDENTITY_BYTES]);
ls_status lsi_auth_server(lsi_auth *auth, int fd, const lsi_key *key, lsi_auth_purpose purpose);
/* Move on: LS_IN_PROGRESS (wait for lsi_auth_wants_write ? POLLOUT : POLLIN), LS_OK when both
 * sides are proven, LS_ERR_AUTH, LS_ERR_PROTOCOL or LS_ERR_PEER_DEAD. Never reads past its own
 * bytes. A handshake that failed stays failed (LS_ERR_AUTH): close the connection. */
ls_status lsi_auth_step(lsi_auth *auth);
int lsi_auth_wants_write(const lsi_auth *auth);
/* The server's view of who the (proven) client is: LSI_AUTH_IDENTITY_BYTES within `auth`. */
const uint8_t *lsi_auth_identity(const lsi_auth *auth);
/* Drive to the end, waiting until `deadline` (lsi_now() seconds), then LS_ERR_TIMEOUT. `who` names
 * the peer in errors. */
ls_status lsi_auth_run(lsi_auth *auth, double deadline, const char *who);

#endif

/* The bytes between a store client and the server: requests, answers, events.
 *
 * The server's first byte after the handshake, LSI_STORE_WELCOME, says that the client is a member
 * now: until then it may be dropped to make room for another stranger. After that every message is
 * one frame of the same form, little endian:
 *
 *      0  u32  bytes that follow this field: 24 + key + value
 *      4  u32  id: the request's number, repeated by its answer; 0 in events
 *      8  u8   op
 *      9  u8   status: 0, or a negative ls_status without its sign; answers only
 *     10  u16  bytes of the key
 *     12  u64  version
 *     20  u64  number: what the op says
 *     28       key, then value
 *
 *     op      key     value  version   number             answered with
 *     GET     key                                         value, version
 *     PUT     key     value            lease or 0         version
 *     CAS     key     value  expected  lease or 0         version (of a conflict: the present one)
 *     REMOVE  key
 *     LEASE                            time to live, ms   number = lease
 *     KEEP                             lease
 *     REVOKE                           lease
 *     WATCH   prefix                                      after the events of the existing keys
 *     WAIT    key                      time-out, ms       as GET, when the key is there; at most
 *                                                         one a client, a later WAIT ends it
 *     ANSWER          value  version   number             (a status other than 0: no value)
 *     EVENT   key     value  version   1: deleted, 0: set
 *
 * Invariants:
 * 1. Decoding is a pure function of the bytes. It accepts exactly what encoding can produce: every
 *    field that an op does not use must be 0, every used one lies within its limits.
 * 2. A length that is too large is refused as soon as its four bytes are there.
 */
#ifndef LSI_STORE_PROTOCOL_H
#define LSI_STORE_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "store/buffer.h"
#include "store/store.h"

#define LSI_STORE_WELCOME 0x77
#include <lockstep/status.h>

#define LSI_STORE_HEAD_BYTES 28
#define LSI_STORE_FRAME_MAX (LSI_STORE_HEAD_BYTES + LSI_STORE_KEY_MAX + LSI_STORE_VALUE_MAX)
#define LSI_STORE_MS_MAX 2592000000u /* 30 days */

typedef enum lsi_store_op {
    LSI_STORE_GET = 1,
    LSI_STORE_PUT,
    LSI_STORE_CAS,
    LSI_STORE_REMOVE,
    LSI_STORE_LEASE,
    LSI_STORE_KEEP,
    LSI_STORE_REVOKE,
    LSI_STORE_WATCH,
    LSI_STORE_WAIT,
    LSI_STORE_ANSWER = 32,
    LSI_STORE_EVENT
} lsi_store_op;

/* Who sent the bytes: a client may only send requests, a server only answers and events. */
typedef enum lsi_store_sender { LSI_STORE_CLIENT, LSI_STORE_SERVER } lsi_store_sender;

typedef struct lsi_store_message {
    uint32_t id;
    lsi_store_op op;
    ls_status status;
    uint64_t version;
    uint64_t number;
    size_t bytes;         /* of the value */
    const uint8_t *value; /* borrowed; decoded: points into the frame */
    char key[LSI_STORE_KEY_MAX + 1];
} lsi_store_message;

/* Whether `bytes` characters make a key (or, with 0 bytes allowed by the caller, a prefix). */
int lsi_store_key_valid(const char *key, size_t bytes);
/* Append one frame. LS_ERR_INVALID for a message that the table above does not allow; `out` is
 * unchanged on failure. */
ls_status lsi_store_encode(const lsi_store_message *message, lsi_buffer *out);
/* Look at the first frame of `data`: LS_OK (then *frame_bytes is its size), LS_IN_PROGRESS when it
 * is not complete, LS_ERR_PROTOCOL when it never will be right. */
ls_status lsi_store_decode(lsi_store_sender sender, const uint8_t *data, size_t bytes,
                           lsi_store_message *message, size_t *frame_bytes);
/* For clients: the event at the front of a queue of frames, *shown bytes of it. */
ls_status lsi_store_show(const lsi_buffer *events, size_t *shown, lsi_store_event *event);

#endif

/* The message header, as it travels on every stream between two ranks.
 *
 * 64 bytes, little endian, followed by `bytes` of payload:
 *
 *      0  magic    u32     8  comm  u32    16  seq    u64    32  call  16 bytes
 *      4  type     u8     12  tag   u32    24  bytes  u64    48  payload check u32
 *      5  flags    u8                                        52  whole u64
 *      6  part     u8                                        60  header check u32
 *      7  reserved
 *
 * Invariants:
 * 1. A header whose magic, type, flags, part, reserved byte or check are wrong is never acted upon.
 * 2. `call` says what the sender is doing, so that the receiver can tell a mismatched call from a
 *    message, and say who called what.
 * 3. A large message travels in parts (port_parts.c): `whole` is the bytes of all of them together,
 *    `bytes` those of this one, the part-th. Both are 0 in a message that is not cut.
 */
#ifndef LSI_TRANSPORT_WIRE_H
#define LSI_TRANSPORT_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

#define LSI_WIRE_BYTES 64
#define LSI_WIRE_MAGIC 0x314d534cu /* "LSM1" */
#define LSI_WIRE_MAX_PAYLOAD ((uint64_t)1 << 40)
#define LSI_WIRE_MAX_CONTROL 4096u /* payload of every type but DATA */
#define LSI_WIRE_MAX_PARTS 16      /* of a message */

typedef enum lsi_wire_type {
    LSI_WIRE_DATA = 1, /* payload: the message */
    LSI_WIRE_REF,      /* payload: u64 offset in the host segment where the message lies */
    LSI_WIRE_ACK,      /* the REF with the same (comm, seq, tag) has been read */
    LSI_WIRE_ABORT,    /* payload: text; the communicator has failed on the sender */
    LSI_WIRE_STATUS,   /* the sender has entered operation `seq`; payload "?": have you? */
    LSI_WIRE_GOODBYE,  /* the sender leaves the group in order */
    LSI_WIRE_TYPE_END
} lsi_wire_type;

#define LSI_WIRE_CHECKED 1u /* flag: the payload check is valid */

/* What a rank called: compared between ranks, printed when they differ. */
typedef struct lsi_wire_call {
    uint8_t coll, dtype, op, algorithm;
    int32_t root;
    uint64_t count;
} lsi_wire_call;

typedef struct lsi_wire {
    lsi_wire_type type;
    uint8_t flags, part;
    uint32_t comm, tag;
    uint64_t seq, bytes, whole;
    lsi_wire_call call;
    uint32_t payload_check;
} lsi_wire;

void lsi_wire_encode(const lsi_wire *wire, uint8_t out[LSI_WIRE_BYTES]);
/* LS_ERR_PROTOCOL, with what is wrong, for anything no well-behaved peer sends. */
ls_status lsi_wire_decode(const uint8_t in[LSI_WIRE_BYTES], lsi_wire *wire);
/* CRC-32 of bytes, continuing from `check` (0 at first). */
uint32_t lsi_wire_check(uint32_t check, const void *data, size_t bytes);

#endif

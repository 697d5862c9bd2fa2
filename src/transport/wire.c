/* Encoding and checking the message header. */
#include "transport/wire.h"

#include <string.h>
#include <zlib.h>

#include "base/status.h"

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const uint8_t *p)
{
    return (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32;
}

uint32_t lsi_wire_check(uint32_t check, const void *data, size_t bytes)
{
    return (uint32_t)crc32_z(check, data, bytes);
}

void lsi_wire_encode(const lsi_wire *wire, uint8_t out[LSI_WIRE_BYTES])
{
    memset(out, 0, LSI_WIRE_BYTES);
    put32(out, LSI_WIRE_MAGIC);
    out[4] = (uint8_t)wire->type;
    out[5] = wire->flags;
    out[6] = wire->part;
    put32(out + 8, wire->comm);
    put32(out + 12, wire->tag);
    put64(out + 16, wire->seq);
    put64(out + 24, wire->bytes);
    out[32] = wire->call.coll;
    out[33] = wire->call.dtype;
    out[34] = wire->call.op;
    out[35] = wire->call.algorithm;
    put32(out + 36, (uint32_t)wire->call.root);
    put64(out + 40, wire->call.count);
    put32(out + 48, wire->payload_check);
    put64(out + 52, wire->whole);
    put32(out + 60, lsi_wire_check(0, out, 60));
}

ls_status lsi_wire_decode(const uint8_t in[LSI_WIRE_BYTES], lsi_wire *wire)
{
    static const char *what = "message header";
    if (get32(in) != LSI_WIRE_MAGIC)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "magic is %08x, not %08x", get32(in),
                        LSI_WIRE_MAGIC);
    if (get32(in + 60) != lsi_wire_check(0, in, 60))
        return lsi_fail(LS_ERR_PROTOCOL, "the link corrupts data", what, "check sum differs");
    uint8_t type = in[4];
    if (type < LSI_WIRE_DATA || type >= LSI_WIRE_TYPE_END)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "unknown type %u", type);
    if (in[5] & ~LSI_WIRE_CHECKED)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "unknown flags %02x", in[5]);
    if (in[7])
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "reserved byte is not zero");
    uint64_t bytes = get64(in + 24), whole = get64(in + 52);
    uint64_t limit = type == LSI_WIRE_DATA ? LSI_WIRE_MAX_PAYLOAD : LSI_WIRE_MAX_CONTROL;
    if (bytes > limit)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "payload of %llu bytes exceeds %llu",
                        (unsigned long long)bytes, (unsigned long long)limit);
    if (whole ? type != LSI_WIRE_DATA || whole > limit || bytes >= whole : in[6] != 0)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "%llu bytes are no part %u of %llu",
                        (unsigned long long)bytes, in[6], (unsigned long long)whole);
    if (in[6] >= LSI_WIRE_MAX_PARTS)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "part %u exceeds %u", in[6],
                        LSI_WIRE_MAX_PARTS - 1);
    wire->type = (lsi_wire_type)type;
    wire->flags = in[5];
    wire->part = in[6];
    wire->comm = get32(in + 8);
    wire->tag = get32(in + 12);
    wire->seq = get64(in + 16);
    wire->bytes = bytes;
    wire->whole = whole;
    wire->call.coll = in[32];
    wire->call.dtype = in[33];
    wire->call.op = in[34];
    wire->call.algorithm = in[35];
    wire->call.root = (int32_t)get32(in + 36);
    wire->call.count = get64(in + 40);
    wire->payload_check = get32(in + 48);
    return LS_OK;
}

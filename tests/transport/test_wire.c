/* The message header: every field there and back, every flipped bit noticed, nothing accepted that
 * no
 * well-behaved peer sends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "transport/wire.h"

static uint64_t state = 1;

static uint64_t draw(void) /* splitmix64 */
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static lsi_wire make(lsi_wire_type type)
{
    lsi_wire w = {.type = type, .flags = draw() & LSI_WIRE_CHECKED};
    w.comm = (uint32_t)draw();
    w.tag = (uint32_t)draw();
    w.seq = draw();
    w.bytes = draw() % ((type == LSI_WIRE_DATA ? LSI_WIRE_MAX_PAYLOAD : LSI_WIRE_MAX_CONTROL) + 1);
    if (type == LSI_WIRE_DATA && w.bytes < LSI_WIRE_MAX_PAYLOAD && draw() % 2) {
        w.part = (uint8_t)(draw() % LSI_WIRE_MAX_PARTS);
        w.whole = w.bytes + 1 + draw() % (LSI_WIRE_MAX_PAYLOAD - w.bytes);
    }
    w.call.coll = (uint8_t)draw();
    w.call.dtype = (uint8_t)draw();
    w.call.op = (uint8_t)draw();
    w.call.algorithm = (uint8_t)draw();
    w.call.root = (int32_t)draw();
    w.call.count = draw();
    w.payload_check = (uint32_t)draw();
    return w;
}

static void assert_same(const lsi_wire *a, const lsi_wire *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->part, b->part);
    assert_true(a->whole == b->whole);
    assert_int_equal(a->comm, b->comm);
    assert_int_equal(a->tag, b->tag);
    assert_true(a->seq == b->seq);
    assert_true(a->bytes == b->bytes);
    assert_int_equal(a->call.coll, b->call.coll);
    assert_int_equal(a->call.dtype, b->call.dtype);
    assert_int_equal(a->call.op, b->call.op);
    assert_int_equal(a->call.algorithm, b->call.algorithm);
    assert_int_equal(a->call.root, b->call.root);
    assert_true(a->call.count == b->call.count);
    assert_int_equal(a->payload_check, b->payload_check);
}

static void test_there_and_back(void **unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[LSI_WIRE_BYTES], again[LSI_WIRE_BYTES];
        lsi_wire in = make((lsi_wire_type)(1 + i % (LSI_WIRE_TYPE_END - 1))), out;
        lsi_wire_encode(&in, bytes);
        assert_int_equal(lsi_wire_decode(bytes, &out), LS_OK);
        assert_same(&in, &out);
        lsi_wire_encode(&out, again);
        assert_memory_equal(bytes, again, sizeof bytes);
    }
}

/* The layout is a promise to other versions of this program. */
static void test_layout(void **unused)
{
    (void)unused;
    static const uint8_t expected[60] = {'L',  'S',  'M',  '1',  1,    1,    0,    0,    0x44, 0x33,
                                         0x22, 0x11, 0x88, 0x77, 0x66, 0x55, 8,    7,    6,    5,
                                         4,    3,    2,    1,    0,    0,    1,    0,    0,    0,
                                         0,    0,    9,    10,   11,   12,   0xfe, 0xff, 0xff, 0xff,
                                         0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe, 0xef, 0xbe,
                                         0xad, 0xde, 0,    0,    0,    0,    0,    0,    0,    0};
    lsi_wire w = {.type = LSI_WIRE_DATA,
                  .flags = LSI_WIRE_CHECKED,
                  .comm = 0x11223344,
                  .tag = 0x55667788,
                  .seq = 0x0102030405060708,
                  .bytes = 0x10000,
                  .call = {9, 10, 11, 12, -2, 0xfedcba9876543210},
                  .payload_check = 0xdeadbeef};
    uint8_t bytes[LSI_WIRE_BYTES];
    lsi_wire_encode(&w, bytes);
    assert_memory_equal(bytes, expected, sizeof expected);
    uint32_t check = lsi_wire_check(0, bytes, 60);
    for (int i = 0; i < 4; i++)
        assert_int_equal(bytes[60 + i], (uint8_t)(check >> (8 * i)));
}

static void test_flips(void **unused)
{
    (void)unused;
    for (int i = 0; i < 50; i++) {
        uint8_t bytes[LSI_WIRE_BYTES];
        lsi_wire in = make((lsi_wire_type)(1 + i % (LSI_WIRE_TYPE_END - 1))), out;
        lsi_wire_encode(&in, bytes);
        for (int bit = 0; bit < 8 * LSI_WIRE_BYTES; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(lsi_wire_decode(bytes, &out), LS_ERR_PROTOCOL);
            assert_non_null(strstr(ls_last_error(), "message header"));
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
}

/* Change a byte and put the check right again: what the check cannot see is refused by itself. */
static ls_status decode_changed(const lsi_wire *w, int at, uint8_t value)
{
    uint8_t bytes[LSI_WIRE_BYTES];
    lsi_wire out;
    lsi_wire_encode(w, bytes);
    bytes[at] = value;
    uint32_t check = lsi_wire_check(0, bytes, 60);
    for (int i = 0; i < 4; i++)
        bytes[60 + i] = (uint8_t)(check >> (8 * i));
    return lsi_wire_decode(bytes, &out);
}

static void test_nonsense(void **unused)
{
    (void)unused;
    lsi_wire w = make(LSI_WIRE_DATA);
    w.bytes = w.whole = w.part = 0;
    for (int type = 0; type < 256; type++) {
        int known = type >= LSI_WIRE_DATA && type < LSI_WIRE_TYPE_END;
        assert_int_equal(decode_changed(&w, 4, (uint8_t)type), known ? LS_OK : LS_ERR_PROTOCOL);
    }
    for (int flags = 0; flags < 256; flags++)
        assert_int_equal(decode_changed(&w, 5, (uint8_t)flags),
                         flags & ~(int)LSI_WIRE_CHECKED ? LS_ERR_PROTOCOL : LS_OK);
    assert_int_equal(decode_changed(&w, 7, 1), LS_ERR_PROTOCOL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(decode_changed(&w, i, 0), LS_ERR_PROTOCOL);
}

/* A part is one of at most 16 of a message that is longer than it, and only data has parts. */
static void test_parts(void **unused)
{
    (void)unused;
    lsi_wire w = {.type = LSI_WIRE_DATA, .bytes = 100, .whole = 101};
    for (int part = 0; part < 256; part++)
        assert_int_equal(decode_changed(&w, 6, (uint8_t)part),
                         part < LSI_WIRE_MAX_PARTS ? LS_OK : LS_ERR_PROTOCOL);
    for (int whole = 0; whole < 102; whole++)
        assert_int_equal(decode_changed(&w, 52, (uint8_t)whole),
                         whole == 0 || whole == 101 ? LS_OK : LS_ERR_PROTOCOL);
    for (int type = LSI_WIRE_DATA + 1; type < LSI_WIRE_TYPE_END; type++)
        assert_int_equal(decode_changed(&w, 4, (uint8_t)type), LS_ERR_PROTOCOL);
    assert_int_equal(decode_changed(&w, 57, 2), LS_ERR_PROTOCOL); /* 2^41 bytes */
    w.part = 3;
    assert_int_equal(decode_changed(&w, 52, 0), LS_ERR_PROTOCOL);
}

static void test_lengths(void **unused)
{
    (void)unused;
    for (int type = LSI_WIRE_DATA; type < LSI_WIRE_TYPE_END; type++) {
        uint8_t bytes[LSI_WIRE_BYTES];
        uint64_t limit = type == LSI_WIRE_DATA ? LSI_WIRE_MAX_PAYLOAD : LSI_WIRE_MAX_CONTROL;
        lsi_wire w = make((lsi_wire_type)type), out;
        w.part = 0;
        w.whole = 0;
        w.bytes = limit;
        lsi_wire_encode(&w, bytes);
        assert_int_equal(lsi_wire_decode(bytes, &out), LS_OK);
        w.bytes = limit + 1;
        lsi_wire_encode(&w, bytes);
        assert_int_equal(lsi_wire_decode(bytes, &out), LS_ERR_PROTOCOL);
        w.bytes = UINT64_MAX;
        lsi_wire_encode(&w, bytes);
        assert_int_equal(lsi_wire_decode(bytes, &out), LS_ERR_PROTOCOL);
    }
}

/* A failed decode leaves the output alone. */
static void test_output_on_failure(void **unused)
{
    (void)unused;
    uint8_t zeros[LSI_WIRE_BYTES] = {0};
    lsi_wire out = make(LSI_WIRE_ACK), before = out;
    assert_int_equal(lsi_wire_decode(zeros, &out), LS_ERR_PROTOCOL);
    assert_same(&out, &before);
}

static void test_check(void **unused)
{
    (void)unused;
    assert_int_equal(lsi_wire_check(0, "123456789", 9), 0xcbf43926); /* CRC-32's own test */
    uint32_t parts = lsi_wire_check(lsi_wire_check(0, "1234", 4), "56789", 5);
    assert_int_equal(parts, 0xcbf43926);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_layout),
        cmocka_unit_test(test_flips),          cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_parts),          cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_check),          cmocka_unit_test(test_output_on_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

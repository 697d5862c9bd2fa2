/* Frames: what is encoded is decoded; every field outside its limits is refused by both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "store/protocol.h"

/* One valid message of each op. */
static const lsi_store_message samples[] = {
    {.id = 1, .op = LSI_STORE_GET, .key = "a/key"},
    {.id = 2, .op = LSI_STORE_PUT, .key = "k", .value = (const uint8_t *)"xyz", .bytes = 3},
    {.id = 3, .op = LSI_STORE_PUT, .key = "k", .number = UINT64_MAX},
    {.id = 4, .op = LSI_STORE_CAS, .key = "k", .version = 1ull << 40, .number = 7},
    {.id = 5, .op = LSI_STORE_REMOVE, .key = "~!"},
    {.id = 6, .op = LSI_STORE_LEASE, .number = 1},
    {.id = 7, .op = LSI_STORE_LEASE, .number = LSI_STORE_MS_MAX},
    {.id = 8, .op = LSI_STORE_KEEP, .number = 3},
    {.id = 9, .op = LSI_STORE_REVOKE, .number = 3},
    {.id = 10, .op = LSI_STORE_WATCH, .key = ""},
    {.id = 11, .op = LSI_STORE_WATCH, .key = "a/"},
    {.id = UINT32_MAX, .op = LSI_STORE_WAIT, .key = "k", .number = 0},
    {.id = 13, .op = LSI_STORE_ANSWER, .version = 9, .value = (const uint8_t *)"", .bytes = 1},
    {.id = 14, .op = LSI_STORE_ANSWER, .status = LS_ERR_CONFLICT, .version = 9},
    {.id = 0, .op = LSI_STORE_EVENT, .key = "k", .version = 4, .number = 1},
    {.id = 0,
     .op = LSI_STORE_EVENT,
     .key = "k",
     .version = 4,
     .value = (const uint8_t *)"v",
     .bytes = 1},
};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

static lsi_store_sender sender_of(const lsi_store_message *m)
{
    return m->op >= LSI_STORE_ANSWER ? LSI_STORE_SERVER : LSI_STORE_CLIENT;
}

static void assert_same(const lsi_store_message *a, const lsi_store_message *b)
{
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->op, b->op);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->number, b->number);
    assert_string_equal(a->key, b->key);
    assert_int_equal(a->bytes, b->bytes);
    if (a->bytes > 0)
        assert_memory_equal(a->value, b->value, a->bytes);
}

static void round_trip(void **state)
{
    (void)state;
    lsi_buffer all = {0};
    for (int i = 0; i < SAMPLES; i++) {
        lsi_buffer one = {0};
        lsi_store_message back;
        size_t frame = 0;
        assert_int_equal(lsi_store_encode(&samples[i], &one), LS_OK);
        lsi_store_sender sender = sender_of(&samples[i]);
        /* every beginning is incomplete, never wrong, never read past */
        for (size_t n = 0; n < one.used; n++) {
            uint8_t *cut = malloc(n + 1);
            memcpy(cut, lsi_buffer_front(&one), n);
            assert_int_equal(lsi_store_decode(sender, cut, n, &back, &frame), LS_IN_PROGRESS);
            free(cut);
        }
        assert_int_equal(lsi_store_decode(sender, lsi_buffer_front(&one), one.used, &back, &frame),
                         LS_OK);
        assert_int_equal(frame, one.used);
        assert_same(&samples[i], &back);
        /* the other side may not send it */
        assert_int_equal(lsi_store_decode(!sender, lsi_buffer_front(&one), one.used, &back, &frame),
                         LS_ERR_PROTOCOL);
        assert_int_equal(lsi_buffer_append(&all, lsi_buffer_front(&one), one.used), LS_OK);
        lsi_buffer_free(&one);
    }
    for (int i = 0; i < SAMPLES; i++) { /* back to back */
        lsi_store_message back;
        size_t frame;
        assert_int_equal(lsi_store_decode(sender_of(&samples[i]), lsi_buffer_front(&all), all.used,
                                          &back, &frame),
                         LS_OK);
        assert_same(&samples[i], &back);
        lsi_buffer_drop(&all, frame);
    }
    assert_int_equal(all.used, 0);
    lsi_buffer_free(&all);
}

static void bad_messages_are_not_encoded(void **state)
{
    (void)state;
    static const lsi_store_message bad[] = {
        {.id = 0, .op = LSI_STORE_GET, .key = "k"},
        {.id = 1, .op = LSI_STORE_GET, .key = ""},
        {.id = 1, .op = LSI_STORE_GET, .key = "a b"},
        {.id = 1, .op = LSI_STORE_GET, .key = "\x7f"},
        {.id = 1, .op = LSI_STORE_GET, .key = "\xc3\xa9"},
        {.id = 1, .op = LSI_STORE_GET, .key = "k", .version = 1},
        {.id = 1, .op = LSI_STORE_GET, .key = "k", .number = 1},
        {.id = 1, .op = LSI_STORE_GET, .key = "k", .value = (const uint8_t *)"v", .bytes = 1},
        {.id = 1, .op = LSI_STORE_GET, .key = "k", .status = LS_ERR_TIMEOUT},
        {.id = 1, .op = LSI_STORE_PUT, .key = "k", .bytes = LSI_STORE_VALUE_MAX + 1},
        {.id = 1, .op = LSI_STORE_LEASE, .number = 0},
        {.id = 1, .op = LSI_STORE_LEASE, .number = (uint64_t)LSI_STORE_MS_MAX + 1},
        {.id = 1, .op = LSI_STORE_LEASE, .number = 5, .key = "k"},
        {.id = 1, .op = LSI_STORE_KEEP, .number = 0},
        {.id = 1, .op = LSI_STORE_WAIT, .key = "k", .number = (uint64_t)LSI_STORE_MS_MAX + 1},
        {.id = 1, .op = LSI_STORE_ANSWER, .status = LS_IN_PROGRESS},
        {.id = 1, .op = LSI_STORE_ANSWER, .status = (ls_status)-5},
        {.id = 1,
         .op = LSI_STORE_ANSWER,
         .status = LS_ERR_NOT_FOUND,
         .value = (const uint8_t *)"v",
         .bytes = 1},
        {.id = 1, .op = LSI_STORE_EVENT, .key = "k", .version = 1},
        {.id = 0, .op = LSI_STORE_EVENT, .key = "k", .version = 0},
        {.id = 0, .op = LSI_STORE_EVENT, .key = "k", .version = 1, .number = 2},
        {.id = 0,
         .op = LSI_STORE_EVENT,
         .key = "k",
         .version = 1,
         .number = 1,
         .value = (const uint8_t *)"v",
         .bytes = 1},
        {.id = 1, .op = (lsi_store_op)0, .key = "k"},
        {.id = 1, .op = (lsi_store_op)(LSI_STORE_WAIT + 1), .key = "k"},
        {.id = 1, .op = (lsi_store_op)(LSI_STORE_EVENT + 1), .key = "k"},
        {.id = 1, .op = (lsi_store_op)1000, .key = "k"},
    };
    lsi_buffer out = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (lsi_store_encode(&bad[i], &out) != LS_ERR_INVALID)
            fail_msg("message %zu was encoded", i);
        assert_int_equal(out.used, 0);
    }
    lsi_store_message endless = {.id = 1, .op = LSI_STORE_GET};
    memset(endless.key, 'k', sizeof endless.key);
    assert_int_equal(lsi_store_encode(&endless, &out), LS_ERR_INVALID);
    endless.key[LSI_STORE_KEY_MAX] = '\0';
    assert_int_equal(lsi_store_encode(&endless, &out), LS_OK);
    lsi_buffer_free(&out);
}

/* Decode a GET of "key" after one byte was set. */
static ls_status decode_with(size_t at, uint8_t value)
{
    lsi_buffer b = {0};
    lsi_store_message m = {.id = 1, .op = LSI_STORE_GET, .key = "key"};
    size_t frame;
    assert_int_equal(lsi_store_encode(&m, &b), LS_OK);
    b.data[b.head + at] = value;
    ls_status status = lsi_store_decode(LSI_STORE_CLIENT, lsi_buffer_front(&b), b.used, &m, &frame);
    lsi_buffer_free(&b);
    return status;
}

static void bad_frames_are_refused(void **state)
{
    (void)state;
    assert_int_equal(decode_with(4, 1), LS_OK);           /* nothing changed */
    assert_int_equal(decode_with(4, 0), LS_ERR_PROTOCOL); /* id 0 */
    assert_int_equal(decode_with(8, 0), LS_ERR_PROTOCOL); /* ops */
    assert_int_equal(decode_with(8, 10), LS_ERR_PROTOCOL);
    assert_int_equal(decode_with(8, 33), LS_ERR_PROTOCOL); /* the server's */
    assert_int_equal(decode_with(8, 255), LS_ERR_PROTOCOL);
    assert_int_equal(decode_with(9, 1), LS_ERR_PROTOCOL);  /* status */
    assert_int_equal(decode_with(10, 2), LS_ERR_PROTOCOL); /* shorter key: a GET with a value */
    assert_int_equal(decode_with(10, 4), LS_ERR_PROTOCOL); /* longer than the frame */
    assert_int_equal(decode_with(11, 1), LS_ERR_PROTOCOL);
    assert_int_equal(decode_with(12, 1), LS_ERR_PROTOCOL); /* version */
    assert_int_equal(decode_with(27, 1), LS_ERR_PROTOCOL); /* number */
    assert_int_equal(decode_with(28, 0), LS_ERR_PROTOCOL); /* key with NUL */
    assert_int_equal(decode_with(30, ' '), LS_ERR_PROTOCOL);
    assert_int_equal(decode_with(0, 23), LS_ERR_PROTOCOL); /* shorter than its head */
    assert_int_equal(decode_with(0, 28), LS_IN_PROGRESS);
}

/* A key longer than its frame; a sanitizer sees what is read past the end of the block. */
static void a_key_ends_with_its_frame(void **state)
{
    (void)state;
    lsi_buffer b = {0};
    lsi_store_message m = {.id = 1, .op = LSI_STORE_PUT, .key = "key"};
    size_t frame;
    assert_int_equal(lsi_store_encode(&m, &b), LS_OK);
    uint8_t *exact = malloc(b.used);
    memcpy(exact, lsi_buffer_front(&b), b.used);
    assert_int_equal(lsi_store_decode(LSI_STORE_CLIENT, exact, b.used, &m, &frame), LS_OK);
    exact[10] = LSI_STORE_KEY_MAX;
    assert_int_equal(lsi_store_decode(LSI_STORE_CLIENT, exact, b.used, &m, &frame),
                     LS_ERR_PROTOCOL);
    free(exact);
    lsi_buffer_free(&b);
}

static void too_long_is_refused_by_its_length_alone(void **state)
{
    (void)state;
    lsi_store_message m;
    size_t frame;
    const uint8_t endless[4] = {0xff, 0xff, 0xff, 0xff};
    assert_int_equal(lsi_store_decode(LSI_STORE_CLIENT, endless, 4, &m, &frame), LS_ERR_PROTOCOL);
    uint32_t most = LSI_STORE_FRAME_MAX - 4;
    for (uint32_t n = most; n <= most + 1; n++) {
        uint8_t head[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
        assert_int_equal(lsi_store_decode(LSI_STORE_CLIENT, head, 4, &m, &frame),
                         n == most ? LS_IN_PROGRESS : LS_ERR_PROTOCOL);
    }
    /* another protocol's bytes are refused at the ninth */
    const uint8_t http[9] = {0x40, 0, 0, 0, 0, 0, 0, 0, '/'};
    assert_int_equal(lsi_store_decode(LSI_STORE_CLIENT, http, 8, &m, &frame), LS_IN_PROGRESS);
    assert_int_equal(lsi_store_decode(LSI_STORE_CLIENT, http, 9, &m, &frame), LS_ERR_PROTOCOL);
}

/* Whatever is decoded can be encoded again to the same bytes. */
static void decoding_inverts_encoding(void **state)
{
    (void)state;
    srand(99);
    int accepted = 0;
    for (int i = 0; i < 200000; i++) {
        lsi_buffer one = {0}, two = {0};
        const lsi_store_message *sample = &samples[rand() % SAMPLES];
        lsi_store_message m;
        size_t frame;
        assert_int_equal(lsi_store_encode(sample, &one), LS_OK);
        for (int n = rand() % 3; n >= 0; n--)
            one.data[one.head + (size_t)rand() % one.used] = (uint8_t)(rand() >> 7);
        if (lsi_store_decode(sender_of(sample), lsi_buffer_front(&one), one.used, &m, &frame) ==
            LS_OK) {
            accepted++;
            assert_int_equal(lsi_store_encode(&m, &two), LS_OK);
            assert_int_equal(two.used, frame);
            assert_memory_equal(lsi_buffer_front(&one), lsi_buffer_front(&two), frame);
        }
        lsi_buffer_free(&one);
        lsi_buffer_free(&two);
    }
    assert_true(accepted > 1000);
}

/* The buffer below it all: against a plain array. */
static void buffer_keeps_bytes(void **state)
{
    (void)state;
    srand(7);
    lsi_buffer b = {0};
    uint32_t in = 0, out = 0;
    for (int i = 0; i < 20000; i++) {
        uint8_t chunk[97];
        size_t n = (size_t)rand() % sizeof chunk;
        if (rand() % 200 == 0)
            n = 0;
        for (size_t k = 0; k < n; k++)
            chunk[k] = (uint8_t)(in++ * 131);
        assert_int_equal(lsi_buffer_append(&b, chunk, n), LS_OK);
        size_t take = rand() % 50 == 0 ? b.used : (size_t)rand() % (b.used + 1) / 2;
        for (size_t k = 0; k < take; k++)
            assert_int_equal(lsi_buffer_front(&b)[k], (uint8_t)(out++ * 131));
        lsi_buffer_drop(&b, take);
        assert_int_equal(b.used, in - out);
        if (b.used == 0)
            assert_true(b.capacity <= LSI_BUFFER_IDLE_BYTES);
    }
    assert_int_equal(lsi_buffer_reserve(&b, SIZE_MAX / 2, &(uint8_t *){NULL}), LS_ERR_NOMEM);
    lsi_buffer_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(bad_messages_are_not_encoded),
        cmocka_unit_test(bad_frames_are_refused),
        cmocka_unit_test(a_key_ends_with_its_frame),
        cmocka_unit_test(too_long_is_refused_by_its_length_alone),
        cmocka_unit_test(decoding_inverts_encoding),
        cmocka_unit_test(buffer_keeps_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

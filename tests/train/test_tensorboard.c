/* Event files of TensorBoard, read back by a reader of their own: framing, checksums, fields. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "state.h"
#include "train/tensorboard.h"

typedef struct event {
    double time;
    uint64_t step;
    char version[32];
    int start; /* a session begins */
    int scalars;
    char tags[8][64];
    float values[8];
} event;

static uint64_t varint(const unsigned char **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        const unsigned char c = *(*at)++;
        value |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            return value;
    }
}

static void read_value(const unsigned char *at, const unsigned char *end, event *e)
{
    while (at < end) {
        const uint64_t key = varint(&at);
        if (key == (1 << 3 | 2)) {
            const uint64_t length = varint(&at);
            snprintf(e->tags[e->scalars], 64, "%.*s", (int)length, (const char *)at);
            at += length;
        } else {
            assert_int_equal(key, 2 << 3 | 5);
            memcpy(&e->values[e->scalars], at, 4);
            at += 4;
        }
    }
    e->scalars++;
    assert_ptr_equal(at, end);
}

static void read_event(const unsigned char *at, const unsigned char *end, event *e)
{
    *e = (event){.step = 0};
    while (at < end) {
        const uint64_t key = varint(&at);
        if (key == (1 << 3 | 1)) {
            memcpy(&e->time, at, 8);
            at += 8;
            continue;
        }
        const uint64_t value = varint(&at);
        switch (key) {
        case 2 << 3: e->step = value; continue;
        case 3 << 3 | 2: snprintf(e->version, 32, "%.*s", (int)value, (const char *)at); break;
        case 7 << 3 | 2: e->start = value == 2 && at[0] == 8 && at[1] == 1; break;
        case 5 << 3 | 2:
            for (const unsigned char *s = at, *last = at + value; s < last;) {
                assert_int_equal(varint(&s), 1 << 3 | 2);
                const uint64_t length = varint(&s);
                read_value(s, s + length, e);
                s += length;
            }
            break;
        default: fail_msg("a field with key %lu", (unsigned long)key);
        }
        at += value;
    }
    assert_ptr_equal(at, end);
}

static uint32_t masked(const void *data, size_t bytes)
{
    const uint32_t crc = lsi_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static int read_events(const char *path, event *events, int room)
{
    size_t size = 0, at = 0;
    int count = 0;
    unsigned char *data = (unsigned char *)slurp(path, &size);
    while (at < size) {
        uint64_t length;
        uint32_t crc;
        assert_true(size - at >= 16 && count < room);
        memcpy(&length, data + at, 8);
        memcpy(&crc, data + at + 8, 4);
        assert_int_equal(crc, masked(data + at, 8));
        assert_true(length <= size - at - 16);
        memcpy(&crc, data + at + 12 + length, 4);
        assert_int_equal(crc, masked(data + at + 12, length));
        read_event(data + at + 12, data + at + 12 + length, &events[count++]);
        at += 16 + length;
    }
    free(data);
    return count;
}

/* RFC 3720, B.4. */
static void test_crc(void **ignored)
{
    (void)ignored;
    unsigned char bytes[32];
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(lsi_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 255, sizeof bytes);
    assert_int_equal(lsi_crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(lsi_crc32c(bytes, 32), 0x46dd794e);
    assert_int_equal(lsi_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(lsi_crc32c(NULL, 0), 0);
}

static void test_events(void **ignored)
{
    (void)ignored;
    lsi_events *e, *again;
    event events[8];
    OK(lsi_events_open(folder, 0, &e));
    OK(lsi_events_add(e, 1, (lsi_scalar[]){{"loss", 2.5}, {"lr", 1e-3}, {"none", NAN}}, 3));
    OK(lsi_events_add(e, 300000, (lsi_scalar[]){{"eval/loss", INFINITY}}, 1));
    OK(lsi_events_add(e, 300001, NULL, 0));
    assert_int_equal(read_events(lsi_events_path(e), events, 8), 4);
    assert_string_equal(events[0].version, "brain.Event:2");
    assert_true(events[0].time > 1.7e9 && events[0].time < 1e11);
    assert_int_equal(events[1].step, 1);
    assert_int_equal(events[1].scalars, 2);
    assert_string_equal(events[1].tags[0], "loss");
    assert_true(events[1].values[0] == 2.5f && events[1].values[1] == 1e-3f);
    assert_string_equal(events[1].tags[1], "lr");
    assert_int_equal(events[2].step, 300000);
    assert_string_equal(events[2].tags[0], "eval/loss");
    assert_true(isinf(events[2].values[0]));
    assert_int_equal(events[3].scalars, 0);

    OK(lsi_events_open(folder, 200, &again)); /* in the same second: a file of its own */
    assert_string_not_equal(lsi_events_path(e), lsi_events_path(again));
    assert_int_equal(read_events(lsi_events_path(again), events, 8), 2);
    assert_true(events[1].start);
    assert_int_equal(events[1].step, 200);
    assert_int_equal(events[0].start, 0);

    const lsi_scalar many[LSI_SCALARS_MAX + 1] = {{"x", 0}};
    char tag[65];
    memset(tag, 'x', 64);
    tag[64] = 0;
    assert_int_equal(lsi_events_add(e, 1, many, LSI_SCALARS_MAX + 1), LS_ERR_INVALID);
    assert_int_equal(lsi_events_add(e, 1, &(lsi_scalar){tag, 1}, 1), LS_ERR_INVALID);
    lsi_scalar all[LSI_SCALARS_MAX];
    tag[63] = 0;
    for (int i = 0; i < LSI_SCALARS_MAX; i++)
        all[i] = (lsi_scalar){tag, i};
    OK(lsi_events_add(e, UINT64_MAX >> 1, all, LSI_SCALARS_MAX)); /* the longest record */
    assert_int_equal(read_events(lsi_events_path(e), events, 8), 5);
    assert_int_equal(events[4].scalars, LSI_SCALARS_MAX);
    assert_true(events[4].values[7] == 7);
    unlink(lsi_events_path(e));
    unlink(lsi_events_path(again));
    lsi_events_close(e);
    lsi_events_close(again);
    lsi_events_close(NULL);
    assert_int_equal(lsi_events_open(path_of("no"), 0, &e), LS_ERR_SYSTEM);
    ERROR_HAS("no/events.out.tfevents");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc),
        cmocka_unit_test(test_events),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

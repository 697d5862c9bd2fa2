/* The fault transport itself: which plans it reads, and what they do to the stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "pipe_link.h"
#include "transport/fault.h"
#include "transport/wire.h"

static void test_plans(void **unused)
{
    (void)unused;
    static const char *const good[] = {"",
                                       "0>1 drop=3",
                                       "*>2 delay=5:200",
                                       "1>0 cut=4",
                                       "1>0 corrupt=2;",
                                       "  *>* short=7 ; 0>1 garble=1",
                                       "0>1 drop=3; *>2 delay=5:200",
                                       "12>250 drop=4294967295"};
    static const char *const bad[] = {"drop=3",
                                      "0>1",
                                      "0>1 drop",
                                      "0>1 drop=",
                                      "0>1 drop=0",
                                      "0>1 drop=-1",
                                      "0>1 drop=x",
                                      "0>1 drop=3:5",
                                      "0>1 delay=5",
                                      "0>1 delay=5:",
                                      "0<1 drop=3",
                                      "0>1 explode=3",
                                      "a>b drop=3",
                                      ">1 drop=3",
                                      "0> drop=3",
                                      "0>1 drop=3 and more",
                                      "0>1 drop=3, 1>0 drop=3",
                                      ";;",
                                      "0>1 drop=3; nonsense",
                                      "0>1 drop=99999999999999999999999",
                                      "*1>2 drop=3",
                                      "0**>2 drop=3"};
    assert_int_equal(lsi_fault_check(NULL), LS_OK);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (lsi_fault_check(good[i]) != LS_OK)
            fail_msg("refused '%s': %s", good[i], ls_last_error());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pipe_channel out = {0};
        lsi_link *link = &pipe_open(&out, &out, NULL)->link, *before = link;
        if (lsi_fault_check(bad[i]) != LS_ERR_CONFIG)
            fail_msg("accepted '%s'", bad[i]);
        assert_non_null(strstr(ls_last_error(), "LOCKSTEP_FAULT"));
        assert_int_equal(lsi_fault_wrap(bad[i], 0, 1, &link), LS_ERR_CONFIG);
        assert_ptr_equal(link, before); /* still ours */
        link->ops->close(link);
    }
}

/* Only the links that a plan names are wrapped. */
static void test_whose(void **unused)
{
    (void)unused;
    static const struct {
        const char *plan;
        int self, peer, wrapped;
    } cases[] = {{"0>1 drop=3", 0, 1, 1},          {"0>1 drop=3", 1, 0, 0},
                 {"0>1 drop=3", 0, 2, 0},          {"*>1 drop=3", 5, 1, 1},
                 {"*>1 drop=3", 1, 5, 0},          {"1>* drop=3", 1, 9, 1},
                 {"*>* drop=3", 3, 4, 1},          {"10>1 drop=3", 1, 1, 0},
                 {"10>1 drop=3", 10, 1, 1},        {"0>1 drop=3", 10, 11, 0},
                 {"0>1 cut=1; 2>3 cut=1", 2, 3, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pipe_channel out = {0};
        lsi_link *link = &pipe_open(&out, &out, NULL)->link, *before = link;
        assert_int_equal(lsi_fault_wrap(cases[i].plan, cases[i].self, cases[i].peer, &link), LS_OK);
        if ((link != before) != cases[i].wrapped)
            fail_msg("%s on %d>%d", cases[i].plan, cases[i].self, cases[i].peer);
        assert_string_equal(link->ops->name, cases[i].wrapped ? "fault" : "pipe");
        link->ops->close(link);
    }
}

static pipe_channel channel;
static lsi_link *sender;

static void open_sender(const char *plan)
{
    static pipe_channel nothing;
    memset(&channel, 0, sizeof channel);
    sender = &pipe_open(&channel, &nothing, NULL)->link;
    assert_int_equal(lsi_fault_wrap(plan, 0, 1, &sender), LS_OK);
}

static void close_sender(void)
{
    sender->ops->close(sender);
    free(channel.data);
}

#define PAYLOAD 100

/* Message number `n` with PAYLOAD bytes, sent as a port does: what is left is offered again. Gives
 * up after `tries`; returns the status of the last try. */
static ls_status send_message(uint32_t n, size_t payload, int tries, size_t *sent)
{
    uint8_t header[LSI_WIRE_BYTES];
    char data[PAYLOAD];
    lsi_wire w = {.type = LSI_WIRE_DATA, .tag = n, .bytes = payload};
    lsi_wire_encode(&w, header);
    memset(data, (int)n, sizeof data);
    for (*sent = 0; tries > 0 && *sent < sizeof header + payload; tries--) {
        struct iovec v[2];
        size_t moved = 0, skip = *sent > sizeof header ? *sent - sizeof header : 0;
        int k = 0;
        if (*sent < sizeof header)
            v[k++] = (struct iovec){header + *sent, sizeof header - *sent};
        if (payload > skip)
            v[k++] = (struct iovec){data + skip, payload - skip};
        ls_status status = sender->ops->send(sender, v, k, &moved);
        if (status != LS_OK)
            return status;
        *sent += moved;
    }
    return LS_OK;
}

static void send_messages(uint32_t from, uint32_t to, size_t payload)
{
    for (uint32_t n = from; n <= to; n++) {
        size_t sent;
        assert_int_equal(send_message(n, payload, 1000, &sent), LS_OK);
        assert_int_equal(sent, LSI_WIRE_BYTES + payload);
    }
}

/* Take the next message off the channel: LS_OK and its number if it is sound. */
static ls_status take(size_t payload, uint32_t *n)
{
    lsi_wire w;
    const char *at = channel.data + channel.at;
    assert_true(channel.end - channel.at >= LSI_WIRE_BYTES + payload);
    channel.at += LSI_WIRE_BYTES + payload;
    ls_status status = lsi_wire_decode((const uint8_t *)at, &w);
    if (status != LS_OK)
        return status;
    *n = w.tag;
    for (size_t i = 0; i < payload; i++)
        if (at[LSI_WIRE_BYTES + i] != (char)w.tag)
            return LS_ERR_PROTOCOL;
    return LS_OK;
}

static void test_drop(void **unused)
{
    (void)unused;
    for (size_t payload = 0; payload <= PAYLOAD; payload += PAYLOAD) {
        uint32_t n, expected[] = {1, 3, 4, 6};
        open_sender("0>1 drop=2; 0>1 drop=5");
        send_messages(1, 6, payload);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(take(payload, &n), LS_OK);
            assert_int_equal(n, expected[i]);
        }
        assert_int_equal(channel.at, channel.end);
        close_sender();
    }
}

static void test_delay(void **unused)
{
    (void)unused;
    for (size_t payload = 0; payload <= PAYLOAD; payload += PAYLOAD) {
        uint32_t n;
        size_t sent;
        open_sender("*>* delay=2:80");
        send_messages(1, 1, payload);
        double begun = lsi_now();
        assert_int_equal(send_message(2, payload, 20, &sent), LS_OK);
        assert_true(sent < LSI_WIRE_BYTES + payload); /* so the sender will ask again */
        assert_int_equal(channel.end, LSI_WIRE_BYTES + payload);
        close_sender();

        open_sender("*>* delay=2:80");
        send_messages(1, 1, payload);
        uint8_t header[LSI_WIRE_BYTES];
        char data[PAYLOAD];
        lsi_wire w = {.type = LSI_WIRE_DATA, .tag = 2, .bytes = payload};
        lsi_wire_encode(&w, header);
        memset(data, 2, sizeof data);
        begun = lsi_now();
        for (sent = 0; sent < sizeof header + payload;) {
            struct iovec v =
                sent < sizeof header
                    ? (struct iovec){header + sent, sizeof header - sent}
                    : (struct iovec){data + sent - sizeof header, payload + sizeof header - sent};
            size_t moved = 0;
            assert_int_equal(sender->ops->send(sender, &v, 1, &moved), LS_OK);
            sent += moved;
        }
        assert_true(lsi_now() - begun >= 0.079);
        send_messages(3, 4, payload);
        for (uint32_t i = 1; i <= 4; i++) {
            assert_int_equal(take(payload, &n), LS_OK);
            assert_int_equal(n, i);
        }
        close_sender();
    }
}

static void test_cut(void **unused)
{
    (void)unused;
    size_t sent;
    open_sender("0>* cut=3");
    send_messages(1, 2, PAYLOAD);
    assert_int_equal(send_message(3, PAYLOAD, 10, &sent), LS_ERR_PEER_DEAD);
    assert_int_equal(send_message(4, PAYLOAD, 10, &sent), LS_ERR_PEER_DEAD);
    assert_int_equal(channel.end, 2 * (LSI_WIRE_BYTES + PAYLOAD));
    close_sender();
}

static void test_corrupt(void **unused)
{
    (void)unused;
    uint32_t n;
    open_sender("0>1 corrupt=2");
    send_messages(1, 3, PAYLOAD);
    assert_int_equal(take(PAYLOAD, &n), LS_OK);
    assert_int_equal(take(PAYLOAD, &n), LS_ERR_PROTOCOL);
    assert_int_equal(take(PAYLOAD, &n), LS_OK);
    assert_int_equal(n, 3);
    close_sender();
}

/* Exactly one bit, and only of a message that has a payload. */
static void test_garble(void **unused)
{
    (void)unused;
    uint32_t n;
    open_sender("0>1 garble=2; 0>1 garble=3");
    send_messages(1, 2, PAYLOAD);
    send_messages(3, 3, 0);
    assert_int_equal(take(PAYLOAD, &n), LS_OK);
    int bits = 0;
    lsi_wire w;
    const char *at = channel.data + channel.at;
    assert_int_equal(lsi_wire_decode((const uint8_t *)at, &w), LS_OK);
    for (int i = 0; i < PAYLOAD; i++)
        bits += __builtin_popcount((unsigned char)(at[LSI_WIRE_BYTES + i] ^ 2));
    assert_int_equal(bits, 1);
    channel.at += LSI_WIRE_BYTES + PAYLOAD;
    assert_int_equal(take(0, &n), LS_OK);
    assert_int_equal(n, 3);
    close_sender();
}

static void test_short(void **unused)
{
    (void)unused;
    uint32_t n;
    open_sender("*>* short=7");
    send_messages(1, 20, PAYLOAD);
    send_messages(21, 40, 0);
    for (uint32_t i = 1; i <= 40; i++) {
        assert_int_equal(take(i <= 20 ? PAYLOAD : 0, &n), LS_OK);
        assert_int_equal(n, i);
    }
    assert_int_equal(channel.at, channel.end);
    close_sender();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),  cmocka_unit_test(test_whose), cmocka_unit_test(test_drop),
        cmocka_unit_test(test_delay),  cmocka_unit_test(test_cut),   cmocka_unit_test(test_corrupt),
        cmocka_unit_test(test_garble), cmocka_unit_test(test_short),
    };
    alarm(50);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

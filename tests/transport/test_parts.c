/* Large messages in parts over several lanes: what goes where is counted in the links, the order of
 * equal keys, ends that disagree, what is forgotten or lost half-way. Two ports joined by three
 * lanes whose every byte is under control. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "pipe_link.h"
#include "transport/fault.h"
#include "transport/port.h"
#include "transport/port_internal.h"

enum { LANES = 3, LEAST = 1000, MOST = 20000 };

typedef struct end {
    lsi_port *port;
    pipe_link *links[LANES];
    int differences, losses;
    lsi_wire theirs, mine;
} end;

static end ends[2];
static pipe_channel channels[2][LANES]; /* [i]: written by end i */

static ls_status on_check(void *arg, int peer, const lsi_wire *wire)
{
    (void)arg, (void)peer, (void)wire;
    return LS_OK;
}

static void on_differs(void *arg, int peer, const lsi_wire *theirs, const lsi_wire *mine)
{
    end *e = arg;
    (void)peer;
    e->differences++;
    e->theirs = *theirs;
    e->mine = *mine;
}

static void on_control(void *arg, int peer, const lsi_wire *wire, const char *text)
{
    (void)arg, (void)peer, (void)wire, (void)text;
}

static void on_lost(void *arg, int peer, int orderly, const char *text)
{
    (void)peer, (void)orderly, (void)text;
    ((end *)arg)->losses++;
}

static void open_ports(size_t least, const char *plan)
{
    alarm(100);
    memset(ends, 0, sizeof ends);
    memset(channels, 0, sizeof channels);
    for (int i = 0; i < 2; i++) {
        lsi_link *links[2 * LANES] = {NULL};
        for (int l = 0; l < LANES; l++) {
            lsi_link **link = &links[!i * LANES + l];
            ends[i].links[l] = pipe_open(&channels[i][l], &channels[!i][l], NULL);
            *link = &ends[i].links[l]->link;
            assert_int_equal(lsi_fault_wrap(plan, i, !i, link), LS_OK);
        }
        lsi_port_config config = {.self = i,
                                  .size = 2,
                                  .lanes = LANES,
                                  .links = links,
                                  .checksum = 1,
                                  .part_least = least,
                                  .events = {&ends[i], on_check, on_differs, on_control, on_lost}};
        assert_int_equal(lsi_port_create(&config, &ends[i].port), LS_OK);
    }
}

static int set_up(void **state)
{
    (void)state;
    open_ports(LEAST, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        lsi_port_destroy(ends[i].port);
        for (int l = 0; l < LANES; l++)
            free(channels[i][l].data);
    }
    return 0;
}

static lsi_xfer make(int self, uint32_t tag, void *data, size_t bytes)
{
    lsi_xfer x = {.peer = !self, .data = data};
    x.wire = (lsi_wire){.comm = 1, .tag = tag, .bytes = bytes};
    return x;
}

static void turn(int times)
{
    while (times-- > 0)
        for (int i = 0; i < 2; i++)
            lsi_port_progress(ends[i].port);
}

static void fill(char *at, int seed, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(seed * 31 + (int)(i % 253) + (int)(i / 1000));
}

static void assert_filled(const char *at, int seed, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != (char)(seed * 31 + (int)(i % 253) + (int)(i / 1000)))
            fail_msg("byte %zu of %zu differs", i, bytes);
}

/* So many bytes, so many lanes: each carries its share, and a small message only one. */
static void test_shares(void **state)
{
    (void)state;
    static const struct {
        size_t bytes;
        int lanes;
    } cases[] = {
        {1, 1},         {LEAST, 1},         {2 * LEAST - 1, 1}, {2 * LEAST, 2}, {3 * LEAST - 1, 2},
        {3 * LEAST, 3}, {7 * LEAST + 5, 3}, {MOST, 3}};
    static char out[MOST], in[MOST + 1];
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        const size_t bytes = cases[k / 2].bytes;
        const int lanes = cases[k / 2].lanes;
        lsi_xfer s = make(0, (uint32_t)k, out, bytes), r = make(1, (uint32_t)k, in, bytes);
        fill(out, (int)k, bytes);
        memset(in, 0x55, sizeof in);
        if (k & 1)
            lsi_port_recv(ends[1].port, &r);
        lsi_port_send(ends[0].port, &s);
        assert_int_equal(s.status, LS_OK); /* it is on its way */
        int used = 0;
        for (int l = 0; l < LANES; l++) {
            size_t carried = channels[0][l].end - channels[0][l].at;
            used += carried > 0;
            if (carried)
                assert_in_range(carried + 128 - LSI_WIRE_BYTES, bytes / (size_t)lanes,
                                bytes / (size_t)lanes + 256);
        }
        assert_int_equal(used, lanes);
        if (!(k & 1)) {
            turn(2);
            lsi_port_recv(ends[1].port, &r);
        }
        turn(2);
        assert_int_equal(r.status, LS_OK);
        assert_filled(in, (int)k, bytes);
        assert_int_equal(in[bytes], 0x55);
    }
}

/* Equal keys match in the order of sending, cut and whole messages among each other, however far
 * one lane is ahead of another, and with receives before, between and after. */
static void test_same_key(void **state)
{
    enum { N = 6 };
    static const size_t sizes[N] = {9000, 50, 2000, 9000, 3000, 50};
    static char out[N][9000], in[N][9000];
    for (int k = 0; k < 24; k++) {
        lsi_xfer s[N], r[N];
        for (int l = 0; l < LANES; l++) { /* each lane is the fast one in turns */
            ends[0].links[l]->send_most = l == k % 3 ? 5000 : 70;
            ends[1].links[l]->recv_most = l == k / 3 % 3 ? SIZE_MAX : 90;
        }
        for (int i = 0; i < N; i++) {
            fill(out[i], i, sizes[i]);
            s[i] = make(0, 7, out[i], sizes[i]);
            r[i] = make(1, 7, in[i], sizes[i]);
            lsi_port_send(ends[0].port, &s[i]);
        }
        for (int i = 0; i < N; i++) {
            turn(k % 4 * 20);
            lsi_port_recv(ends[1].port, &r[i]);
        }
        turn(600);
        for (int i = 0; i < N; i++) {
            assert_int_equal(s[i].status, LS_OK);
            assert_int_equal(r[i].status, LS_OK);
            assert_filled(in[i], i, sizes[i]);
        }
    }
    assert_int_equal(ends[0].differences + ends[1].differences, 0);
    (void)state;
}

/* Two who send large messages to each other, with little room on the way. */
static void test_crossing(void **state)
{
    (void)state;
    static char out[2][MOST], in[2][MOST];
    lsi_xfer s[2], r[2];
    for (int i = 0; i < 2; i++) {
        fill(out[i], i, MOST);
        for (int l = 0; l < LANES; l++)
            ends[i].links[l]->send_most = ends[i].links[l]->recv_most = 100;
        s[i] = make(i, 1, out[i], MOST);
        r[i] = make(i, 1, in[i], MOST);
        lsi_port_send(ends[i].port, &s[i]);
    }
    for (int i = 0; i < 2; i++)
        lsi_port_recv(ends[i].port, &r[i]);
    turn(1000);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s[i].status, LS_OK);
        assert_int_equal(r[i].status, LS_OK);
        assert_filled(in[i], !i, MOST);
    }
}

/* Ends that expect another length: told once, whatever is cut and whichever comes first; nothing
 * is written to the buffer of the receive after it has ended. */
static void test_differs(void **state)
{
    static const size_t sizes[][2] = {{MOST, MOST - 1}, {MOST, 50},   {50, MOST},
                                      {2000, MOST},     {MOST, 2000}, {6001, 6002},
                                      {MOST, MOST + 1}, {3000, 2999}};
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
        static char out[MOST + 1], in[MOST + 1];
        lsi_xfer s = make(0, 1, out, sizes[k / 2][0]), r = make(1, 1, in, sizes[k / 2][1]);
        fill(out, 1, sizeof out);
        for (int l = 1; l < LANES; l++)
            ends[0].links[l]->send_most = 500;
        if (k & 1)
            lsi_port_recv(ends[1].port, &r);
        lsi_port_send(ends[0].port, &s);
        if (!(k & 1)) {
            turn(5);
            lsi_port_recv(ends[1].port, &r);
        }
        for (int i = 0; i < 100 && r.status == LS_IN_PROGRESS; i++)
            turn(1);
        assert_int_equal(r.status, LS_ERR_MISMATCH);
        assert_int_equal(ends[1].differences, 1);
        memset(in, 0x55, sizeof in);
        turn(200);
        for (size_t i = 0; i < sizeof in; i++)
            assert_int_equal(in[i], 0x55);
        assert_int_equal(ends[1].losses, 0);
        tear_down(state);
        set_up(state);
    }
}

/* Either end forgets in the middle: its memory is its own again, and the lanes go on. */
static void test_forget(void **state)
{
    (void)state;
    for (size_t done = 0; done < 4000; done += 190) {
        char *out = malloc(MOST), *in = malloc(MOST), x = 5, y = 0;
        lsi_xfer s = make(0, 1, out, MOST), r = make(1, 1, in, MOST);
        fill(out, 1, MOST);
        if (done % 20)
            lsi_port_recv(ends[1].port, &r);
        for (int l = 0; l < LANES; l++)
            ends[0].links[l]->send_left = done * (size_t)(l + 1) / 2;
        lsi_port_send(ends[0].port, &s);
        turn(3);
        for (int i = 0; i < 2; i++)
            lsi_port_forget(ends[i].port, 1);
        free(out);
        free(in);
        for (int l = 0; l < LANES; l++)
            ends[0].links[l]->send_left = SIZE_MAX;
        for (uint32_t tag = 0; tag < LANES; tag++) {
            lsi_xfer s2 = make(0, tag, &x, 1), r2 = make(1, tag, &y, 1);
            s2.wire.comm = r2.wire.comm = 2;
            lsi_port_recv(ends[1].port, &r2);
            lsi_port_send(ends[0].port, &s2);
            turn(3);
            assert_int_equal(s2.status, LS_OK);
            assert_int_equal(r2.status, LS_OK);
        }
        lsi_port_forget(ends[1].port, 1); /* what came after all */
    }
}

/* One lane breaks in the middle: both ends hear of it, once, and all under way has ended. */
static void test_lost(void **state)
{
    for (int k = 0; k < 3 * LANES; k++) {
        static char out[MOST], in[MOST];
        lsi_xfer s = make(0, 1, out, MOST), more = make(0, 1, out, MOST);
        lsi_xfer r = make(1, 1, in, MOST), later = make(1, 2, in, MOST);
        for (int l = 0; l < LANES; l++)
            ends[0].links[l]->send_left = 3000;
        lsi_port_recv(ends[1].port, &r);
        lsi_port_recv(ends[1].port, &later);
        lsi_port_send(ends[0].port, &s);
        lsi_port_send(ends[0].port, &more);
        turn(2);
        if (k / LANES == 0)
            ends[0].links[k % LANES]->send_breaks = 1;
        else if (k / LANES == 1)
            ends[1].links[k % LANES]->recv_breaks = 1;
        else /* a bit flips in what is still to come of a part: its check differs */
            out[(size_t)(k % LANES + 1) * (MOST / LANES) - 100] ^= 1;
        for (int l = 0; l < LANES && k / LANES == 2; l++)
            ends[0].links[l]->send_left = SIZE_MAX;
        turn(3);
        for (int i = 0; i < 2; i++)
            assert_int_equal(ends[i].losses, 1);
        if (k / LANES < 2) { /* else they have been sent, for all that the sender knows */
            assert_int_equal(s.status, LS_ERR_PEER_DEAD);
            assert_int_equal(more.status, LS_ERR_PEER_DEAD);
        }
        assert_int_equal(r.status, LS_ERR_PEER_DEAD);
        assert_int_equal(later.status, LS_ERR_PEER_DEAD);
        lsi_port_send(ends[0].port, &s);
        lsi_port_recv(ends[1].port, &later);
        assert_int_equal(s.status, LS_ERR_PEER_DEAD);
        assert_int_equal(later.status, LS_ERR_PEER_DEAD);
        tear_down(state);
        set_up(state);
    }
}

/* Faults count the messages of a lane, of which a part is one: the second of each lane. */
static void test_faults(void **state)
{
    static const struct {
        const char *plan;
        ls_status second;
    } cases[] = {{"0>1 short=97", LS_OK},
                 {"0>1 drop=2", LS_IN_PROGRESS},
                 {"0>1 cut=2", LS_ERR_PEER_DEAD},
                 {"0>1 corrupt=2", LS_ERR_PEER_DEAD},
                 {"0>1 garble=2", LS_ERR_PEER_DEAD}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        static char out[MOST], in[2][MOST];
        lsi_xfer s[2], r[2];
        tear_down(state);
        open_ports(LEAST, cases[k].plan);
        fill(out, 2, MOST);
        for (int i = 0; i < 2; i++) {
            s[i] = make(0, (uint32_t)i, out, MOST);
            r[i] = make(1, (uint32_t)i, in[i], MOST);
            lsi_port_recv(ends[1].port, &r[i]);
            lsi_port_send(ends[0].port, &s[i]);
            turn(300);
        }
        assert_int_equal(r[0].status, LS_OK);
        assert_filled(in[0], 2, MOST);
        assert_int_equal(r[1].status, cases[k].second);
    }
}

/* A message that is larger than all that is kept is kept, as it would be in one piece: those
 * behind it on every lane are not held up. */
static void test_kept(void **state)
{
    tear_down(state);
    open_ports(0, NULL);
    const size_t bytes = LSI_PORT_KEPT_LIMIT + 3 * LSI_PORT_PART_LEAST + 1;
    char *out = calloc(1, bytes), *in = malloc(bytes), x = 5, y;
    assert_true(out && in);
    fill(out + bytes - MOST, 6, MOST);
    lsi_xfer s = make(0, 0, out, bytes), r = make(1, 0, in, bytes);
    lsi_port_send(ends[0].port, &s);
    for (uint32_t tag = 0; tag < LANES; tag++) {
        lsi_xfer s2 = make(0, 10 + tag, &x, 1), r2 = make(1, 10 + tag, &y, 1);
        lsi_port_recv(ends[1].port, &r2);
        lsi_port_send(ends[0].port, &s2);
        for (int i = 0; i < 300 && r2.status == LS_IN_PROGRESS; i++)
            turn(1);
        assert_int_equal(r2.status, LS_OK);
    }
    lsi_port_recv(ends[1].port, &r);
    turn(2);
    assert_int_equal(s.status, LS_OK);
    assert_int_equal(r.status, LS_OK);
    assert_filled(in + bytes - MOST, 6, MOST);
    free(out);
    free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_shares, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_same_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_crossing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_differs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forget, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_faults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_kept, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

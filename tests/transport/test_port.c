/* The port: matching, what comes before it is wanted, what is forgotten in the middle, references,
 * broken peers. Two ports joined by links whose every byte is under control. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "pipe_link.h"
#include "transport/port.h"
#include "transport/port_internal.h"

#define SEGMENT ((size_t)1 << 20)

/* One end: rank 0 or 1. */
typedef struct end {
    lsi_port *port;
    pipe_link *link; /* NULL once closed */
    int ready;       /* an eventfd, -1 for a link that is polled */
    int checks, differences, controls, losses, orderly;
    ls_status check_says;
    int abort_on_check; /* tell the peer, as a communicator does when calls do not match */
    int forget_on_check;
    lsi_wire last;
    char text[5000];
} end;

static end ends[2];
static pipe_channel channels[2]; /* [i]: written by end i */
static char *segment;
static int alive;

static ls_status on_check(void *arg, int peer, const lsi_wire *wire)
{
    end *e = arg;
    e->checks++;
    e->last = *wire;
    if (e->abort_on_check)
        lsi_port_control(e->port, peer, LSI_WIRE_ABORT, wire->comm, wire->seq, "no match");
    if (e->forget_on_check)
        lsi_port_forget(e->port, wire->comm);
    return e->check_says;
}

static void on_differs(void *arg, int peer, const lsi_wire *theirs, const lsi_wire *mine)
{
    end *e = arg;
    (void)peer, (void)mine;
    e->differences++;
    e->last = *theirs;
}

static void on_control(void *arg, int peer, const lsi_wire *wire, const char *text)
{
    end *e = arg;
    (void)peer;
    e->controls++;
    e->last = *wire;
    snprintf(e->text, sizeof e->text, "%s", text);
}

static void on_lost(void *arg, int peer, int orderly, const char *text)
{
    end *e = arg;
    (void)peer;
    e->losses++;
    e->orderly = orderly;
    e->link = NULL;
    snprintf(e->text, sizeof e->text, "%s", text);
}

/* `watched`: the links have a descriptor that is readable when the test says so. */
static void open_ports(int checksum, int watched)
{
    alarm(100);
    memset(ends, 0, sizeof ends);
    memset(channels, 0, sizeof channels);
    segment = calloc(1, SEGMENT);
    alive = 0;
    for (int i = 0; i < 2; i++) {
        ends[i].link = pipe_open(&channels[i], &channels[!i], &alive);
        ends[i].ready = ends[i].link->fd = watched ? eventfd(0, EFD_NONBLOCK) : -1;
        lsi_link *links[2] = {NULL, NULL};
        links[!i] = &ends[i].link->link;
        lsi_port_config config = {.self = i,
                                  .size = 2,
                                  .lanes = 1,
                                  .links = links,
                                  .segment = segment,
                                  .segment_bytes = SEGMENT,
                                  .checksum = checksum,
                                  .events = {&ends[i], on_check, on_differs, on_control, on_lost}};
        assert_int_equal(lsi_port_create(&config, &ends[i].port), LS_OK);
    }
}

static int set_up(void **state)
{
    (void)state;
    open_ports(0, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        lsi_port_destroy(ends[i].port);
        free(channels[i].data);
        if (ends[i].ready >= 0)
            close(ends[i].ready);
    }
    free(segment);
    assert_int_equal(alive, 0);
    return 0;
}

static lsi_xfer make(int self, uint32_t comm, uint64_t seq, uint32_t tag, void *data, size_t bytes)
{
    lsi_xfer x = {.peer = !self, .data = data};
    x.wire.comm = comm;
    x.wire.seq = seq;
    x.wire.tag = tag;
    x.wire.bytes = bytes;
    x.wire.call.count = bytes;
    return x;
}

/* Progress on both ends. A descriptor is readable while something is on the way, as a socket is. */
static void turn(int times)
{
    while (times-- > 0)
        for (int i = 0; i < 2; i++) {
            eventfd_t ignored;
            if (ends[i].ready >= 0 && channels[!i].end > channels[!i].at)
                eventfd_write(ends[i].ready, 1);
            else if (ends[i].ready >= 0)
                eventfd_read(ends[i].ready, &ignored);
            lsi_port_progress(ends[i].port);
        }
}

static void fill(void *at, int seed, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((char *)at)[i] = (char)(seed * 31 + (int)(i % 253));
}

static void assert_filled(const void *at, int seed, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)at)[i] != (char)(seed * 31 + (int)(i % 253)))
            fail_msg("byte %zu of %zu differs", i, bytes);
}

/* The receive first, or the message first, in pieces of many sizes. */
static void test_order(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4031, 4032, 4033, 5000, 100000};
    static const size_t pieces[] = {1, 7, 64, 1000, SIZE_MAX};
    static char out[100000], in[100000 + 1];
    for (int k = 0; k < 5 * 10 * 2; k++) {
        size_t bytes = sizes[k / 2 % 10];
        ends[0].link->send_most = pieces[k / 20];
        ends[1].link->recv_most = pieces[(k / 20 + k) % 5];
        lsi_xfer s = make(0, 3, 4, 5, out, bytes), r = make(1, 3, 4, 5, in, bytes);
        fill(out, k, bytes);
        memset(in, 0x55, sizeof in);
        if (k & 1)
            lsi_port_recv(ends[1].port, &r);
        lsi_port_send(ends[0].port, &s);
        if (!(k & 1)) {
            turn((int)bytes + 200);
            lsi_port_recv(ends[1].port, &r);
        }
        for (int i = 0; i < 300000 && (s.status == LS_IN_PROGRESS || r.status == LS_IN_PROGRESS);
             i++)
            turn(1);
        assert_int_equal(s.status, LS_OK);
        assert_int_equal(r.status, LS_OK);
        assert_filled(in, k, bytes);
        assert_int_equal(in[bytes], 0x55);
    }
}

/* Equal keys match in the order of sending, whenever the receives are posted: before, in the
 * middle of the payload, after. */
static void test_same_key(void **state)
{
    (void)state;
    enum { N = 6, BYTES = 9000 };
    static char out[N][BYTES], in[N][BYTES];
    lsi_xfer s[N], r[N];
    ends[0].link->send_most = 100;
    for (int i = 0; i < N; i++) {
        fill(out[i], i, BYTES);
        s[i] = make(0, 1, 0, 9, out[i], BYTES);
        r[i] = make(1, 1, 0, 9, in[i], BYTES);
        lsi_port_send(ends[0].port, &s[i]);
    }
    for (int i = 0; i < N; i++) {
        turn(i == 1 ? 20 : i == 2 ? 150 : i == 3 ? 0 : 60);
        lsi_port_recv(ends[1].port, &r[i]);
    }
    turn(2000);
    for (int i = 0; i < N; i++) {
        assert_int_equal(s[i].status, LS_OK);
        assert_int_equal(r[i].status, LS_OK);
        assert_filled(in[i], i, BYTES);
    }
}

/* Other communicators, operations and tags are other messages. */
static void test_keys(void **state)
{
    (void)state;
    char out[8][100], in[8][100];
    lsi_xfer s[8], r[8];
    for (unsigned i = 0; i < 8; i++) {
        fill(out[i], (int)i, 100);
        s[i] = make(0, 1u + (i & 1), 5u + (i >> 1 & 1), 7u + (i >> 2), out[i], 100);
        lsi_port_send(ends[0].port, &s[i]);
    }
    turn(10);
    for (unsigned i = 8; i-- > 0;) {
        r[i] = make(1, 1u + (i & 1), 5u + (i >> 1 & 1), 7u + (i >> 2), in[i], 100);
        lsi_port_recv(ends[1].port, &r[i]);
        assert_int_equal(r[i].status, LS_OK);
        assert_filled(in[i], (int)i, 100);
    }
}

/* Many small messages at once are all delivered, whatever the turns of the lanes: also those that
 * have been read from the socket, which does not tell of them any more. */
static void test_many(void **state)
{
    if (*state) {
        tear_down(state);
        open_ports(0, 1);
    }
    static const int numbers[] = {64, 66, 130, 200, 450, 500};
    static int32_t out[500], in[500];
    static lsi_xfer s[500], r[500];
    for (int k = 0; k < 6; k++) {
        for (int i = 0; i < numbers[k]; i++) {
            out[i] = 1000 * k + i;
            s[i] = make(0, 1, 0, 1, &out[i], 4);
            lsi_port_send(ends[0].port, &s[i]);
        }
        for (int i = 0; i < numbers[k]; i++) {
            r[i] = make(1, 1, 0, 1, &in[i], 4);
            lsi_port_recv(ends[1].port, &r[i]);
        }
        turn(20);
        for (int i = 0; i < numbers[k]; i++) {
            assert_int_equal(r[i].status, LS_OK);
            assert_int_equal(in[i], 1000 * k + i);
        }
    }
}

/* More than is kept: the lane waits, without losing anything, until the message is wanted. */
static void test_kept_limit(void **state)
{
    if (*state) {
        tear_down(state);
        open_ports(0, 1);
    }
    enum { N = 9, TURNS = 40 }; /* a mebibyte is sent in each */
    const size_t bytes = LSI_PORT_KEPT_LIMIT / 8;
    char *out = malloc(bytes + 1), *in = malloc(bytes + 1), small = 7, got = 0;
    lsi_xfer s[N], last = make(0, 1, 0, 99, &small, 1), r;
    fill(out, 3, bytes + 1);
    for (uint32_t i = 0; i < N; i++) {
        s[i] = make(0, 1, 0, i, out, bytes);
        lsi_port_send(ends[0].port, &s[i]);
        turn(TURNS);
    }
    lsi_port_send(ends[0].port, &last);
    turn(TURNS); /* eight are kept, one waits, with the small one behind it */
    for (uint32_t i = N; i-- > 0;) {
        r = make(1, 1, 0, i, in, bytes);
        lsi_port_recv(ends[1].port, &r);
        turn(TURNS);
        assert_int_equal(r.status, LS_OK);
    }
    r = make(1, 1, 0, 99, &got, 1);
    lsi_port_recv(ends[1].port, &r);
    turn(2);
    assert_int_equal(r.status, LS_OK);
    assert_int_equal(got, 7);
    /* Nothing is kept now: a larger message fits, and does not block the one behind it. */
    s[0] = make(0, 1, 0, 1, out, bytes + 1);
    lsi_port_send(ends[0].port, &s[0]);
    lsi_port_send(ends[0].port, &last);
    r = make(1, 1, 0, 99, &got, 1);
    lsi_port_recv(ends[1].port, &r);
    turn(TURNS);
    assert_int_equal(r.status, LS_OK);
    r = make(1, 1, 0, 1, in, bytes + 1);
    lsi_port_recv(ends[1].port, &r);
    turn(TURNS);
    assert_int_equal(r.status, LS_OK);
    assert_filled(in, 3, bytes + 1);
    free(out);
    free(in);
}

/* The sender forgets a message that is half sent: the stream stays intact, the memory is ours. */
static void test_forget_sending(void **state)
{
    (void)state;
    for (size_t sent = 1; sent < 64 + 3000; sent += sent < 70 ? 9 : 411) {
        char *out = malloc(3000), other[50], in[50];
        fill(out, 1, 3000);
        fill(other, 2, 50);
        lsi_xfer s = make(0, 8, 1, 1, out, 3000), queued = make(0, 8, 1, 2, out, 3000);
        lsi_xfer s2 = make(0, 9, 1, 1, other, 50), r2 = make(1, 9, 1, 1, in, 50);
        ends[0].link->send_left = sent;
        lsi_port_send(ends[0].port, &s);
        ends[0].link->send_left = 0;
        lsi_port_send(ends[0].port, &queued);
        lsi_port_forget(ends[0].port, 8);
        memset(out, 0xee, 3000);
        free(out);
        lsi_port_send(ends[0].port, &s2);
        lsi_port_recv(ends[1].port, &r2);
        ends[0].link->send_left = SIZE_MAX;
        turn(10);
        assert_int_equal(s2.status, LS_OK);
        assert_int_equal(r2.status, LS_OK);
        assert_filled(in, 2, 50);
        assert_int_equal(ends[0].losses + ends[1].losses, 0);
        lsi_port_forget(ends[1].port, 8); /* the half that came was kept */
    }
}

/* The same when the message travels as a reference. */
static void test_forget_reference(void **state)
{
    (void)state;
    for (size_t sent = 1; sent <= 80; sent += 13) {
        char other[50], in[50], big[5000];
        fill(other, 2, 50);
        fill(segment, 3, 5000);
        lsi_xfer s = make(0, 8, 1, 1, segment, 5000);
        lsi_xfer s2 = make(0, 9, 1, 1, other, 50), r2 = make(1, 9, 1, 1, in, 50);
        ends[0].link->send_left = sent;
        lsi_port_send(ends[0].port, &s);
        ends[0].link->send_left = 0;
        turn(1);
        lsi_port_forget(ends[0].port, 8);
        memset(&s, 0xee, sizeof s); /* its owner has it back */
        lsi_port_send(ends[0].port, &s2);
        lsi_port_recv(ends[1].port, &r2);
        ends[0].link->send_left = SIZE_MAX;
        turn(10);
        assert_int_equal(ends[0].losses + ends[1].losses, 0);
        assert_int_equal(s2.status, LS_OK);
        assert_int_equal(r2.status, LS_OK);
        assert_filled(in, 2, 50);
        lsi_xfer r = make(1, 8, 1, 1, big, 5000); /* its acknowledgement finds nobody */
        lsi_port_recv(ends[1].port, &r);
        turn(10);
        assert_int_equal(r.status, LS_OK);
        assert_int_equal(ends[0].losses + ends[1].losses, 0);
    }
}

/* The receiver forgets in the middle: the rest goes nowhere. */
static void test_forget_receiving(void **state)
{
    (void)state;
    for (int posted = 0; posted < 2; posted++)
        for (size_t got = 1; got < 64 + 20000; got += got < 70 ? 21 : 3001) {
            static char out[20000], in[20000];
            char other[50], in2[50];
            fill(other, 2, 50);
            memset(in, 0x11, sizeof in);
            memset(out, 0x22, sizeof out);
            lsi_xfer s = make(0, 8, 1, 1, out, sizeof out), r = make(1, 8, 1, 1, in, sizeof in);
            lsi_xfer s2 = make(0, 9, 1, 1, other, 50), r2 = make(1, 9, 1, 1, in2, 50);
            if (posted)
                lsi_port_recv(ends[1].port, &r);
            lsi_port_send(ends[0].port, &s);
            lsi_port_send(ends[0].port, &s2);
            ends[1].link->recv_left = got;
            lsi_port_progress(ends[1].port);
            lsi_port_forget(ends[1].port, 8);
            memset(in, 0x33, sizeof in); /* ours again */
            ends[1].link->recv_left = SIZE_MAX;
            lsi_port_recv(ends[1].port, &r2);
            turn(10);
            assert_int_equal(r2.status, LS_OK);
            assert_filled(in2, 2, 50);
            if (got >= 64) /* else it had not begun: it is a message like any other */
                for (size_t i = 0; i < sizeof in; i++)
                    assert_int_equal(in[i], 0x33);
            lsi_port_forget(ends[1].port, 8);
        }
}

/* Large sends from the segment travel as references and are acknowledged. */
static void test_reference(void **state)
{
    (void)state;
    for (int posted = 0; posted < 2; posted++) {
        static char in[8192];
        fill(segment + 100, 5 + posted, 8192);
        lsi_xfer s = make(0, 1, 1, 1, segment + 100, 8192), r = make(1, 1, 1, 1, in, 8192);
        size_t before = channels[0].end;
        if (posted)
            lsi_port_recv(ends[1].port, &r);
        lsi_port_send(ends[0].port, &s);
        assert_true(channels[0].end - before < 200); /* the bytes themselves stay */
        turn(3);
        if (!posted) {
            assert_int_equal(s.status, LS_IN_PROGRESS);
            lsi_port_recv(ends[1].port, &r);
            turn(3);
        }
        assert_int_equal(r.status, LS_OK);
        assert_int_equal(s.status, LS_OK);
        assert_filled(in, 5 + posted, 8192);
    }
    char small[4095];
    lsi_xfer s = make(0, 1, 1, 1, segment, 4095), r = make(1, 1, 1, 1, small, 4095);
    lsi_port_send(ends[0].port, &s);
    assert_int_equal(s.status, LS_OK); /* copied: nobody has to say that he read it */
    lsi_port_recv(ends[1].port, &r);
    turn(2);
    assert_int_equal(r.status, LS_OK);
}

/* Write a frame into the stream from end 0. */
static void inject(lsi_wire wire, const void *payload, size_t bytes)
{
    uint8_t header[LSI_WIRE_BYTES];
    wire.bytes = bytes;
    lsi_wire_encode(&wire, header);
    struct iovec v[2] = {{header, sizeof header}, {(void *)(uintptr_t)payload, bytes}};
    size_t moved;
    pipe_send(&ends[0].link->link, v, bytes ? 2 : 1, &moved);
}

static void test_bad_references(void **state)
{
    static const uint64_t places[][2] = {{SEGMENT, 100},
                                         {SEGMENT - 99, 100},
                                         {UINT64_MAX, 100},
                                         {UINT64_MAX - 50, 100},
                                         {SEGMENT + 1, 0}};
    for (size_t i = 0; i < sizeof places / sizeof *places + 1; i++) {
        char in[100];
        lsi_xfer r = make(1, 1, 1, 1, in, i < 4 ? 100 : 0);
        lsi_wire w = r.wire;
        w.type = LSI_WIRE_REF;
        lsi_port_recv(ends[1].port, &r);
        inject(w, places[i % 5], i < 5 ? 16 : 15); /* the last one is malformed */
        turn(2);
        assert_int_equal(ends[1].losses, 1);
        assert_non_null(strstr(ends[1].text, "reference"));
        assert_int_equal(r.status, LS_ERR_PEER_DEAD);
        assert_int_equal(lsi_port_alive(ends[1].port, 0), 0);
        tear_down(state);
        set_up(state);
    }
}

/* A message of another length or type than expected: told, and the receive ends. */
static void test_differs(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        int posted = k & 1, reference = k & 2, other_type = k & 4;
        size_t bytes = reference ? 5000 : 100;
        char in[5000];
        lsi_xfer s = make(0, 1, 1, 1, segment, bytes);
        lsi_xfer r = make(1, 1, 1, 1, in, other_type ? bytes : bytes - 1);
        if (other_type)
            r.wire.call.dtype = 3;
        if (posted)
            lsi_port_recv(ends[1].port, &r);
        lsi_port_send(ends[0].port, &s);
        turn(2);
        if (!posted)
            lsi_port_recv(ends[1].port, &r);
        turn(2);
        assert_int_equal(r.status, LS_ERR_MISMATCH);
        assert_int_equal(ends[1].differences, k + 1);
        for (int i = 0; i < 2; i++)
            lsi_port_forget(ends[i].port, 1); /* as the owner does */
    }
    assert_int_equal(ends[1].losses, 0);
}

/* The owner refuses a message: it is thrown away and the stream goes on. */
static void test_refused(void **state)
{
    (void)state;
    for (int reference = 0; reference < 2; reference++) {
        static char out[70000];
        char x = 1, y = 0, in[10];
        ends[1].check_says = LS_ERR_MISMATCH;
        lsi_xfer s = make(0, 1, 1, 1, reference ? segment : out, sizeof out);
        lsi_port_send(ends[0].port, &s);
        turn(3);
        ends[1].check_says = LS_OK;
        lsi_xfer s2 = make(0, 1, 1, 2, &x, 1), r2 = make(1, 1, 1, 2, &y, 1);
        lsi_xfer r = make(1, 1, 1, 1, in, 10);
        lsi_port_recv(ends[1].port, &r);
        lsi_port_recv(ends[1].port, &r2);
        lsi_port_send(ends[0].port, &s2);
        turn(3);
        assert_int_equal(r2.status, LS_OK);
        assert_int_equal(y, 1);
        assert_int_equal(r.status, LS_IN_PROGRESS); /* what was refused is not there */
        for (int i = 0; i < 2; i++)
            lsi_port_forget(ends[i].port, 1);
    }
}

/* A large message is refused, and telling so finds the link broken: the port loses its peer while
 * it is between the header and the payload. */
static void test_refused_on_a_broken_link(void **state)
{
    for (int forget = 0; forget < 2; forget++) {
        static char out[100000];
        ends[1].check_says = LS_ERR_MISMATCH;
        ends[1].abort_on_check = 1;
        ends[1].forget_on_check = forget;
        ends[1].link->send_breaks = 1;
        lsi_xfer s = make(0, 1, 1, 1, out, sizeof out), r = make(1, 1, 1, 7, out, 10);
        lsi_port_recv(ends[1].port, &r);
        lsi_port_send(ends[0].port, &s);
        lsi_port_progress(ends[1].port);
        assert_int_equal(ends[1].losses, 1);
        if (!forget)
            assert_int_equal(r.status, LS_ERR_PEER_DEAD);
        tear_down(state);
        set_up(state);
    }
}

static void test_controls(void **state)
{
    (void)state;
    char text[LSI_WIRE_MAX_CONTROL + 100];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    lsi_port_control(ends[0].port, 1, LSI_WIRE_ABORT, 7, 8, "it went wrong");
    turn(1);
    assert_int_equal(ends[1].controls, 1);
    assert_int_equal(ends[1].last.type, LSI_WIRE_ABORT);
    assert_int_equal(ends[1].last.comm, 7);
    assert_int_equal(ends[1].last.seq, 8);
    assert_string_equal(ends[1].text, "it went wrong");
    lsi_port_control(ends[0].port, 1, LSI_WIRE_STATUS, 7, 9, NULL);
    turn(1);
    assert_int_equal(ends[1].last.type, LSI_WIRE_STATUS);
    assert_string_equal(ends[1].text, "");
    lsi_port_control(ends[0].port, 1, LSI_WIRE_ABORT, 7, 8, text); /* cut to what a frame holds */
    turn(1);
    assert_int_equal(strlen(ends[1].text), LSI_WIRE_MAX_CONTROL);
}

/* Everything under way ends when the peer is lost; nothing of it leaks. */
static void test_lost(void **state)
{
    for (int how = 0; how < 4; how++) {
        char out[10000], in[10000];
        lsi_xfer s = make(0, 1, 1, 1, out, sizeof out), queued = make(0, 1, 1, 2, out, 10);
        lsi_xfer ref = make(0, 1, 1, 3, segment, 9000), r = make(0, 1, 1, 4, in, 10);
        lsi_port_send(ends[0].port, &ref);
        ends[0].link->send_left = 100;
        lsi_port_send(ends[0].port, &s);
        ends[0].link->send_left = 0;
        lsi_port_send(ends[0].port, &queued);
        lsi_port_recv(ends[0].port, &r);
        for (int i = 0; i < 3; i++)
            lsi_port_control(ends[0].port, 1, LSI_WIRE_ABORT, 1, 1, "never to be sent");
        if (how == 0)
            ends[0].link->send_breaks = 1;
        else if (how == 1)
            ends[0].link->recv_breaks = 1;
        else if (how == 2)
            channels[1].closed = 1;
        else
            lsi_port_destroy(ends[1].port), ends[1].port = NULL;
        for (int i = 0; i < 2; i++)
            lsi_port_progress(ends[0].port);
        assert_int_equal(ends[0].losses, 1);
        assert_int_equal(ends[0].orderly, how == 3);
        assert_int_equal(s.status, LS_ERR_PEER_DEAD);
        assert_int_equal(queued.status, LS_ERR_PEER_DEAD);
        assert_int_equal(ref.status, LS_ERR_PEER_DEAD);
        assert_int_equal(r.status, LS_ERR_PEER_DEAD);
        assert_int_equal(lsi_port_alive(ends[0].port, 1), 0);
        assert_string_equal(lsi_port_transport(ends[0].port, 1), "none");
        lsi_port_send(ends[0].port, &s);
        lsi_port_recv(ends[0].port, &r);
        assert_int_equal(s.status, LS_ERR_PEER_DEAD);
        assert_int_equal(r.status, LS_ERR_PEER_DEAD);
        lsi_port_control(ends[0].port, 1, LSI_WIRE_ABORT, 1, 1, "to nobody");
        tear_down(state);
        set_up(state);
    }
}

/* What arrived before the end is still delivered. */
static void test_last_words(void **state)
{
    (void)state;
    char out[100], in[100];
    fill(out, 4, 100);
    lsi_xfer s = make(0, 1, 1, 1, out, 100), r = make(1, 1, 1, 1, in, 100);
    lsi_port_send(ends[0].port, &s);
    lsi_port_destroy(ends[0].port);
    ends[0].port = NULL;
    ends[1].link->send_breaks = 1; /* noticed by a write first */
    lsi_port_control(ends[1].port, 0, LSI_WIRE_STATUS, 1, 1, NULL);
    assert_int_equal(ends[1].losses, 1);
    assert_int_equal(ends[1].orderly, 1);
    lsi_port_recv(ends[1].port, &r);
    assert_int_equal(r.status, LS_OK);
    assert_filled(in, 4, 100);
}

static void test_garbage(void **state)
{
    for (size_t have = 0; have < 130; have += 13) {
        char noise[200];
        fill(noise, 7, sizeof noise);
        lsi_wire w = {.type = LSI_WIRE_DATA, .comm = 1};
        if (have >= 65)
            inject(w, NULL, 0);
        struct iovec v = {noise, have + 64};
        size_t moved;
        pipe_send(&ends[0].link->link, &v, 1, &moved);
        turn(2);
        assert_int_equal(ends[1].losses, 1);
        assert_non_null(strstr(ends[1].text, "magic"));
        tear_down(state);
        set_up(state);
    }
}

/* With check sums a flipped bit of any payload is noticed. */
static void test_checksum(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        for (int flip = 0; flip < 2; flip++) {
            char out[5000], in[5000];
            tear_down(state);
            open_ports(1, 0);
            fill(out, 3, sizeof out);
            fill(segment, 4, sizeof out);
            lsi_xfer s = make(0, 1, 1, 1, kind == 2 ? segment : out, sizeof out);
            lsi_xfer r = make(1, 1, 1, 1, in, sizeof in);
            if (kind == 1)
                lsi_port_recv(ends[1].port, &r);
            if (kind == 3)
                lsi_port_control(ends[0].port, 1, LSI_WIRE_ABORT, 1, 1, "a text");
            else
                lsi_port_send(ends[0].port, &s);
            channels[0].data[channels[0].end - 3] ^= (char)(flip << 4);
            turn(2);
            if (kind != 1)
                lsi_port_recv(ends[1].port, &r);
            assert_int_equal(ends[1].losses, flip);
            if (flip)
                assert_non_null(strstr(ends[1].text, "corrupt"));
            else if (kind == 3)
                assert_string_equal(ends[1].text, "a text");
            if (kind != 3)
                assert_int_equal(r.status, flip ? LS_ERR_PEER_DEAD : LS_OK);
            if (!flip && kind != 3)
                assert_filled(in, kind == 2 ? 4 : 3, sizeof in);
        }
    }
}

int main(void)
{
    static int watched = 1; /* the same with descriptors */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_same_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many, set_up, tear_down),
        {"test_many_watched", test_many, set_up, tear_down, &watched},
        cmocka_unit_test_setup_teardown(test_kept_limit, set_up, tear_down),
        {"test_kept_limit_watched", test_kept_limit, set_up, tear_down, &watched},
        cmocka_unit_test_setup_teardown(test_forget_sending, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forget_reference, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forget_receiving, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reference, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_references, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_differs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused_on_a_broken_link, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_controls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_last_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_garbage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_checksum, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The gate: messages with descriptors, the other side's end, nonsense, the environment. Whatever
 * happens, no descriptor is left open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/gate.h"

enum { MOST_FILES = 8 };

static int gate[2], descriptors;

static int count_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static int open_gate(void **state)
{
    (void)state;
    descriptors = count_descriptors();
    return lsi_gate_pair(gate) == LS_OK ? 0 : -1;
}

static int close_gate(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        if (gate[i] >= 0)
            close(gate[i]);
    const int left = count_descriptors() - descriptors;
    if (left)
        print_error("%d descriptors are left open\n", left);
    return left;
}

static void end(int side)
{
    close(gate[side]);
    gate[side] = -1;
}

/* A message that says something in every field. */
static lsi_gate_message sample(int n_files)
{
    lsi_gate_message m;
    memset(&m, 0, sizeof m);
    m.kind = LSI_GATE_ENTER;
    m.what = LSI_KEPT_STATE;
    m.own = 1;
    m.kept = 3;
    m.generation = 0x123456789abcdefu;
    m.boot.magic = LSI_BOOT_MAGIC;
    m.boot.rank = 5;
    m.boot.generation = 9;
    snprintf(m.boot.store, sizeof m.boot.store, "127.0.0.1:4000");
    memset(&m.boot.key, 0xab, sizeof m.boot.key);
    m.n_files = n_files;
    for (int i = 0; i < n_files && i < LSI_GATE_FILES; i++) {
        m.files[i] = memfd_create("gate", MFD_CLOEXEC);
        assert_int_equal(pwrite(m.files[i], &i, sizeof i, 0), sizeof i);
    }
    return m;
}

static void assert_file(int fd, int number)
{
    int found = -1;
    assert_int_equal(pread(fd, &found, sizeof found, 0), sizeof found);
    assert_int_equal(found, number);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

static void assert_error_has(const char *words)
{
    if (!strstr(ls_last_error(), words))
        fail_msg("'%s' lacks '%s'", ls_last_error(), words);
}

/* ---- sense ---------------------------------------------------------------------------------- */

static void round_trips(void **state)
{
    (void)state;
    for (int from = 0; from < 2; from++)
        for (int n = 0; n <= LSI_GATE_FILES; n++) {
            lsi_gate_message in = sample(n), out;
            memset(&out, 0xee, sizeof out);
            assert_int_equal(lsi_gate_send(gate[from], &in), LS_OK);
            assert_int_equal(lsi_gate_receive(gate[!from], 0, &out), LS_OK);
            assert_int_equal(out.n_files, n);
            assert_memory_equal(&in, &out, offsetof(lsi_gate_message, n_files));
            for (int i = 0; i < n; i++) {
                assert_int_not_equal(out.files[i], in.files[i]);
                assert_file(in.files[i], i); /* still the sender's */
                assert_file(out.files[i], i);
            }
            lsi_gate_drop(&in, -1);
            lsi_gate_drop(&out, -1);
            assert_int_equal(out.n_files, 0);
        }
}

static void messages_keep_their_order(void **state)
{
    (void)state;
    lsi_gate_message in = sample(1), out;
    for (uint64_t i = 0; i < 3; i++) {
        in.generation = i;
        assert_int_equal(lsi_gate_send(gate[0], &in), LS_OK);
    }
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(lsi_gate_receive(gate[1], 5, &out), LS_OK);
        assert_int_equal(out.generation, i);
        lsi_gate_drop(&out, -1);
    }
    assert_int_equal(lsi_gate_receive(gate[1], 0, &out), LS_IN_PROGRESS);
    lsi_gate_drop(&in, -1);
}

static void drop_spares_one(void **state)
{
    (void)state;
    lsi_gate_message m = sample(3);
    const int kept = m.files[1], gone[] = {m.files[0], m.files[2]};
    lsi_gate_drop(&m, 1);
    assert_file(kept, 1);
    assert_int_equal(fcntl(gone[0], F_GETFD), -1);
    assert_int_equal(fcntl(gone[1], F_GETFD), -1);
    close(kept);
}

/* Descriptors that nobody has received go with the gate. */
static void what_is_under_way_goes_too(void **state)
{
    (void)state;
    lsi_gate_message in = sample(3);
    assert_int_equal(lsi_gate_send(gate[0], &in), LS_OK);
    lsi_gate_drop(&in, -1);
}

static void on_alarm(int number)
{
    (void)number;
}

/* The time is waited for, whatever signals come. */
static void waits_as_told(void **state)
{
    (void)state;
    lsi_gate_message out;
    const struct sigaction act = {.sa_handler = on_alarm};
    const struct itimerval every = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    struct sigaction before;
    sigaction(SIGALRM, &act, &before);
    setitimer(ITIMER_REAL, &every, NULL);
    const double from = lsi_now();
    const ls_status status = lsi_gate_receive(gate[1], 0.1, &out);
    const double waited = lsi_now() - from;
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_int_equal(status, LS_IN_PROGRESS);
    assert_true(waited > 0.09);
}

static void never_blocks_on_send(void **state)
{
    (void)state;
    lsi_gate_message in = sample(0);
    ls_status status = LS_OK;
    for (int i = 0; i < 100000 && status == LS_OK; i++)
        status = lsi_gate_send(gate[1], &in);
    assert_int_equal(status, LS_ERR_SYSTEM); /* full */
    lsi_gate_message out;
    assert_int_equal(lsi_gate_receive(gate[0], 0, &out), LS_OK); /* what was sent is there */
}

/* ---- the other side is gone ------------------------------------------------------------------ */

static void peer_gone(void **state)
{
    (void)state;
    lsi_gate_message in = sample(2), out;
    end(1);
    assert_int_equal(lsi_gate_send(gate[0], &in), LS_ERR_PEER_DEAD);
    assert_error_has("gone");
    assert_int_equal(lsi_gate_receive(gate[0], 5, &out), LS_ERR_PEER_DEAD);
    assert_int_equal(lsi_gate_receive(gate[0], 0, &out), LS_ERR_PEER_DEAD);
    lsi_gate_drop(&in, -1);
}

static void last_words_are_heard(void **state)
{
    (void)state;
    lsi_gate_message in = sample(1), out;
    assert_int_equal(lsi_gate_send(gate[1], &in), LS_OK);
    end(1);
    assert_int_equal(lsi_gate_receive(gate[0], 5, &out), LS_OK);
    assert_file(out.files[0], 0);
    lsi_gate_drop(&out, -1);
    assert_int_equal(lsi_gate_receive(gate[0], 5, &out), LS_ERR_PEER_DEAD);
    lsi_gate_drop(&in, -1);
}

/* ---- nonsense ------------------------------------------------------------------------------- */

/* A packet of `bytes` with so many descriptors, whatever the message says of them. */
static void send_raw(const void *body, size_t bytes, int files)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(MOST_FILES * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)body, bytes};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    int fds[MOST_FILES];
    for (int i = 0; i < files; i++)
        fds[i] = memfd_create("raw", MFD_CLOEXEC);
    if (files) {
        packet.msg_control = control.bytes;
        packet.msg_controllen = CMSG_SPACE((size_t)files * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN((size_t)files * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, (size_t)files * sizeof(int));
    }
    assert_int_equal(sendmsg(gate[0], &packet, 0), bytes);
    for (int i = 0; i < files; i++)
        close(fds[i]);
}

/* Refused, with nothing left open, and the next message is understood. */
static void assert_refused(void)
{
    struct {
        lsi_gate_message message;
        char behind[64];
    } out;
    lsi_gate_message good = sample(0);
    memset(&out, 0x5a, sizeof out);
    const int before = count_descriptors();
    assert_int_equal(lsi_gate_receive(gate[1], 5, &out.message), LS_ERR_PROTOCOL);
    assert_error_has("makes no sense");
    assert_int_equal(count_descriptors(), before);
    for (size_t i = 0; i < sizeof out.behind; i++)
        assert_int_equal(out.behind[i], 0x5a);
    assert_int_equal(lsi_gate_send(gate[0], &good), LS_OK);
    assert_int_equal(lsi_gate_receive(gate[1], 5, &out.message), LS_OK);
}

static void wrong_sizes(void **state)
{
    (void)state;
    static char body[2 * sizeof(lsi_gate_message)];
    static const size_t sizes[] = {1, 4, sizeof(lsi_gate_message) - 1, sizeof(lsi_gate_message) + 1,
                                   sizeof body};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int files = 0; files <= MOST_FILES; files++) {
            lsi_gate_message m = sample(0);
            m.n_files = files;
            memcpy(body, &m, sizeof m);
            send_raw(body, sizes[i], files);
            assert_refused();
        }
}

/* The message tells of other descriptors than come with it; or of more than there may be. */
static void wrong_counts(void **state)
{
    (void)state;
    for (int told = -1; told <= MOST_FILES; told++)
        for (int files = 0; files <= MOST_FILES; files++) {
            lsi_gate_message m = sample(0);
            if (told == files && files <= LSI_GATE_FILES)
                continue;
            m.n_files = told;
            send_raw(&m, sizeof m, files);
            assert_refused();
        }
}

/* An empty packet looks like the end; its descriptors must not stay. */
static void empty_packet(void **state)
{
    (void)state;
    lsi_gate_message out;
    for (int files = 0; files <= MOST_FILES; files++) {
        send_raw("", 0, files);
        const int before = count_descriptors();
        assert_int_not_equal(lsi_gate_receive(gate[1], 5, &out), LS_OK);
        assert_int_equal(count_descriptors(), before);
    }
}

/* ---- the environment ------------------------------------------------------------------------ */

static void environment(void **state)
{
    (void)state;
    static const char *const bad[] = {"x", "-1", "3x", " 3", "4294967296"};
    char text[16];
    int fd = -7;
    unsetenv(LSI_GATE_ENV);
    assert_int_equal(lsi_gate_find(&fd), LS_ERR_NOT_FOUND);
    setenv(LSI_GATE_ENV, "", 1);
    assert_int_equal(lsi_gate_find(&fd), LS_ERR_NOT_FOUND);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv(LSI_GATE_ENV, bad[i], 1);
        assert_int_equal(lsi_gate_find(&fd), LS_ERR_CONFIG);
        assert_error_has(LSI_GATE_ENV);
    }
    snprintf(text, sizeof text, "%d", 1000000); /* above any limit: not open */
    setenv(LSI_GATE_ENV, text, 1);
    assert_int_equal(lsi_gate_find(&fd), LS_ERR_CONFIG);
    assert_error_has("not open");
    assert_int_equal(fd, -7);

    const int inherited = dup(gate[1]); /* dup: not close-on-exec */
    snprintf(text, sizeof text, "%d", inherited);
    setenv(LSI_GATE_ENV, text, 1);
    assert_int_equal(lsi_gate_find(&fd), LS_OK);
    assert_int_equal(fd, inherited);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_null(getenv(LSI_GATE_ENV));
    assert_int_equal(lsi_gate_find(&fd), LS_ERR_NOT_FOUND); /* once */
    close(inherited);
}

static void both_ends_end_with_exec(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fcntl(gate[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_gate, close_gate)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(round_trips),
        TEST(messages_keep_their_order),
        TEST(drop_spares_one),
        TEST(what_is_under_way_goes_too),
        TEST(waits_as_told),
        TEST(never_blocks_on_send),
        TEST(peer_gone),
        TEST(last_words_are_heard),
        TEST(wrong_sizes),
        TEST(wrong_counts),
        TEST(empty_packet),
        TEST(environment),
        TEST(both_ends_end_with_exec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

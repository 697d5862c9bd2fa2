/* The store in a process of its own: it serves, ends with whoever started it, leaves nothing. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "launch/store_process.h"

#define PATIENCE_MS 20000

enum { MOST = 8 };

static int open_before;
static pid_t started[MOST]; /* by this test */
static int n_started;

static int note_descriptors(void **state)
{
    (void)state;
    open_before = count_descriptors();
    n_started = 0;
    return 0;
}

/* No descriptor, no child. A test that has failed may have left some: they end here. */
static int nothing_is_left(void **state)
{
    (void)state;
    int left = count_descriptors() - open_before;
    if (left)
        print_error("%d descriptors are left open\n", left);
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
        print_error("a child is left\n");
        left = -1;
        for (int i = 0; i < n_started; i++)
            if (waitpid(started[i], NULL, WNOHANG) == 0) { /* ours, and alive */
                kill(started[i], SIGKILL);
                waitpid(started[i], NULL, 0);
            }
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    return left;
}

static void note_process(pid_t pid)
{
    if (n_started < MOST)
        started[n_started++] = pid;
}

static void start(const char *host, int port, lsi_store_process *p)
{
    if (lsi_store_process_start(host, port, &right_key, p) != LS_OK)
        fail_msg("%s", ls_last_error());
    note_process(p->pid);
}

static lsi_store *connect_to(const char *address)
{
    char url[LSI_ADDR_MAX + 8];
    lsi_store *store = NULL;
    snprintf(url, sizeof url, "tcp://%s", address);
    if (lsi_store_open(url, &right_key, 10, &store) != LS_OK)
        fail_msg("%s", ls_last_error());
    return store;
}

static int port_of(const char *address)
{
    return (int)strtol(strrchr(address, ':') + 1, NULL, 10);
}

/* Does anybody listen there? */
static int is_open(const char *address)
{
    int fd;
    if (lsi_net_connect(address, lsi_now() + 0.2, &fd) != LS_OK)
        return 0;
    close(fd);
    return 1;
}

static void assert_ends(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
    close(pidfd);
}

static int watch_process(pid_t pid)
{
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        fail_msg("pidfd_open: %s", strerror(errno));
    return fd;
}

static void serves(void **state)
{
    (void)state;
    lsi_store_process p;
    start("127.0.0.1", 0, &p);
    assert_true(p.pid > 0 && p.pid != getpid());
    lsi_store *a = connect_to(p.address), *b = connect_to(p.address);
    uint64_t lease;
    put_text(a, "one", "1", 0);
    assert_text(b, "one", "1");
    assert_int_equal(b->ops->watch(b, "host/"), LS_OK);
    assert_int_equal(a->ops->lease(a, 30, &lease), LS_OK);
    put_text(a, "host/1", "here", lease);
    assert_event(b, "host/1", "here");
    lsi_store_close(a);
    assert_event(b, "host/1", NULL); /* the lease goes with its connection */
    lsi_store_close(b);
    lsi_store_process_stop(&p);
    assert_int_equal(p.pid, 0);
    assert_false(is_open(p.address));
    lsi_store_process_stop(&p); /* again: nothing to do */
}

/* Leases expire although nobody says anything. */
static void leases_expire(void **state)
{
    (void)state;
    lsi_store_process p;
    uint64_t lease;
    start("127.0.0.1", 0, &p);
    lsi_store *a = connect_to(p.address), *b = connect_to(p.address);
    assert_int_equal(a->ops->lease(a, 0.2, &lease), LS_OK);
    put_text(a, "host/1", "here", lease);
    assert_int_equal(b->ops->watch(b, "host/"), LS_OK);
    assert_event(b, "host/1", "here");
    assert_event(b, "host/1", NULL);
    lsi_store_close(a);
    lsi_store_close(b);
    lsi_store_process_stop(&p);
}

static void strangers_are_refused(void **state)
{
    (void)state;
    lsi_store_process p;
    char url[LSI_ADDR_MAX + 8];
    lsi_store *store = NULL;
    start("127.0.0.1", 0, &p);
    snprintf(url, sizeof url, "tcp://%s", p.address);
    assert_int_not_equal(lsi_store_open(url, &wrong_key, 5, &store), LS_OK);
    store = connect_to(p.address); /* it is none the worse for it */
    lsi_store_close(store);
    lsi_store_process_stop(&p);
}

/* A client of a store that dies gets an error, at once. */
static void killed(void **state)
{
    (void)state;
    lsi_store_process p;
    const uint8_t *value;
    size_t bytes;
    uint64_t version;
    start("127.0.0.1", 0, &p);
    lsi_store *store = connect_to(p.address);
    kill(p.pid, SIGKILL);
    assert_int_equal(store->ops->get(store, "one", &value, &bytes, &version), LS_ERR_PEER_DEAD);
    lsi_store_close(store);
    lsi_store_process_stop(&p);
}

static void port_in_use(void **state)
{
    (void)state;
    lsi_store_process p, q = {.pid = 77};
    start("127.0.0.1", 0, &p);
    assert_int_not_equal(lsi_store_process_start("127.0.0.1", port_of(p.address), &right_key, &q),
                         LS_OK);
    assert_error_has("in use");
    assert_int_equal(q.pid, 0);
    lsi_store_close(connect_to(p.address)); /* the first is not disturbed */
    lsi_store_process_stop(&p);
    start("127.0.0.1", port_of(p.address), &p); /* and now the port is free */
    lsi_store_process_stop(&p);
}

static void no_such_address(void **state)
{
    (void)state;
    lsi_store_process p;
    assert_int_not_equal(lsi_store_process_start("192.0.2.1", 0, &right_key, &p), LS_OK);
    assert_int_equal(p.pid, 0);
    assert_true(ls_last_error()[0]);
}

/* What a terminal sends to all is not for the store. */
static void signals_are_not_for_it(void **state)
{
    (void)state;
    lsi_store_process p;
    start("127.0.0.1", 0, &p);
    kill(p.pid, SIGINT);
    kill(p.pid, SIGTERM);
    kill(p.pid, SIGHUP);
    lsi_store *store = connect_to(p.address);
    put_text(store, "one", "1", 0);
    lsi_store_close(store);
    lsi_store_process_stop(&p);
}

/* ---- the end of its parent ------------------------------------------------------------------- */

typedef struct told {
    pid_t pid;
    char address[LSI_ADDR_MAX];
} told;

/* A process that starts a store, says where, and waits for its end. `stream`: all of its standard
 * streams, which it closes then; -1: as they are. */
static pid_t parent_of_store(told *t, int stream)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    /* A store that it leaves behind becomes our child, and nothing_is_left sees it. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t pid = fork();
    if (pid == 0) {
        lsi_store_process p;
        told mine = {0};
        for (int fd = 0; stream >= 0 && fd < 3; fd++)
            dup2(stream, fd);
        close(stream);
        if (lsi_store_process_start("127.0.0.1", 0, &right_key, &p) != LS_OK)
            _exit(1);
        for (int fd = 0; stream >= 0 && fd < 3; fd++)
            close(fd);
        mine.pid = p.pid;
        memcpy(mine.address, p.address, sizeof mine.address);
        if (write(ends[1], &mine, sizeof mine) != (ssize_t)sizeof mine)
            _exit(2);
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], t, sizeof *t), sizeof *t);
    close(ends[0]);
    note_process(pid);
    note_process(t->pid);
    return pid;
}

/* The parent gets the signal; the store ends too. */
static void end_both(pid_t parent, const told *t, int number)
{
    const int store = watch_process(t->pid);
    kill(parent, number);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    assert_ends(store);
    assert_int_equal(waitpid(t->pid, NULL, 0), t->pid);
    assert_false(is_open(t->address));
}

static void ends_with_its_parent(void **state)
{
    (void)state;
    static const int numbers[] = {SIGKILL, SIGTERM};
    for (int i = 0; i < 2; i++) {
        told t;
        const pid_t parent = parent_of_store(&t, -1);
        end_both(parent, &t, numbers[i]);
    }
}

/* Standard streams are let go: who reads the output of a program to its end is not kept waiting. */
static void lets_go_of_streams(void **state)
{
    (void)state;
    int ends[2];
    char word;
    told t;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t parent = parent_of_store(&t, ends[1]);
    close(ends[1]);
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1); /* both are alive, but the pipe has ended */
    assert_int_equal(read(ends[0], &word, 1), 0);
    close(ends[0]);
    end_both(parent, &t, SIGKILL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, note_descriptors, nothing_is_left)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(serves),
        TEST(leases_expire),
        TEST(strangers_are_refused),
        TEST(killed),
        TEST(port_in_use),
        TEST(no_such_address),
        TEST(signals_are_not_for_it),
        TEST(ends_with_its_parent),
        TEST(lets_go_of_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

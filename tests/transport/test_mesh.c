/* The tcp mesh among strangers: garbage, silence, wrong keys, half handshakes and floods on the
 * listening sockets change nothing; who is missing at the deadline is named; nothing stays open. */
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "transport/tcp.h"

#define MAX 8
#define LANES_MAX 3

static const lsi_key right_key = {"the right key, thirty-two bytes."};
static const lsi_key wrong_key = {"the wrong key, thirty-two bytes."};

/* One rank of the mesh. */
typedef struct member {
    int self, size, lanes, listener, absent;
    unsigned without; /* bits of the peers that need no socket */
    double deadline;
    lsi_link *links[MAX * LANES_MAX];
    ls_status status;
    char error[1024];
    pthread_t thread;
} member;

static member members[MAX];
static char addresses[MAX][LSI_ADDR_MAX];
static atomic_int stop;

static int count_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void *connect_member(void *arg)
{
    member *m = arg;
    char own[MAX][LSI_ADDR_MAX];
    memcpy(own, addresses, sizeof own);
    for (int r = 0; r < MAX; r++)
        if (m->without >> r & 1)
            own[r][0] = 0;
    lsi_tcp_mesh mesh = {.listener = m->listener,
                         .key = &right_key,
                         .self = m->self,
                         .size = m->size,
                         .lanes = m->lanes,
                         .addresses = (const char(*)[LSI_ADDR_MAX])own,
                         .deadline = m->deadline};
    m->status = lsi_tcp_connect(&mesh, m->links);
    snprintf(m->error, sizeof m->error, "%s", m->status == LS_OK ? "" : ls_last_error());
    return NULL;
}

static void open_mesh(int size, int lanes, double seconds)
{
    alarm(100);
    memset(members, 0, sizeof members);
    memset(addresses, 0, sizeof addresses);
    atomic_store(&stop, 0);
    for (int r = 0; r < size; r++) {
        members[r] = (member){.self = r, .size = size, .lanes = lanes};
        members[r].deadline = lsi_now() + seconds;
        assert_int_equal(lsi_net_listen(NULL, 0, &members[r].listener, addresses[r]), LS_OK);
    }
}

static void start_member(int r)
{
    assert_int_equal(pthread_create(&members[r].thread, NULL, connect_member, &members[r]), 0);
}

static void join_members(int size)
{
    for (int r = 0; r < size; r++)
        if (!members[r].absent)
            pthread_join(members[r].thread, NULL);
}

static void close_mesh(int size)
{
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < MAX * LANES_MAX; i++)
            if (members[r].links[i])
                members[r].links[i]->ops->close(members[r].links[i]);
        close(members[r].listener);
    }
}

/* Every link leads to whom it should: each rank says who it is on all of them. */
static void check_links(int size, int lanes)
{
    for (int r = 0; r < size; r++) {
        if (members[r].status != LS_OK)
            fail_msg("rank %d: %s", r, members[r].error);
        for (int i = 0; i < size * lanes; i++) {
            char said[2] = {(char)r, (char)(i % lanes)};
            struct iovec v = {said, 2};
            size_t moved;
            assert_int_equal(members[r].links[i] == NULL, i / lanes == r);
            if (i / lanes == r)
                continue;
            assert_int_equal(members[r].links[i]->ops->send(members[r].links[i], &v, 1, &moved),
                             LS_OK);
            assert_int_equal(moved, 2);
        }
    }
    for (int r = 0; r < size; r++)
        for (int i = 0; i < size * lanes; i++) {
            char heard[3] = {0};
            struct iovec v = {heard, 3};
            size_t moved = 0;
            if (i / lanes == r)
                continue;
            lsi_link *l = members[r].links[i];
            struct pollfd p = {l->ops->fd(l), POLLIN, 0};
            assert_int_equal(poll(&p, 1, 5000), 1);
            assert_int_equal(l->ops->recv(l, &v, 1, &moved), LS_OK);
            assert_int_equal(moved, 2);
            assert_int_equal(heard[0], i / lanes);
            assert_int_equal(heard[1], i % lanes);
        }
}

static void test_sizes(void **unused)
{
    (void)unused;
    for (int size = 1; size <= MAX; size++)
        for (int lanes = 1; lanes <= LANES_MAX; lanes += 2) {
            int before = count_descriptors();
            open_mesh(size, lanes, 10);
            for (int r = 0; r < size; r++)
                start_member(r);
            join_members(size);
            check_links(size, lanes);
            close_mesh(size);
            assert_int_equal(count_descriptors(), before);
        }
}

/* A peer whose address is empty needs no socket: its links keep their value. */
static void test_partial(void **unused)
{
    (void)unused;
    lsi_link other = {0};
    for (int late = 0; late < 2; late++) {
        open_mesh(4, 1, late ? 1 : 10);
        for (int r = 0; r < 4; r++) {
            members[r].without = 1u << (r ^ 1);
            members[r].links[r ^ 1] = &other;
            other.ops = &(const lsi_link_ops){.name = "other"};
            members[r].absent = late && r == 2;
            if (!members[r].absent)
                start_member(r);
        }
        join_members(4);
        for (int r = 0; r < 4; r++) {
            if (!members[r].absent)
                assert_int_equal(members[r].status, late && r < 2 ? LS_ERR_TIMEOUT : LS_OK);
            assert_ptr_equal(members[r].links[r ^ 1], &other);
            members[r].links[r ^ 1] = NULL;
        }
        close_mesh(4);
    }
}

/* What a stranger does with each connection. */
typedef void (*prank)(int fd, int victim);

static void say_garbage(int fd, int victim)
{
    char noise[1000];
    (void)victim;
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)(i * 37 + 11);
    lsi_net_send_all(fd, noise, sizeof noise, lsi_now() + 1, "victim");
}

static void say_nothing(int fd, int victim)
{
    (void)fd, (void)victim;
}

static void shake_half(int fd, int victim)
{
    lsi_auth auth;
    uint8_t id[LSI_AUTH_IDENTITY_BYTES] = {0};
    id[0] = (uint8_t)(victim + 1);
    lsi_auth_client(&auth, fd, &right_key, LSI_AUTH_RANK, id);
    lsi_net_send_all(fd, auth.hello, sizeof auth.hello / 2, lsi_now() + 1, "victim");
}

static void shake_with(int fd, const lsi_key *key, lsi_auth_purpose purpose, int32_t rank,
                       int32_t lane, int32_t size)
{
    lsi_auth auth;
    int32_t identity[4] = {rank, lane, size, 0};
    if (lsi_auth_client(&auth, fd, key, purpose, (const uint8_t *)identity) == LS_OK)
        lsi_auth_run(&auth, lsi_now() + 0.2, "victim");
}

static void hold_wrong_key(int fd, int victim)
{
    shake_with(fd, &wrong_key, LSI_AUTH_RANK, victim + 1, 0, 4);
}

static void come_for_the_store(int fd, int victim)
{
    shake_with(fd, &right_key, LSI_AUTH_STORE, victim + 1, 0, 4);
}

/* The right key, but nobody who is expected. */
static void be_nobody(int fd, int victim)
{
    static _Atomic unsigned turn;
    static const int32_t who[][3] = {{-1, 0, 4}, {0, 0, 4},  {4, 0, 4},         {99, 0, 4},
                                     {3, 1, 4},  {3, -1, 4}, {3, 0, 5},         {3, 0, 0},
                                     {3, 99, 4}, {-3, 0, 4}, {INT32_MAX, 0, 4}, {3, INT32_MIN, 4}};
    const int32_t *w = who[turn++ % (sizeof who / sizeof *who)];
    shake_with(fd, &right_key, LSI_AUTH_RANK, w[0] == 0 ? victim : w[0], w[1], w[2]);
}

typedef struct stranger {
    prank does;
    int keeps, size; /* leaves its connections open, up to that many */
    pthread_t thread;
} stranger;

/* Visit everybody over and over until the mesh stands. */
static void *bother(void *arg)
{
    stranger *s = arg;
    int open[256], n = 0;
    while (!atomic_load(&stop)) {
        for (int victim = 0; victim < s->size && !atomic_load(&stop); victim++) {
            int fd;
            if (lsi_net_connect(addresses[victim], lsi_now() + 0.05, &fd) != LS_OK)
                continue;
            s->does(fd, victim);
            if (n < s->keeps)
                open[n++] = fd;
            else
                close(fd);
        }
    }
    while (n > 0)
        close(open[--n]);
    return NULL;
}

/* The strangers come first; then the ranks, one after the other. */
static void connect_among(const prank *pranks, int n, int keeps)
{
    enum { SIZE = 4 };
    int before = count_descriptors();
    stranger strangers[8];
    open_mesh(SIZE, 1, 20);
    for (int i = 0; i < n; i++) {
        strangers[i] = (stranger){.does = pranks[i], .keeps = keeps, .size = SIZE};
        assert_int_equal(pthread_create(&strangers[i].thread, NULL, bother, &strangers[i]), 0);
    }
    for (int r = 0; r < SIZE; r++) {
        usleep(20000);
        start_member(r);
    }
    join_members(SIZE);
    atomic_store(&stop, 1);
    for (int i = 0; i < n; i++)
        pthread_join(strangers[i].thread, NULL);
    check_links(SIZE, 1);
    close_mesh(SIZE);
    assert_int_equal(count_descriptors(), before);
}

static void test_strangers(void **unused)
{
    (void)unused;
    static const prank pranks[] = {say_garbage,    say_nothing,        shake_half,
                                   hold_wrong_key, come_for_the_store, be_nobody};
    for (int i = 0; i < 6; i++)
        connect_among(&pranks[i], 1, 20);
    connect_among(pranks, 6, 4);
}

/* More silent connections than are waited for at once. */
static void test_flood(void **unused)
{
    (void)unused;
    static const prank pranks[] = {say_nothing, shake_half};
    connect_among(pranks, 2, 250);
}

/* Who is missing when the time is over is named, by those who miss it. */
static void test_missing(void **unused)
{
    (void)unused;
    for (int absent = 0; absent < 3; absent++) {
        int before = count_descriptors();
        char name[16];
        open_mesh(3, 2, 1);
        members[absent].absent = 1;
        for (int r = 0; r < 3; r++)
            if (r != absent)
                start_member(r);
        double begun = lsi_now();
        join_members(3);
        assert_true(lsi_now() - begun < 4);
        snprintf(name, sizeof name, " %d (", absent);
        for (int r = 0; r < 3; r++) {
            if (r == absent)
                continue;
            assert_int_equal(members[r].status, LS_ERR_TIMEOUT);
            assert_non_null(strstr(members[r].error, name));
            assert_non_null(strstr(members[r].error, addresses[absent]));
            for (int other = 0; other < 3; other++) { /* and nobody else */
                snprintf(name, sizeof name, " %d (", other);
                assert_int_equal(strstr(members[r].error, name) != NULL, other == absent);
            }
            snprintf(name, sizeof name, " %d (", absent);
            for (int i = 0; i < 6; i++)
                assert_null(members[r].links[i]);
        }
        close_mesh(3);
        assert_int_equal(count_descriptors(), before);
    }
}

/* Nobody listens there at all. */
static void test_refused(void **unused)
{
    (void)unused;
    open_mesh(2, 1, 0.3);
    close(members[0].listener);
    members[0].absent = 1;
    start_member(1);
    join_members(2);
    assert_int_equal(members[1].status, LS_ERR_TIMEOUT);
    assert_non_null(strstr(members[1].error, "rank 0 ("));
    close(members[1].listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_partial),
        cmocka_unit_test(test_strangers), cmocka_unit_test(test_flood),
        cmocka_unit_test(test_missing),   cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Real etcds that the test starts: each on a free port, with a data folder of its own.
 *
 * Without an etcd on this machine the tests are skipped, with a word. Each test has a prefix of its
 * own in the one etcd that the group shares. */
#ifndef LS_TEST_STORE_ETCD_FIXTURE_H
#define LS_TEST_STORE_ETCD_FIXTURE_H

#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define SKIPPED 77 /* meson's exit code for it */

typedef struct etcd {
    pid_t pid;
    char folder[64], address[LSI_ADDR_MAX], peer[LSI_ADDR_MAX];
    char name[16], cluster[256];
    char quota[32]; /* empty: etcd's own */
} etcd;

static etcd shared_etcd = {.name = "one"};

static inline void free_port(char address[LSI_ADDR_MAX])
{
    int fd;
    assert_int_equal(lsi_net_listen(NULL, 0, &fd, address), LS_OK);
    close(fd);
}

/* Start it, or start it again where it was; wait until it answers. */
static inline void etcd_spawn(etcd *e)
{
    char client[128], peer[128], data[96], log[96], quota[64];
    snprintf(client, sizeof client, "http://%s", e->address);
    snprintf(peer, sizeof peer, "http://%s", e->peer);
    snprintf(data, sizeof data, "%s/data", e->folder);
    snprintf(log, sizeof log, "%s/log", e->folder);
    snprintf(quota, sizeof quota, "--quota-backend-bytes=%s", *e->quota ? e->quota : "0");
    pid_t parent = getpid();
    e->pid = fork();
    if (e->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(out, STDOUT_FILENO);
        dup2(out, STDERR_FILENO);
        if (getppid() == parent)
            execlp("etcd", "etcd", "--name", e->name, "--data-dir", data, "--listen-client-urls",
                   client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                   "--initial-advertise-peer-urls", peer, "--initial-cluster", e->cluster,
                   "--heartbeat-interval", "50", "--election-timeout", "500", quota, (char *)NULL);
        _exit(127);
    }
}

static inline void etcd_await(const etcd *e)
{
    lsi_store *store = NULL;
    char url[LSI_ADDR_MAX + 32];
    snprintf(url, sizeof url, "etcd://%s/await", e->address);
    if (lsi_store_open(url, &right_key, 30, &store) != LS_OK)
        fail_msg("etcd does not start: %s (%s/log)", ls_last_error(), e->folder);
    lsi_store_close(store);
}

static inline void etcd_prepare(etcd *e)
{
    snprintf(e->folder, sizeof e->folder, "%s/test-etcd-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(e->folder));
    free_port(e->address);
    free_port(e->peer);
    snprintf(e->cluster, sizeof e->cluster, "%s=http://%s", e->name, e->peer);
}

static inline void etcd_start(etcd *e)
{
    etcd_prepare(e);
    etcd_spawn(e);
    etcd_await(e);
}

static inline void etcd_kill(etcd *e)
{
    if (e->pid > 0) {
        kill(e->pid, SIGKILL);
        waitpid(e->pid, NULL, 0);
    }
    e->pid = 0;
}

/* Stop it in the middle of whatever it does; wait until all its threads have. */
static inline void etcd_pause(const etcd *e)
{
    int status = 0;
    kill(e->pid, SIGSTOP);
    assert_int_equal(waitpid(e->pid, &status, WUNTRACED), e->pid);
    assert_true(WIFSTOPPED(status));
}

static inline void etcd_restart(etcd *e)
{
    etcd_kill(e);
    etcd_spawn(e);
    etcd_await(e);
}

static inline void etcd_stop(etcd *e)
{
    etcd_kill(e);
    pid_t child = fork();
    if (child == 0) {
        execlp("rm", "rm", "-rf", e->folder, (char *)NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
}

static inline int has_etcd(void)
{
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execlp("etcd", "etcd", "--version", (char *)NULL);
        _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status == 0;
}

/* Without a proxy that works nothing may go through it; nothing may ask for one. */
static inline void forbid_proxies(void)
{
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("all_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
}

static inline int etcd_group_start(void **state)
{
    (void)state;
    fixture.lease_s = 1;
    fixture.changes = 300;
    etcd_start(&shared_etcd);
    return 0;
}

static inline int etcd_group_stop(void **state)
{
    (void)state;
    etcd_stop(&shared_etcd);
    return 0;
}

/* A prefix of its own, and the etcd of the group, whatever the test before did to it. */
static inline int etcd_test_start(void **state)
{
    (void)state;
    static int number;
    if (shared_etcd.pid > 0)
        kill(shared_etcd.pid, SIGCONT);
    if (shared_etcd.pid == 0 || kill(shared_etcd.pid, 0) != 0)
        etcd_restart(&shared_etcd);
    fixture.descriptors = count_descriptors();
    snprintf(fixture.address, sizeof fixture.address, "%s", shared_etcd.address);
    snprintf(fixture.url, sizeof fixture.url, "etcd://%s/test%d", shared_etcd.address, ++number);
    return 0;
}

static inline int etcd_test_stop(void **state)
{
    (void)state;
    int left = count_descriptors() - fixture.descriptors;
    if (left != 0)
        print_error("%d descriptors are left open\n", left);
    return left;
}

/* POST as anybody could, without the run's key; the answer's status. */
static inline int post_raw(const char *path, const char *body)
{
    char text[2048];
    int fd = -1, code = 0;
    if (lsi_net_connect(shared_etcd.address, lsi_now() + 5, &fd) != LS_OK)
        fail_msg("%s", ls_last_error());
    int n = snprintf(text, sizeof text,
                     "POST /v3/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n%s",
                     path, strlen(body), body);
    assert_true(n > 0 && (size_t)n < sizeof text);
    send_raw(fd, text, (size_t)n);
    assert_int_equal(lsi_net_recv_all(fd, text, 12, lsi_now() + 5, "etcd"), LS_OK);
    code = (text[9] - '0') * 100 + (text[10] - '0') * 10 + text[11] - '0';
    is_dropped_within(fd, 5, NULL);
    close(fd);
    return code;
}

#define ETCD(test) cmocka_unit_test_setup_teardown(test, etcd_test_start, etcd_test_stop)

#define RUN_WITH_ETCD(tests)                                                                       \
    (forbid_proxies(), has_etcd()                                                                  \
                           ? cmocka_run_group_tests(tests, etcd_group_start, etcd_group_stop)      \
                           : (printf("skipped: there is no etcd on this machine (Debian: "         \
                                     "etcd-server)\n"),                                            \
                              SKIPPED))

#endif

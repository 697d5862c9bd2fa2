/* TCP helpers on loopback: addresses, flags, refusals, deadlines, lost peers, signals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/net.h"
#include "base/status.h"

static void assert_error_has(const char *words)
{
    if (!strstr(ls_last_error(), words))
        fail_msg("'%s' lacks '%s'", ls_last_error(), words);
}

/* A connected pair over loopback. */
static void make_pair(const char *host, int *client, int *server)
{
    int listener;
    char address[LSI_ADDR_MAX];
    assert_int_equal(lsi_net_listen(host, 0, &listener, address), LS_OK);
    assert_int_equal(lsi_net_connect(address, lsi_now() + 5, client), LS_OK);
    assert_int_equal(lsi_net_wait(listener, POLLIN, lsi_now() + 5), LS_OK);
    assert_int_equal(lsi_net_accept(listener, server), LS_OK);
    close(listener);
}

/* An address on which nobody listens. */
static void free_address(char address[LSI_ADDR_MAX])
{
    int fd;
    assert_int_equal(lsi_net_listen(NULL, 0, &fd, address), LS_OK);
    close(fd);
}

static void splits_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        int port;
    } good[] = {{"127.0.0.1:80", "127.0.0.1", 80},
                {"node-7.cluster:65535", "node-7.cluster", 65535},
                {"[::1]:29500", "::1", 29500},
                {"[fe80::1%eth0]:0", "fe80::1%eth0", 0}};
    static const char *const bad[] = {"",       "host",      ":80",      "host:",    "host:x",
                                      "h:-1",   "h:65536",   "h:123456", "h:80 ",    "h: 80",
                                      "::1:80", "[::1]",     "[::1]80",  "[]:80",    "[::1:80",
                                      "a b:80", "tcp://h:1", "h:0x10",   "[[::1]]:1"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char host[LSI_ADDR_MAX];
        int port = -1;
        assert_int_equal(lsi_net_split(good[i].text, host, &port), LS_OK);
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char host[LSI_ADDR_MAX] = "untouched";
        int port = -7;
        if (lsi_net_split(bad[i], host, &port) != LS_ERR_CONFIG)
            fail_msg("accepted '%s'", bad[i]);
        assert_string_equal(host, "untouched");
        assert_int_equal(port, -7);
    }
    char longest[200];
    memset(longest, 'a', sizeof longest);
    snprintf(longest + LSI_ADDR_MAX, 8, ":1");
    char host[LSI_ADDR_MAX];
    int port;
    assert_int_equal(lsi_net_split(longest, host, &port), LS_ERR_CONFIG);
    assert_int_equal(lsi_net_split(longest + 1, host, &port), LS_OK); /* 79 characters */
}

static void check_socket(int fd)
{
    int on = 0;
    socklen_t length = sizeof on;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &length), 0);
    assert_int_not_equal(on, 0);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &length), 0);
    assert_int_not_equal(on, 0);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void connects(const char *host, const char *begins)
{
    int listener, client, server;
    char address[LSI_ADDR_MAX], peer[LSI_ADDR_MAX], local[LSI_ADDR_MAX], interface[32];
    assert_int_equal(lsi_net_listen(host, 0, &listener, address), LS_OK);
    assert_memory_equal(address, begins, strlen(begins));
    assert_true(fcntl(listener, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(listener, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(lsi_net_accept(listener, &server), LS_IN_PROGRESS);

    assert_int_equal(lsi_net_connect_start(address, &client), LS_OK);
    assert_int_equal(lsi_net_wait(client, POLLOUT, lsi_now() + 5), LS_OK);
    assert_int_equal(lsi_net_connected(client, address), LS_OK);
    assert_int_equal(lsi_net_accept(listener, &server), LS_OK);
    assert_int_equal(lsi_net_accept(listener, &(int){0}), LS_IN_PROGRESS);
    check_socket(client);
    check_socket(server);
    lsi_net_peer(client, peer);
    assert_string_equal(peer, address);
    assert_int_equal(lsi_net_local(server, local, interface), LS_OK);
    assert_string_equal(interface, "lo");
    assert_non_null(strstr(address, local));
    close(client);
    close(server);
    close(listener);
}

static void assert_calm(int fd)
{
    char control[16] = "";
    socklen_t length = sizeof control;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &length), 0);
    assert_string_equal(control, "reno");
}

/* Within this host: no pacing, from the first packet on. */
static void never_paces_within_host(void **state)
{
    (void)state;
    int listener, client, server;
    char address[LSI_ADDR_MAX];
    assert_int_equal(lsi_net_listen(NULL, 0, &listener, address), LS_OK);
    assert_calm(listener);
    assert_int_equal(lsi_net_connect_start(address, &client), LS_OK);
    assert_calm(client);
    assert_int_equal(lsi_net_wait(client, POLLOUT, lsi_now() + 5), LS_OK);
    assert_int_equal(lsi_net_connected(client, address), LS_OK);
    assert_int_equal(lsi_net_accept(listener, &server), LS_OK);
    assert_calm(client);
    assert_calm(server);
    close(client);
    close(server);
    close(listener);
}

static void connects_v4(void **state)
{
    (void)state;
    connects(NULL, "127.0.0.1:");
    connects("127.0.0.2", "127.0.0.2:");
    connects("localhost", "");
}

static void connects_v6(void **state)
{
    (void)state;
    int fd;
    char address[LSI_ADDR_MAX];
    if (lsi_net_listen("::1", 0, &fd, address) != LS_OK)
        skip(); /* a machine without IPv6 */
    close(fd);
    connects("::1", "[::1]:");
}

static void sees_through_mapped_addresses(void **state)
{
    (void)state;
    int listener, client, server;
    char address[LSI_ADDR_MAX], four[LSI_ADDR_MAX], host[LSI_ADDR_MAX], interface[32];
    if (lsi_net_listen("::", 0, &listener, address) != LS_OK)
        skip();
    snprintf(four, sizeof four, "127.0.0.1%s", strrchr(address, ':'));
    assert_int_equal(lsi_net_connect(four, lsi_now() + 5, &client), LS_OK);
    assert_int_equal(lsi_net_wait(listener, POLLIN, lsi_now() + 5), LS_OK);
    assert_int_equal(lsi_net_accept(listener, &server), LS_OK);
    assert_int_equal(lsi_net_local(server, host, interface), LS_OK);
    assert_string_equal(host, "127.0.0.1");
    assert_string_equal(interface, "lo");
    close(client);
    close(server);
    close(listener);
}

static void reuse_only_for_known_ports(void **state)
{
    (void)state;
    int any, known, on = 1;
    socklen_t length = sizeof on;
    char address[LSI_ADDR_MAX], host[LSI_ADDR_MAX];
    int port;
    assert_int_equal(lsi_net_listen(NULL, 0, &any, address), LS_OK);
    assert_int_equal(getsockopt(any, SOL_SOCKET, SO_REUSEADDR, &on, &length), 0);
    assert_int_equal(on, 0);
    assert_int_equal(lsi_net_split(address, host, &port), LS_OK);

    assert_int_equal(lsi_net_listen(NULL, port, &known, address), LS_ERR_SYSTEM);
    assert_error_has("choose another port");
    assert_error_has(strrchr(address, ':') + 1);
    close(any);
    assert_int_equal(lsi_net_listen(NULL, port, &known, address), LS_OK);
    assert_int_equal(getsockopt(known, SOL_SOCKET, SO_REUSEADDR, &on, &length), 0);
    assert_int_not_equal(on, 0);
    close(known);
}

static void listen_errors_say_what_to_do(void **state)
{
    (void)state;
    int fd = -5;
    char address[LSI_ADDR_MAX] = "untouched";
    assert_int_equal(lsi_net_listen("192.0.2.1", 0, &fd, address), LS_ERR_SYSTEM);
    assert_error_has("192.0.2.1");
    assert_error_has("address of this machine");
    assert_int_equal(lsi_net_listen(NULL, 65536, &fd, address), LS_ERR_CONFIG);
    assert_int_equal(lsi_net_listen("no such host", 0, &fd, address), LS_ERR_CONFIG);
    assert_int_equal(fd, -5);
    assert_string_equal(address, "untouched");
}

static void refusal_is_told(void **state)
{
    (void)state;
    char address[LSI_ADDR_MAX];
    int fd;
    free_address(address);
    assert_int_equal(lsi_net_connect_start(address, &fd), LS_OK);
    assert_int_equal(lsi_net_wait(fd, POLLOUT, lsi_now() + 5), LS_OK);
    assert_int_equal(lsi_net_connected(fd, address), LS_ERR_PEER_DEAD);
    assert_error_has(address);
    close(fd);

    double began = lsi_now();
    fd = -5;
    assert_int_equal(lsi_net_connect(address, began + 0.2, &fd), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began >= 0.2 && lsi_now() - began < 1.5);
    assert_int_equal(fd, -5);
    assert_error_has(address);
    assert_error_has("is it running");

    assert_int_equal(lsi_net_connect("127.0.0.1:0", lsi_now() + 1, &fd), LS_ERR_CONFIG);
    assert_int_equal(lsi_net_connect("127.0.0.1", lsi_now() + 1, &fd), LS_ERR_CONFIG);
    assert_int_equal(lsi_net_connect_start("nobody@home:1", &fd), LS_ERR_CONFIG);
}

/* A listener whose queue is full does not answer: in progress, until the deadline. */
static void no_answer_is_waited_for(void **state)
{
    (void)state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd[8], n = 0, extra = -5;
    char address[LSI_ADDR_MAX];
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &length), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(a.sin_port));
    ls_status status = LS_OK;
    while (status == LS_OK && n < 8) {
        assert_int_equal(lsi_net_connect_start(address, &fd[n]), LS_OK);
        if (lsi_net_wait(fd[n], POLLOUT, lsi_now() + 0.2) != LS_OK)
            status = lsi_net_connected(fd[n], address);
        n++;
    }
    assert_int_equal(status, LS_IN_PROGRESS);
    double began = lsi_now();
    assert_int_equal(lsi_net_connect(address, began + 0.3, &extra), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began >= 0.3 && lsi_now() - began < 1.5);
    assert_error_has("firewall");
    assert_int_equal(extra, -5);
    while (n > 0)
        close(fd[--n]);
    close(listener);
}

static void *listen_late(void *arg)
{
    char host[LSI_ADDR_MAX], address[LSI_ADDR_MAX];
    int port, fd = -1;
    poll(NULL, 0, 150);
    if (lsi_net_split(arg, host, &port) == LS_OK)
        lsi_net_listen(host, port, &fd, address);
    return (void *)(intptr_t)fd;
}

static void connect_waits_for_the_listener(void **state)
{
    (void)state;
    char address[LSI_ADDR_MAX];
    int fd;
    void *listener;
    pthread_t thread;
    free_address(address);
    assert_int_equal(pthread_create(&thread, NULL, listen_late, address), 0);
    double began = lsi_now();
    assert_int_equal(lsi_net_connect(address, began + 5, &fd), LS_OK);
    assert_true(lsi_now() - began >= 0.14);
    pthread_join(thread, &listener);
    close(fd);
    close((int)(intptr_t)listener);
}

static void connection_to_oneself_is_a_refusal(void **state)
{
    (void)state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &length), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0); /* TCP allows it */
    assert_int_equal(lsi_net_connected(fd, "oneself"), LS_ERR_PEER_DEAD);
    close(fd);
}

#define BULK ((size_t)8 << 20)

static void *send_bulk(void *arg)
{
    uint32_t *data = malloc(BULK);
    for (uint32_t i = 0; i < BULK / 4; i++)
        data[i] = i * 2654435761u;
    ls_status status = lsi_net_send_all(*(int *)arg, data, BULK, lsi_now() + 20, "the reader");
    free(data);
    return (void *)(intptr_t)status;
}

static void moves_bulk(void **state)
{
    (void)state;
    int client, server;
    pthread_t thread;
    void *status;
    make_pair(NULL, &client, &server);
    assert_int_equal(pthread_create(&thread, NULL, send_bulk, &client), 0);
    uint32_t *data = malloc(BULK);
    assert_int_equal(lsi_net_recv_all(server, data, BULK, lsi_now() + 20, "the writer"), LS_OK);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, LS_OK);
    for (uint32_t i = 0; i < BULK / 4; i++) {
        if (data[i] != i * 2654435761u)
            fail_msg("word %u differs", i);
    }
    assert_int_equal(lsi_net_recv_all(server, data, 0, 0, "nobody"), LS_OK);
    free(data);
    close(client);
    close(server);
}

static void deadlines_are_kept(void **state)
{
    (void)state;
    int client, server;
    char byte[8];
    make_pair(NULL, &client, &server);
    double began = lsi_now();
    assert_int_equal(lsi_net_send_all(client, "abc", 3, began + 1, "rank 1"), LS_OK);
    assert_int_equal(lsi_net_recv_all(server, byte, 8, began + 0.1, "rank 4"), LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began >= 0.1 && lsi_now() - began < 1);
    assert_error_has("rank 4");
    assert_error_has("3 of 8 bytes");

    char *data = calloc(1, BULK * 4);
    began = lsi_now();
    assert_int_equal(lsi_net_send_all(client, data, BULK * 4, began + 0.1, "rank 5"),
                     LS_ERR_TIMEOUT);
    assert_true(lsi_now() - began >= 0.1 && lsi_now() - began < 5);
    assert_error_has("rank 5");
    free(data);
    close(client);
    close(server);
}

/* SIGPIPE has its default action here, which would end the test. */
static void lost_peers_are_told(void **state)
{
    (void)state;
    int client, server;
    char byte[8];
    make_pair(NULL, &client, &server);
    assert_int_equal(lsi_net_send_all(client, "abc", 3, lsi_now() + 1, "rank 1"), LS_OK);
    close(client);
    assert_int_equal(lsi_net_recv_all(server, byte, 8, lsi_now() + 5, "rank 2"), LS_ERR_PEER_DEAD);
    assert_error_has("rank 2");
    assert_error_has("3 of 8 bytes");
    ls_status status = LS_OK;
    for (int i = 0; i < 100 && status == LS_OK; i++) { /* the first meets the RST */
        status = lsi_net_send_all(server, "abc", 3, lsi_now() + 1, "rank 3");
        poll(NULL, 0, 1);
    }
    assert_int_equal(status, LS_ERR_PEER_DEAD);
    assert_error_has("rank 3");
    close(server);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

static void signals_do_not_disturb(void **state)
{
    (void)state;
    int client, server;
    char byte;
    struct sigaction action = {.sa_handler = on_alarm}, old;
    struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    make_pair(NULL, &client, &server);
    sigaction(SIGALRM, &action, &old);
    setitimer(ITIMER_REAL, &often, NULL);
    double began = lsi_now();
    ls_status status = lsi_net_recv_all(server, &byte, 1, began + 0.2, "rank 1");
    double took = lsi_now() - began;
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &old, NULL);
    assert_int_equal(status, LS_ERR_TIMEOUT);
    assert_true(took >= 0.2 && took < 1);
    assert_true(alarms >= 5);
    close(client);
    close(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_addresses),
        cmocka_unit_test(connects_v4),
        cmocka_unit_test(never_paces_within_host),
        cmocka_unit_test(connects_v6),
        cmocka_unit_test(sees_through_mapped_addresses),
        cmocka_unit_test(reuse_only_for_known_ports),
        cmocka_unit_test(listen_errors_say_what_to_do),
        cmocka_unit_test(refusal_is_told),
        cmocka_unit_test(no_answer_is_waited_for),
        cmocka_unit_test(connect_waits_for_the_listener),
        cmocka_unit_test(connection_to_oneself_is_a_refusal),
        cmocka_unit_test(moves_bulk),
        cmocka_unit_test(deadlines_are_kept),
        cmocka_unit_test(lost_peers_are_told),
        cmocka_unit_test(signals_do_not_disturb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* TCP sockets: addresses, listening, connecting, moving bytes before a deadline.
 *
 * Everything that waits does so in lsi_net_wait, so a deadline is kept in one place.
 *
 * Invariants:
 * 1. A function that fails leaves no descriptor open.
 * 2. A connection to oneself is a refusal: while retrying a free port of the ephemeral range, TCP
 *    sooner or later gives the caller that very port and connects it with itself.
 * 3. Pacing (bbr) has nothing to gain between two ends on one host, and costs there up to half of
 *    the time. A socket that has begun to pace goes on under any other congestion control: so all
 *    begin without, and what leaves the host takes the system's once it is connected.
 */
#include "base/net.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

#define KEEP_IDLE_S 10
#define KEEP_INTERVAL_S 5
#define KEEP_PROBES 4
#define RETRY_FIRST_S 0.002
#define RETRY_MOST_S 0.1

static const char calm[] = "reno"; /* every kernel has it, for every user; it does not pace */

ls_status lsi_net_wait(int fd, short events, double deadline)
{
    for (;;) {
        double left = deadline - lsi_now();
        int ms = left > 3600 ? 3600000 : left > 0 ? (int)(left * 1e3) + 1 : 0;
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, ms);
        if (n > 0)
            return LS_OK;
        if (n < 0 && errno != EINTR)
            return lsi_fail_errno("poll", "descriptor %d", fd);
        if (n == 0 && !(lsi_now() < deadline))
            return LS_IN_PROGRESS;
    }
}

/* Whether an error says that the peer, not this process, is at fault. */
static int is_lost(int code)
{
    return code == EPIPE || code == ECONNRESET || code == ECONNREFUSED || code == ECONNABORTED ||
           code == ETIMEDOUT || code == EHOSTUNREACH || code == ENETUNREACH || code == EHOSTDOWN ||
           code == ENETDOWN || code == ENETRESET;
}

ls_status lsi_net_fail(const char *what, const char *who)
{
    int code = errno;
    if (is_lost(code))
        return lsi_fail(LS_ERR_PEER_DEAD, "the log of that side says why it ended", what, "%s: %s",
                        who, strerror(code));
    if (code == EMFILE || code == ENFILE)
        return lsi_fail(LS_ERR_SYSTEM, "raise the limit of open files: ulimit -n", what, "%s: %s",
                        who, strerror(code));
    errno = code;
    return lsi_fail_errno(what, "%s", who);
}

/* Latency first; a failure here costs speed, not correctness, so it is not looked at. */
static void tune(int fd)
{
    int on = 1, idle = KEEP_IDLE_S, interval = KEEP_INTERVAL_S, probes = KEEP_PROBES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* An IPv4 address in IPv6 clothes ("::ffff:10.0.0.1") becomes the IPv4 address it is. */
static void unmap(struct sockaddr_storage *a)
{
    struct sockaddr_in6 six;
    memcpy(&six, a, sizeof six);
    if (a->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
        return;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six.sin6_port};
    memcpy(&four.sin_addr, &six.sin6_addr.s6_addr[12], 4);
    memset(a, 0, sizeof *a);
    memcpy(a, &four, sizeof four);
}

static int format_host(const struct sockaddr_storage *a, char host[LSI_ADDR_MAX], char port[8])
{
    socklen_t length =
        a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return getnameinfo((const struct sockaddr *)a, length, host, LSI_ADDR_MAX, port, 8,
                       NI_NUMERICHOST | NI_NUMERICSERV);
}

/* "ADDRESS:PORT", an IPv6 address in brackets. Nonzero when it cannot be told. */
static int format_address(const struct sockaddr_storage *a, char address[LSI_ADDR_MAX])
{
    char host[LSI_ADDR_MAX], port[8];
    if (format_host(a, host, port) != 0)
        return -1;
    int n = snprintf(address, LSI_ADDR_MAX, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    return n < LSI_ADDR_MAX ? 0 : -1;
}

/* Invariant 3: before a socket listens or connects. Best effort, as all tuning. */
static void begin_calm(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, calm, sizeof calm - 1);
}

static int is_within_host(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t length = sizeof here, other = sizeof there;
    char own[LSI_ADDR_MAX], peer[LSI_ADDR_MAX], port[8];
    if (getsockname(fd, (struct sockaddr *)&here, &length) != 0 ||
        getpeername(fd, (struct sockaddr *)&there, &other) != 0)
        return 0;
    unmap(&here);
    unmap(&there);
    return format_host(&here, own, port) == 0 && format_host(&there, peer, port) == 0 &&
           strcmp(own, peer) == 0;
}

/* A new connection that leaves the host: the system's congestion control, unless a route has
 * brought its own. */
static void end_calm(int fd)
{
    char name[16]; /* as long as any name may be */
    socklen_t length = sizeof name;
    if (is_within_host(fd) || getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0 ||
        strcmp(name, calm) != 0)
        return;
    int fresh = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* it has the system's */
    length = sizeof name;
    if (fresh >= 0 && getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strnlen(name, length));
    if (fresh >= 0)
        close(fresh);
}

void lsi_net_peer(int fd, char address[LSI_ADDR_MAX])
{
    struct sockaddr_storage a = {0};
    socklen_t length = sizeof a;
    if (getpeername(fd, (struct sockaddr *)&a, &length) == 0) {
        unmap(&a);
        if (format_address(&a, address) == 0)
            return;
    }
    snprintf(address, LSI_ADDR_MAX, "?");
}

ls_status lsi_net_split(const char *address, char host[LSI_ADDR_MAX], int *port)
{
    static const char hint[] = "write HOST:PORT, with brackets around an IPv6 address";
    const char *begin = address, *end = strrchr(address, ':');
    const char *digits = end ? end + 1 : "";
    if (end && *begin == '[' && end[-1] == ']') {
        begin++;
        end--;
    } else if (end && memchr(begin, ':', (size_t)(end - begin))) {
        end = NULL; /* "::1:80" may be an address without a port */
    }
    if (!end || end <= begin || (size_t)(end - begin) >= LSI_ADDR_MAX)
        return lsi_fail(LS_ERR_CONFIG, hint, "address", "'%.100s' is not HOST:PORT", address);
    if (strcspn(begin, "[] \t/") < (size_t)(end - begin))
        return lsi_fail(LS_ERR_CONFIG, hint, "address", "'%.100s' has a strange host", address);

    size_t n = strspn(digits, "0123456789");
    long number = n > 0 && n <= 5 && digits[n] == '\0' ? strtol(digits, NULL, 10) : -1;
    if (number < 0 || number > 65535)
        return lsi_fail(LS_ERR_CONFIG, "a port is a number up to 65535", "address",
                        "'%.100s' has no valid port", address);
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    *port = (int)number;
    return LS_OK;
}

/* All addresses of a name; 0 or an EAI_ code. */
static int look_up(const char *host, int port, int flags, struct addrinfo **list)
{
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | flags};
    return getaddrinfo(host, service, &hints, list);
}

static ls_status fail_look_up(const char *what, const char *host, int code)
{
    if (code == EAI_MEMORY)
        return lsi_fail(LS_ERR_NOMEM, NULL, what, "no memory to look up '%s'", host);
    return lsi_fail(LS_ERR_CONFIG, "check the spelling and DNS, or give a numeric address", what,
                    "host '%s': %s", host,
                    code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
}

/* Bind one address; 0 or errno. */
static int listen_at(const struct addrinfo *a, int port, int *fd, char address[LSI_ADDR_MAX])
{
    int on = 1;
    int s = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0)
        return errno;
    /* A known port must be usable again right after a restart; a free one must be really free. */
    if (port != 0)
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    begin_calm(s);
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound;
    int code = 0;
    if (bind(s, a->ai_addr, a->ai_addrlen) != 0 || listen(s, SOMAXCONN) != 0 ||
        getsockname(s, (struct sockaddr *)&bound, &length) != 0)
        code = errno;
    else if (format_address(&bound, address) != 0)
        code = ENAMETOOLONG;
    if (code != 0) {
        close(s);
        return code;
    }
    *fd = s;
    return 0;
}

ls_status lsi_net_listen(const char *host, int port, int *fd, char address[LSI_ADDR_MAX])
{
    if (!host)
        host = "127.0.0.1";
    if (port < 0 || port > 65535)
        return lsi_fail(LS_ERR_CONFIG, "a port is a number up to 65535, 0 for any", "listen",
                        "port %d of %s", port, host);
    struct addrinfo *list = NULL;
    int code = look_up(host, port, AI_PASSIVE, &list);
    if (code != 0)
        return fail_look_up("listen", host, code);
    code = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a && code != 0; a = a->ai_next)
        code = listen_at(a, port, fd, address);
    freeaddrinfo(list);
    if (code == 0)
        return LS_OK;
    const char *hint = code == EADDRINUSE      ? "choose another port, or 0 for any free one"
                       : code == EADDRNOTAVAIL ? "give an address of this machine: ip addr"
                       : code == EACCES        ? "ports below 1024 are for root"
                                               : NULL;
    return lsi_fail(code == ENOMEM ? LS_ERR_NOMEM : LS_ERR_SYSTEM, hint, "listen",
                    "port %d of %s: %s", port, host, strerror(code));
}

ls_status lsi_net_accept(int listener, int *fd)
{
    for (;;) {
        int s = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (s >= 0) {
            tune(s);
            end_calm(s);
            *fd = s;
            return LS_OK;
        }
        if (errno == EAGAIN)
            return LS_IN_PROGRESS;
        /* accept(2): errors already pending on the new connection are its own; take the next. */
        if (errno != EINTR && errno != EPROTO && !is_lost(errno))
            return lsi_net_fail("accept", "a new connection");
    }
}

/* Start a connection to one address; 0 or errno. */
static int start(const struct addrinfo *a, int *fd)
{
    int s = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0)
        return errno;
    tune(s);
    begin_calm(s);
    /* Interrupted, a connection is made all the same. */
    if (connect(s, a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS && errno != EINTR) {
        int code = errno;
        close(s);
        return code;
    }
    *fd = s;
    return 0;
}

/* The outcome of a connection: 0, EINPROGRESS, or the error. */
static int outcome(int fd)
{
    int code = 0;
    socklen_t length = sizeof code;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length) != 0)
        return errno;
    if (code != 0)
        return code;
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_length = sizeof here, there_length = sizeof there;
    if (getpeername(fd, (struct sockaddr *)&there, &there_length) != 0)
        return errno == ENOTCONN ? EINPROGRESS : errno;
    if (getsockname(fd, (struct sockaddr *)&here, &here_length) != 0)
        return errno;
    if (here_length == there_length && memcmp(&here, &there, here_length) == 0)
        return ECONNREFUSED; /* invariant 2 */
    end_calm(fd);
    return 0;
}

static ls_status find(const char *address, char host[LSI_ADDR_MAX], int *port)
{
    LSI_TRY(lsi_net_split(address, host, port));
    if (*port == 0)
        return lsi_fail(LS_ERR_CONFIG, "give the port that the other side printed", "connect",
                        "%s: nobody listens on port 0", address);
    return LS_OK;
}

ls_status lsi_net_connect_start(const char *address, int *fd)
{
    char host[LSI_ADDR_MAX];
    int port;
    LSI_TRY(find(address, host, &port));
    struct addrinfo *list = NULL;
    int code = look_up(host, port, 0, &list);
    if (code != 0)
        return fail_look_up("connect", host, code);
    code = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a && code != 0; a = a->ai_next)
        code = start(a, fd);
    freeaddrinfo(list);
    if (code == 0)
        return LS_OK;
    errno = code;
    return lsi_net_fail("connect", address);
}

ls_status lsi_net_connected(int fd, const char *address)
{
    int code = outcome(fd);
    if (code == 0)
        return LS_OK;
    if (code == EINPROGRESS)
        return LS_IN_PROGRESS;
    if (code == ECONNREFUSED)
        return lsi_fail(LS_ERR_PEER_DEAD, "is it running, and is this its address?", "connect",
                        "%s: nobody listens there", address);
    errno = code;
    return lsi_net_fail("connect", address);
}

/* Try every address once, each with its share of the time left; 0 or the most telling errno. */
static int connect_once(const struct addrinfo *list, double deadline, int *fd)
{
    int left = 0, worst = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        left++;
    for (const struct addrinfo *a = list; a; a = a->ai_next, left--) {
        int s = -1, code = start(a, &s);
        if (code == 0) {
            double now = lsi_now();
            ls_status status = lsi_net_wait(s, POLLOUT, now + (deadline - now) / left);
            code = status == LS_OK ? outcome(s) : status == LS_IN_PROGRESS ? ETIMEDOUT : EIO;
            if (code == 0) {
                *fd = s;
                return 0;
            }
            close(s);
        }
        /* "refused" tells more than "this machine has no IPv6" */
        if (is_lost(code) || !is_lost(worst))
            worst = code;
    }
    return worst;
}

/* Sleep, but not past the deadline. */
static void nap(double seconds, double deadline)
{
    double left = deadline - lsi_now();
    double s = seconds < left ? seconds : left;
    if (s > 0)
        poll(NULL, 0, (int)(s * 1e3) + 1);
}

ls_status lsi_net_connect(const char *address, double deadline, int *fd)
{
    char host[LSI_ADDR_MAX];
    int port;
    LSI_TRY(find(address, host, &port));
    double began = lsi_now();
    const char *last = "no attempt was made";
    for (double pause = RETRY_FIRST_S;;
         pause = pause * 2 < RETRY_MOST_S ? pause * 2 : RETRY_MOST_S) {
        struct addrinfo *list = NULL;
        int code = look_up(host, port, 0, &list);
        if (code != 0 && code != EAI_AGAIN)
            return fail_look_up("connect", host, code);
        if (code == 0) {
            code = connect_once(list, deadline, fd);
            freeaddrinfo(list);
            if (code == 0)
                return LS_OK;
            errno = code;
            if (!is_lost(code))
                return lsi_net_fail("connect", address);
            last = code == ECONNREFUSED ? "nobody listens there" : strerror(code);
        } else {
            last = gai_strerror(code);
        }
        nap(pause, deadline);
        if (!(lsi_now() < deadline))
            return lsi_fail(LS_ERR_TIMEOUT,
                            "is it running, is this its address, does a firewall lie between?",
                            "connect", "%s: %s, tried for %.1f s", address, last,
                            lsi_now() - began);
    }
}

/* Whether an interface owns an address. Loopback owns its whole IPv4 network: 127.0.0.2 is local
 * although no interface lists it. */
static int owns(const struct ifaddrs *i, const struct sockaddr_storage *a, const char *host)
{
    struct sockaddr_storage b = {0};
    char name[LSI_ADDR_MAX], port[8];
    if (!i->ifa_addr || i->ifa_addr->sa_family != a->ss_family)
        return 0;
    if (a->ss_family == AF_INET && (i->ifa_flags & IFF_LOOPBACK) && strncmp(host, "127.", 4) == 0)
        return 1;
    memcpy(&b, i->ifa_addr,
           a->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    return format_host(&b, name, port) == 0 && strcmp(name, host) == 0;
}

/* The address from which packets to the other end of `fd` leave: that of a datagram socket, which
 * is connected without sending anything. 0 when it cannot be told. */
static int find_source(int fd, struct sockaddr_storage *source)
{
    struct sockaddr_storage peer = {0};
    socklen_t length = sizeof peer, room = sizeof *source;
    if (getpeername(fd, (struct sockaddr *)&peer, &length) != 0)
        return 0;
    int probe = socket(peer.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0)
        return 0;
    int found = connect(probe, (struct sockaddr *)&peer, length) == 0 &&
                getsockname(probe, (struct sockaddr *)source, &room) == 0;
    close(probe);
    return found;
}

static void find_owner(const struct sockaddr_storage *a, char interface[32])
{
    char port[8], host[LSI_ADDR_MAX];
    struct ifaddrs *list = NULL;
    const struct ifaddrs *owner = NULL;
    if (format_host(a, host, port) == 0 && getifaddrs(&list) == 0) {
        for (owner = list; owner && !owns(owner, a, host);)
            owner = owner->ifa_next;
    }
    snprintf(interface, 32, "%s", owner ? owner->ifa_name : "?");
    if (list)
        freeifaddrs(list);
}

ls_status lsi_net_local(int fd, char host[LSI_ADDR_MAX], char interface[32])
{
    struct sockaddr_storage a = {0}, source = {0};
    socklen_t length = sizeof a;
    char port[8], own[LSI_ADDR_MAX];
    if (getsockname(fd, (struct sockaddr *)&a, &length) != 0)
        return lsi_net_fail("local address", "a connection");
    unmap(&a);
    int code = format_host(&a, own, port);
    if (code != 0)
        return lsi_fail(LS_ERR_SYSTEM, NULL, "local address", "%s", gai_strerror(code));
    if (!find_source(fd, &source))
        source = a;
    unmap(&source);
    find_owner(&source, interface);
    memcpy(host, own, LSI_ADDR_MAX);
    return LS_OK;
}

ls_status lsi_net_send_all(int fd, const void *data, size_t bytes, double deadline, const char *who)
{
    const char *at = data;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(fd, at + done, bytes - done, MSG_NOSIGNAL);
        if (n >= 0) {
            done += (size_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return lsi_net_fail("send to", who);
        ls_status status = lsi_net_wait(fd, POLLOUT, deadline);
        if (status == LS_IN_PROGRESS)
            return lsi_fail(LS_ERR_TIMEOUT, "is that side alive and reading?", "send to",
                            "%s: it took %zu of %zu bytes before the deadline", who, done, bytes);
        LSI_TRY(status);
    }
    return LS_OK;
}

ls_status lsi_net_recv_all(int fd, void *data, size_t bytes, double deadline, const char *who)
{
    char *at = data;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = recv(fd, at + done, bytes - done, 0);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n == 0)
            return lsi_fail(LS_ERR_PEER_DEAD, "the log of that side says why it ended",
                            "receive from", "%s: it closed the connection after %zu of %zu bytes",
                            who, done, bytes);
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return lsi_net_fail("receive from", who);
        ls_status status = lsi_net_wait(fd, POLLIN, deadline);
        if (status == LS_IN_PROGRESS)
            return lsi_fail(LS_ERR_TIMEOUT, "is that side alive?", "receive from",
                            "%s: %zu of %zu bytes came before the deadline", who, done, bytes);
        LSI_TRY(status);
    }
    return LS_OK;
}

/* Messages of the gate, as packets with descriptors. */
#include "base/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/status.h"

static const char what[] = "gate";

ls_status lsi_gate_pair(int fds[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
        return lsi_fail_errno(what, "socketpair");
    const int room = 4 * (int)sizeof(lsi_gate_message);
    (void)setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    return LS_OK;
}

ls_status lsi_gate_find(int *fd)
{
    long number = -1;
    LSI_TRY(lsi_env_int(LSI_GATE_ENV, 0, INT_MAX, &number));
    if (number < 0)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, what, LSI_GATE_ENV " is not set");
    const int flags = fcntl((int)number, F_GETFD);
    if (flags < 0 || fcntl((int)number, F_SETFD, flags | FD_CLOEXEC) != 0)
        return lsi_fail(LS_ERR_CONFIG, "start it with `lockstep train`", what,
                        "the descriptor of " LSI_GATE_ENV " is not open");
    unsetenv(LSI_GATE_ENV);
    *fd = (int)number;
    return LS_OK;
}

typedef union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(LSI_GATE_FILES * sizeof(int))];
} control;

ls_status lsi_gate_send(int fd, const lsi_gate_message *message)
{
    lsi_gate_message copy = *message;
    struct iovec body = {&copy, sizeof copy};
    control files = {0};
    struct msghdr packet = {.msg_iov = &body, .msg_iovlen = 1};
    if (message->n_files) {
        const size_t bytes = (size_t)message->n_files * sizeof(int);
        packet.msg_control = files.bytes;
        packet.msg_controllen = CMSG_SPACE(bytes);
        files.header.cmsg_level = SOL_SOCKET;
        files.header.cmsg_type = SCM_RIGHTS;
        files.header.cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(&files.header), message->files, bytes);
    }
    ssize_t n;
    while ((n = sendmsg(fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EINTR)
        ;
    explicit_bzero(&copy, sizeof copy);
    if (n == (ssize_t)sizeof copy)
        return LS_OK;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN))
        return lsi_fail(LS_ERR_PEER_DEAD, NULL, what, "the other side is gone");
    return lsi_fail_errno(what, "sendmsg");
}

void lsi_gate_drop(lsi_gate_message *message, int but)
{
    for (int i = 0; i < message->n_files; i++)
        if (i != but)
            close(message->files[i]);
    message->n_files = 0;
}

/* Signals do not shorten the wait. */
static int wait_for_packet(int fd, double timeout_s)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const double deadline = lsi_now() + timeout_s;
    int n;
    do {
        const double left = deadline - lsi_now();
        n = poll(&p, 1, left > 0 ? (int)ceil(left * 1000) : 0);
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

/* The descriptors of a packet, whatever it says: they are ours to close. */
static void take_files(struct msghdr *packet, lsi_gate_message *message)
{
    message->n_files = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(packet); h; h = CMSG_NXTHDR(packet, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        message->n_files = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(message->files, CMSG_DATA(h), (size_t)message->n_files * sizeof(int));
    }
}

ls_status lsi_gate_receive(int fd, double timeout_s, lsi_gate_message *message)
{
    struct iovec body = {message, sizeof *message};
    control files;
    /* Not CMSG_SPACE: the kernel would put another descriptor into its padding. */
    struct msghdr packet = {.msg_iov = &body,
                            .msg_iovlen = 1,
                            .msg_control = files.bytes,
                            .msg_controllen = CMSG_LEN(LSI_GATE_FILES * sizeof(int))};
    if (timeout_s > 0 && !wait_for_packet(fd, timeout_s))
        return LS_IN_PROGRESS;
    message->n_files = 0;
    const ssize_t n = recvmsg(fd, &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return LS_IN_PROGRESS;
    if (n < 0 && errno != ECONNRESET && errno != EPIPE)
        return lsi_fail_errno(what, "recvmsg");
    const int told = message->n_files;
    if (n >= 0)
        take_files(&packet, message);
    const int cut = packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
    if (n == (ssize_t)sizeof *message && told == message->n_files && !cut)
        return LS_OK;
    lsi_gate_drop(message, -1);
    if (n <= 0)
        return lsi_fail(LS_ERR_PEER_DEAD, NULL, what, "the other side is gone");
    return lsi_fail(LS_ERR_PROTOCOL, NULL, what, "a message of %zd bytes makes no sense", n);
}

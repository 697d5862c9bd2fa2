/* The socket of `lockstep status DIR`. */
#include "launch/status.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/status.h"

#define BACKLOG 8
#define ANSWER_MS 5000
#define TEXT_MOST ((size_t)1 << 20)

static int address_of(const char *folder, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int n =
        snprintf(address->sun_path, sizeof address->sun_path, "%s/" LSI_STATUS_SOCKET, folder);
    return n > 0 && (size_t)n < sizeof address->sun_path;
}

int lsi_status_listen(const char *folder)
{
    struct sockaddr_un address;
    if (!address_of(folder, &address))
        return -1;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)unlink(address.sun_path);
    const mode_t before = umask(0177);
    const int bound = bind(fd, (struct sockaddr *)&address, sizeof address);
    umask(before);
    if (bound == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    close(fd);
    return -1;
}

void lsi_status_answer(int listener, const char *text)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    (void)!send(fd, text, strlen(text), MSG_NOSIGNAL); /* it fits into the socket's buffer */
    close(fd);
}

void lsi_status_close(int listener, const char *folder)
{
    struct sockaddr_un address;
    if (listener < 0)
        return;
    close(listener);
    if (address_of(folder, &address))
        (void)unlink(address.sun_path);
}

static ls_status read_all(int fd, const char *folder, char **text)
{
    size_t used = 0;
    char *all = calloc(1, TEXT_MOST);
    if (!all)
        return lsi_fail(LS_ERR_NOMEM, NULL, "status", "out of memory");
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const int ready = poll(&p, 1, ANSWER_MS);
        const ssize_t n = ready > 0 ? read(fd, all + used, TEXT_MOST - 1 - used) : -1;
        if (n > 0) {
            used += (size_t)n;
            continue;
        }
        if (n == 0 && used) {
            *text = all;
            return LS_OK;
        }
        free(all);
        return lsi_fail(LS_ERR_TIMEOUT, "its launcher may be stopped", "status",
                        "the run in %s does not answer", folder);
    }
}

ls_status lsi_status_ask(const char *folder, char **text)
{
    struct sockaddr_un address;
    if (!address_of(folder, &address))
        return lsi_fail(LS_ERR_INVALID, "go there, and ask for .", "status",
                        "the path of %.200s is too long", folder);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return lsi_fail_errno("status", "socket");
    ls_status status;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        status = lsi_fail(LS_ERR_NOT_FOUND, NULL, "status", "no run is going on in %s", folder);
    else
        status = read_all(fd, folder, text);
    close(fd);
    return status;
}

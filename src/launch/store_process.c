/* A forked server. What it listens on, or why it cannot, comes back through a pipe. */
#include "launch/store_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"

#define TICK_MS 50 /* leases expire in a step */
#define PIPE_FD 3

typedef struct report {
    int32_t status;
    char text[LSI_ERROR_MAX]; /* the address, or the error */
} report;

static _Noreturn void serve(lsi_store_server *server)
{
    for (;;) {
        struct pollfd p = {.fd = lsi_store_server_fd(server), .events = POLLIN};
        (void)poll(&p, 1, TICK_MS);
        lsi_store_server_step(server);
    }
}

/* Whoever reads our standard streams to their end must not wait for us. */
static void let_go_of_streams(void)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        (void)dup2(null, fd);
}

static _Noreturn void child_main(pid_t parent, int pipe, const char *host, int port,
                                 const lsi_key *key)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL); /* what a terminal sends is for the launcher */
    (void)prctl(PR_SET_NAME, "lockstep-store");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(1);
    let_go_of_streams();
    if (dup2(pipe, PIPE_FD) != PIPE_FD || close_range(PIPE_FD + 1, ~0U, 0) != 0)
        _exit(1); /* nothing else of the caller stays open because of us */
    pipe = PIPE_FD;
    lsi_store_server *server = NULL;
    report r = {.status = lsi_store_server_create(host, port, key, &server)};
    snprintf(r.text, sizeof r.text, "%s",
             r.status == LS_OK ? lsi_store_server_address(server) : ls_last_error());
    if (write(pipe, &r, sizeof r) != (ssize_t)sizeof r || r.status != LS_OK)
        _exit(1);
    close(pipe);
    serve(server);
}

ls_status lsi_store_process_start(const char *host, int port, const lsi_key *key,
                                  lsi_store_process *out)
{
    int ends[2];
    report r;
    const pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return lsi_fail_errno("store", "pipe");
    const pid_t pid = fork();
    if (pid == 0)
        child_main(parent, ends[1], host, port, key);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return lsi_fail_errno("store", "fork");
    }
    const ssize_t n = read(ends[0], &r, sizeof r);
    close(ends[0]);
    out->pid = pid;
    out->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (n == (ssize_t)sizeof r && r.status == LS_OK) {
        snprintf(out->address, sizeof out->address, "%.*s", LSI_ADDR_MAX - 1, r.text);
        return LS_OK;
    }
    lsi_store_process_stop(out);
    if (n == (ssize_t)sizeof r)
        return lsi_fail_text((ls_status)r.status, r.text);
    return lsi_fail(LS_ERR_SYSTEM, NULL, "store", "its process ended at once");
}

int lsi_store_process_is_alive(const lsi_store_process *p)
{
    struct pollfd ends = {.fd = p->pidfd, .events = POLLIN};
    return p->pid > 0 && (p->pidfd < 0 || poll(&ends, 1, 0) == 0);
}

void lsi_store_process_stop(lsi_store_process *p)
{
    if (p->pid <= 0)
        return;
    if (p->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
    else
        kill(p->pid, SIGKILL);
    while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (p->pidfd >= 0)
        close(p->pidfd);
    p->pid = 0;
}

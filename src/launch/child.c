/* Starting ranks, and collecting them.
 *
 * Invariants:
 * 1. Of our descriptors a rank inherits its boot record and the segment; all others are
 *    close-on-exec. (What the user handed to us beside 0, 1 and 2 goes through untouched.)
 * 2. A rank leads a process group of its own, set by both sides: whoever is first wins.
 * 3. A rank never outlives us: it asks for SIGKILL at our death, then looks whether it came too
 *    late for that.
 * 4. The guard knows the process group of a rank before anything can be started in it.
 * 5. Between fork and exec the child does nothing that could fail without being said through the
 *    exec pipe.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/boot.h"
#include "base/gate.h"
#include "base/status.h"
#include "launch/run.h"

typedef struct exec_report {
    int32_t index, code;
} exec_report;

static const char what[] = "cannot start a rank";

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Pin this process to the index-th core that it may use, modulo. */
static int bind_core(int index)
{
    cpu_set_t mask, one;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return -1;
    int left = index % CPU_COUNT(&mask);
    size_t core = 0;
    while (!CPU_ISSET(core, &mask) || left-- > 0)
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return sched_setaffinity(0, sizeof one, &one);
}

/* A rank is no foreground job: reading a terminal would stop it for ever. It gets no input. */
static int detach_terminal(void)
{
    if (!isatty(STDIN_FILENO))
        return 0;
    int fd = open("/dev/null", O_RDONLY);
    if (fd < 0 || dup2(fd, STDIN_FILENO) < 0)
        return -1;
    close(fd);
    return 0;
}

static int redirect(const int output[2])
{
    if (output[0] < 0)
        return 0;
    return dup2(output[0], STDOUT_FILENO) < 0 || dup2(output[1], STDERR_FILENO) < 0 ? -1 : 0;
}

/* How the rank learns who it is: `file` is its boot record, or its end of the gate. */
static void set_identity(const lsi_run *run, int index, int file)
{
    setenv(LSI_GUARD_ENV, run->guard.id, 1);
    set_number("LOCKSTEP_LOCAL_RANK", index);
    if (run->elastic) {
        set_number(LSI_GATE_ENV, file);
        return;
    }
    set_number(LSI_BOOT_ENV, file);
    set_number("LOCKSTEP_RANK", run->hosts->first_rank + index);
    set_number("LOCKSTEP_SIZE", run->hosts->ranks);
}

static _Noreturn void child_main(const lsi_run *run, int index, pid_t parent, int file,
                                 const int output[2])
{
    setpgid(0, 0);
    lsi_guard_add(&run->guard, getpid()); /* by us: we may be far ahead of our parent */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(1);
    set_identity(run, index, file);
    if (setrlimit(RLIMIT_NOFILE, &run->old_files) == 0 && detach_terminal() == 0 &&
        redirect(output) == 0 && fcntl(run->elastic ? file : run->segment.fd, F_SETFD, 0) == 0 &&
        (!run->config->bind_core || bind_core(index) == 0)) {
        lsi_signals_reset_child(run);
        execvp(run->config->argv[0], run->config->argv);
    }
    exec_report report = {index, errno};
    (void)!write(run->exec_pipe[1], &report, sizeof report);
    _exit(report.code == ENOENT || report.code == ENOTDIR ? 127 : 126);
}

static ls_status write_boot(const lsi_run *run, int index, int *fd)
{
    const lsi_hosts *hosts = run->hosts;
    lsi_boot boot = {
        .magic = LSI_BOOT_MAGIC,
        .version = LSI_BOOT_VERSION,
        .rank = hosts->first_rank + index,
        .size = hosts->ranks,
        .host = hosts->host,
        .hosts = hosts->hosts,
        .segment_fd = run->segment.fd,
        .key = hosts->key,
    };
    for (int h = 0; h < hosts->hosts; h++)
        boot.host_size[h] = hosts->size[h];
    snprintf(boot.store, sizeof boot.store, "%s", hosts->store_address);
    snprintf(boot.bind, sizeof boot.bind, "%s", hosts->bind);
    ls_status status = lsi_boot_write(&boot, fd);
    explicit_bzero(&boot, sizeof boot);
    return status;
}

ls_status lsi_child_start(lsi_run *run, int index)
{
    lsi_child *child = &run->children[index];
    int gate[2] = {-1, -1}, file = -1, output[2] = {-1, -1};
    pid_t parent = getpid(), pid;
    ls_status status = run->elastic ? lsi_gate_pair(gate) : write_boot(run, index, &file);
    if (run->elastic)
        file = gate[1];
    if (status == LS_OK && run->output)
        status = lsi_output_open(run->output, index, output);
    if (status != LS_OK)
        goto close_files;

    pid = fork();
    if (pid == 0)
        child_main(run, index, parent, file, output);
    if (pid < 0) {
        status = lsi_fail_errno(what, "fork");
        goto close_files;
    }
    setpgid(pid, pid);
    child->pid = pid;
    run->alive++;
    child->pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by itself */
    if (child->pidfd < 0)
        status = lsi_fail_errno(what, "pidfd_open");
    else
        status = lsi_run_watch(run->epoll, child->pidfd, EPOLLIN, LSI_EVENT_RANK, (uint32_t)index);

close_files:
    for (int i = 0; i < 2; i++) {
        if (output[i] >= 0)
            close(output[i]);
    }
    if (file >= 0)
        close(file);
    if (status == LS_OK && run->elastic) {
        child->gate = gate[0];
        status = lsi_run_watch(run->epoll, gate[0], EPOLLIN, LSI_EVENT_GATE, (uint32_t)index);
    } else if (gate[0] >= 0) {
        close(gate[0]);
    }
    return status;
}

void lsi_child_read_exec(lsi_run *run)
{
    exec_report report;
    ssize_t n;
    while ((n = read(run->exec_pipe[0], &report, sizeof report)) == (ssize_t)sizeof report) {
        if (report.index >= 0 && report.index < run->config->ranks)
            run->children[report.index].exec_errno = report.code;
    }
    if (n == 0) /* all have passed their exec */
        epoll_ctl(run->epoll, EPOLL_CTL_DEL, run->exec_pipe[0], NULL);
}

int lsi_child_has_ended(const lsi_child *child, int *wait_status)
{
    siginfo_t info = {0};
    if (child->pid == 0 ||
        waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != child->pid)
        return 0;
    *wait_status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status;
    return 1;
}

void lsi_child_collect(lsi_run *run, int index)
{
    lsi_child *child = &run->children[index];
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (kill(-child->pid, 0) != 0 && errno == ESRCH)
        lsi_guard_forget(&run->guard, child->pid);
    if (child->pidfd >= 0)
        close(child->pidfd); /* leaves the epoll set by itself */
    child->pidfd = -1;
    child->pid = 0;
    run->alive--;
}

void lsi_children_signal_groups(lsi_run *run, int number)
{
    for (int i = 0; i < run->config->ranks; i++) {
        pid_t pid = run->children[i].pid;
        if (pid > 0 && kill(-pid, number) != 0)
            kill(pid, number); /* it has moved to another group */
    }
}

void lsi_children_signal(lsi_run *run, int number)
{
    for (int i = 0; i < run->config->ranks; i++) {
        if (run->children[i].pid > 0)
            kill(run->children[i].pid, number);
    }
}

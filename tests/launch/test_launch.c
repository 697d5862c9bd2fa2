/* The launcher with ranks that speak the host block's language: joined, left, dead.
 *
 * The program that is launched is this one: main sees the name of a role and plays it. Roles talk
 * to the test through a pipe that they inherit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/boot.h"
#include "base/clock.h"
#include "base/status.h"
#include "launch/launch.h"
#include "store/store.h"

#define REPORT_FD 200

static lsi_boot boot;
static lsi_host host;

static void report(const char *text)
{
    char line[512];
    int n = snprintf(line, sizeof line, "%d %s\n", boot.rank, text);
    (void)!write(REPORT_FD, line, (size_t)n);
}

static void join_group(void)
{
    if (lsi_boot_read(&boot) != LS_OK || lsi_host_map(boot.segment_fd, &host) != LS_OK) {
        report(ls_last_error());
        _exit(99);
    }
    atomic_store(&host.block->ranks[boot.rank].state, LSI_RANK_JOINED);
}

static void leave_group(void)
{
    atomic_store(&host.block->ranks[boot.rank].state, LSI_RANK_LEFT);
}

/* Sleep on our doorbell until rank `other` is dead, and report the cause. */
static void wait_for_death(int other)
{
    lsi_host_rank *me = &host.block->ranks[boot.rank], *it = &host.block->ranks[other];
    while (atomic_load(&it->state) != LSI_RANK_DEAD) {
        uint32_t bell = atomic_load(&me->doorbell);
        atomic_store(&me->asleep, 1);
        if (atomic_load(&it->state) != LSI_RANK_DEAD)
            syscall(SYS_futex, &me->doorbell, FUTEX_WAIT, bell, NULL, NULL, 0);
        atomic_store(&me->asleep, 0);
    }
    report(it->cause);
}

/* All ranks of this host; what those of other hosts do is not seen in the block. */
static void all_joined(void)
{
    int first = (int)host.block->first_rank, count = (int)host.block->local_size;
    for (int r = first; r < first + count; r++) {
        while (atomic_load(&host.block->ranks[r].state) == LSI_RANK_ABSENT)
            usleep(200);
    }
}

/* Rank 1 ends in the given way once all have joined, the others see it die. */
static int role_dies(const char *how)
{
    join_group();
    all_joined();
    if (boot.rank == 1) {
        if (strcmp(how, "kill") == 0)
            raise(SIGKILL);
        if (strcmp(how, "segv") == 0) {
            signal(SIGSEGV, SIG_DFL);
            raise(SIGSEGV);
        }
        _exit(strcmp(how, "exit3") == 0 ? 3 : 0);
    }
    wait_for_death(1);
    leave_group();
    return 0;
}

static int role_store(void)
{
    lsi_store *store;
    char url[LSI_ADDR_MAX + 8];
    join_group();
    snprintf(url, sizeof url, "tcp://%s", boot.store);
    if (lsi_store_open(url, &boot.key, 5, &store) != LS_OK) {
        report(ls_last_error());
        return 1;
    }
    char key[32];
    snprintf(key, sizeof key, "test/%d", boot.rank);
    if (store->ops->put(store, key, boot.bind, strlen(boot.bind), 0, NULL) != LS_OK)
        return 2;
    for (int r = 0; r < boot.size; r++) {
        const uint8_t *value;
        size_t bytes;
        snprintf(key, sizeof key, "test/%d", r);
        if (lsi_store_wait(store, key, 5, "a rank", &value, &bytes) != LS_OK)
            return 3;
    }
    lsi_store_close(store);
    report("met");
    leave_group();
    return 0;
}

static int role_main(int argc, char **argv)
{
    const char *role = argv[1];
    if (strcmp(role, "dies") == 0 && argc > 2)
        return role_dies(argv[2]);
    if (strcmp(role, "store") == 0)
        return role_store();
    join_group();
    if (strcmp(role, "leave") == 0)
        leave_group();
    if (strcmp(role, "leave-then-3") == 0) {
        all_joined();
        leave_group();
        if (boot.rank == 1)
            return 3;
        usleep(1500000); /* longer than it would take to be ended */
        report("was left alone");
    }
    if (strcmp(role, "stuck") == 0 || strcmp(role, "busy") == 0) {
        all_joined();
        double begun = lsi_now();
        if (boot.rank > 0 && strcmp(role, "stuck") == 0)
            raise(SIGSTOP);
        while (boot.rank > 0 && lsi_now() < begun + 3.5)
            ;
        leave_group();
        if (boot.rank > 0)
            report("was left alone");
        return boot.rank > 0 ? 0 : 3;
    }
    if (strcmp(role, "limits") == 0) {
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        char text[32];
        snprintf(text, sizeof text, "%lu", (unsigned long)limit.rlim_cur);
        report(text);
        leave_group();
    }
    return 0;
}

static char reports[4096];

/* Launch this program in a role; returns the exit status of the run. */
static int launch(lsi_launch_config config, char *role, char *argument)
{
    char self[] = "/proc/self/exe";
    char *argv[] = {self, role, argument, NULL};
    int ends[2], status = -1;
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    dup2(ends[1], REPORT_FD);
    close(ends[1]);
    config.argv = argv;
    ls_status s = lsi_launch(&config, &status);
    close(REPORT_FD);
    ssize_t n = read(ends[0], reports, sizeof reports - 1);
    reports[n > 0 ? n : 0] = 0;
    close(ends[0]);
    if (s != LS_OK)
        fail_msg("lsi_launch: %s", ls_last_error());
    return status;
}

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void nothing_is_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void leaves_nothing(void **state)
{
    (void)state;
    sigset_t before, after;
    struct sigaction action;
    sigprocmask(SIG_SETMASK, NULL, &before);
    int files = open_files();
    for (int n = 1; n <= 9; n++) {
        assert_int_equal(launch((lsi_launch_config){.ranks = n, .prefix = n % 2}, "leave", NULL),
                         0);
        nothing_is_left();
    }
    assert_int_equal(open_files(), files);
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < NSIG; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
    sigaction(SIGPIPE, NULL, &action);
    assert_true(action.sa_handler == SIG_DFL);
}

static void deaths_are_known_at_once(void **state)
{
    (void)state;
    static const struct {
        char *how;
        int status;
        const char *cause;
    } cases[] = {
        {"kill", 137, "killed by signal 9 (SIGKILL)"},
        {"segv", 139, "killed by signal 11 (SIGSEGV)"},
        {"exit3", 3, "exited with status 3 before ls_finalize"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[128];
        double begin = lsi_now();
        assert_int_equal(launch((lsi_launch_config){.ranks = 3}, "leave", NULL), 0);
        double start = lsi_now();
        assert_int_equal(launch((lsi_launch_config){.ranks = 3}, "dies", cases[i].how),
                         cases[i].status);
        assert_true(lsi_now() - start < 0.9 + (start - begin)); /* not by being ended */
        snprintf(want, sizeof want, "0 %s\n", cases[i].cause);
        assert_non_null(strstr(reports, want));
        want[0] = '2';
        assert_non_null(strstr(reports, want));
        nothing_is_left();
    }
}

static void exit_without_finalize(void **state)
{
    (void)state;
    /* A death for those who wait, but all ended with 0. */
    assert_int_equal(launch((lsi_launch_config){.ranks = 2}, "dies", "exit0"), 0);
    assert_string_equal(reports, "0 exited without ls_finalize\n");
    assert_int_equal(launch((lsi_launch_config){.ranks = 2}, "forget", NULL), 0);
}

static void failure_after_finalize_leaves_time(void **state)
{
    (void)state;
    assert_int_equal(launch((lsi_launch_config){.ranks = 2}, "leave-then-3", NULL), 3);
    assert_string_equal(reports, "0 was left alone\n");
}

static void stuck_ranks_are_ended(void **state)
{
    (void)state;
    double start = lsi_now();
    assert_int_equal(launch((lsi_launch_config){.ranks = 3}, "stuck", NULL), 3);
    assert_string_equal(reports, "");
    assert_true(lsi_now() - start > 4.5 && lsi_now() - start < 9);
    nothing_is_left();
}

/* --on-death leave: who works is left alone, who does nothing is stuck. */
static void left_alone_while_they_work(void **state)
{
    (void)state;
    lsi_launch_config config = {.ranks = 2, .on_death = LSI_ON_DEATH_LEAVE, .idle_s = 1.5};
    assert_int_equal(launch(config, "busy", NULL), 3);
    assert_string_equal(reports, "1 was left alone\n");
    double start = lsi_now();
    assert_int_equal(launch(config, "stuck", NULL), 3);
    assert_string_equal(reports, "");
    assert_true(lsi_now() - start < 6);
    nothing_is_left();
}

static void ranks_reach_the_store(void **state)
{
    (void)state;
    assert_int_equal(launch((lsi_launch_config){.ranks = 5}, "store", NULL), 0);
    for (int r = 0; r < 5; r++) {
        char want[16];
        snprintf(want, sizeof want, "%d met\n", r);
        assert_non_null(strstr(reports, want));
    }
}

static void limits_are_the_users(void **state)
{
    (void)state;
    struct rlimit old, limit;
    char want[32];
    getrlimit(RLIMIT_NOFILE, &old);
    limit = old;
    limit.rlim_cur = 300;
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(launch((lsi_launch_config){.ranks = 120, .prefix = 1}, "limits", NULL), 0);
    getrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(limit.rlim_cur, 300);
    snprintf(want, sizeof want, "7 300\n");
    assert_non_null(strstr(reports, want));
    setrlimit(RLIMIT_NOFILE, &old);
}

static void start_errors(void **state)
{
    (void)state;
    char *argv[] = {"/bin/true", NULL};
    lsi_launch_config config = {.ranks = 2, .argv = argv};
    int status = 77, files = open_files();
    setenv("LOCKSTEP_HEAP", "rubbish", 1);
    assert_int_equal(lsi_launch(&config, &status), LS_ERR_CONFIG);
    unsetenv("LOCKSTEP_HEAP");
    assert_non_null(strstr(ls_last_error(), "LOCKSTEP_HEAP"));
    config.join = "127.0.0.1:1";
    config.key_file = "/nonexistent/key";
    assert_true(lsi_launch(&config, &status) < 0);
    assert_non_null(strstr(ls_last_error(), "/nonexistent/key"));
    assert_int_equal(status, 77);
    assert_int_equal(open_files(), files);
    nothing_is_left();
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return role_main(argc, argv);
    setenv("LOCKSTEP_LOG", "error", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_nothing),
        cmocka_unit_test(deaths_are_known_at_once),
        cmocka_unit_test(exit_without_finalize),
        cmocka_unit_test(failure_after_finalize_leaves_time),
        cmocka_unit_test(stuck_ranks_are_ended),
        cmocka_unit_test(left_alone_while_they_work),
        cmocka_unit_test(ranks_reach_the_store),
        cmocka_unit_test(limits_are_the_users),
        cmocka_unit_test(start_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

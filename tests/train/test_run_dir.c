/* Run directories: which folders are taken, which are refused and why; one run at a time. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "state.h"
#include "train/run_dir.h"

static void test_new(void **ignored)
{
    (void)ignored;
    lsi_run_dir *d;
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("a/b//c/"));
    OK(lsi_run_dir_create(path, &d));
    assert_string_equal(lsi_run_dir_path(d), path);
    OK(lsi_run_dir_write(d, "config.ini", "[train]\n"));
    OK(lsi_run_dir_write(d, "config.ini", "[train]\nbatch = 1\n"));
    lsi_run_dir_log(d, "hello %d", 7);
    lsi_run_dir_log(d, "%s", "again");
    lsi_run_dir_close(d);
    lsi_run_dir_close(NULL);
    char *text = slurp(path_of("a/b/c/config.ini"), NULL);
    assert_string_equal(text, "[train]\nbatch = 1\n");
    free(text);
    text = slurp(path_of("a/b/c/log.txt"), NULL);
    assert_non_null(strstr(text, " hello 7\n20"));
    assert_non_null(strstr(text, " again\n"));
    free(text);
    assert_false(exists(path_of("a/b/c/.config.ini.tmp")));

    /* It holds a run now. */
    assert_int_equal(lsi_run_dir_create(path, &d), LS_ERR_CONFLICT);
    ERROR_HAS("holds a run already");
    ERROR_HAS("--resume");
    OK(lsi_run_dir_open(path, &d));
    lsi_run_dir_close(d);
    remove_tree(path_of("a"));
}

static void test_folders(void **ignored)
{
    (void)ignored;
    lsi_run_dir *d;
    mkdir(path_of("empty"), 0777);
    assert_int_equal(lsi_run_dir_open(path_of("empty"), &d), LS_ERR_NOT_FOUND);
    ERROR_HAS("holds no run");
    assert_false(exists(path_of("empty/.lock"))); /* refused without a trace */
    OK(lsi_run_dir_create(path_of("empty"), &d));
    lsi_run_dir_close(d); /* ended before it had a config.ini: it may be used again */
    OK(lsi_run_dir_create(path_of("empty"), &d));
    lsi_run_dir_close(d);
    spill(path_of("empty/thesis.tex"), "x", 1);
    assert_int_equal(lsi_run_dir_create(path_of("empty"), &d), LS_ERR_CONFLICT);
    ERROR_HAS("thesis.tex");
    remove_tree(path_of("empty"));

    spill(path_of("file"), "x", 1);
    assert_int_equal(lsi_run_dir_create(path_of("file"), &d), LS_ERR_CONFLICT);
    ERROR_HAS("not a folder");
    assert_int_equal(lsi_run_dir_open(path_of("file"), &d), LS_ERR_CONFLICT);
    assert_int_equal(lsi_run_dir_create(path_of("file/below"), &d), LS_ERR_SYSTEM);
    ERROR_HAS("file");
    unlink(path_of("file"));
    assert_int_equal(lsi_run_dir_open(path_of("missing"), &d), LS_ERR_NOT_FOUND);
    assert_int_equal(lsi_run_dir_create("", &d), LS_ERR_INVALID);
    char *endless = calloc(1, 5000);
    memset(endless, 'x', 4999);
    assert_int_equal(lsi_run_dir_create(endless, &d), LS_ERR_INVALID);
    free(endless);
}

static void test_lock(void **ignored)
{
    (void)ignored;
    lsi_run_dir *d, *e;
    char pid[32];
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    OK(lsi_run_dir_create(path_of("run"), &d));
    assert_int_equal(lsi_run_dir_create(path_of("run"), &e), LS_ERR_CONFLICT);
    ERROR_HAS("another run writes to");
    ERROR_HAS(pid);
    OK(lsi_run_dir_write(d, "config.ini", ""));
    assert_int_equal(lsi_run_dir_open(path_of("run"), &e), LS_ERR_CONFLICT);
    ERROR_HAS(pid);
    lsi_run_dir_close(d);
    const pid_t child = fork(); /* one that is killed lets go of it */
    if (child == 0) {
        if (lsi_run_dir_open(path_of("run"), &d) == LS_OK)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    OK(lsi_run_dir_open(path_of("run"), &d));
    lsi_run_dir_close(d);
    remove_tree(path_of("run"));
}

/* A process of an earlier generation of the same run keeps the lock: only that one loses it. */
static void test_left_behind(void **ignored)
{
    (void)ignored;
    lsi_run_dir *old, *new, *e;
    OK(lsi_run_dir_create(path_of("run"), &old));
    OK(lsi_run_dir_write(old, "config.ini", ""));
    assert_int_equal(lsi_run_dir_take(path_of("run"), "aa", 2, &e), LS_ERR_CONFLICT);
    OK(lsi_run_dir_sign(old, "aa", 1));
    assert_int_equal(lsi_run_dir_take(path_of("run"), "aab", 2, &e), LS_ERR_CONFLICT);
    assert_int_equal(lsi_run_dir_take(path_of("run"), "aa", 1, &e), LS_ERR_CONFLICT);
    OK(lsi_run_dir_take(path_of("run"), "aa", 2, &new));
    OK(lsi_run_dir_sign(old, "aa", 3)); /* it does not know */
    assert_int_equal(lsi_run_dir_open(path_of("run"), &e), LS_ERR_CONFLICT);
    lsi_run_dir_close(old);
    assert_int_equal(lsi_run_dir_open(path_of("run"), &e), LS_ERR_CONFLICT);
    lsi_run_dir_close(new);
    OK(lsi_run_dir_open(path_of("run"), &e));
    lsi_run_dir_close(e);
    remove_tree(path_of("run"));
}

static void test_read_only(void **ignored)
{
    (void)ignored;
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("read-only"));
    mkdir(path, 0777);
    const pid_t child = fork();
    if (child == 0) {
        lsi_run_dir *d;
        if (geteuid() != 0)
            chmod(path, 0500);
        else if (unshare(CLONE_NEWNS) != 0 ||
                 mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
                 mount("tmpfs", path, "tmpfs", 0, "ro") != 0) {
            fprintf(stderr, "skipped: no tmpfs can be mounted here: %s\n", strerror(errno));
            _exit(77);
        }
        const ls_status status = lsi_run_dir_create(path, &d);
        _exit(status == LS_ERR_SYSTEM && strstr(ls_last_error(), path) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    chmod(path, 0700);
    remove_tree(path);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new),       cmocka_unit_test(test_folders),
        cmocka_unit_test(test_lock),      cmocka_unit_test(test_left_behind),
        cmocka_unit_test(test_read_only),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

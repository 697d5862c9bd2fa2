/* Checkpoints when the world is hostile: a full disk, a limit on file sizes, a folder that cannot
 * be written, kill -9 in the middle of a save. The older checkpoint stays usable each time. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "state.h"

#define SKIPPED 77
#define BAD(condition)                                                                             \
    do {                                                                                           \
        if (condition) {                                                                           \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, ls_last_error());   \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static int hidden_left(const char *run)
{
    char command[300];
    snprintf(command, sizeof command, "ls -A %s/checkpoint | grep -q tmp", run);
    return system(command) == 0;
}

/* In a child, which may change limits and mounts: the checkpoint of step 10 fits, that of step 20
 * does not. */
static void save_twice(const char *run, trial *small, trial *large, const char *words)
{
    lsi_checkpoint c;
    small->state.step = 10;
    large->state.step = 20;
    BAD(lsi_checkpoint_save(run, &small->state, 3, NULL) != LS_OK);
    BAD(lsi_checkpoint_save(run, &large->state, 3, NULL) != LS_ERR_SYSTEM);
    BAD(!strstr(ls_last_error(), words));
    BAD(!strstr(ls_last_error(), ".safetensors"));
    BAD(!strstr(ls_last_error(), "needs"));
    BAD(hidden_left(run));
    BAD(lsi_checkpoint_find(run, &c) != LS_OK);
    BAD(c.step != 10);
    BAD(lsi_checkpoint_load(&c, &small->state) != LS_OK);
    small->state.step = 30; /* and training can go on */
    BAD(lsi_checkpoint_save(run, &small->state, 3, NULL) != LS_OK);
    BAD(lsi_checkpoint_find(run, &c) != LS_OK || c.step != 30);
}

/* Wait for a child, clean up what it leaves, and pass on what it found. */
static void finish(pid_t child, const char *run)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    chmod(run, 0700);
    remove_tree(run);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        skip();
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A tmpfs of `options` on `path`, seen by this process alone. */
static int mount_own(const char *path, const char *options)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return -1;
    return mount("tmpfs", path, "tmpfs", 0, options);
}

static void test_full_disk(void **ignored)
{
    (void)ignored;
    char run[128];
    snprintf(run, sizeof run, "%s", path_of("full"));
    mkdir(run, 0777);
    trial small = make_trial("mlp", "hidden=5", 1, 1), large = make_trial("mlp", "hidden=99", 1, 1);
    const pid_t child = fork();
    if (child == 0) {
        if (mount_own(run, "size=400k") != 0) {
            fprintf(stderr, "skipped: no tmpfs can be mounted here: %s\n", strerror(errno));
            _exit(SKIPPED);
        }
        save_twice(run, &small, &large, strerror(ENOSPC));
        BAD(!strstr(ls_last_error(), "free"));
        _exit(0);
    }
    free_trial(&small);
    free_trial(&large);
    finish(child, run);
}

static void test_file_limit(void **ignored)
{
    (void)ignored;
    char run[128];
    snprintf(run, sizeof run, "%s", path_of("limit"));
    mkdir(run, 0777);
    trial small = make_trial("mlp", "hidden=5", 1, 1), large = make_trial("mlp", "hidden=99", 1, 1);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {100 << 10, 100 << 10};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        save_twice(run, &small, &large, strerror(EFBIG));
        _exit(0);
    }
    free_trial(&small);
    free_trial(&large);
    finish(child, run);
}

static void test_read_only(void **ignored)
{
    (void)ignored;
    char run[128];
    snprintf(run, sizeof run, "%s", path_of("read-only"));
    mkdir(run, 0777);
    trial t = make_trial("mlp", "hidden=5", 1, 1);
    const pid_t child = fork();
    if (child == 0) {
        if (geteuid() != 0)
            chmod(run, 0500);
        else if (mount_own(run, "ro") != 0) {
            fprintf(stderr, "skipped: no tmpfs can be mounted here: %s\n", strerror(errno));
            _exit(SKIPPED);
        }
        BAD(lsi_checkpoint_save(run, &t.state, 3, NULL) != LS_ERR_SYSTEM);
        BAD(!strstr(ls_last_error(), "read-only/checkpoint"));
        _exit(0);
    }
    free_trial(&t);
    finish(child, run);
}

/* Again and again: a child saves as fast as it can and is killed at some moment. What is newest
 * then can be loaded, and is one of those that the child has meant to save. */
static void test_kill(void **ignored)
{
    (void)ignored;
    char run[128];
    snprintf(run, sizeof run, "%s", path_of("kill"));
    mkdir(run, 0777);
    trial t = make_trial("mlp", "hidden=40", 2, 1), u = make_trial("mlp", "hidden=40", 2, 2);
    uint64_t step = 0, rounds = 0;
    t.state.step = step;
    OK(lsi_checkpoint_save(run, &t.state, 2, NULL));
    uint32_t random = 12345;
    for (; rounds < 40; rounds++) {
        const pid_t child = fork();
        if (child == 0) {
            for (uint64_t s = step + 1;; s++) {
                scramble(&t, (uint32_t)s);
                t.state.step = s;
                t.state.eval_loss = (double)((s * 7) % 5);
                BAD(lsi_checkpoint_save(run, &t.state, 2, NULL) != LS_OK);
            }
        }
        random = random * 1664525u + 1013904223u;
        const unsigned patience = step ? 1 : 1 + (unsigned)rounds; /* until one was saved */
        usleep((500 + (random >> 16) % 20000) * patience);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        lsi_checkpoint c;
        OK(lsi_checkpoint_find(run, &c));
        assert_true(c.step >= step);
        step = c.step;
        OK(lsi_checkpoint_load(&c, &u.state));
        if (step) {
            scramble(&t, (uint32_t)step);
            assert_equal_states(&t, &u);
        }
    }
    assert_true(step > 0);
    t.state.step = step + 1;
    OK(lsi_checkpoint_save(run, &t.state, 2, NULL));
    assert_false(hidden_left(run));
    free_trial(&t);
    free_trial(&u);
    remove_tree(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_file_limit),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_kill),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* Saving in the background: what was given is what is saved, whatever happens to it afterwards; one
 * at a time; errors come out once. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "state.h"
#include "train/saver.h"

static char run[128];

static void make_run(void)
{
    snprintf(run, sizeof run, "%s", path_of("saver"));
    mkdir(run, 0777);
}

static void test_copy(void **ignored)
{
    (void)ignored;
    make_run();
    trial t = make_trial("mlp", "hidden=300", 2, 1), u = make_trial("mlp", "hidden=300", 2, 9);
    trial r = make_trial("resnet:20", NULL, 1, 1), s = make_trial("resnet:20", NULL, 1, 9);
    trial *const pairs[2][2] = {{&t, &u}, {&r, &s}};
    for (int i = 0; i < 2; i++) {
        trial *a = pairs[i][0], *b = pairs[i][1];
        lsi_saver *saver;
        lsi_checkpoint c;
        OK(lsi_saver_create(run, &a->state, 2, &saver));
        OK(lsi_saver_poll(saver, &c));
        assert_true(c.step == LSI_SAVER_NONE);
        for (uint64_t step = 1; step <= 4; step++) {
            scramble(a, (uint32_t)step);
            a->state.step = 100 * (uint64_t)i + step;
            OK(lsi_saver_start(saver, &a->state));
            scramble(a, 77); /* training goes on */
            OK(lsi_saver_wait(saver, &c));
            assert_int_equal(c.step, a->state.step);
        }
        OK(lsi_checkpoint_find(run, &c));
        OK(lsi_checkpoint_load(&c, &b->state));
        scramble(a, 4);
        assert_equal_states(a, b);
        lsi_saver_destroy(saver);
        free_trial(a);
        free_trial(b);
        remove_tree(run);
        mkdir(run, 0777);
    }
    remove_tree(run);
}

static void test_one_at_a_time(void **ignored)
{
    (void)ignored;
    make_run();
    trial t = make_trial("mlp", "hidden=1000", 2, 1);
    lsi_saver *saver;
    lsi_checkpoint c;
    OK(lsi_saver_create(run, &t.state, 2, &saver));
    int busy = 0;
    for (uint64_t step = 1; step <= 3; step++) {
        ls_status status;
        t.state.step = step;
        while ((status = lsi_saver_start(saver, &t.state)) == LS_IN_PROGRESS) {
            assert_int_equal(lsi_saver_poll(saver, &c) < 0, 0);
            busy++;
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
        OK(status);
    }
    assert_true(busy > 0);
    lsi_saver_destroy(saver); /* waits for the last one */
    OK(lsi_checkpoint_find(run, &c));
    assert_int_equal(c.step, 3);
    free_trial(&t);
    remove_tree(run);
}

static void test_errors(void **ignored)
{
    (void)ignored;
    make_run();
    trial t = make_trial("mlp", "hidden=5", 1, 1), other = make_trial("resnet:20", NULL, 1, 1);
    lsi_saver *saver;
    lsi_checkpoint c;
    OK(lsi_saver_create(run, &t.state, 2, &saver));
    t.state.step = 1;
    OK(lsi_saver_start(saver, &t.state));
    OK(lsi_saver_wait(saver, &c));

    /* A file where the folder of all checkpoints should be. */
    char path[200], aside[200];
    snprintf(path, sizeof path, "%s/checkpoint", run);
    snprintf(aside, sizeof aside, "%s/aside", run);
    assert_int_equal(rename(path, aside), 0);
    spill(path, "x", 1);
    t.state.step = 2;
    OK(lsi_saver_start(saver, &t.state));
    assert_int_equal(lsi_saver_wait(saver, &c), LS_ERR_SYSTEM);
    ERROR_HAS("/checkpoint");
    assert_int_equal(c.step, 1);
    OK(lsi_saver_wait(saver, &c)); /* told once */

    /* At start, too; and after it has been told, saving works again. */
    OK(lsi_saver_start(saver, &t.state));
    ls_status status;
    while ((status = lsi_saver_start(saver, &t.state)) == LS_IN_PROGRESS)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_int_equal(status, LS_ERR_SYSTEM);
    unlink(path);
    assert_int_equal(rename(aside, path), 0);
    OK(lsi_saver_start(saver, &t.state));
    OK(lsi_saver_wait(saver, &c));
    assert_int_equal(c.step, 2);
    assert_int_equal(lsi_saver_start(saver, &other.state), LS_ERR_INVALID);
    lsi_saver_destroy(saver);
    lsi_saver_destroy(NULL);
    free_trial(&t);
    free_trial(&other);
    remove_tree(run);
}

static volatile sig_atomic_t taken_by_main;
static pthread_t main_thread;

static void on_signal(int number)
{
    (void)number;
    taken_by_main = pthread_equal(pthread_self(), main_thread) ? 1 : -1;
}

/* A signal to the process while only the saver's thread would be free to take it. */
static void test_signals(void **ignored)
{
    (void)ignored;
    make_run();
    trial t = make_trial("mlp", "hidden=5", 1, 1);
    lsi_saver *saver;
    sigset_t one, before;
    main_thread = pthread_self();
    signal(SIGUSR1, on_signal);
    OK(lsi_saver_create(run, &t.state, 2, &saver));
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    kill(getpid(), SIGUSR1);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    assert_int_equal(taken_by_main, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(taken_by_main, 1);
    lsi_saver_destroy(saver);
    free_trial(&t);
    remove_tree(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_signals),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

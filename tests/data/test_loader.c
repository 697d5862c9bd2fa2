/* Reading ahead: every sample once an epoch, errors carried over, no hang, no allocation, and the
 * same values as reading alone. Built with ThreadSanitizer as well. */
#include "../count_allocations.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "cases.h"

static ls_dataset *open_task(uint64_t samples)
{
    ls_data_config config = LS_DATA_CONFIG_INIT;
    config.model = "dlrm";
    config.samples = samples;
    return open_data(config, dlrm_fields, 3);
}

/* What a loader gives is what reading gives, in the order of the epoch. */
static void check_batch(const ls_dataset *d, const void **fields, uint64_t seed, uint64_t epoch,
                        uint64_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float dense[13], target;
        int32_t ids[26];
        const uint64_t index = ls_data_order(seed, epoch, ls_dataset_count(d), first + i);
        OK(ls_dataset_read(d, index, epoch, (void *[]){dense, ids, &target}));
        assert_memory_equal((const float *)fields[0] + 13 * i, dense, sizeof dense);
        assert_memory_equal((const int32_t *)fields[1] + 26 * i, ids, sizeof ids);
        assert_memory_equal((const float *)fields[2] + i, &target, sizeof target);
    }
    for (int f = 0; f < 3; f++)
        assert_int_equal((uintptr_t)fields[f] % 64, 0);
}

static void test_epochs(void **state)
{
    (void)state;
    static const struct {
        uint64_t samples;
        size_t batch;
        int ahead;
    } cases[] = {{1, 1, 1}, {7, 3, 1}, {100, 7, 4}, {1009, 64, 2}, {64, 64, 3}, {65, 64, 9}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        ls_dataset *d = open_task(cases[c].samples);
        ls_loader *loader;
        OK(ls_loader_create(d, cases[c].batch, cases[c].ahead, 99, 1, &loader));
        uint64_t asked = 0, taken = 0;
        const uint64_t per = (cases[c].samples + cases[c].batch - 1) / cases[c].batch;
        while (taken < 3 * per) {
            while (asked < 3 * per) { /* as many as it takes */
                const uint64_t first = asked % per * cases[c].batch,
                               rest = cases[c].samples - first;
                const size_t count = rest < cases[c].batch ? (size_t)rest : cases[c].batch;
                const ls_status status = ls_loader_ask(loader, asked / per, first, count);
                if (status == LS_IN_PROGRESS)
                    break;
                OK(status);
                asked++;
            }
            assert_true(asked - taken == (uint64_t)cases[c].ahead || asked == 3 * per);
            const void *fields[3];
            size_t count;
            OK(ls_loader_take(loader, fields, &count));
            const uint64_t first = taken % per * cases[c].batch;
            assert_int_equal(count, cases[c].samples - first < cases[c].batch
                                        ? cases[c].samples - first
                                        : cases[c].batch);
            check_batch(d, fields, 99, taken / per, first, count);
            taken++;
        }
        ls_loader_destroy(loader);
        ls_dataset_close(d);
    }
}

/* The ledger: uneven requests of several loaders, as workers have them; every line of a file comes
 * exactly once an epoch. */
static void test_ledger(void **state)
{
    (void)state;
    enum { LENGTH = 4 * 997 + 1 };
    static uint8_t text[LENGTH];
    for (int i = 0; i < LENGTH; i += 4) /* sample k begins with the two bytes of k */
        memcpy(text + i, (uint8_t[]){(uint8_t)(i / 4), (uint8_t)(i / 4 / 256), 1, 2},
               LENGTH - i < 4 ? 1 : 4);
    write_file("text", text, LENGTH);
    ls_data_config config = config_of("text", path_of("text"));
    config.holdout = 0.001; /* 3 bytes */
    const ls_data_field fields[2] = {{"tokens", LS_I32, 1, {4}, 256},
                                     {"targets", LS_I32, 1, {4}, 256}};
    ls_dataset *d = open_data(config, fields, 2);
    const uint64_t count = ls_dataset_count(d);
    assert_int_equal(count, 996);
    for (int workers = 1; workers <= 4; workers++) {
        ls_loader *loaders[4];
        for (int w = 0; w < workers; w++)
            OK(ls_loader_create(d, 50, 2, 5, 1, &loaders[w]));
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            int seen[1000] = {0};
            for (uint64_t first = 0, turn = 0; first < count; turn++) {
                const size_t n = 1 + (size_t)(turn * 7 % 50);
                const size_t some = count - first < n ? (size_t)(count - first) : n;
                ls_loader *loader = loaders[turn % (uint64_t)workers];
                OK(ls_loader_ask(loader, epoch, first, some));
                const void *got[2];
                size_t k;
                OK(ls_loader_take(loader, got, &k));
                assert_int_equal(k, some);
                for (size_t i = 0; i < k; i++) {
                    const int32_t *tokens = (const int32_t *)got[0] + 4 * i;
                    seen[tokens[0] + 256 * tokens[1]]++;
                }
                first += some;
            }
            for (uint64_t i = 0; i < count; i++)
                assert_int_equal(seen[i], 1);
        }
        for (int w = 0; w < workers; w++)
            ls_loader_destroy(loaders[w]);
    }
    ls_dataset_close(d);
    remove_file("text");
}

/* Samples that were taken stay while more are asked for and read. */
static void test_stays(void **state)
{
    (void)state;
    ls_dataset *d = open_task(1000);
    ls_loader *loader;
    OK(ls_loader_create(d, 10, 2, 1, 1, &loader));
    for (uint64_t i = 0; i < 2; i++)
        OK(ls_loader_ask(loader, 0, i * 10, 10));
    for (uint64_t i = 0; i < 98; i++) {
        const void *fields[3];
        OK(ls_loader_take(loader, fields, NULL));
        OK(ls_loader_ask(loader, 0, (i + 2) * 10, 10));
        assert_int_equal(ls_loader_ask(loader, 0, 0, 1), LS_IN_PROGRESS);
        if (i % 16 == 0)
            nanosleep(&(struct timespec){0, 2000000}, NULL); /* the thread has filled all */
        check_batch(d, fields, 1, 0, i * 10, 10);
    }
    ls_loader_destroy(loader);
    ls_dataset_close(d);
}

static void test_no_shuffle(void **state)
{
    (void)state;
    ls_dataset *d = open_task(20);
    ls_loader *loader;
    OK(ls_loader_create(d, 20, 1, 1, 0, &loader));
    OK(ls_loader_ask(loader, 5, 0, 20));
    const void *fields[3];
    OK(ls_loader_take(loader, fields, NULL));
    for (uint64_t i = 0; i < 20; i++) {
        float dense[13], target;
        int32_t ids[26];
        OK(ls_dataset_read(d, i, 5, (void *[]){dense, ids, &target}));
        assert_memory_equal((const int32_t *)fields[1] + 26 * i, ids, sizeof ids);
    }
    ls_loader_destroy(loader);
    ls_dataset_close(d);
}

/* A sample that cannot be read: its request fails with the text, the next ones do not. */
static void test_errors(void **state)
{
    (void)state;
    uint16_t tokens[400] = {0};
    tokens[45] = 999;
    write_file("t.bin", tokens, sizeof tokens);
    const ls_data_field wanted[2] = {{"tokens", LS_I32, 1, {10}, 65},
                                     {"targets", LS_I32, 1, {10}, 65}};
    ls_dataset *d = open_data(config_of("tokens", path_of("t.bin")), wanted, 2);
    ls_loader *loader;
    OK(ls_loader_create(d, 4, 4, 0, 0, &loader));
    for (uint64_t i = 0; i < 4; i++)
        OK(ls_loader_ask(loader, 0, 4 * i, 4));
    const void *fields[2];
    size_t count;
    OK(ls_loader_take(loader, fields, &count));
    count = 77;
    FAILS(LS_ERR_INVALID, "t.bin: token 999 at offset 90", ls_loader_take(loader, fields, &count));
    assert_int_equal(count, 77);
    OK(ls_loader_take(loader, fields, &count));
    OK(ls_loader_take(loader, fields, &count));
    FAILS(LS_ERR_INVALID, "no request is under way", ls_loader_take(loader, fields, &count));
    FAILS(LS_ERR_INVALID, "5 samples from place 0", ls_loader_ask(loader, 0, 0, 5));
    FAILS(LS_ERR_INVALID, "0 samples", ls_loader_ask(loader, 0, 0, 0));
    FAILS(LS_ERR_INVALID, "an epoch 35", ls_loader_ask(loader, 0, 33, 3));
    FAILS(LS_ERR_INVALID, "an epoch 35", ls_loader_ask(loader, 0, UINT64_MAX, 1));
    FAILS(LS_ERR_INVALID, "a loader is needed", ls_loader_ask(NULL, 0, 0, 1));
    FAILS(LS_ERR_INVALID, "a loader and room", ls_loader_take(NULL, fields, NULL));
    ls_loader_destroy(loader);
    ls_loader_destroy(NULL);
    FAILS(LS_ERR_INVALID, "not 0 and 1", ls_loader_create(d, 0, 1, 0, 0, &loader));
    FAILS(LS_ERR_INVALID, "not 1 and 0", ls_loader_create(d, 1, 0, 0, 0, &loader));
    FAILS(LS_ERR_NOMEM, "a smaller batch", ls_loader_create(d, SIZE_MAX / 4, 1, 0, 0, &loader));
    FAILS(LS_ERR_INVALID, "a dataset", ls_loader_create(NULL, 1, 1, 0, 0, &loader));
    ls_dataset_close(d);
    ls_data_config config = LS_DATA_CONFIG_INIT;
    OK(ls_dataset_open(&config, &d));
    FAILS(LS_ERR_INVALID, "bind first", ls_loader_create(d, 1, 1, 0, 0, &loader));
    ls_dataset_close(d);
    remove_file("t.bin");
}

/* Ending with requests under way, at every stage, comes back at once. */
static void test_destroy(void **state)
{
    (void)state;
    ls_dataset *d = open_task(0);
    for (int i = 0; i < 200; i++) {
        ls_loader *loader;
        OK(ls_loader_create(d, i % 10 == 0 ? 5000 : 50, 3, 0, 1, &loader));
        for (int k = 0; k < i % 4; k++)
            OK(ls_loader_ask(loader, 0, 0, i % 10 == 0 ? 5000 : 50));
        const void *fields[3];
        if (i % 4 == 3)
            OK(ls_loader_take(loader, fields, NULL));
        if (i % 3 == 0)
            nanosleep(&(struct timespec){0, i * 1000}, NULL);
        ls_loader_destroy(loader);
    }
    ls_dataset_close(d);
}

/* One dataset, several threads with loaders of their own. */
static void *use(void *argument)
{
    ls_dataset *d = argument;
    ls_loader *loader;
    uint64_t hash = HASH_START;
    if (ls_loader_create(d, 32, 2, 3, 1, &loader) != LS_OK)
        return NULL;
    for (uint64_t i = 0; i < 30; i++) {
        const void *fields[3];
        size_t count;
        if (ls_loader_ask(loader, 0, i * 32, 32) || ls_loader_take(loader, fields, &count))
            return NULL;
        hash = hash_of(hash, fields[1], 32 * 26 * 4);
    }
    ls_loader_destroy(loader);
    uint64_t *result = malloc(sizeof hash);
    *result = hash;
    return result;
}

static void test_threads(void **state)
{
    (void)state;
    ls_dataset *d = open_task(1000);
    pthread_t threads[3];
    uint64_t *results[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, d), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], (void **)&results[i]), 0);
    for (int i = 0; i < 3; i++) {
        assert_non_null(results[i]);
        assert_int_equal(*results[i], *results[0]);
    }
    for (int i = 0; i < 3; i++)
        free(results[i]);
    ls_dataset_close(d);
}

/* A signal of the process goes to the caller's thread: the loader's has all blocked. */
static volatile sig_atomic_t handled;
static pthread_t owner;

static void on_signal(int number)
{
    (void)number;
    handled = pthread_equal(pthread_self(), owner) ? 1 : 2;
}

static void test_signals(void **state)
{
    (void)state;
    owner = pthread_self();
    struct sigaction action = {.sa_handler = on_signal}, before;
    sigaction(SIGUSR1, &action, &before);
    ls_dataset *d = open_task(1000);
    ls_loader *loader;
    sigset_t one, mask;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    OK(ls_loader_create(d, 32, 2, 3, 1, &loader));
    pthread_sigmask(SIG_BLOCK, &one, &mask);   /* only the loader's thread could take it */
    assert_false(sigismember(&mask, SIGUSR1)); /* creating left our mask as it was */
    kill(getpid(), SIGUSR1);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    assert_int_equal(handled, 0);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    assert_int_equal(handled, 1);
    sigaction(SIGUSR1, &before, NULL);
    ls_loader_destroy(loader);
    ls_dataset_close(d);
}

static void test_allocations(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS)
        skip();
    ls_dataset *d = open_task(0);
    ls_loader *loader;
    OK(ls_loader_create(d, 32, 2, 3, 1, &loader));
    ls_status bad = LS_OK;
    allocations = 0;
    counting = 1;
    void *volatile probe = malloc(10);
    for (uint64_t i = 0; i < 500 && bad == LS_OK; i++) {
        const void *fields[3];
        bad = ls_loader_ask(loader, i / 100, i % 100 * 32, 32);
        bad = bad ? bad : ls_loader_take(loader, fields, NULL);
    }
    counting = 0;
    free(probe);
    OK(bad);
    assert_int_equal(allocations, 1); /* ours */
    ls_loader_destroy(loader);
    ls_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),      cmocka_unit_test(test_ledger),
        cmocka_unit_test(test_stays),       cmocka_unit_test(test_no_shuffle),
        cmocka_unit_test(test_errors),      cmocka_unit_test(test_destroy),
        cmocka_unit_test(test_threads),     cmocka_unit_test(test_signals),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

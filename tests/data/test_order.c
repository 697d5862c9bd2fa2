/* The order of samples: a permutation, uniform, different by seed and epoch, and never another. */
#include <stdlib.h>

#include "cases.h"

static void check_permutation(uint64_t seed, uint64_t epoch, uint64_t count, uint8_t *seen)
{
    memset(seen, 0, count);
    for (uint64_t place = 0; place < count; place++) {
        const uint64_t sample = ls_data_order(seed, epoch, count, place);
        if (sample >= count || seen[sample]++)
            fail_msg("count %d, place %d: sample %d twice or outside", (int)count, (int)place,
                     (int)sample);
    }
}

static void test_permutation(void **state)
{
    (void)state;
    static uint8_t seen[200000];
    for (uint64_t count = 1; count <= 300; count++)
        check_permutation(7, count, count, seen);
    static const uint64_t counts[] = {511,  512,   513,   1000,  1023,  1024,   1025,
                                      4093, 49999, 50000, 65535, 65536, 131071, 150001};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        check_permutation(counts[i], 3, counts[i], seen);
}

/* Large counts: inside, and no two places alike among many. */
static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_large(void **state)
{
    (void)state;
    static const uint64_t counts[] = {((uint64_t)1 << 32) - 1, (uint64_t)1 << 32, 5000000029u,
                                      ((uint64_t)1 << 40) - 87, (uint64_t)1 << 40};
    enum { TRIES = 20000 };
    static uint64_t found[TRIES];
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        uint64_t upper = 0;
        for (uint64_t i = 0; i < TRIES; i++) {
            const uint64_t place = i % 2 ? i : counts[c] - 1 - i * 7919;
            found[i] = ls_data_order(1, 0, counts[c], place);
            assert_true(found[i] < counts[c]);
            upper += found[i] >= counts[c] / 2;
        }
        qsort(found, TRIES, sizeof *found, compare);
        for (int i = 1; i < TRIES; i++)
            assert_true(found[i - 1] != found[i]);
        assert_in_range(upper, TRIES / 2 - 400, TRIES / 2 + 400);
    }
}

/* Chi-square of `cells` equally likely cells: mean cells - 1, deviation sqrt(2 (cells - 1)); six
 * deviations are allowed. */
static void check_uniform(const unsigned *cells, int count, double tries, const char *what)
{
    double chi = 0;
    const double expected = tries / count;
    for (int i = 0; i < count; i++)
        chi += ((double)cells[i] - expected) * ((double)cells[i] - expected) / expected;
    const double over = chi - (count - 1);
    if (over * over > 36.0 * 2.0 * (count - 1) && over > 0)
        fail_msg("%s: chi-square %.1f with %d cells", what, chi, count);
}

static void test_uniform(void **state)
{
    (void)state;
    enum { EPOCHS = 30000 };
    static unsigned cells[4096];
    static const int counts[] = {2, 3, 5, 10, 17, 60};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const int n = counts[c];
        for (int element = 0; element < n; element += n / 2) { /* where a place comes from */
            memset(cells, 0, sizeof cells);
            for (uint64_t e = 0; e < EPOCHS; e++)
                cells[ls_data_order(5, e, (uint64_t)n, (uint64_t)element)]++;
            check_uniform(cells, n, EPOCHS, "place by epoch");
        }
        memset(cells, 0, sizeof cells); /* two neighbours at once */
        for (uint64_t e = 0; e < EPOCHS; e++) {
            const uint64_t a = ls_data_order(6, e, (uint64_t)n, 0);
            const uint64_t b = ls_data_order(6, e, (uint64_t)n, 1);
            cells[(a * (uint64_t)n + b)]++;
        }
        int used = 0;
        for (int i = 0; i < n * n; i++)
            if (i / n != i % n)
                cells[used++] = cells[i];
            else
                assert_int_equal(cells[i], 0);
        check_uniform(cells, used, EPOCHS, "two neighbours");
        memset(cells, 0, sizeof cells);
        for (uint64_t seed = 0; seed < EPOCHS; seed++)
            cells[ls_data_order(seed, 0, (uint64_t)n, 1)]++;
        check_uniform(cells, n, EPOCHS, "place by seed");
    }
}

/* All 24 orders of four samples are equally likely. */
static void test_all_orders(void **state)
{
    (void)state;
    enum { EPOCHS = 48000 };
    unsigned cells[256] = {0}, used[24];
    for (uint64_t e = 0; e < EPOCHS; e++) {
        unsigned code = 0;
        for (uint64_t i = 0; i < 4; i++)
            code = code * 4 + (unsigned)ls_data_order(9, e, 4, i);
        cells[code]++;
    }
    int n = 0;
    for (int i = 0; i < 256; i++)
        if (cells[i])
            used[n++ % 24] = cells[i];
    assert_int_equal(n, 24);
    check_uniform(used, 24, EPOCHS, "orders of four");
}

/* Epochs and seeds next to each other share no more places than chance has it. */
static void test_differs(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    int epochs = 0, seeds = 0, fixed = 0, follow = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        const uint64_t x = ls_data_order(1, 1, COUNT, i);
        epochs += x == ls_data_order(1, 2, COUNT, i);
        seeds += x == ls_data_order(2, 1, COUNT, i);
        fixed += x == i;
        follow += i + 1 < COUNT && ls_data_order(1, 1, COUNT, i + 1) == x + 1;
    }
    assert_in_range(epochs, 0, 8); /* 1 is expected of each */
    assert_in_range(seeds, 0, 8);
    assert_in_range(fixed, 0, 8);
    assert_in_range(follow, 0, 8);
}

/* These numbers must never change: a run is resumed by later versions. */
static void test_golden(void **state)
{
    (void)state;
    static const uint64_t small[2][10] = {{9, 0, 2, 7, 4, 6, 1, 3, 8, 5},
                                          {8, 1, 9, 2, 4, 7, 3, 6, 5, 0}};
    for (uint64_t epoch = 0; epoch < 2; epoch++)
        for (uint64_t i = 0; i < 10; i++)
            assert_int_equal(ls_data_order(42, epoch, 10, i), small[epoch][i]);
    static const uint64_t large[4] = {111626413757u, 843130063635u, 298862375668u, 1034846013346u};
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(ls_data_order(0x123456789abcdef0u, 77, (uint64_t)1 << 40, i), large[i]);
    uint64_t hash = HASH_START;
    for (uint64_t i = 0; i < 50000; i++) {
        const uint64_t x = ls_data_order(1, 0, 50000, i);
        hash = hash_of(hash, &x, sizeof x);
    }
    assert_int_equal(hash, 0x3dbe01216c499fe9u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation), cmocka_unit_test(test_large),
        cmocka_unit_test(test_uniform),     cmocka_unit_test(test_all_orders),
        cmocka_unit_test(test_differs),     cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

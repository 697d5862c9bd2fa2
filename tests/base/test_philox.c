/* Philox4x32-10: the known answers of the Random123 distribution (kat_vectors), and streams
 * against single blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"

static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        lsi_philox(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].out, sizeof out);
        memcpy(out, cases[i].counter, sizeof out);
        lsi_philox(out, cases[i].key, out); /* in place */
        assert_memory_equal(out, cases[i].out, sizeof out);
        lsi_philox_fill(cases[i].counter, cases[i].key, 0, out, 4);
        assert_memory_equal(out, cases[i].out, sizeof out);
    }
}

/* Pieces of a stream, of any start and length, equal the blocks one by one; carries included. */
static void test_fill(void **state)
{
    (void)state;
    enum { N = 1400 }; /* several groups */
    const uint32_t key[2] = {42, 7}, counter[4] = {0xfffffff0, 0xffffffff, 3, 4};
    uint32_t expected[N], got[N + 1];
    for (uint32_t i = 0; i < N; i += 4) {
        const uint64_t low = ((uint64_t)counter[1] << 32 | counter[0]) + i / 4;
        const uint32_t c[4] = {(uint32_t)low, (uint32_t)(low >> 32), counter[2], counter[3]};
        lsi_philox(c, key, expected + i);
    }
    for (size_t first = 0; first < 12; first++) {
        for (size_t count = 0; first + count <= N; count += count < 140 ? 1 : 97) {
            got[count] = 12345;
            lsi_philox_fill(counter, key, first, got, count);
            assert_memory_equal(got, expected + first, count * sizeof *got);
            assert_int_equal(got[count], 12345);
        }
    }
    float uniform[N];
    lsi_philox_fill_uniform(counter, key, 5, uniform, N - 5);
    for (size_t i = 0; i < N - 5; i++)
        assert_true(uniform[i] == lsi_philox_uniform(expected[i + 5]));
}

static void test_uniform(void **state)
{
    (void)state;
    assert_true(lsi_philox_uniform(0) == 0.0f);
    assert_true(lsi_philox_uniform(0xffffffff) < 1.0f);
    assert_true(lsi_philox_uniform(0x80000000) == 0.5f);
    enum { N = 100000 };
    static float x[N];
    const uint32_t key[2] = {1, 0}, counter[4] = {0};
    lsi_philox_fill_uniform(counter, key, 0, x, N);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        assert_true(x[i] >= 0 && x[i] < 1);
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    assert_true(sum / N > 0.495 && sum / N < 0.505); /* five standard deviations */
    assert_true(squares / N > 0.328 && squares / N < 0.339);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

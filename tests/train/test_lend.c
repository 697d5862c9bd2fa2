/* Who lends to whom: whoever has the data is spared, whoever lacks it gets a provider that has it,
 * and no provider has two customers more than another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/lend.h"

#define MOST 9

static void everybody_is_served(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++)
        for (unsigned bits = 1; bits < 1u << n; bits++) {
            uint8_t has[MOST];
            int customers[MOST] = {0}, sources = 0;
            for (int w = 0; w < n; w++)
                sources += has[w] = (uint8_t)(bits >> w & 1);
            for (int w = 0; w < n; w++) {
                const int from = lsi_lend_provider(has, n, w);
                assert_int_equal(from >= 0, !has[w]);
                if (from < 0)
                    continue;
                assert_true(from < n && has[from]);
                customers[from]++;
            }
            const int fewest = (n - sources) / sources;
            for (int w = 0; w < n; w++)
                if (has[w])
                    assert_in_range(customers[w], fewest, fewest + ((n - sources) % sources != 0));
        }
}

static void nobody_has_it(void **state)
{
    (void)state;
    const uint8_t has[MOST] = {0};
    for (int n = 1; n <= MOST; n++)
        for (int w = 0; w < n; w++)
            assert_int_equal(lsi_lend_provider(has, n, w), -1);
}

static void in_turn(void **state)
{
    (void)state;
    const uint8_t has[] = {0, 1, 0, 0, 1, 0};
    const int wanted[] = {1, -1, 4, 1, -1, 4};
    for (int w = 0; w < 6; w++)
        assert_int_equal(lsi_lend_provider(has, 6, w), wanted[w]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_is_served),
        cmocka_unit_test(nobody_has_it),
        cmocka_unit_test(in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The tuned rules: what is chosen by default is offered, adds in the order of the tree, and is what
 * the printed rules say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll/select.h"

static const lsi_reach reaches[] = {LSI_REACH_HOSTS, LSI_REACH_HOST, LSI_REACH_RINGS,
                                    LSI_REACH_BOARD};
#define N_REACHES (sizeof reaches / sizeof *reaches)
#define SIZES 40
#define LARGEST ((size_t)1 << 40)

static int adds(lsi_coll c)
{
    return c == LSI_ALLREDUCE || c == LSI_REDUCE || c == LSI_REDUCE_SCATTER;
}

static void test_defaults(void **unused)
{
    (void)unused;
    unsigned chosen[LSI_ALGORITHM_COUNT] = {0};
    for (size_t i = 0; i < N_REACHES; i++)
        for (int size = 1; size <= SIZES; size++) {
            lsi_selection s;
            lsi_select_defaults(&s, size, reaches[i]);
            for (lsi_coll c = 0; c < LSI_COLL_COUNT; c++)
                for (size_t bytes = 0; bytes < LARGEST; bytes += bytes / 16 + 1) {
                    lsi_algorithm a = lsi_select(&s, c, bytes);
                    assert_int_equal(a, lsi_select_tuned(c, bytes, size, reaches[i]));
                    assert_true(lsi_select_offers(c, a));
                    assert_false(a == LSI_RING && adds(c));
                    chosen[a]++;
                }
        }
    for (int a = 0; a < LSI_ALGORITHM_COUNT; a++)
        assert_true(chosen[a] > 0);
}

/* What is printed can be read again, and says the same. */
static void test_printed(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < N_REACHES; i++)
        for (int size = 1; size <= SIZES; size++)
            for (lsi_coll c = 0; c < LSI_P2P; c++) {
                lsi_selection s, again;
                char text[256];
                lsi_select_defaults(&s, size, reaches[i]);
                lsi_select_defaults(&again, 1, LSI_REACH_BOARD);
                lsi_select_print(&s, c, text, sizeof text);
                assert_int_equal(lsi_select_parse("test", text, c, &again), LS_OK);
                for (size_t bytes = 0; bytes < LARGEST; bytes += bytes / 16 + 1)
                    assert_int_equal(lsi_select(&again, c, bytes), lsi_select(&s, c, bytes));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

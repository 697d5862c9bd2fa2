/* Two ways whose speeds are made up: the better one has to be found, kept, and given up when it has
 * become the slower one, and trying must cost little. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/philox.h"
#include "coll/duel.h"

/* So many calls with these times, each up to a tenth longer, now and then ten times as long.
 * Returns how many went the slower way. */
static int play(lsi_duel *d, double zero, double one, int calls)
{
    static uint32_t turn;
    const int slower = one > zero;
    int wrong = 0;
    for (int i = 0; i < calls; i++) {
        uint32_t words[4];
        lsi_philox((uint32_t[]){turn++, 0, 0, 0}, (uint32_t[]){7, 0}, words);
        const int way = lsi_duel_way(d);
        assert_in_range(way, 0, 1);
        const double noise = 1 + 0.1 * (words[0] / 4294967296.0);
        lsi_duel_tell(d, way, (way ? one : zero) * noise * (words[1] % 50 ? 1 : 10));
        wrong += way == slower;
    }
    return wrong;
}

static void test_finds(void **unused)
{
    (void)unused;
    for (int way = 0; way < 2; way++) {
        lsi_duel d = {0};
        assert_int_equal(lsi_duel_way(&d), 0);
        play(&d, way ? 2e-3 : 1e-3, way ? 1e-3 : 2e-3, 10);
        assert_int_equal(lsi_duel_way(&d), way);
        /* 3 trials in 512 calls, and a few that noise asks for */
        assert_in_range(play(&d, way ? 2e-3 : 1e-3, way ? 1e-3 : 2e-3, 10000), 1, 300);
    }
}

static void test_follows(void **unused)
{
    (void)unused;
    lsi_duel d = {0};
    play(&d, 90e-6, 60e-6, 1000);
    assert_int_equal(lsi_duel_way(&d), 1);
    /* the cores have moved apart: found out within some tens of calls */
    assert_in_range(play(&d, 95e-6, 280e-6, 100), 1, 60);
    assert_in_range(play(&d, 95e-6, 280e-6, 1000), 0, 60);
    /* and together again, which the way in use does not show: at the next comparison */
    play(&d, 90e-6, 60e-6, 600);
    assert_in_range(play(&d, 90e-6, 60e-6, 1000), 0, 60);
}

/* What was forced upon the operation says nothing of the choice. */
static void test_forced(void **unused)
{
    (void)unused;
    lsi_duel d = {0};
    for (int i = 0; i < 100; i++)
        lsi_duel_tell(&d, 1, 1e-6);
    assert_int_equal(lsi_duel_way(&d), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds),
        cmocka_unit_test(test_follows),
        cmocka_unit_test(test_forced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

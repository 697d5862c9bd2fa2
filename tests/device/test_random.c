/* The operations of ops_*.c with random arguments: shapes that nobody thought of.
 *
 * The seed is fixed; LOCKSTEP_TEST_SEED takes another, LOCKSTEP_TEST_CASES another number of cases.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/env.h"
#include "trial.h"

#define MOST 64 /* operations */

static long seed = 20240229, cases = 60;

static void run_op(void **state)
{
    trial_random(*state, (uint64_t)seed, (size_t)cases);
}

int main(void)
{
    static const trial_op *const groups[] = {trial_products,    trial_convolutions, trial_norms,
                                             trial_elementwise, trial_moves,        trial_pools,
                                             trial_losses,      trial_optimizers};
    struct CMUnitTest tests[MOST];
    size_t count = 0;
    if (lsi_env_int("LOCKSTEP_TEST_SEED", 0, 1L << 40, &seed) != LS_OK ||
        lsi_env_int("LOCKSTEP_TEST_CASES", 1, 1L << 30, &cases) != LS_OK)
        return 2;
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (const trial_op *op = groups[g]; op->name && count < MOST; op++)
            tests[count++] = (struct CMUnitTest){op->name, run_op, NULL, NULL, (void *)op};
    print_message("LOCKSTEP_TEST_SEED=%ld\n", seed);
    return _cmocka_run_group_tests("random", tests, count, NULL, NULL);
}

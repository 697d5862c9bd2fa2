/* A step does not allocate, nor do touching and flushing: malloc and its sisters are counted. */
#include "../count_allocations.h"
#include "arrays.h"

static void test_counter(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS)
        skip();
    allocations = 0;
    counting = 1;
    void *volatile a = malloc(10), *volatile b = aligned_alloc(64, 128);
    counting = 0;
    assert_int_equal(allocations, 2);
    free(a);
    free(b);
}

static void test_steps(void **state)
{
    (void)state;
    static const char *const names[] = {"sgd", "adam", "adamw", "lars", "lamb"};
    for (int n = 0; n < 5; n++) {
        ls_optim_config c = LS_OPTIM_CONFIG_INIT;
        c.name = names[n];
        c.clip = 1;
        c.momentum = n == 0 ? 0.9f : 0;
        arrays a = {.count = 0};
        add_param(&a, "bias", 1, 40, 1, 0);
        add_param(&a, "table", 900, 10, 0, 1);
        add_param(&a, "weight", 100, 100, 0, 0);
        fill(&a);
        new_gradient(&a);
        const int32_t ids[] = {0, 4, 5, 899};
        float values[40];
        for (int i = 0; i < 40; i++)
            values[i] = random_float();
        const ls_sparse_grad grad = {4, 10, ids, values};
        ls_optimizer *o = make(&c, &a);
        allocations = 0;
        counting = 1;
        ls_status bad = LS_OK;
        for (int t = 0; t < 1100 && bad == LS_OK; t++) {
            bad = ls_optimizer_touch(o, a.w, 1, ids, 4, 1);
            bad = bad ? bad : ls_optimizer_sparse(o, 1, &grad);
            bad = bad ? bad : ls_optimizer_step(o, a.w, a.g, 1);
            if (t % 100 == 0)
                bad = bad ? bad : ls_optimizer_flush(o, a.w);
        }
        counting = 0;
        OK(bad);
        assert_int_equal(allocations, 0);
        ls_optimizer_destroy(o);
        free_arrays(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter),
        cmocka_unit_test(test_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

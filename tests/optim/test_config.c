/* Settings of optimizers: defaults, what is refused and with which words; schedules' values. */
#include "arrays.h"

static ls_optim_config named(const char *name)
{
    ls_optim_config c = LS_OPTIM_CONFIG_INIT;
    c.name = name;
    return c;
}

static void test_defaults(void **state)
{
    (void)state;
    ls_optim_config c = LS_OPTIM_CONFIG_INIT, out;
    OK(ls_optim_config_check(&c, &out));
    assert_string_equal(out.name, "sgd");
    assert_string_equal(out.schedule, "const");
    assert_float_equal(out.lr, 0.001f, 0);
    assert_float_equal(out.momentum, 0, 0);
    assert_float_equal(out.decay, 0, 0);
    c = named("adamw");
    OK(ls_optim_config_check(&c, &out));
    assert_float_equal(out.beta1, 0.9f, 0);
    assert_float_equal(out.beta2, 0.999f, 0);
    assert_float_equal(out.eps, 1e-8f, 0);
    assert_float_equal(out.decay, 0.01f, 0);
    c = named("lamb");
    OK(ls_optim_config_check(&c, &c));
    assert_float_equal(c.eps, 1e-6f, 0);
    c = named("lars");
    OK(ls_optim_config_check(&c, &c));
    assert_float_equal(c.trust, 0.001f, 0);
    assert_float_equal(c.momentum, 0.9f, 0);
    assert_string_equal(ls_optimizer_known(0), "sgd");
    assert_string_equal(ls_optimizer_known(4), "lamb");
    assert_null(ls_optimizer_known(5));
    assert_null(ls_optimizer_known(-1));
    assert_string_equal(ls_schedule_known(3), "cosine");
    assert_null(ls_schedule_known(4));
}

/* A checked configuration means the same when it is checked again, real zeros too. */
static void test_real_zeros(void **state)
{
    (void)state;
    ls_optim_config c = named("adamw"), once, twice;
    c.decay = c.beta1 = c.eps = LS_OPTIM_ZERO;
    OK(ls_optim_config_check(&c, &once));
    OK(ls_optim_config_check(&once, &twice));
    assert_float_equal(twice.decay, LS_OPTIM_ZERO, 0);
    assert_float_equal(twice.beta1, LS_OPTIM_ZERO, 0);
    assert_float_equal(twice.beta2, 0.999f, 0);
    /* and it is a zero that the optimizer works with */
    arrays a = {.count = 0};
    add_param(&a, "w", 1, 20, 0, 0);
    fill(&a);
    float before = a.w[3];
    ls_optimizer *o = make(&twice, &a);
    OK(ls_optimizer_step(o, a.w, a.g, 1)); /* no gradient, no decay: 0 / 0 without eps */
    assert_true(isnan(a.w[3]) && !isnan(before));
    ls_optimizer_destroy(o);
    twice.eps = 1e-8f;
    a.w[3] = before;
    o = make(&twice, &a);
    OK(ls_optimizer_step(o, a.w, a.g, 1));
    assert_true(a.w[3] == before);
    ls_optimizer_destroy(o);
    free_arrays(&a);
}

static void refused(const ls_optim_config *c, const char *words)
{
    ls_optim_config out = {.size = 77};
    assert_int_equal(ls_optim_config_check(c, &out), LS_ERR_CONFIG);
    assert_int_equal(out.size, 77); /* set only on success */
    if (!strstr(ls_last_error(), words))
        fail_msg("'%s' does not say '%s'", ls_last_error(), words);
    ls_optimizer *o = NULL;
    assert_int_equal(ls_optimizer_create(c, NULL, 0, 0, &o), LS_ERR_CONFIG);
    assert_null(o);
}

#define REFUSED(optimizer, field, value, words)                                                    \
    do {                                                                                           \
        ls_optim_config c = named(optimizer);                                                      \
        c.field = value;                                                                           \
        refused(&c, words);                                                                        \
    } while (0)

static void test_refused(void **state)
{
    (void)state;
    REFUSED("adamx", lr, 1, "none named 'adamx' (known: sgd, adam, adamw, lars, lamb)");
    REFUSED("sgd", lr, -0.5f, "'lr' must be above 0 and finite, not -0.5");
    REFUSED("sgd", lr, LS_OPTIM_ZERO, "'lr' must be above 0");
    REFUSED("sgd", lr, INFINITY, "'lr'");
    REFUSED("sgd", lr, NAN, "'lr'");
    REFUSED("sgd", momentum, 1, "'momentum' must be at least 0 and below 1, not 1");
    REFUSED("sgd", momentum, -0.1f, "'momentum'");
    REFUSED("sgd", nesterov, 1, "'nesterov' needs a momentum");
    REFUSED("sgd", beta1, 0.9f, "sgd has no 'beta1'");
    REFUSED("adam", nesterov, 1, "adam has no 'nesterov'");
    REFUSED("adam", momentum, 0.9f, "adam has no 'momentum'");
    REFUSED("adam", trust, 0.9f, "adam has no 'trust'");
    REFUSED("adam", beta1, 1, "'beta1' must be at least 0 and below 1");
    REFUSED("adam", beta2, 1.5f, "'beta2'");
    REFUSED("adam", beta2, NAN, "'beta2'");
    REFUSED("adam", eps, -2, "'eps' must be at least 0 and finite");
    REFUSED("adamw", decay, -2, "'decay'");
    REFUSED("lars", trust, -1, "'trust' must be above 0");
    REFUSED("lamb", clip, -3, "'clip'");
    REFUSED("sgd", schedule, "cosinus", "no schedule named 'cosinus' (known: const, linear, step");
    REFUSED("sgd", schedule, "cosine", "needs 'steps' above the 0 of 'warmup'");
    REFUSED("sgd", schedule, "step", "needs 'every'");
    REFUSED("sgd", steps, 10, "schedule 'const' has no 'steps'");
    REFUSED("sgd", min_lr, 0.1f, "schedule 'const' has no 'min_lr'");
    REFUSED("sgd", every, 10, "schedule 'const' has no 'every'");
    REFUSED("sgd", gamma, 0.5f, "schedule 'const' has no 'gamma'");
    ls_optim_config c = named("sgd");
    c.schedule = "linear";
    c.steps = 10;
    c.min_lr = 0.5f;
    refused(&c, "'min_lr' must be from 0 to the learning rate 0.001");
    c = named("sgd");
    c.schedule = "step";
    c.every = 10;
    c.gamma = 1.5f;
    refused(&c, "'gamma' must be above 0 and at most 1, not 1.5");
    c = named("sgd");
    c.size = 3;
    assert_int_equal(ls_optim_config_check(&c, &c), LS_ERR_INVALID);
    assert_int_equal(ls_optim_config_check(NULL, &c), LS_ERR_INVALID);
}

static void check_rate(const ls_optim_config *c, uint64_t step, double expected)
{
    float rate;
    OK(ls_schedule_rate(c, step, &rate));
    if (rate != (float)expected)
        fail_msg("step %llu of %s: %.9g, not %.9g", (unsigned long long)step, c->schedule,
                 (double)rate, expected);
}

static void test_schedules(void **state)
{
    (void)state;
    ls_optim_config c = named("sgd");
    const double lr = (double)0.1f;
    c.lr = 0.1f;
    c.schedule = "const";
    c.warmup = 4;
    check_rate(&c, 0, lr * 1 / 5);
    check_rate(&c, 3, lr * 4 / 5);
    check_rate(&c, 4, lr);
    check_rate(&c, UINT64_MAX, lr);
    c.schedule = "linear";
    c.steps = 104;
    c.min_lr = 0.01f;
    const double min = (double)0.01f;
    check_rate(&c, 2, lr * 3 / 5);
    check_rate(&c, 4, lr);
    check_rate(&c, 54, min + (lr - min) * 0.5);
    check_rate(&c, 103, min + (lr - min) * (1 - 99.0 / 100));
    check_rate(&c, 104, min);
    check_rate(&c, 10000, min);
    c.schedule = "cosine";
    check_rate(&c, 4, lr);
    check_rate(&c, 29, min + (lr - min) * 0.5 * (1 + cos(M_PI / 4)));
    check_rate(&c, 54, min + (lr - min) * 0.5 * (1 + cos(M_PI / 2)));
    check_rate(&c, 104, min);
    c = named("adam");
    c.lr = 0.5f;
    c.schedule = "step";
    c.every = 30;
    check_rate(&c, 29, 0.5);
    check_rate(&c, 30, 0.5 * (double)0.1f);
    check_rate(&c, 59, 0.5 * (double)0.1f);
    check_rate(&c, 60, 0.5 * (double)0.1f * (double)0.1f);
    c.gamma = 0.5f;
    check_rate(&c, 95, 0.0625);
    c.warmup = 1;
    check_rate(&c, 0, 0.25);
}

static void test_descriptions(void **state)
{
    (void)state;
    const ls_optim_config c = LS_OPTIM_CONFIG_INIT;
    const ls_param_info good[] = {
        {.name = "a", .ndim = 1, .dims = {20}, .offset = 0, .count = 20},
        {.name = "b", .ndim = 1, .dims = {5}, .offset = 32, .count = 5},
    };
    ls_param_info bad[2];
    ls_optimizer *o = NULL;
    OK(ls_optimizer_create(&c, good, 2, 48, &o));
    ls_optimizer_destroy(o);
    o = NULL;
    for (int fault = 0; fault < 6; fault++) {
        size_t elements = 48;
        memcpy(bad, good, sizeof bad);
        switch (fault) {
        case 0: bad[1].offset = 16; break;   /* overlaps */
        case 1: bad[1].offset = 33; break;   /* not a multiple of 16 */
        case 2: elements = 36; break;        /* reaches over the end */
        case 3: bad[1].offset = 4096; break; /* lies behind it */
        case 4: bad[1].count = 0; break;
        case 5: bad[1].sparse = 1, bad[1].dims[0] = 3; break; /* 5 elements in 3 rows */
        }
        assert_int_equal(ls_optimizer_create(&c, bad, 2, elements, &o), LS_ERR_INVALID);
        assert_non_null(strstr(ls_last_error(), "parameter b"));
        assert_null(o);
    }
    ls_optim_config nowhere = LS_OPTIM_CONFIG_INIT;
    nowhere.device = "abacus";
    assert_int_equal(ls_optimizer_create(&nowhere, good, 2, 48, &o), LS_ERR_CONFIG);
    assert_null(o);
    OK(ls_optimizer_create(&c, NULL, 0, 0, &o)); /* nothing to train */
    OK(ls_optimizer_step(o, NULL, NULL, 1));
    ls_optimizer_destroy(o);
    ls_optimizer_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),     cmocka_unit_test(test_real_zeros),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_descriptions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Every optimizer against its formula, element by element in double, on both devices, with
 * clipping, schedules and parameters without decay. */
#include "arrays.h"

enum { STEPS = 15 };

/* The formulas as the papers and PyTorch have them; nothing is shared with the library. */
typedef struct oracle {
    double *w, *m, *v, *u;
} oracle;

static double norm_of(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void sgd(const ls_optim_config *c, double lr, double decay, double g, double *m, double *w)
{
    g += decay * *w;
    double step = g;
    if (c->momentum > 0) {
        *m = (double)c->momentum * *m + g;
        step = c->nesterov ? g + (double)c->momentum * *m : *m;
    }
    *w -= lr * step;
}

static double adam(const ls_optim_config *c, int t, double g, double *m, double *v)
{
    const double beta1 = (double)c->beta1, beta2 = (double)c->beta2;
    *m = beta1 * *m + (1 - beta1) * g;
    *v = beta2 * *v + (1 - beta2) * g * g;
    return *m / (1 - pow(beta1, t)) / (sqrt(*v) / sqrt(1 - pow(beta2, t)) + (double)c->eps);
}

static void oracle_param(const ls_optim_config *c, const ls_param_info *info, int t, double lr,
                         const double *g, oracle *o)
{
    const size_t from = info->offset, to = from + info->count;
    const double decay = info->no_decay ? 0 : (double)c->decay;
    const double w_norm = norm_of(o->w + from, info->count);
    double ratio = 1;
    if (!strcmp(c->name, "lars") && !info->no_decay)
        ratio = (double)c->trust * w_norm /
                (norm_of(g + from, info->count) + decay * w_norm + (double)c->eps);
    for (size_t i = from; i < to; i++) {
        if (!strcmp(c->name, "sgd") || !strcmp(c->name, "lars"))
            sgd(c, lr, ratio * decay, ratio * g[i], &o->m[i], &o->w[i]);
        else if (!strcmp(c->name, "adam"))
            o->w[i] -= lr * adam(c, t, g[i] + decay * o->w[i], &o->m[i], &o->v[i]);
        else if (!strcmp(c->name, "adamw"))
            o->w[i] -= lr * decay * o->w[i] + lr * adam(c, t, g[i], &o->m[i], &o->v[i]);
        else
            o->u[i] = adam(c, t, g[i], &o->m[i], &o->v[i]) + decay * o->w[i];
    }
    if (strcmp(c->name, "lamb"))
        return;
    ratio = info->no_decay ? 1 : w_norm / norm_of(o->u + from, info->count);
    for (size_t i = from; i < to; i++)
        o->w[i] -= lr * ratio * o->u[i];
}

static void compare(const ls_optim_config *given, const char *device)
{
    ls_optim_config c = *given, filled;
    c.device = device;
    OK(ls_optim_config_check(&c, &filled));
    filled.decay = fmaxf(filled.decay, 0); /* LS_OPTIM_ZERO stands for it */
    arrays a = usual_arrays();
    ls_optimizer *opt = make(&c, &a);
    oracle o = {calloc(a.elements, 8), calloc(a.elements, 8), calloc(a.elements, 8),
                calloc(a.elements, 8)};
    double *g = calloc(a.elements, 8);
    for (size_t i = 0; i < a.elements; i++)
        o.w[i] = (double)a.w[i];
    int clipped = 0;
    for (int t = 1; t <= STEPS; t++) {
        const float scale = t % 2 ? 1 / 32.0f : 1 / 7.0f;
        new_gradient(&a);
        OK(ls_optimizer_step(opt, a.w, a.g, scale));
        float lr;
        OK(ls_schedule_rate(&c, (uint64_t)t - 1, &lr));
        for (size_t i = 0; i < a.elements; i++)
            g[i] = (double)scale * (double)a.g[i];
        ls_optim_figures figures;
        ls_optimizer_figures(opt, &figures);
        assert_true(figures.rate == lr);
        if (c.clip > 0) {
            const double norm = norm_of(g, a.elements);
            const double factor = fmin(1, (double)c.clip / (norm + 1e-6));
            assert_true(fabs(figures.grad_norm - norm) < 1e-6 * norm);
            assert_true(fabs(figures.clipped - factor) < 1e-6);
            clipped += factor < 1;
            for (size_t i = 0; i < a.elements; i++)
                g[i] *= factor;
        }
        for (int p = 0; p < a.count; p++)
            oracle_param(&filled, &a.info[p], t, (double)lr, g, &o);
        for (size_t i = 0; i < a.elements; i++) {
            if (fabs((double)a.w[i] - o.w[i]) > 2e-6 + 2e-6 * fabs(o.w[i]))
                fail_msg("%s on %s, step %d: element %zu is %.9g, not %.9g", c.name, device, t, i,
                         (double)a.w[i], o.w[i]);
        }
    }
    assert_true(c.clip == 0 || (clipped > 0 && clipped < STEPS)); /* both cases were there */
    assert_int_equal(ls_optimizer_get_step(opt), STEPS);
    ls_optimizer_destroy(opt);
    free_arrays(&a);
    free(o.w), free(o.m), free(o.v), free(o.u), free(g);
}

static void compare_variants(ls_optim_config c)
{
    static const char *const devices[] = {"cpu", "ref"};
    for (int d = 0; d < 2; d++) {
        c.clip = 0;
        compare(&c, devices[d]);
        ls_optim_config more = c;
        more.clip = 30; /* between the norms of odd and even steps */
        more.schedule = "cosine";
        more.warmup = 5;
        more.steps = 12;
        compare(&more, devices[d]);
    }
}

static void test_sgd(void **state)
{
    (void)state;
    ls_optim_config c = LS_OPTIM_CONFIG_INIT;
    c.name = "sgd";
    c.lr = 0.05f;
    compare_variants(c);
    c.decay = 0.1f;
    compare_variants(c);
    c.momentum = 0.9f;
    compare_variants(c);
    c.nesterov = 1;
    compare_variants(c);
}

static void test_adam(void **state)
{
    (void)state;
    ls_optim_config c = LS_OPTIM_CONFIG_INIT;
    c.name = "adam";
    c.lr = 0.01f;
    compare_variants(c);
    c.decay = 0.05f;
    c.beta1 = 0.8f;
    c.beta2 = 0.95f;
    c.eps = 1e-3f;
    compare_variants(c);
    c.name = "adamw";
    compare_variants(c);
}

static void test_lars(void **state)
{
    (void)state;
    ls_optim_config c = LS_OPTIM_CONFIG_INIT;
    c.name = "lars";
    c.lr = 0.5f;
    compare_variants(c);
    c.decay = 0.1f;
    c.trust = 0.02f;
    compare_variants(c);
    c.nesterov = 1;
    compare_variants(c);
    c.nesterov = 0;
    c.momentum = LS_OPTIM_ZERO;
    compare_variants(c);
}

static void test_lamb(void **state)
{
    (void)state;
    ls_optim_config c = LS_OPTIM_CONFIG_INIT;
    c.name = "lamb";
    c.lr = 0.01f;
    compare_variants(c);
    c.decay = LS_OPTIM_ZERO;
    compare_variants(c);
}

/* Parameters of zeros, or gradients of zeros, have no ratio: nothing becomes NaN. */
static void test_zeros(void **state)
{
    (void)state;
    static const char *const names[] = {"lars", "lamb"};
    for (int n = 0; n < 2; n++) {
        ls_optim_config c = LS_OPTIM_CONFIG_INIT;
        c.name = names[n];
        c.clip = 1;
        arrays a = usual_arrays();
        ls_optimizer *o = make(&c, &a);
        memset(a.w, 0, a.elements * sizeof *a.w);
        OK(ls_optimizer_step(o, a.w, a.g, 1));
        for (size_t i = 0; i < a.elements; i++)
            assert_true(a.w[i] == 0);
        new_gradient(&a);
        OK(ls_optimizer_step(o, a.w, a.g, 1));
        assert_true(a.w[0] != 0 && isfinite(a.w[0]));
        ls_optimizer_destroy(o);
        free_arrays(&a);
    }
}

/* A gradient that is not finite is noticed where a norm is needed; the parameter is named, nothing
 * changes, and the step can be taken again. */
static void test_not_finite(void **state)
{
    (void)state;
    static const char *const names[] = {"sgd", "adamw", "lars", "lamb"};
    for (int n = 0; n < 4; n++) {
        ls_optim_config c = LS_OPTIM_CONFIG_INIT;
        c.name = names[n];
        c.clip = 1;
        arrays a = usual_arrays();
        ls_optimizer *o = make(&c, &a);
        new_gradient(&a);
        float *before = malloc(a.elements * sizeof *before);
        memcpy(before, a.w, a.elements * sizeof *before);
        const size_t at = a.info[3].offset + 5000;
        a.g[at] = n % 2 ? NAN : -INFINITY;
        assert_int_equal(ls_optimizer_step(o, a.w, a.g, 1), LS_ERR_INVALID);
        assert_non_null(strstr(ls_last_error(), "the gradient of parameter middle.weight is inf"));
        assert_same_bits(a.w, before, a.elements, "parameters");
        assert_int_equal(ls_optimizer_get_step(o), 0);
        a.g[at] = 1;
        OK(ls_optimizer_step(o, a.w, a.g, 1));
        assert_int_equal(ls_optimizer_step(o, a.w, a.g, 0), LS_ERR_INVALID);
        assert_int_equal(ls_optimizer_step(o, a.w, a.g, NAN), LS_ERR_INVALID);
        assert_int_equal(ls_optimizer_get_step(o), 1);
        ls_optimizer_destroy(o);
        free_arrays(&a);
        free(before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd),   cmocka_unit_test(test_adam),
        cmocka_unit_test(test_lars),  cmocka_unit_test(test_lamb),
        cmocka_unit_test(test_zeros), cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Forward and backward by the rules: fan-out, tying, views, accumulation, smaller batches, the
 * order in which gradients become ready; against numbers worked out by hand or plainer graphs. */
#include "ops.h"

#include <math.h>

static ls_param_info param(ls_graph *g, const char *name)
{
    ls_param_info info;
    for (int i = 0; i < ls_graph_param_count(g); i++) {
        OK(ls_graph_param(g, i, &info));
        if (!strcmp(info.name, name))
            return info;
    }
    fail_msg("no parameter named %s", name);
    return info;
}

static float *grad(ls_graph *g, const char *name)
{
    return ls_graph_grads(g) + param(g, name).offset;
}

static float *value(ls_graph *g, const char *name)
{
    return ls_graph_params(g) + param(g, name).offset;
}

/* y = w x + b of two samples, loss y²/2: dw = Σ y x, db = Σ y. */
static void test_by_hand(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        ls_graph *g = t_graph(2);
        ls_tensor *x = t_input(g, 1), *y = t_affine(g, x);
        OK(ls_graph_compile(g, late ? t_loss_late(g, y) : t_loss(g, y), y));
        float *data = ls_input_data(g, x);
        data[0] = 2;
        data[1] = -3;
        *value(g, "affine1.weight") = 5;
        *value(g, "affine1.bias") = 1; /* y = 11, -14 */
        assert_true(t_step(g) == (121.0 + 196.0) / 2);
        assert_true(*grad(g, "affine1.weight") == 11 * 2 + -14 * -3);
        assert_true(*grad(g, "affine1.bias") == 11 - 14);
        assert_true(data[0] == 2 && data[1] == -3);

        ls_run_config config = LS_RUN_CONFIG_INIT;
        ls_run_result result;
        OK(ls_graph_run(g, &config, &result));
        assert_true(result.loss == (121.0 + 196.0) / 2 && result.count == 2);
        assert_true(ls_output_data(g)[0] == 11 && ls_output_data(g)[1] == -14);
        assert_true(*grad(g, "affine1.bias") == -3); /* untouched */
        ls_graph_destroy(g);
    }
}

/* A value with several consumers, one of them twice, one of them a view, gets the sum. */
static void test_fan_out(void **state)
{
    (void)state;
    ls_graph *g = t_graph(1);
    ls_tensor *x = t_input(g, 2), *y = t_affine(g, x);
    ls_tensor *v = t_reshape(g, y, 3, (size_t[]){1, 2, 1});
    ls_tensor *z = t_add(g, t_mul(g, y, y), t_add(g, t_scale(g, v, 3), t_add(g, y, v)));
    OK(ls_graph_compile(g, t_loss(g, z), NULL));
    float *data = ls_input_data(g, x);
    data[0] = 1;
    data[1] = 2;
    float *w = value(g, "affine1.weight"), *b = value(g, "affine1.bias");
    w[0] = 3;
    w[1] = -1;
    b[0] = b[1] = 0; /* y = 3, -2; z = y² + 5 y = 24, -6; dz/dy = 2y + 5 = 11, 1 */
    assert_true(t_step(g) == (24.0 * 24 + 36) / 2);
    assert_true(grad(g, "affine1.bias")[0] == 24 * 11);
    assert_true(grad(g, "affine1.bias")[1] == -6 * 1);
    assert_true(grad(g, "affine1.weight")[1] == -6 * 2);
    ls_graph_destroy(g);
}

static void test_no_gradient(void **state)
{
    (void)state;
    setenv("LOCKSTEP_LOG", "error", 1);
    ls_graph *g = t_graph(1);
    ls_tensor *x = t_input(g, 1);
    ls_tensor *blocked = t_stop(g, t_affine(g, x)); /* affine1: no gradient comes through */
    t_affine(g, x);                                 /* affine2: nobody uses it */
    ls_tensor *y = t_mul(g, t_affine(g, x), blocked);
    OK(ls_graph_compile(g, t_loss(g, y), y));
    assert_int_equal(ls_graph_param_count(g), 6);
    assert_string_equal(g->params[0]->name, "affine3.weight");
    assert_string_equal(g->params[1]->name, "affine3.bias");
    assert_string_equal(g->params[2]->name, "affine1.weight");
    assert_string_equal(g->params[5]->name, "affine2.bias");
    t_fill_all(g, 1);
    for (size_t i = 0; i < ls_graph_param_elements(g); i++)
        ls_graph_grads(g)[i] = 9;
    t_forwards = t_backwards = 0;
    t_step(g);
    assert_int_equal(t_forwards, 5); /* not affine2 */
    assert_int_equal(t_backwards, 3);
    assert_true(*grad(g, "affine1.weight") == 0 && *grad(g, "affine2.bias") == 0);
    assert_true(*grad(g, "affine3.bias") != 0);
    ls_graph_destroy(g);
}

/* ---- order ---------------------------------------------------------------------------------- */

typedef struct seen {
    ls_graph *graph;
    int count;
    float at_ready[16];
} seen;

static void on_ready(void *arg, int index)
{
    seen *s = arg;
    assert_int_equal(index, s->count);
    ls_param_info info;
    OK(ls_graph_param(s->graph, index, &info));
    s->at_ready[s->count++] = ls_graph_grads(s->graph)[info.offset];
}

static void test_ready(void **state)
{
    (void)state;
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_input(g, 3);
    ls_tensor *a = t_affine(g, x), *w = t_w, *b = t_b;
    ls_tensor *c = t_affine(g, a);
    ls_tensor *d = t_affine_tied(g, c, w, b); /* completed by affine1, the last in backward */
    ls_tensor *e = t_affine_tied(g, t_dense(g, d, 3), w, t_b);
    t_affine(g, e);
    OK(ls_graph_compile(g, t_loss(g, e), NULL));
    const char *order[] = {"dense1.weight", "affine2.weight", "affine2.bias", "affine1.weight",
                           "affine1.bias",  "affine5.weight", "affine5.bias"};
    assert_int_equal(ls_graph_param_count(g), 7);
    size_t offset = 0;
    for (int i = 0; i < 7; i++) {
        ls_param_info info;
        OK(ls_graph_param(g, i, &info));
        assert_string_equal(info.name, order[i]);
        assert_int_equal(info.offset, offset);
        assert_int_equal(info.no_decay, strstr(info.name, "bias") != NULL);
        offset += 16;
    }
    assert_int_equal(ls_graph_param_elements(g), offset);
    assert_int_equal(ls_graph_trained(g), 9 + 6 * 3);
    ls_param_info info;
    assert_int_equal(ls_graph_param(g, 7, &info), LS_ERR_INVALID);
    assert_int_equal(ls_graph_param(g, -1, &info), LS_ERR_INVALID);
    t_fill_all(g, 5);
    seen s = {.graph = g};
    ls_graph_on_ready(g, on_ready, &s);
    for (int round = 0; round < 3; round++) {
        s.count = 0;
        t_step(g);
        assert_int_equal(s.count, 7);
        for (int i = 0; i < 7; i++) { /* complete when it was said to be */
            OK(ls_graph_param(g, i, &info));
            assert_true(s.at_ready[i] == ls_graph_grads(g)[info.offset]);
            assert_true(i >= 5 || s.at_ready[i] != 0);
        }
    }
    s.count = 0;
    OK(ls_graph_run(g, NULL, NULL)); /* forward only: not a word */
    assert_int_equal(s.count, 0);
    ls_graph_on_ready(g, NULL, NULL);
    t_step(g);
    ls_graph_destroy(g);
}

/* A graph for evaluation has the layout of the one for training. */
static void test_layout_without_loss(void **state)
{
    (void)state;
    ls_graph *graphs[2];
    for (int i = 0; i < 2; i++) {
        ls_graph *g = graphs[i] = t_graph(2);
        ls_tensor *x = t_affine(g, t_dense(g, t_affine(g, t_input(g, 3)), 5));
        OK(ls_graph_compile(g, i ? t_loss(g, x) : NULL, x));
    }
    assert_int_equal(ls_graph_param_elements(graphs[0]), ls_graph_param_elements(graphs[1]));
    for (int i = 0; i < 5; i++)
        assert_string_equal(graphs[0]->params[i]->name, graphs[1]->params[i]->name);
    assert_memory_equal(ls_graph_params(graphs[0]), ls_graph_params(graphs[1]),
                        ls_graph_param_elements(graphs[0]) * sizeof(float));
    assert_null(ls_graph_grads(graphs[0]));
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.backward = 1;
    assert_int_equal(ls_graph_run(graphs[0], &config, NULL), LS_ERR_INVALID);
    ls_graph_destroy(graphs[0]);
    ls_graph_destroy(graphs[1]);
}

/* ---- tying, accumulation, batches ----------------------------------------------------------- */

/* The gradient of a tied parameter is the sum of those of two separate ones. */
static void test_tying(void **state)
{
    (void)state;
    ls_graph *graphs[2];
    for (int tied = 0; tied < 2; tied++) {
        ls_graph *g = graphs[tied] = t_graph(3);
        ls_tensor *x = t_input(g, 4), *y = t_relu(g, t_affine(g, x));
        y = tied ? t_affine_tied(g, y, t_w, t_b) : t_affine(g, y);
        OK(ls_graph_compile(g, t_loss(g, y), NULL));
        t_fill(ls_input_data(g, x), 12, 1);
        t_fill(value(g, "affine1.weight"), 4, 2);
        t_fill(value(g, "affine1.bias"), 4, 3);
        if (!tied) {
            t_fill(value(g, "affine2.weight"), 4, 2);
            t_fill(value(g, "affine2.bias"), 4, 3);
        }
        t_step(g);
    }
    for (int i = 0; i < 4; i++) {
        assert_true(grad(graphs[1], "affine1.weight")[i] ==
                    grad(graphs[0], "affine2.weight")[i] + grad(graphs[0], "affine1.weight")[i]);
        assert_true(grad(graphs[1], "affine1.bias")[i] ==
                    grad(graphs[0], "affine2.bias")[i] + grad(graphs[0], "affine1.bias")[i]);
    }
    ls_graph_destroy(graphs[0]);
    ls_graph_destroy(graphs[1]);
}

static ls_graph *small(size_t batch, ls_tensor **x)
{
    ls_graph *g = t_graph(batch);
    *x = t_input(g, 4);
    ls_tensor *y = t_relu(g, t_affine(g, t_noise(g, t_dense(g, *x, 6))));
    y = t_add(g, t_square(g, y), t_affine_tied(g, y, t_w, t_b));
    OK(ls_graph_compile(g, t_loss(g, t_center(g, t_scale(g, y, 0.5f))), y));
    return g;
}

static void run(ls_graph *g, size_t batch, int accumulate, uint64_t first, double *loss)
{
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.batch = batch;
    config.backward = config.training = 1;
    config.accumulate = accumulate;
    config.first_position = first;
    ls_run_result result;
    OK(ls_graph_run(g, &config, &result));
    assert_true(result.count == (double)batch);
    *loss = result.loss;
}

/* Written, then added to: one rounding an addition, so that g + g is twice g. */
static void test_accumulate(void **state)
{
    (void)state;
    ls_tensor *x;
    ls_graph *g = small(3, &x);
    t_fill_all(g, 9);
    const size_t n = ls_graph_param_elements(g);
    double loss;
    run(g, 3, 0, 0, &loss);
    float *once = malloc(n * sizeof *once);
    memcpy(once, ls_graph_grads(g), n * sizeof *once);
    /* Tied parameters get two contributions, each rounded when it is added: equal to twice the
     * first within that. */
    run(g, 3, 1, 0, &loss);
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(ls_graph_grads(g)[i] - 2 * once[i]) <= 1e-6f * fabsf(once[i]) + 1e-7f);
    run(g, 3, 0, 0, &loss); /* and written again */
    assert_memory_equal(ls_graph_grads(g), once, n * sizeof *once);
    free(once);
    ls_graph_destroy(g);
}

/* A graph made for 5 samples gives the bits of one made for 2 when it runs 2, and goes back. */
static void test_smaller_batch(void **state)
{
    (void)state;
    ls_tensor *x5, *x2;
    ls_graph *five = small(5, &x5), *two = small(2, &x2);
    t_fill_all(five, 4);
    t_fill_all(two, 4);
    const size_t bytes = ls_graph_param_elements(five) * sizeof(float);
    float *whole = malloc(bytes);
    double loss, all, again;
    run(five, 5, 0, 10, &all);
    memcpy(whole, ls_graph_grads(five), bytes);
    for (int first = 0; first < 4; first += 3) {
        const float *samples = (const float *)ls_input_data(five, x5);
        float part[8];
        t_fill(part, 8, 40 + (uint32_t)first);
        memcpy(ls_input_data(two, x2), part, sizeof part);
        float saved[8];
        memcpy(saved, samples, sizeof saved);
        memcpy(ls_input_data(five, x5), part, sizeof part);
        run(two, 2, 0, (uint64_t)first, &loss);
        run(five, 2, 0, (uint64_t)first, &again);
        assert_true(loss == again);
        assert_memory_equal(ls_graph_grads(five), ls_graph_grads(two), bytes);
        memcpy(ls_input_data(five, x5), saved, sizeof saved);
    }
    run(five, 5, 0, 10, &again);
    assert_true(again == all);
    assert_memory_equal(ls_graph_grads(five), whole, bytes);
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.batch = 6;
    assert_int_equal(ls_graph_run(five, &config, NULL), LS_ERR_INVALID);
    free(whole);
    ls_graph_destroy(five);
    ls_graph_destroy(two);
}

static void test_bind(void **state)
{
    (void)state;
    ls_tensor *x;
    ls_graph *g = small(3, &x);
    t_fill_all(g, 2);
    const size_t n = ls_graph_param_elements(g);
    double loss, other;
    run(g, 3, 0, 0, &loss);
    float *own = ls_graph_params(g), *own_grads = ls_graph_grads(g);
    float *params = malloc(n * sizeof *params), *grads = calloc(n, sizeof *grads);
    memcpy(params, own, n * sizeof *params);
    ls_graph_bind(g, params, grads);
    assert_ptr_equal(ls_graph_params(g), params);
    assert_ptr_equal(ls_graph_grads(g), grads);
    own[0] = 1000; /* nobody looks there any more */
    run(g, 3, 0, 0, &other);
    assert_true(loss == other);
    assert_memory_equal(grads, own_grads, n * sizeof *grads);
    ls_graph_bind(g, params, NULL);
    assert_ptr_equal(ls_graph_grads(g), own_grads);
    ls_graph_bind(g, NULL, NULL);
    own[0] = params[0];
    memset(params, 0xff, n * sizeof *params);
    run(g, 3, 0, 0, &other);
    assert_true(loss == other);
    free(params);
    free(grads);
    ls_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_fan_out),
        cmocka_unit_test(test_no_gradient),
        cmocka_unit_test(test_ready),
        cmocka_unit_test(test_layout_without_loss),
        cmocka_unit_test(test_tying),
        cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_smaller_batch),
        cmocka_unit_test(test_bind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

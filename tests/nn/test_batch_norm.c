/* Batch norm's two sets of statistics: what training observes, and what evaluation uses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <lockstep/nn.h>

#define BATCH 5
#define C 3

typedef struct bench {
    ls_graph *graph;
    ls_tensor *x, *residual;
} bench;

static bench build(const char *device)
{
    bench b;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    const size_t dims[2] = {2, C};
    config.device = device;
    config.batch = BATCH;
    assert_int_equal(ls_graph_create(&config, &b.graph), LS_OK);
    b.x = ls_input(b.graph, "x", LS_F32, 2, dims);
    b.residual = ls_input(b.graph, "residual", LS_F32, 2, dims);
    ls_name(b.graph, "bn");
    ls_tensor *y = ls_batch_norm(b.graph, b.x, b.residual, 1);
    ls_tensor *loss = ls_mse(b.graph, y, b.residual);
    assert_int_equal(ls_graph_compile(b.graph, loss, y), LS_OK);
    return b;
}

static float value(size_t i)
{
    return (float)((i * 7919) % 13) * 0.25f - 1;
}

static void fill(bench *b)
{
    float *x = ls_input_data(b->graph, b->x), *residual = ls_input_data(b->graph, b->residual);
    for (size_t i = 0; i < BATCH * 2 * C; i++) {
        x[i] = value(i);
        residual[i] = value(i + 1000);
    }
}

static void run(bench *b, size_t batch, int training, int backward, ls_status expected)
{
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.batch = batch;
    config.training = training;
    config.backward = backward;
    fill(b);
    assert_int_equal(ls_graph_run(b->graph, &config, NULL), expected);
}

/* Mean and variance (with n - 1) of channel c over `batch` samples. */
static void statistics(size_t batch, size_t c, double *mean, double *variance)
{
    const double n = (double)batch * 2;
    double sum = 0, squares = 0;
    for (size_t i = c; i < batch * 2 * C; i += C)
        sum += (double)value(i);
    *mean = sum / n;
    for (size_t i = c; i < batch * 2 * C; i += C)
        squares += ((double)value(i) - *mean) * ((double)value(i) - *mean);
    *variance = squares / (n - 1);
}

static size_t offset_of(const bench *b, const char *name)
{
    ls_param_info info;
    for (int i = 0; ls_graph_buffer(b->graph, i, &info) == LS_OK; i++)
        if (!strcmp(info.name, name))
            return info.offset;
    fail_msg("there is no buffer '%s'", name);
    return 0;
}

static void check(const char *device)
{
    bench b = build(device);
    const size_t at_mean = offset_of(&b, "bn.running_mean"),
                 at_var = offset_of(&b, "bn.running_var");
    for (size_t batch = BATCH; batch >= 3; batch -= 2) { /* all samples, and fewer */
        run(&b, batch, 1, 1, LS_OK);
        for (size_t c = 0; c < C; c++) {
            double mean, variance;
            statistics(batch, c, &mean, &variance);
            assert_true(fabs((double)ls_graph_observed(b.graph)[at_mean + c] - mean) < 1e-6);
            assert_true(fabs((double)ls_graph_observed(b.graph)[at_var + c] - variance) < 1e-6);
        }
    }
    /* Training does not touch the running values, observing does: 0.75 of 0 and 1, 0.25 of new. */
    assert_true(ls_graph_buffers(b.graph)[at_mean] == 0 && ls_graph_buffers(b.graph)[at_var] == 1);
    ls_graph_observe(b.graph, ls_graph_observed(b.graph), 0.25f);
    run(&b, 0, 0, 0, LS_OK);
    for (size_t i = 0; i < BATCH * 2 * C; i++) {
        double mean, variance;
        statistics(3, i % C, &mean, &variance);
        mean *= 0.25;
        variance = 0.75 + 0.25 * variance;
        double y = ((double)value(i) - mean) / sqrt(variance + 1e-5) + (double)value(i + 1000);
        y = y > 0 ? y : 0;
        assert_true(fabs((double)ls_output_data(b.graph)[i] - y) < 1e-5);
    }
    run(&b, 0, 0, 1, LS_ERR_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "'bn'"));
    assert_non_null(strstr(ls_last_error(), "training"));
    ls_graph_destroy(b.graph);
}

static void test_statistics(void **state)
{
    (void)state;
    check("ref");
    check("cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_statistics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Every layer and loss (cases.c): gradients by central differences on both devices, `cpu` against
 * `ref`, the same run twice, accumulation, a sample alone and in company. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

#define STEP 0x1p-7f
#define PLACES 24 /* of each parameter */

/* The loss with element `at` of the parameters moved. */
static double moved(bench *b, size_t at, float by)
{
    float *params = ls_graph_params(b->graph);
    const float old = params[at];
    params[at] = old + by;
    const double loss = bench_run(b, 0, 0);
    params[at] = old;
    return loss;
}

/* Compare the gradient of one parameter with central differences. Returns how many places had a
 * kink (relu, maximum) between the two points and say nothing. */
static int check_param(bench *b, const layer_case *c, const ls_param_info *info,
                       const float *gradient, double middle, int *looked)
{
    const double tolerance = 2e-3 * (c->tolerance ? c->tolerance : 1);
    const size_t stride = info->count > PLACES ? info->count / PLACES : 1;
    int kinks = 0;
    for (size_t k = 0; k < info->count; k += stride) {
        const size_t at = info->offset + k;
        const double up = moved(b, at, STEP), down = moved(b, at, -STEP);
        const double expected = (up - down) / (2 * (double)STEP), got = (double)gradient[at];
        const double bend = fabs(up + down - 2 * middle) / (double)STEP;
        ++*looked;
        if (fabs(got - expected) <= tolerance * (1 + fabs(expected)))
            continue;
        /* A kink between the two points moves the difference by at most half of the bend. */
        if (fabs(got - expected) <= 0.55 * bend) {
            kinks++;
            continue;
        }
        fail_msg("case %s on %s (shared %d): gradient of %s[%zu] is %g, differences say %g",
                 c->name, b->config.device, b->config.shared, info->name, k, got, expected);
    }
    return kinks;
}

static void check_differences(const layer_case *c, const char *device, int shared)
{
    bench b;
    bench_open(&b, c, &(bench_config){.device = device, .shared = shared});
    bench_fill(&b, 11);
    float *gradient = malloc(ls_graph_param_elements(b.graph) * sizeof *gradient);
    assert_non_null(gradient);
    const double loss = bench_run(&b, 1, 0), middle = bench_run(&b, 0, 0);
    graph_gradient(b.graph, gradient);
    bench_run(&b, 1, 0);
    graph_gradient(b.graph, gradient);
    if (fabs(loss - middle) > 1e-6 * (1 + fabs(loss)))
        fail_msg("case %s on %s: loss %g with backward, %g without", c->name, device, loss, middle);
    int looked = 0, kinks = 0;
    for (int i = 0; i < ls_graph_param_count(b.graph); i++) {
        ls_param_info info;
        assert_int_equal(ls_graph_param(b.graph, i, &info), LS_OK);
        kinks += check_param(&b, c, &info, gradient, middle, &looked);
    }
    assert_true(looked > 0);
    if (5 * kinks > looked)
        fail_msg("case %s on %s: %d of %d places have kinks", c->name, device, kinks, looked);
    free(gradient);
    bench_close(&b);
}

static void check_all_differences(const char *device)
{
    for (int i = 0; i < layer_case_count; i++) {
        check_differences(&layer_cases[i], device, 0);
        if (!layer_cases[i].is_loss)
            check_differences(&layer_cases[i], device, 1);
    }
}

static void test_gradients_ref(void **state)
{
    (void)state;
    check_all_differences("ref");
}

static void test_gradients_cpu(void **state)
{
    (void)state;
    check_all_differences("cpu");
}

/* ---- devices, repetition -------------------------------------------------------------------- */

static void close_to(const layer_case *c, const char *what, size_t n, const float *got,
                     const float *expected, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)expected[i]) <=
              tolerance * (1 + fabs((double)expected[i]))))
            fail_msg("case %s: %s[%zu] is %g, not %g", c->name, what, i, (double)got[i],
                     (double)expected[i]);
}

static void test_cpu_equals_ref(void **state)
{
    (void)state;
    for (int i = 0; i < layer_case_count; i++) {
        const layer_case *c = &layer_cases[i];
        bench b[2];
        float *gradient[2];
        double loss[2];
        for (int d = 0; d < 2; d++) {
            bench_open(&b[d], c, &(bench_config){.device = d ? "cpu" : "ref"});
            bench_fill(&b[d], 5);
            loss[d] = bench_run(&b[d], 1, 0);
            gradient[d] = malloc(ls_graph_param_elements(b[d].graph) * sizeof(float));
            graph_gradient(b[d].graph, gradient[d]);
        }
        if (!(fabs(loss[0] - loss[1]) <= 1e-5 * (1 + fabs(loss[0]))))
            fail_msg("case %s: loss %.9g on cpu, %.9g on ref", c->name, loss[1], loss[0]);
        close_to(c, "gradient", ls_graph_param_elements(b[0].graph), gradient[1], gradient[0],
                 2e-5 * (c->tolerance ? c->tolerance : 1));
        for (int d = 0; d < 2; d++) {
            free(gradient[d]);
            bench_close(&b[d]);
        }
    }
}

static void check_repeats(const layer_case *c, const char *device)
{
    bench b;
    bench_open(&b, c, &(bench_config){.device = device});
    bench_fill(&b, 23);
    const size_t n = ls_graph_param_elements(b.graph);
    float *first = malloc(n * sizeof *first), *second = malloc(n * sizeof *second);
    const double one = bench_run(&b, 1, 0);
    graph_gradient(b.graph, first);
    const double two = bench_run(&b, 1, 0);
    graph_gradient(b.graph, second);
    if (one != two || memcmp(first, second, n * sizeof *first))
        fail_msg("case %s on %s: the second run has other bits", c->name, device);
    bench_run(&b, 1, 1);
    graph_gradient(b.graph, second);
    for (size_t i = 0; i < n; i++)
        first[i] *= 2;
    close_to(c, "accumulated gradient", n, second, first, 1e-5);
    free(first);
    free(second);
    bench_close(&b);
}

static void test_same_bits_and_accumulation(void **state)
{
    (void)state;
    for (int i = 0; i < layer_case_count; i++) {
        check_repeats(&layer_cases[i], "ref");
        check_repeats(&layer_cases[i], "cpu");
    }
}

/* ---- alone and in company ------------------------------------------------------------------- */

/* One sample of every input moved to the first place. */
static void only_sample(bench *b, size_t sample)
{
    for (int i = 0; ls_graph_input(b->graph, i); i++) {
        ls_tensor *input = ls_graph_input(b->graph, i);
        size_t each = 4;
        for (int d = 1; d < ls_tensor_ndim(input); d++)
            each *= ls_tensor_dims(input)[d];
        char *data = ls_input_data(b->graph, input);
        memmove(data, data + sample * each, each);
    }
}

static void check_alone(const layer_case *c, const char *device)
{
    bench b;
    bench_open(&b, c, &(bench_config){.device = device, .as_inputs = 1});
    bench_fill(&b, 31);
    size_t each = 1;
    for (int d = 1; d < ls_tensor_ndim(b.out); d++)
        each *= ls_tensor_dims(b.out)[d];
    const size_t batch = b.config.batch;
    float *together = malloc(batch * each * sizeof *together);
    bench_run(&b, 0, 0);
    memcpy(together, ls_output_data(b.graph), batch * each * sizeof *together);
    for (size_t s = 0; s < batch; s++) {
        ls_run_config run = LS_RUN_CONFIG_INIT;
        ls_run_result result;
        run.batch = 1;
        run.training = 1;
        run.step = 9;
        run.first_position = s;
        bench_fill_inputs(&b);
        only_sample(&b, s);
        assert_int_equal(ls_graph_run(b.graph, &run, &result), LS_OK);
        if (memcmp(ls_output_data(b.graph), together + s * each, each * sizeof *together))
            fail_msg("case %s on %s: sample %zu has other bits alone", c->name, device, s);
    }
    free(together);
    bench_close(&b);
}

static void test_a_sample_alone(void **state)
{
    (void)state;
    for (int i = 0; i < layer_case_count; i++) {
        if (layer_cases[i].is_loss || layer_cases[i].mixes_batch)
            continue;
        check_alone(&layer_cases[i], "ref");
        check_alone(&layer_cases[i], "cpu");
    }
}

/* ---- gradients of parameters alone ---------------------------------------------------------- */

/* Where inputs have no gradient, those of a layer's own parameters are the same bits. */
static void check_own(const layer_case *c, const char *device)
{
    bench with, without;
    bench_open(&with, c, &(bench_config){.device = device});
    bench_open(&without, c, &(bench_config){.device = device, .as_inputs = 1});
    bench_fill(&with, 41);
    bench_fill(&without, 41);
    /* The leaves' values as the others' inputs. */
    ls_param_info info, other;
    int leaf_number = 0;
    for (int i = 0; i < with.leaves; i++) {
        char name[32];
        snprintf(name, sizeof name, "leaf%d.value", ++leaf_number);
        for (int k = 0; ls_graph_param(with.graph, k, &info) == LS_OK; k++)
            if (!strcmp(info.name, name))
                memcpy(ls_input_data(without.graph, without.leaf[i]),
                       ls_graph_params(with.graph) + info.offset, info.count * sizeof(float));
    }
    for (int i = 0; i < with.ids; i++) {
        size_t count = 1;
        for (int d = 0; d < ls_tensor_ndim(with.id[i]); d++)
            count *= ls_tensor_dims(with.id[i])[d];
        bench_fill_inputs(&with);
        memcpy(ls_input_data(without.graph, without.id[i]), ls_input_data(with.graph, with.id[i]),
               count * sizeof(int32_t));
    }
    ls_run_config run = LS_RUN_CONFIG_INIT;
    run.training = run.backward = 1;
    run.step = 9;
    assert_int_equal(ls_graph_run(without.graph, &run, NULL), LS_OK);
    bench_run(&with, 1, 0);
    const size_t n = ls_graph_param_elements(with.graph);
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    graph_gradient(with.graph, a);
    graph_gradient(without.graph, b);
    for (int i = 0; ls_graph_param(without.graph, i, &info) == LS_OK; i++)
        for (int k = 0; ls_graph_param(with.graph, k, &other) == LS_OK; k++)
            if (!strcmp(info.name, other.name) &&
                memcmp(b + info.offset, a + other.offset, info.count * sizeof *a))
                fail_msg("case %s on %s: %s has another gradient when inputs need none", c->name,
                         device, info.name);
    free(a);
    free(b);
    bench_close(&with);
    bench_close(&without);
}

static void test_inputs_need_no_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < layer_case_count; i++) {
        check_own(&layer_cases[i], "ref");
        check_own(&layer_cases[i], "cpu");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_ref),  cmocka_unit_test(test_gradients_cpu),
        cmocka_unit_test(test_cpu_equals_ref), cmocka_unit_test(test_same_bits_and_accumulation),
        cmocka_unit_test(test_a_sample_alone), cmocka_unit_test(test_inputs_need_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Runs: a loss that is no number is named, errors leave the graph usable, repeated runs do not
 * allocate, time and operations are counted, and where memory can be shared it is. */
#include "ops.h"

#include <math.h>

#include "../count_allocations.h"

/* Everything at once: tying, views, kept bytes, buffers, sparse tables, a checkpoint. */
static ls_graph *everything(ls_tensor **ids)
{
    ls_graph *g = t_graph(4);
    *ids = ls_input(g, "ids", LS_I32, 1, (size_t[]){2});
    ls_tensor *x = t_affine(g, t_input(g, 8)), *w = t_w, *b = t_b;
    x = t_add(g, x, t_bag(g, *ids, 20, 8));
    x = t_add(g, x, t_bag_tied(g, *ids, t_table));
    ls_checkpoint_begin(g);
    x = t_center(g, t_noise(g, t_square(g, t_affine_tied(g, x, w, b))));
    ls_checkpoint_end(g);
    ls_tensor *sum;
    x = t_pair(g, x, t_scale(g, x, 0.5f), &sum);
    x = t_add(g, x, sum);
    x = t_reshape(g, x, 3, (size_t[]){4, 2, 4});
    x = t_reshape(g, t_relu(g, x), 2, (size_t[]){4, 8});
    x = t_dense(g, x, 5);
    OK(ls_graph_compile(g, t_loss(g, x), x));
    t_fill_all(g, 12);
    return g;
}

static void ready(void *arg, int index)
{
    *(int *)arg += index + 1;
}

static void test_no_allocation(void **state)
{
    (void)state;
    if (!UNDER_SANITIZER) { /* the counter counts; under a sanitizer nothing does */
        allocations = 0;
        counting = 1;
        void *volatile memory = malloc(10), *volatile aligned = aligned_alloc(64, 64);
        counting = 0;
        assert_int_equal(allocations, 2);
        free(memory);
        free(aligned);
    }

    ls_tensor *ids;
    ls_graph *g = everything(&ids);
    int sum = 0;
    ls_graph_on_ready(g, ready, &sum);
    for (int round = 0; round < 40; round++) {
        if (round == 8) { /* the first of each kind of run may still make room */
            allocations = 0;
            counting = 1;
        }
        if (round == 24)
            ls_graph_profile(g, 1);
        for (int i = 0; i < 8; i++)
            ((int32_t *)ls_input_data(g, ids))[i] = (i * 7 + round * 3) % 20;
        ls_run_config config = LS_RUN_CONFIG_INIT;
        config.batch = round % 3 == 1 ? 3 : 4;
        config.training = 1;
        config.backward = round % 4 != 3;
        config.accumulate = round % 4 == 2;
        config.step = (uint64_t)round;
        ls_run_result result;
        if (ls_graph_run(g, &config, &result) != LS_OK)
            break;
    }
    counting = 0;
    assert_int_equal(sum, 30 * (1 + 2 + 3 + 4));
    assert_int_equal(allocations, 0);
    ls_graph_destroy(g);
}

/* The same call twice gives the same bits. */
static void test_repeat(void **state)
{
    (void)state;
    ls_tensor *ids;
    ls_graph *g = everything(&ids);
    const size_t bytes = ls_graph_param_elements(g) * sizeof(float);
    float *grads = malloc(bytes);
    const double loss = t_step(g);
    memcpy(grads, ls_graph_grads(g), bytes);
    OK(ls_graph_run(g, NULL, NULL));
    assert_true(t_step(g) == loss);
    assert_memory_equal(ls_graph_grads(g), grads, bytes);
    free(grads);
    ls_graph_destroy(g);
}

/* Counters reach the operations: another step is another noise, a sample's noise goes with its
 * position and not with its place in the call. */
static void test_counters(void **state)
{
    (void)state;
    ls_graph *g = t_graph(4);
    ls_tensor *x = t_input(g, 8), *y = t_noise(g, x);
    OK(ls_graph_compile(g, t_loss(g, y), y));
    for (int i = 0; i < 32; i++)
        ((float *)ls_input_data(g, x))[i] = 1;
    float found[4][32];
    for (int i = 0; i < 4; i++) {
        ls_run_config config = LS_RUN_CONFIG_INIT;
        config.training = i < 3;
        config.step = i == 1 ? 11 : 10;
        config.first_position = i == 2 ? 102 : 100;
        OK(ls_graph_run(g, &config, NULL));
        memcpy(found[i], ls_output_data(g), sizeof found[i]);
    }
    assert_memory_not_equal(found[0], found[1], sizeof found[0]);
    assert_memory_not_equal(found[0], found[2], sizeof found[0]);
    assert_memory_equal(found[0] + 16, found[2], 16 * sizeof(float));
    assert_memory_equal(found[3], ls_input_data(g, x), sizeof found[3]);
    ls_graph_destroy(g);
}

/* ---- not a number --------------------------------------------------------------------------- */

static void assert_bad(ls_graph *g, const char *expected)
{
    static const float mark = 321;
    float *first = ls_graph_grads(g);
    for (int backward = 0; backward < 2; backward++) {
        *first = mark;
        ls_run_config config = LS_RUN_CONFIG_INIT;
        config.backward = config.training = backward;
        ls_run_result result = {4, 5};
        assert_int_equal(ls_graph_run(g, &config, &result), LS_ERR_INVALID);
        assert_non_null(strstr(ls_last_error(), "node 'loss1' (loss): the loss is "));
        if (!strstr(ls_last_error(), expected))
            fail_msg("'%s' is not in '%s'", expected, ls_last_error());
        assert_true(*first == mark && result.loss == 4); /* not computed, not set */
    }
}

static void test_not_a_number(void **state)
{
    (void)state;
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_input(g, 3);
    ls_tensor *y = t_affine(g, t_affine(g, x)); /* no relu: it would hide a NaN */
    y = t_scale(g, t_square(g, y), 4);
    ls_name(g, "fc");
    y = t_dense(g, y, 4);
    OK(ls_graph_compile(g, t_loss(g, y), y));
    float *input = ls_input_data(g, x), *params = ls_graph_params(g);
    const size_t n = ls_graph_param_elements(g);
    t_fill_all(g, 3);
    for (size_t i = 0; i < n; i++)
        params[i] = fabsf(params[i]) + 1;
    for (int i = 0; i < 6; i++)
        input[i] = 1;
    const double loss = t_step(g);
    input[4] = 1e20f; /* its square overflows */
    assert_bad(g,
               "the first such value is inf, element 4 of the output of node 'square1' (square)");
    input[4] = 1.5e38f; /* times a weight of at most 2, twice */
    params[g->params[1]->offset + 1] = 100;
    assert_string_equal(g->params[1]->name, "affine2.weight");
    assert_bad(g,
               "the first such value is inf, element 4 of the output of node 'affine2' (affine)");
    params[g->params[1]->offset + 1] = 1;
    input[4] = NAN;
    assert_bad(g, "the loss is nan; the first such value is nan, element 4 of input x");
    input[4] = 1;
    params[g->params[0]->offset + 5] = NAN;
    assert_bad(g, "element 5 of parameter fc.weight");
    t_fill_all(g, 3);
    for (size_t i = 0; i < n; i++)
        params[i] = fabsf(params[i]) + 1;
    for (int i = 0; i < 6; i++)
        input[i] = 1;
    assert_true(t_step(g) == loss); /* and all is well again */
    ls_graph_destroy(g);

    g = t_graph(2); /* of two outputs the second is looked at, too */
    ls_tensor *a = t_affine(g, t_input(g, 3)), *sum;
    t_pair(g, a, a, &sum);
    OK(ls_graph_compile(g, t_loss(g, sum), sum));
    t_fill_all(g, 3);
    ((float *)ls_input_data(g, g->inputs[0]))[1] = 0;
    params = ls_graph_params(g);
    params[g->params[1]->offset + 1] = 3e38f; /* the bias */
    assert_bad(g, "element 1 of the second output of node 'pair1' (pair)");
    ls_graph_destroy(g);
}

/* Finite values, infinite sum. */
static ls_status infinite_forward(const ls_op_call *call)
{
    ls_op_set_loss(call, INFINITY, 1);
    return LS_OK;
}

static ls_status one_element(const ls_op_call *call, ls_op_shape *shape)
{
    (void)call;
    shape->ndim = 0;
    return LS_OK;
}

static ls_status failing(const ls_op_call *call)
{
    if (!call->training)
        return infinite_forward(call);
    ls_graph_fail(call->graph, "sample %d is bad", 3);
    return LS_ERR_INVALID;
}

static void test_errors_in_a_run(void **state)
{
    (void)state;
    static const ls_op_kind op = {sizeof op, "odd", LS_OP_LOSS, one_element, failing, NULL};
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_affine(g, t_input(g, 3));
    ls_name(g, "end");
    ls_tensor *loss = ls_op_add(g, &op, NULL, 0, 1, &x, 0, NULL);
    OK(ls_graph_compile(g, loss, x));
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.training = 1;
    assert_int_equal(ls_graph_run(g, &config, NULL), LS_ERR_INVALID);
    assert_string_equal(ls_last_error(), "node 'end' (odd): sample 3 is bad");
    config.training = 0;
    assert_int_equal(ls_graph_run(g, &config, NULL), LS_ERR_INVALID);
    assert_non_null(
        strstr(ls_last_error(), "the loss is inf, and all values before it are finite"));
    config.size = 1;
    assert_int_equal(ls_graph_run(g, &config, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_graph_run(NULL, NULL, NULL), LS_ERR_INVALID);
    ls_graph_destroy(g);
}

/* ---- figures -------------------------------------------------------------------------------- */

static void test_profile(void **state)
{
    (void)state;
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_dense(g, t_dense(g, t_input(g, 3), 4), 5);
    OK(ls_graph_compile(g, t_loss(g, t_relu(g, t_add(g, x, x))), NULL));
    /* dense: 2 (3·4 + 4·5), add and relu 5 each, a sample; times 3 with backward */
    assert_true(ls_graph_flops(g) == 2.0 * 3 * (2 * (12 + 20) + 5 + 5));
    ls_profile_entry entries[8];
    assert_int_equal(ls_graph_profile_entries(g, entries, 8), 0);
    t_step(g);
    assert_int_equal(ls_graph_profile_entries(g, entries, 8), 0); /* it was off */
    ls_graph_profile(g, 1);
    for (int i = 0; i < 10; i++)
        t_step(g);
    ls_graph_profile(g, 0);
    t_step(g);
    assert_int_equal(ls_graph_profile_entries(g, entries, 8), 4);
    assert_int_equal(ls_graph_profile_entries(g, entries, 2), 2);
    double last = 1e9;
    int seen = 0;
    for (int i = 0; i < 4; i++) {
        const double spent = entries[i].forward_s + entries[i].backward_s;
        assert_true(spent > 0 && spent <= last);
        last = spent;
        if (!strcmp(entries[i].op, "dense")) {
            assert_int_equal(entries[i].calls, 10 * 4);
            assert_true(entries[i].flops == 10 * 2 * 3 * 2.0 * (12 + 20));
            seen++;
        }
    }
    assert_int_equal(seen, 1);
    ls_graph_profile(g, 1); /* from zero again */
    assert_int_equal(ls_graph_profile_entries(g, entries, 8), 0);
    ls_graph_destroy(g);
}

/* Who shares memory: told by the addresses in the calls. */
static void test_in_place(void **state)
{
    (void)state;
    ls_graph *g = t_graph(16);
    ls_tensor *x = t_input(g, 16);            /* never overwritten */
    ls_tensor *a = t_scale(g, x, 2);          /* so not in place */
    ls_tensor *b = t_scale(g, a, 3);          /* in place */
    ls_tensor *c = t_affine(g, b);            /* keeps b */
    ls_tensor *d = t_scale(g, b, 2);          /* so not in place */
    ls_tensor *e = t_relu(g, t_add(g, c, d)); /* add in place of c, relu of that, kept */
    ls_tensor *f = t_scale(g, e, 0.5f);       /* not in place, relu reads its output */
    ls_tensor *v = t_reshape(g, f, 1 + 1, (size_t[]){16, 16});
    OK(ls_graph_compile(g, t_loss(g, v), v));
#define CALL(tensor) (&g->nodes[(tensor)->node]->call)
    assert_ptr_equal(CALL(a)->in[0].data, ls_input_data(g, x));
    assert_ptr_not_equal(CALL(a)->out.data, ls_input_data(g, x));
    assert_ptr_equal(CALL(b)->out.data, CALL(a)->out.data);
    assert_ptr_not_equal(CALL(d)->out.data, CALL(b)->out.data);
    assert_ptr_equal(CALL(e)->in[0].data, CALL(c)->out.data);
    assert_ptr_equal(CALL(e)->out.data, CALL(c)->out.data);
    assert_ptr_not_equal(CALL(f)->out.data, CALL(e)->out.data);
    assert_ptr_equal(ls_output_data(g), CALL(f)->out.data);
    /* Gradients: of the loss in the place of its input, then passed on in place where possible. */
    assert_ptr_equal(CALL(f)->dout.data, CALL(f)->out.data);
    assert_ptr_equal(CALL(f)->din[0].data, CALL(f)->dout.data);
    assert_ptr_equal(CALL(e)->din[0].data, CALL(e)->dout.data);
    assert_ptr_equal(CALL(c)->dout.data, CALL(e)->din[0].data);
    assert_null(CALL(c)->din[0].data); /* only the input is before it */
    assert_null(CALL(d)->din[0].data);
    assert_null(CALL(d)->dout.data); /* no parameter is before it */
    ls_graph_memory memory;
    ls_graph_get_memory(g, &memory);
    const size_t one = 16 * 16 * sizeof(float);
    /* Input, b, relu's output; f with its gradients; the loss: d is dead before f. */
    assert_int_equal(memory.activations, 4 * one + 64);
    assert_int_equal(memory.kept_without_reuse, one + 7 * one + 4 * one + sizeof(float));
    assert_int_equal(memory.params, 2 * 16 * sizeof(float));
    assert_int_equal(memory.grads, memory.params);
    ls_graph_destroy(g);
}

/* Two outputs: one gradient in the place of the second's, and none for who is not wanted. */
static void test_two_outputs(void **state)
{
    (void)state;
    for (int used = 1; used <= 3; used++) { /* bit 0: the first, bit 1: the second */
        ls_graph *g = t_graph(16);
        ls_tensor *x = t_affine(g, t_input(g, 16)), *z = t_affine(g, x), *second;
        ls_tensor *first = t_pair(g, z, x, &second);
        assert_ptr_equal(ls_op_second(first), second);
        assert_null(ls_op_second(x));
        assert_null(ls_op_second(g->inputs[0]));
        assert_null(ls_op_second(NULL));
        ls_tensor *y = used == 3 ? t_mul(g, first, second) : used == 2 ? second : first;
        ls_tensor *noise = t_noise(g, y); /* its number counts both outputs */
        OK(ls_graph_compile(g, t_loss(g, noise), y));
        assert_int_equal(CALL(noise)->node, used == 3 ? 5 : 4);
        assert_int_equal(CALL(first)->dout.data != NULL, used & 1);
        assert_int_equal(CALL(first)->dsecond.data != NULL, used >> 1);
        if (used & 2)
            assert_ptr_equal(CALL(first)->din[1].data, CALL(first)->dsecond.data);
        assert_ptr_not_equal(CALL(first)->din[0].data, CALL(first)->din[1].data);
        assert_ptr_equal(ls_output_data(g), used == 3   ? CALL(y)->out.data
                                            : used == 2 ? CALL(first)->second.data
                                                        : CALL(first)->out.data);
        ls_graph_destroy(g);
    }
}

int main(void)
{
    setenv("LOCKSTEP_LOG", "error", 1); /* parameters that are not used */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_outputs),  cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_repeat),       cmocka_unit_test(test_counters),
        cmocka_unit_test(test_not_a_number), cmocka_unit_test(test_errors_in_a_run),
        cmocka_unit_test(test_profile),      cmocka_unit_test(test_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

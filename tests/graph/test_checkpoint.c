/* Recomputation: the same bits, less memory, and no more work than is needed. Random graphs are in
 * test_plan.c. */
#include "ops.h"

enum { BATCH = 4, WIDTH = 64, BLOCKS = 8 };

/* Blocks with a shortcut, like those of a transformer. mode 1: each is a segment. 2: two blocks a
 * segment. */
static ls_graph *deep(int mode)
{
    ls_graph *g = t_graph(BATCH);
    ls_tensor *x = t_affine(g, t_input(g, WIDTH));
    for (int i = 0; i < BLOCKS; i++) {
        if (mode == 1 || (mode == 2 && i % 2 == 0))
            ls_checkpoint_begin(g);
        ls_tensor *y = t_square(g, t_affine(g, x));
        y = t_noise(g, t_affine(g, t_relu(g, t_affine(g, y))));
        y = t_center(g, t_scale(g, y, 0.2f));
        x = t_add(g, x, y);
        if (mode == 1 || (mode == 2 && i % 2))
            ls_checkpoint_end(g);
    }
    x = t_affine(g, x);
    OK(ls_graph_compile(g, t_loss(g, x), x));
    t_fill_all(g, 3);
    return g;
}

static void test_same_bits(void **state)
{
    (void)state;
    ls_graph *plain = deep(0);
    const double loss = t_step(plain);
    const size_t bytes = ls_graph_param_elements(plain) * sizeof(float);
    ls_graph_memory before, after;
    ls_graph_get_memory(plain, &before);
    for (int mode = 1; mode <= 2; mode++) {
        ls_graph *g = deep(mode);
        for (int round = 0; round < 2; round++) {
            assert_true(t_step(g) == loss);
            assert_memory_equal(ls_graph_grads(g), ls_graph_grads(plain), bytes);
            assert_memory_equal(ls_graph_observed(g), ls_graph_observed(plain),
                                ls_graph_buffer_elements(g) * sizeof(float));
        }
        ls_graph_get_memory(g, &after);
        assert_true(after.activations < before.activations * (mode == 1 ? 45 : 60) / 100);
        assert_int_equal(after.kept_without_reuse, before.kept_without_reuse);
        ls_graph_destroy(g);
    }
    ls_graph_destroy(plain);
}

static int runs_again(const ls_graph *g, const char *node)
{
    int found = 0;
    for (int i = 0; i < g->step_count; i++)
        found += g->steps[i].kind == LSI_AGAIN && !strcmp(g->nodes[g->steps[i].node]->name, node);
    return found;
}

/* Only what backward reads is computed again, and what that is made of. */
static void test_what_runs_again(void **state)
{
    (void)state;
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_affine(g, t_input(g, 3)); /* outside */
    ls_checkpoint_begin(g);
    ls_tensor *a = t_scale(g, x, 2); /* scale1: read by affine2, again */
    ls_tensor *b = t_affine(g, a);   /* affine2: made into what relu1 reads, again */
    ls_tensor *c = t_relu(g, b);     /* relu1: reads its output, again */
    ls_tensor *d = t_scale(g, c, 3); /* scale2: read by affine3, but kept by affine4 outside */
    ls_tensor *e = t_affine(g, d);   /* affine3: nobody reads it in backward */
    ls_tensor *f = t_square(g, d);   /* square1: nor this, but it keeps bytes: again */
    ls_tensor *h = t_add(g, e, f);   /* add1: nor this */
    ls_checkpoint_end(g);
    OK(ls_graph_compile(g, t_loss(g, t_add(g, t_affine(g, d), h)), NULL));
    assert_int_equal(runs_again(g, "affine1"), 0);
    assert_int_equal(runs_again(g, "scale1"), 1);
    assert_int_equal(runs_again(g, "affine2"), 1);
    assert_int_equal(runs_again(g, "relu1"), 1);
    assert_int_equal(runs_again(g, "scale2"), 0);
    assert_int_equal(runs_again(g, "affine3"), 0);
    assert_int_equal(runs_again(g, "square1"), 1);
    assert_int_equal(runs_again(g, "add1"), 0);
    assert_int_equal(runs_again(g, "affine4"), 0);
    t_fill_all(g, 8);
    t_forwards = t_backwards = 0;
    t_step(g);
    assert_int_equal(t_forwards, 11 + 4);
    assert_int_equal(t_backwards, 11);
    t_forwards = 0;
    OK(ls_graph_run(g, NULL, NULL)); /* forward alone repeats nothing */
    assert_int_equal(t_forwards, 11);
    ls_graph_destroy(g);
}

/* What backward reads of a node's own is its second output: kept by somebody outside, or not. */
static void test_two_outputs(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        ls_graph *g = t_graph(2);
        ls_tensor *x = t_affine(g, t_input(g, 3)), *second;
        ls_checkpoint_begin(g);
        ls_tensor *first = t_pair(g, x, x, &second);
        ls_checkpoint_end(g);
        first = t_add(g, first, kept ? t_affine(g, second) : t_scale(g, second, 2));
        OK(ls_graph_compile(g, t_loss(g, first), NULL));
        assert_int_equal(runs_again(g, "pair1"), !kept);
        ls_graph_destroy(g);
    }
}

/* The loss may stand inside of a segment, and a segment may have no gradient at all. */
static void test_edges(void **state)
{
    (void)state;
    double loss[2];
    float gradient[2][3];
    for (int inside = 0; inside < 2; inside++) {
        ls_graph *g = t_graph(2);
        ls_checkpoint_begin(g);
        ls_tensor *x = t_scale(g, t_input(g, 3), 2);
        ls_checkpoint_end(g);
        if (inside)
            ls_checkpoint_begin(g);
        ls_tensor *y = t_relu(g, t_affine(g, t_square(g, x)));
        ls_tensor *l = t_loss(g, y);
        if (inside)
            ls_checkpoint_end(g);
        OK(ls_graph_compile(g, l, y));
        assert_int_equal(runs_again(g, "loss1"), 0);
        assert_int_equal(runs_again(g, "scale1"), 0);
        t_fill_all(g, 6);
        loss[inside] = t_step(g);
        memcpy(gradient[inside], ls_graph_grads(g), sizeof gradient[inside]);
        ls_graph_destroy(g);
    }
    assert_true(loss[0] == loss[1]);
    assert_memory_equal(gradient[0], gradient[1], sizeof gradient[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_what_runs_again),
        cmocka_unit_test(test_two_outputs),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What layers refuse, and what they say: the node, what was given, what would be right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <lockstep/nn.h>

#define BATCH 2
#define DIMS(...) ((size_t[]){__VA_ARGS__})

static ls_tensor *f32(ls_graph *g, int ndim, const size_t *dims)
{
    return ls_input(g, "x", LS_F32, ndim, dims);
}

static ls_tensor *i32(ls_graph *g, int ndim, const size_t *dims)
{
    return ls_input(g, "ids", LS_I32, ndim, dims);
}

static ls_tensor *linear_ids(ls_graph *g)
{
    return ls_linear(g, i32(g, 1, DIMS(3)), 4);
}
static ls_tensor *linear_flat(ls_graph *g)
{
    return ls_linear(g, f32(g, 0, NULL), 4);
}
static ls_tensor *linear_none(ls_graph *g)
{
    return ls_linear(g, f32(g, 1, DIMS(3)), 0);
}
static ls_tensor *linear_null(ls_graph *g)
{
    return ls_linear(g, NULL, 4);
}
static ls_tensor *linear_size(ls_graph *g)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.size = 8;
    return ls_linear_with(g, f32(g, 1, DIMS(3)), &config);
}
static ls_tensor *linear_act(ls_graph *g)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.out = 2;
    config.activation = (ls_activation)99;
    return ls_linear_with(g, f32(g, 1, DIMS(3)), &config);
}
static ls_tensor *linear_residual(ls_graph *g)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.out = 5;
    config.residual = f32(g, 1, DIMS(4));
    ls_name(g, "mine");
    return ls_linear_with(g, f32(g, 1, DIMS(3)), &config);
}
static ls_tensor *linear_tied(ls_graph *g)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.out = 7;
    ls_tensor *x = ls_embedding(g, i32(g, 1, DIMS(3)), 8, 5, 0, &config.tied);
    return ls_linear_with(g, x, &config);
}
static ls_tensor *linear_tied_sparse(ls_graph *g)
{
    ls_embedding_config table = LS_EMBEDDING_CONFIG_INIT;
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    table.vocab = config.out = 8;
    table.width = 5;
    table.sparse = 1;
    ls_name(g, "wte");
    ls_tensor *x = ls_embedding_with(g, i32(g, 1, DIMS(3)), &table, &config.tied);
    ls_name(g, "head");
    return ls_linear_with(g, x, &config);
}
static ls_tensor *conv_flat(ls_graph *g)
{
    ls_conv2d_config config = LS_CONV2D_CONFIG_INIT;
    config.out = config.kernel = 3;
    return ls_conv2d(g, f32(g, 2, DIMS(8, 8)), &config);
}
static ls_tensor *conv_groups(ls_graph *g)
{
    ls_conv2d_config config = LS_CONV2D_CONFIG_INIT;
    config.out = 4;
    config.kernel = 3;
    config.groups = 2;
    return ls_conv2d(g, f32(g, 3, DIMS(8, 8, 3)), &config);
}
static ls_tensor *conv_kernel(ls_graph *g)
{
    ls_conv2d_config config = LS_CONV2D_CONFIG_INIT;
    config.out = 4;
    config.kernel = 9;
    return ls_conv2d(g, f32(g, 3, DIMS(8, 8, 3)), &config);
}
static ls_tensor *pool(ls_graph *g)
{
    return ls_max_pool(g, f32(g, 3, DIMS(2, 4, 3)), 3, 1, 0);
}
static ls_tensor *pool_padding(ls_graph *g)
{
    return ls_avg_pool(g, f32(g, 3, DIMS(8, 8, 3)), 3, 1, 2);
}
static ls_tensor *bn_residual(ls_graph *g)
{
    return ls_batch_norm(g, f32(g, 1, DIMS(3)), f32(g, 1, DIMS(4)), 0);
}
static ls_tensor *norm_flat(ls_graph *g)
{
    return ls_layer_norm(g, f32(g, 0, NULL));
}
static ls_tensor *add_norm_shape(ls_graph *g)
{
    return ls_add_layer_norm(g, f32(g, 2, DIMS(2, 3)), f32(g, 2, DIMS(3, 2)), NULL);
}
static ls_tensor *add_norm_null(ls_graph *g)
{
    ls_tensor *sum, *y = ls_add_rms_norm(g, f32(g, 1, DIMS(3)), NULL, &sum);
    return sum ? sum : y;
}
static ls_tensor *attention_heads(ls_graph *g)
{
    return ls_attention(g, f32(g, 2, DIMS(5, 3 * 7)), 2, 1, 0);
}
static ls_tensor *attention_dropout(ls_graph *g)
{
    return ls_attention(g, f32(g, 2, DIMS(5, 3 * 8)), 2, 1, 1.5f);
}
static ls_tensor *dropout_all(ls_graph *g)
{
    return ls_dropout(g, f32(g, 1, DIMS(3)), 1);
}
static ls_tensor *add_shapes(ls_graph *g)
{
    return ls_add(g, f32(g, 1, DIMS(3)), f32(g, 1, DIMS(4)));
}
static ls_tensor *mul_null(ls_graph *g)
{
    return ls_mul(g, f32(g, 1, DIMS(3)), NULL);
}
static ls_tensor *concat_shapes(ls_graph *g)
{
    ls_tensor *x[2] = {f32(g, 2, DIMS(3, 4)), f32(g, 2, DIMS(2, 4))};
    return ls_concat(g, 2, x);
}
static ls_tensor *concat_nothing(ls_graph *g)
{
    return ls_concat(g, 0, NULL);
}
static ls_tensor *slice_outside(ls_graph *g)
{
    return ls_slice(g, f32(g, 1, DIMS(5)), 2, 6);
}
static ls_tensor *transpose_twice(ls_graph *g)
{
    return ls_transpose(g, f32(g, 2, DIMS(5, 6)), (int[]){1, 1});
}
static ls_tensor *reshape_count(ls_graph *g)
{
    return ls_reshape(g, f32(g, 2, DIMS(5, 6)), 1, DIMS(31));
}
static ls_tensor *interact_one(ls_graph *g)
{
    return ls_interact(g, f32(g, 2, DIMS(1, 6)));
}
static ls_tensor *interact_widths(ls_graph *g)
{
    ls_tensor *x[2] = {f32(g, 1, DIMS(6)), f32(g, 2, DIMS(3, 5))};
    return ls_interact_all(g, 2, x);
}
static ls_tensor *embedding_f32(ls_graph *g)
{
    return ls_embedding(g, f32(g, 1, DIMS(3)), 8, 5, 0, NULL);
}
static ls_tensor *embedding_size(ls_graph *g)
{
    const ls_embedding_config config = {.vocab = 8, .width = 5};
    return ls_embedding_with(g, i32(g, 1, DIMS(3)), &config, NULL);
}
static ls_tensor *bag_column(ls_graph *g)
{
    return ls_embedding_bag(g, i32(g, 1, DIMS(3)), 3, 8, 5, 1);
}
static ls_tensor *entropy_labels(ls_graph *g)
{
    return ls_cross_entropy(g, f32(g, 2, DIMS(5, 6)), i32(g, 1, DIMS(4)), 0, -100);
}
static ls_tensor *entropy_smoothing(ls_graph *g)
{
    return ls_cross_entropy(g, f32(g, 1, DIMS(6)), i32(g, 0, NULL), 2, -100);
}
static ls_tensor *mse_shapes(ls_graph *g)
{
    return ls_mse(g, f32(g, 1, DIMS(6)), f32(g, 2, DIMS(6, 1)));
}
static ls_tensor *bce_null(ls_graph *g)
{
    return ls_bce_with_logits(g, f32(g, 1, DIMS(6)), NULL);
}

static const struct {
    ls_tensor *(*build)(ls_graph *g);
    const char *node, *detail;
} cases[] = {
    {linear_ids, "'linear1'", "input of type i32 where it takes f32"},
    {linear_flat, "'linear1'", "1 dimensions with the batch, it takes at least 2"},
    {linear_none, "'linear1'", "no outputs"},
    {linear_null, "'linear1'", "its input is NULL"},
    {linear_size, "'linear1'", "configuration has size 8"},
    {linear_act, "'linear1'", "99 is no activation"},
    {linear_residual, "'mine' (linear)", "its residual is (2, 4), its result (2, 5)"},
    {linear_tied, "'linear1'", "the tied table is (8, 5), it must be (7, 5)"},
    {linear_tied_sparse, "'head' (linear)",
     "parameter 'wte.weight' is sparse, and this operation gives no such gradients"},
    {conv_flat, "'conv2d1'", "3 dimensions with the batch, it takes at least 4"},
    {conv_groups, "'conv2d1'", "2 groups do not divide both 3 channels and 4 outputs"},
    {conv_kernel, "'conv2d1'", "a kernel of 9 is larger than its input of 8 x 8"},
    {pool, "'max_pool1'", "windows of 3 every 1 with padding 0 do not fit"},
    {pool_padding, "'avg_pool1'", "padding of at most half"},
    {bn_residual, "'batch_norm1'", "its residual is (2, 4), its input (2, 3)"},
    {norm_flat, "'layer_norm1'", "it takes at least 2"},
    {add_norm_shape, "'add_layer_norm1'", "its residual is (2, 3, 2), its input (2, 2, 3)"},
    {add_norm_null, "'add_rms_norm1'", "input 1 is NULL"},
    {attention_heads, "'attention1'", "a width that 2 heads divide"},
    {attention_dropout, "'attention1'", "its dropout is 1.5, it must be in [0, 1)"},
    {dropout_all, "'dropout1'", "its probability is 1, it must be in [0, 1)"},
    {add_shapes, "'add1'", "its operands are (2, 3) and (2, 4)"},
    {mul_null, "'mul1'", "second operand is NULL"},
    {concat_shapes, "'concat1'", "input 0 is (2, 3, 4) and input 1 is (2, 2, 4)"},
    {concat_nothing, "'concat1'", "NULL"},
    {slice_outside, "'slice1'", "[2, 6) is no part of its last dimension [0, 5)"},
    {transpose_twice, "'transpose1'", "each of 0 to 1 once"},
    {reshape_count, "'reshape1'", "a sample of its input has 30 values, of its result 31"},
    {interact_one, "'interact1'", "at least 2 rows"},
    {interact_widths, "'interact1'", "input 1 is (2, 3, 5)"},
    {embedding_f32, "'embedding1'", "ids of type f32 where it takes i32"},
    {embedding_size, "'embedding1'", "start from the _INIT macro"},
    {bag_column, "'embedding_bag1'", "there is no column 3"},
    {entropy_labels, "'cross_entropy1'", "its logits are (2, 5, 6) and its labels (2, 4)"},
    {entropy_smoothing, "'cross_entropy1'", "its label smoothing is 2"},
    {mse_shapes, "'mse1'", "its input is (2, 6) and its targets are (2, 6, 1)"},
    {bce_null, "'bce1'", "input 1 is NULL"},
};

static void says(const char *part)
{
    if (!strstr(ls_last_error(), part))
        fail_msg("'%s' does not say '%s'", ls_last_error(), part);
}

static ls_graph *graph_of(const char *device)
{
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    ls_graph *graph;
    config.batch = BATCH;
    config.device = device;
    assert_int_equal(ls_graph_create(&config, &graph), LS_OK);
    return graph;
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_graph *graph = graph_of("ref");
        ls_tensor *y = cases[i].build(graph);
        if (y)
            fail_msg("accepted: %s", cases[i].detail);
        /* What follows is silent, and the first error is the one that is reported. */
        assert_null(ls_linear(graph, f32(graph, 1, DIMS(3)), 2));
        assert_int_equal(ls_graph_compile(graph, NULL, NULL), LS_ERR_INVALID);
        says(cases[i].node);
        says(cases[i].detail);
        ls_graph_destroy(graph);
    }
}

/* ---- values: ids and labels ----------------------------------------------------------------- */

typedef struct tagger {
    ls_graph *graph;
    ls_tensor *ids, *labels;
} tagger;

static tagger build(const char *device)
{
    tagger t = {.graph = graph_of(device)};
    t.ids = ls_input(t.graph, "ids", LS_I32, 1, DIMS(3));
    t.labels = ls_input(t.graph, "labels", LS_I32, 1, DIMS(3));
    ls_name(t.graph, "wte");
    ls_tensor *x = ls_embedding(t.graph, t.ids, 10, 4, 0, NULL);
    ls_name(t.graph, "head");
    x = ls_linear(t.graph, x, 6);
    ls_name(t.graph, "loss");
    ls_tensor *loss = ls_cross_entropy(t.graph, x, t.labels, 0, -100);
    assert_int_equal(ls_graph_compile(t.graph, loss, x), LS_OK);
    return t;
}

/* Run with one id and one label at some place. */
static ls_status run(tagger *t, size_t place, int32_t id, int32_t label, double *count)
{
    int32_t *ids = ls_input_data(t->graph, t->ids), *labels = ls_input_data(t->graph, t->labels);
    for (size_t i = 0; i < BATCH * 3; i++) {
        ids[i] = i == place ? id : (int32_t)i;
        labels[i] = i == place ? label : (int32_t)i;
    }
    ls_run_config config = LS_RUN_CONFIG_INIT;
    ls_run_result result = {0, 0};
    config.training = config.backward = 1;
    const ls_status status = ls_graph_run(t->graph, &config, &result);
    *count = result.count;
    return status;
}

static void check_values(const char *device)
{
    tagger t = build(device);
    double count;
    assert_int_equal(run(&t, 0, 9, 5, &count), LS_OK);
    assert_true(count == 6);
    assert_int_equal(run(&t, 4, 9, -100, &count), LS_OK);
    assert_true(count == 5);
    for (size_t place = 0; place < 6; place++) {
        static const int32_t bad[] = {10, -1, INT32_MAX, INT32_MIN, -100};
        for (size_t i = 0; i < 5; i++) {
            char text[64];
            assert_int_equal(run(&t, place, bad[i], 0, &count), LS_ERR_INVALID);
            says("'wte' (embedding)");
            snprintf(text, sizeof text, "id %d at place %zu is not in [0, 10)", bad[i], place);
            says(text);
        }
    }
    assert_int_equal(run(&t, 5, 0, 6, &count), LS_ERR_INVALID);
    says("'loss' (cross_entropy)");
    says("label 6 at place 5 is not in [0, 6), nor the ignored -100");
    assert_int_equal(run(&t, 0, 0, -1, &count), LS_ERR_INVALID);
    says("label -1 at place 0");
    assert_int_equal(run(&t, 0, 0, 0, &count), LS_OK); /* and the graph works on */
    ls_graph_destroy(t.graph);
}

static void test_ids_and_labels(void **state)
{
    (void)state;
    check_values("ref");
    check_values("cpu");
}

static void test_bag_ids(void **state)
{
    (void)state;
    ls_graph *graph = graph_of("cpu");
    ls_tensor *ids = ls_input(graph, "ids", LS_I32, 1, DIMS(2));
    ls_tensor *x[2];
    x[0] = ls_embedding_bag(graph, ids, 0, 5, 2, 1);
    x[1] = ls_embedding_bag(graph, ids, 1, 3, 2, 1);
    ls_tensor *y = ls_concat(graph, 2, x);
    assert_int_equal(ls_graph_compile(graph, NULL, y), LS_OK);
    assert_int_equal(ls_tensor_bound(ids), 3); /* what is right for every column */
    ls_run_config config = LS_RUN_CONFIG_INIT;
    memcpy(ls_input_data(graph, ids), (int32_t[]){4, 2, 0, 0}, 16);
    assert_int_equal(ls_graph_run(graph, &config, NULL), LS_OK);
    memcpy(ls_input_data(graph, ids), (int32_t[]){4, 2, 0, 3}, 16);
    assert_int_equal(ls_graph_run(graph, &config, NULL), LS_ERR_INVALID);
    says("'embedding_bag2'");
    says("id 3 at place 1 is not in [0, 3)");
    ls_graph_destroy(graph);
}

/* A name given to a layer that turned out to be nothing is not the next one's. */
static void test_names_do_not_wander(void **state)
{
    (void)state;
    ls_graph *graph = graph_of("ref");
    ls_tensor *x = f32(graph, 1, DIMS(3));
    ls_name(graph, "drop");
    assert_ptr_equal(ls_dropout(graph, x, 0), x);
    ls_name(graph, "act");
    assert_ptr_equal(ls_activate(graph, x, LS_NONE), x);
    assert_string_equal(ls_tensor_name(ls_linear(graph, x, 2)), "linear1");
    ls_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_ids_and_labels),
        cmocka_unit_test(test_bag_ids),
        cmocka_unit_test(test_names_do_not_wander),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

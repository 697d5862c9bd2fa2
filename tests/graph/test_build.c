/* Building: names, shapes, and one clear error that names the node. */
#include "ops.h"

static void assert_error(ls_graph *g, ls_tensor *loss, const char *expected)
{
    assert_int_equal(ls_graph_compile(g, loss, NULL), LS_ERR_INVALID);
    assert_string_equal(ls_last_error(), expected);
    assert_int_equal(ls_graph_compile(g, loss, NULL), LS_ERR_INVALID); /* and again */
    assert_string_equal(ls_last_error(), expected);
    ls_graph_destroy(g);
}

static void test_create(void **state)
{
    (void)state;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    ls_graph *g = NULL;
    assert_int_equal(ls_graph_create(NULL, &g), LS_ERR_INVALID);
    assert_int_equal(ls_graph_create(&config, &g), LS_ERR_INVALID); /* no batch */
    config.batch = 2;
    config.device = "abacus";
    assert_int_equal(ls_graph_create(&config, &g), LS_ERR_CONFIG);
    assert_non_null(strstr(ls_last_error(), "abacus"));
    config.size--;
    assert_int_equal(ls_graph_create(&config, &g), LS_ERR_INVALID);
    assert_null(g);
    config = (ls_graph_config)LS_GRAPH_CONFIG_INIT;
    config.batch = 2;
    config.device = "ref";
    OK(ls_graph_create(&config, &g));
    ls_graph_destroy(g);
    ls_graph_destroy(NULL);
}

static void test_names(void **state)
{
    (void)state;
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_input(g, 3);
    assert_string_equal(ls_tensor_name(x), "x");
    assert_string_equal(ls_tensor_name(t_affine(g, x)), "affine1");
    assert_string_equal(ls_tensor_name(t_w), "affine1.weight");
    ls_scope_push(g, "h.%d", 0);
    assert_string_equal(ls_tensor_name(t_affine(g, x)), "h.0.affine1");
    ls_scope_push(g, "mlp");
    t_affine(g, x);
    assert_string_equal(ls_tensor_name(t_b), "h.0.mlp.affine1.bias");
    assert_string_equal(ls_tensor_name(t_affine(g, x)), "h.0.mlp.affine2");
    ls_name(g, "c_%s", "fc");
    assert_string_equal(ls_tensor_name(t_affine(g, x)), "h.0.mlp.c_fc");
    assert_string_equal(ls_tensor_name(t_w), "h.0.mlp.c_fc.weight");
    assert_string_equal(ls_tensor_name(t_relu(g, x)), "h.0.mlp.relu1"); /* the name is used up */
    ls_name(g, "%s", "");
    assert_string_equal(ls_tensor_name(t_affine(g, x)), "h.0.mlp");
    assert_string_equal(ls_tensor_name(t_w), "h.0.mlp.weight");
    ls_scope_pop(g);
    assert_string_equal(ls_tensor_name(t_affine(g, x)), "h.0.affine2");
    ls_scope_pop(g);
    ls_name(g, "%s", "");
    assert_string_equal(ls_tensor_name(t_affine(g, x)), "");
    assert_string_equal(ls_tensor_name(t_w), "weight");
    assert_string_equal(ls_tensor_name(t_affine(g, x)), "affine2");
    for (int i = 3; i < 12; i++)
        t_affine(g, x);
    assert_string_equal(ls_tensor_name(t_w), "affine11.weight");
    ls_param_config config = LS_PARAM_CONFIG_INIT;
    assert_string_equal(ls_tensor_name(ls_param(g, "p", 1, (size_t[]){1}, &config)), "layer1.p");
    ls_graph_destroy(g);
}

static void test_shapes(void **state)
{
    (void)state;
    ls_graph *g = t_graph(2);
    ls_tensor *scalar = ls_input(g, "s", LS_I32, 0, NULL);
    assert_int_equal(ls_tensor_ndim(scalar), 1);
    assert_int_equal(ls_tensor_dims(scalar)[0], 2);
    ls_tensor *x = ls_input(g, "x", LS_F32, 3, (size_t[]){4, 5, 6});
    assert_int_equal(ls_tensor_ndim(x), 4);
    ls_tensor *y = t_reshape(g, x, 2, (size_t[]){2, 120});
    assert_int_equal(ls_tensor_dims(y)[1], 120);
    ls_tensor *z = t_dense(g, y, 7);
    assert_int_equal(ls_tensor_ndim(z), 2);
    assert_int_equal(ls_tensor_dims(z)[0], 2);
    assert_int_equal(ls_tensor_dims(z)[1], 7);
    assert_int_equal(ls_tensor_ndim(NULL), 0);
    assert_null(ls_tensor_dims(NULL));
    assert_null(ls_tensor_name(NULL));
    ls_graph_destroy(g);
}

/* The first error stays, with the name of its node; nothing can be added after it. */
static void test_first_error(void **state)
{
    (void)state;
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_input(g, 3), *y = t_input(g, 4);
    ls_scope_push(g, "h.0");
    ls_tensor *sum = t_add(g, x, y);
    assert_null(sum);
    assert_null(t_affine(g, sum));
    assert_null(t_affine(g, x));
    assert_null(ls_input(g, "z", LS_F32, 0, NULL));
    assert_null(ls_graph_fail(g, "later"));
    ls_scope_pop(g);
    ls_scope_pop(g);
    assert_error(g, NULL, "node 'h.0.add1' (add): 6 and 8 elements do not go together");

    g = t_graph(2);
    x = ls_input(g, "x", LS_F32, 2, (size_t[]){3, 4});
    ls_name(g, "fc");
    assert_null(t_dense(g, x, 5));
    assert_error(g, NULL, "node 'fc' (dense): its input has 3 dimensions, it takes 2");
}

static ls_status shape_of_config(const ls_op_call *call, ls_op_shape *shape)
{
    if (!call->config)
        return LS_ERR_INVALID; /* without a word */
    *shape = *(const ls_op_shape *)call->config;
    return LS_OK;
}

static ls_status nothing(const ls_op_call *call)
{
    (void)call;
    return LS_OK;
}

static void refuse(ls_op_kind op, const ls_op_shape *shape, const char *expected)
{
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_input(g, 3);
    op.size = sizeof op;
    op.name = "odd";
    op.infer = shape_of_config;
    op.forward = nothing;
    assert_null(ls_op_add(g, &op, shape, shape ? sizeof *shape : 0, 1, &x, 0, NULL));
    assert_error(g, NULL, expected);
}

static void test_bad_operations(void **state)
{
    (void)state;
    ls_op_kind seconds[2] = {{.flags = LS_OP_VIEW | LS_OP_SECOND},
                             {.flags = LS_OP_LOSS | LS_OP_SECOND}};
    for (int i = 0; i < 2; i++)
        refuse(seconds[i], &(ls_op_shape){.ndim = 1, .dims = {1}},
               "node 'odd1' (odd): a view or a loss has one output");
    ls_op_kind op = {0}, view = {.flags = LS_OP_VIEW}, loss = {.flags = LS_OP_LOSS};
    refuse(op, NULL, "node 'odd1' (odd): the shape of its output cannot be told");
    refuse(op, &(ls_op_shape){.ndim = 7},
           "node 'odd1' (odd): its output has 7 dimensions; at most 6 are possible");
    refuse(op, &(ls_op_shape){.ndim = 0},
           "node 'odd1' (odd): its output has no dimension: the first is the batch");
    refuse(op, &(ls_op_shape){.ndim = 1, .dims = {3}},
           "node 'odd1' (odd): dimension 0 of its output is 3, not the batch of 2");
    refuse(op, &(ls_op_shape){.ndim = 2, .dims = {2, 0}},
           "node 'odd1' (odd): dimension 1 of 'odd1' is 0");
    refuse(op, &(ls_op_shape){.ndim = 3, .dims = {2, SIZE_MAX / 2, 4}},
           "node 'odd1' (odd): 'odd1' has more elements than there can be");
    refuse(op, &(ls_op_shape){.ndim = 1, .dims = {2}, .dtype = LS_F64},
           "node 'odd1' (odd): its output is of type f64; f32 and i32 are possible");
    refuse(op, &(ls_op_shape){.ndim = 1, .dims = {2}, .flags = LS_OP_IN_PLACE, .in_place = 1},
           "node 'odd1' (odd): there is no input 1 that its output could take the place of");
    refuse(view, &(ls_op_shape){.ndim = 1, .dims = {2}},
           "node 'odd1' (odd): a view of 2 elements of what has 6");
    refuse(loss, &(ls_op_shape){.ndim = 1, .dims = {2}},
           "node 'odd1' (odd): a loss has one element, not 2");
    ls_graph *g = t_graph(1);
    assert_null(ls_op_add(g, &op, NULL, 0, 0, NULL, 0, NULL));
    assert_error(g, NULL, "graph: an operation needs its size, a name, infer and forward");
}

static void test_bad_operands(void **state)
{
    (void)state;
    ls_graph *other = t_graph(2), *g = t_graph(2);
    assert_null(t_relu(g, t_input(other, 3)));
    assert_error(g, NULL, "node 'relu1' (relu): input 0 belongs to another graph");
    ls_graph_destroy(other);

    g = t_graph(2);
    assert_null(t_add(g, t_input(g, 3), NULL));
    assert_error(g, NULL, "node 'add1' (add): input 1 is NULL");

    g = t_graph(2);
    ls_tensor *x = t_affine(g, t_input(g, 3));
    assert_null(t_relu(g, t_w));
    assert_error(g, NULL,
                 "node 'relu1' (relu): input 0 is a parameter: it belongs among the parameters of "
                 "the node");

    g = t_graph(2);
    x = t_affine(g, t_input(g, 3));
    assert_null(t_affine_tied(g, x, t_w, x));
    assert_error(g, NULL, "node 'affine2' (affine): parameter 1 is no parameter");

    g = t_graph(2);
    x = t_loss(g, t_input(g, 3));
    assert_null(t_relu(g, x));
    assert_error(g, NULL,
                 "node 'relu1' (relu): input 0 is a loss, which nothing can be computed from");

    g = t_graph(2);
    ls_tensor *ids = ls_input(g, "ids", LS_I32, 1, (size_t[]){2});
    x = t_bag(g, ids, 5, 3);
    assert_null(t_affine_tied(g, x, t_table, t_table));
    assert_error(
        g, NULL,
        "node 'affine1' (affine): parameter 1 is sparse: only a node's first parameter can "
        "be");

    g = t_graph(2);
    ids = ls_input(g, "ids", LS_I32, 1, (size_t[]){2});
    x = t_affine(g, t_bag(g, ids, 5, 3));
    assert_null(t_affine_tied(g, x, t_table, t_b));
    assert_error(g, NULL,
                 "node 'affine2' (affine): parameter 'bag1.weight' is sparse, and this operation "
                 "gives no such gradients");
}

static void test_bad_building(void **state)
{
    (void)state;
    ls_param_config config = LS_PARAM_CONFIG_INIT;
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_input(g, 3);
    ls_name(g, "fc");
    t_affine(g, x);
    ls_name(g, "fc");
    assert_null(t_affine(g, x));
    assert_error(g, NULL, "node 'fc' (affine): there is a parameter named 'fc.weight' already");

    g = t_graph(2);
    assert_null(ls_input(g, "x", LS_F64, 0, NULL));
    assert_error(g, NULL, "graph: input 'x' is of type f64; f32 and i32 are possible");
    g = t_graph(2);
    assert_null(ls_input(g, "x", LS_F32, 6, (size_t[]){1, 1, 1, 1, 1, 1}));
    assert_error(g, NULL, "graph: input 'x' has 6 dimensions; 0 to 5 are possible");
    g = t_graph(2);
    t_relu(g, t_input(g, 1));
    assert_null(t_input(g, 0));
    assert_error(g, NULL, "graph, after node 'relu1' (relu): dimension 1 of 'x' is 0");
    g = t_graph(2);
    assert_null(ls_param(g, "w", 7, (size_t[]){1, 1, 1, 1, 1, 1, 1}, &config));
    assert_error(g, NULL,
                 "node 'layer1' (layer): parameter 'w' has 7 dimensions; 1 to 6 are possible");
    g = t_graph(2);
    config.size = 3;
    assert_null(ls_param(g, "w", 1, (size_t[]){1}, &config));
    assert_int_equal(ls_graph_compile(g, NULL, NULL), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "the configuration of 'w' has size 3, not"));
    ls_graph_destroy(g);
    g = t_graph(2);
    ls_scope_pop(g);
    assert_error(g, NULL, "graph: ls_scope_pop without a scope");
    g = t_graph(2);
    for (int i = 0; i < 40; i++)
        ls_scope_push(g, "s");
    assert_int_equal(ls_graph_compile(g, NULL, NULL), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "scopes are too deep"));
    ls_graph_destroy(g);
    g = t_graph(2);
    ls_checkpoint_begin(g);
    ls_checkpoint_begin(g);
    assert_error(g, NULL, "graph: ls_checkpoint_begin inside of a checkpoint: they do not nest");
    g = t_graph(2);
    ls_checkpoint_end(g);
    assert_error(g, NULL, "graph: ls_checkpoint_end without ls_checkpoint_begin");
}

static void test_bad_compile(void **state)
{
    (void)state;
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_affine(g, t_input(g, 3));
    assert_int_equal(ls_graph_compile(NULL, NULL, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_graph_compile(g, NULL, NULL), LS_ERR_INVALID);
    assert_int_equal(ls_graph_compile(g, x, NULL), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "'affine1' is not a loss"));
    assert_int_equal(ls_graph_compile(g, NULL, t_w), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "'affine1.weight' cannot be an output"));
    ls_checkpoint_begin(g);
    assert_int_equal(ls_graph_compile(g, NULL, x), LS_ERR_INVALID);
    ls_checkpoint_end(g);
    assert_null(ls_input_data(g, x));
    assert_null(ls_graph_params(g));
    assert_int_equal(ls_graph_run(g, NULL, NULL), LS_ERR_INVALID);
    OK(ls_graph_compile(g, NULL, x)); /* a wrong argument spoils nothing */
    assert_int_equal(ls_graph_compile(g, NULL, x), LS_ERR_INVALID);
    assert_null(t_relu(g, x));
    assert_non_null(strstr(ls_last_error(), "compiled"));
    OK(ls_graph_run(g, NULL, NULL));
    ls_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),         cmocka_unit_test(test_names),
        cmocka_unit_test(test_shapes),         cmocka_unit_test(test_first_error),
        cmocka_unit_test(test_bad_operations), cmocka_unit_test(test_bad_operands),
        cmocka_unit_test(test_bad_building),   cmocka_unit_test(test_bad_compile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Every layer and loss, in shapes that are odd: 1, primes, around the width of a vector. */
#include <stdio.h>

#include "harness.h"

#define DIMS(...) ((size_t[]){__VA_ARGS__})

static ls_tensor *dense(bench *b, int ndim, const size_t *dims, size_t out,
                        ls_activation activation, int residual, int no_bias)
{
    size_t result[LS_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        result[i] = dims[i];
    result[ndim - 1] = out;
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    ls_tensor *x = leaf(b, ndim, dims);
    config.out = out;
    config.activation = activation;
    config.no_bias = no_bias;
    config.residual = residual ? leaf(b, ndim, result) : NULL;
    return ls_linear_with(b->graph, x, &config);
}

static ls_tensor *linear(bench *b)
{
    return dense(b, 1, DIMS(7), 5, LS_NONE, 0, 0);
}
static ls_tensor *linear_wide(bench *b)
{
    return dense(b, 2, DIMS(3, 17), 33, LS_NONE, 0, 1);
}
static ls_tensor *linear_one(bench *b)
{
    return dense(b, 1, DIMS(1), 1, LS_NONE, 0, 0);
}
static ls_tensor *linear_relu(bench *b)
{
    return dense(b, 2, DIMS(2, 5), 11, LS_RELU, 0, 0);
}
static ls_tensor *linear_gelu(bench *b)
{
    return dense(b, 2, DIMS(3, 5), 7, LS_GELU, 0, 0);
}
static ls_tensor *linear_gelu_erf(bench *b)
{
    return dense(b, 1, DIMS(5), 7, LS_GELU_ERF, 0, 0);
}
static ls_tensor *linear_silu(bench *b)
{
    return dense(b, 1, DIMS(5), 7, LS_SILU, 0, 1);
}
static ls_tensor *linear_tanh(bench *b)
{
    return dense(b, 1, DIMS(5), 17, LS_TANH, 0, 0);
}
static ls_tensor *linear_sigmoid(bench *b)
{
    return dense(b, 1, DIMS(5), 7, LS_SIGMOID, 0, 0);
}
static ls_tensor *linear_residual(bench *b)
{
    return dense(b, 2, DIMS(3, 5), 13, LS_NONE, 1, 0);
}
static ls_tensor *linear_residual_relu(bench *b)
{
    return dense(b, 2, DIMS(2, 5), 7, LS_RELU, 1, 0);
}
static ls_tensor *linear_residual_gelu(bench *b)
{
    return dense(b, 1, DIMS(5), 7, LS_GELU, 1, 1);
}
/* The residual is the input itself. */
static ls_tensor *linear_self(bench *b)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    ls_tensor *x = leaf(b, 1, DIMS(6));
    config.out = 6;
    config.residual = x;
    return ls_linear_with(b->graph, x, &config);
}
/* A table that is also the last layer: one parameter, two gradients. */
static ls_tensor *linear_tied(bench *b)
{
    ls_tensor *table = NULL;
    ls_tensor *x = ls_embedding(b->graph, leaf_ids(b, 1, DIMS(3), 0, 11), 11, 5, 0.5f, &table);
    x = ls_activate(b->graph, x, LS_TANH);
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    config.out = 11;
    config.tied = table;
    return table ? ls_linear_with(b->graph, x, &config) : NULL;
}

static ls_tensor *convolve(bench *b, const size_t *dims, ls_conv2d_config config)
{
    config.size = sizeof config;
    return ls_conv2d(b->graph, leaf(b, 3, dims), &config);
}
static ls_tensor *conv(bench *b)
{
    return convolve(b, DIMS(5, 4, 3), (ls_conv2d_config){.out = 7, .kernel = 3, .padding = 1});
}
static ls_tensor *conv_stride(bench *b)
{
    return convolve(
        b, DIMS(7, 6, 2),
        (ls_conv2d_config){.out = 5, .kernel = 3, .stride = 2, .padding = 1, .bias = 1});
}
static ls_tensor *conv_groups(bench *b)
{
    return convolve(b, DIMS(5, 3, 6),
                    (ls_conv2d_config){.out = 9, .kernel = 2, .groups = 3, .bias = 1});
}
static ls_tensor *conv_one(bench *b)
{
    return convolve(b, DIMS(4, 5, 3), (ls_conv2d_config){.out = 17, .kernel = 1, .stride = 2});
}
static ls_tensor *conv_large(bench *b)
{
    return convolve(b, DIMS(9, 9, 3),
                    (ls_conv2d_config){.out = 4, .kernel = 7, .stride = 2, .padding = 3});
}

/* 3 x 3 with stride 1 and channels in sixteens, which `cpu` makes of fewer products: images of odd
 * and even sides, with less border than the kernel has, and smaller than two tiles. */
static ls_tensor *conv_few(bench *b)
{
    return convolve(b, DIMS(5, 7, 16), (ls_conv2d_config){.out = 16, .kernel = 3, .padding = 1});
}
static ls_tensor *conv_few_bare(bench *b)
{
    return convolve(b, DIMS(5, 6, 16), (ls_conv2d_config){.out = 32, .kernel = 3, .bias = 1});
}
static ls_tensor *conv_few_wide(bench *b)
{
    return convolve(b, DIMS(4, 3, 32),
                    (ls_conv2d_config){.out = 16, .kernel = 3, .padding = 2, .bias = 1});
}
static ls_tensor *conv_few_small(bench *b)
{
    return convolve(b, DIMS(1, 2, 16), (ls_conv2d_config){.out = 16, .kernel = 3, .padding = 1});
}

static ls_tensor *max_pool(bench *b)
{
    return ls_max_pool(b->graph, leaf(b, 3, DIMS(7, 5, 3)), 3, 2, 1);
}
static ls_tensor *max_pool_apart(bench *b)
{
    return ls_max_pool(b->graph, leaf(b, 3, DIMS(4, 6, 17)), 2, 0, 0);
}
static ls_tensor *avg_pool(bench *b)
{
    return ls_avg_pool(b->graph, leaf(b, 3, DIMS(5, 7, 3)), 3, 2, 1);
}
static ls_tensor *global_pool(bench *b)
{
    return ls_global_pool(b->graph, leaf(b, 3, DIMS(3, 5, 7)));
}

static ls_tensor *batch_norm(bench *b)
{
    return ls_batch_norm(b->graph, leaf(b, 1, DIMS(7)), NULL, 0);
}
static ls_tensor *batch_norm_relu(bench *b)
{
    return ls_batch_norm(b->graph, leaf(b, 3, DIMS(3, 2, 17)), NULL, 1);
}
static ls_tensor *batch_norm_residual(bench *b)
{
    ls_tensor *x = leaf(b, 3, DIMS(2, 3, 5));
    return ls_batch_norm(b->graph, x, leaf(b, 3, DIMS(2, 3, 5)), 0);
}
static ls_tensor *batch_norm_residual_relu(bench *b)
{
    ls_tensor *x = leaf(b, 3, DIMS(2, 3, 5));
    return ls_batch_norm(b->graph, x, leaf(b, 3, DIMS(2, 3, 5)), 1);
}
static ls_tensor *layer_norm(bench *b)
{
    return ls_layer_norm(b->graph, leaf(b, 2, DIMS(3, 19)));
}
static ls_tensor *rms_norm(bench *b)
{
    return ls_rms_norm(b->graph, leaf(b, 1, DIMS(13)));
}

/* The norm of a sum: read alone, with the sum, the sum alone, of a value and itself, and with a
 * gradient that one operand has already. */
static ls_tensor *add_layer_norm(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(3, 19));
    return ls_add_layer_norm(b->graph, x, leaf(b, 2, DIMS(3, 19)), NULL);
}
static ls_tensor *add_layer_norm_both(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(3, 7)), *r = leaf(b, 2, DIMS(3, 7)), *sum;
    ls_tensor *y = ls_add_layer_norm(b->graph, x, r, &sum);
    return ls_mul(b->graph, y, sum);
}
static ls_tensor *add_layer_norm_sum(bench *b)
{
    ls_tensor *x = leaf(b, 1, DIMS(17)), *r = leaf(b, 1, DIMS(17)), *sum;
    ls_add_layer_norm(b->graph, x, r, &sum);
    return ls_activate(b->graph, sum, LS_TANH);
}
static ls_tensor *add_layer_norm_self(bench *b)
{
    ls_tensor *x = leaf(b, 1, DIMS(5));
    return ls_add_layer_norm(b->graph, x, x, NULL);
}
static ls_tensor *add_layer_norm_mixed(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(3, 5)), *r = leaf(b, 2, DIMS(3, 5));
    return ls_mul(b->graph, ls_add_layer_norm(b->graph, x, r, NULL), x);
}
static ls_tensor *add_rms_norm(bench *b)
{
    ls_tensor *x = leaf(b, 1, DIMS(13));
    return ls_add_rms_norm(b->graph, x, leaf(b, 1, DIMS(13)), NULL);
}
static ls_tensor *add_rms_norm_both(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(2, 16)), *r = leaf(b, 2, DIMS(2, 16)), *sum;
    ls_tensor *y = ls_add_rms_norm(b->graph, x, r, &sum);
    return ls_add(b->graph, sum, ls_activate(b->graph, y, LS_TANH));
}

static ls_tensor *embedding(bench *b)
{
    return ls_embedding(b->graph, leaf_ids(b, 1, DIMS(5), 0, 7), 7, 3, 0, NULL);
}
static ls_tensor *sparse_table(bench *b, ls_tensor *ids, size_t vocab, size_t width)
{
    ls_embedding_config config = LS_EMBEDDING_CONFIG_INIT;
    config.vocab = vocab;
    config.width = width;
    config.sparse = 1;
    return ls_embedding_with(b->graph, ids, &config, NULL);
}
static ls_tensor *embedding_sparse(bench *b)
{
    return sparse_table(b, leaf_ids(b, 1, DIMS(5), 0, 7), 7, 3);
}
/* One id a sample; ids through a view; a table of which little is used. */
static ls_tensor *embedding_sparse_one(bench *b)
{
    ls_tensor *ids = ls_reshape(b->graph, leaf_ids(b, 1, DIMS(1), 0, 70), 0, NULL);
    return sparse_table(b, ids, 70, 17);
}
static ls_tensor *positions(bench *b)
{
    return ls_positions(b->graph, leaf(b, 2, DIMS(5, 3)), 1);
}
static ls_tensor *bag(bench *b)
{
    return ls_embedding_bag(b->graph, leaf_ids(b, 1, DIMS(4), 0, 6), -1, 6, 5, 1);
}
/* Two columns of one input; tables of their own. */
static ls_tensor *bag_columns(bench *b)
{
    ls_tensor *ids = leaf_ids(b, 1, DIMS(3), 0, 5), *x[2];
    x[0] = ls_embedding_bag(b->graph, ids, 2, 5, 3, 1);
    x[1] = ls_embedding_bag(b->graph, ids, 0, 9, 4, 1);
    return ls_concat(b->graph, 2, x);
}

static ls_tensor *attention(bench *b)
{
    return ls_attention(b->graph, leaf(b, 2, DIMS(7, 3 * 6)), 2, 1, 0);
}
static ls_tensor *attention_full(bench *b)
{
    return ls_attention(b->graph, leaf(b, 2, DIMS(5, 3 * 5)), 1, 0, 0);
}
static ls_tensor *attention_dropout(bench *b)
{
    return ls_attention(b->graph, leaf(b, 2, DIMS(5, 3 * 6)), 3, 1, 0.3f);
}
static ls_tensor *attention_one(bench *b)
{
    return ls_attention(b->graph, leaf(b, 2, DIMS(1, 3)), 1, 1, 0);
}

#define ACTIVATION(name, which)                                                                    \
    static ls_tensor *name(bench *b)                                                               \
    {                                                                                              \
        return ls_activate(b->graph, leaf(b, 2, DIMS(3, 11)), which);                              \
    }
ACTIVATION(act_relu, LS_RELU)
ACTIVATION(act_gelu, LS_GELU)
ACTIVATION(act_gelu_erf, LS_GELU_ERF)
ACTIVATION(act_silu, LS_SILU)
ACTIVATION(act_tanh, LS_TANH)
ACTIVATION(act_sigmoid, LS_SIGMOID)

static ls_tensor *dropout(bench *b)
{
    return ls_dropout(b->graph, leaf(b, 2, DIMS(3, 7)), 0.4f);
}
static ls_tensor *softmax(bench *b)
{
    return ls_softmax(b->graph, leaf(b, 2, DIMS(3, 19)));
}

static ls_tensor *add(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(3, 5));
    return ls_add(b->graph, x, leaf(b, 2, DIMS(3, 5)));
}
static ls_tensor *add_self(bench *b)
{
    ls_tensor *x = leaf(b, 1, DIMS(5));
    return ls_add(b->graph, x, x);
}
static ls_tensor *add_param(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(3, 5));
    return ls_add(b->graph, x, leaf_param(b, 1, DIMS(5)));
}
static ls_tensor *mul(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(3, 5));
    return ls_mul(b->graph, x, leaf(b, 2, DIMS(3, 5)));
}
static ls_tensor *mul_self(bench *b)
{
    ls_tensor *x = leaf(b, 1, DIMS(5));
    return ls_mul(b->graph, x, x);
}
static ls_tensor *mul_param(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(4, 5));
    return ls_mul(b->graph, x, leaf_param(b, 2, DIMS(4, 5)));
}
static ls_tensor *mul_last(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(4, 5));
    return ls_mul(b->graph, x, leaf_param(b, 1, DIMS(5)));
}

static ls_tensor *concat(bench *b)
{
    ls_tensor *x[4] = {leaf(b, 2, DIMS(3, 2)), leaf(b, 2, DIMS(3, 1)), leaf(b, 2, DIMS(3, 17))};
    x[3] = x[0];
    return ls_concat(b->graph, 4, x);
}
static ls_tensor *slice(bench *b)
{
    return ls_slice(b->graph, leaf(b, 2, DIMS(3, 19)), 1, 18);
}
/* The parts of one tensor: gradients of slices are added. */
static ls_tensor *slices(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(3, 7));
    return ls_mul(b->graph, ls_slice(b->graph, x, 0, 4), ls_slice(b->graph, x, 3, 7));
}
static ls_tensor *transpose(bench *b)
{
    return ls_transpose(b->graph, leaf(b, 3, DIMS(3, 2, 5)), (int[]){2, 0, 1});
}
static ls_tensor *reshape(bench *b)
{
    ls_tensor *x = ls_reshape(b->graph, leaf(b, 2, DIMS(3, 4)), 3, DIMS(2, 3, 2));
    return ls_softmax(b->graph, ls_transpose(b->graph, x, (int[]){1, 0, 2}));
}
static ls_tensor *interact(bench *b)
{
    return ls_interact(b->graph, leaf(b, 2, DIMS(5, 3)));
}
static ls_tensor *interact_pair(bench *b)
{
    return ls_interact(b->graph, leaf(b, 2, DIMS(2, 17)));
}
static ls_tensor *interact_all(bench *b)
{
    ls_tensor *x[3] = {leaf(b, 1, DIMS(5)), leaf(b, 2, DIMS(3, 5)), leaf(b, 1, DIMS(5))};
    return ls_interact_all(b->graph, 3, x);
}
/* One tensor twice: the second gradient is added to the first. */
static ls_tensor *interact_same(bench *b)
{
    ls_tensor *x = leaf(b, 1, DIMS(17));
    return ls_interact_all(b->graph, 2, (ls_tensor *[]){x, x});
}

static ls_tensor *cross_entropy(bench *b)
{
    ls_tensor *x = ls_linear(b->graph, leaf(b, 1, DIMS(5)), 7);
    return ls_cross_entropy(b->graph, x, leaf_ids(b, 0, NULL, 0, 7), 0, -100);
}
static ls_tensor *cross_entropy_smooth(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(3, 19));
    return ls_cross_entropy(b->graph, x, leaf_ids(b, 1, DIMS(3), -1, 19), 0.2f, -1);
}
static ls_tensor *bce(bench *b)
{
    ls_tensor *x = leaf(b, 1, DIMS(3));
    return ls_bce_with_logits(b->graph, x, leaf(b, 1, DIMS(3)));
}
static ls_tensor *mse(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(3, 5));
    return ls_mse(b->graph, x, leaf(b, 2, DIMS(3, 5)));
}
static ls_tensor *mse_target(bench *b)
{
    const size_t dims[1] = {3};
    ls_tensor *x = ls_input(b->graph, "still", LS_F32, 1, dims);
    return ls_mse(b->graph, x, leaf(b, 1, dims));
}

/* What a transformer's block is made of, together: residual, norm, attention, gelu. */
static ls_tensor *block(bench *b)
{
    ls_tensor *x = leaf(b, 2, DIMS(5, 6));
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    ls_tensor *y = ls_linear(b->graph, ls_layer_norm(b->graph, x), 18);
    config.out = 6;
    config.residual = x;
    x = ls_linear_with(b->graph, ls_attention(b->graph, y, 2, 1, 0), &config);
    ls_linear_config wide = LS_LINEAR_CONFIG_INIT;
    wide.out = 24;
    wide.activation = LS_GELU;
    y = ls_linear_with(b->graph, ls_layer_norm(b->graph, x), &wide);
    config.residual = x;
    return ls_linear_with(b->graph, y, &config);
}

/* Layers with a residual in the middle of others: what backward reads again must still be there. */
static ls_tensor *after(bench *b, ls_tensor *x)
{
    for (int i = 0; i < 3; i++)
        x = ls_activate(b->graph, ls_linear(b->graph, x, 6), LS_TANH);
    return x;
}
static ls_tensor *chain_linear(bench *b)
{
    ls_linear_config config = LS_LINEAR_CONFIG_INIT;
    ls_tensor *x = leaf(b, 1, DIMS(6));
    config.out = 6;
    config.residual = x;
    return after(b, ls_linear_with(b->graph, ls_activate(b->graph, x, LS_TANH), &config));
}
/* As in a transformer: what a layer gives is added by the norm of the next. */
static ls_tensor *chain_add_norm(bench *b)
{
    ls_tensor *x = leaf(b, 1, DIMS(6));
    for (int i = 0; i < 3; i++) {
        ls_tensor *more = ls_activate(b->graph, ls_linear(b->graph, x, 6), LS_TANH);
        ls_tensor *y = ls_add_layer_norm(b->graph, more, x, &x);
        x = ls_add(b->graph, x, ls_linear(b->graph, y, 6));
    }
    return x;
}
static ls_tensor *chain_batch_norm(bench *b)
{
    ls_tensor *x = leaf(b, 1, DIMS(6));
    return after(b, ls_batch_norm(b->graph, ls_activate(b->graph, x, LS_TANH), x, 1));
}

#define CASE(name, batch, ...)                                                                     \
    {                                                                                              \
#name, name, batch, __VA_ARGS__                                                            \
    }

const layer_case layer_cases[] = {
    CASE(linear, 3, 0, 0, 0),
    CASE(linear_wide, 2, 0, 0, 0),
    CASE(linear_one, 1, 0, 0, 0),
    CASE(linear_relu, 3, 0, 0, 0),
    CASE(linear_gelu, 2, 0, 0, 0),
    CASE(linear_gelu_erf, 3, 0, 0, 0),
    CASE(linear_silu, 3, 0, 0, 0),
    CASE(linear_tanh, 3, 0, 0, 0),
    CASE(linear_sigmoid, 3, 0, 0, 0),
    CASE(linear_residual, 3, 0, 0, 0),
    CASE(linear_residual_relu, 3, 0, 0, 0),
    CASE(linear_residual_gelu, 3, 0, 0, 0),
    CASE(linear_self, 3, 0, 0, 0),
    CASE(linear_tied, 3, 0, 0, 0),
    CASE(conv, 3, 0, 0, 0),
    CASE(conv_stride, 2, 0, 0, 0),
    CASE(conv_groups, 2, 0, 0, 0),
    CASE(conv_one, 3, 0, 0, 0),
    CASE(conv_large, 2, 0, 0, 0),
    CASE(conv_few, 3, 0, 0, 4),
    CASE(conv_few_bare, 3, 0, 0, 4),
    CASE(conv_few_wide, 3, 0, 0, 4),
    CASE(conv_few_small, 5, 0, 0, 4),
    CASE(max_pool, 2, 0, 0, 0),
    CASE(max_pool_apart, 2, 0, 0, 0),
    CASE(avg_pool, 2, 0, 0, 0),
    CASE(global_pool, 3, 0, 0, 0),
    CASE(batch_norm, 5, 0, 1, 4),
    CASE(batch_norm_relu, 3, 0, 1, 4),
    CASE(batch_norm_residual, 3, 0, 1, 4),
    CASE(batch_norm_residual_relu, 3, 0, 1, 4),
    CASE(layer_norm, 3, 0, 0, 2),
    CASE(rms_norm, 3, 0, 0, 2),
    CASE(add_layer_norm, 3, 0, 0, 2),
    CASE(add_layer_norm_both, 3, 0, 0, 4),
    CASE(add_layer_norm_sum, 3, 0, 0, 0),
    CASE(add_layer_norm_self, 3, 0, 0, 4),
    CASE(add_layer_norm_mixed, 3, 0, 0, 2),
    CASE(add_rms_norm, 3, 0, 0, 2),
    CASE(add_rms_norm_both, 3, 0, 0, 2),
    CASE(embedding, 3, 0, 0, 0),
    CASE(embedding_sparse, 3, 0, 0, 0),
    CASE(embedding_sparse_one, 5, 0, 0, 0),
    CASE(positions, 3, 0, 0, 0),
    CASE(bag, 3, 0, 0, 0),
    CASE(bag_columns, 7, 0, 0, 0),
    CASE(attention, 3, 0, 0, 0),
    CASE(attention_full, 2, 0, 0, 0),
    CASE(attention_dropout, 3, 0, 0, 0),
    CASE(attention_one, 2, 0, 0, 0),
    CASE(act_relu, 3, 0, 0, 0),
    CASE(act_gelu, 3, 0, 0, 0),
    CASE(act_gelu_erf, 3, 0, 0, 0),
    CASE(act_silu, 3, 0, 0, 0),
    CASE(act_tanh, 3, 0, 0, 0),
    CASE(act_sigmoid, 3, 0, 0, 0),
    CASE(dropout, 5, 0, 0, 0),
    CASE(softmax, 3, 0, 0, 0),
    CASE(add, 3, 0, 0, 0),
    CASE(add_self, 3, 0, 0, 0),
    CASE(add_param, 3, 0, 0, 0),
    CASE(mul, 3, 0, 0, 0),
    CASE(mul_self, 3, 0, 0, 0),
    CASE(mul_param, 3, 0, 0, 0),
    CASE(mul_last, 3, 0, 0, 0),
    CASE(concat, 3, 0, 0, 0),
    CASE(slice, 3, 0, 0, 0),
    CASE(slices, 3, 0, 0, 0),
    CASE(transpose, 3, 0, 0, 0),
    CASE(reshape, 3, 0, 0, 0),
    CASE(interact, 3, 0, 0, 0),
    CASE(interact_pair, 3, 0, 0, 0),
    CASE(interact_all, 3, 0, 0, 0),
    CASE(interact_same, 3, 0, 0, 0),
    CASE(cross_entropy, 5, 1, 0, 0),
    CASE(cross_entropy_smooth, 5, 1, 0, 0),
    CASE(bce, 5, 1, 0, 0),
    CASE(mse, 3, 1, 0, 0),
    CASE(mse_target, 3, 1, 0, 0),
    CASE(block, 2, 0, 0, 4),
    CASE(chain_linear, 3, 0, 0, 4),
    CASE(chain_add_norm, 3, 0, 0, 8),
    CASE(chain_batch_norm, 5, 0, 1, 8),
};
const int layer_case_count = sizeof layer_cases / sizeof *layer_cases;

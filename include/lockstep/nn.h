/* Layers, losses and models on a graph (graph.h).
 *
 * Each function appends to the graph and returns its output, NULL on error (kept by the graph and
 * reported by ls_graph_compile). Shapes are written without the batch where it is obvious.
 *
 * Weights of linear layers lie as (in, out), those of convolutions as (kh, kw, in, out); files
 * written by ls_weights_save have the ecosystem's layout.
 */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include <lockstep/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_activation {
    LS_NONE,
    LS_RELU,
    LS_GELU, /* the tanh approximation */
    LS_GELU_ERF,
    LS_SILU,
    LS_TANH,
    LS_SIGMOID
} ls_activation;

/* ---- layers with parameters ----------------------------------------------------------------- */

typedef struct ls_linear_config {
    size_t size;
    size_t out;
    int no_bias;
    ls_activation activation; /* applied to the result, in the same pass */
    ls_tensor *residual;      /* added before the activation; same shape as the result */
    ls_tensor *tied;   /* an embedding table (out, in) to use as the weight; implies no_bias */
    ls_init_kind init; /* of the weight, with init_scale; both 0: PyTorch's default */
    float init_scale;
    int conv1d;       /* files keep the weight as (in, out): Hugging Face's Conv1D, as in GPT-2 */
    float bias_scale; /* with init given: of the bias, drawn as the weight is; 0: zeros */
} ls_linear_config;
#define LS_LINEAR_CONFIG_INIT                                                                      \
    {                                                                                              \
        sizeof(ls_linear_config), 0, 0, LS_NONE, 0, 0, LS_INIT_ZERO, 0, 0, 0                       \
    }

/* (…, in) -> (…, out). Parameters weight (in, out), bias (out). */
LS_API ls_tensor *ls_linear(ls_graph *graph, ls_tensor *x, size_t out);
LS_API ls_tensor *ls_linear_with(ls_graph *graph, ls_tensor *x, const ls_linear_config *config);

typedef struct ls_conv2d_config {
    size_t size;
    size_t out, kernel; /* kernel x kernel */
    size_t stride;      /* 0: 1 */
    size_t padding, groups;
    int bias;
    ls_init_kind init; /* of the weight, with init_scale; both 0: PyTorch's default */
    float init_scale;
} ls_conv2d_config;
#define LS_CONV2D_CONFIG_INIT                                                                      \
    {                                                                                              \
        sizeof(ls_conv2d_config), 0, 0, 0, 0, 0, 0, LS_INIT_ZERO, 0                                \
    }
/* (h, w, c) -> (oh, ow, out). Parameters weight (kernel, kernel, c / groups, out), bias (out). */
LS_API ls_tensor *ls_conv2d(ls_graph *graph, ls_tensor *x, const ls_conv2d_config *config);

/* Over all but the last dimension; eps 1e-5. With `residual` (may be NULL) added after it, then
 * relu if asked. Parameters weight, bias; buffers running_mean, running_var (unbiased). */
LS_API ls_tensor *ls_batch_norm(ls_graph *graph, ls_tensor *x, ls_tensor *residual, int relu);
/* Over the last dimension; eps 1e-5. Parameters weight, bias. */
LS_API ls_tensor *ls_layer_norm(ls_graph *graph, ls_tensor *x);
/* Parameter weight; eps 1e-6. */
LS_API ls_tensor *ls_rms_norm(ls_graph *graph, ls_tensor *x);
/* The norm of x + residual (of one shape), in one pass over both. *sum (may be NULL) gets the sum,
 * for what comes after it; NULL on error. */
LS_API ls_tensor *ls_add_layer_norm(ls_graph *graph, ls_tensor *x, ls_tensor *residual,
                                    ls_tensor **sum);
LS_API ls_tensor *ls_add_rms_norm(ls_graph *graph, ls_tensor *x, ls_tensor *residual,
                                  ls_tensor **sum);

typedef struct ls_embedding_config {
    size_t size;
    size_t vocab, width;
    float std;  /* of the initial normal distribution; 0: 1 */
    int sparse; /* gradients of the rows that were used, for large tables: training comes to the
                   same bits, and no unused row is touched. Such a table cannot be tied. */
} ls_embedding_config;
#define LS_EMBEDDING_CONFIG_INIT                                                                   \
    {                                                                                              \
        sizeof(ls_embedding_config), 0, 0, 0, 0                                                    \
    }

/* Ids (…) of LS_I32 -> (…, width). Parameter weight (vocab, width). std of the initial normal
 * distribution: 0 means 1. *table (may be NULL) gets the parameter, for tying. */
LS_API ls_tensor *ls_embedding(ls_graph *graph, ls_tensor *ids, size_t vocab, size_t width,
                               float std, ls_tensor **table);
LS_API ls_tensor *ls_embedding_with(ls_graph *graph, ls_tensor *ids,
                                    const ls_embedding_config *config, ls_tensor **table);
/* x (t, width) + a learned row for each of t positions. Parameter weight (t, width). */
LS_API ls_tensor *ls_positions(ls_graph *graph, ls_tensor *x, float std);
/* Ids (bag) -> (width), the sum over the bag; sparse gradients. Parameter weight (vocab, width),
 * from a uniform distribution of [-scale, scale). Only column `column` of ids (columns) when column
 * >= 0. */
LS_API ls_tensor *ls_embedding_bag(ls_graph *graph, ls_tensor *ids, int column, size_t vocab,
                                   size_t width, float scale);

/* qkv (t, 3 width) with queries, keys and values side by side -> (t, width). */
LS_API ls_tensor *ls_attention(ls_graph *graph, ls_tensor *qkv, size_t heads, int causal,
                               float dropout);

/* ---- layers without ------------------------------------------------------------------------- */

LS_API ls_tensor *ls_activate(ls_graph *graph, ls_tensor *x, ls_activation activation);
LS_API ls_tensor *ls_relu(ls_graph *graph, ls_tensor *x);
LS_API ls_tensor *ls_dropout(ls_graph *graph, ls_tensor *x, float p);
LS_API ls_tensor *ls_softmax(ls_graph *graph, ls_tensor *x); /* over the last dimension */
LS_API ls_tensor *ls_max_pool(ls_graph *graph, ls_tensor *x, size_t kernel, size_t stride,
                              size_t padding);
LS_API ls_tensor *ls_avg_pool(ls_graph *graph, ls_tensor *x, size_t kernel, size_t stride,
                              size_t padding);
LS_API ls_tensor *ls_global_pool(ls_graph *graph, ls_tensor *x); /* (h, w, c) -> (c), the mean */
/* b has the shape of a, or of its last dimensions (it is then repeated; a parameter may be b). */
LS_API ls_tensor *ls_add(ls_graph *graph, ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_mul(ls_graph *graph, ls_tensor *a, ls_tensor *b);
/* Along the last dimension. */
LS_API ls_tensor *ls_concat(ls_graph *graph, int count, ls_tensor *const *x);
LS_API ls_tensor *ls_slice(ls_graph *graph, ls_tensor *x, size_t from, size_t to);
/* Dimensions of a sample, the batch not counted: perm of (1, 0) exchanges the first two. */
LS_API ls_tensor *ls_transpose(ls_graph *graph, ls_tensor *x, const int *perm);
LS_API ls_tensor *ls_reshape(ls_graph *graph, ls_tensor *x, int ndim, const size_t *dims);
/* (f, d) -> (f (f - 1) / 2): products of each pair of rows. */
LS_API ls_tensor *ls_interact(ls_graph *graph, ls_tensor *x);
/* Tensors of (d) or of (f, d), all of one d and of f rows together -> (d + f (f - 1) / 2): the
 * first row, then products of each pair of rows. */
LS_API ls_tensor *ls_interact_all(ls_graph *graph, int count, ls_tensor *const *x);

/* ---- losses --------------------------------------------------------------------------------- */

/* Logits (…, classes), labels (…) of LS_I32; rows labelled `ignore` do not count (-100 as a rule).
 * The gradient takes the place of the logits. */
LS_API ls_tensor *ls_cross_entropy(ls_graph *graph, ls_tensor *logits, ls_tensor *labels,
                                   float smoothing, int32_t ignore);
LS_API ls_tensor *ls_bce_with_logits(ls_graph *graph, ls_tensor *logits, ls_tensor *targets);
LS_API ls_tensor *ls_mse(ls_graph *graph, ls_tensor *x, ls_tensor *targets);

/* ---- models --------------------------------------------------------------------------------- */

typedef struct ls_model ls_model; /* what a model is made of; builds graphs */

/* "mlp", "resnet:20", "gpt:nano", …: a model, with the settings of one of its presets (the first
 * unless named), which ls_model_set changes. LS_ERR_CONFIG names what is not known and lists what
 * is. The caller owns *out.
 *
 *   mlp      default                      inputs hidden classes dropout smoothing
 *   resnet   20 32 44 56 110 18 34 50     blocks bottleneck stem width image channels classes
 *            101 152                      smoothing
 *   gpt      nano char 124m               vocab context layers heads dim dropout checkpoint
 *   dlrm     default                      dense tables rows width bottom top
 */
LS_API ls_status ls_model_create(const char *name, ls_model **out);
LS_API void ls_model_destroy(ls_model *model);
/* key=value, e.g. "layers=6", "dropout=0.1", "hidden=512,512". LS_ERR_CONFIG names the key or value
 * and lists what is accepted; nothing has changed then. */
LS_API ls_status ls_model_set(ls_model *model, const char *assignment);
/* The i-th setting as "key=value" text; LS_ERR_NOT_FOUND past the end. */
LS_API ls_status ls_model_get(const ls_model *model, int i, char *text, size_t room);
LS_API const char *ls_model_name(const ls_model *model); /* "gpt" */

/* Build and compile its graph, which the caller owns. LS_ERR_CONFIG when settings do not go
 * together, e.g. a dim that heads do not divide. */
LS_API ls_status ls_model_build(const ls_model *model, const ls_graph_config *config,
                                ls_graph **out);

/* The inputs of a model's graph in order, e.g. "image" and "label", "tokens" and "targets". NULL
 * past the end. */
LS_API ls_tensor *ls_graph_input(ls_graph *graph, int i);
/* For inputs of LS_I32: values are in [0, bound); 0: unknown. */
LS_API size_t ls_tensor_bound(const ls_tensor *input);

/* ---- files of weights: safetensors ---------------------------------------------------------- */

/* Write parameters and buffers with the ecosystem's names and layouts. Atomic: the file appears
 * complete or not at all. */
LS_API ls_status ls_weights_save(ls_graph *graph, const char *path);
/* Load by name. A missing or unknown name, a wrong shape or type: one error that names it, and the
 * graph is unchanged. */
LS_API ls_status ls_weights_load(ls_graph *graph, const char *path);

#ifdef __cplusplus
}
#endif
#endif

/* Static graphs: describe a computation once, then run it forward and backward many times.
 *
 * A graph is built by functions that take tensors and return tensors (nn.h), compiled once, and run
 * step after step without allocating. It computes what one worker computes; it knows nothing of
 * other workers.
 *
 * 1. Dimension 0 of every activation is the batch. A graph is built for at most `batch` samples and
 *    runs with any smaller number.
 * 2. Building never fails half-way: the first error is kept, every later call on that graph returns
 *    NULL, and ls_graph_compile reports it, naming the node.
 * 3. Gradients are those of the *sum* of the loss over the samples of the call; ls_graph_run gives
 *    that sum and the count, so that whoever combines several calls divides once, at the end.
 * 4. Parameters lie one after the other in one array, and gradients in another, in the order in
 *    which backward completes them, each starting at a multiple of 16 elements.
 * 5. The same call twice gives the same bits; a sample's result does not depend on the samples that
 *    run with it (batch norm in training aside).
 *
 * A graph belongs to one thread at a time. No function blocks.
 */
#ifndef LOCKSTEP_GRAPH_H
#define LOCKSTEP_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MAX_DIMS 6
#define LS_OP_MAX_INPUTS 32
#define LS_OP_MAX_PARAMS 4

typedef struct ls_graph ls_graph;
typedef struct ls_tensor ls_tensor; /* an activation, input or parameter of a graph; owned by it */

/* ---- building ------------------------------------------------------------------------------- */

typedef struct ls_graph_config {
    size_t size;
    const char *device; /* "cpu" (default) or "ref" */
    size_t batch;       /* most samples of one call; required */
    uint64_t seed;      /* of initial weights and dropout */
} ls_graph_config;
#define LS_GRAPH_CONFIG_INIT                                                                       \
    {                                                                                              \
        sizeof(ls_graph_config), 0, 0, 0                                                           \
    }

/* An empty graph. The caller owns *out. */
LS_API ls_status ls_graph_create(const ls_graph_config *config, ls_graph **out);
LS_API void ls_graph_destroy(ls_graph *graph);

/* What follows is named NAME.…, until the matching pop: parameters of a layer made inside the
 * scopes "h.0" and "mlp" are h.0.mlp.weight and so on. `name` is a printf format. */
LS_API void ls_scope_push(ls_graph *graph, const char *name, ...)
    __attribute__((format(printf, 2, 3)));
LS_API void ls_scope_pop(ls_graph *graph);
/* The name of the next layer (default: its kind and a number, e.g. linear1). "" gives it none:
 * its parameters then carry the scope's name alone. */
LS_API void ls_name(ls_graph *graph, const char *name, ...) __attribute__((format(printf, 2, 3)));
/* Begin a layer of this kind: its parameters, errors and the node of the next ls_op_add bear its
 * name, which is fixed here; ls_op_add ends it. Without it, ls_op_add begins a layer named after
 * the operation, and ls_param one named layer1, layer2, … */
LS_API void ls_layer(ls_graph *graph, const char *kind);

/* An input of `ndim` dimensions a sample (0: one value), LS_F32 or LS_I32; filled before a run. */
LS_API ls_tensor *ls_input(ls_graph *graph, const char *name, ls_dtype dtype, int ndim,
                           const size_t *dims);

/* How a parameter starts, and how the optimizer treats it. */
typedef enum ls_init {
    LS_INIT_ZERO,
    LS_INIT_ONE,
    LS_INIT_NORMAL, /* of standard deviation init_scale */
    LS_INIT_UNIFORM /* in [-init_scale, init_scale) */
} ls_init_kind;

/* How a parameter lies in files of the ecosystem; in memory it is always as its dims say. */
typedef enum ls_layout {
    LS_LAYOUT_PLAIN,  /* the same */
    LS_LAYOUT_LINEAR, /* (in, out) here, (out, in) there */
    LS_LAYOUT_CONV    /* (kh, kw, in, out) here, (out, in, kh, kw) there */
} ls_layout;

typedef struct ls_param_config {
    size_t size;
    ls_init_kind init;
    float init_scale;
    int no_decay; /* no weight decay: biases and norms */
    int sparse;   /* rows of dimension 0 get gradients one by one: embeddings */
    int buffer;   /* not trained: running statistics. Kept beside the parameters. */
    ls_layout layout;
} ls_param_config;
#define LS_PARAM_CONFIG_INIT                                                                       \
    {                                                                                              \
        sizeof(ls_param_config), LS_INIT_ZERO, 0, 0, 0, 0, LS_LAYOUT_PLAIN                         \
    }

/* A parameter for the layer being built. Same (full) name twice: an error. */
LS_API ls_tensor *ls_param(ls_graph *graph, const char *name, int ndim, const size_t *dims,
                           const ls_param_config *config);

/* Operations between begin and end are computed again in the backward pass instead of being kept:
 * less memory for about a third more time. Not nested. */
LS_API void ls_checkpoint_begin(ls_graph *graph);
LS_API void ls_checkpoint_end(ls_graph *graph);

/* ---- shapes --------------------------------------------------------------------------------- */

/* Dimensions, the batch included for activations. 0 and NULL for a NULL tensor. */
LS_API int ls_tensor_ndim(const ls_tensor *tensor);
LS_API const size_t *ls_tensor_dims(const ls_tensor *tensor);
LS_API const char *ls_tensor_name(const ls_tensor *tensor);
/* Record an error against the node being built, with its name; returns NULL, for `return`. Inside
 * of an operation's forward or backward: against the node that runs, and the graph stays usable. */
LS_API ls_tensor *ls_graph_fail(ls_graph *graph, const char *detail, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- compiling and running ------------------------------------------------------------------ */

/* Shapes, order, memory; then parameters are allocated and initialised. `loss` is a scalar made by
 * one of the losses of nn.h (NULL: forward only); `output` (may be NULL) stays readable after a run
 * without backward. Reports the first error of building. */
LS_API ls_status ls_graph_compile(ls_graph *graph, ls_tensor *loss, ls_tensor *output);

typedef struct ls_run_config {
    size_t size;
    size_t batch;            /* samples of this call, at most the graph's; 0: all */
    int training;            /* dropout and batch statistics as in training */
    int backward;            /* also gradients */
    int accumulate;          /* add to the gradients instead of writing them */
    uint64_t step;           /* counters of dropout: the step, */
    uint64_t first_position; /* and the place of sample 0 in the global batch */
    int same_weights; /* no parameter has changed since this graph's last run: what was made of them
                         then may serve again */
} ls_run_config;
#define LS_RUN_CONFIG_INIT                                                                         \
    {                                                                                              \
        sizeof(ls_run_config), 0, 0, 0, 0, 0, 0, 0                                                 \
    }

typedef struct ls_run_result {
    double loss;  /* the sum over what counted */
    double count; /* samples, or tokens */
} ls_run_result;

/* The memory of an input, (batch, …); valid after compile. A run reads the samples it was told of
 * and leaves them as they are. */
LS_API void *ls_input_data(ls_graph *graph, ls_tensor *input);
/* The value of the graph's output after a run; one with backward may put its gradient there. */
LS_API const float *ls_output_data(const ls_graph *graph);

/* One pass. config NULL: forward over the whole batch; result may be NULL, and is set on success.
 * LS_ERR_INVALID naming the node: an id or label out of range, a loss that is NaN or
 * infinite (the first node with such a value is named; gradients are not computed then). */
LS_API ls_status ls_graph_run(ls_graph *graph, const ls_run_config *config, ls_run_result *result);

/* The same in pieces, for who computes several graphs side by side: everything up to the loss, then
 * the backward pass operation by operation: LS_IN_PROGRESS until the last one is done. Whatever
 * else is called on the graph in between ends the run. */
LS_API ls_status ls_graph_forward(ls_graph *graph, const ls_run_config *config,
                                  ls_run_result *result);
LS_API ls_status ls_graph_backward(ls_graph *graph);

/* Called in the backward pass as soon as the gradient of parameter `index` is complete: in
 * ascending order of index, all of them, on every backward run (unless accumulating to more to
 * come: the caller knows). NULL: none. */
typedef void (*ls_ready_fn)(void *arg, int index);
LS_API void ls_graph_on_ready(ls_graph *graph, ls_ready_fn fn, void *arg);

/* Called before each operation of a run, with the node's name: for who wants to know where it is.
 * NULL ends it. */
typedef void (*ls_node_fn)(void *arg, const char *name, int backward);
LS_API void ls_graph_on_node(ls_graph *graph, ls_node_fn fn, void *arg);

/* ---- parameters ----------------------------------------------------------------------------- */

typedef struct ls_param_info {
    const char *name;
    int ndim;
    size_t dims[LS_MAX_DIMS];
    size_t offset, count; /* elements, in the arrays of parameters and gradients */
    int no_decay, sparse;
    ls_layout layout;
} ls_param_info;

LS_API int ls_graph_param_count(const ls_graph *graph);
LS_API ls_status ls_graph_param(const ls_graph *graph, int index, ls_param_info *info);
/* Trained values in all, without the gaps. */
LS_API size_t ls_graph_trained(const ls_graph *graph);
/* Length of the arrays, in elements, the gaps (always zero) included. */
LS_API size_t ls_graph_param_elements(const ls_graph *graph);
LS_API float *ls_graph_params(ls_graph *graph);
LS_API float *ls_graph_grads(ls_graph *graph);
/* Use this memory from now on (borrowed; NULL: the graph's own again), e.g. memory that workers
 * share. Contents are not copied. */
LS_API void ls_graph_bind(ls_graph *graph, float *params, float *grads);
/* Write the initial values, which depend on the seed, the parameter's name and its shape, into the
 * memory in use, buffers too. */
LS_API void ls_graph_init(ls_graph *graph);

/* Buffers (running statistics): as parameters, in the order in which they were made. After a
 * training run the statistics seen by it lie in observed, to be combined by the caller: running =
 * (1 - m) running + m observed, which ls_graph_observe does for a single caller. */
LS_API int ls_graph_buffer_count(const ls_graph *graph);
LS_API ls_status ls_graph_buffer(const ls_graph *graph, int index, ls_param_info *info);
LS_API size_t ls_graph_buffer_elements(const ls_graph *graph);
LS_API float *ls_graph_buffers(ls_graph *graph);
LS_API const float *ls_graph_observed(const ls_graph *graph);
LS_API void ls_graph_observe(ls_graph *graph, const float *observed, float momentum);

/* The gradient of sparse parameter `index` after a backward run: `rows` ids in ascending order, and
 * their rows of values. Its part of the gradient array is not written. */
typedef struct ls_sparse_grad {
    size_t rows, width;
    const int32_t *ids;
    const float *values;
} ls_sparse_grad;
LS_API ls_status ls_graph_sparse_grad(const ls_graph *graph, int index, ls_sparse_grad *out);

/* Which rows of sparse parameter `index` the next run reads, by its k-th operation: ids[0],
 * ids[stride], …, `count` of them for the whole batch, in the input as it is filled now.
 * LS_ERR_NOT_FOUND past the last. */
typedef struct ls_sparse_ids {
    const int32_t *ids;
    size_t count, stride;
} ls_sparse_ids;
LS_API ls_status ls_graph_sparse_ids(ls_graph *graph, int index, int k, ls_sparse_ids *out);

/* ---- figures -------------------------------------------------------------------------------- */

typedef struct ls_graph_memory {
    size_t params, grads, activations, kept_without_reuse, scratch; /* bytes */
} ls_graph_memory;
LS_API void ls_graph_get_memory(const ls_graph *graph, ls_graph_memory *memory);
/* Floating point operations of one training run of the whole batch (a multiply-add is two). */
LS_API double ls_graph_flops(const ls_graph *graph);

/* Time spent by kind of operation since profiling was turned on; entries sorted by time. */
typedef struct ls_profile_entry {
    const char *op;
    double forward_s, backward_s, flops;
    uint64_t calls;
} ls_profile_entry;
LS_API void ls_graph_profile(ls_graph *graph, int on);
LS_API int ls_graph_profile_entries(const ls_graph *graph, ls_profile_entry *entries, int room);

/* ---- operations ----------------------------------------------------------------------------- */

/* A view of a value inside a call; data is NULL when nobody wants it (gradients only). */
typedef struct ls_view {
    void *data;
    ls_dtype dtype;
    int ndim;
    size_t dims[LS_MAX_DIMS]; /* dims[0] is the number of samples of this run for activations */
    size_t count;             /* product of dims */
} ls_view;

typedef struct ls_op_call {
    ls_graph *graph;
    const char *name;   /* as errors call it: node 'h.0.mlp.linear1' (linear) */
    const void *config; /* the bytes given to ls_op_add */
    int inputs, params;
    ls_view in[LS_OP_MAX_INPUTS], param[LS_OP_MAX_PARAMS], out;
    ls_view second; /* LS_OP_SECOND: the second output */
    /* backward: gradients; to be written, or added to where the flag says so, in ascending order of
     * index: two inputs may be one tensor. dout and dsecond may be overwritten; with LS_OP_SECOND
     * one of them has no data when the loss does not depend on that output. dparam[i] of a buffer
     * is where forward puts the statistics that it observed in training. */
    ls_view din[LS_OP_MAX_INPUTS], dparam[LS_OP_MAX_PARAMS], dout, dsecond;
    int add_in[LS_OP_MAX_INPUTS], add_param[LS_OP_MAX_PARAMS];
    /* A sparse param[0] has no dparam: backward writes *sparse_rows ascending ids (room for
     * sparse_room) and as many rows of values. Never added to: the graph merges. Unless infer asked
     * for sparse_adds: it then finds *sparse_rows rows there, and adds to them in place. */
    int32_t *sparse_ids;
    float *sparse_values;
    size_t *sparse_rows, sparse_room;
    void *kept;     /* bytes that infer asked for, from forward to backward */
    size_t samples; /* of this run */
    int training;
    int backward; /* a backward pass follows this forward */
    uint64_t seed, step, first_position;
    uint32_t node; /* number of this node in the graph; one with two outputs has two */
    struct lsi_device *device;
} ls_op_call;

/* What infer decides. It finds the shape of the first input, the op's flags, and zeros. */
typedef struct ls_op_shape {
    ls_dtype dtype; /* of the output; LS_F32 unless changed */
    int ndim;
    size_t dims[LS_MAX_DIMS]; /* dims[0]: the batch for an activation; a loss has one element */
    int flags;                /* LS_OP_…: may change for this node, VIEW, LOSS, SECOND not */
    int in_place;             /* LS_OP_IN_PLACE: which input */
    uint32_t unread;          /* bit i: backward does not read in[i], LS_OP_KEEP_INPUTS or not */
    size_t kept_per_sample;   /* bytes of `kept`: a part that grows with the batch, */
    size_t kept_fixed;        /* and one that does not */
    double flops_per_sample;  /* of forward; backward is taken to be twice that */
    size_t sparse_rows_per_sample; /* most ids that backward gives for a sparse param[0] */
    size_t sparse_first; /* the first id read of a sample of in[0], when not all of them are */
    int sparse_adds;     /* backward adds to the rows of a sparse param[0] that are there */
} ls_op_shape;

enum {
    LS_OP_KEEP_INPUTS = 1, /* backward reads in[] */
    LS_OP_KEEP_OUTPUT = 2, /* backward reads out */
    /* The output is the first input's memory under another shape. forward and backward are not
     * called, and may be NULL. */
    LS_OP_VIEW = 4,
    /* forward returns a sum and a count through ls_op_set_loss. When a backward pass follows, it
     * may compute the gradient at once: din[] is set already, add_in[] is 0, and din[0] may be the
     * memory of in[0] unless LS_OP_KEEP_INPUTS. dout is not set: the gradient of a loss is 1. */
    LS_OP_LOSS = 8,
    /* The output may take the place of an input (the first unless infer says otherwise) of the
     * same size if nobody else needs that; likewise din[] of that input that of dout, then add_in[]
     * is 0. Look at the pointers: a gradient that is passed on as it is needs no copy then. */
    LS_OP_IN_PLACE = 16,
    /* Forward computes two outputs of one shape and type; ls_op_second gives the second. With
     * LS_OP_IN_PLACE it is din[] that may take the place of dsecond, and no output that of an
     * input. */
    LS_OP_SECOND = 32,
    LS_OP_KEEP_SECOND = 64 /* backward reads second */
};

/* A kind of operation. The library's own are made of this too: nn/. */
typedef struct ls_op_kind {
    size_t size;
    const char *name;
    int flags;
    /* The output's shape from in[] and param[] (their data is NULL); errors by ls_graph_fail, then
     * return LS_ERR_INVALID. */
    ls_status (*infer)(const ls_op_call *call, ls_op_shape *shape);
    ls_status (*forward)(const ls_op_call *call);
    /* NULL: no gradient flows through it. */
    ls_status (*backward)(const ls_op_call *call);
} ls_op_kind;

/* Append a node. `op` must outlive the graph; config_bytes of config are copied. Params come from
 * ls_param, or are those of another layer (weight tying). Returns the output, NULL on error. */
LS_API ls_tensor *ls_op_add(ls_graph *graph, const ls_op_kind *op, const void *config,
                            size_t config_bytes, int inputs, ls_tensor *const *input, int params,
                            ls_tensor *const *param);
/* The second output of the LS_OP_SECOND whose first one `out` is; NULL when there is none. */
LS_API ls_tensor *ls_op_second(const ls_tensor *out);
/* In the forward of an LS_OP_LOSS. */
LS_API void ls_op_set_loss(const ls_op_call *call, double sum, double count);

#ifdef __cplusplus
}
#endif
#endif

/* What the files of this room share: the graph as it was built, and as it is compiled.
 *
 *   build, node   tensors and nodes, in the order of the calls; the first error is kept
 *   order         who is needed, where gradients flow, the program: a list of steps
 *   checkpoint    which steps run again before the backward pass of a segment
 *   lifetime      when each buffer holds something that is needed later, and who shares memory
 *   plan          offsets inside one block, by size and lifetime alone
 *   compile       all of that, then the ls_op_call of each node with its addresses
 *   run           the steps, patched where a run differs from the one before
 *
 * 1. Time is the place of a step in the program. Forward is the first `turn` steps, step `turn`
 *    itself does nothing (there the loss is looked at and the output read), backward is the rest.
 * 2. A view has no memory of its own, no step and no gradient: all three are its root's.
 * 3. Everything a run needs is allocated by compile; what sparse gradients need beyond that grows
 *    as they do.
 */
#ifndef LSI_GRAPH_GRAPH_H
#define LSI_GRAPH_GRAPH_H

#include <lockstep/graph.h>

#include "base/arena.h"
#include "base/status.h"
#include "device/kernels.h"
#include "graph/memory.h"

#define LSI_PARAM_ALIGN 16 /* elements: a parameter starts at a multiple of this */
#define LSI_SCOPE_DEPTH 32
#define LSI_NAME_MAX 256

typedef enum lsi_tensor_kind { LSI_INPUT, LSI_PARAM, LSI_VALUE } lsi_tensor_kind;

struct ls_tensor {
    ls_graph *graph;
    const char *name;
    lsi_tensor_kind kind;
    ls_dtype dtype;
    int ndim;
    size_t dims[LS_MAX_DIMS], count; /* for the graph's whole batch */
    int batched;                     /* dims[0] is the batch */
    int node;                        /* LSI_VALUE: who computes it, else -1 */
    ls_tensor *root;                 /* whose memory it is: its own but for views */
    size_t bound;                    /* of the ids of an input, 0: unknown; for who fills it */
    /* parameters */
    ls_param_config config;
    uint32_t stream[2]; /* where its random numbers come from: words of its name's digest */
    int index;          /* among the parameters or the buffers, in their final order */
    /* set by compile, in roots only */
    size_t offset;  /* parameters: elements in the arrays; inputs: bytes in the block */
    int flows;      /* a parameter depends on it, through operations that have a gradient */
    int wanted;     /* and the loss depends on it likewise */
    int value;      /* buffers of a value: what it is, */
    int grad;       /* and its gradient; -1: none */
    int reader;     /* the node that alone takes it as an input, -1: none or several */
    int kept_alive; /* read by the backward pass outside of its segment: not computed again */
};

/* A node, made by ls_op_add. */
typedef struct lsi_node {
    const ls_op_kind *op;
    const char *name, *label; /* h.0.mlp.linear1; node 'h.0.mlp.linear1' (linear) */
    ls_op_shape shape;        /* its flags count, but VIEW, LOSS and SECOND, the operation's */
    int inputs, params;
    ls_tensor **in, **param, *out;
    ls_tensor *second;    /* NULL: it has one output */
    int segment;          /* of a checkpoint, -1: none */
    int needed;           /* loss or output depend on it */
    int backward;         /* takes part in the backward pass */
    int again;            /* runs once more before the backward pass of its segment */
    int kept;             /* buffer of the bytes kept for backward, -1: none */
    uint32_t first_param; /* bit i: the first to give a gradient to param[i] in a backward pass */
    int profile;          /* its entry */
    ls_op_call call;
} lsi_node;

typedef enum lsi_step_kind { LSI_FORWARD, LSI_TURN, LSI_AGAIN, LSI_BACKWARD } lsi_step_kind;

typedef struct lsi_step {
    lsi_step_kind kind;
    int node;
    int ready_to; /* parameters below this are complete after the step */
} lsi_step;

/* Buffers: what is planned. A span is a piece of time, both ends included. */
typedef struct lsi_span {
    int from, to;
} lsi_span;

typedef struct lsi_buffer {
    size_t bytes, offset;
    int same_as; /* memory is shared: the buffer that stands for both, -1: itself */
    int count;   /* spans, ascending, apart from each other */
    lsi_span *spans;
} lsi_buffer;

/* The gradient of a sparse parameter: rows by ascending id. */
typedef struct lsi_sparse {
    size_t rows, room, width;
    lsi_block ids, values;
} lsi_sparse;

typedef struct lsi_profile {
    const char *op;
    uint64_t forward_ns, backward_ns, calls;
    double flops;
} lsi_profile;

struct ls_graph {
    lsi_device *device;
    size_t batch;
    uint64_t seed;
    lsi_arena *arena; /* everything that lives as long as the graph */

    /* building */
    ls_status status; /* the first error, and its text */
    char error[LSI_ERROR_MAX];
    char scope[LSI_NAME_MAX];
    size_t scope_ends[LSI_SCOPE_DEPTH];
    int depth;
    int named; /* ls_name was called: next_name holds */
    char next_name[LSI_NAME_MAX];
    char *layer_name; /* the layer being built, NULL between layers */
    const char *layer_kind;
    int in_segment, segments;

    ls_tensor **tensors;
    lsi_node **nodes;
    int tensor_count, node_count, tensor_room, node_room;
    ls_tensor **inputs; /* in the order in which they were made */
    ls_tensor **params; /* trained ones; compile brings them into their final order */
    ls_tensor **buffers;
    int input_count, param_count, buffer_count;
    int input_room, param_room, buffer_room;
    uint32_t outputs; /* of all nodes */

    /* compiled */
    int compiled;
    ls_tensor *loss, *output;
    lsi_step *steps;
    int step_count, turn;
    lsi_buffer *memory;
    int memory_count;
    int unshared_plan;        /* for the tests: every buffer has memory of its own */
    lsi_block activations;    /* inputs, then the plan */
    size_t input_bytes, peak; /* of that block */
    size_t unshared;          /* what it would be if every buffer had memory of its own */

    lsi_block own_params, own_grads, stats, observed;
    size_t param_elements, buffer_elements, trained;
    float *bound_params, *bound_grads; /* NULL: the graph's own */
    int initialised;                   /* own_params hold values */
    int unused_from;                   /* parameters from here on get no gradient */
    lsi_sparse *sparse;                /* one a parameter; those that are not sparse stay empty */
    lsi_block fresh_ids, fresh_values; /* one contribution to a sparse gradient, before merging */
    size_t fresh_room, fresh_width, fresh_rows;

    ls_ready_fn on_ready;
    void *on_ready_arg;
    ls_node_fn on_node;
    void *on_node_arg;

    /* running */
    const lsi_node *running; /* whose function is being called, NULL: none */
    double loss_sum, loss_count;
    size_t samples;    /* that the calls are set up for, */
    int accumulate;    /* likewise */
    int loss_grad;     /* likewise: the loss has the address of its gradient */
    ls_run_config run; /* the run under way, */
    int next_step;     /* its next step of the backward pass, 0: there is none, */
    int ready;         /* and the parameters below this were told of */

    int profiling;
    lsi_profile *profile;
    int profile_count;
};

/* ---- build.c, node.c ---- */

/* Room for one more element in an array of `count`. */
ls_status lsi_grow(void **array, int *room, int count, size_t each);
/* A copy that lives as long as the graph, NULL with the error kept. */
void *lsi_keep(ls_graph *graph, const void *data, size_t bytes);
/* Keep the thread's last error as the graph's first. */
void lsi_graph_keep_error(ls_graph *graph, ls_status status);
/* May something be added? Refuses a broken graph silently, a compiled one with an error. */
int lsi_graph_open(ls_graph *graph);
/* The layer being built, begun if it was not. NULL with the error kept. */
const char *lsi_layer_name(ls_graph *graph, const char *kind);
/* A tensor of the given shape (checked: sizes above 0, no overflow), appended to the graph. NULL
 * with the error kept. */
ls_tensor *lsi_tensor_add(ls_graph *graph, lsi_tensor_kind kind, const char *name, ls_dtype dtype,
                          int ndim, const size_t *dims);

/* ---- order.c, checkpoint.c ---- */

/* Who is needed, where gradients flow. */
void lsi_order_needs(ls_graph *graph);
/* The final order of the parameters: as backward completes them, those without a gradient last. */
ls_status lsi_order_params(ls_graph *graph);
/* The program. */
ls_status lsi_order_steps(ls_graph *graph);
/* Does backward of this node read input i, or the output, or the second one? */
int lsi_reads_input(const lsi_node *node, int i);
int lsi_reads_output(const lsi_node *node);
int lsi_reads_second(const lsi_node *node);
/* Bytes from forward to backward, for the whole batch. */
size_t lsi_kept_bytes(const ls_graph *graph, const lsi_node *node);
/* Mark the nodes of a segment that run again (lsi_node.again): last is one past its last node. */
void lsi_checkpoint_mark(ls_graph *graph, int segment, int first, int last);

/* ---- lifetime.c, plan.c ---- */

/* Buffers, their spans, and who shares memory with whom. */
ls_status lsi_lifetimes(ls_graph *graph);
/* The buffer that stands for this one. */
int lsi_buffer_of(const ls_graph *graph, int buffer);
/* Offsets for buffers that stand for themselves, such that two whose spans meet do not overlap.
 * *peak is the end of the highest. `share` = 0: every buffer gets memory of its own. */
ls_status lsi_plan(lsi_buffer *buffers, int count, int share, size_t *peak);
/* Do two lists of spans have a moment in common? */
int lsi_spans_meet(const lsi_buffer *a, const lsi_buffer *b);

/* ---- params.c, init.c, sparse.c ---- */

/* Offsets, memory, buffers' initial values. */
ls_status lsi_params_layout(ls_graph *graph);
void lsi_params_free(ls_graph *graph);
/* Put the addresses of parameters and gradients into the calls. */
void lsi_params_connect(ls_graph *graph);
/* The memory in use, initialised. */
float *lsi_params(ls_graph *graph);
float *lsi_grads(ls_graph *graph);
/* param->stream, from its name. */
ls_status lsi_init_stream(ls_tensor *param);
/* The initial value of a parameter, to `out`. */
void lsi_init_values(uint64_t seed, const ls_tensor *param, float *out);

/* Before and after the backward of a node whose first parameter is sparse. */
ls_status lsi_sparse_begin(ls_graph *graph, lsi_node *node);
ls_status lsi_sparse_end(ls_graph *graph, lsi_node *node);
/* Memory for a contribution that will be merged. */
ls_status lsi_sparse_fresh(ls_graph *graph);
/* Memory for the gradients of sparse parameters. */
ls_status lsi_sparse_layout(ls_graph *graph);
void lsi_sparse_free(ls_graph *graph);
/* Merge `rows` more rows (ids ascending) into a gradient, adding where both have the id. */
ls_status lsi_sparse_merge(lsi_device *device, lsi_sparse *sparse, size_t rows, const int32_t *ids,
                           const float *values);

/* ---- run.c, profile.c ---- */

/* Set the calls up for this many samples. */
void lsi_calls_resize(ls_graph *graph, size_t samples);
ls_status lsi_profile_layout(ls_graph *graph);

#endif

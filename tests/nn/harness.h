/* One case of a layer, run in many ways: gradients by finite differences, bits twice, alone and in
 * a batch, accumulated, against another device.
 *
 * A case is a function that builds something from leaves. Leaves are parameters when gradients are
 * looked at (one value for each value of each sample), and inputs when forward results are. What
 * the case returns is multiplied with fixed random numbers and summed: the loss whose gradient is
 * checked.
 */
#ifndef TESTS_NN_HARNESS_H
#define TESTS_NN_HARNESS_H

#include <lockstep/nn.h>

#define LEAVES_MAX 8

typedef struct bench_config {
    const char *device;
    size_t batch;
    int as_inputs; /* leaves are inputs */
    int shared;    /* each leaf is read by the loss too: layers must add to its gradient */
} bench_config;

typedef struct bench {
    bench_config config;
    ls_graph *graph;
    int leaves;
    ls_tensor *leaf[LEAVES_MAX]; /* of f32 */
    int ids;
    ls_tensor *id[LEAVES_MAX]; /* inputs of i32 */
    int32_t id_low[LEAVES_MAX], id_high[LEAVES_MAX];
    ls_tensor *out; /* NULL: the case made its own loss */
    uint32_t seed;
} bench;

/* A value of (batch, dims…) in [-1, 1), and one of ids in [low, high). */
ls_tensor *leaf(bench *b, int ndim, const size_t *dims);
ls_tensor *leaf_ids(bench *b, int ndim, const size_t *dims, int32_t low, int32_t high);
/* A parameter, in [-1, 1), which the case may use as it likes. */
ls_tensor *leaf_param(bench *b, int ndim, const size_t *dims);

typedef struct layer_case {
    const char *name;
    /* Returns the value to look at, or a loss. */
    ls_tensor *(*build)(bench *b);
    size_t batch;
    int is_loss;
    int mixes_batch; /* batch norm: a sample's result depends on the others */
    int tolerance;   /* times the usual tolerance of finite differences; 0: 1 */
} layer_case;

extern const layer_case layer_cases[];
extern const int layer_case_count;

/* Build and compile a case. Fails the test on any error. */
void bench_open(bench *b, const layer_case *c, const bench_config *config);
void bench_close(bench *b);
/* Fill parameters and buffers, and from now on inputs before each run, with numbers that depend on
 * `seed` alone. */
void bench_fill(bench *b, uint32_t seed);
void bench_fill_inputs(bench *b);
/* A training run with or without backward; returns the loss. */
double bench_run(bench *b, int backward, int accumulate);
/* The gradient, with those of sparse parameters written where they belong. `out` has
 * ls_graph_param_elements. */
void graph_gradient(ls_graph *graph, float *out);

#endif

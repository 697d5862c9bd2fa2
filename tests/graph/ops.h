/* Operations for the tests of the graph: small enough to be checked by eye, one for each thing that
 * an operation can ask of the engine. All are spiteful where the contract allows it: an output is
 * filled with NaN before it is computed, the gradient of the output after it was used.
 *
 * Activations are (batch, width).
 */
#ifndef TESTS_GRAPH_OPS_H
#define TESTS_GRAPH_OPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph/graph.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1
#else
#define UNDER_SANITIZER 0
#endif

#define OK(call)                                                                                   \
    do {                                                                                           \
        ls_status ok_status = (call);                                                              \
        if (ok_status != LS_OK)                                                                    \
            fail_msg("%s: %s: %s", #call, ls_status_name(ok_status), ls_last_error());             \
    } while (0)

/* y = x w + b for each of w, b (width). Keeps its input. */
ls_tensor *t_affine(ls_graph *g, ls_tensor *x);
/* The same with parameters of another layer. */
ls_tensor *t_affine_tied(ls_graph *g, ls_tensor *x, ls_tensor *w, ls_tensor *b);
/* The parameters of the newest affine. */
extern ls_tensor *t_w, *t_b;
/* (batch, in) -> (batch, out), y = x · w; keeps its input. */
ls_tensor *t_dense(ls_graph *g, ls_tensor *x, size_t out);
/* a + b; may work in the place of a. */
ls_tensor *t_add(ls_graph *g, ls_tensor *a, ls_tensor *b);
/* a b; keeps both inputs. */
ls_tensor *t_mul(ls_graph *g, ls_tensor *a, ls_tensor *b);
/* max(x, 0); keeps its output, may work in place. */
ls_tensor *t_relu(ls_graph *g, ls_tensor *x);
/* x c; keeps nothing, may work in place. */
ls_tensor *t_scale(ls_graph *g, ls_tensor *x, float c);
/* x^2 / 2; keeps a copy of x in its kept bytes, and a word that must come back. */
ls_tensor *t_square(ls_graph *g, ls_tensor *x);
/* Two outputs: *second = (a + b) / 2, which is kept, and half its square. */
ls_tensor *t_pair(ls_graph *g, ls_tensor *a, ls_tensor *b, ls_tensor **second);
/* x times 0 or 2, by step, position and node: a dropout. */
ls_tensor *t_noise(ls_graph *g, ls_tensor *x);
/* Another shape of the same elements. */
ls_tensor *t_reshape(ls_graph *g, ls_tensor *x, int ndim, const size_t *dims);
/* x, without a gradient. */
ls_tensor *t_stop(ls_graph *g, ls_tensor *x);
/* x minus the running mean (evaluation), or the batch's mean, which is observed. */
ls_tensor *t_center(ls_graph *g, ls_tensor *x);
/* Rows of a sparse table (vocab, width) at ids (batch, bag), summed. */
ls_tensor *t_bag(ls_graph *g, ls_tensor *ids, size_t vocab, size_t width);
ls_tensor *t_bag_tied(ls_graph *g, ls_tensor *ids, ls_tensor *table);
/* The same, adding to the rows of the gradient that are there. */
ls_tensor *t_bag_adding(ls_graph *g, ls_tensor *ids, ls_tensor *table);
extern ls_tensor *t_table;
/* Half the sum of squares; count: samples. The gradient is computed in forward, in place. */
ls_tensor *t_loss(ls_graph *g, ls_tensor *x);
/* The same, computed in backward from what it keeps. */
ls_tensor *t_loss_late(ls_graph *g, ls_tensor *x);

/* How often forward (backward) functions were called since these were cleared. */
extern int t_forwards, t_backwards;

/* A graph on the cpu device. */
ls_graph *t_graph(size_t batch);
/* An input of (batch, width). */
ls_tensor *t_input(ls_graph *g, size_t width);
/* Numbers in [-1, 1), a function of seed and place. */
void t_fill(float *to, size_t count, uint32_t seed);
/* Fill all inputs of type f32, and initial values of all parameters, with t_fill. */
void t_fill_all(ls_graph *g, uint32_t seed);
/* A training run with backward; returns the loss. */
double t_step(ls_graph *g);

#endif

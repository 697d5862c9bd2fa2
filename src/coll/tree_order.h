/* The fixed order of every reduction: one balanced binary tree over positions.
 *
 * Leaves 0..N-1 stand for shards or ranks. The node of size 2^k and index i covers the leaves
 * [i * 2^k, (i+1) * 2^k) that are below N; its value is left child op right child. An absent child
 * is skipped, not added as zero: a node with an absent right child equals its left child.
 *
 * Somebody who holds the leaves of a range computes the complete nodes inside it; neighbours merge
 * their node lists until node [0, N) remains. However the leaves were spread, the same additions
 * happen:
 *
 * 1. A node list is the list of maximal nodes of a contiguous range, left to right.
 * 2. Merging the node lists of adjacent ranges gives the node list of their union.
 * 3. A node is named by its present leaves [first, end) alone. A truncated node and its only child
 *    have the same name and the same value.
 *
 * All functions here never block, allocate or fail; arguments out of range are our own bugs.
 */
#ifndef LSI_COLL_TREE_ORDER_H
#define LSI_COLL_TREE_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/types.h>

#define LSI_TREE_MAX_DEPTH 9
#define LSI_TREE_MAX_LEAVES (1 << LSI_TREE_MAX_DEPTH)
#define LSI_TREE_MAX_NODES (2 * LSI_TREE_MAX_DEPTH) /* of one node list */

/* The leaves [first, end) present in the node. */
typedef struct lsi_tree_node {
    int first, end;
} lsi_tree_node;

/* The node list of the leaves [first, end) of a tree with `leaves` leaves; returns its length, 0
 * for an empty range. */
int lsi_tree_nodes(int leaves, int first, int end, lsi_tree_node nodes[LSI_TREE_MAX_NODES]);

/* One operation: value `dst` = value `left` op value `right`. Values are numbered: inputs from 0,
 * scratch from LSI_TREE_SCRATCH, outputs from LSI_TREE_OUTPUT. */
typedef struct lsi_tree_step {
    int16_t dst, left, right;
} lsi_tree_step;

#define LSI_TREE_SCRATCH 1024
#define LSI_TREE_OUTPUT 2048

/* How to turn several adjacent node lists into one. Depends on the positions only, so it is made
 * once and run on any data. */
typedef struct lsi_tree_plan {
    int n_in, n_out, n_steps;
    int source[LSI_TREE_MAX_NODES];    /* the input that output k is a copy of, or -1 */
    int steps_end[LSI_TREE_MAX_NODES]; /* output k is complete after that many steps */
    lsi_tree_step steps[LSI_TREE_MAX_LEAVES];
} lsi_tree_plan;

/* Make the plan that merges in[0..n_in-1], the concatenated node lists of adjacent ranges, left to
 * right. (Any adjacent nodes will do, maximal or not, e.g. single leaves.) The resulting node list
 * goes to `out`, its length is returned. */
int lsi_tree_merge_plan(int leaves, const lsi_tree_node *in, int n_in,
                        lsi_tree_node out[LSI_TREE_MAX_NODES], lsi_tree_plan *plan);

/* Run a plan on the inputs' values in_data[0..n_in-1], `count` elements each, and write the
 * outputs' values to out_data[0..n_out-1]. out_data[k] may equal in_data[j] exactly when input j
 * lies inside output k or to its left (so also when j == k), and may not overlap an input
 * otherwise. Works block by block: intermediate values stay in the first-level cache. */
void lsi_tree_merge_run(const lsi_tree_plan *plan, ls_dtype dtype, ls_op op,
                        const void *const *in_data, void *const *out_data, size_t count);

/* The real position that plays virtual position v in [0, P), P the power of two >= leaves, in
 * algorithms that need a power of two. v itself when v < leaves. Otherwise the largest aligned
 * block around v that lies in [leaves, P) takes the place of its left neighbour of the same size,
 * and so on until the position is a real one. */
int lsi_tree_host(int v, int leaves);

#endif

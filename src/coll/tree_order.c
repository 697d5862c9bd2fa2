/* The fixed tree: node lists and merge plans. Positions only; tree_run.c brings the data.
 *
 * A plan is the depth-first walk of the output nodes down to the inputs. Intermediate values live
 * on a stack, one for each level of the tree at most; the last step of an output writes straight
 * to its destination.
 *
 * 1. Scratch value s is written only while all scratch values below s are still needed, so there
 *    are at most as many as the tree is deep.
 * 2. The steps of output k come after those of output k - 1, and the last of them is the only one
 *    that writes output k.
 */
#include "coll/tree_order.h"

#include <assert.h>

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

int lsi_tree_nodes(int leaves, int first, int end, lsi_tree_node nodes[LSI_TREE_MAX_NODES])
{
    assert(first >= 0 && end <= leaves && leaves <= LSI_TREE_MAX_LEAVES);
    int n = 0;
    while (first < end) {
        int size = 1;
        while (size < LSI_TREE_MAX_LEAVES && (first & size) == 0 &&
               min_int(first + 2 * size, leaves) <= end)
            size *= 2;
        const int next = min_int(first + size, leaves);
        nodes[n++] = (lsi_tree_node){first, next};
        first = next;
    }
    return n;
}

/* What the walk below carries along. */
typedef struct walk {
    const lsi_tree_node *in;
    int next; /* first input not consumed yet */
    lsi_tree_plan *plan;
} walk;

/* Plan the value of node [first, end) and return its number. `scratch` is the first free scratch
 * value, `dst` where the result goes when it takes a step. */
static int plan_node(walk *w, int first, int end, int scratch, int dst)
{
    const lsi_tree_node *in = &w->in[w->next];
    assert(in->first == first && in->end <= end);
    if (in->end == end)
        return w->next++;

    int half = 1; /* leaves of the left child: the largest power of two below the node's size */
    while (2 * half < end - first)
        half *= 2;
    assert(scratch < LSI_TREE_MAX_DEPTH);
    const int left = plan_node(w, first, first + half, scratch, LSI_TREE_SCRATCH + scratch);
    const int free = left == LSI_TREE_SCRATCH + scratch ? scratch + 1 : scratch;
    const int right = plan_node(w, first + half, end, free, LSI_TREE_SCRATCH + free);
    lsi_tree_step *step = &w->plan->steps[w->plan->n_steps++];
    *step = (lsi_tree_step){(int16_t)dst, (int16_t)left, (int16_t)right};
    return dst;
}

int lsi_tree_merge_plan(int leaves, const lsi_tree_node *in, int n_in,
                        lsi_tree_node out[LSI_TREE_MAX_NODES], lsi_tree_plan *plan)
{
    assert(n_in >= 0 && n_in <= LSI_TREE_MAX_LEAVES);
    plan->n_in = n_in;
    plan->n_out = n_in == 0 ? 0 : lsi_tree_nodes(leaves, in[0].first, in[n_in - 1].end, out);
    plan->n_steps = 0;
    walk w = {in, 0, plan};
    for (int k = 0; k < plan->n_out; k++) {
        const int value = plan_node(&w, out[k].first, out[k].end, 0, LSI_TREE_OUTPUT + k);
        plan->source[k] = value < LSI_TREE_SCRATCH ? value : -1;
        plan->steps_end[k] = plan->n_steps;
    }
    assert(w.next == n_in);
    return plan->n_out;
}

int lsi_tree_host(int v, int leaves)
{
    assert(v >= 0 && leaves >= 1);
    while (v >= leaves) {
        int b = 0; /* v itself lies beyond the leaves; grow its block while all of it does */
        while (((v >> (b + 1)) << (b + 1)) >= leaves)
            b++;
        v &= ~(1 << b);
    }
    return v;
}

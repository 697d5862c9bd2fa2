/* Activation recomputation: what has to be computed again for the backward pass of a segment.
 *
 * Values inside of a segment are not kept from forward to backward. Before the segment's first
 * backward step its nodes run again, from values outside that are kept: about a third more time for
 * less memory (T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training deep nets with sublinear memory
 * cost", 2016).
 *
 * 1. The same function runs on the same values with the same counters (dropout): the same bits.
 * 2. What somebody outside of the segment keeps for its own backward pass is there already and is
 *    not computed again; nor is what nobody reads.
 * 3. The loss is never part of a segment: its gradient may stand in the place of its input.
 */
#include "graph/graph.h"

/* Does the backward pass of a node outside of the segment read this value? */
static int read_outside(const ls_graph *graph, const ls_tensor *root, int segment)
{
    for (int n = 0; n < graph->node_count; n++) {
        const lsi_node *node = graph->nodes[n];
        if (!node->backward || node->segment == segment)
            continue;
        for (int i = 0; i < node->inputs; i++)
            if (node->in[i]->root == root && lsi_reads_input(node, i))
                return 1;
    }
    return 0;
}

/* The node of the segment that has to run again for this value to exist, NULL: it is there. */
static lsi_node *maker(const ls_graph *graph, const ls_tensor *root, int first, int last)
{
    if (root->node < first || root->node >= last || root->kept_alive)
        return NULL;
    return graph->nodes[root->node];
}

void lsi_checkpoint_mark(ls_graph *graph, int segment, int first, int last)
{
    for (int n = first; n < last; n++) {
        ls_tensor *out = graph->nodes[n]->out, *second = graph->nodes[n]->second;
        out->kept_alive = out->root == out && read_outside(graph, out, segment);
        if (second)
            second->kept_alive = read_outside(graph, second, segment);
    }
    /* What backward reads. */
    for (int n = first; n < last; n++) {
        lsi_node *node = graph->nodes[n], *other;
        if (!node->backward)
            continue;
        for (int i = 0; i < node->inputs; i++)
            if (lsi_reads_input(node, i) &&
                (other = maker(graph, node->in[i]->root, first, last)) != NULL)
                other->again = 1;
        if (lsi_kept_bytes(graph, node) ||
            (lsi_reads_output(node) && maker(graph, node->out, first, last)) ||
            (lsi_reads_second(node) && maker(graph, node->second, first, last)))
            node->again = 1;
    }
    /* And what that is made of. */
    for (int n = last - 1; n >= first; n--) {
        const lsi_node *node = graph->nodes[n];
        for (int i = 0; node->again && i < node->inputs; i++) {
            lsi_node *other = maker(graph, node->in[i]->root, first, last);
            if (other)
                other->again = 1;
        }
    }
}

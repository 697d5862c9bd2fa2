/* Time by kind of operation: one entry a name, filled by run.c while profiling is on. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

ls_status lsi_profile_layout(ls_graph *graph)
{
    graph->profile = calloc((size_t)graph->node_count + 1, sizeof *graph->profile);
    if (!graph->profile)
        return lsi_fail(LS_ERR_NOMEM, NULL, "graph", "no memory for its profile");
    for (int n = 0; n < graph->node_count; n++) {
        lsi_node *node = graph->nodes[n];
        int i = 0;
        while (i < graph->profile_count && strcmp(graph->profile[i].op, node->op->name))
            i++;
        if (i == graph->profile_count)
            graph->profile[graph->profile_count++].op = node->op->name;
        node->profile = i;
    }
    return LS_OK;
}

void ls_graph_profile(ls_graph *graph, int on)
{
    if (!graph || !graph->compiled)
        return;
    for (int i = 0; on && i < graph->profile_count; i++)
        graph->profile[i] = (lsi_profile){.op = graph->profile[i].op};
    graph->profiling = on;
}

static int by_time(const void *a, const void *b)
{
    const ls_profile_entry *x = a, *y = b;
    const double s = x->forward_s + x->backward_s, t = y->forward_s + y->backward_s;
    return s != t ? (s < t ? 1 : -1) : strcmp(x->op, y->op);
}

int ls_graph_profile_entries(const ls_graph *graph, ls_profile_entry *entries, int room)
{
    int used = 0;
    ls_profile_entry *all =
        graph && graph->profile_count ? calloc((size_t)graph->profile_count, sizeof *all) : NULL;
    if (!all)
        return 0;
    for (int i = 0; i < graph->profile_count; i++) {
        const lsi_profile *p = &graph->profile[i];
        if (p->calls)
            all[used++] = (ls_profile_entry){p->op, (double)p->forward_ns * 1e-9,
                                             (double)p->backward_ns * 1e-9, p->flops, p->calls};
    }
    qsort(all, (size_t)used, sizeof *all, by_time);
    for (int i = 0; i < used && i < room; i++)
        entries[i] = all[i];
    free(all);
    return used < room ? used : room;
}

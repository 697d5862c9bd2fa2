/* Shards, ranges and folds: arithmetic. */
#include "parallel/cut.h"

int lsi_cut_shards(uint64_t samples, int shards)
{
    return samples < (uint64_t)shards ? (int)samples : shards;
}

void lsi_cut_shard(uint64_t samples, int shards, int v, uint64_t *first, uint64_t *end)
{
    *first = samples * (uint64_t)v / (uint64_t)shards;
    *end = samples * ((uint64_t)v + 1) / (uint64_t)shards;
}

void lsi_cut_range(int shards, int workers, int w, int *first, int *end)
{
    *first = (int)((int64_t)shards * w / workers);
    *end = (int)((int64_t)shards * (w + 1) / workers);
}

void lsi_cut_shares(int shards, const int32_t *sums, int workers, int w, int *first, int *end)
{
    *first = (int)((int64_t)shards * sums[w] / sums[workers]);
    *end = (int)((int64_t)shards * sums[w + 1] / sums[workers]);
}

void lsi_fold_begin(lsi_fold *fold, int leaves, int first)
{
    *fold = (lsi_fold){leaves, first, first, 0};
}

void lsi_fold_next(lsi_fold *fold, lsi_fold_step *step)
{
    lsi_tree_node nodes[LSI_TREE_MAX_NODES + 1], after[LSI_TREE_MAX_NODES];
    const int n = lsi_tree_nodes(fold->leaves, fold->first, fold->end, nodes);
    nodes[n] = (lsi_tree_node){fold->end, fold->end + 1};
    fold->n = lsi_tree_nodes(fold->leaves, fold->first, ++fold->end, after);
    step->place = n;
    step->into = fold->n - 1;
    lsi_tree_merge_plan(fold->leaves, nodes + step->into, n + 1 - step->into, after, &step->plan);
}

int lsi_fold_room(int leaves, int first, int end)
{
    lsi_tree_node nodes[LSI_TREE_MAX_NODES];
    int room = 0;
    for (int done = first; done < end; done++) {
        const int n = lsi_tree_nodes(leaves, first, done, nodes);
        room = n + 1 > room ? n + 1 : room;
    }
    return room;
}

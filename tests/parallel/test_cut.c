/* The cut of batches into shards and ranges, and folds: every division gives the tree's sum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "parallel/cut.h"

static void test_shards_cover_the_batch(void **state)
{
    (void)state;
    for (uint64_t samples = 1; samples < 130; samples++)
        for (int configured = 1; configured <= 64; configured++) {
            const int shards = lsi_cut_shards(samples, configured);
            uint64_t at = 0, least = UINT64_MAX, most = 0;
            assert_true(shards >= 1 && shards <= configured);
            for (int v = 0; v < shards; v++) {
                uint64_t first, end;
                lsi_cut_shard(samples, shards, v, &first, &end);
                assert_int_equal(first, at);
                assert_true(end > first);
                least = end - first < least ? end - first : least;
                most = end - first > most ? end - first : most;
                at = end;
            }
            assert_int_equal(at, samples);
            assert_true(most - least <= 1);
        }
}

static void test_ranges_cover_the_shards(void **state)
{
    (void)state;
    for (int shards = 1; shards <= 40; shards++)
        for (int workers = 1; workers <= 40; workers++) {
            int at = 0;
            for (int w = 0; w < workers; w++) {
                int first, end;
                lsi_cut_range(shards, workers, w, &first, &end);
                assert_int_equal(first, at);
                assert_true(end >= first && (shards < workers || end > first));
                at = end;
            }
            assert_int_equal(at, shards);
        }
}

/* Values whose sum depends on the order. */
static float leaf(int v)
{
    return (v % 3 == 0 ? 1e8f : 1.0f) * (v & 1 ? -0.7f : 1.3f) + (float)v;
}

/* The tree as DESIGN has it: node (l, i) = (l + 1, 2i) + (l + 1, 2i + 1), an absent one skipped. */
static float tree(int leaves, int size, int i)
{
    if (size == 1)
        return leaf(i);
    const int right = (2 * i + 1) * (size / 2);
    const float left = tree(leaves, size / 2, 2 * i);
    return right < leaves ? left + tree(leaves, size / 2, 2 * i + 1) : left;
}

static float whole(int leaves)
{
    int size = 1;
    while (size < leaves)
        size *= 2;
    return tree(leaves, size, 0);
}

static void test_folds_follow_the_tree(void **state)
{
    (void)state;
    for (int leaves = 1; leaves <= 33; leaves++)
        for (int workers = 1; workers <= 9; workers++) {
            lsi_tree_node nodes[64], out[LSI_TREE_MAX_NODES];
            float values[64];
            const void *in[64];
            int n = 0;
            for (int w = 0; w < workers; w++) {
                int first, end;
                float vectors[LSI_TREE_MAX_NODES + 1];
                lsi_fold fold;
                lsi_fold_step step;
                lsi_cut_range(leaves, workers, w, &first, &end);
                lsi_fold_begin(&fold, leaves, first);
                for (int v = first; v < end; v++) {
                    lsi_fold_next(&fold, &step);
                    assert_true(step.place < lsi_fold_room(leaves, first, end));
                    vectors[step.place] = leaf(v);
                    const void *from[LSI_TREE_MAX_NODES + 1];
                    for (int k = step.into; k <= step.place; k++)
                        from[k - step.into] = &vectors[k];
                    void *to = &vectors[step.into];
                    lsi_tree_merge_run(&step.plan, LS_F32, LS_SUM, from, &to, 1);
                }
                const int held = lsi_tree_nodes(leaves, first, end, nodes + n);
                assert_int_equal(held, fold.n);
                memcpy(values + n, vectors, (size_t)held * sizeof *values);
                n += held;
            }
            for (int i = 0; i < n; i++)
                in[i] = &values[i];
            lsi_tree_plan plan;
            float sum, expected = whole(leaves);
            void *to = &sum;
            assert_int_equal(lsi_tree_merge_plan(leaves, nodes, n, out, &plan), 1);
            lsi_tree_merge_run(&plan, LS_F32, LS_SUM, in, &to, 1);
            assert_memory_equal(&sum, &expected, sizeof sum);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_cover_the_batch),
        cmocka_unit_test(test_ranges_cover_the_shards),
        cmocka_unit_test(test_folds_follow_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

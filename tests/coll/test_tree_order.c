/* The fixed tree against its plain recursive definition: with symbols, so that every operand and
 * its place is seen, and with float sums that change with any other order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coll/reduce.h"
#include "coll/tree_order.h"

#define MAX_N 40

/* The definition: the node of size `size` at `first`, absent leaves skipped. Appends to `text`. */
static void define_text(int leaves, int first, int size, char *text)
{
    if (size == 1) {
        sprintf(text + strlen(text), "%d", first);
    } else if (first + size / 2 >= leaves) {
        define_text(leaves, first, size / 2, text);
    } else {
        strcat(text, "(");
        define_text(leaves, first, size / 2, text);
        strcat(text, "+");
        define_text(leaves, first + size / 2, size / 2, text);
        strcat(text, ")");
    }
}

/* The same with symbols hashed: equal numbers mean equal expressions. 0 is "absent". */
static uint64_t combine(uint64_t a, uint64_t b)
{
    uint64_t z = a * 0x9e3779b97f4a7c15u + (b ^ (b >> 29)) * 0xbf58476d1ce4e5b9u + 1;
    z ^= z >> 31;
    return z * 0x94d049bb133111ebu;
}

static uint64_t leaf(int i)
{
    return combine(0x1234567, (uint64_t)i);
}

static uint64_t define_hash(int leaves, int first, int size)
{
    if (first >= leaves)
        return 0;
    if (size == 1)
        return leaf(first);
    const uint64_t a = define_hash(leaves, first, size / 2);
    const uint64_t b = define_hash(leaves, first + size / 2, size / 2);
    return b ? combine(a, b) : a;
}

/* The value of node [first, end): of the smallest block that has these leaves. */
static uint64_t define_node(int leaves, lsi_tree_node node)
{
    int size = 1;
    while (node.first + size < node.end)
        size *= 2;
    return define_hash(leaves, node.first, size);
}

static int is_node(int leaves, int first, int end)
{
    for (int size = 1; size < 2 * MAX_N; size *= 2) {
        const int stop = first + size < leaves ? first + size : leaves;
        if (first % size == 0 && stop == end)
            return 1;
    }
    return 0;
}

/* Run a plan on symbols. */
static void run_symbols(const lsi_tree_plan *plan, const uint64_t *in, uint64_t *out)
{
    uint64_t scratch[LSI_TREE_MAX_DEPTH];
    int s = 0;
    for (int k = 0; k < plan->n_out; k++) {
        for (; s < plan->steps_end[k]; s++) {
            uint64_t operands[2];
            const int from[2] = {plan->steps[s].left, plan->steps[s].right};
            for (int j = 0; j < 2; j++)
                operands[j] =
                    from[j] < LSI_TREE_SCRATCH ? in[from[j]] : scratch[from[j] - LSI_TREE_SCRATCH];
            const int to = plan->steps[s].dst;
            uint64_t *dst =
                to < LSI_TREE_OUTPUT ? &scratch[to - LSI_TREE_SCRATCH] : &out[to - LSI_TREE_OUTPUT];
            *dst = combine(operands[0], operands[1]);
        }
        if (plan->source[k] >= 0)
            out[k] = in[plan->source[k]];
    }
    assert_int_equal(s, plan->n_steps);
}

/* A node list with its symbols. */
typedef struct list {
    int n;
    lsi_tree_node nodes[4 * LSI_TREE_MAX_NODES];
    uint64_t values[4 * LSI_TREE_MAX_NODES];
} list;

/* The node list of a range, merged from its single leaves, checked against the definition. */
static void make_list(int leaves, int first, int end, list *l)
{
    lsi_tree_node in[LSI_TREE_MAX_LEAVES], out[LSI_TREE_MAX_NODES];
    uint64_t values[LSI_TREE_MAX_LEAVES];
    for (int i = first; i < end; i++) {
        in[i - first] = (lsi_tree_node){i, i + 1};
        values[i - first] = leaf(i);
    }
    lsi_tree_plan plan;
    l->n = lsi_tree_nodes(leaves, first, end, l->nodes);
    assert_int_equal(lsi_tree_merge_plan(leaves, in, end - first, out, &plan), l->n);
    assert_memory_equal(out, l->nodes, (size_t)l->n * sizeof *out);
    run_symbols(&plan, values, l->values);
    for (int k = 0; k < l->n; k++)
        assert_true(l->values[k] == define_node(leaves, l->nodes[k]));
}

/* b appended to a and merged. */
static void merge_into(int leaves, list *a, const list *b)
{
    memcpy(a->nodes + a->n, b->nodes, (size_t)b->n * sizeof *b->nodes);
    memcpy(a->values + a->n, b->values, (size_t)b->n * sizeof *b->values);
    list result;
    lsi_tree_plan plan;
    result.n = lsi_tree_merge_plan(leaves, a->nodes, a->n + b->n, result.nodes, &plan);
    run_symbols(&plan, a->values, result.values);
    for (int k = 0; k < result.n; k++)
        assert_true(result.values[k] == define_node(leaves, result.nodes[k]));
    *a = result;
}

static void test_text(void **unused)
{
    (void)unused;
    char text[128] = "";
    define_text(5, 0, 8, text);
    assert_string_equal(text, "(((0+1)+(2+3))+4)");
    *text = 0;
    define_text(7, 0, 8, text);
    assert_string_equal(text, "(((0+1)+(2+3))+((4+5)+6))");

    /* The plan of 7 single leaves does the same, step by step. */
    lsi_tree_node in[7], out[LSI_TREE_MAX_NODES];
    for (int i = 0; i < 7; i++)
        in[i] = (lsi_tree_node){i, i + 1};
    lsi_tree_plan plan;
    assert_int_equal(lsi_tree_merge_plan(7, in, 7, out, &plan), 1);
    const int s = LSI_TREE_SCRATCH;
    const int steps[6][3] = {{s, 0, 1},     {s + 1, 2, 3},     {s, s, s + 1},
                             {s + 1, 4, 5}, {s + 1, s + 1, 6}, {LSI_TREE_OUTPUT, s, s + 1}};
    assert_int_equal(plan.n_steps, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(plan.steps[i].dst, steps[i][0]);
        assert_int_equal(plan.steps[i].left, steps[i][1]);
        assert_int_equal(plan.steps[i].right, steps[i][2]);
    }
}

/* Every range of every tree: nodes adjacent, each a node, none part of a larger one inside. */
static void test_nodes(void **unused)
{
    (void)unused;
    for (int n = 1; n <= MAX_N; n++) {
        for (int first = 0; first <= n; first++) {
            for (int end = first; end <= n; end++) {
                lsi_tree_node nodes[LSI_TREE_MAX_NODES];
                const int k = lsi_tree_nodes(n, first, end, nodes);
                int at = first;
                for (int i = 0; i < k; i++) {
                    assert_int_equal(nodes[i].first, at);
                    assert_true(nodes[i].end > at && is_node(n, at, nodes[i].end));
                    for (int stop = nodes[i].end + 1; stop <= end; stop++)
                        assert_false(is_node(n, at, stop));
                    at = nodes[i].end;
                }
                assert_int_equal(at, end);
            }
        }
    }
}

/* The longest list there is fits. */
static void test_longest_list(void **unused)
{
    (void)unused;
    lsi_tree_node nodes[LSI_TREE_MAX_NODES];
    const int n = LSI_TREE_MAX_LEAVES;
    assert_int_equal(lsi_tree_nodes(n, 1, n - 1, nodes), 2 * (LSI_TREE_MAX_DEPTH - 1));
    assert_int_equal(lsi_tree_nodes(n, 0, n, nodes), 1);
    assert_int_equal(lsi_tree_nodes(n, 0, 0, nodes), 0);
}

/* All splits into two ranges, and into three merged in either order and at once. */
static void test_splits(void **unused)
{
    (void)unused;
    for (int n = 1; n <= MAX_N; n++) {
        for (int x = 0; x <= n; x++) {
            for (int y = x; y <= n; y++) {
                list a, b, c;
                make_list(n, 0, x, &a);
                make_list(n, x, y, &b);
                make_list(n, y, n, &c);
                list a0 = a, b0 = b;
                merge_into(n, &a, &b);
                merge_into(n, &a, &c); /* (a b) c */
                merge_into(n, &b, &c);
                merge_into(n, &a0, &b); /* a (b c) */
                list all = b0;          /* all at once */
                make_list(n, 0, x, &all);
                memcpy(all.nodes + all.n, b0.nodes, (size_t)b0.n * sizeof *b0.nodes);
                memcpy(all.values + all.n, b0.values, (size_t)b0.n * sizeof *b0.values);
                all.n += b0.n;
                merge_into(n, &all, &c);
                assert_int_equal(a.n, 1);
                assert_int_equal(a0.n, 1);
                assert_int_equal(all.n, 1);
                assert_true(a.values[0] == define_hash(n, 0, 64));
                assert_true(a0.values[0] == a.values[0] && all.values[0] == a.values[0]);
            }
        }
    }
}

/* Every composition of n <= 12 into ranges, merged one after the other. */
static void test_compositions(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 12; n++) {
        for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) {
            list all = {.n = 0};
            for (int first = 0, end = 1; first < n; first = end++) {
                while (end < n && !(cuts >> (end - 1) & 1))
                    end++;
                list next;
                make_list(n, first, end, &next);
                merge_into(n, &all, &next);
            }
            assert_int_equal(all.n, 1);
            assert_true(all.values[0] == define_hash(n, 0, 16));
        }
    }
}

/* Floats of wild magnitudes: any other order shows. */
static float wild(int i, size_t j)
{
    const uint64_t r = combine(combine(7, (uint64_t)i), j);
    const float scale[] = {1e-6f, 1.0f, 1e3f, 1e7f};
    return (float)(int64_t)r * 0x1p-63f * scale[r & 3];
}

static float define_float(int leaves, int first, int size, size_t j)
{
    if (size == 1)
        return wild(first, j);
    const float a = define_float(leaves, first, size / 2, j);
    if (first + size / 2 >= leaves)
        return a;
    return a + define_float(leaves, first + size / 2, size / 2, j);
}

#define COUNT 2600 /* several blocks and a part of one */

static float *make_wild(int i, size_t count)
{
    float *x = aligned_alloc(64, (count * sizeof *x + 64) / 64 * 64);
    for (size_t j = 0; j < count; j++)
        x[j] = wild(i, j);
    return x;
}

static void check_root(const float *x, int n, size_t count)
{
    int size = 1;
    while (size < n)
        size *= 2;
    for (size_t j = 0; j < count; j++) {
        const float expected = define_float(n, 0, size, j);
        assert_memory_equal(&x[j], &expected, sizeof expected);
    }
}

/* Data, in place: each of two ranges is merged over its own leaves, then the two lists. */
static void test_run(void **unused)
{
    (void)unused;
    for (int n = 1; n <= MAX_N; n += n < 10 ? 1 : 5) {
        for (int cut = 0; cut <= n; cut += n < 10 ? 1 : 3) {
            float *data[MAX_N];
            void *lists[2 * LSI_TREE_MAX_NODES];
            lsi_tree_node nodes[2 * LSI_TREE_MAX_NODES], root[LSI_TREE_MAX_NODES];
            lsi_tree_plan plan;
            int n_nodes = 0;
            for (int i = 0; i < n; i++)
                data[i] = make_wild(i, COUNT);
            for (int part = 0; part < 2; part++) {
                const int first = part ? cut : 0, end = part ? n : cut;
                lsi_tree_node in[MAX_N];
                for (int i = first; i < end; i++)
                    in[i - first] = (lsi_tree_node){i, i + 1};
                const int k = lsi_tree_merge_plan(n, in, end - first, nodes + n_nodes, &plan);
                for (int i = 0; i < k; i++)
                    lists[n_nodes + i] = data[first + i];
                lsi_tree_merge_run(&plan, LS_F32, LS_SUM, (const void *const *)(data + first),
                                   lists + n_nodes, COUNT);
                n_nodes += k;
            }
            assert_int_equal(lsi_tree_merge_plan(n, nodes, n_nodes, root, &plan), 1);
            lsi_tree_merge_run(&plan, LS_F32, LS_SUM, (const void *const *)lists, lists, COUNT);
            check_root(lists[0], n, COUNT);
            for (int i = 0; i < n; i++)
                free(data[i]);
        }
    }
}

/* lsi_reduce_tree: to fresh outputs, and over the sources. */
static void test_reduce_tree(void **unused)
{
    (void)unused;
    const int ns[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31, 40, 256};
    const size_t counts[] = {0, 1, 3, 997, COUNT};
    for (size_t c = 0; c < sizeof ns / sizeof *ns * 5; c++) {
        const int n = ns[c / 5];
        const size_t count = counts[c % 5];
        for (int m = 1; m <= 3; m++) {
            float *sources[256], *fresh[3];
            for (int i = 0; i < n; i++)
                sources[i] = make_wild(i, count);
            for (int i = 0; i < 3; i++)
                fresh[i] = make_wild(1000, count);
            lsi_reduce_tree(LS_F32, LS_SUM, (const void *const *)sources, n, (void *const *)fresh,
                            m, count);
            for (int i = 0; i < m; i++)
                check_root(fresh[i], n, count);
            const int k = m < n ? m : n; /* backwards, the awkward way round */
            void *over[3];
            for (int i = 0; i < k; i++)
                over[i] = sources[n - 1 - i];
            lsi_reduce_tree(LS_F32, LS_SUM, (const void *const *)sources, n, over, k, count);
            for (int i = 0; i < k; i++)
                check_root(over[i], n, count);
            for (int i = 0; i < n; i++)
                free(sources[i]);
            for (int i = 0; i < 3; i++)
                free(fresh[i]);
        }
    }
}

/* Playing absent positions: real ones play themselves, and a block of absent ones is played by
 * its left neighbour block, so that both hold the same node. */
static void test_host(void **unused)
{
    (void)unused;
    for (int n = 1; n <= MAX_N; n++) {
        int p = 1;
        while (p < n)
            p *= 2;
        for (int v = 0; v < p; v++) {
            const int host = lsi_tree_host(v, n);
            assert_true(host >= 0 && host < n);
            if (v < n)
                assert_int_equal(host, v);
        }
    }
    const int five[] = {0, 1, 2, 3, 4, 4, 4, 4}, six[] = {0, 1, 2, 3, 4, 5, 4, 5},
              seven[] = {0, 1, 2, 3, 4, 5, 6, 6}, three[] = {0, 1, 2, 2};
    for (int v = 0; v < 8; v++) {
        assert_int_equal(lsi_tree_host(v, 5), five[v]);
        assert_int_equal(lsi_tree_host(v, 6), six[v]);
        assert_int_equal(lsi_tree_host(v, 7), seven[v]);
        assert_int_equal(lsi_tree_host(v / 2, 3), three[v / 2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),         cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_longest_list), cmocka_unit_test(test_splits),
        cmocka_unit_test(test_compositions), cmocka_unit_test(test_run),
        cmocka_unit_test(test_reduce_tree),  cmocka_unit_test(test_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

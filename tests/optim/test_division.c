/* Who updates which blocks does not matter: whole steps, any ranges in any order, and several
 * objects on shared state give the same bits. Norms follow one fixed tree. */
#include "arrays.h"
#include "optim/optimizer.h"

enum { STEPS = 12, WORKERS = 3 };

static const char *const names[] = {"sgd", "adam", "adamw", "lars", "lamb"};

static ls_optim_config settings_of(int n, int clip)
{
    ls_optim_config c = LS_OPTIM_CONFIG_INIT;
    c.name = names[n];
    c.lr = 0.01f;
    c.decay = 0.02f;
    c.clip = clip ? 3 : 0;
    if (n == 0)
        c.momentum = 0.9f;
    return c;
}

/* Cut [0, blocks) at random places. */
static void cut(size_t blocks, size_t *edges)
{
    edges[0] = 0;
    for (int w = 1; w < WORKERS; w++)
        edges[w] = random_word() % (blocks + 1);
    edges[WORKERS] = blocks;
    for (int i = 1; i < WORKERS; i++) {
        for (int j = i; j > 1 && edges[j] < edges[j - 1]; j--) {
            size_t t = edges[j];
            edges[j] = edges[j - 1];
            edges[j - 1] = t;
        }
    }
}

/* A step of several workers with objects of their own on one state. */
static void divided_step(ls_optimizer **workers, arrays *a, float scale)
{
    size_t edges[WORKERS + 1];
    cut(ls_optimizer_blocks(workers[0]), edges);
    for (int w = 0; w < WORKERS; w++)
        OK(ls_optimizer_begin(workers[w], scale));
    for (int r = 0; r < ls_optimizer_rounds(workers[0]); r++) {
        for (int w = WORKERS - 1; w >= 0; w--)
            OK(ls_optimizer_measure(workers[w], r, a->w, a->g, edges[w], edges[w + 1]));
        for (int w = 0; w < WORKERS; w++)
            OK(ls_optimizer_combine(workers[w], r));
    }
    for (int w = 0; w < WORKERS; w++)
        OK(ls_optimizer_update(workers[w], a->w, a->g, edges[w], edges[w + 1]));
    for (int w = 0; w < WORKERS; w++)
        ls_optimizer_end(workers[w]);
}

static void compare(const ls_optim_config *c)
{
    arrays whole = usual_arrays(), parts = whole;
    parts.w = malloc(whole.elements * sizeof(float));
    memcpy(parts.w, whole.w, whole.elements * sizeof(float));
    ls_optimizer *one = make(c, &whole), *workers[WORKERS];
    const size_t bytes = ls_optimizer_state_bytes(one);
    void *shared = aligned_alloc(64, bytes + 64);
    memset(shared, 0, bytes);
    for (int w = 0; w < WORKERS; w++) {
        workers[w] = make(c, &parts);
        assert_int_equal(ls_optimizer_state_bytes(workers[w]), bytes);
        ls_optimizer_bind(workers[w], shared);
    }
    for (int t = 0; t < STEPS; t++) {
        new_gradient(&whole);
        OK(ls_optimizer_step(one, whole.w, whole.g, 0.125f));
        divided_step(workers, &parts, 0.125f);
        assert_same_result(one, whole.w, workers[t % WORKERS], parts.w, whole.elements);
    }
    for (int w = 0; w < WORKERS; w++)
        ls_optimizer_destroy(workers[w]);
    ls_optimizer_destroy(one);
    free(shared);
    free(parts.w);
    free_arrays(&whole);
}

static void test_shared_state(void **state)
{
    (void)state;
    for (int n = 0; n < 5; n++) {
        for (int clip = 0; clip < 2; clip++) {
            const ls_optim_config c = settings_of(n, clip);
            compare(&c);
        }
    }
}

/* Without rounds, blocks may be updated one by one, in any order. */
static void test_block_by_block(void **state)
{
    (void)state;
    for (int n = 0; n < 3; n++) {
        const ls_optim_config c = settings_of(n, 0);
        arrays whole = usual_arrays(), parts = whole;
        parts.w = malloc(whole.elements * sizeof(float));
        memcpy(parts.w, whole.w, whole.elements * sizeof(float));
        ls_optimizer *a = make(&c, &whole), *b = make(&c, &parts);
        assert_int_equal(ls_optimizer_rounds(b), 0);
        for (int t = 0; t < STEPS; t++) {
            new_gradient(&whole);
            OK(ls_optimizer_step(a, whole.w, whole.g, 1));
            OK(ls_optimizer_begin(b, 0.5f));
            OK(ls_optimizer_begin(b, 1)); /* begun again: the latest counts */
            const size_t blocks = ls_optimizer_blocks(b);
            for (size_t i = 0; i < blocks; i++)
                OK(ls_optimizer_update(b, parts.w, whole.g, blocks - 1 - i, blocks - i));
            ls_optimizer_end(b);
        }
        assert_same_result(a, whole.w, b, parts.w, whole.elements);
        assert_int_equal(ls_optimizer_update(b, parts.w, whole.g, 1, 99), LS_ERR_INVALID);
        assert_int_equal(ls_optimizer_update(b, parts.w, whole.g, 2, 1), LS_ERR_INVALID);
        assert_int_equal(ls_optimizer_measure(b, 0, parts.w, whole.g, 0, 1), LS_ERR_INVALID);
        assert_int_equal(ls_optimizer_combine(b, 0), LS_ERR_INVALID);
        ls_optimizer_destroy(a);
        ls_optimizer_destroy(b);
        free(parts.w);
        free_arrays(&whole);
    }
}

/* Workers without shared memory: state arrays apart, sums exchanged as ls_optimizer_sums gives
 * them. */
static void test_exchanged_sums(void **state)
{
    (void)state;
    for (int n = 3; n < 5; n++) {
        const ls_optim_config c = settings_of(n, 1);
        arrays whole = usual_arrays();
        float *w = malloc(whole.elements * sizeof(float));
        memcpy(w, whole.w, whole.elements * sizeof(float));
        ls_optimizer *one = make(&c, &whole), *left = make(&c, &whole), *right = make(&c, &whole);
        const size_t blocks = ls_optimizer_blocks(one);
        new_gradient(&whole);
        OK(ls_optimizer_begin(left, 1));
        OK(ls_optimizer_begin(right, 1));
        const size_t middle = blocks / 2;
        for (int r = 0; r < ls_optimizer_rounds(one); r++) {
            OK(ls_optimizer_measure(left, r, w, whole.g, 0, middle));
            OK(ls_optimizer_measure(right, r, w, whole.g, middle, blocks));
            for (int i = 0;; i++) {
                size_t a, b, c2;
                double *from = ls_optimizer_sums(left, r, i, 0, middle, &a);
                if (!from) {
                    assert_true(i > 0);
                    break;
                }
                memcpy(ls_optimizer_sums(right, r, i, 0, middle, &c2), from, a * sizeof *from);
                assert_int_equal(a, c2);
                from = ls_optimizer_sums(right, r, i, middle, blocks, &b);
                memcpy(ls_optimizer_sums(left, r, i, middle, blocks, &c2), from, b * sizeof *from);
                assert_int_equal(a + b, one->pieces);
            }
            OK(ls_optimizer_combine(left, r));
            OK(ls_optimizer_combine(right, r));
        }
        OK(ls_optimizer_update(left, w, whole.g, 0, middle));
        OK(ls_optimizer_update(right, w, whole.g, middle, blocks));
        OK(ls_optimizer_step(one, whole.w, whole.g, 1));
        assert_same_bits(w, whole.w, whole.elements, "parameters");
        ls_optimizer_destroy(one);
        ls_optimizer_destroy(left);
        ls_optimizer_destroy(right);
        free(w);
        free_arrays(&whole);
    }
}

/* The tree: neighbours first, what is left over on the right joins where its level ends. */
static double by_levels(const double *values, size_t n)
{
    double level[600];
    memcpy(level, values, n * sizeof *level);
    for (; n > 1; n = (n + 1) / 2) {
        for (size_t i = 0; i < (n + 1) / 2; i++)
            level[i] = 2 * i + 1 < n ? level[2 * i] + level[2 * i + 1] : level[2 * i];
    }
    return level[0];
}

static void test_tree(void **state)
{
    (void)state;
    double values[600];
    int sequential = 1;
    for (size_t i = 0; i < 600; i++)
        values[i] = exp(20 * (double)random_float());
    assert_true(lsi_optim_tree(values, 0) == 0);
    for (size_t n = 1; n <= 600; n++) {
        assert_true(lsi_optim_tree(values, n) == by_levels(values, n));
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += values[i];
        sequential = sequential && sum == by_levels(values, n);
    }
    assert_false(sequential); /* else the comparison above says nothing */
}

/* Parameters, state and step are enough to go on elsewhere. */
static void test_continue(void **state)
{
    (void)state;
    for (int n = 0; n < 5; n++) {
        ls_optim_config c = settings_of(n, 1);
        c.schedule = "linear";
        c.steps = 30;
        arrays a = usual_arrays();
        float *w = malloc(a.elements * sizeof(float));
        ls_optimizer *o = make(&c, &a), *later = make(&c, &a);
        new_gradient(&a);
        for (int t = 0; t < 5; t++)
            OK(ls_optimizer_step(o, a.w, a.g, 1));
        memcpy(w, a.w, a.elements * sizeof(float));
        for (int i = 0; ls_optimizer_state(o, i, NULL); i++)
            memcpy(ls_optimizer_state(later, i, NULL), ls_optimizer_state(o, i, NULL),
                   a.elements * sizeof(float));
        ls_optimizer_set_step(later, ls_optimizer_get_step(o));
        for (int t = 0; t < 5; t++) {
            OK(ls_optimizer_step(o, a.w, a.g, 1));
            OK(ls_optimizer_step(later, w, a.g, 1));
        }
        assert_same_result(o, a.w, later, w, a.elements);
        ls_optimizer_destroy(o);
        ls_optimizer_destroy(later);
        free(w);
        free_arrays(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_state),   cmocka_unit_test(test_block_by_block),
        cmocka_unit_test(test_exchanged_sums), cmocka_unit_test(test_tree),
        cmocka_unit_test(test_continue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Sparse parameters: rows that are left alone and made up for later have the bits of rows that were
 * updated in every step, for any pattern of use, division of work and length of idleness. */
#include "arrays.h"
#include "optim/optimizer.h"

/* Steps of these tests begin with this: soon one settles (256), and the rows whose turn it is to be
 * brought up to date lie where a block of 4096 elements ends and another begins. */
enum { START = 240 };

/* The same parameters twice: `lazy` with sparse tables, `dense` with gradients full of zeros. */
typedef struct pair {
    arrays lazy, dense;
    ls_optimizer *a, *b;
    int32_t *ids[MOST_PARAMS];
    float *values[MOST_PARAMS];
    size_t used[MOST_PARAMS];
} pair;

static void pair_open(pair *p, const ls_optim_config *c)
{
    memset(p, 0, sizeof *p);
    add_param(&p->lazy, "top.bias", 1, 5, 1, 0);
    add_param(&p->lazy, "tables.0", 700, 16, 0, 1);
    add_param(&p->lazy, "middle.weight", 50, 31, 0, 0);
    add_param(&p->lazy, "tables.1", 300, 48, 0, 1); /* rows that blocks cut at multiples of 16, */
    add_param(&p->lazy, "tables.2", 1100, 7, 1, 1); /* and elsewhere */
    add_param(&p->lazy, "tables.3", 3, 5000, 0, 1); /* rows longer than a block */
    add_param(&p->lazy, "bottom.weight", 40, 13, 0, 0);
    fill(&p->lazy);
    p->dense = p->lazy;
    p->dense.w = malloc(p->lazy.elements * sizeof(float));
    p->dense.g = calloc(p->lazy.elements, sizeof(float));
    memcpy(p->dense.w, p->lazy.w, p->lazy.elements * sizeof(float));
    for (int i = 0; i < p->dense.count; i++) {
        const ls_param_info *info = &p->lazy.info[i];
        p->dense.info[i].sparse = 0;
        p->ids[i] = malloc(info->dims[0] * sizeof(int32_t));
        p->values[i] = malloc(info->count * sizeof(float));
    }
    p->a = make(c, &p->lazy);
    p->b = make(c, &p->dense);
    ls_optimizer_set_step(p->a, START);
    ls_optimizer_set_step(p->b, START);
}

static void pair_close(pair *p)
{
    for (int i = 0; i < p->dense.count; i++) {
        free(p->ids[i]);
        free(p->values[i]);
    }
    ls_optimizer_destroy(p->a);
    ls_optimizer_destroy(p->b);
    free_arrays(&p->lazy);
    free_arrays(&p->dense);
}

/* A gradient in both forms: each row of a table is used with the probability one in `odds`. */
static void pair_gradient(pair *p, unsigned odds)
{
    for (int i = 0; i < p->lazy.count; i++) {
        const ls_param_info *info = &p->lazy.info[i];
        const size_t width = info->dims[1];
        float *dense = p->dense.g + info->offset;
        p->used[i] = 0;
        if (!info->sparse) {
            for (size_t e = 0; e < info->count; e++)
                dense[e] = p->lazy.g[info->offset + e] = 5 * random_float();
            continue;
        }
        memset(dense, 0, info->count * sizeof *dense);
        for (size_t e = 0; e < info->count; e++)
            p->lazy.g[info->offset + e] = NAN; /* not to be read */
        for (size_t row = 0; row < info->dims[0]; row++) {
            if (random_word() % odds)
                continue;
            const float size =
                row % 5 ? 1 : 1e-30f; /* such moments become zero where steps settle */
            for (size_t e = 0; e < width; e++)
                dense[row * width + e] = p->values[i][p->used[i] * width + e] =
                    size * random_float();
            p->ids[i][p->used[i]++] = (int32_t)row;
        }
    }
}

static void pair_give(pair *p, ls_optimizer *to)
{
    for (int i = 0; i < p->lazy.count; i++) {
        const ls_sparse_grad grad = {p->used[i], p->lazy.info[i].dims[1], p->ids[i], p->values[i]};
        if (p->lazy.info[i].sparse)
            OK(ls_optimizer_sparse(to, i, &grad));
    }
}

/* Rows that a forward pass would read are those of the dense result. */
static void pair_touch(pair *p)
{
    for (int i = 0; i < p->lazy.count; i++) {
        const size_t width = p->lazy.info[i].dims[1], offset = p->lazy.info[i].offset;
        OK(ls_optimizer_touch(p->a, p->lazy.w, i, p->ids[i], p->used[i], 1));
        for (size_t u = 0; u < p->used[i]; u++) {
            const size_t at = offset + (size_t)p->ids[i][u] * width;
            assert_same_bits(p->lazy.w + at, p->dense.w + at, width, "a row that was touched");
        }
    }
}

static void pair_step(pair *p, unsigned odds, int touch)
{
    pair_gradient(p, odds);
    if (touch)
        pair_touch(p);
    pair_give(p, p->a);
    OK(ls_optimizer_step(p->a, p->lazy.w, p->lazy.g, 0.25f));
    OK(ls_optimizer_step(p->b, p->dense.w, p->dense.g, 0.25f));
}

static void pair_compare(pair *p)
{
    OK(ls_optimizer_flush(p->a, p->lazy.w));
    assert_same_result(p->a, p->lazy.w, p->b, p->dense.w, p->lazy.elements);
}

static int variants(int i, ls_optim_config *c)
{
    static const struct {
        const char *name;
        float momentum, decay, clip;
        int nesterov;
    } all[] = {
        {"sgd", 0, 0, 0, 0},     {"sgd", 0, 0.1f, 0, 0},    {"sgd", 0.9f, 0, 0, 0},
        {"sgd", 0.9f, 0, 9, 1},  {"sgd", 0.8f, 0.1f, 0, 1}, {"adam", 0, 0, 0, 0},
        {"adam", 0, 0.1f, 9, 0}, {"adamw", 0, 0.1f, 0, 0},  {"lars", 0.9f, 0.1f, 9, 0},
        {"lamb", 0, 0.1f, 0, 0}, {"lamb", 0, 0, 9, 0},
    };
    if (i >= (int)(sizeof all / sizeof *all))
        return 0;
    *c = (ls_optim_config)LS_OPTIM_CONFIG_INIT;
    c->name = all[i].name;
    c->momentum = all[i].momentum;
    c->decay = all[i].decay;
    c->clip = all[i].clip;
    c->nesterov = all[i].nesterov;
    c->lr = 0.02f;
    c->schedule = "cosine";
    c->steps = START + 40;
    c->min_lr = 0.001f;
    return 1;
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "ref"};
    ls_optim_config c;
    for (int i = 0; variants(i, &c); i++) {
        for (int d = 0; d < 2; d++) {
            pair p;
            c.device = devices[d];
            pair_open(&p, &c);
            for (int t = 0; t < 30; t++) {
                pair_step(&p, t % 3 ? 40 : 4, t % 5 != 4);
                if (t == 20)
                    pair_compare(&p);
            }
            pair_compare(&p);
            pair_close(&p);
        }
    }
}

/* Three workers on shared state, each with the blocks of its part. */
static void test_divided(void **state)
{
    (void)state;
    ls_optim_config c;
    for (int v = 0; variants(v, &c); v++) {
        pair p;
        pair_open(&p, &c);
        const size_t bytes = ls_optimizer_state_bytes(p.a), blocks = ls_optimizer_blocks(p.a);
        void *shared = aligned_alloc(64, bytes + 64);
        memset(shared, 0, bytes);
        ls_optimizer *worker[3];
        for (int w = 0; w < 3; w++) {
            worker[w] = make(&c, &p.lazy);
            ls_optimizer_bind(worker[w], shared);
            ls_optimizer_set_step(worker[w], START);
        }
        for (int t = 0; t < 40; t++) {
            const size_t one = t % 2 ? 1 : random_word() % (blocks + 1);
            const size_t edges[] = {0, one, one + random_word() % (blocks + 1 - one), blocks};
            pair_gradient(&p, 30);
            for (int w = 0; w < 3; w++) {
                pair_give(&p, worker[w]);
                OK(ls_optimizer_begin(worker[w], 0.25f));
            }
            for (int r = 0; r < ls_optimizer_rounds(p.a); r++) {
                for (int w = 0; w < 3; w++)
                    OK(ls_optimizer_measure(worker[w], r, p.lazy.w, p.lazy.g, edges[w],
                                            edges[w + 1]));
                for (int w = 0; w < 3; w++)
                    OK(ls_optimizer_combine(worker[w], r));
            }
            for (int w = 2; w >= 0; w--)
                OK(ls_optimizer_update(worker[w], p.lazy.w, p.lazy.g, edges[w], edges[w + 1]));
            for (int w = 0; w < 3; w++)
                ls_optimizer_end(worker[w]);
            OK(ls_optimizer_step(p.b, p.dense.w, p.dense.g, 0.25f));
        }
        OK(ls_optimizer_flush(worker[1], p.lazy.w));
        assert_same_result(worker[2], p.lazy.w, p.b, p.dense.w, p.lazy.elements);
        for (int w = 0; w < 3; w++)
            ls_optimizer_destroy(worker[w]);
        free(shared);
        pair_close(&p);
    }
}

/* Rows that nobody uses for longer than the history: none is forgotten. */
static void test_long_idle(void **state)
{
    (void)state;
    for (int adam = 0; adam < 2; adam++) {
        ls_optim_config c = LS_OPTIM_CONFIG_INIT;
        c.name = adam ? "adamw" : "sgd";
        c.momentum = adam ? 0 : 0.99f;
        c.decay = 0.01f;
        arrays a = {.count = 0};
        add_param(&a, "table", 50, 16, 0, 1);
        fill(&a);
        arrays b = a;
        b.w = malloc(a.elements * sizeof(float));
        memcpy(b.w, a.w, a.elements * sizeof(float));
        ls_optimizer *lazy = make(&c, &a), *dense;
        b.info[0].sparse = 0;
        dense = make(&c, &b);
        new_gradient(&b);
        int32_t ids[50];
        for (int i = 0; i < 50; i++)
            ids[i] = i;
        const ls_sparse_grad all = {50, 16, ids, b.g}, none = {0, 16, NULL, NULL};
        for (size_t t = 0; t < 2 * LSI_RATES + 300; t++) {
            OK(ls_optimizer_sparse(lazy, 0, t == 0 ? &all : &none));
            OK(ls_optimizer_step(lazy, a.w, NULL, 1));
            OK(ls_optimizer_step(dense, b.w, b.g, 1));
            memset(b.g, 0, b.elements * sizeof *b.g);
        }
        for (int i = 0; i < 50; i++)
            assert_true((uint32_t)ls_optimizer_get_step(lazy) - lazy->stamps[i] < LSI_RATES);
        OK(ls_optimizer_touch(lazy, a.w, 0, ids, 25, 2));
        OK(ls_optimizer_touch(lazy, a.w, 0, ids + 1, 25, 2));
        assert_same_result(lazy, a.w, dense, b.w, a.elements);
        ls_optimizer_destroy(lazy);
        ls_optimizer_destroy(dense);
        free(b.w);
        free_arrays(&a);
    }
}

/* Saved after a flush and continued elsewhere, also with a step number beyond 32 bits. */
static void test_continue(void **state)
{
    (void)state;
    ls_optim_config c = LS_OPTIM_CONFIG_INIT;
    c.name = "adam";
    pair p;
    pair_open(&p, &c);
    ls_optimizer_set_step(p.a, UINT32_MAX - 3u);
    ls_optimizer_set_step(p.b, UINT32_MAX - 3u);
    for (int t = 0; t < 8; t++)
        pair_step(&p, 20, 1);
    pair_compare(&p);
    ls_optimizer *later = make(&c, &p.lazy);
    for (int i = 0; ls_optimizer_state(later, i, NULL); i++)
        memcpy(ls_optimizer_state(later, i, NULL), ls_optimizer_state(p.a, i, NULL),
               p.lazy.elements * sizeof(float));
    ls_optimizer_set_step(later, ls_optimizer_get_step(p.a));
    assert_int_equal(ls_optimizer_get_step(later), (uint64_t)UINT32_MAX + 5);
    ls_optimizer_destroy(p.a);
    p.a = later;
    for (int t = 0; t < 8; t++)
        pair_step(&p, 20, 1);
    pair_compare(&p);
    pair_close(&p);
}

static void says(ls_status status, const char *words)
{
    assert_int_equal(status, LS_ERR_INVALID);
    if (!strstr(ls_last_error(), words))
        fail_msg("'%s' does not say '%s'", ls_last_error(), words);
}

static void test_errors(void **state)
{
    (void)state;
    for (int clip = 0; clip < 2; clip++) {
        ls_optim_config c = LS_OPTIM_CONFIG_INIT;
        c.momentum = 0.9f;
        c.clip = (float)clip;
        pair p;
        pair_open(&p, &c);
        pair_gradient(&p, 10);
        says(ls_optimizer_step(p.a, p.lazy.w, p.lazy.g, 1), "tables.0 is missing");
        int32_t ids[] = {3, 3, 700};
        const ls_sparse_grad twice = {2, 16, ids, p.values[1]};
        const ls_sparse_grad outside = {1, 16, ids + 2, p.values[1]};
        const ls_sparse_grad narrow = {1, 15, ids, p.values[1]};
        says(ls_optimizer_sparse(p.a, 1, &twice), "tables.0 are not ascending: 3 after 3");
        says(ls_optimizer_sparse(p.a, 1, &outside), "tables.0 has no row 700 of 700");
        says(ls_optimizer_sparse(p.a, 1, &narrow), "tables.0 have 16 elements, not 15");
        says(ls_optimizer_sparse(p.a, 0, &narrow), "parameter 0 is not a sparse one");
        says(ls_optimizer_sparse(p.a, 99, &narrow), "parameter 99 is not");
        ids[0] = -1;
        says(ls_optimizer_touch(p.a, p.lazy.w, 1, ids, 1, 1), "has no row -1 of 700");
        says(ls_optimizer_touch(p.a, p.lazy.w, -1, ids, 1, 1), "no parameter -1");
        OK(ls_optimizer_touch(p.a, p.lazy.w, 0, ids, 1, 1)); /* not sparse: nothing to do */
        pair_step(&p, 10, 1);                                /* nothing of this has done harm */
        says(ls_optimizer_step(p.a, p.lazy.w, p.lazy.g, 1), "tables.0 is missing"); /* used up */
        pair_compare(&p);
        pair_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_divided),
        cmocka_unit_test(test_long_idle), cmocka_unit_test(test_continue),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Parameters: initial values, layout, buffers; sparse gradients and how they merge. */
#include "ops.h"

#include <math.h>

#include "base/philox.h"
#include "base/sha256.h"

/* ---- initial values ------------------------------------------------------------------------- */

static ls_tensor blank(const char *name, ls_init_kind init, float scale, size_t count)
{
    ls_tensor param = {.name = name, .count = count, .ndim = 1, .dims = {count}};
    param.config.init = init;
    param.config.init_scale = scale;
    OK(lsi_init_stream(&param));
    return param;
}

static void test_normal(void **state)
{
    (void)state;
    enum { N = 200001 };
    float *x = malloc(N * sizeof *x), part[7];
    ls_tensor param = blank("h.0.weight", LS_INIT_NORMAL, 0.5f, N);
    lsi_init_values(42, &param, x);
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < N; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        fourth += pow((double)x[i], 4);
    }
    assert_true(fabs(sum / N) < 0.005);
    assert_true(fabs(squares / N - 0.25) < 0.003);
    assert_true(fabs(fourth / N - 3 * 0.0625) < 0.006);
    /* A shorter one of the same name has the same beginning. */
    param.count = 7;
    lsi_init_values(42, &param, part);
    assert_memory_equal(part, x, sizeof part);

    /* Against the mathematical library: pair i is made of block i. */
    unsigned char digest[LSI_SHA256_BYTES];
    OK(lsi_sha256_of("h.0.weight", 10, digest));
    for (uint32_t i = 0; i < 3000; i++) {
        const uint32_t high = (uint32_t)digest[0] << 24 | (uint32_t)digest[1] << 16 |
                              (uint32_t)digest[2] << 8 | digest[3];
        const uint32_t low = (uint32_t)digest[4] << 24 | (uint32_t)digest[5] << 16 |
                             (uint32_t)digest[6] << 8 | digest[7];
        uint32_t w[4];
        lsi_philox((uint32_t[4]){i, 0, high, low}, (uint32_t[2]){42, 0}, w);
        const double u = 1 - (double)((uint64_t)w[0] << 20 | w[1] >> 12) * 0x1p-52;
        const double v = (double)((uint64_t)w[2] << 20 | w[3] >> 12) * 0x1p-52;
        const double r = sqrt(-2 * log(u)), a = 2 * 3.14159265358979323846 * v;
        assert_true(fabs((double)x[2 * i] - 0.5 * r * cos(a)) < 1e-6);
        assert_true(fabs((double)x[2 * i + 1] - 0.5 * r * sin(a)) < 1e-6);
    }
    /* The bits are part of what a configuration means: they never change. */
    char hex[LSI_SHA256_HEX];
    OK(lsi_sha256_of(x, N * sizeof *x, digest));
    lsi_sha256_hex(digest, hex);
    assert_string_equal(hex, "8f24febba7d772a6bd1a691e28f2c4f5878c5e45a5b692f9a3d1161a3be3c250");
    free(x);
}

static void test_uniform(void **state)
{
    (void)state;
    enum { N = 100000 };
    float *x = malloc(N * sizeof *x), low = 0, high = 0;
    double sum = 0;
    ls_tensor param = blank("w", LS_INIT_UNIFORM, 0.1f, N);
    lsi_init_values(1, &param, x);
    for (int i = 0; i < N; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
        sum += (double)x[i];
        assert_true(x[i] >= -0.1f && x[i] < 0.1f);
    }
    assert_true(low < -0.0999f && high > 0.0999f && fabs(sum / N) < 0.001);
    unsigned char digest[LSI_SHA256_BYTES];
    char hex[LSI_SHA256_HEX];
    OK(lsi_sha256_of(x, N * sizeof *x, digest));
    lsi_sha256_hex(digest, hex);
    assert_string_equal(hex, "49b4c9800bd481472f2f3403ee7f6d778c0906b237bf993cbf43c280d7e67cc2");
    free(x);
}

/* A weight depends on its name and the seed, not on what else is in the graph, nor on the order. */
static void test_by_name(void **state)
{
    (void)state;
    float found[3][16];
    for (int mode = 0; mode < 3; mode++) {
        ls_graph_config config = LS_GRAPH_CONFIG_INIT;
        config.batch = mode ? 3 : 2;
        config.seed = mode == 2 ? 8 : 7;
        ls_graph *g;
        OK(ls_graph_create(&config, &g));
        ls_tensor *x = t_input(g, 16);
        if (mode)
            x = t_dense(g, x, 16);
        ls_name(g, "fc");
        x = t_affine(g, x);
        OK(ls_graph_compile(g, t_loss(g, t_affine(g, x)), NULL));
        ls_param_info info;
        for (int i = 0; i < ls_graph_param_count(g); i++) {
            OK(ls_graph_param(g, i, &info));
            if (!strcmp(info.name, "fc.weight"))
                memcpy(found[mode], ls_graph_params(g) + info.offset, sizeof found[mode]);
        }
        ls_graph_destroy(g);
    }
    assert_memory_equal(found[0], found[1], sizeof found[0]);
    assert_memory_not_equal(found[0], found[2], sizeof found[0]);
}

static void test_init_elsewhere(void **state)
{
    (void)state;
    ls_graph *g = t_graph(2);
    OK(ls_graph_compile(g, t_loss(g, t_affine(g, t_dense(g, t_input(g, 5), 3))), NULL));
    const size_t n = ls_graph_param_elements(g);
    assert_int_equal(n, 16 + 16 + 16);
    float *shared = malloc(n * sizeof *shared), gap = -1;
    memset(shared, 0xff, n * sizeof *shared);
    ls_graph_bind(g, shared, NULL);
    ls_graph_init(g);
    ls_graph_bind(g, NULL, NULL);
    const float *own = ls_graph_params(g);
    ls_param_info info;
    for (int i = 0; i < ls_graph_param_count(g); i++) {
        OK(ls_graph_param(g, i, &info));
        assert_memory_equal(shared + info.offset, own + info.offset, info.count * sizeof *own);
        for (size_t k = info.offset + info.count; k % 16; k++) {
            gap = own[k];
            assert_true(gap == 0 && ls_graph_grads(g)[k] == 0);
        }
    }
    assert_true(gap == 0);
    ls_graph_params(g)[0] = 77;
    ls_graph_init(g);
    assert_true(own[0] != 77);
    free(shared);
    ls_graph_destroy(g);
}

/* ---- buffers -------------------------------------------------------------------------------- */

static void test_buffers(void **state)
{
    (void)state;
    ls_graph *g = t_graph(2);
    ls_tensor *x = t_input(g, 2), *y = t_center(g, t_affine(g, x));
    y = t_center(g, y);
    OK(ls_graph_compile(g, t_loss(g, y), y));
    assert_int_equal(ls_graph_param_count(g), 2);
    assert_int_equal(ls_graph_buffer_count(g), 2);
    assert_int_equal(ls_graph_buffer_elements(g), 32);
    ls_param_info info;
    OK(ls_graph_buffer(g, 1, &info));
    assert_string_equal(info.name, "center2.running_mean");
    assert_int_equal(info.offset, 16);
    assert_int_equal(ls_graph_buffer(g, 2, &info), LS_ERR_INVALID);
    float *running = ls_graph_buffers(g);
    assert_true(running[0] == 1 && running[1] == 1 && running[2] == 0 && running[17] == 1);
    ls_graph_params(g)[0] = ls_graph_params(g)[1] = 1;
    memcpy(ls_input_data(g, x), (float[]){1, 2, 5, 4}, 4 * sizeof(float));
    t_step(g);
    const float *observed = ls_graph_observed(g);
    assert_true(observed[0] == 3 && observed[1] == 3 && observed[16] == 0);
    assert_true(running[0] == 1); /* combined by the caller */
    ls_graph_observe(g, observed, 0.25f);
    assert_true(running[0] == 1.5f && running[16] == 0.75f && running[2] == 0);
    ls_run_config config = LS_RUN_CONFIG_INIT;
    OK(ls_graph_run(g, &config, NULL));
    assert_true(ls_output_data(g)[0] == 1 - 1.5f - 0.75f);
    assert_true(observed[0] == 3); /* evaluation observes nothing */
    ls_graph_destroy(g);
}

/* ---- sparse gradients ----------------------------------------------------------------------- */

static void merge(lsi_device *device, lsi_sparse *sparse, size_t rows, const int32_t *ids)
{
    float values[40];
    for (size_t i = 0; i < rows * 2; i++)
        values[i] = (float)ids[i / 2] + (i % 2 ? 0.5f : 0);
    OK(lsi_sparse_merge(device, sparse, rows, ids, values));
}

static void test_merge(void **state)
{
    (void)state;
    lsi_device *device;
    OK(lsi_device_open(NULL, &device));
    lsi_sparse sparse = {.width = 2};
    static const int32_t lists[][6] = {{3, 5, 9, -1},        {-1},    {1, 5, 20, -1},
                                       {1, 3, 5, 9, 20, -1}, {0, -1}, {21, 22, -1}};
    int times[40] = {0};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        size_t rows = 0, distinct = 0;
        for (; lists[l][rows] >= 0; rows++)
            times[lists[l][rows]]++;
        merge(device, &sparse, rows, lists[l]);
        for (int32_t id = 0; id < 40; id++)
            if (times[id]) {
                const float *row = (float *)sparse.values.data + 2 * distinct;
                assert_int_equal(((int32_t *)sparse.ids.data)[distinct++], id);
                assert_true(row[0] == (float)times[id] * (float)id);
                assert_true(row[1] == (float)times[id] * ((float)id + 0.5f));
            }
        assert_int_equal(sparse.rows, distinct);
        assert_true(sparse.room >= distinct);
    }
    lsi_block_free(device, &sparse.ids);
    lsi_block_free(device, &sparse.values);
    lsi_device_close(device);
}

/* Sums in the order of arrival: (a + b) + c, not a + (b + c). */
static void test_merge_order(void **state)
{
    (void)state;
    lsi_device *device;
    OK(lsi_device_open(NULL, &device));
    lsi_sparse sparse = {.width = 1};
    const float values[] = {1, 0x1p-24f, 0x1p-24f};
    for (int i = 0; i < 3; i++)
        OK(lsi_sparse_merge(device, &sparse, 1, (int32_t[]){4}, &values[i]));
    assert_true(*(float *)sparse.values.data == 1);
    lsi_block_free(device, &sparse.ids);
    lsi_block_free(device, &sparse.values);
    lsi_device_close(device);
}

static void dense_of(ls_graph *g, int index, float *dense, size_t vocab, size_t width)
{
    ls_sparse_grad sparse;
    OK(ls_graph_sparse_grad(g, index, &sparse));
    assert_int_equal(sparse.width, width);
    memset(dense, 0, vocab * width * sizeof *dense);
    for (size_t i = 0; i < sparse.rows; i++) {
        assert_true(i == 0 || sparse.ids[i] > sparse.ids[i - 1]);
        memcpy(dense + (size_t)sparse.ids[i] * width, sparse.values + i * width,
               width * sizeof *dense);
    }
}

/* Two bags on one table and one on another; accumulated over two runs. */
static void test_sparse(void **state)
{
    (void)state;
    enum { VOCAB = 11, WIDTH = 3 };
    ls_graph *g = t_graph(2);
    ls_tensor *ids = ls_input(g, "ids", LS_I32, 1, (size_t[]){2});
    ls_tensor *more = ls_input(g, "more", LS_I32, 1, (size_t[]){3});
    ls_tensor *a = t_bag(g, ids, VOCAB, WIDTH);
    ls_tensor *b = t_bag_tied(g, more, t_table), *table = t_table;
    ls_tensor *y = t_add(g, t_add(g, a, t_scale(g, b, 2)), t_bag(g, ids, VOCAB + 1, WIDTH));
    OK(ls_graph_compile(g, t_loss(g, y), y));
    assert_int_equal(ls_graph_param_count(g), 2);
    const int tied = table->index, alone = 1 - table->index;
    ls_param_info info;
    OK(ls_graph_param(g, tied, &info));
    assert_int_equal(info.sparse, 1);
    for (size_t i = 0; i < ls_graph_param_elements(g); i++)
        ls_graph_grads(g)[i] = 123;
    memcpy(ls_input_data(g, ids), (int32_t[]){3, 7, 7, 0}, 4 * sizeof(int32_t));
    memcpy(ls_input_data(g, more), (int32_t[]){7, 10, 7, 3, 3, 1}, 6 * sizeof(int32_t));

    ls_sparse_ids reads; /* who reads which rows */
    OK(ls_graph_sparse_ids(g, tied, 1, &reads));
    assert_int_equal(reads.count, 6);
    assert_int_equal(reads.stride, 1);
    assert_ptr_equal(reads.ids, ls_input_data(g, more));
    OK(ls_graph_sparse_ids(g, alone, 0, &reads));
    assert_ptr_equal(reads.ids, ls_input_data(g, ids));
    assert_int_equal(ls_graph_sparse_ids(g, tied, 2, &reads), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_graph_sparse_ids(g, alone, 1, &reads), LS_ERR_NOT_FOUND);

    ls_run_config config = LS_RUN_CONFIG_INIT;
    OK(ls_graph_run(g, &config, NULL));
    float dy[2 * WIDTH], dense[(VOCAB + 1) * WIDTH], expected[VOCAB * WIDTH] = {0};
    memcpy(dy, ls_output_data(g), sizeof dy); /* of this loss, the gradient */
    static const float sample[2][VOCAB] = {{[3] = 1, [7] = 1 + 4, [10] = 2},
                                           {[7] = 1, [0] = 1, [3] = 4, [1] = 2}};
    for (int run = 0; run < 3; run++) {
        config.backward = 1;
        config.accumulate = run > 0;
        OK(ls_graph_run(g, &config, NULL));
        dense_of(g, tied, dense, VOCAB, WIDTH);
        for (int i = 0; i < VOCAB * WIDTH; i++) {
            expected[i] = (float)(run + 1) * (sample[0][i / WIDTH] * dy[i % WIDTH] +
                                              sample[1][i / WIDTH] * dy[WIDTH + i % WIDTH]);
            assert_true(fabsf(dense[i] - expected[i]) < 1e-5f * (1 + fabsf(expected[i])));
        }
        ls_sparse_grad sparse;
        OK(ls_graph_sparse_grad(g, tied, &sparse));
        assert_int_equal(sparse.rows, 5);
        OK(ls_graph_sparse_grad(g, alone, &sparse));
        assert_int_equal(sparse.rows, 3);
    }
    config.accumulate = 0; /* and from the start again */
    OK(ls_graph_run(g, &config, NULL));
    ls_sparse_grad sparse;
    OK(ls_graph_sparse_grad(g, alone, &sparse));
    assert_int_equal(sparse.ids[2], 7);
    assert_true(sparse.values[6] == dy[0] + dy[WIDTH]);
    OK(ls_graph_param(g, tied, &info)); /* its part of the array is left alone, */
    assert_true(ls_graph_grads(g)[info.offset] == 123);

    ((int32_t *)ls_input_data(g, ids))[1] = VOCAB; /* and an id out of range is named */
    assert_int_equal(ls_graph_run(g, &config, NULL), LS_ERR_INVALID);
    assert_string_equal(ls_last_error(), "node 'bag1' (bag): id 11 is not in [0, 11)");
    ((int32_t *)ls_input_data(g, ids))[1] = 0;
    OK(ls_graph_run(g, &config, NULL)); /* the graph stays usable */
    assert_int_equal(ls_graph_sparse_grad(g, 2, &sparse), LS_ERR_INVALID);
    ls_graph_destroy(g);

    g = t_graph(2);
    OK(ls_graph_compile(g, t_loss(g, t_affine(g, t_input(g, 2))), NULL));
    assert_int_equal(ls_graph_sparse_grad(g, 0, &sparse), LS_ERR_INVALID);
    ls_graph_destroy(g);
}

/* An operation that adds to the list itself, alone on a table and beside one that does not: sums
 * are made use by use, as in a dense gradient that accumulates. */
static void test_sparse_adds(void **state)
{
    (void)state;
    for (int beside = 0; beside < 2; beside++) {
        ls_graph *g = t_graph(2);
        ls_tensor *ids = ls_input(g, "ids", LS_I32, 1, (size_t[]){3});
        ls_tensor *few = ls_input(g, "few", LS_I32, 1, (size_t[]){1});
        ls_tensor *y = t_bag(g, few, 9, 2);
        ls_tensor *more = t_bag_adding(g, t_reshape(g, ids, 2, (size_t[]){2, 3}), t_table);
        y = beside ? t_add(g, y, more) : more;
        OK(ls_graph_compile(g, t_loss(g, y), y));
        memcpy(ls_input_data(g, few), (int32_t[]){8, 1}, 2 * sizeof(int32_t));
        ls_sparse_ids reads; /* through the view */
        OK(ls_graph_sparse_ids(g, 0, beside, &reads));
        assert_ptr_equal(reads.ids, ls_input_data(g, ids));
        assert_int_equal(reads.count, 6);
        assert_int_equal(reads.stride, 1);
        static const int32_t batches[3][6] = {{3, 7, 7, 0, 3, 3},
                                              {5, 7, 0, 6, 5, 4},
                                              {2, 2, 2, 2, 2, 3}};
        float expected[9 * 2] = {0}, dense[9 * 2], dy[4];
        ls_run_config config = LS_RUN_CONFIG_INIT;
        for (int run = 0; run < 3; run++) {
            memcpy(ls_input_data(g, ids), batches[run], sizeof batches[run]);
            config.backward = config.accumulate = 0;
            OK(ls_graph_run(g, &config, NULL));
            memcpy(dy, ls_output_data(g), sizeof dy);
            config.backward = 1;
            config.accumulate = run > 0;
            OK(ls_graph_run(g, &config, NULL));
            for (int i = 0; i < 6 * 2; i++)
                expected[batches[run][i / 2] * 2 + i % 2] += dy[i / 6 * 2 + i % 2];
            for (int i = 0; beside && i < 2; i++) {
                expected[8 * 2 + i] += dy[i];
                expected[1 * 2 + i] += dy[2 + i];
            }
            dense_of(g, 0, dense, 9, 2);
            assert_memory_equal(dense, expected, sizeof dense);
        }
        ls_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normal),      cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_by_name),     cmocka_unit_test(test_init_elsewhere),
        cmocka_unit_test(test_buffers),     cmocka_unit_test(test_merge),
        cmocka_unit_test(test_merge_order), cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_sparse_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

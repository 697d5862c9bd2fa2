/* What the contract of kernels.h says about bits, for every instruction set.
 *
 * 1. Products are chains of fused multiply-adds in ascending order, whatever the blocking.
 *    (Convolutions that are made of fewer products: test_winograd.c.)
 * 2. A sample's result does not depend on how many others run with it, nor on its place.
 */
#include <math.h>

#include "exact.h"

/* ---- chains --------------------------------------------------------------------------------- */

/* C (m, n) = chain over k of A (m, k) B (k, n), from `start` or zero; strides as given. */
static void chains(size_t m, size_t n, size_t k, const float *a, size_t a_row, size_t a_col,
                   const float *b, size_t b_row, size_t b_col, const float *start, float *c)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            float acc = start ? start[i * n + j] : 0.0f;
            for (size_t p = 0; p < k; p++)
                acc = fmaf(a[i * a_row + p * a_col], b[p * b_row + j * b_col], acc);
            c[i * n + j] = acc;
        }
}

static void linear_chains(lsi_device *device)
{
    /* Beyond the blocks of the product: 768 columns, 384 in depth. */
    static const size_t shapes[][3] = {{15, 1024, 66}, {300, 20, 40}, {520, 9, 17}, {2, 257, 1030},
                                       {17, 300, 33},  {15, 513, 31}, {29, 64, 96}, {3, 5, 1050},
                                       {1, 1, 1},      {5, 7, 2}};
    for (size_t s = 0; s < 2 * sizeof shapes / sizeof *shapes; s++) {
        const size_t rows = shapes[s / 2][0], in = shapes[s / 2][1], out = shapes[s / 2][2];
        const int turned = s % 2;
        const lsi_linear p = {.rows = rows, .in = in, .out = out, .transposed = turned};
        const size_t w_in = turned ? 1 : out, w_out = turned ? in : 1; /* strides */
        float *x = numbers(rows * in, 1), *w = numbers(in * out, 2), *y = numbers(rows * out, 3);
        float *dx = numbers(rows * in, 4), *dw = numbers(in * out, 5), *dwt = numbers(in * out, 6);
        float *e = numbers(rows * out, 7), *dy = copied(y, rows * out);

        chains(rows, out, in, x, in, 1, w, w_in, w_out, dy, e); /* the residual is y itself */
        assert_int_equal(device->k->linear(device, &p, x, w, NULL, y, NULL, y), LS_OK);
        expect_bits("linear", device->k->isa, y, e, rows * out);

        free(e);
        e = numbers(rows * in, 8);
        chains(rows, in, out, dy, out, 1, w, w_out, w_in, NULL, e);
        assert_int_equal(device->k->linear_dx(device, &p, dy, w, dx, 0), LS_OK);
        expect_bits("linear_dx", device->k->isa, dx, e, rows * in);
        float *twice = numbers(rows * in, 9);
        chains(rows, in, out, dy, out, 1, w, w_out, w_in, e, twice);
        assert_int_equal(device->k->linear_dx(device, &p, dy, w, dx, 1), LS_OK);
        expect_bits("linear_dx, added", device->k->isa, dx, twice, rows * in);

        chains(in, out, rows, x, 1, in, dy, out, 1, NULL, dwt); /* (in, out) */
        assert_int_equal(device->k->linear_dw(device, &p, x, dy, dw, NULL, 0), LS_OK);
        for (size_t i = 0; turned && i < in * out; i++)
            w[i] = dwt[i % in * out + i / in];
        expect_bits("linear_dw", device->k->isa, dw, turned ? w : dwt, in * out);
        free(x), free(w), free(y), free(dx), free(dw), free(dwt), free(e), free(dy), free(twice);
    }
}

static void test_linear_chains(void **state)
{
    (void)state;
    each_set(linear_chains);
}

/* A sum over rows adds them in ascending order, from zero or from what was there. */
static void bias_sums(lsi_device *device)
{
    static const size_t outs[] = {1, 15, 16, 40, 64, 71, 130, 800};
    const size_t rows = 300, in = 3; /* two blocks of the product */
    for (size_t s = 0; s < 2 * sizeof outs / sizeof *outs; s++) {
        const size_t out = outs[s / 2];
        const lsi_linear p = {.rows = rows, .in = in, .out = out, .transposed = s % 2};
        float *x = numbers(rows * in, 1), *dy = numbers(rows * out, 2), *dw = numbers(in * out, 3);
        float *sums = numbers(out, 4), *e = numbers(out, 5);
        for (int add = 0; add < 2; add++) {
            for (size_t i = 0; i < rows * out; i++)
                e[i % out] = (add || i >= out ? e[i % out] : 0.0f) + dy[i];
            assert_int_equal(device->k->linear_dw(device, &p, x, dy, dw, sums, add), LS_OK);
            expect_bits("gradient of a bias", device->k->isa, sums, e, out);
        }
        free(x), free(dy), free(dw), free(sums), free(e);
    }
}

static void test_bias_sums(void **state)
{
    (void)state;
    each_set(bias_sums);
}

static void interact_chains(lsi_device *device)
{
    static const size_t shapes[][2] = {{27, 16}, {17, 16}, {5, 11}, {34, 40}, {33, 1}, {2, 130}};
    const size_t n = 3;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t f = shapes[s][0], d = shapes[s][1], each = f * (f - 1) / 2;
        float *x = numbers(n * f * d, 1), *y = numbers(n * each, 2), *e = numbers(n * each, 3);
        float *all = numbers(f * f, 4);
        for (size_t k = 0, to = 0; k < n; k++) {
            const float *sample = x + k * f * d;
            chains(f, f, d, sample, d, 1, sample, 1, d, NULL, all);
            for (size_t i = 1; i < f; i++)
                for (size_t j = 0; j < i; j++)
                    e[to++] = all[i * f + j];
        }
        const lsi_features part = {.rows = f, .x = x};
        assert_int_equal(device->k->interact(device, n, d, 1, &part, 0, y), LS_OK);
        expect_bits("interact", device->k->isa, y, e, n * each);
        free(x), free(y), free(e), free(all);
    }
}

static void test_interact_chains(void **state)
{
    (void)state;
    each_set(interact_chains);
}

/* The slope that a linear layer leaves for its backward pass is that of act_grad. */
static void linear_slopes(lsi_device *device)
{
    const size_t rows = 29, in = 40, out = 71, n = rows * out;
    float *x = numbers(rows * in, 1), *w = numbers(in * out, 2), *bias = numbers(out, 3);
    float *y = numbers(n, 4), *slope = numbers(n, 5), *before = numbers(n, 6), *e = numbers(n, 7);
    float *dy = numbers(n, 8), *dx = numbers(n, 9);
    x[0] = 3e19f; /* far out: nothing may become infinite that is not */
    x[in] = -3e19f;
    for (lsi_act act = LSI_ACT_NONE; act < LSI_ACT_COUNT; act++) {
        lsi_linear p = {.rows = rows, .in = in, .out = out};
        assert_int_equal(device->k->linear(device, &p, x, w, bias, NULL, NULL, before), LS_OK);
        p.act = act;
        assert_int_equal(device->k->linear(device, &p, x, w, bias, NULL, slope, y), LS_OK);
        assert_int_equal(device->k->act(device, act, n, before, e), LS_OK);
        expect_bits("linear with an activation", device->k->isa, y, e, n);
        assert_int_equal(device->k->act_grad(device, act, n, before, dy, e, 0), LS_OK);
        assert_int_equal(device->k->mul(device, n, n, dy, slope, dx), LS_OK);
        if (act != LSI_ACT_RELU) /* which selects, and so gives no -0 */
            expect_bits("slope of a linear layer", device->k->isa, dx, e, n);
    }
    free(x), free(w), free(bias), free(y), free(slope), free(before), free(e), free(dy), free(dx);
}

static void test_linear_slopes(void **state)
{
    (void)state;
    each_set(linear_slopes);
}

/* The chain of one result of a convolution. */
static float conv_chain(const lsi_conv *p, const float *x, const float *w, size_t at)
{
    const size_t o = at % p->o, ow = at / p->o % p->ow, oh = at / p->o / p->ow % p->oh;
    const size_t n = at / p->o / p->ow / p->oh, each = p->c / p->groups;
    const size_t first = o / (p->o / p->groups) * each;
    float acc = 0;
    for (size_t i = 0; i < p->kh; i++)
        for (size_t j = 0; j < p->kw; j++)
            for (size_t c = 0; c < each; c++) {
                const size_t h = oh * p->stride_h + i, v = ow * p->stride_w + j;
                if (h < p->pad_h || h - p->pad_h >= p->h || v < p->pad_w || v - p->pad_w >= p->w)
                    continue;
                const size_t from = ((n * p->h + h - p->pad_h) * p->w + v - p->pad_w) * p->c;
                acc = fmaf(x[from + first + c], w[((i * p->kw + j) * each + c) * p->o + o], acc);
            }
    return acc;
}

static void conv_chains(lsi_device *device)
{
    static const lsi_conv shapes[] = {
        {2, 8, 8, 16, 8, 8, 17, 3, 3, 1, 1, 1, 1, 1},
        {3, 9, 7, 5, 5, 4, 33, 3, 3, 2, 2, 1, 1, 1},
        {2, 5, 5, 32, 5, 5, 40, 1, 1, 1, 1, 0, 0, 1},
        {2, 6, 9, 32, 3, 5, 64, 1, 1, 2, 2, 0, 0, 1},
        {1, 6, 6, 12, 6, 6, 18, 3, 3, 1, 1, 1, 1, 3},
        {2, 16, 16, 3, 8, 8, 20, 7, 7, 2, 2, 3, 3, 1},
        {1, 4, 4, 130, 4, 4, 17, 3, 3, 1, 1, 1, 1, 1},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const lsi_conv *p = &shapes[s];
        const size_t in = p->n * p->h * p->w * p->c, out = p->n * p->oh * p->ow * p->o;
        float *x = numbers(in, 1), *w = numbers(p->kh * p->kw * (p->c / p->groups) * p->o, 2);
        float *bias = numbers(p->o, 3), *y = numbers(out, 4), *e = numbers(out, 5);
        for (size_t i = 0; i < out; i++)
            e[i] = conv_chain(p, x, w, i) + bias[i % p->o];
        assert_int_equal(device->k->conv2d(device, p, x, w, bias, y), LS_OK);
        expect_bits("conv2d", device->k->isa, y, e, out);
        free(x), free(w), free(bias), free(y), free(e);
    }
}

static void test_conv_chains(void **state)
{
    (void)state;
    each_set(conv_chains);
}

/* ---- samples alone and together -------------------------------------------------------------- */

#define SAMPLES 19 /* more than any tile has rows, and odd */

/* An operation on samples [first, first + n): x and y are theirs alone. */
typedef struct sample_op {
    const char *name;
    size_t in, out; /* floats of a sample */
    ls_status (*run)(lsi_device *d, size_t first, size_t n, const float *x, const float *w,
                     float *y);
} sample_op;

enum { IN = 37, OUT = 53, HW = 5, C = 6, O = 21, T = 18, HEADS = 2, HD = 9, WIDTH = HEADS * HD };

static ls_status run_linear(lsi_device *d, size_t first, size_t n, const float *x, const float *w,
                            float *y)
{
    (void)first;
    const lsi_linear p = {.rows = n, .in = IN, .out = OUT, .act = LSI_ACT_GELU_TANH};
    return d->k->linear(d, &p, x, w, w + IN * OUT, NULL, NULL, y);
}

static ls_status run_linear_dx(lsi_device *d, size_t first, size_t n, const float *dy,
                               const float *w, float *dx)
{
    (void)first;
    const lsi_linear p = {.rows = n, .in = IN, .out = OUT};
    return d->k->linear_dx(d, &p, dy, w, dx, 0);
}

static lsi_conv conv_of(size_t n)
{
    return (lsi_conv){n, HW, HW, C, HW, HW, O, 3, 3, 1, 1, 1, 1, 1};
}

static ls_status run_conv(lsi_device *d, size_t first, size_t n, const float *x, const float *w,
                          float *y)
{
    (void)first;
    const lsi_conv p = conv_of(n);
    return d->k->conv2d(d, &p, x, w, NULL, y);
}

static ls_status run_conv_dx(lsi_device *d, size_t first, size_t n, const float *dy, const float *w,
                             float *dx)
{
    (void)first;
    const lsi_conv p = conv_of(n);
    return d->k->conv2d_dx(d, &p, dy, w, dx, 0);
}

static ls_status run_attention(lsi_device *d, size_t first, size_t n, const float *x,
                               const float *w, float *y)
{
    (void)w;
    static float lse[SAMPLES * HEADS * T];
    const lsi_dropout dropout = {.p = 0.2f, .seed = 9, .first_position = 5 + first};
    const lsi_attention p = {n, T, HEADS, HD, 3 * WIDTH, 1, 0.3f, &dropout};
    return d->k->attention(d, &p, x, x + WIDTH, x + 2 * WIDTH, y, lse);
}

static ls_status run_attention_grad(lsi_device *d, size_t first, size_t n, const float *x,
                                    const float *w, float *dx)
{
    (void)first;
    static float lse[SAMPLES * HEADS * T], y[SAMPLES * T * WIDTH], dy[SAMPLES * T * WIDTH];
    const lsi_attention p = {n, T, HEADS, HD, 3 * WIDTH, 0, 0.3f, NULL};
    ls_status status = d->k->attention(d, &p, x, x + WIDTH, x + 2 * WIDTH, y, lse);
    for (size_t i = 0; i < n * T * WIDTH; i++) /* as of any loss that looks at y */
        dy[i] = w[i % (T * WIDTH)] * y[i];
    return status == LS_OK ? d->k->attention_grad(d, &p, x, x + WIDTH, x + 2 * WIDTH, y, lse, dy,
                                                  dx, dx + WIDTH, dx + 2 * WIDTH)
                           : status;
}

static ls_status run_interact(lsi_device *d, size_t first, size_t n, const float *x, const float *w,
                              float *y)
{
    (void)first, (void)w;
    return d->k->interact(d, n, 11, 1, &(lsi_features){.rows = 7, .x = x}, 0, y);
}

static ls_status run_layernorm(lsi_device *d, size_t first, size_t n, const float *x,
                               const float *w, float *y)
{
    (void)first;
    static float mean[SAMPLES], rstd[SAMPLES];
    const lsi_norm p = {.rows = n, .c = OUT, .eps = 1e-5f};
    return d->k->layernorm(d, &p, x, NULL, w, w + OUT, NULL, y, mean, rstd);
}

static ls_status run_batchnorm_eval(lsi_device *d, size_t first, size_t n, const float *x,
                                    const float *w, float *y)
{
    (void)first;
    static float var[OUT];
    const lsi_norm p = {.rows = n, .c = OUT, .eps = 1e-5f};
    for (size_t i = 0; i < OUT; i++)
        var[i] = 0.1f + fabsf(w[i]);
    return d->k->batchnorm_eval(d, &p, x, w, w + OUT, NULL, w + 2 * OUT, var, y);
}

static ls_status run_act(lsi_device *d, size_t first, size_t n, const float *x, const float *w,
                         float *y)
{
    (void)first, (void)w;
    return d->k->act(d, LSI_ACT_GELU_ERF, n * OUT, x, y);
}

static ls_status run_softmax(lsi_device *d, size_t first, size_t n, const float *x, const float *w,
                             float *y)
{
    (void)first, (void)w;
    return d->k->softmax(d, n, OUT, x, y);
}

static ls_status run_dropout(lsi_device *d, size_t first, size_t n, const float *x, const float *w,
                             float *y)
{
    (void)w;
    const lsi_dropout p = {n, OUT, 0.3f, 42, 7, 1, 1000 + first};
    return d->k->dropout(d, &p, x, y, 0);
}

static ls_status run_avgpool(lsi_device *d, size_t first, size_t n, const float *x, const float *w,
                             float *y)
{
    (void)first, (void)w;
    const lsi_pool p = {n, HW, HW, C, 1, 1, HW, HW, 1, 1, 0, 0};
    return d->k->avgpool(d, &p, x, y);
}

static const sample_op sample_ops[] = {
    {"linear", IN, OUT, run_linear},
    {"linear_dx", OUT, IN, run_linear_dx},
    {"conv2d", HW *HW *C, HW *HW *O, run_conv},
    {"conv2d_dx", HW *HW *O, HW *HW *C, run_conv_dx},
    {"attention", T * 3 * WIDTH, T *WIDTH, run_attention},
    {"attention_grad", T * 3 * WIDTH, T * 3 * WIDTH, run_attention_grad},
    {"interact", 7 * 11, 21, run_interact},
    {"layernorm", OUT, OUT, run_layernorm},
    {"batchnorm_eval", OUT, OUT, run_batchnorm_eval},
    {"act", OUT, OUT, run_act},
    {"softmax", OUT, OUT, run_softmax},
    {"dropout", OUT, OUT, run_dropout},
    {"avgpool", HW *HW *C, C, run_avgpool},
};

static void samples_alone(lsi_device *device)
{
    float *w = numbers(10000, 1);
    for (size_t o = 0; o < sizeof sample_ops / sizeof *sample_ops; o++) {
        const sample_op *op = &sample_ops[o];
        float *x = numbers(SAMPLES * op->in, 2), *y = numbers(SAMPLES * op->out, 3);
        float *part = numbers(SAMPLES * op->out, 4);
        assert_int_equal(op->run(device, 0, SAMPLES, x, w, y), LS_OK);
        /* Every piece of up to four samples, and the first of every number. */
        for (size_t first = 0; first < SAMPLES; first++)
            for (size_t n = 1; first + n <= SAMPLES && (n <= 4 || first == 0); n++) {
                assert_int_equal(op->run(device, first, n, x + first * op->in, w, part), LS_OK);
                expect_bits(op->name, device->k->isa, part, y + first * op->out, n * op->out);
            }
        free(x), free(y), free(part);
    }
    free(w);
}

static void test_samples_alone(void **state)
{
    (void)state;
    each_set(samples_alone);
}

/* Rows that were used have the bits of the dense gradient, also when a second batch is added to the
 * first; the zeros among the values are negative ones. */
static void embedding_rows(lsi_device *device)
{
    enum { ROWS = 150, VOCAB = 300, D = 21 };
    float *dy = numbers(2 * ROWS * D, 1), *dense = numbers(VOCAB * D, 2);
    float *values = numbers(2 * ROWS * D, 3), *spread = calloc(VOCAB * D, sizeof *spread);
    int32_t ids[2 * ROWS], touched[2 * ROWS];
    size_t count = 0;
    for (size_t i = 0; i < 2 * ROWS; i++) {
        ids[i] = (int32_t)(i * i % 211);
        for (size_t j = i % 3; j < D; j += 3)
            dy[i * D + j] = -0.0f;
    }
    for (int add = 0; add < 2; add++) {
        const size_t at = add ? ROWS : 0;
        assert_int_equal(device->k->embed_grad(device, ROWS, VOCAB, D, ids + at, dy + at * D, dense,
                                               add),
                         LS_OK);
        assert_int_equal(device->k->embed_rows_grad(device, ROWS, VOCAB, D, ids + at, dy + at * D,
                                                    touched, values, &count),
                         LS_OK);
        for (size_t i = 0; i < count; i++)
            memcpy(spread + (size_t)touched[i] * D, values + i * D, D * sizeof *spread);
        expect_bits("embed_rows_grad", device->k->isa, spread, dense, VOCAB * D);
    }
    free(dy), free(dense), free(values), free(spread);
}

static void test_embedding_rows(void **state)
{
    (void)state;
    each_set(embedding_rows);
}

/* An element whose word is exactly p 2^32 is kept, and one whose word is just below is not: p is
 * made of a word of the stream that fits into a float. */
static void dropout_boundary(lsi_device *device)
{
    enum { EACH = 2000 };
    const uint32_t key[2] = {99, 0}, counter[4] = {0};
    uint32_t words[EACH];
    float x[EACH], y[EACH];
    int found = 0;
    lsi_philox_fill(counter, key, 0, words, EACH);
    for (size_t i = 0; i < EACH; i++)
        x[i] = 1;
    for (size_t i = 0; i < EACH; i++) {
        if (words[i] & 0xff)
            continue;
        found++;
        lsi_dropout d = {.samples = 1, .each = EACH, .p = (float)words[i] * 0x1p-32f, .seed = 99};
        assert_int_equal(device->k->dropout(device, &d, x, y, 0), LS_OK);
        assert_true(y[i] > 1);
        d.p = nextafterf(d.p, 1);
        assert_int_equal(device->k->dropout(device, &d, x, y, 0), LS_OK);
        assert_true(y[i] == 0);
    }
    assert_true(found > 0);
}

static void test_dropout_boundary(void **state)
{
    (void)state;
    each_set(dropout_boundary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_chains),   cmocka_unit_test(test_bias_sums),
        cmocka_unit_test(test_interact_chains), cmocka_unit_test(test_linear_slopes),
        cmocka_unit_test(test_conv_chains),     cmocka_unit_test(test_samples_alone),
        cmocka_unit_test(test_embedding_rows),  cmocka_unit_test(test_dropout_boundary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

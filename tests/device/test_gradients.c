/* Gradients of `ref` against finite differences of its forward kernels.
 *
 * For an output y and random weights p, L = sum p y, so p is the gradient of y, and the backward
 * kernel gives that of the inputs. An input x moves by h along a random direction of +-1: L must
 * change by what the gradient says, up to 1 % of what a gradient of its length changes on average.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "device/kernels.h"

#define STEP 0x1p-9 /* h: outputs are rounded to 6e-8 of their size, curvature costs h^2 */
#define TOLERANCE 1e-2
#define DIRECTIONS 3
#define MOST 64 /* arrays of one test */

static lsi_device *ref;
static float *made[MOST]; /* freed after each test */
static int made_count;

static float *numbers(size_t n)
{
    const uint32_t key[2] = {(uint32_t)made_count, 11}, counter[4] = {0};
    assert_true(made_count < MOST);
    float *x = made[made_count++] = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    lsi_philox_fill_uniform(counter, key, 0, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = (x[i] - 0.5f) * 3.4f;
    return x;
}

static void forget(void)
{
    while (made_count)
        free(made[--made_count]);
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* The value L of a call as its inputs are now. */
typedef double (*value_fn)(const void *call);

static void expect_gradient(const char *what, value_fn value, const void *call, float *x, size_t n,
                            const float *gradient)
{
    float *kept = malloc(n * sizeof *kept);
    assert_non_null(kept);
    memcpy(kept, x, n * sizeof *kept);
    const double length = sqrt(dot(gradient, gradient, n));
    assert_true(length > 0);
    for (uint32_t d = 0; d < DIRECTIONS; d++) {
        double expected = 0, change = 0;
        for (int side = 1; side >= -1; side -= 2) {
            for (uint32_t i = 0; i < n; i++) {
                uint32_t word[4];
                lsi_philox((uint32_t[4]){i, d, 0, 0}, (uint32_t[2]){5, 5}, word);
                const double move = word[0] & 1 ? STEP : -STEP;
                x[i] = (float)((double)kept[i] + side * move);
                /* What the input really moved by, its own rounding included. */
                expected += side * (double)gradient[i] * ((double)x[i] - (double)kept[i]);
            }
            change += side * value(call);
        }
        if (!(fabs(change - expected) <= TOLERANCE * (fabs(expected) + 2 * STEP * length)))
            fail_msg("%s: the value changes by %.6g, the gradient says %.6g (direction %u)", what,
                     change, expected, d);
    }
    memcpy(x, kept, n * sizeof *kept);
    free(kept);
}

#define OK(call) assert_int_equal(call, LS_OK)

/* ---- linear --------------------------------------------------------------------------------- */

typedef struct linear_call {
    lsi_linear p;
    float *x, *w, *bias, *residual, *slope, *y, *weights;
} linear_call;

static double linear_value(const void *call)
{
    const linear_call *c = call;
    OK(ref->k->linear(ref, &c->p, c->x, c->w, c->bias, c->residual, c->slope, c->y));
    return dot(c->weights, c->y, c->p.rows * c->p.out);
}

static void one_linear(size_t rows, size_t in, size_t out, int transposed, lsi_act act)
{
    const size_t nx = rows * in, ny = rows * out;
    linear_call c = {.p = {rows, in, out, transposed, act},
                     .x = numbers(nx),
                     .w = numbers(in * out),
                     .bias = numbers(out),
                     .residual = numbers(ny),
                     .slope = numbers(ny),
                     .y = numbers(ny),
                     .weights = numbers(ny)};
    float *dpre = numbers(ny), *dx = numbers(nx), *dw = numbers(in * out), *db = numbers(out);
    linear_value(&c);
    OK(ref->k->mul(ref, ny, ny, c.weights, c.slope, dpre));
    OK(ref->k->linear_dx(ref, &c.p, dpre, c.w, dx, 0));
    OK(ref->k->linear_dw(ref, &c.p, c.x, dpre, dw, db, 0));
    expect_gradient("linear, x", linear_value, &c, c.x, nx, dx);
    expect_gradient("linear, w", linear_value, &c, c.w, in * out, dw);
    expect_gradient("linear, bias", linear_value, &c, c.bias, out, db);
    expect_gradient("linear, residual", linear_value, &c, c.residual, ny, dpre);
    forget();
}

static void test_linear(void **state)
{
    (void)state;
    for (lsi_act act = LSI_ACT_NONE; act < LSI_ACT_COUNT; act++) {
        one_linear(7, 5, 11, 0, act);
        one_linear(3, 17, 8, 1, act);
    }
    one_linear(1, 1, 1, 0, LSI_ACT_NONE);
}

/* ---- convolution ---------------------------------------------------------------------------- */

typedef struct conv_call {
    lsi_conv p;
    float *x, *w, *bias, *y, *weights;
} conv_call;

static double conv_value(const void *call)
{
    const conv_call *c = call;
    OK(ref->k->conv2d(ref, &c->p, c->x, c->w, c->bias, c->y));
    return dot(c->weights, c->y, c->p.n * c->p.oh * c->p.ow * c->p.o);
}

static void test_conv(void **state)
{
    (void)state;
    static const lsi_conv shapes[] = {
        {2, 5, 6, 3, 5, 6, 4, 3, 3, 1, 1, 1, 1, 1}, {2, 7, 5, 4, 4, 3, 6, 3, 3, 2, 2, 1, 1, 2},
        {1, 6, 7, 3, 3, 6, 3, 2, 3, 2, 1, 0, 1, 3}, {3, 4, 4, 5, 2, 2, 7, 1, 1, 2, 2, 0, 0, 1},
        {1, 9, 9, 2, 5, 5, 3, 5, 5, 2, 2, 2, 2, 1},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const lsi_conv *p = &shapes[s];
        const size_t nx = p->n * p->h * p->w * p->c, ny = p->n * p->oh * p->ow * p->o;
        const size_t nw = p->kh * p->kw * (p->c / p->groups) * p->o;
        conv_call c = {*p, numbers(nx), numbers(nw), numbers(p->o), numbers(ny), numbers(ny)};
        float *dx = numbers(nx), *dw = numbers(nw), *db = numbers(p->o);
        OK(ref->k->conv2d_dx(ref, p, c.weights, c.w, dx, 0));
        OK(ref->k->conv2d_dw(ref, p, c.x, c.weights, dw, db, 0));
        expect_gradient("conv2d, x", conv_value, &c, c.x, nx, dx);
        expect_gradient("conv2d, weight", conv_value, &c, c.w, nw, dw);
        expect_gradient("conv2d, bias", conv_value, &c, c.bias, p->o, db);
        forget();
    }
}

/* ---- attention and interaction --------------------------------------------------------------- */

typedef struct attention_call {
    lsi_attention p;
    float *q, *k, *v, *y, *lse, *weights;
} attention_call;

static double attention_value(const void *call)
{
    const attention_call *c = call;
    OK(ref->k->attention(ref, &c->p, c->q, c->k, c->v, c->y, c->lse));
    return dot(c->weights, c->y, c->p.n * c->p.t * c->p.heads * c->p.hd);
}

static void test_attention(void **state)
{
    (void)state;
    const lsi_dropout dropout = {.p = 0.3f, .seed = 8, .step = 2, .node = 1, .first_position = 3};
    for (int kind = 0; kind < 8; kind++) {
        const size_t n = 2, t = 6, heads = 3, hd = 5, width = heads * hd;
        const int together = kind >> 2;
        const size_t stride = together ? 3 * width : width, rows = n * t * stride;
        attention_call c = {.p = {n, t, heads, hd, stride, kind & 1, 0.5f,
                                  kind & 2 ? &dropout : NULL},
                            .q = numbers(rows),
                            .y = numbers(n * t * width),
                            .lse = numbers(n * heads * t),
                            .weights = numbers(n * t * width)};
        float *dq = numbers(rows);
        c.k = together ? c.q + width : numbers(rows);
        c.v = together ? c.q + 2 * width : numbers(rows);
        float *dk = together ? dq + width : numbers(rows);
        float *dv = together ? dq + 2 * width : numbers(rows);
        attention_value(&c);
        OK(ref->k->attention_grad(ref, &c.p, c.q, c.k, c.v, c.y, c.lse, c.weights, dq, dk, dv));
        expect_gradient("attention, q", attention_value, &c, c.q, rows, dq);
        if (!together) {
            expect_gradient("attention, k", attention_value, &c, c.k, rows, dk);
            expect_gradient("attention, v", attention_value, &c, c.v, rows, dv);
        }
        forget();
    }
}

enum { PAIR_N = 3, PAIR_F = 5, PAIR_D = 7 };
typedef struct simple_call { /* for operations of one input that need nothing else */
    ls_status (*run)(const struct simple_call *c);
    size_t nx, ny;
    float *x, *y, *weights, *b;
    lsi_act act;
} simple_call;

static double simple_value(const void *call)
{
    const simple_call *c = call;
    OK(c->run(c));
    return dot(c->weights, c->y, c->ny);
}

static simple_call simple(ls_status (*run)(const simple_call *), size_t nx, size_t ny)
{
    return (simple_call){run, nx, ny, numbers(nx), numbers(ny), numbers(ny), NULL, LSI_ACT_NONE};
}

/* The first row by itself, and before the products. */
static void pair_parts(const float *x, float *dx, lsi_features part[2])
{
    const size_t first = PAIR_N * PAIR_D;
    part[0] = (lsi_features){1, x, dx, 0};
    part[1] = (lsi_features){PAIR_F - 1, x + first, dx ? dx + first : NULL, 0};
}

static ls_status run_interact(const simple_call *c)
{
    lsi_features part[2];
    pair_parts(c->x, NULL, part);
    return ref->k->interact(ref, PAIR_N, PAIR_D, 2, part, 1, c->y);
}

static void test_interact(void **state)
{
    (void)state;
    const simple_call c = simple(run_interact, PAIR_N * PAIR_F * PAIR_D,
                                 PAIR_N * (PAIR_D + PAIR_F * (PAIR_F - 1) / 2));
    float *dx = numbers(c.nx);
    lsi_features part[2];
    pair_parts(c.x, dx, part);
    OK(ref->k->interact_grad(ref, PAIR_N, PAIR_D, 2, part, 1, c.weights));
    expect_gradient("interact", simple_value, &c, c.x, c.nx, dx);
    forget();
}

/* ---- normalisation --------------------------------------------------------------------------- */

typedef struct norm_call {
    lsi_norm p;
    int batch;
    float *x, *gamma, *beta, *residual, *sum, *y, *mean, *var, *rstd, *weights;
} norm_call;

static double norm_value(const void *call)
{
    const norm_call *c = call;
    if (c->batch)
        OK(ref->k->batchnorm(ref, &c->p, c->x, c->gamma, c->beta, c->residual, c->y, c->mean,
                             c->var, c->rstd));
    else
        OK(ref->k->layernorm(ref, &c->p, c->x, c->residual, c->gamma, c->beta, c->sum, c->y,
                             c->mean, c->rstd));
    return dot(c->weights, c->y, c->p.rows * c->p.c);
}

static norm_call norm_of(size_t rows, size_t c, int batch)
{
    const size_t n = rows * c, statistics = rows > c ? rows : c;
    return (norm_call){.p = {.rows = rows, .c = c, .eps = 1e-5f},
                       .batch = batch,
                       .x = numbers(n),
                       .gamma = numbers(c),
                       .beta = numbers(c),
                       .residual = numbers(n),
                       .sum = numbers(n),
                       .y = numbers(n),
                       .mean = numbers(statistics),
                       .var = numbers(statistics),
                       .rstd = numbers(statistics),
                       .weights = numbers(n)};
}

static void test_layernorm(void **state)
{
    (void)state;
    for (int rms = 0; rms < 2; rms++) {
        norm_call c = norm_of(6, 19, 0);
        const size_t n = c.p.rows * c.p.c;
        float *dx = numbers(n), *dgamma = numbers(c.p.c), *dbeta = numbers(c.p.c);
        c.p.rms = rms;
        norm_value(&c);
        OK(ref->k->layernorm_grad(ref, &c.p, c.sum, c.gamma, c.mean, c.rstd, c.weights, dx, 0,
                                  dgamma, dbeta, 0));
        expect_gradient("layernorm, x", norm_value, &c, c.x, n, dx);
        expect_gradient("layernorm, residual", norm_value, &c, c.residual, n, dx);
        expect_gradient("layernorm, gamma", norm_value, &c, c.gamma, c.p.c, dgamma);
        if (!rms)
            expect_gradient("layernorm, beta", norm_value, &c, c.beta, c.p.c, dbeta);
        forget();
    }
}

static void test_batchnorm(void **state)
{
    (void)state;
    for (int relu = 0; relu < 2; relu++) {
        norm_call c = norm_of(40, 7, 1);
        const size_t n = c.p.rows * c.p.c;
        float *dx = numbers(n), *dr = numbers(n), *dgamma = numbers(c.p.c);
        float *dbeta = numbers(c.p.c);
        c.p.relu = relu;
        norm_value(&c);
        OK(ref->k->batchnorm_grad(ref, &c.p, c.x, c.y, c.gamma, c.beta, c.mean, c.rstd, c.weights,
                                  dx, 0, dr, 0, dgamma, dbeta, 0));
        expect_gradient("batchnorm, x", norm_value, &c, c.x, n, dx);
        expect_gradient("batchnorm, residual", norm_value, &c, c.residual, n, dr);
        expect_gradient("batchnorm, gamma", norm_value, &c, c.gamma, c.p.c, dgamma);
        expect_gradient("batchnorm, beta", norm_value, &c, c.beta, c.p.c, dbeta);
        forget();
    }
}

/* ---- element by element ---------------------------------------------------------------------- */

enum { N = 120, M = 24 };

static ls_status run_act(const simple_call *c)
{
    return ref->k->act(ref, c->act, N, c->x, c->y);
}

static ls_status run_mul(const simple_call *c)
{
    return ref->k->mul(ref, N, M, c->x, c->b, c->y);
}

static ls_status run_add(const simple_call *c)
{
    return ref->k->add(ref, N, M, c->x, c->b, c->y);
}

static const lsi_dropout elements = {.samples = 4, .each = N / 4, .p = 0.4f, .seed = 3, .node = 2};

static ls_status run_dropout(const simple_call *c)
{
    return ref->k->dropout(ref, &elements, c->x, c->y, 0);
}

static ls_status run_softmax(const simple_call *c)
{
    return ref->k->softmax(ref, N / M, M, c->x, c->y);
}

static void test_elementwise(void **state)
{
    (void)state;
    simple_call c = simple(run_act, N, N);
    float *dx = numbers(N), *db = numbers(M);
    c.b = numbers(M);
    for (c.act = LSI_ACT_NONE; c.act < LSI_ACT_COUNT; c.act++) {
        OK(ref->k->act_grad(ref, c.act, N, c.x, c.weights, dx, 0));
        expect_gradient("act", simple_value, &c, c.x, N, dx);
    }
    c.run = run_mul;
    OK(ref->k->mul(ref, N, M, c.weights, c.b, dx));
    OK(ref->k->sum_repeats(ref, N, M, c.weights, c.x, db, 0));
    expect_gradient("mul, a", simple_value, &c, c.x, N, dx);
    expect_gradient("mul, b", simple_value, &c, c.b, M, db);
    c.run = run_add;
    OK(ref->k->sum_repeats(ref, N, M, c.weights, NULL, db, 0));
    expect_gradient("add, a", simple_value, &c, c.x, N, c.weights);
    expect_gradient("add, b", simple_value, &c, c.b, M, db);
    c.run = run_dropout;
    OK(ref->k->dropout(ref, &elements, c.weights, dx, 0));
    expect_gradient("dropout", simple_value, &c, c.x, N, dx);
    c.run = run_softmax;
    OK(c.run(&c));
    OK(ref->k->softmax_grad(ref, N / M, M, c.y, c.weights, dx, 0));
    expect_gradient("softmax", simple_value, &c, c.x, N, dx);
    forget();
}

/* ---- embeddings and pooling ------------------------------------------------------------------ */

enum { VOCAB = 9, ROWS = 6, BAG = 4, D = 5 };
static const int32_t ids[ROWS * BAG] = {3, 1, 1, 8, 0, 3, 5, 5, 5, 2, 3, 4,
                                        8, 8, 0, 1, 2, 2, 3, 6, 6, 1, 0, 3};

static ls_status run_embed(const simple_call *c)
{
    return ref->k->embed(ref, ROWS * BAG, D, ids, c->x, c->y, 0);
}

static ls_status run_embed_bag(const simple_call *c)
{
    return ref->k->embed_bag(ref, ROWS, BAG, D, ids, c->x, c->y, D);
}

static void test_embed(void **state)
{
    (void)state;
    float *dtable = numbers(VOCAB * D), *values = numbers(ROWS * BAG * D);
    simple_call c = simple(run_embed, VOCAB * D, ROWS * BAG * D);
    OK(ref->k->embed_grad(ref, ROWS * BAG, VOCAB, D, ids, c.weights, dtable, 0));
    expect_gradient("embed", simple_value, &c, c.x, VOCAB * D, dtable);

    int32_t touched[ROWS * BAG];
    size_t count;
    c = simple(run_embed_bag, VOCAB * D, ROWS * D);
    OK(ref->k->embed_bag_grad(ref, ROWS, BAG, VOCAB, D, ids, c.weights, D, touched, values,
                              &count));
    assert_int_equal(count, VOCAB - 1); /* all but 7 */
    memset(dtable, 0, VOCAB * D * sizeof *dtable);
    for (size_t i = 0; i < count; i++) {
        assert_true(i == 0 || touched[i] > touched[i - 1]);
        memcpy(dtable + touched[i] * D, values + i * D, D * sizeof *dtable);
    }
    expect_gradient("embed_bag", simple_value, &c, c.x, VOCAB * D, dtable);
    forget();
}

static const lsi_pool pool = {2, 7, 6, 3, 4, 3, 3, 3, 2, 2, 1, 1};
static int32_t arg[2 * 4 * 3 * 3];

static ls_status run_maxpool(const simple_call *c)
{
    return ref->k->maxpool(ref, &pool, c->x, c->y, arg);
}

static ls_status run_avgpool(const simple_call *c)
{
    return ref->k->avgpool(ref, &pool, c->x, c->y);
}

static void test_pool(void **state)
{
    (void)state;
    simple_call c = simple(run_maxpool, 2 * 7 * 6 * 3, 2 * 4 * 3 * 3);
    float *dx = numbers(c.nx);
    OK(c.run(&c));
    OK(ref->k->maxpool_grad(ref, &pool, arg, c.weights, dx, 0));
    expect_gradient("maxpool", simple_value, &c, c.x, c.nx, dx);
    c.run = run_avgpool;
    OK(ref->k->avgpool_grad(ref, &pool, c.weights, dx, 0));
    expect_gradient("avgpool", simple_value, &c, c.x, c.nx, dx);
    forget();
}

/* ---- losses ---------------------------------------------------------------------------------- */

typedef struct loss_call {
    int kind; /* 0, 1: cross entropy without and with smoothing; 2: bce; 3: mse */
    float *x, *targets, *dx;
} loss_call;

static double loss_value(const void *call)
{
    static const int32_t labels[N / M] = {0, 23, -100, 7, 7};
    const loss_call *c = call;
    double loss = 0;
    size_t count;
    if (c->kind < 2) {
        OK(ref->k->cross_entropy(ref, N / M, M, c->x, labels, -100, c->kind ? 0.2f : 0.0f, &loss,
                                 &count, c->dx));
        assert_int_equal(count, N / M - 1);
    } else if (c->kind == 2) {
        OK(ref->k->bce(ref, N, c->x, c->targets, &loss, c->dx));
    } else {
        OK(ref->k->mse(ref, N, c->x, c->targets, &loss, c->dx));
    }
    return loss;
}

static void test_losses(void **state)
{
    (void)state;
    loss_call c = {0, numbers(N), numbers(N), NULL};
    float *dx = numbers(N);
    for (int i = 0; i < N; i++)
        c.targets[i] = 0.5f + 0.29f * c.targets[i]; /* inside [0, 1] */
    for (; c.kind < 4; c.kind++) {
        c.dx = dx;
        loss_value(&c);
        c.dx = NULL;
        expect_gradient("loss", loss_value, &c, c.x, N, dx);
    }
    forget();
}

static int open_ref(void **state)
{
    (void)state;
    return lsi_device_open("ref", &ref);
}

static int close_ref(void **state)
{
    (void)state;
    lsi_device_close(ref);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),      cmocka_unit_test(test_conv),
        cmocka_unit_test(test_attention),   cmocka_unit_test(test_interact),
        cmocka_unit_test(test_layernorm),   cmocka_unit_test(test_batchnorm),
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_embed),
        cmocka_unit_test(test_pool),        cmocka_unit_test(test_losses),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}

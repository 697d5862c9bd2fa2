/* Operations under test: linear layers, attention, dot interaction.
 *
 * Inputs have variance 1, so a sum of k products has k for the magnitude of its terms: that is the
 * scale, and each rounding of an f32 chain costs at most 6e-8 of it.
 */
#include <math.h>

#include "trial.h"

#define TOL 3e-7

/* ---- linear --------------------------------------------------------------------------------- */

enum { BIAS = 1, RESIDUAL = 2, SLOPE = 4, IN_PLACE = 8 };

static lsi_linear linear_of(const size_t *a)
{
    return (lsi_linear){
        .rows = a[0], .in = a[1], .out = a[2], .transposed = (int)a[3], .act = (lsi_act)a[4]};
}

static void linear(trial *t, const size_t *a)
{
    const lsi_linear p = linear_of(a);
    const int options = (int)a[5], in_place = options & IN_PLACE;
    const double scale = (double)p.in + 2;
    const float *x = trial_in(t, p.rows * p.in), *w = trial_in(t, p.in * p.out);
    const float *bias = options & BIAS ? trial_in(t, p.out) : NULL;
    /* relu's slope jumps where a sum is 0 but for rounding; gelu's has lost some of its bits where
     * it is nearly 1 (as in act_grad). */
    const int slopes = options & SLOPE && p.act != LSI_ACT_RELU;
    float *slope = slopes ? trial_out(t, "slope", p.rows * p.out, 0, TOL, scale + 20) : NULL;
    float *y = trial_out(t, "y", p.rows * p.out, in_place, TOL, scale);
    const float *residual = in_place ? y : options & RESIDUAL ? trial_in(t, p.rows * p.out) : NULL;
    CALL(t, linear, &p, x, w, bias, residual, slope, y);
}

static void linear_dx(trial *t, const size_t *a)
{
    const lsi_linear p = linear_of(a);
    const int add = (int)a[5];
    const float *dy = trial_in(t, p.rows * p.out), *w = trial_in(t, p.in * p.out);
    float *dx = trial_out(t, "dx", p.rows * p.in, add, TOL, (double)p.out + 2);
    CALL(t, linear_dx, &p, dy, w, dx, add);
}

static void linear_dw(trial *t, const size_t *a)
{
    const lsi_linear p = linear_of(a);
    const int add = (int)a[5];
    const double scale = (double)p.rows + 2;
    const float *x = trial_in(t, p.rows * p.in), *dy = trial_in(t, p.rows * p.out);
    float *dw = trial_out(t, "dw", p.in * p.out, add, TOL, scale);
    float *dbias = a[6] ? trial_out(t, "dbias", p.out, add, TOL, scale) : NULL;
    CALL(t, linear_dw, &p, x, dy, dw, dbias, add);
}

/* ---- attention ------------------------------------------------------------------------------ */

/* Scores of standard deviation `sharp`: the larger, the more one key takes all. Their rounding
 * error, which the exponential turns into a relative one of the probabilities, grows with them. */
static lsi_attention attention_of(const size_t *a, lsi_dropout *dropout)
{
    lsi_attention p = {.n = a[0], .t = a[1], .heads = a[2], .hd = a[3], .causal = (int)a[5]};
    p.stride = p.heads * p.hd * (a[4] ? 3 : 1);
    p.scale = (float)((double)a[7] / sqrt((double)p.hd));
    *dropout = (lsi_dropout){.p = 0.25f, .seed = 77, .step = 5, .node = 3, .first_position = 40};
    if (a[6])
        p.dropout = dropout;
    return p;
}

static size_t attention_rows(const lsi_attention *p)
{
    return p->n * p->t * p->stride;
}

/* Queries, keys and values: side by side in one buffer, or in three. */
static void attention_inputs(trial *t, const lsi_attention *p, const float *qkv[3])
{
    const size_t width = p->heads * p->hd;
    for (int i = 0; i < 3; i++)
        qkv[i] = p->stride == width || i == 0 ? trial_in(t, attention_rows(p))
                                              : qkv[0] + width * (size_t)i;
}

static void attention(trial *t, const size_t *a)
{
    lsi_dropout dropout;
    const lsi_attention p = attention_of(a, &dropout);
    const double tol = 1e-6 * (1 + 3 * (double)a[7]);
    const float *qkv[3];
    attention_inputs(t, &p, qkv);
    float *y = trial_out(t, "y", p.n * p.t * p.heads * p.hd, 0, tol, 1);
    float *lse = trial_out(t, "lse", p.n * p.heads * p.t, 0, tol, 1);
    CALL(t, attention, &p, qkv[0], qkv[1], qkv[2], y, lse);
}

static void attention_grad(trial *t, const size_t *a)
{
    lsi_dropout dropout;
    const lsi_attention p = attention_of(a, &dropout);
    const size_t width = p.heads * p.hd, rows = p.n * p.t;
    const double tol = 2e-7 * (1 + 3 * (double)a[7]), root = sqrt((double)p.hd);
    const float *qkv[3];
    float *grad[3];
    static const char *const names[] = {"dq", "dk", "dv"};
    attention_inputs(t, &p, qkv);
    const float *dy = trial_in(t, rows * width);
    float *y = trial_in(t, rows * width), *lse = trial_in(t, p.n * p.heads * p.t);
    PREPARE(t, attention, &p, qkv[0], qkv[1], qkv[2], y, lse);
    /* A key seen by all rows gathers up to t gradients. */
    const double scale = (1 + (double)a[7]) * root + sqrt((double)p.t);
    for (size_t i = 0; i < 3; i++)
        grad[i] = p.stride == width || i == 0 ? trial_out(t, i ? names[i] : "dq (or all)",
                                                          attention_rows(&p), 0, tol, scale)
                                              : grad[0] + width * i;
    CALL(t, attention_grad, &p, qkv[0], qkv[1], qkv[2], y, lse, dy, grad[0], grad[1], grad[2]);
}

/* ---- interaction ---------------------------------------------------------------------------- */

enum { HEAD = 1, SPLIT = 2, SKIP = 4 };

/* The rows in one part; or one alone, then the rest. */
static int split(size_t f, int options, lsi_features part[2])
{
    const int parts = options & SPLIT && f > 1 ? 2 : 1;
    part[0].rows = parts == 2 ? 1 : f;
    part[1].rows = f - part[0].rows;
    return parts;
}

static void interact(trial *t, const size_t *a)
{
    const size_t n = a[0], f = a[1], d = a[2];
    const int options = (int)a[3], head = options & HEAD;
    lsi_features part[2] = {{0}};
    const int parts = split(f, options, part);
    for (int i = 0; i < parts; i++)
        part[i].x = trial_in(t, n * part[i].rows * d);
    float *y = trial_out(t, "y", n * ((head ? d : 0) + f * (f - 1) / 2), 0, TOL, (double)d + 2);
    CALL(t, interact, n, d, parts, part, head, y);
}

static void interact_grad(trial *t, const size_t *a)
{
    static const char *const names[2] = {"dx", "dx of the second part"};
    const size_t n = a[0], f = a[1], d = a[2];
    const int add = (int)a[3], options = (int)a[4], head = options & HEAD;
    lsi_features part[2] = {{0}};
    const int parts = split(f, options, part);
    for (int i = 0; i < parts; i++)
        part[i].x = trial_in(t, n * part[i].rows * d);
    const float *dy = trial_in(t, n * ((head ? d : 0) + f * (f - 1) / 2));
    for (int i = parts > 1 && options & SKIP; i < parts; i++) {
        part[i].add = add;
        part[i].dx = trial_out(t, names[i], n * part[i].rows * d, add, TOL, (double)f + 2);
    }
    CALL(t, interact_grad, n, d, parts, part, head, dy);
}

#define LINEAR_SIZES                                                                               \
    SIZES("rows", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17, 33, 64),                   \
        SIZES("in", 1, 2, 7, 16, 17, 31, 64, 129),                                                 \
        SIZES("out", 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 97, 130),          \
        CHOICE("transposed", 0, 1), CHOICE("act", 0, 1, 2, 3, 4, 5, 6)
#define ATTENTION_SIZES                                                                            \
    SIZES("n", 1, 2), SIZES("t", 1, 2, 7, 15, 16, 17, 31, 32, 33, 57, 64, 67, 90, 130),            \
        SIZES("heads", 1, 2, 3), SIZES("hd", 1, 5, 8, 15, 16, 17, 32, 33),                         \
        CHOICE("together", 0, 1), CHOICE("causal", 0, 1), CHOICE("dropout", 0, 1),                 \
        CHOICE("sharp", 1, 8)

const trial_op trial_products[] = {
    {ENTRY(linear),
     linear,
     {LINEAR_SIZES, CHOICE("options", 0, BIAS, RESIDUAL, BIAS | RESIDUAL | SLOPE, IN_PLACE,
                           BIAS | IN_PLACE | SLOPE, BIAS | SLOPE)}},
    {ENTRY(linear_dx), linear_dx, {LINEAR_SIZES, CHOICE("add", 0, 1)}},
    {ENTRY(linear_dw), linear_dw, {LINEAR_SIZES, CHOICE("add", 0, 1), CHOICE("dbias", 0, 1)}},
    {ENTRY(attention), attention, {ATTENTION_SIZES}},
    {ENTRY(attention_grad), attention_grad, {ATTENTION_SIZES}},
    {ENTRY(interact),
     interact,
     {SIZES("n", 0, 1, 2, 5, 17), SIZES("f", 1, 2, 3, 8, 9, 16, 17, 27),
      SIZES("d", 1, 7, 16, 17, 64), CHOICE("options", 0, HEAD, SPLIT, HEAD | SPLIT)}},
    {ENTRY(interact_grad),
     interact_grad,
     {SIZES("n", 0, 1, 2, 5, 17), SIZES("f", 1, 2, 3, 8, 9, 16, 17, 27),
      SIZES("d", 1, 7, 16, 17, 64), CHOICE("add", 0, 1),
      CHOICE("options", 0, HEAD, SPLIT, HEAD | SPLIT | SKIP, HEAD | SPLIT)}},
    {0},
};

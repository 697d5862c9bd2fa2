/* Operations under test: activations, sums and products, dropout, softmax. */
#include "trial.h"

/* How y relates to x, or dx to dy. */
enum { APART, IN_PLACE, ADD };

/* Wide values reach where exponentials overflow in f32, and the exceptional ones are among them. */
static float *spread(trial *t, size_t n, size_t wide)
{
    static const float special[] = {0.0f,   -0.0f,  1e-30f,  -1e-30f, 88.5f, -88.5f,
                                    -87.4f, 104.0f, -104.0f, 1e-4f,   9.0f,  -9.0f};
    if (!wide)
        return trial_in(t, n);
    float *x = trial_in_range(t, n, -110, 110);
    for (size_t i = 0; i < n; i += 5)
        x[i] = special[i / 5 % (sizeof special / sizeof *special)];
    return x;
}

static void act(trial *t, const size_t *a)
{
    const size_t n = a[0];
    const float *x = spread(t, n, a[2]);
    float *y = trial_out(t, "y", n, 0, 5e-7, 1);
    for (size_t i = 0; a[3] == IN_PLACE && i < n; i++)
        y[i] = x[i];
    CALL(t, act, (lsi_act)a[1], n, a[3] == IN_PLACE ? y : x, y);
}

static void act_grad(trial *t, const size_t *a)
{
    const size_t n = a[0];
    const float *x = spread(t, n, a[2]), *dy = trial_in(t, n);
    /* Where tanh is nearly 1, its slope 1 - t^2 has lost all but a few of its bits, and gelu's
     * multiplies them by up to 7. */
    const double magnitude = a[1] == LSI_ACT_GELU_TANH ? 3 : 1;
    float *dx = trial_out(t, "dx", n, a[3] != APART, 2e-6, magnitude);
    CALL(t, act_grad, (lsi_act)a[1], n, x, a[3] == IN_PLACE ? dx : dy, dx, a[3] == ADD);
}

static void add(trial *t, const size_t *a)
{
    const size_t m = a[0], n = m * a[1];
    const float *x = trial_in(t, n), *b = trial_in(t, m);
    float *y = trial_out(t, "y", n, a[2] == IN_PLACE, 0, 0);
    CALL(t, add, n, m, a[2] == IN_PLACE ? y : x, b, y);
}

static void mul(trial *t, const size_t *a)
{
    const size_t m = a[0], n = m * a[1];
    const float *x = trial_in(t, n), *b = trial_in(t, m);
    float *y = trial_out(t, "y", n, a[2] == IN_PLACE, 0, 0);
    CALL(t, mul, n, m, a[2] == IN_PLACE ? y : x, b, y);
}

static void sum_repeats(trial *t, const size_t *a)
{
    const size_t m = a[0], n = m * a[1];
    const float *dy = trial_in(t, n), *x = a[2] ? trial_in(t, n) : NULL;
    float *db = trial_out(t, "db", m, a[3] == 1, 3e-7, (double)a[1] + 2);
    CALL(t, sum_repeats, n, m, dy, x, db, a[3] == 1);
}

static void scale(trial *t, const size_t *a)
{
    const size_t n = a[0];
    const float *x = trial_in(t, n);
    /* Without an addition there is one rounding, and no choice. */
    float *y = trial_out(t, "y", n, a[1] != APART, a[1] == ADD ? 2e-7 : 0, 1);
    CALL(t, scale, n, -0.37f, a[1] == IN_PLACE ? y : x, y, a[1] == ADD);
}

static void fill(trial *t, const size_t *a)
{
    float *y = trial_out(t, "y", a[0], 0, 0, 0);
    CALL(t, fill, a[0], 3.5f, y);
}

static void dropout(trial *t, const size_t *a)
{
    static const float p[] = {0.0f, 0.1f, 0.5f, 0.9f, 1e-12f, 0.99999994f};
    /* The last of these wraps around in the words of the counter. */
    static const struct {
        uint64_t seed, step, first_position;
        uint32_t node;
    } places[] = {{0, 0, 0, 0},
                  {0x123456789abcdef0u, 12345, 77, 3},
                  {1, 0xffffffffffu, 0xfffffffeu, 0xffffffffu}};
    const size_t n = a[0] * a[1];
    const lsi_dropout d = {.samples = a[0],
                           .each = a[1],
                           .p = p[a[2]],
                           .seed = places[a[3]].seed,
                           .step = places[a[3]].step,
                           .node = places[a[3]].node,
                           .first_position = places[a[3]].first_position};
    const float *x = trial_in(t, n);
    float *y = trial_out(t, "y", n, a[4] != APART, 3e-7, a[4] == ADD ? 1 : 0);
    CALL(t, dropout, &d, a[4] == IN_PLACE ? y : x, y, a[4] == ADD);
}

static void softmax(trial *t, const size_t *a)
{
    const size_t rows = a[0], c = a[1];
    const float *x = spread(t, rows * c, a[2]);
    float *y = trial_out(t, "y", rows * c, a[3] == IN_PLACE, 1e-6, 1 / (double)c);
    for (size_t i = 0; a[3] == IN_PLACE && i < rows * c; i++)
        y[i] = x[i];
    CALL(t, softmax, rows, c, a[3] == IN_PLACE ? y : x, y);
}

static void softmax_grad(trial *t, const size_t *a)
{
    const size_t rows = a[0], c = a[1];
    const float *x = trial_in(t, rows * c), *dy = trial_in(t, rows * c);
    float *y = trial_in(t, rows * c);
    PREPARE(t, softmax, rows, c, x, y);
    float *dx = trial_out(t, "dx", rows * c, a[2] == 1, 1e-6, 1);
    CALL(t, softmax_grad, rows, c, y, dy, dx, a[2] == 1);
}

#define LENGTHS SIZES("n", 0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 257, 1000)
#define REPEATED                                                                                   \
    SIZES("m", 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 257),                                  \
        SIZES("repeats", 0, 1, 2, 3, 16, 37)
#define ROWS                                                                                       \
    SIZES("rows", 0, 1, 2, 3, 17), SIZES("c", 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 130, 1000)

const trial_op trial_elementwise[] = {
    {ENTRY(act),
     act,
     {LENGTHS, CHOICE("act", 0, 1, 2, 3, 4, 5, 6), CHOICE("wide", 0, 1),
      CHOICE("how", APART, IN_PLACE)}},
    {ENTRY(act_grad),
     act_grad,
     {LENGTHS, CHOICE("act", 0, 1, 2, 3, 4, 5, 6), CHOICE("wide", 0, 1),
      CHOICE("how", APART, IN_PLACE, ADD)}},
    {ENTRY(add), add, {REPEATED, CHOICE("how", APART, IN_PLACE)}},
    {ENTRY(mul), mul, {REPEATED, CHOICE("how", APART, IN_PLACE)}},
    {ENTRY(sum_repeats), sum_repeats, {REPEATED, CHOICE("times", 0, 1), CHOICE("add", 0, 1)}},
    {ENTRY(scale), scale, {LENGTHS, CHOICE("how", APART, IN_PLACE, ADD)}},
    {ENTRY(fill), fill, {LENGTHS}},
    {ENTRY(dropout),
     dropout,
     {SIZES("samples", 0, 1, 2, 5), SIZES("each", 1, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 700),
      CHOICE("p", 0, 1, 2, 3, 4, 5), CHOICE("place", 0, 1, 2),
      CHOICE("how", APART, IN_PLACE, ADD)}},
    {ENTRY(softmax), softmax, {ROWS, CHOICE("wide", 0, 1), CHOICE("how", APART, IN_PLACE)}},
    {ENTRY(softmax_grad), softmax_grad, {ROWS, CHOICE("add", 0, 1)}},
    {0},
};

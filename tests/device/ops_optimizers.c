/* Operations under test: optimizer updates, sums of squares, the search for what is not finite. */
#include <math.h>

#include "trial.h"

enum { NO_GRADIENT = 1, DECAY = 2, FIRST = 4, NESTEROV = 8, MOMENTUM = 16 };

static lsi_sgd sgd_of(size_t o, uint64_t number)
{
    return (lsi_sgd){.lr = 0.1f,
                     .momentum = o & MOMENTUM ? 0.9f : 0.0f,
                     .decay = o & DECAY ? 0.01f : 0.0f,
                     .nesterov = (o & NESTEROV) != 0,
                     .first = (o & FIRST) != 0,
                     .scale = 0.125f,
                     .number = number};
}

/* Some moments that a step which settles has to clear, and some that are almost as small. */
static void add_tiny(float *moment, size_t n)
{
    for (size_t i = 0; i < n; i += 3)
        moment[i] = (i % 2 ? 0x1p-90f : 0x1p-110f) * (1 + fabsf(moment[i]));
}

/* An output that tells zeros from what is tiny, which a tolerance does not; filled after the
 * call. */
static void mark_zeros(float *zeros, const float *moment, size_t n)
{
    for (size_t i = 0; i < n; i++)
        zeros[i] = moment[i] == 0;
}

static void sgd(trial *t, const size_t *a)
{
    const size_t n = a[0];
    const lsi_sgd p = sgd_of(a[1], a[2]);
    const float *g = a[1] & NO_GRADIENT ? NULL : trial_in(t, n);
    /* At first there is nothing in the momentum buffer: NaN here. */
    float *m = a[1] & MOMENTUM ? trial_out(t, "m", n, !p.first, 3e-7, 1) : NULL;
    float *w = trial_out(t, "w", n, 1, 3e-7, 1), *zeros = trial_out(t, "zeros", n, 0, 0, 0);
    if (m && !p.first)
        add_tiny(m, n);
    CALL(t, sgd, &p, n, g, m, w);
    if (m)
        mark_zeros(zeros, m, n);
}

enum { DECOUPLED = 4, FIRST_STEP = 8 };

static lsi_adam adam_of(size_t o, uint64_t number)
{
    return (lsi_adam){.lr = 0.01f,
                      .beta1 = 0.9f,
                      .beta2 = 0.999f,
                      .eps = 1e-8f,
                      .decay = o & DECAY ? 0.1f : 0.0f,
                      .correct1 = o & FIRST_STEP ? 0.1f : 0.6f,
                      .correct2 = o & FIRST_STEP ? 0.001f : 0.01f,
                      .decoupled = (o & DECOUPLED) != 0,
                      .scale = 0.125f,
                      .number = number};
}

typedef struct moments {
    float *m, *v, *zeros_m, *zeros_v;
    size_t n;
} moments;

/* Moments as they are before a step: squares not negative, and both zero before the first. */
static moments moments_of(trial *t, size_t n, size_t o, double tol)
{
    moments x = {.m = trial_out(t, "m", n, 1, tol, 1),
                 .v = trial_out(t, "v", n, 1, tol, 0.01),
                 .zeros_m = trial_out(t, "zeros of m", n, 0, 0, 0),
                 .zeros_v = trial_out(t, "zeros of v", n, 0, 0, 0),
                 .n = n};
    for (size_t i = 0; i < n; i++) {
        x.m[i] = o & FIRST_STEP ? 0.0f : x.m[i];
        x.v[i] = o & FIRST_STEP ? 0.0f : fabsf(x.v[i]) + 0.001f;
    }
    if (!(o & FIRST_STEP)) {
        add_tiny(x.m, n);
        add_tiny(x.v, n);
    }
    return x;
}

static void mark_moments(const moments *x)
{
    mark_zeros(x->zeros_m, x->m, x->n);
    mark_zeros(x->zeros_v, x->v, x->n);
}

static void adam(trial *t, const size_t *a)
{
    const size_t n = a[0];
    const lsi_adam p = adam_of(a[1], a[2]);
    const float *g = a[1] & NO_GRADIENT ? NULL : trial_in(t, n);
    float *w = trial_out(t, "w", n, 1, 3e-7, 1);
    const moments x = moments_of(t, n, a[1], 3e-7);
    CALL(t, adam, &p, n, g, x.m, x.v, w);
    mark_moments(&x);
}

#define IDLE_ROWS 17
#define IDLE_STEPS 70
#define IDLE_GAP 3 /* elements between rows, which nobody may change */

/* Rows in any order, each of its own number of steps. Returns the length of the arrays. */
static size_t idle_rows(trial *t, size_t rows, size_t known, size_t n, lsi_idle *row)
{
    for (size_t r = 0; r < rows; r++) {
        row[r].at = (r * 5 + 3) % rows * (n + IDLE_GAP); /* 5 divides no number of rows used */
        row[r].steps = trial_below(t, known + 1);
    }
    return rows * (n + IDLE_GAP);
}

/* Their places alone. */
static size_t places_of(trial *t, size_t rows, size_t n, size_t *at)
{
    lsi_idle row[IDLE_ROWS];
    const size_t all = idle_rows(t, rows, 0, n, row);
    for (size_t r = 0; r < rows; r++)
        at[r] = row[r].at;
    return all;
}

static void sgd_rows(trial *t, const size_t *a)
{
    const size_t n = a[0], rows = a[3];
    size_t at[IDLE_ROWS];
    const lsi_sgd p = sgd_of(a[1], a[2]);
    const size_t all = places_of(t, rows, n, at);
    const float *g = trial_in(t, rows * n);
    float *m = a[1] & MOMENTUM ? trial_out(t, "m", all, 1, 3e-7, 1) : NULL;
    float *w = trial_out(t, "w", all, 1, 3e-7, 1);
    CALL(t, sgd_rows, &p, rows, at, n, g, m, w);
}

static void adam_rows(trial *t, const size_t *a)
{
    const size_t n = a[0], rows = a[3];
    size_t at[IDLE_ROWS];
    const lsi_adam p = adam_of(a[1], a[2]);
    const size_t all = places_of(t, rows, n, at);
    const float *g = trial_in(t, rows * n);
    float *w = trial_out(t, "w", all, 1, 3e-7, 1);
    const moments x = moments_of(t, all, a[1], 3e-7);
    CALL(t, adam_rows, &p, rows, at, n, g, x.m, x.v, w);
    mark_moments(&x);
}

/* Every step adds its roundings. */
static double idle_tolerance(size_t steps)
{
    return 1e-7 * (3 + (double)steps);
}

static void sgd_idle(trial *t, const size_t *a)
{
    const size_t n = a[0], rows = a[3], known = a[4];
    lsi_idle row[IDLE_ROWS];
    lsi_sgd p = sgd_of(a[1], a[2]);
    p.lr = NAN; /* not looked at, nor is first */
    const size_t all = idle_rows(t, rows, known, n, row);
    const double tol = idle_tolerance(known);
    const float *lr = trial_spare(t, trial_in_range(t, known, 0.01, 0.1));
    float *m = a[1] & MOMENTUM ? trial_out(t, "m", all, 1, tol, 1) : NULL;
    float *w = trial_out(t, "w", all, 1, tol, 2), *zeros = trial_out(t, "zeros", all, 0, 0, 0);
    if (m)
        add_tiny(m, all);
    CALL(t, sgd_idle, &p, rows, row, known, lr, n, m, w);
    if (m)
        mark_zeros(zeros, m, all);
}

static void adam_idle(trial *t, const size_t *a)
{
    const size_t n = a[0], rows = a[3], known = a[4];
    lsi_idle row[IDLE_ROWS];
    lsi_adam p = adam_of(a[1], a[2]);
    lsi_adam_rate rates[IDLE_STEPS];
    for (size_t s = 0; s < known; s++) {
        p.lr = 0.01f / (float)(s + 1);
        p.correct1 = 1 - powf(0.9f, (float)(s + 5));
        p.correct2 = 1 - powf(0.999f, (float)(s + 5));
        rates[s] = lsi_adam_rate_at(&p);
    }
    p.lr = p.correct1 = p.correct2 = NAN;
    const size_t all = idle_rows(t, rows, known, n, row);
    const double tol = idle_tolerance(known);
    float *w = trial_out(t, "w", all, 1, tol, 2);
    const moments x = moments_of(t, all, a[1], tol);
    trial_spare(t, x.v); /* NaN only where the moment is, by which a row is known to rest */
    CALL(t, adam_idle, &p, rows, row, known, rates, n, x.m, x.v, w);
    mark_moments(&x);
}

static void lamb_direction(trial *t, const size_t *a)
{
    const size_t n = a[0];
    const lsi_adam p = adam_of(a[1], a[2]);
    const float *g = a[1] & NO_GRADIENT ? NULL : trial_in(t, n), *w = trial_in(t, n);
    float *u = trial_out(t, "u", n, 0, 1e-6, 1);
    const moments x = moments_of(t, n, a[1], 3e-7);
    CALL(t, lamb_direction, &p, n, g, x.m, x.v, w, u);
    mark_moments(&x);
}

static void block_squares(trial *t, const size_t *a)
{
    const size_t n = a[0];
    const float *x = trial_in(t, n);
    double *sums = trial_out_sum(t, "sums", (n + 4095) / 4096, 5e-7, 0);
    CALL(t, block_squares, n, a[1] ? 0.37f : 1.0f, x, sums);
}

static void find_nonfinite(trial *t, const size_t *a)
{
    static const float bad[] = {0.0f, NAN, INFINITY, -INFINITY};
    const size_t n = a[0], kind = a[1];
    float *x = trial_in_range(t, n, -3e38, 3e38);
    for (size_t i = 0; n && kind && i < a[2]; i++)
        x[trial_below(t, n)] = bad[kind];
    if (n && kind && a[3])
        x[a[3] == 1 ? 0 : n - 1] = bad[kind];
    size_t *first = trial_out_size(t, "first");
    CALL(t, find_nonfinite, n, x, first);
}

#define LENGTHS SIZES("n", 0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 257, 4096, 5000)
#define ADAM_OPTIONS                                                                               \
    CHOICE("options", 0, NO_GRADIENT, DECAY, DECAY | DECOUPLED, DECAY | NO_GRADIENT, FIRST_STEP,   \
           FIRST_STEP | DECAY | DECOUPLED, FIRST_STEP | NO_GRADIENT, DECAY | FIRST_STEP,           \
           DECAY | DECOUPLED | NO_GRADIENT)

#define NUMBER CHOICE("number", 0, 1, 63, 64, 128)
#define ROW_LENGTHS SIZES("n", 1, 2, 15, 16, 17, 33, 64)
#define ROW_COUNTS CHOICE("rows", 0, 1, 2, 3, 4, 8, 11, 17)
#define IDLE CHOICE("number", 0, 200, 256, 257), ROW_COUNTS, SIZES("known", 0, 1, 2, 9, IDLE_STEPS)

const trial_op trial_optimizers[] = {
    {ENTRY(sgd),
     sgd,
     {LENGTHS,
      CHOICE("options", 0, DECAY, NO_GRADIENT, NO_GRADIENT | DECAY, MOMENTUM, MOMENTUM | FIRST,
             MOMENTUM | DECAY, MOMENTUM | NESTEROV, MOMENTUM | NESTEROV | FIRST | DECAY,
             MOMENTUM | NO_GRADIENT, MOMENTUM | NO_GRADIENT | FIRST, MOMENTUM | NESTEROV | DECAY),
      NUMBER}},
    {ENTRY(adam), adam, {LENGTHS, ADAM_OPTIONS, NUMBER}},
    {ENTRY(sgd_rows),
     sgd_rows,
     {ROW_LENGTHS,
      CHOICE("options", 0, DECAY, MOMENTUM, MOMENTUM | FIRST, MOMENTUM | DECAY, MOMENTUM | NESTEROV,
             MOMENTUM | NESTEROV | DECAY),
      NUMBER, ROW_COUNTS}},
    {ENTRY(adam_rows),
     adam_rows,
     {ROW_LENGTHS, CHOICE("options", 0, DECAY, DECAY | DECOUPLED, FIRST_STEP, FIRST_STEP | DECAY),
      NUMBER, ROW_COUNTS}},
    {ENTRY(sgd_idle),
     sgd_idle,
     {ROW_LENGTHS,
      CHOICE("options", 0, DECAY, MOMENTUM, MOMENTUM | FIRST, MOMENTUM | DECAY, MOMENTUM | NESTEROV,
             MOMENTUM | NESTEROV | DECAY),
      IDLE}},
    {ENTRY(adam_idle),
     adam_idle,
     {ROW_LENGTHS, CHOICE("options", 0, DECAY, DECAY | DECOUPLED, FIRST_STEP, FIRST_STEP | DECAY),
      IDLE}},
    {ENTRY(lamb_direction), lamb_direction, {LENGTHS, ADAM_OPTIONS, NUMBER}},
    {ENTRY(block_squares),
     block_squares,
     {SIZES("n", 0, 1, 15, 16, 17, 33, 1000, 4095, 4096, 4097, 4112, 8192, 10001),
      CHOICE("scaled", 0, 1)}},
    {ENTRY(find_nonfinite),
     find_nonfinite,
     {LENGTHS, CHOICE("kind", 0, 1, 2, 3), CHOICE("some", 0, 1, 3), CHOICE("end", 0, 1, 2)}},
    {0},
};

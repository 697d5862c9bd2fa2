/* Operations under test: layer norm, RMS norm, batch norm.
 *
 * A short row (or column) of random values may have a variance close to zero; rounding errors of
 * the mean are then multiplied by rstd, which eps alone bounds. Hence tolerances by length.
 */
#include <math.h>

#include "trial.h"

#define EPS 1e-5f

enum { RESIDUAL = 1, SUM = 2, GAMMA = 4, BETA = 8 };
/* Bits of "add" in the gradients: what is added to, and dx not being wanted at all. */
enum { ADD_X = 1, ADD_PARAMS = 2, ADD_RESIDUAL = 4, NO_DX = 8 };
/* Where the residual is: beside y (dy, for its gradient), or the same buffer. */
enum { NONE, APART, IN_PLACE };

/* Of a normalised value: `count` values of size `offset` or so are averaged. */
static double tolerance(size_t count, size_t offset)
{
    const double spread = count < 4 ? 100 : count < 16 ? 10 : 1;
    return 1e-6 * spread * (1 + (double)offset);
}

static lsi_norm norm_of(const size_t *a)
{
    return (lsi_norm){.rows = a[0], .c = a[1], .eps = EPS};
}

static float *shifted(trial *t, size_t n, size_t offset)
{
    return trial_in_range(t, n, (double)offset - 1.7320508, (double)offset + 1.7320508);
}

static void layernorm(trial *t, const size_t *a)
{
    lsi_norm p = norm_of(a);
    p.rms = (int)a[2];
    const int options = (int)a[4];
    const size_t n = p.rows * p.c;
    const double tol = tolerance(p.c, a[3]);
    const float *x = shifted(t, n, a[3]);
    const float *residual = options & RESIDUAL ? trial_in(t, n) : NULL;
    const float *gamma = options & GAMMA ? trial_in(t, p.c) : NULL;
    const float *beta = options & BETA && !p.rms ? trial_in(t, p.c) : NULL;
    float *sum = options & SUM ? trial_out(t, "sum", n, 0, 0, 0) : NULL;
    float *y = trial_out(t, "y", n, 0, tol, 1);
    float *mean = p.rms ? NULL : trial_out(t, "mean", p.rows, 0, 1e-6, 1);
    float *rstd = trial_out(t, "rstd", p.rows, 0, tol, 1);
    CALL(t, layernorm, &p, x, residual, gamma, beta, sum, y, mean, rstd);
}

static void layernorm_grad(trial *t, const size_t *a)
{
    lsi_norm p = norm_of(a);
    p.rms = (int)a[2];
    const int add = (a[3] & ADD_X) != 0, add_params = (a[3] & ADD_PARAMS) != 0;
    const size_t n = p.rows * p.c;
    const double tol = tolerance(p.c, 0), rows = (double)p.rows;
    const float *x = trial_in(t, n), *dy = trial_in(t, n);
    const float *gamma = a[4] ? trial_in(t, p.c) : NULL;
    float *y = trial_in(t, n), *mean = trial_in(t, p.rows), *rstd = trial_in(t, p.rows);
    PREPARE(t, layernorm, &p, x, NULL, NULL, NULL, NULL, y, p.rms ? NULL : mean, rstd);
    float *dx = a[3] & NO_DX ? NULL : trial_out(t, "dx", n, add, tol, 10);
    float *dgamma = a[5] & GAMMA ? trial_out(t, "dgamma", p.c, add_params, tol, rows + 2) : NULL;
    float *dbeta =
        a[5] & BETA && !p.rms ? trial_out(t, "dbeta", p.c, add_params, 3e-7, rows + 2) : NULL;
    CALL(t, layernorm_grad, &p, x, gamma, p.rms ? NULL : mean, rstd, dy, dx, add, dgamma, dbeta,
         add_params);
}

static void batchnorm(trial *t, const size_t *a)
{
    lsi_norm p = norm_of(a);
    p.relu = (int)a[2];
    const size_t n = p.rows * p.c;
    const double tol = tolerance(p.rows, a[3]);
    const float *x = shifted(t, n, a[3]), *gamma = trial_in(t, p.c), *beta = trial_in(t, p.c);
    float *y = trial_out(t, "y", n, a[4] == IN_PLACE, tol, 1);
    const float *residual = a[4] == IN_PLACE ? y : a[4] == APART ? trial_in(t, n) : NULL;
    float *mean = trial_out(t, "mean", p.c, 0, 1e-6, 1);
    float *var = trial_out(t, "var", p.c, 0, 1e-6, 1 + (double)a[3]);
    float *rstd = trial_out(t, "rstd", p.c, 0, tol, 1);
    CALL(t, batchnorm, &p, x, gamma, beta, residual, y, mean, var, rstd);
}

static void batchnorm_eval(trial *t, const size_t *a)
{
    lsi_norm p = norm_of(a);
    p.relu = (int)a[2];
    const size_t n = p.rows * p.c;
    const float *x = shifted(t, n, a[3]), *gamma = trial_in(t, p.c), *beta = trial_in(t, p.c);
    const float *mean = trial_in(t, p.c), *var = trial_in_range(t, p.c, 0.1, 4);
    float *y = trial_out(t, "y", n, a[4] == IN_PLACE, 1e-6, 4 * (1 + (double)a[3]));
    const float *residual = a[4] == IN_PLACE ? y : a[4] == APART ? trial_in(t, n) : NULL;
    CALL(t, batchnorm_eval, &p, x, gamma, beta, residual, mean, var, y);
}

static void batchnorm_grad(trial *t, const size_t *a)
{
    lsi_norm p = norm_of(a);
    p.relu = (int)a[2];
    const int add = (a[3] & ADD_X) != 0, add_params = (a[3] & ADD_PARAMS) != 0;
    const int add_residual = a[4] == APART && a[3] & ADD_RESIDUAL;
    const size_t n = p.rows * p.c;
    const double tol = tolerance(p.rows, 0), rows = (double)p.rows;
    const float *x = trial_in(t, n), *gamma = trial_in(t, p.c);
    const float *beta = trial_in(t, p.c);
    float *y = trial_in(t, n), *mean = trial_in(t, p.c), *var = trial_in(t, p.c);
    float *rstd = trial_in(t, p.c);
    PREPARE(t, batchnorm, &p, x, gamma, beta, NULL, y, mean, var, rstd);
    float *dx = a[3] & NO_DX ? NULL : trial_out(t, "dx", n, add, tol, 10);
    float *dresidual =
        a[4] ? trial_out(t, "dresidual", n, add_residual || a[4] == IN_PLACE, 0, 0) : NULL;
    const float *dy = a[4] == IN_PLACE ? dresidual : trial_in(t, n);
    float *dgamma = trial_out(t, "dgamma", p.c, add_params, tol, rows + 2);
    float *dbeta = trial_out(t, "dbeta", p.c, add_params, 3e-7, rows + 2);
    CALL(t, batchnorm_grad, &p, x, a[5] ? y : NULL, gamma, beta, mean, rstd, dy, dx, add, dresidual,
         add_residual, dgamma, dbeta, add_params);
}

#define ROWS 1, 2, 3, 7, 8, 9, 16, 17, 33, 64
#define WIDTHS 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 130, 384

const trial_op trial_norms[] = {
    {ENTRY(layernorm),
     layernorm,
     {SIZES("rows", 0, ROWS), SIZES("c", WIDTHS), CHOICE("rms", 0, 1), CHOICE("offset", 0, 10),
      CHOICE("options", 0, GAMMA, GAMMA | BETA, RESIDUAL | GAMMA | BETA,
             RESIDUAL | SUM | GAMMA | BETA, RESIDUAL | SUM, SUM | BETA)}},
    {ENTRY(layernorm_grad),
     layernorm_grad,
     {SIZES("rows", 0, ROWS), SIZES("c", WIDTHS), CHOICE("rms", 0, 1),
      CHOICE("add", 0, ADD_X, ADD_PARAMS, ADD_X | ADD_PARAMS, NO_DX), CHOICE("gamma", 0, 1),
      CHOICE("params", 0, GAMMA, BETA, GAMMA | BETA)}},
    {ENTRY(batchnorm),
     batchnorm,
     {SIZES("rows", ROWS, 300), SIZES("c", WIDTHS), CHOICE("relu", 0, 1), CHOICE("offset", 0, 10),
      CHOICE("residual", NONE, APART, IN_PLACE)}},
    {ENTRY(batchnorm_eval),
     batchnorm_eval,
     {SIZES("rows", 0, ROWS), SIZES("c", WIDTHS), CHOICE("relu", 0, 1), CHOICE("offset", 0, 10),
      CHOICE("residual", NONE, APART, IN_PLACE)}},
    {ENTRY(batchnorm_grad),
     batchnorm_grad,
     {SIZES("rows", ROWS, 300), SIZES("c", WIDTHS), CHOICE("relu", 0, 1),
      CHOICE("add", 0, ADD_X, ADD_PARAMS, ADD_RESIDUAL, ADD_X | ADD_PARAMS | ADD_RESIDUAL, NO_DX),
      CHOICE("residual", NONE, APART, IN_PLACE), CHOICE("y", 0, 1)}},
    {0},
};

/* Every kernel with NaN and infinities among what it reads, at the edges of rows and vectors: every
 * instruction set against `ref` and against the others (trial.h).
 *
 * Elements are as ref's unless a rule below says otherwise, and why. Two things hold by intent and
 * are the same on ref: relu keeps a NaN, and its gradient is 0 wherever x > 0 does not hold; a
 * maximum over a window is NaN when one of its values is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "trial.h"

#if defined(__SANITIZE_ADDRESS__)
#define LIMIT 60
#else
#define LIMIT 300
#endif

/* ---- where kernels are not as ref is --------------------------------------------------------- */

/* Keys that a query may not see have the probability 0 and meet their values as 0 x value when they
 * are of the same few rows of tiles, whose number is that of the instruction set. */
static trial_kind attention_rule(const size_t *a)
{
    const int causal = a[5] != 0;
    return causal ? TRIAL_BY_SET : TRIAL_SAME;
}

/* Likewise; and e^x is never quite 0 (vec_math.h), so that it is an infinity where ref has 0 x
 * infinity. */
static trial_kind attention_grad_rule(const size_t *a)
{
    const int causal = a[5] != 0;
    return causal ? TRIAL_BY_SET : TRIAL_NOT_FINITE;
}

/* The border around an image is zeros that are multiplied, where ref leaves them out: 0 x infinity.
 * And products for four pixels at once (Winograd) add and subtract what the four have in common. */
static trial_kind conv_rule(const size_t *a)
{
    static const int bare[12] = {[0] = 1, [3] = 1, [4] = 1, [9] = 1}; /* windows without border */
    const int few = a[6] == 4 && a[3] % 16 == 0 && a[4] % 16 == 0 && a[5] == 1;
    return bare[a[6]] && !few ? TRIAL_SAME : TRIAL_SPREADS;
}

/* There is a border around dy, too, unless windows have one place. */
static trial_kind conv_dx_rule(const size_t *a)
{
    return a[6] == 0 || a[6] == 3 ? TRIAL_SAME : TRIAL_SPREADS;
}

/* Values are normalised by x scale + shift, which is infinity minus infinity where ref's (x - mean)
 * scale is infinite; the relu behind it makes a 0 of one of the two. */
static trial_kind batchnorm_rule(const size_t *a)
{
    const int relu = a[2] != 0;
    return relu ? TRIAL_SPREADS : TRIAL_NOT_FINITE;
}

/* Sums of the same terms, put together in another order. */
static trial_kind order_rule(const size_t *a)
{
    (void)a;
    return TRIAL_NOT_FINITE;
}

/* A slope may be 0 in f32 where it is tiny in double: 0 x infinity. */
static trial_kind slope_rule(const size_t *a)
{
    (void)a;
    return TRIAL_NOT_FINITE;
}

static const struct {
    const char *name;
    trial_rule rule;
} rules[] = {
    {"attention", attention_rule},
    {"attention_grad", attention_grad_rule},
    {"conv2d", conv_rule},
    {"conv2d_dx", conv_dx_rule},
    {"conv2d_dw", conv_rule},
    {"batchnorm", batchnorm_rule},
    {"batchnorm_eval", batchnorm_rule},
    {"batchnorm_grad", order_rule},
    {"layernorm_grad", order_rule},
    {"act_grad", slope_rule},
};

/* ---- all of them ----------------------------------------------------------------------------- */

static const trial_op *const groups[] = {trial_products,    trial_convolutions, trial_norms,
                                         trial_elementwise, trial_moves,        trial_pools,
                                         trial_losses,      trial_optimizers};
#define GROUPS (sizeof groups / sizeof *groups)
#define OPS_MAX 64

static void run_op(void **state)
{
    const trial_op *op = *state;
    /* these read no floats, or answer with none */
    const int silent = !strcmp(op->name, "fill") || !strcmp(op->name, "find_nonfinite");
    trial_rule rule = NULL;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].name, op->name))
            rule = rules[i].rule;
    const size_t seen = trial_exceptional(op, LIMIT, rule);
    if ((seen == 0) != silent)
        fail_msg("%s: %zu values of ref were not finite", op->name, seen);
}

int main(void)
{
    struct CMUnitTest tests[OPS_MAX];
    size_t count = 0;
    for (size_t g = 0; g < GROUPS; g++)
        for (const trial_op *op = groups[g]; op->name && count < OPS_MAX; op++)
            tests[count++] = (struct CMUnitTest){op->name, run_op, NULL, NULL, (void *)op};
    return _cmocka_run_group_tests("exceptional", tests, count, NULL, NULL);
}

/* The matrix: arguments, runs and comparison; buffers are in trial_buffer.c. */
#include "trial.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trial_buffer.h"

#define RUNS 4 /* ref and at most three instruction sets */
#if defined(__SANITIZE_ADDRESS__)
#define SLOW_EVERY                                                                                 \
    16 /* cases that the slowest set takes part in: it is a hundred times slower now */
#else
#define SLOW_EVERY 1
#endif
#define REPORTED 5 /* differences printed of one operation */

/* What an operation has shown so far. */
typedef struct summary {
    const trial_op *op;
    size_t cases, failures;
    double worst; /* largest difference as a part of what is allowed */
    const char *where;
    int exceptional;
    trial_rule rule;
    size_t seen; /* elements of outputs that were not finite on ref */
} summary;

static void print_case(const summary *s, const size_t *args)
{
    print_error("%s(", s->op->name);
    for (int i = 0; i < TRIAL_ARGS && s->op->args[i].name; i++)
        print_error("%s%s=%zu", i ? " " : "", s->op->args[i].name, args[i]);
    print_error(")");
}

static void report(summary *s, const size_t *args, const char *isa, const char *what,
                   const char *detail)
{
    if (++s->failures > REPORTED)
        return;
    print_case(s, args);
    print_error(" %s: %s: %s\n", isa, what, detail);
}

/* May a be there where ref has b, one of them not being finite? */
static int agrees(const summary *s, const size_t *args, double a, double b)
{
    switch (s->rule ? s->rule(args) : TRIAL_SAME) {
    case TRIAL_SAME: return a == b || (isnan(a) && isnan(b));
    case TRIAL_NOT_FINITE: return !isfinite(a) && !isfinite(b);
    case TRIAL_SPREADS:
    case TRIAL_BY_SET: return !isfinite(a);
    }
    return 0;
}

/* One output against ref's; returns 0 after reporting a difference. */
static int within(summary *s, const size_t *args, const char *isa, const buffer *got,
                  const buffer *expected)
{
    char detail[160];
    for (size_t i = 0; i < got->n; i++) {
        const double a = buffer_value(got, i), b = buffer_value(expected, i);
        s->seen += (size_t)!isfinite(b);
        if (!memcmp(got->data + i * got->element, expected->data + i * got->element, got->element))
            continue;
        if (s->exceptional && (!isfinite(a) || !isfinite(b)) && agrees(s, args, a, b))
            continue;
        const double allowed = got->tol * (fabs(b) + got->scale), off = fabs(a - b);
        if (!(off <= allowed)) {
            snprintf(detail, sizeof detail,
                     "[%zu] of %zu is %.9g, not %.9g (off by %.3g, %.3g "
                     "allowed)",
                     i, got->n, a, b, off, allowed);
            report(s, args, isa, got->name, detail);
            return 0;
        }
        if (off / allowed > s->worst) {
            s->worst = off / allowed;
            s->where = got->name;
        }
    }
    return 1;
}

/* May one set have a where another has b, their bits being different? */
static int sets_agree(const summary *s, const size_t *args, double a, double b)
{
    if (!s->exceptional)
        return 0;
    if (s->rule && s->rule(args) == TRIAL_BY_SET)
        return !isfinite(a) || !isfinite(b);
    return isnan(a) && isnan(b);
}

static int same_bits(summary *s, const size_t *args, const char *isa, const buffer *got,
                     const buffer *first, const char *first_isa)
{
    char detail[160];
    for (size_t i = 0; i < got->n; i++) {
        if (!memcmp(got->data + i * got->element, first->data + i * got->element, got->element) ||
            sets_agree(s, args, buffer_value(got, i), buffer_value(first, i)))
            continue;
        snprintf(detail, sizeof detail, "[%zu] of %zu is %.9g, but %.9g by %s: other bits", i,
                 got->n, buffer_value(got, i), buffer_value(first, i), first_isa);
        report(s, args, isa, got->name, detail);
        return 0;
    }
    return 1;
}

/* Run one set of kernels. Returns 0 when the operation skipped these arguments. */
static int run_once(summary *s, const size_t *args, uint64_t seed, int run, lsi_device *ref,
                    lsi_device *device, trial_state *state)
{
    trial t = {.device = device, .k = device->k, .ref = ref, .state = state};
    state_begin(state, seed, run, s->exceptional);
    if (device->scratch)
        memset(device->scratch, 0xff, device->scratch_bytes);
    s->op->run(&t, args);
    if (state->skipped)
        return 0;
    const char *wrong = state_end(state);
    if (wrong)
        report(s, args, device->k->isa, wrong, "was changed");
    if (state->status != LS_OK)
        report(s, args, device->k->isa, "status", ls_status_name(state->status));
    return 1;
}

static void compare(summary *s, const size_t *args, const trial_state *got, const char *isa,
                    const trial_state *expected, const trial_state *first, const char *first_isa)
{
    for (int i = 0; i < got->count; i++) {
        const buffer *b = &got->buffers[i];
        if (!b->output)
            continue;
        if ((within(s, args, isa, b, &expected->buffers[i]) || s->exceptional) && first)
            same_bits(s, args, isa, b, &first->buffers[i], first_isa);
    }
}

static int has_kernel(const lsi_kernels *k, size_t entry)
{
    void (*kernel)(void);
    memcpy(&kernel, (const char *)k + entry, sizeof kernel);
    return kernel != NULL;
}

/* One set of arguments on ref and on every instruction set. */
static void run_case(summary *s, const size_t *args, uint64_t seed)
{
    static trial_state state[RUNS];
    static lsi_device *ref, *cpu;
    if (!ref) {
        assert_int_equal(lsi_device_open("ref", &ref), LS_OK);
        assert_int_equal(lsi_device_open("cpu", &cpu), LS_OK);
    }
    assert_true(lsi_isa_count() < RUNS);
    int first = -1;
    if (run_once(s, args, seed, 0, ref, ref, &state[0])) {
        s->cases++;
        for (int i = 0; i < lsi_isa_count(); i++) {
            cpu->k = lsi_isa_kernels(i);
            if (!cpu->k || (i == 0 && lsi_isa_usable(1) && s->cases % SLOW_EVERY))
                continue;
            run_once(s, args, seed, 1 + i, ref, cpu, &state[1 + i]);
            compare(s, args, &state[1 + i], lsi_isa_name(i), &state[0],
                    first >= 0 ? &state[1 + first] : NULL, lsi_isa_name(first));
            if (first < 0)
                first = i;
        }
    }
    for (int i = 0; i < RUNS; i++)
        state_clear(&state[i]);
}

static void begin(const summary *s)
{
    for (int i = 0; i < lsi_isa_count(); i++)
        if (lsi_isa_kernels(i) && !has_kernel(lsi_isa_kernels(i), s->op->entry))
            fail_msg("%s has no kernel for %s", lsi_isa_name(i), s->op->name);
}

static void finish(const summary *s)
{
    if (s->failures)
        fail_msg("%s: %zu differences in %zu cases", s->op->name, s->failures, s->cases);
    if (!s->cases)
        fail_msg("%s: no arguments that make sense", s->op->name);
    print_message("  %s: %zu cases, at most %.2f of what is allowed%s%s\n", s->op->name, s->cases,
                  s->worst, s->where ? " in " : "", s->where ? s->where : "");
}

static size_t common_divisor(size_t a, size_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* Over the product of the values of the arguments, or over a part of it. */
static void run_matrix(summary *s, size_t limit)
{
    const trial_op *op = s->op;
    size_t product = 1;
    begin(s);
    for (int i = 0; i < TRIAL_ARGS && op->args[i].name; i++)
        product *= op->args[i].count;
    /* A step of about the golden ratio that shares no factor with the product visits elements that
     * are spread evenly, none twice. */
    size_t step = (size_t)((double)product * 0.6180339887498949) | 1;
    while (common_divisor(step, product) != 1)
        step++;
    for (size_t c = 0, at = 0; c < product && c < limit; c++, at = (at + step) % product) {
        size_t args[TRIAL_ARGS] = {0}, rest = at;
        for (int i = 0; i < TRIAL_ARGS && op->args[i].name; i++) {
            args[i] = op->args[i].values[rest % op->args[i].count];
            rest /= op->args[i].count;
        }
        run_case(s, args, at);
    }
    finish(s);
}

void trial_matrix(const trial_op *op, size_t limit)
{
    summary s = {.op = op};
    run_matrix(&s, limit);
}

size_t trial_exceptional(const trial_op *op, size_t limit, trial_rule rule)
{
    summary s = {.op = op, .exceptional = 1, .rule = rule};
    run_matrix(&s, limit);
    return s.seen;
}

/* One of a choice, or a size between the extremes, small ones more often. */
static size_t random_value(const trial_arg *arg, uint64_t *rng)
{
    if (arg->choice)
        return arg->values[random_below(rng, arg->count)];
    size_t low = arg->values[0], high = low;
    for (size_t i = 1; i < arg->count; i++) {
        low = arg->values[i] < low ? arg->values[i] : low;
        high = arg->values[i] > high ? arg->values[i] : high;
    }
    const double ratio = (double)(high + 1) / (double)(low + 1);
    const size_t value = (size_t)((double)(low + 1) * pow(ratio, random_unit(rng))) - 1;
    return value > high ? high : value;
}

void trial_random(const trial_op *op, uint64_t seed, size_t count)
{
    summary s = {.op = op};
    begin(&s);
    uint64_t rng = seed;
    for (size_t c = 0; c < count; c++) {
        size_t args[TRIAL_ARGS] = {0};
        for (int i = 0; i < TRIAL_ARGS && op->args[i].name; i++)
            args[i] = random_value(&op->args[i], &rng);
        run_case(&s, args, seed + c);
    }
    finish(&s);
}

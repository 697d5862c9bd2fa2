/* The kernels that make up for missed steps: the same bits as the ordinary ones called once a step
 * with no gradient, or a gradient of zeros, on every instruction set; and all sets agree. */
#include "arrays.h"
#include "device/kernels.h"

enum { ROWS = 11, WIDEST = 67, ROOM = ROWS * WIDEST, STEPS = 300, RESULTS = 8 * 8 };

typedef struct values {
    float w[ROOM], m[ROOM], v[ROOM];
} values;

/* Rows of all sorts: ordinary, without a moment (of either sign), about to become subnormal. */
static void random_values(values *x, size_t width)
{
    for (size_t i = 0; i < ROOM; i++) {
        const size_t row = i / width;
        x->w[i] = random_float();
        x->m[i] = i % 7 ? random_float() : -0.0f; /* a zero's sign counts */
        x->v[i] = i % 5 ? fabsf(random_float()) : 0;
        if (row % 4 == 1)
            x->m[i] = row % 8 == 1 ? 0.0f : -0.0f;
        if (row % 4 == 2)
            x->m[i] *= 1e-36f, x->v[i] *= 1e-37f, x->w[i] *= 1e-36f;
        if (row == 5)
            x->v[i] = 0;
    }
}

static void same(const values *a, const values *b, const char *what)
{
    assert_same_bits(a->w, b->w, ROOM, what);
    assert_same_bits(a->m, b->m, ROOM, what);
    assert_same_bits(a->v, b->v, ROOM, what);
}

/* Some rows in any order, each with its number of missed steps. */
static size_t choose_rows(lsi_idle *rows, size_t width, size_t most)
{
    size_t count = 0;
    for (size_t r = 0; r < ROWS; r++) {
        if (random_word() % 5 == 0)
            continue;
        const size_t steps = random_word() % 8 ? random_word() % (most + 1) : most;
        rows[count++] = (lsi_idle){(r * 4 % ROWS) * width, steps};
    }
    return count;
}

static void try_sgd(lsi_device *device, lsi_sgd p, size_t width, uint64_t last, int has_m,
                    values *result)
{
    const float zeros[WIDEST] = {0};
    float lr[STEPS];
    values start, idle;
    lsi_idle rows[ROWS];
    random_values(&start, width);
    const size_t count = choose_rows(rows, width, STEPS);
    idle = start;
    for (size_t s = 0; s < STEPS; s++)
        lr[s] = 0.1f / (float)(s + 1);
    for (size_t r = 0; r < count; r++) {
        const size_t at = rows[r].at;
        for (size_t s = STEPS - rows[r].steps; s < STEPS; s++) {
            p.lr = lr[s];
            p.number = last ? last - (STEPS - 1 - s) : 0;
            OK(device->k->sgd(device, &p, width, s % 2 ? zeros : NULL, has_m ? start.m + at : NULL,
                              start.w + at));
        }
    }
    p.lr = NAN; /* not looked at, nor is first */
    p.first = 1;
    p.number = last;
    OK(device->k->sgd_idle(device, &p, count, rows, STEPS, lr, width, has_m ? idle.m : NULL,
                           idle.w));
    same(&idle, &start, "sgd_idle");
    *result = idle;
}

static void try_adam(lsi_device *device, lsi_adam p, size_t width, uint64_t last, values *result)
{
    const float zeros[WIDEST] = {0};
    lsi_adam_rate rates[STEPS];
    lsi_adam each[STEPS];
    values start, idle;
    lsi_idle rows[ROWS];
    random_values(&start, width);
    const size_t count = choose_rows(rows, width, STEPS);
    idle = start;
    for (size_t s = 0; s < STEPS; s++) {
        each[s] = p;
        each[s].lr = 0.1f / (float)(s + 1);
        each[s].correct1 = (float)(1 - pow(0.9, (double)s + 3));
        each[s].correct2 = (float)(1 - pow(0.95, (double)s + 3));
        each[s].number = last ? last - (STEPS - 1 - s) : 0;
        rates[s] = lsi_adam_rate_at(&each[s]);
    }
    for (size_t r = 0; r < count; r++) {
        const size_t at = rows[r].at;
        for (size_t s = STEPS - rows[r].steps; s < STEPS; s++)
            OK(device->k->adam(device, &each[s], width, s % 2 ? zeros : NULL, start.m + at,
                               start.v + at, start.w + at));
    }
    p.lr = p.correct1 = p.correct2 = NAN;
    p.number = last;
    OK(device->k->adam_idle(device, &p, count, rows, STEPS, rates, width, idle.m, idle.v, idle.w));
    same(&idle, &start, "adam_idle");
    *result = idle;
}

/* Every case on one table of kernels; `results` are compared with those of the table before. */
static void try_all(lsi_device *device, values *results, int compare)
{
    static const size_t widths[] = {1, 7, 8, 15, 16, 17, 48, WIDEST};
    for (size_t c = 0; c < RESULTS; c++) {
        const size_t width = widths[c % 8], kind = c / 8;
        const uint64_t last = c % 3 ? 1000 + c : 0; /* 0: no step settles */
        values *out = malloc(sizeof *out);
        random_state = 77 + c;
        const lsi_sgd sgd = {.momentum = 0.9f,
                             .decay = kind & 1 ? 0.1f : 0,
                             .nesterov = (kind & 2) != 0,
                             .scale = 3};
        const lsi_adam adam = {.beta1 = 0.9f,
                               .beta2 = 0.95f,
                               .eps = c % 5 == 4 ? 0 : 1e-8f,
                               .decay = kind & 1 ? 0.1f : 0,
                               .decoupled = (kind & 2) != 0,
                               .scale = 3};
        if (kind < 4)
            try_sgd(device, sgd, width, last, 1, out);
        else
            try_adam(device, adam, width, last, out);
        if (compare && adam.eps > 0) /* without it there are NaNs, whose payloads are free */
            same(out, &results[c], "another instruction set");
        results[c] = *out;
        const lsi_sgd plain = {.decay = kind ? 0.1f : 0, .scale = 3};
        if (kind < 2)
            try_sgd(device, plain, width, last, 0, out);
        free(out);
    }
}

static void test_instruction_sets(void **state)
{
    (void)state;
    values *results = calloc(RESULTS, sizeof *results);
    lsi_device *device;
    OK(lsi_device_open("cpu", &device));
    const lsi_kernels *chosen = device->k;
    int compare = 0;
    for (int i = 0; i < lsi_isa_count(); i++) {
        device->k = lsi_isa_kernels(i);
        if (device->k) {
            try_all(device, results, compare);
            compare = 1;
        }
    }
    device->k = chosen;
    lsi_device_close(device);
    free(results);
}

static void test_reference(void **state)
{
    (void)state;
    values *results = calloc(RESULTS, sizeof *results);
    lsi_device *device;
    OK(lsi_device_open("ref", &device));
    try_all(device, results, 0);
    lsi_device_close(device);
    free(results);
}

/* A moment ends as zero, on both devices, not in the range where processors are slow. */
static void test_settles(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "ref"};
    for (int d = 0; d < 2; d++) {
        ls_optim_config c = LS_OPTIM_CONFIG_INIT;
        arrays a = {.count = 0};
        add_param(&a, "w", 1, 33, 0, 0);
        fill(&a);
        c.name = "adam";
        c.beta1 = 0.8f;
        c.beta2 = 0.9f;
        c.device = devices[d];
        ls_optimizer *o = make(&c, &a);
        new_gradient(&a);
        OK(ls_optimizer_step(o, a.w, a.g, 1));
        memset(a.g, 0, a.elements * sizeof *a.g);
        for (int t = 1; t < 900; t++) {
            OK(ls_optimizer_step(o, a.w, a.g, 1));
            for (int i = 0; i < 2 * 33; i++) {
                const float x = ls_optimizer_state(o, i % 2, NULL)[i / 2];
                if (t > 128)
                    assert_true(fpclassify(x) != FP_SUBNORMAL);
            }
        }
        for (int i = 0; i < 33; i++) {
            assert_true(ls_optimizer_state(o, 0, NULL)[i] == 0);
            assert_true(ls_optimizer_state(o, 1, NULL)[i] == 0);
        }
        ls_optimizer_destroy(o);
        free_arrays(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instruction_sets),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_settles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

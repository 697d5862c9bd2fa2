/* Every optimizer against PyTorch, and lars and lamb against their formulas: ten steps on three
 * parameters, on both devices. What the cases consist of: tests/fixtures/optimizers.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixtures.h"
#include <lockstep/optim.h>

#define STEPS 10
#define SCALE 0.25f
#define TOLERANCE 2e-6 /* ten steps, a few roundings each */

enum { LR, MOMENTUM, NESTEROV, BETA1, BETA2, EPS, DECAY, TRUST, CLIP, FIELDS };

static const struct {
    const char *name;
    size_t count;
    int no_decay;
} shapes[] = {{"a", 37, 0}, {"b", 4100, 0}, {"c", 13, 1}};
enum { PARAMS = sizeof shapes / sizeof *shapes, ROOM = 4300 };

static const char *device;
static char seen[256]; /* names of optimizers that had a case */

static void draw(stream *s, const ls_param_info *params, float *to)
{
    for (int p = 0; p < PARAMS; p++) {
        for (size_t i = 0; i < params[p].count; i++)
            to[params[p].offset + i] = stream_float(s);
    }
}

static ls_optim_config config_of(const lsi_st_file *file, const char *name, char kind[16])
{
    float f[FIELDS];
    const lsi_st_tensor *fields = fixtures_need(file, "%s/config", name);
    assert_int_equal(fields->count, FIELDS);
    fixtures_copy(fields, f);
    snprintf(kind, 16, "%.*s", (int)strcspn(name, "/"), name);
    ls_optim_config config = LS_OPTIM_CONFIG_INIT;
    config.device = device;
    config.name = kind;
    config.lr = f[LR];
    config.momentum = f[MOMENTUM];
    config.nesterov = f[NESTEROV] != 0;
    config.beta1 = f[BETA1];
    config.beta2 = f[BETA2];
    config.eps = f[EPS];
    /* a fixture's 0 is zero, not a default */
    config.decay = f[DECAY] == 0 ? LS_OPTIM_ZERO : f[DECAY];
    config.trust = f[TRUST];
    config.clip = f[CLIP];
    return config;
}

static void check_case(const lsi_st_file *file, const char *name)
{
    static float weights[ROOM], gradients[ROOM];
    memset(weights, 0, sizeof weights);
    memset(gradients, 0, sizeof gradients);
    ls_param_info params[PARAMS] = {{0}};
    size_t elements = 0;
    for (int p = 0; p < PARAMS; p++) {
        params[p] = (ls_param_info){.name = shapes[p].name,
                                    .ndim = 1,
                                    .dims = {shapes[p].count},
                                    .offset = elements,
                                    .count = shapes[p].count,
                                    .no_decay = shapes[p].no_decay};
        elements += (shapes[p].count + 15) / 16 * 16;
    }
    assert_true(elements <= ROOM);

    char kind[16];
    const ls_optim_config config = config_of(file, name, kind);
    ls_optimizer *optimizer;
    if (ls_optimizer_create(&config, params, PARAMS, elements, &optimizer) != LS_OK)
        fail_msg("%s: %s", name, ls_last_error());
    stream s = {11};
    draw(&s, params, weights);
    for (int step = 0; step < STEPS; step++) {
        draw(&s, params, gradients);
        if (ls_optimizer_step(optimizer, weights, gradients, SCALE) != LS_OK)
            fail_msg("%s: %s", name, ls_last_error());
    }
    for (int p = 0; p < PARAMS; p++)
        fixtures_compare(device, fixtures_need(file, "%s/w/%s", name, params[p].name),
                         weights + params[p].offset, TOLERANCE);
    ls_optimizer_destroy(optimizer);
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), " %s ", kind);
}

static void check_all(const char *on)
{
    device = on;
    *seen = 0;
    lsi_st_file *file = fixtures_open("optimizers");
    fixtures_each(file, 2, check_case);
    lsi_st_close(file);
    for (int i = 0; ls_optimizer_known(i); i++) {
        char word[32];
        snprintf(word, sizeof word, " %s ", ls_optimizer_known(i));
        if (!strstr(seen, word))
            fail_msg("the fixtures have no case of %s", ls_optimizer_known(i));
    }
}

static void test_ref(void **state)
{
    (void)state;
    check_all("ref");
}

static void test_cpu(void **state)
{
    (void)state;
    check_all("cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Checkpoints: what is saved is loaded, digests are those of the files, which ones are kept, and
 * every kind of damage is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "state.h"
#include "train/checkpoint_files.h"

static const struct {
    const char *model, *setting;
    int arrays;
} cases[] = {{"mlp", "hidden=37", 1},
             {"resnet:20", NULL, 1},
             {"gpt:nano", "layers=1", 2},
             {"dlrm", "rows=50", 0}};
enum { CASES = sizeof cases / sizeof *cases };

static void save(const trial *t, const char *run, uint64_t step, double eval_loss, uint64_t keep)
{
    lsi_state state = t->state;
    state.step = step;
    state.eval_loss = eval_loss;
    mkdir(run, 0777);
    OK(lsi_checkpoint_save(run, &state, keep, NULL));
}

static void test_round(void **ignored)
{
    (void)ignored;
    for (int i = 0; i < CASES; i++) {
        char run[128];
        snprintf(run, sizeof run, "%s", path_of("round"));
        trial a = make_trial(cases[i].model, cases[i].setting, cases[i].arrays, 1);
        trial b = make_trial(cases[i].model, cases[i].setting, cases[i].arrays, 2);
        lsi_checkpoint saved, found;
        a.state.step = 1234;
        a.state.epoch = 5;
        a.state.loss = 0.1;
        a.state.eval_loss = 1.0 / 3;
        mkdir(run, 0777);
        OK(lsi_checkpoint_save(run, &a.state, 3, &saved));
        OK(lsi_checkpoint_find(run, &found));
        assert_memory_equal(&saved, &found, sizeof saved);
        OK(lsi_checkpoint_load(&found, &b.state));
        assert_equal_states(&a, &b);
        assert_int_equal(b.state.step, 1234);
        assert_int_equal(b.state.epoch, 5);
        assert_int_equal(b.state.seed, 1);
        assert_true(b.state.loss == 0.1 && b.state.eval_loss == 1.0 / 3);
        assert_string_equal(b.state.config, a.state.config);
        free_trial(&a);
        free_trial(&b);
        remove_tree(run);
    }
}

/* From arrays, from state.json and from the file: the same digits; another graph that loads the
 * file with ls_weights_load has them too. */
static void test_digests(void **ignored)
{
    (void)ignored;
    for (int i = 0; i < CASES; i++) {
        char run[128], weights[65], whole[65], file[65], again[65], path[LSI_CHECKPOINT_PATH];
        snprintf(run, sizeof run, "%s", path_of("digests"));
        trial a = make_trial(cases[i].model, cases[i].setting, cases[i].arrays, 3);
        trial b = make_trial(cases[i].model, cases[i].setting, cases[i].arrays, 4);
        lsi_checkpoint c;
        uint64_t bytes;
        a.state.step = 7;
        mkdir(run, 0777);
        OK(lsi_state_sha256(&a.state, weights, whole));
        OK(lsi_checkpoint_save(run, &a.state, 3, &c));
        assert_string_equal(c.weights, weights);
        assert_string_equal(c.state, whole);
        OK(lsi_run_path(c.folder, LSI_CHECKPOINT_MODEL, path));
        OK(lsi_file_sha256(path, file, &bytes));
        assert_string_equal(file, weights);
        OK(ls_weights_load(b.graph, path));
        OK(lsi_weights_sha256(&b.state.weights, again));
        assert_string_equal(again, weights);
        OK(ls_weights_save(b.graph, path_of("other")));
        OK(lsi_file_sha256(path_of("other"), again, &bytes));
        assert_string_equal(again, weights);
        unlink(path_of("other"));

        /* It depends on every value, on the optimizer's state, on the step. */
        const lsi_weights *w = &a.state.weights;
        a.state.step = 8;
        OK(lsi_state_sha256(&a.state, again, file));
        assert_string_equal(again, weights);
        assert_string_not_equal(file, whole);
        a.state.step = 7;
        if (cases[i].arrays) {
            float *last = &a.state.arrays[cases[i].arrays - 1][w->params[0].count - 1];
            *last += 1;
            OK(lsi_state_sha256(&a.state, again, file));
            assert_string_equal(again, weights);
            assert_string_not_equal(file, whole);
            *last -= 1;
        }
        const int p = w->param_count - 1;
        w->param_values[w->params[p].offset + w->params[p].count - 1] *= -1;
        OK(lsi_state_sha256(&a.state, again, file));
        assert_string_not_equal(again, weights);
        assert_string_not_equal(file, whole);
        free_trial(&a);
        free_trial(&b);
        remove_tree(run);
    }
}

static int has_step(const char *run, uint64_t step)
{
    char path[200];
    snprintf(path, sizeof path, "%s/checkpoint/step-%08lu", run, (unsigned long)step);
    return exists(path);
}

static void test_kept(void **ignored)
{
    (void)ignored;
    char run[128];
    snprintf(run, sizeof run, "%s", path_of("kept"));
    trial t = make_trial("mlp", "hidden=5", 1, 1);
    static const double losses[] = {3, 1, NAN, 2, 1, 4};
    for (uint64_t step = 1; step <= 6; step++)
        save(&t, run, step * 10, losses[step - 1], 2);
    lsi_checkpoint *list;
    size_t count;
    OK(lsi_checkpoint_list(run, &list, &count));
    assert_int_equal(count, 3); /* the newest two, and the first of the best */
    assert_int_equal(list[0].step, 20);
    assert_int_equal(list[1].step, 50);
    assert_int_equal(list[2].step, 60);
    free(list);
    save(&t, run, 70, 0.5, 1); /* is best and newest */
    assert_true(has_step(run, 70) && !has_step(run, 60) && !has_step(run, 20));

    /* What an interrupted save has left goes; what cannot be read stays, and counts for nothing. */
    char path[300];
    snprintf(path, sizeof path, "%s/checkpoint/.step-00000080.tmp", run);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/checkpoint/.step-00000080.tmp/model.safetensors", run);
    spill(path, "half", 4);
    snprintf(path, sizeof path, "%s/checkpoint/step-00000060", run);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/checkpoint/step-7", run);
    mkdir(path, 0777);
    save(&t, run, 90, 9, 1);
    snprintf(path, sizeof path, "%s/checkpoint/.step-00000080.tmp", run);
    assert_false(exists(path));
    assert_true(has_step(run, 60) && has_step(run, 70) && has_step(run, 90));
    free_trial(&t);
    remove_tree(run);
}

static void test_same_step(void **ignored)
{
    (void)ignored;
    char run[128];
    snprintf(run, sizeof run, "%s", path_of("same"));
    trial a = make_trial("mlp", "hidden=5", 1, 1), b = make_trial("mlp", "hidden=5", 1, 2);
    lsi_checkpoint c;
    save(&a, run, 10, NAN, 3);
    save(&b, run, 10, NAN, 3);
    OK(lsi_checkpoint_find(run, &c));
    OK(lsi_checkpoint_load(&c, &a.state));
    assert_equal_states(&a, &b);
    free_trial(&a);
    free_trial(&b);
    remove_tree(run);
}

/* A bit of each file at its ends and in the middle; lengths; files that are missing. */
static void test_damage(void **ignored)
{
    (void)ignored;
    static const char *const names[] = {LSI_CHECKPOINT_MODEL, LSI_CHECKPOINT_OPTIMIZER,
                                        LSI_CHECKPOINT_STATE};
    char run[128], path[300], before[65], whole[65], after[65];
    snprintf(run, sizeof run, "%s", path_of("damage"));
    trial t = make_trial("mlp", "hidden=5", 2, 1), u = make_trial("mlp", "hidden=5", 2, 2);
    lsi_checkpoint c, good;
    save(&t, run, 10, NAN, 3);
    save(&t, run, 20, NAN, 3);
    OK(lsi_checkpoint_find(run, &good));
    OK(lsi_state_sha256(&u.state, before, whole));
    for (int n = 0; n < 3; n++) {
        snprintf(path, sizeof path, "%s/checkpoint/step-00000020/%s", run, names[n]);
        size_t size = 0;
        char *data = slurp(path, &size);
        for (int place = 0; place <= 32; place++) {
            flip_bit(path, (size - 1) * (size_t)place / 32, place % 8);
            assert_int_equal(lsi_checkpoint_find(run, &c), LS_ERR_CONFIG);
            ERROR_HAS(names[n]);
            ERROR_HAS("step-00000010 is whole");
            if (n < 2) {
                assert_int_equal(lsi_checkpoint_load(&good, &u.state), LS_ERR_CONFIG);
                ERROR_HAS(names[n]);
            }
            spill(path, data, size);
        }
        spill(path, data, size / 2);
        assert_int_equal(lsi_checkpoint_find(run, &c), LS_ERR_CONFIG);
        spill(path, data, 0);
        assert_int_equal(lsi_checkpoint_find(run, &c), LS_ERR_CONFIG);
        data[size] = '\n';
        spill(path, data, size + 1);
        assert_int_equal(lsi_checkpoint_find(run, &c), LS_ERR_CONFIG);
        unlink(path);
        assert_int_equal(lsi_checkpoint_find(run, &c), LS_ERR_CONFIG);
        ERROR_HAS("missing");
        ERROR_HAS(names[n]);
        spill(path, data, size);
        OK(lsi_checkpoint_find(run, &c));
        free(data);
    }
    OK(lsi_state_sha256(&u.state, after, whole));
    assert_string_equal(before, after); /* nothing was loaded */

    /* The older one by its name, and when none is whole. */
    snprintf(path, sizeof path, "%s/checkpoint/step-00000020/model.safetensors", run);
    flip_bit(path, 100, 3);
    snprintf(path, sizeof path, "%s/checkpoint/step-00000010", run);
    OK(lsi_checkpoint_find(path, &c));
    assert_int_equal(c.step, 10);
    OK(lsi_checkpoint_load(&c, &u.state));
    assert_equal_states(&t, &u);
    snprintf(path, sizeof path, "%s/checkpoint/step-00000010/state.json", run);
    flip_bit(path, 9, 0);
    assert_int_equal(lsi_checkpoint_find(run, &c), LS_ERR_CONFIG);
    ERROR_HAS("no older checkpoint is whole");
    free_trial(&t);
    free_trial(&u);
    remove_tree(run);
}

static void test_other_model(void **ignored)
{
    (void)ignored;
    char run[128];
    snprintf(run, sizeof run, "%s", path_of("other"));
    trial t = make_trial("mlp", "hidden=5", 2, 1);
    trial shape = make_trial("mlp", "hidden=6", 2, 2), fewer = make_trial("mlp", "hidden=5", 1, 2);
    trial more = make_trial("mlp", "hidden=5", 3, 2);
    trial *const others[] = {&shape, &fewer, &more};
    lsi_checkpoint c;
    save(&t, run, 10, NAN, 3);
    OK(lsi_checkpoint_find(run, &c));
    for (int i = 0; i < 3; i++) {
        char before[65], after[65], whole[2][65];
        OK(lsi_state_sha256(&others[i]->state, before, whole[0]));
        assert_int_equal(lsi_checkpoint_load(&c, &others[i]->state), LS_ERR_CONFIG);
        OK(lsi_state_sha256(&others[i]->state, after, whole[1]));
        assert_string_equal(whole[0], whole[1]);
        assert_string_equal(before, after);
        free_trial(others[i]);
    }
    free_trial(&t);
    remove_tree(run);
}

static void test_none(void **ignored)
{
    (void)ignored;
    lsi_checkpoint c;
    char run[128];
    snprintf(run, sizeof run, "%s", path_of("none"));
    assert_int_equal(lsi_checkpoint_find(run, &c), LS_ERR_NOT_FOUND);
    ERROR_HAS("none/checkpoint");
    mkdir(run, 0777);
    mkdir(path_of("none/checkpoint"), 0777);
    assert_int_equal(lsi_checkpoint_find(run, &c), LS_ERR_NOT_FOUND);
    ERROR_HAS("none yet");
    remove_tree(run);
}

static void test_names(void **ignored)
{
    (void)ignored;
    uint64_t step = 0;
    assert_true(lsi_checkpoint_step("step-00001234", &step));
    assert_int_equal(step, 1234);
    assert_true(lsi_checkpoint_step("step-123456789012", &step));
    assert_int_equal(step, 123456789012);
    assert_false(lsi_checkpoint_step("step-1234", &step));
    assert_false(lsi_checkpoint_step("step-0000123x", &step));
    assert_false(lsi_checkpoint_step("step-", &step));
    assert_false(lsi_checkpoint_step(".step-00001234.tmp", &step));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round),  cmocka_unit_test(test_digests),
        cmocka_unit_test(test_kept),   cmocka_unit_test(test_same_step),
        cmocka_unit_test(test_damage), cmocka_unit_test(test_other_model),
        cmocka_unit_test(test_none),   cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

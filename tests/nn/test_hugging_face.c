/* A GPT-2 that Hugging Face's transformers wrote: read, run, and written again.
 *
 * tests/fixtures/make_gpt2.py made the files, and the logits that their model gives.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../folder.h"
#include "fixtures.h"
#include <lockstep/nn.h>

#define TOLERANCE 5e-6 /* as of one operation: tests/fixtures/README.md */

static const char *const settings[] = {"vocab=29", "context=8", "dim=12", "layers=2", "heads=2"};

static ls_graph *build(const char *device, const char *dropout)
{
    ls_model *model;
    ls_graph *graph;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.device = device;
    config.batch = 2;
    OK(ls_model_create("gpt", &model));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        OK(ls_model_set(model, settings[i]));
    OK(ls_model_set(model, dropout));
    OK(ls_model_build(model, &config, &graph));
    ls_model_destroy(model);
    return graph;
}

/* Logits of a file, evaluated: with dropout in the model, which then is another graph, too. */
static void check_logits(const char *file, const char *logits)
{
    static const char *const devices[] = {"ref", "cpu"};
    lsi_st_file *expected = fixtures_open("gpt2-logits");
    for (int i = 0; i < 4; i++) {
        ls_graph *graph = build(devices[i % 2], i / 2 ? "dropout=0.1" : "dropout=0");
        OK(ls_weights_load(graph, fixtures_path(file)));
        for (int k = 0; k < 2; k++) /* as tokens, and as targets, which do not matter */
            fixtures_copy_ids(fixtures_need(expected, "tokens"),
                              ls_input_data(graph, ls_graph_input(graph, k)));
        OK(ls_graph_run(graph, NULL, NULL));
        fixtures_compare(devices[i % 2], fixtures_need(expected, "%s", logits),
                         ls_output_data(graph), TOLERANCE);
        ls_graph_destroy(graph);
    }
    lsi_st_close(expected);
}

static void test_logits(void **state)
{
    (void)state;
    check_logits("gpt2", "logits");
}

/* Names without the prefix, no head, half precision. */
static void test_bare(void **state)
{
    (void)state;
    check_logits("gpt2-bare", "bare");
}

/* What we write has their names, shapes, types and bytes: all of them, and no others. */
static void test_written(void **state)
{
    (void)state;
    const char *path = path_of("ours");
    ls_graph *graph = build("cpu", "dropout=0");
    OK(ls_weights_load(graph, fixtures_path("gpt2")));
    OK(ls_weights_save(graph, path));
    ls_graph_destroy(graph);
    lsi_st_file *theirs = fixtures_open("gpt2"), *ours;
    OK(lsi_st_open(path, &ours));
    assert_int_equal(lsi_st_count(ours), lsi_st_count(theirs));
    for (size_t i = 0; i < lsi_st_count(theirs); i++) {
        const lsi_st_tensor *a = lsi_st_at(theirs, i), *b = lsi_st_find(ours, a->name);
        if (!b || b->dtype != a->dtype || b->ndim != a->ndim ||
            memcmp(b->dims, a->dims, (size_t)a->ndim * sizeof *a->dims))
            fail_msg("%s is missing, or has another type or shape", a->name);
        assert_memory_equal(b->data, a->data, a->count * lsi_st_dtype_size(a->dtype));
    }
    lsi_st_close(ours);
    lsi_st_close(theirs);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_bare),
        cmocka_unit_test(test_written),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* Models by name: parameter counts and names, settings as text, what is refused and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <lockstep/nn.h>

static ls_model *model_of(const char *name, const char *settings)
{
    ls_model *model;
    char one[64];
    if (ls_model_create(name, &model) != LS_OK)
        fail_msg("%s: %s", name, ls_last_error());
    for (const char *at = settings; *at;) {
        const size_t length = strcspn(at, " ");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        if (ls_model_set(model, one) != LS_OK)
            fail_msg("%s: %s", one, ls_last_error());
        at += length + (at[length] == ' ');
    }
    return model;
}

static ls_graph *graph_of(const char *name, const char *settings, size_t batch)
{
    ls_model *model = model_of(name, settings);
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    ls_graph *graph;
    config.batch = batch;
    config.seed = 1;
    if (ls_model_build(model, &config, &graph) != LS_OK)
        fail_msg("%s: %s", name, ls_last_error());
    ls_model_destroy(model);
    return graph;
}

static void test_parameter_counts(void **state)
{
    (void)state;
    static const struct {
        const char *name, *settings;
        size_t count;
    } cases[] = {
        {"mlp", "", 669706},
        {"resnet", "", 272474},
        {"resnet:20", "", 272474},
        {"resnet:18", "", 11689512},
        {"resnet:34", "", 21797672},
        {"resnet:50", "", 25557032},
        {"resnet:101", "", 44549160},
        {"resnet:152", "", 60192808},
        {"gpt", "", 809856},
        {"gpt:nano", "", 809856},
        {"gpt:char", "", 10770816},
        {"gpt:124m", "", 124439808},
        {"gpt:124m", "context=64", 124439808 - 960 * 768},
        {"dlrm", "", 4635985},
        {"dlrm", "tables=40 rows=10", 475985 + 6400 + (41 * 40 / 2 - 27 * 26 / 2) * 512},
        {"mlp", "hidden=10 inputs=4 classes=3", 4 * 10 + 10 + 10 * 3 + 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_graph *graph = graph_of(cases[i].name, cases[i].settings, 1);
        if (ls_graph_trained(graph) != cases[i].count)
            fail_msg("%s %s has %zu parameters, not %zu", cases[i].name, cases[i].settings,
                     ls_graph_trained(graph), cases[i].count);
        ls_graph_destroy(graph);
    }
}

/* ---- names ---------------------------------------------------------------------------------- */

/* All parameters (or buffers) have exactly these names and dimensions, in any order. */
static void check_names(ls_graph *graph, int buffers, int count, const char *const *names)
{
    const int found = buffers ? ls_graph_buffer_count(graph) : ls_graph_param_count(graph);
    assert_int_equal(found, count);
    for (int i = 0; i < count; i++) {
        int seen = 0;
        for (int k = 0; k < found; k++) {
            ls_param_info info;
            assert_int_equal(buffers ? ls_graph_buffer(graph, k, &info)
                                     : ls_graph_param(graph, k, &info),
                             LS_OK);
            char text[256];
            int used = snprintf(text, sizeof text, "%s", info.name);
            for (int d = 0; d < info.ndim; d++)
                used += snprintf(text + used, sizeof text - (size_t)used, " %zu", info.dims[d]);
            seen += !strcmp(text, names[i]);
        }
        if (seen != 1)
            fail_msg("%d parameters are '%s'", seen, names[i]);
    }
}
#define CHECK_NAMES(graph, buffers, names)                                                         \
    check_names(graph, buffers, (int)(sizeof names / sizeof *names), names)

static void test_names_gpt(void **state)
{
    (void)state;
    static const char *const names[] = {
        "transformer.wte.weight 7 6",
        "transformer.wpe.weight 5 6",
        "transformer.h.0.ln_1.weight 6",
        "transformer.h.0.ln_1.bias 6",
        "transformer.h.0.attn.c_attn.weight 6 18",
        "transformer.h.0.attn.c_attn.bias 18",
        "transformer.h.0.attn.c_proj.weight 6 6",
        "transformer.h.0.attn.c_proj.bias 6",
        "transformer.h.0.ln_2.weight 6",
        "transformer.h.0.ln_2.bias 6",
        "transformer.h.0.mlp.c_fc.weight 6 24",
        "transformer.h.0.mlp.c_fc.bias 24",
        "transformer.h.0.mlp.c_proj.weight 24 6",
        "transformer.h.0.mlp.c_proj.bias 6",
        "transformer.ln_f.weight 6",
        "transformer.ln_f.bias 6",
    };
    for (int dropout = 0; dropout < 2; dropout++) { /* with it, other nodes, the same names */
        ls_graph *graph = graph_of("gpt",
                                   dropout ? "vocab=7 context=5 layers=1 heads=2 dim=6 dropout=0.1"
                                           : "vocab=7 context=5 layers=1 heads=2 dim=6",
                                   2);
        CHECK_NAMES(graph, 0, names);
        assert_int_equal(ls_graph_buffer_count(graph), 0);
        ls_graph_destroy(graph);
    }
}

static void test_names_resnet(void **state)
{
    (void)state;
    static const char *const names[] = {
        "conv1.weight 3 3 3 4",
        "bn1.weight 4",
        "bn1.bias 4",
        "layer1.0.conv1.weight 3 3 4 4",
        "layer1.0.bn1.weight 4",
        "layer1.0.bn1.bias 4",
        "layer1.0.conv2.weight 3 3 4 4",
        "layer1.0.bn2.weight 4",
        "layer1.0.bn2.bias 4",
        "layer2.0.conv1.weight 3 3 4 8",
        "layer2.0.bn1.weight 8",
        "layer2.0.bn1.bias 8",
        "layer2.0.conv2.weight 3 3 8 8",
        "layer2.0.bn2.weight 8",
        "layer2.0.bn2.bias 8",
        "layer2.0.downsample.0.weight 1 1 4 8",
        "layer2.0.downsample.1.weight 8",
        "layer2.0.downsample.1.bias 8",
        "fc.weight 8 10",
        "fc.bias 10",
    };
    static const char *const buffers[] = {
        "bn1.running_mean 4",
        "bn1.running_var 4",
        "layer1.0.bn1.running_mean 4",
        "layer1.0.bn1.running_var 4",
        "layer1.0.bn2.running_mean 4",
        "layer1.0.bn2.running_var 4",
        "layer2.0.bn1.running_mean 8",
        "layer2.0.bn1.running_var 8",
        "layer2.0.bn2.running_mean 8",
        "layer2.0.bn2.running_var 8",
        "layer2.0.downsample.1.running_mean 8",
        "layer2.0.downsample.1.running_var 8",
    };
    ls_graph *graph = graph_of("resnet", "blocks=1,1 width=4 image=8", 2);
    CHECK_NAMES(graph, 0, names);
    CHECK_NAMES(graph, 1, buffers);
    ls_graph_destroy(graph);
}

static void test_names_mlp_dlrm(void **state)
{
    (void)state;
    static const char *const mlp[] = {
        "0.weight 784 512", "0.bias 512",      "2.weight 512 512",
        "2.bias 512",       "4.weight 512 10", "4.bias 10",
    };
    ls_graph *graph = graph_of("mlp", "", 1);
    CHECK_NAMES(graph, 0, mlp);
    ls_graph_destroy(graph);
    static const char *const dlrm[] = {
        "emb_l.0.weight 9 4", "emb_l.1.weight 9 4", "bot_l.0.weight 13 8", "bot_l.0.bias 8",
        "bot_l.2.weight 8 4", "bot_l.2.bias 4",     "top_l.0.weight 7 6",  "top_l.0.bias 6",
        "top_l.2.weight 6 5", "top_l.2.bias 5",     "top_l.4.weight 5 1",  "top_l.4.bias 1",
    };
    graph = graph_of("dlrm", "tables=2 rows=9 width=4 bottom=8 top=6,5", 1);
    CHECK_NAMES(graph, 0, dlrm);
    ls_graph_destroy(graph);
}

static void check_input(ls_graph *graph, int i, const char *name, int ndim, size_t bound)
{
    ls_tensor *input = ls_graph_input(graph, i);
    assert_non_null(input);
    assert_string_equal(ls_tensor_name(input), name);
    assert_int_equal(ls_tensor_ndim(input), ndim);
    assert_int_equal(ls_tensor_bound(input), bound);
}

static void test_inputs(void **state)
{
    (void)state;
    ls_graph *graph = graph_of("mlp", "", 2);
    check_input(graph, 0, "image", 2, 0);
    check_input(graph, 1, "label", 1, 10);
    assert_null(ls_graph_input(graph, 2));
    assert_null(ls_graph_input(graph, -1));
    ls_graph_destroy(graph);
    graph = graph_of("resnet", "blocks=1 image=8", 2);
    check_input(graph, 0, "image", 4, 0);
    assert_int_equal(ls_tensor_dims(ls_graph_input(graph, 0))[3], 3);
    check_input(graph, 1, "label", 1, 10);
    ls_graph_destroy(graph);
    graph = graph_of("gpt", "", 2);
    check_input(graph, 0, "tokens", 2, 65);
    check_input(graph, 1, "targets", 2, 65);
    ls_graph_destroy(graph);
    graph = graph_of("dlrm", "", 2);
    check_input(graph, 0, "dense", 2, 0);
    check_input(graph, 1, "ids", 2, 10000);
    check_input(graph, 2, "target", 1, 0);
    ls_graph_destroy(graph);
    assert_int_equal(ls_tensor_bound(NULL), 0);
}

/* ---- initial values ------------------------------------------------------------------------- */

/* Mean of squares of a parameter's values, and the largest. */
static double spread(ls_graph *graph, const char *name, double *largest)
{
    ls_param_info info;
    for (int i = 0; ls_graph_param(graph, i, &info) == LS_OK; i++) {
        if (strcmp(info.name, name))
            continue;
        const float *values = ls_graph_params(graph) + info.offset;
        double sum = 0;
        *largest = 0;
        for (size_t k = 0; k < info.count; k++) {
            const double x = (double)values[k];
            sum += x * x;
            *largest = x > *largest ? x : -x > *largest ? -x : *largest;
        }
        return sum / (double)info.count;
    }
    fail_msg("there is no parameter '%s'", name);
    return 0;
}

static void check_spread(ls_graph *graph, const char *name, double square, int uniform)
{
    double largest;
    const double got = spread(graph, name, &largest);
    if (got < 0.9 * square || got > 1.1 * square)
        fail_msg("%s: mean square %g, not %g", name, got, square);
    if (uniform && largest * largest > 3 * square * 1.0001)
        fail_msg("%s: %g is outside of the uniform distribution", name, largest);
}

static void test_initial_values(void **state)
{
    (void)state;
    double largest;
    ls_graph *graph = graph_of("mlp", "", 1);
    check_spread(graph, "0.weight", 1.0 / 784 / 3, 1);
    check_spread(graph, "2.bias", 1.0 / 512 / 3, 1);
    ls_graph_destroy(graph);

    graph = graph_of("gpt", "", 1);
    check_spread(graph, "transformer.wte.weight", 4e-4, 0);
    check_spread(graph, "transformer.wpe.weight", 4e-4, 0);
    check_spread(graph, "transformer.h.1.attn.c_attn.weight", 4e-4, 0);
    check_spread(graph, "transformer.h.1.attn.c_proj.weight", 4e-4 / 8, 0);
    check_spread(graph, "transformer.h.3.mlp.c_proj.weight", 4e-4 / 8, 0);
    assert_true(spread(graph, "transformer.h.0.mlp.c_fc.bias", &largest) == 0);
    assert_true(spread(graph, "transformer.h.0.ln_1.weight", &largest) == 1 && largest == 1);
    ls_graph_destroy(graph);

    graph = graph_of("resnet", "", 1);
    check_spread(graph, "layer2.0.conv1.weight", 2.0 / (9 * 32), 0);
    check_spread(graph, "layer3.0.downsample.0.weight", 2.0 / 64, 0);
    assert_true(spread(graph, "bn1.weight", &largest) == 1);
    assert_true(spread(graph, "bn1.bias", &largest) == 0);
    check_spread(graph, "fc.weight", 1.0 / 64 / 3, 1);
    for (size_t i = 0; i < ls_graph_buffer_elements(graph); i += 32) /* 16: mean 0, variance 1 */
        assert_true(ls_graph_buffers(graph)[0] == 0 && ls_graph_buffers(graph)[16] == 1);
    ls_graph_destroy(graph);

    graph = graph_of("dlrm", "", 1);
    check_spread(graph, "emb_l.3.weight", 1.0 / 10000 / 3, 1);
    check_spread(graph, "bot_l.2.weight", 2.0 / (512 + 256), 0);
    check_spread(graph, "top_l.0.weight", 2.0 / (367 + 512), 0);
    assert_true(spread(graph, "bot_l.0.bias", &largest) > 0.5 / 512);
    ls_graph_destroy(graph);
}

/* ---- settings ------------------------------------------------------------------------------- */

static void test_settings_print_what_they_parse(void **state)
{
    (void)state;
    static const char *const names[] = {"mlp", "resnet:50", "gpt:char", "dlrm"};
    char text[64];
    for (int m = 0; m < 4; m++) {
        ls_model *model = model_of(names[m], ""), *same = model_of(ls_model_name(model), "");
        assert_int_equal(strcspn(names[m], ":"), strlen(ls_model_name(model)));
        int count = 0;
        while (ls_model_get(model, count, text, sizeof text) == LS_OK) {
            assert_int_equal(ls_model_set(same, text), LS_OK);
            char again[64];
            assert_int_equal(ls_model_get(same, count, again, sizeof again), LS_OK);
            assert_string_equal(text, again);
            count++;
        }
        assert_true(count >= 5);
        assert_int_equal(ls_model_get(model, count, text, sizeof text), LS_ERR_NOT_FOUND);
        assert_int_equal(ls_model_get(model, -1, text, sizeof text), LS_ERR_NOT_FOUND);
        ls_model_destroy(model);
        ls_model_destroy(same);
    }
    ls_model *gpt = model_of("gpt", "dropout=0.1 layers=12");
    assert_int_equal(ls_model_get(gpt, 5, text, sizeof text), LS_OK);
    assert_string_equal(text, "dropout=0.1");
    assert_int_equal(ls_model_get(gpt, 2, text, sizeof text), LS_OK);
    assert_string_equal(text, "layers=12");
    assert_int_equal(ls_model_get(gpt, 2, text, 9), LS_ERR_INVALID); /* no room for the end */
    assert_int_equal(ls_model_get(gpt, 2, text, 10), LS_OK);
    ls_model_destroy(gpt);
    ls_model *resnet = model_of("resnet:34", "");
    assert_int_equal(ls_model_get(resnet, 0, text, sizeof text), LS_OK);
    assert_string_equal(text, "blocks=3,4,6,3");
    ls_model_destroy(resnet);
}

static void says(const char *part)
{
    if (!strstr(ls_last_error(), part))
        fail_msg("'%s' does not say '%s'", ls_last_error(), part);
}

static void test_refused_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *first, *second;
    } cases[] = {
        {"bert", "'bert'", "known: mlp, resnet, gpt, dlrm"},
        {"", "''", "known: mlp, resnet, gpt, dlrm"},
        {"gp", "'gp'", "known: mlp"},
        {"gpt:", "gpt has no preset ''", "presets: nano, char, 124m"},
        {"gpt:huge", "gpt has no preset 'huge'", "presets: nano, char, 124m"},
        {"resnet:19", "resnet has no preset '19'", "presets: 20, 32"},
        {"mlp:big", "mlp has no preset 'big'", "presets: default"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_model *model = NULL;
        assert_int_equal(ls_model_create(cases[i].name, &model), LS_ERR_CONFIG);
        assert_null(model);
        says(cases[i].first);
        says(cases[i].second);
    }
    ls_model *model;
    assert_int_equal(ls_model_create(NULL, &model), LS_ERR_INVALID);
    ls_model_destroy(NULL);
    assert_null(ls_model_name(NULL));
}

static void test_refused_settings(void **state)
{
    (void)state;
    static const struct {
        const char *model, *setting, *first, *second;
    } cases[] = {
        {"gpt", "depth=3", "gpt has no setting 'depth'",
         "settings: vocab, context, layers, heads, dim, dropout"},
        {"gpt", "layer=3", "gpt has no setting 'layer'", "layers"},
        {"gpt", "layers", "'layers' has no value", "key=value"},
        {"gpt", "layers=", "gpt, layers", "whole number from 1 to"},
        {"gpt", "layers=0", "'0'", "whole number from 1 to"},
        {"gpt", "layers=-1", "'-1'", "whole number from 1 to"},
        {"gpt", "layers=2.5", "'2.5'", "whole number from 1 to"},
        {"gpt", "layers=4 ", "'4 '", "whole number from 1 to"},
        {"gpt", "dropout=1", "'1'", "at least 0 and below 1"},
        {"gpt", "dropout=-0.1", "'-0.1'", "at least 0 and below 1"},
        {"gpt", "dropout=nan", "'nan'", "at least 0 and below 1"},
        {"gpt", "dropout=0.1x", "'0.1x'", "at least 0 and below 1"},
        {"gpt", "dropout=", "gpt, dropout", "at least 0 and below 1"},
        {"mlp", "hidden=", "mlp, hidden", "whole number from 1 to"},
        {"mlp", "hidden=5,,5", "mlp, hidden", "whole number from 1 to"},
        {"mlp", "hidden=5,", "mlp, hidden", "whole number from 1 to"},
        {"mlp", "hidden=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "mlp, hidden", "more than 16"},
        {"mlp", "hidden=99999999999999999999999999999999999999999999999999", "mlp, hidden",
         "whole number from 1 to"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_model *model = model_of(cases[i].model, "");
        char before[64], after[64];
        if (ls_model_set(model, cases[i].setting) != LS_ERR_CONFIG)
            fail_msg("%s was accepted", cases[i].setting);
        says(cases[i].first);
        says(cases[i].second);
        ls_model *fresh = model_of(cases[i].model, "");
        for (int k = 0; ls_model_get(fresh, k, before, sizeof before) == LS_OK; k++) {
            assert_int_equal(ls_model_get(model, k, after, sizeof after), LS_OK);
            assert_string_equal(before, after); /* a refused value changes nothing */
        }
        ls_model_destroy(fresh);
        ls_model_destroy(model);
    }
}

static void test_refused_together(void **state)
{
    (void)state;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    ls_graph *graph = NULL;
    config.batch = 2;
    ls_model *model = model_of("gpt", "dim=100 heads=3");
    assert_int_equal(ls_model_build(model, &config, &graph), LS_ERR_CONFIG);
    says("dim=100 is not divisible by heads=3");
    ls_model_destroy(model);

    model = model_of("resnet", "stem=5");
    assert_int_equal(ls_model_build(model, &config, &graph), LS_ERR_CONFIG);
    says("'5' is neither 3 nor 7");
    ls_model_destroy(model);

    model = model_of("mlp", "");
    config.batch = 0;
    assert_int_equal(ls_model_build(model, &config, &graph), LS_ERR_INVALID);
    config.batch = 1;
    config.device = "abacus";
    assert_int_equal(ls_model_build(model, &config, &graph), LS_ERR_CONFIG);
    says("abacus");
    assert_null(graph);
    assert_int_equal(ls_model_build(NULL, &config, &graph), LS_ERR_INVALID);
    ls_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_counts),
        cmocka_unit_test(test_names_gpt),
        cmocka_unit_test(test_names_resnet),
        cmocka_unit_test(test_names_mlp_dlrm),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_settings_print_what_they_parse),
        cmocka_unit_test(test_refused_names),
        cmocka_unit_test(test_refused_settings),
        cmocka_unit_test(test_refused_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

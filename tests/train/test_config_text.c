/* Configurations as text: what is printed reads back as the same, files with mistakes are named by
 * line, and runs are compared by what decides their result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "state.h"
#include "train/config.h"
#include "train/number.h"

static lsi_train_config c, d;

static void make(lsi_train_config *config, const char *model, const char *a, const char *b)
{
    OK(lsi_train_config_init(config, model));
    if (a)
        OK(lsi_train_config_set(config, a));
    if (b)
        OK(lsi_train_config_set(config, b));
    OK(lsi_train_config_settle(config));
}

static void test_round(void **ignored)
{
    (void)ignored;
    static const char *const cases[][3] = {
        {"mlp", NULL, NULL},
        {"resnet:20", "train.epochs=3", "optimizer.decay=0"},
        {"gpt:nano", "model.dropout=0.1", "optimizer.beta1=0"},
        {"gpt:char", "optimizer.name=sgd", "optimizer.momentum=0"},
        {"dlrm", "optimizer.name=lars", "run.out=\"a folder; \\\"with\\\" # signs\""},
        {"mlp", "optimizer.name=lamb", "optimizer.schedule=linear"},
        {"mlp", "optimizer.schedule=const", "train.seed=4611686018427387904"},
        {"mlp", "optimizer.lr=0.1", "optimizer.clip=0.333333333333333333"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text, *again, hex[65], hex_again[65], difference[200];
        make(&c, cases[i][0], cases[i][1], cases[i][2]);
        OK(lsi_train_config_print(&c, &text));
        OK(lsi_train_config_init(&d, NULL));
        OK(lsi_train_config_read_text(&d, "text", text, strlen(text)));
        OK(lsi_train_config_settle(&d));
        OK(lsi_train_config_print(&d, &again));
        assert_string_equal(text, again);
        OK(lsi_train_config_sha256(&c, hex));
        OK(lsi_train_config_sha256(&d, hex_again));
        assert_string_equal(hex, hex_again);
        if (!lsi_train_config_same(&c, &d, difference, sizeof difference))
            fail_msg("%s", difference);
        /* What is explicit does not come from a default: another model's would be taken. */
        assert_string_equal(c.run.out, d.run.out);
        free(text);
        free(again);
    }
}

static void test_explicit(void **ignored)
{
    (void)ignored;
    static const char *const lines[] = {
        "\n[model]\nname = gpt:nano\nvocab = 65\ncontext = 64\nlayers = 2\n",
        "\n[train]\nbatch = 12\nshards = 4\nmicro_batch = 0\nsteps = 2000\nepochs = 0\nseed = 1\n",
        "\n[optimizer]\nname = adamw\nlr = 0.001\nbeta1 = 0.9\nbeta2 = 0.99\neps = 1e-08\n"
        "decay = 0.1\nclip = 1\nschedule = cosine\nwarmup = 100\nsteps = 0\nmin_lr = 0.0001\n",
        "\n[checkpoint]\nevery = 500\nkeep = 3\n", "lockstep train --config config.ini"};
    char *text;
    make(&c, "gpt:nano", "model.layers=2", NULL);
    OK(lsi_train_config_print(&c, &text));
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!strstr(text, lines[i]))
            fail_msg("'%s' is not in:\n%s", lines[i], text);
    }
    assert_null(strstr(text, "momentum"));
    free(text);
}

static void test_letters(void **ignored)
{
    (void)ignored;
    char letters[300] = "", *text;
    for (int i = 1; i < 128; i++)
        letters[i - 1] = (char)i;
    snprintf(letters + 127, sizeof letters - 127, "äß€ ;#\"\\ \n");
    OK(lsi_train_config_init(&c, "gpt:nano"));
    OK(lsi_train_config_put_data(&c, "text:/x"));
    OK(lsi_train_config_settle(&c));
    OK(lsi_train_config_letters(&c, letters));
    OK(lsi_train_config_print(&c, &text));
    for (const char *at = text; *at; at++)
        assert_true(*at == '\n' || (unsigned char)*at >= 32);
    OK(lsi_train_config_init(&d, NULL));
    OK(lsi_train_config_read_text(&d, "text", text, strlen(text)));
    assert_int_equal(d.data.letters.kind, LSI_LETTERS_GIVEN);
    assert_string_equal(d.data.letters.text, letters);
    free(text);
}

static void test_file(void **ignored)
{
    (void)ignored;
    static const char text[] = "\xef\xbb\xbf; a comment\r\n"
                               "[train]\r\n"
                               "  batch=96 ; the global one\n"
                               "\tsteps = 60   # short\n"
                               "[model]\n"
                               "layers = 2\n"
                               "name = gpt:nano\n"
                               "[data]\n"
                               "kind = text\n"
                               "path = \"/a #b\" # c\n"
                               "letters=\"a;#\\\" \" ; d\n"
                               "[ run ] # e\n"
                               "out = /x#y";
    OK(lsi_train_config_init(&c, NULL));
    spill(path_of("a.ini"), text, sizeof text - 1);
    OK(lsi_train_config_read(&c, path_of("a.ini")));
    OK(lsi_train_config_settle(&c));
    assert_int_equal(c.train.batch, 96);
    assert_int_equal(c.train.steps, 60);
    assert_string_equal(c.model.name, "gpt:nano");
    assert_string_equal(c.model.settings[0], "layers=2");
    assert_string_equal(c.data.path, "/a #b");
    assert_string_equal(c.data.letters.text, "a;#\" ");
    assert_string_equal(c.run.out, "/x#y");
    unlink(path_of("a.ini"));
    assert_int_equal(lsi_train_config_read(&c, path_of("b.ini")), LS_ERR_NOT_FOUND);
    ERROR_HAS("b.ini");
    assert_true(lsi_train_config_read(&c, folder) < 0);
    lsi_train_config_forget_run(&c);
    assert_string_equal(c.run.out, "");
    assert_int_equal(c.run.workers, LSI_UNSET);
}

static void test_mistakes(void **ignored)
{
    (void)ignored;
    static const char *const cases[][3] = {
        {"[train]\nbatch = 12\n\nbatsh = 3\n", "f.ini:4", "did you mean train.batch?"},
        {"[train]\nbatch = many\n", "f.ini:2", "whole number from 1"},
        {"[trian]\n", "f.ini:1", "known: model, data, train"},
        {"[train\nbatch=1\n", "f.ini:1", "[name]"},
        {"[train] x\nbatch=1\n", "f.ini:1", "[name]"},
        {"batch = 1\n", "f.ini:1", "no section"},
        {"[train]\nbatch\n", "f.ini:2", "key = value"},
        {"[train]\n= 3\n", "f.ini:2", "key = value"},
        {"[train]\nbatch = 1\n[data]\n[train]\nbatch = 2\n", "f.ini:5", "line 2"},
        {"[model]\nlayers = 2\nlayers = 3\nname = gpt\n", "f.ini:3", "line 2"},
        {"[model]\nlayers = two\nname = gpt\n", "f.ini:2", "'two'"},
        {"[model]\nlayers = 2\nname = mlp\n", "f.ini:2", "no setting 'model.layers'"},
        {"[model]\nname = bert\n", "f.ini:2", "known: mlp"},
        {"[data]\nletters = \"abc\n", "f.ini:2", "quote"},
        {"[train]\nsteps = 5\nepochs = 3\n", "f.ini:3", "train.steps, line 2"},
        {"[train]\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa = "
         "1\n",
         "f.ini:2", "no setting"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OK(lsi_train_config_init(&c, NULL));
        d = c;
        if (lsi_train_config_read_text(&c, "f.ini", cases[i][0], strlen(cases[i][0])) !=
            LS_ERR_CONFIG)
            fail_msg("case %zu was accepted", i);
        ERROR_HAS(cases[i][1]);
        ERROR_HAS(cases[i][2]);
        assert_memory_equal(&c, &d, sizeof c);
    }
    assert_int_equal(lsi_train_config_read_text(&c, "f.ini", "[train]\0", 8), LS_ERR_CONFIG);
    ERROR_HAS("not a text file");
    char *large = calloc(1, (1 << 20) + 2);
    memset(large, '\n', (1 << 20) + 2);
    spill(path_of("large"), large, (1 << 20) + 2);
    assert_int_equal(lsi_train_config_read(&c, path_of("large")), LS_ERR_CONFIG);
    unlink(path_of("large"));
    free(large);
}

static void test_same(void **ignored)
{
    (void)ignored;
    static const struct {
        const char *a, *b, *words; /* NULL: the same */
    } cases[] = {
        {"train.batch=96", "train.batch=128", "train.batch is 96 in the run and 128 here"},
        {"model.layers=2", "model.layers=3", "model.layers is 2 in the run and 3 here"},
        {"train.seed=1", "train.seed=2", "train.seed is 1 in the run and 2 here"},
        {"optimizer.lr=0.1", "optimizer.lr=0.2", "optimizer.lr is 0.1 in the run and 0.2 here"},
        {"optimizer.name=sgd", "optimizer.name=adamw", "optimizer.name is sgd"},
        {"train.steps=10", "train.steps=20", "train.steps is 10 in the run and 20 here"},
        {"train.reduce=ring", "train.reduce=auto", "train.reduce is ring in the run and not set"},
        {"train.reduce=direct", "train.reduce=hd", NULL},
        {"checkpoint.every=3", "checkpoint.every=4", NULL},
        {"eval.every=3", "eval.every=4", NULL},
        {"run.workers=1", "run.workers=2", NULL},
        {"model.name=gpt", "model.name=gpt:nano", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200] = "", a[65], b[65];
        make(&c, "gpt:nano", cases[i].a, NULL);
        make(&d, "gpt:nano", cases[i].b, NULL);
        const int same = lsi_train_config_same(&c, &d, text, sizeof text);
        assert_int_equal(same, !cases[i].words);
        if (cases[i].words && !strstr(text, cases[i].words))
            fail_msg("'%s' does not say '%s'", text, cases[i].words);
        OK(lsi_train_config_sha256(&c, a));
        OK(lsi_train_config_sha256(&d, b));
        assert_int_equal(same, !strcmp(a, b));
    }
    /* A run whose schedule has an end of its own, or none, may be prolonged. */
    char text[200];
    make(&c, "gpt:nano", "train.steps=1000", "optimizer.steps=1000");
    make(&d, "gpt:nano", "train.steps=2000", "optimizer.steps=1000");
    assert_true(lsi_train_config_same(&c, &d, text, sizeof text));
    make(&c, "dlrm", "train.steps=1000", NULL);
    make(&d, "dlrm", "train.epochs=2", NULL);
    d.optimizer.warmup = c.optimizer.warmup;
    assert_true(lsi_train_config_same(&c, &d, text, sizeof text));
}

static void test_numbers(void **ignored)
{
    (void)ignored;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1, "0.1"},
                 {1.0 / 3, "0.3333333333333333"},
                 {1e-8, "1e-08"},
                 {0, "0"},
                 {-0.0, "-0"},
                 {5e-324, "4.94065645841247e-324"},
                 {NAN, "null"},
                 {INFINITY, "null"},
                 {123456789, "123456789"}};
    char text[LSI_NUMBER_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(lsi_number_text(cases[i].value, text), cases[i].text);
    assert_string_equal(lsi_number_text_float((double)0.1f, text), "0.1");
    assert_string_equal(lsi_number_text((double)0.1f, text), "0.10000000149011612");
    uint32_t seed = 1;
    for (int i = 0; i < 20000; i++) { /* what is printed reads back as the same bits */
        double value;
        uint64_t bits = 0;
        for (int k = 0; k < 2; k++) {
            seed = seed * 1664525u + 1013904223u;
            bits = bits << 32 | seed;
        }
        memcpy(&value, &bits, sizeof value);
        const double back = isfinite(value) ? strtod(lsi_number_text(value, text), NULL) : value;
        assert_memory_equal(&value, &back, sizeof value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round),    cmocka_unit_test(test_explicit),
        cmocka_unit_test(test_letters),  cmocka_unit_test(test_file),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_same),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

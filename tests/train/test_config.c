/* Settings: given in any order, settled as is usual for the model, refused in words that say what
 * would be accepted. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "state.h"
#include "train/config.h"

static lsi_train_config c, d;

static void test_usual(void **ignored)
{
    (void)ignored;
    static const struct {
        const char *model;
        uint64_t batch, shards;
        const char *optimizer, *schedule;
        double lr;
    } expected[] = {
        {"mlp", 128, 8, "sgd", "cosine", 0.05},      {"resnet", 64, 8, "sgd", "cosine", 0.05},
        {"resnet:20", 64, 8, "sgd", "cosine", 0.05}, {"resnet:50", 32, 8, "sgd", "cosine", 0.0125},
        {"gpt", 12, 4, "adamw", "cosine", 1e-3},     {"gpt:nano", 12, 4, "adamw", "cosine", 1e-3},
        {"gpt:char", 8, 8, "adamw", "cosine", 6e-4}, {"gpt:124m", 4, 4, "adamw", "cosine", 3e-4},
        {"dlrm", 256, 8, "sgd", "const", 0.01},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        ls_optim_config o;
        OK(lsi_train_config_init(&c, expected[i].model));
        OK(lsi_train_config_settle(&c));
        assert_int_equal(c.train.batch, expected[i].batch);
        assert_int_equal(c.train.shards, expected[i].shards);
        assert_string_equal(c.optimizer.name, expected[i].optimizer);
        assert_string_equal(c.optimizer.schedule, expected[i].schedule);
        assert_true(c.optimizer.lr == expected[i].lr);
        OK(lsi_train_config_optim(&c, c.train.steps, &o));
        assert_true(o.lr == (float)expected[i].lr);
        assert_true(o.beta2 == (strncmp(expected[i].model, "gpt", 3) ? 0
                                : strstr(expected[i].model, "124m")  ? 0.95f
                                                                     : 0.99f));
        assert_true(strcmp(o.name, "sgd") || o.momentum == 0.9f);
    }
}

static void test_shards(void **ignored)
{
    (void)ignored;
    static const uint64_t cases[][2] = {{96, 8}, {100, 4}, {98, 2}, {97, 1},
                                        {1, 1},  {8, 8},   {4, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        OK(lsi_train_config_init(&c, "mlp"));
        snprintf(text, sizeof text, "train.batch=%lu", (unsigned long)cases[i][0]);
        OK(lsi_train_config_set(&c, text));
        OK(lsi_train_config_settle(&c));
        assert_int_equal(c.train.shards, cases[i][1]);
    }
}

/* Each gives an error that has the words, and changes nothing. */
static void test_refused(void **ignored)
{
    (void)ignored;
    static const char *const cases[][3] = {
        {"train.batch=0", "train.batch", "'0' is not a whole number from 1 to 16777216"},
        {"train.batch=12x", "train.batch", "'12x'"},
        {"train.batch=-1", "train.batch", "'-1'"},
        {"train.batch=", "train.batch", "''"},
        {"train.batch", "train.batch", "section.key=value"},
        {"train.batsh=3", "train.batsh", "did you mean train.batch?"},
        {"batch=3", "'batch'", "did you mean train.batch?"},
        {"optimiser.lr=3", "optimiser.lr", "did you mean optimizer.lr?"},
        {"model.layer=3", "model.layer", "did you mean model.layers?"},
        {"model.layers=0", "layers", "'0'"},
        {"model.name=bert", "bert", "known: mlp"},
        {"train.seed=18446744073709551615", "train.seed", "4611686018427387904"},
        {"train.seed=99999999999999999999", "train.seed", "4611686018427387904"},
        {"train.sync=maybe", "train.sync", "one of sync, async, local"},
        {"train.sync=syn", "train.sync", "one of sync, async, local"},
        {"optimizer.lr=fast", "optimizer.lr", "'fast' is not a number"},
        {"optimizer.lr=0", "optimizer.lr", "'0'"},
        {"optimizer.lr=nan", "optimizer.lr", "'nan'"},
        {"optimizer.lr=inf", "optimizer.lr", "'inf'"},
        {"optimizer.lr=-1", "optimizer.lr", "'-1'"},
        {"optimizer.lr=0x1", "optimizer.lr", "'0x1'"},
        {"optimizer.nesterov=2", "optimizer.nesterov", "yes or no"},
        {"optimizer.name=adm", "optimizer.name", "one of sgd, adam"},
        {"data.letters=abc", "data.letters", "in quotes"},
        {"data.letters=\"\"", "data.letters", "in quotes"},
        {"data.letters=\"a\\q\"", "data.letters", "escape"},
        {"data.letters=\"a\\x0\"", "data.letters", "escape"},
        {"data.letters=\"a", "data.letters", "quote"},
        {"data.letters=\"a\"b", "data.letters", "quote"},
        {"checkpoint.keep=0", "checkpoint.keep", "from 1"},
    };
    OK(lsi_train_config_init(&c, "gpt:nano"));
    d = c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (lsi_train_config_set(&c, cases[i][0]) != LS_ERR_CONFIG)
            fail_msg("%s was accepted", cases[i][0]);
        ERROR_HAS(cases[i][1]);
        ERROR_HAS(cases[i][2]);
        assert_memory_equal(&c, &d, sizeof c);
    }
    char *long_value = calloc(1, 40000);
    memset(long_value, 'x', 39999);
    assert_int_equal(lsi_train_config_put(&c, "data.path", long_value), LS_ERR_CONFIG);
    assert_int_equal(lsi_train_config_put(&c, "model.name", long_value), LS_ERR_CONFIG);
    assert_int_equal(lsi_train_config_put(&c, "model.layers", long_value), LS_ERR_CONFIG);
    assert_int_equal(lsi_train_config_put(&c, "train.sync", long_value), LS_ERR_CONFIG);
    assert_int_equal(lsi_train_config_put(&c, long_value, "1"), LS_ERR_CONFIG);
    long_value[0] = long_value[39998] = '"';
    assert_int_equal(lsi_train_config_put(&c, "data.letters", long_value), LS_ERR_CONFIG);
    assert_memory_equal(&c, &d, sizeof c);
    free(long_value);
}

/* What does not go together; found when settling. */
static void test_together(void **ignored)
{
    (void)ignored;
    static const struct {
        const char *model, *sets[3];
        ls_status status;
        const char *words[2];
    } cases[] = {
        {"mlp", {"train.shards=9", "train.batch=8"}, LS_ERR_CONFIG, {"train.shards", "8 samples"}},
        {"mlp", {"train.micro_batch=17"}, LS_ERR_CONFIG, {"train.micro_batch", "16 of a shard"}},
        {"mlp", {"train.steps=0"}, LS_ERR_CONFIG, {"train.steps", "train.epochs"}},
        {"mlp", {"run.workers=9"}, LS_ERR_CONFIG, {"run.workers", "train.shards"}},
        {"mlp", {"train.sync=async"}, LS_ERR_UNSUPPORTED, {"train.sync", "not available yet"}},
        {"mlp", {"train.wire=bf16"}, LS_ERR_UNSUPPORTED, {"train.wire", "not available yet"}},
        {"mlp", {"train.threads=2"}, LS_ERR_UNSUPPORTED, {"train.threads", "not available yet"}},
        {"mlp", {"data.kind=idx"}, LS_ERR_CONFIG, {"data.path", "idx"}},
        {"mlp", {"data.path=/x"}, LS_ERR_CONFIG, {"data.path", "synthetic"}},
        {"mlp", {"data.letters=own"}, LS_ERR_CONFIG, {"data.letters", "synthetic"}},
        {"gpt",
         {"data.kind=text", "data.path=/x", "data.augment=1"},
         LS_ERR_CONFIG,
         {"data.augment", "text"}},
        {"gpt",
         {"data.kind=text", "data.path=/x", "data.samples=1"},
         LS_ERR_CONFIG,
         {"data.samples", "text"}},
        {"gpt", {"optimizer.momentum=0.9"}, LS_ERR_CONFIG, {"adamw", "momentum"}},
        {"mlp", {"optimizer.beta1=0.9"}, LS_ERR_CONFIG, {"sgd", "beta1"}},
        {"mlp",
         {"optimizer.momentum=0", "optimizer.nesterov=yes"},
         LS_ERR_CONFIG,
         {"nesterov", "momentum"}},
        {"mlp", {"optimizer.schedule=step"}, LS_ERR_CONFIG, {"step", "every"}},
        {"mlp",
         {"optimizer.schedule=const", "optimizer.min_lr=0.1"},
         LS_ERR_CONFIG,
         {"const", "min_lr"}},
        {"mlp", {"train.steps=10", "optimizer.warmup=10"}, LS_ERR_CONFIG, {"warmup", "steps"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OK(lsi_train_config_init(&c, cases[i].model));
        for (int k = 0; k < 3 && cases[i].sets[k]; k++)
            OK(lsi_train_config_set(&c, cases[i].sets[k]));
        if (lsi_train_config_settle(&c) != cases[i].status)
            fail_msg("case %zu (%s): %s", i, cases[i].sets[0], ls_last_error());
        ERROR_HAS(cases[i].words[0]);
        ERROR_HAS(cases[i].words[1]);
    }
    OK(lsi_train_config_init(&c, NULL));
    assert_int_equal(lsi_train_config_settle(&c), LS_ERR_CONFIG);
    ERROR_HAS("no model");
}

/* In any order, the same; the usual settings of one optimizer are not forced on another. */
static void test_order(void **ignored)
{
    (void)ignored;
    static const char *const sets[] = {"optimizer.name=adamw", "optimizer.lr=0.5",
                                       "train.batch=100", "train.epochs=3", "optimizer.beta1=0"};
    enum { SETS = sizeof sets / sizeof *sets };
    OK(lsi_train_config_init(&c, "mlp"));
    OK(lsi_train_config_init(&d, "mlp"));
    for (int i = 0; i < SETS; i++) {
        OK(lsi_train_config_set(&c, sets[i]));
        OK(lsi_train_config_set(&d, sets[SETS - 1 - i]));
    }
    OK(lsi_train_config_settle(&c));
    OK(lsi_train_config_settle(&d));
    assert_memory_equal(&c, &d, sizeof c);
    assert_true(isnan(c.optimizer.momentum) && c.optimizer.beta1 == 0);
    assert_int_equal(c.train.shards, 4);
    ls_optim_config o;
    OK(lsi_train_config_optim(&c, 1000, &o));
    assert_true(o.beta1 == LS_OPTIM_ZERO && o.lr == 0.5f);
    assert_int_equal(o.steps, 1000);
    OK(lsi_train_config_settle(&c)); /* once more changes nothing */
    assert_memory_equal(&c, &d, sizeof c);

    /* Of steps and epochs the later counts. */
    OK(lsi_train_config_set(&c, "train.steps=7"));
    OK(lsi_train_config_settle(&c));
    assert_int_equal(c.train.epochs, 0);
    assert_int_equal(c.train.steps, 7);
}

static void test_total(void **ignored)
{
    (void)ignored;
    uint64_t steps;
    OK(lsi_train_config_init(&c, "gpt:nano"));
    OK(lsi_train_config_set(&c, "train.epochs=3"));
    OK(lsi_train_config_settle(&c));
    OK(lsi_train_config_total(&c, 25, &steps));
    assert_int_equal(steps, 9); /* 12, 12 and 1 */
    assert_int_equal(c.optimizer.warmup, 0);
    OK(lsi_train_config_init(&c, "gpt:nano"));
    OK(lsi_train_config_set(&c, "train.epochs=3"));
    OK(lsi_train_config_settle(&c));
    OK(lsi_train_config_total(&c, 12000, &steps));
    assert_int_equal(steps, 3000);
    assert_int_equal(c.optimizer.warmup, 100);
    assert_int_equal(lsi_train_config_total(&c, 0, &steps), LS_ERR_CONFIG);
    OK(lsi_train_config_set(&c, "train.epochs=1000000000"));
    OK(lsi_train_config_settle(&c));
    assert_int_equal(lsi_train_config_total(&c, UINT64_MAX, &steps), LS_ERR_CONFIG);
    OK(lsi_train_config_init(&c, "gpt:nano"));
    OK(lsi_train_config_set(&c, "train.steps=60"));
    OK(lsi_train_config_settle(&c)); /* the usual warm-up would be longer than the run */
    assert_int_equal(c.optimizer.warmup, 6);
}

/* Settings of the model: those of the user win over those that follow from the data. */
static void test_model(void **ignored)
{
    (void)ignored;
    ls_model *model;
    char text[64];
    OK(lsi_train_config_init(&c, "gpt:nano"));
    OK(lsi_train_config_set(&c, "model.vocab=100"));
    OK(lsi_train_config_set(&c, "model.layers=2"));
    OK(lsi_train_config_set(&c, "model.layers=3"));
    assert_int_equal(c.model.count, 2);
    OK(lsi_train_config_offer(&c, "vocab=65"));
    OK(lsi_train_config_offer(&c, "context=32"));
    assert_int_equal(lsi_train_config_offer(&c, "nothing=1"), LS_ERR_CONFIG);
    OK(lsi_train_config_model(&c, &model));
    OK(ls_model_get(model, 0, text, sizeof text));
    assert_string_equal(text, "vocab=100");
    OK(ls_model_get(model, 1, text, sizeof text));
    assert_string_equal(text, "context=32");
    OK(ls_model_get(model, 2, text, sizeof text));
    assert_string_equal(text, "layers=3");
    ls_model_destroy(model);
    OK(lsi_train_config_set(&c, "model.name=mlp")); /* whose settings they are not */
    assert_int_equal(lsi_train_config_settle(&c), LS_ERR_CONFIG);
    ERROR_HAS("vocab");
}

static void test_data(void **ignored)
{
    (void)ignored;
    ls_data_config data;
    const char *path = path_of("b:c.txt");
    char text[200];
    snprintf(text, sizeof text, "text:%s", path);
    OK(lsi_train_config_init(&c, "gpt:nano"));
    OK(lsi_train_config_put_data(&c, text));
    OK(lsi_train_config_settle(&c));
    lsi_train_config_data(&c, 1, &data);
    assert_string_equal(data.kind, "text");
    assert_string_equal(data.path, path);
    assert_string_equal(data.model, "gpt");
    assert_string_equal(data.letters, "");
    assert_int_equal(data.validation, 1);
    assert_true(data.holdout == 0.1);
    OK(lsi_train_config_letters(&c, "ab\n"));
    lsi_train_config_data(&c, 0, &data);
    assert_string_equal(data.letters, "ab\n");
    OK(lsi_train_config_set(&c, "data.letters=bytes"));
    lsi_train_config_data(&c, 0, &data);
    assert_null(data.letters);
    assert_int_equal(lsi_train_config_put_data(&c, "image:/x"), LS_ERR_CONFIG);
    ERROR_HAS("synthetic, idx");
    OK(lsi_train_config_init(&c, "resnet"));
    OK(lsi_train_config_put_data(&c, "cifar:/x"));
    OK(lsi_train_config_settle(&c));
    lsi_train_config_data(&c, 0, &data);
    assert_int_equal(data.augment, 1);
    lsi_train_config_data(&c, 1, &data);
    assert_int_equal(data.augment, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usual),   cmocka_unit_test(test_shards),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_together),
        cmocka_unit_test(test_order),   cmocka_unit_test(test_total),
        cmocka_unit_test(test_model),   cmocka_unit_test(test_data),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

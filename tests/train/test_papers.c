/* Papers: there and back, with and without what is known of the data; what is refused. And the
 * fingerprint: the same for the same data, another for another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../folder.h"
#include "train/trainer.h"

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static lsi_trainer *make_trainer(void)
{
    lsi_trainer *t = test_calloc(1, sizeof *t);
    OK(lsi_train_config_init(&t->config, "mlp"));
    OK(lsi_train_config_put(&t->config, "train.batch", "72"));
    OK(lsi_train_config_settle(&t->config));
    snprintf(t->id, sizeof t->id, "an-id");
    return t;
}

static void drop(lsi_trainer *t)
{
    free(t->out);
    test_free(t);
}

static void there_and_back(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        lsi_trainer *from = make_trainer(), *to = test_calloc(1, sizeof *to);
        char *text, *again;
        from->known = variant & 1;
        from->facts = (lsi_facts){60000, 10000, SHA};
        from->out = variant & 2 ? strdup("runs/a b") : NULL;
        OK(lsi_papers_write(from, &text));
        assert_memory_equal(text, LSI_PAPERS_OUT, strlen(LSI_PAPERS_OUT));
        OK(lsi_papers_read(to, text));
        assert_int_equal(to->configured, 1);
        assert_int_equal(to->known, variant & 1);
        assert_int_equal(to->config.train.batch, 72);
        assert_string_equal(to->id, "an-id");
        if (variant & 1)
            assert_true(lsi_facts_are_same(&to->facts, &from->facts));
        if (variant & 2)
            assert_string_equal(to->out, "runs/a b");
        else
            assert_null(to->out);
        OK(lsi_papers_write(to, &again));
        assert_string_equal(text, again);
        free(text);
        free(again);
        drop(from);
        drop(to);
    }
}

static void nonsense(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "\n",
        "# out x",
        "# run x\n# out y\n",
        "# out x\n[train]\n",
        "# out x\n# run y\n# data \n[train]\n",
        "# out x\n# run y\n# data 1\n[train]\n",
        "# out x\n# run y\n# data 1 2\n" SHA "\n[train]\n",
        "# out x\n# run y\n# data 1 2 0123\n[train]\n",
        "# out x\n# run y\n# data 0 2 " SHA "\n[train]\n",
        "# out x\n# run y\n# data 1 2 " SHA "0\n[train]\n",
        "# out x\n# run y\n# data 1 2 " SHA " 3\n[train]\n",
        "# out x\n# run y\n# data 99999999999999999999 2 " SHA "\n[train]\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lsi_trainer *t = test_calloc(1, sizeof *t);
        if (lsi_papers_read(t, bad[i]) != LS_ERR_PROTOCOL)
            fail_msg("'%s' is taken for papers", bad[i]);
        assert_int_equal(t->configured, 0);
        drop(t);
    }
}

/* Facts of a text for a small gpt. */
static void facts_of_text(const char *text, lsi_facts *out)
{
    const lsi_fields fields = {.n = 2,
                               .of = {{"tokens", LS_I32, 1, {8}, 256},
                                      {"targets", LS_I32, 1, {8}, 256}},
                               .bytes = {32, 32}};
    FILE *f = fopen(path_of("book.txt"), "w");
    assert_non_null(f);
    for (int i = 0; i < 200; i++)
        fprintf(f, "%03d %s\n", i, text);
    fclose(f);
    ls_dataset *part[2];
    for (int validation = 0; validation < 2; validation++) {
        ls_data_config config = LS_DATA_CONFIG_INIT;
        config.kind = "text";
        config.path = path_of("book.txt");
        config.validation = validation;
        OK(ls_dataset_open(&config, &part[validation]));
        OK(ls_dataset_bind(part[validation], fields.of, fields.n));
    }
    OK(lsi_facts_find(part[0], part[1], &fields, out));
    assert_int_equal(out->train, ls_dataset_count(part[0]));
    assert_int_equal(out->held, ls_dataset_count(part[1]));
    ls_dataset_close(part[0]);
    ls_dataset_close(part[1]);
    remove(path_of("book.txt"));
}

static void fingerprint(void **state)
{
    (void)state;
    lsi_facts one, same, changed, longer;
    facts_of_text("to be or not to be", &one);
    facts_of_text("to be or not to be", &same);
    facts_of_text("to be or not to eb", &changed);
    facts_of_text("to be or not to be!", &longer);
    assert_true(lsi_facts_are_same(&one, &same));
    assert_int_equal(one.train, changed.train);
    assert_false(lsi_facts_are_same(&one, &changed));
    assert_false(lsi_facts_are_same(&one, &longer));
    char text[LSI_FACTS_TEXT];
    lsi_facts_print(&one, text);
    assert_true(lsi_facts_parse(text, &same));
    assert_true(lsi_facts_are_same(&one, &same));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(nonsense),
        cmocka_unit_test(fingerprint),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* Opening, kinds and arguments, whatever the format. */
#include "cases.h"

static void test_kinds(void **state)
{
    (void)state;
    static const char *const known[] = {"synthetic", "idx", "cifar", "text", "tokens", "criteo"};
    int i = 0;
    for (; i < 6; i++)
        assert_string_equal(ls_data_kind(i), known[i]);
    assert_null(ls_data_kind(i));
    assert_null(ls_data_kind(-1));
}

static void test_config(void **state)
{
    (void)state;
    ls_data_config config = LS_DATA_CONFIG_INIT;
    ls_dataset *d = NULL;
    FAILS(LS_ERR_INVALID, "a configuration", ls_dataset_open(NULL, &d));
    FAILS(LS_ERR_INVALID, "a place", ls_dataset_open(&config, NULL));
    config.size--;
    FAILS(LS_ERR_INVALID, "LS_DATA_CONFIG_INIT", ls_dataset_open(&config, &d));
    config.size++;
    config.kind = "imagenet";
    FAILS(LS_ERR_CONFIG,
          "no kind named 'imagenet' (known: synthetic, idx, cifar, text, tokens, criteo)",
          ls_dataset_open(&config, &d));
    static const double shares[] = {-0.1, 1, 2, 0.0 / 0.0};
    for (int i = 0; i < 4; i++) {
        config = config_of("text", "/dev/null");
        config.holdout = shares[i];
        FAILS(LS_ERR_CONFIG, "held-out share", ls_dataset_open(&config, &d));
    }
    for (int i = 1; ls_data_kind(i); i++) { /* without a path, and at one that is nowhere */
        config = config_of(ls_data_kind(i), NULL);
        FAILS(LS_ERR_CONFIG, "needs a path", ls_dataset_open(&config, &d));
        config.path = "";
        FAILS(LS_ERR_CONFIG, "needs a path", ls_dataset_open(&config, &d));
        config.path = "/nowhere/at all";
        FAILS(LS_ERR_NOT_FOUND, "/nowhere/at all", ls_dataset_open(&config, &d));
        config.path = "/dev/zero";
        assert_true(ls_dataset_open(&config, &d) < 0);
        assert_non_null(strstr(ls_last_error(), "/dev/zero"));
    }
    assert_null(d);
}

static void test_arguments(void **state)
{
    (void)state;
    ls_data_config config = LS_DATA_CONFIG_INIT;
    ls_dataset *d;
    OK(ls_dataset_open(&config, &d));
    char text[32];
    double loss;
    ls_data_field field = mlp_fields[0], many[9];
    for (int i = 0; i < 9; i++)
        many[i] = field;
    FAILS(LS_ERR_INVALID, "room for text", ls_dataset_setting(d, 0, NULL, 0));
    FAILS(LS_ERR_INVALID, "a dataset", ls_dataset_setting(NULL, 0, text, sizeof text));
    FAILS(LS_ERR_INVALID, "fields", ls_dataset_bind(d, NULL, 1));
    FAILS(LS_ERR_INVALID, "fields", ls_dataset_bind(d, &field, 0));
    FAILS(LS_ERR_INVALID, "fields", ls_dataset_bind(d, many, 9));
    FAILS(LS_ERR_INVALID, "a dataset", ls_dataset_bind(NULL, &field, 1));
    field.ndim = 7;
    FAILS(LS_ERR_INVALID, "6 dimensions", ls_dataset_bind(d, &field, 1));
    field.ndim = 2;
    FAILS(LS_ERR_INVALID, "no elements", ls_dataset_bind(d, &field, 1)); /* dims[1] is 0 */
    field.dims[0] = field.dims[1] = (size_t)1 << 33;
    FAILS(LS_ERR_INVALID, "more than can be", ls_dataset_bind(d, &field, 1));
    field = mlp_fields[0];
    field.bound = (size_t)1 << 40;
    FAILS(LS_ERR_INVALID, "bound by", ls_dataset_bind(d, &field, 1));
    field.bound = 0;
    field.name = NULL;
    FAILS(LS_ERR_INVALID, "no name", ls_dataset_bind(d, &field, 1));
    FAILS(LS_ERR_INVALID, "bind first", ls_dataset_best_loss(d, &loss));
    FAILS(LS_ERR_INVALID, "a place", ls_dataset_best_loss(d, NULL));
    assert_int_equal(ls_dataset_count(d), 0);
    assert_int_equal(ls_dataset_count(NULL), 0);
    assert_null(ls_dataset_letters(NULL));
    OK(ls_dataset_bind(d, mlp_fields, 2));
    FAILS(LS_ERR_INVALID, "room for fields", ls_dataset_read(d, 0, 0, NULL));
    FAILS(LS_ERR_INVALID, "no sample 50000 of 50000",
          ls_dataset_read(d, 50000, 0, (void *[]){NULL, NULL}));
    ls_dataset_close(d);
    ls_dataset_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

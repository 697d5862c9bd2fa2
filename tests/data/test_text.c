/* Text: bytes, its own letters, given ones; the split; every character in its place; refusals. */
#include <stdlib.h>
#include <sys/stat.h>

#include "cases.h"

static ls_data_config here(const char *letters, int validation)
{
    ls_data_config config = config_of("text", path_of("text"));
    config.letters = letters;
    config.validation = validation;
    return config;
}

static void fields_of(size_t context, size_t vocab, ls_data_field fields[2])
{
    fields[0] = (ls_data_field){"tokens", LS_I32, 1, {context}, vocab};
    fields[1] = (ls_data_field){"targets", LS_I32, 1, {context}, vocab};
}

/* Both parts of a text whose tokens are `expected` must give them all again. */
static void check_text(const char *letters, const int32_t *expected, uint64_t total, size_t vocab,
                       size_t context, double share)
{
    ls_data_field fields[2];
    fields_of(context, vocab, fields);
    const uint64_t held = (uint64_t)((double)total * share);
    int32_t *tokens = malloc(context * 4), *targets = malloc(context * 4);
    for (int validation = 0; validation < 2; validation++) {
        ls_data_config config = here(letters, validation);
        config.holdout = share;
        ls_dataset *d = open_data(config, fields, 2);
        char text[32], vocab_text[32];
        snprintf(vocab_text, sizeof vocab_text, "vocab=%zu", vocab);
        OK(ls_dataset_setting(d, 0, text, sizeof text));
        assert_string_equal(text, vocab_text);
        const uint64_t begin = validation ? total - held : 0;
        const uint64_t length = validation ? held : total - held;
        assert_int_equal(ls_dataset_count(d), (length - 1) / context);
        for (uint64_t k = 0; k < ls_dataset_count(d); k++) {
            OK(ls_dataset_read(d, k, 0, (void *[]){tokens, targets}));
            assert_memory_equal(tokens, expected + begin + k * context, context * 4);
            assert_memory_equal(targets, expected + begin + k * context + 1, context * 4);
        }
        ls_dataset_close(d);
    }
    free(tokens);
    free(targets);
}

enum { LENGTH = 20000 };
static int32_t expected[LENGTH];

static void test_bytes(void **state)
{
    (void)state;
    static uint8_t bytes[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        expected[i] = bytes[i] = (uint8_t)(i * i / 7 + i);
    write_file("text", bytes, LENGTH);
    check_text(NULL, expected, LENGTH, 256, 64, 0.1);
    check_text(NULL, expected, LENGTH, 256, 1, 0.5);
    ls_data_config config = here(NULL, 0);
    ls_dataset *d;
    OK(ls_dataset_open(&config, &d));
    assert_null(ls_dataset_letters(d));
    FAILS(LS_ERR_CONFIG, "settings of a model that fits: vocab=256",
          ls_dataset_bind(d, gpt_fields, 2));
    ls_dataset_close(d);
    remove_file("text");
}

static void test_letters(void **state)
{
    (void)state;
    static const char letters[] = "\nabcdefgh";
    static char text[LENGTH];
    for (int i = 0; i < LENGTH; i++) {
        expected[i] = i * i / 7 % 9;
        text[i] = letters[expected[i]];
    }
    write_file("text", text, LENGTH);
    check_text("", expected, LENGTH, 9, 64, 0.1);
    ls_dataset *d;
    ls_data_config config = here("", 0);
    OK(ls_dataset_open(&config, &d));
    assert_string_equal(ls_dataset_letters(d), letters);
    ls_dataset_close(d);
    for (int i = 0; i < LENGTH; i++)
        expected[i] = 8 - expected[i] + 2; /* two that the text has not, first */
    check_text("xy"
               "hgfedcba\n",
               expected, LENGTH, 11, 100, 0.3);
    remove_file("text");
}

/* Letters of one to four bytes, in places that cross every mark. */
static void test_utf8(void **state)
{
    (void)state;
    static const char *const letters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "z"};
    static const int by_code[] = {0, 2, 3, 4, 1}; /* a z é € and a face */
    static char text[4 * LENGTH];
    size_t size = 0;
    for (int i = 0; i < LENGTH; i++) {
        const int k = i * i / 7 % 5;
        memcpy(text + size, letters[k], strlen(letters[k]));
        size += strlen(letters[k]);
        expected[i] = by_code[k];
    }
    write_file("text", text, size);
    check_text("", expected, LENGTH, 5, 64, 0.1);
    check_text("", expected, LENGTH, 5, 1024, 0.2);
    check_text("", expected, LENGTH, 5, 5, 0.1);
    ls_data_config config = here("", 0);
    ls_dataset *d;
    OK(ls_dataset_open(&config, &d));
    assert_string_equal(ls_dataset_letters(d), "az\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    char *copy = strdup(ls_dataset_letters(d));
    ls_dataset_close(d);
    check_text(copy, expected, LENGTH, 5, 64, 0.1); /* its own letters, given */
    free(copy);
    remove_file("text");
}

static void expect(const char *letters, ls_status code, const char *words)
{
    ls_data_config config = here(letters, 0);
    ls_dataset *d = NULL;
    FAILS(code, words, ls_dataset_open(&config, &d));
    assert_null(d);
}

static void test_wrong(void **state)
{
    (void)state;
    expect(NULL, LS_ERR_NOT_FOUND, "there is no such file");
    write_file("text", "", 0);
    expect(NULL, LS_ERR_CONFIG, "is empty");
    write_file("text", "x", 1);
    expect(NULL, LS_ERR_CONFIG, "too few for one sample");
    write_file("text", "hello w\xc3\xb6rld", 12);
    expect("helo wrd", LS_ERR_CONFIG, "(U+00F6) at offset 7 is none of the 8 letters");
    expect("hel\xffo", LS_ERR_CONFIG, "letters are not UTF-8 at offset 3");
    expect("helol", LS_ERR_CONFIG, "'l' (U+006C) is given twice");
    static const char *const bad[] = {"ab\xff",         "ab\xc3",
                                      "ab\xc3(",        "ab\xe2\x82",
                                      "ab\xc0\x80",     "ab\xed\xa0\x80",
                                      "ab\xe0\x80\x80", "ab\xf4\x90\x80\x80",
                                      "ab\x80",         "ab\xf0\x80\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file("text", bad[i], strlen(bad[i]));
        expect("", LS_ERR_CONFIG, "at offset 2 is not UTF-8");
    }
    write_file("text", "ab\0c", 4);
    expect("", LS_ERR_CONFIG, "byte 00 at offset 2 is not UTF-8 text");
    ls_data_field fields[2];
    fields_of(4, 256, fields);
    ls_data_config config = here(NULL, 0);
    ls_dataset *d;
    OK(ls_dataset_open(&config, &d));
    FAILS(LS_ERR_CONFIG, "the part to train on has 3 tokens, one sample takes 5",
          ls_dataset_bind(d, fields, 2));
    fields[1].dims[0] = 2;
    FAILS(LS_ERR_CONFIG, "wants 'targets' as i32 (2), the data has i32 (4)",
          ls_dataset_bind(d, fields, 2));
    fields_of(2, 256, fields);
    OK(ls_dataset_bind(d, fields, 2));
    assert_int_equal(ls_dataset_count(d), 1);
    ls_dataset_close(d);
    config = config_of("text", folder);
    FAILS(LS_ERR_CONFIG, "is a folder", ls_dataset_open(&config, &d));
    if (geteuid() != 0) {
        assert_int_equal(chmod(path_of("text"), 0), 0);
        expect(NULL, LS_ERR_SYSTEM, "Permission denied");
    }
    remove_file("text");
}

/* A file that is written over while it is open gives an error, not a token of nowhere. */
static void test_changed(void **state)
{
    (void)state;
    ls_data_field fields[2];
    fields_of(4, 3, fields);
    write_file("text", "abcabcabcabcabc", 15);
    ls_dataset *d = open_data(here("", 0), fields, 2);
    FILE *file = fopen(path_of("text"), "r+b");
    assert_non_null(file);
    assert_int_equal(fwrite("abz\xff", 1, 4, file), 4);
    fclose(file);
    int32_t tokens[4], targets[4];
    FAILS(LS_ERR_INVALID, "was changed", ls_dataset_read(d, 0, 0, (void *[]){tokens, targets}));
    ls_dataset_close(d);
    remove_file("text");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes), cmocka_unit_test(test_letters), cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_wrong), cmocka_unit_test(test_changed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

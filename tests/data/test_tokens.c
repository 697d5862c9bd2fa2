/* Tokens: nanoGPT's and llm.c's files, a folder of two, and every way to be wrong. */
#include <stdlib.h>
#include <sys/stat.h>

#include "cases.h"

enum { COUNT = 1000 };

static uint8_t bytes[1024 + 4 * COUNT];

static uint32_t token(size_t i)
{
    return (uint32_t)(i * 2654435761u >> 7) % 50000;
}

/* Tokens of `width` bytes after a header of llm.c (magic 0: none); returns the size. */
static size_t make(uint32_t magic, uint32_t version, uint32_t claimed, size_t width)
{
    const size_t head = magic ? 1024 : 0;
    memset(bytes, 0, sizeof bytes);
    if (magic)
        memcpy(bytes, (uint32_t[]){magic, version, claimed}, 12);
    for (size_t i = 0; i < COUNT; i++) {
        const uint32_t t = token(i);
        memcpy(bytes + head + i * width, &t, width); /* little endian */
    }
    return head + COUNT * width;
}

static void fields_of(size_t context, size_t vocab, ls_data_field fields[2])
{
    fields[0] = (ls_data_field){"tokens", LS_I32, 1, {context}, vocab};
    fields[1] = (ls_data_field){"targets", LS_I32, 1, {context}, vocab};
}

static void check(const char *path, int validation, uint64_t begin, uint64_t end)
{
    enum { CONTEXT = 16 };
    ls_data_field fields[2];
    fields_of(CONTEXT, 50257, fields);
    ls_data_config config = config_of("tokens", path);
    config.validation = validation;
    ls_dataset *d = open_data(config, fields, 2);
    assert_int_equal(ls_dataset_count(d), (end - begin - 1) / CONTEXT);
    for (uint64_t k = 0; k < ls_dataset_count(d); k++) {
        int32_t tokens[CONTEXT], targets[CONTEXT];
        OK(ls_dataset_read(d, k, 0, (void *[]){tokens, targets}));
        for (size_t i = 0; i < CONTEXT; i++) {
            assert_int_equal(tokens[i], token(begin + k * CONTEXT + i));
            assert_int_equal(targets[i], token(begin + k * CONTEXT + i + 1));
        }
    }
    ls_dataset_close(d);
}

static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t magic, version;
        size_t width;
    } kinds[] = {{"a.bin", 0, 0, 2},
                 {"a.u32.bin", 0, 0, 4},
                 {"b.bin", 20240520, 1, 2},
                 {"c.bin", 20240801, 7, 4}};
    for (int k = 0; k < 4; k++) {
        write_file(kinds[k].name, bytes,
                   make(kinds[k].magic, kinds[k].version, COUNT, kinds[k].width));
        check(path_of(kinds[k].name), 0, 0, 900);
        check(path_of(kinds[k].name), 1, 900, 1000);
        remove_file(kinds[k].name);
    }
}

static void test_folder(void **state)
{
    (void)state;
    write_file("train.bin", bytes, make(0, 0, 0, 2));
    check(folder, 0, 0, 900);
    check(folder, 1, 900, 1000);
    write_file("val.bin", bytes, 100);
    check(folder, 0, 0, 1000);
    check(folder, 1, 0, 50);
    remove_file("train.bin");
    ls_data_config config = config_of("tokens", folder);
    ls_dataset *d;
    FAILS(LS_ERR_NOT_FOUND, "train.bin: there is no such file", ls_dataset_open(&config, &d));
    remove_file("val.bin");
}

static void expect(const char *name, size_t size, ls_status code, const char *words)
{
    write_file(name, bytes, size);
    ls_data_config config = config_of("tokens", path_of(name));
    ls_dataset *d = NULL;
    FAILS(code, words, ls_dataset_open(&config, &d));
    assert_null(d);
    assert_non_null(strstr(ls_last_error(), name));
    remove_file(name);
}

static void test_wrong(void **state)
{
    (void)state;
    size_t size = make(20240520, 1, COUNT, 2);
    expect("t.bin", 0, LS_ERR_CONFIG, "is empty");
    for (size_t cut = 4; cut < size; cut += 97)
        expect("t.bin", cut, LS_ERR_CONFIG,
               cut < 1024 ? "header of llm.c alone has 1024" : "header says 1000 tokens of 2");
    expect("t.bin", size + 2, LS_ERR_CONFIG, "has 3026 bytes");
    size = make(20240520, 2, COUNT, 2);
    expect("t.bin", size, LS_ERR_CONFIG, "version 2 at offset 4, expected 1");
    size = make(20240801, 1, COUNT, 4);
    expect("t.bin", size, LS_ERR_CONFIG, "version 1 at offset 4, expected 7");
    size = make(20240801, 7, COUNT, 2);
    expect("t.bin", size, LS_ERR_CONFIG, "header says 1000 tokens of 4 bytes");
    size = make(20240520, 1, 0xffffffff, 2);
    expect("t.bin", size, LS_ERR_CONFIG, "header says 4294967295 tokens");
    size = make(20240520, 1, 0, 2);
    expect("t.bin", 1024, LS_ERR_CONFIG, "has 0 tokens");
    size = make(20240522, 1, COUNT, 2);
    expect("t.bin", size, LS_ERR_CONFIG, "evaluation file of llm.c");
    size = make(0, 0, 0, 2);
    expect("t.bin", size - 1, LS_ERR_CONFIG, "not a multiple of tokens of 2 bytes");
    expect("t.bin", 2, LS_ERR_CONFIG, "has 1 tokens");
    expect("t.u32.bin", size - 2, LS_ERR_CONFIG, "not a multiple of tokens of 4 bytes");
    ls_data_config config = config_of("tokens", path_of("none.bin"));
    ls_dataset *d;
    FAILS(LS_ERR_NOT_FOUND, "there is no such file", ls_dataset_open(&config, &d));
}

/* A token that the model has not is found when it is read, as input and as target. */
static void test_range(void **state)
{
    (void)state;
    ls_data_field fields[2];
    for (int kind = 0; kind < 2; kind++) {
        const size_t width = kind ? 4 : 2;
        const size_t size = make(kind ? 20240801 : 0, 7, COUNT, width);
        const uint32_t large = kind ? 0xffffffffu : 50257;
        const size_t head = kind ? 1024 : 0;
        memcpy(bytes + head + 40 * width, &large, width);
        write_file("t.bin", bytes, size);
        fields_of(20, 50257, fields);
        ls_dataset *d = open_data(config_of("tokens", path_of("t.bin")), fields, 2);
        int32_t tokens[20], targets[20];
        char words[96];
        snprintf(words, sizeof words,
                 "token %u at offset %zu, expected below the model's vocab=50257", large,
                 head + 40 * width);
        OK(ls_dataset_read(d, 0, 0, (void *[]){tokens, targets}));
        FAILS(LS_ERR_INVALID, words, ls_dataset_read(d, 1, 0, (void *[]){tokens, targets}));
        FAILS(LS_ERR_INVALID, words, ls_dataset_read(d, 2, 0, (void *[]){tokens, targets}));
        OK(ls_dataset_read(d, 3, 0, (void *[]){tokens, targets}));
        ls_dataset_close(d);
        fields_of(20, 0, fields); /* of an unknown vocabulary everything is right that is 31 bits */
        d = open_data(config_of("tokens", path_of("t.bin")), fields, 2);
        assert_int_equal(ls_dataset_read(d, 2, 0, (void *[]){tokens, targets}),
                         kind ? LS_ERR_INVALID : LS_OK);
        ls_dataset_close(d);
    }
    remove_file("t.bin");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_range),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

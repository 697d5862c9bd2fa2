/* Lines of clicks: values, hashing, missing ones, the index of lines, the split, refusals. */
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cases.h"

static ls_data_config here(int validation)
{
    ls_data_config config = config_of("criteo", path_of("clicks"));
    config.validation = validation;
    return config;
}

static float dense[13], target;
static int32_t ids[26];
static void *const out[3] = {dense, ids, &target};

/* Line i: label i mod 2, numbers i + k (the k-th missing when i + k is divisible by 5), categories
 * i * 26 + k in hexadecimal (missing when divisible by 7). */
static void write_lines(int count, const char *end, int last_end)
{
    FILE *file = fopen(path_of("clicks"), "wb");
    assert_non_null(file);
    for (int i = 0; i < count; i++) {
        fprintf(file, "%d", i % 2);
        for (int k = 0; k < 13; k++)
            if ((i + k) % 5)
                fprintf(file, "\t%d", i + k);
            else
                fprintf(file, "\t");
        for (int k = 0; k < 26; k++)
            if ((i * 26 + k) % 7)
                fprintf(file, k % 2 ? "\t%08x" : "\t%X", i * 26 + k);
            else
                fprintf(file, "\t");
        fprintf(file, "%s", i < count - 1 || last_end ? end : "");
    }
    assert_int_equal(fclose(file), 0);
}

static void check_line(const ls_dataset *d, uint64_t index, int i)
{
    OK(ls_dataset_read(d, index, 0, out));
    assert_true(target == (float)(i % 2));
    for (int k = 0; k < 13; k++) {
        const double expected = (i + k) % 5 ? log1p(i + k) : 0;
        assert_true(fabs((double)dense[k] - expected) <= 1e-6 * (1 + expected));
    }
    for (int k = 0; k < 26; k++)
        assert_in_range(ids[k], 0, 9999);
}

static void test_lines(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3;
         kind++) { /* also without a last newline, and as of another system */
        write_lines(1001, kind == 2 ? "\r\n" : "\n", kind != 1);
        ls_dataset *d = open_data(here(0), dlrm_fields, 3);
        ls_dataset *held = open_data(here(1), dlrm_fields, 3);
        assert_int_equal(ls_dataset_count(d), 901);
        assert_int_equal(ls_dataset_count(held), 100);
        for (int i = 0; i < 901; i++)
            check_line(d, (uint64_t)i, i);
        for (int i = 0; i < 100; i++)
            check_line(held, (uint64_t)i, 901 + i);
        char text[32];
        OK(ls_dataset_setting(d, 0, text, sizeof text));
        assert_string_equal(text, "dense=13");
        OK(ls_dataset_setting(d, 1, text, sizeof text));
        assert_string_equal(text, "tables=26");
        ls_dataset_close(d);
        ls_dataset_close(held);
    }
    remove_file("clicks");
}

/* The same category is the same row, in any case of its digits; in other columns another one;
 * rows are used evenly; a missing one is a category too. Pinned. */
static void test_hash(void **state)
{
    (void)state;
    write_lines(2000, "\n", 1);
    ls_data_field fields[3];
    memcpy(fields, dlrm_fields, sizeof fields);
    fields[1].bound = 8;
    ls_dataset *d = open_data(here(0), fields, 3);
    int rows[8] = {0}, all = 0;
    for (uint64_t i = 0; i < 1800; i++) {
        OK(ls_dataset_read(d, i, 0, out));
        for (int k = 0; k < 26; k++) {
            assert_in_range(ids[k], 0, 7);
            if ((i * 26 + (uint64_t)k) % 7) {
                rows[ids[k]]++;
                all++;
            }
        }
    }
    for (int r = 0; r < 8; r++)
        assert_in_range(rows[r], all / 8 - 400, all / 8 + 400); /* deviation 66 */
    ls_dataset_close(d);

    const char *tail = "\tAB\tab\t00ab\tffffffff\t0";
    FILE *file = fopen(path_of("clicks"), "wb");
    for (int line = 0; line < 2; line++) {
        fprintf(file, "1\t-2\t4294967295\t0\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10%s", tail);
        for (int k = 5; k < 26; k++)
            fprintf(file, "\t%s", line ? "abAB" : "ABab");
        fprintf(file, "\n");
    }
    fclose(file);
    d = open_data(here(0), dlrm_fields, 3);
    OK(ls_dataset_read(d, 0, 0, out));
    assert_true(dense[0] == 0 && dense[2] == 0 && fabsf(dense[1] - 22.180710f) < 1e-5f);
    int same = 0, again[26];
    for (int k = 5; k < 26; k++)
        for (int j = 5; j < k; j++)
            same += ids[k] == ids[j];
    assert_in_range(same, 0, 2);
    memcpy(again, ids, sizeof ids);
    ls_dataset_close(d);
    d = open_data(here(1), dlrm_fields, 3);
    OK(ls_dataset_read(d, 0, 0, out));
    assert_memory_equal(ids, again, sizeof ids);
    static const int32_t pinned[8] = {2839, 8881, 2980, 6571, 4035, 9687, 9179, 7124};
    assert_memory_equal(ids, pinned, sizeof pinned);
    assert_int_equal(hash_of(HASH_START, dense, sizeof dense), 0x620947f979d43d35u);
    ls_dataset_close(d);
    remove_file("clicks");
}

static void expect_open(const char *line, const char *words)
{
    write_file("clicks", line, strlen(line));
    ls_data_config config = here(0);
    ls_dataset *d = NULL;
    FAILS(LS_ERR_CONFIG, words, ls_dataset_open(&config, &d));
    assert_null(d);
}

#define NUMBERS "\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13"
#define HALF "\ta\tb\tc\td\te\tf\t1\t2\t3\t4\t5\t6\t7"

static void test_wrong(void **state)
{
    (void)state;
    ls_data_config config = here(0);
    ls_dataset *d = NULL;
    FAILS(LS_ERR_NOT_FOUND, "there is no such file", ls_dataset_open(&config, &d));
    expect_open("", "is empty");
    expect_open("hello\n", "line 1, column 1, offset 5: expected 40 columns");
    expect_open("2" NUMBERS HALF HALF "\n",
                "line 1, column 1, offset 0: expected the label 0 or 1");
    expect_open(NUMBERS HALF HALF "\n", "the label 0 or 1");
    expect_open("0\tx\t\n", "column 2, offset 2: expected a whole number");
    expect_open("0\t-\t\n", "column 2, offset 2: expected a whole number");
    expect_open("0\t4294967296\t\n", "a whole number of 32 bits");
    expect_open("0\t99999999999999999999999999\t\n", "a whole number of 32 bits");
    expect_open("0" NUMBERS "\tg\t\n", "column 15, offset 32: expected at most 8 hexadecimal");
    expect_open("0" NUMBERS "\t123456789\t\n", "at most 8 hexadecimal digits");
    expect_open("0" NUMBERS HALF "\n", "offset 57: expected 40 columns with tabs");
    expect_open("0" NUMBERS HALF HALF "\t1\n", "expected the line to end after 40 columns");
    expect_open("0" NUMBERS HALF HALF "\n", "has one line");
    config = config_of("criteo", folder);
    FAILS(LS_ERR_CONFIG, "is a folder", ls_dataset_open(&config, &d));

    const char *text = "0" NUMBERS HALF HALF "\n\n1" NUMBERS HALF HALF "\n1" NUMBERS HALF
                       "\n1" NUMBERS HALF HALF "\n";
    write_file("clicks", text, strlen(text));
    d = open_data(here(0), dlrm_fields, 3);
    assert_int_equal(ls_dataset_count(d), 4);
    OK(ls_dataset_read(d, 0, 0, out));
    FAILS(LS_ERR_INVALID, "clicks: line 2, column 1, offset 84: expected 40 columns",
          ls_dataset_read(d, 1, 0, out));
    OK(ls_dataset_read(d, 2, 0, out));
    FAILS(LS_ERR_INVALID, "line 4,", ls_dataset_read(d, 3, 0, out));
    ls_dataset_close(d);

    config = here(0);
    OK(ls_dataset_open(&config, &d));
    ls_data_field fields[3];
    memcpy(fields, dlrm_fields, sizeof fields);
    fields[0].dims[0] = 4;
    FAILS(LS_ERR_CONFIG,
          "wants 'dense' as f32 (4), the data has f32 (13) (settings of a model that "
          "fits: dense=13 tables=26)",
          ls_dataset_bind(d, fields, 3));
    fields[0].dims[0] = 13;
    fields[1].bound = 0;
    FAILS(LS_ERR_CONFIG, "does not say how many", ls_dataset_bind(d, fields, 3));
    FAILS(LS_ERR_CONFIG, "wants 'tokens'", ls_dataset_bind(d, gpt_fields, 2));
    ls_dataset_close(d);
    remove_file("clicks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

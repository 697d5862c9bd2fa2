/* Binary CIFAR: both kinds, values, mirrored and shifted ones, and every way to be wrong. */
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cases.h"

enum { PIXELS = 3072, FEW = 6 };

static uint8_t bytes[FEW * (PIXELS + 2)];

/* Pixel p of record i is (start + i * 41 + p * 13 + p / 1024 * 5) mod 256, its label (start + i)
 * mod 10; a coarse label before it. */
static size_t make(int start, int count, int hundred)
{
    const size_t record = PIXELS + (hundred ? 2 : 1);
    for (int i = 0; i < count; i++) {
        uint8_t *at = bytes + (size_t)i * record;
        if (hundred)
            *at++ = 99;
        *at++ = (uint8_t)((start + i) % 10);
        for (int p = 0; p < PIXELS; p++)
            at[p] = (uint8_t)(start + i * 41 + p * 13 + p / 1024 * 5);
    }
    return (size_t)count * record;
}

static void write_ten(int batches)
{
    char name[32];
    for (int b = 1; b <= batches; b++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", b);
        write_file(name, bytes, make(b, b, 0)); /* of different sizes */
    }
}

static void remove_all(void)
{
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
                                        "train.bin",        "test.bin"};
    for (int i = 0; i < 8; i++)
        unlink(path_of(names[i]));
}

static ls_data_config here(int validation)
{
    ls_data_config config = config_of("cifar", folder);
    config.validation = validation;
    return config;
}

static float x[32][32][3], y[32][32][3];
static int32_t label;

static void check_record(const ls_dataset *d, uint64_t index, int start, int i, int hundred)
{
    static const double mean[2][3] = {{0.4914, 0.4822, 0.4465}, {0.5071, 0.4865, 0.4409}};
    static const double std[2][3] = {{0.2470, 0.2435, 0.2616}, {0.2673, 0.2564, 0.2762}};
    OK(ls_dataset_read(d, index, 0, (void *[]){x, &label}));
    assert_int_equal(label, (start + i) % 10);
    for (int p = 0; p < PIXELS; p++) {
        const int c = p / 1024, row = p % 1024 / 32, column = p % 32;
        const double byte = (uint8_t)(start + i * 41 + p * 13 + c * 5);
        const double expected = (byte / 255 - mean[hundred][c]) / std[hundred][c];
        assert_true(fabs((double)x[row][column][c] - expected) < 1e-6);
    }
}

static void test_ten(void **state)
{
    (void)state;
    write_ten(5);
    write_file("test_batch.bin", bytes, make(77, 2, 0));
    ls_dataset *d = open_data(here(0), image_fields, 2);
    assert_int_equal(ls_dataset_count(d), 15);
    for (int b = 1, index = 0; b <= 5; b++)
        for (int i = 0; i < b; i++)
            check_record(d, (uint64_t)index++, b, i, 0);
    ls_dataset_close(d);
    d = open_data(here(1), image_fields, 2);
    assert_int_equal(ls_dataset_count(d), 2);
    check_record(d, 1, 77, 1, 0);
    char text[32];
    OK(ls_dataset_setting(d, 3, text, sizeof text));
    assert_string_equal(text, "classes=10");
    ls_dataset_close(d);
    remove_file("test_batch.bin");
    d = open_data(here(1), image_fields, 2);
    assert_int_equal(ls_dataset_count(d), 1); /* held out of the others */
    ls_dataset_close(d);
    d = open_data(here(0), image_fields, 2);
    assert_int_equal(ls_dataset_count(d), 14);
    ls_dataset_close(d);
    remove_all();
}

static void test_hundred(void **state)
{
    (void)state;
    ls_data_field fields[2] = {{"input", LS_F32, 1, {PIXELS}, 0}, {"label", LS_I32, 0, {0}, 100}};
    write_file("train.bin", bytes, make(3, 4, 1));
    write_file("test.bin", bytes, make(8, 2, 1));
    ls_dataset *d = open_data(here(0), fields, 2);
    assert_int_equal(ls_dataset_count(d), 4);
    check_record(d, 2, 3, 2, 1);
    ls_dataset_close(d);
    d = open_data(here(1), fields, 2);
    check_record(d, 0, 8, 0, 1);
    ls_dataset_close(d);
    ls_data_config config = here(0);
    OK(ls_dataset_open(&config, &d));
    FAILS(LS_ERR_CONFIG, "below 100, the model takes only those below 10",
          ls_dataset_bind(d, image_fields, 2));
    ls_dataset_close(d);
    remove_all();
}

/* Shift and mirror: the cut of each (sample, epoch) is found again in the image; both kinds of
 * mirror and all shifts appear; pinned. */
static void test_augment(void **state)
{
    (void)state;
    write_ten(2);
    write_file("test_batch.bin", bytes, make(1, 1, 0));
    ls_data_config config = here(0);
    ls_dataset *plain = open_data(config, image_fields, 2);
    config.augment = 1;
    config.seed = 5;
    ls_dataset *d = open_data(config, image_fields, 2);
    int kinds[9][9][2] = {{{0}}}, mirrored = 0, used = 0;
    float black[3];
    uint64_t hash = HASH_START;
    for (int c = 0; c < 3; c++)
        black[c] =
            (float)(-(double[]){0.4914, 0.4822, 0.4465}[c] / (double[]){0.2470, 0.2435, 0.2616}[c]);
    for (uint64_t epoch = 0; epoch < 700; epoch++) {
        OK(ls_dataset_read(plain, epoch % 3, epoch, (void *[]){x, &label}));
        OK(ls_dataset_read(d, epoch % 3, epoch, (void *[]){y, &label}));
        hash = hash_of(hash, y, sizeof y);
        int found = 0;
        for (int k = 0; k < 162 && !found; k++) {
            const int down = k / 18 - 4, right = k / 2 % 9 - 4, mirror = k % 2;
            int same = 1;
            for (int p = 0; p < PIXELS && same; p++) {
                const int c = p % 3, r = p / 96 + down, at = p / 3 % 32 + right;
                const int in = r >= 0 && r < 32 && at >= 0 && at < 32;
                const float from = in ? x[r][mirror ? 31 - at : at][c] : black[c];
                same = fabsf(y[p / 96][p / 3 % 32][c] - from) < 1e-6f;
            }
            if (same) {
                found = 1;
                kinds[down + 4][right + 4][mirror]++;
                mirrored += mirror;
            }
        }
        assert_true(found);
    }
    for (int k = 0; k < 162; k++)
        used += kinds[k / 18][k / 2 % 9][k % 2] > 0;
    assert_in_range(mirrored, 290, 410);
    assert_true(used > 145);
    assert_int_equal(hash, 0xff5ab8bf73e3dc98u);
    ls_dataset_close(plain);
    ls_dataset_close(d);
    remove_all();
}

static void expect(int validation, ls_status code, const char *words)
{
    ls_data_config config = here(validation);
    ls_dataset *d = NULL;
    FAILS(code, words, ls_dataset_open(&config, &d));
    assert_null(d);
    assert_non_null(strstr(ls_last_error(), folder));
}

static void test_wrong(void **state)
{
    (void)state;
    expect(0, LS_ERR_NOT_FOUND, "neither data_batch_1.bin nor train.bin");
    write_ten(3);
    remove_file("data_batch_2.bin");
    expect(0, LS_ERR_NOT_FOUND, "data_batch_2.bin: there is no such file");
    write_file("data_batch_2.bin", bytes, 0);
    expect(0, LS_ERR_CONFIG, "data_batch_2.bin is empty");
    const size_t size = make(2, 2, 0);
    write_file("data_batch_2.bin", bytes, size - 1);
    expect(0, LS_ERR_CONFIG, "the last one begins at offset 3073");
    write_file("data_batch_2.bin", bytes, 5);
    expect(0, LS_ERR_CONFIG, "has 5 bytes, not a multiple of records of 3073");
    remove_file("data_batch_2.bin");
    assert_int_equal(mkdir(path_of("data_batch_2.bin"), 0700), 0);
    expect(0, LS_ERR_CONFIG, "is a folder");
    assert_int_equal(rmdir(path_of("data_batch_2.bin")), 0);
    remove_all();

    write_file("test_batch.bin", bytes, make(1, 1, 0));
    expect(0, LS_ERR_NOT_FOUND, "no data_batch_1.bin");
    make(1, 3, 0);
    bytes[2 * 3073] = 10;
    write_file("data_batch_1.bin", bytes, 3 * 3073);
    ls_dataset *d = open_data(here(0), image_fields, 2);
    OK(ls_dataset_read(d, 1, 0, (void *[]){x, &label}));
    FAILS(LS_ERR_INVALID, "data_batch_1.bin: label 10 at offset 6146, expected below 10",
          ls_dataset_read(d, 2, 0, (void *[]){x, &label}));
    ls_dataset_close(d);
    remove_all();
    write_file("train.bin", bytes, make(1, 2, 0));
    expect(0, LS_ERR_CONFIG, "records of 3074");
    remove_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten),
        cmocka_unit_test(test_hundred),
        cmocka_unit_test(test_augment),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

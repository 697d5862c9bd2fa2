/* Files of samples without answers: what they become, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "../folder.h"
#include "data/samples.h"

#define FLAT ((size_t)6)

static const ls_data_field flat[2] = {{"image", LS_F32, 1, {FLAT}, 0},
                                      {"label", LS_I32, 0, {0}, 4}};
static const ls_data_field cube[2] = {{"image", LS_F32, 3, {32, 32, 3}, 0},
                                      {"label", LS_I32, 0, {0}, 10}};
static const ls_data_field hundred[2] = {{"image", LS_F32, 3, {32, 32, 3}, 0},
                                         {"label", LS_I32, 0, {0}, 100}};

static void put_file(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static void drop_file(const char *name)
{
    assert_int_equal(unlink(path_of(name)), 0);
}

static void refuse(const char *kind, const char *name, const ls_data_field *fields,
                   const char *said)
{
    lsi_samples *s = NULL;
    assert_true(lsi_samples_open(kind, path_of(name), fields, 2, &s) < 0);
    assert_null(s);
    if (!strstr(ls_last_error(), said))
        fail_msg("'%s' does not say '%s'", ls_last_error(), said);
}

/* A .npy of this header and `values` floats 0, 1, 2, …; returns its bytes. */
static size_t make_npy(uint8_t version, const char *header, size_t values, uint8_t *out)
{
    const size_t length = strlen(header), wide = version > 1 ? 4 : 2;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = version;
    out[7] = 0;
    for (size_t i = 0; i < wide; i++)
        out[8 + i] = (uint8_t)(length >> 8 * i);
    memcpy(out + 8 + wide, header, length);
    for (size_t i = 0; i < values; i++) {
        const float value = (float)i;
        memcpy(out + 8 + wide + length + i * sizeof value, &value, sizeof value);
    }
    return 8 + wide + length + values * sizeof(float);
}

#define HEADER "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 2), }\n"

static void test_npy(void **ignored)
{
    (void)ignored;
    uint8_t bytes[512];
    for (uint8_t version = 1; version <= 3; version++) {
        lsi_samples *s;
        float row[FLAT];
        int32_t label = 3;
        put_file("x.npy", bytes, make_npy(version, HEADER, 2 * FLAT, bytes));
        OK(lsi_samples_open("idx", path_of("x.npy"), flat, 2, &s));
        assert_int_equal(lsi_samples_count(s), 2);
        OK(lsi_samples_read(s, 1, (void *[]){row, &label}));
        assert_int_equal(label, 3);
        for (size_t i = 0; i < FLAT; i++)
            assert_true(row[i] == (float)(FLAT + i));
        assert_int_equal(lsi_samples_read(s, 2, (void *[]){row, &label}), LS_ERR_INVALID);
        lsi_samples_close(s);
    }
    drop_file("x.npy");
}

static void test_npy_refused(void **ignored)
{
    (void)ignored;
    static const struct {
        const char *header, *said;
    } wrong[] = {
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 6), }", "'<f4'"},
        {"{'fortran_order': False, 'shape': (2, 6), }", "'descr': none"},
        {"{'descr' '<f4', 'fortran_order': False, 'shape': (2, 6), }", "'descr'"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 6), }", "fortran_order"},
        {"{'descr': '<f4', 'fortran_order': False, }", "no shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (12,), }", "no shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 6", "no shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, -6), }", "no shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 999999999999, 999999999999), }",
         "no shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 5), }", "5 values a sample"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 6), }", "3 samples of 24"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999, 6), }", "says"},
    };
    uint8_t bytes[512];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_file("x.npy", bytes, make_npy(1, wrong[i].header, 2 * FLAT, bytes));
        refuse("idx", "x.npy", flat, wrong[i].said);
    }
    const size_t whole = make_npy(2, HEADER, 2 * FLAT, bytes);
    for (size_t cut = 1; cut < whole; cut++) { /* at any place */
        put_file("x.npy", bytes, cut);
        refuse("idx", "x.npy", flat, "x.npy");
    }
    drop_file("x.npy");
}

static const uint8_t idx[16 + 2 * FLAT] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0,   2, 0, 0,
                                           0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 255, 9, 9, 9};

static void check_idx(const char *name)
{
    lsi_samples *s;
    float row[FLAT];
    int32_t label = 3;
    OK(lsi_samples_open("synthetic", path_of(name), flat, 2, &s));
    assert_int_equal(lsi_samples_count(s), 2);
    OK(lsi_samples_read(s, 1, (void *[]){row, &label}));
    assert_true(row[0] == -1 && row[1] == 1.0f * (2.0f / 255.0f) - 1.0f && row[2] == 1);
    lsi_samples_close(s);
}

static void test_idx(void **ignored)
{
    (void)ignored;
    uint8_t images[sizeof idx];
    memcpy(images, idx, sizeof idx);
    put_file("images", images, sizeof images);
    check_idx("images");
    gzFile gz = gzopen(path_of("images.gz"), "wb");
    assert_int_equal(gzwrite(gz, images, sizeof images), sizeof images);
    gzclose(gz);
    check_idx("images.gz");
    refuse("idx", "images", cube, "2 x 3 x 1 values, the model wants 32 x 32 x 3");
    put_file("images", images, sizeof images - 1);
    refuse("idx", "images", flat, "its header says");
    put_file("images", "nothing", 7);
    refuse("idx", "images", flat, "neither a .npy");
    refuse("idx", "missing", flat, "missing");
    drop_file("images");
    drop_file("images.gz");
}

static void test_cifar(void **ignored)
{
    (void)ignored;
    const size_t pixels = 3072;
    uint8_t *bytes = calloc(2, pixels + 2);
    float *out = malloc(pixels * sizeof *out);
    int32_t label;
    lsi_samples *s;
    assert_true(bytes && out);
    memset(bytes + pixels + 1, 255, pixels + 1); /* label 255 of the second one is not looked at */
    put_file("x.bin", bytes, 2 * (pixels + 1));
    OK(lsi_samples_open("cifar", path_of("x.bin"), cube, 2, &s));
    assert_int_equal(lsi_samples_count(s), 2);
    OK(lsi_samples_read(s, 0, (void *[]){out, &label}));
    assert_true(out[0] == -0.4914f / 0.2470f);
    OK(lsi_samples_read(s, 1, (void *[]){out, &label}));
    assert_true(out[2] == 255.0f * (1.0f / (255.0f * 0.2616f)) + -0.4465f / 0.2616f);
    lsi_samples_close(s);
    refuse("cifar", "x.bin", hundred, "records of 3074");
    refuse("idx", "x.bin", cube, "neither");
    put_file("x.bin", bytes, 2 * (pixels + 2));
    OK(lsi_samples_open("cifar", path_of("x.bin"), hundred, 2, &s));
    assert_int_equal(lsi_samples_count(s), 2);
    lsi_samples_close(s);
    drop_file("x.bin");
    free(bytes);
    free(out);
}

/* All lines, in their order. */
static void test_clicks(void **ignored)
{
    (void)ignored;
    static const ls_data_field fields[3] = {{"dense", LS_F32, 1, {13}, 0},
                                            {"ids", LS_I32, 1, {26}, 100},
                                            {"target", LS_F32, 0, {0}, 0}};
    char text[4096] = "";
    lsi_samples *s;
    float dense[13], target, before = -1;
    int32_t ids[26];
    for (int line = 0; line < 25; line++) {
        size_t used = strlen(text);
        used += (size_t)snprintf(text + used, sizeof text - used, "0\t%d", line);
        for (int c = 1; c < 39; c++)
            text[used++] = '\t';
        text[used++] = '\n';
        text[used] = 0;
    }
    put_file("clicks", text, strlen(text));
    OK(lsi_samples_open("criteo", path_of("clicks"), fields, 3, &s));
    assert_int_equal(lsi_samples_count(s), 25);
    for (uint64_t i = 0; i < 25; i++) {
        OK(lsi_samples_read(s, i, (void *[]){dense, ids, &target}));
        assert_true(dense[0] > before); /* the logarithm of the line's number */
        before = dense[0];
    }
    lsi_samples_close(s);
    put_file("clicks", "hello\n", 6);
    assert_true(lsi_samples_open("criteo", path_of("clicks"), fields, 3, &s) < 0);
    drop_file("clicks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy),    cmocka_unit_test(test_npy_refused),
        cmocka_unit_test(test_idx),    cmocka_unit_test(test_cifar),
        cmocka_unit_test(test_clicks),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* idx files: every spelling, plain and packed; values; split; augmentation; refusals. */
#include <stdlib.h>
#include <sys/stat.h>
#include <zlib.h>

#include "cases.h"

enum { HEIGHT = 5, WIDTH = 4, PIXELS = HEIGHT * WIDTH, COUNT = 7 };

static const ls_data_field flat[2] = {{"image", LS_F32, 1, {PIXELS}, 0},
                                      {"label", LS_I32, 0, {0}, 10}};
static const ls_data_field square[2] = {{"image", LS_F32, 3, {HEIGHT, WIDTH, 1}, 0},
                                        {"label", LS_I32, 0, {0}, 10}};

static uint8_t images[16 + 200 * PIXELS], labels[8 + 200];

/* Pixel p of image i is (i * 31 + p * 7) mod 256, its label i mod 4. */
static size_t make_images(uint32_t count)
{
    const uint8_t head[16] = {0, 0, 8, 3, 0, 0, 0, (uint8_t)count, 0, 0, 0, HEIGHT, 0, 0, 0, WIDTH};
    memcpy(images, head, sizeof head);
    for (uint32_t i = 0; i < count * PIXELS; i++)
        images[16 + i] = (uint8_t)(i / PIXELS * 31 + i % PIXELS * 7);
    return 16 + count * PIXELS;
}

static size_t make_labels(uint32_t count)
{
    const uint8_t head[8] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)count};
    memcpy(labels, head, sizeof head);
    for (uint32_t i = 0; i < count; i++)
        labels[8 + i] = (uint8_t)(i % 4);
    return 8 + count;
}

static void write_packed(const char *name, const void *bytes, size_t size)
{
    gzFile gz = gzopen(path_of(name), "wb");
    assert_non_null(gz);
    assert_int_equal(gzwrite(gz, bytes, (unsigned)size), (int)size);
    assert_int_equal(gzclose(gz), Z_OK);
}

static void write_train(uint32_t count)
{
    write_file("train-images-idx3-ubyte", images, make_images(count));
    write_file("train-labels-idx1-ubyte", labels, make_labels(count));
}

static void write_test(uint32_t count)
{
    write_file("t10k-images-idx3-ubyte", images, make_images(count));
    write_file("t10k-labels-idx1-ubyte", labels, make_labels(count));
}

static void remove_all(void)
{
    static const char *const parts[] = {"train-images", "train-labels", "t10k-images",
                                        "t10k-labels"};
    static const char *const ends[] = {"-idx3-ubyte",    ".idx3-ubyte",    "-idx1-ubyte",
                                       ".idx1-ubyte",    "-idx3-ubyte.gz", ".idx3-ubyte.gz",
                                       "-idx1-ubyte.gz", ".idx1-ubyte.gz"};
    char name[64];
    for (int p = 0; p < 4; p++)
        for (int e = 0; e < 8; e++) {
            snprintf(name, sizeof name, "%s%s", parts[p], ends[e]);
            unlink(path_of(name));
        }
}

static ls_data_config here(int validation)
{
    ls_data_config config = config_of("idx", folder);
    config.validation = validation;
    return config;
}

static float value_of(int byte)
{
    return (float)byte * (2.0f / 255.0f) - 1.0f;
}

static void check_samples(int validation, uint64_t count)
{
    ls_dataset *d = open_data(here(validation), flat, 2);
    assert_int_equal(ls_dataset_count(d), count);
    for (uint64_t i = 0; i < count; i++) {
        float x[PIXELS];
        int32_t label;
        OK(ls_dataset_read(d, i, 0, (void *[]){x, &label}));
        assert_int_equal(label, i % 4);
        for (int p = 0; p < PIXELS; p++)
            assert_true(x[p] == value_of((int)(uint8_t)(i * 31 + (uint64_t)p * 7)));
    }
    ls_dataset_close(d);
}

static void test_spellings(void **state)
{
    (void)state;
    static const char *const names[4][2] = {
        {"-images-idx3-ubyte", "-labels-idx1-ubyte"},
        {"-images.idx3-ubyte", "-labels.idx1-ubyte"},
        {"-images-idx3-ubyte.gz", "-labels-idx1-ubyte.gz"},
        {"-images.idx3-ubyte.gz", "-labels.idx1-ubyte.gz"},
    };
    for (int s = 0; s < 4; s++) {
        for (int part = 0; part < 2; part++) {
            void (*writes)(const char *, const void *, size_t) = s < 2 ? write_file : write_packed;
            const uint32_t count = part ? 3 : COUNT;
            char name[64];
            snprintf(name, sizeof name, "%s%s", part ? "t10k" : "train", names[s][0]);
            writes(name, images, make_images(count));
            snprintf(name, sizeof name, "%s%s", part ? "t10k" : "train", names[s][1]);
            writes(name, labels, make_labels(count));
        }
        check_samples(0, COUNT);
        check_samples(1, 3);
        remove_all();
    }
}

static void expect_settings(const char *model, const char *a, const char *b, const char *c,
                            const char *e)
{
    const char *const expected[] = {a, b, c, e, NULL};
    ls_data_config config = here(0);
    config.model = model;
    ls_dataset *d;
    char text[64];
    OK(ls_dataset_open(&config, &d));
    int i = 0;
    for (; expected[i]; i++) {
        OK(ls_dataset_setting(d, i, text, sizeof text));
        assert_string_equal(text, expected[i]);
    }
    FAILS(LS_ERR_NOT_FOUND, "no setting", ls_dataset_setting(d, i, text, sizeof text));
    FAILS(LS_ERR_NOT_FOUND, "no setting", ls_dataset_setting(d, -1, text, sizeof text));
    FAILS(LS_ERR_INVALID, "does not fit", ls_dataset_setting(d, 0, text, 4));
    ls_dataset_close(d);
}

static void test_settings(void **state)
{
    (void)state;
    write_train(COUNT);
    expect_settings("mlp", "inputs=20", "classes=4", NULL, NULL);
    expect_settings("resnet:20", "classes=4", NULL, NULL, NULL); /* images are not square */
    images[11] = images[15] = 2;                                 /* 2 by 2, 35 of them */
    images[7] = 35;
    write_file("train-images-idx3-ubyte", images, 16 + 35 * 4);
    write_file("train-labels-idx1-ubyte", labels, make_labels(35));
    expect_settings("resnet", "image=2", "channels=1", "classes=4", NULL);
    expect_settings(NULL, "inputs=4", "image=2", "channels=1", "classes=4");
    remove_all();
}

static void test_bind(void **state)
{
    (void)state;
    write_train(COUNT);
    ls_data_config config = here(0);
    ls_dataset *d;
    OK(ls_dataset_open(&config, &d));
    assert_int_equal(ls_dataset_count(d), 0);
    float x[PIXELS];
    int32_t label = -1;
    void *out[2] = {x, &label};
    FAILS(LS_ERR_INVALID, "bind first", ls_dataset_read(d, 0, 0, out));
    FAILS(LS_ERR_CONFIG, "wants 'image' as f32 (784), the data has f32 (20)",
          ls_dataset_bind(d, mlp_fields, 2));
    FAILS(LS_ERR_CONFIG, "fits: inputs=20 classes=4", ls_dataset_bind(d, image_fields, 2));
    FAILS(LS_ERR_CONFIG, "wants 'tokens', the data has image, label",
          ls_dataset_bind(d, gpt_fields, 2));
    ls_data_field fields[2] = {flat[0], flat[1]};
    fields[1].bound = 3;
    FAILS(LS_ERR_CONFIG, "'label' are below 4, the model takes only those below 3",
          ls_dataset_bind(d, fields, 2));
    fields[1] = fields[0];
    FAILS(LS_ERR_CONFIG, "wants 'image'", ls_dataset_bind(d, fields, 2));
    fields[0].dtype = LS_F64;
    FAILS(LS_ERR_CONFIG, "as f64 (20), the data has f32 (20)", ls_dataset_bind(d, fields, 1));
    OK(ls_dataset_bind(d, &flat[1], 1)); /* the label alone */
    OK(ls_dataset_read(d, 0, 0, (void *[]){&label}));
    assert_in_range(label, 0, 3);
    FAILS(LS_ERR_INVALID, "already", ls_dataset_bind(d, flat, 2));
    FAILS(LS_ERR_INVALID, "no sample 6 of 6", ls_dataset_read(d, 6, 0, out));
    double loss;
    FAILS(LS_ERR_NOT_FOUND, "nobody knows", ls_dataset_best_loss(d, &loss));
    ls_dataset_close(d);
    remove_all();
}

/* Without t10k files both parts come from one: together each image once, whatever the seed. */
static void test_split(void **state)
{
    (void)state;
    write_train(200);
    int seen[256] = {0}, held_labels[4] = {0}, moved = 0;
    for (int validation = 0; validation < 2; validation++) {
        ls_data_config config = here(validation);
        config.holdout = 0.2;
        config.seed = (uint64_t)validation;
        ls_dataset *d = open_data(config, square, 2);
        assert_int_equal(ls_dataset_count(d), validation ? 40 : 160);
        for (uint64_t i = 0; i < ls_dataset_count(d); i++) {
            float x[PIXELS];
            int32_t label;
            OK(ls_dataset_read(d, i, 0, (void *[]){x, &label}));
            int first = 0; /* i * 31 mod 256: another one for each image */
            while (x[0] != value_of(first))
                first++;
            seen[first]++;
            held_labels[label] += validation;
            moved += !validation && x[0] != value_of((int)(uint8_t)(i * 31));
        }
        ls_dataset_close(d);
    }
    for (int i = 0, all = 0; i < 256; i++) {
        assert_in_range(seen[i], 0, 1);
        all += seen[i];
        assert_true(i < 255 || all == 200);
    }
    for (int c = 0; c < 4; c++)
        assert_in_range(held_labels[c], 3, 20);
    assert_true(moved > 120);
    remove_all();
}

/* A shifted image is the image, moved; what comes in is black. Held-out images are not touched. */
static void test_augment(void **state)
{
    (void)state;
    write_train(COUNT);
    write_test(COUNT);
    ls_data_config config = here(0);
    ls_dataset *plain = open_data(config, flat, 2);
    config.augment = 1;
    config.seed = 11;
    ls_dataset *d = open_data(config, flat, 2);
    config.validation = 1;
    ls_dataset *held = open_data(config, flat, 2);
    int shifts[9][9] = {{0}}, kinds = 0;
    uint64_t hash = HASH_START;
    for (uint64_t epoch = 0; epoch < 200; epoch++)
        for (uint64_t i = 0; i < COUNT; i++) {
            float x[PIXELS], y[PIXELS], again[PIXELS];
            int32_t label;
            OK(ls_dataset_read(plain, i, epoch, (void *[]){x, &label}));
            OK(ls_dataset_read(held, i, epoch, (void *[]){y, &label}));
            assert_memory_equal(x, y, sizeof x);
            OK(ls_dataset_read(d, i, epoch, (void *[]){y, &label}));
            OK(ls_dataset_read(d, i, epoch, (void *[]){again, &label}));
            assert_memory_equal(y, again, sizeof y);
            hash = hash_of(hash, y, sizeof y);
            int found = 0;
            for (int down = -4; down <= 4 && !found; down++)
                for (int right = -4; right <= 4 && !found; right++) {
                    int same = 1;
                    for (int p = 0; p < PIXELS && same; p++) {
                        const int r = p / WIDTH + down, c = p % WIDTH + right;
                        const int in = r >= 0 && r < HEIGHT && c >= 0 && c < WIDTH;
                        same = y[p] == (in ? x[r * WIDTH + c] : -1.0f);
                    }
                    found = same;
                    shifts[down + 4][right + 4] += same;
                }
            assert_true(found);
        }
    for (int k = 0; k < 81; k++)
        kinds += shifts[k / 9][k % 9] > 0;
    assert_true(kinds > 60); /* all, but that shifts by the whole image cannot be told apart */
    assert_int_equal(hash, 0x7ac18eed1f62176cu);
    ls_dataset_close(plain);
    ls_dataset_close(d);
    ls_dataset_close(held);
    remove_all();
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void expect(ls_status code, const char *words)
{
    ls_data_config config = here(0);
    ls_dataset *d = NULL;
    FAILS(code, words, ls_dataset_open(&config, &d));
    assert_null(d);
    assert_non_null(strstr(ls_last_error(), folder)); /* the file is named */
}

static void test_missing(void **state)
{
    (void)state;
    expect(LS_ERR_NOT_FOUND, "there is no train-images-idx3-ubyte");
    write_file("train-images-idx3-ubyte", images, make_images(COUNT));
    expect(LS_ERR_NOT_FOUND, "there is no train-labels-idx1-ubyte");
    write_file("train-labels-idx1-ubyte", labels, 0);
    expect(LS_ERR_CONFIG, "train-labels-idx1-ubyte is empty");
    remove_file("train-labels-idx1-ubyte");
    assert_int_equal(mkdir(path_of("train-labels-idx1-ubyte"), 0700), 0);
    expect(LS_ERR_CONFIG, "is a folder");
    assert_int_equal(rmdir(path_of("train-labels-idx1-ubyte")), 0);
    assert_int_equal(mkfifo(path_of("train-labels-idx1-ubyte"), 0600), 0);
    expect(LS_ERR_CONFIG, "not a regular file");
    remove_file("train-labels-idx1-ubyte");
    if (geteuid() != 0) {
        write_file("train-labels-idx1-ubyte", labels, make_labels(COUNT));
        assert_int_equal(chmod(path_of("train-labels-idx1-ubyte"), 0), 0);
        expect(LS_ERR_SYSTEM, "Permission denied");
    }
    ls_data_config config = config_of("idx", path_of("train-images-idx3-ubyte"));
    ls_dataset *d;
    FAILS(LS_ERR_NOT_FOUND, "is not a folder", ls_dataset_open(&config, &d));
    config.path = NULL;
    FAILS(LS_ERR_CONFIG, "idx needs a path", ls_dataset_open(&config, &d));
    remove_all();
}

static void test_wrong(void **state)
{
    (void)state;
    write_train(COUNT);
    const size_t size = make_images(COUNT);
    static const struct {
        int at;
        uint8_t byte;
        const char *words;
    } cases[] = {
        {3, 1, "begins with 00000801"},
        {2, 9, "expected at offset 0: 00000803"},
        {7, 0, "a count of 0"},
        {7, 8, "has 156 bytes, its header says 176"},
        {11, 0, "height and width above 0"},
        {8, 1, "height and width above 0"},
        {4, 0xff, "has 156 bytes, its header says 85563801756"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        make_images(COUNT);
        images[cases[c].at] = cases[c].byte;
        write_file("train-images-idx3-ubyte", images, size);
        expect(LS_ERR_CONFIG, cases[c].words);
    }
    make_images(COUNT);
    for (size_t cut = 1; cut < size; cut += 11) { /* every kind of truncation */
        write_file("train-images-idx3-ubyte", images, cut);
        expect(LS_ERR_CONFIG, cut < 16 ? "its header alone would have 16" : "its header says 156");
    }
    write_file("train-images-idx3-ubyte", images, size + 1);
    expect(LS_ERR_CONFIG, "has 157 bytes, its header says 156");
    write_file("train-images-idx3-ubyte", images, size);
    write_file("train-labels-idx1-ubyte", labels, make_labels(COUNT + 1));
    expect(LS_ERR_CONFIG, "has 8 labels");
    write_file("train-labels-idx1-ubyte", images, size);
    expect(LS_ERR_CONFIG, "expected at offset 0: 00000801");
    write_file("train-images-idx3-ubyte", images, make_images(1));
    write_file("train-labels-idx1-ubyte", labels, make_labels(1));
    expect(LS_ERR_CONFIG, "cannot be split");
    remove_all();
}

static void test_packed_wrong(void **state)
{
    (void)state;
    static uint8_t packed[4096];
    write_file("train-labels-idx1-ubyte", labels, make_labels(COUNT));
    write_packed("train-images-idx3-ubyte.gz", images, make_images(COUNT));
    FILE *file = fopen(path_of("train-images-idx3-ubyte.gz"), "rb");
    const size_t size = fread(packed, 1, sizeof packed, file);
    fclose(file);
    for (size_t cut = 1; cut < size; cut++) {
        write_file("train-images-idx3-ubyte.gz", packed, cut);
        expect(LS_ERR_CONFIG, "train-images-idx3-ubyte.gz");
    }
    packed[size - 6] ^= 1; /* the check sum */
    write_file("train-images-idx3-ubyte.gz", packed, size);
    expect(LS_ERR_CONFIG, "unpacked bytes: incorrect data check");
    packed[size - 6] ^= 1;
    packed[size / 2] ^= 0x55;
    write_file("train-images-idx3-ubyte.gz", packed, size);
    expect(LS_ERR_CONFIG, "train-images-idx3-ubyte.gz");
    write_packed("train-images-idx3-ubyte.gz", images, make_images(COUNT) + 1);
    expect(LS_ERR_CONFIG, "unpacks to more than the 156 bytes");
    write_packed("train-images-idx3-ubyte.gz", images, make_images(COUNT) - 1);
    expect(LS_ERR_CONFIG, "ends after 155 unpacked bytes, 156 were expected");
    write_packed("train-images-idx3-ubyte.gz", labels, make_labels(20));
    expect(LS_ERR_CONFIG, "begins with 00000801");
    make_images(COUNT);
    images[4] = 0xff; /* 85 GB, it says */
    write_packed("train-images-idx3-ubyte.gz", images, 156);
    expect(LS_ERR_CONFIG, "packed ones can hold");
    remove_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings), cmocka_unit_test(test_settings),
        cmocka_unit_test(test_bind),      cmocka_unit_test(test_split),
        cmocka_unit_test(test_augment),   cmocka_unit_test(test_missing),
        cmocka_unit_test(test_wrong),     cmocka_unit_test(test_packed_wrong),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

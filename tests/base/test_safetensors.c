/* safetensors files: what is written is read back, every kind of damage is named, and nothing
 * half-done is ever seen under the file's name. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../folder.h"
#include "base/safetensors.h"

static int files_in_folder(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static char *slurp(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *data = malloc(1 << 16);
    *size = fread(data, 1, 1 << 16, f);
    fclose(f);
    return data;
}

static const lsi_st_tensor some[] = {
    {.name = "h.0.weight", .dtype = LSI_ST_F32, .ndim = 2, .dims = {2, 3}},
    {.name = "empty", .dtype = LSI_ST_F32, .ndim = 2, .dims = {0, 3}},
    {.name = "a \"quoted\" näme", .dtype = LSI_ST_I64, .ndim = 0},
    {.name = "bytes", .dtype = LSI_ST_U8, .ndim = 1, .dims = {5}},
};

static void write_some(const char *path)
{
    static const char *const metadata[] = {"format", "pt", "made by", "a test"};
    const float weight[6] = {1, -2, 3.5f, -0.0f, INFINITY, 1e-40f};
    const int64_t number = -7;
    lsi_st_writer *w = NULL;
    OK(lsi_st_create(path, some, 4, metadata, 2, &w));
    assert_true(access(path, F_OK) != 0 || files_in_folder() == 2);
    OK(lsi_st_append(w, weight, 7)); /* in pieces of any size */
    OK(lsi_st_append(w, (const char *)weight + 7, sizeof weight - 7));
    OK(lsi_st_append(w, &number, sizeof number));
    OK(lsi_st_append(w, NULL, 0));
    OK(lsi_st_append(w, "bytes", 5));
    assert_int_equal(lsi_st_append(w, "!", 1), LS_ERR_INVALID);
    OK(lsi_st_commit_take(w));
}

static void test_round(void **state)
{
    (void)state;
    const char *path = path_of("round");
    write_some(path);
    lsi_st_file *f = NULL;
    OK(lsi_st_open(path, &f));
    assert_int_equal(lsi_st_count(f), 4);
    for (size_t i = 0; i < 4; i++) {
        const lsi_st_tensor *t = lsi_st_at(f, i);
        assert_string_equal(t->name, some[i].name);
        assert_ptr_equal(lsi_st_find(f, some[i].name), t);
        assert_int_equal(t->dtype, some[i].dtype);
        assert_int_equal(t->ndim, some[i].ndim);
        assert_memory_equal(t->dims, some[i].dims, (size_t)t->ndim * sizeof *t->dims);
    }
    assert_null(lsi_st_at(f, 4));
    assert_null(lsi_st_find(f, "h.0"));
    assert_int_equal(lsi_st_at(f, 0)->count, 6);
    assert_int_equal(lsi_st_at(f, 1)->count, 0);
    assert_int_equal(lsi_st_at(f, 2)->count, 1);
    assert_int_equal((uintptr_t)lsi_st_at(f, 0)->data % 8, 0);
    float weight[6];
    assert_true(lsi_st_to_f32(lsi_st_at(f, 0), 0, 6, weight));
    assert_true(weight[2] == 3.5f && isinf(weight[4]) && signbit(weight[3]) && weight[5] == 1e-40f);
    assert_true(lsi_st_to_f32(lsi_st_at(f, 0), 2, 1, weight));
    assert_true(weight[0] == 3.5f);
    assert_false(lsi_st_to_f32(lsi_st_at(f, 2), 0, 1, weight));
    assert_memory_equal(lsi_st_at(f, 3)->data, "bytes", 5);
    assert_string_equal(lsi_st_metadata(f, "format"), "pt");
    assert_string_equal(lsi_st_metadata(f, "made by"), "a test");
    assert_null(lsi_st_metadata(f, "other"));
    lsi_st_close(f);
    lsi_st_close(NULL);
    unlink(path);
}

/* These very bytes: what another program would have to write to give the same hash. */
static void test_bytes(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"made by\":\"a test\"},\"h.0.weight\":{\"dtype\":"
        "\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},\"empty\":{\"dtype\":\"F32\",\"shape\":["
        "0,3],\"data_offsets\":[24,24]},\"a \\\"quoted\\\" näme\":{\"dtype\":\"I64\",\"shape\":["
        "],\"data_offsets\":[24,32]},\"bytes\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":["
        "32,37]}}";
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("bytes"));
    write_some(path);
    write_some(path); /* over itself */
    size_t size;
    char *data = slurp(path, &size);
    const size_t length = sizeof header - 1, padded = (length + 7) / 8 * 8;
    assert_int_equal(size, 8 + padded + 37);
    assert_int_equal((unsigned char)data[0] + 256 * (unsigned char)data[1], padded);
    assert_memory_equal(data + 8, header, length);
    for (size_t i = length; i < padded; i++)
        assert_int_equal(data[8 + i], ' ');
    free(data);
    unlink(path);
}

static void test_conversions(void **state)
{
    (void)state;
    static const struct {
        uint16_t bits;
        float value;
    } halves[] = {{0x0000, 0.0f},          {0x3c00, 1.0f},
                  {0xc000, -2.0f},         {0x7bff, 65504.0f},
                  {0x0400, 0x1p-14f},      {0x0001, 0x1p-24f},
                  {0x83ff, -0x1.ff8p-15f}, {0x3555, 0.333251953125f},
                  {0x7c00, INFINITY},      {0xfc00, -INFINITY},
                  {0x8000, -0.0f}};
    float out[16];
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        const lsi_st_tensor t = {.dtype = LSI_ST_F16, .count = 1, .data = &halves[i].bits};
        assert_true(lsi_st_to_f32(&t, 0, 1, out));
        assert_memory_equal(out, &halves[i].value, sizeof *out);
    }
    const uint16_t nan = 0x7e01, brain[] = {0x3f80, 0xc2f7, 0x7fc0};
    lsi_st_tensor t = {.dtype = LSI_ST_F16, .count = 1, .data = &nan};
    assert_true(lsi_st_to_f32(&t, 0, 1, out) && isnan(out[0]));
    t = (lsi_st_tensor){.dtype = LSI_ST_BF16, .count = 3, .data = brain};
    assert_true(lsi_st_to_f32(&t, 0, 3, out));
    assert_true(out[0] == 1 && out[1] == -123.5f && isnan(out[2]));
    unsigned char unaligned[1 + 2 * sizeof(double)];
    const double doubles[] = {0.1, -1e300};
    memcpy(unaligned + 1, doubles, sizeof doubles);
    t = (lsi_st_tensor){.dtype = LSI_ST_F64, .count = 2, .data = unaligned + 1};
    assert_true(lsi_st_to_f32(&t, 0, 2, out));
    assert_true(out[0] == 0.1f && out[1] == -INFINITY);
}

/* A file of this header (as text) and `bytes` of data. */
static ls_status open_text(const char *header, size_t bytes, lsi_st_file **f)
{
    static unsigned char file[4096];
    const size_t length = strlen(header);
    memset(file, 0, sizeof file);
    file[0] = (unsigned char)length;
    file[1] = (unsigned char)(length >> 8);
    memcpy(file + 8, header, length);
    /* a copy of exactly this size, so that a read beyond it is seen */
    unsigned char *copy = malloc(8 + length + bytes);
    memcpy(copy, file, 8 + length + bytes);
    const ls_status status = lsi_st_open_memory("FILE", copy, 8 + length + bytes, f);
    if (status != LS_OK)
        free(copy);
    return status;
}

static void test_damage(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t bytes;
        const char *says;
    } files[] = {
        {"", 0, "not a JSON object"},
        {"[]", 0, "not a JSON object: it is something else"},
        {"{} x", 0, "not a JSON object: end of file expected"},
        {"{\"a\":1}", 0, "'a' is not described by dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "'a' is not described"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
         "'a' is not"},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype 'F31'"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "'a' has no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
         "no shape of at most 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "whole numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "whole numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
         "more elements than can be counted"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
         "another size"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "no data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3,
         "outside of the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "outside"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "another size"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 6, "last 2 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
         "'a' comes after a"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
         7, "'b' overlaps"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
         8, "duplicate"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "'a' of __metadata__ is not a text"},
        {"{\"\xff\":1}", 0, "not a JSON object"},
        {"{\"a\\u0000b\":1}", 0, "not a JSON object"},
        {"{\"a\":99999999999999999999}", 0, "not a JSON object"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        lsi_st_file *f = NULL;
        assert_int_equal(open_text(files[i].header, files[i].bytes, &f), LS_ERR_CONFIG);
        assert_null(f);
        if (!strstr(ls_last_error(), files[i].says) || !strstr(ls_last_error(), "FILE"))
            fail_msg("'%s' does not say '%s'", ls_last_error(), files[i].says);
    }
    char deep[3000];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    lsi_st_file *f = NULL;
    assert_int_equal(open_text(deep, 0, &f), LS_ERR_CONFIG);
}

/* Every prefix of a good file is refused, and its lengths may say anything. */
static void test_cut(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("cut"));
    write_some(path);
    size_t size;
    char *data = slurp(path, &size);
    lsi_st_file *f = NULL;
    for (size_t n = 0; n < size; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, data, n);
        assert_int_equal(lsi_st_open_memory("cut", copy, n, &f), LS_ERR_CONFIG);
        free(copy);
    }
    static const uint64_t lengths[] = {
        0, 1, 7, 1000000, (uint64_t)100 << 20, UINT64_MAX, UINT64_MAX - 8, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(data, &lengths[i], 8);
        assert_int_equal(lsi_st_open_memory("length", data, size, &f), LS_ERR_CONFIG);
    }
    assert_null(f);
    free(data);
    unlink(path);
}

static void test_paths(void **state)
{
    (void)state;
    lsi_st_file *f = NULL;
    lsi_st_writer *w = NULL;
    assert_int_equal(lsi_st_open(path_of("nothing"), &f), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_last_error(), "nothing cannot be opened: No such file"));
    assert_int_equal(lsi_st_open(folder, &f), LS_ERR_CONFIG);
    assert_non_null(strstr(ls_last_error(), "not a regular file"));
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("odd"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(lsi_st_open(path, &f), LS_ERR_CONFIG); /* and does not wait for a writer */
    unlink(path);
    close(open(path, O_WRONLY | O_CREAT, 0600));
    assert_int_equal(lsi_st_open(path, &f), LS_ERR_CONFIG);
    assert_non_null(strstr(ls_last_error(), "0 bytes are too few"));
    unlink(path);
    assert_int_equal(lsi_st_create(path_of("no/folder"), some, 4, NULL, 0, &w), LS_ERR_SYSTEM);
    assert_non_null(strstr(ls_last_error(), "No such file"));
    assert_int_equal(mkdir(path, 0700), 0); /* a folder in the file's place: seen at the end */
    OK(lsi_st_create(path, some + 3, 1, NULL, 0, &w));
    OK(lsi_st_append(w, "bytes", 5));
    assert_int_equal(lsi_st_commit_take(w), LS_ERR_SYSTEM);
    assert_non_null(strstr(ls_last_error(), "cannot be replaced"));
    assert_int_equal(files_in_folder(), 1);
    rmdir(path);
    assert_null(f);
}

/* Nothing is seen of what was not finished; what was there stays. */
static void test_atomic(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("atomic"));
    lsi_st_writer *w = NULL;
    OK(lsi_st_create(path, some, 4, NULL, 0, &w));
    assert_int_equal(access(path, F_OK), -1);
    lsi_st_abandon(w);
    lsi_st_abandon(NULL);
    assert_int_equal(files_in_folder(), 0);
    write_some(path);
    size_t size, after;
    char *data = slurp(path, &size), *again;
    OK(lsi_st_create(path, some, 4, NULL, 0, &w));
    OK(lsi_st_append(w, data, 10));
    again = slurp(path, &after);
    assert_int_equal(size, after);
    assert_memory_equal(data, again, size);
    free(again);
    assert_int_equal(lsi_st_commit_take(w), LS_ERR_INVALID); /* data is missing */
    assert_non_null(strstr(ls_last_error(), "27 bytes of data are missing"));
    again = slurp(path, &after);
    assert_memory_equal(data, again, size);
    assert_int_equal(files_in_folder(), 1);
    free(again);
    free(data);
    struct stat about;
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0666 & ~mask);
    unlink(path);
}

static void test_refused(void **state)
{
    (void)state;
    const lsi_st_tensor twice[] = {some[0], some[3], some[0]};
    const lsi_st_tensor bad[] = {{.name = "\xff", .dtype = LSI_ST_F32},
                                 {.name = "__metadata__", .dtype = LSI_ST_F32},
                                 {.name = "huge", .ndim = 2, .dims = {SIZE_MAX, 2}},
                                 {.name = "large", .ndim = 1, .dims = {SIZE_MAX / 4}},
                                 {.name = "none", .dtype = (lsi_st_dtype)99},
                                 {.name = "many", .ndim = 9}};
    const char *const metadata[] = {"key", "\xff"};
    lsi_st_writer *w = NULL;
    assert_int_equal(lsi_st_create(path_of("x"), twice, 3, NULL, 0, &w), LS_ERR_INVALID);
    assert_non_null(strstr(ls_last_error(), "'h.0.weight' is there twice"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(lsi_st_create(path_of("x"), &bad[i], 1, NULL, 0, &w), LS_ERR_INVALID);
    assert_int_equal(lsi_st_create(path_of("x"), some, 4, metadata, 1, &w), LS_ERR_INVALID);
    assert_null(w);
    assert_int_equal(files_in_folder(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round),       cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_conversions), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_cut),         cmocka_unit_test(test_paths),
        cmocka_unit_test(test_atomic),      cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

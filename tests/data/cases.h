/* What the tests of data have in common: fields of models, files, errors. */
#ifndef TESTS_DATA_CASES_H
#define TESTS_DATA_CASES_H

/* Not every test needs all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <lockstep/data.h>

#include "../folder.h"

static const ls_data_field mlp_fields[2] = {{"image", LS_F32, 1, {784}, 0},
                                            {"label", LS_I32, 0, {0}, 10}};
__attribute__((
    unused)) static const ls_data_field image_fields[2] = {{"image", LS_F32, 3, {32, 32, 3}, 0},
                                                           {"label", LS_I32, 0, {0}, 10}};
__attribute__((
    unused)) static const ls_data_field gpt_fields[2] = {{"tokens", LS_I32, 1, {64}, 65},
                                                         {"targets", LS_I32, 1, {64}, 65}};
static const ls_data_field dlrm_fields[3] = {{"dense", LS_F32, 1, {13}, 0},
                                             {"ids", LS_I32, 1, {26}, 10000},
                                             {"target", LS_F32, 0, {0}, 0}};

/* The call must fail with this code, and its text must have the words. */
#define FAILS(code, words, call)                                                                   \
    do {                                                                                           \
        const ls_status fails_status = (call);                                                     \
        if (fails_status != (code) || !strstr(ls_last_error(), words))                             \
            fail_msg("%s: %s: %s", #call, ls_status_name(fails_status), ls_last_error());          \
    } while (0)

static ls_data_config config_of(const char *kind, const char *path)
{
    ls_data_config config = LS_DATA_CONFIG_INIT;
    config.kind = kind;
    config.path = path;
    return config;
}

static ls_dataset *open_data(ls_data_config config, const ls_data_field *fields, int count)
{
    ls_dataset *dataset = NULL;
    OK(ls_dataset_open(&config, &dataset));
    OK(ls_dataset_bind(dataset, fields, count));
    return dataset;
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *name)
{
    assert_int_equal(unlink(path_of(name)), 0);
}

/* FNV-1a, to pin many values by one number. */
static uint64_t hash_of(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    return hash;
}
#define HASH_START 0xcbf29ce484222325u

#endif

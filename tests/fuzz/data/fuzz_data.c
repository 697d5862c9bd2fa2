/* Fuzzes the readers of data: the first byte of an input chooses the kind of file, the rest is it.
 *
 * Checked for whatever is refused: there is a text and no dataset. For what is accepted: it can be
 * bound to a model of the settings that it tells; each sample is read or refused with a text; what
 * is read is in the bounds that were promised, twice the same. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/data.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, ls_last_error());  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum { KINDS = 7, SAMPLES = 32, CONTEXT = 5, ROWS = 100, VOCAB = 300 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    const char *kind, *file, *letters;
    int is_folder; /* the path is that of the folder */
} kinds[KINDS] = {
    {"idx", "train-images-idx3-ubyte", NULL, 1},
    {"idx", "train-images-idx3-ubyte.gz", NULL, 1},
    {"tokens", "tokens.bin", NULL, 0},
    {"tokens", "tokens.u32.bin", NULL, 0},
    {"text", "text", "", 0},
    {"criteo", "clicks", NULL, 0},
    {"cifar", "data_batch_1.bin", NULL, 1},
};

static char folder[64];

static void write_file(const char *name, const void *data, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(data, 1, size, file) == size);
    CHECK(fclose(file) == 0);
}

static void remove_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

/* Labels for as many images as the file says, plain ones at least. */
static void write_labels(const uint8_t *data, size_t size)
{
    static uint8_t labels[8 + 65535];
    memcpy(labels, (uint8_t[]){0, 0, 8, 1, 0, 0, 0, 3}, 8);
    if (size >= 8 && data[4] == 0 && data[5] == 0)
        memcpy(labels + 4, data + 4, 4);
    const size_t count = (size_t)labels[6] << 8 | labels[7];
    for (size_t i = 0; i < count; i++)
        labels[8 + i] = (uint8_t)(i % 10);
    write_file("train-labels-idx1-ubyte", labels, 8 + count);
}

/* The number of a setting, 0 when it is not told. */
static size_t setting(const ls_dataset *d, const char *key)
{
    char text[64];
    for (int i = 0; ls_dataset_setting(d, i, text, sizeof text) == LS_OK; i++)
        if (!strncmp(text, key, strlen(key)) && text[strlen(key)] == '=')
            return strtoul(text + strlen(key) + 1, NULL, 10);
    return 0;
}

static int fields_of(const ls_dataset *d, int kind, ls_data_field fields[3])
{
    if (kinds[kind].is_folder) {
        fields[0] = (ls_data_field){"image", LS_F32, 1, {setting(d, "inputs")}, 0};
        fields[1] = (ls_data_field){"label", LS_I32, 0, {0}, setting(d, "classes")};
        return 2;
    }
    if (!strcmp(kinds[kind].kind, "criteo")) {
        fields[0] = (ls_data_field){"dense", LS_F32, 1, {13}, 0};
        fields[1] = (ls_data_field){"ids", LS_I32, 1, {26}, ROWS};
        fields[2] = (ls_data_field){"target", LS_F32, 0, {0}, 0};
        return 3;
    }
    const size_t vocab = kinds[kind].letters ? setting(d, "vocab") : VOCAB;
    fields[0] = (ls_data_field){"tokens", LS_I32, 1, {CONTEXT}, vocab};
    fields[1] = (ls_data_field){"targets", LS_I32, 1, {CONTEXT}, vocab};
    return 2;
}

static void check_samples(const ls_dataset *d, const ls_data_field *fields, int count)
{
    void *memory[2][3] = {{NULL}};
    size_t elements[3];
    for (int f = 0; f < count; f++) {
        elements[f] = fields[f].ndim ? fields[f].dims[0] : 1;
        for (int k = 0; k < 2; k++) /* exactly as large: a write beyond it is seen */
            CHECK(memory[k][f] = malloc(elements[f] * 4));
    }
    const uint64_t samples = ls_dataset_count(d);
    CHECK(samples > 0);
    for (uint64_t i = 0; i < samples && i < SAMPLES; i++) {
        const uint64_t index = samples <= SAMPLES ? i : ls_data_order(1, 0, samples, i);
        const ls_status status = ls_dataset_read(d, index, 0, memory[0]);
        CHECK(ls_dataset_read(d, index, 1, memory[1]) == status);
        CHECK(status == LS_OK || (status == LS_ERR_INVALID && *ls_last_error()));
        for (int f = 0; f < count && status == LS_OK; f++) {
            CHECK(!memcmp(memory[0][f], memory[1][f], elements[f] * 4));
            for (size_t k = 0; k < elements[f]; k++)
                if (fields[f].dtype == LS_I32)
                    CHECK((uint32_t)((int32_t *)memory[0][f])[k] < fields[f].bound);
                else
                    CHECK(fabsf(((float *)memory[0][f])[k]) < 100);
        }
    }
    for (int f = 0; f < count; f++)
        for (int k = 0; k < 2; k++)
            free(memory[k][f]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!*folder) {
        snprintf(folder, sizeof folder, "/dev/shm/fuzz-data-%ld", (long)getpid());
        CHECK(mkdir(folder, 0700) == 0);
    }
    if (size == 0)
        return 0;
    const int kind = data[0] % KINDS;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, kinds[kind].file);
    write_file(kinds[kind].file, data + 1, size - 1);
    if (!strcmp(kinds[kind].kind, "idx"))
        write_labels(data + 1, size - 1);
    ls_data_config config = LS_DATA_CONFIG_INIT;
    config.kind = kinds[kind].kind;
    config.path = kinds[kind].is_folder ? folder : path;
    config.letters = kinds[kind].letters;
    for (config.validation = 0; config.validation < 2; config.validation++) {
        ls_dataset *d = NULL;
        if (ls_dataset_open(&config, &d) != LS_OK) {
            CHECK(!d && *ls_last_error());
            continue;
        }
        ls_data_field fields[3];
        const int count = fields_of(d, kind, fields);
        const ls_status status = ls_dataset_bind(d, fields, count);
        CHECK(status == LS_OK ||
              (status == LS_ERR_CONFIG && strstr(ls_last_error(), "one sample")));
        if (status == LS_OK)
            check_samples(d, fields, count);
        ls_dataset_close(d);
    }
    remove_file(kinds[kind].file);
    remove_file("train-labels-idx1-ubyte");
    rmdir(folder); /* nothing stays, whenever this is the last input */
    *folder = 0;
    return 0;
}

/* CIFAR-10 and CIFAR-100 in their binary version (A. Krizhevsky, 2009): a folder of
 *
 *     data_batch_1.bin … data_batch_5.bin, test_batch.bin   1 label, 3072 bytes of pixels a record
 *     train.bin, test.bin                                   CIFAR-100: coarse and fine label first
 *
 * The fine label is used. Pixels (3, 32, 32) become (32, 32, 3), less the mean of the training
 * images and divided by their deviation, in each channel.
 *
 * 1. Sizes are checked at open; labels when they are read, because looking at each of them would
 *    fetch the whole file.
 * 2. Without the test file a share of the others is held out.
 */
#include <stdio.h>
#include <stdlib.h>

#include "data/file.h"
#include "data/image.h"

#define WHAT "data cifar"
#define BATCHES 5
#define PIXELS ((size_t)3072)

/* Mean and deviation of the training images, from 0 to 1, as commonly used. */
static const float mean10[3] = {0.4914f, 0.4822f, 0.4465f}, std10[3] = {0.2470f, 0.2435f, 0.2616f};
static const float mean100[3] = {0.5071f, 0.4865f, 0.4409f},
                   std100[3] = {0.2673f, 0.2564f, 0.2762f};

typedef struct state {
    lsi_file files[BATCHES];
    uint64_t ends[BATCHES]; /* records of the files up to and with this one */
    int file_count;
    int hundred;   /* CIFAR-100 */
    size_t record; /* bytes */
    uint64_t total;
    int split;
    lsi_image image;
    int place[2];
} state;

static ls_status add_file(state *s, const char *folder, const char *name)
{
    char *path = lsi_path_join(folder, name);
    if (!path)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for a path");
    lsi_file *file = &s->files[s->file_count];
    const ls_status status = lsi_file_map(WHAT, path, file);
    free(path);
    LSI_TRY(status);
    s->file_count++;
    if (file->size % s->record)
        return lsi_fail(LS_ERR_CONFIG, "the binary version is needed; fetch the file again", WHAT,
                        "%s has %zu bytes, not a multiple of records of %zu: the last one begins "
                        "at offset %zu",
                        file->path, file->size, s->record, file->size / s->record * s->record);
    lsi_file_read_anywhere(file);
    s->total += file->size / s->record;
    s->ends[s->file_count - 1] = s->total;
    return LS_OK;
}

static ls_status add_batches(state *s, const char *folder)
{
    char name[32];
    int last = 0;
    for (int i = 1; i <= BATCHES; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        last = lsi_path_exists(folder, name) ? i : last;
    }
    for (int i = 1; i <= last; i++) { /* a missing one before the last is an error */
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        LSI_TRY(add_file(s, folder, name));
    }
    return LS_OK;
}

void lsi_cifar_image(int hundred, lsi_image *out)
{
    lsi_image image = {.height = 32, .width = 32, .channels = 3, .mirrors = 1};
    for (int c = 0; c < 3; c++) {
        const float mean = hundred ? mean100[c] : mean10[c];
        const float std = hundred ? std100[c] : std10[c];
        image.scale[c] = 1.0f / (255.0f * std);
        image.shift[c] = -mean / std;
    }
    *out = image;
}

static ls_status open_cifar(ls_dataset *dataset)
{
    state *s = calloc(1, sizeof *s);
    if (!s)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for it");
    dataset->state = s;
    const char *folder = dataset->config.path;
    const int ten =
        lsi_path_exists(folder, "data_batch_1.bin") || lsi_path_exists(folder, "test_batch.bin");
    s->hundred =
        !ten && (lsi_path_exists(folder, "train.bin") || lsi_path_exists(folder, "test.bin"));
    if (!ten && !s->hundred)
        return lsi_fail(LS_ERR_NOT_FOUND, "name the folder of the binary version", WHAT,
                        "%s: there is neither data_batch_1.bin nor train.bin in it", folder);
    s->record = PIXELS + (s->hundred ? 2 : 1);
    const char *test = s->hundred ? "test.bin" : "test_batch.bin";
    s->split = !lsi_path_exists(folder, test);
    if (dataset->config.validation && !s->split)
        LSI_TRY(add_file(s, folder, test));
    else if (s->hundred)
        LSI_TRY(add_file(s, folder, "train.bin"));
    else
        LSI_TRY(add_batches(s, folder));
    if (s->total == 0)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, WHAT, "%s: there is no data_batch_1.bin", folder);
    lsi_cifar_image(s->hundred, &s->image);
    lsi_image_settings(dataset, &s->image, s->hundred ? 100 : 10);
    dataset->count = s->total;
    return s->split ? lsi_split(dataset, s->total, &dataset->count) : LS_OK;
}

static ls_status bind(ls_dataset *dataset, const ls_data_field *fields, int count)
{
    state *s = dataset->state;
    return lsi_image_match(dataset, &s->image, s->hundred ? 100 : 10, fields, count, s->place);
}

static ls_status read_sample(const ls_dataset *dataset, uint64_t index, uint64_t epoch,
                             void *const *fields)
{
    const state *s = dataset->state;
    uint64_t at = s->split ? lsi_split_at(dataset, s->total, index) : index;
    int f = 0;
    while (at >= s->ends[f])
        f++;
    at -= f ? s->ends[f - 1] : 0;
    const size_t offset = (size_t)at * s->record + (s->hundred ? 1 : 0);
    const uint8_t *label = s->files[f].bytes + offset;
    const int classes = s->hundred ? 100 : 10;
    if (*label >= classes)
        return lsi_fail(LS_ERR_INVALID, "fetch the file again", WHAT,
                        "%s: label %d at offset %zu, expected below %d", s->files[f].path, *label,
                        offset, classes);
    if (s->place[0] >= 0)
        lsi_image_write(&s->image, label + 1, lsi_image_cut(dataset, &s->image, index, epoch),
                        fields[s->place[0]]);
    if (s->place[1] >= 0)
        *(int32_t *)fields[s->place[1]] = *label;
    return LS_OK;
}

static void close_cifar(void *argument)
{
    state *s = argument;
    if (!s)
        return;
    for (int f = 0; f < BATCHES; f++)
        lsi_file_close(&s->files[f]);
    free(s);
}

const lsi_format lsi_format_cifar = {
    .name = "cifar",
    .path = "the folder that holds data_batch_1.bin (CIFAR-10) or train.bin (CIFAR-100)",
    .open = open_cifar,
    .bind = bind,
    .read = read_sample,
    .close = close_cifar,
};

/* The MNIST family: a folder of idx files (Y. LeCun, "The MNIST database").
 *
 *     train-images-idx3-ubyte   00 00 08 03, count, height, width (32 bits, big endian), bytes
 *     train-labels-idx1-ubyte   00 00 08 01, count, bytes
 *     t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte: the held-out part
 *
 * each also with '.' before idx and with .gz at the end. Without the t10k files a share of the
 * others is held out, chosen at random because such files are sometimes sorted by label.
 *
 * Pixels become (byte / 255 - 0.5) / 0.5, from -1 to 1. Augmentation shifts and does not mirror: a
 * mirrored digit is another one.
 *
 * 1. Sizes and all labels are checked at open, so reading cannot fail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/file.h"
#include "data/image.h"

#define WHAT "data idx"
#define IMAGES_HEAD 16
#define LABELS_HEAD 8
#define SIDE_MAX (1u << 14)

typedef struct state {
    lsi_file images, labels;
    lsi_image image;
    uint64_t total;
    int split; /* no held-out files: this is a part of the others */
    size_t classes;
    int place[2];
} state;

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Bytes of a whole file for its head; 0 when the head makes no sense. */
static size_t images_size(const uint8_t *head)
{
    const size_t count = big_endian(head + 4), height = big_endian(head + 8),
                 width = big_endian(head + 12);
    if (big_endian(head) != 0x00000803 || !count || !height || !width || height > SIDE_MAX ||
        width > SIDE_MAX)
        return 0;
    return IMAGES_HEAD + count * height * width;
}

static size_t labels_size(const uint8_t *head)
{
    const size_t count = big_endian(head + 4);
    return big_endian(head) == 0x00000801 && count ? LABELS_HEAD + count : 0;
}

/* The name of PART-NAME-idxN-ubyte as the folder spells it: 0 when there is none. */
static int find_part(const char *folder, const char *part, const char *name, char text[64])
{
    static const char *const spellings[] = {"%s-%s-%s-ubyte", "%s-%s.%s-ubyte", "%s-%s-%s-ubyte.gz",
                                            "%s-%s.%s-ubyte.gz"};
    for (int s = 0; s < 4; s++) {
        snprintf(text, 64, spellings[s], part, name, strcmp(name, "images") ? "idx1" : "idx3");
        if (lsi_path_exists(folder, text))
            return 1;
    }
    return 0;
}

/* Map or unpack it. */
static ls_status open_part(const char *folder, const char *part, const char *name, size_t head,
                           size_t (*size_of)(const uint8_t *), lsi_file *file)
{
    char text[64];
    if (!find_part(folder, part, name, text))
        return lsi_fail(LS_ERR_NOT_FOUND,
                        "with '.' instead of '-' before idx, or packed as .gz, it would be found "
                        "as well",
                        WHAT, "%s: there is no %s-%s-%s-ubyte", folder, part, name,
                        strcmp(name, "images") ? "idx1" : "idx3");
    char *path = lsi_path_join(folder, text);
    if (!path)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for a path");
    const ls_status status = strstr(text, ".gz") ? lsi_file_unpack(WHAT, path, head, size_of, file)
                                                 : lsi_file_map(WHAT, path, file);
    free(path);
    return status;
}

static ls_status check_file(const lsi_file *file, size_t head, const char *expected,
                            size_t (*size_of)(const uint8_t *))
{
    if (file->size < head)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                        "%s has %zu bytes, its header alone would have %zu", file->path, file->size,
                        head);
    const size_t size = size_of(file->bytes);
    if (size == 0)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                        "%s begins with %08x and a count of %u, expected at offset 0: %s",
                        file->path, big_endian(file->bytes), big_endian(file->bytes + 4), expected);
    if (size != file->size)
        return lsi_fail(LS_ERR_CONFIG, "fetch the file again", WHAT,
                        "%s has %zu bytes, its header says %zu", file->path, file->size, size);
    return LS_OK;
}

static ls_status check_images(const lsi_file *file, lsi_image *image, uint64_t *count)
{
    LSI_TRY(check_file(file, IMAGES_HEAD, "00000803, then count, height and width above 0",
                       images_size));
    const float step = 2.0f / 255.0f;
    *image = (lsi_image){.height = big_endian(file->bytes + 8),
                         .width = big_endian(file->bytes + 12),
                         .channels = 1,
                         .scale = {step},
                         .shift = {-1.0f}};
    *count = big_endian(file->bytes + 4);
    return LS_OK;
}

ls_status lsi_idx_open(const char *path, int packed, lsi_file *file, lsi_image *image,
                       uint64_t *count, const uint8_t **pixels)
{
    LSI_TRY(packed ? lsi_file_unpack(WHAT, path, IMAGES_HEAD, images_size, file)
                   : lsi_file_map(WHAT, path, file));
    const ls_status status = check_images(file, image, count);
    if (status == LS_OK)
        *pixels = file->bytes + IMAGES_HEAD;
    else
        lsi_file_close(file);
    return status;
}

static ls_status check_pair(state *s)
{
    LSI_TRY(check_images(&s->images, &s->image, &s->total));
    LSI_TRY(check_file(&s->labels, LABELS_HEAD, "00000801, then a count above 0", labels_size));
    const uint32_t labels = big_endian(s->labels.bytes + 4);
    if (labels != s->total)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s has %u labels, %s has %llu images",
                        s->labels.path, labels, s->images.path, (unsigned long long)s->total);
    for (uint64_t i = 0; i < s->total; i++)
        if (s->labels.bytes[LABELS_HEAD + i] >= s->classes)
            s->classes = (size_t)s->labels.bytes[LABELS_HEAD + i] + 1;
    return LS_OK;
}

static ls_status open_idx(ls_dataset *dataset)
{
    state *s = calloc(1, sizeof *s);
    if (!s)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for it");
    dataset->state = s;
    const char *folder = dataset->config.path;
    if (!lsi_path_is_folder(folder))
        return lsi_fail(LS_ERR_NOT_FOUND, "name the folder that holds train-images-idx3-ubyte",
                        WHAT, "%s is not a folder", folder);
    char name[64];
    s->split = !find_part(folder, "t10k", "images", name);
    const char *part = dataset->config.validation && !s->split ? "t10k" : "train";
    LSI_TRY(open_part(folder, part, "images", IMAGES_HEAD, images_size, &s->images));
    LSI_TRY(open_part(folder, part, "labels", LABELS_HEAD, labels_size, &s->labels));
    LSI_TRY(check_pair(s));
    lsi_file_read_anywhere(&s->images);
    lsi_image_settings(dataset, &s->image, s->classes);
    dataset->count = s->total;
    return s->split ? lsi_split(dataset, s->total, &dataset->count) : LS_OK;
}

static ls_status bind(ls_dataset *dataset, const ls_data_field *fields, int count)
{
    state *s = dataset->state;
    return lsi_image_match(dataset, &s->image, s->classes, fields, count, s->place);
}

static ls_status read_sample(const ls_dataset *dataset, uint64_t index, uint64_t epoch,
                             void *const *fields)
{
    const state *s = dataset->state;
    const uint64_t at = s->split ? lsi_split_at(dataset, s->total, index) : index;
    if (s->place[0] >= 0)
        lsi_image_write(&s->image,
                        s->images.bytes + IMAGES_HEAD + at * (s->image.height * s->image.width),
                        lsi_image_cut(dataset, &s->image, index, epoch), fields[s->place[0]]);
    if (s->place[1] >= 0)
        *(int32_t *)fields[s->place[1]] = s->labels.bytes[LABELS_HEAD + at];
    return LS_OK;
}

static void close_idx(void *argument)
{
    state *s = argument;
    if (!s)
        return;
    lsi_file_close(&s->images);
    lsi_file_close(&s->labels);
    free(s);
}

const lsi_format lsi_format_idx = {
    .name = "idx",
    .path = "the folder that holds train-images-idx3-ubyte and its like",
    .open = open_idx,
    .bind = bind,
    .read = read_sample,
    .close = close_idx,
};

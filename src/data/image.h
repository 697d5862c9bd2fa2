/* Images of bytes as floats: normalisation, and augmentation by shift and mirror.
 *
 * 1. A pixel is (float)byte * scale + shift, two float operations: the same bits everywhere.
 * 2. What a shift moves in from outside is black (byte 0), as RandomCrop of torchvision pads
 *    before it normalises.
 */
#ifndef LSI_DATA_IMAGE_H
#define LSI_DATA_IMAGE_H

#include "data/file.h"
#include "data/format.h"

#define LSI_IMAGE_CHANNELS 3
#define LSI_IMAGE_REACH 4 /* pixels of the largest shift */

typedef struct lsi_image {
    size_t height, width, channels;
    int mirrors;                     /* a mirrored image is as good as the image */
    float scale[LSI_IMAGE_CHANNELS]; /* of each channel */
    float shift[LSI_IMAGE_CHANNELS];
} lsi_image;

/* From where a sample is cut: row y of the result is row y + down of the image, and so on. */
typedef struct lsi_cut {
    int down, right, mirrored;
} lsi_cut;

/* The settings of a model for such images. */
void lsi_image_settings(ls_dataset *dataset, const lsi_image *image, size_t classes);
/* Match "image" (height, width, channels) or flat, place[0], and "label", place[1]. */
ls_status lsi_image_match(const ls_dataset *dataset, const lsi_image *image, size_t classes,
                          const ls_data_field *fields, int count, int place[2]);

/* The cut of sample `index` in `epoch`: none unless the configuration asks for augmentation, and
 * in the held-out part. */
lsi_cut lsi_image_cut(const ls_dataset *dataset, const lsi_image *image, uint64_t index,
                      uint64_t epoch);
/* bytes (channels, height, width) to out (height, width, channels). */
void lsi_image_write(const lsi_image *image, const uint8_t *bytes, lsi_cut cut, float *out);

/* idx.c: one file of images, mapped or unpacked and checked; *pixels are `count` images. The caller
 * closes *file. */
ls_status lsi_idx_open(const char *path, int packed, lsi_file *file, lsi_image *image,
                       uint64_t *count, const uint8_t **pixels);
/* cifar.c: how the pixels of CIFAR-10, or (`hundred`) CIFAR-100, are normalised. */
void lsi_cifar_image(int hundred, lsi_image *out);

#endif

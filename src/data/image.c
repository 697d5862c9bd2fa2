/* Images of bytes as floats; the contract is in image.h. */
#include "data/image.h"

#include <stdio.h>

void lsi_image_settings(ls_dataset *dataset, const lsi_image *image, size_t classes)
{
    char inputs[48] = "", shape[80] = "";
    if (lsi_is_for(dataset, "mlp"))
        snprintf(inputs, sizeof inputs, "inputs=%zu ",
                 image->height * image->width * image->channels);
    if (lsi_is_for(dataset, "resnet") && image->height == image->width)
        snprintf(shape, sizeof shape, "image=%zu channels=%zu ", image->height, image->channels);
    snprintf(dataset->settings, sizeof dataset->settings, "%s%sclasses=%zu", inputs, shape,
             classes);
}

ls_status lsi_image_match(const ls_dataset *dataset, const lsi_image *image, size_t classes,
                          const ls_data_field *fields, int count, int place[2])
{
    lsi_offer offers[2] = {
        {"image", LS_F32, 3, {image->height, image->width, image->channels}, 0},
        {"label", LS_I32, 0, {0}, classes},
    };
    const ls_data_field *wanted = lsi_field(fields, count, "image");
    if (wanted && wanted->ndim == 1) {
        offers[0].ndim = 1;
        offers[0].dims[0] = image->height * image->width * image->channels;
    }
    return lsi_match(dataset, offers, 2, fields, count, place);
}

lsi_cut lsi_image_cut(const ls_dataset *dataset, const lsi_image *image, uint64_t index,
                      uint64_t epoch)
{
    if (!dataset->config.augment || dataset->config.validation)
        return (lsi_cut){0, 0, 0};
    uint32_t words[4];
    lsi_draw(dataset->config.seed, LSI_STREAM_SHIFT, index, epoch, words);
    return (lsi_cut){(int)lsi_below(words[0], 2 * LSI_IMAGE_REACH + 1) - LSI_IMAGE_REACH,
                     (int)lsi_below(words[1], 2 * LSI_IMAGE_REACH + 1) - LSI_IMAGE_REACH,
                     image->mirrors && words[2] >> 31};
}

/* One row of one channel: `in` (width), or NULL for black; out with `step` floats from pixel to
 * pixel. */
static void write_row(const lsi_image *image, size_t channel, const uint8_t *in, lsi_cut cut,
                      float *out, size_t step)
{
    const float scale = image->scale[channel], shift = image->shift[channel];
    const long width = (long)image->width;
    long from = cut.right < 0 ? -cut.right : 0, to = cut.right > 0 ? width - cut.right : width;
    from = from < width ? from : width;
    to = in && to > from ? to : from;
    for (long x = 0; x < from; x++)
        out[(size_t)x * step] = shift;
    if (cut.mirrored)
        for (long x = from; x < to; x++)
            out[(size_t)x * step] = (float)in[width - 1 - (x + cut.right)] * scale + shift;
    else
        for (long x = from; x < to; x++)
            out[(size_t)x * step] = (float)in[x + cut.right] * scale + shift;
    for (long x = to; x < width; x++)
        out[(size_t)x * step] = shift;
}

void lsi_image_write(const lsi_image *image, const uint8_t *bytes, lsi_cut cut, float *out)
{
    const size_t plane = image->height * image->width, channels = image->channels;
    for (size_t c = 0; c < channels; c++)
        for (size_t y = 0; y < image->height; y++) {
            const long row = (long)y + cut.down;
            const uint8_t *in = row < 0 || row >= (long)image->height
                                    ? NULL
                                    : bytes + c * plane + (size_t)row * image->width;
            write_row(image, c, in, cut, out + y * image->width * channels + c, channels);
        }
}

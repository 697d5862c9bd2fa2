/* Files of samples without answers; the contract is in samples.h.
 *
 * NumPy's format: "\x93NUMPY", version, length of the header, the header as the text of a Python
 * dictionary, {'descr': '<f4', 'fortran_order': False, 'shape': (10, 784), }, then the values.
 */
#include "data/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/image.h"

#define WHAT "samples"
#define PIXELS ((size_t)3072) /* of cifar */
#define NPY_MAGIC "\x93NUMPY"
#define NPY_HEADER_MAX ((size_t)65536)

struct lsi_samples {
    enum { ROWS, IMAGES, CLICKS } form;
    uint64_t count;
    int place; /* of the field that is written */
    lsi_file file;
    const uint8_t *first; /* ROWS, IMAGES: the first sample, */
    size_t step;          /* and bytes to the next */
    lsi_image image;      /* IMAGES */
    ls_dataset *parts[2]; /* CLICKS: both parts of the file make up all of it */
};

/* ---- NumPy ---------------------------------------------------------------------------------- */

static ls_status bad_npy(const lsi_file *f, const char *found, const char *expected)
{
    return lsi_fail(LS_ERR_CONFIG, "numpy.save(path, x.astype('float32')) writes it", WHAT,
                    "%s: its header has %s, expected %s", f->path, found, expected);
}

/* The text after 'key': in the header; NULL when there is none. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at)
        return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    if (*at != ':')
        return NULL;
    return at + 1 + strspn(at + 1, " ");
}

/* (10, 28, 28) after 'shape': as samples, and values of each; 0: it is no such thing. */
static int parse_shape(const char *at, uint64_t *samples, uint64_t *each)
{
    int n = 0;
    if (!at || *at++ != '(')
        return 0;
    *each = 1;
    for (;; n++) {
        char *end;
        at += strspn(at, ", ");
        if (*at == ')')
            break;
        const unsigned long long dim = strtoull(at, &end, 10);
        if (end == at || *at == '-' || dim > ((uint64_t)1 << 40))
            return 0;
        if (n == 0)
            *samples = dim;
        else if (__builtin_mul_overflow(*each, dim, each))
            return 0;
        at = end;
    }
    return n >= 2;
}

/* Copy the header's text and find where it ends. */
static ls_status npy_header(const lsi_file *f, char **text, size_t *end)
{
    const size_t wide = f->size > 6 && f->bytes[6] > 1 ? 4 : 2, from = 8 + wide;
    size_t length = 0;
    for (size_t i = 0; i < wide && f->size >= from; i++)
        length |= (size_t)f->bytes[8 + i] << 8 * i;
    if (f->size < from || length > NPY_HEADER_MAX || f->size - from < length)
        return lsi_fail(LS_ERR_CONFIG, "write or fetch the file again", WHAT,
                        "%s ends inside of its header", f->path);
    *text = strndup((const char *)f->bytes + from, length);
    *end = from + length;
    return *text ? LS_OK : lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "out of memory");
}

static ls_status check_npy(lsi_samples *s, const char *header, size_t end, uint64_t wanted)
{
    const lsi_file *f = &s->file;
    const char *type = value_of(header, "'descr'");
    const char *order = value_of(header, "'fortran_order'");
    const char *shape = value_of(header, "'shape'");
    char text[96];
    uint64_t each = 0, bytes;
    snprintf(text, sizeof text, "'descr': %.20s", type ? type : "none");
    if (!type || strncmp(type, "'<f4'", 5) != 0)
        return bad_npy(f, text, "'<f4', little-endian float32");
    if (!order || strncmp(order, "False", 5) != 0)
        return bad_npy(f, "an order that is not C's", "'fortran_order': False");
    if (!parse_shape(shape, &s->count, &each))
        return bad_npy(f, "no shape of samples and values", "'shape': (samples, values)");
    if (each != wanted) {
        snprintf(text, sizeof text, "%llu values a sample", (unsigned long long)each);
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s has %s, the model wants %llu", f->path, text,
                        (unsigned long long)wanted);
    }
    s->step = (size_t)each * sizeof(float);
    if (__builtin_mul_overflow(s->count, (uint64_t)s->step, &bytes) || bytes != f->size - end)
        return lsi_fail(LS_ERR_CONFIG, "write or fetch the file again", WHAT,
                        "%s has %zu bytes of values, its header says %llu samples of %zu", f->path,
                        f->size - end, (unsigned long long)s->count, s->step);
    s->first = f->bytes + end;
    return LS_OK;
}

static ls_status open_npy(lsi_samples *s, const ls_data_field *field)
{
    char *header;
    size_t end = 0;
    uint64_t wanted = 1;
    for (int d = 0; d < field->ndim; d++)
        wanted *= field->dims[d];
    LSI_TRY(npy_header(&s->file, &header, &end));
    const ls_status status = check_npy(s, header, end, wanted);
    free(header);
    return status;
}

/* ---- images --------------------------------------------------------------------------------- */

static ls_status check_image(const lsi_samples *s, const ls_data_field *field)
{
    const lsi_image *m = &s->image;
    const size_t shape[3] = {m->height, m->width, m->channels};
    int same = field->ndim == 3
                   ? !memcmp(shape, field->dims, sizeof shape)
                   : field->ndim == 1 && field->dims[0] == m->height * m->width * m->channels;
    if (same)
        return LS_OK;
    char wanted[80] = "";
    size_t used = 0;
    for (int d = 0; d < field->ndim && used < sizeof wanted; d++)
        used += (size_t)snprintf(wanted + used, sizeof wanted - used, "%s%zu", d ? " x " : "",
                                 field->dims[d]);
    return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                    "%s has images of %zu x %zu x %zu values, the model wants %s", s->file.path,
                    m->height, m->width, m->channels, wanted);
}

static ls_status open_idx(lsi_samples *s, const char *path, int packed)
{
    lsi_file_close(&s->file);
    s->form = IMAGES;
    LSI_TRY(lsi_idx_open(path, packed, &s->file, &s->image, &s->count, &s->first));
    s->step = s->image.height * s->image.width;
    return LS_OK;
}

static ls_status open_cifar(lsi_samples *s, const ls_data_field *label)
{
    const int hundred = label && label->bound == 100;
    const size_t labels = hundred ? 2 : 1;
    s->form = IMAGES;
    s->step = PIXELS + labels;
    if (s->file.size % s->step)
        return lsi_fail(LS_ERR_CONFIG, "the binary version is needed", WHAT,
                        "%s has %zu bytes, not a multiple of records of %zu", s->file.path,
                        s->file.size, s->step);
    lsi_cifar_image(hundred, &s->image);
    s->first = s->file.bytes + labels;
    s->count = s->file.size / s->step;
    return LS_OK;
}

/* ---- clicks --------------------------------------------------------------------------------- */

static ls_status open_clicks(lsi_samples *s, const char *path, const ls_data_field *fields,
                             int count)
{
    s->form = CLICKS;
    for (int part = 0; part < 2; part++) {
        ls_data_config config = LS_DATA_CONFIG_INIT;
        config.kind = "criteo";
        config.path = path;
        config.validation = part;
        LSI_TRY(ls_dataset_open(&config, &s->parts[part]));
        LSI_TRY(ls_dataset_bind(s->parts[part], fields, count));
        s->count += ls_dataset_count(s->parts[part]);
    }
    return LS_OK;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static ls_status open_form(lsi_samples *s, const char *kind, const char *path,
                           const ls_data_field *fields, int count)
{
    static const uint8_t idx[4] = {0, 0, 8, 3}, gz[2] = {0x1f, 0x8b};
    const ls_data_field *image = lsi_field(fields, count, "image");
    if (!image)
        return open_clicks(s, path, fields, count);
    s->place = (int)(image - fields);
    LSI_TRY(lsi_file_map(WHAT, path, &s->file));
    const lsi_file *f = &s->file;
    if (f->size >= 8 && !memcmp(f->bytes, NPY_MAGIC, 6))
        return open_npy(s, image);
    const int packed = f->size >= 2 && !memcmp(f->bytes, gz, 2);
    if (packed || (f->size >= 4 && !memcmp(f->bytes, idx, 4)))
        LSI_TRY(open_idx(s, path, packed));
    else if (!strcmp(kind, "cifar"))
        LSI_TRY(open_cifar(s, lsi_field(fields, count, "label")));
    else
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                        "%s is neither a .npy of float32 nor a file of idx images", path);
    return check_image(s, image);
}

ls_status lsi_samples_open(const char *kind, const char *path, const ls_data_field *fields,
                           int count, lsi_samples **out)
{
    lsi_samples *s = calloc(1, sizeof *s);
    if (!s)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "out of memory");
    const ls_status status = open_form(s, kind, path, fields, count);
    if (status != LS_OK) {
        lsi_samples_close(s);
        return status;
    }
    *out = s;
    return LS_OK;
}

void lsi_samples_close(lsi_samples *s)
{
    if (!s)
        return;
    ls_dataset_close(s->parts[0]);
    ls_dataset_close(s->parts[1]);
    lsi_file_close(&s->file);
    free(s);
}

uint64_t lsi_samples_count(const lsi_samples *s)
{
    return s->count;
}

ls_status lsi_samples_read(const lsi_samples *s, uint64_t index, void *const *fields)
{
    if (index >= s->count)
        return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "there is no sample %llu of %llu",
                        (unsigned long long)index, (unsigned long long)s->count);
    if (s->form == CLICKS) {
        const uint64_t first = ls_dataset_count(s->parts[0]);
        return index < first ? ls_dataset_read(s->parts[0], index, 0, fields)
                             : ls_dataset_read(s->parts[1], index - first, 0, fields);
    }
    const uint8_t *sample = s->first + index * s->step;
    if (s->form == ROWS)
        memcpy(fields[s->place], sample, s->step);
    else
        lsi_image_write(&s->image, sample, (lsi_cut){0, 0, 0}, fields[s->place]);
    return LS_OK;
}

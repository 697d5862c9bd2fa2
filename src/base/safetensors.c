/* Reading safetensors files.
 *
 * 1. Nothing of the header is believed: sizes are multiplied with overflow checks, offsets must
 *    tile the data exactly, and the JSON is parsed by jansson, which refuses duplicate names, bad
 *    UTF-8 and deep nesting by itself.
 * 2. A tensor that lsi_st_at returns has count * size bytes at data, inside the mapping.
 */
#include "base/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are used as they lie in the file");

#define WHAT "safetensors"
#define SHOWN 100 /* characters of a name in an error */

struct lsi_st_file {
    const unsigned char *bytes;
    size_t size;
    int mapped;
    json_t *header;        /* names and metadata point into it */
    lsi_st_tensor *list;   /* by place in the file */
    lsi_st_tensor **names; /* by name */
    size_t count;
};

static const struct {
    const char *name;
    size_t size;
} dtypes[LSI_ST_DTYPES] = {
    [LSI_ST_F32] = {"F32", 4},         [LSI_ST_F64] = {"F64", 8},
    [LSI_ST_F16] = {"F16", 2},         [LSI_ST_BF16] = {"BF16", 2},
    [LSI_ST_I8] = {"I8", 1},           [LSI_ST_U8] = {"U8", 1},
    [LSI_ST_I16] = {"I16", 2},         [LSI_ST_U16] = {"U16", 2},
    [LSI_ST_I32] = {"I32", 4},         [LSI_ST_U32] = {"U32", 4},
    [LSI_ST_I64] = {"I64", 8},         [LSI_ST_U64] = {"U64", 8},
    [LSI_ST_BOOL] = {"BOOL", 1},       [LSI_ST_F8_E4M3] = {"F8_E4M3", 1},
    [LSI_ST_F8_E5M2] = {"F8_E5M2", 1},
};

const char *lsi_st_dtype_name(lsi_st_dtype dtype)
{
    return (unsigned)dtype < LSI_ST_DTYPES ? dtypes[dtype].name : "?";
}

size_t lsi_st_dtype_size(lsi_st_dtype dtype)
{
    return (unsigned)dtype < LSI_ST_DTYPES ? dtypes[dtype].size : 0;
}

/* ---- the header ------------------------------------------------------------------------------ */

static uint64_t little_endian(const unsigned char *p)
{
    uint64_t x = 0;
    for (int i = 7; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

static ls_status bad_tensor(const char *label, const char *name, const char *wrong)
{
    return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s: tensor '%.*s' %s", label, SHOWN, name, wrong);
}

/* A whole number of at least 0. */
static int get_size(const json_t *value, size_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return 0;
    *out = (size_t)json_integer_value(value);
    return 1;
}

static ls_status read_shape(const char *label, const json_t *shape, lsi_st_tensor *t)
{
    if (!json_is_array(shape) || json_array_size(shape) > LSI_ST_MAX_DIMS)
        return bad_tensor(label, t->name, "has no shape of at most 8 dimensions");
    t->ndim = (int)json_array_size(shape);
    t->count = 1;
    for (int d = 0; d < t->ndim; d++) {
        if (!get_size(json_array_get(shape, (size_t)d), &t->dims[d]))
            return bad_tensor(label, t->name, "has a shape that is not of whole numbers");
        if (__builtin_mul_overflow(t->count, t->dims[d], &t->count))
            return bad_tensor(label, t->name, "has more elements than can be counted");
    }
    return LS_OK;
}

/* One entry of the header; `data` holds `room` bytes. */
static ls_status read_tensor(const char *label, const json_t *entry, const unsigned char *data,
                             size_t room, lsi_st_tensor *t)
{
    if (!json_is_object(entry) || json_object_size(entry) != 3)
        return bad_tensor(label, t->name, "is not described by dtype, shape and data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype)
        return bad_tensor(label, t->name, "has no dtype");
    int d = 0;
    while (d < LSI_ST_DTYPES && strcmp(dtypes[d].name, dtype))
        d++;
    if (d == LSI_ST_DTYPES)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT,
                        "%s: tensor '%.*s' has the unknown dtype '%.20s'", label, SHOWN, t->name,
                        dtype);
    t->dtype = (lsi_st_dtype)d;
    LSI_TRY(read_shape(label, json_object_get(entry, "shape"), t));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t begin, end, bytes;
    if (json_array_size(offsets) != 2 || !get_size(json_array_get(offsets, 0), &begin) ||
        !get_size(json_array_get(offsets, 1), &end))
        return bad_tensor(label, t->name, "has no data_offsets of two whole numbers");
    if (begin > end || end > room)
        return bad_tensor(label, t->name, "lies outside of the file");
    if (__builtin_mul_overflow(t->count, dtypes[d].size, &bytes) || bytes != end - begin)
        return bad_tensor(label, t->name, "has data of another size than its shape and dtype say");
    t->data = data + begin;
    return LS_OK;
}

static int by_place(const void *a, const void *b)
{
    const lsi_st_tensor *x = a, *y = b;
    if (x->data != y->data)
        return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
    if ((x->count == 0) != (y->count == 0)) /* empty ones before what begins at the same place */
        return x->count == 0 ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(lsi_st_tensor *const *)a)->name, (*(lsi_st_tensor *const *)b)->name);
}

static ls_status check_metadata(const char *label, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s: __metadata__ is not an object", label);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s: '%.*s' of __metadata__ is not a text",
                            label, SHOWN, key);
    }
    return LS_OK;
}

/* All entries, sorted by place, one after the other from the first byte of data to the last. */
static ls_status read_tensors(const char *label, lsi_st_file *f, const unsigned char *data,
                              size_t room)
{
    const char *name;
    json_t *entry;
    json_object_foreach(f->header, name, entry)
    {
        if (!strcmp(name, "__metadata__")) {
            LSI_TRY(check_metadata(label, entry));
            continue;
        }
        lsi_st_tensor *t = &f->list[f->count];
        t->name = name;
        LSI_TRY(read_tensor(label, entry, data, room, t));
        f->count++;
    }
    qsort(f->list, f->count, sizeof *f->list, by_place);
    const unsigned char *at = data;
    for (size_t i = 0; i < f->count; i++) {
        const lsi_st_tensor *t = &f->list[i];
        if ((const unsigned char *)t->data != at)
            return bad_tensor(label, t->name,
                              (const unsigned char *)t->data < at ? "overlaps the one before it"
                                                                  : "comes after a hole");
        at += t->count * dtypes[t->dtype].size;
        f->names[i] = &f->list[i];
    }
    if (at != data + room)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s: the last %zu bytes belong to no tensor",
                        label, (size_t)(data + room - at));
    qsort(f->names, f->count, sizeof *f->names, by_name);
    return LS_OK;
}

static ls_status read_header(const char *label, lsi_st_file *f)
{
    if (f->size < 8)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s: %zu bytes are too few for a header", label,
                        f->size);
    const uint64_t length = little_endian(f->bytes);
    if (length > LSI_ST_MAX_HEADER || length > f->size - 8)
        return lsi_fail(LS_ERR_CONFIG, "is it a safetensors file, and complete?", WHAT,
                        "%s: a header of %llu bytes in a file of %zu", label,
                        (unsigned long long)length, f->size);
    json_error_t error;
    f->header =
        json_loadb((const char *)f->bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(f->header))
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s: the header is not a JSON object: %s", label,
                        f->header ? "it is something else" : error.text);
    const size_t most = json_object_size(f->header);
    f->list = calloc(most + 1, sizeof *f->list);
    f->names = calloc(most + 1, sizeof *f->names);
    if (!f->list || !f->names)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "%s: no memory for %zu tensors", label, most);
    return read_tensors(label, f, f->bytes + 8 + length, f->size - 8 - (size_t)length);
}

/* ---- files ----------------------------------------------------------------------------------- */

void lsi_st_close(lsi_st_file *f)
{
    if (!f)
        return;
    json_decref(f->header);
    free(f->list);
    free(f->names);
    if (f->mapped)
        munmap((void *)f->bytes, f->size);
    free(f);
}

static ls_status open_bytes(const char *label, const void *bytes, size_t size, int mapped,
                            lsi_st_file **out)
{
    lsi_st_file *f = calloc(1, sizeof *f);
    if (!f) {
        if (mapped)
            munmap((void *)bytes, size);
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "%s: no memory", label);
    }
    *f = (lsi_st_file){.bytes = bytes, .size = size, .mapped = mapped};
    const ls_status status = read_header(label, f);
    if (status != LS_OK) {
        lsi_st_close(f);
        return status;
    }
    *out = f;
    return LS_OK;
}

ls_status lsi_st_open_memory(const char *label, const void *bytes, size_t size, lsi_st_file **out)
{
    return open_bytes(label, bytes, size, 0, out);
}

ls_status lsi_st_open(const char *path, lsi_st_file **out)
{
    /* O_NONBLOCK: a pipe is refused below rather than waited for. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const int missing = errno == ENOENT;
        const ls_status status = lsi_fail_errno(WHAT, "%s cannot be opened", path);
        return missing ? LS_ERR_NOT_FOUND : status;
    }
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(fd);
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%s is not a regular file", path);
    }
    const size_t size = (size_t)about.st_size;
    void *bytes = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : (void *)"";
    if (bytes == MAP_FAILED) {
        const ls_status status = lsi_fail_errno(WHAT, "%s cannot be mapped", path);
        close(fd);
        return status;
    }
    close(fd);
    return open_bytes(path, bytes, size, size > 0, out);
}

size_t lsi_st_count(const lsi_st_file *f)
{
    return f->count;
}

const lsi_st_tensor *lsi_st_at(const lsi_st_file *f, size_t i)
{
    return i < f->count ? &f->list[i] : NULL;
}

const lsi_st_tensor *lsi_st_find(const lsi_st_file *f, const char *name)
{
    const lsi_st_tensor wanted = {.name = name}, *key = &wanted;
    lsi_st_tensor **found = bsearch(&key, f->names, f->count, sizeof *f->names, by_name);
    return found ? *found : NULL;
}

const char *lsi_st_metadata(const lsi_st_file *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}

/* ---- numbers --------------------------------------------------------------------------------- */

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* IEEE binary16. A subnormal is its 10 bits times 2^-24, which f32 has exactly. */
static float from_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, fraction = half & 0x3ff;
    const uint32_t exponent = half >> 10 & 31;
    if (exponent == 31)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0)
        return (sign ? -0x1p-24f : 0x1p-24f) * (float)fraction;
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

int lsi_st_to_f32(const lsi_st_tensor *t, size_t from, size_t n, float *out)
{
    const unsigned char *data = (const unsigned char *)t->data + from * lsi_st_dtype_size(t->dtype);
    if (t->dtype == LSI_ST_F32) {
        if (n)
            memcpy(out, data, n * sizeof *out);
        return 1;
    }
    if (t->dtype == LSI_ST_F64) {
        for (size_t i = 0; i < n; i++) {
            double x;
            memcpy(&x, data + i * sizeof x, sizeof x);
            out[i] = (float)x;
        }
        return 1;
    }
    if (t->dtype != LSI_ST_F16 && t->dtype != LSI_ST_BF16)
        return 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t x;
        memcpy(&x, data + i * sizeof x, sizeof x);
        out[i] = t->dtype == LSI_ST_F16 ? from_half(x) : from_bits((uint32_t)x << 16);
    }
    return 1;
}

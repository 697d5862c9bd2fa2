/* Files of named tensors in the safetensors format of Hugging Face: 8 bytes of length (little
 * endian), a JSON header of that length, then the tensors' bytes one after the other.
 *
 *     {"__metadata__": {"format": "pt"}, "NAME": {"dtype": "F32", "shape": [2, 3],
 *      "data_offsets": [0, 24]}, …}
 *
 * Reading trusts nothing: lengths, offsets, types, shapes, names are checked before the first
 * tensor is seen, and a file that is not right gives one error that names the file and what is
 * wrong. As the format asks, tensors fill the file without overlap and without holes.
 *
 * Writing is atomic: the file appears complete under its name, or not at all; what was there before
 * stays until then. The same tensors give the same bytes.
 *
 * An object belongs to one thread at a time. Calls block for as long as the file system does.
 */
#ifndef LSI_BASE_SAFETENSORS_H
#define LSI_BASE_SAFETENSORS_H

#include <stddef.h>

#include <lockstep/status.h>

#define LSI_ST_MAX_DIMS 8
#define LSI_ST_MAX_HEADER ((size_t)100 << 20) /* bytes, as the format's own library has it */

typedef enum lsi_st_dtype {
    LSI_ST_F32,
    LSI_ST_F64,
    LSI_ST_F16,
    LSI_ST_BF16,
    LSI_ST_I8,
    LSI_ST_U8,
    LSI_ST_I16,
    LSI_ST_U16,
    LSI_ST_I32,
    LSI_ST_U32,
    LSI_ST_I64,
    LSI_ST_U64,
    LSI_ST_BOOL,
    LSI_ST_F8_E4M3,
    LSI_ST_F8_E5M2,
    LSI_ST_DTYPES
} lsi_st_dtype;

/* "F32", …; "?" for a value that is none. Bytes of an element. */
const char *lsi_st_dtype_name(lsi_st_dtype dtype);
size_t lsi_st_dtype_size(lsi_st_dtype dtype);

typedef struct lsi_st_tensor {
    const char *name;
    lsi_st_dtype dtype;
    int ndim; /* 0: one value */
    size_t dims[LSI_ST_MAX_DIMS];
    size_t count;     /* elements */
    const void *data; /* reading: little endian, aligned to nothing; writing: not looked at */
} lsi_st_tensor;

/* ---- reading -------------------------------------------------------------------------------- */

typedef struct lsi_st_file lsi_st_file;

/* Map a file and check its header. It must not be changed in place while it is open. The caller
 * owns *out. LS_ERR_NOT_FOUND, LS_ERR_SYSTEM, LS_ERR_NOMEM, LS_ERR_CONFIG (not a valid file). */
ls_status lsi_st_open(const char *path, lsi_st_file **out);
/* The same for bytes in memory (borrowed until close); `label` stands for the path in errors. */
ls_status lsi_st_open_memory(const char *label, const void *bytes, size_t size, lsi_st_file **out);
void lsi_st_close(lsi_st_file *file);

/* Tensors in the order in which they lie in the file. NULL past the end. */
size_t lsi_st_count(const lsi_st_file *file);
const lsi_st_tensor *lsi_st_at(const lsi_st_file *file, size_t i);
/* NULL when there is none of this name. */
const lsi_st_tensor *lsi_st_find(const lsi_st_file *file, const char *name);
/* The text of a key of __metadata__, NULL when there is none. */
const char *lsi_st_metadata(const lsi_st_file *file, const char *key);

/* Elements [from, from + n) as f32. F32, F64, F16 and BF16 only: 1 when it has been done, else
 * 0. */
int lsi_st_to_f32(const lsi_st_tensor *tensor, size_t from, size_t n, float *out);

/* ---- writing -------------------------------------------------------------------------------- */

/* What precedes the data of a file with these tensors (as for lsi_st_create): *size bytes, which
 * the caller frees; *data bytes follow. */
ls_status lsi_st_header(const lsi_st_tensor *tensors, size_t count, const char *const *metadata,
                        size_t pairs, void **bytes, size_t *size, size_t *data);

typedef struct lsi_st_writer lsi_st_writer;

/* Start a file with these tensors, in this order, and `pairs` pairs of key and text as __metadata__
 * (2 * pairs strings; none: 0 and NULL). Nothing appears under `path` yet. The caller owns *out
 * until it is committed or abandoned. LS_ERR_INVALID: a name twice or not UTF-8. */
ls_status lsi_st_create(const char *path, const lsi_st_tensor *tensors, size_t count,
                        const char *const *metadata, size_t pairs, lsi_st_writer **out);
/* The next bytes of data, little endian: all tensors in their order, in pieces of any size. */
ls_status lsi_st_append(lsi_st_writer *writer, const void *data, size_t bytes);
/* All data has been given: onto the disk, and under its name. The writer is gone, whatever the
 * result. */
ls_status lsi_st_commit_take(lsi_st_writer *writer);
/* Forget it. Accepts NULL. */
void lsi_st_abandon(lsi_st_writer *writer);

#endif

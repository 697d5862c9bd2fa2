/* Fuzzes the safetensors reader: an input is a file.
 *
 * Its first 8 bytes are taken as they are when the top bit of the last of them is set or the length
 * fits; else the length of the header is put right, so that changes inside of the header get
 * further than to the first check. Checked for whatever is accepted: tensors lie inside the file,
 * one after the other, with the size that they claim; each is found by its name and nothing else by
 * it; numbers can be read; and the file written from them is accepted again, with the same
 * tensors. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/safetensors.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, ls_last_error());  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum { FEW = 64 }; /* tensors; files with more are not written again */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensor(const lsi_st_file *f, const lsi_st_tensor *t, const uint8_t **at)
{
    size_t count = 1;
    for (int d = 0; d < t->ndim; d++)
        count *= t->dims[d];
    CHECK(count == t->count);
    CHECK((const uint8_t *)t->data == *at);
    *at += count * lsi_st_dtype_size(t->dtype);
    CHECK(lsi_st_find(f, t->name) == t);
    float value[16];
    const size_t n = count < 16 ? count : 16;
    const int number = lsi_st_to_f32(t, count - n, n, value); /* the last ones */
    CHECK(number == (t->dtype <= LSI_ST_BF16));
}

/* Write what was read, read what was written. */
static void check_again(const lsi_st_file *f)
{
    static char path[64];
    lsi_st_tensor tensors[FEW];
    const size_t count = lsi_st_count(f);
    lsi_st_writer *w;
    lsi_st_file *again;
    if (!*path)
        snprintf(path, sizeof path, "/dev/shm/fuzz-safetensors-%ld", (long)getpid());
    for (size_t i = 0; i < count; i++)
        tensors[i] = *lsi_st_at(f, i);
    CHECK(lsi_st_create(path, tensors, count, NULL, 0, &w) == LS_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(lsi_st_append(w, tensors[i].data,
                            tensors[i].count * lsi_st_dtype_size(tensors[i].dtype)) == LS_OK);
    CHECK(lsi_st_commit_take(w) == LS_OK);
    CHECK(lsi_st_open(path, &again) == LS_OK);
    CHECK(lsi_st_count(again) == count);
    for (size_t i = 0; i < count; i++) {
        const lsi_st_tensor *t = lsi_st_find(again, tensors[i].name);
        CHECK(t && t->dtype == tensors[i].dtype && t->ndim == tensors[i].ndim);
        CHECK(!memcmp(t->dims, tensors[i].dims, sizeof t->dims));
        CHECK(!memcmp(t->data, tensors[i].data, t->count * lsi_st_dtype_size(t->dtype)));
    }
    lsi_st_close(again);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1); /* exactly these: a read beyond them is seen */
    CHECK(bytes);
    if (size)
        memcpy(bytes, data, size);
    uint64_t length = 0;
    if (size >= 8)
        memcpy(&length, bytes, 8);
    if (size >= 8 && length > size - 8 && !(length >> 63)) {
        const uint8_t *end = memrchr(bytes + 8, '}', size - 8);
        length = end ? (uint64_t)(end + 1 - (bytes + 8)) : size - 8;
        memcpy(bytes, &length, 8);
    }
    lsi_st_file *f = NULL;
    if (lsi_st_open_memory("input", bytes, size, &f) != LS_OK) {
        CHECK(!f && *ls_last_error());
        free(bytes);
        return 0;
    }
    const uint8_t *at = bytes + 8 + length;
    for (size_t i = 0; i < lsi_st_count(f); i++)
        check_tensor(f, lsi_st_at(f, i), &at);
    CHECK(at == bytes + size);
    CHECK(!lsi_st_at(f, lsi_st_count(f)) && !lsi_st_find(f, "\x01 no such name"));
    (void)lsi_st_metadata(f, "format");
    if (lsi_st_count(f) <= FEW)
        check_again(f);
    lsi_st_close(f);
    free(bytes);
    return 0;
}

/* Numbers computed with PyTorch (tests/fixtures), and how ours are compared with them. */
#ifndef TESTS_NN_FIXTURES_H
#define TESTS_NN_FIXTURES_H

#include <stddef.h>
#include <stdint.h>

#include "base/safetensors.h"

/* Everything here fails the test when it cannot do what it says. */

/* The path of tests/fixtures/NAME.safetensors, until the next call. */
const char *fixtures_path(const char *name);
/* That file; to be closed by lsi_st_close. */
lsi_st_file *fixtures_open(const char *name);

/* The array of this name; NULL when there is none (find), or a failure (need). */
const lsi_st_tensor *fixtures_find(const lsi_st_file *file, const char *name, ...)
    __attribute__((format(printf, 2, 3)));
const lsi_st_tensor *fixtures_need(const lsi_st_file *file, const char *name, ...)
    __attribute__((format(printf, 2, 3)));

/* Its values: of f32, and of i32. */
void fixtures_copy(const lsi_st_tensor *from, float *to);
void fixtures_copy_ids(const lsi_st_tensor *from, int32_t *to);

/* Call fn for each case: each different beginning of names up to slash number `slashes`. */
void fixtures_each(const lsi_st_file *file, int slashes,
                   void (*fn)(const lsi_st_file *file, const char *name));

/* Each of ours is within tolerance (|theirs| + the root of the mean square of theirs). */
void fixtures_compare(const char *device, const lsi_st_tensor *theirs, const float *ours,
                      double tolerance);

/* Numbers by the rule of tests/fixtures/common.py, which has the same class Stream. */
typedef struct stream {
    uint32_t state;
} stream;
float stream_float(stream *s); /* in [-1, 1) */
int32_t stream_integer(stream *s, uint32_t bound);

#endif

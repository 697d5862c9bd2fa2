/* Reading the fixtures, and comparing. */
#include "fixtures.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NAME_MAX_LENGTH 256

const char *fixtures_path(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s.safetensors", FIXTURES, name);
    return path;
}

lsi_st_file *fixtures_open(const char *name)
{
    lsi_st_file *file;
    if (lsi_st_open(fixtures_path(name), &file) != LS_OK)
        fail_msg("%s", ls_last_error());
    return file;
}

const lsi_st_tensor *fixtures_find(const lsi_st_file *file, const char *name, ...)
{
    char full[NAME_MAX_LENGTH];
    va_list args;
    va_start(args, name);
    vsnprintf(full, sizeof full, name, args);
    va_end(args);
    return lsi_st_find(file, full);
}

const lsi_st_tensor *fixtures_need(const lsi_st_file *file, const char *name, ...)
{
    char full[NAME_MAX_LENGTH];
    va_list args;
    va_start(args, name);
    vsnprintf(full, sizeof full, name, args);
    va_end(args);
    const lsi_st_tensor *found = lsi_st_find(file, full);
    if (!found)
        fail_msg("the fixtures have no %s", full);
    return found;
}

void fixtures_copy(const lsi_st_tensor *from, float *to)
{
    if (!lsi_st_to_f32(from, 0, from->count, to))
        fail_msg("%s is not of f32", from->name);
}

void fixtures_copy_ids(const lsi_st_tensor *from, int32_t *to)
{
    if (from->dtype != LSI_ST_I32)
        fail_msg("%s is not of i32", from->name);
    memcpy(to, from->data, from->count * sizeof *to);
}

void fixtures_each(const lsi_st_file *file, int slashes,
                   void (*fn)(const lsi_st_file *file, const char *name))
{
    char last[NAME_MAX_LENGTH] = "";
    for (size_t i = 0; i < lsi_st_count(file); i++) {
        const char *name = lsi_st_at(file, i)->name, *end = name;
        for (int k = 0; k < slashes && end; k++)
            end = strchr(k ? end + 1 : end, '/');
        if (!end)
            fail_msg("%s belongs to no case", name);
        const size_t length = (size_t)(end - name);
        if (strlen(last) == length && !strncmp(last, name, length))
            continue;
        snprintf(last, sizeof last, "%.*s", (int)length, name);
        fn(file, last);
    }
}

void fixtures_compare(const char *device, const lsi_st_tensor *theirs, const float *ours,
                      double tolerance)
{
    float *values = malloc((theirs->count + 1) * sizeof *values);
    assert_non_null(values);
    fixtures_copy(theirs, values);
    double squares = 0;
    for (size_t i = 0; i < theirs->count; i++)
        squares += (double)values[i] * (double)values[i];
    const double usual = theirs->count ? sqrt(squares / (double)theirs->count) : 0;
    for (size_t i = 0; i < theirs->count; i++) {
        const double expected = (double)values[i], got = (double)ours[i];
        /* Written so that a NaN fails. */
        if (!(fabs(got - expected) <= tolerance * (fabs(expected) + usual)))
            fail_msg("%s on %s: element %zu of %zu is %.9g, PyTorch has %.9g (off by %.2g, allowed "
                     "are %.2g)",
                     theirs->name, device, i, theirs->count, got, expected, fabs(got - expected),
                     tolerance * (fabs(expected) + usual));
    }
    free(values);
}

static uint32_t stream_bits(stream *s)
{
    s->state = 1664525u * s->state + 1013904223u;
    return s->state >> 8;
}

float stream_float(stream *s)
{
    return (float)stream_bits(s) * 0x1p-23f - 1;
}

int32_t stream_integer(stream *s, uint32_t bound)
{
    return (int32_t)(stream_bits(s) % bound);
}

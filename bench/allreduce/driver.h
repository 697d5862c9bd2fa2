/*
 * driver.h - what the all-reduce benchmark asks of an implementation.
 *
 * One program per implementation: driver.c linked with one impl_*.c, which defines bench_impl.
 */
#ifndef BENCH_DRIVER_H
#define BENCH_DRIVER_H

#include <stddef.h>

struct bench_ops {
    /* Joins the group; sets *rank and *size. Called once, first. 0, or -1 after a message. */
    int (*init)(int *argc, char ***argv, int *rank, int *size);
    /* A buffer of bytes bytes that lives until finish(). NULL after a message. */
    float *(*alloc)(size_t bytes);
    /* Sum of count floats over all ranks, in place, blocking. 0, or -1 after a message. */
    int (*allreduce)(float *buffer, size_t count);
    /* Leaves the group. Nothing is called afterwards. */
    void (*finish)(void);
};

extern const struct bench_ops bench_impl;

/* Page-aligned private memory, such as malloc gives for large buffers; NULL after a message. */
float *bench_private_alloc(size_t bytes);

#endif

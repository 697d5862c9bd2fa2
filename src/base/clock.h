/* Monotonic time in seconds and nanoseconds. */
#ifndef LSI_BASE_CLOCK_H
#define LSI_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t lsi_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline double lsi_now(void)
{
    return (double)lsi_now_ns() * 1e-9;
}

#endif

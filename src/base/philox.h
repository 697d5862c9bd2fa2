/* Philox4x32-10: random numbers as a function of a counter and a key.
 *
 * J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 * Ten rounds of a bijection on 128 bits; 2^64 keys of 2^128 counters each.
 *
 * 1. No state: the same key and counter give the same words on every machine, whoever asks and in
 *    whatever order. Keys are seeds; counters are made of step, sample and element.
 *
 * Pure functions: any thread, never fail.
 */
#ifndef LSI_BASE_PHILOX_H
#define LSI_BASE_PHILOX_H

#include <stddef.h>
#include <stdint.h>

/* One block: four words. `out` may be `counter`. */
void lsi_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A word as a float in [0, 1): a multiple of 2^-24, all equally likely. */
static inline float lsi_philox_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* Words [first, first + count) of the stream whose block b is that of `counter` with b added to
 * the 64-bit number in counter[0] (low) and counter[1] (high), which wraps around. Any piece of a
 * stream can be drawn alone: the words depend on their place only. */
void lsi_philox_fill(const uint32_t counter[4], const uint32_t key[2], uint64_t first,
                     uint32_t *out, size_t count);

/* The same words as floats in [0, 1). */
void lsi_philox_fill_uniform(const uint32_t counter[4], const uint32_t key[2], uint64_t first,
                             float *out, size_t count);

#endif

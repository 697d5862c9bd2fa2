/* Sums over rows for each channel, as batch norm needs them, forward and backward.
 *
 * Channels lie side by side, rows follow each other: as many channels as registers allow are taken
 * at a time (a slice), and their sums stay there while a block of rows goes by.
 *
 * 1. The order of summation, for each channel: rows are cut into blocks of 128. Inside a block,
 *    row r belongs to chain r % 4, each chain adds its rows in ascending order in f32, and the
 *    block's sum is (chain 0 + chain 1) + (chain 2 + chain 3). Blocks are combined in ascending
 *    order in double. It is the same for any number of channels, and on every instruction set.
 */
#ifndef LSI_DEVICE_CPU_SLICE_H
#define LSI_DEVICE_CPU_SLICE_H

#include "device/vec.h"

#define BLOCK 128
#define CHAINS 4
#define UNROLL _Pragma("GCC unroll 4") /* so that arrays of vectors become registers */

/* Some of the channels, side by side: `vectors` of sixteen, the last of which is `last` wide. */
typedef struct slice {
    size_t first, last;
    int vectors;
} slice;

/* The slice from channel `first` of c on: 64, 32 or 16 channels, or what is left below 16. */
LSI_VEC slice slice_at(size_t c, size_t first, int wide)
{
    const size_t left = c - first;
    slice s = {first, 16, 1};
    if (left >= 64 && wide >= 4)
        s.vectors = 4;
    else if (left >= 32 && wide >= 2)
        s.vectors = 2;
    else if (left < 16)
        s.last = left;
    return s;
}

LSI_VEC size_t slice_end(const slice *s)
{
    return s->first + (size_t)(s->vectors - 1) * 16 + s->last;
}

/* Calls body(vectors, last, …), with constants for whole slices. */
#define WITH_SLICE(s, wide, body, ...)                                                             \
    do {                                                                                           \
        if ((wide) >= 4 && (s)->vectors == 4)                                                      \
            body((wide) >= 4 ? 4 : 1, 16, __VA_ARGS__);                                            \
        else if ((wide) >= 2 && (s)->vectors == 2)                                                 \
            body((wide) >= 2 ? 2 : 1, 16, __VA_ARGS__);                                            \
        else if ((s)->last == 16)                                                                  \
            body(1, 16, __VA_ARGS__);                                                              \
        else                                                                                       \
            body(1, (s)->last, __VA_ARGS__);                                                       \
    } while (0)

/* Of vector k of a slice. */
LSI_VEC size_t width(int vectors, size_t last, int k)
{
    return k == vectors - 1 ? last : 16;
}

/* The sum of a block. */
LSI_VEC v16 join(const v16 chain[CHAINS])
{
    return v16_add(v16_add(chain[0], chain[1]), v16_add(chain[2], chain[3]));
}

#endif

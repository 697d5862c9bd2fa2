/* Philox4x32-10; the contract is in philox.h.
 *
 * Long streams are drawn LANES blocks at a time, word by word in separate arrays, which the
 * compiler turns into vector code; what is left, block by block.
 *
 * 1. Integer arithmetic only: vector or not, the words are the same.
 */
#include "base/philox.h"

#include <string.h>

#define ROUNDS 10
#define M0 0xd2511f53u /* multipliers */
#define M1 0xcd9e8d57u
#define W0 0x9e3779b9u /* key increments: the golden ratio, and sqrt(3) - 1 */
#define W1 0xbb67ae85u

#define LANES 32          /* fewer, and GCC unrolls the loop instead of vectorising it */
#define GROUP (4 * LANES) /* words */

void lsi_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)M0 * x0, p1 = (uint64_t)M1 * x2;
        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p0;
        k0 += W0;
        k1 += W1;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

/* Blocks [block, block + LANES) of a stream. */
static void draw_group(const uint32_t counter[4], const uint32_t key[2], uint64_t block,
                       uint32_t out[GROUP])
{
    uint32_t x0[LANES], x1[LANES], x2[LANES], x3[LANES];
    const uint64_t start = ((uint64_t)counter[1] << 32 | counter[0]) + block;
    for (int i = 0; i < LANES; i++) {
        x0[i] = (uint32_t)(start + (uint64_t)i);
        x1[i] = (uint32_t)((start + (uint64_t)i) >> 32);
        x2[i] = counter[2];
        x3[i] = counter[3];
    }
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LANES; i++) {
            const uint64_t p0 = (uint64_t)M0 * x0[i], p1 = (uint64_t)M1 * x2[i];
            x0[i] = (uint32_t)(p1 >> 32) ^ x1[i] ^ k0;
            x1[i] = (uint32_t)p1;
            x2[i] = (uint32_t)(p0 >> 32) ^ x3[i] ^ k1;
            x3[i] = (uint32_t)p0;
        }
        k0 += W0;
        k1 += W1;
    }
    for (int i = 0; i < LANES; i++) {
        out[4 * i] = x0[i];
        out[4 * i + 1] = x1[i];
        out[4 * i + 2] = x2[i];
        out[4 * i + 3] = x3[i];
    }
}

/* The next words of a stream, a group or a block: returns how many of `words` are wanted, and
 * where the first of them is. */
static size_t draw_some(const uint32_t counter[4], const uint32_t key[2], uint64_t first,
                        size_t count, uint32_t words[GROUP], const uint32_t **wanted)
{
    const size_t skip = (size_t)(first % 4);
    size_t drawn = GROUP;
    if (count >= GROUP - skip) {
        draw_group(counter, key, first / 4, words);
    } else {
        const uint64_t at = ((uint64_t)counter[1] << 32 | counter[0]) + first / 4;
        lsi_philox((uint32_t[4]){(uint32_t)at, (uint32_t)(at >> 32), counter[2], counter[3]}, key,
                   words);
        drawn = 4;
    }
    *wanted = words + skip;
    return count < drawn - skip ? count : drawn - skip;
}

void lsi_philox_fill(const uint32_t counter[4], const uint32_t key[2], uint64_t first,
                     uint32_t *out, size_t count)
{
    uint32_t words[GROUP];
    const uint32_t *wanted;
    for (size_t done = 0, n; done < count; done += n) {
        n = draw_some(counter, key, first + done, count - done, words, &wanted);
        memcpy(out + done, wanted, n * sizeof *out);
    }
}

void lsi_philox_fill_uniform(const uint32_t counter[4], const uint32_t key[2], uint64_t first,
                             float *out, size_t count)
{
    uint32_t words[GROUP];
    const uint32_t *wanted;
    for (size_t done = 0, n; done < count; done += n) {
        n = draw_some(counter, key, first + done, count - done, words, &wanted);
        for (size_t i = 0; i < n; i++)
            out[done + i] = lsi_philox_uniform(wanted[i]);
    }
}

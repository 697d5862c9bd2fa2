/* The order of samples: a permutation that is computed, not stored.
 *
 * A Feistel network on pairs (J. Black, P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
 * 2002, method 3): place = left * columns + right; each round adds to one half a function of the
 * other, modulo its range. That is a bijection of rows * columns numbers for any function. Rows and
 * columns are chosen near the square root of the count, so that there are fewer than `columns`
 * numbers too many; who lands on one of them walks on along his cycle until he is back.
 *
 * 1. Any place of any epoch in O(1): two Philox blocks make the keys, ROUNDS rounds of one integer
 *    hash each (about 100 ns). The chance of walking is below 1 / sqrt(count).
 * 2. The bits are pinned by tests: a run resumed by a later version sees the same order.
 */
#include <assert.h>
#include <math.h>

#include "data/format.h"

#define ROUNDS 12

/* The finalizer of MurmurHash3 (A. Appleby), to 32 bits. */
static uint32_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(x >> 32);
}

/* x + (a number below n that follows from `half`), modulo n. x < n <= 2^32 */
static uint64_t add(uint64_t x, uint64_t half, uint64_t key, uint64_t n)
{
    x += mix(half * 0x9e3779b97f4a7c15u + key) * n >> 32;
    return x < n ? x : x - n;
}

/* The smallest number whose square is at least `count`. */
static uint64_t root_above(uint64_t count)
{
    uint64_t root = (uint64_t)sqrt((double)count);
    while (root > 1 && (root - 1) * (root - 1) >= count)
        root--;
    while (root * root < count)
        root++;
    return root;
}

uint64_t ls_data_order(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t place)
{
    assert(place < count);
    if (place >= count || count >> 62) /* outside of the contract: at least no endless walk */
        return place;
    const uint64_t columns = root_above(count), rows = (count + columns - 1) / columns;
    uint32_t words[8];
    lsi_draw(seed, LSI_STREAM_ORDER, epoch, 0, words);
    lsi_draw(seed, LSI_STREAM_ORDER, epoch, 1, words + 4);
    uint64_t keys[4];
    for (int i = 0; i < 4; i++)
        keys[i] = (uint64_t)words[2 * i + 1] << 32 | words[2 * i];
    do {
        uint64_t left = place / columns, right = place % columns;
        for (uint64_t round = 0; round < ROUNDS; round += 2) {
            const uint64_t key = keys[round / 2 % 4] + round;
            left = add(left, right, key, rows);
            right = add(right, left, ~key, columns);
        }
        place = left * columns + right;
    } while (place >= count);
    return place;
}

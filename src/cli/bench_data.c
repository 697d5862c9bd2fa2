/* Inputs and expected results of the measured collectives.
 *
 * Values are small whole numbers, so that every order of summation gives the same bits in every
 * type: a difference is an error, never a rounding.
 *
 * Invariants:
 * 1. A value depends on who sends it, to whom, and on its place in the vector, modulo PERIOD. That
 *    is a prime, so that blocks and chunks, whose sizes are round, do not look alike.
 * 2. All partial sums are at most 256, products 8: exact in bf16, the narrowest float. Integers
 *    wrap, and the expected value with them.
 * 3. Vectors are made and compared period by period, at the speed of memory.
 */
#include <stdint.h>
#include <string.h>

#include "cli/cli.h"

#define PERIOD 4093
#define RUBBISH 0xee
#define MOST_SUM 256
#define REDUCED UINT32_MAX /* in the place of a sender: the result of all of them */

typedef struct tile {
    size_t element;
    char bytes[PERIOD * sizeof(int64_t)];
} tile;

static uint32_t hash(uint32_t key, uint32_t i)
{
    uint32_t x = (key + 1) * 0x9e3779b1u ^ (i + 1) * 0x85ebca77u;
    x = (x ^ x >> 15) * 0x2c1b3c6du;
    x = (x ^ x >> 12) * 0x297a2d39u;
    return x ^ x >> 15;
}

/* Is `key` one of the few ranks whose value at i is not neutral? */
static int is_chosen(uint32_t key, uint32_t i, uint32_t ranks)
{
    uint32_t x = hash(0, i);
    return key == x % ranks || key == (x >> 8) % ranks || key == (x >> 16) % ranks;
}

/* What `key` hands in at place i. */
static int value(const lsi_bench_call *c, uint32_t key, uint32_t i)
{
    uint32_t x = hash(key, i), ranks = (uint32_t)c->size;
    if (!c->op->reduces)
        return (int)(x % 101);
    switch (c->reduction) {
    case LS_SUM: return (int)(x % (MOST_SUM / ranks < 13 ? MOST_SUM / ranks + 1 : 14));
    case LS_PROD: return is_chosen(key, i, ranks) ? 2 : 1;
    case LS_BAND: return is_chosen(key, i, ranks) ? (int)(x % 128) : 127;
    case LS_BOR: return is_chosen(key, i, ranks) ? (int)(x % 128) : 0;
    default: return (int)(x % 101);
    }
}

static int combine(ls_op op, int a, int b)
{
    switch (op) {
    case LS_SUM: return a + b;
    case LS_PROD: return a * b;
    case LS_MIN: return a < b ? a : b;
    case LS_MAX: return a > b ? a : b;
    case LS_BAND: return a & b;
    default: return a | b;
    }
}

static uint16_t to_bf16(int v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static uint16_t to_f16(int v) /* 0 to 2047 */
{
    int exponent = 0;
    if (v == 0)
        return 0;
    while (v >> (exponent + 1))
        exponent++;
    return (uint16_t)((exponent + 15) << 10 | (v << (10 - exponent) & 0x3ff));
}

static void store(ls_dtype dtype, char *to, int v)
{
    switch (dtype) {
    case LS_F32: memcpy(to, &(float){(float)v}, 4); break;
    case LS_F64: memcpy(to, &(double){v}, 8); break;
    case LS_BF16: memcpy(to, &(uint16_t){to_bf16(v)}, 2); break;
    case LS_F16: memcpy(to, &(uint16_t){to_f16(v)}, 2); break;
    case LS_I8:
    case LS_U8: *to = (char)v; break;
    case LS_I32: memcpy(to, &(int32_t){v}, 4); break;
    default: memcpy(to, &(int64_t){v}, 8);
    }
}

/* As much of the period of `key` as a vector of `end` elements needs. */
static void make_tile(const lsi_bench_call *c, uint32_t key, size_t end, tile *t)
{
    t->element = ls_dtype_size(c->dtype);
    for (uint32_t i = 0; i < PERIOD && i < end; i++) {
        int v = value(c, key == REDUCED ? 0 : key, i);
        for (int r = 1; key == REDUCED && r < c->size; r++)
            v = combine(c->reduction, v, value(c, (uint32_t)r, i));
        store(c->dtype, t->bytes + i * t->element, v);
    }
}

static void put(const tile *t, size_t start, size_t count, char *to)
{
    while (count > 0) {
        size_t at = start % PERIOD, n = PERIOD - at < count ? PERIOD - at : count;
        memcpy(to, t->bytes + at * t->element, n * t->element);
        to += n * t->element;
        start += n;
        count -= n;
    }
}

static size_t compare(const tile *t, size_t start, size_t count, const char *with)
{
    size_t wrong = 0, size = t->element;
    while (count > 0) {
        size_t at = start % PERIOD, n = PERIOD - at < count ? PERIOD - at : count;
        const char *expected = t->bytes + at * size;
        if (memcmp(with, expected, n * size) != 0) {
            for (size_t i = 0; i < n; i++)
                wrong += memcmp(with + i * size, expected + i * size, size) != 0;
        }
        with += n * size;
        start += n;
        count -= n;
    }
    return wrong;
}

/* Whose values stand in block b of our input? */
static uint32_t sent_key(const lsi_bench_call *c, int b)
{
    switch (c->op->coll) {
    case LSI_ALLTOALL:
    case LSI_ALLTOALLV: return (uint32_t)(c->rank * c->size + b);
    case LSI_SCATTER: return (uint32_t)b;
    default: return (uint32_t)c->rank;
    }
}

/* And in block b of our result? */
static uint32_t received_key(const lsi_bench_call *c, int b)
{
    if (c->op->reduces)
        return REDUCED;
    switch (c->op->coll) {
    case LSI_ALLTOALL:
    case LSI_ALLTOALLV: return (uint32_t)(b * c->size + c->rank);
    case LSI_SCATTER: return (uint32_t)c->rank;
    case LSI_BROADCAST: return (uint32_t)c->root;
    case LSI_P2P: return (uint32_t)((c->rank + c->size - 1) % c->size);
    default: return (uint32_t)b;
    }
}

/* Bytes of the blocks before b. */
static size_t offset(const lsi_bench_call *c, int b)
{
    size_t elements = 0;
    for (int i = 0; i < b; i++)
        elements += lsi_bench_block(c, i);
    return elements * ls_dtype_size(c->dtype);
}

void lsi_bench_fill(const lsi_bench_call *c)
{
    tile t;
    int in_place = lsi_bench_is_in_place(c);
    memset(c->recv, RUBBISH, lsi_bench_bytes(c->op, c->count, c->dtype, c->size));
    if (c->count == 0 || (c->op->root_sends && c->rank != c->root))
        return;
    char *to = in_place ? c->recv : c->send;
    if (in_place && c->op->send == LSI_BENCH_ONE && c->op->recv == LSI_BENCH_ALL)
        to += offset(c, c->rank); /* gathering: our block is in its place already */
    if (c->op->reduces || c->op->send == LSI_BENCH_ONE) { /* one vector, counted through */
        size_t count =
            c->op->send == LSI_BENCH_ALL ? c->count * (size_t)c->size : lsi_bench_block(c, c->rank);
        make_tile(c, sent_key(c, 0), count, &t);
        put(&t, 0, count, to);
        return;
    }
    for (int b = 0; b < c->size; b++) {
        make_tile(c, sent_key(c, b), lsi_bench_block(c, b), &t);
        put(&t, 0, lsi_bench_block(c, b), to + offset(c, b));
    }
}

size_t lsi_bench_wrong(const lsi_bench_call *c)
{
    tile t;
    size_t wrong = 0, start = 0;
    const char *result = c->recv;
    if (c->op->recv == LSI_BENCH_NONE || c->count == 0 ||
        (c->op->root_receives && c->rank != c->root))
        return 0;
    if (c->op->send == LSI_BENCH_ALL && c->op->recv == LSI_BENCH_ONE) {
        if (lsi_bench_is_in_place(c))
            result += offset(c, c->rank);
        if (c->op->reduces)
            start = (size_t)c->rank * c->count;
    }
    for (int b = 0; b < (c->op->recv == LSI_BENCH_ALL ? c->size : 1); b++) {
        size_t count = lsi_bench_block(c, b);
        make_tile(c, received_key(c, b), start + count, &t);
        wrong += compare(&t, start, count, result + offset(c, b));
    }
    return wrong;
}

/* Initial values: functions of the graph's seed, the parameter's name and the element.
 *
 * 1. The key of Philox is the seed; two words of the counter are those of the SHA-256 of the full
 *    name. So a layer that is added elsewhere in the graph changes no other weight.
 * 2. Normal numbers by Box and Muller (1958): pair i of a parameter is made of block i of its
 *    stream. Logarithm, sine and cosine are series in double precision written out here: the same
 *    bits on every machine, whatever its mathematical library.
 */
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "base/sha256.h"
#include "graph/graph.h"

#define CHUNK 128 /* pairs at a time, in vectors: everything below is free of branches */

static inline double as_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t as_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Logarithm of x in (0, 1]: x = m 2^e with m around 1, log m = 2 artanh((m - 1) / (m + 1)). */
static inline double log_of(double x)
{
    /* m is in [sqrt(1/2), sqrt(2)): the bits of sqrt(1/2) are the origin. */
    const uint64_t origin = 0x3fe6a09e667f3bcdu, shifted = as_bits(x) - origin + (1023ull << 52);
    const double e = as_double(shifted >> 52 | 0x4330000000000000u) - (0x1p52 + 1023);
    const double m = as_double((shifted & 0x000fffffffffffffu) + origin);
    const double s = (m - 1) / (m + 1), z = s * s;
    double sum = 1.0 / 19;
    sum = sum * z + 1.0 / 17;
    sum = sum * z + 1.0 / 15;
    sum = sum * z + 1.0 / 13;
    sum = sum * z + 1.0 / 11;
    sum = sum * z + 1.0 / 9;
    sum = sum * z + 1.0 / 7;
    sum = sum * z + 1.0 / 5;
    sum = sum * z + 1.0 / 3;
    sum = sum * z + 1;
    return e * 0.69314718055994530942 + 2 * s * sum;
}

/* Sine and cosine of u turns, u in [0, 1): an eighth at most away from a multiple of a quarter. */
static inline void turn(double u, double *sine, double *cosine)
{
    const double rounded = 4 * u + 0x1.8p52; /* the nearest quarter is in its lowest bits */
    const uint64_t quarter = as_bits(rounded);
    const double x = (u - 0.25 * (rounded - 0x1.8p52)) * 6.28318530717958647693, z = x * x;
    double s = 1.0 / 6227020800, c = -1.0 / 87178291200;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = (s * z + 1) * x;
    c = c * z + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 1.0 / 2;
    c = c * z + 1;
    /* Odd quarters exchange the two; the signs are those of the quarter. */
    const uint64_t odd = 0 - (quarter & 1), a = as_bits(s), b = as_bits(c);
    const uint64_t minus_sine = (quarter & 2) << 62, minus_cosine = ((quarter + 1) & 2) << 62;
    *sine = as_double((a ^ ((a ^ b) & odd)) ^ minus_sine);
    *cosine = as_double((b ^ ((a ^ b) & odd)) ^ minus_cosine);
}

/* Two numbers of 52 random bits from a block: in (0, 1], and in [0, 1). */
static inline double above_zero(uint32_t high, uint32_t low)
{
    return 2 - as_double(0x3ff0000000000000u | (uint64_t)high << 20 | low >> 12);
}

static inline double below_one(uint32_t high, uint32_t low)
{
    return as_double(0x3ff0000000000000u | (uint64_t)high << 20 | low >> 12) - 1;
}

static void fill_normal(const uint32_t counter[4], const uint32_t key[2], float scale, size_t count,
                        float *out)
{
    uint32_t words[4 * CHUNK];
    double radius[CHUNK], sine[CHUNK], cosine[CHUNK];
    float pairs[2 * CHUNK];
    for (size_t done = 0; done < count; done += 2 * CHUNK) {
        lsi_philox_fill(counter, key, 2 * (uint64_t)done, words, 4 * CHUNK);
        for (int i = 0; i < CHUNK; i++) {
            radius[i] = sqrt(-2 * log_of(above_zero(words[4 * i], words[4 * i + 1])));
            turn(below_one(words[4 * i + 2], words[4 * i + 3]), &sine[i], &cosine[i]);
        }
        for (int i = 0; i < CHUNK; i++) {
            pairs[2 * i] = (float)(radius[i] * cosine[i] * (double)scale);
            pairs[2 * i + 1] = (float)(radius[i] * sine[i] * (double)scale);
        }
        const size_t left = count - done;
        memcpy(out + done, pairs, (left < 2 * CHUNK ? left : 2 * CHUNK) * sizeof *out);
    }
}

static void fill_uniform(const uint32_t counter[4], const uint32_t key[2], float scale,
                         size_t count, float *out)
{
    lsi_philox_fill_uniform(counter, key, 0, out, count);
    for (size_t i = 0; i < count; i++) /* 2u - 1 is exact, and below 1 by more than the rounding */
        out[i] = (2.0f * out[i] - 1.0f) * scale;
}

ls_status lsi_init_stream(ls_tensor *param)
{
    unsigned char digest[LSI_SHA256_BYTES];
    LSI_TRY(lsi_sha256_of(param->name, strlen(param->name), digest));
    for (int i = 0; i < 8; i++)
        param->stream[i / 4] = param->stream[i / 4] << 8 | digest[i];
    return LS_OK;
}

void lsi_init_values(uint64_t seed, const ls_tensor *param, float *out)
{
    const uint32_t counter[4] = {0, 0, param->stream[0], param->stream[1]};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const float scale = param->config.init_scale;
    switch (param->config.init) {
    case LS_INIT_NORMAL: fill_normal(counter, key, scale, param->count, out); break;
    case LS_INIT_UNIFORM: fill_uniform(counter, key, scale, param->count, out); break;
    default: {
        const float value = param->config.init == LS_INIT_ONE ? 1.0f : 0.0f;
        for (size_t i = 0; i < param->count; i++)
            out[i] = value;
    }
    }
}

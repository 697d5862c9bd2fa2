/* Dropout: which elements are kept is a function of seed, step, sample and element alone (Philox),
 * and is drawn in registers, in the forward and again in the backward pass: there is no mask in
 * memory.
 *
 * 1. A dropped element is 0, whatever it was; a kept one is multiplied by 1 / (1 - p), rounded to
 *    f32.
 */
#include "device/cpu.h"
#include "device/vec_philox.h"

typedef struct kept {
    lsi_stream stream;
    w16 threshold;
    v16 scale;
} kept;

/* Elements [at, at + n) of a sample, n <= 16, whose words are given. */
LSI_VEC void drop(const kept *k, w16 words, int add, const float *x, float *y, size_t at, size_t n)
{
    const v16 scaled = v16_mul(v16_get(x + at, n), k->scale);
    const v16 value = v16_if_below(words, k->threshold, v16_zero(), scaled);
    v16_put(y + at, add ? v16_add(v16_get(y + at, n), value) : value, n);
}

LSI_VEC void drop_sample(const kept *k, size_t each, int add, const float *x, float *y)
{
    size_t at = 0;
    w16 words[4];
    for (; at + 64 <= each; at += 64) {
        w16_philox_groups(2, &k->stream, at / 4, words);
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            drop(k, words[i], add, x, y, at + 16 * i, 16);
    }
    for (; at < each; at += LSI_PHILOX_WORDS) {
        const size_t left = each - at;
        w16_philox(&k->stream, at / 4, words);
        drop(k, words[0], add, x, y, at, left < 16 ? left : 16);
        if (left > 16)
            drop(k, words[1], add, x, y, at + 16, left < 32 ? left - 16 : 16);
    }
}

static ls_status dropout(lsi_device *device, const lsi_dropout *d, const float *x, float *y,
                         int add)
{
    (void)device;
    kept k = {.threshold = w16_set1(lsi_dropout_threshold(d)),
              .scale = v16_set1((float)(1 / (1 - (double)d->p)))};
    for (size_t s = 0; s < d->samples; s++) {
        k.stream = lsi_dropout_stream(d, s);
        if (add)
            drop_sample(&k, d->each, 1, x + s * d->each, y + s * d->each);
        else
            drop_sample(&k, d->each, 0, x + s * d->each, y + s * d->each);
    }
    return LS_OK;
}

void LSI_K(install_dropout)(lsi_kernels *kernels)
{
    kernels->dropout = dropout;
}

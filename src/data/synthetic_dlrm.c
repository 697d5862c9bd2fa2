/* Generated clicks, for dlrm: a logistic model of all dense values and all ids.
 *
 * Dense values are uniform in (-2, 2); ids are skewed to small rows, as popular things are (row =
 * rows * u^3). Each dense value has a weight of ±1 or ±2, each row of each table an effect of ±1.
 * The sums are scaled to deviations of about 1 each, less 1, for the logit z; the target is 1 with
 * the chance 1 / (1 + e^-z).
 *
 * 1. z is counted in whole UNITs, so that the chance is an entry of a table: integers decide the
 *    target. The table is made by multiplications with a constant, without libm.
 * 2. The best loss is the entropy of the target given the question, averaged over the samples
 *    themselves (the first BEST_OF).
 */
#include <math.h>
#include <stdlib.h>

#include "base/philox.h"
#include "data/synthetic.h"

#define UNIT 16                              /* of a logit of 1 */
#define REACH (8 * UNIT)                     /* logits are in [-8, 8] */
#define FALL 0.93941306281347578611971499489 /* e^(-1/16) */
#define TABLE (1u << 16)                     /* random values, a power of two */
#define ROWS_DEFAULT 1000                    /* when the model does not say */
#define BEST_OF 65536

typedef struct tables {
    size_t dense, ids;
    uint32_t rows;
    int place[3];
    int64_t dense_scale, id_scale; /* of the sums */
    uint32_t salt;
    double chance[2 * REACH + 1];  /* of a click */
    uint32_t below[2 * REACH + 1]; /* a word below this is one */
    int8_t level[TABLE];           /* dense values, times 64 */
    uint16_t skewed[TABLE];        /* u^3, times 65536 */
} tables;

static int64_t whole_root(uint64_t x)
{
    return (int64_t)sqrt((double)x); /* correctly rounded, and x is small */
}

static void make_tables(tables *t, uint64_t seed)
{
    double fall = 1; /* e^-|z| */
    for (int z = 0; z <= REACH; z++, fall *= FALL) {
        t->chance[REACH + z] = 1 / (1 + fall);
        t->chance[REACH - z] = fall / (1 + fall);
    }
    for (int z = 0; z <= 2 * REACH; z++) {
        t->below[z] = (uint32_t)(t->chance[z] * 0x1p32);
        t->chance[z] = t->below[z] * 0x1p-32; /* what it really is */
    }
    const uint64_t key = seed ^ LSI_STREAM_TABLE;
    const uint32_t keys[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    for (uint32_t i = 0; i < TABLE; i += 4) {
        uint32_t words[4];
        lsi_philox((uint32_t[]){i, 0, 2, 0}, keys, words);
        for (uint32_t k = 0; k < 4; k++) {
            const uint64_t u = words[k] >> 16;
            t->level[i + k] = (int8_t)((int)lsi_below(words[k] << 16, 255) - 127);
            t->skewed[i + k] = (uint16_t)(u * u * u >> 32);
        }
    }
    uint32_t words[4];
    lsi_philox((uint32_t[]){0, 0, 3, 0}, keys, words);
    t->salt = words[0];
}

static ls_status make(ls_dataset *dataset, const ls_data_field *fields, int count, void **task)
{
    const ls_data_field *dense = lsi_field(fields, count, "dense");
    const ls_data_field *ids = lsi_field(fields, count, "ids");
    const lsi_offer offers[3] = {
        {"dense", LS_F32, 1, {dense && dense->ndim == 1 ? dense->dims[0] : 13}, 0},
        {"ids", LS_I32, 1, {ids && ids->ndim == 1 ? ids->dims[0] : 26}, 0},
        {"target", LS_F32, 0, {0}, 0},
    };
    int place[3];
    LSI_TRY(lsi_match(dataset, offers, 3, fields, count, place));
    tables *t = malloc(sizeof *t);
    if (!t)
        return lsi_fail(LS_ERR_NOMEM, NULL, "data synthetic", "no memory for the tables");
    t->dense = offers[0].dims[0];
    t->ids = offers[1].dims[0];
    t->rows = ids && ids->bound ? (uint32_t)ids->bound : ROWS_DEFAULT;
    for (int i = 0; i < 3; i++)
        t->place[i] = place[i];
    /* Levels deviate by 73.6, weights by sqrt(2.5) around 0: 116 together, sqrt(dense) times. */
    t->dense_scale = whole_root(116 * 116 * t->dense);
    t->id_scale = whole_root(256 * 256 * t->ids);
    make_tables(t, dataset->config.seed);
    *task = t;
    return LS_OK;
}

/* MurmurHash3's finalizer of 32 bits. */
static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

static int weight_of(const tables *t, size_t column)
{
    const uint32_t h = mix(t->salt + (uint32_t)column);
    return (h & 1 ? 1 : 2) * (h & 2 ? 1 : -1);
}

static int effect_of(const tables *t, size_t table, uint32_t row)
{
    return mix((t->salt ^ row) + (uint32_t)table * 0x9e3779b9u) >> 31 ? 1 : -1;
}

/* The logit in UNITs + REACH, and the question where it is wanted. */
static int ask(const tables *t, const uint32_t words[4], float *dense, int32_t *ids)
{
    int64_t sum = 0;
    for (size_t i = 0; i < t->dense; i++) {
        const int level = t->level[(words[0] + i) & (TABLE - 1)];
        sum += level * weight_of(t, i);
        if (dense)
            dense[i] = (float)level * 0x1p-6f;
    }
    int64_t z = sum * UNIT / t->dense_scale - UNIT;
    sum = 0;
    uint32_t place = words[1];
    for (size_t i = 0; i < t->ids; i++, place += words[2] | 1) {
        const uint32_t row = (uint32_t)((uint64_t)t->skewed[place & (TABLE - 1)] * t->rows >> 16);
        sum += effect_of(t, i, row);
        if (ids)
            ids[i] = (int32_t)row;
    }
    z += sum * UNIT * 256 / t->id_scale;
    return REACH + (int)(z < -REACH ? -REACH : z > REACH ? REACH : z);
}

static void write_sample(const ls_dataset *dataset, const void *task, uint64_t number,
                         const uint32_t words[4], void *const *fields)
{
    (void)dataset, (void)number;
    const tables *t = task;
    const int z = ask(t, words, t->place[0] >= 0 ? fields[t->place[0]] : NULL,
                      t->place[1] >= 0 ? fields[t->place[1]] : NULL);
    if (t->place[2] >= 0)
        *(float *)fields[t->place[2]] = words[3] < t->below[z] ? 1.0f : 0.0f;
}

static double best_loss(const ls_dataset *dataset, const void *task)
{
    const tables *t = task;
    const uint64_t count = dataset->count < BEST_OF ? dataset->count : BEST_OF;
    double entropy[2 * REACH + 1], sum = 0;
    for (int z = 0; z <= 2 * REACH; z++) {
        const double p = t->chance[z];
        entropy[z] = -p * log(p) - (1 - p) * log(1 - p);
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t words[4];
        lsi_draw(dataset->config.seed, LSI_STREAM_DRAWS, lsi_synthetic_number(dataset, i), 0,
                 words);
        sum += entropy[ask(t, words, NULL, NULL)];
    }
    return sum / (double)count;
}

const lsi_task lsi_task_dlrm = {"dlrm", "ids", 1, make, write_sample, best_loss};

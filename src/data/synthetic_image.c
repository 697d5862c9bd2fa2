/* Generated classification, for mlp (inputs) and resnet (image, image, channels).
 *
 * Each class has PROTOTYPES patterns: tiles of +1 and -1, which a sample repeats all over itself,
 * for images at a random phase (as translation-invariant models like it), plus noise, uniform in
 * (-NOISE, NOISE). With the chance of 1 in WRONG the label is a random one instead.
 *
 * 1. As NOISE < 1, the sign of each element is that of the pattern, and patterns differ (for inputs
 *    in their first bits by construction; for images by 64 random signs or more, up to a phase, so
 *    that two are alike with a chance below 2^-28): the question tells the class with certainty,
 *    and nobody can do better than the entropy of the label given the class. That is the best
 *    loss, exactly.
 * 2. Noise is read from a table, from a place and with a step that the sample draws, tile row by
 *    tile row: one addition an element.
 * 3. More than CLASSES_MAX classes, or more than the inputs can tell apart, are not used; with
 *    many classes each has one pattern only.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "data/synthetic.h"

#define PROTOTYPES 4
#define CLASSES_MAX 1024
#define CLASSES_DEFAULT 10   /* when the model does not say */
#define SIGNS_MAX (1u << 18) /* of all patterns together */
#define NOISE 0.95f
#define WRONG 16         /* a power of two */
#define TABLE (1u << 16) /* floats of noise, a power of two */
#define INPUT_TILE 64    /* elements */
#define IMAGE_TILE 8     /* rows and columns */

typedef struct shape {
    size_t rows, row;           /* of a sample; floats of a row */
    size_t tile_rows, tile_row; /* of a tile; floats of one of its rows */
    size_t channels;
    uint32_t phases; /* in each direction */
    uint32_t classes, patterns;
    int place[2];
} shape;

typedef struct tables {
    shape s;
    /* noise (TABLE + tile_row), then patterns (patterns, tile_rows, 2 tile_row): each row twice,
     * so that one of any phase is a piece of it */
    float values[];
} tables;

static size_t pattern_row(const shape *s, uint32_t pattern, size_t row)
{
    return TABLE + s->tile_row + (pattern * s->tile_rows + row) * 2 * s->tile_row;
}

/* Signs of a pattern: random, but that those of inputs begin with the bits of their number. */
static void make_pattern(tables *t, const uint32_t keys[2], uint32_t pattern)
{
    const shape *s = &t->s;
    uint32_t words[4] = {0};
    for (size_t i = 0; i < s->tile_rows * s->tile_row; i++) {
        if (i % 128 == 0)
            lsi_philox((uint32_t[]){(uint32_t)(i / 128), 0, 1, pattern}, keys, words);
        uint32_t bit = words[i % 128 / 32] >> i % 32 & 1;
        if (s->phases == 1 && i < 32 && (s->patterns - 1) >> i)
            bit = pattern >> i & 1;
        float *row = t->values + pattern_row(s, pattern, i / s->tile_row) + i % s->tile_row;
        row[0] = row[s->tile_row] = bit ? 1.0f : -1.0f;
    }
}

static void make_noise(tables *t, const uint32_t keys[2])
{
    lsi_philox_fill_uniform((uint32_t[4]){0}, keys, 0, t->values, TABLE);
    for (size_t i = 0; i < TABLE; i++)
        t->values[i] = (2.0f * t->values[i] - 1.0f) * NOISE;
    for (size_t i = 0; i < t->s.tile_row; i++) /* reading may begin at the last one */
        t->values[TABLE + i] = t->values[i % TABLE];
}

/* How many classes and patterns: as the model says, as many as tiles can tell apart, and as many
 * as the tables have room for. */
static void count_patterns(shape *s, size_t bound)
{
    const size_t size = s->tile_rows * s->tile_row;
    size_t most = size < 10 ? (size_t)1 << size : CLASSES_MAX;
    if (most * size > SIGNS_MAX)
        most = SIGNS_MAX / size > 2 ? SIGNS_MAX / size : 2;
    const size_t classes = bound ? bound : CLASSES_DEFAULT;
    s->classes = (uint32_t)(classes < most ? classes : most);
    const size_t patterns = s->classes * (size_t)PROTOTYPES;
    const int few = patterns * size > SIGNS_MAX || (size < 12 && patterns > (size_t)1 << size);
    s->patterns = few ? s->classes : (uint32_t)patterns;
}

/* `s`: the geometry is filled in. */
static ls_status make(ls_dataset *dataset, shape s, const ls_data_field *fields, int count,
                      int ndim, const size_t *dims, void **task)
{
    lsi_offer offers[2] = {{"image", LS_F32, ndim, {0}, 0}, {"label", LS_I32, 0, {0}, 0}};
    for (int d = 0; d < ndim; d++)
        offers[0].dims[d] = dims[d];
    LSI_TRY(lsi_match(dataset, offers, 2, fields, count, s.place));
    count_patterns(&s, s.place[1] >= 0 ? fields[s.place[1]].bound : 0);
    tables *t = malloc(sizeof *t + pattern_row(&s, s.patterns, 0) * sizeof(float));
    if (!t)
        return lsi_fail(LS_ERR_NOMEM, NULL, "data synthetic", "no memory for the patterns");
    t->s = s;
    const uint64_t key = dataset->config.seed ^ LSI_STREAM_TABLE;
    const uint32_t keys[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    make_noise(t, keys);
    for (uint32_t p = 0; p < s.patterns; p++)
        make_pattern(t, keys, p);
    *task = t;
    return LS_OK;
}

static ls_status make_mlp(ls_dataset *dataset, const ls_data_field *fields, int count, void **task)
{
    const ls_data_field *wanted = lsi_field(fields, count, "image");
    const size_t inputs = wanted && wanted->ndim == 1 ? wanted->dims[0] : 784;
    const shape s = {.rows = 1,
                     .row = inputs,
                     .tile_rows = 1,
                     .tile_row = inputs < INPUT_TILE ? inputs : INPUT_TILE,
                     .channels = 1,
                     .phases = 1};
    return make(dataset, s, fields, count, 1, &inputs, task);
}

static ls_status make_resnet(ls_dataset *dataset, const ls_data_field *fields, int count,
                             void **task)
{
    static const size_t usual[3] = {32, 32, 3};
    const ls_data_field *wanted = lsi_field(fields, count, "image");
    const size_t *dims = wanted && wanted->ndim == 3 ? wanted->dims : usual;
    const int whole = dims[0] >= IMAGE_TILE && dims[1] >= IMAGE_TILE; /* tiles fit */
    if (dims[2] > 1 << 14)
        return lsi_fail(LS_ERR_CONFIG, NULL, "data synthetic", "%zu channels are more than %d",
                        dims[2], 1 << 14);
    const size_t high = dims[0] < IMAGE_TILE ? dims[0] : IMAGE_TILE;
    const size_t wide = dims[1] < IMAGE_TILE ? dims[1] : IMAGE_TILE;
    const shape s = {.rows = dims[0],
                     .row = dims[1] * dims[2],
                     .tile_rows = high,
                     .tile_row = wide * dims[2],
                     .channels = dims[2],
                     .phases = whole ? IMAGE_TILE : 1};
    return make(dataset, s, fields, count, 3, dims, task);
}

static void write_image(const tables *t, const uint32_t words[4], uint32_t pattern, float *out)
{
    const shape *s = &t->s;
    const uint32_t down = words[1] >> 4 & (s->phases - 1), right = words[1] & (s->phases - 1);
    uint32_t place = words[2] & (TABLE - 1);
    const uint32_t step = words[2] >> 16 | 1;
    for (size_t y = 0; y < s->rows; y++, out += s->row) {
        const float *row =
            t->values + pattern_row(s, pattern, (y + down) % s->tile_rows) + right * s->channels;
        for (size_t x = 0; x < s->row; x += s->tile_row) {
            const size_t n = s->row - x < s->tile_row ? s->row - x : s->tile_row;
            const float *noise = t->values + place;
            for (size_t i = 0; i < n; i++)
                out[x + i] = row[i] + noise[i];
            place = (place + step) & (TABLE - 1);
        }
    }
}

static void write_sample(const ls_dataset *dataset, const void *task, uint64_t number,
                         const uint32_t words[4], void *const *fields)
{
    (void)dataset, (void)number;
    const tables *t = task;
    const shape *s = &t->s;
    const uint32_t pattern = lsi_below(words[0], s->patterns);
    const int wrong = words[3] % WRONG == 0;
    if (s->place[0] >= 0)
        write_image(t, words, pattern, fields[s->place[0]]);
    if (s->place[1] >= 0)
        *(int32_t *)fields[s->place[1]] =
            (int32_t)(wrong ? lsi_below(words[3], s->classes) : pattern % s->classes);
}

static double best_loss(const ls_dataset *dataset, const void *task)
{
    (void)dataset;
    const double classes = ((const tables *)task)->s.classes;
    const double other = 1.0 / (WRONG * classes), own = 1.0 - 1.0 / WRONG + other;
    return -own * log(own) - (classes - 1) * other * log(other);
}

const lsi_task lsi_task_mlp = {"mlp", "image", 1, make_mlp, write_sample, best_loss};
const lsi_task lsi_task_resnet = {"resnet", "image", 3, make_resnet, write_sample, best_loss};

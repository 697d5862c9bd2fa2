/* What the files of this folder share: the seam of data formats, and the dataset.
 *
 * A format is one lsi_format (synthetic.c, idx.c, cifar.c, text.c, tokens.c, criteo.c) in the
 * registry of dataset.c, which checks arguments, so that a format sees only calls that make sense:
 * open, then bind once, then read from any thread, close.
 *
 * 1. All random choices are a function of (seed, epoch, sample) through Philox, each kind of choice
 *    with a stream of its own (LSI_STREAM_…): who reads, in which order, how often, is not seen.
 * 2. What reaches a sample is integers and single float operations, never libm: the same bits on
 *    every machine. Tests pin them; a change of bits is a change of every user's results.
 */
#ifndef LSI_DATA_FORMAT_H
#define LSI_DATA_FORMAT_H

#include <lockstep/data.h>

#include "base/status.h"

#define LSI_DATA_TEXT 160 /* bytes of the settings, of a description of a shape */

#define LSI_DATA_FIELDS 8 /* that a model may want */

/* Kinds of random choices: the key is seed ^ stream. */
#define LSI_STREAM_ORDER 0x6f72646572000000u
#define LSI_STREAM_SPLIT 0x73706c6974000000u
#define LSI_STREAM_SHIFT 0x7368696674000000u
#define LSI_STREAM_TABLE 0x7461626c65000000u
#define LSI_STREAM_DRAWS 0x6472617773000000u
#define LSI_STREAM_CHAIN 0x636861696e000000u

typedef struct lsi_format {
    const char *name;
    /* What `path` must be, for the error when there is none; NULL: no path is used. */
    const char *path;
    /* Map and check the files that dataset->config names (its strings last as long as the dataset,
     * but for letters). Sets state, and settings and letters where the data has any. After a
     * failure `close` is called with whatever state is there. */
    ls_status (*open)(ls_dataset *dataset);
    /* Compare with what the model wants (lsi_match) and set count, at least 1. */
    ls_status (*bind)(ls_dataset *dataset, const ls_data_field *fields, int count);
    /* Write one sample, index < count. Any thread; does not allocate. LS_ERR_INVALID. */
    ls_status (*read)(const ls_dataset *dataset, uint64_t index, uint64_t epoch,
                      void *const *fields);
    /* Free the state; NULL too. */
    void (*close)(void *state);
    /* NULL: not known. After bind. May take some milliseconds. */
    ls_status (*best_loss)(const ls_dataset *dataset, double *loss);
} lsi_format;

struct ls_dataset {
    const lsi_format *format;
    ls_data_config config;        /* defaults filled in */
    char settings[LSI_DATA_TEXT]; /* "key=value key=value" */
    const char *letters;          /* the state owns them */
    char *path, *model;           /* config's */
    int ready;                    /* bind has succeeded */
    uint64_t count;               /* samples */
    int field_count;              /* what bind was told */
    size_t field_bytes[LSI_DATA_FIELDS];
    void *state;
};

extern const lsi_format lsi_format_synthetic, lsi_format_idx, lsi_format_cifar, lsi_format_text,
    lsi_format_tokens, lsi_format_criteo;

/* ---- for formats ---------------------------------------------------------------------------- */

/* A field that the data can give. `name` "image" answers to "input" as well. */
typedef struct lsi_offer {
    const char *name;
    ls_dtype dtype;
    int ndim;
    size_t dims[3];
    size_t bound; /* LS_I32: the data's values are below; 0: unknown, or checked when read */
} lsi_offer;

/* Compare all fields with the offers: place[o] is the field that wants offer o, -1 when none does.
 * LS_ERR_CONFIG tells both sides, and the settings that fit. */
ls_status lsi_match(const ls_dataset *dataset, const lsi_offer *offers, int offer_count,
                    const ls_data_field *fields, int count, int *place);
/* The field that wants `name`, NULL when none does. */
const ls_data_field *lsi_field(const ls_data_field *fields, int count, const char *name);
/* Whether the configuration leaves open for which model the data is, or says this one. */
int lsi_is_for(const ls_dataset *dataset, const char *model);

/* How many of `total` are held out: the configured share, at least 1, and 1 at least remains.
 * total >= 2. */
uint64_t lsi_held_out(const ls_dataset *dataset, uint64_t total);
/* Make `total` things the part to train on or the held-out one, at random, for data that may be
 * sorted: sets *count. LS_ERR_CONFIG when there are fewer than 2. */
ls_status lsi_split(const ls_dataset *dataset, uint64_t total, uint64_t *count);
/* Which of `total` is number `index` of the part. */
uint64_t lsi_split_at(const ls_dataset *dataset, uint64_t total, uint64_t index);

/* Four random words for (seed, stream) and two numbers. */
void lsi_draw(uint64_t seed, uint64_t stream, uint64_t a, uint64_t b, uint32_t words[4]);

/* A word as a number below n, by multiplication. */
static inline uint32_t lsi_below(uint32_t word, uint32_t n)
{
    return (uint32_t)((uint64_t)word * n >> 32);
}

#endif

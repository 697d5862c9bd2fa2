/* Data: formats, the order of samples, and reading ahead.
 *
 * 1. A dataset is `count` samples with random access; reading sample i again gives the same bytes.
 * 2. The order of an epoch is a seeded permutation that is computed, not stored: any place of any
 *    epoch in O(1) time and memory. So the position in the data is one integer, and each sample
 *    comes exactly once an epoch, whoever reads it.
 * 3. Augmentation draws by counter from (seed, epoch, sample): it does not depend on who reads.
 *
 * A dataset may be read by several threads at once. A loader belongs to one thread.
 */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the order of samples ------------------------------------------------------------------- */

/* Which of `count` samples comes at place `place` of epoch `epoch`; a permutation of [0, count)
 * for each (seed, epoch). place < count. Any thread. */
LS_API uint64_t ls_data_order(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t place);

/* ---- datasets ------------------------------------------------------------------------------- */

typedef struct ls_dataset ls_dataset;

typedef struct ls_data_config {
    size_t size;
    const char *kind;    /* "synthetic" (default), "idx", "cifar", "text", "tokens", "criteo" */
    const char *path;    /* file or folder; none for synthetic */
    const char *model;   /* "mlp", "resnet", "gpt:nano", "dlrm": whose task synthetic makes, whose
                          * settings are told; NULL: the task by the fields, all settings */
    int validation;      /* the held-out part instead of the one to train on */
    double holdout;      /* share held out where the format has no part of its own; 0: a tenth */
    uint64_t seed;       /* of synthetic tasks and of augmentation */
    uint64_t samples;    /* synthetic: to train on; 0: as the task says */
    int augment;         /* images: shift by up to 4 pixels and (cifar) mirror, in training */
    const char *letters; /* text: NULL: bytes; "": the file's own characters; else these (UTF-8) */
} ls_data_config;
#define LS_DATA_CONFIG_INIT                                                                        \
    {                                                                                              \
        sizeof(ls_data_config), 0, 0, 0, 0, 0, 0, 0, 0, 0                                          \
    }

/* The i-th known kind, NULL past the end. */
LS_API const char *ls_data_kind(int i);

/* Open and check: files are mapped, sizes and headers compared. The caller owns *out. LS_ERR_CONFIG
 * or LS_ERR_NOT_FOUND names the file, the place in it and what was expected. */
LS_API ls_status ls_dataset_open(const ls_data_config *config, ls_dataset **out);
LS_API void ls_dataset_close(ls_dataset *dataset);

/* The i-th setting of a model that follows from the data as "key=value", e.g. "vocab=65",
 * "inputs=784", "classes=10"; LS_ERR_NOT_FOUND past the end. */
LS_API ls_status ls_dataset_setting(const ls_dataset *dataset, int i, char *text, size_t room);
/* The characters of a text in the order of their numbers (UTF-8), NULL for other data. */
LS_API const char *ls_dataset_letters(const ls_dataset *dataset);

/* What a model wants to be given for each sample: its inputs in order (nn.h). */
typedef struct ls_data_field {
    const char *name; /* "image", "label", "tokens", "targets", "dense", "ids", "target", "input" */
    ls_dtype dtype;
    int ndim;
    size_t dims[6]; /* without the batch */
    size_t bound;   /* LS_I32: values are below; 0: unknown */
} ls_data_field;

/* Say how samples shall be written; before the first read. LS_ERR_CONFIG tells what the data has
 * and what the model wants, and which setting would make them fit. */
LS_API ls_status ls_dataset_bind(ls_dataset *dataset, const ls_data_field *fields, int count);

/* Samples; known after bind (a text has as many as its context says). */
LS_API uint64_t ls_dataset_count(const ls_dataset *dataset);
/* Write sample `index` as read in `epoch`: fields[f] is where field f of this sample goes. Any
 * thread. LS_ERR_INVALID names file and place when the bytes make no sense. */
LS_API ls_status ls_dataset_read(const ls_dataset *dataset, uint64_t index, uint64_t epoch,
                                 void *const *fields);
/* The loss that nobody can beat on the expected sample (synthetic tasks); LS_ERR_NOT_FOUND when it
 * is not known. */
LS_API ls_status ls_dataset_best_loss(const ls_dataset *dataset, double *loss);

/* ---- reading ahead -------------------------------------------------------------------------- */

typedef struct ls_loader ls_loader;

/* A loader with a thread of its own, which takes no signals, and room for `ahead` requests of at
 * most `batch` samples. The dataset, after bind, is borrowed. `shuffle` 0: place k is sample k.
 * Nothing is allocated later. */
LS_API ls_status ls_loader_create(const ls_dataset *dataset, size_t batch, int ahead, uint64_t seed,
                                  int shuffle, ls_loader **out);
/* Also with requests under way: they are dropped. */
LS_API void ls_loader_destroy(ls_loader *loader);
/* Ask for the samples at places [first, first + count) of an epoch; LS_IN_PROGRESS when `ahead`
 * requests are under way already. Does not block. */
LS_API ls_status ls_loader_ask(ls_loader *loader, uint64_t epoch, uint64_t first, size_t count);
/* The oldest request's samples: fields[f] is set to (count, …) values of field f, aligned to 64
 * bytes, valid until the next ls_loader_take or destroy (asking for more does not touch them).
 * Waits for the thread; reading errors come out here, and that request is over. LS_ERR_INVALID when
 * nothing was asked for. */
LS_API ls_status ls_loader_take(ls_loader *loader, const void **fields, size_t *count);

#ifdef __cplusplus
}
#endif
#endif

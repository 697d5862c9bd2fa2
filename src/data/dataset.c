/* Datasets: the registry of formats, arguments, and the life of a dataset.
 *
 * 1. Formats are called with checked arguments only, in the order open, bind, read…, close.
 * 2. After bind a dataset does not change: any thread may read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "data/format.h"

#define HOLDOUT 0.1

static const lsi_format *const formats[] = {&lsi_format_synthetic, &lsi_format_idx,
                                            &lsi_format_cifar,     &lsi_format_text,
                                            &lsi_format_tokens,    &lsi_format_criteo};
#define FORMATS ((int)(sizeof formats / sizeof *formats))

const char *ls_data_kind(int i)
{
    return i >= 0 && i < FORMATS ? formats[i]->name : NULL;
}

static ls_status no_such_kind(const char *kind)
{
    char known[LSI_DATA_TEXT] = "known:";
    size_t used = strlen(known);
    for (int i = 0; i < FORMATS && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s %s", i ? "," : "",
                                 formats[i]->name);
    return lsi_fail(LS_ERR_CONFIG, known, "data", "there is no kind named '%.60s'", kind);
}

static ls_status check_config(const ls_data_config *config, const lsi_format **format)
{
    if (config->size != sizeof *config)
        return lsi_fail(LS_ERR_INVALID, "start from LS_DATA_CONFIG_INIT", "data",
                        "the configuration has size %zu, not %zu", config->size, sizeof *config);
    const char *kind = config->kind ? config->kind : formats[0]->name;
    for (int i = 0; i < FORMATS; i++)
        if (!strcmp(formats[i]->name, kind))
            *format = formats[i];
    if (!*format)
        return no_such_kind(kind);
    if ((*format)->path && (!config->path || !*config->path))
        return lsi_fail(LS_ERR_CONFIG, NULL, "data", "%s needs a path: %s", kind, (*format)->path);
    if (!(*format)->path && config->path && *config->path)
        return lsi_fail(LS_ERR_CONFIG, NULL, "data", "%s data is generated, it takes no path: '%s'",
                        kind, config->path);
    if (!(config->holdout >= 0 && config->holdout < 1))
        return lsi_fail(LS_ERR_CONFIG, NULL, "data",
                        "the held-out share %g is not at least 0 and below 1", config->holdout);
    return LS_OK;
}

ls_status ls_dataset_open(const ls_data_config *config, ls_dataset **out)
{
    if (!config || !out)
        return lsi_fail(LS_ERR_INVALID, NULL, "data", "a configuration and a place are needed");
    const lsi_format *format = NULL;
    LSI_TRY(check_config(config, &format));
    ls_dataset *dataset = calloc(1, sizeof *dataset);
    if (!dataset)
        return lsi_fail(LS_ERR_NOMEM, NULL, "data", "no memory for a dataset");
    dataset->format = format;
    dataset->config = *config;
    dataset->config.kind = format->name;
    if (config->holdout == 0)
        dataset->config.holdout = HOLDOUT;
    dataset->path = config->path ? strdup(config->path) : NULL;
    dataset->model = config->model ? strdup(config->model) : NULL;
    ls_status status = LS_OK;
    if ((config->path && !dataset->path) || (config->model && !dataset->model))
        status = lsi_fail(LS_ERR_NOMEM, NULL, "data", "no memory for a dataset");
    if (dataset->model)
        dataset->model[strcspn(dataset->model, ":")] = 0; /* "gpt:nano" is a gpt */
    dataset->config.path = dataset->path;
    dataset->config.model = dataset->model;
    if (status == LS_OK)
        status = format->open(dataset);
    if (status != LS_OK) {
        ls_dataset_close(dataset);
        return status;
    }
    dataset->config.letters = NULL; /* the caller's */
    *out = dataset;
    return LS_OK;
}

void ls_dataset_close(ls_dataset *dataset)
{
    if (!dataset)
        return;
    dataset->format->close(dataset->state);
    free(dataset->path);
    free(dataset->model);
    free(dataset);
}

ls_status ls_dataset_setting(const ls_dataset *dataset, int i, char *text, size_t room)
{
    if (!dataset || !text)
        return lsi_fail(LS_ERR_INVALID, NULL, "data", "a dataset and room for text are needed");
    const char *at = dataset->settings;
    for (int k = 0; k < i && *at; k++) {
        at += strcspn(at, " ");
        at += *at == ' ';
    }
    const size_t length = strcspn(at, " ");
    if (i < 0 || length == 0)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, "data", "%s data has no setting number %d",
                        dataset->format->name, i);
    if (length >= room)
        return lsi_fail(LS_ERR_INVALID, NULL, "data", "'%.*s' does not fit in %zu bytes",
                        (int)length, at, room);
    memcpy(text, at, length);
    text[length] = 0;
    return LS_OK;
}

const char *ls_dataset_letters(const ls_dataset *dataset)
{
    return dataset ? dataset->letters : NULL;
}

/* Sets the bytes of a field of one sample. */
static ls_status check_field(const ls_data_field *field, size_t *bytes)
{
    if (!field->name || field->ndim < 0 || field->ndim > 6 || !ls_dtype_size(field->dtype))
        return lsi_fail(LS_ERR_INVALID, NULL, "data",
                        "a field has no name, no type, or more than "
                        "6 dimensions");
    size_t elements = 1;
    for (int d = 0; d < field->ndim; d++) {
        if (field->dims[d] == 0 || field->dims[d] > ((size_t)1 << 40) / elements)
            return lsi_fail(LS_ERR_INVALID, NULL, "data",
                            "field '%.60s' has no elements, or more than can be", field->name);
        elements *= field->dims[d];
    }
    if (field->bound > (size_t)INT32_MAX + 1)
        return lsi_fail(LS_ERR_INVALID, NULL, "data", "field '%.60s' is bound by %zu, not 32 bits",
                        field->name, field->bound);
    *bytes = elements * ls_dtype_size(field->dtype);
    return LS_OK;
}

ls_status ls_dataset_bind(ls_dataset *dataset, const ls_data_field *fields, int count)
{
    if (!dataset || !fields || count < 1 || count > LSI_DATA_FIELDS)
        return lsi_fail(LS_ERR_INVALID, NULL, "data",
                        "a dataset and from 1 to %d fields are needed", LSI_DATA_FIELDS);
    if (dataset->ready)
        return lsi_fail(LS_ERR_INVALID, "open the data once more", "data",
                        "the fields have been told already");
    for (int f = 0; f < count; f++)
        LSI_TRY(check_field(&fields[f], &dataset->field_bytes[f]));
    dataset->field_count = count;
    LSI_TRY(dataset->format->bind(dataset, fields, count));
    dataset->ready = 1;
    return LS_OK;
}

uint64_t ls_dataset_count(const ls_dataset *dataset)
{
    return dataset && dataset->ready ? dataset->count : 0;
}

ls_status ls_dataset_read(const ls_dataset *dataset, uint64_t index, uint64_t epoch,
                          void *const *fields)
{
    if (!dataset || !fields)
        return lsi_fail(LS_ERR_INVALID, NULL, "data", "a dataset and room for fields are needed");
    if (!dataset->ready || index >= dataset->count)
        return lsi_fail(LS_ERR_INVALID, dataset->ready ? NULL : "call ls_dataset_bind first",
                        "data", "there is no sample %llu of %llu", (unsigned long long)index,
                        (unsigned long long)dataset->count);
    return dataset->format->read(dataset, index, epoch, fields);
}

ls_status ls_dataset_best_loss(const ls_dataset *dataset, double *loss)
{
    if (!dataset || !loss)
        return lsi_fail(LS_ERR_INVALID, NULL, "data", "a dataset and a place are needed");
    if (!dataset->format->best_loss)
        return lsi_fail(LS_ERR_NOT_FOUND, NULL, "data", "nobody knows the best loss on %s data",
                        dataset->format->name);
    if (!dataset->ready)
        return lsi_fail(LS_ERR_INVALID, "call ls_dataset_bind first", "data",
                        "the task is not known yet");
    return dataset->format->best_loss(dataset, loss);
}

/* ---- for formats ---------------------------------------------------------------------------- */

int lsi_is_for(const ls_dataset *dataset, const char *model)
{
    return !dataset->config.model || !strcmp(dataset->config.model, model);
}

void lsi_draw(uint64_t seed, uint64_t stream, uint64_t a, uint64_t b, uint32_t words[4])
{
    const uint64_t key = seed ^ stream;
    lsi_philox((uint32_t[]){(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32)},
               (uint32_t[]){(uint32_t)key, (uint32_t)(key >> 32)}, words);
}

uint64_t lsi_held_out(const ls_dataset *dataset, uint64_t total)
{
    const uint64_t held = (uint64_t)((double)total * dataset->config.holdout);
    return held < 1 ? 1 : held > total - 1 ? total - 1 : held;
}

ls_status lsi_split(const ls_dataset *dataset, uint64_t total, uint64_t *count)
{
    if (total < 2)
        return lsi_fail(LS_ERR_CONFIG, NULL, "data",
                        "%s: %llu samples cannot be split into a part to train on and one to test",
                        dataset->config.path, (unsigned long long)total);
    const uint64_t held = lsi_held_out(dataset, total);
    *count = dataset->config.validation ? held : total - held;
    return LS_OK;
}

/* A fixed order, whatever the seed: runs with several seeds must be tested on the same samples. */
uint64_t lsi_split_at(const ls_dataset *dataset, uint64_t total, uint64_t index)
{
    if (dataset->config.validation)
        index += total - lsi_held_out(dataset, total);
    return ls_data_order(LSI_STREAM_SPLIT, 0, total, index);
}

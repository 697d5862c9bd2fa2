/* The optimizer's state as a file, and loading a checkpoint.
 *
 * 1. optimizer.safetensors has a tensor ARRAY.NAME for each array and parameter, by that name, with
 *    the shape that the parameter has in memory.
 * 2. Loading looks at everything before it changes anything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"
#include "base/status.h"
#include "train/checkpoint_files.h"

#define WHAT "checkpoint"
#define NAME_BYTES 512

/* One array of one parameter. */
typedef struct piece {
    char name[NAME_BYTES];
    const ls_param_info *info;
    float *data;
} piece;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const piece *)a)->name, ((const piece *)b)->name);
}

/* All of them by name; the caller frees *out. */
static ls_status collect(const lsi_state *state, piece **out, size_t *count)
{
    const lsi_weights *w = &state->weights;
    piece *list = calloc((size_t)(state->array_count * w->param_count) + 1, sizeof *list);
    size_t n = 0;
    if (!list)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for the optimizer's state");
    for (int a = 0; a < state->array_count; a++) {
        for (int p = 0; p < w->param_count; p++, n++) {
            list[n].info = &w->params[p];
            list[n].data = state->arrays[a] + w->params[p].offset;
            snprintf(list[n].name, NAME_BYTES, "%s.%s", state->array_names[a], w->params[p].name);
        }
    }
    qsort(list, n, sizeof *list, by_name);
    *out = list;
    *count = n;
    return LS_OK;
}

static void shape_of(const piece *p, lsi_st_tensor *t)
{
    *t = (lsi_st_tensor){.name = p->name,
                         .dtype = LSI_ST_F32,
                         .ndim = p->info->ndim,
                         .count = p->info->count};
    memcpy(t->dims, p->info->dims, (size_t)p->info->ndim * sizeof *t->dims);
}

ls_status lsi_arrays_stream(const lsi_state *state, lsi_weights_sink put, void *arg)
{
    piece *list;
    size_t count, size, data;
    void *header = NULL;
    LSI_TRY(collect(state, &list, &count));
    lsi_st_tensor *tensors = calloc(count + 1, sizeof *tensors);
    ls_status status =
        tensors ? LS_OK : lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for the header");
    for (size_t i = 0; status == LS_OK && i < count; i++)
        shape_of(&list[i], &tensors[i]);
    if (status == LS_OK)
        status = lsi_st_header(tensors, count, NULL, 0, &header, &size, &data);
    if (status == LS_OK)
        status = put(arg, header, size);
    for (size_t i = 0; status == LS_OK && i < count; i++)
        status = put(arg, list[i].data, list[i].info->count * sizeof(float));
    free(header);
    free(tensors);
    free(list);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

static ls_status match(const char *path, const lsi_st_file *file, const piece *list, size_t count)
{
    static const char hint[] = "is it of this model and optimizer, with the same settings?";
    for (size_t i = 0; i < count; i++) {
        lsi_st_tensor wanted;
        const lsi_st_tensor *t = lsi_st_find(file, list[i].name);
        shape_of(&list[i], &wanted);
        if (!t)
            return lsi_fail(LS_ERR_CONFIG, hint, WHAT, "%s has no '%s'", path, list[i].name);
        if (t->dtype != LSI_ST_F32 || t->ndim != wanted.ndim ||
            memcmp(t->dims, wanted.dims, (size_t)t->ndim * sizeof *t->dims) != 0)
            return lsi_fail(LS_ERR_CONFIG, hint, WHAT, "%s: '%s' has another type or shape", path,
                            list[i].name);
    }
    if (lsi_st_count(file) != count)
        return lsi_fail(LS_ERR_CONFIG, hint, WHAT, "%s has %zu tensors, not %zu", path,
                        lsi_st_count(file), count);
    return LS_OK;
}

static ls_status load_files(const lsi_checkpoint *c, const char *arrays, lsi_state *state,
                            const piece *list, size_t count)
{
    char model[LSI_CHECKPOINT_PATH];
    lsi_st_file *file;
    LSI_TRY(lsi_run_path(c->folder, LSI_CHECKPOINT_MODEL, model));
    LSI_TRY(lsi_st_open(arrays, &file));
    ls_status status = match(arrays, file, list, count);
    if (status == LS_OK)
        status = lsi_weights_load(&state->weights, model);
    for (size_t i = 0; status == LS_OK && i < count; i++)
        lsi_st_to_f32(lsi_st_find(file, list[i].name), 0, list[i].info->count, list[i].data);
    lsi_st_close(file);
    return status;
}

ls_status lsi_checkpoint_load(const lsi_checkpoint *c, lsi_state *state)
{
    char arrays[LSI_CHECKPOINT_PATH];
    piece *list;
    size_t count;
    LSI_TRY(lsi_checkpoint_verify(c));
    LSI_TRY(lsi_run_path(c->folder, LSI_CHECKPOINT_OPTIMIZER, arrays));
    LSI_TRY(collect(state, &list, &count));
    const ls_status status = load_files(c, arrays, state, list, count);
    free(list);
    LSI_TRY(status);
    state->step = c->step;
    state->epoch = c->epoch;
    state->seed = c->seed;
    state->loss = c->loss;
    state->eval_loss = c->eval_loss;
    snprintf(state->config, sizeof state->config, "%s", c->config);
    return LS_OK;
}

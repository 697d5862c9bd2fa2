/* Creating an optimizer: what it knows of the parameters, and the memory of its state.
 *
 * 1. State is one block of memory, so that it can be shared as a whole: arrays laid out as the
 *    parameters, then the rows' stamps, then sums. Each part starts at a multiple of 64 bytes.
 *    Zeros are a fresh state at step 0.
 * 2. After creation nothing allocates.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/status.h"
#include "optim/optimizer.h"

#define HUGE_PAGE ((size_t)2 << 20)

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t ls_optimizer_state_bytes(const ls_optimizer *o)
{
    size_t bytes = (size_t)o->arrays * aligned(o->elements * sizeof(float)) +
                   aligned(o->stamp_count * sizeof *o->stamps);
    for (int kind = 0; kind < LSI_SUM_KINDS; kind++) {
        if ((o->rounds[0] | o->rounds[1]) & LSI_SUM_BIT(kind))
            bytes += aligned(o->pieces * sizeof(double));
    }
    return bytes;
}

void ls_optimizer_bind(ls_optimizer *o, void *memory)
{
    o->memory = memory ? memory : o->own;
    char *at = o->memory;
    for (int a = 0; a < o->arrays; a++, at += aligned(o->elements * sizeof(float)))
        o->array[a] = (float *)at;
    o->stamps = (uint32_t *)at;
    at += aligned(o->stamp_count * sizeof *o->stamps);
    for (int kind = 0; kind < LSI_SUM_KINDS; kind++) {
        if (!((o->rounds[0] | o->rounds[1]) & LSI_SUM_BIT(kind)))
            continue;
        o->sums[kind] = (double *)at;
        at += aligned(o->pieces * sizeof(double));
    }
}

float *ls_optimizer_state(ls_optimizer *o, int i, const char **name)
{
    if (i < 0 || i >= o->arrays || i >= LSI_OPTIM_ARRAYS || !o->ops->arrays[i])
        return NULL;
    if (name)
        *name = o->ops->arrays[i];
    return o->array[i];
}

uint64_t ls_optimizer_get_step(const ls_optimizer *o)
{
    return o->step;
}

void ls_optimizer_set_step(ls_optimizer *o, uint64_t step)
{
    o->step = step;
    for (size_t i = 0; i < o->stamp_count; i++)
        o->stamps[i] = (uint32_t)step;
}

/* Refuse what the walks over parameters could not bear. `end` is where the one before ends. */
static ls_status check_param(const ls_param_info *info, size_t end, size_t elements)
{
    const char *name = info->name ? info->name : "?";
    if (info->count == 0 || info->offset % 16 || info->offset < end || info->offset > elements ||
        info->count > elements - info->offset)
        return lsi_fail(LS_ERR_INVALID, "give them as ls_graph_param does", "optimizer",
                        "parameter %s of %zu elements cannot lie at %zu of %zu", name, info->count,
                        info->offset, elements);
    if (info->sparse && (info->ndim < 1 || info->dims[0] == 0 || info->dims[0] > INT32_MAX ||
                         info->count % info->dims[0]))
        return lsi_fail(LS_ERR_INVALID, NULL, "optimizer", "parameter %s has no rows to be sparse",
                        name);
    return LS_OK;
}

static ls_status take_params(ls_optimizer *o, const ls_param_info *infos)
{
    size_t end = 0, name_bytes = 1;
    for (int p = 0; p < o->count; p++) {
        LSI_TRY(check_param(&infos[p], end, o->elements));
        end = infos[p].offset + infos[p].count;
        name_bytes += strlen(infos[p].name ? infos[p].name : "?") + 1;
    }
    o->params = calloc((size_t)o->count + 1, sizeof *o->params);
    o->names = malloc(name_bytes);
    if (!o->params || !o->names)
        return lsi_fail(LS_ERR_NOMEM, NULL, "optimizer", "no memory for %d parameters", o->count);
    char *name = o->names;
    for (int p = 0; p < o->count; p++) {
        const ls_param_info *info = &infos[p];
        lsi_optim_param *param = &o->params[p];
        const size_t bytes = strlen(info->name ? info->name : "?") + 1;
        param->name = memcpy(name, info->name ? info->name : "?", bytes);
        name += bytes;
        param->offset = info->offset;
        param->count = info->count;
        param->no_decay = info->no_decay;
        param->ratio = 1;
        param->first_piece = o->pieces;
        o->pieces +=
            (info->offset + info->count - 1) / LS_OPTIM_BLOCK - info->offset / LS_OPTIM_BLOCK + 1;
        if (!info->sparse)
            continue;
        param->rows = info->dims[0];
        param->width = info->count / info->dims[0];
        param->lazy = o->ops->moves && o->ops->moves(&o->settings, param);
        param->first_stamp = o->stamp_count;
        o->stamp_count += param->lazy ? param->rows : 0;
    }
    return LS_OK;
}

/* Rounds that take place, with the gradient's norm for clipping. */
static void plan_rounds(ls_optimizer *o)
{
    for (int r = 0; r < LSI_OPTIM_ROUNDS; r++) {
        unsigned bits = o->ops->rounds[r];
        if (r == 0 && o->settings.clip > 0)
            bits |= LSI_SUM_BIT(LSI_SUM_GRAD);
        if (bits)
            o->rounds[o->round_count++] = bits;
    }
}

/* Zeros that cost nothing until they are touched: who binds other memory never does. */
static void clear_lazily(char *memory, size_t bytes)
{
    const size_t whole = bytes / HUGE_PAGE * HUGE_PAGE;
    if (whole && madvise(memory, whole, MADV_DONTNEED) != 0)
        memset(memory, 0, whole);
    memset(memory + whole, 0, bytes - whole);
}

static ls_status take_memory(ls_optimizer *o)
{
    const size_t bytes = ls_optimizer_state_bytes(o);
    LSI_TRY(o->device->ops->alloc(bytes + HUGE_PAGE, &o->block_of_own));
    const size_t past = (uintptr_t)o->block_of_own % HUGE_PAGE;
    o->own = (char *)o->block_of_own + (past ? HUGE_PAGE - past : 0);
    if (bytes >=
        HUGE_PAGE) /* best effort: rows lie anywhere, and pages of 4 KiB are slow to find */
        (void)madvise(o->own, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    clear_lazily(o->own, bytes);
    ls_optimizer_bind(o, NULL);
    if (o->stamp_count) {
        o->history = calloc(1, sizeof *o->history);
        if (!o->history)
            return lsi_fail(LS_ERR_NOMEM, NULL, "optimizer", "no memory for the history of rates");
    }
    void *block;
    LSI_TRY(o->device->ops->alloc(LS_OPTIM_BLOCK * sizeof(float), &block));
    o->block = block;
    return LS_OK;
}

ls_status ls_optimizer_create(const ls_optim_config *config, const ls_param_info *params, int count,
                              size_t elements, ls_optimizer **out)
{
    ls_optim_config settings;
    const lsi_optim_ops *ops;
    LSI_TRY(lsi_optim_settle(config, &ops, &settings));
    if (count < 0 || (count > 0 && !params))
        return lsi_fail(LS_ERR_INVALID, NULL, "optimizer", "%d parameters make no sense", count);
    ls_optimizer *o = calloc(1, sizeof *o);
    if (!o)
        return lsi_fail(LS_ERR_NOMEM, NULL, "optimizer", "no memory for it");
    o->ops = ops;
    o->settings = settings;
    o->count = count;
    o->elements = elements;
    o->blocks = (elements + LS_OPTIM_BLOCK - 1) / LS_OPTIM_BLOCK;
    o->arrays = ops->array_count(&settings);
    o->clipped = 1;
    o->adam = (lsi_adam){.beta1 = settings.beta1,
                         .beta2 = settings.beta2,
                         .eps = settings.eps,
                         .decay = settings.decay,
                         .decoupled = ops == &lsi_optim_adamw};
    plan_rounds(o);
    ls_status status = lsi_device_open(config->device, &o->device);
    if (status == LS_OK)
        status = take_params(o, params);
    if (status == LS_OK)
        status = take_memory(o);
    o->settings.device = NULL; /* borrowed for this call only */
    if (status != LS_OK) {
        ls_optimizer_destroy(o);
        return status;
    }
    *out = o;
    return LS_OK;
}

void ls_optimizer_destroy(ls_optimizer *o)
{
    if (!o)
        return;
    if (o->device) {
        o->device->ops->free(o->block_of_own);
        o->device->ops->free(o->block);
    }
    lsi_device_close(o->device);
    free(o->history);
    free(o->params);
    free(o->names);
    free(o);
}

/* What an update is about to change, kept aside so that it can be put back.
 *
 * A worker may die in the middle of an update. Whatever it was working on is kept beforehand in
 * memory that outlives it, by save; whoever finds it there puts it back by restore, and the
 * elements are as if the update had not begun.
 *
 * 1. What is kept are parts, ranges of elements of one parameter: parameters, all arrays of the
 *    state and, of a lazy row, its stamp. Parts may overlap: they all hold the old values.
 * 2. Of a parameter whose rows are updated one by one, only the rows that will be touched are kept.
 */
#include <string.h>

#include "optim/optimizer.h"

typedef struct part {
    uint64_t at;
    uint32_t n;
    uint32_t stamp; /* 1 + its number; 0: none */
    uint64_t stamped;
} part;

/* Where parts are written: a count, then parts one after the other. */
typedef struct writer {
    const ls_optimizer *o;
    const float *params;
    char *memory, *to;
} writer;

static writer begin(const ls_optimizer *o, const float *params, void *memory)
{
    *(uint64_t *)memory = 0;
    return (writer){o, params, memory, (char *)memory + sizeof(uint64_t)};
}

static void copy_out(writer *w, const float *from, size_t n)
{
    memcpy(w->to, from, n * sizeof *from);
    w->to += n * sizeof *from;
}

static void add(writer *w, size_t at, size_t n, size_t stamp)
{
    part p = {at, (uint32_t)n, (uint32_t)stamp, stamp ? w->o->stamps[stamp - 1] : 0};
    memcpy(w->to, &p, sizeof p);
    w->to += sizeof p;
    copy_out(w, w->params + at, n);
    for (int a = 0; a < w->o->arrays; a++)
        copy_out(w, w->o->array[a] + at, n);
    ++*(uint64_t *)w->memory;
}

static void add_row(writer *w, const lsi_optim_param *param, size_t row)
{
    add(w, param->offset + row * param->width, param->width,
        param->lazy ? 1 + param->first_stamp + row : 0);
}

/* Rows that lsi_lazy_update touches. */
static void add_rows(writer *w, const lsi_optim_param *param, size_t from, size_t to)
{
    const size_t width = param->width;
    const size_t first = (from - param->offset + width - 1) / width;
    const size_t last = (to - param->offset + width - 1) / width;
    const size_t end = lsi_rows_find(&param->grad, last);
    for (size_t i = lsi_rows_find(&param->grad, first); i < end; i++)
        add_row(w, param, (size_t)param->grad.ids[i]);
    if (!param->lazy)
        return;
    size_t row, stop;
    lsi_lazy_slice(param, first, last, w->o->step + 1, &row, &stop);
    for (; row < stop; row++)
        add_row(w, param, row);
}

/* A row belongs to the block of its first element, and may end far behind it. */
size_t lsi_undo_room(const ls_optimizer *o, size_t blocks)
{
    const size_t values = (size_t)(1 + o->arrays) * sizeof(float);
    size_t widest = 0;
    for (int p = 0; p < o->count; p++)
        widest = o->params[p].width > widest ? o->params[p].width : widest;
    const size_t once = blocks * LS_OPTIM_BLOCK * (sizeof(part) + values) + widest * values;
    return sizeof(uint64_t) + 2 * once; /* rows may be there twice */
}

size_t lsi_undo_rows(const ls_optimizer *o, int index, size_t room)
{
    const size_t row =
        sizeof(part) + o->params[index].width * (size_t)(1 + o->arrays) * sizeof(float);
    return (room - sizeof(uint64_t)) / row;
}

void lsi_undo_save(const ls_optimizer *o, const float *params, size_t first, size_t last,
                   void *memory)
{
    const size_t from = first * LS_OPTIM_BLOCK, to = last * LS_OPTIM_BLOCK;
    writer w = begin(o, params, memory);
    for (int p = lsi_optim_find(o, from); p < o->count && o->params[p].offset < to; p++) {
        const lsi_optim_param *param = &o->params[p];
        const size_t end = param->offset + param->count;
        const size_t a = from > param->offset ? from : param->offset, b = to < end ? to : end;
        if (param->rows && o->ops->moves)
            add_rows(&w, param, a, b);
        else
            add(&w, a, b - a, 0);
    }
}

void lsi_undo_save_rows(const ls_optimizer *o, const float *params, int index, const int32_t *ids,
                        size_t n, void *memory)
{
    writer w = begin(o, params, memory);
    for (size_t i = 0; i < n; i++)
        add_row(&w, &o->params[index], (size_t)ids[i]);
}

void lsi_undo_restore(ls_optimizer *o, float *params, const void *memory)
{
    const char *from = (const char *)memory + sizeof(uint64_t);
    for (uint64_t i = 0; i < *(const uint64_t *)memory; i++) {
        part p;
        memcpy(&p, from, sizeof p);
        from += sizeof p;
        for (int a = -1; a < o->arrays; a++, from += p.n * sizeof(float))
            memcpy((a < 0 ? params : o->array[a]) + p.at, from, p.n * sizeof(float));
        if (p.stamp)
            o->stamps[p.stamp - 1] = (uint32_t)p.stamped;
    }
}

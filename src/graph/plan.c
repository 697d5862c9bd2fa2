/* The memory plan: an offset for each buffer, from sizes and lifetimes alone.
 *
 * Buffers are placed one after the other, each into the smallest gap that is left between those
 * that live at the same time (Y. Pisarchyk, J. Lee, "Efficient memory management for deep neural
 * net inference", 2020: greedy by size). Three orders are tried and the lowest peak wins. Below
 * what is alive at the worst moment no plan can go; those of ResNet and GPT are equal to that.
 * Cost: O(n² log n) for n buffers, once.
 *
 * 1. Two buffers with a moment in common have no byte in common.
 * 2. Offsets are multiples of ALIGN. The same buffers give the same plan.
 */
#include <stdlib.h>

#include "graph/graph.h"

#define ALIGN ((size_t)64)

typedef struct item {
    lsi_buffer *buffer;
    size_t bytes; /* rounded up */
    int from, to; /* all of its life, gaps included */
    int place;    /* among the buffers: breaks ties */
} item;

static int by_size(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->place - y->place;
}

static int by_length(const void *a, const void *b)
{
    const item *x = a, *y = b;
    const int i = x->to - x->from, j = y->to - y->from;
    return i != j ? j - i : by_size(a, b);
}

static int by_start(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->from != y->from ? x->from - y->from : by_size(a, b);
}

static int by_offset(const void *a, const void *b)
{
    const lsi_buffer *x = *(lsi_buffer *const *)a, *y = *(lsi_buffer *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The offset of the smallest gap for `bytes` between `count` buffers sorted by offset. */
static size_t best_gap(lsi_buffer *const *others, int count, size_t bytes)
{
    size_t end = 0, best = SIZE_MAX, smallest = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        if (others[i]->offset > end && others[i]->offset - end >= bytes &&
            others[i]->offset - end < smallest) {
            best = end;
            smallest = others[i]->offset - end;
        }
        const size_t past = others[i]->offset + round_up(others[i]->bytes);
        end = past > end ? past : end;
    }
    return best != SIZE_MAX ? best : end;
}

/* Place the items in their order; returns the peak. `others` has room for all. */
static size_t place(item *items, int count, lsi_buffer **others)
{
    size_t peak = 0;
    for (int i = 0; i < count; i++) {
        int meets = 0;
        for (int j = 0; j < i; j++)
            if (lsi_spans_meet(items[i].buffer, items[j].buffer))
                others[meets++] = items[j].buffer;
        qsort(others, (size_t)meets, sizeof *others, by_offset);
        items[i].buffer->offset = best_gap(others, meets, items[i].bytes);
        const size_t end = items[i].buffer->offset + items[i].bytes;
        peak = end > peak ? end : peak;
    }
    return peak;
}

static size_t plan_apart(item *items, int count)
{
    size_t end = 0;
    for (int i = 0; i < count; i++) {
        items[i].buffer->offset = end;
        end += items[i].bytes;
    }
    return end;
}

static int list_items(lsi_buffer *buffers, int count, item *items)
{
    int used = 0;
    for (int i = 0; i < count; i++) {
        lsi_buffer *buffer = &buffers[i];
        if (buffer->same_as < 0 && buffer->count > 0)
            items[used++] = (item){buffer, round_up(buffer->bytes), buffer->spans[0].from,
                                   buffer->spans[buffer->count - 1].to, i};
    }
    return used;
}

ls_status lsi_plan(lsi_buffer *buffers, int count, int share, size_t *peak)
{
    static int (*const orders[])(const void *, const void *) = {by_size, by_length, by_start};
    item *items = calloc((size_t)count + 1, sizeof *items);
    lsi_buffer **others = calloc((size_t)count + 1, sizeof *others);
    ls_status status = LS_OK;
    if (!items || !others) {
        status = lsi_fail(LS_ERR_NOMEM, NULL, "graph", "no memory for its plan");
    } else if (!share) {
        *peak = plan_apart(items, list_items(buffers, count, items));
    } else {
        const int used = list_items(buffers, count, items);
        const int tries = (int)(sizeof orders / sizeof *orders);
        int best = 0;
        size_t lowest = SIZE_MAX, last = SIZE_MAX;
        for (int i = 0; i < tries; i++) {
            qsort(items, (size_t)used, sizeof *items, orders[i]);
            last = place(items, used, others);
            best = last < lowest ? i : best;
            lowest = last < lowest ? last : lowest;
        }
        if (last != lowest) {
            qsort(items, (size_t)used, sizeof *items, orders[best]);
            place(items, used, others);
        }
        *peak = lowest;
    }
    free(items);
    free(others);
    return status;
}

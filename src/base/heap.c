/* First-fit heap over a borrowed range; the contract is in heap.h.
 *
 * The range is an array of blocks sorted by offset; a block ends where the next one begins, so
 * splitting and joining are insertions and removals.
 *
 * 1. blocks[0].offset == 0, offsets grow strictly, and a sentinel ends the array:
 *    blocks[count].offset == bytes.
 * 2. No two free blocks are neighbours.
 * 3. Of a free block, the bytes outside [dirty, dirty_end) are zero.
 */
#include "base/heap.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"

/* Freed ranges of this size and more give their pages back: below, the system call costs more than
 * clearing the memory again. */
#define GIVE_BACK ((size_t)1 << 20)

typedef struct block {
    size_t offset;
    size_t dirty, dirty_end; /* offsets into the range; equal when all is zero. Free blocks only. */
    int used;
} block;

struct lsi_heap {
    char *base;
    size_t bytes, page;
    size_t in_use;
    block *blocks;
    size_t count, capacity; /* capacity has room for the sentinel */
    pthread_mutex_t mutex;
};

ls_status lsi_heap_create(void *base, size_t bytes, lsi_heap **out)
{
    const size_t pad = (size_t)(-(uintptr_t)base & (LSI_HEAP_ALIGN - 1));
    if (!base || bytes < pad + LSI_HEAP_ALIGN)
        return lsi_fail(LS_ERR_INVALID, NULL, "heap", "a range of %zu bytes is too small", bytes);
    lsi_heap *heap = calloc(1, sizeof *heap);
    block *blocks = malloc(16 * sizeof *blocks);
    if (!heap || !blocks) {
        free(heap);
        free(blocks);
        return lsi_fail(LS_ERR_NOMEM, NULL, "heap", "no memory for its metadata");
    }
    heap->base = (char *)base + pad;
    heap->bytes = (bytes - pad) & ~(LSI_HEAP_ALIGN - 1);
    heap->page = (size_t)sysconf(_SC_PAGESIZE);
    heap->blocks = blocks;
    heap->count = 1;
    heap->capacity = 16;
    blocks[0] = (block){0};
    blocks[1] = (block){.offset = heap->bytes, .used = 1};
    pthread_mutex_init(&heap->mutex, NULL);
    *out = heap;
    return LS_OK;
}

void lsi_heap_destroy(lsi_heap *heap)
{
    if (!heap)
        return;
    pthread_mutex_destroy(&heap->mutex);
    free(heap->blocks);
    free(heap);
}

static void insert_at(lsi_heap *heap, size_t at, block b)
{
    assert(heap->count + 1 < heap->capacity);
    memmove(heap->blocks + at + 1, heap->blocks + at,
            (heap->count + 1 - at) * sizeof *heap->blocks);
    heap->blocks[at] = b;
    heap->count++;
}

static void remove_at(lsi_heap *heap, size_t at)
{
    memmove(heap->blocks + at, heap->blocks + at + 1, (heap->count - at) * sizeof *heap->blocks);
    heap->count--;
}

/* Room for two more blocks, so that an allocation cannot fail half-way. */
static ls_status reserve(lsi_heap *heap)
{
    if (heap->count + 3 <= heap->capacity)
        return LS_OK;
    block *grown = realloc(heap->blocks, 2 * heap->capacity * sizeof *grown);
    if (!grown)
        return lsi_fail(LS_ERR_NOMEM, NULL, "heap", "no memory for %zu blocks", heap->count);
    heap->blocks = grown;
    heap->capacity *= 2;
    return LS_OK;
}

/* The first free block with room for `bytes` at a multiple of `align`; count when there is none. */
static size_t find_fit(const lsi_heap *heap, size_t bytes, size_t align, size_t *offset)
{
    size_t i = 0;
    for (; i < heap->count; i++) {
        const block *b = &heap->blocks[i];
        if (b->used)
            continue;
        const size_t pad = (size_t)(-(uintptr_t)(heap->base + b->offset) & (align - 1));
        const size_t room = b[1].offset - b->offset;
        if (pad < room && room - pad >= bytes) {
            *offset = b->offset + pad;
            break;
        }
    }
    return i;
}

static size_t clamp(size_t x, size_t low, size_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Cut free block i at `offset`, unless that is a border; returns the block that starts there. */
static size_t split(lsi_heap *heap, size_t i, size_t offset)
{
    block *b = &heap->blocks[i];
    if (offset == b->offset)
        return i;
    if (offset == b[1].offset)
        return i + 1;
    block rest = *b;
    rest.offset = offset;
    rest.dirty = clamp(b->dirty, offset, b[1].offset);
    rest.dirty_end = clamp(b->dirty_end, offset, b[1].offset);
    b->dirty = clamp(b->dirty, b->offset, offset);
    b->dirty_end = clamp(b->dirty_end, b->offset, offset);
    insert_at(heap, i + 1, rest);
    return i + 1;
}

static ls_status alloc_locked(lsi_heap *heap, size_t bytes, size_t align, void **out)
{
    LSI_TRY(reserve(heap));
    size_t offset = 0, i = heap->count;
    if (bytes >= LSI_HEAP_HUGE && align < LSI_HEAP_HUGE)
        i = find_fit(heap, bytes, LSI_HEAP_HUGE, &offset);
    if (i == heap->count)
        i = find_fit(heap, bytes, align, &offset);
    if (i == heap->count)
        return lsi_fail(LS_ERR_NOMEM, "raise LOCKSTEP_HEAP", "shared memory",
                        "no gap of %zu bytes; %zu of %zu are in use", bytes, heap->in_use,
                        heap->bytes);
    i = split(heap, i, offset);
    split(heap, i, offset + bytes);
    block *b = &heap->blocks[i];
    b->used = 1;
    memset(heap->base + b->dirty, 0, b->dirty_end - b->dirty);
    heap->in_use += bytes;
    *out = heap->base + offset;
    return LS_OK;
}

ls_status lsi_heap_alloc(lsi_heap *heap, size_t bytes, size_t align, void **out)
{
    if (align & (align - 1))
        return lsi_fail(LS_ERR_INVALID, NULL, "shared memory", "alignment %zu is no power of two",
                        align);
    if (align < LSI_HEAP_ALIGN)
        align = LSI_HEAP_ALIGN;
    if (bytes > heap->bytes)
        return lsi_fail(LS_ERR_NOMEM, "raise LOCKSTEP_HEAP", "shared memory",
                        "%zu bytes wanted, the heap has %zu", bytes, heap->bytes);
    bytes = bytes ? (bytes + LSI_HEAP_ALIGN - 1) & ~(LSI_HEAP_ALIGN - 1) : LSI_HEAP_ALIGN;
    pthread_mutex_lock(&heap->mutex);
    const ls_status status = alloc_locked(heap, bytes, align, out);
    pthread_mutex_unlock(&heap->mutex);
    return status;
}

/* Return the pages of free block b to the system, after which they are zero: of shared memory, or
 * of memory without a file (EINVAL). Where it refuses both, the block just stays dirty. */
static void give_back(const lsi_heap *heap, block *b)
{
    char *start = heap->base + b->dirty, *end = heap->base + b->dirty_end;
    char *first = start + (-(uintptr_t)start & (heap->page - 1));
    char *last = end - ((uintptr_t)end & (heap->page - 1));
    const size_t bytes = (size_t)(last - first);
    if (madvise(first, bytes, MADV_REMOVE) != 0 &&
        (errno != EINVAL || madvise(first, bytes, MADV_DONTNEED) != 0))
        return;
    memset(start, 0, (size_t)(first - start));
    memset(last, 0, (size_t)(end - last));
    b->dirty = b->dirty_end = b->offset;
}

/* Join free block i with free block i + 1. The dirty part becomes the hull of both. */
static void join(lsi_heap *heap, size_t i)
{
    block *a = &heap->blocks[i], *b = a + 1;
    if (a->dirty == a->dirty_end) {
        a->dirty = b->dirty;
        a->dirty_end = b->dirty_end;
    } else if (b->dirty != b->dirty_end) {
        a->dirty_end = b->dirty_end;
    }
    remove_at(heap, i + 1);
}

static void free_locked(lsi_heap *heap, size_t offset)
{
    size_t low = 0, high = heap->count;
    while (low < high) { /* the first block at or after offset */
        const size_t middle = (low + high) / 2;
        if (heap->blocks[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    block *b = &heap->blocks[low];
    if (low == heap->count || b->offset != offset || !b->used)
        return;
    b->used = 0;
    b->dirty = offset;
    b->dirty_end = b[1].offset;
    heap->in_use -= b->dirty_end - b->dirty;
    if (b->dirty_end - b->dirty >= GIVE_BACK)
        give_back(heap, b);
    if (!heap->blocks[low + 1].used) /* the sentinel counts as used */
        join(heap, low);
    if (low > 0 && !heap->blocks[low - 1].used)
        join(heap, low - 1);
}

void lsi_heap_free(lsi_heap *heap, void *memory)
{
    if (!memory || !lsi_heap_owns(heap, memory, 1))
        return;
    pthread_mutex_lock(&heap->mutex);
    free_locked(heap, (size_t)((char *)memory - heap->base));
    pthread_mutex_unlock(&heap->mutex);
}

int lsi_heap_owns(const lsi_heap *heap, const void *ptr, size_t bytes)
{
    const uintptr_t base = (uintptr_t)heap->base, at = (uintptr_t)ptr;
    return at >= base && at - base <= heap->bytes && bytes <= heap->bytes - (at - base);
}

size_t lsi_heap_used(lsi_heap *heap)
{
    pthread_mutex_lock(&heap->mutex);
    const size_t used = heap->in_use;
    pthread_mutex_unlock(&heap->mutex);
    return used;
}

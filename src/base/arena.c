/* Bump allocator in chunks; the contract is in arena.h.
 *
 * A round that outgrows its chunk gets another one. Reset replaces several chunks by a single one
 * of their total size, so that the next round finds all its memory in one piece: it fits whatever
 * the order of its allocations.
 *
 * 1. Allocations come from the newest chunk; the older ones are full, or nearly.
 * 2. held is the sum of the chunks' sizes, and used <= held.
 */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/status.h"

#define CHUNK_LEAST ((size_t)64 << 10)

typedef struct chunk {
    struct chunk *older;
    size_t size, used; /* of the memory that follows */
} chunk;

/* The header takes one aligned unit, so that the memory after it is aligned. */
_Static_assert(sizeof(chunk) <= LSI_ARENA_ALIGN, "a chunk's header fits into one unit");

struct lsi_arena {
    chunk *newest;
    size_t used, held;
};

/* Add a chunk of `size` bytes, a multiple of LSI_ARENA_ALIGN. */
static ls_status add_chunk(lsi_arena *arena, size_t size)
{
    chunk *c = NULL;
    if (size <= PTRDIFF_MAX - LSI_ARENA_ALIGN)
        c = aligned_alloc(LSI_ARENA_ALIGN, size + LSI_ARENA_ALIGN);
    if (!c)
        return lsi_fail(LS_ERR_NOMEM, NULL, "arena", "no memory for %zu bytes", size);
    *c = (chunk){.older = arena->newest, .size = size};
    arena->newest = c;
    arena->held += size;
    return LS_OK;
}

static void free_chunks(lsi_arena *arena)
{
    while (arena->newest) {
        chunk *older = arena->newest->older;
        free(arena->newest);
        arena->newest = older;
    }
    arena->held = 0;
}

/* Rounded up to the alignment; SIZE_MAX, which no chunk can hold, when that overflows. */
static size_t round_up(size_t bytes)
{
    if (bytes > SIZE_MAX - LSI_ARENA_ALIGN)
        return SIZE_MAX;
    return (bytes + LSI_ARENA_ALIGN - 1) & ~(LSI_ARENA_ALIGN - 1);
}

ls_status lsi_arena_create(size_t bytes, lsi_arena **out)
{
    lsi_arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return lsi_fail(LS_ERR_NOMEM, NULL, "arena", "no memory for its head");
    if (bytes > 0) {
        const ls_status status = add_chunk(arena, round_up(bytes));
        if (status != LS_OK) {
            free(arena);
            return status;
        }
    }
    *out = arena;
    return LS_OK;
}

void lsi_arena_destroy(lsi_arena *arena)
{
    if (!arena)
        return;
    free_chunks(arena);
    free(arena);
}

ls_status lsi_arena_alloc(lsi_arena *arena, size_t bytes, void **out)
{
    const size_t need = round_up(bytes ? bytes : 1);
    if (!arena->newest || arena->newest->size - arena->newest->used < need) {
        size_t size = arena->held > CHUNK_LEAST ? arena->held : CHUNK_LEAST; /* doubles */
        LSI_TRY(add_chunk(arena, size > need ? size : need));
    }
    chunk *c = arena->newest;
    *out = (char *)c + LSI_ARENA_ALIGN + c->used;
    c->used += need;
    arena->used += need;
    return LS_OK;
}

void lsi_arena_reset(lsi_arena *arena)
{
    arena->used = 0;
    if (!arena->newest)
        return;
    arena->newest->used = 0;
    if (arena->newest->older) {
        const size_t held = arena->held;
        free_chunks(arena);
        (void)add_chunk(arena, held); /* on failure the arena is empty, and grows again on use */
    }
}

size_t lsi_arena_used(const lsi_arena *arena)
{
    return arena->used;
}

size_t lsi_arena_held(const lsi_arena *arena)
{
    return arena->held;
}

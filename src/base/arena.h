/* Memory by lifetime: many allocations, freed together.
 *
 * 1. Blocks are aligned to 64 bytes and not cleared.
 * 2. After lsi_arena_reset, allocations up to the total of the largest round so far need no memory
 *    from the system, in whatever order and sizes they come: a step that repeats does not
 *    allocate.
 *
 * Not thread safe: an arena belongs to one thread at a time.
 */
#ifndef LSI_BASE_ARENA_H
#define LSI_BASE_ARENA_H

#include <stddef.h>

#include <lockstep/status.h>

#define LSI_ARENA_ALIGN ((size_t)64)

typedef struct lsi_arena lsi_arena;

/* An arena that starts with room for `bytes` (0: nothing until it is used). The caller owns it. */
ls_status lsi_arena_create(size_t bytes, lsi_arena **out);

/* Free the arena and all that was allocated from it. Accepts NULL. */
void lsi_arena_destroy(lsi_arena *arena);

/* `bytes` of memory that lives until the next reset. 0 bytes give a valid address. Never blocks.
 * LS_ERR_NOMEM. */
ls_status lsi_arena_alloc(lsi_arena *arena, size_t bytes, void **out);

/* Take everything back and keep the memory for the next round. */
void lsi_arena_reset(lsi_arena *arena);

/* Bytes handed out in this round, rounded to blocks; and bytes held from the system. */
size_t lsi_arena_used(const lsi_arena *arena);
size_t lsi_arena_held(const lsi_arena *arena);

#endif

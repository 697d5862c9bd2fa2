/* An allocator over a given range of (shared) memory, for ls_alloc.
 *
 * First fit over blocks sorted by address, with coalescing: a training process makes few, large,
 * long-lived allocations, so simple and predictable beats fast.
 *
 * 1. All metadata lies outside of the range: a peer that scribbles over shared memory cannot
 *    damage the allocator, and a fresh range is not touched before its memory is used.
 * 2. Memory is handed out zeroed. Bytes never handed out before are known to be zero and are not
 *    touched; the others are cleared.
 * 3. The same calls on ranges of the same size and alignment give the same offsets.
 */
#ifndef LSI_BASE_HEAP_H
#define LSI_BASE_HEAP_H

#include <stddef.h>

#include <lockstep/status.h>

#define LSI_HEAP_ALIGN ((size_t)64)
#define LSI_HEAP_HUGE ((size_t)2 << 20) /* blocks of this size and more are aligned to it */

typedef struct lsi_heap lsi_heap;

/* Manage [base, base + bytes), which is mapped, zero, and borrowed until lsi_heap_destroy. The
 * caller owns *out. */
ls_status lsi_heap_create(void *base, size_t bytes, lsi_heap **out);

/* Forget the heap and all its blocks; the range itself is left as it is. Accepts NULL. */
void lsi_heap_destroy(lsi_heap *heap);

/* `bytes` of zeroed memory at a multiple of `align` (a power of two, 0 for the default) and of
 * LSI_HEAP_ALIGN. Blocks of LSI_HEAP_HUGE and more are aligned to that as long as there is room.
 * 0 bytes give a unique address. Any thread, does not block (but for other threads here).
 * LS_ERR_NOMEM when no gap is large enough. */
ls_status lsi_heap_alloc(lsi_heap *heap, size_t bytes, size_t align, void **out);

/* Give a block back. Large blocks of a shared mapping return their pages to the system. Accepts
 * NULL; any address that lsi_heap_alloc did not return is ignored. Any thread. */
void lsi_heap_free(lsi_heap *heap, void *memory);

/* 1 when [ptr, ptr + bytes) lies inside the heap's range. Any thread, constant time. */
int lsi_heap_owns(const lsi_heap *heap, const void *ptr, size_t bytes);

/* Bytes in use, rounded to blocks. */
size_t lsi_heap_used(lsi_heap *heap);

#endif

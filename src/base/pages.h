/* Large pages under memory that processes share.
 *
 * Systems seldom give them to memory files by themselves (shmem_enabled is "never" as a rule), but
 * since Linux 6.1 they do when asked for a range. Others that map the file have them, too.
 */
#ifndef LSI_BASE_PAGES_H
#define LSI_BASE_PAGES_H

#include <stddef.h>

#define LSI_LARGE_PAGE ((size_t)2 << 20)

/* Map `bytes` of a memory file, shared, at a multiple of LSI_LARGE_PAGE. NULL with errno. */
void *lsi_pages_map(int fd, size_t bytes);

/* Ask for them under [start, start + bytes), whose contents stay; what is not a whole large page is
 * left as it is. The memory is taken at once, also where it was not touched: nothing is done when
 * that were much of what is free. Best effort; any thread. */
void lsi_pages_enlarge(void *start, size_t bytes);

/* Take the memory of [start, start + bytes) now and map it in this process, whose contents stay:
 * later nobody waits for the system there. Best effort; any thread. */
void lsi_pages_take(void *start, size_t bytes);

#endif

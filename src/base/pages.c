/* Large pages (pages.h). */
#include "base/pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define PART 4     /* no more than this part of the free memory */
#define MOST_S 0.5 /* nor for longer: where memory is in small pieces, it takes its time */
#define SOME (8 * LSI_LARGE_PAGE)

/* Reserve some more, map in the middle, trim. */
void *lsi_pages_map(int fd, size_t bytes)
{
    const size_t room = bytes + LSI_LARGE_PAGE;
    char *reserved =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return NULL;
    const size_t head = -(uintptr_t)reserved & (LSI_LARGE_PAGE - 1);
    char *base = reserved + head;
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        const int code = errno;
        munmap(reserved, room);
        errno = code;
        return NULL;
    }
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE); /* 64 KiB on some machines */
    const uintptr_t end = ((uintptr_t)base + bytes + page - 1) & ~(page - 1);
    if (head)
        munmap(reserved, head);
    if (end < (uintptr_t)reserved + room)
        munmap(base + (end - (uintptr_t)base), (uintptr_t)reserved + room - end);
    return base;
}

static size_t free_bytes(void)
{
    const long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
}

/* 0 when no more of them are to be had, by us or by anybody. */
static int enlarge_some(char *first, size_t bytes)
{
    static atomic_int refused; /* the kernel does not know how */
    if (atomic_load(&refused))
        return 0;
    for (size_t at = 0; at < bytes; at += LSI_LARGE_PAGE) /* one without anything is refused, too */
        (void)atomic_fetch_or((_Atomic char *)(first + at), 0);
    if (madvise(first, bytes, MADV_COLLAPSE) == 0)
        return 1;
    if (errno == EINVAL)
        atomic_store(&refused, 1);
    return 0;
}

void lsi_pages_enlarge(void *start, size_t bytes)
{
    const uintptr_t from = ((uintptr_t)start + LSI_LARGE_PAGE - 1) & ~(LSI_LARGE_PAGE - 1);
    const uintptr_t to = ((uintptr_t)start + bytes) & ~(LSI_LARGE_PAGE - 1);
    if (from >= to || to - from > free_bytes() / PART)
        return;
    const double until = lsi_now() + MOST_S;
    for (uintptr_t at = from, some; at < to && lsi_now() < until; at += some) {
        some = to - at < SOME ? to - at : SOME;
        if (!enlarge_some((char *)start + (at - (uintptr_t)start), some))
            return;
    }
}

void lsi_pages_take(void *start, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), lost = (uintptr_t)start & (page - 1);
    (void)madvise((char *)start - lost, bytes + lost, MADV_POPULATE_WRITE);
}

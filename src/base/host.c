/* The host block: creating and mapping the segment, deaths, doorbells.
 *
 * Invariants (beside those of host.h):
 * 1. The memory file is sealed against shrinking and growing: no user of it can make another one
 *    fault by truncating it.
 * 2. Every part begins on a 2 MiB boundary of the file, and so does the mapping in memory: large
 *    pages are possible wherever the kernel grants them.
 * 3. Whoever maps trusts only what it has checked: the layout follows from local_size and
 *    heap_bytes, and must give the size of the file exactly.
 */
#include "base/host.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/env.h"
#include "base/memfile.h"
#include "base/pages.h"
#include "base/status.h"

#define HEAP_MIN ((size_t)64 << 20)
#define HEAPS_MAX ((size_t)16 << 40) /* all heaps of a host: an eighth of the address space */
#define CLAIM_WAIT_NS 2000000u

static const char what_create[] = "cannot create the shared segment";
static const char what_map[] = "cannot map the shared segment";

static size_t round_up(size_t bytes)
{
    return (bytes + LSI_LARGE_PAGE - 1) & ~(LSI_LARGE_PAGE - 1);
}

/* Fill in the offsets and the size. The arguments are bounded by LSI_MAX_RANKS and HEAPS_MAX, so
 * nothing overflows. */
static void lay_out(size_t local_size, size_t heap_bytes, lsi_host *host)
{
    host->comm_offset = round_up(sizeof(lsi_host_block));
    host->pair_offset = host->comm_offset + local_size * LSI_HOST_COMM_BYTES;
    host->heap_offset = round_up(host->pair_offset + local_size * local_size * LSI_HOST_PAIR_BYTES);
    host->bytes = host->heap_offset + local_size * heap_bytes;
}

static void advise(const lsi_host *host)
{
    /* Advice only: a kernel that does not take it changes nothing but speed and core size. */
    (void)madvise(host->base, host->bytes, MADV_DONTDUMP);
    (void)madvise(host->base + host->heap_offset, host->bytes - host->heap_offset, MADV_HUGEPAGE);
}

void lsi_host_heap_alone(const lsi_host *host, int local_rank)
{
    char *heap = lsi_host_heap(host, local_rank);
    const size_t bytes = host->block->heap_bytes;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(heap, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
        return; /* what was there is still there */
    (void)madvise(heap, bytes, MADV_DONTDUMP);
    (void)madvise(heap, bytes, MADV_HUGEPAGE);
}

/* What the process's limits leave for the segment. Half of the address space stays for the
 * program itself; a file size limit counts too, because ftruncate obeys it (by a signal). */
static size_t limit_bytes(void)
{
    size_t limit = SIZE_MAX;
    struct rlimit r;
    if (getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
        limit = (size_t)r.rlim_cur / 2;
    if (getrlimit(RLIMIT_FSIZE, &r) == 0 && r.rlim_cur != RLIM_INFINITY &&
        (size_t)r.rlim_cur < limit)
        limit = (size_t)r.rlim_cur;
    return limit;
}

/* The heap to begin with; *fixed tells that it was asked for and may not shrink. */
static ls_status choose_heap(size_t local_size, size_t *heap, int *fixed)
{
    size_t asked = 0;
    LSI_TRY(lsi_env_size("LOCKSTEP_HEAP", &asked));
    *fixed = asked > 0;
    if (*fixed) {
        if (asked > HEAPS_MAX / local_size)
            return lsi_fail(LS_ERR_CONFIG, "set a smaller LOCKSTEP_HEAP", what_create,
                            "LOCKSTEP_HEAP is %zu bytes a rank, at most %zu are possible", asked,
                            HEAPS_MAX / local_size);
        *heap = round_up(asked);
        return LS_OK;
    }

    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    *heap = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : (size_t)4 << 30;
    if (*heap > HEAPS_MAX / local_size)
        *heap = HEAPS_MAX / local_size;
    *heap = round_up(*heap > HEAP_MIN ? *heap : HEAP_MIN);
    return LS_OK;
}

/* Size the file and map it, with smaller heaps when a limit forbids the wanted one. */
static ls_status size_and_map(size_t local_size, lsi_host *host, size_t *heap_bytes)
{
    size_t heap = 0, limit = limit_bytes();
    int fixed = 0;
    LSI_TRY(choose_heap(local_size, &heap, &fixed));
    for (;; heap = round_up(heap / 2 > HEAP_MIN ? heap / 2 : HEAP_MIN)) {
        lay_out(local_size, heap, host);
        if (host->bytes <= limit) {
            if (ftruncate(host->fd, (off_t)host->bytes) != 0)
                return lsi_fail_errno(what_create, "ftruncate to %zu bytes", host->bytes);
            host->base = lsi_pages_map(host->fd, host->bytes);
            if (host->base)
                break;
        }
        if (fixed || heap == HEAP_MIN)
            return lsi_fail(LS_ERR_NOMEM,
                            "set a smaller LOCKSTEP_HEAP, or raise the limit: ulimit -v",
                            what_create,
                            "%zu MiB of address space for %zu ranks with heaps of %zu MiB are not "
                            "to be had",
                            host->bytes >> 20, local_size, heap >> 20);
    }
    *heap_bytes = heap;
    return LS_OK;
}

ls_status lsi_host_create(int size, int first_rank, int local_size, lsi_host *out)
{
    if (size < 1 || size > LSI_MAX_RANKS || local_size < 1 || first_rank < 0 ||
        first_rank > size - local_size)
        return lsi_fail(LS_ERR_INVALID, NULL, what_create, "ranks %d to %d of %d (at most %d)",
                        first_rank, first_rank + local_size - 1, size, LSI_MAX_RANKS);

    lsi_host host = {.fd = lsi_memfile_create("lockstep-segment", MFD_CLOEXEC)};
    size_t heap_bytes = 0;
    ls_status status;
    if (host.fd < 0)
        return lsi_fail_errno(what_create, "a memory file");
    status = size_and_map((size_t)local_size, &host, &heap_bytes);
    if (status != LS_OK)
        goto close_file;
    if (fcntl(host.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        status = lsi_fail_errno(what_create, "sealing");
        goto unmap;
    }
    advise(&host);

    host.block = (lsi_host_block *)(void *)host.base;
    host.block->version = LSI_HOST_VERSION;
    host.block->size = (uint32_t)size;
    host.block->first_rank = (uint32_t)first_rank;
    host.block->local_size = (uint32_t)local_size;
    host.block->launcher = (int32_t)getpid();
    host.block->cores = lsi_cores_usable();
    host.block->heap_bytes = heap_bytes;
    host.block->magic = LSI_HOST_MAGIC;
    *out = host;
    return LS_OK;

unmap:
    munmap(host.base, host.bytes);
close_file:
    close(host.fd);
    return status;
}

/* Everything of the header that the layout and the loops over ranks rely on. */
static int header_is_sound(const lsi_host_block *head, size_t file_bytes, lsi_host *host)
{
    if (head->magic != LSI_HOST_MAGIC || head->version != LSI_HOST_VERSION || head->cores < 1)
        return 0;
    if (head->size < 1 || head->size > LSI_MAX_RANKS || head->local_size < 1 ||
        head->local_size > head->size || head->first_rank > head->size - head->local_size)
        return 0;
    if (head->heap_bytes % LSI_LARGE_PAGE ||
        head->heap_bytes > HEAPS_MAX / head->local_size + LSI_LARGE_PAGE)
        return 0;
    lay_out(head->local_size, head->heap_bytes, host);
    return host->bytes == file_bytes;
}

ls_status lsi_host_map(int fd, lsi_host *out)
{
    struct stat info;
    lsi_host_block head;
    lsi_host host = {.fd = fd};
    if (fstat(fd, &info) != 0)
        return lsi_fail_errno(what_map, "descriptor %d", fd);
    ssize_t got = pread(fd, &head, offsetof(lsi_host_block, epoch), 0);
    if (got != (ssize_t)offsetof(lsi_host_block, epoch) || info.st_size <= 0 ||
        !header_is_sound(&head, (size_t)info.st_size, &host))
        return lsi_fail(LS_ERR_CONFIG, "do launcher and library have the same version?", what_map,
                        "descriptor %d is not a host segment of version %u", fd, LSI_HOST_VERSION);

    host.base = lsi_pages_map(fd, host.bytes);
    if (!host.base && errno == ENOMEM)
        return lsi_fail(LS_ERR_NOMEM, "set a smaller LOCKSTEP_HEAP, or raise the limit: ulimit -v",
                        what_map, "%zu MiB of address space are not to be had", host.bytes >> 20);
    if (!host.base)
        return lsi_fail_errno(what_map, "mmap of %zu bytes", host.bytes);
    host.block = (lsi_host_block *)(void *)host.base;
    advise(&host);
    *out = host;
    return LS_OK;
}

void lsi_host_unmap(lsi_host *host)
{
    if (!host || !host->base)
        return;
    munmap(host->base, host->bytes);
    close(host->fd);
    *host = (lsi_host){.fd = -1};
}

/* Become the one who writes the cause of death. The claim is short; whoever took it and was
 * killed meanwhile is overtaken, so that no death is ever lost. */
static int claim_cause(lsi_host_rank *rank)
{
    uint32_t free_claim = 0;
    if (atomic_compare_exchange_strong(&rank->claimed, &free_claim, 1))
        return 1;
    uint64_t until = lsi_now_ns() + CLAIM_WAIT_NS;
    while (atomic_load(&rank->state) != LSI_RANK_DEAD) {
        if (lsi_now_ns() > until)
            return 1;
    }
    return 0;
}

void lsi_host_mark_dead(lsi_host_block *block, int rank, const char *cause)
{
    if (rank < 0 || (uint32_t)rank >= block->size)
        return;
    lsi_host_rank *r = &block->ranks[rank];
    uint32_t state = atomic_load(&r->state);
    if (state == LSI_RANK_LEFT || state == LSI_RANK_DEAD || !claim_cause(r))
        return;
    snprintf(r->cause, sizeof r->cause, "%s", cause);
    r->order = atomic_load(&block->epoch);

    state = atomic_load(&r->state);
    do {
        if (state == LSI_RANK_LEFT || state == LSI_RANK_DEAD)
            return; /* it was faster */
    } while (!atomic_compare_exchange_weak(&r->state, &state, LSI_RANK_DEAD));
    atomic_fetch_add(&block->epoch, 1);
    lsi_host_ring_all(block);
}

int lsi_host_first_dead(const lsi_host_block *block, const int *ranks, int count)
{
    int first = -1;
    for (int i = 0; i < count; i++) {
        const lsi_host_rank *r = &block->ranks[ranks[i]];
        if (atomic_load_explicit(&r->state, memory_order_acquire) == LSI_RANK_DEAD &&
            (first < 0 || (int32_t)(r->order - block->ranks[ranks[first]].order) < 0))
            first = i;
    }
    return first;
}

static void ring_local(lsi_host_rank *rank)
{
    if (!atomic_load_explicit(&rank->asleep, memory_order_relaxed))
        return;
    atomic_fetch_add(&rank->doorbell, 1);
    /* Not FUTEX_PRIVATE: the sleeper is in another process. */
    syscall(SYS_futex, &rank->doorbell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void lsi_host_ring_all(lsi_host_block *block)
{
    /* What was published before must be visible before `asleep` is read: the sleeper does the
     * mirror image (asleep, fence, look again), so one of the two sees the other. */
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < block->local_size; i++)
        ring_local(&block->ranks[block->first_rank + i]);
}

void lsi_host_ring(lsi_host_block *block, int rank)
{
    if (rank < (int)block->first_rank || rank >= (int)(block->first_rank + block->local_size))
        return;
    atomic_thread_fence(memory_order_seq_cst);
    ring_local(&block->ranks[rank]);
}

/* Counts what the program it is part of allocates while `counting` is set: malloc, its sisters and
 * mmap are replaced, so include this in one file of an executable. Under a sanitizer, which has a
 * malloc of its own, nothing is counted. */
#ifndef TESTS_COUNT_ALLOCATIONS_H
#define TESTS_COUNT_ALLOCATIONS_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int counting, allocations;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

static void count_allocation(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed))
        atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t bytes)
{
    count_allocation();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    count_allocation();
    return __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    count_allocation();
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    count_allocation();
    return __libc_memalign(align, bytes);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    count_allocation();
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}
#endif

#endif

/* The heap over a range: alignment, zeroing, coalescing, giving pages back; and random use
 * against a model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/heap.h"

#define MIB ((size_t)1 << 20)
#define RANGE (64 * MIB)

static char *mapping, *range; /* the range is aligned to 2 MiB */

static int map(void **state)
{
    const int shared = *state ? MAP_PRIVATE : MAP_SHARED;
    mapping = mmap(NULL, RANGE + 2 * MIB, PROT_READ | PROT_WRITE, shared | MAP_ANONYMOUS, -1, 0);
    range = mapping + (-(uintptr_t)mapping & (2 * MIB - 1));
    return mapping == MAP_FAILED;
}

static int unmap(void **state)
{
    (void)state;
    return munmap(mapping, RANGE + 2 * MIB);
}

static int all_zero(const char *p, size_t bytes)
{
    return bytes == 0 || (p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
}

static size_t resident(void)
{
    static unsigned char pages[RANGE / 4096];
    assert_int_equal(mincore(range, RANGE, pages), 0);
    size_t n = 0;
    for (size_t i = 0; i < sizeof pages; i++)
        n += pages[i] & 1;
    return n * 4096;
}

static void *must_alloc(lsi_heap *heap, size_t bytes, size_t align)
{
    void *p = NULL;
    assert_int_equal(lsi_heap_alloc(heap, bytes, align, &p), LS_OK);
    assert_true(lsi_heap_owns(heap, p, bytes));
    return p;
}

static void test_alignment(void **state)
{
    (void)state;
    lsi_heap *heap = NULL;
    assert_int_equal(lsi_heap_create(range + 8, RANGE - 8, &heap), LS_OK); /* an odd base */
    const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 2 * MIB - 1, 2 * MIB, 5 * MIB + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uintptr_t p = (uintptr_t)must_alloc(heap, sizes[i], 0);
        assert_int_equal(p % (sizes[i] >= 2 * MIB ? 2 * MIB : 64), 0);
    }
    for (size_t align = 1; align <= 4 * MIB; align *= 2)
        assert_int_equal((uintptr_t)must_alloc(heap, 100, align) % align, 0);
    void *p = &p;
    assert_int_equal(lsi_heap_alloc(heap, 1, 3, &p), LS_ERR_INVALID);
    assert_ptr_equal(p, &p);
    lsi_heap_destroy(heap);
}

static void test_owns(void **state)
{
    (void)state;
    lsi_heap *heap = NULL;
    assert_int_equal(lsi_heap_create(range, MIB, &heap), LS_OK);
    assert_true(lsi_heap_owns(heap, range, MIB));
    assert_true(lsi_heap_owns(heap, range + MIB, 0));
    assert_false(lsi_heap_owns(heap, range, MIB + 1));
    assert_false(lsi_heap_owns(heap, range - 1, 1));
    assert_false(lsi_heap_owns(heap, range + 1, SIZE_MAX));
    assert_false(lsi_heap_owns(heap, &heap, 1));
    lsi_heap_destroy(heap);
}

static void test_limits(void **state)
{
    (void)state;
    lsi_heap *heap = NULL;
    assert_int_equal(lsi_heap_create(range, 10, &heap), LS_ERR_INVALID);
    assert_int_equal(lsi_heap_create(NULL, MIB, &heap), LS_ERR_INVALID);
    assert_int_equal(lsi_heap_create(range, 8 * MIB, &heap), LS_OK);
    void *p = NULL;
    assert_int_equal(lsi_heap_alloc(heap, 8 * MIB + 1, 0, &p), LS_ERR_NOMEM);
    assert_int_equal(lsi_heap_alloc(heap, SIZE_MAX, 0, &p), LS_ERR_NOMEM);
    assert_non_null(strstr(ls_last_error(), "LOCKSTEP_HEAP"));

    /* Large blocks take any place when there is none at 2 MiB. */
    must_alloc(heap, 4 * MIB + 64, 0);
    p = must_alloc(heap, 4 * MIB - 64, 0);
    assert_ptr_equal(p, range + 4 * MIB + 64);
    assert_int_equal(lsi_heap_used(heap), 8 * MIB);
    void *q = NULL;
    assert_int_equal(lsi_heap_alloc(heap, 1, 0, &q), LS_ERR_NOMEM);
    assert_null(q);
    lsi_heap_free(heap, p);
    assert_ptr_equal(must_alloc(heap, 64, 0), p);
    lsi_heap_destroy(heap);
    lsi_heap_destroy(NULL);
}

static void test_coalescing(void **state)
{
    (void)state;
    lsi_heap *heap = NULL;
    assert_int_equal(lsi_heap_create(range, 4096, &heap), LS_OK);
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int k = 0; k < 6; k++) {
        char *p[3];
        for (int i = 0; i < 3; i++) {
            p[i] = must_alloc(heap, 1024, 0);
            assert_ptr_equal(p[i], range + 1024 * i);
            assert_true(all_zero(p[i], 1024));
            memset(p[i], 0xff, 1024);
        }
        for (int i = 0; i < 3; i++)
            lsi_heap_free(heap, p[orders[k][i]]);
        assert_int_equal(lsi_heap_used(heap), 0);
        char *all = must_alloc(heap, 4096, 0); /* one piece again, and clean */
        assert_true(all_zero(all, 4096));
        lsi_heap_free(heap, all);
    }
    lsi_heap_destroy(heap);
}

static void test_foreign_free(void **state)
{
    (void)state;
    lsi_heap *heap = NULL;
    assert_int_equal(lsi_heap_create(range, MIB, &heap), LS_OK);
    char *p = must_alloc(heap, 256, 0);
    lsi_heap_free(heap, NULL);
    lsi_heap_free(heap, p + 64);
    lsi_heap_free(heap, range + 4096);
    lsi_heap_free(heap, &heap);
    assert_int_equal(lsi_heap_used(heap), 256);
    lsi_heap_free(heap, p);
    lsi_heap_free(heap, p);
    assert_int_equal(lsi_heap_used(heap), 0);
    lsi_heap_destroy(heap);
}

/* Fresh memory is not touched by allocating it; large blocks return their pages. */
static void test_pages(void **state)
{
    (void)state;
    lsi_heap *heap = NULL;
    assert_int_equal(lsi_heap_create(range, RANGE, &heap), LS_OK);
    char *small = must_alloc(heap, 100, 0), *large = must_alloc(heap, 16 * MIB + 100, 4096);
    assert_int_equal(resident(), 0);
    memset(small, 1, 100);
    memset(large, 1, 16 * MIB + 100);
    assert_true(resident() >= 16 * MIB);
    lsi_heap_free(heap, large);
    assert_true(resident() <= 2 * MIB);
    char *again = must_alloc(heap, 20 * MIB, 0);
    assert_true(resident() <= 2 * MIB); /* known to be zero: not cleared */
    assert_true(all_zero(again, 20 * MIB));
    assert_int_equal(small[99], 1);
    lsi_heap_destroy(heap);
}

/* Random use: blocks never overlap, arrive zeroed, keep their contents. */
static void test_random(void **state)
{
    (void)state;
    lsi_heap *heap = NULL;
    assert_int_equal(lsi_heap_create(range, RANGE, &heap), LS_OK);
    struct {
        unsigned char *p;
        size_t bytes;
    } held[40] = {0};
    srand(7);
    for (int step = 0; step < 4000; step++) {
        const int i = rand() % 40;
        const unsigned char mark = (unsigned char)(i + 1);
        if (held[i].p) {
            for (size_t j = 0; j < held[i].bytes; j += 37)
                assert_int_equal(held[i].p[j], mark);
            lsi_heap_free(heap, held[i].p);
            held[i].p = NULL;
            continue;
        }
        const size_t bytes = (size_t)rand() % (rand() % 8 ? 20000 : 3 * MIB) + 1;
        void *p = NULL;
        if (lsi_heap_alloc(heap, bytes, (size_t)1 << rand() % 14, &p) != LS_OK)
            continue;
        assert_true(all_zero(p, bytes));
        memset(p, mark, bytes);
        held[i].p = p;
        held[i].bytes = bytes;
    }
    for (int i = 0; i < 40; i++)
        lsi_heap_free(heap, held[i].p);
    assert_int_equal(lsi_heap_used(heap), 0);
    assert_true(all_zero(must_alloc(heap, RANGE, 0), RANGE));
    lsi_heap_destroy(heap);
}

int main(void)
{
    static int private_mapping = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_alignment, map, unmap),
        cmocka_unit_test_setup_teardown(test_owns, map, unmap),
        cmocka_unit_test_setup_teardown(test_limits, map, unmap),
        cmocka_unit_test_setup_teardown(test_coalescing, map, unmap),
        cmocka_unit_test_setup_teardown(test_foreign_free, map, unmap),
        cmocka_unit_test_setup_teardown(test_pages, map, unmap),
        cmocka_unit_test_setup_teardown(test_random, map, unmap),
        {"test_random_private", test_random, map, unmap, &private_mapping},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

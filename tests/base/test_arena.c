/* The arena: alignment, separate blocks, and rounds that need no memory from the system. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"

static unsigned char *must_alloc(lsi_arena *arena, size_t bytes)
{
    void *p = NULL;
    assert_int_equal(lsi_arena_alloc(arena, bytes, &p), LS_OK);
    assert_int_equal((uintptr_t)p % LSI_ARENA_ALIGN, 0);
    return p;
}

static void test_blocks(void **state)
{
    (void)state;
    lsi_arena *arena = NULL;
    assert_int_equal(lsi_arena_create(0, &arena), LS_OK);
    assert_int_equal(lsi_arena_held(arena), 0);
    unsigned char *blocks[300];
    for (int round = 0; round < 3; round++) {
        size_t sum = 0;
        for (int i = 0; i < 300; i++) {
            const size_t bytes = (size_t)(i * i) % 5000;
            blocks[i] = must_alloc(arena, bytes);
            memset(blocks[i], i & 255, bytes);
            sum += bytes;
        }
        for (int i = 0; i < 300; i++) {
            for (size_t j = 0; j < (size_t)(i * i) % 5000; j++)
                assert_int_equal(blocks[i][j], i & 255);
        }
        assert_true(lsi_arena_used(arena) >= sum);
        assert_true(lsi_arena_held(arena) >= lsi_arena_used(arena));
        lsi_arena_reset(arena);
        assert_int_equal(lsi_arena_used(arena), 0);
    }
    lsi_arena_destroy(arena);
    lsi_arena_destroy(NULL);
}

/* After one round, a round of the same total gets all of its memory from what is held, also in
 * another order. */
static void test_rounds(void **state)
{
    (void)state;
    lsi_arena *arena = NULL;
    assert_int_equal(lsi_arena_create(1000, &arena), LS_OK);
    assert_int_equal(lsi_arena_held(arena), 1024);
    for (int i = 0; i < 100; i++)
        must_alloc(arena, (size_t)i * 1000);
    lsi_arena_reset(arena);
    const size_t held = lsi_arena_held(arena);
    for (int round = 0; round < 5; round++) {
        const struct mallinfo2 before = mallinfo2();
        for (int i = 0; i < 100; i++)
            must_alloc(arena, (size_t)(round % 2 ? i : 99 - i) * 1000);
        lsi_arena_reset(arena);
        const struct mallinfo2 after = mallinfo2();
        assert_int_equal(before.uordblks, after.uordblks);
        assert_int_equal(before.hblks, after.hblks);
        assert_int_equal(lsi_arena_held(arena), held);
    }
    lsi_arena_destroy(arena);
}

static void test_failure(void **state)
{
    (void)state;
    lsi_arena *arena = NULL;
    assert_int_equal(lsi_arena_create(SIZE_MAX, &arena), LS_ERR_NOMEM);
    assert_null(arena);
    assert_int_equal(lsi_arena_create(64, &arena), LS_OK);
    void *p = NULL;
    assert_int_equal(lsi_arena_alloc(arena, SIZE_MAX, &p), LS_ERR_NOMEM);
    assert_int_equal(lsi_arena_alloc(arena, SIZE_MAX - 200, &p), LS_ERR_NOMEM);
    assert_null(p);
    must_alloc(arena, 64); /* still usable */
    lsi_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

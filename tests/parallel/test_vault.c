/* The vault's memory: made, found again by its descriptor, and made of what was touched before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "parallel/vault.h"

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)

static lsi_vault_shape shape_of(size_t mib_of_weights, uint64_t slots)
{
    return (lsi_vault_shape){.elements = mib_of_weights * MIB / sizeof(float),
                             .state_bytes = 3 * MIB,
                             .buffers = 1000,
                             .runs = 700,
                             .slots = slots,
                             .slot_bytes = 4 * MIB};
}

/* Pages of the first `bytes` that are there, whoever has touched them. */
static size_t resident(const lsi_vault *v, size_t bytes)
{
    static unsigned char is_there[64 * MIB / PAGE];
    size_t n = 0;
    assert_true(bytes <= v->bytes && bytes / PAGE <= sizeof is_there);
    assert_int_equal(mincore(v->head, bytes, is_there), 0);
    for (size_t i = 0; i < bytes / PAGE; i++)
        n += is_there[i] & 1;
    return n;
}

static void all_are_zero(const void *memory, size_t bytes)
{
    const char *at = memory;
    assert_true(bytes > 1 && at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0);
}

/* What a neighbour finds in it. */
static void is_shared(const lsi_vault *v, const lsi_vault_shape *shape)
{
    lsi_vault *other;
    assert_int_equal(lsi_vault_map(dup(v->fd), shape, &other), LS_OK);
    char *mine = lsi_vault_slot(v, (int)shape->slots - 1),
         *theirs = lsi_vault_slot(other, (int)shape->slots - 1);
    mine[shape->slot_bytes - 1] = 77;
    v->weights[shape->elements - 1] = 0.5f;
    assert_int_equal(theirs[shape->slot_bytes - 1], 77);
    assert_true(other->weights[shape->elements - 1] == 0.5f);
    lsi_vault_close(other);
}

static void test_plain(void **unused)
{
    (void)unused;
    const lsi_vault_shape shape = shape_of(5, 2), larger = shape_of(6, 2);
    lsi_vault_shape changed = shape;
    lsi_vault_stock none = {0};
    lsi_vault *v, *other;
    assert_int_equal(lsi_vault_stock_touch(&none), 0);
    assert_int_equal(lsi_vault_create(&shape, &none, &v), LS_OK);
    is_shared(v, &shape);
    const int fd = dup(v->fd);
    assert_int_equal(lsi_vault_map(fd, &larger, &other), LS_ERR_PROTOCOL);
    changed.runs--;
    assert_int_equal(lsi_vault_map(fd, &changed, &other), LS_ERR_PROTOCOL);
    lsi_vault_close(v);
    assert_int_equal(lsi_vault_map(fd, &shape, &v), LS_OK); /* it lives on */
    assert_true(v->weights[shape.elements - 1] == 0.5f);
    lsi_vault_close(v);
}

/* Vaults that are larger than the stock, as large, and smaller. */
static void test_stock(void **unused)
{
    (void)unused;
    static const struct {
        size_t mib;
        uint64_t slots;
    } cases[] = {{30, 2}, {5, 1}, {2, 1}, {40, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lsi_vault_shape shape = shape_of(cases[i].mib, cases[i].slots);
        lsi_vault_stock stock = {0};
        lsi_vault *v;
        int calls = 0;
        lsi_vault_stock_open(&stock, 20 * MIB); /* not touched: it is not there */
        assert_int_equal(lsi_vault_create(&shape, &stock, &v), LS_OK);
        assert_true(resident(v, 4 * MIB) < 4 * MIB / PAGE);
        lsi_vault_close(v);
        lsi_vault_stock_open(&stock, 20 * MIB);
        assert_non_null(stock.base);
        while (lsi_vault_stock_touch(&stock))
            calls++;
        assert_true(calls > 1); /* who waits looks up in between */
        assert_int_equal(lsi_vault_create(&shape, &stock, &v), LS_OK);
        assert_null(stock.base); /* used up */
        const size_t bytes = v->bytes < 20 * MIB ? v->bytes : 20 * MIB;
        assert_int_equal(resident(v, bytes), bytes / PAGE);
        all_are_zero(v->weights, shape.elements * sizeof(float) + shape.state_bytes);
        all_are_zero(lsi_vault_slot(v, 0), shape.slots * shape.slot_bytes);
        assert_int_equal(v->head->filled, LSI_VAULT_EMPTY);
        is_shared(v, &shape);
        lsi_vault_close(v);
    }
}

/* One that nobody uses, and one that could not be had. */
static void test_stock_is_a_help_only(void **unused)
{
    (void)unused;
    const lsi_vault_shape shape = shape_of(5, 1);
    lsi_vault_stock stock = {0};
    lsi_vault *v;
    lsi_vault_stock_open(&stock, 20 * MIB);
    lsi_vault_stock_open(&stock, 10 * MIB); /* another one instead */
    assert_int_equal(stock.bytes, 10 * MIB);
    assert_int_equal(lsi_vault_stock_touch(&stock), 1);
    lsi_vault_stock_close(&stock);
    assert_null(stock.base);
    lsi_vault_stock_open(&stock, SIZE_MAX / 4);
    assert_null(stock.base);
    assert_int_equal(lsi_vault_stock_touch(&stock), 0);
    assert_int_equal(lsi_vault_create(&shape, &stock, &v), LS_OK);
    is_shared(v, &shape);
    lsi_vault_close(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_stock),
        cmocka_unit_test(test_stock_is_a_help_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

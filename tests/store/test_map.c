/* The map alone: order, versions, conditions, leases under a made-up clock, limits; and random use
 * against an obvious model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/map.h"
#include "store/store.h"

#define TOLD_MAX 512
#define KEY_TEXT 16

/* What the listener was told: "+key=value" or "-key", a space after each. */
static char told[TOLD_MAX * 32];
static uint64_t told_version;

static void listen(void *arg, const lsi_map_entry *entry, int deleted)
{
    (void)arg;
    assert_true(entry->version > told_version); /* strictly growing */
    told_version = entry->version;
    size_t used = strlen(told);
    if (deleted)
        snprintf(told + used, sizeof told - used, "-%s ", entry->key);
    else
        snprintf(told + used, sizeof told - used, "+%s=%.*s ", entry->key, (int)entry->bytes,
                 (const char *)entry->value);
}

static int create(void **state)
{
    told[0] = '\0';
    told_version = 0;
    lsi_map *map = NULL;
    if (lsi_map_create(listen, NULL, &map) != LS_OK)
        return -1;
    *state = map;
    return 0;
}

static int destroy(void **state)
{
    lsi_map_destroy(*state);
    return 0;
}

static void assert_told(const char *words)
{
    assert_string_equal(told, words);
    told[0] = '\0';
}

static uint64_t put(lsi_map *map, const char *key, const char *value, uint64_t lease)
{
    uint64_t version = 0;
    assert_int_equal(lsi_map_put(map, key, value, strlen(value), lease, &version), LS_OK);
    assert_int_equal(lsi_map_find(map, key)->version, version);
    return version;
}

static void collect(void *arg, const lsi_map_entry *entry)
{
    strncat(arg, entry->key, 63);
    strncat(arg, " ", 2);
}

static void assert_keys(lsi_map *map, const char *prefix, const char *words)
{
    char keys[4096] = "";
    lsi_map_each(map, prefix, collect, keys);
    assert_string_equal(keys, words);
}

static void keys_are_in_order(void **state)
{
    lsi_map *map = *state;
    put(map, "b", "2", 0);
    put(map, "a/10", "3", 0);
    put(map, "a", "1", 0);
    put(map, "a/2", "4", 0);
    put(map, "a0", "5", 0);
    assert_keys(map, "", "a a/10 a/2 a0 b ");
    assert_keys(map, "a/", "a/10 a/2 ");
    assert_keys(map, "a/2", "a/2 ");
    assert_keys(map, "c", "");
    assert_keys(map, "a/2/", "");
    assert_null(lsi_map_find(map, "a/"));
    assert_told("+b=2 +a/10=3 +a=1 +a/2=4 +a0=5 ");
}

static void versions_grow(void **state)
{
    lsi_map *map = *state;
    assert_int_equal(put(map, "a", "1", 0), 1);
    assert_int_equal(put(map, "b", "1", 0), 2);
    assert_int_equal(put(map, "a", "1", 0), 3); /* the same value is a change too */
    assert_int_equal(lsi_map_remove(map, "b"), LS_OK);
    assert_int_equal(told_version, 4); /* deletions take one as well */
    assert_int_equal(put(map, "b", "", 0), 5);
    assert_int_equal(lsi_map_find(map, "b")->bytes, 0);
    assert_non_null(lsi_map_find(map, "b")->value);
    assert_told("+a=1 +b=1 +a=1 -b +b= ");
    assert_int_equal(lsi_map_remove(map, "c"), LS_ERR_NOT_FOUND);
    assert_told("");
}

static void compares_before_it_puts(void **state)
{
    lsi_map *map = *state;
    uint64_t first = 0, v = 77;
    assert_int_equal(lsi_map_compare_and_put(map, "k", 5, "x", 1, 0, &v), LS_ERR_CONFLICT);
    assert_int_equal(lsi_map_compare_and_put(map, "k", 0, "x", 1, 0, &first), LS_OK);
    assert_int_equal(lsi_map_compare_and_put(map, "k", 0, "y", 1, 0, &v), LS_ERR_CONFLICT);
    assert_int_equal(lsi_map_compare_and_put(map, "k", first + 1, "y", 1, 0, &v), LS_ERR_CONFLICT);
    assert_int_equal(v, 77);
    assert_told("+k=x ");
    assert_int_equal(lsi_map_compare_and_put(map, "k", first, "y", 1, 0, &v), LS_OK);
    assert_true(v > first);
    assert_int_equal(lsi_map_compare_and_put(map, "k", first, "z", 1, 0, &v), LS_ERR_CONFLICT);
    assert_int_equal(lsi_map_remove(map, "k"), LS_OK);
    assert_int_equal(lsi_map_compare_and_put(map, "k", v, "z", 1, 0, &v), LS_ERR_CONFLICT);
    assert_int_equal(lsi_map_compare_and_put(map, "k", 0, "z", 1, 0, &v), LS_OK);
    assert_told("+k=y -k +k=z ");
}

static void leases_end(void **state)
{
    lsi_map *map = *state;
    uint64_t one, two;
    assert_int_equal(lsi_map_lease(map, 1, 10, 100, &one), LS_OK);
    assert_int_equal(lsi_map_lease(map, 2, 20, 100, &two), LS_OK);
    assert_true(one != 0 && two != 0 && one != two);
    put(map, "c", "1", one);
    put(map, "a", "1", one);
    put(map, "b", "2", two);
    put(map, "d", "0", 0);
    told[0] = '\0';

    lsi_map_expire(map, 109.9);
    assert_told("");
    assert_int_equal(lsi_map_keep(map, one, 109), LS_OK);
    lsi_map_expire(map, 118.9);
    assert_told("");
    lsi_map_expire(map, 119);
    assert_told("-a -c ");
    assert_int_equal(lsi_map_keep(map, one, 119), LS_ERR_NOT_FOUND);
    assert_int_equal(lsi_map_revoke(map, one), LS_ERR_NOT_FOUND);
    uint64_t v;
    assert_int_equal(lsi_map_put(map, "e", "", 0, one, &v), LS_ERR_NOT_FOUND);
    assert_null(lsi_map_find(map, "e"));
    assert_int_equal(lsi_map_revoke(map, two), LS_OK);
    assert_told("-b ");
    lsi_map_expire(map, 1e9);
    assert_keys(map, "", "d ");
}

static void owners_take_their_leases_with_them(void **state)
{
    lsi_map *map = *state;
    uint64_t a, b, c;
    assert_int_equal(lsi_map_lease(map, 7, 1e6, 0, &a), LS_OK);
    assert_int_equal(lsi_map_lease(map, 8, 1e6, 0, &b), LS_OK);
    assert_int_equal(lsi_map_lease(map, 7, 1e6, 0, &c), LS_OK);
    put(map, "3", "", c);
    put(map, "2", "", b);
    put(map, "1", "", a);
    told[0] = '\0';
    lsi_map_disown(map, 9);
    assert_told("");
    lsi_map_disown(map, 7);
    assert_told("-1 -3 ");
    assert_int_equal(lsi_map_keep(map, b, 0), LS_OK);
}

static void a_put_moves_a_key_to_another_lease(void **state)
{
    lsi_map *map = *state;
    uint64_t one, two;
    assert_int_equal(lsi_map_lease(map, 1, 10, 0, &one), LS_OK);
    assert_int_equal(lsi_map_lease(map, 1, 10, 0, &two), LS_OK);
    put(map, "a", "", one);
    put(map, "a", "", two);
    put(map, "b", "", one);
    put(map, "b", "", 0);
    put(map, "c", "", one);
    told[0] = '\0';
    assert_int_equal(lsi_map_revoke(map, one), LS_OK);
    assert_told("-c ");
    assert_int_equal(lsi_map_revoke(map, two), LS_OK);
    assert_told("-a ");
    assert_keys(map, "", "b ");
}

/* Full means: refused, nothing changed; and what is removed can be used again. */
static void is_bounded(void **state)
{
    lsi_map *map = *state;
    uint8_t *big = calloc(1, LSI_STORE_VALUE_MAX);
    char key[32];
    uint64_t v;
    ls_status status = LS_OK;
    int n = 0;
    for (; status == LS_OK && n < 1000; n++) {
        snprintf(key, sizeof key, "k%03d", n);
        status = lsi_map_put(map, key, big, LSI_STORE_VALUE_MAX, 0, &v);
    }
    n--;
    assert_int_equal(status, LS_ERR_NOMEM);
    assert_int_equal((size_t)n, LSI_MAP_BYTES_MAX / LSI_STORE_VALUE_MAX - 1);
    assert_null(lsi_map_find(map, key));
    assert_int_equal(lsi_map_put(map, "k000", big, 1, 0, &v), LS_OK); /* smaller always fits */
    assert_int_equal(lsi_map_put(map, key, big, LSI_STORE_VALUE_MAX, 0, &v), LS_OK);
    assert_int_equal(lsi_map_put(map, "k000", big, LSI_STORE_VALUE_MAX, 0, &v), LS_ERR_NOMEM);
    assert_int_equal(lsi_map_find(map, "k000")->bytes, 1);

    for (int i = 1; i < n; i++) {
        snprintf(key, sizeof key, "k%03d", i);
        assert_int_equal(lsi_map_remove(map, key), LS_OK);
    }
    uint64_t lease, leases = 0;
    while (lsi_map_lease(map, 1, 1, 0, &lease) == LS_OK)
        leases++;
    assert_true(leases > 100000 && leases < LSI_MAP_BYTES_MAX / 16);
    /* a hundred thousand and more go in one pass, not in as many */
    lsi_map_disown(map, 1);
    assert_int_equal(lsi_map_lease(map, 1, 1, 0, &lease), LS_OK);
    free(big);
}

/* A model of 20 keys and 5 lease slots, 20000 random steps. */
enum { KEYS = 20, SLOTS = 5 };

typedef struct model {
    uint64_t version[KEYS]; /* 0: absent */
    uint64_t lease[KEYS];
    uint64_t slot[SLOTS];
    double expires[SLOTS];
} model;

static void end_slot(model *m, int s, uint64_t *latest)
{
    for (int k = 0; k < KEYS; k++) {
        if (m->slot[s] && m->version[k] && m->lease[k] == m->slot[s]) {
            m->version[k] = 0;
            ++*latest;
        }
    }
    m->slot[s] = 0;
}

static void model_step(lsi_map *map, model *m, uint64_t *latest, double now)
{
    int k = rand() % KEYS, s = rand() % SLOTS;
    char key[KEY_TEXT];
    uint64_t v = 0, lease = rand() % 2 ? m->slot[s] : 0;
    snprintf(key, sizeof key, "k%02d", k);
    switch (rand() % 6) {
    case 0:
    case 1: {
        int guess = rand() % 3;
        uint64_t expected = guess == 0 ? 0 : guess == 1 ? m->version[k] : *latest;
        ls_status status = lsi_map_compare_and_put(map, key, expected, key, 3, lease, &v);
        assert_int_equal(status, expected == m->version[k] ? LS_OK : LS_ERR_CONFLICT);
        if (status != LS_OK)
            return;
        break;
    }
    case 2:
        assert_int_equal(lsi_map_remove(map, key), m->version[k] ? LS_OK : LS_ERR_NOT_FOUND);
        *latest += m->version[k] != 0;
        m->version[k] = 0;
        return;
    case 3:
        if (!m->slot[s]) {
            assert_int_equal(lsi_map_lease(map, 1, 5, now, &m->slot[s]), LS_OK);
        } else if (rand() % 2) {
            assert_int_equal(lsi_map_revoke(map, m->slot[s]), LS_OK);
            end_slot(m, s, latest);
            return;
        } else {
            assert_int_equal(lsi_map_keep(map, m->slot[s], now), LS_OK);
        }
        m->expires[s] = now + 5;
        return;
    case 4:
        lsi_map_expire(map, now);
        for (s = 0; s < SLOTS; s++) {
            if (m->expires[s] <= now)
                end_slot(m, s, latest);
        }
        return;
    default: assert_int_equal(lsi_map_put(map, key, key, 3, lease, &v), LS_OK);
    }
    assert_int_equal(v, ++*latest);
    m->version[k] = v;
    m->lease[k] = lease;
}

static void ignore(void *arg, const lsi_map_entry *entry, int deleted)
{
    (void)deleted;
    uint64_t *count = arg;
    ++*count;
    assert_int_equal(entry->version, *count); /* each change told once, in order */
}

static void agrees_with_a_model(void **state)
{
    (void)state;
    srand(12345);
    uint64_t count = 0, latest = 0;
    model m = {0};
    lsi_map *map;
    assert_int_equal(lsi_map_create(ignore, &count, &map), LS_OK);
    for (int i = 0; i < 20000; i++) {
        model_step(map, &m, &latest, (double)i * 0.1);
        assert_int_equal(count, latest);
        for (int k = 0; k < KEYS; k++) {
            char key[KEY_TEXT];
            snprintf(key, sizeof key, "k%02d", k);
            const lsi_map_entry *entry = lsi_map_find(map, key);
            assert_int_equal(entry ? entry->version : 0, m.version[k]);
        }
    }
    lsi_map_destroy(map);
    lsi_map_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_are_in_order, create, destroy),
        cmocka_unit_test_setup_teardown(versions_grow, create, destroy),
        cmocka_unit_test_setup_teardown(compares_before_it_puts, create, destroy),
        cmocka_unit_test_setup_teardown(leases_end, create, destroy),
        cmocka_unit_test_setup_teardown(owners_take_their_leases_with_them, create, destroy),
        cmocka_unit_test_setup_teardown(a_put_moves_a_key_to_another_lease, create, destroy),
        cmocka_unit_test_setup_teardown(is_bounded, create, destroy),
        cmocka_unit_test(agrees_with_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

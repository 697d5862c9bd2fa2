/* Seats and tables as text: there and back, what is refused, and the sorted arrays of seats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "launch/seat.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- seats ---------------------------------------------------------------------------------- */

static void assert_same_seat(const lsi_seat *a, const lsi_seat *b)
{
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->ready, b->ready);
    assert_int_equal(a->busy, b->busy);
    assert_int_equal(a->leaving, b->leaving);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->brought, b->brought);
    assert_int_equal(a->fed, b->fed);
    assert_int_equal(a->hungry, b->hungry);
    assert_string_equal(a->address, b->address);
}

static void seats_there_and_back(void **state)
{
    (void)state;
    lsi_seat seats[] = {
        {.id = 0},
        {.id = 1, .generation = 3, .ready = 2, .busy = 0, .address = "127.0.0.1:4000"},
        {.id = 7, .generation = 4, .busy = 5, .leaving = 1, .address = "[fe80::1%eth0]:65535"},
        {.id = 8, .generation = 4, .ready = 1, .state = 4, .brought = 3, .address = "a:1"},
        {.id = 9, .generation = 4, .ready = 1, .hungry = 1, .address = "a:1"},
        {.id = UINT64_MAX,
         .generation = UINT64_MAX,
         .ready = LSI_MAX_RANKS,
         .busy = LSI_MAX_RANKS,
         .state = UINT64_MAX,
         .brought = UINT64_MAX,
         .fed = 1,
         .hungry = 1},
    };
    memset(seats[5].address, 'a', LSI_ADDR_MAX - 1);
    for (size_t i = 0; i < COUNT(seats); i++) {
        char text[LSI_SEAT_TEXT];
        lsi_seat out;
        memset(&out, 0xee, sizeof out);
        lsi_seat_print(&seats[i], text);
        assert_true(strlen(text) < LSI_SEAT_TEXT - 1);
        assert_int_equal(lsi_seat_parse(seats[i].id, text, &out), 1);
        assert_same_seat(&out, &seats[i]);
    }
}

static void seats_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "x",
        "1",
        "1 2",
        "1 2 3",
        "1 2 3 0",
        "1 2 3 0 4",
        "1 2 3 0 4 5",
        "1 2 3 0 4 5 0",
        "1 2 3 0 4 5 0 x",
        "1 -1 0 0 0 0 0 0",
        "1 0 -1 0 0 0 0 0",
        "1 257 0 0 0 0 0 0",
        "1 0 257 0 0 0 0 0",
        "1 a 0 0 0 0 0 0",
        "1 0 0 x 0 0 0 0",
        "1 0 0 0 y 0 0 0",
        "1 0 0 0 0 z 0 0",
        "1,2,3,4,5,6,7,8 a",
        "one 2 3 4 0 0 0 0 a",
        "0x1 2 3 4 0 0 0 0 a",
        "1 1.5 0 0 0 0 0 0 a",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        lsi_seat out = {.id = 77, .ready = 88};
        if (lsi_seat_parse(5, bad[i], &out))
            fail_msg("'%s' is taken for a seat", bad[i]);
        assert_int_equal(out.id, 77); /* untouched */
        assert_int_equal(out.ready, 88);
    }
}

/* An address that is too long is cut, never written beyond. */
static void long_address(void **state)
{
    (void)state;
    char text[LSI_ADDR_MAX + 300] = "1 2 3 0 0 0 0 0 ";
    lsi_seat out;
    memset(text + strlen(text), 'b', sizeof text - strlen(text) - 1);
    if (lsi_seat_parse(5, text, &out))
        assert_int_equal(strlen(out.address), LSI_ADDR_MAX - 1);
}

/* ---- tables --------------------------------------------------------------------------------- */

static void tables_there_and_back(void **state)
{
    (void)state;
    lsi_table tables[] = {
        {.generation = 1, .hosts = 1, .id = {0}, .size = {1}},
        {.generation = 9, .stop = 1, .hosts = 3, .id = {4, 9, 12}, .size = {3, 1, 200}},
        {.generation = UINT64_MAX, .hosts = LSI_MAX_HOSTS},
    };
    for (int h = 0; h < LSI_MAX_HOSTS; h++) {
        tables[2].id[h] = 1000000000u + (uint64_t)h;
        tables[2].size[h] = LSI_MAX_RANKS / LSI_MAX_HOSTS;
    }
    for (size_t i = 0; i < COUNT(tables); i++) {
        char text[LSI_MAX_HOSTS * 24];
        lsi_table out;
        memset(&out, 0xee, sizeof out);
        const size_t bytes = lsi_table_print(&tables[i], text);
        assert_int_equal(bytes, strlen(text));
        assert_int_equal(lsi_table_parse(tables[i].generation, text, &out), 1);
        assert_int_equal(out.generation, tables[i].generation);
        assert_int_equal(out.stop, tables[i].stop);
        assert_int_equal(out.hosts, tables[i].hosts);
        assert_memory_equal(out.id, tables[i].id, sizeof out.id);
        assert_memory_equal(out.size, tables[i].size, sizeof out.size);
    }
}

static void tables_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "0",
        "1",
        "0 ",
        "0 1",
        "0 1:",
        "0 1:0",
        "0 1:-1",
        "0 1:257",
        "0 :3",
        "0 x:3",
        "0 1:2 ",
        "0 1:2x",
        "0 1:2,2:2",
        " 1:2",
        "x 1:2",
        "0  1:2",
        "0 1: 2",
        "0 -1:2",
        "0 1:+2",
        "0 1:2 3",
        "0 1:2\n",
        "1:2",
        "0 1:200 2:200",
        "0 2:1 1:1",
        "0 1:1 1:1",
        "0 99999999999999999999:1",
        "0 1:99999999999999999999",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        lsi_table out = {.generation = 77};
        if (lsi_table_parse(5, bad[i], &out))
            fail_msg("'%s' is taken for a table", bad[i]);
        assert_int_equal(out.generation, 77);
    }
    char many[16 * (LSI_MAX_HOSTS + 1)] = "0";
    for (int h = 0; h <= LSI_MAX_HOSTS; h++)
        snprintf(many + strlen(many), sizeof many - strlen(many), " %d:1", h + 1);
    lsi_table out;
    assert_int_equal(lsi_table_parse(5, many, &out), 0);
    *strrchr(many, ' ') = 0; /* one host less, and there is room for all */
    assert_int_equal(lsi_table_parse(5, many, &out), 1);
    assert_int_equal(out.hosts, LSI_MAX_HOSTS);
}

/* ---- limits --------------------------------------------------------------------------------- */

static void limits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int least, most;
        const char *transport;
    } cases[] = {
        {"2 8 tcp", 2, 8, "tcp"},      {"1 256 shm", 1, 256, "shm"}, {"", 3, 5, "auto"},
        {"2", 3, 5, "auto"},           {"0 8 tcp", 3, 5, "auto"},    {"2 0 tcp", 3, 5, "auto"},
        {"2 257 tcp", 3, 5, "auto"},   {"x y tcp", 3, 5, "auto"},    {"2 8", 3, 5, "auto"},
        {"2 8 pigeons", 3, 5, "auto"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        static lsi_council c;
        c.least = 3;
        c.most = 5;
        memcpy(c.transport, "auto", 5);
        lsi_limits_parse(&c, cases[i].text);
        assert_int_equal(c.least, cases[i].least);
        assert_int_equal(c.most, cases[i].most);
        assert_string_equal(c.transport, cases[i].transport);
    }
}

/* ---- who is here, and who was ---------------------------------------------------------------- */

static lsi_council c;

static int clear(void **state)
{
    (void)state;
    memset(&c, 0, sizeof c);
    return 0;
}

static void put(uint64_t id, int ready)
{
    const lsi_seat seat = {.id = id, .ready = ready};
    lsi_seats_put(&c, &seat);
}

static void assert_seats(const lsi_seat *seats, int n, const char *ids)
{
    char text[LSI_MAX_HOSTS * 8] = "";
    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d:%d", i ? " " : "",
                 (int)seats[i].id, seats[i].ready);
    assert_string_equal(text, ids);
}

static void sorted(void **state)
{
    (void)state;
    put(5, 1);
    put(2, 1);
    put(9, 1);
    put(5, 4);
    assert_seats(c.seats, c.n_seats, "2:1 5:4 9:1");
    assert_int_equal(lsi_seats_drop(&c, 5), 1);
    assert_int_equal(lsi_seats_drop(&c, 5), 0);
    assert_int_equal(lsi_seats_drop(&c, 1), 0);
    assert_seats(c.seats, c.n_seats, "2:1 9:1");
    assert_seats(c.known, c.n_known, "2:1 5:4 9:1"); /* its store may be asked still */
    assert_int_equal(lsi_seats_drop(&c, 9), 1);
    assert_int_equal(lsi_seats_drop(&c, 2), 1);
    assert_int_equal(c.n_seats, 0);
}

static int knows(uint64_t id)
{
    for (int i = 0; i < c.n_known; i++)
        if (c.known[i].id == id)
            return 1;
    return 0;
}

/* More have come and gone than can be remembered: those who are here are. */
static void many_came_and_went(void **state)
{
    (void)state;
    put(1, 1);
    put(2, 1);
    for (uint64_t id = 3; id < 3 + 3 * LSI_MAX_HOSTS; id++) {
        put(id, 1);
        put(1, 1);
        put(2, 2);
        assert_true(knows(1) && knows(2) && knows(id));
        lsi_seats_drop(&c, id);
    }
    assert_int_equal(c.n_seats, 2);
    assert_int_equal(c.n_known, LSI_MAX_HOSTS);
}

/* As many as there can be, all of them here: saying something again forgets nobody. */
static void full_house(void **state)
{
    (void)state;
    for (int turn = 0; turn < 2; turn++)
        for (uint64_t id = 1; id <= LSI_MAX_HOSTS; id++)
            put(id, turn);
    assert_int_equal(c.n_seats, LSI_MAX_HOSTS);
    for (uint64_t id = 1; id <= LSI_MAX_HOSTS; id++)
        assert_true(knows(id));
    put(LSI_MAX_HOSTS + 1, 1); /* there is no room for it */
    assert_int_equal(c.n_seats, LSI_MAX_HOSTS);
    assert_int_equal(c.seats[LSI_MAX_HOSTS - 1].id, LSI_MAX_HOSTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seats_there_and_back),
        cmocka_unit_test(seats_refused),
        cmocka_unit_test(long_address),
        cmocka_unit_test(tables_there_and_back),
        cmocka_unit_test(tables_refused),
        cmocka_unit_test(limits),
        cmocka_unit_test_setup(sorted, clear),
        cmocka_unit_test_setup(many_came_and_went, clear),
        cmocka_unit_test_setup(full_house, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

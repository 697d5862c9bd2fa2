/* The rules by which generations begin, case by case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/decide.h"
#include "launch/seat.h"

enum { NOTHING, CHANGE, STOP, FORM, WAIT, LOOK, END };

/* What the council knows, and what follows. Seats: "ID:GENERATION:READY:BUSY", with an "L" behind
 * it for one that leaves, ":STATE:BROUGHT" if it has any, an "F" for one that has the data, an "H"
 * when those who wait there lack it. `table`: as the store has it, NULL: no generation yet. */
typedef struct situation {
    const char *name;
    int generation;
    const char *table, *seats;
    int least, most, hosts; /* 0: 1, all, as announced: 1 */
    int change;             /* asked for already */
    int stop, quorum_any, moved;
    const char *store, *join;
    double waited, short_s;
    int decision;
    const char *out, *why; /* of a generation that is formed; words of the reason */
} situation;

static const situation cases[] = {
    /* the first generation */
    {"alone", .seats = "0:0:2:0", .decision = FORM, .out = "0 0:2"},
    {"not at the gate yet", .seats = "0:0:0:0", .decision = WAIT, .why = ""},
    {"two announced, one here", .seats = "0:0:2:0", .hosts = 2, .decision = WAIT, .why = "1 of 2"},
    {"three announced, one here", .seats = "0:0:2:0", .hosts = 3, .decision = WAIT,
     .why = "2 of 3"},
    {"one has no workers yet", .seats = "0:0:2:0 1:0:0:0", .hosts = 2, .decision = WAIT},
    {"all here", .seats = "0:0:2:0 1:0:3:0", .hosts = 2, .decision = FORM, .out = "0 0:2 1:3"},
    {"more than announced", .seats = "0:0:1:0 1:0:1:0 2:0:1:0", .hosts = 2, .decision = FORM,
     .out = "0 0:1 1:1 2:1"},
    {"most at once", .seats = "0:0:2:0 1:0:3:0 2:0:1:0", .hosts = 3, .most = 4, .decision = FORM,
     .out = "0 0:2 1:2"},
    {"a host is late for long", .seats = "0:0:2:0", .hosts = 2, .waited = 1e6, .decision = WAIT},
    {"one leaves before it begins", .seats = "0:0:2:0 1:0:2:0L", .hosts = 2, .decision = WAIT,
     .why = "1 of 2"},
    {"all leave before it begins", .seats = "0:0:2:0L", .decision = WAIT},
    {"to be stopped before it begins", .seats = "0:0:2:0", .hosts = 2, .stop = 1, .decision = FORM,
     .out = "1 0:2"},

    /* a generation runs */
    {"running", 1, "0 0:2", "0:1:0:2", .decision = NOTHING},
    {"on its way in", 2, "0 0:2", "0:1:2:0", .decision = NOTHING},
    {"one of two on its way in", 2, "0 0:1 1:1", "0:2:0:1 1:1:1:0", .decision = NOTHING},
    {"one has come back, one is inside", 1, "0 0:1 1:1", "0:1:1:0 1:1:0:1", .decision = CHANGE},
    {"asked already", 1, "0 0:1 1:1", "0:1:1:0 1:1:0:1", .change = 1, .decision = NOTHING},
    {"a spare worker", 1, "0 0:2", "0:1:1:2", .decision = CHANGE},
    {"a spare worker, asked", 1, "0 0:2", "0:1:1:2", .change = 1, .decision = NOTHING},
    {"asked in the one before", 2, "0 0:2", "0:2:1:2", .change = 1, .decision = CHANGE},
    {"as many as may be", 1, "0 0:2", "0:1:1:2", .most = 2, .decision = NOTHING},
    {"a new host", 1, "0 0:2", "0:1:0:2 1:0:2:0", .decision = CHANGE},
    {"a new host without workers", 1, "0 0:2", "0:1:0:2 1:0:0:0", .decision = NOTHING},
    {"a new host that leaves", 1, "0 0:2", "0:1:0:2 1:0:2:0L", .decision = NOTHING},
    {"a new host, and no need", 1, "0 0:2", "0:1:0:2 1:0:2:0", .most = 2, .decision = NOTHING},
    {"a host of it is gone", 1, "0 0:1 1:1", "0:1:0:1", .decision = NOTHING},
    {"to be stopped", 1, "0 0:2", "0:1:0:2", .stop = 1, .decision = NOTHING},

    /* the next */
    {"all have come back", 1, "0 0:2", "0:1:2:0", .decision = FORM, .out = "0 0:2"},
    {"with one worker less", 1, "0 0:2 1:2", "0:1:1:0 1:1:2:0", .decision = FORM,
     .out = "0 0:1 1:2"},
    {"with a new host", 4, "0 3:1", "3:4:1:0 8:0:2:0", .decision = FORM, .out = "0 3:1 8:2"},
    {"most at once", 1, "0 0:1", "0:1:1:0 1:0:3:0 2:0:1:0", .most = 3, .decision = FORM,
     .out = "0 0:1 1:2"},
    {"one leaves", 1, "0 0:1 1:1", "0:1:1:0L 1:1:1:0", .decision = FORM, .out = "0 1:1"},
    {"a host is lost", 1, "0 0:1 1:1 2:1", "0:1:1:0 2:1:1:0", .decision = FORM, .out = "0 0:1 2:1"},
    {"a host without workers", 1, "0 0:1 1:1", "0:1:0:0 1:1:2:0", .decision = FORM, .out = "0 1:2"},
    {"to be stopped", 1, "0 0:2", "0:1:2:0", .stop = 1, .decision = FORM, .out = "1 0:2"},

    /* too few workers */
    {"nobody", 1, "0 0:2", "0:1:0:0", .decision = WAIT, .why = "1 more of at least 1"},
    {"one too few", 1, "0 0:2", "0:1:1:0", .least = 2, .decision = WAIT,
     .why = "1 more of at least 2"},
    {"enough", 1, "0 0:2", "0:1:2:0", .least = 2, .decision = FORM, .out = "0 0:2"},
    {"those who leave do not count", 1, "0 0:1 1:1", "0:1:1:0 1:1:1:0L", .least = 2,
     .decision = WAIT},
    {"just before the deadline", 1, "0 0:2", "0:1:1:0", .least = 2, .waited = 599,
     .decision = WAIT},
    {"after it: save, and end", 1, "0 0:2", "0:1:1:0", .least = 2, .waited = 601, .decision = FORM,
     .out = "1 0:1"},
    {"a deadline as told", 1, "0 0:2", "0:1:1:0", .least = 2, .waited = 4, .short_s = 3,
     .decision = FORM, .out = "1 0:1"},
    {"after it, with nobody", 1, "0 0:2", "0:1:0:0", .least = 2, .waited = 601, .decision = END,
     .why = "2 more of at least 2"},
    {"too few, to be stopped", 1, "0 0:2", "0:1:1:0", .least = 2, .stop = 1, .decision = FORM,
     .out = "1 0:1"},
    {"nobody, to be stopped", 1, "0 0:2", "0:1:0:0", .stop = 1, .decision = WAIT},

    /* the quorum: hosts of the generation before that are here */
    {"1 of 2", 1, "0 3:1", "3:1:1:0", .decision = FORM, .out = "0 3:1"},
    {"0 of 1", 1, "0 3:1", "4:0:1:0", .decision = LOOK, .why = "more than 0 of 1"},
    {"1 of 2, the first", 1, "0 3:1 4:1", "3:1:1:0", .decision = FORM, .out = "0 3:1"},
    {"1 of 2, the second", 1, "0 3:1 4:1", "4:1:1:0", .decision = LOOK, .why = "more than 1 of 2"},
    {"1 of 2, the second and a new one", 1, "0 3:1 4:1", "4:1:1:0 5:0:1:0", .decision = LOOK},
    {"1 of 3", 1, "0 3:1 4:1 5:1", "3:1:1:0", .decision = LOOK, .why = "more than 1 of 3"},
    {"2 of 3", 1, "0 3:1 4:1 5:1", "4:1:1:0 5:1:1:0", .decision = FORM, .out = "0 4:1 5:1"},
    {"2 of 4 with the first", 1, "0 3:1 4:1 5:1 6:1", "3:1:1:0 6:1:1:0", .decision = FORM,
     .out = "0 3:1 6:1"},
    {"2 of 4 without the first", 1, "0 3:1 4:1 5:1 6:1", "4:1:1:0 6:1:1:0", .decision = LOOK},
    {"1 of 4", 1, "0 3:1 4:1 5:1 6:1", "3:1:1:0", .decision = LOOK},
    {"3 of 4 without the first", 1, "0 3:1 4:1 5:1 6:1", "4:1:1:0 5:1:1:0 6:1:1:0",
     .decision = FORM, .out = "0 4:1 5:1 6:1"},
    {"2 of 5", 1, "0 3:1 4:1 5:1 6:1 7:1", "3:1:1:0 4:1:1:0", .decision = LOOK},
    {"3 of 5", 1, "0 3:1 4:1 5:1 6:1 7:1", "5:1:1:0 6:1:1:0 7:1:1:0", .decision = FORM,
     .out = "0 5:1 6:1 7:1"},
    {"without workers they are here", 1, "0 3:1 4:1 5:1", "3:1:0:0 4:1:0:0 9:0:1:0",
     .decision = FORM, .out = "0 9:1"},
    {"any quorum will do", 1, "0 3:1 4:1 5:1", "5:1:1:0", .quorum_any = 1, .decision = FORM,
     .out = "0 5:1"},
    {"a store with a majority", 1, "0 3:1 4:1 5:1", "5:1:1:0", .store = "etcd://x",
     .decision = FORM, .out = "0 5:1"},
    {"who joins does not begin", 0, NULL, "2:0:1:0", .join = "a:1", .decision = WAIT},
    {"nor without who listens", 0, NULL, "2:0:1:0", .join = "a:1", .waited = 6, .decision = END},
    {"a minority waits", 1, "0 3:1 4:1 5:1", "5:1:1:0", .waited = 59, .decision = LOOK},
    {"then saves, and ends", 1, "0 3:1 4:1 5:1", "5:1:1:0", .waited = 61, .decision = FORM,
     .out = "1 5:1"},
    {"or ends, with nobody", 1, "0 3:1 4:1 5:1", "5:1:0:0", .waited = 61, .decision = END,
     .why = "more than 1 of 3"},
    {"as long as it was told", 1, "0 3:1 4:1 5:1", "5:1:1:0", .waited = 99, .short_s = 100,
     .decision = LOOK},
    {"and no longer", 1, "0 3:1 4:1 5:1", "5:1:1:0", .waited = 4, .short_s = 3, .decision = FORM,
     .out = "1 5:1"},
    {"a minority does not stop in order", 1, "0 3:1 4:1 5:1", "5:1:1:0", .stop = 1,
     .decision = LOOK},

    /* who has the state */
    {"all bring it", 2, "0 3:1 4:1", "3:2:1:0:2:2 4:2:1:0:2:2", .decision = FORM,
     .out = "0 3:1 4:1"},
    {"one brings it", 2, "0 3:1 4:1", "3:2:1:0:0:0 4:2:1:0:2:2", .decision = FORM,
     .out = "0 3:1 4:1"},
    {"its worker is being replaced", 2, "0 3:1 4:1", "3:2:0:0:2:0 4:2:1:0:0:0", .decision = WAIT,
     .why = "host 3"},
    {"and here again", 2, "0 3:1 4:1", "3:2:1:0:2:2 4:2:1:0:0:0", .decision = FORM,
     .out = "0 3:1 4:1"},
    {"an older one is no help", 5, "0 3:1 4:1", "3:5:0:0:5:0 4:5:1:0:3:3", .decision = WAIT,
     .why = "host 3"},
    {"the worker that waits lacks it", 2, "0 3:2 4:1", "3:2:1:0:2:0 4:2:1:0:0:0", .decision = WAIT,
     .why = "host 3"},
    {"not for ever", 2, "0 3:1 4:1", "3:2:0:0:2:0 4:2:1:0:0:0", .waited = 601, .decision = FORM,
     .out = "0 4:1"},
    {"nobody keeps it any more", 2, "0 3:1 4:1 5:1", "4:2:1:0:0:0 5:2:1:0:0:0", .decision = FORM,
     .out = "0 4:1 5:1"},
    {"who leaves is not waited for", 2, "0 3:1 4:1", "3:2:1:0L:2:2 4:2:1:0:2:2", .decision = FORM,
     .out = "0 4:1"},
    {"but hands it over", 2, "0 3:1 4:1", "3:2:1:0L:2:2 4:2:1:0:0:0", .decision = FORM,
     .out = "0 3:1 4:1"},
    {"if it still can", 2, "0 3:1 4:1", "3:2:0:0L:2:0 4:2:1:0:0:0", .decision = FORM,
     .out = "0 4:1"},
    {"all leave: at once", 2, "0 3:1 4:1", "3:2:0:1L:2:0 4:2:0:1L:2:0", .decision = STOP},
    {"of those who are left", 2, "0 3:1 4:1 5:1", "3:2:0:1L:2:0 4:2:0:1L:2:0", .decision = STOP},
    {"but not a minority", 2, "0 3:1 4:1 5:1", "4:2:1:0L:2:2", .decision = LOOK},
    {"nor one without a seat", 2, "0 3:1", "", .decision = LOOK},
    {"from the gate", 2, "0 3:1 4:1", "3:2:1:0L:2:2 4:2:1:0L:2:2", .stop = 1, .decision = FORM,
     .out = "1 3:1 4:1"},
    {"one has gone home already", 2, "0 3:1 4:1", "3:2:0:0L:2:0 4:2:1:0L:2:2", .stop = 1,
     .decision = FORM, .out = "1 4:1"},
    {"all have gone home", 2, "0 3:1 4:1", "3:2:0:0L:2:0 4:2:0:0L:2:0", .stop = 1, .decision = END,
     .why = "all were asked to go"},
    {"nor to be stopped without it", 2, "0 3:1 4:1", "3:2:0:0:2:0 4:2:1:0:0:0", .stop = 1,
     .decision = WAIT},

    /* who has the data */
    {"all have it", 2, "0 3:1 4:1", "3:2:1:0F 4:2:1:0F", .decision = FORM, .out = "0 3:1 4:1"},
    {"one has it", 2, "0 3:1 4:1", "3:2:1:0F 4:2:1:0H", .decision = FORM, .out = "0 3:1 4:1"},
    {"nobody has said yet", 2, "0 3:1 4:1", "3:2:1:0 4:2:1:0H", .decision = FORM,
     .out = "0 3:1 4:1"},
    {"its reader is being replaced", 2, "0 3:1 4:1", "3:2:0:0F 4:2:1:0H", .decision = WAIT,
     .why = "host 3, which has the data"},
    {"but not for ever", 2, "0 3:1 4:1", "3:2:0:0F 4:2:1:0H", .waited = 601, .decision = FORM,
     .out = "0 4:1"},
    {"nor is who leaves", 2, "0 3:1 4:1", "3:2:1:0LF 4:2:1:0H", .decision = FORM, .out = "0 4:1"},
    {"nor to stop", 2, "0 3:1 4:1", "3:2:0:0F 4:2:1:0H", .stop = 1, .decision = FORM,
     .out = "1 4:1"},
    {"nobody has it any more", 2, "0 3:1 4:1 5:1", "4:2:1:0H 5:2:1:0H", .decision = FORM,
     .out = "0 4:1 5:1"},
    {"who lacks it is spared", 2, "0 3:2 4:1", "3:2:2:0H 4:2:1:0F", .most = 2, .decision = FORM,
     .out = "0 3:1 4:1"},
    {"none of whom is needed", 2, "0 3:2 4:1", "3:2:2:0H 4:2:2:0F", .most = 2, .decision = FORM,
     .out = "0 4:2"},

    /* on another store, where the others have still to come */
    {"late ones", 1, "0 3:1 4:1 5:1 6:1 7:1", "4:1:1:0 5:1:1:0 6:1:1:0", .moved = 1,
     .waited = LSI_COUNCIL_LATE_S / 2, .decision = WAIT},
    {"not waited for any longer", 1, "0 3:1 4:1 5:1 6:1 7:1", "4:1:1:0 5:1:1:0 6:1:1:0", .moved = 1,
     .waited = LSI_COUNCIL_LATE_S * 2, .decision = FORM, .out = "0 4:1 5:1 6:1"},
    {"but the one with the store", 1, "0 3:1 4:1 5:1", "4:1:1:0 5:1:1:0", .moved = 1,
     .decision = FORM, .out = "0 4:1 5:1"},
    {"late, and a minority", 1, "0 3:1 4:1 5:1 6:1", "6:1:1:0", .moved = 1,
     .waited = LSI_COUNCIL_LATE_S * 2, .decision = LOOK},
};

static void read_seats(lsi_council *c, const char *text)
{
    while (*text) {
        lsi_seat s = {.id = 0};
        char *at;
        s.id = strtoull(text, &at, 10);
        s.generation = strtoull(at + 1, &at, 10);
        s.ready = (int)strtol(at + 1, &at, 10);
        s.busy = (int)strtol(at + 1, &at, 10);
        s.leaving = *at == 'L';
        at += s.leaving;
        if (*at == ':') {
            s.state = strtoull(at + 1, &at, 10);
            s.brought = strtoull(at + 1, &at, 10);
        }
        s.fed = *at == 'F';
        at += s.fed;
        s.hungry = *at == 'H';
        at += s.hungry;
        lsi_seats_put(c, &s);
        text = at;
        text += *text == ' ';
    }
}

static void try_case(const situation *s)
{
    static const char *const names[] = {"nothing", "change", "stop", "form", "wait", "look", "end"};
    const lsi_launch_config config = {.hosts = s->hosts,
                                      .quorum_any = s->quorum_any,
                                      .store = s->store,
                                      .short_s = s->short_s,
                                      .join = s->join};
    static lsi_council c;
    c = (lsi_council){.config = &config,
                      .least = s->least ? s->least : 1,
                      .most = s->most ? s->most : LSI_MAX_RANKS,
                      .change = (uint64_t)s->change,
                      .stop = s->stop,
                      .moved_at = s->moved};
    lsi_table table;
    char why[LSI_HOST_CAUSE_MAX] = "", text[LSI_MAX_HOSTS * 24] = "";
    if (s->table)
        assert_int_equal(lsi_table_parse((uint64_t)s->generation, s->table, &c.table), 1);
    read_seats(&c, s->seats);
    const int decision = (int)lsi_decide(&c, s->waited, &table, why);
    if (decision != s->decision)
        fail_msg("%s: %s, not %s (%s)", s->name, names[decision], names[s->decision], why);
    if (decision == FORM) {
        lsi_table_print(&table, text);
        assert_int_equal(table.generation, s->generation + 1);
        if (strcmp(text, s->out))
            fail_msg("%s: generation '%s', not '%s'", s->name, text, s->out);
    }
    if (s->why && !strstr(why, s->why))
        fail_msg("%s: '%s' lacks '%s'", s->name, why, s->why);
}

static void all_cases(void **state)
{
    (void)state;
    assert_int_equal(LSI_DECIDE_END, END);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        try_case(&cases[i]);
}

/* Whatever part of the hosts is left in two halves of a network: at most one of them goes on. */
static void no_two_majorities(void **state)
{
    (void)state;
    static lsi_council c;
    const lsi_launch_config config = {.hosts = 1};
    for (int hosts = 1; hosts <= 5; hosts++)
        for (unsigned part = 0; part < 1u << hosts; part++) {
            int formed = 0;
            for (int side = 0; side < 2; side++) {
                lsi_table table;
                char why[LSI_HOST_CAUSE_MAX];
                c = (lsi_council){.config = &config, .least = 1, .most = LSI_MAX_RANKS};
                c.table = (lsi_table){.generation = 1, .hosts = hosts};
                for (int h = 0; h < hosts; h++) {
                    const lsi_seat seat = {.id = (uint64_t)h + 3, .generation = 1, .ready = 1};
                    c.table.id[h] = seat.id;
                    c.table.size[h] = 1;
                    if ((part >> h & 1) == (unsigned)side)
                        lsi_seats_put(&c, &seat);
                }
                formed += lsi_decide(&c, 0, &table, why) == LSI_DECIDE_FORM;
            }
            assert_int_equal(formed, 1); /* exactly one: nobody else has died */
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cases),
        cmocka_unit_test(no_two_majorities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

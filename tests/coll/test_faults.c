/* Groups on spoiled links: a lost message ends in a time-out that names somebody, a late one does
 * not matter, a cut or corrupted link is noticed at once, and short writes change nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ranks.h"
#include "values.h"

#define COUNT_MAX ((size_t)60000)
#define SOON_S (UNDER_SANITIZER ? 4.0 : 1.5)

static const values *wild;
static const values *exact;

/* Many messages of all sizes: every algorithm, some data movement, a few messages. The first error,
 * or LS_OK with all results as they should be. */
static ls_status everything(rank *self, char *a, char *b)
{
    static const char *const algorithms[] = {"ring", "direct", "hd", "tree"};
    static const size_t counts[] = {5, 3000, COUNT_MAX};
    int next = (self->rank + 1) % self->size, before = (self->rank + self->size - 1) % self->size;
    for (int i = 0; i < 12; i++) {
        const values *v = i % 2 && i / 2 % 2 ? wild : exact;
        size_t count = counts[i % 3];
        rank_case(self, "allreduce %s %zu", algorithms[i % 4], count);
        if (i % 4 == 0) /* ring: any order */
            v = exact;
        rank_select(self, self->comm, "allreduce", algorithms[i % 4]);
        values_fill(a, v->input[self->rank], 4, count);
        LSI_TRY(ls_allreduce(self->comm, a, b, count, LS_F32, LS_SUM));
        CHECK(self, values_differ(b, v->expected[self->size - 1], 4, 0, count) == count);
        rank_case(self, "allgather, barrier, message %d", i);
        values_fill(a, v->input[self->rank], 4, 700);
        LSI_TRY(ls_allgather(self->comm, a, b, 700, LS_F32));
        for (int r = 0; r < self->size; r++)
            CHECK(self, values_differ(b + 2800 * r, v->input[r], 4, 0, 700) == 700);
        LSI_TRY(ls_barrier(self->comm));
        ls_request *request;
        LSI_TRY(ls_send_start(self->comm, a, 700, LS_F32, next, i, &request));
        LSI_TRY(ls_recv(self->comm, b, 700, LS_F32, before, i));
        CHECK(self, values_differ(b, v->input[before], 4, 0, 700) == 700);
        LSI_TRY(ls_request_wait(&request, 0));
    }
    return LS_OK;
}

typedef struct expectation {
    ls_status status;     /* of every rank, or also LS_ERR_ABORTED's like */
    const char *words[3]; /* on every rank one of the first two; on some rank the third */
    double soon_s, late_s;
} expectation;

static char said[RANKS_MAX][LSI_ERROR_MAX];

static void body(rank *self)
{
    const expectation *e = self->arg;
    void *shared;
    OK(self, ls_alloc(self->comm, COUNT_MAX * 4, &shared)); /* large sends travel as references */
    char *b = malloc(COUNT_MAX * 4);
    rank_meet(self); /* all have opened */
    double begun = lsi_now();
    ls_status status = everything(self, shared, b), again = ls_barrier(self->comm);
    double took = lsi_now() - begun;
    snprintf(said[self->rank], sizeof said[0], "%s",
             status == LS_OK && again == LS_OK ? "" : ls_last_error());
    free(b);
    if (e->status == LS_OK) {
        CHECK(self, status == LS_OK && again == LS_OK, "%s", said[self->rank]);
        CHECK(self, took >= e->soon_s, "too early: %.3f s", took);
    } else {
        /* Who had no part in it may find out by the next operation. */
        ls_status first = status == LS_OK ? again : status;
        CHECK(self, first == e->status, "%s: %s", ls_status_name(first), said[self->rank]);
        CHECK(self, again == first, "then %s: %s", ls_status_name(again), said[self->rank]);
        CHECK(self, strstr(said[self->rank], e->words[0]) || strstr(said[self->rank], e->words[1]),
              "%s", said[self->rank]);
        CHECK(self, took < e->late_s, "only after %.1f s: %s", took, said[self->rank]);
    }
}

static void run(ranks_layout l, const char *plan, const expectation *e)
{
    expectation copy = *e;
    wild = values_get(LS_F32, LS_SUM, WILD, l.size);
    exact = values_get(LS_F32, LS_SUM, EXACT, l.size);
    l.fault = plan;
    snprintf(l.name + strlen(l.name), sizeof l.name - strlen(l.name), " [%s]", plan);
    if (l.timeout_s == 0 && e->status == LS_ERR_TIMEOUT)
        l.timeout_s = 0.45;
    memset(said, 0, sizeof said);
    ranks_run(&l, body, &copy);
    int found = e->status == LS_OK || !e->words[2];
    for (int r = 0; r < l.size; r++)
        found |= e->words[2] && strstr(said[r], e->words[2]);
    if (!found)
        fail_msg("%s: nobody says '%s', but '%s'", l.name, e->words[2], said[0]);
}

/* On all of them the link 0>1 carries more than LAST messages, of which opening the group needs
 * fewer than FIRST. */
static ranks_layout layout(int i)
{
    return i == 0   ? ranks_tcp(2)
           : i == 1 ? ranks_tcp(4)
           : i == 2 ? ranks_shm(2)
           : i == 3 ? ranks_shm(4)
           : i == 4 ? ranks_hosts("1+1")
                    : ranks_hosts("2+2");
}
enum { LAYOUTS = 6, FIRST = 4, LAST = 12 };

static void run_all(const char *fault, const expectation *e)
{
    for (int i = 0; i < LAYOUTS; i++)
        for (int k = FIRST; k <= LAST; k += UNDER_SANITIZER ? 8 : 4) {
            char plan[64];
            snprintf(plan, sizeof plan, fault, k);
            run(layout(i), plan, e);
        }
}

static void test_short(void **unused)
{
    (void)unused;
    static const expectation fine = {.status = LS_OK};
    for (int i = 0; i < LAYOUTS; i += UNDER_SANITIZER ? 2 : 1)
        run(layout(i), "*>* short=1009", &fine);
    run(layout(1), "0>1 short=7; 2>* short=13", &fine);
    run(layout(3), "1>* short=7", &fine);
}

static void test_delay(void **unused)
{
    (void)unused;
    static const expectation late = {.status = LS_OK, .soon_s = 0.1};
    run_all("0>1 delay=%d:120", &late);
}

static void test_drop(void **unused)
{
    (void)unused;
    static const expectation lost = {.status = LS_ERR_TIMEOUT,
                                     .words = {"no end after", "has not"},
                                     .late_s = 3};
    run_all("0>1 drop=%d", &lost);
}

static void test_cut(void **unused)
{
    (void)unused;
    static const expectation cut = {.status = LS_ERR_PEER_DEAD,
                                    .words = {"rank 0 has lost rank 1", "rank 1 has lost rank 0",
                                              "link cut before message"},
                                    .late_s = SOON_S};
    run_all("0>1 cut=%d", &cut);
}

static void test_corrupt(void **unused)
{
    (void)unused;
    static const expectation corrupt = {.status = LS_ERR_PEER_DEAD,
                                        .words = {"rank 0 has lost rank 1",
                                                  "rank 1 has lost rank 0", "check sum differs"},
                                        .late_s = SOON_S};
    run_all("0>1 corrupt=%d", &corrupt);
}

/* Payloads are checked on request; four messages in a row are spoiled, of which one surely has a
 * payload. */
static void test_garble(void **unused)
{
    (void)unused;
    static const expectation fine = {.status = LS_OK},
                             garbled = {.status = LS_ERR_PEER_DEAD,
                                        .words = {"rank 0 has lost rank 1",
                                                  "rank 1 has lost rank 0", "arrived corrupted"},
                                        .late_s = SOON_S};
    setenv("LOCKSTEP_CHECKSUM", "1", 1);
    for (int i = 0; i < LAYOUTS; i++) {
        run(layout(i), "0>1 garble=4; 0>1 garble=5; 0>1 garble=6; 0>1 garble=7", &garbled);
        run(layout(i), "5>6 drop=1", &fine); /* nobody's link */
    }
    unsetenv("LOCKSTEP_CHECKSUM");
}

static void meet_once(rank *self)
{
    OK(self, ls_barrier(self->comm));
}

/* The very first messages are late: the group opens all the same. */
static void test_opening(void **unused)
{
    (void)unused;
    ranks_layout l = ranks_tcp(3);
    l.fault = "1>2 delay=1:100; 0>* delay=1:50";
    ranks_run(&l, meet_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short),   cmocka_unit_test(test_delay),
        cmocka_unit_test(test_drop),    cmocka_unit_test(test_cut),
        cmocka_unit_test(test_corrupt), cmocka_unit_test(test_garble),
        cmocka_unit_test(test_opening),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    values_free();
    return failed;
}

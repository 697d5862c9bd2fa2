/* Requests under way: many at once, completed in any order, on several communicators; ranks that
 * are
 * late, and ranks that never come.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ranks.h"

#define MANY (3 * LSI_BOARD_ACTIVE + 1)
#define COUNT_MAX ((size_t)20000)

static const size_t counts[] = {1, 14, 100, 3000, COUNT_MAX};

typedef struct job {
    ls_request *request;
    int32_t *data;
    size_t count;
    int kind, base;
} job;

/* Start one of several collectives; all give a result that any rank can check. */
static void start(rank *self, ls_comm *comm, job *j, int i, int shared)
{
    j->count = counts[(size_t)i % (sizeof counts / sizeof *counts)];
    j->kind = i % 4;
    j->base = i;
    if (shared) {
        void *memory;
        OK(self, ls_alloc(self->comm, j->count * sizeof *j->data, &memory));
        j->data = memory;
    } else {
        j->data = malloc(j->count * sizeof *j->data);
    }
    for (size_t k = 0; k < j->count; k++)
        j->data[k] = ls_comm_rank(comm) + i + (int32_t)k;
    int root = i % ls_comm_size(comm);
    switch (j->kind) {
    case 0:
    case 1:
        OK(self,
           ls_allreduce_start(comm, LS_IN_PLACE, j->data, j->count, LS_I32, LS_SUM, &j->request));
        break;
    case 2: OK(self, ls_broadcast_start(comm, j->data, j->count, LS_I32, root, &j->request)); break;
    default:
        OK(self, ls_reduce_start(comm, LS_IN_PLACE, j->data, j->count, LS_I32, LS_MAX, root,
                                 &j->request));
    }
}

static void check(rank *self, ls_comm *comm, job *j, int shared)
{
    int n = ls_comm_size(comm), root = j->base % n;
    CHECK(self, j->request == NULL);
    for (size_t k = 0; k < j->count; k++) {
        int32_t first = j->base + (int32_t)k, want = first + ls_comm_rank(comm);
        if (j->kind < 2)
            want = n * first + n * (n - 1) / 2;
        else if (j->kind == 2)
            want = first + root;
        else if (ls_comm_rank(comm) == root)
            want = first + n - 1;
        if (j->data[k] != want)
            rank_fail(self, __FILE__, __LINE__, "result",
                      "operation %d, kind %d: element %zu is %d, not %d", j->base, j->kind, k,
                      j->data[k], want);
    }
    if (shared)
        ls_free(self->comm, j->data);
    else
        free(j->data);
}

/* More requests than a communicator keeps under way, ended backwards, forwards or by testing. */
static void many(rank *self)
{
    for (int round = 0; round < 6; round++) {
        int shared = round % 2;
        job jobs[MANY];
        for (int i = 0; i < MANY; i++) {
            rank_case(self, "round %d, start %d", round, i);
            start(self, self->comm, &jobs[i], i, shared);
        }
        if (round / 2 == 2)
            for (int left = MANY; left > 0;) {
                rank_case(self, "round %d, testing", round);
                left = 0;
                for (int i = 0; i < MANY; i++) {
                    ls_status status = ls_request_test(&jobs[i].request);
                    CHECK(self, status == LS_OK || status == LS_IN_PROGRESS, "%s", ls_last_error());
                    left += status == LS_IN_PROGRESS;
                }
            }
        for (int i = 0; i < MANY; i++) {
            int k = round / 2 ? i : MANY - 1 - i;
            rank_case(self, "round %d, wait %d", round, k);
            OK(self, ls_request_wait(&jobs[k].request, 0));
            check(self, self->comm, &jobs[k], shared);
        }
    }
}

/* Small all-reduces in a row, of which each rank keeps another number under way, from none (it
 * blocks) to all that a communicator allows: the places on the board are reused at every pace. */
static void paces(rank *self)
{
    static const size_t sizes[] = {2, 25, 120, 500, 30, 31, 200};
    enum { N = 300, MOST = 500 };
    static _Thread_local int32_t data[LSI_BOARD_ACTIVE][MOST];
    ls_request *requests[LSI_BOARD_ACTIVE] = {NULL};
    int n = self->size, waited = 0;
    for (int i = 0; i < N + LSI_BOARD_ACTIVE; i++) {
        int ahead = i < N ? (i / 40 * 3 + self->rank * 2) % LSI_BOARD_ACTIVE : 0;
        rank_case(self, "paces %d, %d ahead", i, ahead);
        if (i < N) {
            int32_t *d = data[i % LSI_BOARD_ACTIVE];
            size_t count = sizes[(size_t)i % (sizeof sizes / sizeof *sizes)];
            for (size_t k = 0; k < count; k++)
                d[k] = self->rank + i + (int32_t)k;
            if (ahead == 0)
                OK(self, ls_allreduce(self->comm, LS_IN_PLACE, d, count, LS_I32, LS_SUM));
            else
                OK(self, ls_allreduce_start(self->comm, LS_IN_PLACE, d, count, LS_I32, LS_SUM,
                                            &requests[i % LSI_BOARD_ACTIVE]));
        }
        for (; waited < N && waited <= i - ahead; waited++) {
            const int32_t *d = data[waited % LSI_BOARD_ACTIVE];
            size_t count = sizes[(size_t)waited % (sizeof sizes / sizeof *sizes)];
            OK(self, ls_request_wait(&requests[waited % LSI_BOARD_ACTIVE], 0));
            for (size_t k = 0; k < count; k++)
                CHECK(self, d[k] == n * (waited + (int32_t)k) + n * (n - 1) / 2,
                      "operation %d, element %zu: %d", waited, k, d[k]);
        }
    }
}

/* Two communicators over the same ranks. Each sees its operations in the same order everywhere, but
 * how they interleave is each rank's own affair. */
static void interleaved(rank *self)
{
    ls_comm *comms[2];
    for (int c = 0; c < 2; c++)
        OK(self, ls_comm_split(self->comm, 0, c ? -self->rank : self->rank, &comms[c]));
    for (int round = 0; round < 8; round++) {
        job jobs[2][6];
        int next[2] = {0, 0};
        unsigned order = (unsigned)(round * 37 + self->rank * 11 + 5); /* differs between ranks */
        while (next[0] < 6 || next[1] < 6) {
            int c = order & 1;
            order = order >> 1 | (order & 1) << 7;
            if (next[c] == 6)
                c = !c;
            rank_case(self, "interleaved round %d, start %d on %d", round, next[c], c);
            start(self, comms[c], &jobs[c][next[c]], next[c] + round, round & 1);
            next[c]++;
        }
        for (int i = 0; i < 12; i++) {
            int c = (i + self->rank) & 1, k = self->rank & 2 ? i / 2 : 5 - i / 2;
            rank_case(self, "interleaved round %d, wait %d on %d", round, k, c);
            OK(self, ls_request_wait(&jobs[c][k].request, 0));
            check(self, comms[c], &jobs[c][k], round & 1);
        }
    }
    OK(self, ls_barrier(self->comm));
    ls_comm_destroy(comms[1]);
    ls_comm_destroy(comms[0]);
}

/* A rank that enters late delays, no more. */
static void late(rank *self)
{
    for (int i = 0; i < 2; i++) {
        int who = i % self->size;
        job j;
        rank_case(self, "rank %d is late", who);
        if (self->rank == who)
            sleep_ms(200);
        start(self, self->comm, &j, i * 4, i & 1);
        double begun = lsi_now();
        OK(self, ls_request_wait(&j.request, 5));
        if (self->rank != who && j.kind < 2)
            CHECK(self, lsi_now() - begun > 0.1, "somebody was not waited for");
        check(self, self->comm, &j, i & 1);
    }
}

static void run_all(rank *self)
{
    many(self);
    paces(self);
    interleaved(self);
    late(self);
}

enum { LAYOUTS = 8 };

static ranks_layout layout(int i, double timeout_s)
{
    static const int sizes[] = {2, 3, UNDER_SANITIZER ? 4 : 6};
    ranks_layout l = i < 3    ? ranks_shm(sizes[i])
                     : i < 6  ? ranks_tcp(sizes[i - 3])
                     : i == 6 ? ranks_hosts("2+1")
                              : ranks_hosts("2+3+2");
    l.timeout_s = timeout_s;
    return l;
}

static void test_under_way(void **unused)
{
    (void)unused;
    for (int i = 0; i < LAYOUTS; i++) {
        ranks_layout l = layout(i, 0);
        ranks_run(&l, run_all, NULL);
    }
}

/* What is tried when a rank never comes. */
typedef struct absence {
    const char *algorithm;
    size_t count;
    int started; /* wait for a request with a deadline, or by the communicator's */
} absence;

/* The last rank does not enter. The others give up at the deadline and name it; then the
 * communicator has failed for everybody, with the same words, also for the one that comes late. */
static void never(rank *self)
{
    const absence *a = self->arg;
    int missing = self->size - 1;
    char named[32], said[LSI_ERROR_MAX] = "";
    int32_t *data = calloc(a->count, sizeof *data), *others = calloc(a->count, sizeof *others);
    snprintf(named, sizeof named, "rank %d ", missing);
    rank_case(self, "rank %d never enters %s %zu", missing, a->algorithm, a->count);
    rank_select(self, self->comm, "allreduce", a->algorithm);
    OK(self, ls_barrier(self->comm));
    double begun = lsi_now();
    if (self->rank != missing) {
        ls_request *request = NULL;
        ls_status status;
        if (a->started) {
            OK(self,
               ls_allreduce_start(self->comm, data, others, a->count, LS_I32, LS_SUM, &request));
            status = ls_request_wait(&request, 0.4);
        } else {
            status = ls_allreduce(self->comm, data, others, a->count, LS_I32, LS_SUM);
        }
        CHECK(self, request == NULL);
        CHECK(self, status == LS_ERR_TIMEOUT, "%s: %s", ls_status_name(status), ls_last_error());
        CHECK(self, strstr(ls_last_error(), named) && strstr(ls_last_error(), "allreduce("), "%s",
              ls_last_error());
        CHECK(self, lsi_now() - begun < 2 * (UNDER_SANITIZER ? 4 : 1), "it took too long");
        snprintf(said, sizeof said, "%s", ls_last_error());
        for (size_t i = 0; i < a->count; i++) /* it is ours again: nobody may write into it */
            others[i] = 77;
    }
    rank_meet(self);
    for (int again = 0; again < 3; again++) {
        rank_case(self, "after the failure, %d", again);
        ls_status status =
            again == 0   ? ls_allreduce(self->comm, LS_IN_PLACE, data, a->count, LS_I32, LS_SUM)
            : again == 1 ? ls_barrier(self->comm)
                         : ls_send(self->comm, data, 1, LS_I32, !self->rank, 1);
        CHECK(self, status == LS_ERR_TIMEOUT, "%s: %s", ls_status_name(status), ls_last_error());
        CHECK(self, strstr(ls_last_error(), named), "%s", ls_last_error());
        CHECK(self, !*said || !strcmp(said, ls_last_error()), "first '%s', then '%s'", said,
              ls_last_error());
    }
    rank_meet(self);
    for (size_t i = 0; self->rank != missing && i < a->count; i++)
        CHECK(self, others[i] == 77, "the latecomer wrote into a buffer that was given back");
    free(data);
    free(others);
}

static void test_never(void **unused)
{
    (void)unused;
    static const absence cases[] = {{"direct", 1, 0},
                                    {"direct", 100000, 1},
                                    {"ring", 1000, 1},
                                    {"hd", 10, 0},
                                    {"tree", 40000, 1}};
    for (int i = 0; i < 2 * LAYOUTS; i++) {
        ranks_layout l = layout(i % LAYOUTS, 0.5);
        ranks_run(&l, never, (void *)(uintptr_t)&cases[(i + i / LAYOUTS * 2) % 5]);
    }
}

/* A message that nobody sends or takes. */
static void never_sent(rank *self)
{
    int32_t x = 0;
    rank_case(self, "a message that never comes");
    if (self->rank == 0) {
        IS(self, ls_recv(self->comm, &x, 1, LS_I32, 1, 3), LS_ERR_TIMEOUT);
        CHECK(self, strstr(ls_last_error(), "rank 1 has not sent"), "%s", ls_last_error());
    }
    rank_meet(self);
    ls_status status = ls_barrier(self->comm);
    CHECK(self, status == LS_ERR_TIMEOUT, "%s", ls_status_name(status));
}

static void test_never_sent(void **unused)
{
    (void)unused;
    for (int i = 1; i < LAYOUTS; i += 3) {
        ranks_layout l = layout(i, 0.3);
        ranks_run(&l, never_sent, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_under_way),
        cmocka_unit_test(test_never),
        cmocka_unit_test(test_never_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

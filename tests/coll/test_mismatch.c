/* Ranks that call different things: each of them hears of it, soon, and of who called what. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ranks.h"

#define COUNT_MAX ((size_t)100000)

typedef struct trial {
    int number, odd; /* of the case, of the rank */
} trial;

typedef struct memory {
    char *send, *recv;
    size_t each[RANKS_MAX];
} memory;

/* One operation; `odd` tells the rank that calls something else. */
typedef ls_status (*mismatched)(rank *self, memory *m, int odd);

static ls_status other_count(rank *self, memory *m, int odd)
{
    return ls_allreduce(self->comm, m->send, m->recv, odd ? 1001 : 1000, LS_F32, LS_SUM);
}

static ls_status other_count_tiny(rank *self, memory *m, int odd)
{
    return ls_allreduce(self->comm, m->send, m->recv, odd ? 2 : 1, LS_F32, LS_SUM);
}

static ls_status other_count_large(rank *self, memory *m, int odd)
{
    return ls_allreduce(self->comm, m->send, m->recv, odd ? 99999 : 100000, LS_F64, LS_SUM);
}

static ls_status other_type(rank *self, memory *m, int odd)
{
    return ls_allreduce(self->comm, m->send, m->recv, 50, odd ? LS_I32 : LS_F32, LS_MAX);
}

static ls_status other_operator(rank *self, memory *m, int odd)
{
    return ls_allreduce(self->comm, m->send, m->recv, 1, LS_F32, odd ? LS_MIN : LS_MAX);
}

static ls_status other_root(rank *self, memory *m, int odd)
{
    const trial *t = self->arg;
    int root = odd ? t->odd : (t->odd + 1) % self->size;
    return ls_reduce(self->comm, m->send, m->recv, 300, LS_F32, LS_SUM, root);
}

static ls_status other_collective(rank *self, memory *m, int odd)
{
    return odd ? ls_allgather(self->comm, m->send, m->recv, 100, LS_F32)
               : ls_allreduce(self->comm, m->send, m->recv, 100, LS_F32, LS_SUM);
}

static ls_status barrier_instead(rank *self, memory *m, int odd)
{
    return odd ? ls_barrier(self->comm)
               : ls_allreduce(self->comm, m->send, m->recv, 20000, LS_F32, LS_SUM);
}

static ls_status other_algorithm(rank *self, memory *m, int odd)
{
    rank_select(self, self->comm, "allreduce", odd ? "ring" : "hd");
    return ls_allreduce(self->comm, m->send, m->recv, 5000, LS_F32, LS_SUM);
}

/* The same sum, other parts. */
static ls_status other_parts(rank *self, memory *m, int odd)
{
    for (int r = 0; r < self->size; r++)
        m->each[r] = 10;
    if (odd) {
        m->each[0] = 4;
        m->each[self->size - 1] = 16;
    }
    return ls_allgatherv(self->comm, m->send, m->recv, m->each, LS_F32);
}

static ls_status other_parts_of_all(rank *self, memory *m, int odd)
{
    size_t expected[RANKS_MAX];
    for (int r = 0; r < self->size; r++)
        m->each[r] = expected[r] = 30;
    if (odd)
        m->each[(self->rank + 1) % self->size] = 29;
    return ls_alltoallv(self->comm, m->send, m->each, m->recv, expected, LS_F32);
}

static const struct {
    const char *name;
    mismatched call;
    const char *words[2]; /* must be said of the one and of the other */
} cases[] = {
    {"count", other_count, {"1000 elements", "1001 elements"}},
    {"tiny count", other_count_tiny, {"sum f32, 1 elements", "sum f32, 2 elements"}},
    {"large count", other_count_large, {"100000 elements", "99999 elements"}},
    {"type", other_type, {"max f32", "max i32"}},
    {"operator", other_operator, {"max f32", "min f32"}},
    {"root", other_root, {"root 0", "root "}},
    {"collective", other_collective, {"allreduce(sum f32", "allgather(f32"}},
    {"barrier", barrier_instead, {"allreduce(sum f32", "barrier()"}},
    {"algorithm", other_algorithm, {"hd)", "ring)"}},
    {"parts", other_parts, {"allgatherv(", "allgatherv("}},
    {"parts of all", other_parts_of_all, {"alltoallv(", "alltoallv("}},
};
enum { CASES = sizeof cases / sizeof *cases };

/* One shared word on which ranks have met before the failure and after it. */
static void differ(rank *self)
{
    const trial *t = self->arg;
    memory m = {calloc(COUNT_MAX, 8), calloc(COUNT_MAX, 8), {0}};
    char named[32];
    rank_case(self, "another %s on rank %d", cases[t->number].name, t->odd);
    OK(self, ls_barrier(self->comm));
    rank_meet(self);
    double begun = lsi_now();
    ls_status status = cases[t->number].call(self, &m, self->rank == t->odd);
    if (status == LS_OK) /* it could end before the difference was seen; the next one cannot */
        status = ls_barrier(self->comm);
    CHECK(self, status == LS_ERR_MISMATCH, "%s: %s", ls_status_name(status), ls_last_error());
    CHECK(self, lsi_now() - begun < 3, "only after %.1f s", lsi_now() - begun);
    snprintf(named, sizeof named, "rank %d", t->odd);
    CHECK(self,
          strstr(ls_last_error(), cases[t->number].words[0]) &&
              strstr(ls_last_error(), cases[t->number].words[1]) && strstr(ls_last_error(), named),
          "%s", ls_last_error());
    char said[LSI_ERROR_MAX];
    snprintf(said, sizeof said, "%s", ls_last_error());
    IS(self, ls_barrier(self->comm), LS_ERR_MISMATCH);
    CHECK(self, !strcmp(said, ls_last_error()), "first '%s', then '%s'", said, ls_last_error());
    free(m.send);
    free(m.recv);
}

static void run(ranks_layout layout, int stride)
{
    for (int i = 0; i < CASES; i += stride)
        for (int last = 0; last < 2; last++) {
            trial t = {i, last ? layout.size - 1 : 0};
            ranks_run(&layout, differ, &t);
        }
}

static void test_shm(void **unused)
{
    (void)unused;
    run(ranks_shm(2), 1);
    run(ranks_shm(5), 1);
}

static void test_tcp(void **unused)
{
    (void)unused;
    run(ranks_tcp(2), 1);
    run(ranks_tcp(4), 1);
}

static void test_two_levels(void **unused)
{
    (void)unused;
    run(ranks_hosts("2+2"), 1);
    run(ranks_hosts("1+3"), 1);
    run(ranks_hosts("1+1+1"), UNDER_SANITIZER ? 3 : 1);
}

/* Two that wait for each other, each sure that the other is the root: no message can tell. */
static void both_wait(rank *self)
{
    int32_t x = 0;
    rank_case(self, "both wait");
    ls_status status = ls_broadcast(self->comm, &x, 1, LS_I32, !self->rank);
    CHECK(self, status == LS_ERR_MISMATCH || status == LS_ERR_TIMEOUT, "%s", ls_last_error());
    IS(self, ls_barrier(self->comm), status);
}

static void test_both_wait(void **unused)
{
    (void)unused;
    ranks_layout l = ranks_tcp(2);
    l.timeout_s = 0.5;
    ranks_run(&l, both_wait, NULL);
    l = ranks_shm(2);
    ranks_run(&l, both_wait, NULL);
}

/* Messages of another length or type than the receiver expects. */
static void differ_message(rank *self)
{
    const int *kind = self->arg;
    char *data = calloc(COUNT_MAX, 8);
    size_t large = *kind & 1 ? 50000 : 4;
    rank_case(self, "messages that differ, %d", *kind);
    if (self->rank == 0) {
        if (*kind & 4)
            sleep_ms(20); /* the receive is posted before or after */
        ls_status status = ls_send(self->comm, data, large, LS_F32, 1, 9);
        CHECK(self, status == LS_OK || status == LS_ERR_MISMATCH, "%s", ls_last_error());
    } else if (self->rank == 1) {
        if (!(*kind & 4))
            sleep_ms(20);
        ls_status status = *kind & 2 ? ls_recv(self->comm, data, large - 1, LS_F32, 0, 9)
                                     : ls_recv(self->comm, data, large, LS_I32, 0, 9);
        CHECK(self, status == LS_ERR_MISMATCH, "%s: %s", ls_status_name(status), ls_last_error());
        CHECK(self, strstr(ls_last_error(), "rank 0") && strstr(ls_last_error(), "rank 1"), "%s",
              ls_last_error());
        CHECK(self, strstr(ls_last_error(), *kind & 2 ? "elements" : "i32"), "%s", ls_last_error());
        CHECK(self, strstr(ls_last_error(), "tag 9"), "%s", ls_last_error());
    }
    IS(self, ls_barrier(self->comm), LS_ERR_MISMATCH);
    free(data);
}

static void test_messages(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < 8; kind++) {
        ranks_layout l[] = {ranks_shm(2), ranks_tcp(3), ranks_hosts("1+2"), ranks_hosts("2+1")};
        for (int i = 0; i < 4; i++)
            ranks_run(&l[i], differ_message, &kind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm),        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_two_levels), cmocka_unit_test(test_both_wait),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

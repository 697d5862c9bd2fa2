/* All-reduce against the oracle: 1 to 9 ranks, every type, operator and algorithm, counts from 0 to
 * 1M, in place or not, in shared, private and mixed memory; over shared memory, tcp, two levels.
 *
 * Small counts are run as the full product. Of the large ones a rotating part is run, chosen so
 * that
 * every type, operator, algorithm and number of ranks meets each transport. Under a sanitizer the
 * product is thinned out in the same way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "ranks.h"
#include "values.h"

#define MILLION ((size_t)1 << 20)
#define COMBINATIONS_MAX 64

static const char *const algorithms[] = {"direct", "hd", "ring", "tree"};
static const size_t small_counts[] = {0, 1, 2, 3, 7, 31, 997};
/* Around the places where the board changes its ways: in the slot, in a box, in place. */
static const size_t threshold_bytes[] = {48,   56,   57,    64,    119,   120,   121,   2047,
                                         2048, 2049, 12287, 12288, 12289, 16383, 16384, 16385};

/* What one group runs, and the patterns for it. */
typedef struct plan {
    const values *table[COMBINATIONS_MAX];
    int n;
    unsigned memories; /* bits */
    int thin;          /* of the small product every thin-th case is run */
    int large;         /* which rotation of the large counts; -1: none */
    int thresholds;
} plan;

typedef struct trial {
    const values *v;
    int algorithm, in_place, memory;
    size_t count, skew;
} trial;

static void make_table(plan *p, int size)
{
    p->n = 0;
    for (int d = 0; d < LS_DTYPE_COUNT; d++)
        for (int o = 0; o < LS_OP_COUNT; o++) {
            if (!ls_op_supports((ls_op)o, (ls_dtype)d))
                continue;
            p->table[p->n++] = values_get((ls_dtype)d, (ls_op)o, EXACT, size);
            if (values_has_wild((ls_dtype)d, (ls_op)o))
                p->table[p->n++] = values_get((ls_dtype)d, (ls_op)o, WILD, size);
        }
}

static void run_trial(rank *self, buffers *b, const trial *t)
{
    const values *v = t->v;
    size_t bytes = t->count * v->element;
    char *send = buffers_pick(self, b, t->memory, SEND, t->skew * v->element);
    char *recv = buffers_pick(self, b, t->memory, RECV, t->skew * v->element);
    rank_case(self, "allreduce %s %s %s %s %zu%s %s +%zu", algorithms[t->algorithm],
              ls_dtype_name(v->dtype), ls_op_name(v->op), v->kind == WILD ? "wild" : "exact",
              t->count, t->in_place ? " in place" : "", memory_names[t->memory], t->skew);
    buffers_poison(recv, bytes);
    values_fill(t->in_place ? recv : send, v->input[self->rank], v->element, t->count);
    rank_select(self, self->comm, "allreduce", algorithms[t->algorithm]);
    OK(self,
       ls_allreduce(self->comm, t->in_place ? LS_IN_PLACE : send, recv, t->count, v->dtype, v->op));
    size_t at = values_differ(recv, v->expected[self->size - 1], v->element, 0, t->count);
    CHECK(self, at == t->count, "the result differs at element %zu", at);
    buffers_check_guard(self, recv, bytes);
    if (!t->in_place) {
        at = values_differ(send, v->input[self->rank], v->element, 0, t->count);
        CHECK(self, at == t->count, "the input was changed at element %zu", at);
    }
}

/* Wild values are for the algorithms that promise the tree's order. */
static int is_promised(const values *v, int algorithm)
{
    return v->kind == EXACT || algorithm < 2;
}

static void run_small(rank *self, const plan *p, buffers *b)
{
    int k = self->size;
    for (int c = 0; c < p->n; c++)
        for (int a = 0; a < 4; a++)
            for (size_t n = 0; n < sizeof small_counts / sizeof *small_counts; n++)
                for (int in_place = 0; in_place < 2; in_place++)
                    for (int memory = 0; memory < MEMORIES; memory++) {
                        trial t = {p->table[c], a, in_place, memory, small_counts[n], n % 2};
                        if (!(p->memories >> memory & 1) || !is_promised(t.v, a) || ++k % p->thin)
                            continue;
                        run_trial(self, b, &t);
                    }
}

static void run_thresholds(rank *self, const plan *p, buffers *b)
{
    int k = 0;
    for (size_t n = 0; n < sizeof threshold_bytes / sizeof *threshold_bytes; n++)
        for (int memory = 0; memory < MEMORIES; memory++)
            for (int i = 0; i < 12; i++) {
                const values *v = p->table[(size_t)(k += 5) % (size_t)p->n];
                trial t = {v, i % 4, i / 4 % 2, memory, threshold_bytes[n] / v->element, i & 1};
                if (i >= 8) { /* whatever the type: the exact size, on the board */
                    t.v = p->table[0];
                    while (t.v->dtype != LS_U8)
                        t.v = p->table[(size_t)k++ % (size_t)p->n];
                    t.algorithm = 0;
                    t.count = threshold_bytes[n];
                    t.in_place = i & 1;
                }
                if (p->memories >> memory & 1 && is_promised(t.v, t.algorithm))
                    run_trial(self, b, &t);
            }
}

/* 65537: every combination once, with one of the algorithms. 1M: four of them, one for each. */
static void run_large(rank *self, const plan *p, buffers *b)
{
    for (int c = 0; c < p->n; c += UNDER_SANITIZER ? 7 : 1) {
        const values *v = p->table[c];
        int a = (c + p->large + self->size) % (v->kind == WILD ? 2 : 4);
        trial t = {v, a, c / 2 % 2, (c + p->large) % MEMORIES, 65537, (size_t)(c & 1)};
        run_trial(self, b, &t);
    }
    for (int a = UNDER_SANITIZER ? 3 : 0; a < 4; a++) {
        int c = (p->large * 9 + self->size) * 4 * 5 + a * 17;
        while (!is_promised(p->table[c % p->n], a))
            c++;
        trial t = {p->table[c % p->n], a, (c + a) % 2, (a + p->large) % MEMORIES, MILLION, 1};
        run_trial(self, b, &t);
    }
}

static void body(rank *self)
{
    const plan *p = self->arg;
    buffers b;
    buffers_open(self, &b, (p->large >= 0 ? MILLION + 1 : 16386) * 8);
    if (p->thin)
        run_small(self, p, &b);
    if (p->thresholds)
        run_thresholds(self, p, &b);
    if (p->large >= 0)
        run_large(self, p, &b);
    buffers_close(self, &b);
}

static void run(ranks_layout layout, plan p)
{
    make_table(&p, layout.size);
    if (UNDER_SANITIZER && p.thin)
        p.thin *= UNDER_TSAN ? 61 : 23;
    ranks_run(&layout, body, &p);
}

static void test_shm(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 9; n += UNDER_SANITIZER && n > 2 ? 2 : 1)
        run(ranks_shm(n), (plan){.memories = 7, .thin = 1, .large = 0});
}

static void test_tcp(void **unused)
{
    (void)unused;
    for (int n = 2; n <= 9; n += UNDER_SANITIZER ? 3 : 1)
        run(ranks_tcp(n), (plan){.memories = 1u << PRIVATE, .thin = 1, .large = 1});
}

static void test_two_levels(void **unused)
{
    (void)unused;
    static const char *const splits[] = {"2+1", "2+3+4", "1+2", "3+2",   "4+4",   "1+1",
                                         "2+2", "1+2+3", "3+4", "1+1+1", "5+1+3", "1+7+1"};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i += UNDER_SANITIZER ? 3 : 1)
        run(ranks_hosts(splits[i]),
            (plan){.memories = 7, .thin = UNDER_SANITIZER ? 5 : 1, .large = 2});
}

/* Thresholds of the board: with cores to spare or crowded, with and without reading each other's
 * private memory. */
static void test_thresholds(void **unused)
{
    (void)unused;
    for (int spin = 0; spin < 2; spin++)
        for (int cma = 0; cma < 2; cma++)
            for (int n = 2; n <= 9; n += UNDER_SANITIZER ? 5 : 1) {
                setenv("LOCKSTEP_SPIN", spin ? "150" : "4", 1);
                setenv("LOCKSTEP_CMA", cma ? "1" : "0", 1);
                plan p = {.memories = 7, .large = -1, .thresholds = 1};
                if ((n <= 3 || (n == 7 && spin)) && !cma)
                    p.large = 3;
                run(ranks_shm(n), p);
            }
    for (int n = 3; n <= 9; n += 3)
        run(ranks_hosts(n == 3   ? "2+1"
                        : n == 6 ? "2+4"
                                 : "3+3+3"),
            (plan){.memories = 7, .large = -1, .thresholds = 1});
    unsetenv("LOCKSTEP_SPIN");
    unsetenv("LOCKSTEP_CMA");
}

/* Two sockets a peer. */
static void test_lanes(void **unused)
{
    (void)unused;
    ranks_layout l = ranks_tcp(4);
    l.lanes = 2;
    run(l, (plan){.memories = 1u << PRIVATE, .thin = 11, .large = 4});
    l = ranks_hosts("2+1+2");
    l.lanes = 3;
    run(l, (plan){.memories = 7, .thin = 31, .large = 5});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm),        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_two_levels), cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_lanes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    values_free();
    return failed;
}

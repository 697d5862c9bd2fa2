/* All-reduce against the oracle: the matrix of matrix.h, whose head says what is covered, and which
 * is checked at the end; each small cell in shared, private and mixed memory, large ones in one of
 * them in turns. Besides: other splits over hosts and several sockets a peer, of which a rotating
 * part is run, and the sizes where the board changes its ways.
 *
 * Under a sanitizer the matrix is thinned out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "matrix.h"
#include "ranks.h"
#include "values.h"

#define COMBINATIONS_MAX 64
#define LARGE 65537
/* Of the cells of a group, under a sanitizer, every so manieth is run. */
#define THIN_SMALL (UNDER_TSAN ? 61 : 23)
#define THIN_LARGE 41
#define THIN_MILLION 11

/* Around the places where the board changes its ways: in the slot, in a box, in boxes by parts (of
 * eight and nine ranks from 8193 and 7169 bytes on), in place. */
static const size_t threshold_bytes[] = {48,    56,    57,    64,    119,   120,  121,
                                         2047,  2048,  2049,  7168,  7169,  8192, 8193,
                                         12287, 12288, 12289, 16383, 16384, 16385};

/* What one group runs, and the patterns for it. */
typedef struct plan {
    const values *table[COMBINATIONS_MAX];
    int n;
    int way;      /* of ranks_ways: the matrix; -1: a part in turns, as the rest says */
    int memories; /* bits */
    int thin;     /* of the small counts every thin-th case is run; 0: none */
    int large;    /* which rotation of the large counts; -1: none */
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
    rank_case(self, "allreduce %s %s %s %s %zu%s %s +%zu", lsi_algorithm_names[t->algorithm],
              ls_dtype_name(v->dtype), ls_op_name(v->op), v->kind == WILD ? "wild" : "exact",
              t->count, t->in_place ? " in place" : "", memory_names[t->memory], t->skew);
    buffers_poison(recv, bytes);
    values_fill(t->in_place ? recv : send, v->input[self->rank], v->element, t->count);
    rank_select(self, self->comm, "allreduce", lsi_algorithm_names[t->algorithm]);
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
    return v->kind == EXACT || matrix_is_ordered(algorithm);
}

/* One cell with one kind of values: in all memories, or in one of them. */
static void run_cell(rank *self, const plan *p, buffers *b, const matrix_cell *cell,
                     const values *v, int *turn)
{
    const int is_small = cell->count < MATRIX_SMALL;
    int memory = PRIVATE, memories = 1;
    if (p->memories != 1 << PRIVATE) {
        memory = is_small ? 0 : *turn % MEMORIES;
        memories = is_small ? MEMORIES : 1;
    }
    for (int m = memory; m < memory + memories; m++) {
        const size_t count = matrix_counts[cell->count];
        const int thin = is_small ? THIN_SMALL : count == LARGE ? THIN_LARGE : THIN_MILLION;
        trial t = {v, cell->algorithm, cell->in_place, m, count, (size_t)(cell->count + *turn) % 2};
        if (++*turn % thin && UNDER_SANITIZER)
            continue;
        run_trial(self, b, &t);
        if (self->rank == 0)
            matrix_note(cell, v->kind);
    }
}

/* This group's part of the matrix. */
static void run_matrix(rank *self, const plan *p, buffers *b)
{
    int turn[3] = {self->size, self->size, self->size};
    for (int c = 0; c < p->n; c++) {
        const values *v = p->table[c];
        matrix_cell cell = {p->way, self->size, 0, 0, 0, v->dtype, v->op};
        for (cell.algorithm = 0; cell.algorithm < LSI_ALGORITHM_COUNT; cell.algorithm++)
            for (cell.count = 0; cell.count < MATRIX_COUNTS; cell.count++)
                for (cell.in_place = 0; cell.in_place < 2; cell.in_place++) {
                    const int large = cell.count - MATRIX_SMALL + 1;
                    if (is_promised(v, cell.algorithm) && matrix_is_run(&cell) &&
                        (large <= 0 || v->kind == matrix_kind(&cell)))
                        run_cell(self, p, b, &cell, v, &turn[large > 0 ? large : 0]);
                }
    }
}

/* Every thin-th of the small cases. */
static void run_small(rank *self, const plan *p, buffers *b)
{
    int k = self->size;
    for (int c = 0; c < p->n; c++)
        for (int a = 0; a < LSI_ALGORITHM_COUNT; a++)
            for (int n = 0; n < MATRIX_SMALL; n++)
                for (int in_place = 0; in_place < 2; in_place++)
                    for (int memory = 0; memory < MEMORIES; memory++) {
                        trial t = {p->table[c],  a, in_place, memory, matrix_counts[n],
                                   (size_t)n % 2};
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

/* 65537: every combination once, with one of the algorithms. 1M: one for each of them. */
static void run_large(rank *self, const plan *p, buffers *b)
{
    for (int c = 0; c < p->n; c += UNDER_SANITIZER ? 7 : 1) {
        const values *v = p->table[c];
        int a = (c + p->large + self->size) % LSI_ALGORITHM_COUNT;
        while (!is_promised(v, a))
            a = (a + 1) % LSI_ALGORITHM_COUNT;
        trial t = {v, a, c / 2 % 2, (c + p->large) % MEMORIES, LARGE, (size_t)(c & 1)};
        run_trial(self, b, &t);
    }
    for (int a = UNDER_SANITIZER ? LSI_ALGORITHM_COUNT - 1 : 0; a < LSI_ALGORITHM_COUNT; a++) {
        int c = (p->large * 9 + self->size) * 4 * 5 + a * 17;
        while (!is_promised(p->table[c % p->n], a))
            c++;
        int memory = (a + p->large) % MEMORIES;
        trial t = {p->table[c % p->n], a, (p->large + a) % 2, memory, MATRIX_MILLION, 1};
        run_trial(self, b, &t);
    }
}

static void body(rank *self)
{
    const plan *p = self->arg;
    buffers b;
    buffers_open(self, &b, (p->way >= 0 || p->large >= 0 ? MATRIX_MILLION + 1 : 16386) * 8);
    if (p->way >= 0)
        run_matrix(self, p, &b);
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
        p.thin *= THIN_SMALL;
    layout.alarm_s = 120;
    ranks_run(&layout, body, &p);
}

static void run_way(int way)
{
    const int step = !UNDER_SANITIZER ? 1 : way == RANKS_SHM ? 2 : 3;
    for (int n = 1; n <= MATRIX_RANKS; n += n > 1 ? step : 1)
        run(ranks_ways[way].layout(n),
            (plan){.way = way,
                   .memories = ranks_ways[way].reads_memory ? 7 : 1 << PRIVATE,
                   .large = -1});
}

static void test_matrix(void **unused)
{
    (void)unused;
    for (int way = 0; way < RANKS_WAYS; way++)
        run_way(way);
    matrix_check();
}

/* Splits that the matrix has not. */
static void test_splits(void **unused)
{
    (void)unused;
    static const char *const splits[] = {"1+2", "1+1+1", "5+1+3", "1+7+1"};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i += UNDER_SANITIZER ? 3 : 1)
        run(ranks_hosts(splits[i]),
            (plan){.way = -1, .memories = 7, .thin = UNDER_SANITIZER ? 5 : 1, .large = 2});
}

/* Thresholds of the board: waiting as there are cores, or for long, with and without reading each
 * other's private memory. */
static void test_thresholds(void **unused)
{
    (void)unused;
    for (int spin = 0; spin < 2; spin++)
        for (int cma = 0; cma < 2; cma++)
            for (int n = 2; n <= 9; n += UNDER_SANITIZER ? 5 : 1) {
                if (spin)
                    setenv("LOCKSTEP_SPIN", "150", 1);
                setenv("LOCKSTEP_CMA", cma ? "1" : "0", 1);
                plan p = {.way = -1, .memories = 7, .large = -1, .thresholds = 1};
                if ((n <= 3 || (n == 7 && spin)) && !cma)
                    p.large = 3;
                run(ranks_shm(n), p);
            }
    for (int n = 3; n <= 9; n += 3)
        run(ranks_hosts(n == 3   ? "2+1"
                        : n == 6 ? "2+4"
                                 : "3+3+3"),
            (plan){.way = -1, .memories = 7, .large = -1, .thresholds = 1});
    unsetenv("LOCKSTEP_SPIN");
    unsetenv("LOCKSTEP_CMA");
}

/* Two sockets a peer. */
static void test_lanes(void **unused)
{
    (void)unused;
    ranks_layout l = ranks_tcp(4);
    l.lanes = 2;
    run(l, (plan){.way = -1, .memories = 1 << PRIVATE, .thin = 11, .large = 4});
    l = ranks_hosts("2+1+2");
    l.lanes = 3;
    run(l, (plan){.way = -1, .memories = 7, .thin = 31, .large = 5});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_lanes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    values_free();
    return failed;
}

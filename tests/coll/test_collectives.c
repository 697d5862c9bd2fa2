/* The other collectives against plain expectations: every root, every algorithm offered, counts
 * from 0 to past all thresholds, in place where that is defined, in shared, private and mixed
 * memory; over shared memory (with and without reading each other's), tcp, and two levels. Types
 * and operators take turns there.
 *
 * Reductions besides, for every way, algorithm, type and operator: 2 and 65537 elements by 2 and by
 * 5 ranks, 1M by 2 or 3, in place or not in turns. The table `reduced` is checked at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "ranks.h"
#include "values.h"

#define COUNT_MAX ((size_t)20011)
#define COMBINATIONS_MAX 64
#define MILLION ((size_t)1 << 20)

static const size_t counts[] = {0, 1, 2, 3, 7, 31, 513, 997, COUNT_MAX};
#define N_COUNTS (sizeof counts / sizeof *counts)

/* One call. */
typedef struct shape {
    const values *v;
    const char *algorithm;
    size_t count;
    int root, memory, in_place;
    size_t skew; /* bytes */
} shape;

typedef struct plan {
    const values *table[COMBINATIONS_MAX];
    int n, thin, way;
} plan;

static void name(rank *self, const char *what, const shape *s)
{
    rank_case(self, "%s %s %s %s %zu root %d%s %s +%zu", what, s->algorithm,
              ls_dtype_name(s->v->dtype), ls_op_name(s->v->op), s->count, s->root,
              s->in_place ? " in place" : "", memory_names[s->memory], s->skew);
}

static char *pick(rank *self, buffers *b, const shape *s, int which)
{
    return buffers_pick(self, b, s->memory, which, s->skew);
}

static const void *input(const rank *self, const shape *s, int of)
{
    (void)self;
    return s->v->input[of];
}

static void check_block(rank *self, const shape *s, const char *at, const void *pattern,
                        size_t from, size_t count)
{
    size_t bad = values_differ(at, pattern, s->v->element, from, count);
    CHECK(self, bad == count, "differs at element %zu of %zu", bad, count);
}

static void reduce(rank *self, buffers *b, const shape *s)
{
    size_t bytes = s->count * s->v->element;
    char *send = pick(self, b, s, SEND), *recv = pick(self, b, s, RECV);
    name(self, "reduce", s);
    buffers_poison(recv, bytes);
    values_fill(s->in_place ? recv : send, input(self, s, self->rank), s->v->element, s->count);
    int null = !s->in_place && self->rank != s->root && s->root % 2; /* not looked at there */
    OK(self, ls_reduce(self->comm, s->in_place ? LS_IN_PLACE : send, null ? NULL : recv, s->count,
                       s->v->dtype, s->v->op, s->root));
    if (self->rank == s->root)
        check_block(self, s, recv, s->v->expected[self->size - 1], 0, s->count);
    else if (s->in_place) /* the input stays */
        check_block(self, s, recv, input(self, s, self->rank), 0, s->count);
    else
        for (size_t i = 0; i < bytes; i++)
            CHECK(self, (unsigned char)recv[i] == 0xa5, "not the root's buffer was written");
    buffers_check_guard(self, recv, bytes);
    if (!s->in_place)
        check_block(self, s, send, input(self, s, self->rank), 0, s->count);
}

static void reduce_scatter(rank *self, buffers *b, const shape *s)
{
    size_t bytes = s->count * s->v->element, all = s->count * (size_t)self->size;
    char *send = pick(self, b, s, SEND), *recv = pick(self, b, s, RECV);
    size_t first = s->count * (size_t)self->rank;
    name(self, "reduce_scatter", s);
    buffers_poison(recv, s->in_place ? bytes * (size_t)self->size : bytes);
    values_fill(s->in_place ? recv : send, input(self, s, self->rank), s->v->element, all);
    OK(self, ls_reduce_scatter(self->comm, s->in_place ? LS_IN_PLACE : send, recv, s->count,
                               s->v->dtype, s->v->op));
    check_block(self, s, s->in_place ? recv + bytes * (size_t)self->rank : recv,
                s->v->expected[self->size - 1], first, s->count);
    buffers_check_guard(self, recv, s->in_place ? bytes * (size_t)self->size : bytes);
    if (!s->in_place)
        check_block(self, s, send, input(self, s, self->rank), 0, all);
}

static void allgather(rank *self, buffers *b, const shape *s)
{
    size_t bytes = s->count * s->v->element;
    char *send = pick(self, b, s, SEND), *recv = pick(self, b, s, RECV);
    name(self, "allgather", s);
    buffers_poison(recv, bytes * (size_t)self->size);
    values_fill(s->in_place ? recv + bytes * (size_t)self->rank : send, input(self, s, self->rank),
                s->v->element, s->count);
    OK(self,
       ls_allgather(self->comm, s->in_place ? LS_IN_PLACE : send, recv, s->count, s->v->dtype));
    for (int r = 0; r < self->size; r++)
        check_block(self, s, recv + bytes * (size_t)r, input(self, s, r), 0, s->count);
    buffers_check_guard(self, recv, bytes * (size_t)self->size);
}

/* Uneven counts, some of them 0, up to s->count. */
static size_t uneven(const shape *s, int a, int b)
{
    unsigned h = (unsigned)(a * 7 + b * 13 + (int)s->count) % 5;
    return h == 0 ? 0 : h == 1 ? s->count : s->count / h + (s->count > 3 ? h : 0);
}

static void allgatherv(rank *self, buffers *b, const shape *s)
{
    size_t each[RANKS_MAX], at[RANKS_MAX + 1] = {0}, element = s->v->element;
    char *send = pick(self, b, s, SEND), *recv = pick(self, b, s, RECV);
    name(self, "allgatherv", s);
    for (int r = 0; r < self->size; r++) {
        each[r] = uneven(s, r, 0);
        at[r + 1] = at[r] + each[r];
    }
    size_t all = at[self->size] * element, own = each[self->rank];
    buffers_poison(recv, all);
    values_fill(s->in_place ? recv + at[self->rank] * element : send, input(self, s, self->rank),
                element, own);
    const void *from = own ? send : NULL;
    OK(self, ls_allgatherv(self->comm, s->in_place ? LS_IN_PLACE : from, recv, each, s->v->dtype));
    for (int r = 0; r < self->size; r++)
        check_block(self, s, recv + at[r] * element, input(self, s, r), 0, each[r]);
    buffers_check_guard(self, recv, all);
}

static void broadcast(rank *self, buffers *b, const shape *s)
{
    size_t bytes = s->count * s->v->element;
    char *data = pick(self, b, s, RECV);
    name(self, "broadcast", s);
    buffers_poison(data, bytes);
    if (self->rank == s->root)
        values_fill(data, input(self, s, s->root), s->v->element, s->count);
    OK(self, ls_broadcast(self->comm, data, s->count, s->v->dtype, s->root));
    check_block(self, s, data, input(self, s, s->root), 0, s->count);
    buffers_check_guard(self, data, bytes);
}

static void gather(rank *self, buffers *b, const shape *s)
{
    size_t bytes = s->count * s->v->element;
    char *send = pick(self, b, s, SEND), *recv = pick(self, b, s, RECV);
    int in_place = s->in_place && self->rank == s->root;
    name(self, "gather", s);
    buffers_poison(recv, bytes * (size_t)self->size);
    values_fill(in_place ? recv + bytes * (size_t)self->rank : send, input(self, s, self->rank),
                s->v->element, s->count);
    OK(self, ls_gather(self->comm, in_place ? LS_IN_PLACE : send,
                       self->rank == s->root ? recv : NULL, s->count, s->v->dtype, s->root));
    for (int r = 0; self->rank == s->root && r < self->size; r++)
        check_block(self, s, recv + bytes * (size_t)r, input(self, s, r), 0, s->count);
    buffers_check_guard(self, recv, bytes * (size_t)self->size);
}

static void scatter(rank *self, buffers *b, const shape *s)
{
    size_t bytes = s->count * s->v->element, all = bytes * (size_t)self->size;
    char *send = pick(self, b, s, SEND), *recv = pick(self, b, s, RECV);
    int is_root = self->rank == s->root, in_place = s->in_place && is_root;
    name(self, "scatter", s);
    buffers_poison(recv, in_place ? all : bytes);
    if (is_root)
        values_fill(in_place ? recv : send, input(self, s, s->root), s->v->element,
                    s->count * (size_t)self->size);
    OK(self, ls_scatter(self->comm,
                        in_place  ? LS_IN_PLACE
                        : is_root ? send
                                  : NULL,
                        recv, s->count, s->v->dtype, s->root));
    char *own = in_place ? recv + bytes * (size_t)self->rank : recv;
    check_block(self, s, own, input(self, s, s->root), s->count * (size_t)self->rank, s->count);
    if (in_place) /* the other blocks are untouched */
        check_block(self, s, recv, input(self, s, s->root), 0, s->count * (size_t)self->size);
    buffers_check_guard(self, recv, in_place ? all : bytes);
}

/* What `from` sends to `to` begins at this element of its endless vector. */
static size_t origin(int from, int to)
{
    return (size_t)(from * 31 + to * 97);
}

static void alltoall(rank *self, buffers *b, const shape *s)
{
    size_t bytes = s->count * s->v->element;
    char *send = pick(self, b, s, SEND), *recv = pick(self, b, s, RECV);
    name(self, "alltoall", s);
    buffers_poison(recv, bytes * (size_t)self->size);
    for (int r = 0; r < self->size; r++)
        values_fill_from(send + bytes * (size_t)r, input(self, s, self->rank), s->v->element,
                         origin(self->rank, r), s->count);
    OK(self, ls_alltoall(self->comm, send, recv, s->count, s->v->dtype));
    for (int r = 0; r < self->size; r++) {
        check_block(self, s, recv + bytes * (size_t)r, input(self, s, r), origin(r, self->rank),
                    s->count);
        check_block(self, s, send + bytes * (size_t)r, input(self, s, self->rank),
                    origin(self->rank, r), s->count);
    }
    buffers_check_guard(self, recv, bytes * (size_t)self->size);
}

static void alltoallv(rank *self, buffers *b, const shape *s)
{
    size_t sends[RANKS_MAX], receives[RANKS_MAX], element = s->v->element, at = 0, all = 0;
    char *send = pick(self, b, s, SEND), *recv = pick(self, b, s, RECV);
    name(self, "alltoallv", s);
    for (int r = 0; r < self->size; r++) {
        sends[r] = uneven(s, self->rank, r);
        receives[r] = uneven(s, r, self->rank);
        values_fill_from(send + at * element, input(self, s, self->rank), element,
                         origin(self->rank, r), sends[r]);
        at += sends[r];
        all += receives[r] * element;
    }
    buffers_poison(recv, all);
    OK(self, ls_alltoallv(self->comm, send, sends, recv, receives, s->v->dtype));
    at = 0;
    for (int r = 0; r < self->size; r++) {
        check_block(self, s, recv + at * element, input(self, s, r), origin(r, self->rank),
                    receives[r]);
        at += receives[r];
    }
    buffers_check_guard(self, recv, all);
}

static void (*const calls[])(rank *, buffers *,
                             const shape *) = {reduce,     reduce_scatter, allgather,
                                               allgatherv, broadcast,      gather,
                                               scatter,    alltoall,       alltoallv};
enum { N_CALLS = sizeof calls / sizeof *calls };
static const char *const names[N_CALLS] = {"reduce",     "reduce_scatter", "allgather",
                                           "allgatherv", "broadcast",      "gather",
                                           "scatter",    "alltoall",       "alltoallv"};

static int is_rooted(int call)
{
    return calls[call] == reduce || calls[call] == broadcast || calls[call] == gather ||
           calls[call] == scatter;
}

static int has_place(int call)
{
    return calls[call] != broadcast && calls[call] != alltoall && calls[call] != alltoallv;
}

/* The sums of the others are in an order of their own. */
static int is_ordered(int algorithm)
{
    return algorithm != LSI_RING;
}

static const values *choose_values(const plan *p, int call, int algorithm, int k)
{
    for (;; k++) {
        const values *v = p->table[k % p->n];
        if (v->kind == EXACT ||
            (is_ordered(algorithm) && (calls[call] == reduce || calls[call] == reduce_scatter)))
            return v;
    }
}

static void body(rank *self)
{
    const plan *p = self->arg;
    buffers b;
    int k = 0, skipped = 0;
    buffers_open(self, &b, COUNT_MAX * 8 * (size_t)self->size + 64);
    for (int call = 0; call < N_CALLS; call++)
        for (int a = 0; a < LSI_ALGORITHM_COUNT; a++) {
            if (ls_comm_select(self->comm, names[call], lsi_algorithm_names[a]) != LS_OK)
                continue; /* not offered */
            for (size_t n = 0; n < N_COUNTS; n++)
                for (int root = 0; root < (is_rooted(call) ? self->size : 1); root++)
                    for (int in_place = 0; in_place < 1 + has_place(call); in_place++) {
                        if (skipped++ % p->thin)
                            continue;
                        const values *v = choose_values(p, call, a, k++);
                        shape s = {
                            v,        lsi_algorithm_names[a],      counts[n], root, k % MEMORIES,
                            in_place, (size_t)(k & 1) * v->element};
                        calls[call](self, &b, &s);
                    }
        }
    rank_case(self, "barrier");
    for (int i = 0; i < 20; i++)
        OK(self, ls_barrier(self->comm));
    buffers_close(self, &b);
}

static void make_table(plan *p, int size)
{
    for (int d = 0; d < LS_DTYPE_COUNT; d++)
        for (int o = 0; o < LS_OP_COUNT; o++) {
            if (!ls_op_supports((ls_op)o, (ls_dtype)d))
                continue;
            p->table[p->n++] = values_get((ls_dtype)d, (ls_op)o, EXACT, size);
            if (values_has_wild((ls_dtype)d, (ls_op)o))
                p->table[p->n++] = values_get((ls_dtype)d, (ls_op)o, WILD, size);
        }
}

static void run(ranks_layout layout, int thin)
{
    plan p = {.thin = UNDER_SANITIZER ? thin * 3 : thin};
    make_table(&p, layout.size);
    ranks_run(&layout, body, &p);
}

static void test_shm(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 9; n += UNDER_SANITIZER && n > 2 ? 3 : 1)
        run(ranks_shm(n), 1);
}

/* The ways of the board when every rank has a core of its own, and without process_vm_readv. */
static void test_shm_ways(void **unused)
{
    (void)unused;
    for (int cma = 0; cma < 2; cma++)
        for (int n = 2; n <= 7; n += UNDER_SANITIZER ? 3 : 1) {
            setenv("LOCKSTEP_SPIN", "150", 1);
            setenv("LOCKSTEP_CMA", cma ? "1" : "0", 1);
            run(ranks_shm(n), n > 3 ? 3 : 1);
        }
    unsetenv("LOCKSTEP_SPIN");
    unsetenv("LOCKSTEP_CMA");
}

static void test_tcp(void **unused)
{
    (void)unused;
    for (int n = 2; n <= 9; n += UNDER_SANITIZER ? 3 : 1) {
        ranks_layout l = ranks_tcp(n);
        l.lanes = 1 + n % 2;
        run(l, n > 4 ? 3 : 1);
    }
}

static void test_two_levels(void **unused)
{
    (void)unused;
    static const char *const splits[] = {"2+1", "1+2",   "3+2", "2+3+4",
                                         "4+4", "1+1+1", "2+2", "1+5"};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i += UNDER_SANITIZER ? 3 : 1)
        run(ranks_hosts(splits[i]), 3);
}

enum { REDUCE, REDUCE_SCATTER, REDUCTIONS }; /* as in `calls` */
static const size_t reduced_counts[] = {2, 65537, MILLION};
enum { N_REDUCED = sizeof reduced_counts / sizeof *reduced_counts };
/* How often. */
static unsigned reduced[RANKS_WAYS][REDUCTIONS][LSI_ALGORITHM_COUNT][LS_DTYPE_COUNT][LS_OP_COUNT]
                       [N_REDUCED];

/* Of 1M one in two, by 2 or by 3 ranks. */
static int is_reduced(const rank *self, size_t count, int turn)
{
    return count < MILLION ? self->size != 3 : self->size == 2 + turn % 2;
}

static void body_reductions(rank *self)
{
    const plan *p = self->arg;
    buffers b;
    int turn = 0;
    buffers_open(self, &b, (self->size > 3 ? 65537 : MILLION) * 8 * (size_t)self->size + 64);
    for (int call = 0; call < REDUCTIONS; call++)
        for (int a = 0; a < LSI_ALGORITHM_COUNT; a++) {
            if (ls_comm_select(self->comm, names[call], lsi_algorithm_names[a]) != LS_OK)
                continue;
            for (int c = 0; c < p->n; c++) {
                const values *v = p->table[c];
                if (v->kind != (is_ordered(a) && values_has_wild(v->dtype, v->op) ? WILD : EXACT))
                    continue;
                for (int n = 0; n < N_REDUCED; n++) {
                    shape s = {v,
                               lsi_algorithm_names[a],
                               reduced_counts[n],
                               turn % self->size,
                               turn % MEMORIES,
                               (turn + a + self->size) / 2 % 2,
                               (size_t)(turn & 1) * v->element};
                    turn += n == N_REDUCED - 1;
                    if (!is_reduced(self, s.count, turn) ||
                        (UNDER_SANITIZER && (turn + n) % p->thin))
                        continue;
                    calls[call](self, &b, &s);
                    if (self->rank == 0)
                        reduced[p->way][call][a][v->dtype][v->op][n]++;
                }
            }
        }
    buffers_close(self, &b);
}

static void check_reduced(int way, int call, int a, int n)
{
    if (!lsi_select_offers((lsi_coll)(call == REDUCE ? LSI_REDUCE : LSI_REDUCE_SCATTER),
                           (lsi_algorithm)a))
        return;
    for (int d = 0; d < LS_DTYPE_COUNT; d++)
        for (int o = 0; o < LS_OP_COUNT; o++)
            if (ls_op_supports((ls_op)o, (ls_dtype)d) && !reduced[way][call][a][d][o][n])
                fail_msg("not run: %s, %s %s %s %s, %zu elements", ranks_ways[way].name,
                         names[call], lsi_algorithm_names[a], ls_dtype_name((ls_dtype)d),
                         ls_op_name((ls_op)o), reduced_counts[n]);
}

static void test_reductions(void **unused)
{
    (void)unused;
    static const int sizes[] = {2, 3, 5};
    for (int way = 0; way < RANKS_WAYS; way++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            ranks_layout layout = ranks_ways[way].layout(sizes[i]);
            plan p = {.thin = 17, .way = way};
            make_table(&p, sizes[i]);
            ranks_run(&layout, body_reductions, &p);
        }
    for (int way = 0; way < RANKS_WAYS && !UNDER_SANITIZER; way++)
        for (int call = 0; call < REDUCTIONS; call++)
            for (int a = 0; a < LSI_ALGORITHM_COUNT; a++)
                for (int n = 0; n < N_REDUCED; n++)
                    check_reduced(way, call, a, n);
}

/* Blocks of 22 MiB in private memory: beyond all caches two ranks have a way of their own. */
static void body_large(rank *self)
{
    const plan *p = self->arg;
    const size_t count = 11 * MILLION / 4;
    const values *v = p->table[0];
    buffers b;
    buffers_open(self, &b, count * v->element * (size_t)self->size + 64);
    for (int call = 0; call < N_CALLS; call++)
        for (int in_place = 0; in_place < 1 + has_place(call); in_place++) {
            shape s = {v, "auto", count, call % self->size, PRIVATE, in_place, 0};
            if (call % p->thin == 0)
                calls[call](self, &b, &s);
        }
    buffers_close(self, &b);
}

static void test_large(void **unused)
{
    (void)unused;
    for (int n = 2; n <= 3; n++) {
        plan p = {{values_get(LS_F64, LS_SUM, EXACT, n)}, 1, UNDER_SANITIZER ? 3 : 1, 0};
        ranks_layout layout = ranks_shm(n);
        ranks_run(&layout, body_large, &p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm),        cmocka_unit_test(test_shm_ways),
        cmocka_unit_test(test_tcp),        cmocka_unit_test(test_two_levels),
        cmocka_unit_test(test_reductions), cmocka_unit_test(test_large),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    values_free();
    return failed;
}

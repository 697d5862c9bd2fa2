/* What is run of the matrix, told by properties of a cell, and checked by counting. */
#include "matrix.h"

#include <stdio.h>

#include "coll/call.h"

#define WORDS 100

const size_t matrix_counts[MATRIX_COUNTS] = {0, 1, 2, 3, 7, 31, 997, 65537, MATRIX_MILLION};

/* [exact or wild]: how often. */
static unsigned ran[RANKS_WAYS][MATRIX_RANKS][LS_DTYPE_COUNT][LS_OP_COUNT][LSI_ALGORITHM_COUNT]
                   [MATRIX_COUNTS][2][KINDS];

int matrix_is_ordered(int algorithm)
{
    return algorithm != LSI_RING;
}

values_kind matrix_kind(const matrix_cell *c)
{
    return matrix_is_ordered(c->algorithm) && values_has_wild(c->dtype, c->op) ? WILD : EXACT;
}

int matrix_is_run(const matrix_cell *c)
{
    if (!ls_op_supports(c->op, c->dtype))
        return 0;
    if (c->count < MATRIX_COUNTS - 1 || (c->dtype == LS_F32 && c->op == LS_SUM))
        return 1;
    int turn = (int)c->dtype * 3 + (int)c->op * 5 + c->algorithm * 2 + c->in_place + c->way;
    return (turn + c->size) % 3 == 0;
}

void matrix_note(const matrix_cell *c, values_kind kind)
{
    ran[c->way][c->size - 1][c->dtype][c->op][c->algorithm][c->count][c->in_place][kind]++;
}

/* Calls `look` for every place, whether it is to be run or not. */
static void each_cell(void (*look)(const matrix_cell *cell, unsigned times, void *arg), void *arg)
{
    matrix_cell c;
    for (c.way = 0; c.way < RANKS_WAYS; c.way++)
        for (c.size = 1; c.size <= MATRIX_RANKS; c.size++)
            for (int d = 0; d < LS_DTYPE_COUNT; d++)
                for (int o = 0; o < LS_OP_COUNT; o++)
                    for (c.algorithm = 0; c.algorithm < LSI_ALGORITHM_COUNT; c.algorithm++)
                        for (c.count = 0; c.count < MATRIX_COUNTS; c.count++)
                            for (c.in_place = 0; c.in_place < 2; c.in_place++) {
                                c.dtype = (ls_dtype)d;
                                c.op = (ls_op)o;
                                look(&c,
                                     ran[c.way][c.size - 1][d][o][c.algorithm][c.count][c.in_place]
                                        [matrix_kind(&c)],
                                     arg);
                            }
}

static void describe(const matrix_cell *c, char text[WORDS])
{
    snprintf(text, WORDS, "%s, %d ranks, %s %s, %s, %zu elements%s", ranks_ways[c->way].name,
             c->size, ls_dtype_name(c->dtype), ls_op_name(c->op), lsi_algorithm_names[c->algorithm],
             matrix_counts[c->count], c->in_place ? " in place" : "");
}

/* What the head of matrix.h promises, counted apart from the function that chooses. */
typedef struct tally {
    int cells, missing;
    char first[WORDS]; /* that is missing */
    /* Of 1M: by how many numbers of ranks. */
    unsigned million[RANKS_WAYS][LS_DTYPE_COUNT][LS_OP_COUNT][LSI_ALGORITHM_COUNT][2];
    /* Of each value of each axis. */
    unsigned way[RANKS_WAYS], size[MATRIX_RANKS], dtype[LS_DTYPE_COUNT], op[LS_OP_COUNT],
        algorithm[LSI_ALGORITHM_COUNT], count[MATRIX_COUNTS], in_place[2];
} tally;

static void miss(tally *t, const matrix_cell *c)
{
    if (t->missing++ == 0)
        describe(c, t->first);
}

static void count_cell(const matrix_cell *c, unsigned times, void *arg)
{
    tally *t = arg;
    t->way[c->way] += times;
    t->size[c->size - 1] += times;
    t->dtype[c->dtype] += times;
    t->op[c->op] += times;
    t->algorithm[c->algorithm] += times;
    t->count[c->count] += times;
    t->in_place[c->in_place] += times;
    if (!ls_op_supports(c->op, c->dtype))
        return;
    t->cells++;
    if (c->count == MATRIX_COUNTS - 1)
        t->million[c->way][c->dtype][c->op][c->algorithm][c->in_place] += times > 0;
    if (!times && (c->count < MATRIX_COUNTS - 1 || (c->dtype == LS_F32 && c->op == LS_SUM)))
        miss(t, c);
}

static void count_million(const matrix_cell *c, unsigned times, void *arg)
{
    tally *t = arg;
    (void)times;
    if (c->size == 2 && c->count == MATRIX_COUNTS - 1 && ls_op_supports(c->op, c->dtype) &&
        t->million[c->way][c->dtype][c->op][c->algorithm][c->in_place] < MATRIX_RANKS / 3)
        miss(t, c);
}

static void check_axis(const char *name, const unsigned *times, int n)
{
    for (int i = 0; i < n; i++)
        if (!times[i])
            fail_msg("nothing was run of %s %d", name, i);
}

void matrix_check(void)
{
    tally t = {0};
    each_cell(count_cell, &t);
    check_axis("way", t.way, RANKS_WAYS);
    check_axis("type", t.dtype, LS_DTYPE_COUNT);
    check_axis("operator", t.op, LS_OP_COUNT);
    check_axis("algorithm", t.algorithm, LSI_ALGORITHM_COUNT);
    check_axis("count", t.count, MATRIX_COUNTS);
    check_axis("in place or not", t.in_place, 2);
    if (UNDER_SANITIZER)
        return;
    check_axis("number of ranks less one", t.size, MATRIX_RANKS);
    each_cell(count_million, &t);
    if (t.missing)
        fail_msg("%d of %d cells of the matrix were not run, the first: %s", t.missing, t.cells,
                 t.first);
}

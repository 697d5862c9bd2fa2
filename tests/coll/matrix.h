/* The matrix of all-reduces: its axes, which cells of it are run, and which have been.
 *
 *     way (ranks_ways) x 1 to 9 ranks x type x operator x algorithm x count x in place or not
 *
 * Up to 65537 elements every cell is run. Of 1M elements:
 * 1. sums of f32: every way, number of ranks, algorithm, in place or not;
 * 2. every way, type, operator, algorithm, in place or not, by every third number of ranks: 1, 4
 *    and 7, or 2, 5 and 8, or 3, 6 and 9, in turns.
 * Sums and products of floats by an algorithm that keeps the tree's order are compared with wild
 * values, whose sum shows the order. Algorithms, types, operators and ways are read from their
 * registries: one more of them is in the matrix at once.
 */
#ifndef LS_TEST_MATRIX_H
#define LS_TEST_MATRIX_H

#include "ranks.h"
#include "values.h"

#define MATRIX_RANKS 9
#define MATRIX_COUNTS 9
#define MATRIX_SMALL 7 /* the first so many counts are small */
#define MATRIX_MILLION ((size_t)1 << 20)
extern const size_t matrix_counts[MATRIX_COUNTS];

/* A place in the matrix. */
typedef struct matrix_cell {
    int way, size, algorithm, count, in_place; /* count: index into matrix_counts */
    ls_dtype dtype;
    ls_op op;
} matrix_cell;

/* Does the algorithm promise the order of the tree? */
int matrix_is_ordered(int algorithm);
/* The values that say most about a cell. */
values_kind matrix_kind(const matrix_cell *cell);
/* Is it in the part that is run? */
int matrix_is_run(const matrix_cell *cell);

/* It has run, with these values. By one thread at a time. */
void matrix_note(const matrix_cell *cell, values_kind kind);
/* Fails the test, and names them, if cells that should have run have not. Under a sanitizer, where
 * the matrix is thinned out, each value of each axis must have occurred. */
void matrix_check(void);

#endif

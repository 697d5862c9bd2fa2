/* Inputs for reductions and what must come out: an oracle written apart from the library.
 *
 * Reductions are element-wise, so the values of a vector of any length are a pattern of PERIOD (a
 * prime) elements, repeated; one expected pattern serves every count. Arithmetic is done one
 * element
 * at a time: 16-bit floats through double and rounded here, integers modulo 2^bits, the tree by
 * plain recursion.
 */
#ifndef LS_TEST_VALUES_H
#define LS_TEST_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/types.h>

#define PERIOD 4099
#define VALUES_RANKS 12

/* EXACT: any order of the operations gives the same bits. WILD: another order shows. */
typedef enum values_kind { EXACT, WILD, KINDS } values_kind;

/* The patterns of one type, operator and kind. */
typedef struct values {
    ls_dtype dtype;
    ls_op op;
    values_kind kind;
    size_t element;
    unsigned char *input[VALUES_RANKS]; /* by rank */
    unsigned char
        *expected[VALUES_RANKS]; /* by number of ranks - 1, in tree order; made on demand */
} values;

/* 1 when wild values make sense: floats under sum and prod. */
int values_has_wild(ls_dtype dtype, ls_op op);
/* The patterns, made once and kept. Not for several threads; the result is read-only. */
const values *values_get(ls_dtype dtype, ls_op op, values_kind kind, int size);
void values_free(void);

/* Repeat a pattern over `count` elements at `to`. */
void values_fill(void *to, const void *pattern, size_t element, size_t count);
/* As values_fill, beginning at element `from` of the endless vector. */
void values_fill_from(void *to, const void *pattern, size_t element, size_t from, size_t count);
/* The first element at which [from, from + count) of the endless vector differs, count if none. */
size_t values_differ(const void *at, const void *pattern, size_t element, size_t from,
                     size_t count);

/* out = a op b, one element. */
void values_combine(ls_dtype dtype, ls_op op, const void *a, const void *b, void *out);

#endif

/* Element-wise kernels of the collectives: dst = left op right.
 *
 * 1. Same bits everywhere: for the same operands, every instruction set, every count and every
 *    position in the buffer give the same result, so that it does not matter how a buffer is cut
 *    among ranks.
 * 2. To that end a NaN result is always the canonical quiet NaN (sign clear, only the top bit of
 *    the fraction set: 0x7fc00000 for f32); which payload survives is otherwise the
 *    instruction's choice.
 * 3. min and max give NaN when either side is NaN; of two equals (-0 and +0) they give the right
 *    one.
 * 4. bf16 and f16 are widened to f32, combined, and rounded to nearest even. For one sum or
 *    product that equals the correctly rounded result (24 >= 2 * 11 + 2 bits of fraction).
 * 5. Integer sum and prod wrap.
 *
 * Pointers are aligned to the element. All functions here are pure, never block, never fail and
 * may be called by any thread.
 */
#ifndef LSI_COLL_REDUCE_H
#define LSI_COLL_REDUCE_H

#include <stddef.h>

#include <lockstep/types.h>

/* dst = left op right. dst may equal left or right exactly; no other overlap. */
typedef void (*lsi_reduce_fn)(void *dst, const void *left, const void *right, size_t count);

/* dst0 = dst1 = left op right in one pass. Each dst may equal left or right exactly. */
typedef void (*lsi_reduce_two_fn)(void *dst0, void *dst1, const void *left, const void *right,
                                  size_t count);

/* The kernel for this machine; NULL when `op` is not defined on `dtype`. */
lsi_reduce_fn lsi_reduce_get(ls_dtype dtype, ls_op op);
lsi_reduce_two_fn lsi_reduce_two_get(ls_dtype dtype, ls_op op);

/* dst = (a op b) op (c op d) in one pass, bit for bit; NULL when there is no such kernel: so far
 * there is one for the sum of f32 only. dst may equal any operand exactly. */
typedef void (*lsi_reduce_four_fn)(void *dst, const void *a, const void *b, const void *c,
                                   const void *d, size_t count);
lsi_reduce_four_fn lsi_reduce_four_get(ls_dtype dtype, ls_op op);

/* Reduce sources[0..n-1], 1 <= n <= 512, in the fixed tree order (tree_order.h) and write the
 * result to each of outputs[0..m-1], m >= 1. Outputs may equal sources exactly; no other overlap.
 * `op` must be defined on `dtype`. Reads each source once and writes each output once;
 * intermediate values stay in the first-level cache. */
void lsi_reduce_tree(ls_dtype dtype, ls_op op, const void *const *sources, int n,
                     void *const *outputs, int m, size_t count);

/* The instruction sets compiled in and usable on this machine, slowest first: levels
 * [0, lsi_reduce_levels()). The functions above use the last one, whatever LOCKSTEP_ISA says (it
 * speaks of a device's kernels); the tests compare them all. */
int lsi_reduce_levels(void);
const char *lsi_reduce_level_name(int level);
lsi_reduce_fn lsi_reduce_get_level(int level, ls_dtype dtype, ls_op op);
lsi_reduce_two_fn lsi_reduce_two_get_level(int level, ls_dtype dtype, ls_op op);
lsi_reduce_four_fn lsi_reduce_four_get_level(int level, ls_dtype dtype, ls_op op);

#endif

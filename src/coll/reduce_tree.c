/* Reduction of whole buffers in tree order: lsi_reduce_tree.
 *
 * All operations on one block are done before the next block is touched, so that each source is
 * read from memory once, each output is written once, and all between them stays in the
 * first-level cache. Within a block the walk is that of a binary counter: after leaf i, as many
 * pairs are merged as i + 1 has trailing zero bits; after the last leaf all that is left.
 *
 * 1. The order is that of tree_order.h; a plan of single leaves gives the same bits.
 * 2. In each block all sources are read before the first output is written: outputs may equal
 *    sources.
 */
#include <assert.h>
#include <string.h>

#include "coll/reduce.h"
#include "coll/tree_order.h"

/* Of one value: scratch, operands and result of 16 leaves fit into 32 KiB. */
#define BLOCK_BYTES 4096

typedef struct job {
    lsi_reduce_fn two;
    lsi_reduce_four_fn four; /* or NULL */
    const char *const *sources;
    int n;
    _Alignas(64) char scratch[LSI_TREE_MAX_DEPTH][BLOCK_BYTES];
} job;

/* Reduce the block of n >= 2 sources at byte `offset` into `to`. */
static void reduce_block(job *j, size_t offset, size_t count, char *to)
{
    const char *const *in = j->sources;
    if (j->n == 4 && j->four) {
        j->four(to, in[0] + offset, in[1] + offset, in[2] + offset, in[3] + offset, count);
        return;
    }
    const char *nodes[LSI_TREE_MAX_DEPTH + 1]; /* complete so far, left to right */
    int top = 0;
    for (int i = 0; i < j->n; i++) {
        const int last = i == j->n - 1;
        nodes[top++] = in[i] + offset;
        for (int done = i + 1; top > 1 && (last || done % 2 == 0); done /= 2) {
            top--;
            char *dst = last && top == 1 ? to : j->scratch[top - 1];
            j->two(dst, nodes[top - 1], nodes[top], count);
            nodes[top - 1] = dst;
        }
    }
}

static void job_init(job *j, ls_dtype dtype, ls_op op, const void *const *sources, int n)
{
    assert(n >= 1 && n <= LSI_TREE_MAX_LEAVES);
    j->two = lsi_reduce_get(dtype, op); /* the scratch is not cleared: it is large */
    j->four = lsi_reduce_four_get(dtype, op);
    j->sources = (const char *const *)sources;
    j->n = n;
    assert(j->two);
}

static void reduce_blocks(ls_dtype dtype, ls_op op, const void *const *sources, int n,
                          void *const *outputs, int m, size_t count)
{
    job j;
    job_init(&j, dtype, op, sources, n);
    const size_t size = ls_dtype_size(dtype), bytes = count * size;
    for (size_t offset = 0; offset < bytes; offset += BLOCK_BYTES) {
        const size_t part = bytes - offset < BLOCK_BYTES ? bytes - offset : BLOCK_BYTES;
        char *first = (char *)outputs[0] + offset;
        reduce_block(&j, offset, part / size, first);
        for (int i = 1; i < m; i++) {
            if (outputs[i] != outputs[0])
                memcpy((char *)outputs[i] + offset, first, part);
        }
    }
}

void lsi_reduce_tree(ls_dtype dtype, ls_op op, const void *const *sources, int n,
                     void *const *outputs, int m, size_t count)
{
    if (n == 2 && m == 1) {
        lsi_reduce_get(dtype, op)(outputs[0], sources[0], sources[1], count);
    } else if (n == 2 && m == 2) {
        lsi_reduce_two_get(dtype, op)(outputs[0], outputs[1], sources[0], sources[1], count);
    } else if (n > 1) {
        reduce_blocks(dtype, op, sources, n, outputs, m, count);
    } else {
        for (int i = 0; i < m; i++) {
            if (outputs[i] != sources[0])
                memcpy(outputs[i], sources[0], count * ls_dtype_size(dtype));
        }
    }
}

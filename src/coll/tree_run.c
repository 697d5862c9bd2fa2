/* Merge plans (tree_order.h) run on data, block by block.
 *
 * 1. All steps of a plan are done on one block before the next block is touched: what is between
 *    inputs and outputs stays in the first-level cache.
 * 2. In each block output k is written after all inputs inside it or to its left were read: that
 *    makes exact aliasing safe.
 */
#include <assert.h>
#include <string.h>

#include "coll/reduce.h"
#include "coll/tree_order.h"

#define BLOCK_BYTES 4096 /* of one value */

typedef struct run {
    const lsi_tree_plan *plan;
    lsi_reduce_fn reduce;
    const char *const *in;
    char *const *out;
    _Alignas(64) char scratch[LSI_TREE_MAX_DEPTH][BLOCK_BYTES];
} run;

/* Where an operand lies, for the block at byte `offset`. */
static const char *operand(const run *r, int value, size_t offset)
{
    assert(value < LSI_TREE_OUTPUT);
    return value >= LSI_TREE_SCRATCH ? r->scratch[value - LSI_TREE_SCRATCH] : r->in[value] + offset;
}

static char *result(run *r, int value, size_t offset)
{
    assert(value >= LSI_TREE_SCRATCH);
    return value >= LSI_TREE_OUTPUT ? r->out[value - LSI_TREE_OUTPUT] + offset
                                    : r->scratch[value - LSI_TREE_SCRATCH];
}

static void run_block(run *r, size_t offset, size_t bytes, size_t count)
{
    const lsi_tree_plan *plan = r->plan;
    int s = 0;
    for (int k = 0; k < plan->n_out; k++) {
        for (; s < plan->steps_end[k]; s++) {
            const lsi_tree_step *step = &plan->steps[s];
            r->reduce(result(r, step->dst, offset), operand(r, step->left, offset),
                      operand(r, step->right, offset), count);
        }
        if (plan->source[k] >= 0 && r->out[k] != r->in[plan->source[k]])
            memcpy(r->out[k] + offset, r->in[plan->source[k]] + offset, bytes);
    }
}

void lsi_tree_merge_run(const lsi_tree_plan *plan, ls_dtype dtype, ls_op op,
                        const void *const *in_data, void *const *out_data, size_t count)
{
    run r; /* not cleared: the scratch is large, and written before it is read */
    r.plan = plan;
    r.reduce = lsi_reduce_get(dtype, op);
    r.in = (const char *const *)in_data;
    r.out = (char *const *)out_data;
    assert(r.reduce);
    const size_t size = ls_dtype_size(dtype), bytes = count * size;
    for (size_t offset = 0; offset < bytes; offset += BLOCK_BYTES) {
        const size_t part = bytes - offset < BLOCK_BYTES ? bytes - offset : BLOCK_BYTES;
        run_block(&r, offset, part, part / size);
    }
}

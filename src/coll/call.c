/* Describing and comparing calls. */
#include "coll/call.h"

#include <stdio.h>
#include <string.h>

const char *const lsi_coll_names[LSI_COLL_COUNT] = {"allreduce", "reduce",     "reduce_scatter",
                                                    "allgather", "allgatherv", "broadcast",
                                                    "gather",    "scatter",    "alltoall",
                                                    "alltoallv", "barrier",    "send/recv"};

const char *const lsi_algorithm_names[LSI_ALGORITHM_COUNT] = {"direct", "hd", "ring", "tree"};

const char *lsi_call_describe(const lsi_wire_call *what, char *text, size_t bytes)
{
    const char *coll = what->coll < LSI_COLL_COUNT ? lsi_coll_names[what->coll] : "?";
    const char *dtype = ls_dtype_name((ls_dtype)what->dtype);
    const char *algorithm =
        what->algorithm < LSI_ALGORITHM_COUNT ? lsi_algorithm_names[what->algorithm] : "?";
    unsigned long long count = what->count;
    switch (what->coll) {
    case LSI_ALLREDUCE:
    case LSI_REDUCE_SCATTER:
        snprintf(text, bytes, "%s(%s %s, %llu elements, %s)", coll, ls_op_name((ls_op)what->op),
                 dtype, count, algorithm);
        break;
    case LSI_REDUCE:
        snprintf(text, bytes, "%s(%s %s, %llu elements, root %d, %s)", coll,
                 ls_op_name((ls_op)what->op), dtype, count, what->root, algorithm);
        break;
    case LSI_BROADCAST:
    case LSI_GATHER:
    case LSI_SCATTER:
        snprintf(text, bytes, "%s(%s, %llu elements, root %d)", coll, dtype, count, what->root);
        break;
    case LSI_BARRIER: snprintf(text, bytes, "%s()", count ? "ls_finalize" : coll); break;
    case LSI_P2P:
        snprintf(text, bytes, "%s(%s, %llu elements, tag %d)", coll, dtype, count, what->root);
        break;
    default: snprintf(text, bytes, "%s(%s, %llu elements)", coll, dtype, count);
    }
    return text;
}

int lsi_call_agrees(const lsi_wire_call *a, const lsi_wire_call *b)
{
    return a->coll == b->coll && a->dtype == b->dtype && a->op == b->op &&
           a->algorithm == b->algorithm && a->root == b->root && a->count == b->count;
}

uint32_t lsi_call_signature(const lsi_wire_call *what)
{
    uint64_t head;
    memcpy(&head, what, sizeof head);
    return lsi_call_hash(head, what->count);
}

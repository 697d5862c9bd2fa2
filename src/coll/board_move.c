/* Collectives that only move data, on the board: everybody reads what it wants from its owner. */
#include <string.h>

#include "coll/board_ops.h"

static ls_status gather_all(ls_request *r)
{
    ls_comm *comm = r->comm;
    const lsi_call *c = &r->call;
    size_t at = 0;
    for (int i = 0; i < comm->local_size; i++) { /* one host: local number == rank */
        size_t bytes = (c->recv_counts ? c->recv_counts[i] : c->count) * c->element;
        char *to = (char *)c->recv + at;
        if (i != comm->local_rank)
            LSI_TRY(lsi_board_read(r, i, 0, to, bytes));
        else if (bytes && to != (const char *)c->send)
            memcpy(to, c->send, bytes);
        at += bytes;
    }
    return LS_OK;
}

static ls_status all_to_all(ls_request *r)
{
    ls_comm *comm = r->comm;
    const lsi_call *c = &r->call;
    size_t bytes = c->count * c->element, mine = bytes * (size_t)comm->rank;
    for (int k = 0; k < comm->size; k++) {
        int i = (comm->rank + k) % comm->size; /* rotated: nobody is everyone's first */
        LSI_TRY(lsi_board_read(r, i, mine, (char *)c->recv + bytes * (size_t)i, bytes));
    }
    return LS_OK;
}

ls_status lsi_board_move(ls_request *r)
{
    ls_comm *comm = r->comm;
    const lsi_call *c = &r->call;
    size_t bytes = c->count * c->element;
    switch (c->coll) {
    case LSI_BROADCAST:
        return comm->rank == c->root ? LS_OK : lsi_board_read(r, c->root, 0, c->recv, bytes);
    case LSI_ALLGATHER:
    case LSI_ALLGATHERV: return gather_all(r);
    case LSI_GATHER: return comm->rank == c->root ? gather_all(r) : LS_OK;
    case LSI_SCATTER:
        if (comm->rank == c->root && c->in_place)
            return LS_OK;
        return lsi_board_read(r, c->root, bytes * (size_t)comm->rank, c->recv, bytes);
    case LSI_ALLTOALL: return all_to_all(r);
    default: return LS_OK; /* barrier: all have entered */
    }
}

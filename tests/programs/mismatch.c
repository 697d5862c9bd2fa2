/* The last rank calls something else than the others.
 *
 *     mismatch WHAT      count, dtype, op, root, collective, order, algorithm, message
 *
 * Everyone reports the failure (report.h) with status 3, and the same again of one more call.
 */
#include <stdlib.h>

#include "report.h"

#define COUNT 500

static ls_status call(ls_comm *world, const char *what, int odd, float *in, float *out)
{
    int size = ls_comm_size(world);
    if (!strcmp(what, "count"))
        return ls_allreduce(world, in, out, odd ? COUNT - 1 : COUNT, LS_F32, LS_SUM);
    if (!strcmp(what, "dtype"))
        return ls_allreduce(world, in, out, COUNT, odd ? LS_I32 : LS_F32, LS_SUM);
    if (!strcmp(what, "op"))
        return ls_allreduce(world, in, out, COUNT, LS_F32, odd ? LS_MAX : LS_SUM);
    if (!strcmp(what, "root"))
        return ls_broadcast(world, out, COUNT, LS_F32, odd ? size - 1 : 0);
    if (!strcmp(what, "collective"))
        return odd ? ls_barrier(world) : ls_allgather(world, in, out, COUNT, LS_F32);
    if (!strcmp(what, "algorithm")) {
        ls_status status = ls_comm_select(world, "allreduce", odd ? "ring" : "tree");
        return status ? status : ls_allreduce(world, in, out, COUNT, LS_F32, LS_SUM);
    }
    if (!strcmp(what, "order")) {
        ls_status status = odd ? ls_barrier(world) : ls_broadcast(world, out, COUNT, LS_F32, 0);
        if (status != LS_OK)
            return status;
        return odd ? ls_broadcast(world, out, COUNT, LS_F32, 0) : ls_barrier(world);
    }
    /* A message of another length than the receiver expects; ranks in between look on. */
    if (ls_comm_rank(world) == 0)
        return ls_recv(world, out, COUNT, LS_F32, size - 1, 3);
    return odd ? ls_send(world, in, COUNT / 2, LS_F32, 0, 3) : LS_OK;
}

int main(int argc, char **argv)
{
    static float in[COUNT * 64], out[COUNT * 64];
    const char *what = argc > 1 ? argv[1] : "count";
    ls_comm *world;
    ls_status status = ls_init(NULL, &world);
    double last_ok = now_s();
    int rank = own_rank(), odd = rank == ls_comm_size(world) - 1;
    if (status == LS_OK)
        status = call(world, what, odd, in, out);
    if (status == LS_OK) /* who did not notice has to at the next one */
        status = ls_barrier(world);
    if (status != LS_OK) {
        report_failure(rank, what, status, last_ok);
        ls_status again = ls_barrier(world);
        if (world && again != status)
            say("{\"rank\": %d, \"again\": \"%s\"}", rank, ls_status_name(again));
    }
    ls_finalize(world);
    return status == LS_OK ? 0 : 3;
}

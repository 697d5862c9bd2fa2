/*
 * impl_lockstep.c - Lockstep: ls_allreduce in place, on memory of the shared segment (ls_alloc) or,
 * with BENCH_FOREIGN=1, on private memory, which is staged.
 */
#include "driver.h"

#include <lockstep/lockstep.h>
#include <stdio.h>
#include <stdlib.h>

static ls_comm *world;

static int report(const char *what)
{
    fprintf(stderr, "impl_lockstep: %s: %s\n", what, ls_last_error());
    return -1;
}

static int lockstep_init(int *argc, char ***argv, int *rank, int *size)
{
    (void)argc;
    (void)argv;
    if (ls_init(NULL, &world))
        return report("ls_init");
    *rank = ls_comm_rank(world);
    *size = ls_comm_size(world);
    return 0;
}

static float *lockstep_alloc(size_t bytes)
{
    void *p = NULL;
    if (getenv("BENCH_FOREIGN"))
        return bench_private_alloc(bytes);
    if (ls_alloc(world, bytes, &p))
        report("ls_alloc");
    return p;
}

static int lockstep_allreduce(float *buffer, size_t count)
{
    if (ls_allreduce(world, LS_IN_PLACE, buffer, count, LS_F32, LS_SUM))
        return report("ls_allreduce");
    return 0;
}

static void lockstep_finish(void)
{
    ls_finalize(world);
}

const struct bench_ops bench_impl = {lockstep_init, lockstep_alloc, lockstep_allreduce,
                                     lockstep_finish};

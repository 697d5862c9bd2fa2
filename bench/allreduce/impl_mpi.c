/* impl_mpi.c - any MPI: MPI_Allreduce in place on private memory. */
#include "driver.h"

#include <mpi.h>
#include <stdio.h>

static int mpi_init(int *argc, char ***argv, int *rank, int *size)
{
    if (MPI_Init(argc, argv) != MPI_SUCCESS || MPI_Comm_rank(MPI_COMM_WORLD, rank) != MPI_SUCCESS ||
        MPI_Comm_size(MPI_COMM_WORLD, size) != MPI_SUCCESS) {
        fprintf(stderr, "impl_mpi: MPI_Init failed\n");
        return -1;
    }
    return 0;
}

static int mpi_allreduce(float *buffer, size_t count)
{
    return MPI_Allreduce(MPI_IN_PLACE, buffer, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
                   MPI_SUCCESS
               ? 0
               : -1;
}

static void mpi_finish(void)
{
    MPI_Finalize();
}

const struct bench_ops bench_impl = {mpi_init, bench_private_alloc, mpi_allreduce, mpi_finish};

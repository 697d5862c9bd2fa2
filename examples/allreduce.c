/* The smallest whole program: every rank brings a vector, all get the sum.
 *
 *     lockstep run -n 4 -- ./allreduce
 */
#include <stdio.h>

#include <lockstep/lockstep.h>

#define COUNT 1000

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ls_last_error());
    return 1;
}

int main(void)
{
    ls_comm *world;
    if (ls_init(NULL, &world) != LS_OK)
        return fail("ls_init");
    int rank = ls_comm_rank(world), size = ls_comm_size(world);

    void *memory; /* in the shared segment: the collectives work on it in place */
    if (ls_alloc(world, COUNT * sizeof(float), &memory) != LS_OK)
        return fail("ls_alloc");
    float *vector = memory;
    for (int i = 0; i < COUNT; i++)
        vector[i] = (float)(i + rank);

    if (ls_allreduce(world, LS_IN_PLACE, vector, COUNT, LS_F32, LS_SUM) != LS_OK)
        return fail("ls_allreduce");
    if (rank == 0)
        printf("%d ranks: element 1 is %g, as it should be %d\n", size, vector[1],
               size + size * (size - 1) / 2);
    ls_finalize(world);
    return 0;
}

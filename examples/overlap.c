/* Computing while a sum is under way: start, work, wait; and what an error looks like.
 *
 *     lockstep run -n 2 -- ./overlap
 */
#include <stdio.h>

#include <lockstep/lockstep.h>

#define BUCKETS 4
#define COUNT 100000

/* Stands for the backward pass that fills one bucket of gradients. */
static void compute(float *bucket, int number)
{
    for (int i = 0; i < COUNT; i++)
        bucket[i] = (float)(number + i % 7);
}

int main(void)
{
    ls_comm *world;
    if (ls_init(NULL, &world) != LS_OK) {
        fprintf(stderr, "ls_init: %s\n", ls_last_error());
        return 1;
    }
    ls_request *requests[BUCKETS] = {NULL};
    ls_status status = LS_OK;
    void *buckets[BUCKETS];
    for (int b = 0; b < BUCKETS && status == LS_OK; b++) {
        status = ls_alloc(world, COUNT * sizeof(float), &buckets[b]);
        if (status != LS_OK)
            break;
        compute(buckets[b], b); /* the buckets started before go on inside ls_request_test */
        status =
            ls_allreduce_start(world, LS_IN_PLACE, buckets[b], COUNT, LS_F32, LS_SUM, &requests[b]);
        for (int k = 0; k < b; k++)
            ls_request_test(&requests[k]);
    }
    for (int b = 0; b < BUCKETS; b++) {
        ls_status ended = ls_request_wait(&requests[b], 0);
        status = status == LS_OK ? ended : status;
    }
    if (status != LS_OK)
        fprintf(stderr, "rank %d: %s: %s\n", ls_comm_rank(world), ls_status_name(status),
                ls_last_error());
    else if (ls_comm_rank(world) == 0)
        printf("%d buckets summed over %d ranks\n", BUCKETS, ls_comm_size(world));
    ls_finalize(world);
    return status != LS_OK;
}

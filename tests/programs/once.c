/* The shortest program: join, one all-reduce, leave. */
#include "report.h"

int main(void)
{
    ls_comm *world;
    float one = 1, sum = 0;
    ls_status status = ls_init(NULL, &world);
    if (status != LS_OK) {
        fprintf(stderr, "%s: %s\n", ls_status_name(status), ls_last_error());
        return 1;
    }
    status = ls_allreduce(world, &one, &sum, 1, LS_F32, LS_SUM);
    if (status != LS_OK)
        fprintf(stderr, "%s: %s\n", ls_status_name(status), ls_last_error());
    int right = status == LS_OK && sum == (float)ls_comm_size(world);
    ls_finalize(world);
    return right ? 0 : 2;
}

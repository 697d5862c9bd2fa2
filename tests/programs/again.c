/* ls_init while the group is open, and after it was left: says {"rank", "open", "left"}, the two
 * statuses. */
#include "report.h"

int main(void)
{
    ls_comm *world, *second = NULL;
    int rank = own_rank();
    if (ls_init(NULL, &world) != LS_OK)
        return 1;
    ls_status open = ls_init(NULL, &second);
    ls_finalize(world);
    ls_status left = ls_init(NULL, &second);
    say("{\"rank\": %d, \"open\": \"%s\", \"left\": \"%s\"}", rank, ls_status_name(open),
        ls_status_name(left));
    ls_finalize(second);
    return 0;
}

/* The cores of a process: its affinity mask, which children inherit. A mask may be larger than
 * cpu_set_t, which ends at 1024; then all cores that are online count. */
#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

int lsi_cores_usable(void)
{
    cpu_set_t mask;
    long cores = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask)
                                                               : sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : (int)cores;
}

/* How many cores there are for us: fewer than the machine has under taskset, in a container with a
 * cpuset, or in a job of Slurm. */
#ifndef LSI_BASE_CORES_H
#define LSI_BASE_CORES_H

/* Those that this process may use; at least 1. Any thread. */
int lsi_cores_usable(void);

#endif

/* The embedded server in a process of its own: for who wants to be its client as anybody else. */
#ifndef LSI_LAUNCH_STORE_PROCESS_H
#define LSI_LAUNCH_STORE_PROCESS_H

#include <sys/types.h>

#include "store/store.h"

typedef struct lsi_store_process {
    pid_t pid; /* 0: none */
    int pidfd; /* of it: its number may be another's once it was collected */
    char address[LSI_ADDR_MAX];
} lsi_store_process;

/* Fork a server that listens on `host`, `port` (0: any). It ends with the calling process, however
 * that ends. Call it while the caller has one thread. */
ls_status lsi_store_process_start(const char *host, int port, const lsi_key *key,
                                  lsi_store_process *out);
/* Is there one, and has it not ended? */
int lsi_store_process_is_alive(const lsi_store_process *process);
/* End it. Also when there is none. */
void lsi_store_process_stop(lsi_store_process *process);

#endif

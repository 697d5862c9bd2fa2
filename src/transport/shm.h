/* Links through the host's shared segment: one lock-free byte ring for each direction. */
#ifndef LSI_TRANSPORT_SHM_H
#define LSI_TRANSPORT_SHM_H

#include "base/host.h"
#include "transport/link.h"

/* A link between two ranks of this host (local numbers). Borrows the segment. */
ls_status lsi_shm_link(const lsi_host *host, int local_self, int local_peer, lsi_link **out);

#endif

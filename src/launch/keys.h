/* What both kinds of runs over several hosts check before they begin: meet.c. */
#ifndef LSI_LAUNCH_KEYS_H
#define LSI_LAUNCH_KEYS_H

#include "base/auth.h"

/* The key of a run over several hosts: made when the file does not exist yet. */
ls_status lsi_launch_key(const char *path, lsi_key *key);
/* Ranks on this host tell the others their address: it must be one, not "any". */
ls_status lsi_launch_check_reachable(const char *host, const char *listen);

#endif

/* Whoever asks is told what the workers of this host do: through a socket in the run's folder, or
 * through the store. */
#ifndef LSI_LAUNCH_STATUS_H
#define LSI_LAUNCH_STATUS_H

#include <lockstep/status.h>

#define LSI_STATUS_SOCKET ".status"

/* Listen in that folder; what an earlier run has left there is replaced. -1: it cannot be. */
int lsi_status_listen(const char *folder);
/* Somebody has come: give them the text. */
void lsi_status_answer(int listener, const char *text);
/* Stop listening, and remove the socket. */
void lsi_status_close(int listener, const char *folder);

/* The other side: what the run of a folder says; the caller frees it. LS_ERR_NOT_FOUND: no run is
 * going on there. */
ls_status lsi_status_ask(const char *folder, char **text);

#endif

/* The ranks' output with "[rank] " before each line. */
#ifndef LSI_LAUNCH_OUTPUT_H
#define LSI_LAUNCH_OUTPUT_H

#include <stdint.h>

#include <lockstep/status.h>

typedef struct lsi_output lsi_output;

/* For `ranks` local ranks, the first being world rank `first_rank`. Events are registered in
 * `epoll` (borrowed) with the tags of LSI_EVENT_STREAM and LSI_EVENT_SINK. */
ls_status lsi_output_create(int epoll, int ranks, int first_rank, lsi_output **out);
/* Accepts NULL. What was not written yet is lost: see lsi_output_pending. */
void lsi_output_destroy(lsi_output *output);
/* Make the pipes of local rank `rank`. fds[0] and fds[1] are the rank's standard output and error
 * (close-on-exec); the caller closes its copies after the fork. */
ls_status lsi_output_open(lsi_output *output, int rank, int fds[2]);
/* Something is readable or writable. Never blocks. */
void lsi_output_stream_ready(lsi_output *output, uint32_t stream);
void lsi_output_sink_ready(lsi_output *output, uint32_t sink);
/* All writers have ended: take what is left in the pipes, unfinished lines too. */
void lsi_output_finish(lsi_output *output);
/* Is there output that our own standard output or error has not taken yet? NULL: no. */
int lsi_output_pending(const lsi_output *output);

#endif

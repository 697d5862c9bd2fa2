/* Signs of life of the workers of this host: see watch.c. */
#ifndef LSI_LAUNCH_WATCH_H
#define LSI_LAUNCH_WATCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/host.h"

#define LSI_WATCH_TEXT 16384

struct lsi_run;

typedef struct lsi_watch {
    double look_at;
    uint64_t beat[LSI_MAX_RANKS]; /* of each worker when it was last seen to change, */
    double moved_at[LSI_MAX_RANKS];
    pid_t pid[LSI_MAX_RANKS]; /* and whose it was */
    uint64_t step, told;      /* the furthest, since when; the latest that was said to be slow */
    double step_at, usual;    /* seconds of a step */
} lsi_watch;

/* Look, if it is time to. `folder`: of the run, for its log; NULL: none. */
void lsi_watch_look(struct lsi_run *run, lsi_watch *watch, const char *folder);
/* What each worker does, a line each; returns the length. */
size_t lsi_watch_report(const struct lsi_run *run, const lsi_watch *watch, char *text, size_t room);

#endif

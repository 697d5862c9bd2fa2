/* A run, as the files of this folder share it. launch.c owns it; nobody else allocates here. */
#ifndef LSI_LAUNCH_RUN_H
#define LSI_LAUNCH_RUN_H

#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/host.h"
#include "launch/guard.h"
#include "launch/hosts.h"
#include "launch/launch.h"
#include "launch/output.h"

#define LSI_RUN_NOTICE_S 1.0 /* for the others to notice a death and to end by themselves */
#define LSI_RUN_FAILED_S 5.0 /* for the others to end by themselves after one failed in order */
#define LSI_RUN_GRACE_S 5.0  /* between asking to end and SIGKILL */
#define LSI_RUN_IDLE_S 30.0  /* with --on-death leave: who does nothing for so long is stuck */

#define LSI_RUN_ELDERS 64

/* What an epoll event is about; the index is that of the rank, stream or sink. */
typedef enum lsi_event {
    LSI_EVENT_SIGNAL,
    LSI_EVENT_RANK,
    LSI_EVENT_EXEC,
    LSI_EVENT_HOSTS,
    LSI_EVENT_STREAM,
    LSI_EVENT_SINK,
    LSI_EVENT_GATE,
    LSI_EVENT_STATUS
} lsi_event;

/* A rank of this host. */
typedef struct lsi_child {
    pid_t pid; /* also its process group; 0: not started, or reaped */
    int pidfd;
    int exec_errno;
    int wait_status; /* once it has ended */

    /* elastic runs */
    int gate;          /* our end; -1: none */
    int here;          /* waits at the gate */
    uint64_t inside;   /* the generation that it is in, 0: none */
    int rank;          /* there */
    uint64_t since;    /* the first generation that it was in */
    int done, leaving; /* it has said so */
    int wants_state;   /* as soon as it is there */
    int wants_papers;  /* as soon as it is known whether there are any */
    int state;         /* kept for it alone; -1: nothing */
    uint64_t whole;    /* the latest generation in which that was whole; 0: it is not */
    int hungry;        /* it lacks the data */
    double started_at; /* this process */
    double start_at;   /* the next one is due; INFINITY: never */
    int restarts;      /* within the span that began at */
    double span_at;
} lsi_child;

typedef struct lsi_elastic lsi_elastic; /* elastic.c */

typedef struct lsi_run {
    const lsi_launch_config *config;
    lsi_elastic *elastic; /* NULL: a group that nobody joins or leaves */
    lsi_hosts *hosts;
    lsi_host segment;
    lsi_output *output; /* NULL: the ranks have our own descriptors */
    lsi_guard guard;
    int epoll;
    int exec_pipe[2]; /* children say here that they could not exec */

    int signal_fd;
    sigset_t caught, old_mask;
    struct sigaction old_pipe, old_child;
    struct rlimit old_files;
    int old_subreaper;

    pid_t elders[LSI_RUN_ELDERS]; /* children from before the run */
    int elders_count;
    lsi_child children[LSI_MAX_RANKS];
    int alive;           /* children that have not ended */
    double terminate_at; /* SIGTERM is due, INFINITY: never */
    double kill_at;      /* SIGKILL is due */
    int ending;          /* ranks have ended; 1: looking for strays, 2: end was published */
    double interrupted;  /* time of the first SIGINT, 0: none */
    int stop;            /* a signal came when no rank was left to get it */
    int failed_status;   /* of the first rank of this host that failed, 0: none */
    double failed_at;    /* when it did */
    int said;            /* what failed was said on stderr */
    int died;            /* a rank or a host has: what fails from now on follows from that */
    int orphaned;        /* the listener was lost before any rank of this host failed */
    const char *because; /* why ranks will be ended that are there at terminate_at; NULL: a death */
    uint64_t ticks;      /* processor time of the ranks when they were last seen to work */
    double worked_at;    /* when that was; 0: nobody has failed */
    double look_at;      /* when to look again */
} lsi_run;

/* Register `fd`; level-triggered. */
ls_status lsi_run_watch(int epoll, int fd, uint32_t events, lsi_event kind, uint32_t index);

/* child.c */
/* Start local rank `index`. */
ls_status lsi_child_start(lsi_run *run, int index);
/* Children that could not exec have said so: take it down. */
void lsi_child_read_exec(lsi_run *run);
/* Has it ended? Its status stays to be collected, so that its number stays its own. */
int lsi_child_has_ended(const lsi_child *child, int *wait_status);
/* Collect it. Its process group is forgotten unless somebody is left there. */
void lsi_child_collect(lsi_run *run, int index);
/* Send a signal to the process groups of all ranks that are alive, or just to the ranks. */
void lsi_children_signal_groups(lsi_run *run, int number);
void lsi_children_signal(lsi_run *run, int number);

/* stray.c: descendants that ranks left behind, and that are ours since their parents ended */
/* Remember the children that we have before the run: they are none of its business. */
void lsi_strays_note_elders(lsi_run *run);
/* Collect those that have ended. */
void lsi_strays_collect(lsi_run *run);
/* Send them a signal; returns how many there are, some of which may have ended meanwhile. */
int lsi_strays_signal(const lsi_run *run, int number);

/* work.c */
/* Processor time, in clock ticks, of the ranks and all that they have started. */
uint64_t lsi_work_ticks(const lsi_run *run);

/* elastic.c: a signal asks for the end. */
void lsi_elastic_ask(lsi_run *run, int number);

/* launch.c: what both kinds of runs need around their loops. */
ls_status lsi_run_new(const lsi_launch_config *config, lsi_run **out);
/* Epoll, signals, guard, output; run->hosts is there. */
ls_status lsi_run_open(lsi_run *run);
void lsi_run_close(lsi_run *run);
/* All ranks have ended: so must what they started; 1: it has, and the output is complete. */
int lsi_run_sweep(lsi_run *run);
/* Signals that are due, and the loop's next timeout. */
void lsi_run_timers(lsi_run *run);
int lsi_run_timeout_ms(const lsi_run *run);

/* signals.c */
/* Catch signals, ignore SIGPIPE, become the reaper of orphans. lsi_signals_restore undoes it. */
ls_status lsi_signals_catch(lsi_run *run);
void lsi_signals_restore(lsi_run *run);
/* In a child: back to what the user gave us. Async-signal-safe. */
void lsi_signals_reset_child(const lsi_run *run);
/* Signals have come: forward them. */
void lsi_signals_ready(lsi_run *run);

#endif

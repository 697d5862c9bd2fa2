/* What the files of `lockstep chaos` share.
 *
 *     chaos.c          the command line; undisturbed run, disturbed run, verdict
 *     chaos_plan.c     the schedule, from the seed; what is covered by a promise (pure)
 *     chaos_run.c      the disturbed run: when what is done, and what is waited for
 *     chaos_act.c      how each thing is done, and undone
 *     chaos_host.c     hosts: starting them, what they say, how they end
 *     chaos_process.c  processes by the mark in their environment
 *     chaos_net.c      hosts in network namespaces
 *     chaos_wire.c     their links, where the kernel has none that can be long
 *     chaos_metrics.c  metrics.jsonl: how far the run is; two of them compared
 *     chaos_check.c    what has to hold at the end
 *     chaos_print.c    what is told, as text or JSON
 */
#ifndef LSI_CLI_CHAOS_H
#define LSI_CLI_CHAOS_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/net.h"
#include "base/sha256.h"
#include "cli/chaos_wire.h"
#include <lockstep/status.h>

#define LSI_CHAOS_HOSTS 32 /* that a run has had in the end */
#define LSI_CHAOS_EVENTS 256
#define LSI_CHAOS_UNDOS 64
#define LSI_CHAOS_WORDS 256
#define LSI_CHAOS_WORKERS 256 /* processes of a host that are looked at */
#define LSI_CHAOS_ENV "LOCKSTEP_CHAOS"
#define LSI_CHAOS_WHY 512
#define LSI_CHAOS_FOLDER 256

typedef enum lsi_chaos_kind {
    LSI_CHAOS_KILL,     /* SIGKILL to a worker */
    LSI_CHAOS_STOP,     /* SIGSTOP to a worker, later SIGCONT */
    LSI_CHAOS_LAUNCHER, /* SIGKILL to a launcher */
    LSI_CHAOS_HOST,     /* SIGKILL to all processes of a host at once */
    LSI_CHAOS_PAUSE,    /* SIGSTOP to all processes of a host, later SIGCONT */
    LSI_CHAOS_JOIN,     /* a new host */
    LSI_CHAOS_LEAVE,    /* SIGTERM to a launcher */
    LSI_CHAOS_CUT,      /* a host's link goes down, later up */
    LSI_CHAOS_DELAY,    /* a host's link is slow for a while */
    LSI_CHAOS_STORE,    /* SIGKILL to the process that serves a host's store */
    LSI_CHAOS_KINDS
} lsi_chaos_kind;

typedef struct lsi_chaos_options {
    uint64_t seed;
    int hosts, workers, events; /* workers of each host */
    unsigned kinds;             /* bits 1 << kind */
    int netns, log, json;
    const char *store, *expect, *reference;
    double deadline_s; /* nothing has happened for so long: it hangs */

    /* of the job */
    char **words; /* MODEL ARGS… */
    int n_words;
    const char *out;
    double evict_s;
    int restarts, shards;
    uint64_t steps; /* 0: not said */
} lsi_chaos_options;

typedef struct lsi_chaos_event {
    uint64_t step; /* after so many */
    lsi_chaos_kind kind;
    int host, worker;
    double seconds; /* until it is undone */
} lsi_chaos_event;

typedef struct lsi_chaos_plan {
    int n, hosts; /* hosts that there will have been */
    uint64_t steps;
    lsi_chaos_event events[LSI_CHAOS_EVENTS];
} lsi_chaos_plan;

typedef struct lsi_chaos_host {
    pid_t pid; /* of its launcher */
    int ended, wait_status;
    int killed;               /* by us, or cut off for good: its status says nothing */
    int leaving;              /* was asked to */
    long read[2];             /* bytes of its output and of its words that were looked at */
    uint64_t generation;      /* the latest that it has entered; 0: none */
    int first, of_hosts;      /* there: is it the first, of how many */
    char store[LSI_ADDR_MAX]; /* where it meets the others */
} lsi_chaos_host;

typedef struct lsi_chaos_undo {
    lsi_chaos_kind kind;
    int host, pidfd;
    double at;
} lsi_chaos_undo;

typedef struct lsi_chaos {
    lsi_chaos_options o;
    lsi_chaos_plan plan;
    char folder[LSI_CHAOS_FOLDER]; /* temporary */
    char out[PATH_MAX], reference[PATH_MAX];
    char id[33]; /* of the mark */
    pid_t pid;
    int has_net, null_fd;
    lsi_wires *wires; /* NULL: the links are the kernel's */

    lsi_chaos_host hosts[LSI_CHAOS_HOSTS];
    int n_hosts;
    lsi_chaos_undo undo[LSI_CHAOS_UNDOS];
    int n_undo;

    double began, moved_at;          /* when something was last seen to happen */
    uint64_t steps;                  /* done */
    uint64_t generation, steps_then; /* the latest, and the steps done when it was first seen */
    uint64_t steps_acted;            /* steps done at the latest event that hit a host */
    int next, done, skipped;         /* events */
    double done_at;                  /* the work was done; 0: not yet */
    char sha256[LSI_SHA256_HEX], expected[LSI_SHA256_HEX];
    int differs; /* somebody has printed another digest */
    uint64_t lost;
    int failed;
    char why[LSI_CHAOS_WHY]; /* the first failure */
} lsi_chaos;

/* Keep the first reason. */
void lsi_chaos_fail(lsi_chaos *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* chaos_plan.c */
extern const char *const lsi_chaos_names[LSI_CHAOS_KINDS];
/* "kill,stop" to bits; all that can be done without namespaces, or with them: "all". */
ls_status lsi_chaos_parse_kinds(const char *text, int netns, unsigned *out);
/* The schedule of `steps` steps. Pure. */
void lsi_chaos_draw(const lsi_chaos_options *o, uint64_t steps, lsi_chaos_plan *plan);
/* Is it promised that the run survives this, when `hosts` of them are in the latest generation? */
int lsi_chaos_is_covered(const lsi_chaos_options *o, lsi_chaos_kind kind, int hosts, int is_first);
/* Does it change who takes part, or may it? */
int lsi_chaos_hits_hosts(lsi_chaos_kind kind);

/* chaos_run.c */
void lsi_chaos_run(lsi_chaos *c);

/* chaos_act.c: 1 when it was done, 0 when it cannot be yet, -1 when it never can: `what` says
 * it. */
int lsi_chaos_act(lsi_chaos *c, const lsi_chaos_event *e, char what[LSI_CHAOS_WHY]);
/* What is due; `all`: everything. */
void lsi_chaos_undo_due(lsi_chaos *c, int all);
/* Is the host stopped, cut off or slow? */
int lsi_chaos_is_troubled(const lsi_chaos *c, int host);

/* chaos_host.c */
/* Run `lockstep train WORDS…` with one worker to its end, in `folder`; its exit status. */
int lsi_chaos_undisturbed(lsi_chaos *c, const char *out);
ls_status lsi_chaos_start_first(lsi_chaos *c);
ls_status lsi_chaos_start_joiner(lsi_chaos *c);
/* Hear what they say, and who has ended. */
void lsi_chaos_listen(lsi_chaos *c);
int lsi_chaos_running(const lsi_chaos *c);
/* "out" or "err" of a host, or of the undisturbed run (-1). */
void lsi_chaos_log_path(const lsi_chaos *c, int host, const char *which, char path[PATH_MAX]);

/* chaos_process.c: processes with the mark; host -1: of any. */
int lsi_chaos_find(const lsi_chaos *c, int host, pid_t *pids, int room);
int lsi_chaos_signal(const lsi_chaos *c, int host, int number);
/* Children of a launcher that are workers, in order of their numbers. */
int lsi_chaos_workers(pid_t launcher, pid_t *pids, int room);
/* The child of a launcher that serves its store; 0: there is none. */
pid_t lsi_chaos_store(pid_t launcher);
/* Kill all, until none is left; how many there were at first. */
int lsi_chaos_kill_all(lsi_chaos *c);

/* chaos_net.c */
ls_status lsi_chaos_net_open(lsi_chaos *c, int hosts);
void lsi_chaos_net_close(lsi_chaos *c);
void lsi_chaos_net_address(const lsi_chaos *c, int host, char address[LSI_ADDR_MAX]);
/* In a child that is to be a process of the host: go there. */
int lsi_chaos_net_enter(const lsi_chaos *c, int host);
int lsi_chaos_net_cut(lsi_chaos *c, int host, int cut);
int lsi_chaos_net_slow(lsi_chaos *c, int host, double seconds);
/* How much longer the way to a host is that is slow for so long; 0 for 0. */
static inline int lsi_chaos_delay_ms(double seconds)
{
    return seconds > 0 ? (int)(20 + seconds * 100) : 0;
}
/* Sockets that listen in the host's namespace. */
int lsi_chaos_net_listeners(const lsi_chaos *c, int host);

/* chaos_metrics.c */
/* The latest step that has a line; 0: none. */
uint64_t lsi_chaos_steps(const char *folder);
/* Compare with the undisturbed run: every step and evaluation once, in order, with the same loss.
 * NULL: without it. Failures go to c; c->lost is counted. */
void lsi_chaos_compare(lsi_chaos *c, const char *folder, const char *reference);

/* chaos_check.c */
void lsi_chaos_check(lsi_chaos *c);

/* chaos_print.c */
void lsi_chaos_print_plan(const lsi_chaos *c);
void lsi_chaos_print_event(const lsi_chaos *c, const lsi_chaos_event *e, const char *how,
                           const char *what);
void lsi_chaos_print_line(const lsi_chaos *c, int host, const char *line);
void lsi_chaos_print_end(const lsi_chaos *c);

#endif

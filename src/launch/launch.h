/* Starting a program as the ranks of a group, and watching over it until the end.
 *
 * lsi_launch is the launcher of one host: `lockstep run` calls it with what the command line
 * says, other commands (bench, train) with themselves as the program. It owns the host's shared
 * segment, serves the store when it is the first host of the run, and tells the ranks who they
 * are through their boot records. README.md has the order in which to read this folder.
 */
#ifndef LSI_LAUNCH_LAUNCH_H
#define LSI_LAUNCH_LAUNCH_H

#include <lockstep/status.h>

#define LSI_LAUNCH_WAIT_S 60.0

/* What follows when a rank dies, or fails after it has left in order. */
typedef enum lsi_on_death {
    LSI_ON_DEATH_END = 0, /* end the others, after a moment to notice and say so themselves */
    LSI_ON_DEATH_LEAVE    /* the group decides; wait for the rest as long as it does anything */
} lsi_on_death;

/* All texts are borrowed until lsi_launch returns. Zero or NULL means the default. */
typedef struct lsi_launch_config {
    int ranks;         /* of this host, 1 to LSI_MAX_RANKS */
    char *const *argv; /* program and arguments, NULL at the end */
    int prefix;        /* put "[rank] " before each line that the ranks write */
    int bind_core;     /* pin local rank i to the i-th core of our affinity mask, modulo */
    int ranks_tell;    /* a rank that leaves in order and fails has said why: no word of ours */
    lsi_on_death on_death;

    /* Several hosts: one listens, the others join; all need the key file. */
    const char *listen; /* "HOST:PORT", port 0: any free one */
    const char *join;   /* "HOST:PORT" of the one that listens */
    int hosts;          /* with listen: hosts of the run, this one included; 0: 1 */
    const char *key_file;
    double wait_s;  /* for the others to come; 0: LSI_LAUNCH_WAIT_S */
    double idle_s;  /* LSI_ON_DEATH_LEAVE; 0: LSI_RUN_IDLE_S (run.h) */
    double grace_s; /* between the first signal and SIGKILL; 0: LSI_RUN_GRACE_S */

    /* Elastic runs: lsi_launch_elastic alone looks at these. */
    int min_workers;   /* of all hosts; fewer wait for more. 0: 1 */
    int max_workers;   /* the others are kept as spares. 0: LSI_MAX_RANKS */
    int restarts;      /* of a worker within LSI_RESTART_SPAN_S; -1: none, 0: LSI_RESTARTS */
    double evict_s;    /* a host or worker that does nothing for so long is given up; 0: default */
    double short_s;    /* how long to wait for min_workers; 0: LSI_LAUNCH_SHORT_S */
    int quorum_any;    /* go on with less than half of the hosts */
    const char *store; /* URL of a store that is not ours ("etcd://…"); NULL: the embedded one */
} lsi_launch_config;

#define LSI_RESTARTS 10
#define LSI_RESTART_SPAN_S 600.0
#define LSI_EVICT_S 10.0
#define LSI_LAUNCH_SHORT_S 600.0

/* Run the program to its end. Blocks; call it from a process with one thread, for it forks,
 * catches signals (restored at the end) and becomes the reaper of orphaned descendants.
 *
 * LS_OK when ranks were started; *exit_status is then 0 if all ranks (as listener: of all hosts)
 * ended with 0, else that of the first that failed: its exit status, 128 + its signal, or 127 or
 * 126 when the program could not be executed. What failed has been said on stderr already.
 * An error: no rank was left running; ls_last_error() has the reason and nothing was said. */
ls_status lsi_launch(const lsi_launch_config *config, int *exit_status);

/* The same for a program whose workers know the gate (base/gate.h): they may die and be replaced,
 * hosts may come and go; the run ends when the work is done, when it is asked to, or when nobody is
 * left. *exit_status: 0 for both of the former. */
ls_status lsi_launch_elastic(const lsi_launch_config *config, int *exit_status);

#endif

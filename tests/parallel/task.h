/* Something to train: a model, an optimizer, generated data; and what is left at the end. */
#ifndef TEST_PARALLEL_TASK_H
#define TEST_PARALLEL_TASK_H

#include "parallel/engine.h"

enum { TASK_STEPS = 4, TASK_ROOM = 400000 };

typedef struct task {
    const char *model, *settings[6];
    const char *optimizer;
    float momentum, clip;
} task;

/* Bits to be compared: weights, arrays of state and statistics one after the other; the figures of
 * each step. */
typedef struct task_outcome {
    uint64_t steps;
    size_t n;
    double loss[TASK_STEPS], norm[TASK_STEPS], rate[TASK_STEPS], count[TASK_STEPS];
    int workers[TASK_STEPS]; /* that computed it */
    float bits[TASK_ROOM];
} task_outcome;

typedef struct task_run {
    const task *task;
    size_t graph_batch;
    ls_graph *graph;
    lsi_engine *engine;
    int leave_at, asked; /* leave the step when asked for the leave_at-th time; 0: never */
} task_run;

/* `keeper` may be NULL. On failure there is nothing to close. `run` must stay where it is. */
ls_status task_open(const task *t, ls_comm *comm, const lsi_keeper *keeper, task_run *run);
void task_close(task_run *run);
/* The next step. */
ls_status task_step(task_run *run, lsi_step_result *result);
/* Settle and copy everything, figures as the vault has them; by one member of each domain. */
ls_status task_leave(task_run *run, task_outcome *out);
/* NULL when they are the same, else what differs; `workers` aside. */
const char *task_differs(const task_outcome *a, const task_outcome *b);

#endif

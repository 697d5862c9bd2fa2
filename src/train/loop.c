/* The training loop of one worker.
 *
 *     data -> engine step -> record; now and then: evaluation, checkpoint
 *
 * 1. All workers leave the loop after the same step: whoever is asked to stop says so in the sums
 *    of the step (engine.h).
 * 2. A worker that cannot go on says so and tells the others, who end without a word.
 * 3. The first signal ends the run in order; the default action is restored by it, so that a second
 *    one ends the process.
 */
#include <signal.h>
#include <stdlib.h>

#include "base/status.h"
#include "train/trainer.h"

static volatile sig_atomic_t asked_by; /* the signal that asked for the end, 0: none */

static void on_signal(int number)
{
    asked_by = number;
}

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    asked_by = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int is_due(uint64_t every, uint64_t steps, uint64_t total)
{
    return every && steps % every == 0 && steps < total;
}

static ls_status evaluate(lsi_trainer *t)
{
    lsi_evaluation found;
    if (!t->held)
        return LS_OK;
    const uint64_t most = t->config.eval.batches * t->config.train.batch;
    LSI_TRY(lsi_evaluate(t->comm, t->graph, &t->fields, t->held, most, &found));
    return lsi_record_eval(t, &found);
}

static ls_status step(lsi_trainer *t, int *stop)
{
    const uint64_t number = lsi_engine_steps(t->engine);
    uint64_t epoch, place;
    const uint64_t samples = lsi_batch_of(t, number, &epoch, &place);
    lsi_step_result result;
    if (asked_by)
        lsi_engine_ask_stop(t->engine);
    LSI_TRY(lsi_feed_take(t, number));
    LSI_TRY(lsi_engine_step(t->engine, samples, lsi_feed_fill, t, &result));
    *stop = result.stop;
    return lsi_record_step(t, number, &result, samples);
}

static ls_status loop(lsi_trainer *t, int *stop)
{
    const lsi_train_config *c = &t->config;
    while (lsi_engine_steps(t->engine) < t->total && !*stop) {
        LSI_TRY(step(t, stop));
        const uint64_t done = lsi_engine_steps(t->engine);
        const int judge = is_due(c->eval.every, done, t->total);
        const int save = is_due(c->checkpoint.every, done, t->total);
        if (judge || save)
            LSI_TRY(lsi_engine_settle(t->engine));
        if (judge)
            LSI_TRY(evaluate(t));
        if (save)
            LSI_TRY(lsi_record_save(t, 0));
    }
    LSI_TRY(lsi_engine_settle(t->engine));
    if (!*stop)
        LSI_TRY(evaluate(t));
    return lsi_succeed_together(t, lsi_record_save(t, 1));
}

ls_status lsi_train_work(const lsi_train_job *job, ls_comm *comm, int *interrupted)
{
    lsi_trainer *t = calloc(1, sizeof *t); /* too large for a stack */
    int stop = 0;
    if (!t)
        return lsi_fail(LS_ERR_NOMEM, NULL, "training", "out of memory");
    watch_signals();
    ls_status status = lsi_trainer_open(t, job, comm);
    if (status == LS_OK)
        status = loop(t, &stop);
    if (status == LS_OK)
        status = lsi_record_done(t, stop);
    if (status != LS_OK && !t->all_failed)
        lsi_engine_give_up(t->engine, comm);
    *interrupted = stop ? (asked_by ? asked_by : SIGINT) : 0;
    lsi_trainer_close(t);
    free(t);
    return status;
}

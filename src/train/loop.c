/* The training loop of one worker.
 *
 *     data -> engine step -> record; now and then: evaluation, checkpoint
 *
 * 1. All workers leave the loop after the same step: whoever is asked to stop says so in the sums
 *    of the step (engine.h).
 * 2. A worker that cannot go on says so and tells the others, who end without a word.
 * 3. The first signal ends the run in order, or in an elastic run this worker; the default action
 *    is restored by it, so that a second one ends the process.
 * 4. A step is left before its end when workers wait who can shorten it (lsi_trainer_leaves_step).
 * 5. When another worker fails in an elastic run, the survivors enter the next generation and go on
 *    where the state says: what was being done is done again, or was finished by one of them.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "parallel/compare.h"
#include "train/trainer.h"

#define LONG_S 0.25 /* for a worker to wait for the end of a step, when it could compute */
#define LATER 0.3   /* of a step: what all may lose by it */

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
    const uint64_t done = lsi_engine_steps(t->engine);
    lsi_evaluation found;
    if (!t->facts.held || !t->sources)
        return LS_OK;
    lsi_life_step(lsi_domain_life(&lsi_engine_replica(t->engine)->domain), 0);
    const lsi_exam exam = {.data = t->held,
                           .samples = t->facts.held,
                           .most = t->config.eval.batches * t->config.train.batch,
                           .place = lsi_source_place(t),
                           .of = t->sources};
    LSI_TRY(lsi_evaluate(t->comm, t->graph, &t->fields, &exam, &found));
    LSI_TRY(lsi_record_eval(t, &found));
    const lsi_replica *r = lsi_engine_replica(t->engine);
    if (r->vault && r->domain.member == 0) {
        r->vault->head->judged_loss = found.loss;
        atomic_store(&r->vault->head->judged, done);
    }
    return LS_OK;
}

static lsi_host_rank *life(const lsi_trainer *t)
{
    return lsi_domain_life(&lsi_engine_replica(t->engine)->domain);
}

/* What this worker, or its launcher, wants to follow the step. */
void lsi_trainer_ask(void *trainer)
{
    lsi_trainer *t = trainer;
    const unsigned wish = lsi_member_wish(t->member);
    const int leaves = asked_by && lsi_member_lasts(t->member) && t->workers > 1;
    if (wish & LSI_WISH_STOP || (asked_by && !leaves))
        lsi_engine_ask_stop(t->engine);
    if (wish & LSI_WISH_CHANGE || leaves)
        lsi_engine_ask_change(t->engine);
}

/* What a step takes, in shards. */
static int64_t longest(int64_t shards, int64_t workers)
{
    return (shards + workers - 1) / workers;
}

/* Those who wait would have to do so for long, and by what they would take over the step is done no
 * later, or hardly, than without them. */
int lsi_trainer_leaves_step(void *trainer)
{
    const lsi_trainer *t = trainer;
    const unsigned wish = lsi_member_wish(t->member);
    if (!(wish & LSI_WISH_CHANGE) || wish & LSI_WISH_STOP || asked_by || t->usual <= 0)
        return 0;
    const int64_t shards = lsi_cut_shards(t->config.train.batch, (int)t->config.train.shards);
    const double anew = (double)longest(shards, t->workers + lsi_member_waiting(t->member)) /
                        (double)longest(shards, t->workers);
    const double spent = lsi_now() - t->began;
    return anew < 1 && t->usual - spent > LONG_S && spent < t->usual * (1 - anew + LATER);
}

static ls_status step(lsi_trainer *t, int *change)
{
    const uint64_t number = lsi_engine_steps(t->engine);
    uint64_t epoch, place;
    const uint64_t samples = lsi_batch_of(t, number, &epoch, &place);
    lsi_step_result result;
    lsi_life_say(life(t), "loading data", NULL);
    LSI_TRY(lsi_feed_take(t, number));
    t->began = lsi_now();
    LSI_TRY(lsi_engine_step(t->engine, samples, lsi_feed_fill, t, &result));
    t->usual = result.seconds;
    t->stop |= result.stop;
    *change = result.change;
    if (lsi_balance_step(t, &result, samples))
        lsi_engine_ask_change(t->engine);
    return lsi_record_step(t, number, &result, samples);
}

/* Worker 0 may have to wait for a disk. */
static ls_status save_now(lsi_trainer *t, int wait)
{
    lsi_life_step(life(t), 0);
    lsi_life_say(life(t), "saving", NULL);
    lsi_life_be_patient(life(t), 1);
    const ls_status status = lsi_record_save(t, wait);
    lsi_life_be_patient(life(t), 0);
    return status;
}

/* The last line: a digest of all weights. */
static ls_status tell_done(lsi_trainer *t)
{
    lsi_life_be_patient(life(t), 1);
    const ls_status status = lsi_record_done(t, t->stop);
    lsi_life_be_patient(life(t), 0);
    return status;
}

/* Somebody's state is not that of the others. */
static ls_status diverged(lsi_trainer *t, const lsi_comparison *c)
{
    const uint64_t done = lsi_engine_steps(t->engine);
    const int repair = strcmp(t->config.run.on_divergence, "repair") == 0 && !c->undecided;
    if (t->worker == 0)
        lsi_log(LSI_LOG_WARN,
                c->undecided
                    ? "after step %llu the hosts do not have the same state, and no state is that "
                      "of most: host %d of them (workers %d to %d) differs from the first"
                    : "after step %llu the state of host %d (workers %d to %d) is not that of the "
                      "others%s",
                (unsigned long long)done, c->domain + 1, c->first, c->last,
                repair ? ": it is copied from them" : "");
    if (repair)
        return lsi_repair(lsi_engine_replica(t->engine));
    t->all_failed = 1;
    const ls_status status =
        lsi_fail(LS_ERR_INVALID,
                 "resume from the latest checkpoint; look at the memory of that host", "training",
                 "after step %llu the state of host %d is not that of the others",
                 (unsigned long long)done, c->domain + 1);
    return t->worker == 0 ? status : lsi_fail_text(status, "");
}

/* Compare the states of all hosts, now and then, and before each checkpoint. */
static ls_status compare(lsi_trainer *t, int settled)
{
    lsi_comparison c;
    if (!t->config.run.check_every)
        return LS_OK;
    LSI_TRY(lsi_compare(lsi_engine_replica(t->engine), settled, &c));
    return c.differ ? diverged(t, &c) : LS_OK;
}

/* What is due after so many steps. `judged`: the evaluation is done already. */
static ls_status after_step(lsi_trainer *t, int judged)
{
    const lsi_train_config *c = &t->config;
    const uint64_t done = lsi_engine_steps(t->engine);
    const int judge = is_due(c->eval.every, done, t->total) && !judged;
    const int save = is_due(c->checkpoint.every, done, t->total);
    if (judge || save)
        LSI_TRY(lsi_engine_settle(t->engine));
    if (save || is_due(c->run.check_every, done, t->total))
        LSI_TRY(compare(t, judge || save));
    if (judge)
        LSI_TRY(evaluate(t));
    return save ? save_now(t, 0) : LS_OK;
}

/* A generation goes on where the one before has ended, perhaps before all was done that was due. */
static ls_status make_up(lsi_trainer *t)
{
    const lsi_vault *v = lsi_engine_replica(t->engine)->vault;
    const uint64_t done = lsi_engine_steps(t->engine);
    int64_t judged = v ? (int64_t)atomic_load(&v->head->judged) : 0;
    if (!v || done == 0)
        return LS_OK;
    LSI_TRY(ls_broadcast(t->comm, &judged, 1, LS_I64, 0));
    return after_step(t, (uint64_t)judged == done);
}

/* Nobody can go on, and the work was saved. */
static ls_status starved(lsi_trainer *t)
{
    t->all_failed = 1;
    const ls_status status =
        lsi_fail(LS_ERR_NOT_FOUND,
                 t->dir ? "go on with --resume on a host that has it" : "--out keeps the work",
                 "training", "no worker that has the data is left; after step %llu %s%s",
                 (unsigned long long)lsi_engine_steps(t->engine),
                 t->dir ? "the work was saved to " : "nothing was kept",
                 t->dir ? lsi_run_dir_path(t->dir) : "");
    return t->worker == 0 ? status : lsi_fail_text(status, "");
}

/* The steps of a generation. *change: another one is to follow, with the work undone. */
static ls_status loop(lsi_trainer *t, int *change)
{
    const int starves = !t->sources && !t->stop;
    t->stop |= starves;
    LSI_TRY(make_up(t));
    while (lsi_engine_steps(t->engine) < t->total && !t->stop && !*change) {
        LSI_TRY(step(t, change));
        LSI_TRY(after_step(t, 0));
    }
    if (*change && lsi_engine_steps(t->engine) < t->total && !t->stop)
        return LS_OK;
    *change = 0;
    LSI_TRY(lsi_engine_settle(t->engine));
    LSI_TRY(compare(t, 1));
    if (!t->stop)
        LSI_TRY(evaluate(t));
    LSI_TRY(lsi_succeed_together(t, save_now(t, 1)));
    LSI_TRY(lsi_succeed_together(t, tell_done(t)));
    if (starves)
        return starved(t);
    lsi_member_done(t->member);
    return LS_OK;
}

/* Was it another worker, or the network, that failed? */
static int is_of_others(const lsi_trainer *t, ls_status status)
{
    const ls_status_reach reach = ls_status_get_reach(status);
    return !t->all_failed && (reach == LS_STATUS_PEER || reach == LS_STATUS_GROUP);
}

/* From entering a generation to its end. *again: another one is to be entered. */
static ls_status generation(lsi_trainer *t, int *again)
{
    int change = 0;
    *again = 0;
    ls_status status = lsi_member_enter(t->member);
    if (status == LS_OK && t->member->finished)
        return LS_OK;
    if (status == LS_OK)
        status = lsi_trainer_enter(t);
    if (status == LS_OK)
        status = loop(t, &change);
    const int leaves = asked_by && t->workers > 1;
    *again = lsi_member_lasts(t->member) && (status == LS_OK ? change : is_of_others(t, status));
    if (status != LS_OK && *again)
        lsi_log(LSI_LOG_INFO, "%s", ls_last_error());
    else if (status != LS_OK && !t->all_failed)
        lsi_engine_give_up(t->engine, t->comm);
    if (*again && leaves) {
        lsi_member_goes(t->member);
        *again = 0;
    }
    return *again ? LS_OK : status;
}

ls_status lsi_train_work(const lsi_train_job *job, lsi_member *member, int *interrupted)
{
    lsi_trainer *t = calloc(1, sizeof *t); /* too large for a stack */
    int again = 0;
    if (!t)
        return lsi_fail(LS_ERR_NOMEM, NULL, "training", "out of memory");
    t->job = job;
    t->member = member;
    watch_signals();
    ls_status status = lsi_trainer_prepare(t);
    if (status == LS_OK)
        while ((status = generation(t, &again)) == LS_OK && again)
            lsi_trainer_leave(t);
    *interrupted = t->stop ? (asked_by ? asked_by : SIGINT) : 0;
    char text[LSI_ERROR_MAX]; /* what fails while everything is closed says less */
    snprintf(text, sizeof text, "%s", ls_last_error());
    lsi_trainer_close(t);
    free(t);
    return status == LS_OK ? LS_OK : lsi_fail_text(status, text);
}

/* What a run leaves behind, and what its user sees: worker 0's part. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "train/trainer.h"

static lsi_progress_mode progress_mode(const lsi_train_job *job)
{
    return job->json ? LSI_PROGRESS_JSON : job->quiet ? LSI_PROGRESS_QUIET : LSI_PROGRESS_AUTO;
}

/* The files of the run directory, with what is known of `done` steps (0: of none). config.ini of a
 * new run comes last: it makes it one. */
static ls_status open_files(lsi_trainer *t, uint64_t done)
{
    const uint64_t next = done ? done + 1 : 0; /* the files count the step that was just done */
    char path[LSI_CHECKPOINT_PATH + 32], *text;
    const char *dir = lsi_run_dir_path(t->dir);
    lsi_state form = {0};
    lsi_record_state(t, &form);
    LSI_TRY(lsi_saver_create(dir, &form, t->config.checkpoint.keep, &t->saver));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    LSI_TRY(lsi_metrics_open(path, next, &t->metrics));
    if (t->config.run.tensorboard)
        LSI_TRY(lsi_events_open(dir, next, &t->events));
    LSI_TRY(lsi_train_config_print(&t->config, &text));
    const ls_status status = lsi_run_dir_write(t->dir, "config.ini", text);
    free(text);
    return status;
}

/* Lines of steps that were done, but not written down before worker 0 died. */
static ls_status catch_up(lsi_trainer *t, uint64_t done)
{
    for (uint64_t n = lsi_metrics_last(t->metrics) + 1; n <= done; n++) {
        const lsi_vault_figures *f = lsi_engine_figures(t->engine, n);
        if (!f)
            continue;
        const lsi_metric_step m = {.step = n,
                                   .epoch = (n - 1) / t->per_epoch,
                                   .loss = f->loss,
                                   .lr = f->rate,
                                   .grad_norm = f->grad_norm > 0 ? f->grad_norm : NAN,
                                   .samples_per_s = NAN,
                                   .wait_share = NAN,
                                   .step_s = NAN,
                                   .workers = (int)f->workers};
        LSI_TRY(lsi_metrics_step(t->metrics, &m));
    }
    return LS_OK;
}

/* What is known of the steps that are done: of a checkpoint, or of a state that was kept. */
static void recall(lsi_trainer *t, uint64_t done)
{
    const lsi_vault *v = lsi_engine_replica(t->engine)->vault;
    const lsi_vault_figures *f = lsi_engine_figures(t->engine, done);
    if (!t->job->resume || !t->decided) {
        t->loss = f ? f->loss : NAN;
        t->evaluated = v ? atomic_load(&v->head->judged) : 0;
        t->eval_loss = t->evaluated ? v->head->judged_loss : NAN;
    }
    t->saved = t->job->resume && t->decided ? done : LSI_SAVER_NONE;
}

static ls_status begin_record(lsi_trainer *t, uint64_t done)
{
    recall(t, done);
    if (t->out && !t->dir)
        LSI_TRY(lsi_run_dir_take(t->out, t->id, t->member->generation, &t->dir));
    if (t->dir)
        LSI_TRY(open_files(t, done));
    lsi_progress_begin(&t->progress, STDOUT_FILENO, progress_mode(t->job), done, t->total,
                       lsi_now());
    const char *name = t->config.model.name;
    lsi_progress_say(&t->progress,
                     "%s: %zu parameters; %llu samples, batch %llu in %llu shards; "
                     "%d worker%s; steps %llu to %llu",
                     name, ls_graph_trained(t->graph), (unsigned long long)t->count,
                     (unsigned long long)t->config.train.batch,
                     (unsigned long long)t->config.train.shards, t->workers,
                     t->workers == 1 ? "" : "s", (unsigned long long)done,
                     (unsigned long long)t->total);
    t->records = 1;
    return LS_OK;
}

ls_status lsi_record_open(lsi_trainer *t)
{
    const uint64_t done = lsi_engine_steps(t->engine);
    if (t->worker != 0 || (t->records && t->recorded + 1 != t->member->generation))
        lsi_record_close(t); /* another worker writes, or has written meanwhile */
    if (t->worker != 0)
        return LS_OK;
    t->recorded = t->member->generation;
    if (!t->records)
        LSI_TRY(begin_record(t, done));
    else
        lsi_progress_say(&t->progress, "%d worker%s from step %llu on", t->workers,
                         t->workers == 1 ? "" : "s", (unsigned long long)done);
    if (t->dir)
        (void)lsi_run_dir_sign(t->dir, t->id, t->member->generation); /* a full disk is no reason */
    if (t->dir)
        lsi_run_dir_log(t->dir, "%s, %d workers, from step %llu of %llu, generation %llu",
                        t->config.model.name, t->workers, (unsigned long long)done,
                        (unsigned long long)t->total, (unsigned long long)t->member->generation);
    if (t->metrics)
        LSI_TRY(catch_up(t, done));
    return LS_OK;
}

void lsi_record_close(lsi_trainer *t)
{
    lsi_saver_destroy(t->saver);
    lsi_metrics_close(t->metrics);
    lsi_events_close(t->events);
    lsi_run_dir_close(t->dir);
    t->saver = NULL;
    t->metrics = NULL;
    t->events = NULL;
    t->dir = NULL;
    t->records = 0;
}

void lsi_record_state(lsi_trainer *t, lsi_state *state)
{
    const lsi_replica *r = lsi_engine_replica(t->engine);
    uint64_t place;
    *state =
        (lsi_state){.weights = t->weights,
                    .step = lsi_engine_steps(t->engine),
                    .seed = t->config.train.seed,
                    .loss = t->loss,
                    .eval_loss = t->evaluated == lsi_engine_steps(t->engine) ? t->eval_loss : NAN};
    (void)lsi_batch_of(t, state->step, &state->epoch, &place);
    while (state->array_count < LSI_CHECKPOINT_ARRAYS) {
        const int i = state->array_count;
        state->arrays[i] = ls_optimizer_state(r->optimizer, i, &state->array_names[i]);
        if (!state->arrays[i])
            break;
        state->array_count++;
    }
    if (lsi_train_config_sha256(&t->config, state->config) != LS_OK)
        state->config[0] = 0;
}

/* A line that cannot be written does not end the run either; it is told once. */
static void go_on(lsi_trainer *t, ls_status status)
{
    if (status == LS_OK || t->told)
        return;
    t->told = 1;
    lsi_progress_end(&t->progress);
    lsi_log(LSI_LOG_WARN, "%s; training goes on", ls_last_error());
}

ls_status lsi_record_step(lsi_trainer *t, uint64_t step, const lsi_step_result *result,
                          uint64_t samples)
{
    if (t->worker != 0)
        return LS_OK;
    const lsi_metric_step m = {.step = step + 1,
                               .epoch = step / t->per_epoch,
                               .loss = result->loss,
                               .lr = (double)result->rate,
                               .grad_norm = result->grad_norm > 0 ? result->grad_norm : NAN,
                               .samples_per_s = (double)samples / result->seconds,
                               .wait_share = result->waited / result->seconds,
                               .step_s = result->seconds,
                               .workers = t->workers};
    t->loss = result->loss;
    if (t->metrics)
        go_on(t, lsi_metrics_step(t->metrics, &m));
    if (t->events) {
        const lsi_scalar scalars[] = {{"loss", m.loss},
                                      {"lr", m.lr},
                                      {"grad_norm", m.grad_norm},
                                      {"samples_per_s", m.samples_per_s}};
        go_on(t, lsi_events_add(t->events, m.step, scalars, 4));
    }
    lsi_progress_step(&t->progress, &m, lsi_now());
    return LS_OK;
}

ls_status lsi_record_eval(lsi_trainer *t, const lsi_evaluation *found)
{
    const uint64_t step = lsi_engine_steps(t->engine);
    if (t->worker != 0)
        return LS_OK;
    const lsi_metric_eval m = {.step = step,
                               .epoch = step / t->per_epoch,
                               .samples = found->samples,
                               .loss = found->loss,
                               .accuracy = found->accuracy,
                               .seconds = found->seconds};
    t->eval_loss = found->loss;
    t->evaluated = step;
    if (t->metrics && lsi_metrics_last_eval(t->metrics) < step)
        go_on(t, lsi_metrics_eval(t->metrics, &m));
    if (t->events) {
        const lsi_scalar scalars[] = {{"eval/loss", m.loss}, {"eval/accuracy", m.accuracy}};
        go_on(t, lsi_events_add(t->events, step, scalars, 2));
    }
    lsi_progress_eval(&t->progress, &m);
    if (t->dir)
        lsi_run_dir_log(t->dir, "step %llu: held-out loss %.6f", (unsigned long long)step, m.loss);
    return LS_OK;
}

/* A save that has failed does not end the run: the checkpoint before it is still good. */
static void tell_failure(lsi_trainer *t)
{
    lsi_progress_end(&t->progress);
    lsi_log(LSI_LOG_WARN, "no checkpoint: %s; training goes on", ls_last_error());
    lsi_run_dir_log(t->dir, "no checkpoint: %s", ls_last_error());
}

static ls_status save(lsi_trainer *t, int wait)
{
    lsi_state state;
    const uint64_t step = lsi_engine_steps(t->engine);
    if (t->worker != 0 || !t->dir || (t->saved == step && !wait))
        return LS_OK;
    ls_status status = lsi_saver_wait(t->saver, NULL);
    if (status != LS_OK)
        tell_failure(t);
    if (t->saved == step && status == LS_OK)
        return LS_OK;
    lsi_record_state(t, &state);
    status = lsi_saver_start(t->saver, &state);
    if (status == LS_OK && wait)
        status = lsi_saver_wait(t->saver, NULL);
    if (status != LS_OK && wait)
        return status;
    if (status != LS_OK)
        tell_failure(t);
    else
        t->saved = step;
    lsi_run_dir_log(t->dir, "checkpoint of step %llu", (unsigned long long)step);
    return LS_OK;
}

ls_status lsi_record_save(lsi_trainer *t, int wait)
{
    LSI_TRY(save(t, wait));
    return wait && t->metrics ? lsi_metrics_flush(t->metrics) : LS_OK;
}

ls_status lsi_record_done(lsi_trainer *t, int interrupted)
{
    char weights[LSI_SHA256_HEX], whole[LSI_SHA256_HEX];
    lsi_state state;
    if (t->worker != 0)
        return LS_OK;
    lsi_record_state(t, &state);
    LSI_TRY(lsi_state_sha256(&state, weights, whole));
    lsi_progress_end(&t->progress);
    if (interrupted && t->dir && !t->job->json)
        printf("interrupted after step %llu; go on with: lockstep train --resume %s\n",
               (unsigned long long)state.step, lsi_run_dir_path(t->dir));
    if (t->job->json)
        printf("{\"done\": true, \"step\": %llu, \"loss\": %.17g, \"sha256\": \"%s\", "
               "\"state_sha256\": \"%s\"}\n",
               (unsigned long long)state.step, t->loss, weights, whole);
    else
        printf("done step=%llu loss=%.6f sha256=%s\n", (unsigned long long)state.step, t->loss,
               weights);
    fflush(stdout);
    if (t->dir)
        lsi_run_dir_log(t->dir, "done step=%llu loss=%.6f sha256=%s",
                        (unsigned long long)state.step, t->loss, weights);
    return LS_OK;
}

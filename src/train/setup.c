/* Before the first step: the configuration, and all that is made of it.
 *
 * Worker 0 alone looks at flags, files and the run directory; the others hear from it, as text,
 * what the run is. What fails here is told by one worker; the others end without a word.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/status.h"
#include "train/saved.h"
#include "train/trainer.h"

#define TEXT_MAX ((int64_t)1 << 20)

/* ---- the configuration ---------------------------------------------------------------------- */

ls_status lsi_train_job_apply(const lsi_train_job *job, lsi_train_config *config)
{
    for (int i = 0; i < job->n_settings; i++) {
        const char *key = job->keys[i], *value = job->values[i];
        if (!key)
            LSI_TRY(lsi_train_config_set(config, value));
        else if (strcmp(key, LSI_JOB_DATA) == 0)
            LSI_TRY(lsi_train_config_put_data(config, value));
        else
            LSI_TRY(lsi_train_config_put(config, key, value));
    }
    return LS_OK;
}

/* The run to go on with has its own configuration; what was given may not contradict it. */
static ls_status from_run(const lsi_train_job *job, lsi_train_config *config)
{
    lsi_checkpoint c;
    char path[LSI_CHECKPOINT_PATH], file[LSI_CHECKPOINT_PATH + 16], text[256];
    lsi_train_config *run = calloc(1, sizeof *run);
    if (!run)
        return lsi_fail(LS_ERR_NOMEM, NULL, "resume", "out of memory");
    ls_status status = lsi_checkpoint_find(job->resume, &c);
    if (status == LS_OK) {
        status = lsi_saved_run(c.folder, path);
    }
    if (status == LS_OK) {
        snprintf(file, sizeof file, "%s/config.ini", path);
        status = lsi_train_config_init(run, NULL);
    }
    if (status == LS_OK)
        status = lsi_train_config_read(run, file);
    if (status == LS_OK) {
        lsi_train_config_forget_run(run);
        *config = *run;
        status = lsi_train_job_apply(job, config);
    }
    if (status == LS_OK)
        status = lsi_train_config_settle(run);
    if (status == LS_OK)
        status = lsi_train_config_settle(config);
    if (status == LS_OK && !lsi_train_config_same(run, config, text, sizeof text))
        status = lsi_fail(LS_ERR_CONFIG, "a resumed run keeps what decides its result", job->resume,
                          "%s", text);
    free(run);
    return status;
}

ls_status lsi_train_job_config(const lsi_train_job *job, lsi_train_config *config)
{
    if (job->resume) {
        if (job->model || job->config_file)
            return lsi_fail(LS_ERR_CONFIG, NULL, "--resume",
                            "the run has its own model and configuration");
        return from_run(job, config);
    }
    LSI_TRY(lsi_train_config_init(config, job->model));
    if (job->config_file)
        LSI_TRY(lsi_train_config_read(config, job->config_file));
    LSI_TRY(lsi_train_job_apply(job, config));
    return lsi_train_config_settle(config);
}

/* Settings of the model that follow from the data, unless they were given. */
static ls_status take_from_data(lsi_train_config *config)
{
    ls_data_config data = LS_DATA_CONFIG_INIT;
    ls_dataset *set;
    char text[LSI_CONFIG_SETTING];
    lsi_train_config_data(config, 0, &data);
    LSI_TRY(ls_dataset_open(&data, &set));
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && ls_dataset_setting(set, i, text, sizeof text) == LS_OK; i++)
        status = lsi_train_config_offer(config, text);
    if (status == LS_OK && ls_dataset_letters(set))
        status = lsi_train_config_letters(config, ls_dataset_letters(set));
    ls_dataset_close(set);
    return status == LS_OK ? lsi_train_config_settle(config) : status;
}

static ls_status set_out(lsi_trainer *t, const char *path)
{
    free(t->out);
    t->out = strdup(path);
    return t->out ? LS_OK : lsi_fail(LS_ERR_NOMEM, NULL, "training", "out of memory");
}

/* Worker 0: what the run is, and where it is kept. */
static ls_status decide(lsi_trainer *t, char **text)
{
    LSI_TRY(lsi_id_make(t->id));
    LSI_TRY(lsi_train_job_config(t->job, &t->config));
    if ((uint64_t)t->workers > t->config.train.shards) /* of all hosts: nobody knew before */
        return lsi_fail(LS_ERR_CONFIG, "fewer of them, or more --shards: which changes the result",
                        "workers", "%d of them cannot share %llu shards", t->workers,
                        (unsigned long long)t->config.train.shards);
    if (!t->job->resume)
        LSI_TRY(take_from_data(&t->config));
    if (t->job->resume) {
        lsi_checkpoint c;
        char path[LSI_CHECKPOINT_PATH];
        LSI_TRY(lsi_checkpoint_find(t->job->resume, &c));
        LSI_TRY(lsi_saved_run(c.folder, path));
        LSI_TRY(lsi_run_dir_open(path, &t->dir));
        LSI_TRY(set_out(t, path));
    } else if (t->config.run.out[0]) {
        LSI_TRY(lsi_run_dir_create(t->config.run.out, &t->dir));
        LSI_TRY(set_out(t, t->config.run.out));
    }
    if (t->dir)
        LSI_TRY(lsi_run_dir_sign(t->dir, t->id, t->member->generation));
    t->configured = t->decided = 1;
    return lsi_papers_write(t, text);
}

/* Another worker has failed, and says why: the same status, without a text. */
static ls_status failed_elsewhere(lsi_trainer *t, ls_status status)
{
    t->all_failed = 1;
    return lsi_fail_text(status, "");
}

ls_status lsi_succeed_together(lsi_trainer *t, ls_status mine)
{
    const int64_t claim =
        mine == LS_OK ? 0 : (int64_t)(t->workers - t->worker) << 32 | (uint32_t)-mine;
    int64_t first = claim;
    const ls_status met = ls_allreduce(t->comm, LS_IN_PLACE, &first, 1, LS_I64, LS_MAX);
    t->all_failed = met == LS_OK && first != 0;
    if (met != LS_OK || first == claim)
        return mine != LS_OK ? mine : met;
    return failed_elsewhere(t, (ls_status)(-(int32_t)(first & UINT32_MAX)));
}

/* Everybody gets the papers of worker `from`; instead of a length, its error when it has none. */
static ls_status share_papers(lsi_trainer *t, int from)
{
    char *text = NULL;
    ls_status mine = LS_OK;
    if (t->worker == from)
        mine = t->configured ? lsi_papers_write(t, &text) : decide(t, &text);
    int64_t length = text ? (int64_t)strlen(text) : (int64_t)mine;
    ls_status status = ls_broadcast(t->comm, &length, 1, LS_I64, from);
    if (mine != LS_OK || status != LS_OK) {
        free(text);
        t->all_failed = status == LS_OK;
        return mine != LS_OK ? mine : status;
    }
    if (length < 0)
        return failed_elsewhere(t, (ls_status)length);
    if (length > TEXT_MAX)
        return lsi_fail(LS_ERR_PROTOCOL, NULL, "training", "a configuration of %lld bytes",
                        (long long)length);
    if (!text && !(text = calloc((size_t)length + 1, 1)))
        return lsi_fail(LS_ERR_NOMEM, NULL, "training", "out of memory");
    status = ls_broadcast(t->comm, text, (size_t)length, LS_U8, from);
    if (status == LS_OK && !t->configured)
        status = lsi_papers_read(t, text);
    free(text);
    return status;
}

/* Those that the launcher has, if it has any. */
static ls_status look_at_papers(lsi_trainer *t)
{
    char *text = NULL;
    if (!t->configured)
        LSI_TRY(lsi_member_papers(t->member, &text));
    const ls_status status = text ? lsi_papers_read(t, text) : LS_OK;
    free(text);
    return status;
}

/* Worker 0 decides what the run is, unless somebody knows it already: who does tells the others.
 * The wish to end is asked for, too. */
static ls_status agree(lsi_trainer *t)
{
    enum { KNOWS = 1, STOPS = 2 };
    ls_status status = look_at_papers(t);
    int32_t *all = calloc((size_t)t->workers, sizeof *all), from = 0;
    if (status == LS_OK && !all)
        status = lsi_fail(LS_ERR_NOMEM, NULL, "training", "out of memory");
    const int32_t mine =
        (t->configured ? KNOWS : 0) | (lsi_member_wish(t->member) & LSI_WISH_STOP ? STOPS : 0);
    if (status == LS_OK)
        status = ls_allgather(t->comm, &mine, all, 1, LS_I32);
    int known = 0;
    for (int w = t->workers - 1; status == LS_OK && w >= 0; w--) {
        known += all[w] & KNOWS;
        from = all[w] & KNOWS ? w : from;
        t->stop |= (all[w] & STOPS) != 0;
    }
    free(all);
    return status == LS_OK && known < t->workers ? share_papers(t, from) : status;
}

/* ---- model and engine ---------------------------------------------------------------------- */

ls_status lsi_fields_of(ls_graph *graph, lsi_fields *fields)
{
    ls_tensor *input;
    *fields = (lsi_fields){0};
    while ((input = ls_graph_input(graph, fields->n))) {
        if (fields->n == LSI_FIELDS_MAX)
            return lsi_fail(LS_ERR_UNSUPPORTED, NULL, "model", "more than %d inputs",
                            LSI_FIELDS_MAX);
        ls_data_field *f = &fields->of[fields->n];
        const size_t *dims = ls_tensor_dims(input);
        f->name = ls_tensor_name(input);
        f->bound = ls_tensor_bound(input);
        f->dtype = f->bound ? LS_I32 : LS_F32;
        f->ndim = ls_tensor_ndim(input) - 1;
        fields->bytes[fields->n] = sizeof(float);
        for (int d = 0; d < f->ndim; d++) {
            f->dims[d] = dims[d + 1];
            fields->bytes[fields->n] *= dims[d + 1];
        }
        fields->memory[fields->n++] = ls_input_data(graph, input);
    }
    return LS_OK;
}

static ls_status make_graph(void *trainer, ls_graph **out)
{
    lsi_trainer *t = trainer;
    ls_model *model;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    LSI_TRY(lsi_train_config_model(&t->config, &model));
    config.batch = t->graph_batch;
    config.seed = t->config.train.seed;
    const ls_status status = ls_model_build(model, &config, out);
    ls_model_destroy(model);
    return status;
}

static lsi_engine_config engine_config(lsi_trainer *t)
{
    return (lsi_engine_config){.shards = (int)t->config.train.shards,
                               .batch = t->config.train.batch,
                               .micro_batch = (size_t)t->config.train.micro_batch,
                               .optimizer = &t->optim,
                               .another = make_graph,
                               .another_arg = t,
                               .weights = t->powers,
                               .ask = lsi_trainer_ask,
                               .leave = lsi_trainer_leaves_step,
                               .ask_arg = t,
                               .keeper = lsi_member_lasts(t->member) ? &t->member->keeper : NULL};
}

/* What may fail on one host alone. It is done once. */
static ls_status open_parts(lsi_trainer *t)
{
    if (t->graph)
        return LS_OK;
    const lsi_engine_config config = engine_config(t);
    t->graph_batch = lsi_engine_graph_batch(&config);
    LSI_TRY(make_graph(t, &t->graph));
    LSI_TRY(lsi_fields_of(t->graph, &t->fields));
    return lsi_source_open(t);
}

static ls_status open_engine(lsi_trainer *t)
{
    const lsi_engine_config config = engine_config(t);
    LSI_TRY(lsi_succeed_together(t, open_parts(t)));
    LSI_TRY(lsi_source_agree(t));
    LSI_TRY(lsi_papers_keep(t));
    LSI_TRY(lsi_engine_open(t->comm, t->graph, &config, &t->engine));
    ls_comm *leaders = lsi_engine_replica(t->engine)->domain.leaders;
    return leaders ? ls_comm_select(leaders, "allreduce", t->config.train.reduce) : LS_OK;
}

ls_status lsi_trainer_prepare(lsi_trainer *t)
{
    LSI_TRY(lsi_member_ask_papers(t->member));
    LSI_TRY(look_at_papers(t));
    if (!t->configured)
        return LS_OK;
    size_t bytes = 0;
    LSI_TRY(open_parts(t));
    if (!t->per_epoch) /* nothing is known of the data yet */
        return LS_OK;
    const lsi_engine_config config = engine_config(t);
    LSI_TRY(lsi_engine_foresee(t->graph, &config, t->member->workers, &bytes));
    lsi_member_expect(t->member, bytes);
    return LS_OK;
}

/* ---- going on ------------------------------------------------------------------------------- */

static ls_status load(lsi_trainer *t)
{
    lsi_checkpoint c;
    lsi_state state = {0};
    LSI_TRY(lsi_checkpoint_find(t->job->resume, &c));
    lsi_record_state(t, &state);
    LSI_TRY(lsi_checkpoint_load(&c, &state));
    ls_optimizer_set_step(lsi_engine_replica(t->engine)->optimizer, state.step);
    t->loss = state.loss;
    t->eval_loss = state.eval_loss;
    t->evaluated = state.step;
    return LS_OK;
}

/* A state that nobody has kept yet: worker 0 loads it if the run is to go on with one, everybody
 * gets it; whether it could is told first. */
static ls_status begin(lsi_trainer *t)
{
    const int is_new = lsi_engine_is_new(t->engine);
    const int loads = t->worker == 0 && t->job->resume && is_new;
    const ls_status loaded = loads ? load(t) : LS_OK;
    int32_t go[2] = {(int32_t)loaded, loads};
    LSI_TRY(ls_broadcast(t->comm, go, 2, LS_I32, 0));
    t->all_failed = go[0] != LS_OK;
    if (loaded != LS_OK)
        return loaded;
    if (go[0] != LS_OK)
        return failed_elsewhere(t, (ls_status)go[0]);
    if (go[1])
        LSI_TRY(lsi_engine_spread(t->engine));
    return lsi_engine_fill(t->engine);
}

ls_status lsi_trainer_enter(lsi_trainer *t)
{
    t->comm = t->member->comm;
    t->worker = ls_comm_rank(t->comm);
    t->workers = ls_comm_size(t->comm);
    LSI_TRY(agree(t));
    LSI_TRY(lsi_balance_open(t));
    LSI_TRY(open_engine(t));
    if (!t->weights.param_values) /* they stay where they are, in a vault */
        LSI_TRY(lsi_weights_of(t->graph, &t->weights));
    LSI_TRY(begin(t));
    ls_status status = lsi_record_open(t);
    if (status == LS_OK)
        status = lsi_feed_open(t, lsi_engine_steps(t->engine));
    return lsi_succeed_together(t, status);
}

void lsi_trainer_leave(lsi_trainer *t)
{
    lsi_engine_close(t->engine);
    t->engine = NULL;
    free(t->powers);
    t->powers = NULL;
    t->usual = 0;
    lsi_member_leave(t->member);
    t->comm = NULL;
    lsi_feed_close(t);
    free(t->has);
    t->has = NULL;
}

void lsi_trainer_close(lsi_trainer *t)
{
    lsi_record_close(t);
    lsi_trainer_leave(t);
    lsi_weights_free(&t->weights);
    ls_graph_destroy(t->graph);
    ls_dataset_close(t->train);
    ls_dataset_close(t->held);
    free(t->out);
}

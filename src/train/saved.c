/* Opening a finished run; the contract is in saved.h. */
#include "train/saved.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define WHAT "run"

ls_status lsi_saved_run(const char *folder, char path[LSI_CHECKPOINT_PATH])
{
    char *whole = realpath(folder, NULL);
    if (!whole)
        return lsi_fail_errno(WHAT, "%s cannot be found", folder);
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(whole, '/');
        if (slash)
            *slash = 0;
    }
    const size_t length = strlen(whole);
    if (length < LSI_CHECKPOINT_PATH)
        memcpy(path, whole, length + 1);
    free(whole);
    return length < LSI_CHECKPOINT_PATH
               ? LS_OK
               : lsi_fail(LS_ERR_INVALID, NULL, WHAT, "the path of %.60s… is too long", folder);
}

static ls_status read_config(lsi_saved *s)
{
    char run[LSI_CHECKPOINT_PATH], file[LSI_CHECKPOINT_PATH + 16];
    LSI_TRY(lsi_saved_run(s->checkpoint.folder, run));
    snprintf(file, sizeof file, "%s/config.ini", run);
    LSI_TRY(lsi_train_config_init(&s->config, NULL));
    LSI_TRY(lsi_train_config_read(&s->config, file));
    lsi_train_config_forget_run(&s->config);
    return lsi_train_config_settle(&s->config);
}

/* Samples that ran at once in training, and in its evaluations. */
static size_t training_batch(const lsi_train_config *config)
{
    const lsi_engine_config engine = {.shards = (int)config->train.shards,
                                      .batch = config->train.batch,
                                      .micro_batch = (size_t)config->train.micro_batch};
    return lsi_engine_graph_batch(&engine);
}

static ls_status build(lsi_saved *s, size_t batch)
{
    ls_model *model;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    LSI_TRY(lsi_train_config_model(&s->config, &model));
    snprintf(s->model, sizeof s->model, "%s", ls_model_name(model));
    config.batch = batch ? batch : training_batch(&s->config);
    config.seed = s->config.train.seed;
    const ls_status status = ls_model_build(model, &config, &s->graph);
    ls_model_destroy(model);
    return status == LS_OK ? lsi_fields_of(s->graph, &s->fields) : status;
}

static ls_status open_all(lsi_saved *s, const char *path, size_t batch)
{
    char weights[LSI_CHECKPOINT_PATH + 32];
    LSI_TRY(lsi_checkpoint_find(path, &s->checkpoint));
    LSI_TRY(read_config(s));
    LSI_TRY(build(s, batch));
    snprintf(weights, sizeof weights, "%s/" LSI_CHECKPOINT_MODEL, s->checkpoint.folder);
    return ls_weights_load(s->graph, weights);
}

ls_status lsi_saved_open(const char *path, size_t batch, lsi_saved **out)
{
    lsi_saved *s = calloc(1, sizeof *s); /* too large for a stack */
    if (!s)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "out of memory");
    const ls_status status = open_all(s, path, batch);
    if (status != LS_OK) {
        lsi_saved_close(s);
        return status;
    }
    *out = s;
    return LS_OK;
}

void lsi_saved_close(lsi_saved *s)
{
    if (!s)
        return;
    ls_graph_destroy(s->graph);
    free(s);
}

/* ---- data ----------------------------------------------------------------------------------- */

ls_status lsi_saved_use_data(lsi_saved *s, const char *data)
{
    char before[LSI_CONFIG_WORD];
    snprintf(before, sizeof before, "%s", s->config.data.kind);
    LSI_TRY(lsi_train_config_put_data(&s->config, data));
    const char *kind = s->config.data.kind;
    /* The numbers of letters mean something only to a model that has seen them as such. */
    if (!strcmp(kind, "text") && strcmp(before, "text") != 0)
        return lsi_fail(LS_ERR_CONFIG, "tokens:FILE can be evaluated", "--data",
                        "the run was trained on data of kind %s and knows no letters", before);
    if (strcmp(kind, "text") != 0)
        s->config.data.letters = (lsi_config_letters){.kind = LSI_LETTERS_BYTES};
    if (strcmp(kind, "synthetic") != 0)
        s->config.data.samples = 0;
    s->config.data.augment = 0;
    return lsi_train_config_settle(&s->config);
}

static ls_status open_data(const lsi_saved *s, int training, ls_dataset **out)
{
    ls_data_config config = LS_DATA_CONFIG_INIT;
    lsi_train_config_data(&s->config, !training, &config);
    config.augment = 0;
    LSI_TRY(ls_dataset_open(&config, out));
    LSI_TRY(ls_dataset_bind(*out, s->fields.of, s->fields.n));
    if (!ls_dataset_count(*out))
        return lsi_fail(LS_ERR_CONFIG, training ? NULL : "--train takes the other part", "data",
                        "there is not one sample in this part of it");
    return LS_OK;
}

/* All workers get the error of the first that has one, or go on together. */
static ls_status agree(ls_comm *comm, ls_status status)
{
    const int32_t rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    int32_t first = status == LS_OK ? size : rank;
    const ls_status told = ls_allreduce(comm, LS_IN_PLACE, &first, 1, LS_I32, LS_MIN);
    if (told != LS_OK || first == size || first == rank)
        return told != LS_OK ? told : status;
    return lsi_fail_text(LS_ERR_ABORTED, "");
}

static ls_status open_both(const lsi_evaluate_job *job, lsi_saved **saved, ls_dataset **data)
{
    LSI_TRY(lsi_saved_open(job->path, 0, saved));
    if (job->data)
        LSI_TRY(lsi_saved_use_data(*saved, job->data));
    return open_data(*saved, job->training, data);
}

ls_status lsi_saved_check(const lsi_evaluate_job *job, lsi_checkpoint *checkpoint)
{
    lsi_saved *s = NULL;
    ls_dataset *data = NULL;
    const ls_status status = open_both(job, &s, &data);
    if (status == LS_OK)
        *checkpoint = s->checkpoint;
    ls_dataset_close(data);
    lsi_saved_close(s);
    return status;
}

ls_status lsi_saved_evaluate(ls_comm *comm, const lsi_evaluate_job *job, lsi_evaluation *out,
                             lsi_checkpoint *checkpoint, char model[LSI_CONFIG_WORD])
{
    lsi_saved *s = NULL;
    ls_dataset *data = NULL;
    ls_status status = agree(comm, open_both(job, &s, &data));
    if (status == LS_OK) {
        const uint64_t batches = job->batches == LSI_UNSET ? s->config.eval.batches : job->batches;
        const lsi_exam exam = {.data = data,
                               .samples = ls_dataset_count(data),
                               .most = batches * s->config.train.batch,
                               .place = ls_comm_rank(comm),
                               .of = ls_comm_size(comm)};
        status = lsi_evaluate(comm, s->graph, &s->fields, &exam, out);
    }
    if (status == LS_OK) {
        *checkpoint = s->checkpoint;
        memcpy(model, s->model, sizeof s->model);
    }
    ls_dataset_close(data);
    lsi_saved_close(s);
    return status;
}

/* Generated data: picks the task for the model, counts samples, draws each sample's numbers. */
#include "data/synthetic.h"

#include <stdlib.h>
#include <string.h>

#define WHAT "data synthetic"
#define SAMPLES 50000
#define SAMPLES_MAX ((uint64_t)1 << 40)

static const lsi_task *const tasks[] = {&lsi_task_mlp, &lsi_task_resnet, &lsi_task_gpt,
                                        &lsi_task_dlrm};
#define TASKS ((int)(sizeof tasks / sizeof *tasks))

typedef struct state {
    const lsi_task *task;
    void *tables;
} state;

static ls_status open_synthetic(ls_dataset *dataset)
{
    const char *model = dataset->config.model;
    if (dataset->config.samples > SAMPLES_MAX)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "%llu samples are more than 2^40",
                        (unsigned long long)dataset->config.samples);
    state *s = calloc(1, sizeof *s);
    if (!s)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for it");
    dataset->state = s;
    for (int t = 0; model && t < TASKS; t++)
        if (!strcmp(tasks[t]->model, model))
            s->task = tasks[t];
    if (model && !s->task)
        return lsi_fail(LS_ERR_CONFIG, "mlp, resnet, gpt and dlrm have one", WHAT,
                        "there is no task for the model '%.60s'", model);
    const uint64_t train = dataset->config.samples ? dataset->config.samples : SAMPLES;
    dataset->count = !dataset->config.validation ? train : train < 10 ? 1 : train / 10;
    return LS_OK;
}

static ls_status bind(ls_dataset *dataset, const ls_data_field *fields, int count)
{
    state *s = dataset->state;
    const lsi_task *task = s->task;
    for (int t = 0; !task && t < TASKS; t++) {
        const ls_data_field *field = lsi_field(fields, count, tasks[t]->field);
        if (field && field->ndim == tasks[t]->ndim)
            task = tasks[t];
    }
    if (!task)
        return lsi_fail(LS_ERR_CONFIG,
                        "an image and a label, tokens and targets, or dense, ids and target are "
                        "known",
                        WHAT, "there is no task with a field '%.60s'", fields[0].name);
    LSI_TRY(task->make(dataset, fields, count, &s->tables));
    s->task = task;
    return LS_OK;
}

uint64_t lsi_synthetic_number(const ls_dataset *dataset, uint64_t index)
{
    return index | (uint64_t)(dataset->config.validation != 0) << 63;
}

static ls_status read_sample(const ls_dataset *dataset, uint64_t index, uint64_t epoch,
                             void *const *fields)
{
    (void)epoch;
    const state *s = dataset->state;
    const uint64_t number = lsi_synthetic_number(dataset, index);
    uint32_t words[4];
    lsi_draw(dataset->config.seed, LSI_STREAM_DRAWS, number, 0, words);
    s->task->write(dataset, s->tables, number, words, fields);
    return LS_OK;
}

static ls_status best_loss(const ls_dataset *dataset, double *loss)
{
    const state *s = dataset->state;
    *loss = s->task->best_loss(dataset, s->tables);
    return LS_OK;
}

static void close_synthetic(void *argument)
{
    state *s = argument;
    if (!s)
        return;
    free(s->tables);
    free(s);
}

const lsi_format lsi_format_synthetic = {
    .name = "synthetic",
    .open = open_synthetic,
    .bind = bind,
    .read = read_sample,
    .close = close_synthetic,
    .best_loss = best_loss,
};

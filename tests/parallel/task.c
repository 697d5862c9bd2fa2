/* A small training loop on the engine. */
#include "task.h"

#include "feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include <lockstep/nn.h>

enum { SHARDS = 6, BATCH = 12, LAST = 7 };

static ls_status build(void *arg, ls_graph **out)
{
    const task_run *run = arg;
    const task *t = run->task;
    ls_model *model;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    LSI_TRY(ls_model_create(t->model, &model));
    ls_status status = LS_OK;
    for (int i = 0; i < 6 && t->settings[i] && status == LS_OK; i++)
        status = ls_model_set(model, t->settings[i]);
    config.batch = run->graph_batch;
    config.seed = 5;
    if (status == LS_OK)
        status = ls_model_build(model, &config, out);
    ls_model_destroy(model);
    return status;
}

static int leave(void *arg)
{
    task_run *run = arg;
    return ++run->asked == run->leave_at;
}

ls_status task_open(const task *t, ls_comm *comm, const lsi_keeper *keeper, task_run *run)
{
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    optim.name = t->optimizer;
    optim.lr = 0.01f;
    optim.momentum = t->momentum;
    optim.clip = t->clip;
    optim.warmup = 3; /* so that each step has a rate of its own */
    const lsi_engine_config config = {.shards = SHARDS,
                                      .batch = BATCH,
                                      .optimizer = &optim,
                                      .another = build,
                                      .another_arg = run,
                                      .leave = leave,
                                      .ask_arg = run,
                                      .keeper = keeper};
    *run = (task_run){.task = t, .graph_batch = lsi_engine_graph_batch(&config)};
    LSI_TRY(build(run, &run->graph));
    ls_status status = lsi_engine_open(comm, run->graph, &config, &run->engine);
    if (status != LS_OK)
        run->engine = NULL;
    else
        status = lsi_engine_fill(run->engine);
    if (status != LS_OK)
        task_close(run);
    return status;
}

void task_close(task_run *run)
{
    lsi_engine_close(run->engine);
    ls_graph_destroy(run->graph);
}

ls_status task_step(task_run *run, lsi_step_result *result)
{
    const uint64_t step = lsi_engine_steps(run->engine);
    const uint64_t samples = step % TASK_STEPS == TASK_STEPS - 2 ? LAST : BATCH;
    feed f = {step, 0};
    uint64_t end;
    lsi_engine_part(run->engine, samples, &f.first, &end);
    return lsi_engine_step(run->engine, samples, fill, &f, result);
}

static ls_status append(task_outcome *out, const float *from, size_t n)
{
    if (out->n + n > TASK_ROOM)
        return lsi_fail(LS_ERR_NOMEM, NULL, "task", "TASK_ROOM is too small");
    if (n)
        memcpy(out->bits + out->n, from, n * sizeof(float));
    out->n += n;
    return LS_OK;
}

ls_status task_leave(task_run *run, task_outcome *out)
{
    LSI_TRY(lsi_engine_settle(run->engine));
    lsi_replica *r = lsi_engine_replica(run->engine);
    if (r->domain.member != 0)
        return LS_OK;
    const size_t elements = ls_graph_param_elements(run->graph);
    out->n = 0;
    out->steps = lsi_engine_steps(run->engine);
    LSI_TRY(append(out, r->weights, elements));
    for (int i = 0; ls_optimizer_state(r->optimizer, i, NULL); i++)
        LSI_TRY(append(out, ls_optimizer_state(r->optimizer, i, NULL), elements));
    LSI_TRY(append(out, ls_graph_buffers(run->graph), ls_graph_buffer_elements(run->graph)));
    for (uint64_t n = 1; r->vault && n <= TASK_STEPS; n++) {
        const lsi_vault_figures *f = lsi_engine_figures(run->engine, n);
        out->loss[n - 1] = f ? f->loss : -1;
        out->norm[n - 1] = f ? f->grad_norm : -1;
        out->rate[n - 1] = f ? f->rate : -1;
        out->count[n - 1] = f ? f->count : -1;
        out->workers[n - 1] = f ? (int)f->workers : -1;
    }
    if (lsi_engine_figures(run->engine, out->steps + 1))
        return lsi_fail(LS_ERR_INVALID, NULL, "task", "figures of a step that was not done");
    return LS_OK;
}

const char *task_differs(const task_outcome *a, const task_outcome *b)
{
    static _Thread_local char text[200];
    if (a->steps != b->steps || a->n != b->n)
        return "the number of steps, or all";
    for (int i = 0; i < TASK_STEPS; i++)
        if (a->loss[i] != b->loss[i] || a->norm[i] != b->norm[i] || a->rate[i] != b->rate[i] ||
            a->count[i] != b->count[i]) {
            snprintf(text, sizeof text,
                     "step %d: loss %.9g and %.9g, norm %.9g and %.9g, rate %g and %g, count %g "
                     "and %g",
                     i + 1, a->loss[i], b->loss[i], a->norm[i], b->norm[i], a->rate[i], b->rate[i],
                     a->count[i], b->count[i]);
            return text;
        }
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(&a->bits[i], &b->bits[i], sizeof(float)) != 0) {
            snprintf(text, sizeof text, "element %zu of %zu: %.9g and %.9g", i, a->n,
                     (double)a->bits[i], (double)b->bits[i]);
            return text;
        }
    return NULL;
}

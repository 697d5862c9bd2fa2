/* Predictions; the contract is in predict.h. */
#include "train/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "train/softmax.h"

#define WHAT "predict"
#define IGNORED (-100) /* a target that does not count (nn.h) */

/* Logits to probabilities. Two classes from one logit: those of no and yes. */
static ls_status judge(const float *logits, size_t width, lsi_prediction *p, double *probability)
{
    double sum = 1;
    if (width == 1) {
        probability[1] = lsi_sigmoid((double)logits[0]);
        probability[0] = lsi_sigmoid(-(double)logits[0]);
        sum = isfinite(logits[0]) ? 1 : NAN;
    } else {
        sum = lsi_softmax_weights(logits, width, 1, probability);
    }
    if (isnan(sum))
        return lsi_fail(LS_ERR_INVALID, "was the training stable?", WHAT,
                        "the model's output for sample %llu is not finite",
                        (unsigned long long)p->sample);
    p->best = 0;
    for (size_t c = 0; c < p->classes; c++) {
        probability[c] /= sum;
        p->best = probability[c] > probability[p->best] ? c : p->best;
    }
    return LS_OK;
}

/* Samples [first, first + n) into the graph's inputs. */
static ls_status fill(const lsi_fields *fields, const lsi_samples *samples, uint64_t first,
                      size_t n)
{
    void *place[LSI_FIELDS_MAX];
    for (size_t i = 0; i < n; i++) {
        for (int f = 0; f < fields->n; f++) {
            place[f] = (char *)fields->memory[f] + i * fields->bytes[f];
            memset(place[f], 0, fields->bytes[f]); /* answers: any that is one */
        }
        LSI_TRY(lsi_samples_read(samples, first + i, place));
    }
    return LS_OK;
}

/* Logits of a sample: as many as there are classes, or one. 0: something else. */
static size_t width_of(const lsi_fields *fields)
{
    for (int f = 0; f < fields->n; f++) {
        if (!strcmp(fields->of[f].name, "label"))
            return fields->of[f].bound;
        if (!strcmp(fields->of[f].name, "target"))
            return 1;
    }
    return 0;
}

static ls_status predict_chunk(const lsi_saved *saved, const lsi_samples *samples, uint64_t first,
                               size_t n, double *probability, lsi_prediction_fn take, void *arg)
{
    const size_t width = width_of(&saved->fields);
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.batch = n;
    LSI_TRY(fill(&saved->fields, samples, first, n));
    LSI_TRY(ls_graph_run(saved->graph, &config, NULL));
    const float *logits = ls_output_data(saved->graph);
    for (size_t i = 0; i < n; i++) {
        lsi_prediction p = {.sample = first + i,
                            .classes = width == 1 ? 2 : width,
                            .probability = probability};
        LSI_TRY(judge(logits + i * width, width, &p, probability));
        LSI_TRY(take(arg, &p));
    }
    return LS_OK;
}

ls_status lsi_predict(const lsi_saved *saved, const lsi_samples *samples, lsi_prediction_fn take,
                      void *arg)
{
    const size_t width = width_of(&saved->fields);
    const size_t chunk = ls_tensor_dims(ls_graph_input(saved->graph, 0))[0];
    const uint64_t count = lsi_samples_count(samples);
    if (!width)
        return lsi_fail(LS_ERR_UNSUPPORTED, NULL, saved->checkpoint.folder,
                        "a %s does not tell classes", saved->model);
    double *probability = malloc((width + 1) * sizeof *probability);
    ls_status status = probability ? LS_OK : lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "out of memory");
    for (uint64_t first = 0; status == LS_OK && first < count; first += chunk) {
        const size_t n = count - first < chunk ? (size_t)(count - first) : chunk;
        status = predict_chunk(saved, samples, first, n, probability, take, arg);
    }
    free(probability);
    return status;
}

ls_status lsi_predict_text(const lsi_saved *saved, const int32_t *tokens, size_t count,
                           double *loss, uint64_t *judged)
{
    const size_t context = saved->fields.of[0].dims[0];
    int32_t *window = saved->fields.memory[0], *targets = saved->fields.memory[1];
    double sum = 0, all = 0;
    if (count < 2)
        return lsi_fail(LS_ERR_CONFIG, NULL, WHAT, "a text of one token has nothing to be told");
    for (size_t first = 0; first + 1 < count; first += context) {
        ls_run_config config = LS_RUN_CONFIG_INIT;
        ls_run_result found;
        config.batch = 1;
        for (size_t i = 0; i < context; i++) {
            const int there = first + i + 1 < count;
            window[i] = there ? tokens[first + i] : 0;
            targets[i] = there ? tokens[first + i + 1] : IGNORED;
        }
        LSI_TRY(ls_graph_run(saved->graph, &config, &found));
        sum += found.loss;
        all += found.count;
    }
    *loss = sum / all;
    *judged = (uint64_t)all;
    return LS_OK;
}

/* Loss and accuracy on held-out data, each worker that has it a part.
 *
 * The data is cut into chunks of the graph's batch, whatever the number of workers; each chunk's
 * sums are computed by one of them, and all are added up in the order of the chunks by everyone. So
 * the result has the same bits for any number of workers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "parallel/cut.h"
#include "train/trainer.h"

enum { LOSS, COUNT, RIGHT, JUDGED, SUMS };

/* Where the answers are among the fields, and of what kind. */
typedef struct judge {
    const int32_t *labels; /* classes: the largest of `width` logits should be this one */
    const float *targets;  /* yes or no: the sign of the logit */
    size_t width;
} judge;

static judge find_judge(ls_graph *graph, const lsi_fields *fields)
{
    judge j = {0};
    for (int f = 0; f < fields->n; f++) {
        if (strcmp(fields->of[f].name, "label") == 0) {
            j.labels = fields->memory[f];
            j.width = fields->of[f].bound;
        } else if (strcmp(fields->of[f].name, "target") == 0) {
            j.targets = fields->memory[f];
        }
    }
    if (!ls_output_data(graph))
        return (judge){0};
    return j;
}

static size_t count_right(const judge *j, const float *output, size_t samples)
{
    size_t right = 0;
    for (size_t i = 0; i < samples; i++) {
        if (j->targets) {
            right += (output[i] > 0) == (j->targets[i] > 0.5f);
            continue;
        }
        const float *row = output + i * j->width;
        size_t best = 0;
        for (size_t c = 1; c < j->width; c++)
            best = row[c] > row[best] ? c : best;
        right += (int32_t)best == j->labels[i];
    }
    return right;
}

static ls_status read_samples(const lsi_fields *fields, const ls_dataset *data, uint64_t first,
                              size_t count)
{
    void *place[LSI_FIELDS_MAX];
    for (size_t i = 0; i < count; i++) {
        for (int f = 0; f < fields->n; f++)
            place[f] = (char *)fields->memory[f] + i * fields->bytes[f];
        LSI_TRY(ls_dataset_read(data, first + i, 0, place));
    }
    return LS_OK;
}

static ls_status run_chunk(ls_graph *graph, const judge *j, size_t count, double *sums)
{
    ls_run_config config = LS_RUN_CONFIG_INIT;
    ls_run_result found;
    config.batch = count;
    LSI_TRY(ls_graph_run(graph, &config, &found));
    sums[LOSS] = found.loss;
    sums[COUNT] = found.count;
    if (j->labels || j->targets) {
        sums[RIGHT] = (double)count_right(j, ls_output_data(graph), count);
        sums[JUDGED] = (double)count;
    }
    return LS_OK;
}

ls_status lsi_evaluate(ls_comm *comm, ls_graph *graph, const lsi_fields *fields,
                       const lsi_exam *exam, lsi_evaluation *out)
{
    const double from = lsi_now();
    const uint64_t samples = exam->most && exam->most < exam->samples ? exam->most : exam->samples;
    const size_t chunk = ls_tensor_dims(ls_graph_input(graph, 0))[0];
    const size_t chunks = (size_t)((samples + chunk - 1) / chunk);
    const judge j = find_judge(graph, fields);
    const size_t of = (size_t)exam->of, place = (size_t)(exam->place < 0 ? 0 : exam->place);
    const size_t end = exam->place < 0 ? 0 : chunks * (place + 1) / of;
    double *sums = calloc(chunks * SUMS + 1, sizeof *sums), total[SUMS] = {0};
    ls_status status = sums ? LS_OK : lsi_fail(LS_ERR_NOMEM, NULL, "evaluation", "out of memory");
    for (size_t c = chunks * place / of; status == LS_OK && c < end; c++) {
        const uint64_t first = (uint64_t)c * chunk;
        const size_t n = samples - first < chunk ? (size_t)(samples - first) : chunk;
        status = read_samples(fields, exam->data, first, n);
        if (status == LS_OK)
            status = run_chunk(graph, &j, n, sums + c * SUMS);
    }
    if (status == LS_OK) /* one worker has each number, the others zeros: the sum is exact */
        status = ls_allreduce(comm, LS_IN_PLACE, sums, chunks * SUMS, LS_F64, LS_SUM);
    for (size_t i = 0; status == LS_OK && i < chunks * SUMS; i++)
        total[i % SUMS] += sums[i];
    free(sums);
    if (status == LS_OK)
        *out = (lsi_evaluation){total[LOSS] / total[COUNT],
                                total[JUDGED] > 0 ? total[RIGHT] / total[JUDGED] : NAN, samples,
                                lsi_now() - from};
    return status;
}

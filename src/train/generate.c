/* Generating text; the contract is in generate.h. */
#include "train/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/status.h"
#include "train/softmax.h"

#define WHAT "generate"
#define STREAM 0x67656e6572617465u /* of the draws: the key is seed ^ STREAM */
#define IGNORED (-100)             /* a target that does not count (nn.h) */

typedef struct work {
    const lsi_generate_config *config;
    ls_graph *graph;
    int32_t *window; /* the graph's input (context) */
    size_t context, vocab, known;
    size_t filled;   /* of the window */
    double *weights; /* (known) */
    float *ordered;  /* (known), for the k-th largest */
} work;

ls_status lsi_saved_vocab(const lsi_saved *saved, size_t *vocab)
{
    if (strcmp(saved->model, "gpt") != 0)
        return lsi_fail(LS_ERR_UNSUPPORTED, NULL, saved->checkpoint.folder,
                        "text comes from a gpt, and this is a %s", saved->model);
    *vocab = saved->fields.of[0].bound;
    return LS_OK;
}

/* ---- choosing ------------------------------------------------------------------------------- */

static int descending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Leave the k likeliest their weights, take those of the others; of equal ones the first stay.
 * Returns the sum of what is left. */
static double keep_top(work *w, const float *logits, size_t k)
{
    memcpy(w->ordered, logits, w->known * sizeof *logits);
    qsort(w->ordered, w->known, sizeof *w->ordered, descending);
    const float least = w->ordered[k - 1];
    size_t equal = k; /* places for those that equal the k-th */
    while (equal > 0 && w->ordered[k - equal] > least)
        equal--;
    double sum = 0;
    for (size_t i = 0; i < w->known; i++) {
        if (logits[i] < least || (logits[i] == least && equal == 0))
            w->weights[i] = 0;
        else if (logits[i] == least)
            equal--;
        sum += w->weights[i];
    }
    return sum;
}

/* In [0, 1), by the place of the token in the text. */
static double draw(uint64_t seed, uint64_t place)
{
    const uint64_t key = seed ^ STREAM;
    uint32_t words[4];
    lsi_philox((uint32_t[]){(uint32_t)place, (uint32_t)(place >> 32), 0, 0},
               (uint32_t[]){(uint32_t)key, (uint32_t)(key >> 32)}, words);
    const uint64_t bits = (uint64_t)words[0] << 32 | words[1];
    return (double)(bits >> 11) * 0x1p-53;
}

static size_t likeliest(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static ls_status choose(work *w, const float *logits, uint64_t place, int32_t *token)
{
    const lsi_generate_config *c = w->config;
    double sum =
        lsi_softmax_weights(logits, w->known, c->temperature > 0 ? c->temperature : 1, w->weights);
    if (isnan(sum))
        return lsi_fail(LS_ERR_INVALID, "was the training stable?", WHAT,
                        "the model's output is not finite");
    *token = (int32_t)likeliest(logits, w->known);
    if (c->temperature == 0)
        return LS_OK;
    if (c->top && c->top < w->known)
        sum = keep_top(w, logits, (size_t)c->top);
    const double at = draw(c->seed, place) * sum;
    double passed = 0;
    for (size_t i = 0; i < w->known; i++) {
        passed += w->weights[i];
        if (at < passed) {
            *token = (int32_t)i;
            break;
        }
    }
    return LS_OK;
}

/* ---- a shorter graph ------------------------------------------------------------------------ */

static ls_status copy_weights(ls_graph *from, ls_graph *to)
{
    for (int i = 0; i < ls_graph_param_count(to); i++) {
        ls_param_info source, target;
        LSI_TRY(ls_graph_param(from, i, &source));
        LSI_TRY(ls_graph_param(to, i, &target));
        if (strcmp(source.name, target.name) != 0 || source.count < target.count)
            return lsi_fail(LS_ERR_INVALID, NULL, WHAT, "'%s' is not '%s'", source.name,
                            target.name);
        /* Positions come one after the other: those that are needed are the first. */
        memcpy(ls_graph_params(to) + target.offset, ls_graph_params(from) + source.offset,
               target.count * sizeof(float));
    }
    return LS_OK;
}

/* The same model for texts of at most `length` tokens. A token sees only those before it, so it
 * gets the same bits, in a fraction of the time. The caller destroys *out. */
static ls_status shorten(const lsi_saved *saved, size_t length, ls_graph **out)
{
    ls_model *model;
    ls_graph *graph;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    char setting[48];
    config.batch = 1;
    snprintf(setting, sizeof setting, "context=%zu", length);
    LSI_TRY(lsi_train_config_model(&saved->config, &model));
    ls_status status = ls_model_set(model, setting);
    if (status == LS_OK)
        status = ls_model_build(model, &config, &graph);
    ls_model_destroy(model);
    LSI_TRY(status);
    status = copy_weights(saved->graph, graph);
    if (status == LS_OK)
        *out = graph;
    else
        ls_graph_destroy(graph);
    return status;
}

/* ---- the text ------------------------------------------------------------------------------- */

static void push(work *w, int32_t token)
{
    if (w->filled == w->context) {
        memmove(w->window, w->window + 1, (w->context - 1) * sizeof *w->window);
        w->filled--;
    }
    w->window[w->filled++] = token;
}

static ls_status next(work *w, uint64_t place, int32_t *token)
{
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.batch = 1;
    LSI_TRY(ls_graph_run(w->graph, &config, NULL));
    const float *logits = ls_output_data(w->graph) + (w->filled - 1) * w->vocab;
    return choose(w, logits, place, token);
}

static ls_status go_on(work *w, size_t count, lsi_token_fn take, void *arg)
{
    for (uint64_t i = 0; i < w->config->tokens; i++) {
        int32_t token = 0;
        LSI_TRY(next(w, count + i, &token));
        LSI_TRY(take(arg, token));
        push(w, token);
    }
    return LS_OK;
}

ls_status lsi_generate(const lsi_saved *saved, const lsi_generate_config *config,
                       const int32_t *prompt, size_t count, lsi_token_fn take, void *arg)
{
    work w = {.config = config, .graph = saved->graph, .context = saved->fields.of[0].dims[0]};
    ls_graph *shorter = NULL;
    LSI_TRY(lsi_saved_vocab(saved, &w.vocab));
    if (config->tokens < w.context && count < w.context - config->tokens) {
        w.context = count + (size_t)config->tokens;
        LSI_TRY(shorten(saved, w.context, &shorter));
        w.graph = shorter;
    }
    w.window = ls_input_data(w.graph, ls_graph_input(w.graph, 0));
    w.known = config->known && config->known < w.vocab ? config->known : w.vocab;
    w.weights = malloc(w.known * sizeof *w.weights);
    w.ordered = malloc(w.known * sizeof *w.ordered);
    /* Places that are not filled yet do not reach those before them, but must hold tokens. */
    int32_t *targets = ls_input_data(w.graph, ls_graph_input(w.graph, 1));
    for (size_t i = 0; i < w.context; i++) {
        w.window[i] = 0;
        targets[i] = IGNORED;
    }
    for (size_t i = count < w.context ? 0 : count - w.context; i < count; i++)
        push(&w, prompt[i]);
    const ls_status status = w.weights && w.ordered
                                 ? go_on(&w, count, take, arg)
                                 : lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "out of memory");
    free(w.weights);
    free(w.ordered);
    ls_graph_destroy(shorter);
    return status;
}

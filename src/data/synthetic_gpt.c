/* Generated sequences, for gpt: a Markov chain.
 *
 * After symbol s comes order[(s + k) mod symbols] with the chance 1/2 for k = 0, 1/4 for k = 1, …
 * and twice the same for the last of SUCCESSORS; `order` is a random permutation.
 *
 * 1. The entropy of what comes next is the same after every symbol, so the best loss is this
 *    number, exactly, at every position: 1.375 (of ln 65 = 4.17 for who only counts symbols).
 * 2. Each symbol is followed by as many as it follows, with the same chances: all are equally
 *    frequent, and a sample may begin with any.
 * 3. At most SYMBOLS_MAX symbols are used, so that a model with a large vocabulary sees each often.
 */
#include <math.h>
#include <stdlib.h>

#include "base/philox.h"
#include "data/synthetic.h"

#define SUCCESSORS 8
#define SYMBOLS_MAX 1024
#define SYMBOLS_DEFAULT 64 /* when the model does not say */

typedef struct tables {
    size_t context;
    uint32_t symbols;
    int place[2];
    int last;                              /* number of successors - 1 */
    int32_t next[SYMBOLS_MAX][SUCCESSORS]; /* (symbols, last + 1) */
} tables;

static ls_status make(ls_dataset *dataset, const ls_data_field *fields, int count, void **task)
{
    const ls_data_field *wanted = lsi_field(fields, count, "tokens");
    wanted = wanted ? wanted : lsi_field(fields, count, "targets");
    const size_t context = wanted && wanted->ndim == 1 ? wanted->dims[0] : 64;
    const lsi_offer offers[2] = {{"tokens", LS_I32, 1, {context}, 0},
                                 {"targets", LS_I32, 1, {context}, 0}};
    int place[2];
    LSI_TRY(lsi_match(dataset, offers, 2, fields, count, place));
    size_t symbols = 0;
    for (int i = 0; i < 2; i++)
        if (place[i] >= 0 && fields[place[i]].bound &&
            (symbols == 0 || fields[place[i]].bound < symbols))
            symbols = fields[place[i]].bound;
    symbols = symbols == 0 ? SYMBOLS_DEFAULT : symbols > SYMBOLS_MAX ? SYMBOLS_MAX : symbols;

    tables *t = malloc(sizeof *t);
    if (!t)
        return lsi_fail(LS_ERR_NOMEM, NULL, "data synthetic", "no memory for the chain");
    t->context = context;
    t->symbols = (uint32_t)symbols;
    t->place[0] = place[0];
    t->place[1] = place[1];
    t->last = symbols < SUCCESSORS ? (int)symbols - 1 : SUCCESSORS - 1;
    for (size_t s = 0; s < symbols; s++)
        for (int k = 0; k <= t->last; k++)
            t->next[s][k] = (int32_t)ls_data_order(dataset->config.seed ^ LSI_STREAM_TABLE, 0,
                                                   symbols, (s + (size_t)k) % symbols);
    *task = t;
    return LS_OK;
}

/* Each byte of the sample's own stream is a step of the chain: its trailing zeros choose. */
static void write_sample(const ls_dataset *dataset, const void *task, uint64_t number,
                         const uint32_t words[4], void *const *fields)
{
    const tables *t = task;
    const uint64_t key = dataset->config.seed ^ LSI_STREAM_CHAIN;
    const uint32_t keys[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    const uint32_t counter[4] = {0, 0, (uint32_t)number, (uint32_t)(number >> 32)};
    int32_t *tokens = t->place[0] >= 0 ? fields[t->place[0]] : NULL;
    int32_t *targets = t->place[1] >= 0 ? fields[t->place[1]] : NULL;
    int32_t symbol = (int32_t)lsi_below(words[0], t->symbols);
    uint32_t bits[128];
    for (size_t i = 0; i < t->context; i++) {
        const size_t at = i % sizeof bits;
        if (at == 0) {
            const size_t rest = (t->context - i + 3) / 4;
            lsi_philox_fill(counter, keys, i / 4, bits, rest < 128 ? rest : 128);
        }
        const uint32_t byte = bits[at / 4] >> at % 4 * 8 & 0xff;
        const int zeros = __builtin_ctz(byte | 0x80);
        if (tokens)
            tokens[i] = symbol;
        symbol = t->next[symbol][zeros < t->last ? zeros : t->last];
        if (targets)
            targets[i] = symbol;
    }
}

static double best_loss(const ls_dataset *dataset, const void *task)
{
    (void)dataset;
    const tables *t = task;
    double bits = 0, chance = 1;
    for (int k = 1; k <= t->last; k++) {
        chance /= 2;
        bits += k * chance;
    }
    return (bits + t->last * chance) * log(2);
}

const lsi_task lsi_task_gpt = {"gpt", "tokens", 1, make, write_sample, best_loss};

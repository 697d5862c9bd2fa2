/* Inputs that are a function of step and sample: whoever computes a sample gets the same. */
#ifndef TESTS_PARALLEL_FEED_H
#define TESTS_PARALLEL_FEED_H

#include <string.h>

#include "base/philox.h"
#include <lockstep/nn.h>

typedef struct feed {
    uint64_t step, first; /* of the worker's part in the batch */
} feed;

static ls_status fill(void *arg, ls_graph *graph, uint64_t first, size_t count)
{
    const feed *f = arg;
    ls_tensor *input;
    for (uint32_t i = 0; (input = ls_graph_input(graph, (int)i)); i++) {
        const size_t *dims = ls_tensor_dims(input), bound = ls_tensor_bound(input);
        size_t each = 1;
        for (int d = 1; d < ls_tensor_ndim(input); d++)
            each *= dims[d];
        float *real = ls_input_data(graph, input);
        int32_t *whole = ls_input_data(graph, input);
        for (size_t e = 0; e < count * each; e++) {
            const uint64_t sample = f->first + first + e / each;
            const uint32_t key[2] = {7, i};
            const uint32_t counter[4] = {(uint32_t)(e % each), (uint32_t)sample, (uint32_t)f->step,
                                         0};
            uint32_t words[4];
            lsi_philox(counter, key, words);
            if (bound)
                whole[e] = (int32_t)(words[0] % bound);
            else if (strcmp(ls_tensor_name(input), "target") == 0)
                real[e] = (float)(words[0] >> 31);
            else
                real[e] = 2.0f * lsi_philox_uniform(words[0]) - 1.0f;
        }
    }
    return LS_OK;
}

#endif

/* Weights as arrays with a description: what files of weights are written from and read into when
 * they do not lie in a graph, e.g. a copy that is being saved while training goes on.
 *
 * 1. A file's bytes depend on names, shapes and values alone, not on where the arrays lie or in
 *    which order: tensors come by name, in the ecosystem's layouts. So the SHA-256 of the weights
 *    is that of their file, and `sha256sum model.safetensors` gives the same digits.
 *
 * An object belongs to one thread at a time, the arrays it describes may be read by others.
 */
#ifndef LSI_NN_WEIGHTS_H
#define LSI_NN_WEIGHTS_H

#include <lockstep/nn.h>

#include "base/sha256.h"

typedef struct lsi_weights {
    const ls_param_info *params, *buffers; /* borrowed, as are their names */
    int param_count, buffer_count;
    float *param_values, *buffer_values; /* info.offset says where each begins */
} lsi_weights;

/* Those of a graph, in the memory that it uses now; other arrays of the same layout may be put in
 * their place. Descriptions are allocated (lsi_weights_free), names are the graph's. */
ls_status lsi_weights_of(ls_graph *graph, lsi_weights *out);
void lsi_weights_free(lsi_weights *weights);

/* Takes the next bytes; an error ends the stream. */
typedef ls_status (*lsi_weights_sink)(void *arg, const void *data, size_t bytes);
/* The bytes of the file, from the first to the last. */
ls_status lsi_weights_stream(const lsi_weights *weights, lsi_weights_sink put, void *arg);
/* Their digest. */
ls_status lsi_weights_sha256(const lsi_weights *weights, char hex[LSI_SHA256_HEX]);
/* As ls_weights_load: by name, and nothing is changed unless everything fits. */
ls_status lsi_weights_load(const lsi_weights *weights, const char *path);

#endif

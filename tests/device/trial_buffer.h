/* The buffers of one run of one kernel: guarded, skewed, filled by a seed; see trial.h. */
#ifndef LS_TEST_TRIAL_BUFFER_H
#define LS_TEST_TRIAL_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "trial.h"

#define STATE_BUFFERS 24

typedef enum buffer_type { BUFFER_F32, BUFFER_I32, BUFFER_F64, BUFFER_SIZE } buffer_type;

typedef struct buffer {
    const char *name;
    buffer_type type;
    int output, spared;
    size_t n, element; /* elements, bytes of one */
    double tol, scale;
    unsigned char *memory, *data; /* the allocation, and the buffer inside it */
    unsigned char *before;        /* a copy of an input from before the call */
    size_t bytes;                 /* of the allocation */
} buffer;

typedef struct trial_state {
    buffer buffers[STATE_BUFFERS];
    int count, run, skipped, sealed;
    int exceptional; /* some of what is read is to be NaN or infinite */
    uint64_t rng;
    ls_status status;
} trial_state;

/* Begin run number `run` (it decides the addresses) with values by `seed`. */
void state_begin(trial_state *state, uint64_t seed, int run, int exceptional);
/* After the call: NULL, or what was changed that is no output. */
const char *state_end(trial_state *state);
void state_clear(trial_state *state);

double buffer_value(const buffer *b, size_t i);

size_t random_below(uint64_t *rng, size_t bound);
double random_unit(uint64_t *rng); /* in [0, 1) */

#endif

/* The matrix of kernel tests: each operation, many shapes, every instruction set against `ref`.
 *
 * An operation is described once, as a table of arguments with the values each takes and a function
 * that makes buffers, calls one kernel and says how exact each output has to be. The function runs
 * once for `ref` and once for each instruction set of `cpu`, every time with the same input values
 * at other addresses. Then:
 *
 * 1. Each output of each set lies within tol * (|expected| + scale) of `ref`.
 * 2. Each output has the same bits in every set.
 * 3. Nothing around a buffer is written (guards of NaN, poisoned under ASan), and no input.
 * 4. Outputs that are written rather than added to start as NaN, and so does the device's scratch.
 *
 * With exceptional values a few elements of what a kernel reads are NaN or infinite. A NaN's sign
 * and payload are then nobody's business, and how an element that is not finite relates to ref's is
 * for a rule to say; all else is as before.
 */
#ifndef LS_TEST_TRIAL_H
#define LS_TEST_TRIAL_H

#include <stddef.h>
#include <stdint.h>

#include "device/kernels.h"

#define TRIAL_ARGS 12
#define TRIAL_VALUES 24

/* One argument of an operation. The random run takes sizes between the smallest and the largest
 * value too, but choices only from the list. */
typedef struct trial_arg {
    const char *name;
    int choice;
    size_t count, values[TRIAL_VALUES];
} trial_arg;
#define TRIAL_LIST(...)                                                                            \
    sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t),                                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define SIZES(name, ...)                                                                           \
    {                                                                                              \
        name, 0, TRIAL_LIST(__VA_ARGS__)                                                           \
    }
#define CHOICE(name, ...)                                                                          \
    {                                                                                              \
        name, 1, TRIAL_LIST(__VA_ARGS__)                                                           \
    }

typedef struct trial {
    lsi_device *device;   /* the one under test, with the kernels `k` */
    const lsi_kernels *k; /* of ref, or of an instruction set */
    lsi_device *ref;      /* to prepare inputs that another kernel makes, e.g. statistics */
    struct trial_state *state;
} trial;

typedef struct trial_op {
    const char *name;
    size_t entry; /* offset of the kernel in lsi_kernels */
    void (*run)(trial *t, const size_t *args);
    trial_arg args[TRIAL_ARGS];
} trial_op;
#define ENTRY(member) #member, offsetof(lsi_kernels, member)

/* The operations, by group; each list ends with a NULL name. */
extern const trial_op trial_products[], trial_convolutions[], trial_norms[], trial_elementwise[],
    trial_moves[], trial_pools[], trial_losses[], trial_optimizers[];

/* Run an operation over the product of its values, or over `limit` of its elements spread evenly.
 * Fails the test with the first differences printed; prints one line about what was seen. */
void trial_matrix(const trial_op *op, size_t limit);
/* Run it with `count` random arguments. */
void trial_random(const trial_op *op, uint64_t seed, size_t count);

/* What an element of an output may be where it or ref's is not finite. */
typedef enum trial_kind {
    TRIAL_SAME,       /* NaN where ref has NaN, the same infinity where it has one */
    TRIAL_NOT_FINITE, /* not finite where ref's is not, and nowhere else */
    TRIAL_SPREADS,    /* not finite where ref's is not, and perhaps elsewhere */
    TRIAL_BY_SET      /* the same, and where else the instruction set decides */
} trial_kind;
/* As trial_matrix, with exceptional values; what holds with arguments is for `rule` to say (NULL:
 * TRIAL_SAME). Returns how many elements of ref's outputs were not finite. */
typedef trial_kind (*trial_rule)(const size_t *args);
size_t trial_exceptional(const trial_op *op, size_t limit, trial_rule rule);

/* ---- inside an operation -------------------------------------------------------------------- */

/* These arguments make no sense together: nothing was called. */
void trial_skip(trial *t);

/* Inputs: values of variance 1, in a range, and ids below `bound`. They may be changed until the
 * kernel is called. */
float *trial_in(trial *t, size_t n);
float *trial_in_range(trial *t, size_t n, double low, double high);
int32_t *trial_ids(trial *t, size_t n, size_t bound);
/* No exceptional values in this one: there are none by contract. Returns x. */
float *trial_spare(trial *t, float *x);
/* A random number below bound, for what is no buffer. */
size_t trial_below(trial *t, size_t bound);

/* Outputs, compared after the call; tol 0 means the same values as ref's. With `keep` the buffer
 * starts with random values: it is added to, or is an input as well. */
float *trial_out(trial *t, const char *name, size_t n, int keep, double tol, double scale);
int32_t *trial_out_ids(trial *t, const char *name, size_t n);
double *trial_out_sum(trial *t, const char *name, size_t n, double tol, double scale);
size_t *trial_out_size(trial *t, const char *name);

/* Call the kernel under test; it has to succeed. */
#define CALL(t, member, ...)                                                                       \
    (trial_seal(t), trial_called(t, (t)->k->member((t)->device, __VA_ARGS__)))
/* Prepare inputs with the kernel of ref. */
#define PREPARE(t, member, ...) trial_called(t, (t)->ref->k->member((t)->ref, __VA_ARGS__))
void trial_seal(trial *t);
void trial_called(trial *t, ls_status status);

#endif

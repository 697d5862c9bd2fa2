/* What the files of this folder share: the seam of optimizers, and the object.
 *
 * An optimizer is one lsi_optim_ops (sgd.c, adam.c, lars.c, lamb.c). It sees ranges of elements of
 * one parameter and calls the device's kernels on them; all the walking over parameters, blocks,
 * rows and steps is done for it (phases.c, norms.c, lazy.c).
 *
 * A *piece* is the intersection of a parameter and a block. Pieces are numbered in the order of the
 * flat array; each has one sum of each kind.
 */
#ifndef LSI_OPTIM_OPTIMIZER_H
#define LSI_OPTIM_OPTIMIZER_H

#include <lockstep/optim.h>

#include "device/kernels.h"

#define LSI_OPTIM_ARRAYS 3
#define LSI_OPTIM_ROUNDS 2

/* What the sums of squares are of. */
enum lsi_optim_sum {
    LSI_SUM_GRAD,      /* the scaled gradient, before clipping */
    LSI_SUM_WEIGHT,    /* the parameters */
    LSI_SUM_DIRECTION, /* array 2 of the state, which ops->direct has written */
    LSI_SUM_KINDS
};
#define LSI_SUM_BIT(kind) (1u << (kind))

/* Settings that not every optimizer has; ls_optim_config_check refuses those it has not. */
enum {
    LSI_HAS_MOMENTUM = 1, /* momentum and nesterov */
    LSI_HAS_BETAS = 2,
    LSI_HAS_EPS = 4,
    LSI_HAS_TRUST = 8
};

/* A parameter, and what is known of it in the step that was begun. */
typedef struct lsi_optim_param {
    const char *name;
    size_t offset, count; /* elements of the flat array */
    int no_decay;
    size_t rows, width; /* of a sparse parameter; rows is 0 for the others */
    size_t first_piece;
    int lazy;           /* rows are brought up to date when needed */
    size_t first_stamp; /* lazy: of its rows */
    float ratio;        /* lars, lamb: set by ops->ratio */
    int given;          /* sparse: grad is that of the next step */
    ls_sparse_grad grad;
} lsi_optim_param;

/* A kind of optimizer. Elements are given as `n` elements from place `at` of the flat arrays, all
 * of parameter `param`: g (n; NULL: zeros) and w (n) point there already, state arrays do not. */
typedef struct lsi_optim_ops {
    const char *name;
    unsigned has; /* LSI_HAS_… */
    /* Defaults of momentum, beta1, beta2, eps, decay, trust. */
    float momentum, beta1, beta2, eps, decay, trust;
    /* Names of the state arrays to be saved, as PyTorch calls them; NULL after the last. */
    const char *arrays[LSI_OPTIM_ARRAYS];
    /* How many arrays there are with these settings (transient ones included). */
    int (*array_count)(const ls_optim_config *settings);
    /* Sums that each round of measuring takes, as bits; a round of 0 does not take place. The
     * gradient's is added to round 0 when there is clipping. */
    unsigned rounds[LSI_OPTIM_ROUNDS];
    /* Before the sums of round 1 (NULL: nothing to do): moments and array 2 from the gradient. */
    ls_status (*direct)(ls_optimizer *, const lsi_optim_param *param, size_t at, size_t n,
                        const float *g, const float *w);
    /* After the last round (NULL: none needed): the factor of this parameter, from its norms, those
     * of the gradient after clipping. */
    float (*ratio)(const ls_optimizer *, const lsi_optim_param *param, const double *norms);
    ls_status (*update)(ls_optimizer *, const lsi_optim_param *param, size_t at, size_t n,
                        const float *g, float *w);
    /* The same for rows of a sparse parameter, by their places; their gradients lie one after the
     * other in g. NULL where moves is. */
    ls_status (*update_rows)(ls_optimizer *, const lsi_optim_param *param, size_t rows,
                             const size_t *at, const float *g, float *params);
    /* 1 when an update with a gradient of zero changes anything of this parameter. NULL: sparse
     * parameters are updated in every row. */
    int (*moves)(const ls_optim_config *settings, const lsi_optim_param *param);
    /* Rows of this parameter, by their places in the flat array, make up for the steps that they
     * have missed, with gradients of zero; the last one is step number `last`
     * (lsi_history_window). */
    ls_status (*idle)(ls_optimizer *, const lsi_optim_param *param, size_t rows,
                      const lsi_idle *row, uint64_t last, float *params);
} lsi_optim_ops;

extern const lsi_optim_ops lsi_optim_sgd, lsi_optim_adam, lsi_optim_adamw, lsi_optim_lars,
    lsi_optim_lamb;

/* Rates of the latest steps, for rows that missed them. Each is kept twice, LSI_RATES apart, so
 * that any window of up to LSI_RATES steps is contiguous. */
#define LSI_RATES ((size_t)1024) /* a power of two */
typedef struct lsi_history {
    float lr[2 * LSI_RATES];
    lsi_adam_rate adam[2 * LSI_RATES];
} lsi_history;

struct ls_optimizer {
    const lsi_optim_ops *ops;
    ls_optim_config settings; /* every value settled; zeros are zeros */
    lsi_device *device;
    lsi_optim_param *params; /* ascending offsets */
    char *names;
    int count;
    size_t elements, blocks, pieces, stamp_count;

    void *own, *memory;             /* own state, and the one in use */
    void *block_of_own;             /* what own was cut from */
    float *array[LSI_OPTIM_ARRAYS]; /* parts of memory */
    int arrays;
    uint32_t *stamps; /* the step up to which a row is up to date, modulo 2^32 */
    double *sums[LSI_SUM_KINDS];
    unsigned rounds[LSI_OPTIM_ROUNDS];
    int round_count;

    uint64_t step; /* done */
    /* Of the step that was begun: number step + 1 where steps are counted from 1. */
    float rate, given_scale, scale; /* the latter includes clipping once that is known */
    double grad_norm, clipped;
    lsi_adam adam; /* adam, adamw, lamb: this step's constants, decay as for ordinary parameters */
    lsi_history *history; /* NULL when no parameter is lazy */
    float *block;         /* LS_OPTIM_BLOCK elements, to put rows in their places */
};

/* config.c: the ops of a name, or LS_ERR_CONFIG listing the names; all values settled. */
ls_status lsi_optim_settle(const ls_optim_config *config, const lsi_optim_ops **ops,
                           ls_optim_config *settings);
/* schedule.c: of settled settings. */
float lsi_schedule_rate(const ls_optim_config *settings, uint64_t step);
ls_status lsi_schedule_check(const ls_optim_config *config, ls_optim_config *out);

/* phases.c: the first parameter that ends after element `at`; count when there is none. */
int lsi_optim_find(const ls_optimizer *optimizer, size_t at);

/* Go on after `step` steps with state that is there already: rows stay as old as they are, and the
 * rates that they missed are known again. */
void lsi_optimizer_seek(ls_optimizer *optimizer, uint64_t step);
/* Does measuring in this round change the state? */
int lsi_optimizer_directs(const ls_optimizer *optimizer, int round);

/* undo.c: keep all that an update (or measuring) of blocks [first, last) will change, in memory
 * with lsi_undo_room(last - first); or rows that will be touched, as many as lsi_undo_rows says;
 * and put it back. Gradients of sparse parameters must have been given. */
size_t lsi_undo_room(const ls_optimizer *optimizer, size_t blocks);
size_t lsi_undo_rows(const ls_optimizer *optimizer, int index, size_t room);
void lsi_undo_save(const ls_optimizer *optimizer, const float *params, size_t first, size_t last,
                   void *memory);
void lsi_undo_save_rows(const ls_optimizer *optimizer, const float *params, int index,
                        const int32_t *ids, size_t n, void *memory);
void lsi_undo_restore(ls_optimizer *optimizer, float *params, const void *memory);

/* norms.c: the balanced binary tree over n values. */
double lsi_optim_tree(const double *values, size_t n);
/* The piece that holds element `at` of this parameter. */
static inline size_t lsi_optim_piece(const lsi_optim_param *param, size_t at)
{
    return param->first_piece + at / LS_OPTIM_BLOCK - param->offset / LS_OPTIM_BLOCK;
}

/* rows.c: the place of the first id that is at least `row`. */
size_t lsi_rows_find(const ls_sparse_grad *grad, size_t row);
/* The gradient of a sparse parameter as if it lay in the flat array: runs of elements of [at, at +
 * n) in ascending order, each of used rows (values of the gradient) or of unused ones (NULL). */
typedef ls_status (*lsi_run_fn)(ls_optimizer *, const lsi_optim_param *param, size_t at, size_t n,
                                const float *g, void *arg);
ls_status lsi_rows_each_run(ls_optimizer *optimizer, const lsi_optim_param *param, size_t at,
                            size_t n, lsi_run_fn fn, void *arg);
/* The sum of squares of a piece of it, n <= LS_OPTIM_BLOCK: the bits of the kernel on the dense
 * gradient. */
ls_status lsi_rows_squares(ls_optimizer *optimizer, const lsi_optim_param *param, size_t at,
                           size_t n, double *sum);

/* LS_ERR_INVALID when this is a sparse parameter whose gradient has not been given. */
ls_status lsi_rows_given(const lsi_optim_param *param);

/* lazy.c: the rows of a lazy parameter that begin in elements [from, to): those with a gradient get
 * it, and a few others are brought up to date, so that none is older than the history. */
ls_status lsi_lazy_update(ls_optimizer *optimizer, const lsi_optim_param *param, size_t from,
                          size_t to, float *params);
/* Of its rows [first, last) the slice that is brought up to date in step number `step`. */
void lsi_lazy_slice(const lsi_optim_param *param, size_t first, size_t last, uint64_t step,
                    size_t *from, size_t *to);
/* Keep the rates of the step that was begun. */
void lsi_history_keep(ls_optimizer *optimizer);
/* Where the rates of the LSI_RATES steps up to step number `last` begin. */
static inline size_t lsi_history_window(uint64_t last)
{
    return (size_t)(last + 1) & (LSI_RATES - 1);
}

#endif

/* Optimizers: sgd, adam, adamw, lars, lamb, with schedules and clipping by the global norm.
 *
 * An optimizer works on one flat array of parameters and one of gradients (graph.h), cut into
 * blocks of LS_OPTIM_BLOCK elements that start at multiples of it.
 *
 * 1. The result does not depend on who updates which blocks: several workers that share the arrays
 *    and the state may each take a range of blocks of every step.
 * 2. What is summed over parameters (norms) is summed for each piece, a block cut where a parameter
 *    begins or ends, and then in one balanced binary tree over the pieces' numbers, an absent leaf
 *    skipped. So norms do not depend on the division either.
 * 3. Step numbers start at 0. The learning rate is a pure function of the step; so a run can be
 *    continued from parameters, state and step alone.
 * 4. A step does not allocate.
 *
 * Sparse parameters (embedding bags) get their gradient by rows, ls_optimizer_sparse. Rows that are
 * not used are left alone and brought up to date when they are needed next, by going through the
 * missed steps, whose gradient was zero: the same bits as updating every row in every step. So
 * before a forward pass reads rows, ls_optimizer_touch names them, and before somebody reads the
 * whole array (to save or to evaluate), ls_optimizer_flush. Lars and lamb need norms and update
 * every row in every step; both calls are allowed and do nothing then.
 *
 * An optimizer belongs to one thread at a time. No function blocks.
 */
#ifndef LOCKSTEP_OPTIM_H
#define LOCKSTEP_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_OPTIM_BLOCK 4096

typedef struct ls_optimizer ls_optimizer;

/* In a field of ls_optim_config where 0 stands for a default that is not 0: a real zero. */
#define LS_OPTIM_ZERO (-1.0f)

/* 0 means the default: PyTorch's, and for lars and lamb the papers'. What an optimizer does not use
 * must be 0. */
typedef struct ls_optim_config {
    size_t size;
    const char *name;   /* "sgd" (default), "adam", "adamw", "lars", "lamb" */
    const char *device; /* of the kernels: as ls_graph_config's */
    float lr;           /* 0.001 */
    float momentum;     /* sgd: 0, lars: 0.9 */
    int nesterov;       /* sgd, lars; needs momentum */
    float beta1, beta2; /* adam, adamw, lamb: 0.9, 0.999 */
    float eps;          /* adam, adamw, lars: 1e-8, lamb: 1e-6 */
    float decay; /* of weights; adamw, lamb: 0.01, the others: 0. Not for no_decay parameters */
    float trust; /* lars: 0.001 */
    float clip;  /* the gradient's norm is at most this; 0: any */

    const char *schedule; /* "const" (default), "linear", "step", "cosine" */
    uint64_t warmup; /* steps in which the rate grows: step s has (s + 1) / (warmup + 1) of lr */
    uint64_t steps;  /* linear, cosine: the rate has fallen to min_lr at this step */
    float min_lr;
    uint64_t every; /* step: the rate is multiplied by gamma every so many steps */
    float gamma;    /* 0.1 */
} ls_optim_config;
#define LS_OPTIM_CONFIG_INIT                                                                       \
    {                                                                                              \
        sizeof(ls_optim_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                 \
    }

/* The i-th known optimizer and schedule, NULL past the end. */
LS_API const char *ls_optimizer_known(int i);
LS_API const char *ls_schedule_known(int i);

/* The same settings with every default filled in (a real zero stays LS_OPTIM_ZERO where it has to),
 * or LS_ERR_CONFIG naming the value that makes no sense. `config` and `out` may be the same. */
LS_API ls_status ls_optim_config_check(const ls_optim_config *config, ls_optim_config *out);

/* The learning rate of a step. */
LS_API ls_status ls_schedule_rate(const ls_optim_config *config, uint64_t step, float *rate);

/* ---- creating ------------------------------------------------------------------------------- */

/* For `count` parameters in arrays of `elements`: what ls_graph_param and ls_graph_param_elements
 * say (everything is copied). They lie in ascending order, without overlap, at multiples of 16.
 * State starts as zeros in the optimizer's own memory. The caller owns *out. LS_ERR_CONFIG,
 * LS_ERR_INVALID, LS_ERR_NOMEM. */
LS_API ls_status ls_optimizer_create(const ls_optim_config *config, const ls_param_info *params,
                                     int count, size_t elements, ls_optimizer **out);
LS_API void ls_optimizer_destroy(ls_optimizer *optimizer);

/* ---- one caller ----------------------------------------------------------------------------- */

/* One whole step: parameters from gradient sums (`elements` each), where the gradient is scale
 * times the sum (1 / count), clipped if so configured. Gradients of all sparse parameters must have
 * been given. LS_ERR_INVALID when a norm is needed and not finite, naming the parameter: nothing
 * has changed then, but lamb's moments. */
LS_API ls_status ls_optimizer_step(ls_optimizer *optimizer, float *params, const float *grads,
                                   float scale);

/* The gradient of sparse parameter `param` for the next step: `ids` ascending, each once. Borrowed
 * until that step has ended. LS_ERR_INVALID names the parameter. */
LS_API ls_status ls_optimizer_sparse(ls_optimizer *optimizer, int param,
                                     const ls_sparse_grad *grad);
/* Bring rows ids[0], ids[stride], … (n of them, any order, repetitions allowed) up to date: before
 * a forward pass that reads them. */
LS_API ls_status ls_optimizer_touch(ls_optimizer *optimizer, float *params, int param,
                                    const int32_t *ids, size_t n, size_t stride);
/* Bring every row up to date. */
LS_API ls_status ls_optimizer_flush(ls_optimizer *optimizer, float *params);

/* ---- state ---------------------------------------------------------------------------------- */

/* Array i of the state, laid out as the parameters, and its name as PyTorch calls it ("exp_avg");
 * NULL past the end. Complete after a flush; parameters, these arrays and the step are all there is
 * to save. */
LS_API float *ls_optimizer_state(ls_optimizer *optimizer, int i, const char **name);
/* Steps done so far; and to continue from there: every row is then up to date. */
LS_API uint64_t ls_optimizer_get_step(const ls_optimizer *optimizer);
LS_API void ls_optimizer_set_step(ls_optimizer *optimizer, uint64_t step);

/* All memory of the state, sums included, so that workers can share it: `memory` of that many
 * bytes, aligned to 64, is used from now on (borrowed; NULL: the optimizer's own again). Contents
 * are not copied; zeros are a fresh state. */
LS_API size_t ls_optimizer_state_bytes(const ls_optimizer *optimizer);
LS_API void ls_optimizer_bind(ls_optimizer *optimizer, void *memory);

/* ---- figures of the step that was last begun ------------------------------------------------- */

typedef struct ls_optim_figures {
    float rate;       /* the learning rate */
    double grad_norm; /* before clipping; 0 when nothing needed it */
    double clipped;   /* the gradient was multiplied by this */
} ls_optim_figures;
LS_API void ls_optimizer_figures(const ls_optimizer *optimizer, ls_optim_figures *figures);

/* ---- several callers ------------------------------------------------------------------------ */

/* A step of several workers, each with an optimizer object of the same configuration on the same
 * state. Every worker calls
 *
 *     begin
 *     for each round r:  measure(r) on its blocks;  -- all have done so --  combine(r)
 *     update on its blocks;  -- all have done so --
 *     end
 *
 * Ranges of blocks of all workers together cover [0, ls_optimizer_blocks) once. Without rounds (no
 * clipping; sgd, adam, adamw), ranges may be updated at any time between begin and end, e.g. as
 * soon as their gradients are complete. A row of a sparse parameter belongs to the block of its
 * first element; touch and flush are up to whoever calls them, as long as no row is in two hands at
 * once. */
LS_API size_t ls_optimizer_blocks(const ls_optimizer *optimizer);
LS_API int ls_optimizer_rounds(const ls_optimizer *optimizer);
/* The next step, with the gradient's scale. May be called again for a step that was not ended. */
LS_API ls_status ls_optimizer_begin(ls_optimizer *optimizer, float scale);
LS_API ls_status ls_optimizer_measure(ls_optimizer *optimizer, int round, const float *params,
                                      const float *grads, size_t first, size_t last);
/* Array i of the sums that measure wrote for these blocks, *count of them one after the other; NULL
 * past the end. For workers that do not share memory: they are to be exchanged before combine. */
LS_API double *ls_optimizer_sums(ls_optimizer *optimizer, int round, int i, size_t first,
                                 size_t last, size_t *count);
LS_API ls_status ls_optimizer_combine(ls_optimizer *optimizer, int round);
LS_API ls_status ls_optimizer_update(ls_optimizer *optimizer, float *params, const float *grads,
                                     size_t first, size_t last);
LS_API void ls_optimizer_end(ls_optimizer *optimizer);

#ifdef __cplusplus
}
#endif
#endif

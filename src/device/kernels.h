/* The kernels: every computation of the library, as a table of functions.
 *
 * Conventions, kept by every kernel of every device:
 * 1. Shapes stand in comments, row-major, last dimension contiguous: (rows, in).
 * 2. Outputs come last. A gradient output is written (add == 0) or added to (add == 1) with one
 *    rounding for the addition; NULL means that nobody wants it, where the comment allows it.
 * 3. No output overlaps an input, unless the comment says that it may be the same buffer.
 * 4. Gradients are those of a *sum* over samples; nobody divides by the batch here.
 * 5. A product of matrices is, for each element, one chain acc = fma(a, b, acc) over k in ascending
 *    order from acc = 0 (from the old value when add == 1 or a residual is given): the same bits
 *    for any blocking, any number of rows and any instruction set with a fused multiply-add.
 *    Convolutions of 3 x 3 with stride 1, one group and channels in sixteens are made of fewer
 *    products (cpu_winograd.c, which has their order): chains at each of 16 places of a tile, the
 *    bits free of the same things.
 * 6. A sum over a row of n elements uses 16 lanes: lane l adds elements l, l + 16, … in order, then
 *    lanes are folded 8, 4, 2, 1 (lane l += lane l + half). vec.h has it. A sum over rows, for each
 *    column, adds them in ascending order, from 0 or from the old value when add == 1; batch norm
 *    has an order of its own (cpu_slice.h). The `ref` device sums in double instead, and is
 *    compared within a tolerance.
 * 7. All sizes may be 1 or odd; zero rows are fine and do nothing.
 *
 * All return LS_OK or LS_ERR_NOMEM (scratch) unless stated.
 */
#ifndef LSI_DEVICE_KERNELS_H
#define LSI_DEVICE_KERNELS_H

#include <math.h>

#include "device/device.h"

typedef enum lsi_act {
    LSI_ACT_NONE,
    LSI_ACT_RELU,
    LSI_ACT_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    LSI_ACT_GELU_ERF,  /* 0.5 x (1 + erf(x / sqrt(2))) */
    LSI_ACT_SILU,
    LSI_ACT_TANH,
    LSI_ACT_SIGMOID,
    LSI_ACT_COUNT
} lsi_act;

typedef struct lsi_linear {
    size_t rows, in, out;
    int transposed; /* the weight is (out, in) rather than (in, out): a tied embedding table */
    lsi_act act;
} lsi_linear;

typedef struct lsi_conv {
    size_t n, h, w, c; /* input */
    size_t oh, ow, o;  /* output */
    size_t kh, kw, stride_h, stride_w, pad_h, pad_w;
    size_t groups;
} lsi_conv;

typedef struct lsi_pool {
    size_t n, h, w, c, oh, ow;
    size_t kh, kw, stride_h, stride_w, pad_h, pad_w;
} lsi_pool;

typedef struct lsi_norm {
    size_t rows, c;
    float eps;
    int rms;  /* no mean, no beta */
    int relu; /* batch norm only: y = max(y, 0) */
} lsi_norm;

typedef struct lsi_dropout {
    size_t samples, each; /* each: elements of one sample */
    float p;              /* 0 <= p < 1: an element is dropped with this probability */
    uint64_t seed;        /* Philox key */
    uint64_t step;
    uint32_t node;           /* which dropout of the graph */
    uint64_t first_position; /* of sample 0 in the global batch */
} lsi_dropout;

typedef struct lsi_attention {
    size_t n, t, heads, hd; /* hd: width of a head */
    size_t stride; /* floats from a row of q (k, v) to the next: heads * hd, or 3 times that
                               when they lie side by side as (n, t, 3, heads, hd) */
    int causal;
    float scale;                /* of q·k; 1 / sqrt(hd) as a rule */
    const lsi_dropout *dropout; /* of the probabilities, NULL for none; samples and each unused: the
                                   element number is ((head * t + i) * t + j) */
} lsi_attention;

typedef struct lsi_adam {
    float lr, beta1, beta2, eps, decay;
    float correct1, correct2; /* 1 - beta^t */
    int decoupled;            /* AdamW: w *= 1 - lr decay; else decay is added to the gradient */
    float scale;              /* of the gradient: 1 / count, and clipping */
    uint64_t number;          /* of the step, from 1; 0: none */
} lsi_adam;

/* What of lsi_adam changes from step to step, and what follows from it (lsi_adam_rate_at). */
typedef struct lsi_adam_rate {
    float lr, correct1, correct2;
    float step;   /* lr / correct1 */
    float unroot; /* 1 / sqrt(correct2) */
    float keep;   /* of the weight: 1 - lr decay when decoupled, else 1 */
} lsi_adam_rate;

typedef struct lsi_sgd {
    float lr, momentum, decay;
    int nesterov;
    int first;       /* the momentum buffer is not yet set: m = g */
    float scale;     /* of the gradient */
    uint64_t number; /* as in lsi_adam */
} lsi_sgd;

/* A row of a sparse parameter that was not used for some steps. */
typedef struct lsi_idle {
    size_t at, steps;
} lsi_idle;

/* Rows of an interaction that lie together: x (n, rows, d), and for the gradient dx likewise,
 * written or added to; NULL: it is not wanted. */
typedef struct lsi_features {
    size_t rows;
    const float *x;
    float *dx;
    int add;
} lsi_features;

/* A moment without gradients shrinks until it is subnormal, where it stays for ever and where each
 * operation takes a hundred times as long. So in every LSI_SETTLE_EVERY-th step, by its number,
 * moments of a smaller magnitude than LSI_MOMENT_TINY become zero when it is done (adam's squares
 * only with an eps). */
#define LSI_SETTLE_EVERY 64
#define LSI_MOMENT_TINY 0x1p-100f
static inline int lsi_settles(uint64_t number)
{
    return number != 0 && number % LSI_SETTLE_EVERY == 0;
}

struct lsi_kernels {
    const char *isa;

    /* --- matrix products ----------------------------------------------------------------- */

    /* y (rows, out) = act(residual + x (rows, in) · w + bias). bias (out), residual (rows, out) and
     * slope may be NULL; slope (rows, out) gets act' of the value before act, the bits of act_grad
     * of a gradient of 1. residual may be y. The chain starts from residual, or 0; bias is added
     * after it. */
    ls_status (*linear)(lsi_device *, const lsi_linear *, const float *x, const float *w,
                        const float *bias, const float *residual, float *slope, float *y);
    /* dx (rows, in) (+)= dy (rows, out) · wᵀ. dy is the gradient before act. */
    ls_status (*linear_dx)(lsi_device *, const lsi_linear *, const float *dy, const float *w,
                           float *dx, int add);
    /* dw (as w) (+)= xᵀ · dy, dbias (out) (+)= sum of rows of dy. dbias may be NULL. */
    ls_status (*linear_dw)(lsi_device *, const lsi_linear *, const float *x, const float *dy,
                           float *dw, float *dbias, int add);

    /* x (n, h, w, c), weight (kh, kw, c / groups, o), bias (o) or NULL, y (n, oh, ow, o). The chain
     * runs over kh, kw, c (rule 5 has an exception). Output channels o of group j are
     * [j o/groups, (j+1) o/groups). */
    ls_status (*conv2d)(lsi_device *, const lsi_conv *, const float *x, const float *weight,
                        const float *bias, float *y);
    ls_status (*conv2d_dx)(lsi_device *, const lsi_conv *, const float *dy, const float *weight,
                           float *dx, int add);
    ls_status (*conv2d_dw)(lsi_device *, const lsi_conv *, const float *x, const float *dy,
                           float *dweight, float *dbias, int add);

    /* q, k, v: rows of `stride` floats, head h at column h * hd. y (n, t, heads * hd), lse (n,
     * heads, t): logarithm of the sum of exponentials, for the gradient. */
    ls_status (*attention)(lsi_device *, const lsi_attention *, const float *q, const float *k,
                           const float *v, float *y, float *lse);
    /* dq, dk, dv are laid out as q, k, v and written. */
    ls_status (*attention_grad)(lsi_device *, const lsi_attention *, const float *q, const float *k,
                                const float *v, const float *y, const float *lse, const float *dy,
                                float *dq, float *dk, float *dv);

    /* Parts side by side, f rows of d values a sample in all: y (n, f (f - 1) / 2): x_i · x_j for
     * i > j, in the order of (1,0), (2,0), (2,1), … With `head`, y (n, d + f (f - 1) / 2) begins
     * with row 0 as it is. */
    ls_status (*interact)(lsi_device *, size_t n, size_t d, int parts, const lsi_features *part,
                          int head, float *y);
    /* A row's gradient is summed from zero, then added. Parts may have the same dx: they come in
     * their order. */
    ls_status (*interact_grad)(lsi_device *, size_t n, size_t d, int parts,
                               const lsi_features *part, int head, const float *dy);

    /* --- normalisation ------------------------------------------------------------------- */

    /* Layer norm (or RMS norm) of s = x + residual over rows of c. residual and sum may be NULL;
     * sum (rows, c) gets s. gamma, beta (c) may be NULL. mean (rows; not with rms), rstd (rows). */
    ls_status (*layernorm)(lsi_device *, const lsi_norm *, const float *x, const float *residual,
                           const float *gamma, const float *beta, float *sum, float *y, float *mean,
                           float *rstd);
    /* x is s above. dx, dgamma, dbeta may be NULL. add applies to dx alone, add_params to the
     * others. */
    ls_status (*layernorm_grad)(lsi_device *, const lsi_norm *, const float *x, const float *gamma,
                                const float *mean, const float *rstd, const float *dy, float *dx,
                                int add, float *dgamma, float *dbeta, int add_params);

    /* Batch norm over rows (n h w) for each of c channels, then + residual (may be NULL), then relu
     * if asked. mean (c), var (c; biased), rstd (c) are those of this batch. y may be residual. */
    ls_status (*batchnorm)(lsi_device *, const lsi_norm *, const float *x, const float *gamma,
                           const float *beta, const float *residual, float *y, float *mean,
                           float *var, float *rstd);
    /* With given statistics (evaluation). y may be residual. */
    ls_status (*batchnorm_eval)(lsi_device *, const lsi_norm *, const float *x, const float *gamma,
                                const float *beta, const float *residual, const float *mean,
                                const float *var, float *y);
    /* y is the forward result (for relu); NULL when it had no residual: where it was positive is
     * then found again from x, by the same operations, which saves reading it. dx may be NULL,
     * dresidual too (else written or added to as dx); dresidual may be dy (add_residual == 0). */
    ls_status (*batchnorm_grad)(lsi_device *, const lsi_norm *, const float *x, const float *y,
                                const float *gamma, const float *beta, const float *mean,
                                const float *rstd, const float *dy, float *dx, int add,
                                float *dresidual, int add_residual, float *dgamma, float *dbeta,
                                int add_params);

    /* --- element by element --------------------------------------------------------------- */

    /* y may be x. */
    ls_status (*act)(lsi_device *, lsi_act, size_t n, const float *x, float *y);
    /* dx (+)= dy act'(x), where x is the input of act. dx may be dy (add == 0). */
    ls_status (*act_grad)(lsi_device *, lsi_act, size_t n, const float *x, const float *dy,
                          float *dx, int add);
    /* y = a + b, y = a b, with b (m) repeated over n: n is a multiple of m. y may be a. */
    ls_status (*add)(lsi_device *, size_t n, size_t m, const float *a, const float *b, float *y);
    ls_status (*mul)(lsi_device *, size_t n, size_t m, const float *a, const float *b, float *y);
    /* db (m) (+)= the sum over the repetitions of dy (n) times a (n; NULL: of dy alone). */
    ls_status (*sum_repeats)(lsi_device *, size_t n, size_t m, const float *dy, const float *a,
                             float *db, int add);
    /* y (+)= scale x. y may be x when add == 0. */
    ls_status (*scale)(lsi_device *, size_t n, float scale, const float *x, float *y, int add);
    ls_status (*fill)(lsi_device *, size_t n, float value, float *y);
    /* Element e of sample s is kept, divided by 1 - p, when its word is at least p 2^32: word e of
     * the Philox stream (lsi_philox_fill) with the key (seed low, seed high) and the counter (0,
     * node, low word of first_position + s, low word of step). The gradient is the same function of
     * dy. y may be x (add == 0). */
    ls_status (*dropout)(lsi_device *, const lsi_dropout *, const float *x, float *y, int add);
    /* Rows of c. y may be x. dx (+)= y (dy - sum(y dy)). */
    ls_status (*softmax)(lsi_device *, size_t rows, size_t c, const float *x, float *y);
    ls_status (*softmax_grad)(lsi_device *, size_t rows, size_t c, const float *y, const float *dy,
                              float *dx, int add);

    /* --- moving --------------------------------------------------------------------------- */

    /* `rows` pieces of `c` floats, `x_stride` and `y_stride` floats apart: concat, slice, split. */
    ls_status (*copy2d)(lsi_device *, size_t rows, size_t c, const float *x, size_t x_stride,
                        float *y, size_t y_stride, int add);
    /* y of shape dims[perm[0]], dims[perm[1]], …: y[i_perm] (+)= x[i]. ndim <= 6. */
    ls_status (*permute)(lsi_device *, int ndim, const size_t *dims, const int *perm,
                         const float *x, float *y, int add);
    /* y (rows, d) (+)= table (vocab, d) at ids (rows). Ids are inside [0, vocab): the graph
     * checks. */
    ls_status (*embed)(lsi_device *, size_t rows, size_t d, const int32_t *ids, const float *table,
                       float *y, int add);
    /* dtable (vocab, d) (+)= rows of dy, in the order of the rows. add == 0 clears it first. */
    ls_status (*embed_grad)(lsi_device *, size_t rows, size_t vocab, size_t d, const int32_t *ids,
                            const float *dy, float *dtable, int add);
    /* The same by the rows that were used: ids ascending in touched, their sums in values (…, d);
     * *count of them. It finds *count rows there already, which are added to and stay; there is
     * room for `rows` more. The bits of every row are those of embed_grad. */
    ls_status (*embed_rows_grad)(lsi_device *, size_t rows, size_t vocab, size_t d,
                                 const int32_t *ids, const float *dy, int32_t *touched,
                                 float *values, size_t *count);
    /* y (rows, d) = sum over the bag of table at ids (rows, bag). y's rows are y_stride apart. */
    ls_status (*embed_bag)(lsi_device *, size_t rows, size_t bag, size_t d, const int32_t *ids,
                           const float *table, float *y, size_t y_stride);
    /* The gradient by rows that were used: ids ascending in touched (room for rows * bag), values
     * (same room, d) the sums in the order of the rows; *count of them. */
    ls_status (*embed_bag_grad)(lsi_device *, size_t rows, size_t bag, size_t vocab, size_t d,
                                const int32_t *ids, const float *dy, size_t dy_stride,
                                int32_t *touched, float *values, size_t *count);

    /* x (n, h, w, c), y (n, oh, ow, c), arg (as y): place of the largest as h * W + w, first of
     * equals. Padding never wins; a NaN always does, the last of several (as PyTorch has it). */
    ls_status (*maxpool)(lsi_device *, const lsi_pool *, const float *x, float *y, int32_t *arg);
    ls_status (*maxpool_grad)(lsi_device *, const lsi_pool *, const int32_t *arg, const float *dy,
                              float *dx, int add);
    /* Divides by kh kw, padding included (PyTorch's default). Global: kh = h, kw = w, oh = ow =
     * 1. */
    ls_status (*avgpool)(lsi_device *, const lsi_pool *, const float *x, float *y);
    ls_status (*avgpool_grad)(lsi_device *, const lsi_pool *, const float *dy, float *dx, int add);

    /* --- losses: sums over rows, in double ------------------------------------------------- */

    /* logits (rows, c), labels (rows): rows whose label is `ignore` do not count. Label smoothing
     * as PyTorch's. *loss the sum, *count the rows counted. With dlogits (may be logits itself, or
     * NULL) its gradient, computed in the same pass over the logits. */
    ls_status (*cross_entropy)(lsi_device *, size_t rows, size_t c, const float *logits,
                               const int32_t *labels, int32_t ignore, float smoothing, double *loss,
                               size_t *count, float *dlogits);
    /* Binary cross entropy with logits, targets in [0, 1]; mean over nothing: sums. dlogits may be
     * logits itself, or NULL. */
    ls_status (*bce)(lsi_device *, size_t n, const float *logits, const float *targets,
                     double *loss, float *dlogits);
    /* Sum of (x - target)^2. dx may be x itself, or NULL. */
    ls_status (*mse)(lsi_device *, size_t n, const float *x, const float *targets, double *loss,
                     float *dx);

    /* --- optimizers: one pass over n elements of a block range ----------------------------- */

    /* g = scale g + decay w; m = momentum m + g (m = g at first); w -= lr (nesterov ? g + momentum
     * m : m). m may be NULL when momentum is 0. */
    ls_status (*sgd)(lsi_device *, const lsi_sgd *, size_t n, const float *g, float *m, float *w);
    /* g NULL: a gradient of zero (a row that was not used), here and in sgd. */
    ls_status (*adam)(lsi_device *, const lsi_adam *, size_t n, const float *g, float *m, float *v,
                      float *w);
    /* Rows of n elements, one after the other in g: each as a call of sgd or adam, at m + at[i]
     * (and v, w). */
    ls_status (*sgd_rows)(lsi_device *, const lsi_sgd *, size_t rows, const size_t *at, size_t n,
                          const float *g, float *m, float *w);
    ls_status (*adam_rows)(lsi_device *, const lsi_adam *, size_t rows, const size_t *at, size_t n,
                           const float *g, float *m, float *v, float *w);
    /* Rows of n elements that missed steps, all up to the same one: row i, at m + row[i].at (and v,
     * w), gets row[i].steps calls of sgd or adam with g == NULL: the same bits, in one pass over
     * memory. The rates of the latest steps are lr[0 … known - 1], the last one common to all rows,
     * and row[i].steps <= known. `number` is that of the last step; lr (and what depends on it) and
     * first in the struct are not looked at. */
    ls_status (*sgd_idle)(lsi_device *, const lsi_sgd *, size_t rows, const lsi_idle *row,
                          size_t known, const float *lr, size_t n, float *m, float *w);
    ls_status (*adam_idle)(lsi_device *, const lsi_adam *, size_t rows, const lsi_idle *row,
                           size_t known, const lsi_adam_rate *rates, size_t n, float *m, float *v,
                           float *w);
    /* The step of LAMB before its trust ratio: moments updated, u (n) = m̂ / (sqrt(v̂) + eps) +
     * decay w. */
    ls_status (*lamb_direction)(lsi_device *, const lsi_adam *, size_t n, const float *g, float *m,
                                float *v, const float *w, float *u);
    /* Sums of squares of each block of 4096 elements (the last may be short): (scale x)^2 in f32,
     * 16 lanes of double each. sums has (n + 4095) / 4096 elements. */
    ls_status (*block_squares)(lsi_device *, size_t n, float scale, const float *x, double *sums);
    /* *first: the place of the first value that is NaN or infinite, n when there is none. */
    ls_status (*find_nonfinite)(lsi_device *, size_t n, const float *x, size_t *first);
};

/* The step-dependent part of adam's constants, in single precision in this order: the dense kernel
 * and those that make up for missed steps have to agree. */
static inline lsi_adam_rate lsi_adam_rate_at(const lsi_adam *adam)
{
    return (lsi_adam_rate){adam->lr,
                           adam->correct1,
                           adam->correct2,
                           adam->lr / adam->correct1,
                           1 / sqrtf(adam->correct2),
                           adam->decoupled ? 1 - adam->lr * adam->decay : 1};
}

#endif

/* Attention in blocks of queries: the matrix of all scores is never in memory.
 *
 * T. Dao et al., "FlashAttention", 2022, in the form that suits a core with a large second cache:
 * for each head, keys and values are packed once; then for a block of queries the scores against
 * all keys that it may see are computed (ROWS x t), turned into probabilities where they lie, and
 * multiplied with the values. The backward pass computes them again from the saved logarithms.
 *
 * 1. A row's result depends on its own scores alone: the maximum is exact, sums run over sixteen
 *    lanes (vec.h) of the row's own keys, masked ones not touched.
 * 2. Sums over queries (dk, dv) run in ascending order, block after block, in one chain.
 */
#include "base/philox.h"
#include "base/status.h"
#include "device/cpu.h"
#include "device/cpu_tile.h"
#include "device/vec_math.h"

#define ROWS ((size_t)(72 / TILE_ROWS * TILE_ROWS)) /* queries of a block */
/* Of these, and of keys: how finely the masked corner is left out. */
#define STEP ((size_t)(2 * TILE_ROWS))

/* C (rows, n) = A (rows, k) times packed B, whose panel of column j lies at b + j * b_k, b_k being
 * its rows. With n < of, the columns of B, the last panel is computed whole: C has room for it. */
static void multiply_packed(size_t rows, size_t n, size_t of, size_t k, const float *a,
                            size_t a_row, const float *b, size_t b_k, float *c, size_t ldc)
{
    lsi_tile t = {.k = k,
                  .segments = 1,
                  .a_row = a_row,
                  .a_col = 1,
                  .ldc = ldc,
                  .b_next = b_k * TILE_COLS,
                  .c_next = TILE_COLS};
    for (size_t i = 0; i < rows; i += TILE_ROWS) {
        t.rows = rows - i < TILE_ROWS ? rows - i : TILE_ROWS;
        t.a = a + i * a_row;
        for (size_t j = 0; j < n; j += t.cols + t.more * TILE_COLS) {
            t.width = t.b_row = tile_width(of - j);
            t.cols = of == n && n - j < t.width ? n - j : t.width;
            t.more = tile_further(n - j);
            t.b = b + j * b_k;
            t.c = c + i * ldc + j;
            LSI_K(tile)(&t);
        }
    }
}

/* Memory of one head. */
typedef struct room {
    float *kt;         /* packed: hd rows of t keys */
    float *v;          /* packed: t rows of hd */
    float *vt;         /* backward: packed, hd rows of t */
    float *k, *q, *dy; /* backward: packed, t rows of hd */
    float *s, *ds;     /* scores of a block (ROWS, ld) */
    float *keep;       /* dropout: 0 or 1 / (1 - p), one row */
    uint32_t *words;
    size_t ld;
} room;

static ls_status take_room(lsi_device *device, const lsi_attention *p, int backward, room *out)
{
    const size_t rows = p->t < ROWS ? p->t : ROWS;
    room r = {.ld = (p->t + 15) / 16 * 16 + 16};
    const size_t by_key = tile_packed(p->hd, p->t), by_width = tile_packed(p->t, p->hd);
    const size_t sizes[] = {by_key,
                            by_width,
                            backward ? by_key : 0,
                            backward ? by_width : 0,
                            backward ? by_width : 0,
                            backward ? by_width : 0,
                            rows * r.ld,
                            backward ? rows * r.ld : 0,
                            r.ld,
                            r.ld};
    float **places[] = {&r.kt, &r.v, &r.vt, &r.k, &r.q, &r.dy, &r.s, &r.ds, &r.keep, NULL};
    size_t total = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        total += (sizes[i] + 15) / 16 * 16;
    void *memory;
    LSI_TRY(lsi_device_scratch(device, total * sizeof(float), &memory));
    float *at = memory;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (places[i])
            *places[i] = at;
        else
            r.words = (uint32_t *)at;
        at += (sizes[i] + 15) / 16 * 16;
    }
    *out = r;
    return LS_OK;
}

/* The factors of dropout for keys [0, n) of query i: into r->keep. */
static void draw_keep(const lsi_attention *p, const room *r, size_t sample, size_t head, size_t i,
                      size_t n)
{
    const lsi_dropout *d = p->dropout;
    const uint32_t counter[4] = {0, d->node, (uint32_t)(d->first_position + sample),
                                 (uint32_t)d->step};
    const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
    const uint64_t first = ((uint64_t)head * p->t + i) * p->t;
    const double limit = (double)d->p * 0x1p32;
    const float factor = 1.0f / (1.0f - d->p);
    lsi_philox_fill(counter, key, first, r->words, n);
    for (size_t j = 0; j < n; j++)
        r->keep[j] = (double)r->words[j] >= limit ? factor : 0.0f;
}

/* Largest of n floats. */
static float largest(const float *x, size_t n)
{
    v16 top = v16_set1(-INFINITY);
    size_t j = 0;
    for (; j + 16 <= n; j += 16)
        top = v16_max(v16_load(x + j), top);
    if (j < n)
        top = v16_max(v16_first(n - j, v16_load_n(x + j, n - j), top), top);
    return v16_max_lane(top);
}

/* exp(by x + plus) of sixteen scores, of which `left` count: 0 for the others. Rows of scores have
 * room for whole vectors: a partial store would keep who reads it next waiting. */
LSI_VEC v16 exponential(const float *x, size_t left, v16 by, v16 plus)
{
    const v16 e = v16_exp(v16_fma(v16_load(x), by, plus));
    return left < 16 ? v16_first(left, e, v16_zero()) : e;
}

/* x = exp(scale x - shift) for n scores; returns their sum. */
static float exponentials(float *x, size_t n, float scale, float shift)
{
    const v16 by = v16_set1(scale), minus = v16_set1(-shift);
    v16 sum = v16_zero();
    for (size_t j = 0; j < n; j += 16) {
        const v16 e = exponential(x + j, n - j, by, minus);
        v16_store(x + j, e);
        sum = v16_add(sum, e);
    }
    return v16_sum(sum);
}

/* x = a x b, for n floats and the rest of the last vector; b may be NULL. */
static void multiply_row(float *x, size_t n, float a, const float *b)
{
    const v16 by = v16_set1(a);
    for (size_t j = 0; j < n; j += 16) {
        const v16 v = v16_mul(v16_load(x + j), by);
        v16_store(x + j, b ? v16_mul(v, v16_load(b + j)) : v);
    }
}

/* Keys that query i sees. */
static size_t seen(const lsi_attention *p, size_t i)
{
    return p->causal ? i + 1 : p->t;
}

/* s (rows, keys seen) = x (rows, hd) times packed keys or values; x belongs to the queries from i0
 * on. Beyond what the last of STEP queries sees, nothing is computed. */
static void scores(const lsi_attention *p, size_t i0, size_t rows, const float *x, size_t x_row,
                   const float *packed, float *s, size_t ld)
{
    for (size_t i = 0; i < rows; i += STEP) {
        const size_t n = rows - i < STEP ? rows - i : STEP;
        multiply_packed(n, seen(p, i0 + i + n - 1), p->t, p->hd, x + i * x_row, x_row, packed,
                        p->hd, s + i * ld, ld);
    }
}

/* y (rows, hd) = s (rows, keys seen) times packed keys or values. */
static void combine(const lsi_attention *p, size_t i0, size_t rows, const float *s, size_t ld,
                    const float *packed, float *y, size_t y_row)
{
    for (size_t i = 0; i < rows; i += STEP) {
        const size_t n = rows - i < STEP ? rows - i : STEP;
        multiply_packed(n, p->hd, p->hd, seen(p, i0 + i + n - 1), s + i * ld, ld, packed, p->t,
                        y + i * y_row, y_row);
    }
}

static void forward_head(const lsi_attention *p, const room *r, size_t sample, size_t head,
                         const float *q, const float *k, const float *v, float *y, float *lse)
{
    const size_t width = p->heads * p->hd;
    LSI_K(tile_pack)(k, 1, p->stride, p->hd, p->t, r->kt);
    LSI_K(tile_pack)(v, p->stride, 1, p->t, p->hd, r->v);
    for (size_t i0 = 0; i0 < p->t; i0 += ROWS) {
        const size_t rows = p->t - i0 < ROWS ? p->t - i0 : ROWS;
        const size_t keys = seen(p, i0 + rows - 1);
        scores(p, i0, rows, q + i0 * p->stride, p->stride, r->kt, r->s, r->ld);
        /* One thing for all rows after the other: each is a chain that would wait for itself. */
        float top[ROWS], sum[ROWS];
        for (size_t i = 0; i < rows; i++)
            top[i] = largest(r->s + i * r->ld, seen(p, i0 + i)) * p->scale;
        for (size_t i = 0; i < rows; i++)
            sum[i] = exponentials(r->s + i * r->ld, seen(p, i0 + i), p->scale, top[i]);
        for (size_t i = 0; i < rows; i++) {
            float *s = r->s + i * r->ld;
            const size_t n = seen(p, i0 + i);
            if (p->dropout)
                draw_keep(p, r, sample, head, i0 + i, n);
            multiply_row(s, n, 1.0f / sum[i], p->dropout ? r->keep : NULL);
            memset(s + n, 0, (keys - n) * sizeof *s);
        }
        for (size_t i = 0; i < rows; i += 16) {
            const size_t n = rows - i < 16 ? rows - i : 16;
            const v16 log = v16_log(v16_load_n(sum + i, n));
            v16_store_n(lse + i0 + i, v16_add(v16_load_n(top + i, n), log), n);
        }
        combine(p, i0, rows, r->s, r->ld, r->v, y + i0 * width, width);
    }
}

static ls_status attention(lsi_device *device, const lsi_attention *p, const float *q,
                           const float *k, const float *v, float *y, float *lse)
{
    room r;
    LSI_TRY(take_room(device, p, 0, &r));
    for (size_t n = 0; n < p->n; n++)
        for (size_t h = 0; h < p->heads; h++) {
            const size_t in = n * p->t * p->stride + h * p->hd;
            forward_head(p, &r, n, h, q + in, k + in, v + in,
                         y + n * p->t * p->heads * p->hd + h * p->hd,
                         lse + (n * p->heads + h) * p->t);
        }
    return LS_OK;
}

static float dot(size_t n, const float *a, const float *b)
{
    v16 sum = v16_zero();
    size_t j = 0;
    for (; j + 16 <= n; j += 16)
        sum = v16_fma(v16_load(a + j), v16_load(b + j), sum);
    if (j < n)
        sum = v16_fma(v16_load_n(a + j, n - j), v16_load_n(b + j, n - j), sum);
    return v16_sum(sum);
}

/* C (keys, hd) (+)= Sᵀ (keys, rows) times packed B, from its row `first` on: the share of queries
 * in dk or dv. */
static void add_transposed(const lsi_attention *p, const room *r, const float *s, size_t keys,
                           size_t rows, const float *b, size_t first, float *c, int add)
{
    lsi_tile t = {.k = rows,
                  .segments = 1,
                  .a_row = 1,
                  .ldc = p->stride,
                  .ld_start = p->stride,
                  .b_next = p->t * TILE_COLS,
                  .c_next = TILE_COLS};
    for (size_t i = 0; i < keys; i += TILE_ROWS) {
        t.rows = keys - i < TILE_ROWS ? keys - i : TILE_ROWS;
        t.a = s + i;
        t.a_col = r->ld;
        for (size_t j = 0; j < p->hd; j += t.cols + t.more * TILE_COLS) {
            t.width = t.b_row = tile_width(p->hd - j);
            t.cols = p->hd - j < t.width ? p->hd - j : t.width;
            t.more = tile_further(p->hd - j);
            t.b = b + j * p->t + first * t.width;
            t.c = c + i * p->stride + j;
            t.start = add ? t.c : NULL;
            LSI_K(tile)(&t);
        }
    }
}

/* Scores and their gradients for a row: s becomes the probability as it met the values, ds the
 * gradient of the scaled score. `delta` is dy · y. */
static void backward_row(const lsi_attention *p, const room *r, size_t n, float *s, float *ds,
                         float lse, float delta)
{
    const v16 by = v16_set1(p->scale), top = v16_set1(-lse), minus = v16_set1(-delta);
    for (size_t j = 0; j < n; j += 16) {
        const v16 prob = exponential(s + j, n - j, by, top);
        v16 grad = v16_load(ds + j), met = prob;
        if (p->dropout) {
            const v16 keep = v16_load(r->keep + j);
            grad = v16_mul(grad, keep);
            met = v16_mul(prob, keep);
        }
        v16_store(s + j, met);
        v16_store(ds + j, v16_mul(v16_mul(prob, v16_add(grad, minus)), by));
    }
}

/* The shares of queries [i0, i0 + rows) in dk and dv: keys that earlier blocks saw are added to,
 * the others written; a key is seen by the queries from its own place on only. */
static void backward_keys(const lsi_attention *p, const room *r, size_t i0, size_t rows,
                          size_t keys, float *dk, float *dv)
{
    const size_t old = p->causal ? i0 : i0 ? keys : 0;
    if (old) {
        add_transposed(p, r, r->ds, old, rows, r->q, i0, dk, 1);
        add_transposed(p, r, r->s, old, rows, r->dy, i0, dv, 1);
    }
    for (size_t j = old, n; j < keys; j += n) {
        const size_t skip = p->causal ? j - i0 : 0;
        n = p->causal && keys - j > STEP ? STEP : keys - j;
        const float *ds = r->ds + skip * r->ld + j, *s = r->s + skip * r->ld + j;
        add_transposed(p, r, ds, n, rows - skip, r->q, i0 + skip, dk + j * p->stride, 0);
        add_transposed(p, r, s, n, rows - skip, r->dy, i0 + skip, dv + j * p->stride, 0);
    }
}

/* What a head reads and writes, each at its first element. */
typedef struct head_grad {
    const float *q, *k, *v, *y, *lse, *dy;
    float *dq, *dk, *dv;
} head_grad;

static void backward_head(const lsi_attention *p, const room *r, size_t sample, size_t head,
                          const head_grad *at)
{
    const size_t width = p->heads * p->hd;
    LSI_K(tile_pack)(at->k, 1, p->stride, p->hd, p->t, r->kt);
    LSI_K(tile_pack)(at->v, 1, p->stride, p->hd, p->t, r->vt);
    LSI_K(tile_pack)(at->k, p->stride, 1, p->t, p->hd, r->k);
    LSI_K(tile_pack)(at->q, p->stride, 1, p->t, p->hd, r->q);
    LSI_K(tile_pack)(at->dy, width, 1, p->t, p->hd, r->dy);
    for (size_t i0 = 0; i0 < p->t; i0 += ROWS) {
        const size_t rows = p->t - i0 < ROWS ? p->t - i0 : ROWS;
        const size_t keys = seen(p, i0 + rows - 1);
        const float *q = at->q + i0 * p->stride, *dy = at->dy + i0 * width;
        scores(p, i0, rows, q, p->stride, r->kt, r->s, r->ld);
        scores(p, i0, rows, dy, width, r->vt, r->ds, r->ld);
        for (size_t i = 0; i < rows; i++) {
            const size_t n = seen(p, i0 + i);
            float *s = r->s + i * r->ld, *ds = r->ds + i * r->ld;
            if (p->dropout)
                draw_keep(p, r, sample, head, i0 + i, n);
            backward_row(p, r, n, s, ds, at->lse[i0 + i],
                         dot(p->hd, dy + i * width, at->y + (i0 + i) * width));
            memset(s + n, 0, (keys - n) * sizeof *s);
            memset(ds + n, 0, (keys - n) * sizeof *ds);
        }
        combine(p, i0, rows, r->ds, r->ld, r->k, at->dq + i0 * p->stride, p->stride);
        backward_keys(p, r, i0, rows, keys, at->dk, at->dv);
    }
}

static ls_status attention_grad(lsi_device *device, const lsi_attention *p, const float *q,
                                const float *k, const float *v, const float *y, const float *lse,
                                const float *dy, float *dq, float *dk, float *dv)
{
    room r;
    LSI_TRY(take_room(device, p, 1, &r));
    for (size_t n = 0; n < p->n; n++)
        for (size_t h = 0; h < p->heads; h++) {
            const size_t in = n * p->t * p->stride + h * p->hd;
            const size_t out = n * p->t * p->heads * p->hd + h * p->hd;
            const head_grad at = {
                q + in,   k + in,  v + in,  y + out, lse + (n * p->heads + h) * p->t,
                dy + out, dq + in, dk + in, dv + in};
            backward_head(p, &r, n, h, &at);
        }
    return LS_OK;
}

void LSI_K(install_attention)(lsi_kernels *kernels)
{
    kernels->attention = attention;
    kernels->attention_grad = attention_grad;
}

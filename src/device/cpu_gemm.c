/* Matrix products in blocks (cpu_gemm.h).
 *
 * The blocking is that of Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication", TOMS 2008, with the two inner loops exchanged: a block of B (KC x NC) is packed
 * into panels and stays in the second cache, or streams from the third where that is small, and a
 * strip of TILE_ROWS rows of A, in the first, meets one panel after the other.
 *
 * 1. Whatever is cut, each element sees its k in ascending order, from where the last block left it
 *    in C: one chain.
 * 2. A is packed only when reading it in place would be slow: transposed, or with rows so far apart
 *    that they fight for the same cache set.
 * 3. Packing costs little: the first strip packs B on its way, where B lies by rows, and the first
 *    panel packs a strip of A, where A is transposed. Panels of weights may stay from run to run.
 */
#include "device/cpu_gemm.h"
#include "device/cpu_tile.h"
#include "device/vec_act.h"

#define KC LSI_GEMM_KC
#define NC LSI_GEMM_NC
#define A_PAD 16        /* floats between the rows of a copy of A */
#define SET_STRIDE 1024 /* floats: rows a multiple of this apart share one set of the first cache */
#define TOGETHER (4 * TILE_COLS) /* columns that are finished together: the first cache has them */
#define WORTH_COPYING (2 * TILE_COLS) /* columns of C, from which on a copy of A pays */

/* Sixteen columns, or the last few, of a finished tile. act and slopes are constants: what the
 * activation and its slope have in common is computed once. */
LSI_VEC void finish_columns(const lsi_act act, const int slopes, const lsi_gemm *g, size_t at,
                            size_t rows, const float *bias, size_t n)
{
    const v16 add = bias ? v16_load_n(bias, n) : v16_zero();
    for (size_t i = 0; i < rows; i++, at += g->ldc) {
        v16 x = n == 16 ? v16_load(g->c + at) : v16_load_n(g->c + at, n);
        if (bias)
            x = v16_add(x, add);
        const v16 y = v16_act(act, x);
        if (n == 16)
            v16_store(g->c + at, y);
        else
            v16_store_n(g->c + at, y, n);
        if (slopes && n == 16)
            v16_store(g->slope + at, v16_act_grad(act, x));
        else if (slopes)
            v16_store_n(g->slope + at, v16_act_grad(act, x), n);
    }
}

/* Bias, activation and the rest on a finished tile, while it is in the first cache. */
static void finish(const lsi_gemm *g, size_t i, size_t rows, size_t j0, size_t cols)
{
#define CASE(a)                                                                                    \
    case a:                                                                                        \
        if (g->slope)                                                                              \
            finish_columns(a, 1, g, at, rows, bias, n);                                            \
        else                                                                                       \
            finish_columns(a, 0, g, at, rows, bias, n);                                            \
        break
    for (size_t j = j0; j < j0 + cols; j += 16) {
        const size_t n = j0 + cols - j < 16 ? j0 + cols - j : 16, at = i * g->ldc + j;
        const float *bias = g->bias ? g->bias + j : NULL;
        switch (g->act) {
            CASE(LSI_ACT_NONE);
            CASE(LSI_ACT_RELU);
            CASE(LSI_ACT_GELU_TANH);
            CASE(LSI_ACT_GELU_ERF);
            CASE(LSI_ACT_SILU);
            CASE(LSI_ACT_TANH);
            CASE(LSI_ACT_SIGMOID);
        case LSI_ACT_COUNT: break;
        }
    }
#undef CASE
}

/* `count` times sixteen columns, or once the last n of them. Several chains of additions hide each
 * other's latency; count, and n but for the last columns, are constants. */
LSI_VEC void add_rows(const int count, size_t rows, const float *x, size_t ld, float *sums, int add,
                      size_t n)
{
    v16 sum[4];
    for (int v = 0; v < count; v++)
        sum[v] = add ? v16_get(sums + 16 * v, n) : v16_zero();
    for (size_t r = 0; r < rows; r++, x += ld)
        for (int v = 0; v < count; v++)
            sum[v] = v16_add(sum[v], v16_get(x + 16 * v, n));
    for (int v = 0; v < count; v++)
        v16_put(sums + 16 * v, sum[v], n);
}

void LSI_K(column_sums)(size_t rows, size_t n, const float *x, size_t ld, float *sums, int add)
{
    size_t j = 0;
    for (; j + 64 <= n; j += 64)
        add_rows(4, rows, x + j, ld, sums + j, add, 16);
    for (; j + 16 <= n; j += 16)
        add_rows(1, rows, x + j, ld, sums + j, add, 16);
    if (j < n)
        add_rows(1, rows, x + j, ld, sums + j, add, n - j);
}

/* One k-block of the product: which part, and whether it is the first or the last of its chain. */
typedef struct k_block {
    size_t k0, k;
    int first, last;
} k_block;

/* The first strip packs the panel at column j of the product, by itself or on the way of the tile.
 */
static void pack_panel(const lsi_gemm *g, const k_block *kb, lsi_tile *t, size_t j, float *packed)
{
    const float *from = g->b + kb->k0 * g->b_row + j * g->b_col;
    if (g->b_col == 1 && t->cols == TILE_COLS) {
        t->keep_b = g->m > t->rows || g->sums || g->panels ? packed : NULL;
        t->b = from;
        t->b_row = g->b_row;
    } else {
        LSI_K(tile_pack)(from, g->b_row, g->b_col, kb->k, t->cols, packed);
    }
}

/* Asks for the rows of A that the next strip reads: few and short, they are no stream that the
 * processor would notice. For one panel alone it does not pay. */
static void ask_for_a(const lsi_gemm *g, const k_block *kb, size_t i, size_t rows, size_t n)
{
    if (g->a_col != 1 || n <= TILE_COLS)
        return;
    const size_t end = g->m - i < rows ? g->m : i + rows;
    for (; i < end; i++)
        for (size_t k = 0; k < kb->k; k += 64 / sizeof(float))
            __builtin_prefetch(g->a + i * g->a_row + kb->k0 + k, 0, 2);
}

/* Where the tiles of a strip find A: where it lies, or, for several panels, in `room`. A transposed
 * is copied there by the first tile on its way, rows that fight for a cache set are copied here. */
static void take_a(const lsi_gemm *g, const k_block *kb, lsi_tile *t, size_t i, size_t n,
                   float *room)
{
    t->a = g->a + i * g->a_row + kb->k0 * g->a_col;
    t->a_row = g->a_row;
    t->a_col = g->a_col;
    if (g->a_col != 1) {
        t->keep_a = n > TILE_COLS ? room : NULL;
    } else if (g->a_row % SET_STRIDE == 0 && g->m > TILE_ROWS && n > WORTH_COPYING) {
        for (size_t r = 0; r < t->rows; r++)
            memcpy(room + r * (kb->k + A_PAD), t->a + r * t->a_row, kb->k * sizeof *room);
        t->a = room;
        t->a_row = kb->k + A_PAD;
    }
}

/* One strip of C, t->rows from row i on: the panels of B come one after the other. */
static void strip(const lsi_gemm *g, const k_block *kb, lsi_tile *t, size_t i, size_t j0, size_t n,
                  float *packed, float *room)
{
    const int simple = g->act == LSI_ACT_NONE || g->act == LSI_ACT_RELU;
    const int in_tile = kb->last && g->bias && simple && !g->slope;
    const int after = kb->last && !in_tile && (g->bias || g->slope || g->act != LSI_ACT_NONE);
    const int packs = i == 0 && !g->are_packed;
    const float *from = kb->first ? g->start : g->c;
    t->ld_start = kb->first ? g->ld_start : g->ldc;
    take_a(g, kb, t, i, n, room);
    ask_for_a(g, kb, i + t->rows, t->rows, n);
    for (size_t j = 0, cols; j < n; j += cols) {
        float *panel = packed + j * kb->k;
        t->width = t->b_row = tile_width(n - j);
        t->cols = cols = n - j < t->width ? n - j : t->width;
        t->more = packs || t->keep_a          ? 0
                  : after && n - j > TOGETHER ? tile_further(TOGETHER)
                                              : tile_further(n - j);
        cols += t->more * TILE_COLS;
        t->b = panel;
        t->c = g->c + i * g->ldc + j0 + j;
        t->start = from ? from + i * t->ld_start + j0 + j : NULL;
        t->bias = in_tile ? g->bias + j0 + j : NULL;
        if (packs)
            pack_panel(g, kb, t, j0 + j, panel);
        LSI_K(tile)(t);
        if (t->keep_a) {
            t->a = t->keep_a;
            t->a_col = TILE_ROWS;
        }
        t->keep_a = t->keep_b = NULL;
        if (i == 0 && g->sums)
            LSI_K(column_sums)
        (kb->k, t->cols, panel, t->width, g->sums + j0 + j, g->add_sums || !kb->first);
        if (after)
            finish(g, i, t->rows, j0 + j, cols);
    }
}

/* All rows of C for columns [j0, j0 + n) and one k-block, in strips of about the same height. */
static void columns(const lsi_gemm *g, const k_block *kb, size_t j0, size_t n, float *packed,
                    float *room)
{
    lsi_tile t = {.k = kb->k,
                  .segments = 1,
                  .ldc = g->ldc,
                  .least = g->act == LSI_ACT_RELU ? 0.0f : -INFINITY,
                  .b_next = kb->k * TILE_COLS,
                  .c_next = TILE_COLS};
    const size_t rows = tile_strip(g->m);
    for (size_t i = 0; i < g->m; i += t.rows) {
        t.rows = tile_height(g->m - i, rows);
        strip(g, kb, &t, i, j0, n, packed, room);
    }
}

void LSI_K(gemm)(const lsi_gemm *g, float *scratch)
{
    for (size_t j = 0; j < g->n; j += NC) {
        const size_t n = g->n - j < NC ? g->n - j : NC;
        k_block kb = {0, 0, 1, 0};
        do { /* once also for k == 0, which gives the start */
            kb.k = g->k - kb.k0 < KC ? g->k - kb.k0 : KC;
            kb.last = kb.k0 + kb.k == g->k;
            float *to = g->panels ? g->panels + j * g->k + tile_packed(kb.k0, n) : scratch;
            columns(g, &kb, j, n, to, scratch + KC * NC);
            kb.k0 += kb.k;
            kb.first = 0;
        } while (!kb.last);
    }
}

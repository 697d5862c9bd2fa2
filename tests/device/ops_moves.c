/* Operations under test: copies, permutations, embeddings. All of it exact, but sums of bags. */
#include "trial.h"

static void copy2d(trial *t, const size_t *a)
{
    const size_t rows = a[0], c = a[1], x_stride = c + a[2], y_stride = c + a[3];
    /* Nothing lies behind the last piece. */
    const size_t last = rows ? c : 0, before = rows ? rows - 1 : 0;
    const float *x = trial_in(t, before * x_stride + last);
    float *y = trial_out(t, "y", before * y_stride + last, a[4] == 1, 0, 0);
    CALL(t, copy2d, rows, c, x, x_stride, y, y_stride, a[4] == 1);
}

static void permute(trial *t, const size_t *a)
{
    const int ndim = (int)a[0];
    const size_t *dims = a + 1;
    int perm[6], left[6] = {0, 1, 2, 3, 4, 5};
    size_t n = 1, code = a[7];
    for (int i = 0; i < ndim; i++) {
        n *= dims[i];
        const int pick = (int)(code % (size_t)(ndim - i)); /* of those that are left */
        code /= (size_t)(ndim - i);
        perm[i] = left[pick];
        for (int j = pick; j < ndim - i - 1; j++)
            left[j] = left[j + 1];
    }
    if (n > 50000) {
        trial_skip(t);
        return;
    }
    const float *x = trial_in(t, n);
    float *y = trial_out(t, "y", n, a[8] == 1, 0, 0);
    CALL(t, permute, ndim, dims, perm, x, y, a[8] == 1);
}

static void embed(trial *t, const size_t *a)
{
    const size_t rows = a[0], vocab = a[1], d = a[2];
    const int32_t *ids = trial_ids(t, rows, vocab);
    const float *table = trial_in(t, vocab * d);
    float *y = trial_out(t, "y", rows * d, a[3] == 1, 0, 0);
    CALL(t, embed, rows, d, ids, table, y, a[3] == 1);
}

static void embed_grad(trial *t, const size_t *a)
{
    const size_t rows = a[0], vocab = a[1], d = a[2];
    const int32_t *ids = trial_ids(t, rows, vocab);
    const float *dy = trial_in(t, rows * d);
    float *dtable = trial_out(t, "dtable", vocab * d, a[3] == 1, 0, 0);
    CALL(t, embed_grad, rows, vocab, d, ids, dy, dtable, a[3] == 1);
}

/* What room is left over may hold anything. */
static void clear_rest(int32_t *touched, float *values, size_t from, size_t to, size_t d)
{
    for (size_t i = from; i < to; i++) {
        touched[i] = 0;
        for (size_t j = 0; j < d; j++)
            values[i * d + j] = 0;
    }
}

/* Rows that are there already: every second, third, … of the table, none, or all. */
static void embed_rows_grad(trial *t, const size_t *a)
{
    const size_t rows = a[0], vocab = a[1], d = a[2], every = a[3];
    const size_t old = every ? (vocab + every - 1) / every : 0;
    const int32_t *ids = trial_ids(t, rows, vocab);
    const float *dy = trial_in(t, rows * d);
    int32_t *touched = trial_out_ids(t, "touched", old + rows);
    float *values = trial_out(t, "values", (old + rows) * d, 1, 0, 0);
    size_t *count = trial_out_size(t, "count");
    for (size_t i = 0; i < old; i++)
        touched[i] = (int32_t)(i * every);
    *count = old;
    CALL(t, embed_rows_grad, rows, vocab, d, ids, dy, touched, values, count);
    clear_rest(touched, values, *count, old + rows, d);
}

static size_t strided(size_t rows, size_t c, size_t stride)
{
    return rows ? (rows - 1) * stride + c : 0;
}

static void embed_bag(trial *t, const size_t *a)
{
    const size_t rows = a[0], vocab = a[1], d = a[2], bag = a[3], stride = d + a[4];
    const int32_t *ids = trial_ids(t, rows * bag, vocab);
    const float *table = trial_in(t, vocab * d);
    float *y = trial_out(t, "y", strided(rows, d, stride), 0, 3e-7, (double)bag);
    CALL(t, embed_bag, rows, bag, d, ids, table, y, stride);
}

static void embed_bag_grad(trial *t, const size_t *a)
{
    const size_t rows = a[0], vocab = a[1], d = a[2], bag = a[3], stride = d + a[4];
    const int32_t *ids = trial_ids(t, rows * bag, vocab);
    const float *dy = trial_in(t, strided(rows, d, stride));
    int32_t *touched = trial_out_ids(t, "touched", rows * bag);
    float *values = trial_out(t, "values", rows * bag * d, 0, 0, 0);
    size_t *count = trial_out_size(t, "count");
    CALL(t, embed_bag_grad, rows, bag, vocab, d, ids, dy, stride, touched, values, count);
    clear_rest(touched, values, *count, rows * bag, d);
}

#define SMALL 1, 2, 3, 5, 8
#define ROWS SIZES("rows", 0, 1, 2, 3, 16, 33, 200)
#define WIDTHS SIZES("d", 1, 3, 8, 15, 16, 17, 32, 33, 64, 128)
#define TABLE ROWS, SIZES("vocab", 1, 2, 65, 1000), WIDTHS
#define BAGS SIZES("bag", 1, 2, 5, 17), SIZES("gap", 0, 1, 40)

const trial_op trial_moves[] = {
    {ENTRY(copy2d),
     copy2d,
     {SIZES("rows", 0, 1, 2, 7, 33), SIZES("c", 1, 3, 8, 15, 16, 17, 31, 32, 33, 64, 300),
      SIZES("x gap", 0, 1, 16, 50), SIZES("y gap", 0, 1, 16, 50), CHOICE("add", 0, 1)}},
    {ENTRY(permute),
     permute,
     {CHOICE("ndim", 1, 2, 3, 4, 5, 6), SIZES("d0", SMALL, 17), SIZES("d1", SMALL, 16, 33, 270),
      SIZES("d2", SMALL, 15), SIZES("d3", SMALL), SIZES("d4", 1, 2, 3), SIZES("d5", 1, 2, 4),
      CHOICE("perm", 0, 1, 2, 3, 4, 5, 7, 11, 14, 19, 22, 23, 60, 101, 118, 119, 250, 431, 600, 718,
             719),
      CHOICE("add", 0, 1)}},
    {ENTRY(embed), embed, {TABLE, CHOICE("add", 0, 1)}},
    {ENTRY(embed_grad), embed_grad, {TABLE, CHOICE("add", 0, 1)}},
    {ENTRY(embed_rows_grad), embed_rows_grad, {TABLE, CHOICE("every", 0, 1, 2, 3, 500)}},
    {ENTRY(embed_bag), embed_bag, {TABLE, BAGS}},
    {ENTRY(embed_bag_grad),
     embed_bag_grad,
     {ROWS, SIZES("vocab", 1, 2, 65, 1000, 70000), WIDTHS, BAGS}},
    {0},
};

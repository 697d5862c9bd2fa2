/* Files of weights: a graph's parameters and buffers as safetensors, with the ecosystem's names and
 * layouts, so that PyTorch and Hugging Face load ours and we load theirs.
 *
 * 1. In a file the output comes first: a linear weight is (out, in), a convolution's (out, in, kh,
 *    kw). In memory it comes last, and what precedes it is one index k in [0, n): (k, out). So one
 *    is the other transposed, with the order of k changed for convolutions. Parameters of plain
 *    layout, Conv1D weights of GPT-2 among them, are the same in both.
 * 2. Tensors are written in the order of their names: a file's bytes depend on names, shapes and
 *    values alone.
 * 3. Loading looks at everything before it changes anything: every parameter is there with its
 *    shape and a type of real numbers, and every tensor of the file is wanted or known to be of no
 *    use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/weights.h"

#include "base/safetensors.h"
#include "base/status.h"

#define WHAT "weights"
/* Names in files of GPT-2 have this when they are of the model with a head. */
#define PREFIX "transformer."
#define TILE 16 /* outputs that are transposed at a time */

typedef struct weight {
    ls_param_info info;
    float *data;
    const lsi_st_tensor *source; /* loading */
} weight;

typedef struct weights {
    weight *list; /* by name */
    size_t count;
} weights;

/* Where the bytes of a file go. */
typedef struct sink {
    lsi_weights_sink put;
    void *arg;
} sink;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weight *)a)->info.name, ((const weight *)b)->info.name);
}

/* All parameters and buffers, by name. The caller frees list. */
static ls_status collect(const lsi_weights *from, weights *out)
{
    const int count = from->param_count + from->buffer_count;
    if (count == 0)
        return lsi_fail(LS_ERR_INVALID, "ls_graph_compile comes first", WHAT,
                        "the graph has no parameters");
    weight *list = calloc((size_t)count, sizeof *list);
    if (!list)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for their description");
    for (int i = 0; i < count; i++) {
        weight *w = &list[i];
        const int p = i < from->param_count;
        w->info = p ? from->params[i] : from->buffers[i - from->param_count];
        w->data = (p ? from->param_values : from->buffer_values) + w->info.offset;
    }
    qsort(list, (size_t)count, sizeof *list, by_name);
    *out = (weights){list, (size_t)count};
    return LS_OK;
}

ls_status lsi_weights_of(ls_graph *graph, lsi_weights *out)
{
    const int params = ls_graph_param_count(graph), buffers = ls_graph_buffer_count(graph);
    ls_param_info *infos = calloc((size_t)(params + buffers) + 1, sizeof *infos);
    if (!infos)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for their description");
    ls_status status = LS_OK;
    for (int i = 0; status == LS_OK && i < params + buffers; i++)
        status = i < params ? ls_graph_param(graph, i, &infos[i])
                            : ls_graph_buffer(graph, i - params, &infos[i]);
    if (status != LS_OK) {
        free(infos);
        return status;
    }
    *out = (lsi_weights){.params = infos,
                         .buffers = infos + params,
                         .param_count = params,
                         .buffer_count = buffers,
                         .param_values = ls_graph_params(graph),
                         .buffer_values = ls_graph_buffers(graph)};
    return LS_OK;
}

void lsi_weights_free(lsi_weights *w)
{
    free((void *)w->params); /* the buffers' are in the same block */
    *w = (lsi_weights){.params = NULL};
}

/* The shape that it has in a file. */
static void file_shape(const ls_param_info *info, lsi_st_tensor *t)
{
    static const int conv[] = {3, 2, 0, 1};
    t->ndim = info->ndim;
    t->count = info->count;
    for (int d = 0; d < info->ndim; d++) {
        int from = d;
        if (info->layout == LS_LAYOUT_LINEAR)
            from = info->ndim - 1 - d;
        else if (info->layout == LS_LAYOUT_CONV)
            from = conv[d];
        t->dims[d] = info->dims[from];
    }
}

/* Where element e of a row of the file, (in, kh, kw) or (in), lies among the k of memory, (kh, kw,
 * in) or (in). */
static size_t place_of(const ls_param_info *info, size_t e)
{
    if (info->layout != LS_LAYOUT_CONV)
        return e;
    const size_t area = info->dims[0] * info->dims[1];
    return e % area * info->dims[2] + e / area;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* `rows` has room for TILE rows of the file. */
static ls_status save_one(const sink *to, const weight *w, float *rows)
{
    if (w->info.layout == LS_LAYOUT_PLAIN)
        return to->put(to->arg, w->data, w->info.count * sizeof(float));
    const size_t outs = w->info.dims[w->info.ndim - 1], n = w->info.count / outs;
    for (size_t o = 0; o < outs; o += TILE) {
        const size_t tile = outs - o < TILE ? outs - o : TILE;
        for (size_t e = 0; e < n; e++) {
            const float *from = w->data + place_of(&w->info, e) * outs + o;
            for (size_t r = 0; r < tile; r++)
                rows[r * n + e] = from[r];
        }
        LSI_TRY(to->put(to->arg, rows, tile * n * sizeof *rows));
    }
    return LS_OK;
}

/* Room for TILE rows of the longest weight that is transposed. */
static ls_status make_rows(const weights *all, float **rows)
{
    size_t most = 1;
    for (size_t i = 0; i < all->count; i++) {
        const ls_param_info *info = &all->list[i].info;
        const size_t n =
            info->layout == LS_LAYOUT_PLAIN ? 0 : info->count / info->dims[info->ndim - 1];
        most = n > most ? n : most;
    }
    *rows = malloc(TILE * most * sizeof **rows);
    return *rows ? LS_OK
                 : lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for %zu rows", (size_t)TILE);
}

static const char *const metadata[] = {"format", "pt"}; /* transformers insists on it */

/* What saving needs: the tensors as the file has them, and room for rows. The caller frees both,
 * after an error too. */
static ls_status prepare(const weights *all, lsi_st_tensor **tensors, float **rows)
{
    *tensors = calloc(all->count, sizeof **tensors);
    if (!*tensors)
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory for the header");
    for (size_t i = 0; i < all->count; i++) {
        (*tensors)[i] = (lsi_st_tensor){.name = all->list[i].info.name, .dtype = LSI_ST_F32};
        file_shape(&all->list[i].info, &(*tensors)[i]);
    }
    return make_rows(all, rows);
}

static ls_status save_data(const weights *all, const sink *to, float *rows)
{
    for (size_t i = 0; i < all->count; i++)
        LSI_TRY(save_one(to, &all->list[i], rows));
    return LS_OK;
}

static ls_status append(void *writer, const void *data, size_t bytes)
{
    return lsi_st_append(writer, data, bytes);
}

static ls_status save_file(const weights *all, const char *path, const lsi_st_tensor *tensors,
                           float *rows)
{
    lsi_st_writer *writer;
    LSI_TRY(lsi_st_create(path, tensors, all->count, metadata, 1, &writer));
    const sink to = {append, writer};
    const ls_status status = save_data(all, &to, rows);
    if (status != LS_OK) {
        lsi_st_abandon(writer);
        return status;
    }
    return lsi_st_commit_take(writer);
}

static ls_status save_bytes(const weights *all, const sink *to, const lsi_st_tensor *tensors,
                            float *rows)
{
    void *header;
    size_t size, data;
    LSI_TRY(lsi_st_header(tensors, all->count, metadata, 1, &header, &size, &data));
    const ls_status status = to->put(to->arg, header, size);
    free(header);
    LSI_TRY(status);
    return save_data(all, to, rows);
}

/* Into a file, or bytes to a sink when there is no path. */
static ls_status save(const lsi_weights *from, const char *path, const sink *to)
{
    weights all;
    float *rows = NULL;
    lsi_st_tensor *tensors = NULL;
    LSI_TRY(collect(from, &all));
    ls_status status = prepare(&all, &tensors, &rows);
    if (status == LS_OK)
        status = path ? save_file(&all, path, tensors, rows) : save_bytes(&all, to, tensors, rows);
    free(rows);
    free(tensors);
    free(all.list);
    return status;
}

ls_status lsi_weights_stream(const lsi_weights *w, lsi_weights_sink put, void *arg)
{
    const sink to = {put, arg};
    return save(w, NULL, &to);
}

static ls_status hash_bytes(void *hash, const void *data, size_t bytes)
{
    return lsi_sha256_update(hash, data, bytes);
}

ls_status lsi_weights_sha256(const lsi_weights *w, char hex[LSI_SHA256_HEX])
{
    lsi_sha256 *hash;
    unsigned char digest[LSI_SHA256_BYTES];
    LSI_TRY(lsi_sha256_create(&hash));
    ls_status status = lsi_weights_stream(w, hash_bytes, hash);
    if (status == LS_OK)
        status = lsi_sha256_final(hash, digest);
    lsi_sha256_destroy(hash);
    LSI_TRY(status);
    lsi_sha256_hex(digest, hex);
    return LS_OK;
}

ls_status ls_weights_save(ls_graph *graph, const char *path)
{
    lsi_weights w;
    LSI_TRY(lsi_weights_of(graph, &w));
    const ls_status status = save(&w, path, NULL);
    lsi_weights_free(&w);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

static const char *without_prefix(const char *name)
{
    return strncmp(name, PREFIX, strlen(PREFIX)) ? name : name + strlen(PREFIX);
}

static int ends_with(const char *name, const char *end)
{
    const size_t a = strlen(name), b = strlen(end);
    return a >= b && !strcmp(name + a - b, end);
}

/* A tensor of the file by our name, else by that name with the prefix added or taken away. */
static const lsi_st_tensor *find_tensor(const lsi_st_file *file, const char *name)
{
    char longer[512];
    const lsi_st_tensor *t = lsi_st_find(file, name);
    if (!t && without_prefix(name) != name)
        t = lsi_st_find(file, without_prefix(name));
    if (!t && strlen(name) < sizeof longer - sizeof PREFIX) {
        snprintf(longer, sizeof longer, PREFIX "%s", name);
        t = lsi_st_find(file, longer);
    }
    return t;
}

/* "(2, 3)", cut when it does not fit. */
static const char *shape_text(const lsi_st_tensor *t, char *text, size_t room)
{
    size_t used = 0;
    text[0] = 0;
    for (int d = 0; d < t->ndim && used < room; d++)
        used += (size_t)snprintf(text + used, room - used, "%s%zu", d ? ", " : "", t->dims[d]);
    return text;
}

static ls_status match(const char *path, const lsi_st_file *file, weight *w)
{
    w->source = find_tensor(file, w->info.name);
    if (!w->source)
        return lsi_fail(LS_ERR_CONFIG, "is it of this model, with the same settings?", WHAT,
                        "%s has no '%s'", path, w->info.name);
    lsi_st_tensor expected;
    file_shape(&w->info, &expected);
    if (w->source->ndim != expected.ndim ||
        memcmp(w->source->dims, expected.dims, (size_t)expected.ndim * sizeof *expected.dims)) {
        char theirs[128], ours[128];
        return lsi_fail(LS_ERR_CONFIG, "is it of this model, with the same settings?", WHAT,
                        "%s: '%s' has the shape (%s), not (%s)", path, w->source->name,
                        shape_text(w->source, theirs, sizeof theirs),
                        shape_text(&expected, ours, sizeof ours));
    }
    float none;
    if (!lsi_st_to_f32(w->source, 0, 0, &none))
        return lsi_fail(LS_ERR_CONFIG, "F32, F16, BF16 and F64 can be loaded", WHAT,
                        "%s: '%s' has the type %s", path, w->source->name,
                        lsi_st_dtype_name(w->source->dtype));
    return LS_OK;
}

/* The head of a language model that has its embedding's weights, written out once more. */
static int is_tied_head(const lsi_st_file *file, const lsi_st_tensor *t)
{
    const lsi_st_tensor *e = find_tensor(file, PREFIX "wte.weight");
    return !strcmp(t->name, "lm_head.weight") && e && e->dtype == t->dtype && e->ndim == t->ndim &&
           !memcmp(e->dims, t->dims, (size_t)t->ndim * sizeof *t->dims) &&
           !memcmp(e->data, t->data, t->count * lsi_st_dtype_size(t->dtype));
}

/* A tensor that is no parameter of the graph: one of those that may be left out? */
static int is_of_no_use(const lsi_st_file *file, const lsi_st_tensor *t)
{
    return ends_with(t->name, ".attn.bias") || ends_with(t->name, ".attn.masked_bias") ||
           ends_with(t->name, ".num_batches_tracked") || is_tied_head(file, t);
}

static int is_wanted(const weights *all, const lsi_st_tensor *t)
{
    for (size_t i = 0; i < all->count; i++) {
        if (all->list[i].source == t)
            return 1;
    }
    return 0;
}

static ls_status match_all(const char *path, const lsi_st_file *file, weights *all)
{
    for (size_t i = 0; i < all->count; i++)
        LSI_TRY(match(path, file, &all->list[i]));
    for (size_t i = 0; i < lsi_st_count(file); i++) {
        const lsi_st_tensor *t = lsi_st_at(file, i);
        if (!is_wanted(all, t) && !is_of_no_use(file, t))
            return lsi_fail(LS_ERR_CONFIG, "is it of this model, with the same settings?", WHAT,
                            "%s has '%.100s', which the model has not", path, t->name);
    }
    return LS_OK;
}

static void load_one(const weight *w, float *rows)
{
    if (w->info.layout == LS_LAYOUT_PLAIN) {
        lsi_st_to_f32(w->source, 0, w->info.count, w->data);
        return;
    }
    const size_t outs = w->info.dims[w->info.ndim - 1], n = w->info.count / outs;
    for (size_t o = 0; o < outs; o += TILE) {
        const size_t tile = outs - o < TILE ? outs - o : TILE;
        lsi_st_to_f32(w->source, o * n, tile * n, rows);
        for (size_t e = 0; e < n; e++) {
            float *to = w->data + place_of(&w->info, e) * outs + o;
            for (size_t r = 0; r < tile; r++)
                to[r] = rows[r * n + e];
        }
    }
}

ls_status lsi_weights_load(const lsi_weights *to, const char *path)
{
    weights all;
    lsi_st_file *file = NULL;
    float *rows = NULL;
    LSI_TRY(collect(to, &all));
    ls_status status = lsi_st_open(path, &file);
    if (status == LS_OK)
        status = match_all(path, file, &all);
    if (status == LS_OK)
        status = make_rows(&all, &rows);
    for (size_t i = 0; status == LS_OK && i < all.count; i++)
        load_one(&all.list[i], rows);
    free(rows);
    lsi_st_close(file);
    free(all.list);
    return status;
}

ls_status ls_weights_load(ls_graph *graph, const char *path)
{
    lsi_weights w;
    LSI_TRY(lsi_weights_of(graph, &w));
    const ls_status status = lsi_weights_load(&w, path);
    lsi_weights_free(&w);
    return status;
}

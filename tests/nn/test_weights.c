/* Files of weights: what is saved is loaded, in the ecosystem's layouts; files of other programs
 * are understood; what does not fit is named, and nothing has changed then. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../folder.h"
#include "base/safetensors.h"
#include <lockstep/nn.h>

static const char *const models[][4] = {
    {"mlp", "inputs=20", "hidden=37", "classes=5"},
    {"resnet:20", NULL, NULL, NULL},
    {"gpt:nano", "layers=2", "vocab=11", "context=8"},
    {"dlrm", "rows=50", "tables=3", NULL},
};
enum { MODELS = sizeof models / sizeof *models, GPT = 2 };

static ls_graph *build(int which, uint64_t seed)
{
    ls_model *model;
    ls_graph *graph;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.batch = 2;
    config.seed = seed;
    OK(ls_model_create(models[which][0], &model));
    for (int i = 1; i < 4 && models[which][i]; i++)
        OK(ls_model_set(model, models[which][i]));
    OK(ls_model_build(model, &config, &graph));
    ls_model_destroy(model);
    return graph;
}

/* Norms and statistics start alike in every graph: make all values different. */
static void scramble(ls_graph *graph, uint32_t seed)
{
    float *const params = ls_graph_params(graph), *const buffers = ls_graph_buffers(graph);
    ls_param_info info;
    for (int i = 0; i < ls_graph_param_count(graph) + ls_graph_buffer_count(graph); i++) {
        const int p = i < ls_graph_param_count(graph);
        OK(p ? ls_graph_param(graph, i, &info)
             : ls_graph_buffer(graph, i - ls_graph_param_count(graph), &info));
        for (size_t e = 0; e < info.count; e++) {
            seed = seed * 1664525u + 1013904223u;
            (p ? params : buffers)[info.offset + e] = (float)(int32_t)seed * 0x1p-31f;
        }
    }
}

static void assert_equal_graphs(ls_graph *a, ls_graph *b)
{
    const size_t params = ls_graph_param_elements(a), buffers = ls_graph_buffer_elements(a);
    assert_int_equal(params, ls_graph_param_elements(b));
    assert_memory_equal(ls_graph_params(a), ls_graph_params(b), params * sizeof(float));
    if (buffers)
        assert_memory_equal(ls_graph_buffers(a), ls_graph_buffers(b), buffers * sizeof(float));
}

static char *slurp(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static void test_round(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        const char *first = path_of("first"), *second = path_of("second");
        ls_graph *a = build(m, 1), *b = build(m, 2);
        scramble(a, 7);
        OK(ls_weights_save(a, first));
        OK(ls_weights_load(b, first));
        assert_equal_graphs(a, b);
        OK(ls_weights_save(b, second));
        size_t sizes[2];
        char *data[2] = {slurp(first, &sizes[0]), slurp(second, &sizes[1])};
        assert_int_equal(sizes[0], sizes[1]);
        assert_memory_equal(data[0], data[1], sizes[0]);
        free(data[0]);
        free(data[1]);
        ls_graph_destroy(a);
        ls_graph_destroy(b);
        unlink(first);
        unlink(second);
    }
}

/* The place of element i of a row-major tensor, in memory of another order of its dimensions. */
static void check_layout(const ls_param_info *info, const float *ours, const lsi_st_tensor *t)
{
    size_t at[4];
    for (size_t i = 0; i < t->count; i++) {
        size_t rest = i;
        for (int d = t->ndim - 1; d >= 0; rest /= t->dims[d--])
            at[d] = rest % t->dims[d];
        size_t place = i;
        if (info->layout == LS_LAYOUT_LINEAR)
            place = at[1] * info->dims[1] + at[0];
        else if (info->layout == LS_LAYOUT_CONV)
            place =
                ((at[2] * info->dims[1] + at[3]) * info->dims[2] + at[1]) * info->dims[3] + at[0];
        float theirs;
        assert_true(lsi_st_to_f32(t, i, 1, &theirs));
        if (theirs != ours[info->offset + place])
            fail_msg("%s: element %zu is %g, not %g", info->name, i, (double)theirs,
                     (double)ours[info->offset + place]);
    }
}

static void test_layouts(void **state)
{
    (void)state;
    int seen[3] = {0};
    for (int m = 0; m < MODELS; m++) {
        const char *path = path_of("layouts");
        ls_graph *graph = build(m, 1);
        scramble(graph, 3);
        OK(ls_weights_save(graph, path));
        lsi_st_file *file;
        OK(lsi_st_open(path, &file));
        assert_string_equal(lsi_st_metadata(file, "format"), "pt");
        assert_int_equal(lsi_st_count(file),
                         ls_graph_param_count(graph) + ls_graph_buffer_count(graph));
        for (int i = 0; i < ls_graph_param_count(graph); i++) {
            ls_param_info info;
            OK(ls_graph_param(graph, i, &info));
            const lsi_st_tensor *t = lsi_st_find(file, info.name);
            assert_non_null(t);
            check_layout(&info, ls_graph_params(graph), t);
            seen[info.layout] += info.ndim > 1;
        }
        lsi_st_close(file);
        ls_graph_destroy(graph);
        unlink(path);
    }
    assert_true(seen[LS_LAYOUT_PLAIN] && seen[LS_LAYOUT_LINEAR] && seen[LS_LAYOUT_CONV]);
    /* and by their shapes, as PyTorch's users know them */
    const char *path = path_of("shapes");
    ls_graph *graph = build(0, 1);
    OK(ls_weights_save(graph, path));
    lsi_st_file *file;
    OK(lsi_st_open(path, &file));
    int found = 0;
    for (size_t i = 0; i < lsi_st_count(file); i++) {
        const lsi_st_tensor *t = lsi_st_at(file, i);
        found += t->ndim == 2 && t->dims[0] == 37 && t->dims[1] == 20;
    }
    assert_int_equal(found, 1);
    lsi_st_close(file);
    ls_graph_destroy(graph);
    unlink(path);
}

/* ---- files that differ
 * ------------------------------------------------------------------------ */

/* A file being changed: tensors of another one, and their data. */
typedef struct draft {
    lsi_st_tensor list[128];
    unsigned char *data[128];
    char names[128][128];
    size_t count;
} draft;

static void draft_add(draft *d, const char *name, lsi_st_dtype dtype, const lsi_st_tensor *shape,
                      const void *data)
{
    lsi_st_tensor *t = &d->list[d->count];
    *t = *shape;
    t->dtype = dtype;
    snprintf(d->names[d->count], sizeof d->names[0], "%s", name);
    t->name = d->names[d->count];
    const size_t bytes = t->count * lsi_st_dtype_size(dtype);
    d->data[d->count] = malloc(bytes + 1);
    memcpy(d->data[d->count++], data, bytes);
}

static draft *draft_of(const char *path)
{
    draft *d = calloc(1, sizeof *d);
    lsi_st_file *file;
    OK(lsi_st_open(path, &file));
    for (size_t i = 0; i < lsi_st_count(file); i++) {
        const lsi_st_tensor *t = lsi_st_at(file, i);
        draft_add(d, t->name, t->dtype, t, t->data);
    }
    lsi_st_close(file);
    return d;
}

static size_t draft_find(const draft *d, const char *name)
{
    size_t i = 0;
    while (i < d->count && strcmp(d->names[i], name))
        i++;
    assert_true(i < d->count);
    return i;
}

static void draft_write(const draft *d, const char *path)
{
    lsi_st_writer *w;
    OK(lsi_st_create(path, d->list, d->count, NULL, 0, &w));
    for (size_t i = 0; i < d->count; i++)
        OK(lsi_st_append(w, d->data[i], d->list[i].count * lsi_st_dtype_size(d->list[i].dtype)));
    OK(lsi_st_commit_take(w));
}

static void draft_free(draft *d)
{
    for (size_t i = 0; i < d->count; i++)
        free(d->data[i]);
    free(d);
}

/* A graph of scrambled values, its file, and a draft of that. */
static ls_graph *saved(int model, const char *path, draft **d)
{
    ls_graph *graph = build(model, 1);
    scramble(graph, 5);
    OK(ls_weights_save(graph, path));
    *d = draft_of(path);
    return graph;
}

static void test_hugging_face(void **state)
{
    (void)state;
    const char *path = path_of("gpt");
    draft *d;
    ls_graph *a = saved(GPT, path, &d), *b = build(GPT, 9);
    const lsi_st_tensor flag = {.ndim = 4, .dims = {1, 1, 8, 8}, .count = 64}, one = {.count = 1};
    const unsigned char mask[64] = {1};
    for (size_t i = 0; i < d->count; i++) { /* the names of a model without its head */
        assert_memory_equal(d->names[i], "transformer.", 12);
        memmove(d->names[i], d->names[i] + 12, strlen(d->names[i] + 12) + 1);
    }
    draft_add(d, "h.0.attn.bias", LSI_ST_BOOL, &flag, mask);
    draft_add(d, "h.1.attn.masked_bias", LSI_ST_F32, &one, mask);
    draft_write(d, path);
    OK(ls_weights_load(b, path));
    assert_equal_graphs(a, b);
    const size_t table = draft_find(d, "wte.weight");
    draft_add(d, "lm_head.weight", LSI_ST_F32, &d->list[table], d->data[table]);
    draft_write(d, path);
    ls_graph_destroy(b);
    b = build(GPT, 10);
    OK(ls_weights_load(b, path));
    assert_equal_graphs(a, b);
    d->data[d->count - 1][5] ^= 1; /* a head of its own: not this model */
    draft_write(d, path);
    assert_int_equal(ls_weights_load(b, path), LS_ERR_CONFIG);
    assert_non_null(strstr(ls_last_error(), "has 'lm_head.weight', which the model has not"));
    draft_free(d);
    ls_graph_destroy(a);
    ls_graph_destroy(b);
    unlink(path);
}

/* The other way round: our names without the prefix, the file's with it. */
static void test_prefix_added(void **state)
{
    (void)state;
    const char *path = path_of("mlp");
    draft *d;
    ls_graph *a = saved(0, path, &d), *b = build(0, 9);
    for (size_t i = 0; i < d->count; i++) {
        char name[100];
        snprintf(name, sizeof name, "%.99s", d->names[i]);
        snprintf(d->names[i], sizeof d->names[i], "transformer.%s", name);
    }
    draft_write(d, path);
    OK(ls_weights_load(b, path));
    assert_equal_graphs(a, b);
    draft_free(d);
    ls_graph_destroy(a);
    ls_graph_destroy(b);
    unlink(path);
}

static void test_batch_norm_counter(void **state)
{
    (void)state;
    const char *path = path_of("resnet");
    draft *d;
    ls_graph *a = saved(1, path, &d), *b = build(1, 9);
    const lsi_st_tensor one = {.count = 1};
    const int64_t steps = 77;
    draft_add(d, "bn1.num_batches_tracked", LSI_ST_I64, &one, &steps);
    draft_write(d, path);
    OK(ls_weights_load(b, path));
    assert_equal_graphs(a, b);
    draft_free(d);
    ls_graph_destroy(a);
    ls_graph_destroy(b);
    unlink(path);
}

/* Every value of these is one of f16 and bf16 too. */
static void test_other_types(void **state)
{
    (void)state;
    static const lsi_st_dtype types[] = {LSI_ST_F64, LSI_ST_F16, LSI_ST_BF16};
    const char *path = path_of("types");
    draft *d;
    ls_graph *a = saved(0, path, &d);
    float *params = ls_graph_params(a);
    ls_param_info info;
    for (int p = 0; p < ls_graph_param_count(a); p++) {
        OK(ls_graph_param(a, p, &info));
        for (size_t i = 0; i < info.count; i++)
            params[info.offset + i] = (float)((int)(i % 200) - 100) / 64;
    }
    draft_free(d);
    OK(ls_weights_save(a, path));
    for (int k = 0; k < 3; k++) {
        draft *from = draft_of(path), *to = calloc(1, sizeof *to);
        for (size_t i = 0; i < from->count; i++) {
            const lsi_st_tensor *t = &from->list[i];
            unsigned char *data = malloc(t->count * 8);
            for (size_t e = 0; e < t->count; e++) {
                float x;
                uint32_t bits;
                memcpy(&x, from->data[i] + 4 * e, 4);
                memcpy(&bits, &x, 4);
                const double wide = (double)x;
                const uint16_t brain = (uint16_t)(bits >> 16);
                const uint16_t half =
                    (uint16_t)(bits >> 16 & 0x8000) |
                    (uint16_t)(x == 0 ? 0 : ((bits >> 13 & 0x3ffff) - (112 << 10)));
                memcpy(data + e * lsi_st_dtype_size(types[k]),
                       k == 0   ? (const void *)&wide
                       : k == 1 ? (const void *)&half
                                : (const void *)&brain,
                       lsi_st_dtype_size(types[k]));
            }
            draft_add(to, from->names[i], types[k], t, data);
            free(data);
        }
        const char *other = path_of("other");
        ls_graph *b = build(0, 9);
        draft_write(to, other);
        OK(ls_weights_load(b, other));
        assert_equal_graphs(a, b);
        ls_graph_destroy(b);
        draft_free(from);
        draft_free(to);
        unlink(other);
    }
    ls_graph_destroy(a);
    unlink(path);
}

static void refused(ls_graph *graph, const draft *d, const char *words)
{
    const char *path = path_of("refused");
    ls_graph *same = build(0, 9);
    draft_write(d, path);
    assert_int_equal(ls_weights_load(graph, path), LS_ERR_CONFIG);
    if (!strstr(ls_last_error(), words) || !strstr(ls_last_error(), "/refused"))
        fail_msg("'%s' does not say '%s'", ls_last_error(), words);
    assert_equal_graphs(graph, same); /* unchanged */
    ls_graph_destroy(same);
    unlink(path);
}

static void test_refused(void **state)
{
    (void)state;
    const char *path = path_of("good");
    draft *d;
    char words[256], name[128];
    ls_graph *a = saved(0, path, &d), *b = build(0, 9);
    const size_t last = d->count - 1;
    snprintf(name, sizeof name, "%s", d->names[last]);

    snprintf(d->names[last], sizeof d->names[last], "something.else");
    snprintf(words, sizeof words, "has no '%s'", name);
    refused(b, d, words);
    snprintf(d->names[last], sizeof d->names[last], "%s", name);

    const lsi_st_tensor one = {.count = 1};
    draft_add(d, "something.more", LSI_ST_F32, &one, "data");
    refused(b, d, "has 'something.more', which the model has not");
    free(d->data[--d->count]);

    size_t flat = 0; /* a linear weight, (out, in): its dimensions exchanged */
    while (d->list[flat].ndim != 2 || d->list[flat].dims[0] == d->list[flat].dims[1])
        flat++;
    lsi_st_tensor *t = &d->list[flat];
    const size_t dims[2] = {t->dims[0], t->dims[1]};
    t->dims[0] = dims[1];
    t->dims[1] = dims[0];
    snprintf(words, sizeof words, "'%s' has the shape (%zu, %zu), not (%zu, %zu)", t->name, dims[1],
             dims[0], dims[0], dims[1]);
    refused(b, d, words);
    t->dims[0] = dims[0];
    t->dims[1] = dims[1];

    d->list[last].dtype = LSI_ST_I32;
    snprintf(words, sizeof words, "'%s' has the type I32", name);
    refused(b, d, words);
    d->list[last].dtype = LSI_ST_F32;

    draft_write(d, path); /* with all of it undone the file is good */
    OK(ls_weights_load(b, path));
    assert_equal_graphs(a, b);
    assert_int_equal(ls_weights_load(b, path_of("nothing")), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_weights_save(b, path_of("no/folder")), LS_ERR_SYSTEM);
    draft_free(d);
    ls_graph_destroy(a);
    ls_graph_destroy(b);
    unlink(path);
}

static void test_not_compiled(void **state)
{
    (void)state;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    ls_graph *graph;
    config.batch = 1;
    OK(ls_graph_create(&config, &graph));
    assert_int_equal(ls_weights_save(graph, path_of("x")), LS_ERR_INVALID);
    assert_int_equal(ls_weights_load(graph, path_of("x")), LS_ERR_INVALID);
    ls_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_hugging_face),
        cmocka_unit_test(test_prefix_added),
        cmocka_unit_test(test_batch_norm_counter),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_compiled),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

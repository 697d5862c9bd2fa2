/* A training state to be saved: weights of a small model, two arrays of an optimizer; and what
 * tests of files need: a folder that is removed with all that is in it, bytes, damage. */
#ifndef TESTS_TRAIN_STATE_H
#define TESTS_TRAIN_STATE_H

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../folder.h"
#include "train/checkpoint.h"

typedef struct trial {
    ls_graph *graph;
    lsi_state state;
} trial;

/* Every value another one, and others for another seed. */
static inline void fill(float *values, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)seed * 0x1p-31f;
    }
}

static inline void scramble(trial *t, uint32_t seed)
{
    const lsi_weights *w = &t->state.weights;
    for (int i = 0; i < w->param_count; i++) { /* gaps between them stay as they are */
        fill(w->param_values + w->params[i].offset, w->params[i].count, seed + (uint32_t)i);
        for (int a = 0; a < t->state.array_count; a++)
            fill(t->state.arrays[a] + w->params[i].offset, w->params[i].count,
                 seed * 7 + (uint32_t)(100 * a + i));
    }
    for (int i = 0; i < w->buffer_count; i++)
        fill(w->buffer_values + w->buffers[i].offset, w->buffers[i].count, seed * 3 + (uint32_t)i);
}

static inline trial make_trial(const char *name, const char *setting, int arrays, uint32_t seed)
{
    static const char *const names[] = {"exp_avg", "exp_avg_sq", "momentum_buffer"};
    trial t = {.state = {.array_count = arrays, .loss = 1.5, .eval_loss = NAN, .seed = seed}};
    ls_model *model;
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.batch = 2;
    OK(ls_model_create(name, &model));
    if (setting)
        OK(ls_model_set(model, setting));
    OK(ls_model_build(model, &config, &t.graph));
    ls_model_destroy(model);
    OK(lsi_weights_of(t.graph, &t.state.weights));
    for (int a = 0; a < arrays; a++) {
        t.state.array_names[a] = names[a];
        t.state.arrays[a] = calloc(ls_graph_param_elements(t.graph), sizeof(float));
    }
    snprintf(t.state.config, sizeof t.state.config, "%064d", 7);
    scramble(&t, seed);
    return t;
}

static inline void free_trial(trial *t)
{
    for (int a = 0; a < t->state.array_count; a++)
        free(t->state.arrays[a]);
    lsi_weights_free(&t->state.weights);
    ls_graph_destroy(t->graph);
}

static inline void assert_equal_states(const trial *a, const trial *b)
{
    const size_t params = ls_graph_param_elements(a->graph) * sizeof(float);
    const size_t buffers = ls_graph_buffer_elements(a->graph) * sizeof(float);
    assert_memory_equal(a->state.weights.param_values, b->state.weights.param_values, params);
    if (buffers)
        assert_memory_equal(a->state.weights.buffer_values, b->state.weights.buffer_values,
                            buffers);
    for (int i = 0; i < a->state.array_count; i++)
        assert_memory_equal(a->state.arrays[i], b->state.arrays[i], params);
}

/* ---- files ----------------------------------------------------------------------------------- */

static inline int remove_entry(const char *path, const struct stat *s, int type, struct FTW *f)
{
    (void)s, (void)type, (void)f;
    return remove(path);
}

static inline void remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* All of a file, with a 0 after it; the caller frees it. */
static inline char *slurp(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    const long length = ftell(f);
    rewind(f);
    char *data = calloc(1, (size_t)length + 1);
    const size_t n = fread(data, 1, (size_t)length, f);
    fclose(f);
    if (size)
        *size = n;
    return data;
}

static inline void spill(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static inline void flip_bit(const char *path, size_t byte, int bit)
{
    size_t size;
    char *data = slurp(path, &size);
    assert_true(byte < size);
    data[byte] = (char)(data[byte] ^ 1 << bit);
    spill(path, data, size);
    free(data);
}

#define ERROR_HAS(words)                                                                           \
    do {                                                                                           \
        if (!strstr(ls_last_error(), words))                                                       \
            fail_msg("'%s' does not say '%s'", ls_last_error(), words);                            \
    } while (0)

#endif

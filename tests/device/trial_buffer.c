/* Buffers of a run: made, guarded, filled, looked at afterwards. */
#include "trial_buffer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

#define GUARD 256            /* bytes on either side */
#define ALIGN 64             /* of the allocation; the buffer is up to 15 elements off */
#define NAN_WORD 0x7fc5a5a5u /* read as a float it shows in every result */

static uint64_t next(uint64_t *rng)
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

size_t random_below(uint64_t *rng, size_t bound)
{
    return (size_t)(next(rng) % bound);
}

double random_unit(uint64_t *rng)
{
    return (double)(next(rng) >> 11) * 0x1p-53;
}

void state_begin(trial_state *state, uint64_t seed, int run, int exceptional)
{
    memset(state, 0, sizeof *state);
    state->exceptional = exceptional;
    state->rng = seed;
    state->run = run;
}

static void fill_words(unsigned char *at, size_t bytes)
{
    const uint32_t word = NAN_WORD;
    for (size_t i = 0; i < bytes; i++)
        at[i] = ((const unsigned char *)&word)[i % sizeof word];
}

static int is_filled(const unsigned char *at, size_t bytes)
{
    const uint32_t word = NAN_WORD;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != ((const unsigned char *)&word)[i % sizeof word])
            return 0;
    return 1;
}

static buffer *make(trial *t, const char *name, buffer_type type, size_t n)
{
    static const size_t elements[] = {sizeof(float), sizeof(int32_t), sizeof(double),
                                      sizeof(size_t)};
    trial_state *state = t->state;
    assert_true(state->count < STATE_BUFFERS);
    assert_false(state->sealed);
    const int number = state->count++;
    buffer *b = &state->buffers[number];
    b->name = name;
    b->type = type;
    b->n = n;
    b->element = elements[type];
    const size_t skew = (size_t)(number * 7 + state->run * 5) % 16 * b->element;
    b->bytes = (2 * GUARD + 16 * b->element + n * b->element + ALIGN - 1) / ALIGN * ALIGN;
    b->memory = aligned_alloc(ALIGN, b->bytes);
    assert_non_null(b->memory);
    b->data = b->memory + GUARD + skew;
    fill_words(b->memory, b->bytes);
    return b;
}

float *trial_in_range(trial *t, size_t n, double low, double high)
{
    float *x = (float *)make(t, "an input", BUFFER_F32, n)->data;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(low + (high - low) * random_unit(&t->state->rng));
    return x;
}

float *trial_in(trial *t, size_t n)
{
    return trial_in_range(t, n, -1.7320508, 1.7320508);
}

int32_t *trial_ids(trial *t, size_t n, size_t bound)
{
    int32_t *ids = (int32_t *)make(t, "the ids", BUFFER_I32, n)->data;
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)random_below(&t->state->rng, bound);
    return ids;
}

float *trial_spare(trial *t, float *x)
{
    for (int i = 0; i < t->state->count; i++)
        t->state->buffers[i].spared |= t->state->buffers[i].data == (unsigned char *)x;
    return x;
}

size_t trial_below(trial *t, size_t bound)
{
    return random_below(&t->state->rng, bound);
}

float *trial_out(trial *t, const char *name, size_t n, int keep, double tol, double scale)
{
    buffer *b = make(t, name, BUFFER_F32, n);
    float *x = (float *)b->data;
    b->output = 1;
    b->tol = tol;
    b->scale = scale;
    for (size_t i = 0; keep && i < n; i++)
        x[i] = (float)((2 * random_unit(&t->state->rng) - 1) * 1.7320508);
    return x;
}

int32_t *trial_out_ids(trial *t, const char *name, size_t n)
{
    buffer *b = make(t, name, BUFFER_I32, n);
    b->output = 1;
    return (int32_t *)b->data;
}

double *trial_out_sum(trial *t, const char *name, size_t n, double tol, double scale)
{
    buffer *b = make(t, name, BUFFER_F64, n);
    b->output = 1;
    b->tol = tol;
    b->scale = scale;
    return (double *)b->data;
}

size_t *trial_out_size(trial *t, const char *name)
{
    buffer *b = make(t, name, BUFFER_SIZE, 1);
    b->output = 1;
    return (size_t *)b->data;
}

void trial_skip(trial *t)
{
    t->state->skipped = 1;
}

/* The guards before and after the data. */
static size_t bytes_before(const buffer *b)
{
    return (size_t)(b->data - b->memory);
}

static size_t bytes_after(const buffer *b)
{
    return b->bytes - bytes_before(b) - b->n * b->element;
}

/* A place at the edge of a vector, at either end, or anywhere. */
static size_t edge_of(uint64_t *rng, size_t n)
{
    static const size_t edges[] = {0, 7, 8, 15, 16, 17, 31, 32};
    const size_t choice = random_below(rng, 16);
    if (choice < 8 && edges[choice] < n)
        return choice & 1 ? n - 1 - edges[choice] : edges[choice];
    return random_below(rng, n);
}

/* One to three elements of what will be read: of inputs, and of outputs that hold something. */
static void plant(trial_state *state)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    buffer *read[STATE_BUFFERS];
    size_t n = 0;
    for (int i = 0; i < state->count; i++) {
        buffer *b = &state->buffers[i];
        if (b->type == BUFFER_F32 && b->n && !b->spared && !is_filled(b->data, b->n * b->element))
            read[n++] = b;
    }
    for (size_t left = n ? 1 + random_below(&state->rng, 3) : 0; left > 0; left--) {
        buffer *b = read[random_below(&state->rng, n)];
        ((float *)b->data)[edge_of(&state->rng, b->n)] = values[random_below(&state->rng, 3)];
    }
}

void trial_seal(trial *t)
{
    t->state->sealed = 1;
    if (t->state->exceptional)
        plant(t->state);
    for (int i = 0; i < t->state->count; i++) {
        buffer *b = &t->state->buffers[i];
        const size_t bytes = b->n * b->element;
        if (!b->output && bytes) {
            b->before = malloc(bytes);
            assert_non_null(b->before);
            memcpy(b->before, b->data, bytes);
        }
        ASAN_POISON_MEMORY_REGION(b->memory, bytes_before(b));
        ASAN_POISON_MEMORY_REGION(b->data + bytes, bytes_after(b));
    }
}

void trial_called(trial *t, ls_status status)
{
    if (t->state->status == LS_OK)
        t->state->status = status;
}

const char *state_end(trial_state *state)
{
    const char *wrong = state->sealed ? NULL : "nothing was called, or what";
    for (int i = 0; i < state->count; i++) {
        const buffer *b = &state->buffers[i];
        const size_t bytes = b->n * b->element;
        ASAN_UNPOISON_MEMORY_REGION(b->memory, b->bytes);
        if (!is_filled(b->memory, bytes_before(b)) || !is_filled(b->data + bytes, bytes_after(b)))
            wrong = b->output ? "memory around an output" : "memory around an input";
        if (b->before && memcmp(b->before, b->data, bytes))
            wrong = b->name;
    }
    return wrong;
}

void state_clear(trial_state *state)
{
    for (int i = 0; i < state->count; i++) {
        ASAN_UNPOISON_MEMORY_REGION(state->buffers[i].memory, state->buffers[i].bytes);
        free(state->buffers[i].memory);
        free(state->buffers[i].before);
    }
    memset(state, 0, sizeof *state);
}

double buffer_value(const buffer *b, size_t i)
{
    switch (b->type) {
    case BUFFER_F32: return (double)((const float *)b->data)[i];
    case BUFFER_I32: return (double)((const int32_t *)b->data)[i];
    case BUFFER_F64: return ((const double *)b->data)[i];
    case BUFFER_SIZE: return (double)((const size_t *)b->data)[i];
    }
    return 0;
}

/* What an update changes can be put back, bit for bit, and nothing is kept beyond the room for it;
 * an optimizer that comes to the state of another goes on as that would have. */
#include "arrays.h"
#include "optim/optimizer.h"

enum { START = 240, GUARD = 4096 };

typedef struct variant {
    const char *name;
    float momentum, decay, clip;
} variant;

static const variant variants[] = {
    {"sgd", 0, 0, 0},        {"sgd", 0.9f, 0, 0},   {"sgd", 0.9f, 0.1f, 9},
    {"adam", 0, 0, 0},       {"adamw", 0, 0.1f, 0}, {"adamw", 0, 0.1f, 9},
    {"lars", 0.9f, 0.1f, 0}, {"lamb", 0, 0.1f, 0},  {"lamb", 0, 0, 9},
};
#define VARIANTS (sizeof variants / sizeof *variants)

static ls_optim_config settings(const variant *v)
{
    ls_optim_config c = LS_OPTIM_CONFIG_INIT;
    c.name = v->name;
    c.momentum = v->momentum;
    c.decay = v->decay;
    c.clip = v->clip;
    c.lr = 0.02f;
    c.schedule = "cosine";
    c.steps = 5000;
    return c;
}

/* ---- parameters, dense and sparse, and their gradients --------------------------------------- */

typedef struct model {
    arrays a;
    ls_optimizer *o;
    int32_t *ids[MOST_PARAMS];
    float *values[MOST_PARAMS];
    size_t used[MOST_PARAMS];
} model;

static void model_open(model *m, const variant *v, int wide)
{
    const ls_optim_config c = settings(v);
    memset(m, 0, sizeof *m);
    add_param(&m->a, "top.bias", 1, 5, 1, 0);
    add_param(&m->a, "tables.0", 300, 16, 0, 1);
    add_param(&m->a, "middle.weight", 150, 31, 0, 0);
    add_param(&m->a, "tables.1", 150, 48, 0, 1); /* rows that blocks cut at multiples of 16, */
    add_param(&m->a, "tables.2", 500, 7, 1, 1);  /* and elsewhere */
    add_param(&m->a, "tables.3", 5000, 1, 0, 1); /* as many rows as there can be */
    add_param(&m->a, "tables.4", 3, 5000, 0, 1); /* rows longer than a block, */
    if (wide)                                    /* and than all that a worker takes at once */
        add_param(&m->a, "tables.5", 2, 50000, 0, 1);
    add_param(&m->a, "bottom.weight", 40, 113, 0, 0);
    fill(&m->a);
    for (int i = 0; i < m->a.count; i++) {
        m->ids[i] = malloc(m->a.info[i].dims[0] * sizeof(int32_t));
        m->values[i] = malloc(m->a.info[i].count * sizeof(float));
    }
    m->o = make(&c, &m->a);
    ls_optimizer_set_step(m->o, START);
}

static void model_close(model *m)
{
    for (int i = 0; i < m->a.count; i++) {
        free(m->ids[i]);
        free(m->values[i]);
    }
    ls_optimizer_destroy(m->o);
    free_arrays(&m->a);
}

/* Each row of a table is used with the probability one in `odds`. */
static void model_gradient(model *m, unsigned odds)
{
    new_gradient(&m->a);
    for (int i = 0; i < m->a.count; i++) {
        const ls_param_info *info = &m->a.info[i];
        m->used[i] = 0;
        for (size_t row = 0; info->sparse && row < info->dims[0]; row++)
            if (random_word() % odds == 0)
                m->ids[i][m->used[i]++] = (int32_t)row;
        for (size_t e = 0; e < m->used[i] * info->dims[1]; e++)
            m->values[i][e] = 5 * random_float();
    }
}

static void model_give(const model *m, ls_optimizer *to)
{
    for (int i = 0; i < m->a.count; i++) {
        const ls_sparse_grad grad = {m->used[i], m->a.info[i].dims[1], m->ids[i], m->values[i]};
        if (m->a.info[i].sparse)
            OK(ls_optimizer_sparse(to, i, &grad));
    }
}

static void model_step(model *m, unsigned odds)
{
    model_gradient(m, odds);
    model_give(m, m->o);
    OK(ls_optimizer_step(m->o, m->a.w, m->a.g, 0.25f));
}

/* ---- what is compared: parameters, arrays, stamps -------------------------------------------- */

typedef struct picture {
    float *w, *array[LSI_OPTIM_ARRAYS];
    uint32_t *stamps;
} picture;

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes + 1);
    assert_non_null(to);
    return bytes ? memcpy(to, from, bytes) : to;
}

static picture take_picture(const model *m)
{
    picture p = {0};
    p.w = copy_of(m->a.w, m->a.elements * sizeof(float));
    for (int i = 0; i < m->o->arrays; i++)
        p.array[i] = copy_of(m->o->array[i], m->a.elements * sizeof(float));
    p.stamps = copy_of(m->o->stamps, m->o->stamp_count * sizeof(uint32_t));
    return p;
}

static void drop_picture(picture *p)
{
    free(p->w);
    free(p->stamps);
    for (int i = 0; i < LSI_OPTIM_ARRAYS; i++)
        free(p->array[i]);
}

static int is_as(const model *m, const picture *p)
{
    int same = !memcmp(m->a.w, p->w, m->a.elements * sizeof(float)) &&
               !memcmp(m->o->stamps, p->stamps, m->o->stamp_count * sizeof(uint32_t));
    for (int i = 0; i < m->o->arrays; i++)
        same &= !memcmp(m->o->array[i], p->array[i], m->a.elements * sizeof(float));
    return same;
}

static void assert_as(const model *m, const picture *p)
{
    assert_same_bits(m->a.w, p->w, m->a.elements, "parameters");
    for (int i = 0; i < m->o->arrays; i++)
        assert_same_bits(m->o->array[i], p->array[i], m->a.elements, "an array of state");
    for (size_t i = 0; i < m->o->stamp_count; i++)
        if (m->o->stamps[i] != p->stamps[i])
            fail_msg("stamp %zu is %u, not %u", i, m->o->stamps[i], p->stamps[i]);
}

/* ---- memory with guards ---------------------------------------------------------------------- */

typedef struct room {
    char *memory;
    size_t bytes;
} room;

static room make_room(size_t bytes)
{
    room r = {malloc(bytes + 2 * GUARD), bytes};
    assert_non_null(r.memory);
    memset(r.memory, 0x5a, bytes + 2 * GUARD);
    r.memory += GUARD;
    return r;
}

static void drop_room(room *r)
{
    for (size_t i = 0; i < GUARD; i++)
        if (r->memory[i - GUARD] != 0x5a || r->memory[r->bytes + i] != 0x5a)
            fail_msg("written %zu bytes outside of %zu", i, r->bytes);
    free(r->memory - GUARD);
}

/* ---- updates --------------------------------------------------------------------------------- */

/* Save, change and put back each range of blocks, then update it for good: the step's end is the
 * one of an optimizer that never looked back. Returns how many ranges were changed at all. */
static int step_with_undo(model *m, size_t blocks, unsigned odds)
{
    int changed = 0;
    model_gradient(m, odds);
    model_give(m, m->o);
    OK(ls_optimizer_begin(m->o, 0.25f));
    for (int r = 0; r <= ls_optimizer_rounds(m->o); r++) {
        const int last_round = r == ls_optimizer_rounds(m->o);
        for (size_t first = 0; first < m->o->blocks; first += blocks) {
            const size_t last = first + blocks < m->o->blocks ? first + blocks : m->o->blocks;
            room kept = make_room(lsi_undo_room(m->o, last - first));
            picture before = take_picture(m);
            lsi_undo_save(m->o, m->a.w, first, last, kept.memory);
            assert_as(m, &before);
            for (int again = 0; again < 2; again++) {
                if (last_round)
                    OK(ls_optimizer_update(m->o, m->a.w, m->a.g, first, last));
                else
                    OK(ls_optimizer_measure(m->o, r, m->a.w, m->a.g, first, last));
                if (!last_round && !lsi_optimizer_directs(m->o, r))
                    assert_as(m, &before);
                changed += !is_as(m, &before);
                if (!again)
                    lsi_undo_restore(m->o, m->a.w, kept.memory);
                if (!again)
                    assert_as(m, &before);
            }
            drop_picture(&before);
            drop_room(&kept);
        }
        if (!last_round)
            OK(ls_optimizer_combine(m->o, r));
    }
    ls_optimizer_end(m->o);
    return changed;
}

static void try_updates(const variant *v, size_t blocks, int wide)
{
    model m, plain;
    const uint64_t seed = random_state;
    model_open(&m, v, wide);
    random_state = seed;
    model_open(&plain, v, wide);
    const unsigned odds[] = {3, 40, 1};
    for (size_t i = 0; i < sizeof odds / sizeof *odds; i++) {
        const uint64_t here = random_state;
        assert_true(step_with_undo(&m, blocks, odds[i]) >= 4);
        random_state = here;
        model_step(&plain, odds[i]);
    }
    const picture end = take_picture(&plain);
    assert_as(&m, &end);
    drop_picture((picture *)(uintptr_t)&end);
    model_close(&m);
    model_close(&plain);
}

static void test_updates(void **state)
{
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++) {
        try_updates(&variants[i], 1, 0);
        try_updates(&variants[i], 4, 0);
    }
}

static void put_picture(const model *m, const picture *p)
{
    memcpy(m->a.w, p->w, m->a.elements * sizeof(float));
    for (int i = 0; i < m->o->arrays; i++)
        memcpy(m->o->array[i], p->array[i], m->a.elements * sizeof(float));
    memcpy(m->o->stamps, p->stamps, m->o->stamp_count * sizeof(uint32_t));
}

/* Others have updated their ranges meanwhile: what is put back is the range alone. */
static void try_neighbours(const variant *v, size_t blocks)
{
    model m;
    model_open(&m, v, 0);
    model_step(&m, 3);
    model_gradient(&m, 3);
    model_give(&m, m.o);
    OK(ls_optimizer_begin(m.o, 0.25f));
    picture before = take_picture(&m);
    room kept = make_room(lsi_undo_room(m.o, blocks));
    for (size_t first = 0; first < m.o->blocks; first += blocks) {
        const size_t last = first + blocks < m.o->blocks ? first + blocks : m.o->blocks;
        lsi_undo_save(m.o, m.a.w, first, last, kept.memory);
        OK(ls_optimizer_update(m.o, m.a.w, m.a.g, 0, first));
        OK(ls_optimizer_update(m.o, m.a.w, m.a.g, last, m.o->blocks));
        picture others = take_picture(&m);
        OK(ls_optimizer_update(m.o, m.a.w, m.a.g, first, last));
        lsi_undo_restore(m.o, m.a.w, kept.memory);
        assert_as(&m, &others);
        drop_picture(&others);
        put_picture(&m, &before);
    }
    drop_room(&kept);
    drop_picture(&before);
    model_close(&m);
}

static void test_neighbours(void **state)
{
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++)
        if (!variants[i].clip && strcmp(variants[i].name, "lars") &&
            strcmp(variants[i].name, "lamb"))
            try_neighbours(&variants[i], 1);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Rows that have missed steps are touched, in portions as large as there is room for, and put back;
 * then touched for good. Some are named twice. */
static void try_rows(const variant *v, int wide)
{
    model m;
    model_open(&m, v, wide);
    for (int i = 0; i < 3; i++)
        model_step(&m, 5);
    for (int p = 0; p < m.a.count; p++) {
        const size_t rows = m.a.info[p].dims[0];
        room kept = make_room(lsi_undo_room(m.o, 1));
        if (!m.a.info[p].sparse) {
            drop_room(&kept);
            continue;
        }
        const size_t most = lsi_undo_rows(m.o, p, kept.bytes);
        assert_true(most > 0);
        int32_t *ids = malloc(2 * rows * sizeof *ids);
        size_t n = 0, changed = 0;
        for (size_t row = 0; row < rows; row++)
            for (unsigned times = random_word() % 3; times > 0; times--)
                ids[n++] = (int32_t)row;
        for (size_t at = 0; at < n; at += most) {
            const size_t some = n - at < most ? n - at : most;
            picture before = take_picture(&m);
            lsi_undo_save_rows(m.o, m.a.w, p, ids + at, some, kept.memory);
            OK(ls_optimizer_touch(m.o, m.a.w, p, ids + at, some, 1));
            changed += !is_as(&m, &before);
            lsi_undo_restore(m.o, m.a.w, kept.memory);
            assert_as(&m, &before);
            OK(ls_optimizer_touch(m.o, m.a.w, p, ids + at, some, 1));
            drop_picture(&before);
        }
        if (m.o->params[p].lazy && rows > 100)
            assert_true(changed);
        free(ids);
        drop_room(&kept);
    }
    model_close(&m);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++)
        try_rows(&variants[i], 0);
}

static void test_wide_rows(void **state)
{
    (void)state;
    try_updates(&variants[4], 1, 1);
    try_updates(&variants[4], 4, 1);
    try_updates(&variants[1], 1, 1);
    try_rows(&variants[4], 1);
}

/* ---- seeking --------------------------------------------------------------------------------- */

/* After some steps another optimizer takes over the state, rows that have missed steps included. */
static void try_seek(const variant *v, int before, uint64_t from)
{
    const ls_optim_config c = settings(v);
    model m, other;
    const uint64_t seed = random_state;
    model_open(&m, v, 0);
    random_state = seed;
    model_open(&other, v, 0);
    ls_optimizer_set_step(m.o, from);
    ls_optimizer_set_step(other.o, from);
    for (int i = 0; i < before; i++) {
        const uint64_t here = random_state;
        model_step(&m, 40);
        random_state = here;
        model_step(&other, 40);
    }
    const size_t bytes = ls_optimizer_state_bytes(other.o);
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memcpy(memory, other.o->memory, bytes);
    ls_optimizer_destroy(other.o);
    other.o = make(&c, &other.a);
    ls_optimizer_bind(other.o, memory);
    lsi_optimizer_seek(other.o, from + (uint64_t)before);
    assert_int_equal(ls_optimizer_get_step(other.o), from + (uint64_t)before);
    picture p = take_picture(&m);
    assert_as(&other, &p); /* seeking changes nothing */
    drop_picture(&p);
    for (int i = 0; i < 3; i++) {
        const uint64_t here = random_state;
        model_step(&m, 40);
        random_state = here;
        model_step(&other, 40);
    }
    OK(ls_optimizer_flush(m.o, m.a.w));
    OK(ls_optimizer_flush(other.o, other.a.w));
    p = take_picture(&m);
    assert_as(&other, &p);
    drop_picture(&p);
    model_close(&m);
    model_close(&other);
    free(memory);
}

static void test_seek(void **state)
{
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++) {
        try_seek(&variants[i], 0, 0);
        try_seek(&variants[i], 5, 0);
        try_seek(&variants[i], 5, LSI_RATES - 2); /* the history has just gone round */
    }
}

/* A small table whose rows have waited for as long as any may: all rates are known again. */
static void test_seek_far(void **state)
{
    (void)state;
    const variant *const far[] = {&variants[1], &variants[4]};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        const ls_optim_config c = settings(far[i]);
        arrays a = {.count = 0};
        const int32_t id = 3;
        const float value[8] = {1, -2, 3, 4, 5, -6, 7, 8};
        const ls_sparse_grad first = {1, 8, &id, value}, none = {0, 8, &id, value};
        add_param(&a, "table", 20, 8, 0, 1);
        fill(&a);
        ls_optimizer *o = make(&c, &a);
        for (size_t s = 0; s < LSI_RATES - 1; s++) {
            OK(ls_optimizer_sparse(o, 0, s ? &none : &first));
            OK(ls_optimizer_step(o, a.w, a.g, 1));
        }
        const size_t bytes = ls_optimizer_state_bytes(o);
        void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
        memcpy(memory, o->memory, bytes);
        float *w = copy_of(a.w, a.elements * sizeof(float));
        ls_optimizer *other = make(&c, &a);
        ls_optimizer_bind(other, memory);
        lsi_optimizer_seek(other, ls_optimizer_get_step(o));
        OK(ls_optimizer_flush(o, a.w));
        OK(ls_optimizer_flush(other, w));
        assert_same_result(o, a.w, other, w, a.elements);
        ls_optimizer_destroy(o);
        ls_optimizer_destroy(other);
        free(memory);
        free(w);
        free_arrays(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates), cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_wide_rows),
        cmocka_unit_test(test_seek),    cmocka_unit_test(test_seek_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

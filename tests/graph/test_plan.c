/* The memory plan: no two buffers that live at the same time overlap; graphs made at random give
 * the same bits with shared memory, with recomputation, and with memory of their own for every
 * buffer; their gradients agree with differences of the loss. */
#include "ops.h"

#include <math.h>

#include "base/philox.h"

/* ---- random numbers ------------------------------------------------------------------------- */

typedef struct dice {
    uint32_t seed, drawn;
} dice;

static uint32_t below(dice *d, uint32_t bound)
{
    uint32_t words[4];
    lsi_philox((uint32_t[4]){d->drawn++, 0, 0, 0}, (uint32_t[2]){d->seed, 2}, words);
    return words[0] % bound;
}

/* ---- the planner alone ---------------------------------------------------------------------- */

static void check_apart(const lsi_buffer *buffers, int count, size_t peak)
{
    for (int i = 0; i < count; i++) {
        const lsi_buffer *a = &buffers[i];
        if (a->same_as >= 0 || !a->count)
            continue;
        assert_int_equal(a->offset % 64, 0);
        assert_true(a->offset + a->bytes <= peak);
        for (int j = 0; j < i; j++) {
            const lsi_buffer *b = &buffers[j];
            if (b->same_as >= 0 || !b->count)
                continue;
            int meet = 0;
            for (int s = 0; s < a->count; s++)
                for (int t = 0; t < b->count; t++)
                    meet |=
                        a->spans[s].from <= b->spans[t].to && b->spans[t].from <= a->spans[s].to;
            assert_int_equal(meet, lsi_spans_meet(a, b));
            const int overlap =
                a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            assert_false(meet && overlap);
        }
    }
}

/* What is alive at the worst moment: no plan can be below. */
static size_t lower_bound(const lsi_buffer *buffers, int count, int moments)
{
    size_t most = 0;
    for (int t = 0; t < moments; t++) {
        size_t alive = 0;
        for (int i = 0; i < count; i++)
            for (int s = 0; buffers[i].same_as < 0 && s < buffers[i].count; s++)
                if (buffers[i].spans[s].from <= t && t <= buffers[i].spans[s].to)
                    alive += (buffers[i].bytes + 63) / 64 * 64;
        most = alive > most ? alive : most;
    }
    return most;
}

static void test_planner(void **state)
{
    (void)state;
    enum { MOST = 60, MOMENTS = 80 };
    size_t all = 0, bounds = 0;
    for (uint32_t seed = 0; seed < 300; seed++) {
        dice d = {seed, 0};
        lsi_buffer buffers[MOST];
        lsi_span spans[MOST][2];
        const int count = (int)below(&d, MOST) + 1;
        size_t sum = 0, peak = 0, apart = 0;
        for (int i = 0; i < count; i++) {
            const int from = (int)below(&d, MOMENTS / 2), to = from + (int)below(&d, MOMENTS / 4);
            spans[i][0] = (lsi_span){from, to};
            spans[i][1].from = to + 1 + (int)below(&d, 5);
            spans[i][1].to = spans[i][1].from + (int)below(&d, 10);
            buffers[i] = (lsi_buffer){.bytes = below(&d, 5000) + 1,
                                      .same_as = -1,
                                      .count = below(&d, 3) ? 1 : 2,
                                      .spans = spans[i]};
            sum += (buffers[i].bytes + 63) / 64 * 64;
        }
        OK(lsi_plan(buffers, count, 1, &peak));
        check_apart(buffers, count, peak);
        const size_t bound = lower_bound(buffers, count, MOMENTS);
        assert_true(peak >= bound && peak <= sum);
        all += peak;
        bounds += bound;
        OK(lsi_plan(buffers, count, 0, &apart));
        assert_int_equal(apart, sum);
        check_apart(buffers, count, apart);
    }
    assert_true((double)all < 1.06 * (double)bounds); /* good, not just correct */
    size_t nothing = 1;
    OK(lsi_plan(NULL, 0, 1, &nothing));
    assert_int_equal(nothing, 0);
}

/* ---- random graphs -------------------------------------------------------------------------- */

enum { BATCH = 3, WIDTH = 8 };

/* A tensor made so far that is (BATCH, WIDTH) or a view of it. */
static ls_tensor *pick(dice *d, ls_tensor **made, int count)
{
    /* The newest most often: deep graphs with shortcuts. */
    const int back = below(d, 3) ? (int)below(d, 3) : (int)below(d, (uint32_t)count);
    return made[back < count ? count - 1 - back : 0];
}

static ls_tensor *random_node(ls_graph *g, dice *d, ls_tensor **made, int count)
{
    static const size_t flat[] = {BATCH, WIDTH}, cube[] = {BATCH, 2, WIDTH / 2};
    ls_tensor *x = pick(d, made, count), *second;
    switch (below(d, 14)) {
    case 0: return t_affine(g, t_reshape(g, x, 2, flat));
    case 1: return t_w ? t_affine_tied(g, x, t_w, t_b) : t_affine(g, t_reshape(g, x, 2, flat));
    case 2: return t_add(g, x, pick(d, made, count));
    case 3: return t_scale(g, t_mul(g, x, pick(d, made, count)), 0.7f);
    case 4: return t_relu(g, x);
    case 5: return t_scale(g, x, 0.9f);
    case 6: return t_scale(g, t_square(g, x), 0.8f);
    case 7: return t_noise(g, x);
    case 8: return t_reshape(g, x, 3, cube);
    case 9: return t_dense(g, t_reshape(g, x, 2, flat), WIDTH);
    case 10: return t_center(g, t_reshape(g, x, 2, flat));
    case 11: return t_scale(g, t_pair(g, x, pick(d, made, count), &second), 0.5f);
    case 12:
        x = t_pair(g, x, pick(d, made, count), &second);
        return below(d, 3) ? t_add(g, second, t_scale(g, x, 0.3f)) : second;
    default: return below(d, 4) ? t_relu(g, x) : t_stop(g, x);
    }
}

typedef struct made_graph {
    ls_graph *graph;
    ls_tensor *output, *input;
} made_graph;

/* The same graph for the same seed, whatever the mode. */
static made_graph random_graph(uint32_t seed, int checkpoints, int unshared)
{
    dice d = {seed, 0}, marks = {seed, 1000000};
    ls_graph *g = t_graph(BATCH);
    t_w = t_b = NULL;
    ls_tensor *made[64];
    made[0] = t_input(g, WIDTH);
    made[1] = t_affine(g, made[0]);
    const int count = 5 + (int)below(&d, 40);
    int open = 0;
    for (int i = 2; i < count; i++) {
        if (checkpoints && below(&marks, 4) == 0) {
            if (open)
                ls_checkpoint_end(g);
            else
                ls_checkpoint_begin(g);
            open = !open;
        }
        made[i] = random_node(g, &d, made, i);
        assert_non_null(made[i]);
    }
    if (open && below(&marks, 2)) {
        ls_checkpoint_end(g);
        open = 0;
    }
    /* Tie the ends together, so that most of it is needed, and bound the values. */
    ls_tensor *last = t_affine(g, t_reshape(g, t_add(g, made[count - 1], pick(&d, made, count)), 2,
                                            (size_t[]){BATCH, WIDTH}));
    ls_tensor *loss = below(&d, 2) ? t_loss(g, last) : t_loss_late(g, last);
    if (open)
        ls_checkpoint_end(g);
    ls_tensor *output = below(&d, 2) ? last : pick(&d, made, count);
    if (below(&d, 3) == 0) /* after the loss, which has computed its gradient by then */
        output = t_scale(g, t_square(g, t_dense(g, t_scale(g, last, 2), WIDTH)), 3);
    g->unshared_plan = unshared;
    OK(ls_graph_compile(g, loss, output));
    t_fill_all(g, seed + 1);
    return (made_graph){g, output, made[0]};
}

static void assert_same(const float *a, const float *b, size_t count, const char *what,
                        uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a))
            fail_msg("seed %u: %s: element %zu is %.9g, not %.9g", seed, what, i, (double)b[i],
                     (double)a[i]);
}

static void compare(const made_graph *a, const made_graph *b, uint32_t seed)
{
    for (size_t samples = BATCH; samples >= BATCH - 1; samples--) {
        ls_run_config config = LS_RUN_CONFIG_INIT;
        config.batch = samples;
        config.training = 1;
        config.step = 5;
        config.first_position = 100;
        ls_run_result x, y;
        OK(ls_graph_run(a->graph, &config, &x));
        OK(ls_graph_run(b->graph, &config, &y));
        assert_true(x.loss == y.loss && x.count == y.count);
        assert_same(ls_output_data(a->graph), ls_output_data(b->graph), samples * WIDTH, "output",
                    seed);
        config.backward = 1;
        OK(ls_graph_run(a->graph, &config, &x));
        OK(ls_graph_run(b->graph, &config, &y));
        assert_true(x.loss == y.loss);
        assert_same(ls_graph_grads(a->graph), ls_graph_grads(b->graph),
                    ls_graph_param_elements(a->graph), "gradients", seed);
        assert_same(ls_graph_observed(a->graph), ls_graph_observed(b->graph),
                    ls_graph_buffer_elements(a->graph), "observed", seed);
    }
}

/* The gradient along a random direction against the difference of the loss. */
static void check_gradient(const made_graph *m, uint32_t seed)
{
    ls_graph *g = m->graph;
    for (int n = 0; n < g->node_count; n++)
        if (!strcmp(g->nodes[n]->op->name, "stop"))
            return; /* the difference sees what the gradient was told not to */
    const size_t n = ls_graph_param_elements(g);
    const double loss = t_step(g);
    float *w = ls_graph_params(g), *start = malloc(n * sizeof *start),
          *way = calloc(n, sizeof *way);
    double slope = 0, size = 0;
    ls_param_info info;
    for (int i = 0; i < ls_graph_param_count(g); i++) {
        OK(ls_graph_param(g, i, &info));
        t_fill(way + info.offset, info.count, seed + 77 + (uint32_t)i);
    }
    memcpy(start, w, n * sizeof *w);
    for (size_t i = 0; i < n; i++) {
        slope += (double)way[i] * (double)ls_graph_grads(g)[i];
        size += fabs((double)way[i] * (double)ls_graph_grads(g)[i]);
    }
    const float step = 2e-3f;
    double found[2];
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.training = 1;
    config.step = 3;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++)
            w[i] = start[i] + (side ? step : -step) * way[i];
        ls_run_result result;
        OK(ls_graph_run(g, &config, &result));
        found[side] = result.loss;
    }
    const double difference = (found[1] - found[0]) / (2.0 * (double)step);
    if (fabs(difference - slope) > 0.03 * (size + fabs(loss)) + 1e-4)
        fail_msg("seed %u: slope %g, difference %g, loss %g", seed, slope, difference, loss);
    memcpy(w, start, n * sizeof *w);
    free(start);
    free(way);
}

static void test_random_graphs(void **state)
{
    (void)state;
    const uint32_t seeds = UNDER_SANITIZER ? 150 : 1500;
    size_t shared = 0, again = 0, apart = 0;
    for (uint32_t seed = 0; seed < seeds; seed++) {
        made_graph a = random_graph(seed, 0, 1), b = random_graph(seed, 0, 0),
                   c = random_graph(seed, 1, 0), d = random_graph(seed, 1, 1);
        check_apart(a.graph->memory, a.graph->memory_count, a.graph->peak);
        check_apart(b.graph->memory, b.graph->memory_count, b.graph->peak);
        check_apart(c.graph->memory, c.graph->memory_count, c.graph->peak);
        assert_true(b.graph->peak <= a.graph->peak);
        compare(&a, &b, seed);
        compare(&a, &c, seed);
        compare(&a, &d, seed);
        check_gradient(&b, seed);
        shared += b.graph->peak;
        again += c.graph->peak;
        apart += a.graph->peak;
        ls_graph_destroy(a.graph);
        ls_graph_destroy(b.graph);
        ls_graph_destroy(c.graph);
        ls_graph_destroy(d.graph);
    }
    assert_true((double)shared < 0.75 * (double)apart);
    assert_true(again < shared);
}

int main(void)
{
    setenv("LOCKSTEP_LOG", "error", 1); /* parameters that are not used */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planner),
        cmocka_unit_test(test_random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

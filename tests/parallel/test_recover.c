/* Workers that are killed anywhere in a step, or while they finish what others have left: whoever
 * comes after them ends with the weights, state, statistics and figures of a run that nobody has
 * disturbed, bit for bit.
 *
 * Arguments: which model is to be trained, and a pattern of tests (all).
 */
#include "crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "task.h"

#define MLP                                                                                        \
    "mlp",                                                                                         \
    {                                                                                              \
        "inputs=60", "hidden=280,150", "classes=5", "dropout=0.2"                                  \
    }
#define RESNET                                                                                     \
    "resnet:20",                                                                                   \
    {                                                                                              \
        "image=8", "width=7"                                                                       \
    }
#define DLRM                                                                                       \
    "dlrm",                                                                                        \
    {                                                                                              \
        "rows=450", "tables=8", "width=12", "bottom=16,8", "top=16"                                \
    }

static const task tasks[] = {
    {MLP, "sgd", 0.9f, 0},    {MLP, "adamw", 0, 0},     {MLP, "adamw", 0, 0.1f},
    {MLP, "lamb", 0, 0},      {RESNET, "sgd", 0.9f, 0}, {RESNET, "lamb", 0, 0.1f},
    {DLRM, "sgd", 0, 0},      {DLRM, "sgd", 0.9f, 0},   {DLRM, "adamw", 0, 0},
    {DLRM, "adamw", 0, 0.1f}, {DLRM, "lamb", 0, 0},
};

static const char *only; /* the model to be trained */

/* What the processes share with the test. */
typedef struct desk {
    const task *task;
    int plain;                       /* without a vault */
    int apart;                       /* each worker is a domain of its own */
    task_outcome outcome[CREW_MOST]; /* of each domain, by the slot of one of its workers */
} desk;

static desk *shared;
static task_outcome expected;
static char where[200]; /* for whoever reads of a failure */

static ls_status train(crew_worker *w, void *arg)
{
    desk *d = arg;
    task_outcome *out = &d->outcome[d->apart ? w->slot : 0];
    task_run run = {0};
    lsi_step_result result;
    LSI_TRY(task_open(d->task, w->comm, d->plain ? NULL : &w->keeper, &run));
    crew_safe(w);
    ls_status status = LS_OK;
    while (status == LS_OK && lsi_engine_steps(run.engine) < TASK_STEPS) {
        const uint64_t number = lsi_engine_steps(run.engine) + 1;
        crew_step(w, lsi_engine_replica(run.engine), number);
        status = task_step(&run, &result);
        crew_safe(w);
        if (status == LS_OK && d->plain) {
            out->loss[number - 1] = result.loss;
            out->norm[number - 1] = result.grad_norm;
            out->rate[number - 1] = (double)result.rate;
            out->count[number - 1] = result.count;
        }
    }
    crew_step(w, lsi_engine_replica(run.engine), TASK_STEPS + 1);
    if (status == LS_OK)
        status = task_leave(&run, out);
    crew_safe(w);
    task_close(&run);
    return status;
}

static const int everybody[] = {0, 1, 2};

/* A run of one worker that nobody disturbs, without a vault. */
static void expect(const task *t)
{
    crew c;
    shared->task = t;
    shared->plain = 1;
    shared->apart = 0;
    memset(shared->outcome, 0, sizeof shared->outcome);
    crew_open(&c, 1, 0, train, shared);
    assert_int_equal(crew_run(&c, everybody, 1, NULL), 0);
    crew_close(&c);
    expected = shared->outcome[0];
    shared->plain = 0;
}

/* All that have left something, which is at least one. */
static void assert_expected(void)
{
    int n = 0;
    for (int i = 0; i < CREW_MOST; i++) {
        const task_outcome *o = &shared->outcome[i];
        const char *what = o->n ? task_differs(o, &expected) : NULL;
        if (what)
            fail_msg("%s: %s", where, what);
        n += o->n != 0;
    }
    assert_true(n > 0);
}

static const char *name_of(const task *t)
{
    static char text[80];
    snprintf(text, sizeof text, "%s %s momentum %g clip %g", t->model, t->optimizer,
             (double)t->momentum, (double)t->clip);
    return text;
}

static int is_wanted(const task *t)
{
    return strncmp(t->model, only, strlen(only)) == 0;
}

/* The first `n` workers, until nobody dies. */
static void go_on(crew *c, int n)
{
    memset(shared->outcome, 0, sizeof shared->outcome);
    assert_int_equal(crew_run(c, everybody, n, NULL), 0);
    assert_expected();
}

/* ---- exact places ---------------------------------------------------------------------------- */

/* Slots of `n` workers, by rank: not the same, and not in order. */
static const int slots_of[CREW_MOST + 1][CREW_MOST] = {{0}, {1}, {2, 0}, {1, 2, 0}};

/* How many places worker `rank` of `n` passes in this step. */
static int count_places(int n, int rank, uint64_t step)
{
    crew c;
    crew_order orders[CREW_MOST] = {{0}};
    orders[slots_of[n][rank]] = (crew_order){.place = -1, .step = step};
    crew_open(&c, CREW_MOST, shared->apart, train, shared);
    assert_int_equal(crew_run(&c, slots_of[n], n, orders), 0);
    const int places = c.shared->places[slots_of[n][rank]];
    crew_close(&c);
    assert_expected();
    return places;
}

/* Worker `rank` of `n` dies at this place of the step; then the others go on alone, or with another
 * in its place, or (nobody is left) all are new. */
static void die_once(int n, int rank, uint64_t step, int place, int replaced)
{
    crew c;
    crew_order orders[CREW_MOST] = {{0}};
    int left[CREW_MOST], rest = 0;
    snprintf(where, sizeof where, "%s, %d workers, %d dies at place %d of step %d, %s",
             name_of(shared->task), n, rank, place, (int)step,
             replaced ? "replaced" : "not replaced");
    orders[slots_of[n][rank]] = (crew_order){.place = place, .step = step};
    crew_open(&c, CREW_MOST, shared->apart, train, shared);
    if (crew_run(&c, slots_of[n], n, orders) != 1)
        fail_msg("%s: it did not die", where);
    for (int i = 0; i < n; i++)
        if (replaced || n == 1 || i != rank)
            left[rest++] = slots_of[n][i];
    memset(shared->outcome, 0, sizeof shared->outcome);
    assert_int_equal(crew_run(&c, left, rest, NULL), 0);
    assert_expected();
    crew_close(&c);
}

/* `some` places of all, evenly, with the first and the last one. */
static int die_in_turn(int n, int rank, uint64_t step, int some)
{
    const int all = count_places(n, rank, step);
    int last = 0;
    assert_true(all > 5);
    some = (some < all ? some : all) / CREW_SLOW;
    for (int i = 0; i <= some; i++) {
        const int place = 1 + (int)((long)(all - 1) * i / some);
        if (place != last)
            die_once(n, rank, step, place, i % 2);
        last = place;
    }
    return all;
}

static void places_in_a_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (!is_wanted(&tasks[i]))
            continue;
        expect(&tasks[i]);
        for (int n = 1; n <= CREW_MOST; n += 2)
            die_in_turn(n, n - 1, 3, 6);
        const int all = die_in_turn(2, 0, 3, 6); /* the one that speaks for its host */
        die_once(2, 0, 3, all - 1, 0);           /* as it says that the figures are complete */
        assert_int_equal(shared->outcome[0].workers[2], 2); /* finished by one, computed by two */
        if (i % 4 == 1)
            die_in_turn(1, 0, 2, 40); /* nearly every place */
    }
}

/* On hosts of their own: sums come from elsewhere, and the state of others may be ahead. */
static void apart_in_a_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (!is_wanted(&tasks[i]))
            continue;
        expect(&tasks[i]);
        shared->apart = 1;
        die_in_turn(2, 0, 3, 4);
        die_in_turn(3, 2, 3, 4);
    }
}

/* While rows are brought up to date at the end. */
static void deaths_while_settling(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (!is_wanted(&tasks[i]) || strcmp(tasks[i].model, "dlrm") ||
            strcmp(tasks[i].optimizer, "lamb") == 0 || tasks[i].momentum == 0)
            continue;
        expect(&tasks[i]);
        die_in_turn(2, 0, TASK_STEPS + 1, 20);
    }
}

/* All of them, each at a place of its own. */
static void deaths_of_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (!is_wanted(&tasks[i]))
            continue;
        expect(&tasks[i]);
        for (int turn = 0; turn < 3; turn++) {
            crew c;
            crew_order orders[CREW_MOST];
            for (int k = 0; k < CREW_MOST; k++)
                orders[k] = (crew_order){.place = 12 + 25 * turn - 5 * k, .step = 2};
            snprintf(where, sizeof where, "%s, all die, turn %d", name_of(shared->task), turn);
            crew_open(&c, CREW_MOST, shared->apart, train, shared);
            crew_run(&c, everybody, CREW_MOST, orders); /* some have fewer places, and survive */
            go_on(&c, 1 + turn % CREW_MOST);
            crew_close(&c);
        }
    }
}

/* ---- while others finish --------------------------------------------------------------------- */

/* The first dies in the update at `place`; who finishes it dies at every `stride`th place of that;
 * and so on until one lives through it. */
static void die_finishing(int n, int place, int stride)
{
    for (int second = 1, died = 1; died; second += stride) {
        crew c;
        crew_order orders[CREW_MOST] = {{.place = place, .step = 3}};
        snprintf(where, sizeof where, "%s, %d workers, death at %d, then at %d of finishing",
                 name_of(shared->task), n, place, second);
        crew_open(&c, CREW_MOST, shared->apart, train, shared);
        crew_run(&c, everybody, n, orders);
        orders[0] = (crew_order){.place = second, .opening = 1};
        died = crew_run(&c, everybody, n, orders);
        orders[0].place += 3;
        if (died && second % 2)
            crew_run(&c, everybody, n, orders);
        go_on(&c, n);
        crew_close(&c);
    }
}

static void deaths_while_finishing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (!is_wanted(&tasks[i]))
            continue;
        expect(&tasks[i]);
        const int all = count_places(2, 0, 3);
        die_finishing(2, all / 2, 9 * CREW_SLOW);
        die_finishing(1, all - 3, 13 * CREW_SLOW);
    }
}

/* Before there is anything to be finished: when the vault is made and filled. */
static void deaths_at_the_beginning(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (!is_wanted(&tasks[i]) || tasks[i].clip > 0)
            continue;
        expect(&tasks[i]);
        for (int place = 1, died = 1; died; place += 11 * CREW_SLOW) {
            crew c;
            const crew_order orders[CREW_MOST] = {{.place = place, .opening = 1}};
            snprintf(where, sizeof where, "%s, death at %d of the beginning", name_of(shared->task),
                     place);
            crew_open(&c, CREW_MOST, shared->apart, train, shared);
            died = crew_run(&c, everybody, 2, orders);
            go_on(&c, 2);
            crew_close(&c);
        }
    }
}

/* ---- random moments -------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252u;

static unsigned random_below(unsigned most)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 32) % most;
}

/* Any number of workers in each generation, any of which may die at any time. */
static void try_moments(unsigned span_us)
{
    crew c;
    crew_open(&c, CREW_MOST, shared->apart, train, shared);
    for (int generation = 0; generation < 4; generation++) {
        crew_order orders[CREW_MOST] = {{0}};
        int slots[CREW_MOST], n = 0;
        for (int k = 0; k < CREW_MOST; k++) {
            if (random_below(3) || (k == CREW_MOST - 1 && !n))
                slots[n++] = k;
            if (random_below(3))
                orders[k].after_us = 1 + random_below(span_us);
        }
        crew_run(&c, slots, n, orders);
    }
    go_on(&c, 1 + (int)random_below(CREW_MOST));
    crew_close(&c);
}

static void random_moments(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (!is_wanted(&tasks[i]))
            continue;
        const double from = lsi_now();
        expect(&tasks[i]);
        const double span = lsi_now() - from;
        for (int turn = 0; turn < 6; turn++) {
            snprintf(where, sizeof where, "%s, random %d", name_of(shared->task), turn);
            try_moments((unsigned)(span * 1e6));
        }
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_in_a_step),       cmocka_unit_test(apart_in_a_step),
        cmocka_unit_test(deaths_while_settling),  cmocka_unit_test(deaths_of_all),
        cmocka_unit_test(deaths_while_finishing), cmocka_unit_test(deaths_at_the_beginning),
        cmocka_unit_test(random_moments),
    };
    only = count > 1 ? arguments[1] : "";
    if (count > 2)
        cmocka_set_test_filter(arguments[2]);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED || cmocka_run_group_tests(tests, NULL, NULL);
}

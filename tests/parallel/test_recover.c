/* Workers that are killed anywhere in a step, or while they finish what others have left: whoever
 * comes after them ends with the weights, state, statistics and figures of a run that nobody has
 * disturbed, bit for bit.
 *
 * The argument says which model is to be trained.
 */
#include "crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

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
    int plain; /* without a vault */
    task_outcome outcome;
} desk;

static desk *shared;
static task_outcome expected;
static char where[200]; /* for whoever reads of a failure */

static ls_status train(crew_worker *w, void *arg)
{
    desk *d = arg;
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
            d->outcome.loss[number - 1] = result.loss;
            d->outcome.norm[number - 1] = result.grad_norm;
            d->outcome.rate[number - 1] = (double)result.rate;
            d->outcome.count[number - 1] = result.count;
        }
    }
    if (status == LS_OK)
        status = task_leave(&run, &d->outcome);
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
    crew_open(&c, 1, train, shared);
    assert_int_equal(crew_run(&c, everybody, 1, NULL), 0);
    crew_close(&c);
    expected = shared->outcome;
    shared->plain = 0;
}

static void assert_expected(void)
{
    const char *what = task_differs(&shared->outcome, &expected);
    if (what)
        fail_msg("%s: %s", where, what);
}

static const char *name_of(const task *t)
{
    static char text[80];
    snprintf(text, sizeof text, "%s %s momentum %g clip %g", t->model, t->optimizer,
             (double)t->momentum, (double)t->clip);
    return text;
}

/* ---- exact places ------------------------------------------------------------------------------ */

/* How many places worker `slot` of `n` passes in step 3. */
static int count_places(int n, int slot)
{
    crew c;
    crew_order orders[CREW_MOST] = {{0}};
    orders[slot] = (crew_order){.place = -1, .step = 3};
    crew_open(&c, CREW_MOST, train, shared);
    assert_int_equal(crew_run(&c, everybody, n, orders), 0);
    const int places = c.shared->places[slot];
    crew_close(&c);
    assert_expected();
    return places;
}

/* Worker `slot` of `n` dies at this place of step 3; then the others go on alone, or with another
 * in its place, or (nobody is left) all are new. */
static void die_once(int n, int slot, int place, int replaced)
{
    crew c;
    crew_order orders[CREW_MOST] = {{0}};
    int left[CREW_MOST], rest = 0;
    snprintf(where, sizeof where, "%s, %d workers, %d dies at place %d, %s", name_of(shared->task),
             n, slot, place, replaced ? "replaced" : "not replaced");
    orders[slot] = (crew_order){.place = place, .step = 3};
    crew_open(&c, CREW_MOST, train, shared);
    if (crew_run(&c, everybody, n, orders) != 1)
        fail_msg("%s: it did not die", where);
    for (int i = 0; i < n; i++)
        if (replaced || n == 1 || i != slot)
            left[rest++] = i;
    memset(&shared->outcome, 0, sizeof shared->outcome);
    assert_int_equal(crew_run(&c, left, rest, NULL), 0);
    assert_expected();
    crew_close(&c);
}

/* `some` places of all, evenly, and the last one. */
static void die_in_turn(int n, int slot, int some)
{
    const int all = count_places(n, slot);
    int last = 0;
    assert_true(all > 5);
    for (int i = 0; i <= some; i++) {
        const int place = 1 + (int)((long)(all - 1) * i / some);
        if (place != last)
            die_once(n, slot, place, i % 2);
        last = place;
    }
}

static void test_places(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        if (strncmp(tasks[i].model, only, strlen(only)))
            continue;
        expect(&tasks[i]);
        for (int n = 1; n <= CREW_MOST; n++)
            die_in_turn(n, n - 1, 12);
        die_in_turn(2, 0, 12); /* the one that speaks for its host */
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
    };
    only = count > 1 ? arguments[1] : "";
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED || cmocka_run_group_tests(tests, NULL, NULL);
}

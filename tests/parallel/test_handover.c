/* Domains that have missed steps, or have just come, get the state of those who have the most; and
 * all go on as if nobody had been away. */
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/algorithm.h"
#include "parallel/handover.h"
#include "task.h"

enum { MOST = 8 };

/* A keeper for each domain; members of one domain share its vault, as threads can. */
typedef struct vaults {
    struct kept {
        lsi_vault *vault;
        char told[3]; /* "w": it is whole; "s": spoilt */
    } of[MOST];
    int members[MOST];
} vaults;

static ls_status get_vault(void *arg, const lsi_vault_shape *shape, int make, lsi_vault **out)
{
    struct kept *kept = arg;
    if (!kept->vault && make)
        LSI_TRY(lsi_vault_create(shape, NULL, &kept->vault));
    *out = kept->vault;
    return LS_OK;
}

static void note(void *arg, int whole)
{
    struct kept *kept = arg;
    const size_t n = strlen(kept->told);
    kept->told[n < 2 ? n : 1] = whole ? 'w' : 's';
}

/* Of this rank: `domain` says whose vault it is. */
static lsi_keeper keeper_of(vaults *v, int domain, int member)
{
    return (lsi_keeper){&v->of[domain], member, v->members[domain], get_vault, note};
}

static void close_vaults(vaults *v)
{
    for (int i = 0; i < MOST; i++)
        lsi_vault_close(v->of[i].vault);
    memset(v, 0, sizeof *v);
}

/* ---- who sends what -------------------------------------------------------------------------- */

/* What each domain has: "-" nothing, a digit: so many steps, "?": it was on its way. */
typedef struct trial {
    const char *hosts, *have;
    int buffers;
    int steps; /* in the end; -1: nobody has any; LOST: nobody has any more */
    vaults vaults;
} trial;

enum { ELEMENTS = 70000, LOST = -2 };

static float pattern(int domain, size_t i)
{
    return (float)(domain + 1) * 1000003.0f + (float)(i % 9973);
}

static void prepare(lsi_replica *r, const trial *t, int domain)
{
    lsi_vault_head *head = r->vault->head;
    const size_t n = r->elements + r->state_bytes / sizeof(float);
    for (size_t i = 0; i < n; i++)
        r->weights[i] = pattern(domain, i);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < t->buffers; i++)
            r->vault->buffers[k][i] = pattern(domain + 10 + k, (size_t)i);
    for (uint64_t i = 0; i < LSI_VAULT_FIGURES; i++) {
        head->figures[i].loss = domain + (double)i / 1024;
        atomic_store(&head->figures[i].number, i);
    }
    head->judged_loss = domain + 0.5;
    atomic_store(&head->judged, (uint64_t)domain + 1);
    if (t->have[domain] == '-')
        return;
    const int arriving = t->have[domain] == '?';
    atomic_store(&head->steps, arriving ? 9 : (uint64_t)(t->have[domain] - '0'));
    atomic_store(&head->filled, arriving ? LSI_VAULT_ARRIVING : LSI_VAULT_FULL);
}

static int is_source(const trial *t, int domain)
{
    return t->have[domain] >= '0' && t->have[domain] <= '9' && t->have[domain] - '0' == t->steps;
}

/* The domain whose values element i must have in `domain` afterwards. Each sends a part of the
 * weights, and a part of what is behind them. */
static int origin(const trial *t, const lsi_replica *r, int domain, size_t i)
{
    const int is_weight = i < r->elements;
    const size_t bytes = is_weight ? r->elements * sizeof(float) : r->state_bytes;
    const size_t at = (is_weight ? i : i - r->elements) * sizeof(float);
    int sources = 0, place = 0;
    if (t->steps < 0 || is_source(t, domain))
        return domain;
    for (int d = 0; d < r->domain.count; d++)
        sources += is_source(t, d);
    for (int d = 0; d < r->domain.count; d++) {
        size_t from, to;
        if (!is_source(t, d))
            continue;
        lsi_part(bytes, sources, place++, &from, &to);
        if (at >= from && at + sizeof(float) <= to)
            return d;
    }
    return -1; /* it is cut in two */
}

static void check_state(rank *self, const lsi_replica *r, const trial *t, int domain, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int d = origin(t, r, domain, i);
        CHECK(self, d < 0 || r->weights[i] == pattern(d, i), "element %zu is %.9g, not %.9g", i,
              (double)r->weights[i], (double)pattern(d, i));
    }
}

static void check(rank *self, lsi_replica *r, const trial *t, int domain)
{
    const lsi_vault_head *head = r->vault->head;
    int first = 0, sources = 0;
    while (t->steps >= 0 && !is_source(t, first))
        first++;
    for (int d = 0; d < r->domain.count; d++)
        sources += is_source(t, d);
    /* where anything is sent, these go to all: in earnest those who have the state agree on it */
    const int from = sources == 0 || sources == r->domain.count ? domain : first;
    check_state(self, r, t, domain, r->elements + r->state_bytes / sizeof(float));
    CHECK(self, (atomic_load(&head->filled) == LSI_VAULT_FULL) == (t->steps >= 0), "%d",
          (int)atomic_load(&head->filled));
    for (int i = 0; t->steps >= 0 && i < t->buffers; i++) {
        const int now = t->steps & 1;
        CHECK(self, r->vault->buffers[now][i] == pattern(from + 10 + now, (size_t)i), "buffer");
    }
    for (uint64_t i = 0; i < LSI_VAULT_FIGURES; i++)
        CHECK(self,
              atomic_load(&head->figures[i].number) == i &&
                  head->figures[i].loss == from + (double)i / 1024,
              "figures %d: %g", (int)i, head->figures[i].loss);
    CHECK(self, head->judged_loss == from + 0.5 && atomic_load(&head->judged) == (uint64_t)from + 1,
          "%g, %d", head->judged_loss, (int)head->judged);
}

static void hand_over(rank *self)
{
    trial *t = self->arg;
    const ls_param_info param = {.name = "w", .ndim = 1, .dims = {ELEMENTS}, .count = ELEMENTS};
    ls_optim_config optim = LS_OPTIM_CONFIG_INIT;
    optim.name = "adam";
    lsi_domain d;
    OK(self, lsi_domain_open(self->comm, &d));
    const int domain = d.index, member = d.member;
    if (member == 0)
        t->vaults.members[domain] = d.members;
    lsi_domain_close(&d);
    rank_meet(self);
    const lsi_keeper keeper = keeper_of(&t->vaults, domain, member);
    const lsi_replica_setup setup = {.shards = 8,
                                     .params = &param,
                                     .n_params = 1,
                                     .elements = ELEMENTS,
                                     .optimizer = &optim,
                                     .batch = 8,
                                     .keeper = &keeper,
                                     .buffers = (size_t)t->buffers};
    lsi_replica *r;
    int filled = -1;
    uint64_t steps = 77;
    OK(self, lsi_replica_open(self->comm, &setup, &r));
    if (member == 0)
        prepare(r, t, domain);
    rank_meet(self);
    if (t->steps == LOST) {
        CHECK(self, lsi_handover(r, &filled, &steps) == LS_ERR_INVALID, "%s", ls_last_error());
    } else {
        OK(self, lsi_handover(r, &filled, &steps));
        CHECK(self, filled == (t->steps >= 0), "%d", filled);
        CHECK(self, t->steps < 0 || steps == (uint64_t)t->steps, "%d", (int)steps);
        OK(self, lsi_handover_weights(r));
        check_state(self, r, t, domain, r->elements);
        lsi_handover_look(r);
        OK(self, lsi_handover_finish(r));
        rank_meet(self);
        check(self, r, t, domain);
        const char *told = t->vaults.of[domain].told;
        const int has = t->have[domain] == '0' + t->steps;
        CHECK(self, strcmp(told, t->steps < 0 ? "" : has ? "w" : "sw") == 0, "%s", told);
    }
    rank_meet(self);
    lsi_replica_close(r);
}

static void test_who_sends_what(void **state)
{
    (void)state;
    static const struct {
        const char *hosts; /* NULL: tcp, each rank a domain */
        const char *have;
        int buffers, steps;
    } cases[] = {
        {NULL, "-", 5, -1},      {NULL, "3", 5, 3},      {NULL, "--", 0, -1},
        {NULL, "44", 5, 4},      {NULL, "4-", 5, 4},     {NULL, "-4", 5, 4},
        {NULL, "43", 0, 4},      {NULL, "34", 3000, 4},  {NULL, "55-", 5, 5},
        {NULL, "-55", 5, 5},     {NULL, "5-5", 5, 5},    {NULL, "0--", 5, 0},
        {NULL, "2-13", 5, 3},    {NULL, "-3-33", 5, 3},  {"2+1", "-6", 5, 6},
        {"2+1", "6-", 5, 6},     {"2+1+2", "7-7", 5, 7}, {"1+2+1", "78-", 0, 8},
        {"2+2+1", "---", 5, -1}, {NULL, "?5?", 5, 5},    {NULL, "?", 5, LOST},
        {NULL, "-?", 5, LOST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trial t = {.have = cases[i].have, .buffers = cases[i].buffers, .steps = cases[i].steps};
        const ranks_layout layout =
            cases[i].hosts ? ranks_hosts(cases[i].hosts) : ranks_tcp((int)strlen(cases[i].have));
        ranks_run(&layout, hand_over, &t);
        close_vaults(&t.vaults);
    }
}

/* ---- training -------------------------------------------------------------------------------- */

typedef struct course {
    const task *task;
    vaults vaults;
    const char *who; /* the domain of each rank, as digits */
    uint64_t until;
    int plain;
    int leave_at; /* of the first rank, in a step that it asks to be left: task_run */
    int left;
    int touches; /* in the end each brings some rows up to date, others than the others */
    task_outcome expected, *out; /* [MOST] */
} course;

/* As a step does that nobody ends. */
static void touch_some(rank *self, lsi_engine *engine)
{
    lsi_replica *r = lsi_engine_replica(engine);
    for (int p = 0; p < r->n_params; p++)
        for (size_t row = 0; r->params[p].sparse && row < r->params[p].dims[0]; row++) {
            const int32_t id = (int32_t)row;
            if ((int)row % self->size == self->rank)
                OK(self, lsi_transaction_touch(r, p, &id, 1));
        }
}

static void go_on(rank *self)
{
    course *c = self->arg;
    const int domain = c->who[self->rank] - '0';
    const lsi_keeper keeper = keeper_of(&c->vaults, domain, 0);
    task_run run = {0};
    lsi_step_result result;
    rank_case(self, "%s: %s until %d", c->task->model, c->who, (int)c->until);
    OK(self, task_open(c->task, self->comm, c->plain ? NULL : &keeper, &run));
    run.leave_at = self->rank == 0 ? c->leave_at : 0;
    rank_meet(self); /* a step can be left before others have come to it */
    int left = 0;
    while (lsi_engine_steps(run.engine) < c->until && !left) {
        const uint64_t n = lsi_engine_steps(run.engine);
        const ls_status status = task_step(&run, &result);
        left = c->leave_at && status == LS_ERR_ABORTED;
        if (left) {
            CHECK(self, strstr(ls_last_error(), "to be computed anew"), "%s", ls_last_error());
            CHECK(self, lsi_engine_steps(run.engine) == n, "a step more");
            continue;
        }
        OK(self, status);
        if (c->plain) {
            c->expected.loss[n] = result.loss;
            c->expected.norm[n] = result.grad_norm;
            c->expected.rate[n] = (double)result.rate;
            c->expected.count[n] = result.count;
        }
    }
    if (c->touches)
        touch_some(self, run.engine);
    if (c->plain)
        OK(self, task_leave(&run, &c->expected));
    else if (c->until == TASK_STEPS && !left)
        OK(self, task_leave(&run, &c->out[self->rank]));
    if (self->rank == 0)
        c->left = left;
    rank_meet(self);
    task_close(&run);
}

static void attend(course *c, const char *who, uint64_t until)
{
    const ranks_layout layout = ranks_tcp((int)strlen(who));
    c->who = who;
    c->until = until;
    for (int i = 0; i < MOST; i++)
        c->vaults.members[i] = 1;
    ranks_run(&layout, go_on, c);
}

static void test_training(void **state)
{
    (void)state;
    static const task tasks[] = {
        {"mlp", {"inputs=60", "hidden=70", "classes=5"}, "adamw", 0, 0.1f},
        {"resnet:20", {"image=8", "width=3"}, "sgd", 0.9f, 0},
        {"dlrm", {"rows=450", "tables=3", "width=12", "bottom=8", "top=8"}, "adamw", 0, 0},
        {"dlrm", {"rows=450", "tables=3", "width=12", "bottom=8", "top=8"}, "lamb", 0, 0},
    };
    static course c;
    static task_outcome out[MOST];
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        c.task = &tasks[i];
        c.out = out;
        c.plain = 1;
        attend(&c, "0", TASK_STEPS);
        c.plain = 0;
        attend(&c, "012", 2);
        c.touches = 1;
        attend(&c, "02", 3); /* 1 stays behind */
        c.touches = 0;
        attend(&c, "3102", TASK_STEPS); /* and 3 is new, and first */
        for (int d = 0; d < 4; d++) {
            const char *what = task_differs(&out[d], &c.expected);
            if (what)
                fail_msg("%s %s, rank %d: %s", tasks[i].model, tasks[i].optimizer, d, what);
        }
        close_vaults(&c.vaults);
    }
}

/* A step is left at each of the moments at which it can be; those who come, and those who stay, do
 * it again. */
static void test_steps_that_are_left(void **state)
{
    (void)state;
    static const task tasks[] = {
        {"mlp", {"inputs=60", "hidden=70", "classes=5"}, "adamw", 0, 0.1f},
        {"dlrm", {"rows=450", "tables=3", "width=12", "bottom=8", "top=8"}, "adamw", 0, 0},
    };
    static const char *const layouts[][2] = {{"0", "01"}, {"01", "201"}};
    static course c;
    static task_outcome out[MOST];
    int moments = 0;
    for (size_t i = 0; i < 2 * sizeof tasks / sizeof *tasks; i++) {
        const char *before = layouts[i % 2][0], *after = layouts[i % 2][1];
        c = (course){.task = &tasks[i / 2], .out = out, .plain = 1};
        attend(&c, "0", TASK_STEPS);
        c.plain = 0;
        for (int at = 1; c.left || at == 1; at += 3, moments++) {
            c.leave_at = 0;
            attend(&c, before, 1);
            c.leave_at = at;
            attend(&c, before, 2);
            const int left = c.left;
            c.leave_at = 0;
            attend(&c, after, TASK_STEPS);
            c.left = left;
            for (size_t d = 0; d < strlen(after); d++) {
                const char *what = task_differs(&out[d], &c.expected);
                if (what)
                    fail_msg("%s %s, left at %d: %s", c.task->model, before, at, what);
            }
            close_vaults(&c.vaults);
        }
    }
    assert_true(moments > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_sends_what),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_steps_that_are_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

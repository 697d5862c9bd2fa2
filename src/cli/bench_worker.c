/* One rank of lockstep bench: measures, and as rank 0 has it printed.
 *
 * For each size: check out of place and in place, then time one of them, then check once more. The
 * timed calls follow each other at once, as those of a training step do; only where a root sends
 * or receives alone there is a barrier before each, which is not timed: else ranks would run ahead
 * of each other, and the median of bursts and stalls would tell neither.
 *
 * Invariants:
 * 1. All ranks make the same calls: whatever depends on time, or on the output's fate, is decided
 *    by rank 0 and broadcast.
 * 2. Counts of errors are gathered, not reduced: a broken reduction must not hide itself.
 * 3. Repeated calls out of place give the same result, so that it can be compared after the timed
 *    ones, too. In place the input is zero for that time, lest sums grow without end.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "cli/cli.h"
#include "coll/comm.h"
#include <lockstep/coll.h>

#define TRIAL_S 0.02
#define TIMED_S 0.3
#define CALLS_MIN 5
#define SAMPLES_MAX 10000
#define BARRIER_ROUNDS 4
#define BARRIER_LATE_NS 300000

typedef struct bench {
    const lsi_bench_options *o;
    ls_comm *comm;
    lsi_bench_call call;
    int n_sizes;
    double *samples;   /* [SAMPLES_MAX] seconds a call */
    int64_t wrong;     /* of all ranks and sizes */
    double busbw;      /* sum over the sizes */
    int64_t no_output; /* rank 0: errno of the output, EPIPE when its reader has enough */
} bench;

static int is_first(const bench *b)
{
    return b->call.rank == 0;
}

/* Rank 0's value for all. */
static ls_status agree(const bench *b, int64_t *value)
{
    return ls_broadcast(b->comm, value, 1, LS_I64, 0);
}

static ls_status slowest(const bench *b, double *seconds, size_t n)
{
    return ls_allreduce(b->comm, LS_IN_PLACE, seconds, n, LS_F64, LS_MAX);
}

static ls_status add_up(const bench *b, int64_t *value)
{
    int64_t all[LSI_MAX_RANKS], sum = 0;
    LSI_TRY(ls_allgather(b->comm, value, all, 1, LS_I64));
    for (int r = 0; r < b->call.size; r++)
        sum += all[r];
    *value = sum;
    return LS_OK;
}

/* Is there a barrier before each timed call? */
static int must_meet(const bench *b)
{
    return b->o->op->root_sends || b->o->op->root_receives;
}

static ls_status repeat(const bench *b, int64_t calls, int meet)
{
    for (int64_t i = 0; i < calls; i++) {
        if (meet)
            LSI_TRY(ls_barrier(b->comm));
        LSI_TRY(lsi_bench_run(&b->call));
    }
    return LS_OK;
}

/* How long does a call take, roughly? Ever more of them until it can be told. */
static ls_status try_out(const bench *b, double *call_s)
{
    double elapsed = 0;
    int64_t calls = 0, next = 1;
    while (next > 0) {
        calls = next;
        LSI_TRY(ls_barrier(b->comm));
        double start = lsi_now();
        LSI_TRY(repeat(b, calls, must_meet(b)));
        elapsed = lsi_now() - start;
        LSI_TRY(slowest(b, &elapsed, 1));
        double more = elapsed > 0 ? 1.2 * TRIAL_S / elapsed : 8;
        next = elapsed >= TRIAL_S ? 0 : (int64_t)((double)calls * (more < 8 ? more : 8)) + 1;
        LSI_TRY(agree(b, &next));
    }
    *call_s = elapsed / (double)calls;
    return LS_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Time `n` samples of `batch` calls each. */
static ls_status sample(const bench *b, int64_t n, int64_t batch)
{
    LSI_TRY(ls_barrier(b->comm));
    uint64_t last = lsi_now_ns();
    for (int64_t i = 0; i < n; i++) {
        if (must_meet(b)) {
            LSI_TRY(ls_barrier(b->comm));
            last = lsi_now_ns();
        }
        LSI_TRY(repeat(b, batch, 0));
        uint64_t now = lsi_now_ns();
        b->samples[i] = (double)(now - last) * 1e-9 / (double)batch;
        last = now;
    }
    return LS_OK;
}

static ls_status measure(const bench *b, lsi_bench_row *out)
{
    int64_t calls = b->o->iters;
    LSI_TRY(repeat(b, b->o->warmup, must_meet(b)));
    if (calls == 0) {
        double call_s = 0;
        LSI_TRY(try_out(b, &call_s));
        calls = (int64_t)(TIMED_S / call_s) + 1;
        calls = calls < CALLS_MIN ? CALLS_MIN : calls;
        if (must_meet(b) && calls > SAMPLES_MAX)
            calls = SAMPLES_MAX; /* a sample of several calls would let ranks run ahead */
    }
    LSI_TRY(agree(b, &calls));
    int64_t batch = (calls + SAMPLES_MAX - 1) / SAMPLES_MAX, n = (calls + batch - 1) / batch;
    LSI_TRY(sample(b, n, batch));
    qsort(b->samples, (size_t)n, sizeof *b->samples, by_value);
    double times[2] = {(b->samples[(n - 1) / 2] + b->samples[n / 2]) / 2, b->samples[0]};
    LSI_TRY(slowest(b, times, 2));
    out->time_s = times[0];
    out->min_s = times[1];
    return LS_OK;
}

/* Nobody may leave before the last has entered. Clocks can be compared on one host only. */
static ls_status check_barrier(const bench *b, int64_t *wrong)
{
    int64_t mine[2], all[2 * LSI_MAX_RANKS];
    for (int round = 0; round < BARRIER_ROUNDS && b->comm->world->hosts == 1; round++) {
        LSI_TRY(ls_barrier(b->comm));
        if (b->call.rank == round % b->call.size) {
            struct timespec late = {0, BARRIER_LATE_NS};
            nanosleep(&late, NULL);
        }
        mine[0] = (int64_t)lsi_now_ns();
        LSI_TRY(ls_barrier(b->comm));
        mine[1] = (int64_t)lsi_now_ns();
        LSI_TRY(ls_allgather(b->comm, mine, all, 2, LS_I64));
        int early = 0;
        for (int r = 0; r < b->call.size; r++)
            early |= mine[1] < all[2 * r];
        *wrong += early;
    }
    return LS_OK;
}

/* A call on fresh input. */
static ls_status check_once(bench *b, int in_place, int root, int64_t *wrong)
{
    b->call.in_place = in_place;
    b->call.root = root;
    lsi_bench_fill(&b->call);
    LSI_TRY(lsi_bench_run(&b->call));
    *wrong += (int64_t)lsi_bench_wrong(&b->call);
    return LS_OK;
}

static ls_status check(bench *b, int64_t *wrong)
{
    const lsi_bench_op *op = b->o->op;
    if (op->coll == LSI_BARRIER)
        return check_barrier(b, wrong);
    LSI_TRY(check_once(b, 0, 0, wrong));
    return op->in_place ? check_once(b, 1, b->call.size - 1, wrong) : LS_OK;
}

static ls_status measure_size(bench *b, size_t bytes, lsi_bench_row *out)
{
    lsi_bench_call *c = &b->call;
    lsi_bench_row r = {0};
    lsi_bench_deal(c, lsi_bench_count(c->op, bytes, c->dtype, c->size));
    if (b->o->check)
        LSI_TRY(check(b, &r.wrong));
    c->in_place = b->o->in_place;
    c->root = 0;
    lsi_bench_fill(c);
    if (c->in_place)
        memset(c->recv, 0, lsi_bench_bytes(c->op, c->count, c->dtype, c->size));
    LSI_TRY(measure(b, &r));
    if (b->o->check && !c->in_place)
        r.wrong += (int64_t)lsi_bench_wrong(c);
    LSI_TRY(add_up(b, &r.wrong));
    *out = r;
    return LS_OK;
}

/* Rank 0: print the line and flush; notes when nobody takes it. */
static void show(bench *b, lsi_bench_row *r)
{
    const lsi_bench_call *c = &b->call;
    double n = r->time_s > 0 ? 1e-9 / r->time_s : 0;
    r->bytes = lsi_bench_bytes(c->op, c->count, c->dtype, c->size);
    /* Rules are about one block, where there are several; of unequal ones about the mean. */
    size_t bytes = c->op->uneven ? r->bytes / (size_t)c->size : c->count * ls_dtype_size(c->dtype);
    r->algorithm = lsi_algorithm_names[lsi_select(&b->comm->selection, c->op->coll, bytes)];
    r->count = c->count;
    r->algbw = (double)r->bytes * n;
    r->busbw = r->algbw * lsi_bench_bus_factor(c->op, c->size);
    b->busbw += r->busbw;
    lsi_bench_print_row(b->o, b->comm, r);
    b->no_output = fflush(stdout) != 0 ? errno : 0;
    if (b->no_output && b->no_output != EPIPE)
        lsi_log(LSI_LOG_ERROR, "cannot write the results: %s", strerror(errno));
}

static ls_status measure_all(bench *b)
{
    int sizes = b->o->op->send == LSI_BENCH_NONE ? 1 : b->n_sizes;
    if (is_first(b)) {
        lsi_bench_print_header(b->o, b->comm);
        fflush(stdout);
    }
    for (int i = 0; i < sizes; i++) {
        lsi_bench_row r;
        LSI_TRY(measure_size(b, b->o->sizes[i], &r));
        b->wrong += r.wrong;
        if (is_first(b))
            show(b, &r);
        LSI_TRY(agree(b, &b->no_output));
        if (b->no_output)
            return LS_OK;
    }
    if (is_first(b))
        lsi_bench_print_end(b->o, b->busbw / sizes, b->wrong);
    return LS_OK;
}

/* Of the default sizes, those whose buffers take at most half of every host's memory. */
static ls_status fit_sizes(bench *b)
{
    double n = b->o->n_sizes;
    size_t memory = lsi_cli_memory("MemAvailable"), ranks = (size_t)ls_comm_local_size(b->comm);
    while (!b->o->sizes_given && memory && n > 1 &&
           b->o->sizes[(int)n - 1] * 2 * ranks > memory / 2)
        n--;
    LSI_TRY(ls_allreduce(b->comm, LS_IN_PLACE, &n, 1, LS_F64, LS_MIN));
    b->n_sizes = (int)n;
    return LS_OK;
}

static ls_status get_memory(bench *b, size_t bytes, char **out)
{
    void *memory = NULL;
    if (!b->o->private_memory)
        LSI_TRY(ls_alloc(b->comm, bytes + 1, &memory));
    else if (posix_memalign(&memory, 4096, bytes + 1) != 0)
        return lsi_fail(LS_ERR_NOMEM, "measure smaller sizes", "bench", "no %zu bytes of memory",
                        bytes);
    *out = memory;
    return LS_OK;
}

static ls_status prepare(bench *b)
{
    const lsi_bench_options *o = b->o;
    const lsi_world *w = b->comm->world;
    size_t most = 0;
    b->call = (lsi_bench_call){.comm = b->comm,
                               .op = o->op,
                               .dtype = o->dtype,
                               .reduction = o->reduction,
                               .rank = ls_comm_rank(b->comm),
                               .size = ls_comm_size(b->comm)};
    if (o->rules && o->op->coll != LSI_P2P)
        LSI_TRY(ls_comm_select(b->comm, o->op->name, o->rules));
    LSI_TRY(fit_sizes(b));
    for (int i = 0; i < b->n_sizes; i++) {
        size_t count = lsi_bench_count(o->op, o->sizes[i], o->dtype, w->size);
        size_t bytes = lsi_bench_bytes(o->op, count, o->dtype, w->size);
        most = bytes > most ? bytes : most;
    }
    b->samples = calloc(SAMPLES_MAX, sizeof *b->samples);
    if (!b->samples)
        return lsi_fail(LS_ERR_NOMEM, NULL, "bench", "out of memory");
    LSI_TRY(get_memory(b, most, &b->call.recv));
    if (o->op->coll != LSI_BROADCAST)
        LSI_TRY(get_memory(b, most, &b->call.send));
    return LS_OK;
}

int lsi_bench_work(const lsi_bench_options *options)
{
    bench b = {.o = options};
    ls_config config = LS_CONFIG_INIT;
    config.transport = options->transport;
    prctl(PR_SET_NAME, "lockstep"); /* else ps shows /proc/self/exe as "exe" */
    signal(SIGPIPE, SIG_IGN);
    ls_status status = ls_init(&config, &b.comm);
    if (status == LS_OK)
        status = prepare(&b);
    if (status == LS_OK)
        status = measure_all(&b);
    if (status != LS_OK) {
        lsi_log(LSI_LOG_ERROR, "%s", ls_last_error());
        if (!b.comm || b.comm->failed == LS_OK)
            return LSI_CLI_FAILED; /* our death tells the others; a polite leave would wait */
    }
    if (options->private_memory) {
        free(b.call.send);
        free(b.call.recv);
    }
    free(b.samples);
    ls_finalize(b.comm);
    int lost = b.no_output && b.no_output != EPIPE;
    return status != LS_OK || b.wrong || lost ? LSI_CLI_FAILED : 0;
}

/* Every collective in turn, until something fails or SIGTERM says that it is enough.
 *
 *     loop [SEED [SECONDS [COLLECTIVE]]]
 *
 * The order is drawn from the seed, the same on all ranks; every other round is the COLLECTIVE, if
 * one is named. Without SECONDS, or with 0, there is no end. Results are checked. Each rank says
 * {"rank", "pid"} once it is inside, then nothing, then {"rank", "rounds"} with status 0, or the
 * failure (report.h) with status 3.
 */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include "report.h"

#define ELEMENTS ((size_t)96 << 10) /* of a buffer: 384 KiB */
#define RANKS_MAX 256
#define AGREE 8 /* rounds */

static const char *const algorithms[] = {"direct", "hd", "ring", "tree"};
static const size_t counts[] = {1, 13, 1000, 3000, 20000, ELEMENTS};
enum {
    ALLREDUCE,
    REDUCE,
    REDUCE_SCATTER,
    ALLGATHER,
    ALLGATHERV,
    BROADCAST,
    GATHER,
    SCATTER,
    ALLTOALL,
    ALLTOALLV,
    BARRIER,
    RING,
    TWO,
    PART,
    KINDS
};
static const char *const names[KINDS] = {"allreduce",  "reduce",    "reduce_scatter", "allgather",
                                         "allgatherv", "broadcast", "gather",         "scatter",
                                         "alltoall",   "alltoallv", "barrier",        "send/recv",
                                         "started",    "split"};

typedef struct state {
    ls_comm *world;
    int rank, size;
    float *in, *out;         /* of this step: shared or private */
    float *shared, *foreign; /* 2 * ELEMENTS each */
    int favourite;           /* KINDS: none */
    uint64_t random;
} state;

static volatile sig_atomic_t enough;

static void on_term(int number)
{
    (void)number;
    enough = 1;
}

static size_t draw(state *s, size_t below)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(s->random >> 33) % below;
}

static void fill(state *s, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        s->in[i] = value;
    s->out[0] = s->out[count - 1] = -1;
}

/* The ends of the result stand for all of it. */
static void expect(const state *s, const char *what, size_t last, double first_value,
                   double last_value)
{
    if (s->out[0] == (float)first_value && s->out[last] == (float)last_value)
        return;
    say("{\"rank\": %d, \"doing\": \"%s\", \"status\": \"WRONG\", \"text\": \"%g and %g, not %g "
        "and %g\", \"at\": %.6f}",
        s->rank, what, (double)s->out[0], (double)s->out[last], first_value, last_value, now_s());
    _exit(4);
}

/* To the next rank, from the one before. */
static ls_status pass_on(state *s, size_t count)
{
    int to = (s->rank + 1) % s->size, from = (s->rank + s->size - 1) % s->size;
    ls_request *incoming = NULL;
    if (s->size == 1)
        return LS_OK;
    ls_status status = ls_recv_start(s->world, s->out, count, LS_F32, from, 7, &incoming);
    if (status == LS_OK)
        status = ls_send(s->world, s->in, count, LS_F32, to, 7);
    ls_status end = ls_request_wait(&incoming, 0);
    if (status == LS_OK && end == LS_OK)
        expect(s, "send/recv", count - 1, from + 1, from + 1);
    return status == LS_OK ? end : status;
}

/* Two operations under way at once. */
static ls_status two_at_once(state *s, size_t count)
{
    ls_request *a = NULL, *b = NULL;
    float mine = (float)s->rank, most = 0;
    ls_status status = ls_allreduce_start(s->world, s->in, s->out, count, LS_F32, LS_SUM, &a);
    if (status == LS_OK)
        status = ls_allreduce_start(s->world, &mine, &most, 1, LS_F32, LS_MAX, &b);
    ls_status end_b = ls_request_wait(&b, 0), end_a = ls_request_wait(&a, 0);
    return status != LS_OK ? status : end_b != LS_OK ? end_b : end_a;
}

static ls_status split_and_sum(state *s, size_t count)
{
    ls_comm *part = NULL;
    ls_status status = ls_comm_split(s->world, 0, s->rank, &part);
    if (status == LS_OK)
        status = ls_allreduce(part, s->in, s->out, count, LS_F32, LS_SUM);
    ls_comm_destroy(part);
    return status;
}

/* Blocks of two sizes, half of them shorter. */
static ls_status uneven(state *s, int what, size_t block)
{
    size_t each[RANKS_MAX], all = 0;
    for (int r = 0; r < s->size; r++) {
        each[r] = (r + (what == ALLTOALLV ? s->rank : 0)) % 2 ? block : (block + 1) / 2;
        all += each[r];
    }
    s->out[all - 1] = -1;
    ls_status status = what == ALLTOALLV ? ls_alltoallv(s->world, s->in, each, s->out, each, LS_F32)
                                         : ls_allgatherv(s->world, s->in, s->out, each, LS_F32);
    if (status == LS_OK)
        expect(s, names[what], all - 1, 1, s->size);
    return status;
}

/* A block of each rank to the root, or the other way round. */
static ls_status with_root(state *s, int what, size_t block, int root)
{
    if (what == SCATTER) {
        s->out[block - 1] = -1;
        ls_status status = ls_scatter(s->world, s->in, s->out, block, LS_F32, root);
        if (status == LS_OK)
            expect(s, names[what], block - 1, root + 1, root + 1);
        return status;
    }
    ls_status status = ls_gather(s->world, s->in, s->out, block, LS_F32, root);
    if (status == LS_OK && s->rank == root)
        expect(s, names[what], block * (size_t)s->size - 1, 1, s->size);
    return status;
}

static int is_in_blocks(int what)
{
    return what == REDUCE_SCATTER || what == ALLGATHER || what == ALLGATHERV || what == GATHER ||
           what == SCATTER || what == ALLTOALL || what == ALLTOALLV;
}

static ls_status step(state *s, int what, size_t count)
{
    size_t n = (size_t)s->size, block = count / n ? count / n : 1;
    int root = (int)draw(s, n);
    double sum = (double)s->size * (s->size + 1) / 2;
    ls_status status = LS_OK;
    fill(s, is_in_blocks(what) ? block * n : count, (float)(s->rank + 1));
    switch (what) {
    case ALLREDUCE: status = ls_allreduce(s->world, s->in, s->out, count, LS_F32, LS_SUM); break;
    case REDUCE:
        status = ls_reduce(s->world, s->in, s->out, count, LS_F32, LS_SUM, root);
        if (status == LS_OK && s->rank == root)
            expect(s, names[what], count - 1, sum, sum);
        return status;
    case REDUCE_SCATTER:
        status = ls_reduce_scatter(s->world, s->in, s->out, block, LS_F32, LS_SUM);
        count = block;
        break;
    case ALLGATHER:
    case ALLTOALL:
        status = what == ALLGATHER ? ls_allgather(s->world, s->in, s->out, block, LS_F32)
                                   : ls_alltoall(s->world, s->in, s->out, block, LS_F32);
        if (status == LS_OK)
            expect(s, names[what], block * n - 1, 1, s->size);
        return status;
    case ALLGATHERV:
    case ALLTOALLV: return uneven(s, what, block);
    case GATHER:
    case SCATTER: return with_root(s, what, block, root);
    case BROADCAST:
        s->out[0] = s->out[count - 1] = (float)(s->rank + 1);
        status = ls_broadcast(s->world, s->out, count, LS_F32, root);
        sum = root + 1;
        break;
    case BARRIER: return ls_barrier(s->world);
    case RING: return pass_on(s, count);
    case TWO: status = two_at_once(s, count); break;
    case PART: status = split_and_sum(s, count); break;
    }
    if (status == LS_OK)
        expect(s, names[what], count - 1, sum, sum);
    return status;
}

/* Draw the next operation, its size, its memory and its algorithm. */
static ls_status one_round(state *s, const char **doing)
{
    int what = (int)draw(s, KINDS);
    if (s->favourite < KINDS && draw(s, 2))
        what = s->favourite;
    size_t count = counts[draw(s, sizeof counts / sizeof *counts)];
    float *memory = draw(s, 2) ? s->shared : s->foreign;
    s->in = memory;
    s->out = memory + ELEMENTS + 8; /* room for a block more */
    *doing = names[what];
    /* Not all collectives offer all algorithms: those keep the one they have. */
    (void)ls_comm_select(s->world, names[what == TWO ? ALLREDUCE : what], algorithms[draw(s, 4)]);
    return step(s, what, count);
}

int main(int argc, char **argv)
{
    state s = {.random = argc > 1 ? strtoull(argv[1], NULL, 10) : 1};
    double last_ok, seconds = argc > 2 ? strtod(argv[2], NULL) : 0;
    double end = seconds > 0 ? now_s() + seconds : 1e300;
    unsigned long rounds = 0;
    const char *doing = "ls_init";
    void *memory = NULL;
    while (argc > 3 && s.favourite < KINDS && strcmp(argv[3], names[s.favourite]))
        s.favourite++;
    if (argc <= 3)
        s.favourite = KINDS;
    signal(SIGTERM, on_term);
    last_ok = now_s();
    ls_status status = ls_init(NULL, &s.world);
    s.rank = own_rank();
    s.size = ls_comm_size(s.world);
    size_t bytes = (2 * ELEMENTS + 64) * sizeof(float);
    s.foreign = malloc(bytes);
    if (status == LS_OK)
        status = ls_alloc(s.world, bytes, &memory);
    s.shared = memory;
    if (status == LS_OK && s.foreign)
        say("{\"rank\": %d, \"pid\": %d}", s.rank, (int)getpid());
    for (int stop = 0; status == LS_OK && !stop; rounds++) {
        int mine = enough || now_s() > end;
        last_ok = now_s();
        status = one_round(&s, &doing);
        if (status == LS_OK && rounds % AGREE == AGREE - 1) /* is it enough for somebody? */
            status = ls_allreduce(s.world, &mine, &stop, 1, LS_I32, LS_MAX);
    }
    if (status != LS_OK)
        report_failure(s.rank, doing, status, last_ok);
    else
        say("{\"rank\": %d, \"rounds\": %lu}", s.rank, rounds);
    ls_finalize(s.world);
    free(s.foreign);
    return status == LS_OK ? 0 : 3;
}

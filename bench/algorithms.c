/* Every algorithm of a collective against the default choice, interleaved in one run, each round in
 * another order: who always came after the same one would pay for the state it leaves.
 *
 *     bench/algorithms [-n RANKS] [--transport shm|tcp] [--collective NAME] [--private]
 *                                                            (builds and starts it)
 *
 * Prints, for each size, the median time of each algorithm and how much the default loses to the
 * best of them: the evidence that the selection table is tuned.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lockstep/lockstep.h>

#define ROUNDS 21
#define MOST 5 /* choices */

typedef struct plan {
    const char *name;
    const char *choices[MOST]; /* the default first */
    ls_status (*call)(ls_comm *world, float *data, size_t count, int root);
} plan;

/* In place: the vector is `count` elements, of which each rank has a part where it is cut. */
static ls_status allreduce(ls_comm *world, float *data, size_t count, int root)
{
    (void)root;
    return ls_allreduce(world, LS_IN_PLACE, data, count, LS_F32, LS_SUM);
}

static ls_status reduce(ls_comm *world, float *data, size_t count, int root)
{
    return ls_reduce(world, LS_IN_PLACE, data, count, LS_F32, LS_SUM, root);
}

static ls_status reduce_scatter(ls_comm *world, float *data, size_t count, int root)
{
    (void)root;
    return ls_reduce_scatter(world, LS_IN_PLACE, data, count / (size_t)ls_comm_size(world), LS_F32,
                             LS_SUM);
}

static ls_status allgather(ls_comm *world, float *data, size_t count, int root)
{
    (void)root;
    return ls_allgather(world, LS_IN_PLACE, data, count / (size_t)ls_comm_size(world), LS_F32);
}

static ls_status broadcast(ls_comm *world, float *data, size_t count, int root)
{
    return ls_broadcast(world, data, count, LS_F32, root);
}

static const plan plans[] = {
    {"allreduce", {"auto", "direct", "hd", "ring", "tree"}, allreduce},
    {"reduce", {"auto", "direct", "hd", "ring", "tree"}, reduce},
    {"reduce_scatter", {"auto", "direct", "ring"}, reduce_scatter},
    {"allgather", {"auto", "direct", "ring"}, allgather},
    {"broadcast", {"auto", "direct", "ring", "tree"}, broadcast},
};
static const size_t sizes[] = {8,         1 << 10, 16 << 10, 64 << 10,
                               256 << 10, 1 << 20, 4 << 20,  25 << 20};
#define SIZES (sizeof sizes / sizeof *sizes)

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One timed batch; all ranks agree on the time of the slowest. A call before it, so that none pays
 * for where the algorithm before has left the data. The root goes round: nobody is always ahead. */
static ls_status batch(const plan *p, ls_comm *world, float *data, size_t bytes, int calls,
                       double *us)
{
    const int n = ls_comm_size(world);
    ls_status status = p->call(world, data, bytes / sizeof *data, 0);
    if (status == LS_OK)
        status = ls_barrier(world);
    const double start = now_us();
    for (int i = 0; i < calls && status == LS_OK; i++)
        status = p->call(world, data, bytes / sizeof *data, i % n);
    *us = (now_us() - start) / calls;
    if (status == LS_OK)
        status = ls_allreduce(world, LS_IN_PLACE, us, 1, LS_F64, LS_MAX);
    return status;
}

static int count_choices(const plan *p)
{
    int n = 0;
    while (n < MOST && p->choices[n])
        n++;
    return n;
}

/* The same order on every rank. */
static void shuffle(int *order, int n)
{
    static unsigned state = 1;
    for (int i = n - 1; i > 0; i--) {
        state = state * 1103515245u + 12345u;
        int k = (int)(state >> 16) % (i + 1), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

static ls_status measure(const plan *p, ls_comm *world, float *data, size_t bytes,
                         double medians[MOST])
{
    double times[MOST][ROUNDS];
    int order[MOST] = {0, 1, 2, 3, 4}, n = count_choices(p);
    for (int r = -1; r < ROUNDS; r++) { /* round -1 warms up */
        shuffle(order, n);
        for (int i = 0; i < n; i++) {
            int c = order[i];
            double us;
            int calls = bytes <= 16 << 10 ? 50 : bytes <= 1 << 20 ? 5 : 1;
            ls_status status = ls_comm_select(world, p->name, p->choices[c]);
            if (status == LS_OK)
                status = batch(p, world, data, bytes, calls, &us);
            if (status != LS_OK)
                return status;
            if (r >= 0)
                times[c][r] = us;
        }
    }
    for (int c = 0; c < n; c++) {
        qsort(times[c], ROUNDS, sizeof(double), by_value);
        medians[c] = times[c][ROUNDS / 2];
    }
    return LS_OK;
}

static void print_row(size_t bytes, const double *medians, int n)
{
    double best = medians[1];
    printf("%10zu", bytes);
    for (int c = 0; c < n; c++) {
        printf(" %10.2f", medians[c]);
        best = c > 1 && medians[c] < best ? medians[c] : best;
    }
    printf("  %.2f\n", medians[0] / best);
    fflush(stdout);
}

static int fail(void)
{
    fprintf(stderr, "%s\n", ls_last_error());
    return 1;
}

/* Pages that nobody has written are all the same one, which is always in the cache. */
static void *touched(size_t bytes)
{
    float *data = malloc(bytes);
    if (!data) {
        fprintf(stderr, "algorithms: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    for (size_t i = 0; i < bytes / sizeof *data; i++)
        data[i] = 1;
    return data;
}

int main(int argc, char **argv)
{
    const plan *p = plans, *end = plans + sizeof plans / sizeof *plans;
    while (p < end && argc > 1 && strcmp(p->name, argv[1]) != 0)
        p++;
    if (p == end) {
        fprintf(stderr, "algorithms: no choice of algorithms for '%s'\n", argv[1]);
        return 2;
    }
    ls_comm *world;
    const int in_private = argc > 2 && strcmp(argv[2], "private") == 0;
    void *data = in_private ? touched(sizes[SIZES - 1]) : NULL;
    char rules[256] = "";
    if (ls_init(NULL, &world) != LS_OK ||
        (!in_private && ls_alloc(world, sizes[SIZES - 1], &data) != LS_OK) ||
        ls_comm_selection(world, p->name, rules, sizeof rules) != LS_OK)
        return fail();
    int first = ls_comm_rank(world) == 0, n = count_choices(p);
    if (first) {
        printf("%s, %d ranks, %s buffers, default %s; median time in us\n%10s", p->name,
               ls_comm_size(world), in_private ? "private" : "ls_alloc", rules, "bytes");
        for (int c = 0; c < n; c++)
            printf(" %10s", p->choices[c]);
        printf("  default / best\n");
    }
    for (size_t s = 0; s < SIZES; s++) {
        double medians[MOST];
        if (measure(p, world, data, sizes[s], medians) != LS_OK)
            return fail();
        if (first)
            print_row(sizes[s], medians, n);
    }
    ls_finalize(world);
    return 0;
}

/* Every algorithm of a collective against the default choice, interleaved in one run, each round in
 * another order: who always came after the same one would pay for the state it leaves.
 *
 *     bench/algorithms [-n RANKS] [--transport shm|tcp]     (builds this and starts it)
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
#define CHOICES 5

static const char *const choices[CHOICES] = {"auto", "direct", "hd", "ring", "tree"};
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
 * for where the algorithm before has left the data. */
static ls_status batch(ls_comm *world, float *data, size_t bytes, int calls, double *us)
{
    ls_status status = ls_allreduce(world, LS_IN_PLACE, data, bytes / sizeof *data, LS_F32, LS_SUM);
    if (status == LS_OK)
        status = ls_barrier(world);
    double start = now_us();
    for (int i = 0; i < calls && status == LS_OK; i++)
        status = ls_allreduce(world, LS_IN_PLACE, data, bytes / sizeof *data, LS_F32, LS_SUM);
    *us = (now_us() - start) / calls;
    if (status == LS_OK)
        status = ls_allreduce(world, LS_IN_PLACE, us, 1, LS_F64, LS_MAX);
    return status;
}

/* The same order on every rank. */
static void shuffle(int order[CHOICES])
{
    static unsigned state = 1;
    for (int i = CHOICES - 1; i > 0; i--) {
        state = state * 1103515245u + 12345u;
        int k = (int)(state >> 16) % (i + 1), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

static ls_status measure(ls_comm *world, float *data, size_t bytes, double medians[CHOICES])
{
    double times[CHOICES][ROUNDS];
    int order[CHOICES] = {0, 1, 2, 3, 4};
    for (int r = -1; r < ROUNDS; r++) { /* round -1 warms up */
        shuffle(order);
        for (int i = 0; i < CHOICES; i++) {
            int c = order[i];
            double us;
            int calls = bytes <= 16 << 10 ? 50 : bytes <= 1 << 20 ? 5 : 1;
            ls_status status = ls_comm_select(world, "allreduce", choices[c]);
            if (status == LS_OK)
                status = batch(world, data, bytes, calls, &us);
            if (status != LS_OK)
                return status;
            if (r >= 0)
                times[c][r] = us;
        }
    }
    for (int c = 0; c < CHOICES; c++) {
        qsort(times[c], ROUNDS, sizeof(double), by_value);
        medians[c] = times[c][ROUNDS / 2];
    }
    return LS_OK;
}

int main(void)
{
    ls_comm *world;
    void *data;
    char rules[256] = "";
    if (ls_init(NULL, &world) != LS_OK || ls_alloc(world, sizes[SIZES - 1], &data) != LS_OK ||
        ls_comm_selection(world, "allreduce", rules, sizeof rules) != LS_OK) {
        fprintf(stderr, "%s\n", ls_last_error());
        return 1;
    }
    int first = ls_comm_rank(world) == 0;
    if (first)
        printf("%d ranks, default %s; median time in us\n%10s %10s %10s %10s %10s %10s  %s\n",
               ls_comm_size(world), rules, "bytes", choices[0], choices[1], choices[2], choices[3],
               choices[4], "default / best");
    for (size_t s = 0; s < SIZES; s++) {
        double medians[CHOICES], best;
        if (measure(world, data, sizes[s], medians) != LS_OK) {
            fprintf(stderr, "%s\n", ls_last_error());
            return 1;
        }
        best = medians[1];
        for (int c = 2; c < CHOICES; c++)
            best = medians[c] < best ? medians[c] : best;
        if (first)
            printf("%10zu %10.2f %10.2f %10.2f %10.2f %10.2f  %.2f\n", sizes[s], medians[0],
                   medians[1], medians[2], medians[3], medians[4], medians[0] / best);
        fflush(stdout);
    }
    ls_finalize(world);
    return 0;
}

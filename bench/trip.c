/* How long a cache line takes from one core to another and back: for each line on standard input,
 * the nanoseconds on standard output.
 *
 *     trip CORE CORE
 *
 * A virtual machine's cores are moved: now two of them share a cache, now they do not, and a trip
 * takes four times as long. What is compared has to be measured in the same situation.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCHES 9
#define TRIPS 500

static _Alignas(128) atomic_uint ball;
static sem_t serve;

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *answer(void *core)
{
    pin(*(const int *)core);
    for (;;) {
        while (sem_wait(&serve) != 0)
            ;
        for (unsigned i = 0; i < 2u * BATCHES * TRIPS; i += 2) {
            while (atomic_load_explicit(&ball, memory_order_acquire) != i + 1)
                ;
            atomic_store_explicit(&ball, i + 2, memory_order_release);
        }
    }
    return NULL;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double fastest_trip(void)
{
    double best = 1e9;
    atomic_store(&ball, 0);
    sem_post(&serve);
    for (unsigned batch = 0, i = 0; batch < BATCHES; batch++) {
        const double start = now_ns();
        for (unsigned end = i + 2 * TRIPS; i < end; i += 2) {
            atomic_store_explicit(&ball, i + 1, memory_order_release);
            while (atomic_load_explicit(&ball, memory_order_acquire) != i + 2)
                ;
        }
        const double trip = (now_ns() - start) / TRIPS;
        best = trip < best ? trip : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: trip CORE CORE\n");
        return 2;
    }
    int cores[2] = {atoi(argv[1]), atoi(argv[2])};
    pthread_t thread;
    char line[16];
    pin(cores[0]);
    if (sem_init(&serve, 0, 0) != 0 || pthread_create(&thread, NULL, answer, &cores[1]) != 0)
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        printf("%.0f\n", fastest_trip());
        fflush(stdout);
    }
    return 0;
}

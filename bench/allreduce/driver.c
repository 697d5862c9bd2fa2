/*
 * driver.c - one rank of one implementation, told what to measure by bench/allreduce-peers.
 *
 * All implementations are started once and then wait, asleep, on a socket of the script, which
 * wakes one at a time: so they are measured in turn, size by size, without a start in between.
 *
 *   script -> rank   check BYTES             correct sums? up to three rounds of changing values
 *                    run BYTES WARM N BATCH  WARM calls, then N samples of BATCH calls each ("hot")
 *                    touch (the same)        before each call, this rank rewrites its buffer; after
 *                                            it, it reads the result: as training does
 *                    quit
 *   rank -> script   hello RANK SIZE PID     once, after init
 *                    checked WRONG           how many elements were wrong
 *                    ran NS NS ...           nanoseconds of each sample
 *                    failed
 *
 * Invariants:
 *  1. The same command goes to all ranks of a group; they need no other agreement.
 *  2. The hot loop calls the implementation and the clock, nothing else, on the same buffer. The
 *     values are zero, so that no sum overflows.
 *  3. While no command runs, the process sleeps in read().
 */
#define _GNU_SOURCE
#include "driver.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SAMPLES = 4096 };

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

float *bench_private_alloc(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 4096, bytes)) {
        fprintf(stderr, "driver: no memory for %zu bytes\n", bytes);
        return NULL;
    }
    return p;
}

/* Rank r on core r modulo cores, for every implementation alike, whatever its launcher did.
 * cores: "0,1,...", from the script. */
static void pin(int rank, const char *cores)
{
    int list[CPU_SETSIZE], n = 0;
    for (char *end; cores && *cores && n < CPU_SETSIZE; cores = *end ? end + 1 : end)
        list[n++] = (int)strtol(cores, &end, 10);
    if (!n)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)list[rank % n], &set);
    if (sched_setaffinity(0, sizeof set, &set))
        perror("driver: sched_setaffinity");
}

static int script_connect(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof a.sun_path) {
        fprintf(stderr, "driver: BENCH_SOCKET is not set: started by bench/allreduce-peers only\n");
        return -1;
    }
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)) {
        perror(path);
        return -1;
    }
    return fd;
}

/* Small integers, so that every order of summation gives the same float. */
static float value(size_t i, int rank, int round)
{
    return (float)((i * 7 + (size_t)rank * 13 + (size_t)round) % 101);
}

static int check(float *buffer, size_t n, int rank, int size, size_t *wrong)
{
    int rounds = n > 1u << 20 ? 1 : 3;
    *wrong = 0;
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < n; i++)
            buffer[i] = value(i, rank, round);
        if (bench_impl.allreduce(buffer, n))
            return -1;
        for (size_t i = 0; i < n; i++) {
            float sum = 0;
            for (int r = 0; r < size; r++)
                sum += value(i, r, round);
            *wrong += buffer[i] != sum;
        }
    }
    memset(buffer, 0, n * sizeof *buffer);
    return 0;
}

static volatile float sink; /* keeps the read from being optimised away */

static int touch_allreduce(float *buffer, size_t n)
{
    memset(buffer, 0, n * sizeof *buffer);
    int rc = bench_impl.allreduce(buffer, n);
    float sums[16] = {0}; /* several, for the compiler to vectorise */
    for (size_t i = 0; i < n; i++)
        sums[i % 16] += buffer[i];
    for (int i = 0; i < 16; i++)
        sink = sums[i];
    return rc;
}

/* t: nanoseconds of each sample, in the order they were taken. */
static int run(int (*call)(float *, size_t), float *buffer, size_t n, int warm, int samples,
               int batch, uint64_t *t)
{
    int rc = 0;
    for (int i = 0; !rc && i < warm; i++)
        rc = call(buffer, n);
    uint64_t last = now_ns();
    for (int i = 0; !rc && i < samples; i++) {
        for (int b = 0; !rc && b < batch; b++)
            rc = call(buffer, n);
        uint64_t now = now_ns();
        t[i] = now - last;
        last = now;
    }
    return rc;
}

static void serve(FILE *script, FILE *answer, float *buffer, size_t max_bytes, int rank, int size)
{
    static uint64_t t[MAX_SAMPLES];
    char line[256];
    while (fgets(line, sizeof line, script) && strncmp(line, "quit", 4)) {
        size_t bytes, wrong;
        int warm, samples, batch, rc = -1, touch = !strncmp(line, "touch", 5);
        if (sscanf(line, "check %zu", &bytes) == 1 && bytes <= max_bytes) {
            rc = check(buffer, bytes / sizeof *buffer, rank, size, &wrong);
            if (!rc)
                fprintf(answer, "checked %zu", wrong);
        } else if (sscanf(line, "%*s %zu %d %d %d", &bytes, &warm, &samples, &batch) == 4 &&
                   bytes <= max_bytes && samples <= MAX_SAMPLES) {
            rc = run(touch ? touch_allreduce : bench_impl.allreduce, buffer, bytes / sizeof *buffer,
                     warm, samples, batch, t);
            for (int i = 0; !rc && i < samples; i++)
                fprintf(answer, i ? " %" PRIu64 : "ran %" PRIu64, t[i]);
        }
        fprintf(answer, rc ? "failed\n" : "\n");
        fflush(answer);
    }
}

int main(int argc, char **argv)
{
    const char *max = getenv("BENCH_MAX_BYTES");
    size_t bytes = max ? strtoull(max, NULL, 10) : 0;
    int rank, size;
    if (bench_impl.init(&argc, &argv, &rank, &size))
        return 1;
    pin(rank, getenv("BENCH_CORES"));
    float *buffer = bench_impl.alloc(bytes < 64 ? 64 : bytes);
    int fd = script_connect(getenv("BENCH_SOCKET"));
    FILE *script = fd < 0 ? NULL : fdopen(fd, "r"), *answer = fd < 0 ? NULL : fdopen(dup(fd), "w");
    if (!buffer || !script || !answer)
        return 1;
    memset(buffer, 0, bytes);
    fprintf(answer, "hello %d %d %ld\n", rank, size, (long)getpid());
    fflush(answer);
    serve(script, answer, buffer, bytes, rank, size);
    bench_impl.finish();
    return 0;
}

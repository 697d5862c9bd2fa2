/* Digests of results that must not depend on where the ranks run.
 *
 *     results [ALGORITHM...]
 *
 * Every rank prints "NAME SHA-256", one line a check: reductions of numbers of wild magnitudes
 * with each algorithm named, the other collectives, and a split. Lines of a name are equal on all
 * ranks; {"rank", "pid"} comes first.
 */
#include <openssl/evp.h>
#include <stdint.h>
#include <stdlib.h>

#include "report.h"

static const size_t counts[] = {1, 7, 1023, 70001};
#define MOST ((size_t)70001)

static ls_comm *world;
static int rank, size;
static float *in, *out;

static void print(const char *name, const void *data, size_t bytes)
{
    unsigned char digest[32];
    char hex[65];
    unsigned n = 0;
    EVP_Digest(data, bytes, digest, &n, EVP_sha256(), NULL);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    say("%s %s", name, hex);
}

/* From 2^-30 to 2^30, of both signs: every order of summation gives another result. */
static void fill(size_t count, uint64_t stream)
{
    uint64_t x = (stream * 1000 + (uint64_t)rank + 1) * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < count; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        float value = (float)(int32_t)(x >> 32);
        int power = (int)(x >> 20 & 63) - 61;
        for (; power > 0; power--)
            value *= 2;
        for (; power < 0; power++)
            value /= 2;
        in[i] = value;
    }
}

static void must(ls_status status, const char *what)
{
    if (status == LS_OK)
        return;
    report_failure(rank, what, status, now_s());
    ls_finalize(world);
    exit(3);
}

static void sum_with(const char *algorithm)
{
    char name[64];
    must(ls_comm_select(world, "allreduce", algorithm), algorithm);
    must(ls_comm_select(world, "reduce", algorithm), algorithm);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        fill(counts[i], i);
        must(ls_allreduce(world, in, out, counts[i], LS_F32, LS_SUM), "allreduce");
        snprintf(name, sizeof name, "allreduce-%s-%zu", algorithm, counts[i]);
        print(name, out, counts[i] * sizeof *out);
    }
    for (int root = 0; root < size; root++) {
        fill(MOST, 50 + (uint64_t)root);
        must(ls_reduce(world, in, out, MOST, LS_F32, LS_SUM, root), "reduce");
        snprintf(name, sizeof name, "reduce-%s-%d", algorithm, root);
        if (rank == root)
            print(name, out, MOST * sizeof *out);
    }
}

static void move(void)
{
    size_t block = MOST / (size_t)size;
    char name[64];
    for (int root = 0; root < size; root++) {
        fill(MOST, 100);
        memcpy(out, in, MOST * sizeof *out);
        must(ls_broadcast(world, out, MOST, LS_F32, root), "broadcast");
        snprintf(name, sizeof name, "broadcast-%d", root);
        print(name, out, MOST * sizeof *out);
    }
    fill(MOST, 200);
    must(ls_allgather(world, in, out, block, LS_F32), "allgather");
    print("allgather", out, block * (size_t)size * sizeof *out);
    must(ls_alltoall(world, in, out, block, LS_F32), "alltoall");
    must(ls_allgather(world, out, in, block, LS_F32), "allgather"); /* the first blocks of all */
    print("alltoall", in, block * (size_t)size * sizeof *in);
    fill(MOST, 300);
    must(ls_reduce_scatter(world, in, out, block, LS_F32, LS_SUM), "reduce_scatter");
    must(ls_allgather(world, out, in, block, LS_F32), "allgather");
    print("reduce_scatter", in, block * (size_t)size * sizeof *in);
    must(ls_barrier(world), "barrier");
}

/* Even and odd ranks apart, in reverse order: hosts interleave, or a group has one rank a host. */
static void split(void)
{
    ls_comm *part;
    char name[64];
    must(ls_comm_split(world, rank % 2, -rank, &part), "split");
    fill(MOST, 400);
    must(ls_allreduce(part, in, out, MOST, LS_F32, LS_SUM), "allreduce of a part");
    snprintf(name, sizeof name, "split-%d", rank % 2);
    print(name, out, MOST * sizeof *out);
    must(ls_broadcast(part, in, 1000, LS_F32, 0), "broadcast of a part");
    snprintf(name, sizeof name, "split-broadcast-%d", rank % 2);
    print(name, in, 1000 * sizeof *in);
    ls_comm_destroy(part);
}

int main(int argc, char **argv)
{
    ls_status status = ls_init(NULL, &world);
    rank = own_rank();
    size = ls_comm_size(world);
    must(status, "ls_init");
    say("{\"rank\": %d, \"pid\": %d}", rank, (int)getpid());
    in = calloc(MOST + 64, sizeof *in);
    out = calloc(MOST + 64, sizeof *out);
    for (int i = 1; i < argc; i++)
        sum_with(argv[i]);
    move();
    split();
    free(in);
    free(out);
    ls_finalize(world);
    return 0;
}

/* What an all-reduce has to move, moved by bare loops: the cost that bench/scaling compares with.
 *
 *     scaling shm|private|tcp RANKS BYTES CORE...     prints microseconds, the median
 *
 * One thread a rank, pinned to core r modulo cores as ranks are, does what the algorithm says: no
 * requests, no failures to watch for, no order of additions to keep. Who waits looks, then yields.
 * Sum of f32 in place; rank r owns the r-th segment of the vector.
 *
 *   shm       every segment is read in all vectors and its sum written to all of them.
 *   private   a rank's vector is its own: what others own goes through rooms that all share, piece
 *             by piece, and so do the sums on their way back.
 *   tcp       each rank sends 1/N of its vector to every other one and adds what it receives, then
 *             sends its sums likewise: 2 (N - 1) / N of the vector for each rank.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TIMED_US 3e5 /* in all, as lockstep bench does */
#define WARM 2
#define LOOKS 100
#define ROUNDS_LEAST 5
#define ROUNDS_MOST 10000
#define MOST 64                        /* ranks */
#define BLOCK 1024                     /* elements that stay in the first cache */
#define PIECE ((size_t)32 << 10)       /* elements; every other round begins with the last one */
#define ROOM_BYTES ((size_t)256 << 10) /* of what a rank brings at a time */
#define TURN ((size_t)1 << 20)         /* bytes that are sent or received before others have a go */

#if defined(__x86_64__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

static int ranks;
static size_t count, segment; /* elements */
static float *vectors[MOST];
static double times[ROUNDS_MOST]; /* microseconds */
static int rounds;
static _Atomic int arrived, passed, last = INT_MAX;

static void die(const char *what)
{
    fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void meet(void)
{
    const int before = atomic_load(&passed);
    if (atomic_fetch_add(&arrived, 1) == ranks - 1) {
        atomic_store(&arrived, 0);
        atomic_store(&passed, before + 1);
        return;
    }
    for (int looks = 0; atomic_load(&passed) == before; looks++)
        if (looks >= LOOKS)
            sched_yield();
}

/* Memory in large pages, touched: as ls_alloc has it. */
static void *large_pages(size_t bytes)
{
    const size_t page = (size_t)2 << 20, whole = (bytes + 2 * page - 1) / page * page;
    char *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        die("mmap");
    p += (page - (uintptr_t)p % page) % page;
    (void)madvise(p, whole - page, MADV_HUGEPAGE);
    return memset(p, 0, bytes);
}

/* As it comes. */
static void *own_memory(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        die("malloc");
    return memset(p, 0, bytes);
}

/* Elements of a rank's segment. */
static size_t segment_of(int rank, size_t *from)
{
    const size_t begin = (size_t)rank * segment, end = begin + segment;
    *from = begin < count ? begin : count;
    return (end < count ? end : count) - *from;
}

/* The part of a segment that has its turn, of `pieces` of `size` elements each. */
static size_t piece_of(int rank, size_t turn, size_t size, size_t *from)
{
    size_t begin, n = segment_of(rank, &begin), skip = turn * size;
    *from = begin + skip;
    return skip >= n ? 0 : n - skip < size ? n - skip : size;
}

CLONES static void add(float *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

CLONES static void add_both(float *a, float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

/* The sum of `in` to all of `out`, each read and written once; they may be the same. */
static void add_all(float *const *in, float *const *out, int outs, size_t n)
{
    float sum[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t part = n - at < BLOCK ? n - at : BLOCK;
        if (ranks == 2 && in[0] == out[0] && outs == 2) {
            add_both(in[0] + at, in[1] + at, part);
            continue;
        }
        memcpy(sum, in[0] + at, part * sizeof *sum);
        for (int r = 1; r < ranks; r++)
            add(sum, in[r] + at, part);
        for (int r = 0; r < outs; r++)
            memcpy(out[r] + at, sum, part * sizeof *sum);
    }
}

/* ---- shm ------------------------------------------------------------------------------------ */

static void shm_round(int rank, int round)
{
    const size_t pieces = (segment + PIECE - 1) / PIECE;
    for (size_t i = 0; i < pieces; i++) {
        float *at[MOST];
        size_t from, n = piece_of(rank, round % 2 ? pieces - 1 - i : i, PIECE, &from);
        for (int r = 0; r < ranks; r++)
            at[r] = vectors[r] + from;
        add_all(at, at, ranks, n);
    }
}

/* ---- private -------------------------------------------------------------------------------- */

static float *rooms, *sums; /* [2][ranks][ranks] and [2][ranks] pieces: two take turns */
static size_t room;         /* elements of a piece */

static float *room_of(size_t turn, int from, int to)
{
    return rooms + ((turn % 2 * (size_t)ranks + (size_t)from) * (size_t)ranks + (size_t)to) * room;
}

static float *sum_of(size_t turn, int rank)
{
    return sums + (turn % 2 * (size_t)ranks + (size_t)rank) * room;
}

static void bring(int rank, size_t turn)
{
    for (int m = 0; m < ranks; m++) {
        size_t from, n = piece_of(m, turn, room, &from);
        if (m != rank)
            memcpy(room_of(turn, rank, m), vectors[rank] + from, n * sizeof(float));
    }
}

static void sum_up(int rank, size_t turn)
{
    float *in[MOST];
    size_t from, n = piece_of(rank, turn, room, &from);
    for (int m = 0; m < ranks; m++)
        in[m] = m == rank ? vectors[rank] + from : room_of(turn, m, rank);
    add_all(in, (float *[]){vectors[rank] + from, sum_of(turn, rank)}, 2, n);
}

static void fetch(int rank, size_t turn)
{
    for (int m = 0; m < ranks; m++) {
        size_t from, n = piece_of(m, turn, room, &from);
        if (m != rank)
            memcpy(vectors[rank] + from, sum_of(turn, m), n * sizeof(float));
    }
}

static void private_round(int rank, int round)
{
    const size_t pieces = (segment + room - 1) / room;
    for (size_t i = 0; i < pieces; i++) {
        const size_t turn = round % 2 ? pieces - 1 - i : i;
        bring(rank, turn);
        meet();
        sum_up(rank, turn);
        meet();
        fetch(rank, turn);
    }
}

/* ---- tcp ------------------------------------------------------------------------------------ */

/* One rank's end of a connection; bytes of this round. */
typedef struct end {
    int socket;
    size_t sent, received;
} end;
static end ends[MOST][MOST]; /* [rank][peer] */

static int tcp_socket(void)
{
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        die("socket");
    (void)setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    return s;
}

static void tcp_connect(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    int door = tcp_socket();
    if (bind(door, (struct sockaddr *)&here, size) || listen(door, MOST) ||
        getsockname(door, (struct sockaddr *)&here, &size))
        die("listen");
    for (int a = 0; a < ranks; a++) {
        for (int b = 0; b < a; b++) {
            int s = tcp_socket();
            if (connect(s, (struct sockaddr *)&here, size))
                die("connect");
            ends[a][b].socket = s;
            if ((ends[b][a].socket = accept(door, NULL, NULL)) < 0)
                die("accept");
            (void)fcntl(s, F_SETFL, O_NONBLOCK);
            (void)fcntl(ends[b][a].socket, F_SETFL, O_NONBLOCK);
        }
    }
    close(door);
}

static size_t moved(ssize_t bytes, const char *what)
{
    if (bytes < 0 && errno != EAGAIN && errno != EINTR)
        die(what);
    return bytes < 0 ? 0 : (size_t)bytes;
}

/* Sends and receives what can be, of one half of a round; returns whether all is done. */
static int exchange(int rank, int peer, int half)
{
    static _Thread_local char scratch[TURN];
    end *e = &ends[rank][peer];
    size_t mine, theirs;
    const size_t out = segment_of(half ? rank : peer, &mine) * sizeof(float);
    const size_t in = segment_of(half ? peer : rank, &theirs) * sizeof(float);
    if (e->sent < out) {
        const size_t left = out - e->sent;
        e->sent += moved(send(e->socket, (char *)(vectors[rank] + mine) + e->sent,
                              left < TURN ? left : TURN, MSG_NOSIGNAL),
                         "send");
    }
    if (e->received < in) {
        const size_t left = in - e->received, most = left < TURN ? left : TURN;
        char *to = (char *)(vectors[rank] + theirs) + e->received;
        const size_t got = moved(recv(e->socket, half ? to : scratch, most, 0), "recv");
        if (!half) /* a part may end inside an element: what comes out is not looked at */
            add((float *)(to - e->received % sizeof(float)), (const float *)scratch,
                got / sizeof(float));
        e->received += got;
    }
    return e->sent == out && e->received == in;
}

static void tcp_round(int rank, int round)
{
    (void)round;
    for (int half = 0; half < 2; half++) {
        for (int left = 1; left;) {
            left = 0;
            for (int peer = 0; peer < ranks; peer++)
                left += peer != rank && !exchange(rank, peer, half);
            if (left)
                sched_yield();
        }
        for (int peer = 0; peer < ranks; peer++)
            ends[rank][peer].sent = ends[rank][peer].received = 0;
    }
}

/* --------------------------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    void (*round)(int rank, int round);
} kinds[] = {{"shm", shm_round}, {"private", private_round}, {"tcp", tcp_round}};
#define KINDS (sizeof kinds / sizeof *kinds)
static const struct kind *kind;

static void *work(void *argument)
{
    const int rank = (int)(intptr_t)argument;
    double begin = 0, before = 0;
    for (int round = 0; round <= last; round++) {
        kind->round(rank, round);
        meet();
        if (rank > 0)
            continue;
        const double now = now_us(); /* from end to end: some begin before this one has its turn */
        if (round < WARM)
            begin = now;
        else
            times[rounds++] = now - before;
        before = now;
        const int enough =
            rounds == ROUNDS_MOST - 1 || (rounds >= ROUNDS_LEAST && now - begin > TIMED_US);
        if (enough && last == INT_MAX)
            last = round + 1; /* which some have begun */
    }
    return NULL;
}

static void start(pthread_t *thread, int rank, int core)
{
    cpu_set_t cores;
    pthread_attr_t attributes;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    if ((errno = pthread_attr_init(&attributes)) ||
        (errno = pthread_attr_setaffinity_np(&attributes, sizeof cores, &cores)) ||
        (errno = pthread_create(thread, &attributes, work, (void *)(intptr_t)rank)))
        die("pthread_create");
    pthread_attr_destroy(&attributes);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < KINDS && argc > 1; i++)
        if (strcmp(argv[1], kinds[i].name) == 0)
            kind = &kinds[i];
    if (argc > 3) {
        ranks = atoi(argv[2]);
        count = (size_t)atoll(argv[3]) / sizeof(float);
    }
    if (argc < 5 || !kind || ranks < 2 || ranks > MOST || count < 1) {
        fprintf(stderr, "usage: scaling shm|private|tcp RANKS BYTES CORE...\n");
        return 2;
    }
    segment = ((count + (size_t)ranks - 1) / (size_t)ranks + 15) / 16 * 16;
    for (int r = 0; r < ranks; r++)
        vectors[r] =
            (kind->round == private_round ? own_memory : large_pages)(count * sizeof(float));
    room = ROOM_BYTES / sizeof(float) / (size_t)(ranks - 1) / 16 * 16;
    rooms = large_pages(2 * (size_t)ranks * (size_t)ranks * room * sizeof(float));
    sums = large_pages(2 * (size_t)ranks * room * sizeof(float));
    if (kind->round == tcp_round)
        tcp_connect();
    pthread_t threads[MOST];
    for (int r = 0; r < ranks; r++)
        start(&threads[r], r, atoi(argv[4 + r % (argc - 4)]));
    for (int r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    qsort(times, (size_t)rounds, sizeof *times, by_value);
    printf("%.2f\n", times[rounds / 2]);
    return 0;
}

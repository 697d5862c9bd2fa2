/* Send and receive: tags out of order, rings of started requests, nothing and megabytes, shared and
 * private buffers; and that a barrier is one. Over shared memory, tcp and both.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "ranks.h"

#define BIG ((size_t)3 << 20)
#define TAGS 40

#define PIECE 1009

/* The message, in pieces that repeat. */
static void make_piece(char piece[PIECE], int from, int to, int tag)
{
    for (int i = 0; i < PIECE; i++)
        piece[i] = (char)(from * 101 + to * 59 + tag * 7 + i * 13 + (i >> 8));
}

static void fill(char *at, int from, int to, int tag, size_t bytes)
{
    char piece[PIECE];
    make_piece(piece, from, to, tag);
    for (size_t i = 0; i < bytes; i += PIECE)
        memcpy(at + i, piece, bytes - i < PIECE ? bytes - i : PIECE);
}

static void check(rank *self, const char *at, int from, int to, int tag, size_t bytes)
{
    char piece[PIECE];
    make_piece(piece, from, to, tag);
    for (size_t i = 0; i < bytes; i += PIECE)
        CHECK(self, !memcmp(at + i, piece, bytes - i < PIECE ? bytes - i : PIECE),
              "bytes from %zu on of %zu, from %d, tag %d, differ", i, bytes, from, tag);
}

/* Rank 0 sends tags in one order, each other rank receives them in another: all are kept. */
static void out_of_order(rank *self, buffers *b)
{
    static const size_t sizes[] = {0, 1, 63, 64, 4096, 70000};
    for (int memory = 0; memory < MEMORIES; memory++) {
        char *send = buffers_pick(self, b, memory, SEND, 0);
        char *recv = buffers_pick(self, b, memory, RECV, 0);
        ls_request *sent[TAGS * RANKS_MAX] = {0};
        int n = 0;
        size_t at = 0;
        for (int tag = 0; self->rank == 0 && tag < TAGS; tag++) {
            size_t bytes = sizes[tag % 6];
            fill(send + at, 0, 0, tag, bytes);
            for (int to = 1; to < self->size; to++) {
                rank_case(self, "send tag %d to %d, %s", tag, to, memory_names[memory]);
                OK(self, ls_send_start(self->comm, send + at, bytes, LS_U8, to, tag, &sent[n++]));
            }
            at += bytes;
        }
        for (int i = TAGS - 1; self->rank > 0 && i >= 0; i--) {
            int tag = i * 7 % TAGS;
            rank_case(self, "recv tag %d, %s", tag, memory_names[memory]);
            buffers_poison(recv, sizes[tag % 6]);
            OK(self, ls_recv(self->comm, recv, sizes[tag % 6], LS_U8, 0, tag));
            check(self, recv, 0, 0, tag, sizes[tag % 6]);
            buffers_check_guard(self, recv, sizes[tag % 6]);
        }
        while (n > 0)
            OK(self, ls_request_wait(&sent[--n], 0));
        OK(self, ls_barrier(self->comm));
    }
}

/* The same tag many times: in the order of sending. */
static void in_order(rank *self)
{
    enum { N = 200 };
    int next = (self->rank + 1) % self->size, before = (self->rank + self->size - 1) % self->size;
    int32_t values[N], got[N];
    ls_request *requests[N];
    for (int i = 0; i < N; i++) {
        rank_case(self, "in order, send %d", i);
        values[i] = self->rank * 1000 + i;
        OK(self, ls_send_start(self->comm, &values[i], 1, LS_I32, next, 5, &requests[i]));
    }
    for (int i = 0; i < N; i++) {
        rank_case(self, "in order, recv %d", i);
        OK(self, ls_recv(self->comm, &got[i], 1, LS_I32, before, 5));
        CHECK(self, got[i] == before * 1000 + i, "message %d is %d", i, got[i]);
    }
    for (int i = 0; i < N; i++)
        OK(self, ls_request_wait(&requests[i], 0));
}

/* Everybody sends to the next and receives from the one before, all at once. */
static void ring(rank *self, buffers *b, size_t bytes, int memory)
{
    int next = (self->rank + 1) % self->size, before = (self->rank + self->size - 1) % self->size;
    char *send = buffers_pick(self, b, memory, SEND, 1);
    char *recv = buffers_pick(self, b, memory, RECV, 1);
    for (int receive_first = 0; receive_first < 2; receive_first++) {
        ls_request *out, *in;
        int tag = 1 << (self->size + 10);
        rank_case(self, "ring of %zu bytes, %s, %d", bytes, memory_names[memory], receive_first);
        fill(send, self->rank, next, tag, bytes);
        buffers_poison(recv, bytes);
        if (receive_first)
            OK(self, ls_recv_start(self->comm, recv, bytes, LS_U8, before, tag, &in));
        OK(self, ls_send_start(self->comm, send, bytes, LS_U8, next, tag, &out));
        if (!receive_first)
            OK(self, ls_recv_start(self->comm, recv, bytes, LS_U8, before, tag, &in));
        if (self->rank % 2) {
            OK(self, ls_request_wait(&out, 0));
            OK(self, ls_request_wait(&in, 0));
        } else {
            ls_status status;
            while ((status = ls_request_test(&in)) == LS_IN_PROGRESS)
                sched_yield();
            OK(self, status);
            OK(self, ls_request_wait(&out, 0));
        }
        CHECK(self, !in && !out);
        check(self, recv, before, self->rank, tag, bytes);
        buffers_check_guard(self, recv, bytes);
    }
}

/* Messages and collectives at the same time. */
static void mixed_with_collectives(rank *self)
{
    int next = (self->rank + 1) % self->size, before = (self->rank + self->size - 1) % self->size;
    for (int i = 0; i < 30; i++) {
        int64_t sum = self->rank, mine = i * 100 + self->rank, theirs = -1;
        ls_request *out, *in, *all;
        rank_case(self, "messages among collectives, %d", i);
        OK(self, ls_recv_start(self->comm, &theirs, 1, LS_I64, before, i, &in));
        OK(self, ls_allreduce_start(self->comm, LS_IN_PLACE, &sum, 1, LS_I64, LS_SUM, &all));
        OK(self, ls_send_start(self->comm, &mine, 1, LS_I64, next, i, &out));
        OK(self, ls_request_wait(&all, 0));
        OK(self, ls_request_wait(&out, 0));
        OK(self, ls_request_wait(&in, 0));
        CHECK(self, sum == self->size * (self->size - 1) / 2);
        CHECK(self, theirs == i * 100 + before);
    }
}

static atomic_int inside;

/* Nobody leaves a barrier before all have entered it. */
static void barriers(rank *self)
{
    for (int i = 1; i <= 100; i++) {
        rank_case(self, "barrier %d", i);
        if (i % 25 == self->rank)
            sleep_ms(2);
        atomic_fetch_add(&inside, 1);
        if (i % 3 == 0) {
            ls_request *request;
            OK(self, ls_barrier_start(self->comm, &request));
            OK(self, ls_request_wait(&request, 0));
        } else {
            OK(self, ls_barrier(self->comm));
        }
        CHECK(self, atomic_load(&inside) >= i * self->size, "left barrier %d too early", i);
    }
}

static void body(rank *self)
{
    buffers b;
    buffers_open(self, &b, BIG);
    out_of_order(self, &b);
    in_order(self);
    for (int memory = 0; memory < MEMORIES; memory++) {
        ring(self, &b, 0, memory);
        ring(self, &b, 4095, memory);
        ring(self, &b, 300000, memory);
        ring(self, &b, BIG - 1, memory);
    }
    mixed_with_collectives(self);
    barriers(self);
    rank_case(self, "the end");
    OK(self, ls_barrier(self->comm));
    buffers_close(self, &b);
}

static void run(ranks_layout layout)
{
    atomic_store(&inside, 0);
    ranks_run(&layout, body, NULL);
}

static void test_shm(void **unused)
{
    (void)unused;
    for (int n = 2; n <= 9; n += UNDER_SANITIZER ? 3 : n > 4 ? 2 : 1)
        run(ranks_shm(n));
}

static void test_tcp(void **unused)
{
    (void)unused;
    for (int n = 2; n <= 9; n += UNDER_SANITIZER ? 3 : n > 4 ? 2 : 1) {
        ranks_layout l = ranks_tcp(n);
        l.lanes = 1 + n % 3;
        run(l);
    }
}

static void test_two_levels(void **unused)
{
    (void)unused;
    static const char *const splits[] = {"1+2", "3+2", "1+1+1", "2+3+4"};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i += UNDER_SANITIZER ? 3 : 1)
        run(ranks_hosts(splits[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm),
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_two_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

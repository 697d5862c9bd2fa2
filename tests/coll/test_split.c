/* Groups within groups: who is in them, in which order; collectives on them, between those of their
 * parents; made and destroyed many times without a trace. Over shared memory, tcp and two levels,
 * also with members scattered over hosts.
 */
#include <stdlib.h>
#include <string.h>

#include "buffers.h"
#include "ranks.h"
#include "values.h"

#define COUNT_MAX ((size_t)9000)

static const values *wild; /* sums of f32 that show their order */

/* Everything of a group that can be checked from inside: its ranks in order, sums in tree order,
 * a broadcast from each, messages. `world` lists the world's ranks that must be in it. */
static void check_group(rank *self, ls_comm *comm, const int *world, int n, buffers *b)
{
    static const size_t counts[] = {3, 600, COUNT_MAX};
    static const char *const algorithms[] = {"direct", "hd", "tree"};
    int64_t mine = self->rank, all[RANKS_MAX];
    int me = ls_comm_rank(comm);
    CHECK(self, ls_comm_size(comm) == n, "size %d, not %d", ls_comm_size(comm), n);
    CHECK(self, me >= 0 && world[me] == self->rank, "rank %d", me);
    OK(self, ls_allgather(comm, &mine, all, 1, LS_I64));
    for (int i = 0; i < n; i++)
        CHECK(self, all[i] == world[i], "member %d is %d, not %d", i, (int)all[i], world[i]);
    for (size_t i = 0; i < 9; i++) {
        size_t count = counts[i / 3];
        char *send = buffers_pick(self, b, (int)i % MEMORIES, SEND, 0);
        char *recv = buffers_pick(self, b, (int)i % MEMORIES, RECV, 0);
        rank_select(self, comm, "allreduce", algorithms[i % 3]);
        values_fill(send, wild->input[me], 4, count);
        buffers_poison(recv, 4 * count);
        OK(self, ls_allreduce(comm, send, recv, count, LS_F32, LS_SUM));
        size_t at = values_differ(recv, wild->expected[n - 1], 4, 0, count);
        CHECK(self, at == count, "%s differs at %zu of %zu", algorithms[i % 3], at, count);
        buffers_check_guard(self, recv, 4 * count);
    }
    for (int root = 0; root < n; root++) {
        int64_t x = me == root ? 1000 + root : 0;
        OK(self, ls_broadcast(comm, &x, 1, LS_I64, root));
        CHECK(self, x == 1000 + root);
    }
    if (n > 1) {
        ls_request *request;
        int64_t x = me, y = -1;
        OK(self, ls_send_start(comm, &x, 1, LS_I64, (me + 1) % n, 7, &request));
        OK(self, ls_recv(comm, &y, 1, LS_I64, (me + n - 1) % n, 7));
        OK(self, ls_request_wait(&request, 0));
        CHECK(self, y == (me + n - 1) % n);
    }
    OK(self, ls_barrier(comm));
}

/* The members that a split makes for us. */
static int expect(const rank *self, const int *color, const int *key, int *world)
{
    int n = 0;
    for (int r = 0; r < self->size; r++) {
        if (color[r] != color[self->rank])
            continue;
        int at = n++;
        for (; at > 0 && key[world[at - 1]] > key[r]; at--)
            world[at] = world[at - 1];
        world[at] = r;
    }
    return n;
}

static void check_parent(rank *self)
{
    int64_t sum = self->rank;
    OK(self, ls_allreduce(self->comm, LS_IN_PLACE, &sum, 1, LS_I64, LS_SUM));
    CHECK(self, sum == self->size * (self->size - 1) / 2, "the parent's sum is %d", (int)sum);
}

static void split_once(rank *self, buffers *b, const char *name, const int *color, const int *key)
{
    int world[RANKS_MAX], n = expect(self, color, key, world);
    ls_comm *sub = (void *)self;
    rank_case(self, "%s", name);
    OK(self, ls_comm_split(self->comm, color[self->rank], key[self->rank], &sub));
    if (color[self->rank] < 0) {
        CHECK(self, sub == NULL);
    } else {
        check_group(self, sub, world, n, b);
        int locals = ls_comm_local_size(sub), local = ls_comm_local_rank(sub);
        CHECK(self, locals >= 1 && locals <= n && local >= 0 && local < locals);
    }
    check_parent(self);
    if (sub)
        check_group(self, sub, world, n, b);
    ls_comm_destroy(sub);
    check_parent(self);
}

static void shapes(rank *self, buffers *b)
{
    int color[RANKS_MAX], key[RANKS_MAX] = {0};
    for (int shape = 0; shape < 7; shape++) {
        for (int r = 0; r < self->size; r++) {
            color[r] = shape == 0   ? 0
                       : shape == 1 ? r % 2 /* scattered over hosts */
                       : shape == 2 ? r / 2
                       : shape == 3 ? r % 3 - 1 /* some take no part */
                       : shape == 4 ? 1000000 - r
                       : shape == 5 ? 5
                                    : -1 - r;
            key[r] = shape == 1 ? -r : shape == 2 ? r % 2 ? -5 : 5 : shape == 5 ? r * 7 % 5 : 0;
        }
        static const char *const names[] = {"all",           "odd and even, backwards",
                                            "pairs, turned", "some of none",
                                            "each alone",    "shuffled",
                                            "nobody"};
        split_once(self, b, names[shape], color, key);
    }
}

/* A group of a group of a group, all in use in turn. */
static void nested(rank *self, buffers *b)
{
    ls_comm *chain[4] = {self->comm};
    int depth = 0, world[4][RANKS_MAX], n[4] = {self->size};
    for (int r = 0; r < self->size; r++)
        world[0][r] = r;
    while (depth < 3 && n[depth] > 1) {
        int me = ls_comm_rank(chain[depth]), half = (n[depth] + 1) / 2, d = depth + 1;
        rank_case(self, "nested, level %d", d);
        OK(self, ls_comm_split(chain[depth], me < half, -me, &chain[d]));
        n[d] = me < half ? half : n[depth] - half;
        for (int i = 0; i < n[d]; i++)
            world[d][i] = world[depth][me < half ? half - 1 - i : n[depth] - 1 - i];
        depth = d;
        for (int i = depth; i >= depth - 1; i--)
            check_group(self, chain[i], world[i], n[i], b);
    }
    for (; depth > 0; depth--) {
        ls_comm_destroy(chain[depth]);
        check_group(self, chain[depth - 1], world[depth - 1], n[depth - 1], b);
    }
}

/* Operations under way on a group and its parent at once, started in another order by each. */
static void interleaved(rank *self)
{
    ls_comm *sub;
    rank_case(self, "interleaved with the parent");
    OK(self, ls_comm_split(self->comm, self->rank % 2, 0, &sub));
    for (int round = 0; round < 10; round++) {
        int64_t x[2][3];
        ls_request *request[2][3];
        for (int i = 0; i < 6; i++) {
            int which = (i + self->rank + round) % 2, k = i / 2;
            x[which][k] = self->rank + 100 * k;
            OK(self, ls_allreduce_start(which ? sub : self->comm, LS_IN_PLACE, &x[which][k], 1,
                                        LS_I64, LS_MAX, &request[which][k]));
        }
        for (int i = 5; i >= 0; i--) {
            int which = (i + self->rank) % 2, k = i / 2, last = self->size - 1;
            OK(self, ls_request_wait(&request[which][k], 0));
            if (which && last % 2 != self->rank % 2)
                last--;
            CHECK(self, x[which][k] == last + 100 * k, "%d", (int)x[which][k]);
        }
    }
    ls_comm_destroy(sub);
}

/* Made and destroyed over and over: the heap does not grow, and memory given back stays ours: a
 * member that is slow to come or to leave does not write into it. */
static void cycles(rank *self)
{
    size_t used = 0;
    int wanted = UNDER_SANITIZER || self->size > 5 ? 60 : 200;
    for (int i = 0; i < wanted; i++) {
        ls_comm *sub;
        void *memory;
        size_t bytes = lsi_board_bytes(self->size, self->comm->world->host.block->heap_bytes);
        rank_case(self, "cycle %d", i);
        OK(self,
           ls_comm_split(self->comm, i % 3 ? 0 : self->rank % 2, i % 2 ? self->rank : 0, &sub));
        if (i % 4 == 0) {
            int64_t sum = 1;
            OK(self, ls_allreduce(sub, LS_IN_PLACE, &sum, 1, LS_I64, LS_SUM));
            CHECK(self, sum == ls_comm_size(sub));
        }
        int late = i % 2 && ls_comm_rank(sub) > 0; /* who made the board goes first */
        if (!late)
            ls_comm_destroy(sub);
        OK(self, ls_alloc(self->comm, bytes, &memory));
        memset(memory, 0x5a, bytes);
        OK(self, ls_barrier(self->comm));
        const char *bytewise = memory;
        CHECK(self, *bytewise == 0x5a && !memcmp(bytewise, bytewise + 1, bytes - 1),
              "a destroyed group wrote into it");
        if (late)
            ls_comm_destroy(sub);
        ls_free(self->comm, memory);
        OK(self, ls_barrier(self->comm));
        if (i == 20)
            used = lsi_heap_used(self->comm->world->heap);
        if (i > 20)
            CHECK(self, lsi_heap_used(self->comm->world->heap) <= used + 2 * bytes,
                  "the heap grows: %zu after %zu", lsi_heap_used(self->comm->world->heap), used);
    }
}

static void body(rank *self)
{
    buffers b;
    buffers_open(self, &b, COUNT_MAX * 4);
    shapes(self, &b);
    nested(self, &b);
    interleaved(self);
    cycles(self);
    rank_case(self, "the end");
    OK(self, ls_barrier(self->comm));
    buffers_close(self, &b);
}

static void run(ranks_layout layout)
{
    for (int n = 1; n <= layout.size; n++)
        wild = values_get(LS_F32, LS_SUM, WILD, n);
    ranks_run(&layout, body, NULL);
}

static void test_shm(void **unused)
{
    (void)unused;
    for (int n = 1; n <= 9; n += n > 1 ? 3 : 1)
        run(ranks_shm(n));
}

static void test_tcp(void **unused)
{
    (void)unused;
    for (int n = 2; n <= 8; n += UNDER_SANITIZER ? 6 : 3)
        run(ranks_tcp(n));
}

static void test_two_levels(void **unused)
{
    (void)unused;
    static const char *const splits[] = {"2+3", "1+1+1", "4+1+3"};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i += UNDER_SANITIZER ? 2 : 1)
        run(ranks_hosts(splits[i]));
}

static void left_behind(rank *self)
{
    ls_comm *sub[3];
    for (int i = 0; i < 3; i++)
        OK(self, ls_comm_split(self->comm, 0, i, &sub[i]));
    ls_comm_destroy(sub[1]);
    ls_comm_destroy(NULL);
}

/* Groups that nobody destroys end with the world. */
static void test_left_behind(void **unused)
{
    (void)unused;
    ranks_layout l = ranks_shm(4);
    ranks_run(&l, left_behind, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm),
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_two_levels),
        cmocka_unit_test(test_left_behind),
    };
    setenv("LOCKSTEP_HEAP", "16M", 1); /* boards are made and filled again many times */
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    values_free();
    return failed;
}

/* Ranks as threads: opening the group, running the bodies, collecting what went wrong. */
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auth.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net.h"
#include "transport/fault.h"
#include "transport/tcp.h"

#define HEAP "256M" /* of a rank, unless the test has set LOCKSTEP_HEAP; sparse */

typedef struct ranks {
    ranks_layout layout;
    ranks_body body;
    rank ranks[RANKS_MAX];
    int host_of[RANKS_MAX], first_of[RANKS_MAX];
    lsi_host hosts[RANKS_MAX];
    int listeners[RANKS_MAX];
    char addresses[RANKS_MAX][LSI_ADDR_MAX];
    lsi_key key;
    /* rank_meet */
    pthread_mutex_t mutex;
    pthread_cond_t all_here;
    int here, turn, broken;
} ranks;

static ranks *running; /* for the alarm */

ranks_layout ranks_hosts(const char *sizes)
{
    ranks_layout l = {.lanes = 1};
    snprintf(l.name, sizeof l.name, "hosts %s", sizes);
    for (const char *p = sizes; *p;) {
        char *end;
        l.host_size[l.hosts] = (int)strtol(p, &end, 10);
        l.size += l.host_size[l.hosts++];
        p = end + (*end == '+');
    }
    return l;
}

ranks_layout ranks_shm(int size)
{
    ranks_layout l = {.hosts = 1, .host_size = {size}, .size = size, .lanes = 1};
    snprintf(l.name, sizeof l.name, "shm %d", size);
    return l;
}

ranks_layout ranks_tcp(int size)
{
    ranks_layout l = ranks_shm(size);
    l.tcp = 1;
    snprintf(l.name, sizeof l.name, "tcp %d", size);
    return l;
}

ranks_layout ranks_levels(int size)
{
    static const char *const splits[] = {"1",     "1+1", "2+1", "2+2",  "3+2",
                                         "1+2+3", "3+4", "4+4", "2+3+4"};
    assert_in_range(size, 1, sizeof splits / sizeof *splits);
    return ranks_hosts(splits[size - 1]);
}

const ranks_way ranks_ways[RANKS_WAYS] = {
    [RANKS_SHM] = {"shm", ranks_shm, 1},
    [RANKS_TCP] = {"tcp", ranks_tcp, 0},
    [RANKS_LEVELS] = {"two levels", ranks_levels, 1},
};

void sleep_ms(int ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0)
        ;
}

uint64_t rank_random(rank *self)
{
    uint64_t z = self->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void rank_case(rank *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(self->where, sizeof self->where, format, args);
    va_end(args);
}

void rank_select(rank *self, ls_comm *comm, const char *collective, const char *rules)
{
    OK(self, ls_comm_select(comm, collective, rules));
}

/* Nobody waits for us any more. */
static void break_meeting(ranks *g)
{
    pthread_mutex_lock(&g->mutex);
    g->broken = 1;
    pthread_cond_broadcast(&g->all_here);
    pthread_mutex_unlock(&g->mutex);
}

void rank_fail(rank *self, const char *file, int line, const char *what, const char *format, ...)
{
    const char *slash = strrchr(file, '/');
    int used = snprintf(self->error, sizeof self->error, "%s:%d: rank %d, in [%s]: %s ",
                        slash ? slash + 1 : file, line, self->rank, self->where, what);
    va_list args;
    va_start(args, format);
    vsnprintf(self->error + used, sizeof self->error - (size_t)used, format, args);
    va_end(args);
    self->failed = 1;
    break_meeting(self->group);
    longjmp(self->out, 1);
}

void rank_meet(rank *self)
{
    ranks *g = self->group;
    pthread_mutex_lock(&g->mutex);
    int turn = g->turn;
    if (++g->here == g->layout.size) {
        g->here = 0;
        g->turn++;
        pthread_cond_broadcast(&g->all_here);
    }
    while (g->turn == turn && !g->broken)
        pthread_cond_wait(&g->all_here, &g->mutex);
    int broken = g->turn == turn;
    pthread_mutex_unlock(&g->mutex);
    if (broken)
        rank_fail(self, __FILE__, __LINE__, "meeting", "another rank has failed");
}

static void on_alarm(int signal)
{
    static const char head[] = "\nHANG: the alarm rang; the ranks were in:\n";
    (void)signal;
    ssize_t ignored = write(STDERR_FILENO, head, sizeof head - 1);
    for (int r = 0; running && r < running->layout.size; r++) {
        const char *where = running->ranks[r].where, *what = running->layout.name;
        ignored = write(STDERR_FILENO, what, strlen(what));
        ignored = write(STDERR_FILENO, ": ", 2);
        ignored = write(STDERR_FILENO, where, strlen(where));
        ignored = write(STDERR_FILENO, "\n", 1);
    }
    (void)ignored;
    _exit(3);
}

static int is_remote(const ranks *g, int a, int b)
{
    return a != b && (g->layout.tcp || g->host_of[a] != g->host_of[b]);
}

static ls_status connect_tcp(ranks *g, int self, lsi_link **links)
{
    char addresses[RANKS_MAX][LSI_ADDR_MAX];
    int any = 0;
    memset(addresses, 0, sizeof addresses);
    for (int p = 0; p < g->layout.size; p++)
        if (is_remote(g, self, p)) {
            memcpy(addresses[p], g->addresses[p], LSI_ADDR_MAX);
            any = 1;
        }
    if (!any)
        return LS_OK;
    lsi_tcp_mesh mesh = {.listener = g->listeners[self],
                         .key = &g->key,
                         .self = self,
                         .size = g->layout.size,
                         .lanes = g->layout.lanes,
                         .addresses = (const char(*)[LSI_ADDR_MAX])addresses,
                         .deadline = lsi_now() + RANKS_TIMEOUT_S};
    return lsi_tcp_connect(&mesh, links);
}

static ls_status open_world(rank *self)
{
    ranks *g = self->group;
    const ranks_layout *l = &g->layout;
    int host = g->host_of[self->rank];
    lsi_link *links[RANKS_MAX * 16] = {0};
    lsi_world_config config = {.rank = self->rank,
                               .size = l->size,
                               .host_size = l->host_size,
                               .hosts = l->hosts,
                               .host = host,
                               .segment = &g->hosts[host],
                               .links = l->size > 1 ? links : NULL,
                               .lanes = l->lanes,
                               .use_boards = !l->tcp};
    const char *transport;
    LSI_TRY(lsi_world_settings(NULL, &config.timeout_s, &config.warn_after_s, &transport));
    if (l->timeout_s > 0)
        config.timeout_s = l->timeout_s;
    if (!l->tcp)
        LSI_TRY(lsi_world_shm_links(&g->hosts[host], self->rank, l->lanes, links));
    LSI_TRY(connect_tcp(g, self->rank, links));
    for (int i = 0; l->fault && i < l->size * l->lanes; i++)
        if (links[i])
            LSI_TRY(lsi_fault_wrap(l->fault, self->rank, i / l->lanes, &links[i]));
    for (int i = 0; l->wrap && i < l->size * l->lanes; i++)
        if (links[i])
            l->wrap(self->rank, i / l->lanes, i % l->lanes, &links[i]);
    return lsi_world_open(&config, &self->comm);
}

static void *run_rank(void *arg)
{
    rank *self = arg;
    lsi_log_set_rank(self->rank);
    rank_case(self, "opening");
    if (setjmp(self->out) == 0) {
        OK(self, open_world(self));
        rank_meet(self); /* or who fails on purpose would fail those who are still opening */
        self->group->body(self);
    }
    if (self->comm && self->failed) {
        char text[LSI_ERROR_MAX];
        snprintf(text, sizeof text, "the test failed: %.900s", self->error);
        lsi_comm_fail(self->comm, LS_ERR_ABORTED, text);
    }
    rank_case(self, "closing");
    ls_finalize(self->comm);
    rank_case(self, "closed");
    return NULL;
}

static void open_group(ranks *g)
{
    int r = 0;
    for (int h = 0; h < g->layout.hosts; h++) {
        int n = g->layout.host_size[h];
        assert_int_equal(lsi_host_create(g->layout.size, r, n, &g->hosts[h]), LS_OK);
        for (int i = 0; i < n; i++, r++)
            g->host_of[r] = h;
    }
    assert_int_equal(r, g->layout.size);
    assert_int_equal(lsi_key_generate(&g->key), LS_OK);
    for (r = 0; r < g->layout.size; r++) {
        g->listeners[r] = -1;
        if (g->layout.size > 1 && (g->layout.tcp || g->layout.hosts > 1))
            assert_int_equal(lsi_net_listen(NULL, 0, &g->listeners[r], g->addresses[r]), LS_OK);
    }
}

/* All errors in one text; the ranks that failed because another one did come last. */
static void report(const ranks *g)
{
    int failed = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < g->layout.size; r++) {
            const rank *k = &g->ranks[r];
            int second_hand =
                strstr(k->error, "the test failed:") || strstr(k->error, "another rank has failed");
            if (!k->failed || second_hand != pass)
                continue;
            failed++;
            if (pass == 0 || failed == 1)
                fprintf(stderr, "%s: %s\n", g->layout.name, k->error);
        }
    if (failed)
        fail_msg("%s: %d of %d ranks failed", g->layout.name, failed, g->layout.size);
}

void ranks_run(const ranks_layout *layout, ranks_body body, void *arg)
{
    ranks *g = calloc(1, sizeof *g);
    pthread_t threads[RANKS_MAX];
    assert_non_null(g);
    assert_in_range(layout->size, 1, RANKS_MAX);
    setenv("LOCKSTEP_HEAP", HEAP, 0);
    setenv("LOCKSTEP_TIMEOUT", "10", 0);
    setenv("LOCKSTEP_LOG", "error", 0);
    g->layout = *layout;
    g->body = body;
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->all_here, NULL);
    open_group(g);
    running = g;
    signal(SIGALRM, on_alarm);
    alarm((layout->alarm_s ? layout->alarm_s : 60) * (UNDER_SANITIZER ? 8 : 1));
    for (int r = 0; r < layout->size; r++) {
        g->ranks[r] = (rank){.rank = r, .size = layout->size, .arg = arg, .group = g, .random = 7};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &g->ranks[r]), 0);
    }
    for (int r = 0; r < layout->size; r++)
        pthread_join(threads[r], NULL);
    alarm(0);
    running = NULL;
    for (int r = 0; r < layout->size; r++)
        if (g->listeners[r] >= 0)
            close(g->listeners[r]);
    for (int h = 0; h < layout->hosts; h++)
        lsi_host_unmap(&g->hosts[h]);
    pthread_mutex_destroy(&g->mutex);
    pthread_cond_destroy(&g->all_here);
    report(g);
    free(g);
}

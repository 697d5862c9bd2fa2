/* N ranks as threads of one process: the fixture of the tests that need a group.
 *
 * A layout says which ranks share a (simulated) host and how they are linked; ranks_run opens the
 * group, calls the body in every thread and closes it. cmocka is not thread safe, so a body checks
 * with CHECK and OK: the first failure of a rank is kept with the case it was in, ends that rank's
 * body, fails the group (so that the others do not hang), and is reported by the main thread.
 *
 * Every run has an alarm: a group that hangs ends the process and names what each rank was doing.
 */
#ifndef LS_TEST_RANKS_H
#define LS_TEST_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll/comm.h"
#include <lockstep/lockstep.h>

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif
#ifndef UNDER_ASAN
#define UNDER_ASAN 0
#endif

#define UNDER_SANITIZER (UNDER_TSAN || UNDER_ASAN)

#define RANKS_MAX 12
#define RANKS_TIMEOUT_S 10

/* Which ranks live where. Make one with ranks_shm, ranks_tcp, ranks_hosts, or from ranks_ways. */
typedef struct ranks_layout {
    char name[64];
    int hosts, host_size[RANKS_MAX], size;
    int tcp;           /* all links over tcp and no boards, also inside a host */
    int lanes;         /* sockets for each peer */
    double timeout_s;  /* of the communicator; 0: RANKS_TIMEOUT_S */
    const char *fault; /* plan for all links, or NULL */
    /* Puts something in front of each link, or NULL. */
    void (*wrap)(int self, int peer, int lane, lsi_link **link);
    unsigned alarm_s; /* 0: 60, more under sanitizers */
} ranks_layout;

/* One host, shared memory. */
ranks_layout ranks_shm(int size);
/* One host, tcp between all. */
ranks_layout ranks_tcp(int size);
/* Several hosts, e.g. "2+3+4": shared memory inside, tcp between. */
ranks_layout ranks_hosts(const char *sizes);
/* Two levels: a split of `size` (1 to 9) ranks over hosts. */
ranks_layout ranks_levels(int size);

/* The list of ways to link ranks: what has to hold over all of them is run over every row. */
typedef struct ranks_way {
    const char *name;
    ranks_layout (*layout)(int size);
    int reads_memory; /* ranks reach each other's memory, so it matters where buffers lie */
} ranks_way;
enum { RANKS_SHM, RANKS_TCP, RANKS_LEVELS, RANKS_WAYS };
extern const ranks_way ranks_ways[RANKS_WAYS];

typedef struct rank {
    ls_comm *comm; /* the world */
    int rank, size;
    void *arg;
    uint64_t random; /* state of rank_random, equal on all ranks at first */
    /* The fixture's. */
    struct ranks *group;
    jmp_buf out;
    int failed;
    char where[240];
    char error[2000];
} rank;

typedef void (*ranks_body)(rank *self);

/* Run `body` on all ranks of the layout; fails the test if any of them failed. */
void ranks_run(const ranks_layout *layout, ranks_body body, void *arg);

/* Say what comes next, for whoever reads of a failure or hang. */
void rank_case(rank *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Note the failure and leave the body. */
void rank_fail(rank *self, const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 5, 6), noreturn));
/* Wait for all ranks, without the library. */
void rank_meet(rank *self);
/* The next number of a sequence that is the same on every rank (as long as all draw equally). */
uint64_t rank_random(rank *self);
void sleep_ms(int ms);
/* ls_comm_select on every one of the comma separated collectives that offers the algorithm. */
void rank_select(rank *self, ls_comm *comm, const char *collective, const char *rules);

/* In a body: the condition holds, or this rank has failed. */
#define CHECK(self, condition, ...)                                                                \
    do {                                                                                           \
        if (!(condition))                                                                          \
            rank_fail(self, __FILE__, __LINE__, #condition, " " __VA_ARGS__);                      \
    } while (0)

/* In a body: the call returns LS_OK. */
#define OK(self, call)                                                                             \
    do {                                                                                           \
        ls_status ok_status = (call);                                                              \
        if (ok_status != LS_OK)                                                                    \
            rank_fail(self, __FILE__, __LINE__, #call, "is %s: %s", ls_status_name(ok_status),     \
                      ls_last_error());                                                            \
    } while (0)

/* In a body: the call returns exactly `status`. */
#define IS(self, call, status)                                                                     \
    do {                                                                                           \
        ls_status is_status = (call);                                                              \
        if (is_status != (status))                                                                 \
            rank_fail(self, __FILE__, __LINE__, #call, "is %s, not %s: %s",                        \
                      ls_status_name(is_status), #status, ls_last_error());                        \
    } while (0)

#endif

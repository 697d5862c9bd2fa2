/* How a rank waits: look, yield, sleep; warn; give up at the deadline and say who is missing.
 *
 * A wait first looks (a few microseconds), then yields, then sleeps: on the rank's doorbell, or on
 * its sockets. Ranks that outnumber the cores do not keep each other from running: they look only
 * while nobody whom they wait for needs their core, and yield for longer. A sleep lasts a
 * millisecond at most: a ring that falls between the last look and the sleep costs that, and
 * publishing needs no fence.
 */
#include "coll/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/life.h"
#include "base/log.h"
#include "coll/board_ops.h"

#define EAGER 200 /* looks without a pause: an answer from the next core takes 0.1 us */
#define YIELDS 64
/* In a crowd a change of process takes as long as everything else that a small operation needs, and
 * whoever sleeps has to be woken by somebody who has work to do: an all-reduce of 16 MiB over TCP
 * takes eight ranks on two cores 0.87 of the time when they yield so often first (Zen 4). */
#define YIELDS_CROWDED 2000
#define LOOKS_APART 500 /* while all who are awaited run on other cores */
#define ANSWER_S 0.05   /* time for the others to say how far they are */
#define LAST_ASK_S 0.2
#define SLEEP_S 1e-3
#define SLEEP_SOCKET_S 20e-3

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int is_inside(const ls_request *r, int m)
{
    const ls_comm *comm = r->comm;
    int inside = comm->entered[m] >= r->seq;
    for (int i = 0; comm->has_board && i < comm->local_size; i++)
        if (comm->locals[i] == m)
            inside |= lsi_board_reached(lsi_board_slot(&comm->board, r->seq, i), r->seq,
                                        LSI_PHASE_ENTERED);
    return inside;
}

/* "rank 1, 4": the others that are (not) inside, maybe only those that do not answer. Returns how
 * many they are. */
static int list_members(const ls_request *r, int inside, int silent, char *text, size_t bytes)
{
    int n = 0;
    size_t used = 0;
    for (int m = 0; m < r->comm->size; m++) {
        if (m == r->comm->rank || is_inside(r, m) != inside || (silent && r->comm->heard[m]))
            continue;
        if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%d", n ? ", " : "rank ", m);
        n++;
    }
    return n;
}

/* Whose message, or whose part on the board, has not come? Listed as above. */
static int list_awaited(const ls_request *r, char *text, size_t bytes)
{
    const ls_comm *comm = r->comm;
    const lsi_schedule *s = &r->schedule;
    int n = 0, two_level = r->step == lsi_two_level_step;
    size_t used = 0;
    for (int m = 0; m < comm->size; m++) {
        int awaited = two_level && comm->local_rank > 0 && m == comm->locals[0];
        if (r->step == lsi_schedule_progress || (two_level && comm->local_rank == 0))
            for (int i = s->first; i < s->n; i++)
                awaited |= s->steps[i].state == LSI_STEP_STARTED && s->steps[i].peer == m;
        if (awaited && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%d", n ? ", " : "rank ", m);
        n += awaited;
    }
    return n;
}

/* Who keeps this operation waiting? Not those who answer: they are waiting themselves. */
static void name_missing(const ls_request *r, char *text, size_t bytes)
{
    char who[300];
    int n;
    if (r->call.coll == LSI_P2P)
        snprintf(text, bytes, "rank %d has not %s the message%s", r->call.root,
                 r->call.sending ? "taken" : "sent",
                 r->comm->heard[r->call.root] ? ", it is waiting itself" : "");
    else if ((n = list_members(r, 0, 1, who, sizeof who)) > 0)
        snprintf(text, bytes, "%s ha%s not entered it", who, n > 1 ? "ve" : "s");
    else if ((n = list_members(r, 1, 1, who, sizeof who)) > 0)
        snprintf(text, bytes, "%s ha%s entered it, but do%s not answer", who, n > 1 ? "ve" : "s",
                 n > 1 ? "" : "es");
    else if ((n = list_members(r, 0, 0, who, sizeof who)) > 0)
        snprintf(text, bytes, "%s ha%s not entered it", who, n > 1 ? "ve" : "s");
    else if (list_awaited(r, who, sizeof who) > 0)
        snprintf(text, bytes, "all ranks have entered it, but something from %s has not come", who);
    else
        snprintf(text, bytes, "all ranks have entered it, but not all have finished their part");
}

/* Ask the others how far they are before we say who is missing: to wait for somebody who waits is
 * no fault. Once before the warning, once before the deadline. */
static void ask(ls_request *r, lsi_wait *wait, double now)
{
    ls_comm *comm = r->comm;
    lsi_world *w = comm->world;
    if (!wait->asked)
        wait->warn_at = now + ANSWER_S;
    wait->asked = 1;
    wait->ask_at = wait->deadline - LAST_ASK_S;
    if (wait->ask_at < now + ANSWER_S)
        wait->ask_at = wait->deadline + 1;
    memset(comm->heard, 0, (size_t)comm->size);
    for (int m = 0; m < comm->size && w->port; m++)
        if (m != comm->rank)
            lsi_port_control(w->port, comm->ranks[m], LSI_WIRE_STATUS, comm->id, r->seq, "?");
}

static void warn(ls_request *r, lsi_wait *wait, double now)
{
    char call[LSI_DESCRIBE_MAX], missing[400];
    wait->warned = 1;
    name_missing(r, missing, sizeof missing);
    lsi_log(LSI_LOG_WARN, "%s: waiting for %.1f s: %s",
            lsi_call_describe(&r->call.what, call, sizeof call), now - wait->start, missing);
}

static ls_status time_out(ls_request *r, const lsi_wait *wait)
{
    char call[LSI_DESCRIBE_MAX], missing[400], text[LSI_ERROR_MAX];
    if (!wait->asked)
        memset(r->comm->heard, 1, (size_t)r->comm->size);
    name_missing(r, missing, sizeof missing);
    snprintf(text, sizeof text, "%s: no end after %.3g s: %s (LOCKSTEP_TIMEOUT sets the deadline)",
             lsi_call_describe(&r->call.what, call, sizeof call), wait->deadline - wait->start,
             missing);
    return lsi_comm_fail(r->comm, LS_ERR_TIMEOUT, text);
}

/* Sockets wake whoever waits for messages, the doorbell whoever waits for the board. */
static void sleep_a_little(ls_request *r)
{
    lsi_world *w = r->comm->world;
    int board = r->comm->has_board && r->step != lsi_schedule_progress && r->seq &&
                !lsi_two_level_between(r);
    if (!board && w->port && lsi_port_sockets(w->port)) {
        lsi_port_wait(w->port, w->active && w->use_boards ? SLEEP_S : SLEEP_SOCKET_S);
        return;
    }
    lsi_host_rank *me = &w->host.block->ranks[w->rank];
    uint32_t bell = atomic_load_explicit(&me->doorbell, memory_order_acquire);
    struct timespec limit = {0, (long)(SLEEP_S * 1e9)};
    syscall(SYS_futex, &me->doorbell, FUTEX_WAIT, bell, &limit, NULL, 0);
}

/* A member that has left in order will not enter any more. */
static void check_left(ls_request *r)
{
    ls_comm *comm = r->comm;
    for (int i = 0; comm->has_board && r->seq && i < comm->local_size; i++) {
        int rank = comm->ranks[comm->locals[i]];
        uint32_t state = atomic_load(&comm->world->host.block->ranks[rank].state);
        if (state != LSI_RANK_LEFT || i == comm->local_rank ||
            lsi_board_reached(lsi_board_slot(&comm->board, r->seq, i), r->seq, LSI_PHASE_ENTERED))
            continue;
        lsi_world_look(comm->world); /* a failure that made it leave says more */
        if (comm->failed != LS_OK || atomic_load(&comm->board.head->aborted))
            return; /* its text may be on the way: the next look finds it */
        char call[LSI_DESCRIBE_MAX], text[LSI_ERROR_MAX];
        snprintf(text, sizeof text, "%s: rank %d has left the group without entering it",
                 lsi_call_describe(&r->call.what, call, sizeof call), comm->locals[i]);
        lsi_comm_fail(comm, LS_ERR_PEER_DEAD, text);
        return;
    }
}

/* How often to look before we yield. In a crowd who waits for a neighbour on its own core makes
 * room at once, and who waits for other cores alone keeps its own: whoever it let in would find
 * nothing to do. With the last of each core waiting so, n ranks on two cores change places n - 2
 * times an operation. */
static unsigned looks_of(const ls_request *r)
{
    const lsi_world *w = r->comm->world;
    if (!w->crowded || (r->step != lsi_board_step && r->step != lsi_board_stage))
        return (unsigned)w->spins;
    return lsi_board_awaits_neighbour(r) ? 0 : LOOKS_APART;
}

ls_status lsi_wait_pause(ls_request *r, lsi_wait *wait)
{
    lsi_world *w = r->comm->world;
    if (wait->looks < looks_of(r)) {
        if (++wait->looks > EAGER || w->crowded)
            relax();
        return LS_OK;
    }
    lsi_world_look(w);
    if (r->comm->failed != LS_OK)
        return LS_OK; /* the caller sees it */
    if (wait->yields < (w->crowded ? YIELDS_CROWDED : YIELDS)) {
        wait->yields++;
        sched_yield();
        return LS_OK;
    }
    double now = lsi_now();
    if (wait->deadline < 0)
        wait->deadline = now + w->timeout_s;
    if (wait->start == 0) {
        wait->start = now;
        wait->warn_at = now + w->warn_after_s;
        if (wait->warn_at > now + (wait->deadline - now) / 2)
            wait->warn_at = now + (wait->deadline - now) / 2;
        wait->ask_at = wait->warn_at;
    }
    check_left(r);
    if (r->comm->failed != LS_OK)
        return LS_OK;
    if (now > wait->deadline)
        return time_out(r, wait);
    if (now > wait->ask_at)
        ask(r, wait, now);
    else if (now > wait->warn_at && !wait->warned)
        warn(r, wait, now);
    lsi_host_rank *me = &w->host.block->ranks[w->rank];
    lsi_life_beat(me);
    atomic_store(&me->asleep, 1);
    ls_status status = r->step(r); /* once more, now that others know whom to wake */
    if (status == LS_IN_PROGRESS)
        sleep_a_little(r);
    else
        lsi_request_finish(r, status);
    atomic_store_explicit(&me->asleep, 0, memory_order_relaxed);
    return LS_OK;
}

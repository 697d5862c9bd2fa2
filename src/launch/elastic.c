/* The launcher of an elastic run: workers die and are replaced, hosts come and go.
 *
 *     worker at the gate -> council: so many wait here -> a generation is decided -> segment, boot
 *     records, let them in -> a death, a wish -> all come back to the gate -> …
 *
 * Invariants:
 * 1. A death is marked in the host block of the generation before anything else is done about it.
 * 2. A new generation is entered only when none of our workers is inside the one before: whoever
 *    reads or finishes what was left there is alone with it.
 * 3. What workers gave us to keep (gate.h) stays open while the launcher lives.
 * 4. A worker that ends with an error of its own ends the run: it would fail again. One that was
 *    killed is replaced, at once at first, then with pauses, a limited number of times.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/gate.h"
#include "base/log.h"
#include "base/status.h"
#include "launch/council.h"
#include "launch/run.h"
#include "launch/status.h"
#include "launch/verdict.h"
#include "launch/watch.h"

#define EVENTS 64
#define SHORT_LIFE_S 10.0 /* a worker that lived for less gets a pause before the next */
#define PAUSE_S 0.1       /* the first; then twice as long each time, up to */
#define PAUSE_MOST_S 10.0
#define SAME_WISH_S 0.2 /* as in signals.c */
#define GOODBYE_S 2.0   /* for other hosts to hear of the end */

struct lsi_elastic {
    lsi_council council;
    int watched; /* the council's descriptor that is in the epoll set; -1: none */
    int kept[LSI_KEPT_COUNT];
    uint64_t generation; /* the latest that our workers have entered */
    uint64_t declined;   /* one that began while they were still inside an older one */
    int first_rank;      /* there */
    lsi_table table;     /* its hosts */
    int leaving;         /* this host was asked to go */
    int ended;           /* the run has, and our workers know it */
    double ended_at;
    int status; /* of our own first failure */
    lsi_watch watch;
    char folder[PATH_MAX]; /* of the run; "": none */
    int status_fd;         /* listens there; -1: not */
};

/* ---- what is said of this host --------------------------------------------------------------- */

static int count_inside(const lsi_run *run)
{
    int n = 0;
    for (int i = 0; i < run->config->ranks; i++)
        n += run->children[i].pid > 0 && run->children[i].inside != 0;
    return n;
}

static int count_here(const lsi_run *run)
{
    int n = 0;
    for (int i = 0; i < run->config->ranks; i++)
        n += run->children[i].pid > 0 && run->children[i].here;
    return n;
}

/* At the start the others wait for all of our workers. */
static int are_all_started(const lsi_run *run)
{
    for (int i = 0; i < run->config->ranks; i++)
        if (run->children[i].pid > 0 && !run->children[i].here && !run->children[i].inside)
            return 0;
    return 1;
}

static void tell(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    const int waits = e->generation > 0 || are_all_started(run);
    const uint64_t latest = e->declined > e->generation ? e->declined : e->generation;
    lsi_council_tell(&e->council, latest, waits ? count_here(run) : 0, count_inside(run),
                     e->leaving);
}

/* ---- the gate
 * --------------------------------------------------------------------------------- */

/* The run's folder, from the first line of its papers. */
static void read_folder(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    char line[PATH_MAX + sizeof LSI_PAPERS_OUT];
    const size_t head = strlen(LSI_PAPERS_OUT);
    const ssize_t n = pread(e->kept[LSI_KEPT_PAPERS], line, sizeof line - 1, 0);
    line[n > 0 ? n : 0] = 0;
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, LSI_PAPERS_OUT, head) == 0 && strlen(line) < sizeof e->folder)
        memcpy(e->folder, line + head, strlen(line + head) + 1);
    if (!e->folder[0])
        return;
    e->status_fd = lsi_status_listen(e->folder);
    if (e->status_fd >= 0)
        (void)lsi_run_watch(run->epoll, e->status_fd, EPOLLIN, LSI_EVENT_STATUS, 0);
}

static void keep(lsi_run *run, lsi_child *child, lsi_gate_message *m)
{
    lsi_elastic *e = run->elastic;
    int *place = m->own                                     ? &child->state
                 : m->what >= 0 && m->what < LSI_KEPT_COUNT ? &e->kept[m->what]
                                                            : NULL;
    if (place && *place < 0 && m->n_files == 1) {
        *place = m->files[0];
        m->n_files = 0;
        if (!m->own && m->what == LSI_KEPT_PAPERS)
            read_folder(run);
    }
    lsi_gate_drop(m, -1);
}

static void hand_out(lsi_run *run)
{
    const int file = run->elastic->kept[LSI_KEPT_STATE];
    for (int i = 0; file >= 0 && i < run->config->ranks; i++) {
        lsi_child *child = &run->children[i];
        const lsi_gate_message m = {.kind = LSI_GATE_KEPT,
                                    .what = LSI_KEPT_STATE,
                                    .n_files = 1,
                                    .files = {file}};
        if (child->wants_state && child->gate >= 0)
            (void)lsi_gate_send(child->gate, &m);
        child->wants_state = 0;
    }
}

static void send_home(lsi_child *child)
{
    const lsi_gate_message m = {.kind = LSI_GATE_GO};
    if (child->pid > 0 && child->here && child->gate >= 0)
        (void)lsi_gate_send(child->gate, &m);
    child->here = 0;
    child->leaving = 1; /* its end is in order */
}

static void on_end(void *arg);

static void on_message(lsi_run *run, lsi_child *child, lsi_gate_message *m)
{
    lsi_elastic *e = run->elastic;
    switch ((lsi_gate_kind)m->kind) {
    case LSI_GATE_HERE:
        child->here = 1;
        child->inside = 0;
        if (e->ended || (e->leaving && !child->since))
            send_home(child);
        break;
    case LSI_GATE_KEEP: keep(run, child, m); break;
    case LSI_GATE_WANT: child->wants_state = 1; break;
    case LSI_GATE_DONE:
        child->done = 1;
        if (e->table.stop && !e->council.stop)
            lsi_council_end(&e->council, 1, "too few were left to go on; the work was saved");
        else
            lsi_council_end(&e->council, 0, "done");
        on_end(run); /* now: its end may be in the same breath */
        break;
    case LSI_GATE_LEAVE: child->leaving = 1; break;
    default: break;
    }
    lsi_gate_drop(m, -1);
    hand_out(run);
}

static void on_gate(lsi_run *run, int index)
{
    lsi_child *child = &run->children[index];
    lsi_gate_message m;
    ls_status status;
    while (child->gate >= 0 && (status = lsi_gate_receive(child->gate, 0, &m)) != LS_IN_PROGRESS) {
        if (status == LS_OK) {
            on_message(run, child, &m);
            continue;
        }
        close(child->gate); /* its end follows */
        child->gate = -1;
    }
    tell(run);
}

/* ---- entering a generation
 * -------------------------------------------------------------------- */

/* The `n` of our workers that wait who have been with the run for the longest, by their numbers. */
static int choose(const lsi_run *run, int n, int chosen[LSI_MAX_RANKS])
{
    int count = 0;
    for (int i = 0; i < run->config->ranks; i++) {
        const lsi_child *child = &run->children[i];
        if (child->pid <= 0 || !child->here)
            continue;
        int at = count++;
        const uint64_t since = child->since ? child->since : UINT64_MAX;
        for (; at > 0; at--) {
            const uint64_t before = run->children[chosen[at - 1]].since;
            if (before && before <= since)
                break;
            if (!before && since == UINT64_MAX)
                break;
            chosen[at] = chosen[at - 1];
        }
        chosen[at] = i;
    }
    return count < n ? count : n;
}

static void let_in(lsi_run *run, int index, int rank, const lsi_boot *general)
{
    lsi_elastic *e = run->elastic;
    lsi_child *child = &run->children[index];
    lsi_gate_message m = {.kind = LSI_GATE_ENTER, .generation = e->generation, .boot = *general};
    m.boot.rank = rank;
    m.boot.slot = index;
    m.files[m.n_files++] = run->segment.fd;
    for (int k = 0; k < LSI_KEPT_COUNT; k++) {
        const int file = k == LSI_KEPT_STATE && child->state >= 0 ? child->state : e->kept[k];
        if (file < 0)
            continue;
        m.kept |= 1u << k;
        m.files[m.n_files++] = file;
    }
    child->here = 0;
    child->inside = e->generation;
    child->rank = rank;
    child->since = child->since ? child->since : e->generation;
    if (lsi_gate_send(child->gate, &m) != LS_OK)
        lsi_log(LSI_LOG_INFO, "worker %d: %s", index, ls_last_error());
    explicit_bzero(&m, sizeof m);
}

static void fill_boot(const lsi_run *run, int place, int ranks, lsi_boot *boot)
{
    const lsi_elastic *e = run->elastic;
    const lsi_council *c = &e->council;
    *boot = (lsi_boot){.magic = LSI_BOOT_MAGIC,
                       .version = LSI_BOOT_VERSION,
                       .size = ranks,
                       .host = place,
                       .hosts = e->table.hosts,
                       .generation = e->generation,
                       .slots = run->config->ranks,
                       .key = c->key};
    for (int h = 0; h < e->table.hosts; h++)
        boot->host_size[h] = e->table.size[h];
    snprintf(boot->store, sizeof boot->store, "%.*s", LSI_ADDR_MAX - 1,
             strncmp(c->url, "tcp://", 6) ? c->url : c->url + 6);
    snprintf(boot->bind, sizeof boot->bind, "%s", c->bind);
}

/* Whoever is still inside an older generation is alone there. */
static void abandon(lsi_run *run, const char *cause)
{
    const lsi_elastic *e = run->elastic;
    int ranks = 0;
    for (int h = 0; h < e->table.hosts; h++)
        ranks += e->table.size[h];
    for (int r = 0; run->segment.block && r < ranks; r++)
        if (r < e->first_rank || r >= e->first_rank + (int)run->segment.block->local_size)
            lsi_host_mark_dead(run->segment.block, r, cause);
}

static void set_wishes(lsi_run *run)
{
    const lsi_elastic *e = run->elastic;
    unsigned wish = 0;
    if (!run->segment.block)
        return;
    if (e->council.stop || e->table.stop)
        wish |= LSI_WISH_STOP;
    if (e->council.change >= e->generation || e->leaving)
        wish |= LSI_WISH_CHANGE;
    atomic_store(&run->segment.block->wish, wish);
}

/* A generation that counts on our workers, while they are still inside an older one: they come too
 * late for it. The others are told, or they would wait. */
static void decline(lsi_run *run, const lsi_table *table, int place, int first)
{
    lsi_elastic *e = run->elastic;
    for (int i = 0; place >= 0 && i < table->size[place]; i++)
        lsi_council_tell_dead(&e->council, table->generation, first + i,
                              "it was still inside an older generation");
    if (place >= 0)
        e->declined = table->generation;
}

static void on_generation(void *arg, const lsi_table *table)
{
    lsi_run *run = arg;
    lsi_elastic *e = run->elastic;
    int first = 0, ranks = 0, chosen[LSI_MAX_RANKS];
    const int place = lsi_council_place(&e->council, table, &first, &ranks);
    if (count_inside(run)) {
        abandon(run, "the other hosts have gone on without this one");
        decline(run, table, place, first);
        return;
    }
    if (place < 0)
        return;
    lsi_host segment;
    if (lsi_host_create(ranks, first, table->size[place], &segment) != LS_OK) {
        lsi_log(LSI_LOG_ERROR, "%s", ls_last_error());
        lsi_council_end(&e->council, 1, ls_last_error());
        return;
    }
    lsi_host_unmap(&run->segment);
    run->segment = segment;
    e->table = *table;
    e->generation = table->generation;
    e->first_rank = first;
    set_wishes(run);
    lsi_boot boot;
    fill_boot(run, place, ranks, &boot);
    const int n = choose(run, table->size[place], chosen);
    for (int i = 0; i < n; i++)
        let_in(run, chosen[i], first + i, &boot);
    for (int i = n; i < table->size[place]; i++) /* died since we said that they wait */
        lsi_host_mark_dead(run->segment.block, first + i, "it died before it could enter");
    for (int i = n; i < table->size[place]; i++)
        lsi_council_tell_dead(&e->council, e->generation, first + i,
                              "it died before it could enter");
    explicit_bzero(&boot, sizeof boot);
    lsi_log(LSI_LOG_INFO, "generation %llu: %d workers on %d hosts, from %d on here",
            (unsigned long long)e->generation, ranks, table->hosts, first);
}

/* ---- what the council tells
 * -------------------------------------------------------------------- */

static void on_wishes(void *arg)
{
    set_wishes(arg);
}

static void on_remote_death(void *arg, uint64_t generation, int rank, const char *cause)
{
    lsi_run *run = arg;
    const lsi_elastic *e = run->elastic;
    if (generation == e->generation && run->segment.block && rank < (int)run->segment.block->size)
        lsi_host_mark_dead(run->segment.block, rank, cause);
}

static void on_lost_host(void *arg, uint64_t id, const char *cause)
{
    lsi_run *run = arg;
    const lsi_elastic *e = run->elastic;
    int rank = 0;
    for (int h = 0; h < e->table.hosts; h++) {
        for (int i = 0; i < e->table.size[h]; i++, rank++)
            if (e->table.id[h] == id && run->segment.block)
                lsi_host_mark_dead(run->segment.block, rank, cause);
        if (e->table.id[h] == id && count_inside(run))
            lsi_log(LSI_LOG_WARN, "host %llu is gone (%s); going on without it",
                    (unsigned long long)id, cause);
    }
}

static void on_end(void *arg)
{
    lsi_run *run = arg;
    lsi_elastic *e = run->elastic;
    if (e->ended)
        return;
    e->ended = 1;
    e->ended_at = lsi_now();
    if (e->council.end_status && !e->status)
        lsi_log(LSI_LOG_ERROR, "the run has ended: %s", e->council.end_cause);
    for (int i = 0; i < run->config->ranks; i++) {
        run->children[i].start_at = INFINITY;
        if (run->children[i].here)
            send_home(&run->children[i]);
    }
    if (e->council.end_status)
        abandon(run, "the run has ended");
    run->terminate_at = lsi_now() + LSI_RUN_FAILED_S;
}

/* What our workers do, for whoever asked. */
static void report(const lsi_run *run, char text[LSI_WATCH_TEXT])
{
    const lsi_elastic *e = run->elastic;
    int workers = 0;
    for (int h = 0; h < e->table.hosts; h++)
        workers += e->table.size[h];
    const int used =
        snprintf(text, LSI_WATCH_TEXT,
                 "host %llu (%s): generation %llu of %d workers on %d hosts, step %llu\n",
                 (unsigned long long)e->council.me.id, e->council.bind,
                 (unsigned long long)e->generation, workers, e->table.hosts,
                 (unsigned long long)e->watch.step);
    lsi_watch_report(run, &e->watch, text + used, LSI_WATCH_TEXT - (size_t)used);
}

static void on_asked(void *arg)
{
    lsi_run *run = arg;
    char text[LSI_WATCH_TEXT];
    report(run, text);
    lsi_council_tell_phases(&run->elastic->council, text);
}

static void on_status(lsi_run *run)
{
    char text[LSI_WATCH_TEXT];
    report(run, text);
    lsi_status_answer(run->elastic->status_fd, text);
}

/* ---- ends of workers
 * -------------------------------------------------------------------------- */

static void forget_child(lsi_child *child)
{
    if (child->gate >= 0)
        close(child->gate);
    child->gate = -1;
    child->here = child->done = child->wants_state = child->leaving = 0;
    child->inside = child->since = 0;
}

/* The next process in the place of one that died. */
static void plan_restart(lsi_run *run, int index)
{
    lsi_child *child = &run->children[index];
    const double now = lsi_now();
    const int most = run->config->restarts < 0   ? 0
                     : run->config->restarts > 0 ? run->config->restarts
                                                 : LSI_RESTARTS;
    if (run->elastic->ended || run->elastic->leaving)
        return;
    if (now - child->span_at > LSI_RESTART_SPAN_S) {
        child->span_at = now;
        child->restarts = 0;
    }
    if (child->restarts == most) {
        lsi_log(LSI_LOG_WARN, "worker %d of this host is not replaced: %d times in %.0f s", index,
                most, LSI_RESTART_SPAN_S);
        return;
    }
    double pause = 0;
    if (now - child->started_at < SHORT_LIFE_S && child->restarts > 0)
        pause = PAUSE_S * (double)(1u << (child->restarts < 8 ? child->restarts - 1 : 7));
    child->restarts++;
    child->start_at = now + (pause < PAUSE_MOST_S ? pause : PAUSE_MOST_S);
}

/* Nobody is left here, and nobody will be. */
static int is_deserted(const lsi_run *run)
{
    for (int i = 0; i < run->config->ranks; i++)
        if (run->children[i].pid > 0 || !isinf(run->children[i].start_at))
            return 0;
    return 1;
}

/* It ended with an error of its own: so has the run. */
static void on_error(lsi_run *run, const lsi_verdict *v, int is_exec)
{
    lsi_elastic *e = run->elastic;
    if (is_exec)
        lsi_log(LSI_LOG_ERROR, "%s", v->cause);
    if (!e->status)
        e->status = v->status;
    lsi_council_end(&e->council, v->status, v->cause);
    on_end(run);
}

/* First of all: those who wait for it learn that it will not come. */
static void mark_dead(lsi_run *run, const lsi_child *child, const char *cause)
{
    if (!child->inside)
        return;
    lsi_host_mark_dead(run->segment.block, child->rank, cause);
    lsi_council_tell_dead(&run->elastic->council, child->inside, child->rank, cause);
}

static void on_death(lsi_run *run, int index, const char *cause)
{
    const lsi_elastic *e = run->elastic;
    lsi_child *child = &run->children[index];
    kill(-child->pid, SIGKILL); /* what it started is of no use without it */
    if (!e->ended)
        lsi_log(LSI_LOG_WARN, "worker %d (process %ld): %s", index, (long)child->pid, cause);
    plan_restart(run, index);
}

/* After the last one: the run goes on elsewhere, or ends as its worker has ended. */
static void look_around(lsi_run *run, const lsi_verdict *v)
{
    lsi_elastic *e = run->elastic;
    if (e->ended || e->council.ended || e->leaving || !is_deserted(run))
        return;
    e->status = v->status;
    if (lsi_council_others(&e->council) == 0)
        lsi_council_end(&e->council, v->status, v->cause);
    lsi_log(LSI_LOG_ERROR, "no worker is left on this host");
    on_end(run);
}

static void on_rank(lsi_run *run, int index)
{
    lsi_child *child = &run->children[index];
    lsi_verdict v;
    if (!lsi_child_has_ended(child, &child->wait_status))
        return;
    on_gate(run, index); /* its last words */
    lsi_child_read_exec(run);
    const int in_order = child->done || child->leaving;
    lsi_verdict_judge(child->wait_status, LSI_RANK_JOINED, child->exec_errno, run->config->argv[0],
                      &v);
    if (!in_order)
        mark_dead(run, child, v.cause);
    const int hopeless = WIFSIGNALED(child->wait_status) && WTERMSIG(child->wait_status) == SIGPIPE;
    if (hopeless || (WIFEXITED(child->wait_status) && WEXITSTATUS(child->wait_status) != 0))
        on_error(run, &v, child->exec_errno != 0); /* nobody reads what it says: so with the next */
    else if (!in_order || WIFSIGNALED(child->wait_status))
        on_death(run, index, WIFSIGNALED(child->wait_status) ? v.cause : "ended too early");
    forget_child(child);
    lsi_child_collect(run, index);
    lsi_strays_collect(run);
    look_around(run, &v);
    tell(run);
}

static ls_status start(lsi_run *run, int index)
{
    lsi_child *child = &run->children[index];
    child->start_at = INFINITY;
    child->started_at = lsi_now();
    child->exec_errno = child->wait_status = 0;
    return lsi_child_start(run, index);
}

/* ---- the loop
 * --------------------------------------------------------------------------------- */

/* Asked twice, or the grace is over: nothing is waited for any more. */
static void give_up(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    run->kill_at = lsi_now();
    if (e->ended)
        return;
    e->status = 128 + SIGKILL;
    if (!lsi_council_others(&e->council))
        lsi_council_end(&e->council, e->status, "interrupted");
    on_end(run);
}

void lsi_elastic_ask(lsi_run *run, int number)
{
    lsi_elastic *e = run->elastic;
    const double now = lsi_now();
    const double grace = run->config->grace_s > 0 ? run->config->grace_s : LSI_RUN_GRACE_S;
    if (run->interrupted > 0) {
        if (number == SIGINT && now - run->interrupted > SAME_WISH_S)
            give_up(run);
        return;
    }
    run->interrupted = now;
    run->kill_at = now + grace < run->kill_at ? now + grace : run->kill_at;
    lsi_children_signal(run, SIGCONT); /* or a stopped worker would not hear it */
    if (number == SIGTERM && lsi_council_others(&e->council)) {
        e->leaving = 1;
        lsi_council_ask_change(&e->council);
        set_wishes(run);
        tell(run);
        return;
    }
    lsi_council_ask_stop(&e->council);
}

/* We were asked to go, and our workers have come back: they may go home. The store goes with us, so
 * the others begin the next generation first. */
static void leave(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    if (!e->leaving || e->ended || count_inside(run))
        return;
    for (int i = 0; i < run->config->ranks; i++)
        if (run->children[i].here)
            send_home(&run->children[i]);
    const int gone_on = e->council.table.generation > e->generation;
    if (run->alive == 0 && (gone_on || lsi_council_others(&e->council) == 0))
        e->ended = 1;
}

static void dispatch(lsi_run *run, uint64_t tag)
{
    const uint32_t index = (uint32_t)tag;
    switch ((lsi_event)(tag >> 32)) {
    case LSI_EVENT_SIGNAL: lsi_signals_ready(run); break;
    case LSI_EVENT_RANK: on_rank(run, (int)index); break;
    case LSI_EVENT_GATE: on_gate(run, (int)index); break;
    case LSI_EVENT_STATUS: on_status(run); break;
    case LSI_EVENT_EXEC: lsi_child_read_exec(run); break;
    case LSI_EVENT_HOSTS: break; /* every turn of the loop steps the council */
    case LSI_EVENT_STREAM: lsi_output_stream_ready(run->output, index); break;
    case LSI_EVENT_SINK: lsi_output_sink_ready(run->output, index); break;
    }
}

/* Our store is no stray, also when it is a new one. */
static void note_store(lsi_run *run)
{
    const pid_t pid = run->elastic->council.own.pid;
    for (int i = 0; i < run->elders_count; i++)
        if (run->elders[i] == pid)
            return;
    if (pid > 0 && run->elders_count < LSI_RUN_ELDERS)
        run->elders[run->elders_count++] = pid;
}

static void watch_council(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    const int fd = lsi_council_fd(&e->council);
    if (fd == e->watched)
        return;
    e->watched = fd; /* one that was closed has left the set by itself */
    if (fd >= 0 && lsi_run_watch(run->epoll, fd, EPOLLIN, LSI_EVENT_HOSTS, 0) != LS_OK)
        lsi_log(LSI_LOG_WARN, "%s", ls_last_error());
}

static ls_status restart_due(lsi_run *run)
{
    const double now = lsi_now();
    for (int i = 0; i < run->config->ranks; i++)
        if (run->children[i].pid == 0 && now >= run->children[i].start_at)
            LSI_TRY(start(run, i));
    return LS_OK;
}

static int timeout_ms(const lsi_run *run)
{
    int ms = lsi_run_timeout_ms(run);
    const double now = lsi_now();
    for (int i = 0; i < run->config->ranks; i++) {
        const double left = run->children[i].start_at - now;
        if (run->children[i].pid == 0 && left * 1000 < ms)
            ms = left > 0 ? (int)(left * 1000) + 1 : 0;
    }
    return ms;
}

static int is_over(lsi_run *run)
{
    if (run->alive > 0 || !run->elastic->ended)
        return 0;
    if (run->ending == 0) {
        run->ending = 1;
        run->terminate_at = INFINITY;
        run->kill_at = lsi_now() + LSI_RUN_GRACE_S;
    }
    if (run->ending == 1) {
        if (lsi_strays_signal(run, SIGTERM) > 0)
            return 0;
        run->ending = 2;
        lsi_output_finish(run->output);
    }
    return !lsi_output_pending(run->output);
}

static lsi_council_sink sink_of(lsi_run *run)
{
    return (lsi_council_sink){.arg = run,
                              .entered = on_generation,
                              .wishes = on_wishes,
                              .dead = on_remote_death,
                              .lost = on_lost_host,
                              .ended = on_end,
                              .asked = on_asked};
}

static ls_status loop(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    struct epoll_event events[EVENTS];
    const lsi_council_sink sink = sink_of(run);
    while (!is_over(run)) {
        lsi_council_step(&e->council, &sink);
        note_store(run);
        watch_council(run);
        const int n = epoll_wait(run->epoll, events, EVENTS, timeout_ms(run));
        if (n < 0 && errno != EINTR)
            return lsi_fail_errno("cannot wait for events", "epoll_wait");
        for (int i = 0; i < n; i++)
            dispatch(run, events[i].data.u64);
        LSI_TRY(restart_due(run));
        tell(run);
        leave(run);
        lsi_watch_look(run, &e->watch, e->folder);
        if (lsi_now() >= run->kill_at)
            give_up(run);
        lsi_run_timers(run);
    }
    return LS_OK;
}

/* The embedded store goes with its host: let the others hear of the end. */
static void say_goodbye(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    lsi_council *c = &e->council;
    const lsi_council_sink sink = sink_of(run);
    const double until = lsi_now() + GOODBYE_S;
    const int is_ours = c->own.pid > 0 && strstr(c->url, c->own.address);
    while (is_ours && c->ended && c->store && lsi_council_others(c) && lsi_now() < until) {
        usleep(5000);
        lsi_council_step(c, &sink);
    }
}

static ls_status run_all(lsi_run *run, int *out)
{
    lsi_elastic *e = run->elastic;
    snprintf(run->hosts->bind, sizeof run->hosts->bind, "%s", e->council.bind);
    LSI_TRY(lsi_run_open(run));
    for (int i = 0; i < run->config->ranks; i++) {
        run->children[i].span_at = lsi_now();
        LSI_TRY(start(run, i));
    }
    LSI_TRY(loop(run));
    say_goodbye(run);
    *out = e->status ? e->status : e->council.end_status;
    return LS_OK;
}

static void close_kept(lsi_run *run)
{
    lsi_status_close(run->elastic->status_fd, run->elastic->folder);
    for (int k = 0; k < LSI_KEPT_COUNT; k++)
        if (run->elastic->kept[k] >= 0)
            close(run->elastic->kept[k]);
    for (int i = 0; i < run->config->ranks; i++) {
        if (run->children[i].state >= 0)
            close(run->children[i].state);
        if (run->children[i].gate >= 0)
            close(run->children[i].gate);
    }
}

ls_status lsi_launch_elastic(const lsi_launch_config *config, int *out)
{
    lsi_run *run;
    LSI_TRY(lsi_run_new(config, &run));
    run->elastic = calloc(1, sizeof *run->elastic);
    run->hosts = calloc(1, sizeof *run->hosts);
    ls_status status = run->elastic && run->hosts
                           ? LS_OK
                           : lsi_fail(LS_ERR_NOMEM, NULL, "launcher", "out of memory");
    if (status == LS_OK) {
        for (int k = 0; k < LSI_KEPT_COUNT; k++)
            run->elastic->kept[k] = -1;
        run->elastic->watched = run->elastic->status_fd = -1;
        run->hosts->hosts = 1;
        for (int i = 0; i < config->ranks; i++)
            run->children[i].start_at = INFINITY;
        status = lsi_council_open(config, &run->elastic->council);
    }
    if (status == LS_OK) {
        status = run_all(run, out);
        if (status != LS_OK) {
            char text[LSI_ERROR_MAX];
            snprintf(text, sizeof text, "%s", ls_last_error());
            lsi_children_signal_groups(run, SIGKILL);
            for (int i = 0; i < config->ranks; i++)
                if (run->children[i].pid > 0)
                    lsi_child_collect(run, i);
            lsi_fail_text(status, text);
        }
        lsi_council_close(&run->elastic->council);
        close_kept(run);
    }
    free(run->elastic);
    run->elastic = NULL;
    lsi_run_close(run);
    return status;
}

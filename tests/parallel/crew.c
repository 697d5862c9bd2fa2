/* A launcher of a hundred lines, and the keeper of its vault. */
#include "crew.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/gate.h"
#include "crew_places.h"

#define HANG_S 200 /* ends a generation that hangs */

/* ---- the vault ------------------------------------------------------------------------------- */

#define HEAD_BYTES ((ssize_t)offsetof(lsi_vault_head, filled))

/* The head of a vault of this shape goes to the memory that the test keeps. Its maker may die in
 * between, so the size comes last: a file that has no more than a head is no vault yet. */
static ls_status found_vault(int fd, const lsi_vault_shape *shape)
{
    lsi_vault *made;
    struct stat info;
    LSI_TRY(lsi_vault_create(shape, NULL, &made));
    const int done = fstat(made->fd, &info) == 0 &&
                     pwrite(fd, made->head, (size_t)HEAD_BYTES, 0) == HEAD_BYTES &&
                     ftruncate(fd, info.st_size) == 0;
    lsi_vault_close(made);
    return done ? LS_OK : lsi_fail_errno("crew", "vault");
}

static ls_status get_vault(void *arg, const lsi_vault_shape *shape, int make, lsi_vault **out)
{
    crew_worker *w = arg;
    struct stat info;
    if (!w->vault) {
        const int fd = dup(w->crew->vault[w->crew->apart ? w->slot : 0]);
        if (fstat(fd, &info) == 0 && info.st_size <= HEAD_BYTES && make)
            LSI_TRY(found_vault(fd, shape));
        LSI_TRY(lsi_vault_map(fd, shape, &w->vault));
    }
    *out = w->vault;
    if (w->order.opening)
        crew_places_arm(w->vault, -1, 0, w->order.place);
    return LS_OK;
}

/* ---- a worker -------------------------------------------------------------------------------- */

void crew_step(crew_worker *w, const lsi_replica *r, uint64_t number)
{
    if (!w->order.opening && w->order.place && w->order.step == number && w->vault)
        crew_places_arm(w->vault, w->keeper.slot, r->undo_at, w->order.place);
}

void crew_safe(crew_worker *w)
{
    const int n = crew_places_disarm();
    if (n)
        w->crew->shared->places[w->slot] = n;
}

static void die(int number)
{
    (void)number;
    kill(getpid(), SIGKILL);
}

static void set_timer(unsigned us)
{
    const struct itimerval t = {{0, 0}, {us / 1000000, us % 1000000}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &t, NULL);
}

static void take_part(crew_worker *w, lsi_gate_message *m)
{
    crew_shared *shared = w->crew->shared;
    const ls_config config = LS_CONFIG_INIT;
    w->order = shared->order[w->slot];
    w->keeper = w->crew->apart ? (lsi_keeper){w, 0, 1, get_vault, NULL}
                               : (lsi_keeper){w, m->boot.slot, m->boot.slots, get_vault, NULL};
    m->boot.segment_fd = m->files[0];
    set_timer(w->order.after_us);
    ls_status status = lsi_init_from(&config, &m->boot, &w->comm);
    if (status == LS_OK)
        status = w->crew->body(w, w->crew->arg);
    crew_safe(w);
    set_timer(0);
    shared->status[w->slot] = (int)status;
    if (status != LS_OK)
        snprintf(shared->error[w->slot], sizeof shared->error[w->slot], "%s", ls_last_error());
    ls_finalize(w->comm);
    w->comm = NULL;
}

static _Noreturn void work(crew *c, int slot, int gate)
{
    crew_worker w = {.crew = c, .slot = slot, .gate = gate};
    lsi_gate_message m;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        if (lsi_gate_receive(gate, HANG_S, &m) != LS_OK)
            _exit(8);
        if (m.kind == LSI_GATE_GO)
            break;
        take_part(&w, &m);
        m = (lsi_gate_message){.kind = LSI_GATE_HERE};
        if (lsi_gate_send(gate, &m) != LS_OK)
            _exit(9);
    }
    lsi_vault_close(w.vault);
    _exit(0);
}

/* ---- the test's side ------------------------------------------------------------------------- */

static void start(crew *c, int slot)
{
    int gate[2];
    assert_int_equal(lsi_gate_pair(gate), LS_OK);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < CREW_MOST; i++)
            if (c->gate[i] >= 0)
                close(c->gate[i]);
        close(gate[0]);
        work(c, slot, gate[1]);
    }
    close(gate[1]);
    c->pid[slot] = pid;
    c->gate[slot] = gate[0];
}

/* It has gone: by SIGKILL, in mid-generation; or else with status 0, when told to. */
static void bury(crew *c, int slot, int in_order)
{
    int status = 0;
    assert_int_equal(waitpid(c->pid[slot], &status, 0), c->pid[slot]);
    close(c->gate[slot]);
    c->gate[slot] = -1;
    c->pid[slot] = 0;
    if (in_order ? status != 0 : !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("worker %d: wait status %#x, %s", slot, (unsigned)status, c->shared->error[slot]);
}

void crew_open(crew *c, int slots, int apart, crew_body body, void *arg)
{
    setenv("LOCKSTEP_HEAP", "4M", 1);
    setenv("LOCKSTEP_TIMEOUT", "100", 1);
    setenv("LOCKSTEP_LOG", "error", 1);
    setenv("LOCKSTEP_TRANSPORT", apart ? "tcp" : "auto", 1);
    *c = (crew){.body = body, .arg = arg, .slots = slots, .apart = apart, .gate = {-1, -1, -1}};
    for (int i = 0; i < CREW_MOST; i++)
        assert_true((c->vault[i] = memfd_create("vault", MFD_CLOEXEC)) >= 0);
    assert_int_equal(lsi_key_generate(&c->key), LS_OK);
    if (apart)
        assert_int_equal(lsi_store_process_start("127.0.0.1", 0, &c->key, &c->store), LS_OK);
    c->shared =
        mmap(NULL, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(c->shared != MAP_FAILED);
}

void crew_close(crew *c)
{
    const lsi_gate_message go = {.kind = LSI_GATE_GO};
    for (int i = 0; i < CREW_MOST; i++)
        if (c->pid[i]) {
            assert_int_equal(lsi_gate_send(c->gate[i], &go), LS_OK);
            bury(c, i, 1);
        }
    munmap(c->shared, sizeof *c->shared);
    for (int i = 0; i < CREW_MOST; i++)
        close(c->vault[i]);
    lsi_store_process_stop(&c->store);
}

static void let_in(crew *c, const int *slots, int n, const lsi_host *segment)
{
    for (int rank = 0; rank < n; rank++) {
        const int slot = slots[rank];
        lsi_gate_message m = {.kind = LSI_GATE_ENTER, .n_files = 1, .files = {segment->fd}};
        m.boot = (lsi_boot){.magic = LSI_BOOT_MAGIC,
                            .version = LSI_BOOT_VERSION,
                            .rank = rank,
                            .size = n,
                            .hosts = 1,
                            .host_size = {n},
                            .generation = c->generation,
                            .slot = slot,
                            .slots = c->slots,
                            .bind = "127.0.0.1",
                            .key = c->key};
        snprintf(m.boot.store, sizeof m.boot.store, "%s", c->store.address);
        assert_int_equal(lsi_gate_send(c->gate[slot], &m), LS_OK);
    }
}

/* Until all are back at the gate or dead. */
static int watch_over(crew *c, const int *slots, int n, lsi_host *segment)
{
    int inside = n, deaths = 0;
    struct pollfd polls[CREW_MOST];
    for (int i = 0; i < n; i++)
        polls[i] = (struct pollfd){.fd = c->gate[slots[i]], .events = POLLIN};
    while (inside) {
        if (poll(polls, (nfds_t)n, HANG_S * 1000) <= 0)
            fail_msg("generation %d hangs", (int)c->generation);
        for (int i = 0; i < n; i++) {
            lsi_gate_message m;
            if (polls[i].fd < 0 || !polls[i].revents)
                continue;
            const ls_status status = lsi_gate_receive(polls[i].fd, 0, &m);
            polls[i].fd = -1;
            inside--;
            if (status == LS_OK)
                continue;
            lsi_host_mark_dead(segment->block, i, "killed");
            bury(c, slots[i], 0);
            c->dead[slots[i]] = 1;
            deaths++;
        }
    }
    return deaths;
}

int crew_run(crew *c, const int *slots, int n, const crew_order *orders)
{
    lsi_host segment;
    c->generation++;
    memset(c->dead, 0, sizeof c->dead);
    memset(c->shared, 0, sizeof *c->shared);
    if (orders)
        memcpy(c->shared->order, orders, sizeof c->shared->order);
    assert_int_equal(lsi_host_create(n, 0, n, &segment), LS_OK);
    for (int i = 0; i < n; i++)
        if (!c->pid[slots[i]])
            start(c, slots[i]);
    let_in(c, slots, n, &segment);
    const int deaths = watch_over(c, slots, n, &segment);
    lsi_host_unmap(&segment);
    for (int i = 0; i < n; i++) {
        const ls_status status = (ls_status)c->shared->status[slots[i]];
        const ls_status_reach reach = ls_status_get_reach(status);
        if (c->dead[slots[i]] || status == LS_OK ||
            (deaths && (reach == LS_STATUS_PEER || reach == LS_STATUS_GROUP)))
            continue;
        fail_msg("generation %d, %d workers, worker %d: %s", (int)c->generation, n, slots[i],
                 c->shared->error[slots[i]]);
    }
    return deaths;
}

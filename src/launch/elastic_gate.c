/* The gate of an elastic run: what workers say there, what is kept for them, what is told. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memfile.h"
#include "launch/elastic.h"
#include "launch/status.h"

int lsi_elastic_count_inside(const lsi_run *run)
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

/* At the lsi_elastic_start the others wait for all of our workers. */
static int are_all_started(const lsi_run *run)
{
    for (int i = 0; i < run->config->ranks; i++)
        if (run->children[i].pid > 0 && !run->children[i].here && !run->children[i].inside)
            return 0;
    return 1;
}

void lsi_elastic_tell(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    const int waits = e->generation > 0 || are_all_started(run);
    lsi_seat seat = e->council.me;
    seat.generation = e->declined > e->generation ? e->declined : e->generation;
    seat.ready = waits ? count_here(run) : 0;
    seat.busy = lsi_elastic_count_inside(run);
    seat.leaving = e->leaving;
    seat.state = e->whole;
    seat.brought = seat.ready ? e->whole : 0;
    seat.fed = e->fed;
    seat.hungry = seat.ready > 0;
    for (int i = 0; i < run->config->ranks; i++) {
        const lsi_child *child = &run->children[i];
        seat.state = child->whole > seat.state ? child->whole : seat.state;
        if (waits && child->pid > 0 && child->here && child->whole > seat.brought)
            seat.brought = child->whole;
        if (child->pid > 0 && child->here && !child->hungry)
            seat.hungry = 0;
    }
    lsi_council_tell(&e->council, &seat);
}

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

/* Our workers were the first to know what the run is: hosts that come later are told. */
static void tell_papers(lsi_run *run)
{
    lsi_elastic *e = run->elastic;
    struct stat info;
    const int fd = e->kept[LSI_KEPT_PAPERS];
    char *text = fstat(fd, &info) == 0 ? malloc((size_t)info.st_size + 1) : NULL;
    if (text && pread(fd, text, (size_t)info.st_size, 0) == (ssize_t)info.st_size)
        lsi_council_tell_papers(&e->council, text, (size_t)info.st_size);
    free(text);
}

void lsi_elastic_on_papers(void *arg, const char *text, size_t bytes)
{
    lsi_run *run = arg;
    lsi_elastic *e = run->elastic;
    if (e->kept[LSI_KEPT_PAPERS] >= 0)
        return;
    const int fd = lsi_memfile_create("lockstep-papers", MFD_CLOEXEC);
    if (fd >= 0 && pwrite(fd, text, bytes, 0) == (ssize_t)bytes) {
        e->kept[LSI_KEPT_PAPERS] = fd;
        read_folder(run);
        return;
    }
    lsi_log(LSI_LOG_WARN, "the run's papers: %s", strerror(errno)); /* workers ask the others */
    if (fd >= 0)
        close(fd);
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
        if (!m->own && m->what == LSI_KEPT_PAPERS) {
            read_folder(run);
            tell_papers(run);
        }
    }
    lsi_gate_drop(m, -1);
}

static void hand_over(const lsi_run *run, int index, int what)
{
    const lsi_child *child = &run->children[index];
    const int *kept = run->elastic->kept;
    const int has_state = child->state >= 0 || kept[LSI_KEPT_STATE] >= 0;
    const lsi_table *latest = &run->elastic->council.table;
    int workers = 0;
    for (int h = 0; h < latest->hosts; h++)
        workers += latest->size[h];
    const lsi_gate_message m = {.kind = LSI_GATE_KEPT,
                                .what = what,
                                .kept = has_state ? 1u << LSI_KEPT_STATE : 0,
                                .boot = {.slot = index,
                                         .slots = run->config->ranks,
                                         .size = workers},
                                .n_files = kept[what] >= 0,
                                .files = {kept[what]}};
    if (child->gate >= 0)
        (void)lsi_gate_send(child->gate, &m);
}

void lsi_elastic_hand_out(lsi_run *run)
{
    const lsi_elastic *e = run->elastic;
    const int state = e->kept[LSI_KEPT_STATE], papers = e->kept[LSI_KEPT_PAPERS];
    for (int i = 0; i < run->config->ranks; i++) {
        lsi_child *child = &run->children[i];
        if (child->wants_state && state >= 0) {
            hand_over(run, i, LSI_KEPT_STATE);
            child->wants_state = 0;
        }
        if (child->wants_papers && (papers >= 0 || e->council.seated || e->ended)) {
            hand_over(run, i, LSI_KEPT_PAPERS);
            child->wants_papers = 0;
        }
    }
}

void lsi_elastic_send_home(lsi_child *child)
{
    const lsi_gate_message m = {.kind = LSI_GATE_GO};
    if (child->pid > 0 && child->here && child->gate >= 0)
        (void)lsi_gate_send(child->gate, &m);
    child->here = 0;
    child->leaving = 1; /* its end is in order */
}

static void on_message(lsi_run *run, lsi_child *child, lsi_gate_message *m)
{
    lsi_elastic *e = run->elastic;
    switch ((lsi_gate_kind)m->kind) {
    case LSI_GATE_HERE:
        child->here = 1;
        child->inside = 0;
        if (e->ended || (e->leaving && !child->since))
            lsi_elastic_send_home(child);
        break;
    case LSI_GATE_KEEP: keep(run, child, m); break;
    case LSI_GATE_WHOLE:
    case LSI_GATE_SPOILT:
        *(m->own ? &child->whole : &e->whole) = m->kind == LSI_GATE_WHOLE ? m->generation : 0;
        break;
    case LSI_GATE_FED:
    case LSI_GATE_HUNGRY:
        child->hungry = m->kind == LSI_GATE_HUNGRY;
        e->fed = !child->hungry;
        break;
    case LSI_GATE_WANT:
        child->wants_state |= m->what == LSI_KEPT_STATE;
        child->wants_papers |= m->what == LSI_KEPT_PAPERS;
        break;
    case LSI_GATE_DONE:
        child->done = 1;
        if (e->table.stop && !e->council.stop)
            lsi_council_end(&e->council, 1, "too few were left to go on; the work was saved");
        else
            lsi_council_end(&e->council, 0, "done");
        lsi_elastic_on_end(run); /* now: its end may be in the same breath */
        break;
    case LSI_GATE_LEAVE: child->leaving = 1; break;
    default: break;
    }
    lsi_gate_drop(m, -1);
    lsi_elastic_hand_out(run);
}

void lsi_elastic_on_gate(lsi_run *run, int index)
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
    lsi_elastic_tell(run);
}

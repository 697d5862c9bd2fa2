/* The gate of an elastic run: what workers say there, what is kept for them, what is told. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

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
    const uint64_t latest = e->declined > e->generation ? e->declined : e->generation;
    lsi_council_tell(&e->council, latest, waits ? count_here(run) : 0,
                     lsi_elastic_count_inside(run), e->leaving);
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
    case LSI_GATE_WANT: child->wants_state = 1; break;
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
    hand_out(run);
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

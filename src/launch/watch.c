/* Watching over the workers of an elastic run: who shows no sign of life, which step takes long.
 *
 * 1. A worker that has neither done anything nor waited for others (base/life.h) for --evict-after
 *    is killed, and replaced like any other that dies: it shares its memory with the others, and
 *    must not wake up in it.
 * 2. When a step takes far longer than those before, what every worker does is said once, without
 *    being asked, and kept in the run's log.
 * 3. We may have been stopped ourselves: a look that comes much too late begins anew.
 */
#include "launch/watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "launch/run.h"

#define LOOK_S 0.1
#define SLOW_S 3.0      /* a step that takes less is never slow, */
#define SLOW_TIMES 10.0 /* nor is one that takes less than so many usual ones */
#define FIRST_S 10.0    /* while it is not known what is usual */

static const lsi_host_rank *life_of(const lsi_run *run, const lsi_child *child)
{
    return &run->segment.block->ranks[child->rank];
}

static double evict_after(const lsi_run *run)
{
    return run->config->evict_s > 0 ? run->config->evict_s : LSI_EVICT_S;
}

/* What a worker does, as a line without its end. */
static size_t describe(const lsi_run *run, const lsi_watch *w, int index, char *text, size_t room)
{
    const lsi_child *child = &run->children[index];
    if (child->pid <= 0)
        return (size_t)snprintf(text, room, "worker %d: not there", index);
    if (!child->inside)
        return (size_t)snprintf(text, room, "worker %d (process %ld): %s", index, (long)child->pid,
                                child->here ? "waits at the gate" : "starts");
    const lsi_host_rank *life = life_of(run, child);
    const double silent = lsi_now() - w->moved_at[index];
    int n = snprintf(text, room, "worker %d (process %ld): rank %d, step %llu, %.*s", index,
                     (long)child->pid, child->rank, (unsigned long long)atomic_load(&life->step),
                     LSI_HOST_DOING_MAX - 1, life->doing[0] ? life->doing : "starts");
    if (n > 0 && (size_t)n < room && silent > 1)
        n += snprintf(text + n, room - (size_t)n, "; no sign of life for %.1f s", silent);
    return n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

size_t lsi_watch_report(const lsi_run *run, const lsi_watch *w, char *text, size_t room)
{
    size_t used = 0;
    for (int i = 0; i < run->config->ranks && used + 2 < room; i++) {
        used += describe(run, w, i, text + used, room - used - 1);
        text[used++] = '\n';
    }
    text[used] = 0;
    return used;
}

static void keep_in_log(const char *folder, const char *text)
{
    char path[4200];
    if (!folder || !*folder)
        return;
    snprintf(path, sizeof path, "%.4000s/log.txt", folder);
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, text, strlen(text));
    close(fd);
}

static void tell_slow(lsi_run *run, lsi_watch *w, double takes, const char *folder)
{
    char text[LSI_WATCH_TEXT], usual[48] = "";
    if (w->usual > 0)
        snprintf(usual, sizeof usual, ", %.3f s is usual", w->usual);
    size_t used =
        (size_t)snprintf(text, sizeof text, "step %llu takes %.1f s%s; the workers here:\n",
                         (unsigned long long)w->step, takes, usual);
    lsi_watch_report(run, w, text + used, sizeof text - used);
    keep_in_log(folder, text);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        lsi_log(LSI_LOG_WARN, "%.*s", (int)(end - line), line);
    w->told = w->step;
}

/* The furthest step of our workers, and how long it takes. */
static void look_at_step(lsi_run *run, lsi_watch *w, double now, const char *folder)
{
    uint64_t step = 0;
    for (int i = 0; i < run->config->ranks; i++) {
        if (run->children[i].pid <= 0 || !run->children[i].inside)
            continue;
        const uint64_t of = atomic_load(&life_of(run, &run->children[i])->step);
        step = of > step ? of : step;
    }
    if (!step || step != w->step) {
        if (step > w->step && w->step) {
            const double took = (now - w->step_at) / (double)(step - w->step);
            w->usual = w->usual > 0 ? 0.8 * w->usual + 0.2 * took : took;
        }
        w->step = step;
        w->step_at = now;
        return;
    }
    const double takes = now - w->step_at;
    const double most = w->usual > 0 ? SLOW_TIMES * w->usual : FIRST_S;
    if (takes > SLOW_S && takes > most && w->told != step)
        tell_slow(run, w, takes, folder);
}

static void look_at_lives(lsi_run *run, lsi_watch *w, double now)
{
    for (int i = 0; i < run->config->ranks; i++) {
        lsi_child *child = &run->children[i];
        const uint64_t beat =
            child->pid > 0 && child->inside ? atomic_load(&life_of(run, child)->beat) : UINT64_MAX;
        if (beat == UINT64_MAX || beat != w->beat[i] || w->pid[i] != child->pid ||
            atomic_load(&life_of(run, child)->patient)) {
            w->beat[i] = beat;
            w->pid[i] = child->pid;
            w->moved_at[i] = now;
            continue;
        }
        if (now - w->moved_at[i] <= evict_after(run))
            continue;
        lsi_log(LSI_LOG_WARN,
                "worker %d (process %ld) has shown no sign of life for %.1f s: killed", i,
                (long)child->pid, now - w->moved_at[i]);
        kill(child->pid, SIGKILL);
        w->moved_at[i] = now;
    }
}

void lsi_watch_look(lsi_run *run, lsi_watch *w, const char *folder)
{
    const double now = lsi_now();
    if (now < w->look_at)
        return;
    const int late = w->look_at > 0 && now > w->look_at + 10 * LOOK_S;
    w->look_at = now + LOOK_S;
    if (late) {
        w->step_at = now;
        for (int i = 0; i < run->config->ranks; i++)
            w->moved_at[i] = now;
    }
    if (!run->segment.block)
        return;
    look_at_lives(run, w, now);
    look_at_step(run, w, now, folder);
}

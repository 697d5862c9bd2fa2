/* Hosts of the disturbed run: one launcher each.
 *
 * 1. What they write goes to files, read as it grows: a host that is stopped, or has much to say,
 *    blocks nobody.
 * 2. All of them carry the mark, and die with us (PR_SET_PDEATHSIG).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "cli/chaos.h"

#define LISTEN_S 30.0 /* for the first host to say where it listens */
#define MORE 32       /* words of our own */

/* ---- starting ------------------------------------------------------------------------------- */

typedef struct words {
    char *of[LSI_CHAOS_WORDS + MORE];
    char text[MORE][PATH_MAX];
    int n, n_text;
} words;

static void add(words *w, char *word)
{
    w->of[w->n++] = word;
}

static void say(words *w, const char *word)
{
    snprintf(w->text[w->n_text], sizeof w->text[0], "%s", word);
    add(w, w->text[w->n_text++]);
}

static void say_number(words *w, const char *flag, double number)
{
    char text[32];
    snprintf(text, sizeof text, "%.10g", number);
    say(w, flag);
    say(w, text);
}

static void add_job(const lsi_chaos *c, words *w)
{
    for (int i = 0; i < c->o.n_words; i++)
        add(w, c->o.words[i]);
}

void lsi_chaos_log_path(const lsi_chaos *c, int host, const char *which, char path[PATH_MAX])
{
    if (host < 0)
        snprintf(path, PATH_MAX, "%s/undisturbed.%s", c->folder, which);
    else
        snprintf(path, PATH_MAX, "%s/host-%d.%s", c->folder, host, which);
}

/* In the child. */
static void set_environment(const lsi_chaos *c, int host)
{
    char text[PATH_MAX];
    snprintf(text, sizeof text, "%s.%d", c->id, host);
    setenv(LSI_CHAOS_ENV, text, 1);
    snprintf(text, sizeof text, "%s/tmp", c->folder);
    setenv("TMPDIR", text, 1);
    setenv("LOCKSTEP_LOG", getenv("LOCKSTEP_LOG") ? getenv("LOCKSTEP_LOG") : "info", 1);
}

static _Noreturn void be_host(const lsi_chaos *c, int host, pid_t parent, char **argv)
{
    char path[PATH_MAX];
    int fd = open("/dev/null", O_RDONLY);
    (void)dup2(fd, STDIN_FILENO);
    for (int i = 0; i < 2; i++) {
        lsi_chaos_log_path(c, host, i ? "err" : "out", path);
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0 || dup2(fd, i ? STDERR_FILENO : STDOUT_FILENO) < 0)
            _exit(126);
    }
    setpgid(0, 0);
    set_environment(c, host);
    if (host >= 0 && c->has_net && lsi_chaos_net_enter(c, host) != 0) {
        fprintf(stderr, "cannot enter the network namespace: %s\n", strerror(errno));
        _exit(126);
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(126);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < NSIG; number++)
        (void)signal(number, SIG_DFL);
    execv("/proc/self/exe", argv);
    _exit(127);
}

static pid_t start(const lsi_chaos *c, int host, words *w)
{
    const pid_t parent = getpid();
    w->of[w->n] = NULL;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        be_host(c, host, parent, w->of);
    return pid;
}

int lsi_chaos_undisturbed(lsi_chaos *c, const char *out)
{
    static words w;
    int status = 0;
    w.n = w.n_text = 0;
    say(&w, "lockstep");
    say(&w, "train");
    add_job(c, &w);
    say_number(&w, "-n", 1);
    say(&w, "--quiet");
    say(&w, "--out");
    say(&w, out);
    const pid_t pid = start(c, -1, &w);
    if (pid < 0)
        return 127;
    while (waitpid(pid, &status, 0) < 0) /* a signal ends us, too: it is told by the caller */
        if (errno != EINTR)
            return 127;
        else
            kill(pid, SIGKILL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static ls_status start_host(lsi_chaos *c, words *w)
{
    lsi_chaos_host *h = &c->hosts[c->n_hosts];
    *h = (lsi_chaos_host){0};
    say_number(w, "-n", c->o.workers);
    say_number(w, "--evict-after", c->o.evict_s);
    say_number(w, "--restarts", c->o.restarts);
    say(w, "--quiet");
    if (c->o.store) {
        say(w, "--store");
        say(w, c->o.store);
    }
    h->pid = start(c, c->n_hosts, w);
    if (h->pid < 0)
        return lsi_fail_errno("chaos", "cannot start a host");
    c->n_hosts++;
    return LS_OK;
}

static void say_key(const lsi_chaos *c, words *w)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/key", c->folder);
    say(w, "--key-file");
    say(w, path);
}

ls_status lsi_chaos_start_first(lsi_chaos *c)
{
    static words w;
    char address[LSI_ADDR_MAX];
    w.n = w.n_text = 0;
    say(&w, "lockstep");
    say(&w, "train");
    add_job(c, &w);
    say(&w, "--out");
    say(&w, c->out);
    lsi_chaos_net_address(c, 0, address);
    say(&w, "--listen");
    say(&w, address);
    say_number(&w, "--hosts", c->o.hosts);
    say_key(c, &w);
    LSI_TRY(start_host(c, &w));
    const double until = lsi_now() + LISTEN_S;
    while (!c->hosts[0].store[0]) {
        lsi_chaos_listen(c);
        if (c->hosts[0].ended)
            return lsi_fail(LS_ERR_PEER_DEAD, NULL, "chaos", "the first host ended at once");
        if (lsi_now() > until)
            return lsi_fail(LS_ERR_TIMEOUT, NULL, "chaos", "the first host does not listen");
        usleep(5000);
    }
    return LS_OK;
}

/* Where a host that comes now finds the others: a store that is in use. */
static const char *meeting(const lsi_chaos *c)
{
    const lsi_chaos_host *best = NULL;
    for (int i = 0; i < c->n_hosts; i++) {
        const lsi_chaos_host *h = &c->hosts[i];
        if (h->ended || h->killed || h->leaving || !h->store[0])
            continue;
        if (!best || h->generation > best->generation ||
            (h->generation == best->generation && h->first))
            best = h;
    }
    return best ? best->store : c->hosts[0].store;
}

ls_status lsi_chaos_start_joiner(lsi_chaos *c)
{
    static words w;
    const char *address = meeting(c);
    w.n = w.n_text = 0;
    say(&w, "lockstep");
    say(&w, "train");
    say(&w, "--join");
    say(&w, address);
    say_key(c, &w);
    LSI_TRY(start_host(c, &w));
    snprintf(c->hosts[c->n_hosts - 1].store, LSI_ADDR_MAX, "%s", address);
    return LS_OK;
}

/* ---- hearing -------------------------------------------------------------------------------- */

static const char *after(const char *line, const char *text)
{
    const char *at = strstr(line, text);
    return at ? at + strlen(text) : NULL;
}

static void hear_generation(lsi_chaos *c, lsi_chaos_host *h, const char *text)
{
    unsigned long long generation;
    int ranks, hosts, first;
    if (sscanf(text, "%llu: %d workers on %d hosts, from %d on here", &generation, &ranks, &hosts,
               &first) != 4)
        return;
    h->generation = generation;
    h->of_hosts = hosts;
    h->first = first == 0;
    if (generation > c->generation) {
        c->generation = generation;
        c->steps_then = c->steps;
    }
}

static void hear_done(lsi_chaos *c, const char *digest)
{
    if (strlen(digest) != LSI_SHA256_HEX - 1)
        return;
    if (c->sha256[0] && strcmp(c->sha256, digest) != 0)
        c->differs = 1;
    snprintf(c->sha256, sizeof c->sha256, "%s", digest);
    if (c->done_at == 0)
        c->done_at = lsi_now();
}

static void hear(lsi_chaos *c, int host, const char *line)
{
    lsi_chaos_host *h = &c->hosts[host];
    const char *at;
    c->moved_at = lsi_now();
    if (c->o.log)
        lsi_chaos_print_line(c, host, line);
    if ((at = after(line, "lockstep: listening on ")))
        snprintf(h->store, sizeof h->store, "%s", at);
    else if ((at = after(line, "lockstep: meeting the other hosts at tcp://")))
        snprintf(h->store, sizeof h->store, "%.*s", (int)strcspn(at, " "), at);
    else if ((at = after(line, "lockstep: generation ")))
        hear_generation(c, h, at);
    else if (strncmp(line, "done step=", 10) == 0 && (at = after(line, " sha256=")))
        hear_done(c, at);
}

/* Whole lines that have come since we last looked. */
static void read_more(lsi_chaos *c, int host, int which)
{
    char path[PATH_MAX], *line = NULL;
    size_t room = 0;
    ssize_t length;
    lsi_chaos_log_path(c, host, which ? "err" : "out", path);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fseek(file, c->hosts[host].read[which], SEEK_SET) == 0) {
        while ((length = getline(&line, &room, file)) > 0 && line[length - 1] == '\n') {
            c->hosts[host].read[which] += length;
            line[length - 1] = 0;
            hear(c, host, line);
        }
    }
    free(line);
    fclose(file);
}

void lsi_chaos_listen(lsi_chaos *c)
{
    for (int i = 0; i < c->n_hosts; i++) {
        lsi_chaos_host *h = &c->hosts[i];
        if (h->ended)
            continue;
        if (waitpid(h->pid, &h->wait_status, WNOHANG) == h->pid) {
            h->ended = 1;
            c->moved_at = lsi_now();
        }
        read_more(c, i, 0);
        read_more(c, i, 1);
    }
}

int lsi_chaos_running(const lsi_chaos *c)
{
    int n = 0;
    for (int i = 0; i < c->n_hosts; i++)
        n += !c->hosts[i].ended;
    return n;
}

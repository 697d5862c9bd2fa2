/* The ranks' output with "[rank] " before each line.
 *
 *     rank's pipe -> stream (up to one unfinished line) -> sink (lines to write) -> our fd 1 or 2
 *
 * Invariants:
 * 1. Only whole lines leave a stream; a line of more than LINE_ROOM bytes is cut into several, and
 *    an unfinished last line gets its newline when the writers have ended.
 * 2. Nothing here blocks: a reader of ours that is slow stops the reading of pipes (the ranks
 *    then wait, as they would without us), never the launcher, which has deaths to notice.
 * 3. A write takes at most PIPE_BUF bytes and ends at the end of a line when one is near, so that
 *    lines stay whole when several writers share a pipe.
 * 4. Our own descriptors 1 and 2 keep their flags: they are shared with who started us.
 */
#include "launch/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "launch/run.h"

#define LINE_ROOM ((size_t)64 << 10)
#define SINK_HIGH ((size_t)1 << 20) /* stop reading the pipes above this, */
#define SINK_LOW ((size_t)64 << 10) /* and read on below that */

typedef struct stream {
    int fd;      /* read end of the rank's pipe, -1: closed */
    int rank;    /* world rank */
    int paused;  /* not registered, because the sink is full */
    size_t used; /* bytes of the unfinished line */
    char *line;
} stream;

typedef struct sink {
    int fd;
    int reopened; /* ours and non-blocking; otherwise poll before each write */
    int waiting;  /* registered for EPOLLOUT */
    int broken;   /* nobody reads any more */
    char *data;
    size_t start, used, room; /* data[start, start + used) is to be written */
} sink;

struct lsi_output {
    int epoll;
    int ranks;
    sink sinks[2];
    stream streams[]; /* rank 0's output, rank 0's error, rank 1's output … */
};

/* A second, non-blocking description of the same pipe or terminal, where the system lets us. */
static void open_sink(sink *s, int fd)
{
    char path[32];
    struct stat info;
    s->fd = fd;
    if (fstat(fd, &info) != 0 || (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)))
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (own < 0)
        return;
    s->fd = own;
    s->reopened = 1;
}

ls_status lsi_output_create(int epoll, int ranks, int first_rank, lsi_output **out)
{
    size_t streams = (size_t)ranks * 2;
    lsi_output *o = calloc(1, sizeof *o + streams * sizeof(stream));
    if (!o)
        return lsi_fail_errno("cannot collect output", "calloc");
    o->epoll = epoll;
    o->ranks = ranks;
    for (size_t i = 0; i < streams; i++) {
        o->streams[i].fd = -1;
        o->streams[i].rank = first_rank + (int)i / 2;
    }
    open_sink(&o->sinks[0], STDOUT_FILENO);
    open_sink(&o->sinks[1], STDERR_FILENO);
    *out = o;
    return LS_OK;
}

static void close_stream(stream *s)
{
    if (s->fd >= 0)
        close(s->fd); /* leaves the epoll set by itself */
    free(s->line);
    s->fd = -1;
    s->line = NULL;
    s->used = 0;
}

void lsi_output_destroy(lsi_output *output)
{
    if (!output)
        return;
    for (int i = 0; i < output->ranks * 2; i++)
        close_stream(&output->streams[i]);
    for (int i = 0; i < 2; i++) {
        if (output->sinks[i].reopened)
            close(output->sinks[i].fd);
        free(output->sinks[i].data);
    }
    free(output);
}

ls_status lsi_output_open(lsi_output *output, int rank, int fds[2])
{
    int ends[2][2] = {{-1, -1}, {-1, -1}};
    ls_status status = LS_OK;
    for (int i = 0; i < 2 && status == LS_OK; i++) {
        stream *s = &output->streams[rank * 2 + i];
        s->line = malloc(LINE_ROOM);
        if (!s->line || pipe2(ends[i], O_CLOEXEC) != 0) {
            status = lsi_fail_errno("cannot collect output", "pipe of rank %d", s->rank);
            break;
        }
        s->fd = ends[i][0];
        fcntl(s->fd, F_SETFL, O_NONBLOCK);
        status = lsi_run_watch(output->epoll, s->fd, EPOLLIN, LSI_EVENT_STREAM,
                               (uint32_t)(rank * 2 + i));
    }
    if (status != LS_OK) {
        for (int i = 0; i < 2; i++) {
            close_stream(&output->streams[rank * 2 + i]);
            if (ends[i][1] >= 0)
                close(ends[i][1]);
        }
        return status;
    }
    fds[0] = ends[0][1];
    fds[1] = ends[1][1];
    return LS_OK;
}

/* Nobody takes this output any more: let the writers see that, as they would without us. */
static void break_sink(lsi_output *o, int which)
{
    sink *k = &o->sinks[which];
    if (errno != EPIPE)
        lsi_log(LSI_LOG_ERROR, "cannot write the ranks' output: %s", strerror(errno));
    k->broken = 1;
    k->used = 0;
    for (int i = which; i < o->ranks * 2; i += 2)
        close_stream(&o->streams[i]);
}

static void wait_for_sink(lsi_output *o, int which, int wait)
{
    sink *k = &o->sinks[which];
    if (wait == k->waiting)
        return;
    if (wait && lsi_run_watch(o->epoll, k->fd, EPOLLOUT, LSI_EVENT_SINK, (uint32_t)which) != LS_OK)
        return; /* cannot be: a file that is never full */
    if (!wait)
        epoll_ctl(o->epoll, EPOLL_CTL_DEL, k->fd, NULL);
    k->waiting = wait;
}

/* Bytes of the next write: up to the last line end within PIPE_BUF, else all of that. */
static size_t next_piece(const sink *k)
{
    size_t room = k->used < PIPE_BUF ? k->used : PIPE_BUF;
    const char *end = memrchr(k->data + k->start, '\n', room);
    return end ? (size_t)(end - (k->data + k->start)) + 1 : room;
}

/* There is room again: read on where we stopped. */
static void resume(lsi_output *o, int which)
{
    for (int i = which; i < o->ranks * 2; i += 2) {
        stream *s = &o->streams[i];
        if (s->fd < 0 || !s->paused)
            continue;
        s->paused = 0;
        lsi_run_watch(o->epoll, s->fd, EPOLLIN, LSI_EVENT_STREAM, (uint32_t)i);
    }
}

/* Write what can be written. Whoever empties a sink resumes its streams: no event would. */
static void flush(lsi_output *o, int which)
{
    sink *k = &o->sinks[which];
    while (k->used > 0) {
        struct pollfd p = {.fd = k->fd, .events = POLLOUT};
        ssize_t n = -1;
        errno = EAGAIN;
        if (k->reopened || poll(&p, 1, 0) > 0)
            n = write(k->fd, k->data + k->start, next_piece(k));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            wait_for_sink(o, which, 1);
            break;
        }
        if (n < 0) {
            break_sink(o, which);
            break;
        }
        k->start += (size_t)n;
        k->used -= (size_t)n;
    }
    if (k->used == 0) {
        k->start = 0;
        wait_for_sink(o, which, 0);
    }
    if (k->used < SINK_LOW)
        resume(o, which);
}

static void append(sink *k, const char *text, size_t bytes)
{
    if (k->broken)
        return;
    if (k->start > 0 && k->start + k->used + bytes > k->room) {
        memmove(k->data, k->data + k->start, k->used);
        k->start = 0;
    }
    if (k->used + bytes > k->room) {
        size_t room = (k->used + bytes) * 2;
        char *data = realloc(k->data, room);
        if (!data)
            return; /* out of memory: output is what we can best do without */
        k->data = data;
        k->room = room;
    }
    memcpy(k->data + k->start + k->used, text, bytes);
    k->used += bytes;
}

static void append_line(sink *k, int rank, const char *line, size_t bytes)
{
    char prefix[16];
    int n = snprintf(prefix, sizeof prefix, "[%d] ", rank);
    append(k, prefix, (size_t)n);
    append(k, line, bytes);
    if (bytes == 0 || line[bytes - 1] != '\n')
        append(k, "\n", 1);
}

/* Hand the whole lines of a stream to its sink, with `all` the unfinished one too. */
static void take_lines(stream *s, sink *k, int all)
{
    size_t done = 0;
    char *end;
    while ((end = memchr(s->line + done, '\n', s->used - done)) != NULL) {
        size_t bytes = (size_t)(end - (s->line + done)) + 1;
        append_line(k, s->rank, s->line + done, bytes);
        done += bytes;
    }
    if (done < s->used && (all || s->used - done == LINE_ROOM)) {
        append_line(k, s->rank, s->line + done, s->used - done);
        done = s->used;
    }
    s->used -= done;
    memmove(s->line, s->line + done, s->used);
}

/* One read: 1 when there may be more, 0 when the pipe is empty for now or for ever. */
static int read_stream(stream *s, sink *k)
{
    ssize_t n = read(s->fd, s->line + s->used, LINE_ROOM - s->used);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return errno == EINTR;
    if (n > 0)
        s->used += (size_t)n;
    take_lines(s, k, n <= 0);
    if (n <= 0)
        close_stream(s);
    return n > 0;
}

void lsi_output_stream_ready(lsi_output *output, uint32_t index)
{
    int which = (int)index % 2;
    stream *s = &output->streams[index];
    sink *k = &output->sinks[which];
    if (s->fd < 0)
        return; /* an event from before it was closed */
    read_stream(s, k);
    flush(output, which);
    if (s->fd >= 0 && k->used > SINK_HIGH) {
        epoll_ctl(output->epoll, EPOLL_CTL_DEL, s->fd, NULL);
        s->paused = 1;
    }
}

void lsi_output_sink_ready(lsi_output *output, uint32_t which)
{
    flush(output, (int)which);
}

void lsi_output_finish(lsi_output *output)
{
    for (int i = 0; output && i < output->ranks * 2; i++) {
        stream *s = &output->streams[i];
        sink *k = &output->sinks[i % 2];
        while (s->fd >= 0 && read_stream(s, k))
            ;
        if (s->fd >= 0) {
            take_lines(s, k, 1);
            close_stream(s);
        }
        flush(output, i % 2);
    }
}

int lsi_output_pending(const lsi_output *output)
{
    return output && (output->sinks[0].used > 0 || output->sinks[1].used > 0);
}

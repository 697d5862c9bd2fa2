/* Words on stderr: level, prefix, one write(2) a line.
 *
 * Invariants:
 * 1. A line leaves in one write(2) of at most LINE_MAX_BYTES, so that lines of several ranks
 *    do not mix (a pipe keeps writes of up to PIPE_BUF bytes whole).
 * 2. errno is as it was: logging may stand between a failing call and the look at its errno.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1200

static const char *const level_names[] = {"error", "warn", "info", "debug"};
#define LEVELS ((int)(sizeof level_names / sizeof *level_names))

static _Thread_local int log_rank = -1;
static _Atomic int log_level = -1; /* -1: the environment was not read yet */

void lsi_log_set_rank(int rank)
{
    log_rank = rank;
}

static void write_line(const char *line, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(STDERR_FILENO, line, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* a log that nobody takes is no reason to stop */
        line += n;
        bytes -= (size_t)n;
    }
}

static void log_v(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

static void log_v(const char *format, va_list args)
{
    int saved = errno;
    char line[LINE_MAX_BYTES];
    int n = log_rank < 0 ? snprintf(line, sizeof line, "lockstep: ")
                         : snprintf(line, sizeof line, "lockstep[%d]: ", log_rank);
    size_t used = n > 0 ? (size_t)n : 0;

    n = vsnprintf(line + used, sizeof line - used, format, args);
    if (n > 0)
        used += (size_t)n;
    if (used > sizeof line - 1)
        used = sizeof line - 1;
    while (used > 0 && line[used - 1] == '\n')
        used--;
    line[used++] = '\n';
    write_line(line, used);
    errno = saved;
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_v(format, args);
    va_end(args);
}

static int read_level(void)
{
    const char *text = getenv("LOCKSTEP_LOG");
    int level = LSI_LOG_WARN;
    int known = !text || !*text;
    for (int i = 0; !known && i < LEVELS; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            level = i;
            known = 1;
        }
    }

    int unread = -1;
    if (atomic_compare_exchange_strong(&log_level, &unread, level) && !known)
        say("LOCKSTEP_LOG is '%.40s', expected error, warn, info or debug; using warn", text);
    return level;
}

int lsi_log_enabled(lsi_log_level level)
{
    int enabled = atomic_load_explicit(&log_level, memory_order_relaxed);
    if (enabled < 0)
        enabled = read_level();
    return (int)level <= enabled;
}

void lsi_log(lsi_log_level level, const char *format, ...)
{
    if (!lsi_log_enabled(level))
        return;
    va_list args;
    va_start(args, format);
    log_v(format, args);
    va_end(args);
}

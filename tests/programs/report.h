/* What the programs here share: one line of JSON a fact, written whole, on standard output. */
#ifndef TESTS_PROGRAMS_REPORT_H
#define TESTS_PROGRAMS_REPORT_H

#include <lockstep/lockstep.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The rank, also while there is no communicator (ls_init may fail). */
static inline int own_rank(void)
{
    const char *text = getenv("LOCKSTEP_RANK");
    return text ? (int)strtol(text, NULL, 10) : 0;
}

/* CLOCK_MONOTONIC, the clock of Python's time.monotonic(). */
static inline double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One write(2): lines of several ranks do not mix in a pipe. */
__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n++] = '\n';
    (void)!write(STDOUT_FILENO, line, (size_t)n);
}

/* The text as the inside of a JSON string. */
static inline const char *quoted(const char *text, char *out, size_t bytes)
{
    size_t n = 0;
    for (; *text && n + 3 < bytes; text++) {
        if (*text == '"' || *text == '\\')
            out[n++] = '\\';
        out[n++] = *text == '\n' ? ' ' : *text;
    }
    out[n] = 0;
    return out;
}

/* {"rank", "doing", "status", "text", "at", "since_ok_ms"} of a call that has just failed. */
static inline void report_failure(int rank, const char *doing, ls_status status, double last_ok)
{
    double at = now_s();
    char text[1500];
    say("{\"rank\": %d, \"doing\": \"%s\", \"status\": \"%s\", \"text\": \"%s\", \"at\": %.6f, "
        "\"since_ok_ms\": %.3f}",
        rank, doing, ls_status_name(status), quoted(ls_last_error(), text, sizeof text), at,
        (at - last_ok) * 1e3);
}

#endif

/* The progress line.
 *
 * 1. When there is no room for all, what matters least is left out, whole: first the rate, then the
 *    waiting, the epoch, the speed.
 */
#include "train/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_EVERY 0.1 /* seconds between two states of the rewritten line */
#define PLAIN_EVERY 10.0
#define CLEAR "\r\x1b[K"

void lsi_progress_begin(lsi_progress *p, int fd, lsi_progress_mode mode, uint64_t first,
                        uint64_t total, double now)
{
    *p = (lsi_progress){.fd = fd,
                        .mode = mode,
                        .terminal = mode == LSI_PROGRESS_AUTO && isatty(fd),
                        .first = first,
                        .total = total,
                        .start = now,
                        .last = -1};
}

static void put(const lsi_progress *p, const char *text, size_t bytes)
{
    while (bytes) {
        const ssize_t n = write(p->fd, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        text += n;
        bytes -= (size_t)n;
    }
}

/* ---- the text -------------------------------------------------------------------------------- */

#define PART 64
enum { STEP, EPOCH, LOSS, RATE, SPEED, WAIT, LEFT, PARTS };

static void time_text(double seconds, char text[PART])
{
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e8) {
        snprintf(text, PART, "?");
        return;
    }
    const unsigned long s = (unsigned long)(seconds + 0.5);
    if (s >= 86400)
        snprintf(text, PART, "%lud%02luh", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        snprintf(text, PART, "%luh%02lum", s / 3600, s / 60 % 60);
    else
        snprintf(text, PART, "%lum%02lus", s / 60, s % 60);
}

/* Seconds until the end, by the mean speed of this process; negative when not known. */
static double seconds_left(const lsi_progress *p, const lsi_metric_step *m, double now)
{
    if (m->step <= p->first || m->step > p->total)
        return -1;
    return (now - p->start) / (double)(m->step - p->first) * (double)(p->total - m->step);
}

static void make_parts(const lsi_progress *p, const lsi_metric_step *m, double now,
                       char parts[PARTS][PART])
{
    char left[PART];
    for (int i = 0; i < PARTS; i++)
        parts[i][0] = 0;
    snprintf(parts[STEP], PART, "step %" PRIu64 "/%" PRIu64, m->step, p->total);
    snprintf(parts[EPOCH], PART, "epoch %" PRIu64, m->epoch);
    snprintf(parts[LOSS], PART, "loss %.4f", m->loss);
    snprintf(parts[RATE], PART, "lr %.3g", m->lr);
    if (!isnan(m->samples_per_s))
        snprintf(parts[SPEED], PART, m->samples_per_s < 100 ? "%.1f samples/s" : "%.0f samples/s",
                 m->samples_per_s);
    if (!isnan(m->wait_share))
        snprintf(parts[WAIT], PART, "wait %.0f%%", 100 * m->wait_share);
    time_text(seconds_left(p, m, now), left);
    if (m->step < p->total)
        snprintf(parts[LEFT], PART, "%.50s left", left);
}

static size_t join(char parts[PARTS][PART], char text[LSI_METRIC_LINE])
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < PARTS; i++) {
        if (parts[i][0])
            used += (size_t)snprintf(text + used, LSI_METRIC_LINE - used, "%s%s", used ? "  " : "",
                                     parts[i]);
    }
    return used;
}

size_t lsi_progress_text(const lsi_progress *p, const lsi_metric_step *m, double now, size_t width,
                         char text[LSI_METRIC_LINE])
{
    static const int least[] = {RATE, WAIT, EPOCH, SPEED, LEFT};
    char parts[PARTS][PART];
    make_parts(p, m, now, parts);
    size_t length = join(parts, text);
    for (size_t i = 0; width && length > width && i < sizeof least / sizeof *least; i++) {
        parts[least[i]][0] = 0;
        length = join(parts, text);
    }
    if (width && length > width)
        text[length = width] = 0;
    return length;
}

/* ---- showing --------------------------------------------------------------------------------- */

static size_t terminal_width(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

/* Is it time? The first and the last step always are. */
static int is_due(const lsi_progress *p, const lsi_metric_step *m, double now, int tenth)
{
    if (p->last < 0 || m->step >= p->total)
        return 1;
    if (p->terminal)
        return now - p->last >= LINE_EVERY;
    return tenth > p->tenth || now - p->last >= PLAIN_EVERY;
}

void lsi_progress_step(lsi_progress *p, const lsi_metric_step *m, double now)
{
    char text[LSI_METRIC_LINE], line[LSI_METRIC_LINE + 16];
    if (p->mode == LSI_PROGRESS_QUIET)
        return;
    if (p->mode == LSI_PROGRESS_JSON) {
        put(p, text, lsi_metric_step_text(m, text));
        return;
    }
    const int tenth = p->total ? (int)(10.0 * (double)m->step / (double)p->total) : 0;
    if (!is_due(p, m, now, tenth))
        return;
    p->last = now;
    p->tenth = tenth;
    /* One column stays free: a full line would make some terminals go to the next. */
    lsi_progress_text(p, m, now, p->terminal ? terminal_width(p->fd) - 1 : 0, text);
    const int n = snprintf(line, sizeof line, p->terminal ? CLEAR "%s" : "%s\n", text);
    put(p, line, (size_t)n);
    p->shown = p->terminal;
}

void lsi_progress_eval(lsi_progress *p, const lsi_metric_eval *m)
{
    char text[LSI_METRIC_LINE];
    if (p->mode == LSI_PROGRESS_JSON)
        put(p, text, lsi_metric_eval_text(m, text));
    else if (isnan(m->accuracy))
        lsi_progress_say(p, "step %" PRIu64 "  validation loss %.4f", m->step, m->loss);
    else
        lsi_progress_say(p, "step %" PRIu64 "  validation loss %.4f  accuracy %.2f%%", m->step,
                         m->loss, 100 * m->accuracy);
}

void lsi_progress_say(lsi_progress *p, const char *format, ...)
{
    char line[1200];
    if (p->mode != LSI_PROGRESS_AUTO)
        return;
    size_t used = (size_t)snprintf(line, sizeof line, "%s", p->shown ? CLEAR : "");
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    used += n > 0 ? (size_t)n : 0;
    used = used > sizeof line - 2 ? sizeof line - 2 : used;
    line[used++] = '\n';
    put(p, line, used);
    p->shown = 0; /* the next step writes the line again */
    if (p->terminal)
        p->last = -1;
}

void lsi_progress_end(lsi_progress *p)
{
    if (p->shown)
        put(p, "\n", 1);
    p->shown = 0;
}

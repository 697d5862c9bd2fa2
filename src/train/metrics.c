/* metrics.jsonl: lines as text, appending, cutting back. */
#include "train/metrics.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "train/number.h"

#define WHAT "metrics"
#define LATE_BYTES ((size_t)1 << 24) /* that are kept at most; what comes after is lost */
#define STEP "{\"step\":"            /* every line begins so, then the number */
#define EVAL "\"eval_loss\":"        /* that of an evaluation has this */

struct lsi_metrics {
    int fd;
    off_t end;
    char *path;
    char *late; /* lines that could not be written yet, and their bytes */
    size_t late_bytes;
    uint64_t last, last_eval; /* the latest step and evaluation that have a line */
};

/* ---- lines ----------------------------------------------------------------------------------- */

static void put(char text[LSI_METRIC_LINE], size_t *used, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The longest line has room: twelve members of at most 40 characters. */
static void put(char text[LSI_METRIC_LINE], size_t *used, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text + *used, LSI_METRIC_LINE - *used, format, args);
    va_end(args);
    *used += n > 0 ? (size_t)n : 0;
}

static void put_number(char text[LSI_METRIC_LINE], size_t *used, const char *key, double value)
{
    char number[LSI_NUMBER_TEXT];
    put(text, used, ",\"%s\":%s", key, lsi_number_text(value, number));
}

static void put_known(char text[LSI_METRIC_LINE], size_t *used, const char *key, double value)
{
    if (!isnan(value))
        put_number(text, used, key, value);
}

size_t lsi_metric_step_text(const lsi_metric_step *m, char text[LSI_METRIC_LINE])
{
    size_t used = 0;
    put(text, &used, STEP "%" PRIu64 ",\"epoch\":%" PRIu64, m->step, m->epoch);
    put_number(text, &used, "loss", m->loss);
    put_number(text, &used, "lr", m->lr);
    put_known(text, &used, "grad_norm", m->grad_norm);
    put_known(text, &used, "samples_per_s", m->samples_per_s);
    put_known(text, &used, "step_s", m->step_s);
    put(text, &used, ",\"workers\":%d", m->workers);
    put_known(text, &used, "wait_share", m->wait_share);
    put(text, &used, "}\n");
    return used;
}

size_t lsi_metric_eval_text(const lsi_metric_eval *m, char text[LSI_METRIC_LINE])
{
    size_t used = 0;
    put(text, &used, STEP "%" PRIu64 ",\"epoch\":%" PRIu64, m->step, m->epoch);
    put_number(text, &used, "eval_loss", m->loss);
    put_known(text, &used, "eval_accuracy", m->accuracy);
    put(text, &used, ",\"eval_samples\":%" PRIu64, m->samples);
    put_known(text, &used, "eval_s", m->seconds);
    put(text, &used, "}\n");
    return used;
}

/* ---- cutting back ---------------------------------------------------------------------------- */

/* A whole line of ours, of a step before `first`. */
static int is_kept(const char *line, size_t length, uint64_t first)
{
    const size_t head = strlen(STEP);
    if (length < head + 3 || strncmp(line, STEP, head) != 0 || !isdigit((unsigned char)line[head]))
        return 0;
    return strcmp(line + length - 2, "}\n") == 0 && strtoull(line + head, NULL, 10) < first;
}

static void note_line(lsi_metrics *m, const char *line)
{
    *(strstr(line, EVAL) ? &m->last_eval : &m->last) = strtoull(line + strlen(STEP), NULL, 10);
}

/* The lines that are kept, from one file to another. */
static ls_status copy_lines(lsi_metrics *m, FILE *from, FILE *to, uint64_t first)
{
    const char *path = m->path;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    while ((length = getline(&line, &room, from)) > 0) {
        if (!is_kept(line, (size_t)length, first))
            continue;
        note_line(m, line);
        fwrite(line, 1, (size_t)length, to);
    }
    free(line);
    if (ferror(from))
        return lsi_fail_errno(WHAT, "%s cannot be read", path);
    if (fflush(to) != 0 || ferror(to) || fsync(fileno(to)) != 0)
        return lsi_fail_errno(WHAT, "%s.tmp cannot be written", path);
    return LS_OK;
}

static ls_status cut_back(lsi_metrics *m, uint64_t first)
{
    const char *path = m->path;
    FILE *from = fopen(path, "rbe");
    if (!from)
        return errno == ENOENT ? LS_OK : lsi_fail_errno(WHAT, "%s cannot be opened", path);
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.tmp", path) < 0) {
        fclose(from);
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory");
    }
    FILE *to = fopen(temporary, "wbe");
    ls_status status = to ? copy_lines(m, from, to, first)
                          : lsi_fail_errno(WHAT, "%s cannot be created", temporary);
    if (to && fclose(to) != 0 && status == LS_OK)
        status = lsi_fail_errno(WHAT, "%s cannot be written", temporary);
    if (status == LS_OK && rename(temporary, path) != 0)
        status = lsi_fail_errno(WHAT, "%s cannot be replaced", path);
    if (status != LS_OK)
        unlink(temporary);
    fclose(from);
    free(temporary);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

ls_status lsi_metrics_open(const char *path, uint64_t first, lsi_metrics **out)
{
    lsi_metrics *m = calloc(1, sizeof *m);
    char *copy = strdup(path);
    if (!m || !copy) {
        free(m);
        free(copy);
        return lsi_fail(LS_ERR_NOMEM, NULL, WHAT, "no memory");
    }
    m->path = copy;
    m->fd = -1;
    const ls_status cut = cut_back(m, first);
    if (cut != LS_OK) {
        lsi_metrics_close(m);
        return cut;
    }
    m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    m->end = m->fd >= 0 ? lseek(m->fd, 0, SEEK_END) : -1;
    if (m->end < 0) {
        const ls_status status = lsi_fail_errno(WHAT, "%s cannot be opened", path);
        lsi_metrics_close(m);
        return status;
    }
    *out = m;
    return LS_OK;
}

uint64_t lsi_metrics_last(const lsi_metrics *m)
{
    return m->last;
}

uint64_t lsi_metrics_last_eval(const lsi_metrics *m)
{
    return m->last_eval;
}

void lsi_metrics_close(lsi_metrics *m)
{
    if (!m)
        return;
    if (m->fd >= 0)
        close(m->fd);
    free(m->path);
    free(m->late);
    free(m);
}

static ls_status put_lines(lsi_metrics *m, const char *text, size_t length)
{
    ssize_t n;
    do
        n = write(m->fd, text, length);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)length) {
        m->end += n;
        return LS_OK;
    }
    if (n >= 0)
        errno = ENOSPC; /* what a short write to a file means */
    const ls_status status = lsi_fail_errno(WHAT, "%s cannot be written", m->path);
    if (ftruncate(m->fd, m->end) != 0)
        return status; /* reading drops a line that is not whole */
    return status;
}

ls_status lsi_metrics_flush(lsi_metrics *m)
{
    if (!m->late_bytes)
        return LS_OK;
    LSI_TRY(put_lines(m, m->late, m->late_bytes));
    m->late_bytes = 0;
    return LS_OK;
}

static void keep(lsi_metrics *m, const char *text, size_t length)
{
    char *more =
        m->late_bytes + length <= LATE_BYTES ? realloc(m->late, m->late_bytes + length) : NULL;
    if (!more)
        return;
    memcpy(more + m->late_bytes, text, length);
    m->late = more;
    m->late_bytes += length;
}

static ls_status append(lsi_metrics *m, const char *text, size_t length)
{
    ls_status status = lsi_metrics_flush(m);
    if (status == LS_OK)
        status = put_lines(m, text, length);
    if (status != LS_OK)
        keep(m, text, length);
    return status;
}

ls_status lsi_metrics_step(lsi_metrics *m, const lsi_metric_step *step)
{
    char text[LSI_METRIC_LINE];
    m->last = step->step;
    return append(m, text, lsi_metric_step_text(step, text));
}

ls_status lsi_metrics_eval(lsi_metrics *m, const lsi_metric_eval *eval)
{
    char text[LSI_METRIC_LINE];
    m->last_eval = eval->step;
    return append(m, text, lsi_metric_eval_text(eval, text));
}

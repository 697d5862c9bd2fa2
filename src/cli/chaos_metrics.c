/* metrics.jsonl: how far the run is, and whether it went as the undisturbed one. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/chaos.h"

#define TAIL 4096

static void path_of(const char *folder, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.*s/metrics.jsonl", PATH_MAX - 16, folder);
}

uint64_t lsi_chaos_steps(const char *folder)
{
    char path[PATH_MAX], text[TAIL + 1];
    uint64_t last = 0;
    struct stat info;
    path_of(folder, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const off_t from = fstat(fd, &info) == 0 && info.st_size > TAIL ? info.st_size - TAIL : 0;
    const ssize_t n = pread(fd, text, TAIL, from);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    for (const char *at = text; (at = strstr(at, "{\"step\":")) && strchr(at, '\n'); at++)
        last = strtoull(at + strlen("{\"step\":"), NULL, 10);
    return last;
}

/* One line: which step, whether of an evaluation, its loss as it is written. */
typedef struct line {
    uint64_t step;
    int is_eval;
    char loss[40];
} line;

static int next_line(FILE *file, line *out)
{
    char *text = NULL;
    size_t room = 0;
    int found = 0;
    const ssize_t length = getline(&text, &room, file);
    if (length > 0) {
        const char *step = strstr(text, "\"step\":");
        const char *eval = strstr(text, "\"eval_loss\":");
        const char *loss = eval ? eval + 12 : strstr(text, "\"loss\":");
        found = step && loss ? 1 : -1;
        out->step = step ? strtoull(step + 7, NULL, 10) : 0;
        out->is_eval = eval != NULL;
        loss = loss && !eval ? loss + 7 : loss;
        snprintf(out->loss, sizeof out->loss, "%.*s", loss ? (int)strcspn(loss, ",}") : 0,
                 loss ? loss : "");
    }
    free(text);
    return found;
}

/* Lines of `folder` against those that are wanted: as they are in `want`, or just 1, 2, 3 … */
static void compare(lsi_chaos *c, FILE *file, FILE *want)
{
    line a, b = {0};
    int found, wanted = 0;
    uint64_t last = 0;
    while ((found = next_line(file, &a)) > 0) {
        while (want && (wanted = next_line(want, &b)) > 0 &&
               (b.step < a.step || (b.step == a.step && !b.is_eval && a.is_eval))) {
            c->lost += !b.is_eval;
            lsi_chaos_fail(c, "metrics.jsonl lacks the %s step %llu",
                           b.is_eval ? "evaluation after" : "line of", (unsigned long long)b.step);
        }
        if (!a.is_eval && a.step != last + 1)
            lsi_chaos_fail(c, "metrics.jsonl has step %llu after step %llu",
                           (unsigned long long)a.step, (unsigned long long)last);
        if (want && wanted > 0 && (a.step != b.step || a.is_eval != b.is_eval))
            lsi_chaos_fail(c, "metrics.jsonl has %s %llu twice, or at the wrong place",
                           a.is_eval ? "evaluation" : "step", (unsigned long long)a.step);
        else if (want && wanted > 0 && strcmp(a.loss, b.loss) != 0)
            lsi_chaos_fail(c, "the %s step %llu is %s, undisturbed %s",
                           a.is_eval ? "evaluation after" : "loss of", (unsigned long long)a.step,
                           a.loss, b.loss);
        if (want && wanted <= 0)
            lsi_chaos_fail(c, "metrics.jsonl has more lines than that of the undisturbed run");
        last = a.is_eval ? last : a.step;
        if (c->failed)
            break;
    }
    if (found < 0)
        lsi_chaos_fail(c, "metrics.jsonl has a line that is none after step %llu",
                       (unsigned long long)last);
    const uint64_t total = c->plan.steps;
    if (last < total && !c->lost)
        c->lost = total - last;
    if (last != total)
        lsi_chaos_fail(c, "metrics.jsonl ends with step %llu of %llu", (unsigned long long)last,
                       (unsigned long long)total);
}

void lsi_chaos_compare(lsi_chaos *c, const char *folder, const char *reference)
{
    char path[PATH_MAX];
    path_of(folder, path);
    FILE *file = fopen(path, "re"), *want = NULL;
    if (reference) {
        path_of(reference, path);
        want = fopen(path, "re");
    }
    if (!file || (reference && !want))
        lsi_chaos_fail(c, "there is no %s", path);
    else
        compare(c, file, want);
    if (file)
        fclose(file);
    if (want)
        fclose(want);
}

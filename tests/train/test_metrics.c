/* metrics.jsonl: lines that any JSON reader takes, equal values as equal text, cut back on resume,
 * whole lines only. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "state.h"
#include "train/metrics.h"

static lsi_metric_step at(uint64_t step)
{
    return (lsi_metric_step){.step = step,
                             .epoch = step / 10,
                             .loss = 1.0 / (double)(step + 3),
                             .lr = 1e-3,
                             .grad_norm = NAN,
                             .samples_per_s = 1234.5,
                             .wait_share = 0.25,
                             .step_s = NAN,
                             .workers = 2};
}

static void test_lines(void **ignored)
{
    (void)ignored;
    char text[LSI_METRIC_LINE];
    lsi_metric_step step = at(0);
    size_t length = lsi_metric_step_text(&step, text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(text, "{\"step\":0,\"epoch\":0,\"loss\":0.3333333333333333,\"lr\":0.001,"
                              "\"samples_per_s\":1234.5,\"workers\":2,\"wait_share\":0.25}\n");
    lsi_metric_eval eval = {
        .step = 7, .epoch = 1, .samples = 100, .loss = 0.5, .accuracy = 0.875, .seconds = NAN};
    lsi_metric_eval_text(&eval, text);
    assert_string_equal(text, "{\"step\":7,\"epoch\":1,\"eval_loss\":0.5,\"eval_accuracy\":0.875,"
                              "\"eval_samples\":100}\n");

    /* The longest, and numbers that JSON does not have. */
    const double longest = -2.2250738585072014e-308;
    step = (lsi_metric_step){UINT64_MAX, UINT64_MAX, longest, longest, longest,
                             longest,    longest,    longest, 1 << 30};
    length = lsi_metric_step_text(&step, text);
    assert_int_equal(length, strlen(text));
    json_t *json = json_loads(text, 0, NULL);
    assert_null(json); /* a step that JSON readers cannot hold, but a whole line */
    assert_int_equal(text[strlen(text) - 1], '\n');
    step = at(1);
    step.loss = INFINITY;
    lsi_metric_step_text(&step, text);
    json = json_loads(text, 0, NULL);
    assert_true(json_is_null(json_object_get(json, "loss")));
    json_decref(json);
}

static size_t count_lines(const char *path, uint64_t *last)
{
    size_t count = 0;
    char *text = slurp(path, NULL);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), count++) {
        json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(json);
        *last = (uint64_t)json_integer_value(json_object_get(json, "step"));
        json_decref(json);
    }
    free(text);
    return count;
}

static void test_resume(void **ignored)
{
    (void)ignored;
    char path[128];
    uint64_t last = 0;
    lsi_metrics *m;
    snprintf(path, sizeof path, "%s", path_of("metrics.jsonl"));
    OK(lsi_metrics_open(path, 0, &m));
    for (uint64_t step = 1; step <= 20; step++) {
        const lsi_metric_step line = at(step);
        OK(lsi_metrics_step(m, &line));
        if (step % 10 == 0)
            OK(lsi_metrics_eval(m, &(lsi_metric_eval){.step = step, .loss = 1, .accuracy = NAN}));
    }
    lsi_metrics_close(m);
    lsi_metrics_close(NULL);
    assert_int_equal(count_lines(path, &last), 22);
    char *before = slurp(path, NULL);

    FILE *f = fopen(path, "a"); /* a line that was cut off by a crash */
    fputs("{\"step\":3,\"loss\":1.2", f);
    fclose(f);
    OK(lsi_metrics_open(path, 11, &m));
    assert_int_equal(count_lines(path, &last), 11);
    assert_int_equal(last, 10);
    for (uint64_t step = 11; step <= 20; step++) {
        const lsi_metric_step line = at(step);
        OK(lsi_metrics_step(m, &line));
        if (step % 10 == 0)
            OK(lsi_metrics_eval(m, &(lsi_metric_eval){.step = step, .loss = 1, .accuracy = NAN}));
    }
    lsi_metrics_close(m);
    char *after = slurp(path, NULL);
    assert_string_equal(before, after);
    free(before);
    free(after);

    OK(lsi_metrics_open(path, UINT64_MAX, &m)); /* all are kept */
    assert_int_equal(count_lines(path, &last), 22);
    lsi_metrics_close(m);
    OK(lsi_metrics_open(path, 0, &m)); /* none is */
    assert_int_equal(count_lines(path, &last), 0);
    lsi_metrics_close(m);
    unlink(path);
    assert_int_equal(lsi_metrics_open(path_of("no/metrics.jsonl"), 0, &m), LS_ERR_SYSTEM);
    ERROR_HAS("no/metrics.jsonl");
}

/* No more room: an error that names the file, and a file of whole lines. With room again, those
 * that are missing. */
static void test_no_room(void **ignored)
{
    (void)ignored;
    char path[128];
    uint64_t last = 0;
    snprintf(path, sizeof path, "%s", path_of("metrics.jsonl"));
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {1000, 1 << 20}, more = {1 << 20, 1 << 20};
        lsi_metrics *m;
        ls_status status = lsi_metrics_open(path, 0, &m);
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        for (uint64_t step = 0; step < 100; step++) {
            const lsi_metric_step line = at(step);
            status = lsi_metrics_step(m, &line);
        }
        if (status != LS_ERR_SYSTEM || !strstr(ls_last_error(), path) ||
            count_lines(path, &last) < 3)
            _exit(1);
        if (lsi_metrics_flush(m) != LS_ERR_SYSTEM || setrlimit(RLIMIT_FSIZE, &more) != 0)
            _exit(2);
        const lsi_metric_step line = at(100);
        _exit(lsi_metrics_step(m, &line) == LS_OK ? 0 : 3);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    const size_t lines = count_lines(path, &last);
    assert_true(lines == 101 && last == 100);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_no_room),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

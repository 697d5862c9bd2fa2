/* The progress line: its text, how often it appears, on a terminal and elsewhere. */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include <cmocka.h>

#include "state.h"
#include "train/progress.h"

static lsi_metric_step at(uint64_t step)
{
    return (lsi_metric_step){.step = step,
                             .epoch = 2,
                             .loss = 1.23456,
                             .lr = 1e-3,
                             .grad_norm = NAN,
                             .samples_per_s = 1234.5,
                             .wait_share = 0.034,
                             .step_s = NAN,
                             .workers = 2};
}

static void test_text(void **ignored)
{
    (void)ignored;
    char text[LSI_METRIC_LINE];
    lsi_progress p;
    lsi_metric_step step = at(150);
    lsi_progress_begin(&p, -1, LSI_PROGRESS_AUTO, 100, 1000, 1000);
    const size_t length = lsi_progress_text(&p, &step, 1010, 0, text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(text, "step 150/1000  epoch 2  loss 1.2346  lr 0.001  1234 samples/s  "
                              "wait 3%  2m50s left"); /* 10 s for 50 steps, 850 to go */
    lsi_progress_text(&p, &step, 1000 + 3600, 0, text);
    assert_non_null(strstr(text, "17h00m left"));
    lsi_progress_text(&p, &step, 1000 + 36000, 0, text);
    assert_non_null(strstr(text, "7d02h left"));
    for (size_t width = 1; width < 100; width++)
        assert_true(lsi_progress_text(&p, &step, 1010, width, text) <= width);
    lsi_progress_text(&p, &step, 1010, 70, text);
    assert_string_equal(text, "step 150/1000  epoch 2  loss 1.2346  1234 samples/s  2m50s left");
    step = at(1000);
    step.samples_per_s = step.wait_share = NAN;
    lsi_progress_text(&p, &step, 1010, 0, text);
    assert_string_equal(text, "step 1000/1000  epoch 2  loss 1.2346  lr 0.001");
    step = at(100); /* nothing done yet: nothing known of the end */
    lsi_progress_text(&p, &step, 1010, 0, text);
    assert_non_null(strstr(text, "? left"));
}

/* `steps` of 1000 steps with `each` seconds between them; returns what was printed. */
static char *play(int fd, const char *path, lsi_progress_mode mode, uint64_t steps, double each)
{
    lsi_progress p;
    lsi_progress_begin(&p, fd, mode, 0, 1000, 50);
    for (uint64_t s = 1; s <= steps; s++) {
        const lsi_metric_step step = at(s);
        lsi_progress_step(&p, &step, 50 + each * (double)s);
    }
    lsi_progress_eval(&p, &(lsi_metric_eval){.step = 5, .loss = 2, .accuracy = 0.5});
    lsi_progress_say(&p, "words");
    lsi_progress_end(&p);
    return path ? slurp(path, NULL) : NULL;
}

static int count(const char *text, const char *words)
{
    int n = 0;
    for (; (text = strstr(text, words)); text++)
        n++;
    return n;
}

static void test_plain(void **ignored)
{
    (void)ignored;
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("out"));
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *text = play(fd, path, LSI_PROGRESS_AUTO, 1000, 0.001);
    assert_int_equal(count(text, "loss 1.23"), 11); /* the first, and every tenth */
    assert_int_equal(count(text, "\n"), 13);
    assert_null(strchr(text, '\r'));
    assert_null(strchr(text, '\x1b'));
    assert_non_null(strstr(text, "step 1000/1000"));
    assert_non_null(strstr(text, "step 5  validation loss 2.0000  accuracy 50.00%\nwords\n"));
    free(text);
    assert_int_equal(ftruncate(fd, 0), 0);
    lseek(fd, 0, SEEK_SET);
    text = play(fd, path, LSI_PROGRESS_AUTO, 50, 1); /* slow: every ten seconds */
    assert_int_equal(count(text, "loss 1.23"), 5);
    free(text);
    close(fd);
    unlink(path);
}

static void test_quiet_and_json(void **ignored)
{
    (void)ignored;
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("out"));
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *text = play(fd, path, LSI_PROGRESS_QUIET, 100, 1);
    assert_string_equal(text, "");
    free(text);
    text = play(fd, path, LSI_PROGRESS_JSON, 100, 0.001);
    int lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *json = json_loads(line, 0, NULL);
        assert_true(json_is_integer(json_object_get(json, "step")));
        json_decref(json);
    }
    assert_int_equal(lines, 101);
    free(text);
    close(fd);
    unlink(path);
}

static void test_terminal(void **ignored)
{
    (void)ignored;
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        fprintf(stderr, "skipped: there are no terminals here\n");
        skip();
    }
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    const struct winsize size = {.ws_row = 10, .ws_col = 40};
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    play(slave, NULL, LSI_PROGRESS_AUTO, 200, 0.01); /* two seconds */
    char text[8192] = "";
    size_t used = 0;
    while (!strstr(text, "words")) { /* a terminal hands out what it has by and by */
        struct pollfd p = {.fd = master, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 10000), 1);
        const ssize_t n = read(master, text + used, sizeof text - 1 - used);
        assert_true(n > 0);
        used += (size_t)n;
        text[used] = 0;
    }
    const int drawn = count(text, "loss");
    assert_true(drawn >= 15 && drawn <= 23); /* ten a second, and one evaluation */
    for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n")) {
        const char *shown = strncmp(line, "\x1b[K", 3) ? line : line + 3;
        if (!strstr(shown, "validation"))
            assert_true(strlen(shown) <= 39);
    }
    close(slave);
    close(master);
}

/* Nobody reads: no crash, no hang. */
static void test_nobody(void **ignored)
{
    (void)ignored;
    play(-1, NULL, LSI_PROGRESS_AUTO, 10, 1);
    play(-1, NULL, LSI_PROGRESS_JSON, 10, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),           cmocka_unit_test(test_plain),
        cmocka_unit_test(test_quiet_and_json), cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_nobody),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

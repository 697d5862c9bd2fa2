/* Output with a prefix: whole lines, long lines, unfinished lines, slow and vanished readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "launch/output.h"
#include "launch/run.h"

/* Our standard output and error are pipes while a test runs. */
typedef struct setup {
    int saved[2], reader[2], epoll;
    lsi_output *output;
    int writer[2][2]; /* [rank][output, error] */
} setup;

static void begin(setup *s, int first_rank)
{
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        s->saved[i] = dup(1 + i);
        dup2(ends[1], 1 + i);
        close(ends[1]);
        s->reader[i] = ends[0];
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
    }
    s->epoll = epoll_create1(0);
    assert_int_equal(lsi_output_create(s->epoll, 2, first_rank, &s->output), LS_OK);
    for (int r = 0; r < 2; r++)
        assert_int_equal(lsi_output_open(s->output, r, s->writer[r]), LS_OK);
}

static void end(setup *s)
{
    lsi_output_destroy(s->output);
    close(s->epoll);
    for (int i = 0; i < 2; i++) {
        dup2(s->saved[i], 1 + i);
        close(s->saved[i]);
        if (s->reader[i] >= 0)
            close(s->reader[i]);
        for (int r = 0; r < 2; r++) {
            if (s->writer[r][i] >= 0)
                close(s->writer[r][i]);
        }
    }
}

/* Serve all events there are; returns how many. */
static int turn(setup *s)
{
    struct epoll_event events[8];
    int n = epoll_wait(s->epoll, events, 8, 0);
    for (int i = 0; i < n; i++) {
        uint32_t index = (uint32_t)events[i].data.u64;
        if (events[i].data.u64 >> 32 == LSI_EVENT_STREAM)
            lsi_output_stream_ready(s->output, index);
        else
            lsi_output_sink_ready(s->output, index);
    }
    return n;
}

static void put(setup *s, int rank, int which, const char *text)
{
    assert_int_equal(write(s->writer[rank][which], text, strlen(text)), strlen(text));
    turn(s);
}

static const char *got(setup *s, int which)
{
    static char text[4096];
    ssize_t n = read(s->reader[which], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    return text;
}

static void whole_lines_only(void **state)
{
    (void)state;
    setup s;
    begin(&s, 7);
    put(&s, 0, 0, "one\n");
    assert_string_equal(got(&s, 0), "[7] one\n");
    put(&s, 0, 0, "two ");
    put(&s, 1, 0, "three\n\nfo");
    assert_string_equal(got(&s, 0), "[8] three\n[8] \n");
    put(&s, 0, 0, "words\n");
    assert_string_equal(got(&s, 0), "[7] two words\n");
    put(&s, 1, 1, "error\n");
    assert_string_equal(got(&s, 1), "[8] error\n");
    assert_string_equal(got(&s, 0), "");
    close(s.writer[1][0]); /* the unfinished line comes with the end of the pipe */
    s.writer[1][0] = -1;
    turn(&s);
    assert_string_equal(got(&s, 0), "[8] fo\n");
    assert_false(lsi_output_pending(s.output));
    end(&s);
}

static void finish_takes_the_rest(void **state)
{
    (void)state;
    setup s;
    begin(&s, 0);
    assert_int_equal(write(s.writer[0][0], "a\nb", 3), 3);
    assert_int_equal(write(s.writer[1][1], "c", 1), 1);
    lsi_output_finish(s.output); /* though somebody may hold the pipes open */
    assert_string_equal(got(&s, 0), "[0] a\n[0] b\n");
    assert_string_equal(got(&s, 1), "[1] c\n");
    assert_int_equal(turn(&s), 0);
    lsi_output_finish(NULL);
    assert_false(lsi_output_pending(NULL));
    end(&s);
}

static void endless_lines_are_cut(void **state)
{
    (void)state;
    setup s;
    size_t lines = 0, bytes = 0;
    static char chunk[16384], back[1 << 17];
    memset(chunk, 'x', sizeof chunk);
    begin(&s, 0);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(write(s.writer[0][0], chunk, sizeof chunk), sizeof chunk);
        while (turn(&s) > 0) {
            ssize_t n = read(s.reader[0], back, sizeof back);
            for (ssize_t k = 0; k < n; k++) {
                lines += back[k] == '\n';
                bytes += back[k] == 'x';
            }
        }
    }
    assert_int_equal(bytes, 16 * sizeof chunk);
    assert_int_equal(lines, 4);
    end(&s);
}

/* A reader that does not read stops the ranks, never us, and nothing is lost. */
static void slow_reader(void **state)
{
    (void)state;
    setup s;
    char line[64], seen[64];
    static char back[1 << 16];
    size_t sent = 0, read_lines = 0, used = 0;
    begin(&s, 0);
    fcntl(s.writer[0][0], F_SETFL, O_NONBLOCK);
    for (;;) { /* until all buffers are full */
        int n = snprintf(line, sizeof line, "line %zu\n", sent);
        if (write(s.writer[0][0], line, (size_t)n) == n)
            sent++;
        else if (turn(&s) == 0)
            break;
        assert_true(sent < 10000000);
    }
    assert_true(lsi_output_pending(s.output));
    put(&s, 1, 1, "the other one is not held up\n");
    assert_string_equal(got(&s, 1), "[1] the other one is not held up\n");

    while (read_lines < sent) {
        ssize_t n = read(s.reader[0], back, sizeof back);
        for (ssize_t k = 0; k < n; k++) {
            seen[used++] = back[k];
            if (back[k] == '\n') {
                int want = snprintf(line, sizeof line, "[0] line %zu\n", read_lines++);
                assert_int_equal(used, want);
                assert_memory_equal(seen, line, used);
                used = 0;
            }
        }
        turn(&s);
    }
    assert_false(lsi_output_pending(s.output));
    assert_int_equal(turn(&s), 0);
    end(&s);
}

/* A full sink that empties while another stream is served: the one that was held up goes on. */
static void held_up_stream_goes_on(void **state)
{
    (void)state;
    setup s;
    static char back[1 << 16];
    begin(&s, 0);
    fcntl(s.writer[0][0], F_SETFL, O_NONBLOCK);
    while (write(s.writer[0][0], "a line\n", 7) == 7 || turn(&s) > 0)
        ;
    while (lsi_output_pending(s.output)) { /* never by an event of the sink */
        while (read(s.reader[0], back, sizeof back) > 0)
            ;
        assert_int_equal(write(s.writer[1][0], "b\n", 2), 2);
        lsi_output_stream_ready(s.output, 2);
    }
    while (read(s.reader[0], back, sizeof back) > 0)
        ;
    while (turn(&s) > 0) {
        while (read(s.reader[0], back, sizeof back) > 0)
            ;
    }
    put(&s, 0, 0, "rest\n");
    assert_non_null(strstr(got(&s, 0), "rest\n"));
    end(&s);
}

static void vanished_reader(void **state)
{
    (void)state;
    setup s;
    begin(&s, 0);
    close(s.reader[0]);
    s.reader[0] = -1;
    put(&s, 0, 0, "into the void\n");
    assert_false(lsi_output_pending(s.output));
    assert_int_equal(write(s.writer[0][0], "x", 1), -1); /* the rank learns it as without us */
    assert_int_equal(errno, EPIPE);
    assert_int_equal(write(s.writer[1][0], "x", 1), -1);
    put(&s, 1, 1, "still here\n");
    assert_string_equal(got(&s, 1), "[1] still here\n");
    lsi_output_finish(s.output);
    end(&s);
}

/* A file: no events, no second description (which would have an offset of its own). */
static void into_a_file(void **state)
{
    (void)state;
    setup s;
    char name[] = "/tmp/lockstep-output-XXXXXX", text[64];
    int file = mkstemp(name);
    unlink(name);
    assert_int_equal(write(file, "head\n", 5), 5);
    int saved = dup(1);
    fflush(NULL);
    begin(&s, 0);
    lsi_output_destroy(s.output);
    for (int i = 0; i < 4; i++)
        close(s.writer[i / 2][i % 2]);
    dup2(file, 1);
    assert_int_equal(lsi_output_create(s.epoll, 2, 0, &s.output), LS_OK);
    for (int r = 0; r < 2; r++)
        assert_int_equal(lsi_output_open(s.output, r, s.writer[r]), LS_OK);
    put(&s, 0, 0, "tail\n");
    assert_int_equal(pread(file, text, sizeof text, 0), 14);
    assert_memory_equal(text, "head\n[0] tail\n", 14);
    end(&s);
    close(saved);
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_lines_only),
        cmocka_unit_test(finish_takes_the_rest),
        cmocka_unit_test(endless_lines_are_cut),
        cmocka_unit_test(slow_reader),
        cmocka_unit_test(held_up_stream_goes_on),
        cmocka_unit_test(vanished_reader),
        cmocka_unit_test(into_a_file),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
